//! Policies as the endpoint sees them: which are installed and how often, reqids, and traps.
//!
//! A child's policies stay the same over rekeyings, so they are counted: the engine hears of the first and of the last. It
//! hears of each child that has them, as the children may differ in what is asked by name (`guard`).

use std::collections::BTreeMap;

use ironswan_wire::sadb::{Action, Command, PolicyAdd, ReqId};
use ironswan_wire::selector::TrafficSelector;

type Selectors = (Vec<TrafficSelector>, Vec<TrafficSelector>);

/// Identifies a policy: action (with reqid), selectors, and whose it is.
type Key = (u8, u32, TrafficSelector, TrafficSelector, String);

fn key(p: &PolicyAdd) -> Key {
    let (kind, reqid) = match p.action {
        Action::Protect(r) => (0, r.0),
        Action::Bypass => (1, 0),
        Action::Discard => (2, 0),
    };
    (kind, reqid, p.local, p.remote, p.name.clone())
}

/// A trap, or a shunt.
pub(crate) struct Trap {
    reqid: ReqId,
    selectors: Selectors,
    policies: Vec<PolicyAdd>,
}

/// The endpoint's view of the SPD.
#[derive(Default)]
pub(crate) struct Spd {
    installed: BTreeMap<Key, (usize, PolicyAdd)>,
    /// The same selectors have the same reqid, so that an SA made again takes over the old one's policies.
    reqids: BTreeMap<Selectors, (ReqId, usize)>,
    in_use: BTreeMap<ReqId, usize>,
    last: u32,
    traps: BTreeMap<(String, String), Trap>,
    by_reqid: BTreeMap<ReqId, (String, String)>,
}

impl Spd {
    /// A reqid for these selectors, `fixed` when that is not 0. Give it back with [`Self::release`].
    pub(crate) fn reqid(&mut self, selectors: &Selectors, fixed: u32) -> ReqId {
        let reqid = match self.reqids.get_mut(selectors) {
            Some((reqid, count)) if fixed == 0 || reqid.0 == fixed => {
                *count += 1;
                *reqid
            }
            Some(_) => ReqId(fixed),
            None => {
                let reqid = if fixed != 0 { ReqId(fixed) } else { self.fresh() };
                self.reqids.insert(selectors.clone(), (reqid, 1));
                reqid
            }
        };
        *self.in_use.entry(reqid).or_default() += 1;
        reqid
    }

    /// One more user of a reqid (a rekeyed child, or a child of a trap).
    pub(crate) fn share(&mut self, selectors: &Selectors, reqid: ReqId) {
        let entry = self.reqids.entry(selectors.clone()).or_insert((reqid, 0));
        if entry.0 == reqid {
            entry.1 += 1;
        }
        *self.in_use.entry(reqid).or_default() += 1;
    }

