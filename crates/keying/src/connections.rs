//! The loaded connections, and the choice of the one that a peer belongs to: by addresses and
//! proposals when the peer speaks, by identities when it says who it is. Each choice looks at an
//! index, not at every connection.
//!
//! A protocol says itself whether it accepts a list of proposals, or whether a connection allows
//! what has been agreed already.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;

use crate::limits::{CHOICES_EXPLAINED, LISTS_COMPARED_FIRST, LISTS_PER_REQUEST};
use crate::{AddrSpec, Connection};

type Names = BTreeSet<String>;

/// Result of the choice by addresses and proposals.
#[derive(Clone, PartialEq, Debug)]
pub enum Fit {
    /// The best connection for these addresses that accepts one of the proposals.
    Connection(Arc<Connection>),
    /// No connection for these addresses accepts one.
    NoProposal,
    /// There is no connection for these addresses.
    NoConnection,
}

/// A peer that has said who it is, and perhaps who we are to be.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Identity that the peer claims.
    pub peer: &'a Identity,
    /// Identity of ours that the peer asks for; `None`: any.
    pub asked: Option<&'a Identity>,
}

/// A list of proposals that connections have in common.
struct List {
    id: u64,
    connections: usize,
}

/// The connections, found by name, by addresses and by the peer's identity without looking at each.
#[derive(Default)]
pub struct Connections {
    by_name: BTreeMap<String, Arc<Connection>>,
    /// Names by single (local, remote) address, where both are configured as such.
    by_pair: BTreeMap<(IpAddr, IpAddr), Names>,
    /// Names by single remote address.
    by_peer: BTreeMap<IpAddr, Names>,
    /// Names by single remote address, of the connections whose local address is not single.
    by_remote: BTreeMap<IpAddr, Names>,
    /// Connections that are for ranges of peers or for anyone.
    general: BTreeMap<String, Arc<Connection>>,
    /// Every list of proposals, so that one is compared once however many connections have it.
    lists: HashMap<Vec<Proposal>, List>,
    by_list: BTreeMap<u64, Vec<Proposal>>,
    next_list: u64,
    /// Names by the one identity that the peer must have.
    by_id: BTreeMap<Identity, Names>,
    /// Names of the connections that accept several identities.
    any_id: Names,
    /// Names by our own identity.
    by_local_id: BTreeMap<Identity, Names>,
    /// Names of the connections with several rounds of IKE_AUTH.
    with_rounds: Names,
    /// Addresses of the DNS names in the connections, as far as they are known.
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

impl Connections {
    /// Adds a connection, or replaces the one of this name.
    pub fn insert(&mut self, conn: Arc<Connection>) {
        self.remove(&conn.name);
        self.index(&conn, true);
        self.by_name.insert(conn.name.clone(), conn);
    }

    /// Removes the connection of this name.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Connection>> {
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
        for dns in conn.dns_names() {
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
        if conn.has_rounds() {
            set(&mut self.with_rounds);
        }
        for id in conn.local_sides().filter_map(|(_, id)| id) {
            index(&mut self.by_local_id, id.folded(), name, add);
        }
        match &conn.remote_id {
            IdPattern::Exact(id) => index(&mut self.by_id, id.folded(), name, add),
            IdPattern::Any | IdPattern::Suffix(..) | IdPattern::Name(_) => {
                set(&mut self.any_id);
            }
        }
    }

