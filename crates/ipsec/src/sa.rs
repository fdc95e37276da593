//! One SA: what the packet path needs of it. Everything that changes is atomic or behind a lock
//! that is held for a run of packets, so that workers share SAs.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `ranges` | quick answer of an inbound SA, by addresses |

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ironswan_crypto::batch::EspKey;
use ironswan_crypto::icv::IcvKey;
use ironswan_crypto::prefetch;
use ironswan_wire::esp;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::{v4, v6};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Dscp, Lifetime, Mode, ReqId, SaAdd, SaOptions, SaStats, Spi, Tfc};
use ironswan_wire::selector::{PacketSelector, TrafficSelector};

use crate::ecn;
use crate::flow::FlowKey;
use crate::ipcomp::Adaptive;
use crate::mtu::{self, Encapsulation};
use crate::replay::Replay;
use crate::spd::Spd;
use ranges::{Ranges, have_martians, number_v4, number_v6};

mod ranges;

/// Outer addresses, and how packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) udp_encap: bool,
}

impl Path {
    /// True when a packet in UDP from `source` says that the peer is elsewhere now. An SA without
    /// encapsulation has no NAT on its path, so none whose mapping could change. Only address and
    /// port count: a scope is ours, not the peer's.
    #[inline]
    pub(crate) fn is_left_by(&self, source: SocketAddr) -> bool {
        self.udp_encap && (self.remote.port() != source.port() || self.remote.ip() != source.ip())
    }
}

/// The sources that were reported of one SA on its present path. They are few, and each is reported
/// again only after a while, so that a NAT that changes its mind with every packet does not flood
/// the key daemon.
#[derive(Default)]
pub(crate) struct Sources(Mutex<[Option<(SocketAddr, Duration)>; Sources::KEPT]>);

impl Sources {
    /// Sources that are kept.
    const KEPT: usize = 4;
    /// After this a source is news again: the key daemon may have had a reason not to follow, which
    /// has gone.
    const REST: Duration = Duration::from_secs(10);

    /// True when `source` has to be reported, which is remembered. False also when as many others
    /// as are kept have just been.
    #[cold]
    pub(crate) fn is_news(&self, now: Duration, source: SocketAddr) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let rests = |at: Duration| now.saturating_sub(at) < Self::REST;
        if kept.iter().flatten().any(|(known, at)| *known == source && rests(*at)) {
            return false;
        }
        let free = kept.iter_mut().find(|slot| !slot.is_some_and(|(_, at)| rests(at)));
        let Some(slot) = free else { return false };
        *slot = Some((source, now));
        true
    }
}

/// Without extended sequence numbers the key daemon is told to rekey when this many numbers are
/// left.
const SEQUENCE_RESERVE: u64 = 1 << 28;

/// The selectors that the peers agreed on.
pub(crate) struct Selectors {
    pub(crate) local: Box<[TrafficSelector]>,
    pub(crate) remote: Box<[TrafficSelector]>,
}

impl Selectors {
    fn new(sa: &SaAdd) -> Self {
        Self { local: sa.local_ts.clone().into(), remote: sa.remote_ts.clone().into() }
    }

    /// True when a packet that leaves is covered.
    #[inline]
    pub(crate) fn covers_out(&self, p: &PacketSelector) -> bool {
        self.local.iter().any(|t| t.matches(p.src, p.protocol, p.src_port))
            && self.remote.iter().any(|t| t.matches(p.dst, p.protocol, p.dst_port))
    }

    /// True when a packet that arrived is covered.
    #[inline]
    pub(crate) fn covers_in(&self, p: &PacketSelector) -> bool {
        self.remote.iter().any(|t| t.matches(p.src, p.protocol, p.src_port))
            && self.local.iter().any(|t| t.matches(p.dst, p.protocol, p.dst_port))
    }
}

/// How much an SA has carried, and which limits were reported.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Usage {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_use: AtomicU64,
    raised: AtomicU8,
    /// There are limits: of the others, the limits are never looked at.
    limited: bool,
}

const SOFT: u8 = 1;
const HARD: u8 = 2;

/// Which limits have just been reached for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reached {
    pub(crate) soft: bool,
    pub(crate) hard: bool,
}

impl Reached {
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.soft || self.hard
    }
}

#[inline]
fn at(limit: u64, value: u64) -> bool {
    limit != 0 && value >= limit
}

#[inline]
fn beyond(limit: u64, used: u64, more: u64) -> bool {
    limit != 0 && used.saturating_add(more) > limit
}