    fn fresh(&mut self) -> ReqId {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.in_use.contains_key(&ReqId(self.last)) {
                return ReqId(self.last);
            }
        }
    }

    /// One user less.
    pub(crate) fn release(&mut self, selectors: &Selectors, reqid: ReqId) {
        if let Some((r, count)) = self.reqids.get_mut(selectors)
            && *r == reqid
        {
            *count -= 1;
            if *count == 0 {
                self.reqids.remove(selectors);
            }
        }
        if let Some(count) = self.in_use.get_mut(&reqid) {
            *count -= 1;
            if *count == 0 {
                self.in_use.remove(&reqid);
            }
        }
    }

    /// Installs a policy once more; a command only when it is the first.
    pub(crate) fn add(&mut self, policy: PolicyAdd) -> Option<Command> {
        let entry = self.installed.entry(key(&policy)).or_insert_with(|| (0, policy.clone()));
        entry.0 += 1;
        (entry.0 == 1).then_some(Command::PolicyAdd(policy))
    }

    /// Removes a policy once; a command only when it was the last.
    pub(crate) fn remove(&mut self, policy: &PolicyAdd) -> Option<Command> {
        let key = key(policy);
        let entry = self.installed.get_mut(&key)?;
        entry.0 -= 1;
        if entry.0 > 0 {
            return None;
        }
        // As it was installed.
        self.installed.remove(&key).map(|(_, p)| Command::PolicyDelete(p))
    }

    /// How much is remembered: policies, reqids and traps.
    pub(crate) fn len(&self) -> usize {
        self.installed.len() + self.reqids.len() + self.in_use.len() + self.traps.len() + self.by_reqid.len()
    }

    /// Remembers a trap (or a shunt, with reqid 0).
    pub(crate) fn set_trap(
        &mut self,
        name: (String, String),
        reqid: ReqId,
        selectors: Selectors,
        policies: Vec<PolicyAdd>,
    ) {
        if reqid.0 != 0 {
            self.by_reqid.insert(reqid, name.clone());
        }
        self.traps.insert(name, Trap { reqid, selectors, policies });
    }

    /// The reqid of a child's trap.
    pub(crate) fn trap_reqid(&self, conn: &str, child: &str) -> Option<ReqId> {
        let trap = self.traps.get(&(conn.to_owned(), child.to_owned()))?;
        (trap.reqid.0 != 0).then_some(trap.reqid)
    }

    /// True when there is a trap or shunt of this name.
    pub(crate) fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.traps.contains_key(&(conn.to_owned(), child.to_owned()))
    }

    /// Whose trap has this reqid.
    pub(crate) fn trap_of(&self, reqid: ReqId) -> Option<(String, String)> {
        self.by_reqid.get(&reqid).cloned()
    }

    /// Takes a trap out; its policies are still to be removed.
    pub(crate) fn take_trap(&mut self, conn: &str, child: &str) -> Option<Vec<PolicyAdd>> {
        let trap = self.traps.remove(&(conn.to_owned(), child.to_owned()))?;
        if trap.reqid.0 != 0 {
            self.by_reqid.remove(&trap.reqid);
            self.release(&trap.selectors, trap.reqid);
        }
        Some(trap.policies)
    }

    /// The children of a connection that have a trap or shunt.
    pub(crate) fn traps_of_conn(&self, conn: &str) -> Vec<String> {
        self.traps
            .range((conn.to_owned(), String::new())..)
            .take_while(|((c, _), _)| c == conn)
            .map(|((_, child), _)| child.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ironswan_wire::selector::AddrRange;

    use super::*;

    fn selectors(a: &str, b: &str) -> Selectors {
        let net = |t: &str| TrafficSelector::addresses(AddrRange::prefix(t.parse().unwrap(), 24).unwrap());
        (vec![net(a)], vec![net(b)])
    }

    #[test]
    fn the_same_selectors_share_a_reqid_while_anyone_uses_it() {
        let mut spd = Spd::default();
        let (x, y) = (selectors("10.1.0.0", "10.2.0.0"), selectors("10.1.0.0", "10.3.0.0"));
        let a = spd.reqid(&x, 0);
        assert_eq!(spd.reqid(&x, 0), a);
        let b = spd.reqid(&y, 0);
        assert_ne!(a, b);
        spd.release(&x, a);
        assert_eq!(spd.reqid(&x, 0), a);
        assert_eq!(spd.reqid(&selectors("10.1.0.0", "10.9.0.0"), 77), ReqId(77));
    }

    #[test]
    fn the_engine_hears_of_the_first_and_the_last() {
        let mut spd = Spd::default();
        let (l, r) = selectors("10.1.0.0", "10.2.0.0");
        let p = PolicyAdd {
            name: "conn.a".into(),
            action: Action::Protect(ReqId(1)),
            local: l[0],
            remote: r[0],
            priority: 0,
        };
        let other = PolicyAdd { name: "conn.b".into(), ..p.clone() };
        assert!(spd.add(p.clone()).is_some());
        assert!(spd.add(p.clone()).is_none());
        assert_eq!(spd.add(other.clone()), Some(Command::PolicyAdd(other.clone())), "another child's");
        assert!(spd.remove(&p).is_none());
        assert_eq!(spd.remove(&p), Some(Command::PolicyDelete(p.clone())));
        assert_eq!(spd.remove(&p), None);
        assert_eq!(spd.remove(&other), Some(Command::PolicyDelete(other.clone())));
    }
}
