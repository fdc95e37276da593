//! Policies as the endpoint sees them: which are installed and how often, reqids, and traps.
//!
//! A child's policies stay the same over rekeyings, so they are counted: the engine hears of the
//! first and of the last. It hears of each child that has them, as the children may differ in what
//! is asked by name (`guard`).

use std::collections::BTreeMap;

use ironswan_wire::sadb::{Action, Command, Entry, PolicyAdd, ReqId};
use ironswan_wire::selector::TrafficSelector;

use crate::narrow;
use ironswan_keying::MAX_REQID;

type Selectors = (Vec<TrafficSelector>, Vec<TrafficSelector>);

/// The selectors of a child: ours and the peer's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Narrowed {
    /// As configured, for the addresses that the ends had then.
    pub configured: Selectors,
    /// As agreed on.
    pub agreed: Selectors,
}

impl Narrowed {
    /// The configured selectors themselves: nothing is narrowed.
    pub(crate) fn whole(configured: Selectors) -> Self {
        Self { agreed: configured.clone(), configured }
    }

    /// How many pairs of selectors there are beyond those that are configured: the peer has cut
    /// these into pieces.
    pub(crate) fn pieces(&self) -> usize {
        let pairs = |s: &Selectors| s.0.len().saturating_mul(s.1.len());
        pairs(&self.agreed).saturating_sub(pairs(&self.configured))
    }
}

/// Reqids from here on are chosen, smaller ones are configured: a number that somebody configures
/// is never in use already.
const CHOSEN: u32 = MAX_REQID + 1;

/// Identifies a policy: action (with reqid), selectors and their entry, and whose it is.
type Key = (u8, u32, TrafficSelector, TrafficSelector, Entry, String);

fn key(p: &PolicyAdd) -> Key {
    let (kind, reqid) = match p.action {
        Action::Protect(r) => (0, r.0),
        Action::Bypass => (1, 0),
        Action::Discard => (2, 0),
    };
    (kind, reqid, p.local, p.remote, p.entry, p.name.clone())
}

/// The entries of the policies of a child, for each pair of its selectors. Shunts are not
/// negotiated: theirs are all alike.
#[derive(Default)]
pub(crate) struct Entries {
    age: u64,
    /// The open bits of each of our selectors, and of each of the peer's.
    local: Vec<u32>,
    remote: Vec<u32>,
}

impl Entries {
    /// The entry of the policy for two selectors, by their places among ours and among the peer's.
    pub(crate) fn of(&self, local: usize, remote: usize) -> Entry {
        match (self.local.get(local), self.remote.get(remote)) {
            (Some(l), Some(r)) => Entry { open: l + r, age: self.age },
            _ => Entry::default(),
        }
    }
}

/// A trap, or a shunt.
pub(crate) struct Trap {
    reqid: ReqId,
    selectors: Narrowed,
    policies: Vec<PolicyAdd>,
}

/// The endpoint's view of the SPD.
#[derive(Default)]
pub(crate) struct Spd {
    installed: BTreeMap<Key, (usize, PolicyAdd)>,
    /// The same selectors, narrowed from the same ones, have the same reqid, so that an SA made
    /// again takes over the old one's policies. Whoever has his narrowed to what somebody else is
    /// configured to have gets another.
    reqids: BTreeMap<Narrowed, (ReqId, usize)>,
    /// The age of what is configured, and how many children and traps are narrowed from it.
    ages: BTreeMap<Selectors, (u64, usize)>,
    last_age: u64,
    in_use: BTreeMap<ReqId, usize>,
    next: u32,
    traps: BTreeMap<(String, String), Trap>,
    by_reqid: BTreeMap<ReqId, (String, String)>,
}

