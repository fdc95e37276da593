//! Takes a merged packet apart again: for a device that refuses it.

use ironswan_wire::ip;
use ironswan_wire::offload::{Gso, Offload};

use super::split::{Cut, each_segment};

/// Shows each packet of one write ([`crate::Write`], its ranges gathered) to `each`, in their
/// order, with finished checksums: the packets that were merged. False, and nothing is shown, when
/// the write is not a merged one.
///
/// Allocates: it is for the first packets that a device refuses, before merging is switched off for
/// it ([`crate::Worker::set_merging`]).
pub fn unmerge(packet: &mut [u8], offload: &Offload, mut each: impl FnMut(&[u8])) -> bool {
    let Ok(info) = ip::parse(packet) else { return false };
    if offload.gso == Gso::None || info.total_len != packet.len() {
        return false;
    }
    let Some(Cut::Segments { header, size, .. }) = Cut::plan(packet, &info, offload) else {
        return false;
    };
    let mut scratch = Vec::with_capacity(header + size);
    each_segment(packet, &info, (header, size), &mut scratch, |p| {
        each(p);
        Ok(())
    })
    .is_ok()
}
