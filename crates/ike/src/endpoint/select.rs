//! Which connection a peer belongs to: by addresses when it speaks, by identities when it says who it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::iana::KeId;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::{IkeSuite, Proposal};

use super::Endpoint;
use crate::negotiate::{self, Selected};
use crate::sa::IkeSa;
use ironswan_keying::{AddrSpec, Connection};

type Names = BTreeSet<String>;

/// A stranger's proposals are compared with no more lists of proposals than this.
const MAX_COMPARED: usize = 64;

/// With so many lists at most, all are compared before any connection is looked for.
const FEW: usize = 16;

/// What comes of an IKE_SA_INIT request's addresses and proposals.
pub(crate) enum Fit {
    /// The best connection for these addresses that accepts one of the proposals.
    Connection(Arc<Connection>, Selected<IkeSuite>),
    /// No connection for these addresses accepts one.
    NoProposal,
    /// There is no connection for these addresses.
    NoConnection,
}

/// A list of proposals that connections have in common.
struct List {
    id: u64,
    connections: usize,
}

/// The connections, found by name, by addresses and by the peer's identity without looking at each.
#[derive(Default)]
pub(crate) struct Connections {
    by_name: BTreeMap<String, Arc<Connection>>,
    /// Names by single (local, remote) address, where both are configured as such.
    by_pair: BTreeMap<(IpAddr, IpAddr), Names>,
    /// Names by single remote address.
    by_peer: BTreeMap<IpAddr, Names>,
    /// The same of those whose local address is not single.
    by_remote: BTreeMap<IpAddr, Names>,
    /// Those that are for ranges of peers or for anyone.
    general: BTreeMap<String, Arc<Connection>>,
    /// Every list of proposals, so that one is compared once however many connections have it.
    lists: HashMap<Vec<Proposal>, List>,
    by_list: BTreeMap<u64, Vec<Proposal>>,
    next_list: u64,
    /// Names by the one identity that the peer must have.
    by_id: BTreeMap<Identity, Names>,
    /// Names of those that accept several.
    any_id: Names,
    /// Names by our own identity.
    by_local_id: BTreeMap<Identity, Names>,
    /// What the DNS names in them stand for, as far as that is known.
    resolved: BTreeMap<String, Vec<IpAddr>>,
    /// Names of connections by DNS name.
    by_dns: BTreeMap<String, Names>,
}

/// Puts a name into a set of an index, or takes it out.
fn index<K: Ord>(map: &mut BTreeMap<K, Names>, key: K, name: &str, add: bool) {
    if add {
        map.entry(key).or_default().insert(name.to_owned());
    } else if let Some(names) = map.get_mut(&key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(&key);
        }
    }
}

fn literal(specs: &[AddrSpec]) -> impl Iterator<Item = IpAddr> + Clone {
    specs.iter().filter_map(|s| if let AddrSpec::Host(a) = s { Some(*a) } else { None })
}

/// The DNS names among the addresses of a connection.
pub(crate) fn dns_names(conn: &Connection) -> BTreeSet<String> {
    let specs = conn.local_addrs.iter().chain(&conn.remote_addrs);
    specs.filter_map(|s| if let AddrSpec::Name(n) = s { Some(n.clone()) } else { None }).collect()
}

