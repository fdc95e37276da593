//! There and back, over the whole matrix: protocol, mode, families, encapsulation, every suite,
//! extended numbers, compression, and sizes from nothing to beyond the path.

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::v4;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Mode, SaAdd, SaOptions};

use crate::common::*;
use crate::out_common::*;

/// One cell, but for the suite.
#[derive(Clone, Copy, Debug)]
struct Cell {
    protocol: ProtocolId,
    mode: Mode,
    outer_v6: bool,
    inner_v6: bool,
    udp_encap: bool,
    esn: bool,
    ipcomp: bool,
}

fn cells() -> Vec<Cell> {
    let mut out = Vec::new();
    for bits in 0..128u32 {
        let bit = |n: u32| bits >> n & 1 != 0;
        let cell = Cell {
            protocol: if bit(0) { ProtocolId::AH } else { ProtocolId::ESP },
            mode: if bit(1) { Mode::Transport } else { Mode::Tunnel },
            outer_v6: bit(2),
            inner_v6: bit(3),
            udp_encap: bit(4),
            esn: bit(5),
            ipcomp: bit(6),
        };
        let possible = !(cell.protocol == ProtocolId::AH && cell.udp_encap)
            && (cell.mode == Mode::Tunnel || cell.outer_v6 == cell.inner_v6);
        if possible {
            out.push(cell);
        }
    }
    out
}

impl Cell {
    fn sa(&self, suite: EspSuite) -> SaAdd {
        let base = if self.protocol == ProtocolId::AH { ah(self.outer_v6) } else { outbound(self.outer_v6) };
        SaAdd {
            mode: self.mode,
            udp_encap: self.udp_encap,
            suite: EspSuite { esn: self.esn, ..suite },
            options: SaOptions { ipcomp: self.ipcomp.then_some(0x1234), ..SaOptions::default() },
            ..base
        }
    }

    /// What arrives of a packet: in transport mode ESP the header is the receiver's own, except for
    /// what it must agree on.
    fn comparable(&self, packet: &[u8]) -> Vec<u8> {
        let mut p = packet.to_vec();
        if self.protocol == ProtocolId::ESP && self.mode == Mode::Transport {
            if self.inner_v6 {
                p[..4].copy_from_slice(&[0x60, 0, 0, 0]);
                p[7] = 0;
            } else {
                p[1] = 0;
                p[4..9].fill(0);
                v4::set_checksum(&mut p[..20]);
            }
        }
        p
    }

    /// A packet of `len` bytes that this SA carries, as far as one can be so short: what
    /// compresses, or what does not.
    fn packet(&self, len: usize, noise: bool) -> Vec<u8> {
        let headers = if self.inner_v6 { 48 } else { 28 };
        let payload = len.saturating_sub(headers);
        let payload =
            if noise { bytes(payload, len as u64) } else { (0..payload).map(|i| (i / 40) as u8).collect() };
        Spec { payload, ..udp_between(self.inner_v6, 0) }.build()
    }
}

/// Sends packets of these lengths, one by one, and looks at what comes out.
fn there_and_back(cell: Cell, suite: EspSuite, lens: impl Iterator<Item = usize>) {
    let mut s = Sender::new(cell.sa(suite));
    let mut r = Receiver::of(&s.sa, 64);
    if cell.esn {
        let at = 0x6_ffff_ffff - 4;
        s.engine.advance_sequence(s.name(), at).unwrap();
        r.engine.advance_sequence(r.name(), at).unwrap();
    }
    let mut count = 0;
    for len in lens {
        for noise in [false, true] {
            let packet = cell.packet(len, noise);
            let sent = s.one(&packet);
            let got = r.each(&[sent]);
            assert_eq!(got.len(), 1, "{cell:?} {suite:?} {len}: {:?}", r.engine.counters());
            assert!(
                cell.comparable(&got[0]) == cell.comparable(&packet),
                "{cell:?} {suite:?} {len}: {:02x?} is not {packet:02x?}",
                got[0]
            );
            if !cell.inner_v6 {
                assert!(v4::checksum_ok(&got[0][..20]));
            }
            count += 1;
        }
    }
    let c = r.engine.counters();
    assert_eq!((c.traffic.in_packets, c.traffic.in_writes, c.dropped_in()), (count, count, 0));
}

fn suites(protocol: ProtocolId) -> Vec<EspSuite> {
    if protocol == ProtocolId::AH { ah_suites() } else { esp_suites() }
}

#[test]
fn every_suite_in_every_cell() {
    let cells = cells();
    assert_eq!(cells.len(), 4 * (2 * 4 + 2 * 2 + 4 + 2));
    for cell in &cells {
        for suite in suites(cell.protocol) {
            there_and_back(*cell, suite, [28, 61, 200, 1_401].into_iter());
        }
    }
}

#[test]
fn every_size_up_to_a_path_in_every_cell() {
    // One suite of each way to pad.
    let esp = [GCM, CBC_SHA256.suite];
    for cell in cells() {
        let list =
            if cell.protocol == ProtocolId::AH { vec![ah_suites()[0], ah_suites()[9]] } else { esp.to_vec() };
        for (i, suite) in list.into_iter().enumerate() {
            let first = if cell.inner_v6 { 48 } else { 28 };
            // Each size with one of the two in a debug build's time.
            there_and_back(cell, suite, (first + i..1_500).step_by(2));
        }
    }
}

#[test]
fn sizes_beyond_any_path() {
    let mut rng = Seeded::new(5);
    for cell in cells() {
        let suite = if cell.protocol == ProtocolId::AH { SHA256 } else { GCM };
        let lens: Vec<usize> = (0..8).map(|_| 1_500 + rng.u32() as usize % 60_000).collect();
        there_and_back(cell, suite, lens.into_iter().chain([65_350]));
    }
}

#[test]
fn superpackets_come_back_as_they_were() {
    for cell in cells() {
        let suite = if cell.protocol == ProtocolId::AH { SHA256 } else { GCM };
        let mut s = Sender::new(cell.sa(suite));
        let mut r = Receiver::of(&s.sa, 64);
        for tcp in [true, false] {
            let spec = if tcp { Spec::tcp(30_000) } else { Spec::udp(30_000) };
            let spec = between(if cell.inner_v6 { spec.over_v6() } else { spec });
            let sent = s.send(&[spec.superpacket(1_200)]);
            let got: Vec<_> = r.open(&sent).into_iter().flat_map(|(o, p)| device(&o, &p)).collect();
            let want = spec.segments(1_200);
            assert_eq!(got.len(), want.len(), "{cell:?}");
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(cell.comparable(got), cell.comparable(want), "{cell:?}");
            }
        }
    }
}
