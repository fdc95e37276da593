//! A device that refuses merged writes.

use ironswan_wire::ip::checksum::{be16, fold, pseudo};

use super::*;

const GRANTED: Offloads = Offloads { checksum: true, tso: true, uso: true };

/// A merged write of `n` UDP datagrams of 1,000 bytes, as the engine leaves it: the checksum is the
/// device's.
fn merged(n: u16) -> (Write, Vec<u8>) {
    let len = 8 + n * 1_000;
    let mut p = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 63, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
    p[2..4].copy_from_slice(&(20 + len).to_be_bytes());
    p.extend([0x1b, 0x58, 0x1b, 0x59]);
    p.extend(len.to_be_bytes());
    p.extend(fold(pseudo(&p[12..20], 17) + be16(len)).to_ne_bytes());
    p.extend((0..n).flat_map(|i| [i as u8; 1_000]));
    let offload =
        Offload { gso: Gso::UdpL4, segment_size: 1_000, hdr_len: 28, csum: Some((20, 6)), ..Offload::NONE };
    (Write { offload, iov: 0..1, total: p.len() as u32 }, p)
}

/// Refuses one write; what the device got instead.
fn refuse(m: &mut Merging, stats: &mut WorkerStats, now: Duration) -> Vec<Vec<u8>> {
    let (write, mut whole) = merged(3);
    assert!(Merging::is_refusal(&write, &rustix::io::Errno::INVAL.into()));
    let mut got = Vec::new();
    m.refused(now, &write, &mut whole, stats, |parts| {
        assert_eq!(parts[0][..], Offload::NONE.emit());
        got.push(parts[1].to_vec());
        Ok(parts.iter().map(|p| p.len()).sum())
    });
    got
}

#[test]
fn a_refused_write_arrives_packet_by_packet_with_right_checksums() {
    let (mut m, mut stats) = (Merging::new(GRANTED), WorkerStats::default());
    let got = refuse(&mut m, &mut stats, Duration::ZERO);
    assert_eq!(got.len(), 3);
    for (i, p) in got.iter().enumerate() {
        assert_eq!((p.len(), &p[4..6], &p[28..]), (1_028, &[0, 7 + i as u8][..], &[i as u8; 1_000][..]));
        let sum = |bytes: &[u8]| bytes.chunks(2).map(|w| be16(u16::from_be_bytes([w[0], w[1]]))).sum::<u64>();
        assert_eq!(fold(sum(&p[..20])), 0xffff);
        assert_eq!(fold(pseudo(&p[12..20], 17) + be16(1_008) + sum(&p[20..])), 0xffff);
    }
    assert_eq!((stats.tun_writes, stats.tun_write_unmerged, stats.tun_write_errors), (3, 1, 0));
    assert_eq!((m.merged(), m.has_changed()), ([true, true], false));
}

#[test]
fn refusals_in_a_row_end_merging_of_that_protocol_for_a_minute_and_are_said_once() {
    let (mut m, mut stats) = (Merging::new(GRANTED), WorkerStats::default());
    for round in 0..3u32 {
        let now = PAUSE * 2 * round;
        for _ in 1..REFUSALS {
            refuse(&mut m, &mut stats, now);
        }
        assert_eq!((m.merged(), m.has_changed()), ([true, true], false));
        refuse(&mut m, &mut stats, now);
        assert_eq!((m.merged(), m.has_changed(), m.has_changed()), ([true, false], true, false));
        assert_eq!(m.take_news().collect::<Vec<_>>(), if round == 0 { vec![true] } else { vec![] });
        assert!(!m.is_due(now + PAUSE - Duration::from_nanos(1)));
        assert!(m.is_due(now + PAUSE) && !m.is_due(now + PAUSE));
        assert_eq!(m.merged(), [true, true]);
    }
    assert_eq!(stats.tun_writes, 3 * 3 * u64::from(REFUSALS));
}

#[test]
fn a_refusal_now_and_then_changes_nothing() {
    let (mut m, mut stats) = (Merging::new(GRANTED), WorkerStats::default());
    for _ in 0..20 {
        refuse(&mut m, &mut stats, Duration::ZERO);
        m.taken(&merged(3).0);
    }
    assert_eq!((m.merged(), m.has_changed()), ([true, true], false));
}

#[test]
fn what_the_device_did_not_grant_is_not_merged() {
    let m = Merging::new(Offloads { uso: false, ..GRANTED });
    assert_eq!(m.merged(), [true, false]);
    assert_eq!(Merging::new(Offloads::default()).merged(), [false, false]);
}

#[test]
fn a_device_that_is_down_or_a_single_packet_is_no_refusal() {
    let (write, _) = merged(2);
    assert!(!Merging::is_refusal(&write, &rustix::io::Errno::IO.into()));
    let single = Write { offload: Offload::NONE, ..write };
    assert!(!Merging::is_refusal(&single, &rustix::io::Errno::INVAL.into()));
}
