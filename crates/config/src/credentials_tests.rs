//! Tests of dates and names of certificates.

use std::fs;

use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, list, root};
use ironswan_testkit::clock;
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::der::{SEQUENCE, emit, explicit};

use super::*;
use crate::load_dir;

const CONF: &str = "connections { c { remote_addrs = 192.0.2.2\n\
    local { certs = g1.der\n id = g1.example }\n remote { certs = g2.der\n id = g2.example }\n\
    children { n { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n";

/// A folder in which nothing ends soon at the beginning of 2030.
fn good() -> Scratch {
    let dir = Scratch::new();
    dir.write("swanctl.conf", CONF);
    put(&dir, "private/g1.der", key(1).to_pkcs8().unwrap().expose());
    put(&dir, "x509/g1.der", end(1).make().der());
    put(&dir, "x509/g2.der", end(2).make().der());
    put(&dir, "x509ca/root.der", root().der());
    put(&dir, "x509ca/link.der", link().der());
    dir
}

fn put(dir: &Scratch, name: &str, bytes: &[u8]) {
    let path = dir.write(name, "");
    fs::write(path, bytes).unwrap();
}

/// Findings at the beginning of a year.
fn found_in(dir: &Scratch, year: u64) -> Vec<String> {
    let mut diags = Diagnostics::default();
    let config = load_dir(clock::now, dir.path(), &mut diags).unwrap();
    // Leap days of the years since 1970, none of them in 2100.
    let days = (year - 1970) * 365 + (year - 1969) / 4;
    check(&config, UNIX_EPOCH + Duration::from_secs(days * 86_400), &mut diags);
    let prefix = format!("{}/", dir.path().display());
    diags.iter().map(|d| d.to_string().replace(&prefix, "")).collect()
}

#[test]
fn a_certificate_that_ends_within_thirty_days_is_named_and_our_own_is_an_error_afterwards() {
    let dir = good();
    assert_eq!(found_in(&dir, 2030), [""; 0]);
    put(&dir, "x509ca/old.der", Make::ca("CN=old", 9, "CN=old", 9).years(2020, 2030).make().der());
    put(
        &dir,
        "x509/g1.der",
        Make::end("CN=g1", 1, "CN=root", ROOT).names(&["g1.example"]).years(2020, 2031).make().der(),
    );
    put(
        &dir,
        "x509/g2.der",
        Make::end("CN=g2", 2, "CN=root", ROOT).names(&["g2.example"]).years(2020, 2031).make().der(),
    );
    let soon = found_in(&dir, 2030);
    assert!(
        soon.len() == 1
            && soon[0].contains(
                "x509ca/old.der: warning: the certificate of \"CN=old\" expires in less than a day"
            ),
        "{soon:?}"
    );
    let ended = found_in(&dir, 2032);
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert!(
        ended[0]
            .contains("x509/g1.der: the certificate of \"CN=g1\" has expired: it was valid until 2031-01-01"),
        "{ended:?}"
    );
    assert!(ended[1].contains("x509/g2.der: warning"), "the peer's: {ended:?}");
    assert!(ended[0].contains("ironswan pki issue"), "{ended:?}");
    let early = found_in(&dir, 2019);
    assert!(
        early.len() == 5 && early.iter().all(|line| line.contains("is not valid before 2020-01-01")),
        "{early:?}"
    );
}

#[test]
fn days_that_are_left_are_counted_whole() {
    let certificate = Make::end("CN=x", 1, "CN=root", ROOT).years(2020, 2031).make();
    let before = |seconds: i64| of_certificate(&certificate, certificate.not_after().plus(-seconds));
    let days = |seconds| match before(seconds) {
        Some(DateFault::Soon { days, .. }) => Some(days),
        _ => None,
    };
    assert_eq!(
        (days(0), days(86_400), days(29 * 86_400 + 86_399), days(30 * 86_400)),
        (Some(0), Some(1), Some(29), None)
    );
    assert!(matches!(before(-1), Some(DateFault::Expired { .. })));
}

#[test]
fn an_old_list_is_named() {
    let dir = good();
    put(&dir, "x509crl/link.crl", list("CN=link", LINK, &[3]).der());
    let found = found_in(&dir, 2060);
    assert!(found.iter().any(|line| line.contains("x509crl/link.crl: warning: the revocation list of \"CN=link\" is old")), "{found:?}");
}

#[test]
fn a_certificate_that_does_not_fit_the_identity_is_named_with_its_names() {
    let dir = good();
    dir.write("swanctl.conf", &CONF.replace("id = g2.example", "id = g9.example"));
    let found = found_in(&dir, 2030);
    assert_eq!(found.len(), 1, "{found:?}");
    let line = "connections.c.remote.certs: g9.example is no name of the certificate, which is for \"CN=g2.example\"";
    assert!(found[0].starts_with("swanctl.conf:") && found[0].contains(line), "{found:?}");
    // Our own is named where the identity is understood.
    dir.write("swanctl.conf", &CONF.replace("id = g1.example", "id = g9.example"));
    let found = found_in(&dir, 2030);
    assert!(found.len() == 1 && found[0].contains("connections.c.local.id: no certificate"), "{found:?}");
    // Any identity of the peer, and none of ours, fit what the certificates say.
    dir.write("swanctl.conf", &CONF.replace("id = g1.example", "").replace("id = g2.example", ""));
    assert_eq!(found_in(&dir, 2030), [""; 0]);
}