impl Usage {
    /// Nothing so far, of an SA with these limits. They are the same in all calls.
    pub(crate) fn new(limits: &Lifetime) -> Self {
        Self { limited: *limits != Lifetime::default(), ..Self::default() }
    }

    /// True when the hard limit was reached by what has gone before.
    #[inline]
    pub(crate) fn spent(&self, limits: &Lifetime) -> bool {
        self.limited
            && (at(limits.hard_packets, self.packets.load(Relaxed))
                || at(limits.hard_bytes, self.bytes.load(Relaxed)))
    }

    /// True when so much more would go beyond a hard limit. Of an SA one worker at a time asks this
    /// and counts what then leaves.
    #[inline]
    pub(crate) fn exceeds(&self, limits: &Lifetime, packets: u64, bytes: u64) -> bool {
        self.limited
            && (beyond(limits.hard_packets, self.packets.load(Relaxed), packets)
                || beyond(limits.hard_bytes, self.bytes.load(Relaxed), bytes))
    }

    /// True when there are limits.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Counts traffic and says which limits it reached.
    #[inline(always)]
    pub(crate) fn add(&self, limits: &Lifetime, packets: u64, bytes: u64, now: u64) -> Reached {
        // Once a second: it may lie in another cache line than the counters.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
        self.add_unused(limits, packets, bytes)
    }

    /// Counts what nobody used the SA for: dummy packets, and what its selectors or policy refuse.
    #[inline(always)]
    pub(crate) fn add_unused(&self, limits: &Lifetime, packets: u64, bytes: u64) -> Reached {
        let packets = self.packets.fetch_add(packets, Relaxed) + packets;
        let bytes = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        if !self.limited {
            return Reached { soft: false, hard: false };
        }
        let soft = at(limits.soft_packets, packets) || at(limits.soft_bytes, bytes);
        let hard = at(limits.hard_packets, packets) || at(limits.hard_bytes, bytes);
        if soft || hard { self.raise(soft, hard) } else { Reached { soft: false, hard: false } }
    }

    /// Notes limits as reached; each is reported once.
    #[cold]
    pub(crate) fn raise(&self, soft: bool, hard: bool) -> Reached {
        let bits = if soft { SOFT } else { 0 } | if hard { HARD } else { 0 };
        let before = self.raised.fetch_or(bits, Relaxed);
        Reached { soft: soft && before & SOFT == 0, hard: hard && before & HARD == 0 }
    }

    pub(crate) fn stats(&self) -> SaStats {
        SaStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            last_use: self.last_use.load(Relaxed),
        }
    }
}

/// The key of an SA, for the protocol that it speaks.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
pub(crate) enum SaKey {
    Esp(EspKey),
    Ah(IcvKey),
}

impl SaKey {
    /// Of an ESP SA.
    #[inline]
    pub(crate) fn esp(&self) -> Option<&EspKey> {
        match self {
            Self::Esp(key) => Some(key),
            Self::Ah(_) => None,
        }
    }

    /// Of an AH SA.
    pub(crate) fn ah(&self) -> Option<&IcvKey> {
        match self {
            Self::Ah(key) => Some(key),
            Self::Esp(_) => None,
        }
    }

    fn lens(&self) -> Lens {
        self.esp().map_or(Lens { iv: 0, icv: 0, block: 1 }, |k| Lens {
            iv: k.iv_len() as u8,
            icv: k.icv_len() as u8,
            block: k.block_len() as u8,
        })
    }
}

/// Lengths in bytes of an ESP SA's IV and ICV, and of what text is padded to: the longest is the
/// ICV of HMAC-SHA2-512, 32.
#[derive(Clone, Copy)]
struct Lens {
    iv: u8,
    icv: u8,
    block: u8,
}

/// An outbound SA on its present path.
pub(crate) struct OutSa {
    pub(crate) path: Path,
    /// Its number in a snapshot's list, the same for as long as it is there.
    pub(crate) place: u32,
    pub(crate) state: Arc<OutState>,
}

impl OutSa {
    /// The largest inner packet that fits the path to the peer; `None` as long as that is not
    /// known.
    pub(crate) fn inner_max(&self) -> Option<u32> {
        let state = &*self.state;
        let encapsulation = Encapsulation {
            protocol: state.protocol(),
            mode: state.mode,
            suite: state.suite,
            outer_ipv6: self.path.remote.is_ipv6(),
            udp_encap: self.path.udp_encap,
        };
        state.path_mtu().map(|path| encapsulation.inner_max(path))
    }
}