impl Connections {
    pub(crate) fn insert(&mut self, conn: Arc<Connection>) {
        self.remove(&conn.name);
        self.index(&conn, true);
        self.by_name.insert(conn.name.clone(), conn);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<Connection>> {
        let conn = self.by_name.remove(name)?;
        self.index(&conn, false);
        Some(conn)
    }

    /// Remembers or forgets the connection's list of proposals.
    fn list(&mut self, conn: &Connection, add: bool) {
        if add {
            let next = &mut self.next_list;
            let list = self.lists.entry(conn.proposals.clone()).or_insert_with(|| {
                *next += 1;
                List { id: *next, connections: 0 }
            });
            list.connections += 1;
            self.by_list.entry(list.id).or_insert_with(|| conn.proposals.clone());
        } else if let Some(list) = self.lists.get_mut(&conn.proposals) {
            list.connections -= 1;
            if list.connections == 0 {
                self.by_list.remove(&list.id);
                self.lists.remove(&conn.proposals);
            }
        }
    }

    fn index(&mut self, conn: &Arc<Connection>, add: bool) {
        let name = &conn.name;
        for dns in dns_names(conn) {
            index(&mut self.by_dns, dns, name, add);
        }
        // Policies without SAs are no peer's: nobody authenticates by them.
        if conn.only_shunts() {
            return;
        }
        self.list(conn, add);
        let only_hosts = |specs: &[AddrSpec]| !specs.is_empty() && literal(specs).count() == specs.len();
        let single = |s: &AddrSpec| matches!(s, AddrSpec::Host(_) | AddrSpec::Name(_));
        let remotes: BTreeSet<IpAddr> = self.hosts(&conn.remote_addrs).collect();
        for remote in remotes {
            for local in literal(&conn.local_addrs) {
                index(&mut self.by_pair, (local, remote), name, add);
            }
            index(&mut self.by_peer, remote, name, add);
            if !only_hosts(&conn.local_addrs) {
                index(&mut self.by_remote, remote, name, add);
            }
        }
        let set = |names: &mut Names| if add { names.insert(name.clone()) } else { names.remove(name) };
        if conn.remote_addrs.is_empty() || !conn.remote_addrs.iter().all(single) {
            match add {
                true => _ = self.general.insert(name.clone(), conn.clone()),
                false => _ = self.general.remove(name),
            }
        }
        if let Some(id) = &conn.local_id {
            index(&mut self.by_local_id, id.folded(), name, add);
        }
        match &conn.remote_id {
            IdPattern::Exact(id) => index(&mut self.by_id, id.folded(), name, add),
            IdPattern::Any | IdPattern::Suffix(..) => {
                set(&mut self.any_id);
            }
        }
    }

    /// How precisely a list of addresses means this one; `None` when it does not. A DNS name means what it last stood for.
    pub(crate) fn fit(&self, specs: &[AddrSpec], addr: IpAddr) -> Option<u8> {
        if specs.is_empty() {
            return Some(1);
        }
        let score = |s: &AddrSpec| match s {
            AddrSpec::Name(n) => self.resolved.get(n).is_some_and(|all| all.contains(&addr)).then_some(3),
            s if !s.matches(addr) => None,
            AddrSpec::Any => Some(1),
            AddrSpec::Range(_) => Some(2),
            AddrSpec::Host(_) => Some(3),
        };
        specs.iter().filter_map(score).max()
    }

    /// The single addresses in a list, in its order, with what its DNS names last stood for.
    pub(crate) fn hosts<'a>(&'a self, specs: &'a [AddrSpec]) -> impl Iterator<Item = IpAddr> + 'a {
        specs
            .iter()
            .flat_map(|s| match s {
                AddrSpec::Host(a) => std::slice::from_ref(a),
                AddrSpec::Name(n) => self.resolved.get(n).map_or(&[][..], Vec::as_slice),
                AddrSpec::Any | AddrSpec::Range(_) => &[],
            })
            .copied()
    }

    /// The first `most` of these addresses of a DNS name, each once: those that are known, in the order in which they are
    /// known, and then the others.
    pub(crate) fn in_known_order(&self, dns: &str, addrs: &[IpAddr], most: usize) -> Vec<IpAddr> {
        let known = self.resolved.get(dns).map_or(&[][..], Vec::as_slice);
        let mut all: Vec<IpAddr> = known.iter().filter(|addr| addrs.contains(addr)).copied().collect();
        for addr in addrs {
            if all.len() < most && !all.contains(addr) {
                all.push(*addr);
            }
        }
        all.truncate(most);
        all
    }

    /// What a DNS name stands for now; empty forgets it. The connections that have it; `None` when nothing is new.
    pub(crate) fn set_resolved(&mut self, dns: &str, addrs: Vec<IpAddr>) -> Option<Vec<Arc<Connection>>> {
        if self.resolved.get(dns).map_or(&[][..], Vec::as_slice) == addrs.as_slice() {
            return None;
        }
        let users: Vec<Arc<Connection>> = self.using(dns);
        for conn in &users {
            self.index(conn, false);
        }
        match addrs.is_empty() {
            true => self.resolved.remove(dns),
            false => self.resolved.insert(dns.to_owned(), addrs),
        };
        for conn in &users {
            self.index(conn, true);
        }
        Some(users)
    }

    /// The connections that have this DNS name.
    pub(crate) fn using(&self, dns: &str) -> Vec<Arc<Connection>> {
        let names = self.by_dns.get(dns).into_iter().flatten();
        names.filter_map(|name| self.by_name.get(name)).cloned().collect()
    }

    /// How many DNS names the connections have.
    pub(crate) fn names(&self) -> usize {
        self.by_dns.len()
    }

    /// True for an identity that is ours on some connection.
    fn is_ours(&self, id: &Identity) -> bool {
        self.by_local_id.contains_key(&id.folded())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Connection>> {
        self.by_name.get(name)
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// By name.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_name.values()
    }

    /// Those configured for this pair of addresses, the most precise first, among equals by name. Lazy: there may be
    /// thousands for one pair.
    pub(crate) fn for_addrs(&self, local: IpAddr, remote: IpAddr) -> impl Iterator<Item = &Arc<Connection>> {
        let exact = self.by_pair.get(&(local, remote));
        let from = self.by_remote.get(&remote);
        let rest = move || {
            let known = |names: Option<&Names>, name: &String| names.is_some_and(|n| n.contains(name));
            let others = from.into_iter().flatten().filter_map(|name| self.by_name.get_key_value(name));
            let general = self.general.iter().filter(|(name, _)| !known(from, name));
            let mut found: Vec<_> = others
                .chain(general)
                .filter_map(|(name, c)| {
                    let score = (self.fit(&c.remote_addrs, remote)?, self.fit(&c.local_addrs, local)?);
                    (!known(exact, name)).then_some((std::cmp::Reverse(score), name, c))
                })
                .collect();
            found.sort_unstable_by_key(|(score, name, _)| (*score, *name));
            found.into_iter().map(|(_, _, c)| c)
        };
        let first = exact.into_iter().flatten().filter_map(|name| self.by_name.get(name));
        first.chain(std::iter::once_with(rest).flatten())
    }

    /// The best connection for these addresses that accepts what a stranger proposes. Costs one comparison for each list of
    /// proposals, whatever the number of connections, and nothing more where none of all lists accepts it. Counts the pairs
    /// of proposals that it compares.
    pub(crate) fn fitting(
        &self,
        (local, remote): (IpAddr, IpAddr),
        offered: &[Proposal],
        ke: KeId,
        compared: &mut u64,
    ) -> Fit {
        let mut known: BTreeMap<u64, Option<Selected<IkeSuite>>> = BTreeMap::new();
        if self.by_list.len() <= FEW {
            for (id, list) in &self.by_list {
                known.insert(*id, negotiate::fit_ike(list, offered, Some(ke), compared));
            }
            if !known.is_empty() && known.values().all(Option::is_none) {
                return Fit::NoProposal;
            }
        }
        let mut any = false;
        for conn in self.for_addrs(local, remote) {
            any = true;
            let Some(list) = self.lists.get(&conn.proposals) else { continue };
            if known.len() >= MAX_COMPARED && !known.contains_key(&list.id) {
                break;
            }
            let fits = known
                .entry(list.id)
                .or_insert_with(|| negotiate::fit_ike(&conn.proposals, offered, Some(ke), compared));
            if let Some(selected) = fits.take() {
                return Fit::Connection(conn.clone(), selected);
            }
        }
        if any { Fit::NoProposal } else { Fit::NoConnection }
    }

    /// Names of the connections of which an IKE_SA may be with the same peer as this one's, which is at one of these addresses:
    /// those that name the same identity, and those for one of the addresses where either of the two leaves the identity open.
    pub(crate) fn that_may_meet<'a>(
        &'a self,
        conn: &Connection,
        here: &BTreeSet<IpAddr>,
    ) -> BTreeSet<&'a String> {
        let at = here.iter().filter_map(|addr| self.by_peer.get(addr)).flatten();
        match &conn.remote_id {
            IdPattern::Exact(id) => {
                let same = self.by_id.get(&id.folded()).into_iter().flatten();
                same.chain(at.filter(|name| self.any_id.contains(*name))).collect()
            }
            IdPattern::Any | IdPattern::Suffix(..) => at.chain(self.general.keys()).collect(),
        }
    }

