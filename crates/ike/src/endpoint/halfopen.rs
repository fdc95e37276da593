//! Half-open IKE_SAs that we answer for: how many there are, from where, which one gives way when
//! the table is full, and finding the one that a repeated IKE_SA_INIT belongs to.
//!
//! Who has brought a cookie back owns its address, and nothing more: a customer line has 2^64 IPv6
//! addresses (a /64), a site 65,536 such networks (a /48). So three things are counted: addresses,
//! networks (/64, /24) and sites (/48, /16).
//!
//! | full | limit | then |
//! |---|---|---|
//! | address | `half_open_per_addr` (200) | the newcomer is refused |
//! | network | `half_open_per_net` (a quarter of the table) | the newcomer is refused |
//! | site | half of the table | the oldest of the site's fullest network gives way |
//! | table | `half_open_max` (1,000) | the same happens in the fullest site |
//!
//! When a network may have more than half of the table, a site may have as many as a network.
//!
//! The newcomer is refused as well when its own network in its own site is the fullest. Nothing
//! gives way that is younger than [`HALF_OPEN_SETTLED`], unless its site or network has
//! [`CROWDED_FACTOR`] times as many as the newcomer's: when a thousand honest peers come back at
//! once, throwing out those that are about to finish would let nobody finish.
//!
//! So one network can hold a quarter of the table and one site, whatever it does, half of it:
//! everybody else goes on as if nothing were. Two sites together can fill it, and then give way to
//! every newcomer from elsewhere at once. Only somebody who receives at addresses in more than 250
//! sites and sends more than 500 requests a second can keep others waiting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::event::IkeId;
use ironswan_keying::Limits;
use ironswan_keying::limits::{CROWDED_FACTOR, HALF_OPEN_LOADED_PART, HALF_OPEN_SETTLED};

/// The first bits of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Prefix {
    v6: bool,
    bits: u128,
}

impl Prefix {
    fn of(addr: IpAddr, v4: u32, v6: u32) -> Self {
        match addr {
            IpAddr::V4(a) => Self { v6: false, bits: u128::from(a.to_bits() >> (32 - v4)) },
            IpAddr::V6(a) => Self { v6: true, bits: a.to_bits() >> (128 - v6) },
        }
    }

    /// The network of one subscriber line: a /64, or a /24, where IPv4 addresses are neighbours by
    /// chance.
    pub(crate) fn net(addr: IpAddr) -> Self {
        Self::of(addr, 24, 64)
    }

    /// The biggest network of an organisation that is no provider: a /48, or a /16.
    fn site(addr: IpAddr) -> Self {
        Self::of(addr, 16, 48)
    }
}

/// The site of an address as a number.
pub(crate) fn site_number(addr: IpAddr) -> u64 {
    let Prefix { v6, bits } = Prefix::site(addr);
    // At most 48 bits.
    u64::from(v6) << 63 | bits as u64
}

/// The order in which prefixes give way: the fullest last, among equals the one with the oldest
/// entry.
type Rank = (usize, Reverse<IkeId>, Prefix);

fn rank(ids: &BTreeSet<IkeId>, prefix: Prefix) -> Option<Rank> {
    Some((ids.len(), Reverse(*ids.first()?), prefix))
}

/// Entries by prefix, each set of ids in the order of age, as ids grow.
#[derive(Default)]
struct Groups {
    ids: HashMap<Prefix, BTreeSet<IkeId>>,
    ranked: BTreeSet<Rank>,
}

impl Groups {
    fn count(&self, prefix: Prefix) -> usize {
        self.ids.get(&prefix).map_or(0, BTreeSet::len)
    }

    fn change(&mut self, prefix: Prefix, change: impl FnOnce(&mut BTreeSet<IkeId>)) {
        let ids = self.ids.entry(prefix).or_default();
        if let Some(old) = rank(ids, prefix) {
            self.ranked.remove(&old);
        }
        change(ids);
        match rank(ids, prefix) {
            Some(new) => _ = self.ranked.insert(new),
            None => _ = self.ids.remove(&prefix),
        }
    }

    /// The fullest prefix: how many it has, the oldest of them, and which it is.
    fn fullest(&self) -> Option<(usize, IkeId, Prefix)> {
        self.ranked.last().map(|(n, oldest, prefix)| (*n, oldest.0, *prefix))
    }
}

/// Whether there is room for one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// There is.
    Free,
    /// There is, when this one goes.
    InsteadOf(IkeId),
    /// There is not.
    None,
}

/// The table. No hash map here is ever iterated.
#[derive(Default)]
pub(crate) struct HalfOpen {
    entries: BTreeMap<IkeId, (IpAddr, Instant)>,
    by_addr: HashMap<IpAddr, usize>,
    sites: Groups,
    /// The networks of each site that has any.
    nets: HashMap<Prefix, Groups>,
    by_init: HashMap<(u64, SocketAddr), IkeId>,
}

