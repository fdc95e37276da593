//! Finds a packet's flow and the decision about it, and asks for an SA where there is none (RFC
//! 4301 section 5.1).

use ironswan_wire::ip::{Fragment, IpInfo, icmp};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, ReqId};

use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::fragment::shows_ports;
use crate::snapshot::Snapshot;
use crate::verdict::Verdict;
use crate::worker::Worker;

impl Worker {
    /// The decision about a packet. A later fragment takes that of its first one, where ports
    /// matter.
    // The key of a whole packet stays in registers: one that goes through memory, or may be
    // another, stalls its comparison, which takes 14 ns a packet.
    #[inline(always)]
    pub(crate) fn verdict(&mut self, packet: &[u8], info: &IpInfo) -> Result<Verdict, DropReason> {
        if info.fragment != Fragment::No {
            return self.verdict_of_fragment(packet, info);
        }
        let key = FlowKey::new(info, packet).ok_or(DropReason::OutHdrError)?;
        Ok(self.flows.get(&self.snap, &key))
    }

    #[cold]
    #[inline(never)]
    fn verdict_of_fragment(&mut self, packet: &[u8], info: &IpInfo) -> Result<Verdict, DropReason> {
        let key = self.flow(packet, info)?;
        Ok(self.flows.get(&self.snap, &key))
    }

    /// The flow whose decision the packet takes: its own, or for a later fragment that of its first
    /// one, where ports matter.
    pub(crate) fn flow(&mut self, packet: &[u8], info: &IpInfo) -> Result<FlowKey, DropReason> {
        let key = FlowKey::new(info, packet).ok_or(DropReason::OutHdrError)?;
        if info.fragment == Fragment::No {
            return Ok(key);
        }
        if shows_ports(packet, info) {
            self.fragments_out.remember(self.now, packet, info, 0, key);
            return Ok(key);
        }
        let hidden = key.without_ports();
        Ok(match self.flows.get(&self.snap, &hidden) {
            Verdict::AsFirstFragment(_) => {
                self.fragments_out.flow(self.now, packet, info, 0).unwrap_or(hidden)
            }
            _ => hidden,
        })
    }

    /// Asks for an SA for a packet that its policy wants protected, and keeps the packet. `Err`
    /// when there is no room for it.
    #[cold]
    pub(super) fn acquire(
        &mut self,
        reqid: ReqId,
        info: &IpInfo,
        frame: &[u8],
        offload: &Offload,
    ) -> Result<bool, DropReason> {
        let key = self.flow(&frame[..info.total_len], info)?;
        let asked = self.engine.up.acquire(self.now, reqid, key.selector());
        if asked.is_err() {
            self.engine.suppressed_acquire();
        }
        if self.hold(frame, offload, reqid, asked.err()) { Ok(true) } else { Err(DropReason::OutNoStates) }
    }
}

/// Finds the SA for an ICMP error that no policy covers: the one that the answer to the quoted
/// packet would take, since routers on our side speak with addresses of their own (RFC 4301 section
/// 6.2). Returns its place. Where there is no such SA, none is asked for.
#[cold]
pub(super) fn by_quoted(
    snap: &Snapshot,
    packet: &[u8],
    info: &IpInfo,
    reason: DropReason,
) -> Result<u32, DropReason> {
    let answer = match reason {
        DropReason::OutNoPolicy => icmp::quoted_answer(packet, info).ok_or(reason)?,
        _ => return Err(reason),
    };
    let Some(Action::Protect(reqid)) = snap.spd.lookup_out(&answer) else { return Err(reason) };
    let sas = snap.outbound.get(reqid.0).ok_or(reason)?;
    let sa = sas.iter().rev().find(|sa| sa.state.parameters.selectors.covers_out(&answer)).ok_or(reason)?;
    Ok(sa.place)
}