    /// All that can be meant by a peer with this identity at these addresses, and perhaps others: found by what fewer
    /// have in common.
    fn for_peer(
        &self,
        local: IpAddr,
        remote: IpAddr,
        id: &Identity,
    ) -> impl Iterator<Item = &Arc<Connection>> {
        let (exact, pair, from) =
            (self.by_id.get(&id.folded()), self.by_pair.get(&(local, remote)), self.by_remote.get(&remote));
        let len = |names: Option<&Names>| names.map_or(0, Names::len);
        let by_id = len(exact) + self.any_id.len() <= len(pair) + len(from) + self.general.len();
        let sets = if by_id { [exact, Some(&self.any_id)] } else { [pair, from] };
        let general = (!by_id).then(|| self.general.keys()).into_iter().flatten();
        let names: BTreeSet<&String> = sets.into_iter().flatten().flatten().chain(general).collect();
        names.into_iter().filter_map(|name| self.by_name.get(name))
    }
}

/// Our identity on this connection, when we are at `local`.
pub(crate) fn local_identity(conn: &Connection, local: IpAddr) -> Identity {
    conn.local_id.clone().unwrap_or_else(|| Identity::from_addr(local))
}

impl Endpoint {
    /// True when a peer says that it is us, and the configuration does not say that this is whom we expect.
    pub(crate) fn claims_to_be_us(&self, sa: &IkeSa, peer: &Identity) -> bool {
        let ours = self.conns.is_ours(peer) || sa.local_id.folded() == peer.folded();
        ours && !matches!(sa.conn.remote_id, IdPattern::Exact(_))
    }