impl HalfOpen {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// How many there are from this address.
    pub(crate) fn from(&self, addr: IpAddr) -> usize {
        self.by_addr.get(&addr).copied().unwrap_or(0)
    }

    /// The IKE_SA that this initiator's SPI and address has made.
    pub(crate) fn find(&self, spi_i: u64, remote: SocketAddr) -> Option<IkeId> {
        self.by_init.get(&(spi_i, remote)).copied()
    }

    /// Whether one more may come from this address.
    pub(crate) fn room(&self, now: Instant, addr: IpAddr, limits: &Limits) -> Room {
        let (net, site) = (Prefix::net(addr), Prefix::site(addr));
        let nets = self.nets.get(&site);
        let in_net = nets.map_or(0, |g| g.count(net));
        let in_site = self.sites.count(site);
        if self.from(addr) >= limits.half_open_per_addr || in_net >= limits.per_net() {
            return Room::None;
        }
        let crowded = match self.sites.fullest() {
            _ if in_site >= limits.per_site() => site,
            Some((n, _, fullest)) if self.count() >= limits.half_open_max => {
                if in_site >= n {
                    site
                } else {
                    fullest
                }
            }
            None if limits.half_open_max == 0 => return Room::None,
            _ => return Room::Free,
        };
        let Some((n, oldest, _)) = self.nets.get(&crowded).and_then(Groups::fullest) else {
            return Room::None;
        };
        let (theirs, mine) = match crowded == site {
            // The newcomer's own network is the fullest: that network has had its share.
            true if in_net >= n => return Room::None,
            true => (n, in_net),
            false => (self.sites.count(crowded), in_site),
        };
        let settled = self.age(now, oldest).is_none_or(|age| age >= HALF_OPEN_SETTLED);
        if settled || theirs >= CROWDED_FACTOR * (mine + 1) { Room::InsteadOf(oldest) } else { Room::None }
    }

    fn age(&self, now: Instant, id: IkeId) -> Option<Duration> {
        self.entries.get(&id).map(|(_, since)| now.saturating_duration_since(*since))
    }

    /// One that has had its time, which is short while more than half of the table is in use.
    pub(crate) fn stale(&self, now: Instant, limits: &Limits) -> Option<IkeId> {
        let (&id, _) = self.entries.first_key_value()?;
        let loaded = self.count() > limits.half_open_max / 2;
        (loaded && self.age(now, id)? >= limits.half_open_timeout / HALF_OPEN_LOADED_PART).then_some(id)
    }

    /// One more.
    pub(crate) fn add(&mut self, now: Instant, spi_i: u64, remote: SocketAddr, id: IkeId) {
        let addr = remote.ip();
        let (net, site) = (Prefix::net(addr), Prefix::site(addr));
        self.entries.insert(id, (addr, now));
        *self.by_addr.entry(addr).or_default() += 1;
        self.sites.change(site, |ids| _ = ids.insert(id));
        self.nets.entry(site).or_default().change(net, |ids| _ = ids.insert(id));
        self.by_init.insert((spi_i, remote), id);
    }

    /// One is authenticated or gone: it counts no more, but a late copy of its IKE_SA_INIT is still
    /// known by [`Self::find`] until [`Self::forget`].
    pub(crate) fn close(&mut self, id: IkeId) {
        let Some((addr, _)) = self.entries.remove(&id) else { return };
        if let Some(n) = self.by_addr.get_mut(&addr) {
            *n -= 1;
            if *n == 0 {
                self.by_addr.remove(&addr);
            }
        }
        let (net, site) = (Prefix::net(addr), Prefix::site(addr));
        self.sites.change(site, |ids| _ = ids.remove(&id));
        if let Some(nets) = self.nets.get_mut(&site) {
            nets.change(net, |ids| _ = ids.remove(&id));
            if nets.ids.is_empty() {
                self.nets.remove(&site);
            }
        }
    }

    /// How many requests are known by their initiators.
    pub(crate) fn requests(&self) -> usize {
        self.by_init.len()
    }

    /// From how many addresses, networks and sites they are, together.
    pub(crate) fn addresses(&self) -> usize {
        let nets: usize = self.sites.ranked.len() + self.nets.len();
        self.by_addr.len() + nets
    }

