//! Tests of dates and names of certificates.

use std::fs;

use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, list, root};
use ironswan_testkit::clock;
use ironswan_testkit::scratch::Scratch;

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