    /// The best of the candidates for a peer that says it is `idi`, and perhaps that we are `idr`. `suite` has been
    /// agreed already, so the connection must allow it.
    pub(crate) fn select_by_identity(
        &self,
        local: IpAddr,
        remote: IpAddr,
        suite: &IkeSuite,
        idi: &Identity,
        idr: Option<&Identity>,
    ) -> Option<Arc<Connection>> {
        let mut best: Option<((u8, u8, u8), Arc<Connection>)> = None;
        for conn in self.conns.for_peer(local, remote, idi) {
            let fit = |specs, addr| self.conns.fit(specs, addr);
            let (Some(theirs), Some(ours)) = (fit(&conn.remote_addrs, remote), fit(&conn.local_addrs, local))
            else {
                continue;
            };
            if !allows(conn, suite) || !conn.remote_id.matches(idi) {
                continue;
            }
            // "IDr ... the initiator ... specifies which of the responder's identities it wants to talk to"
            // (RFC 7296 section 2.15). Without one, any of ours.
            if let Some(idr) = idr
                && !IdPattern::Exact(local_identity(conn, local)).matches(idr)
            {
                continue;
            }
            let identity = match conn.remote_id {
                IdPattern::Any => 1,
                IdPattern::Suffix(..) => 2,
                IdPattern::Exact(_) => 3,
            };
            let score = (identity, theirs, ours);
            if best.as_ref().is_none_or(|(s, _)| score > *s) {
                best = Some((score, conn.clone()));
            }
        }
        best.map(|(_, c)| c)
    }

    /// The peer has said who it is, and belongs to another connection than its address suggested.
    pub(crate) fn move_to_conn(&mut self, sa: &mut IkeSa, conn: Arc<Connection>) {
        if let Some(set) = self.by_conn.get_mut(&sa.conn.name) {
            set.remove(&sa.id);
            if set.is_empty() {
                self.by_conn.remove(&sa.conn.name);
            }
        }
        self.by_conn.entry(conn.name.clone()).or_default().insert(sa.id);
        sa.local_id = local_identity(&conn, sa.local.ip());
        sa.conn = conn;
    }
}

/// True when one of the connection's proposals allows this suite.
fn allows(conn: &Connection, suite: &IkeSuite) -> bool {
    use ironswan_wire::proposal::Transform as T;
    conn.proposals.iter().any(|p| {
        let bits = suite.encr.has_key_length().then_some(suite.key_bits);
        p.transforms.contains(&T::Encr(suite.encr, bits))
            && p.transforms.contains(&T::Prf(suite.prf))
            && p.transforms.contains(&T::Ke(suite.ke))
            && suite.integ.is_none_or(|i| p.transforms.contains(&T::Integ(i)))
    })
}
