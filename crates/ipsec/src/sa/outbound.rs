//! An outbound SA: sequence numbers, the path MTU, and what the path of packets that leave asks of
//! it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ironswan_crypto::prefetch;
use ironswan_wire::esp;
use ironswan_wire::ip::{v4, v6};
use ironswan_wire::sadb::{Direction, Dscp, Mode, ReqId, SaAdd, SaRef, Spi, Tfc};

use super::key::{EspLengths, SaKey};
use super::parameters::SaParameters;
use super::path::Path;
use super::usage::Usage;
use crate::ecn;
use crate::ipcomp::Adaptive;
use crate::mtu::{self, Encapsulation};

/// Without extended sequence numbers the key daemon is told to rekey when this many numbers are
/// left.
const SEQUENCE_RESERVE: u64 = 1 << 28;

/// An outbound SA on its present path.
pub(crate) struct OutSa {
    pub(crate) path: Path,
    /// Index in [`Snapshot::places`](crate::snapshot::Snapshot), the same for as long as the SA is
    /// there.
    pub(crate) place: u32,
    pub(crate) state: Arc<OutState>,
}

impl OutSa {
    /// The name by which the key daemon knows this SA.
    pub(crate) fn name(&self) -> SaRef {
        let (spi, reqid, remote) = (self.state.spi, self.state.reqid, self.path.remote.ip());
        SaRef { direction: Direction::Out, spi, reqid, remote }
    }

    /// True when `name`, of an outbound SA of the same reqid, is the name of this one.
    pub(crate) fn has_name(&self, name: &SaRef) -> bool {
        self.state.spi == name.spi && self.path.remote.ip() == name.remote
    }

    /// True when these are our outer address and the peer's: in transport mode, no other packets
    /// are carried.
    #[inline]
    pub(crate) fn is_between(&self, (src, dst): (IpAddr, IpAddr)) -> bool {
        (self.path.local.ip(), self.path.remote.ip()) == (src, dst)
    }

    /// The largest inner packet that fits the path to the peer; `None` as long as that is not
    /// known.
    pub(crate) fn inner_max(&self) -> Option<u32> {
        let state = &*self.state;
        let encapsulation = Encapsulation {
            protocol: state.key.protocol(),
            mode: state.parameters.mode,
            suite: state.parameters.suite,
            outer_ipv6: self.path.remote.is_ipv6(),
            udp_encap: self.path.udp_encap,
        };
        state.path_mtu().map(|path| encapsulation.inner_max(path))
    }
}

/// The state of an outbound SA, which a new path leaves as it is. With many SAs a packet's time is
/// the number of cache lines that it needs of them. So the first line has everything that packets
/// of a plain SA read and write but the key, which begins at the next line.
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
    lengths: EspLengths,
    /// Tunnel mode ESP that needs nothing else: the fast path.
    pub(crate) plain: bool,
    esn: bool,
    /// Bits of an inner packet's TOS that the outer header copies, and bits that the outer header
    /// has set always.
    tos_copied: u8,
    tos_set: u8,
    pub(crate) key: SaKey,
    pub(crate) reqid: ReqId,
    /// Time of the last packet sent, in nanoseconds of the driver's clock. Kept with
    /// [`SaOptions::dummies`] only.
    sent_at: AtomicU64,
    pub(crate) adaptive: Adaptive,
    pub(crate) parameters: SaParameters,
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
        let (tos_copied, tos_set) = match o.dscp_out {
            Dscp::Copy => (!ecn::ECN | ecn, 0),
            Dscp::Set(dscp) => (ecn, dscp << 2),
        };
        let mut state = Self {
            sequence: AtomicU64::new(0),
            usage: Usage::new(&sa.lifetime),
            spi: sa.spi,
            path_mtu: AtomicU32::new(0),
            fragmentable: [0; 2],
            lengths: key.lengths(),
            plain,
            esn: sa.suite.esn,
            tos_copied,
            tos_set,
            reqid: sa.reqid,
            sent_at: AtomicU64::new(0),
            adaptive: Adaptive::default(),
            key,
            parameters: SaParameters::new(sa),
        };
        state.fragmentable = match sa.mode {
            _ if !o.copy_df => [u16::MAX; 2],
            Mode::Tunnel => [mtu::MIN_MTU_V4, mtu::MIN_MTU_V6].map(|least| state.esp_len(least) as u16),
            Mode::Transport => [mtu::MIN_MTU_V4 - v4::MIN_HEADER, mtu::MIN_MTU_V6 - v6::HEADER]
                .map(|least| state.esp_len(least) as u16),
        };
        state
    }

    /// TOS or traffic class of a tunnel's outer header.
    #[inline]
    pub(crate) fn outer_tos(&self, inner: u8) -> u8 {
        inner & self.tos_copied | self.tos_set
    }

    /// Bytes of the path to the peer; `None` as long as it is not known.
    #[inline]
    pub(crate) fn path_mtu(&self) -> Option<u32> {
        Some(self.path_mtu.load(Relaxed)).filter(|mtu| *mtu != 0)
    }

    pub(crate) fn set_path_mtu(&self, mtu: u32) {
        self.path_mtu.store(mtu, Relaxed);
    }

    /// Time of the last packet sent. Only an SA with dummy packets keeps it.
    pub(crate) fn sent_at(&self) -> Duration {
        Duration::from_nanos(self.sent_at.load(Relaxed))
    }

    /// Notes the time of a packet that is sent.
    pub(crate) fn set_sent_at(&self, now: Duration) {
        self.sent_at.store(now.as_nanos() as u64, Relaxed);
    }

    /// Claims the sending of a dummy packet now. Returns false when the SA has sent since `before`.
    pub(crate) fn claim_dummy(&self, before: Duration, now: Duration) -> bool {
        let (before, now) = (before.as_nanos() as u64, now.as_nanos() as u64);
        self.sent_at.compare_exchange(before, now, Relaxed, Relaxed).is_ok()
    }

    /// Starts to load the part that every packet needs, and the kind of the key. Sealing loads the
    /// rest of the key.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..1);
        prefetch(&self.key, 0..1);
    }

    /// Length of the IV in bytes.
    #[inline]
    pub(crate) fn iv_len(&self) -> usize {
        self.lengths.iv.into()
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub(crate) fn icv_len(&self) -> usize {
        self.lengths.icv.into()
    }

    /// Multiple to which inner packet and trailer are padded, in bytes.
    #[inline]
    pub(crate) fn block_len(&self) -> usize {
        self.lengths.block.into()
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

    /// True when no sequence number is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.sequence() >= self.last_sequence()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_begins_at_the_second_cache_line() {
        assert_eq!(std::mem::offset_of!(OutState, key), 64);
    }
}
