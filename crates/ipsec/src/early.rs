//! Packets that arrive before their SA. The peer may send by a new SA as soon as it knows the keys
//! (RFC 7296 section 2.8); as initiator of the exchange we still compute them then. The key daemon
//! names such an SPI of ours beforehand ([`Command::SpiReserve`]), and packets with it wait here
//! until the SA is installed, or the SPI is freed ([`Command::SpiFree`]).
//!
//! ```text
//! SpiReserve         hold           SaAdd               take
//! request leaves --> packets -----> ready, in order --> opened as if they came now
//!                                   SpiFree --> dropped (InNoStates)
//! ```
//! Nobody can check these packets yet, so only those from the peer's address wait, they are few
//! ([`MAX_PER_SPI`], [`MAX_BYTES_PER_SPI`], [`MAX_PACKETS`], [`MAX_BYTES`]), and do not wait long
//! ([`EARLY_TIMEOUT`]). A peer with many exchanges under way fills its share of the queue and no
//! more ([`MAX_PER_PEER`], [`MAX_BYTES_PER_PEER`]). All others are dropped under
//! [`InNoStates`](crate::DropReason::InNoStates). Packets with a known SPI never come here.
//!
//! Not here: frames that wait for an outbound SA (`held`).
//!
//! [`Command::SpiReserve`]: ironswan_wire::sadb::Command::SpiReserve
//! [`Command::SpiFree`]: ironswan_wire::sadb::Command::SpiFree

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironswan_wire::sadb::Spi;

use crate::batch::Datagram;
use crate::counters::{DropReason, Tally};

/// Most SPIs that are reserved at a time; packets with further ones do not wait.
const MAX_SPIS: usize = 4_096;
/// Most packets that wait for one SA.
const MAX_PER_SPI: usize = 64;
/// Most bytes of the packets that wait for one SA.
const MAX_BYTES_PER_SPI: usize = 128 << 10;
/// Most packets that wait from one address: a quarter of the queue.
const MAX_PER_PEER: usize = MAX_PACKETS / 4;
/// Most bytes of the packets that wait from one address.
const MAX_BYTES_PER_PEER: usize = MAX_BYTES / 4;
/// Most packets that wait.
const MAX_PACKETS: usize = 1_024;
/// Most bytes of all packets that wait.
const MAX_BYTES: usize = 2 << 20;
/// Time that a packet may wait: much longer than keys take to compute.
const EARLY_TIMEOUT: Duration = Duration::from_secs(2);

/// A packet that waits.
struct EarlyPacket {
    bytes: Vec<u8>,
    /// Addresses, carrier and TOS of the datagram that brought the packet.
    from: Datagram,
    since: Duration,
}

impl EarlyPacket {
    fn is_stale(&self, now: Duration) -> bool {
        self.since + EARLY_TIMEOUT <= now
    }
}

/// An SPI that an exchange under way has named.
struct Reserved {
    peer: IpAddr,
    packets: VecDeque<EarlyPacket>,
    bytes: usize,
}

#[derive(Default)]
struct State {
    reserved: HashMap<Spi, Reserved>,
    /// Packets whose SA has been installed, in the order in which they arrived.
    ready: VecDeque<EarlyPacket>,
    /// Packets here, waiting and ready, and their bytes.
    packets: usize,
    bytes: usize,
    /// The same of each address that has packets here.
    shares: HashMap<IpAddr, (usize, usize)>,
    /// No packet that waits is stale before this time.
    none_stale_before: Duration,
}

impl State {
    /// Whether a packet of this length from this address fits into the queue and the share.
    fn has_room(&self, from: IpAddr, len: usize) -> bool {
        let (packets, bytes) = self.shares.get(&from).copied().unwrap_or_default();
        self.packets < MAX_PACKETS
            && self.bytes + len <= MAX_BYTES
            && packets < MAX_PER_PEER
            && bytes + len <= MAX_BYTES_PER_PEER
    }

    /// Counts a packet that enters this queue.
    fn add(&mut self, from: IpAddr, len: usize) {
        self.packets += 1;
        self.bytes += len;
        let share = self.shares.entry(from).or_default();
        *share = (share.0 + 1, share.1 + len);
    }

    /// Counts a packet that leaves this queue.
    fn remove(&mut self, packet: &EarlyPacket) {
        let (from, len) = (packet.from.remote.ip(), packet.bytes.len());
        self.packets -= 1;
        self.bytes -= len;
        if let Some(share) = self.shares.get_mut(&from) {
            *share = (share.0 - 1, share.1 - len);
            if share.0 == 0 {
                self.shares.remove(&from);
            }
        }
    }

