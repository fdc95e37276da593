//! One certificate.

use std::sync::LazyLock;

use ironswan_pki::{Certificate, CertificateFault, Name, Purpose, Rules, Time, fetch, identity, validate};
use ironswan_wire::id::{IdPattern, Identity};

use super::signature;

/// The CA that has signed the seeds.
const ROOT: &[u8] = include_bytes!("../../seeds/certificate/0001-root.der");
/// A certificate that the CA has issued.
pub(super) const GATEWAY: &[u8] = include_bytes!("../../seeds/certificate/0002-gateway.der");
/// A CA below that one.
pub(super) const MIDDLE: &[u8] = include_bytes!("../../seeds/certificate/0008-middle.der");
/// 2020-01-01: the seeds are valid then.
pub(super) const NOW: Time = Time(1_577_836_800);

/// The CA.
pub(super) static CA: LazyLock<Certificate> =
    LazyLock::new(|| Certificate::from_der(ROOT).expect("a certificate"));

/// Elements of DER, object identifiers of extensions, and names.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x82\x01\x00",
    b"\x30\x80",
    b"\x30\x00",
    b"\x31\x0b\x30\x09\x06\x03\x55\x04\x03\x0c\x02gw",
    b"\x01\x01\xff",
    b"\x02\x01\x02",
    b"\x03\x02\x07\x80",
    b"\x05\x00",
    b"\xa0\x03\x02\x01\x02",
    b"\xa3\x12\x30\x10",
    b"\x06\x03\x55\x1d\x0e",
    b"\x06\x03\x55\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x01\x06",
    b"\x06\x03\x55\x1d\x11\x04\x0c\x30\x0a\x82\x08gw.local",
    b"\x06\x03\x55\x1d\x13\x01\x01\xff\x04\x05\x30\x03\x01\x01\xff",
    b"\x06\x03\x55\x1d\x1e\x04\x0e\x30\x0c\xa0\x0a\x30\x08\x82\x06abcdef",
    b"\x06\x03\x55\x1d\x1f",
    b"\x06\x03\x55\x1d\x20\x04\x0a\x30\x08\x30\x06\x06\x04\x55\x1d\x20\x00",
    b"\x06\x03\x55\x1d\x21",
    b"\x06\x03\x55\x1d\x23",
    b"\x06\x03\x55\x1d\x24\x04\x05\x30\x03\x80\x01\x00",
    b"\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x11",
    b"\x06\x03\x55\x1d\x36\x04\x03\x02\x01\x00",
    b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01\x01",
    b"\x86\x10http://a.example",
    b"\x87\x04\xc0\x00\x02\x01",
    b"\xa4\x02\x30\x00",
    b"\x17\x0d200101000000Z",
    b"\x18\x0f20200101000000Z",
    b"\x06\x03\x2b\x65\x70",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b",
];

/// Reads the bytes as a certificate. Names come back as they were, text is of limited length, and
/// the CA has signed nothing but the seeds.
pub fn run(data: &[u8]) -> u64 {
    let certificate = match Certificate::from_der(data) {
        Ok(certificate) => certificate,
        Err(CertificateFault::TooLong(_)) => return 1,
        Err(fault) => return signature(fault),
    };
    assert_eq!(certificate.der(), data);
    let subject = certificate.subject();
    assert_eq!(Name::from_der(subject.der()), Some(subject));
    let shown = format!("{certificate:?}");
    assert!(shown.len() < 8192 && !shown.contains(char::is_control), "{shown}");
    let names: Vec<String> = certificate.alt_names().map(|name| name.to_string()).collect();
    let ids = ["gw.example", "gw@example.org", "192.0.2.1", "C=CH, CN=*"].map(Identity::parse);
    let fits = ids.map(|id| id.is_some_and(|id| identity::speaks_for(&certificate, &id)));
    let any = identity::fits(&certificate, &IdPattern::parse("*.example").expect("a pattern"));
    let own = Identity { kind: ironswan_wire::iana::IdType::DER_ASN1_DN, data: subject.der().to_vec() };
    assert!(identity::speaks_for(&certificate, &own), "a certificate speaks for its subject");
    let places = fetch::wanted(&certificate, &CA, &fetch::Places::default(), None).0.len();
    let rules = Rules { purpose: Purpose::Any, ..Rules::default() };
    let result = validate(&certificate, &[], std::slice::from_ref(&CA), NOW, &rules);
    let signed = [ROOT, GATEWAY, MIDDLE].contains(&data);
    assert!(result.is_err() || signed, "a certificate that the CA did not sign");
    let rule = result.err().map(|fault| std::mem::discriminant(&fault.rule));
    signature((
        names.len().min(4),
        fits,
        any,
        places,
        rule,
        certificate.is_ca(),
        certificate.is_self_issued(),
    ))
}
