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
fn a_name_of_one_kind_stands_for_no_identity_of_another_kind() {
    let make = |names: &[Vec<u8>]| {
        Make::own("O=example, E=gw@example.org, CN=192.0.2.1", 1, "CN=CA", 2).alt_names(names).make()
    };
    let text = |tag: u8, text: &str| emit(tag, &[text.as_bytes()]);
    let v6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1]].concat();
    // A mailbox and an address within the subject; addresses as text; a name of four bytes.
    let certificate =
        make(&[text(0x82, "192.0.2.2"), text(0x86, "gw.example"), text(0x82, "\u{1}\u{2}\u{3}\u{4}")]);
    for id in ["gw@example.org", "192.0.2.1", "fqdn:192.0.2.1", "192.0.2.2", "gw.example", "1.2.3.4"] {
        assert!(!speaks_for(&certificate, &Identity::parse(id).unwrap()), "{id}");
    }
    let certificate = make(&[emit(0x87, &[&v6]), emit(0x87, &[&[192, 0, 2, 9]]), emit(0x87, &[&[0; 8]])]);
    for (id, expected) in
        [("2001:db8::1", true), ("192.0.2.9", true), ("2001:db8::2", false), ("0.0.0.0", false)]
    {
        assert_eq!(speaks_for(&certificate, &Identity::parse(id).unwrap()), expected, "{id}");
    }
    assert!(!speaks_for(&certificate, &Identity::parse("fqdn:192.0.2.9").unwrap()));
    let general = Identity { kind: IdType::DER_ASN1_GN, data: text(0x82, "gw.example") };
    assert!(!speaks_for(&make(&[text(0x82, "gw.example")]), &general));
}

#[test]
fn the_constraints_of_a_ca_say_which_identities_it_may_certify() {
    // permittedSubtrees: dNSName example; excludedSubtrees: iPAddress 192.0.2.0/24.
    let permitted = emit(0xa0, &[&emit(0x30, &[&emit(0x82, &[b"example"])])]);
    let excluded = emit(0xa1, &[&emit(0x30, &[&emit(0x87, &[&[192, 0, 2, 0, 255, 255, 255, 0]])])]);
    let ca = Make::root("CN=CA", 1).with(30, true, &emit(0x30, &[&permitted, &excluded])).make();
    for (id, expected) in [
        ("gw.example", true),
        ("gw.example.org", false),
        ("192.0.3.1", true),
        ("192.0.2.1", false),
        ("gw@other.example", true),
        ("CN=gw", true),
        ("keyid:gw", true),
    ] {
        assert_eq!(may_certify(&ca, &Identity::parse(id).unwrap()), expected, "{id}");
    }
}

#[test]
fn patterns_of_a_configuration_fit_by_the_end_of_a_name() {
    let certificate = certificate();
    let fits = |text: &str| fits(&certificate, &IdPattern::parse(text).unwrap());
    assert!(fits("%any") && fits("*.example") && fits("*@Example.org") && fits("gw.example"));
    assert!(!fits("*.example.org") && !fits("*@example") && !fits("x.example"));
}