    /// Drops a packet that has waited for nothing.
    fn give_up(&mut self, packet: &EarlyPacket, tally: &mut Tally) {
        self.remove(packet);
        tally.in_held -= 1;
        tally.drop(DropReason::InNoStates);
    }

    /// Drops the packets of an SPI that have waited too long.
    fn expire(&mut self, spi: Spi, now: Duration, tally: &mut Tally) {
        while let Some(reserved) = self.reserved.get_mut(&spi)
            && reserved.packets.front().is_some_and(|packet| packet.is_stale(now))
            && let Some(packet) = reserved.packets.pop_front()
        {
            reserved.bytes -= packet.bytes.len();
            self.give_up(&packet, tally);
        }
    }

    /// Drops the packets of all SPIs that have waited too long. Looks through the SPIs only when
    /// some packet may be stale, so that a flood at a full queue does not have each packet do that.
    fn expire_all(&mut self, now: Duration, tally: &mut Tally) {
        if now < self.none_stale_before {
            return;
        }
        let spis: Vec<Spi> = self.reserved.keys().copied().collect();
        spis.into_iter().for_each(|spi| self.expire(spi, now, tally));
        let oldest = self.reserved.values().filter_map(|reserved| reserved.packets.front()).map(|p| p.since);
        self.none_stale_before = oldest.min().unwrap_or(now) + EARLY_TIMEOUT;
    }
}

/// The queue, shared by all workers.
#[derive(Default)]
pub(crate) struct EarlyQueue {
    state: Mutex<State>,
    /// Some SPI is reserved: asked without the lock.
    waits: AtomicBool,
    /// Some packet is ready: asked without the lock.
    ready: AtomicBool,
}

