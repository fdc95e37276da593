//! The lines about missing offloads.

use std::time::Duration;

use super::*;

fn granted() -> Offloads {
    Offloads {
        tun: TunOffloads { checksum: true, tso: true, uso: true },
        segments: 128,
        gro: true,
        buffers: [8 << 20; 2],
        busy_poll: false,
        xdp: vec![],
    }
}

#[test]
fn what_was_granted_or_not_asked_for_is_not_said() {
    assert_eq!(granted().shortfalls(&Tuning::default()), []);
    let nothing =
        Tuning { gso: false, gro: false, tun_offload: false, socket_buffer: 0, ..Tuning::default() };
    assert_eq!(Offloads { segments: 1, ..Offloads::default() }.shortfalls(&nothing), []);
}

#[test]
fn each_thing_that_is_missing_is_said_once_with_its_remedy() {
    let tun = TunOffloads { checksum: true, tso: true, uso: false };
    let busy = Tuning { busy_poll: Duration::from_micros(50), ..Tuning::default() };
    for (got, asked, words) in [
        (Offloads { tun, ..granted() }, Tuning::default(), "a newer kernel makes UDP faster"),
        (Offloads { tun: TunOffloads::default(), ..granted() }, Tuning::default(), "tun_offload = no"),
        (Offloads { segments: 1, ..granted() }, Tuning::default(), "gso = no"),
        (Offloads { gro: false, ..granted() }, Tuning::default(), "gro = no"),
        (
            Offloads { buffers: [212_992, 8 << 20], ..granted() },
            Tuning::default(),
            "212992 bytes for receiving",
        ),
        (granted(), busy, "remove the key"),
    ] {
        let lines: Vec<String> = got.shortfalls(&asked).iter().map(ToString::to_string).collect();
        assert!(lines.len() == 1 && lines[0].contains(words), "{lines:?}");
    }
}

#[test]
fn what_is_refused_later_names_the_peer_or_the_protocol_and_the_remedy() {
    let peer = Slower::Segmentation("192.0.2.2".parse().unwrap()).diagnosis().to_string();
    assert!(
        peer.contains("192.0.2.2") && peer.contains("ethtool -K") && peer.contains("none is lost"),
        "{peer}"
    );
    let udp = Slower::Merging { udp: true }.diagnosis().to_string();
    assert!(udp.contains("UDP") && udp.contains("tun_offload = no"), "{udp}");
}