    /// How precisely a list of addresses means this one; `None` when it does not. A DNS name means
    /// what it last stood for.
    pub fn fit(&self, specs: &[AddrSpec], addr: IpAddr) -> Option<u8> {
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
    pub fn hosts<'a>(&'a self, specs: &'a [AddrSpec]) -> impl Iterator<Item = IpAddr> + 'a {
        specs
            .iter()
            .flat_map(|s| match s {
                AddrSpec::Host(a) => std::slice::from_ref(a),
                AddrSpec::Name(n) => self.resolved.get(n).map_or(&[][..], Vec::as_slice),
                AddrSpec::Any | AddrSpec::Range(_) => &[],
            })
            .copied()
    }

    /// The first `most` of these addresses of a DNS name, each once: those that are known, in the
    /// order in which they are known, and then the others.
    pub fn in_known_order(&self, dns: &str, addrs: &[IpAddr], most: usize) -> Vec<IpAddr> {
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

    /// Takes over the addresses of a DNS name; none forgets the name. Returns the connections that
    /// have it; `None` when nothing is new.
    pub fn set_resolved(&mut self, dns: &str, addrs: Vec<IpAddr>) -> Option<Vec<Arc<Connection>>> {
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
    pub fn using(&self, dns: &str) -> Vec<Arc<Connection>> {
        let names = self.by_dns.get(dns).into_iter().flatten();
        names.filter_map(|name| self.by_name.get(name)).cloned().collect()
    }

    /// True when a loaded connection has several rounds of IKE_AUTH (RFC 4739).
    pub fn have_rounds(&self) -> bool {
        !self.with_rounds.is_empty()
    }

    /// How many DNS names the connections have.
    pub fn names(&self) -> usize {
        self.by_dns.len()
    }

    /// The connection of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Connection>> {
        self.by_name.get(name)
    }

    /// True when a connection of this name is loaded.
    pub fn contains_key(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// All connections, by name.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_name.values()
    }

    /// Connections that are configured for this pair of addresses, the most precise first, among
    /// equals by name. Lazy: there may be thousands for one pair.
    pub fn for_addrs(&self, local: IpAddr, remote: IpAddr) -> impl Iterator<Item = &Arc<Connection>> {
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

    /// The best connection for these addresses that accepts what a stranger proposes. `accepts`
    /// compares that with one list of proposals; it is called once for each list, whatever the
    /// number of connections, and for nothing more where none of all lists accepts it.
    pub fn fitting(
        &self,
        (local, remote): (IpAddr, IpAddr),
        mut accepts: impl FnMut(&[Proposal]) -> bool,
    ) -> Fit {
        let mut known: BTreeMap<u64, bool> = BTreeMap::new();
        if self.by_list.len() <= LISTS_COMPARED_FIRST {
            for (id, list) in &self.by_list {
                known.insert(*id, accepts(list));
            }
            if !known.is_empty() && !known.values().any(|fits| *fits) {
                return Fit::NoProposal;
            }
        }
        let mut any = false;
        for conn in self.for_addrs(local, remote) {
            any = true;
            let Some(list) = self.lists.get(&conn.proposals) else { continue };
            if known.len() >= LISTS_PER_REQUEST && !known.contains_key(&list.id) {
                break;
            }
            if *known.entry(list.id).or_insert_with(|| accepts(&conn.proposals)) {
                return Fit::Connection(conn.clone());
            }
        }
        if any { Fit::NoProposal } else { Fit::NoConnection }
    }

    /// The first single address of a peer that `fits`, and a connection for it. `after`: looks at
    /// the addresses behind this one first. At most `most` are looked at; the last of them is given
    /// when none fits.
    pub fn find_peer(
        &self,
        after: Option<IpAddr>,
        most: usize,
        fits: &mut dyn FnMut(IpAddr) -> bool,
    ) -> (Option<(IpAddr, &str)>, Option<IpAddr>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_peer.range((from, Bound::Unbounded));
        let before = after.map(|last| self.by_peer.range(..=last)).into_iter().flatten();
        let mut last = None;
        for (addr, names) in behind.chain(before).take(most) {
            last = Some(*addr);
            if fits(*addr) {
                let name = names.first().map_or("", String::as_str);
                return (Some((*addr, name)), last);
            }
        }
        (None, last)
    }

    /// Names of the connections of which an IKE_SA may be with the same peer as this one's, which
    /// is at one of these addresses: those that name the same identity, and those for one of the
    /// addresses where either of the two leaves the identity open.
    pub fn that_may_meet<'a>(&'a self, conn: &Connection, here: &BTreeSet<IpAddr>) -> BTreeSet<&'a String> {
        let at = here.iter().filter_map(|addr| self.by_peer.get(addr)).flatten();
        match &conn.remote_id {
            IdPattern::Exact(id) => {
                let same = self.by_id.get(&id.folded()).into_iter().flatten();
                same.chain(at.filter(|name| self.any_id.contains(*name))).collect()
            }
            IdPattern::Any | IdPattern::Suffix(..) | IdPattern::Name(_) => {
                at.chain(self.general.keys()).collect()
            }
        }
    }

    /// All that can be meant by a peer with this identity at these addresses, and perhaps others:
    /// found by what fewer have in common.
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

    /// The best connection for a peer that has said who it is. `allows` says whether what has been
    /// agreed with the peer already may be agreed on this connection.
    pub fn by_identity(
        &self,
        claim: &Claim<'_>,
        allows: impl Fn(&Connection) -> bool,
    ) -> Option<Arc<Connection>> {
        let Claim { local, remote, peer, asked } = *claim;
        let (mut best, mut best_score) = (None, (0, 0, 0));
        for conn in self.for_peer(local, remote, peer) {
            let fit = |specs, addr| self.fit(specs, addr);
            let (Some(theirs), Some(ours)) = (fit(&conn.remote_addrs, remote), fit(&conn.local_addrs, local))
            else {
                continue;
            };
            if !allows(conn) || !conn.remote_id.matches(peer) {
                continue;
            }
            // "IDr ... the initiator ... specifies which of the responder's identities it wants to
            // talk to" (RFC 7296 section 2.15). Without one, any of ours.
            if let Some(asked) = asked
                && !IdPattern::Exact(conn.local_identity(local)).matches(asked)
            {
                continue;
            }
            let identity = match conn.remote_id {
                IdPattern::Any => 1,
                IdPattern::Suffix(..) | IdPattern::Name(_) => 2,
                IdPattern::Exact(_) => 3,
            };
            let score = (identity, theirs, ours);
            if score > best_score {
                (best, best_score) = (Some(conn), score);
            }
        }
        best.cloned()
    }

    /// Connections that could have been chosen for a peer instead of `chosen`: those that its
    /// addresses mean more precisely (true), and those that its claim fits as well. At most `most`
    /// of them, and not all connections are looked at when there are very many.
    pub fn beside(
        &self,
        claim: &Claim<'_>,
        chosen: &Connection,
        most: usize,
    ) -> Vec<(Arc<Connection>, bool)> {
        let Claim { local, remote, peer, asked } = *claim;
        let precision =
            |c: &Connection| Some((self.fit(&c.remote_addrs, remote)?, self.fit(&c.local_addrs, local)?));
        let Some(ours) = precision(chosen) else { return Vec::new() };
        let [pair, from] = [self.by_pair.get(&(local, remote)), self.by_remote.get(&remote)];
        let by_addresses = pair.into_iter().chain(from).flatten().chain(self.general.keys());
        let by_identity = self.by_id.get(&peer.folded()).into_iter().chain([&self.any_id]).flatten();
        let names: BTreeSet<&String> =
            by_addresses.take(CHOICES_EXPLAINED).chain(by_identity.take(CHOICES_EXPLAINED)).collect();
        let others = names.into_iter().filter(|name| **name != chosen.name);
        let others = others.filter_map(|name| self.by_name.get(name)).filter_map(|c| {
            let theirs = precision(c)?;
            let is_asked = |asked| IdPattern::Exact(c.local_identity(local)).matches(asked);
            let fits = c.remote_id.matches(peer) && asked.is_none_or(is_asked);
            (theirs > ours || fits).then(|| (c.clone(), theirs > ours))
        });
        others.take(most).collect()
    }

    /// True when a peer says that it is us, where we are `ours`, and `expected` does not say that
    /// this is whom we expect.
    pub fn claims_to_be_us(&self, expected: &IdPattern, ours: &Identity, peer: &Identity) -> bool {
        let is_ours = self.by_local_id.contains_key(&peer.folded()) || ours.folded() == peer.folded();
        is_ours && !matches!(expected, IdPattern::Exact(_))
    }
}