/// What an outbound SA keeps when its path changes. With many SAs a packet's time is the number of
/// cache lines that it needs of them: the first one has all that a plain SA's packets read and
/// write but the key, which begins at the next.
#[repr(C, align(64))]
pub(crate) struct OutState {
    /// The last sequence number that was used.
    sequence: AtomicU64,
    pub(crate) usage: Usage,
    pub(crate) spi: Spi,
    /// Bytes of the path to the peer, outer IP header included; 0 as long as it is not known.
    path_mtu: AtomicU32,
    /// Lengths of the ESP packets around the least inner packets that every IPv4 and IPv6 sender
    /// may send, as [`crate::Send::fragmentable`] has them; all lengths when the SA does not care.
    /// Of an ESP SA only.
    pub(crate) fragmentable: [u16; 2],
    lens: Lens,
    /// Tunnel mode ESP that needs nothing else: the fast path.
    pub(crate) plain: bool,
    esn: bool,
    /// What of an inner packet's TOS the outer header has, and what it has beside.
    tos_kept: u8,
    tos_set: u8,
    pub(crate) key: SaKey,
    pub(crate) lifetime: Lifetime,
    pub(crate) reqid: ReqId,
    /// When it sent last, in nanoseconds of the driver's clock. Kept with [`SaOptions::dummies`]
    /// only.
    sent_at: AtomicU64,
    pub(crate) adaptive: Adaptive,
    pub(crate) mode: Mode,
    pub(crate) suite: EspSuite,
    pub(crate) options: SaOptions,
    pub(crate) selectors: Selectors,
}

impl OutState {
    pub(crate) fn new(sa: &SaAdd, key: SaKey) -> Self {
        let o = &sa.options;
        let plain = key.esp().is_some()
            && sa.mode == Mode::Tunnel
            && (o.ipcomp, o.tfc, o.dummies) == (None, Tfc::None, None);
        // "DSCP: copied or mapped", "ECN: constructed" (RFC 4301 section 5.1.2.1); RFC 6040 section
        // 4.1.
        let ecn = if o.copy_ecn { ecn::ECN } else { 0 };
        let (tos_kept, tos_set) = match o.dscp_out {
            Dscp::Copy => (!ecn::ECN | ecn, 0),
            Dscp::Set(dscp) => (ecn, dscp << 2),
        };
        let mut state = Self {
            sequence: AtomicU64::new(0),
            usage: Usage::new(&sa.lifetime),
            spi: sa.spi,
            path_mtu: AtomicU32::new(0),
            fragmentable: [0; 2],
            lens: key.lens(),
            plain,
            esn: sa.suite.esn,
            tos_kept,
            tos_set,
            reqid: sa.reqid,
            sent_at: AtomicU64::new(0),
            adaptive: Adaptive::default(),
            key,
            mode: sa.mode,
            suite: sa.suite,
            options: sa.options,
            lifetime: sa.lifetime,
            selectors: Selectors::new(sa),
        };
        state.fragmentable = match sa.mode {
            _ if !o.copy_df => [u16::MAX; 2],
            Mode::Tunnel => [mtu::LEAST_V4, mtu::LEAST_V6].map(|least| state.esp_len(least) as u16),
            Mode::Transport => [mtu::LEAST_V4 - v4::MIN_HEADER, mtu::LEAST_V6 - v6::HEADER]
                .map(|least| state.esp_len(least) as u16),
        };
        state
    }

    /// The protocol that it speaks.
    pub(crate) fn protocol(&self) -> ProtocolId {
        if self.key.ah().is_some() { ProtocolId::AH } else { ProtocolId::ESP }
    }

    /// TOS or traffic class of a tunnel's outer header.
    #[inline]
    pub(crate) fn outer_tos(&self, inner: u8) -> u8 {
        inner & self.tos_kept | self.tos_set
    }

    /// Bytes of the path to the peer; `None` as long as it is not known.
    #[inline]
    pub(crate) fn path_mtu(&self) -> Option<u32> {
        Some(self.path_mtu.load(Relaxed)).filter(|mtu| *mtu != 0)
    }

    pub(crate) fn set_path_mtu(&self, mtu: u32) {
        self.path_mtu.store(mtu, Relaxed);
    }

    /// When it sent last, of an SA with dummy packets.
    pub(crate) fn sent_at(&self) -> Duration {
        Duration::from_nanos(self.sent_at.load(Relaxed))
    }

    /// Notes that it has sent.
    pub(crate) fn set_sent_at(&self, now: Duration) {
        self.sent_at.store(now.as_nanos() as u64, Relaxed);
    }

