//! The packets that audit events name.

use crate::ah;
use crate::audit::Sample;
use crate::batch::{Carrier, Datagram};
use crate::sa::InSa;
use ironswan_wire::esp;

/// A packet of an SA, for the audit.
pub(super) fn sample_of(sa: &InSa, sequence: u64) -> Sample {
    let (local, remote) = (sa.path.local.ip(), sa.path.remote.ip());
    Sample { spi: sa.state.spi.0, sequence, local, remote }
}

/// SPI and sequence number that a packet names, if it has them.
pub(super) fn header(carrier: Carrier, packet: &[u8]) -> Option<(u32, u32)> {
    match carrier {
        Carrier::Ip => ah::find(packet).ok().map(|ah| (ah.spi, ah.seq)),
        _ => esp::header(packet),
    }
}

/// A packet that was dropped before its SA mattered, for the audit.
pub(super) fn sample_of_unopened(buf: &[u8], datagram: &Datagram, start: u32) -> Sample {
    let packet = buf.get(start as usize..).unwrap_or_default();
    let (spi, sequence) = header(datagram.carrier, packet).unwrap_or_default();
    let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
    Sample { spi, sequence: sequence.into(), local, remote }
}
