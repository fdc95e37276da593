use ironswan_wire::id::{IdPattern, Identity};

use super::*;
use crate::der::emit;
use crate::testing::{Make, name};

fn certificate() -> Certificate {
    let names = [
        emit(0x82, &[b"gw.example"]),
        emit(0x81, &[b"gw@example.org"]),
        emit(0x87, &[&[192, 0, 2, 1]]),
        emit(0xa4, &[&name("C=CH, CN=other")]),
        emit(0x82, &[b"*.wild.example"]),
    ];
    Make::own("C=CH, O=example, CN=gateway.example", 1, "CN=CA", 2)
        .alt_names(&names)
        .with(14, false, &emit(4, &[b"key"]))
        .make()
}

#[test]
fn a_certificate_speaks_for_its_subject_and_its_other_names() {
    let certificate = certificate();
    let speaks = |text: &str| speaks_for(&certificate, &Identity::parse(text).unwrap());
    for text in [
        "C=CH, O=Example, CN=Gateway.example",
        "asn1dn:C=CH, O=*, CN=*",
        "/C=CH/CN=other",
        "GW.example",
        "gw@Example.org",
        "192.0.2.1",
        "keyid:key",
        "*.wild.example",
    ] {
        assert!(speaks(text), "{text}");
    }
    for text in [
        "C=CH, O=example",
        "C=DE, O=example, CN=gateway.example",
        // The common name is no FQDN.
        "gateway.example",
        "x.gw.example",
        "a.wild.example",
        "fqdn:gw@example.org",
        "192.0.2.2",
        "2001:db8::1",
        "keyid:kex",
    ] {
        assert!(!speaks(text), "{text}");
    }
    for hash in [sha1(certificate.der()), sha1(certificate.key_info()), certificate.key_id()] {
        assert!(speaks_for(&certificate, &Identity { kind: IdType::KEY_ID, data: hash.to_vec() }));
    }
}

#[test]
fn patterns_of_a_configuration_fit_by_the_end_of_a_name() {
    let certificate = certificate();
    let fits = |text: &str| fits(&certificate, &IdPattern::parse(text).unwrap());
    assert!(fits("%any") && fits("*.example") && fits("*@Example.org") && fits("gw.example"));
    assert!(!fits("*.example.org") && !fits("*@example") && !fits("x.example"));
}