    /// Notes that it sends now, unless it has sent since `before`.
    pub(crate) fn claim(&self, before: Duration, now: Duration) -> bool {
        let (before, now) = (before.as_nanos() as u64, now.as_nanos() as u64);
        self.sent_at.compare_exchange(before, now, Relaxed, Relaxed).is_ok()
    }

    /// Starts to load what every packet needs of it, and of the key what kind it is: the rest is
    /// sealing's business.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..1);
        prefetch(&self.key, 0..1);
    }

    /// Length of the IV in bytes.
    #[inline]
    pub(crate) fn iv_len(&self) -> usize {
        self.lens.iv.into()
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub(crate) fn icv_len(&self) -> usize {
        self.lens.icv.into()
    }

    /// What inner packet and trailer are padded to, in bytes.
    #[inline]
    pub(crate) fn block_len(&self) -> usize {
        self.lens.block.into()
    }

    /// Length of the ESP packet around `inner` bytes.
    #[inline]
    pub(crate) fn esp_len(&self, inner: usize) -> usize {
        esp::HEADER
            + self.iv_len()
            + inner
            + esp::pad_len(inner, self.block_len())
            + esp::TRAILER
            + self.icv_len()
    }

    /// The last number that this SA may use: "the sender MUST NOT send a packet on an SA if doing
    /// so would cause the sequence number to cycle" (RFC 4303 section 3.3.3).
    fn last_sequence(&self) -> u64 {
        if self.esn { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Takes `n` consecutive sequence numbers and returns the first; `None` when they are not
    /// there.
    #[inline]
    pub(crate) fn take_sequence(&self, n: u64) -> Option<u64> {
        let last = self.last_sequence();
        self.sequence
            .fetch_update(Relaxed, Relaxed, |used| used.checked_add(n).filter(|used| *used <= last))
            .ok()
            .map(|used| used + 1)
    }

    /// True when a rekey is due because numbers run out.
    #[inline]
    pub(crate) fn sequence_low(&self, at: u64) -> bool {
        !self.esn && at > u64::from(u32::MAX) - SEQUENCE_RESERVE
    }

    /// The last number used.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    /// Moves the last number used forward; never back.
    pub(crate) fn advance(&self, to: u64) {
        self.sequence.fetch_max(to.min(self.last_sequence()), Relaxed);
    }
}

/// An inbound SA on its present path.
#[repr(C)]
pub(crate) struct InSa {
    pub(crate) state: Arc<InState>,
    pub(crate) path: Path,
    /// Which sources other than the path's were reported since it came to be.
    pub(crate) sources: Sources,
}

impl InSa {
    /// Starts to load what every packet needs of it, without its state.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..size_of::<Arc<InState>>() + size_of::<Path>());
    }
}

/// What an inbound SA keeps when its path changes. As with [`OutState`], the first lines have what
/// is needed to check a packet, and to deliver and count it when it was authentic.
#[repr(C, align(64))]
pub(crate) struct InState {
    pub(crate) replay: Mutex<Replay>,
    pub(crate) usage: Usage,
    pub(crate) spi: Spi,
    lens: Lens,
    /// ESP, not AH.
    pub(crate) esp: bool,
    /// Tunnel mode ESP that needs nothing else: the fast path.
    pub(crate) plain: bool,
    /// Raise `Up::FirstUse` on the next authenticated packet.
    pub(crate) notify_first_use: AtomicBool,
    /// Of IPv4 and of IPv6: the selectors have addresses that no packet on a wire has.
    martians: [bool; 2],
    pub(crate) reqid: ReqId,
    /// Twice the version of the SPD in which other policies were last looked for that come before
    /// those of this SA, and 1 if there are any.
    others: AtomicU64,
    ranges_v4: Ranges<u32>,
    ranges_v6: Ranges<u128>,
    pub(crate) key: SaKey,
    pub(crate) lifetime: Lifetime,
    pub(crate) mode: Mode,
    pub(crate) suite: EspSuite,
    pub(crate) options: SaOptions,
    pub(crate) selectors: Selectors,
}

impl InState {
    pub(crate) fn new(sa: &SaAdd, key: SaKey) -> Self {
        let o = &sa.options;
        let plain =
            key.esp().is_some() && sa.mode == Mode::Tunnel && o.ipcomp.is_none() && o.copy_ecn && !o.dscp_in;
        let selectors = Selectors::new(sa);
        Self {
            plain,
            esp: key.esp().is_some(),
            martians: [false, true].map(|ipv6| have_martians(&selectors, ipv6)),
            ranges_v4: Ranges::new(&selectors, number_v4),
            ranges_v6: Ranges::new(&selectors, number_v6),
            spi: sa.spi,
            reqid: sa.reqid,
            // What is true of the SPD of version 0, which has no policies.
            others: AtomicU64::new(0),
            lens: key.lens(),
            replay: Mutex::new(Replay::new(sa.replay_window, sa.suite.esn)),
            usage: Usage::new(&sa.lifetime),
            key,
            notify_first_use: AtomicBool::new(sa.notify_first_use),
            mode: sa.mode,
            suite: sa.suite,
            options: sa.options,
            lifetime: sa.lifetime,
            selectors,
        }
    }

    /// The protocol that it speaks.
    pub(crate) fn protocol(&self) -> ProtocolId {
        if self.key.ah().is_some() { ProtocolId::AH } else { ProtocolId::ESP }
    }

    /// Length of the IV in bytes.
    #[inline]
    pub(crate) fn iv_len(&self) -> usize {
        self.lens.iv.into()
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub(crate) fn icv_len(&self) -> usize {
        self.lens.icv.into()
    }

    /// True when its selectors cover the packet for its addresses alone: the quick answer, of which
    /// false says nothing.
    #[inline(always)]
    pub(crate) fn covers_addresses(&self, key: &FlowKey) -> bool {
        match key.is_ipv6() {
            false => self.ranges_v4.contain(key.src as u32, key.dst as u32),
            true => self.ranges_v6.contain(key.src, key.dst),
        }
    }

    /// True when the selectors have addresses of this family that no packet on a wire has: then
    /// they do not keep martians out.
    #[inline(always)]
    pub(crate) fn may_let_martians_in(&self, ipv6: bool) -> bool {
        self.martians[usize::from(ipv6)]
    }

    /// True when it is known of this SPD that no other policy covers a packet of this SA's
    /// selectors before its own do: the quick answer, of which false says nothing.
    #[inline(always)]
    pub(crate) fn is_alone_in(&self, spd: &Spd) -> bool {
        self.others.load(Relaxed) == spd.version() << 1
    }

    /// The same, found out unless it is known. Once for each SPD, so that no packet pays for
    /// policies that did not change.
    pub(crate) fn find_others(&self, spd: &Spd) -> bool {
        let known = self.others.load(Relaxed);
        if known >> 1 == spd.version() {
            return known & 1 != 0;
        }
        let others = spd.others_first(&self.selectors.local, &self.selectors.remote, self.reqid);
        self.others.store(spd.version() << 1 | u64::from(others), Relaxed);
        others
    }

    /// Starts to load what every packet needs of it, and of the key what kind it is: the rest is
    /// opening's business.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..std::mem::offset_of!(Self, ranges_v6));
        prefetch(&self.key, 0..1);
    }

    /// Locks the window. A panic of another thread while it held the lock leaves a window that is
    /// still sound: every step of [`Replay`] ends in a valid state.
    #[inline]
    pub(crate) fn window(&self) -> std::sync::MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reported_once() {
        let limits = Lifetime { soft_packets: 3, hard_packets: 5, soft_bytes: 0, hard_bytes: 1000 };
        let usage = Usage::new(&limits);
        let reached = |soft, hard| Reached { soft, hard };
        assert_eq!(usage.add(&limits, 2, 10, 1), reached(false, false));
        assert_eq!(usage.add(&limits, 1, 10, 1), reached(true, false));
        assert_eq!(usage.add(&limits, 1, 10, 1), reached(false, false));
        assert!(!usage.spent(&limits));
        assert_eq!(usage.add(&limits, 1, 10, 7), reached(false, true));
        assert!(usage.spent(&limits));
        assert_eq!(usage.add(&limits, 1, 1000, 8), reached(false, false));
        assert_eq!(usage.stats(), SaStats { packets: 6, bytes: 1040, last_use: 8 });
    }

    #[test]
    fn what_every_packet_needs_lies_in_the_first_lines() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(OutState, key), 64);
        // A packet in order writes to no other line of its SA than the first.
        assert!(offset_of!(InState, usage) + offset_of!(Usage, last_use) <= 64);
        assert!(offset_of!(InState, ranges_v6) <= 128);
        assert_eq!(offset_of!(InState, key), 192);
    }

    #[test]
    fn no_limit_is_never_reached() {
        let usage = Usage::default();
        assert!(!usage.add(&Lifetime::default(), u64::MAX / 2, u64::MAX / 2, 0).any());
        assert!(!usage.spent(&Lifetime::default()));
    }
}