impl Spd {
    /// A reqid for these selectors, `fixed` when that is not 0. Give it back with
    /// [`Self::release`].
    pub(crate) fn reqid(&mut self, selectors: &Narrowed, fixed: u32) -> ReqId {
        let reqid = match self.reqids.get(selectors) {
            _ if fixed != 0 => ReqId(fixed),
            Some((reqid, _)) => *reqid,
            None => self.fresh(),
        };
        self.share(selectors, reqid);
        reqid
    }

    /// One more user of a reqid (a rekeyed child, or a child of a trap).
    pub(crate) fn share(&mut self, selectors: &Narrowed, reqid: ReqId) {
        self.enter(&selectors.configured);
        if reqid.0 >= CHOSEN {
            let entry = self.reqids.entry(selectors.clone()).or_insert((reqid, 0));
            if entry.0 == reqid {
                entry.1 += 1;
            }
        }
        *self.in_use.entry(reqid).or_default() += 1;
    }

    fn fresh(&mut self) -> ReqId {
        loop {
            let reqid = ReqId(CHOSEN | self.next);
            self.next = self.next.wrapping_add(1) & MAX_REQID;
            if !self.in_use.contains_key(&reqid) {
                return reqid;
            }
        }
    }

    /// One more child or trap of what is configured.
    fn enter(&mut self, configured: &Selectors) {
        match self.ages.get_mut(configured) {
            Some((_, count)) => *count += 1,
            None => {
                self.last_age += 1;
                self.ages.insert(configured.clone(), (self.last_age, 1));
            }
        }
    }

    /// The entries of the policies of a child or a trap.
    pub(crate) fn entries(&self, action: Action, selectors: &Narrowed) -> Entries {
        let Narrowed { configured, agreed } = selectors;
        if !matches!(action, Action::Protect(_)) {
            return Entries::default();
        }
        let open = |configured: &[_], side: &[_]| {
            side.iter().map(|ts| narrow::open_bits(configured, ts)).collect::<Vec<u32>>()
        };
        Entries {
            age: self.ages.get(configured).map_or(0, |(age, _)| *age),
            local: open(&configured.0, &agreed.0),
            remote: open(&configured.1, &agreed.1),
        }
    }

    /// One user less.
    pub(crate) fn release(&mut self, selectors: &Narrowed, reqid: ReqId) {
        if let Some((_, count)) = self.ages.get_mut(&selectors.configured) {
            *count -= 1;
            if *count == 0 {
                self.ages.remove(&selectors.configured);
            }
        }
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
        let reqids = self.reqids.len() + self.in_use.len() + self.ages.len();
        self.installed.len() + reqids + self.traps.len() + self.by_reqid.len()
    }

