//! Tests of a CHILD_SA's fields for what only some SAs have: AH, transport mode, IPComp, integrity
//! beside encryption.

use std::time::Duration;

use ironswan_ike::event::{ChildId, ChildState};
use ironswan_wire::iana::{EncrId, IntegId, KeId};
use ironswan_wire::proposal::{Additional, EspSuite, Transform};
use ironswan_wire::sadb::{ReqId, Spi};

use super::*;

fn sa(protocol: ProtocolId, mode: Mode, encr: EncrId, key_bits: u16, integ: Option<IntegId>) -> ChildSaInfo {
    ChildSaInfo {
        id: ChildId(7),
        name: "net".to_owned(),
        reqid: ReqId(1),
        state: ChildState::Installed,
        protocol,
        mode,
        udp_encap: false,
        spi_in: Spi(0xc000_0001),
        spi_out: Spi(0xc2),
        cpi_in: None,
        cpi_out: None,
        suite: EspSuite { encr, key_bits, integ, ke: None, esn: false },
        additional: Additional::NONE,
        local_ts: Vec::new(),
        remote_ts: Vec::new(),
        installed: Duration::from_secs(5),
        rekey_in: None,
        life_in: None,
        stats: None,
    }
}

/// `name=value` of the fields between the state and the traffic counters.
fn shown(c: &ChildSaInfo) -> String {
    let s = child(c, 0);
    let fields: Vec<String> = s
        .iter()
        .skip_while(|(n, _)| *n != "mode")
        .take_while(|(n, _)| *n != "bytes-in")
        .map(|(n, _)| format!("{n}={}", s.get_str(n).unwrap()))
        .collect();
    fields.join(" ")
}

#[test]
fn ah_has_no_encryption_and_transport_mode_says_so() {
    let ah = sa(ProtocolId::AH, Mode::Transport, EncrId::NULL, 0, Some(IntegId::HMAC_SHA2_256_128));
    assert_eq!(
        shown(&ah),
        "mode=TRANSPORT protocol=AH spi-in=c0000001 spi-out=000000c2 integ-alg=HMAC_SHA2_256_128"
    );
    let gmac = sa(ProtocolId::AH, Mode::Tunnel, EncrId::NULL, 0, Some(IntegId::AES_128_GMAC));
    assert_eq!(
        shown(&gmac),
        "mode=TUNNEL protocol=AH spi-in=c0000001 spi-out=000000c2 integ-alg=AES_128_GMAC"
    );
}

#[test]
fn the_order_of_everything_that_esp_can_have_is_charon_s() {
    let mut esp = sa(ProtocolId::ESP, Mode::Tunnel, EncrId::AES_CBC, 192, Some(IntegId::AES_XCBC_96));
    (esp.udp_encap, esp.cpi_in, esp.cpi_out) = (true, Some(0x000a), Some(0xf001));
    (esp.suite.esn, esp.suite.ke) = (true, Some(KeId::CURVE_25519));
    esp.additional = Additional::of(&[Transform::AddKe(2, KeId::ML_KEM_768)]);
    assert_eq!(
        shown(&esp),
        "mode=TUNNEL protocol=ESP encap=yes spi-in=c0000001 spi-out=000000c2 cpi-in=000a cpi-out=f001 encr-alg=AES_CBC \
         encr-keysize=192 integ-alg=AES_XCBC_96 dh-group=CURVE_25519 ake2=ML_KEM_768 esn=1"
    );
    let null = sa(ProtocolId::ESP, Mode::Tunnel, EncrId::NULL, 0, Some(IntegId::HMAC_SHA1_96));
    assert!(shown(&null).ends_with("encr-alg=NULL integ-alg=HMAC_SHA1_96"));
    let gmac = sa(ProtocolId::ESP, Mode::Tunnel, EncrId::NULL_AES_GMAC, 256, None);
    assert!(shown(&gmac).ends_with("encr-alg=NULL_AES_GMAC encr-keysize=256"));
}

#[test]
fn traffic_alone_is_a_fraction_of_the_whole() {
    let mut c = sa(ProtocolId::ESP, Mode::Tunnel, EncrId::AES_GCM_16, 128, None);
    let stats = |n| SaStats { packets: n, bytes: 100 * n, last_use: 0 };
    c.stats = Some((stats(1), stats(2)));
    let brief = traffic(&c);
    let whole = child(&c, 0);
    assert_eq!(
        brief.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["name", "install-time", "bytes-in", "packets-in", "bytes-out", "packets-out"]
    );
    for (name, value) in brief.iter() {
        assert_eq!(Some(value), whole.get(name), "{name}");
    }
}