    /// Forgets the request.
    pub(crate) fn forget(&mut self, spi_i: u64, remote: SocketAddr) {
        self.by_init.remove(&(spi_i, remote));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    struct Table {
        now: Instant,
        limits: Limits,
        half_open: HalfOpen,
        next: u64,
        gone: Vec<IkeId>,
    }

    impl Table {
        fn new() -> Self {
            let (now, limits) = (Instant::now(), Limits::default());
            Self { now, limits, half_open: HalfOpen::default(), next: 0, gone: Vec::new() }
        }

        /// One more from here, if it is let in: its id.
        fn come(&mut self, addr: IpAddr) -> Option<IkeId> {
            match self.half_open.room(self.now, addr, &self.limits) {
                Room::None => return None,
                Room::InsteadOf(id) => {
                    self.half_open.close(id);
                    self.gone.push(id);
                }
                Room::Free => {}
            }
            self.next += 1;
            let id = IkeId(self.next);
            self.half_open.add(self.now, self.next, SocketAddr::new(addr, 500), id);
            Some(id)
        }
    }

    fn v6(site: u16, net: u16, host: u32) -> IpAddr {
        let [high, low] = [(host >> 16) as u16, host as u16];
        IpAddr::from([0x2001, 0xdb8, site, net, 0, 0, high, low])
    }

    #[test]
    fn one_network_gets_a_quarter_and_one_site_half_of_the_table() {
        let mut t = Table::new();
        let taken = (0..100_000).filter(|n| t.come(v6(1, 1, *n)).is_some()).count();
        assert_eq!((taken, t.half_open.count()), (250, 250), "a /64, however many addresses it has");
        // 65,536 networks of one site: the oldest go, the table is never full.
        for net in 0..=u16::MAX {
            t.come(v6(2, net, 1));
        }
        assert_eq!(t.half_open.sites.count(Prefix::site(v6(2, 0, 0))), 500);
        assert_eq!(t.half_open.count(), 750);
        assert!(t.come("192.0.2.1".parse().unwrap()).is_some());
        assert_eq!(t.half_open.room(t.now, "192.0.3.1".parse().unwrap(), &t.limits), Room::Free);
    }

    #[test]
    fn in_a_full_table_the_oldest_of_the_fullest_gives_way_to_others_and_its_own_wait() {
        let mut t = Table::new();
        for n in 0..500 {
            t.come(v6(1, n % 2, n.into())).unwrap();
            t.come(v6(2, n % 7, n.into())).unwrap();
        }
        assert_eq!(t.half_open.count(), 1_000);
        let honest: Vec<_> = (0..50u8).filter_map(|n| t.come(IpAddr::from([198, 51, n, 1]))).collect();
        assert_eq!((honest.len(), t.half_open.count(), t.gone.len()), (50, 1_000, 50));
        // The two sites have as many, and take turns; those that came first go first.
        assert!(t.gone.iter().all(|id| id.0 < 110), "{:?}", t.gone);
        assert!(!t.gone.iter().any(|id| honest.contains(id)));
        // The fullest site has to wait until what it has is settled, and its fullest network for
        // ever.
        assert_eq!(t.come(v6(2, 0, 9_999)), None);
        t.now += HALF_OPEN_SETTLED;
        assert!(t.come(v6(2, 7, 1)).is_some());
    }

    #[test]
    fn peers_that_come_back_all_at_once_do_not_throw_each_other_out() {
        let mut t = Table::new();
        // 3,000 from 250 networks of 10 sites, in no order.
        for n in 0..3_000u32 {
            let n = n.wrapping_mul(2_654_435_761) >> 8;
            t.come(IpAddr::from([10, (n % 10) as u8, (n / 10 % 25) as u8, (n / 250 % 250) as u8]));
        }
        assert_eq!(t.half_open.count(), 1_000);
        assert!(t.gone.len() < 10, "{} of those under way were thrown out", t.gone.len());
    }

    #[test]
    fn time_is_short_in_a_table_that_is_more_than_half_full() {
        let mut t = Table::new();
        let first = t.come(v6(1, 1, 1)).unwrap();
        t.now += Duration::from_secs(10);
        assert_eq!(t.half_open.stale(t.now, &t.limits), None);
        for n in 0..500 {
            t.come(v6(n, 1, 1)).unwrap();
        }
        assert_eq!(t.half_open.stale(t.now, &t.limits), Some(first));
        t.half_open.close(first);
        assert_eq!(t.half_open.stale(t.now, &t.limits), None);
    }

    #[test]
    fn what_an_operator_allows_an_address_its_network_and_site_may_have() {
        let mut t = Table::new();
        t.limits.half_open_per_addr = 900;
        let addr = v6(1, 1, 1);
        assert_eq!((0..1_000).filter(|_| t.come(addr).is_some()).count(), 900);
        t.limits = Limits { half_open_per_net: 950, ..t.limits };
        assert_eq!((0..1_000).filter(|_| t.come(v6(1, 1, 2)).is_some()).count(), 50);
    }

    #[test]
    fn nothing_is_left_of_what_has_gone() {
        let mut t = Table::new();
        let mut ids = Vec::new();
        for n in 0..400 {
            ids.extend(t.come(v6(n % 5, n % 3, n.into())));
        }
        for (n, id) in ids.iter().enumerate() {
            t.half_open.close(*id);
            t.half_open.close(*id);
            assert_eq!(t.half_open.count(), ids.len() - 1 - n);
        }
        assert_eq!(t.half_open.addresses(), 0);
        assert!(t.half_open.sites.ids.is_empty() && t.half_open.requests() == 400);
    }
}