impl EarlyQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets packets with this SPI from this peer wait.
    pub(crate) fn reserve(&self, spi: Spi, peer: IpAddr) {
        let mut state = self.lock();
        if state.reserved.len() < MAX_SPIS {
            let reserved = || Reserved { peer, packets: VecDeque::new(), bytes: 0 };
            state.reserved.entry(spi).or_insert_with(reserved).peer = peer;
            self.waits.store(true, Release);
        }
    }

    /// There will be no SA with this SPI: drops the packets that wait for it.
    pub(crate) fn free(&self, spi: Spi, tally: &mut Tally) {
        let mut state = self.lock();
        for packet in state.reserved.remove(&spi).into_iter().flat_map(|reserved| reserved.packets) {
            state.give_up(&packet, tally);
        }
        self.waits.store(!state.reserved.is_empty(), Release);
    }

    /// The SA with this SPI is in the SAD now: its packets may be taken, those that have waited too
    /// long excepted.
    pub(crate) fn installed(&self, spi: Spi, now: Duration, tally: &mut Tally) {
        let mut state = self.lock();
        state.expire(spi, now, tally);
        if let Some(reserved) = state.reserved.remove(&spi) {
            state.ready.extend(reserved.packets);
        }
        self.waits.store(!state.reserved.is_empty(), Release);
        self.ready.store(!state.ready.is_empty(), Release);
    }

    /// Keeps a packet that found no SA, and counts it as held. False when it may not wait.
    /// `installed`: whether the SAD has an SA with this SPI by now, although the snapshot of the
    /// packet's batch had none.
    #[cold]
    pub(crate) fn hold(
        &self,
        now: Duration,
        spi: Spi,
        datagram: &Datagram,
        packet: &[u8],
        installed: impl Fn() -> bool,
        tally: &mut Tally,
    ) -> bool {
        if !self.waits.load(Acquire) && !installed() {
            return false;
        }
        let mut state = self.lock();
        state.expire(spi, now, tally);
        let from = datagram.remote.ip();
        if !state.has_room(from, packet.len()) {
            state.expire_all(now, tally);
            if !state.has_room(from, packet.len()) {
                return false;
            }
        }
        let early = || EarlyPacket { bytes: packet.to_vec(), from: *datagram, since: now };
        match state.reserved.get_mut(&spi) {
            Some(reserved) => {
                if reserved.peer != from
                    || reserved.packets.len() >= MAX_PER_SPI
                    || reserved.bytes + packet.len() > MAX_BYTES_PER_SPI
                {
                    return false;
                }
                reserved.bytes += packet.len();
                reserved.packets.push_back(early());
            }
            None if installed() => {
                state.ready.push_back(early());
                self.ready.store(true, Release);
            }
            None => return false,
        }
        state.add(from, packet.len());
        tally.in_held += 1;
        true
    }

    /// Whether packets are ready.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Copies ready packets into a buffer, as many as fit, and appends a datagram for each.
    #[cold]
    pub(crate) fn take(&self, buf: &mut [u8], datagrams: &mut Vec<Datagram>) {
        let mut state = self.lock();
        let mut at = 0;
        while let Some(room) = buf.get_mut(at..)
            && state.ready.front().is_some_and(|packet| packet.bytes.len() <= room.len())
            && let Some(packet) = state.ready.pop_front()
        {
            state.remove(&packet);
            let len = packet.bytes.len();
            room[..len].copy_from_slice(&packet.bytes);
            datagrams.push(Datagram { offset: at as u32, len: len as u32, segment_size: 0, ..packet.from });
            at += len;
        }
        self.ready.store(!state.ready.is_empty(), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Carrier;

    const PEER: &str = "192.0.2.2:4500";

    fn datagram(remote: &str) -> Datagram {
        Datagram {
            offset: 0,
            len: 0,
            segment_size: 0,
            local: "192.0.2.1:4500".parse().unwrap(),
            remote: remote.parse().unwrap(),
            carrier: Carrier::Udp,
            tos: 0,
        }
    }

    /// A queue with the counts of what happened to it, and no SA in the SAD.
    #[derive(Default)]
    struct Case {
        queue: EarlyQueue,
        tally: Tally,
    }

    impl Case {
        fn reserving(spis: std::ops::Range<u32>) -> Self {
            let case = Self::default();
            spis.for_each(|spi| case.queue.reserve(Spi(spi), "192.0.2.2".parse().unwrap()));
            case
        }

        fn hold(&mut self, now: Duration, spi: u32, remote: &str, packet: &[u8]) -> bool {
            self.queue.hold(now, Spi(spi), &datagram(remote), packet, || false, &mut self.tally)
        }

        /// Held, and dropped for want of an SA.
        fn books(&mut self) -> (i64, u64) {
            let totals = crate::counters::Totals::default();
            let held = self.tally.in_held;
            totals.add(&mut self.tally);
            self.tally.in_held = held;
            (held, totals.snapshot().dropped(DropReason::InNoStates))
        }

        fn taken(&self, room: usize) -> Vec<Vec<u8>> {
            let (mut buf, mut datagrams) = (vec![0; room], Vec::new());
            self.queue.take(&mut buf, &mut datagrams);
            let bytes = |d: &Datagram| buf[d.offset as usize..][..d.len as usize].to_vec();
            datagrams.iter().map(bytes).collect()
        }
    }

    const NOW: Duration = Duration::from_secs(9);

    #[test]
    fn only_packets_from_the_peer_with_a_reserved_spi_wait() {
        let mut case = Case::default();
        assert!(!case.hold(NOW, 300, PEER, &[1]), "nothing is reserved");
        let mut case = Case::reserving(300..301);
        assert!(!case.hold(NOW, 301, PEER, &[1]), "another SPI");
        assert!(!case.hold(NOW, 300, "192.0.2.3:4500", &[1]), "another address");
        assert!(case.hold(NOW, 300, "192.0.2.2:9", &[1]), "another port of the peer");
        assert_eq!(case.books(), (1, 0));
        assert!(!case.queue.is_ready() && case.taken(99).is_empty(), "there is no SA yet");
    }

    #[test]
    fn packets_are_few_for_each_spi_and_in_all() {
        let mut case = Case::reserving(300..1_300);
        let held = (0..200).filter(|_| case.hold(NOW, 300, PEER, &[0; 40])).count();
        assert_eq!(held, MAX_PER_SPI);
        let held = (0..200).filter(|_| case.hold(NOW, 301, PEER, &[0; 9_000])).count();
        assert_eq!(held, MAX_BYTES_PER_SPI / 9_000);
        let many = |len: usize| {
            let (mut case, mut held) = (Case::default(), 0);
            for peer in 1..=40 {
                for spi in (0..32).map(|n| 300 + peer * 32 + n) {
                    let from = format!("198.51.100.{peer}:4500");
                    case.queue.reserve(Spi(spi), datagram(&from).remote.ip());
                    held += (0..9).filter(|_| case.hold(NOW, spi, &from, &vec![0; len])).count();
                }
            }
            held
        };
        assert_eq!((many(40), many(9_000)), (MAX_PACKETS, MAX_BYTES / 9_000));
        let case = Case::reserving(300..9_300);
        assert_eq!(case.queue.lock().reserved.len(), MAX_SPIS);
    }

    /// Whoever has many exchanges under way leaves room for the packets of others.
    #[test]
    fn a_peer_fills_its_share_and_leaves_room_for_others() {
        for (len, share) in [(40, MAX_PER_PEER), (9_000, MAX_BYTES_PER_PEER / 9_000)] {
            let mut case = Case::reserving(300..400);
            let held =
                (300..400).flat_map(|spi| [spi; 60]).filter(|spi| case.hold(NOW, *spi, PEER, &vec![0; len]));
            assert_eq!(held.count(), share);
            let other = "192.0.2.3:4500";
            case.queue.reserve(Spi(500), datagram(other).remote.ip());
            assert!(case.hold(NOW, 500, other, &vec![0; len]), "another peer has room");
            // What leaves the queue leaves the share.
            (300..400).for_each(|spi| case.queue.free(Spi(spi), &mut case.tally));
            case.queue.reserve(Spi(300), datagram(PEER).remote.ip());
            assert!(case.hold(NOW, 300, PEER, &vec![0; len]));
            (300..501).for_each(|spi| case.queue.free(Spi(spi), &mut case.tally));
            assert!(case.queue.lock().shares.is_empty());
        }
    }

    #[test]
    fn stale_packets_make_room_and_never_become_ready() {
        let mut case = Case::reserving(300..301);
        (0..MAX_PER_SPI).for_each(|_| assert!(case.hold(NOW, 300, PEER, &[1])));
        assert!(!case.hold(NOW + EARLY_TIMEOUT / 2, 300, PEER, &[2]));
        assert!(case.hold(NOW + EARLY_TIMEOUT, 300, PEER, &[3]));
        assert_eq!(case.books(), (1, MAX_PER_SPI as u64));
        case.queue.installed(Spi(300), NOW + EARLY_TIMEOUT * 2, &mut case.tally);
        assert_eq!(case.books(), (0, 1));
        assert!(!case.queue.is_ready());
    }

    #[test]
    fn stale_packets_of_other_spis_make_room() {
        let mut case = Case::reserving(300..1_300);
        let held = (300..1_299).flat_map(|spi| [spi; 9]).filter(|spi| case.hold(NOW, *spi, PEER, &[0; 40]));
        let held = held.count() as u64;
        assert!(held > 9 && !case.hold(NOW + EARLY_TIMEOUT / 2, 1_299, PEER, &[1]), "the share is used up");
        assert!(case.hold(NOW + EARLY_TIMEOUT, 1_299, PEER, &[1]));
        assert_eq!(case.books(), (1, held));
        // Younger ones stay.
        assert!(case.hold(NOW + EARLY_TIMEOUT * 3 / 2, 1_298, PEER, &[2]));
        let later = NOW + EARLY_TIMEOUT * 2;
        let held = (300..1_298).flat_map(|spi| [spi; 9]).filter(|spi| case.hold(later, *spi, PEER, &[0; 40]));
        assert!(held.count() > 9);
        case.queue.installed(Spi(1_298), later, &mut case.tally);
        assert_eq!(case.taken(99), [[2]]);
    }

    #[test]
    fn a_freed_spi_drops_its_packets_and_leaves_nothing() {
        let mut case = Case::reserving(300..302);
        assert!(case.hold(NOW, 300, PEER, &[1]) && case.hold(NOW, 301, PEER, &[2]));
        case.queue.free(Spi(300), &mut case.tally);
        assert_eq!(case.books(), (1, 1));
        assert!(!case.hold(NOW, 300, PEER, &[3]));
        case.queue.free(Spi(301), &mut case.tally);
        case.queue.free(Spi(301), &mut case.tally);
        let state = case.queue.lock();
        assert!(
            state.reserved.is_empty() && state.shares.is_empty() && (state.packets, state.bytes) == (0, 0)
        );
        assert!(!case.queue.waits.load(Acquire));
    }

    #[test]
    fn ready_packets_are_taken_in_order_as_many_as_fit() {
        let mut case = Case::reserving(300..301);
        (1..=5).for_each(|n| assert!(case.hold(NOW, 300, PEER, &[n; 10])));
        case.queue.installed(Spi(300), NOW, &mut case.tally);
        // The snapshot of this one's batch was older than the SA.
        let late = case.queue.hold(NOW, Spi(300), &datagram(PEER), &[6; 10], || true, &mut case.tally);
        assert!(late);
        assert_eq!(case.taken(39), [[1; 10], [2; 10], [3; 10]]);
        assert!(case.queue.is_ready());
        assert_eq!(case.taken(99), [[4; 10], [5; 10], [6; 10]]);
        assert!(!case.queue.is_ready());
        assert_eq!(case.queue.lock().packets, 0);
    }
}