#[test]
fn a_certificate_that_ike_cannot_use_is_named() {
    let dir = good();
    // keyUsage: keyCertSign alone.
    let ours = Make::end("CN=g1", 1, "CN=root", ROOT).names(&["g1.example"]).with(15, &[3, 2, 2, 4]);
    put(&dir, "x509/g1.der", ours.make().der());
    let found = found_in(&dir, 2030);
    let line = "connections.c.local.certs: the certificate of \"CN=g1\" may not be used for signatures of IKE (keyUsage)";
    assert!(
        found.len() == 1 && found[0].starts_with("swanctl.conf:2: ") && found[0].contains(line),
        "{found:?}"
    );
    // Dates are said once, with the file.
    put(&dir, "x509/g1.der", end(1).years(2020, 2025).make().der());
    let found = found_in(&dir, 2030);
    assert!(found.len() == 1 && found[0].starts_with("x509/g1.der: "), "{found:?}");
}

#[test]
fn an_identity_that_no_ca_may_certify_is_named() {
    let dir = good();
    // permittedSubtrees: dNSName example.org.
    let base = [&[0x30, 17, 0xa0, 15, 0x30, 13, 0x82, 11][..], b"example.org"].concat();
    let root = |key| Make::ca("CN=root", key, "CN=root", key).with(30, &base).make();
    put(&dir, "x509ca/root.der", root(ROOT).der());
    dir.write("swanctl.conf", &CONF.replace("certs = g2.der\n", ""));
    let found = found_in(&dir, 2030);
    let line =
        "connections.c.remote.id: g2.example is no name that \"CN=root\" may certify (nameConstraints)";
    assert!(
        found.len() == 1 && found[0].starts_with("swanctl.conf:4: ") && found[0].contains(line),
        "{found:?}"
    );
    // A certificate that the connection names needs no CA; and another CA may certify the name.
    dir.write("swanctl.conf", CONF);
    assert_eq!(found_in(&dir, 2030), [""; 0]);
    dir.write("swanctl.conf", &CONF.replace("certs = g2.der\n", ""));
    put(&dir, "x509ca/other.der", Make::ca("CN=other", 9, "CN=other", 9).make().der());
    assert_eq!(found_in(&dir, 2030), [""; 0]);
}

#[test]
fn a_status_that_nobody_can_learn_is_named_where_it_is_required() {
    let dir = good();
    let conf = |policy: &str| CONF.replace("certs = g2.der\n", &format!("revocation = {policy}\n"));
    dir.write("swanctl.conf", &conf("strict"));
    let found = found_in(&dir, 2030);
    let line = "warning: connections.c.remote.revocation: revocation = strict, and neither a list nor a place of one is \
                loaded for certificates by \"CN=root\"";
    assert!(
        found.len() == 1 && found[0].starts_with("swanctl.conf:4: ") && found[0].contains(line),
        "{found:?}"
    );
    for policy in ["ifuri", "relaxed"] {
        dir.write("swanctl.conf", &conf(policy));
        assert_eq!(found_in(&dir, 2030), [""; 0], "{policy}");
    }
    // A list of the CA, or a place of the configuration.
    let authority = "authorities { a { cacert = root.der\n ocsp_uris = http://ocsp.example/ } }\n";
    dir.write("swanctl.conf", &format!("{}{authority}", conf("strict")));
    assert_eq!(found_in(&dir, 2030), [""; 0]);
    dir.write("swanctl.conf", &conf("strict"));
    put(&dir, "x509crl/root.crl", list("CN=root", ROOT, &[3]).der());
    assert_eq!(found_in(&dir, 2030), [""; 0]);
}

#[test]
fn places_of_a_certificate_that_are_never_asked_are_named_with_its_file() {
    // cRLDistributionPoints: one with this URI.
    let with = |uri: &str| {
        let place = emit(0x86, &[uri.as_bytes()]);
        let point = emit(explicit(0), &[&emit(explicit(0), &[&place])]);
        let points = emit(SEQUENCE, &[&emit(SEQUENCE, &[&point])]);
        let dir = good();
        let theirs = Make::end("CN=g2.example", 2, "CN=root", ROOT).names(&["g2.example"]).with(31, &points);
        put(&dir, "x509/g2.der", theirs.make().der());
        dir.write("swanctl.conf", &CONF.replace("certs = g2.der\n", "revocation = ifuri\n"));
        dir
    };
    for (uri, why) in [
        ("https://ocsp.example/", "does not begin with http://"),
        ("ldap://ca.example/cn=crl", "does not begin with http://"),
        ("http://localhost/a.crl", "names this machine, or no single machine"),
        ("http://", "names this machine, or no single machine"),
        ("http://ca.example:0/", "has a user or a malformed port"),
    ] {
        let found = found_in(&with(uri), 2030);
        let line = format!(
            "warning: no place that the certificate of \"CN=g2.example\" names for its status is asked: {uri} {why}"
        );
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("x509/g2.der: {line}")),
            "{uri}: {found:?}"
        );
    }
    assert_eq!(found_in(&with("http://ca.example/a.crl"), 2030), [""; 0]);
    // Nobody asks for the status.
    let dir = with("https://ocsp.example/");
    dir.write("swanctl.conf", &CONF.replace("certs = g2.der\n", ""));
    assert_eq!(found_in(&dir, 2030), [""; 0]);
    // The list of the CA says it.
    let dir = with("https://ocsp.example/");
    put(&dir, "x509crl/root.crl", list("CN=root", ROOT, &[3]).der());
    assert_eq!(found_in(&dir, 2030), [""; 0]);
}