    /// Remembers a trap (or a shunt, with reqid 0).
    pub(crate) fn set_trap(
        &mut self,
        name: (String, String),
        reqid: ReqId,
        selectors: Narrowed,
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

    /// The connection and child of the trap that has this reqid.
    pub(crate) fn trap_of(&self, reqid: ReqId) -> Option<(String, String)> {
        self.by_reqid.get(&reqid).cloned()
    }

    /// Connection and child of every trap, by reqid; of one connection, or of all.
    pub(crate) fn traps_of(&self, conn: Option<&str>) -> BTreeMap<ReqId, (String, String)> {
        let wanted = self.by_reqid.iter().filter(|(_, (of, _))| conn.is_none_or(|conn| of == conn));
        wanted.map(|(reqid, name)| (*reqid, name.clone())).collect()
    }

    /// The reqid of a trap.
    pub(crate) fn reqid_of_trap(&self, conn: &str, child: &str) -> Option<ReqId> {
        self.traps.get(&(conn.to_owned(), child.to_owned())).map(|trap| trap.reqid)
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
}

#[cfg(test)]
mod tests {
    use ironswan_wire::selector::AddrRange;

    use super::*;

    fn net(text: &str) -> TrafficSelector {
        let (addr, len) = text.split_once('/').unwrap();
        let range = AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap());
        TrafficSelector::addresses(range.unwrap())
    }

    fn pair(local: &str, remote: &str) -> Selectors {
        (vec![net(local)], vec![net(remote)])
    }

    fn whole(remote: &str) -> Narrowed {
        Narrowed::whole(pair("10.1.0.0/24", remote))
    }

    #[test]
    fn the_same_selectors_share_a_reqid_while_anyone_uses_it() {
        let mut spd = Spd::default();
        let (x, y) = (whole("10.2.0.0/24"), whole("10.3.0.0/24"));
        let a = spd.reqid(&x, 0);
        assert_eq!(spd.reqid(&x, 0), a);
        let b = spd.reqid(&y, 0);
        assert_ne!(a, b);
        spd.release(&x, a);
        assert_eq!(spd.reqid(&x, 0), a);
        assert_eq!(spd.reqid(&whole("10.9.0.0/24"), 77), ReqId(77));
        for (selectors, reqid) in [(&x, a), (&x, a), (&y, b), (&whole("10.9.0.0/24"), ReqId(77))] {
            spd.release(selectors, reqid);
        }
        assert_eq!(spd.len(), 0);
    }

    #[test]
    fn a_reqid_is_never_shared_for_what_a_peer_narrows_to_or_somebody_configures() {
        let mut spd = Spd::default();
        let b = whole("10.3.0.0/16");
        let hub = Narrowed { configured: pair("10.1.0.0/24", "0.0.0.0/0"), agreed: b.agreed.clone() };
        let (of_hub, of_b) = (spd.reqid(&hub, 0), spd.reqid(&b, 0));
        assert_ne!(of_hub, of_b);
        // Two peers of what is configured once.
        assert_eq!(spd.reqid(&hub, 0), of_hub);
        for fixed in [1, 2, MAX_REQID] {
            let other = spd.reqid(&whole("10.9.0.0/16"), fixed);
            assert_eq!(other, ReqId(fixed));
            assert!(other != of_hub && other != of_b, "{other:?} was chosen");
        }
        // The same selectors, once with a number of their own.
        assert_eq!(spd.reqid(&b, 7), ReqId(7));
        assert_eq!(spd.reqid(&b, 0), of_b);
    }

    #[test]
    fn what_is_narrowed_has_the_place_of_what_is_configured() {
        let mut spd = Spd::default();
        let b = whole("10.3.0.0/16");
        let hub = |to: &str| Narrowed { agreed: pair("10.1.0.0/24", to), ..whole("0.0.0.0/0") };
        let (wide, narrow) = (hub("0.0.0.0/0"), hub("10.3.0.0/17"));
        let action = Action::Protect(spd.reqid(&wide, 0));
        let entry = |spd: &Spd, n: &Narrowed| spd.entries(action, n).of(0, 0);
        spd.reqid(&b, 0);
        spd.reqid(&narrow, 0);
        assert_eq!(entry(&spd, &wide), Entry { open: 32 + 56, age: 1 });
        assert_eq!(entry(&spd, &narrow), entry(&spd, &wide));
        assert_eq!(entry(&spd, &b), Entry { open: 32 + 40, age: 2 });
        assert_eq!(spd.entries(Action::Bypass, &wide).of(0, 0), Entry::default());
        // The age of what is configured ends with its last user.
        spd.release(&wide, spd.reqids[&wide].0);
        assert_eq!(entry(&spd, &narrow).age, 1);
        spd.release(&narrow, spd.reqids[&narrow].0);
        spd.reqid(&narrow, 0);
        assert_eq!(entry(&spd, &narrow).age, 3);
    }

    #[test]
    fn the_engine_hears_of_the_first_and_the_last() {
        let mut spd = Spd::default();
        let (l, r) = pair("10.1.0.0/24", "10.2.0.0/24");
        let p = PolicyAdd {
            name: "conn.a".into(),
            action: Action::Protect(ReqId(1)),
            local: l[0],
            remote: r[0],
            priority: 0,
            entry: Entry::default(),
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
