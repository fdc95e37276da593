//! An inbound SA: its replay window, and quick answers about inner packets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ironswan_crypto::prefetch;
use ironswan_wire::sadb::{Direction, Mode, ReqId, SaAdd, SaRef, Spi};

use super::key::{EspLengths, SaKey};
use super::parameters::SaParameters;
use super::path::{Path, ReportedSources};
use super::ranges::{Ranges, have_martians, number_v4, number_v6};
use super::usage::Usage;
use crate::flow::FlowKey;
use crate::late::{Refused, WindowNeeds};
use crate::replay::Replay;
use crate::spd::Spd;

/// An inbound SA on its present path.
#[repr(C)]
pub(crate) struct InSa {
    pub(crate) state: Arc<InState>,
    pub(crate) path: Path,
    /// Sources other than the path's that were reported since the SA has this path.
    pub(crate) sources: ReportedSources,
}

impl InSa {
    /// The name by which the key daemon knows this SA.
    pub(crate) fn name(&self) -> SaRef {
        let (spi, reqid, remote) = (self.state.spi, self.state.reqid, self.path.remote.ip());
        SaRef { direction: Direction::In, spi, reqid, remote }
    }

    /// Starts to load what every packet needs of it, without its state.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..size_of::<Arc<InState>>() + size_of::<Path>());
    }
}

/// The state of an inbound SA, which a new path leaves as it is. As with
/// [`OutState`](super::OutState), the first lines have everything that is needed to check a packet,
/// and to deliver and count an authentic one.
#[repr(C, align(64))]
pub(crate) struct InState {
    pub(crate) replay: Mutex<Replay>,
    pub(crate) usage: Usage,
    pub(crate) spi: Spi,
    lengths: EspLengths,
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
    pub(crate) parameters: SaParameters,
    /// Authentic packets that the replay check has dropped; `None` as long as there are none.
    refused: Mutex<Option<Box<WindowNeeds>>>,
}

impl InState {
    pub(crate) fn new(sa: &SaAdd, key: SaKey) -> Self {
        let o = &sa.options;
        let plain =
            key.esp().is_some() && sa.mode == Mode::Tunnel && o.ipcomp.is_none() && o.copy_ecn && !o.dscp_in;
        let parameters = SaParameters::new(sa);
        let selectors = &parameters.selectors;
        Self {
            plain,
            esp: key.esp().is_some(),
            martians: [false, true].map(|ipv6| have_martians(selectors, ipv6)),
            ranges_v4: Ranges::new(selectors, number_v4),
            ranges_v6: Ranges::new(selectors, number_v6),
            spi: sa.spi,
            reqid: sa.reqid,
            // 0 means the SPD of version 0 and no other policies: that SPD has none.
            others: AtomicU64::new(0),
            lengths: key.lengths(),
            replay: Mutex::new(Replay::new(sa.replay_window, sa.suite.esn)),
            usage: Usage::new(&sa.lifetime),
            key,
            notify_first_use: AtomicBool::new(sa.notify_first_use),
            parameters,
            refused: Mutex::new(None),
        }
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

    /// True when the selectors cover every packet between these addresses. False says nothing: ask
    /// the selectors.
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

    /// True when no other policy of this SPD covers a packet of this SA's selectors before its own
    /// do, as an earlier look-up has found. False says nothing: call [`Self::find_others`].
    #[inline(always)]
    pub(crate) fn is_alone_in(&self, spd: &Spd) -> bool {
        self.others.load(Relaxed) == spd.version() << 1
    }

    /// True when some other policy may cover a packet of this SA's selectors before its own do.
    /// Looked up once for each SPD, so that no packet pays for policies that did not change.
    pub(crate) fn find_others(&self, spd: &Spd) -> bool {
        let known = self.others.load(Relaxed);
        if known >> 1 == spd.version() {
            return known & 1 != 0;
        }
        let others = spd.is_preceded_by_others(
            &self.parameters.selectors.local,
            &self.parameters.selectors.remote,
            self.reqid,
        );
        self.others.store(spd.version() << 1 | u64::from(others), Relaxed);
        others
    }

    /// Starts to load the part that every packet needs, and the kind of the key. Opening loads the
    /// rest of the key.
    pub(crate) fn prefetch(&self) {
        prefetch(self, 0..std::mem::offset_of!(Self, ranges_v6));
        prefetch(&self.key, 0..1);
    }

    /// Counts an authentic packet that the replay check has dropped.
    #[cold]
    pub(crate) fn count_refused(&self, window: u32, refused: Refused) {
        let mut needs = self.refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        needs.get_or_insert_default().count(window, refused);
    }

    /// The authentic packets that the replay check has dropped.
    pub(crate) fn window_needs(&self) -> Option<WindowNeeds> {
        let needs = self.refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        needs.as_deref().copied()
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
    fn a_packet_in_order_writes_to_the_first_cache_line_only() {
        use std::mem::offset_of;
        assert!(offset_of!(InState, usage) + offset_of!(Usage, last_use) <= 64);
        assert!(offset_of!(InState, ranges_v6) <= 128);
        assert_eq!(offset_of!(InState, key), 192);
    }
}
