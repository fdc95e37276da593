//! Tests of files of certificates, and of what connections make of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use base64::engine::{Engine as _, general_purpose::STANDARD};
use ironswan_keying::{Auth, Signatures, Trust};
use ironswan_pki::{Oid, revocation};
use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, list, root};
use ironswan_testkit::clock::now;
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::id::{IdPattern, Identity};

use super::*;
use crate::{Config, check, load_dir};

const CONF: &str = "connections { c { remote_addrs = 192.0.2.2\n\
    local { certs = g1.pem\n id = g1.example }\n\
    remote { cacerts = root.pem\n ca_id = CN=link\n cert_policy = 1.2.3\n revocation = strict\n id = \"CN=*\" }\n\
    children { n { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n";

/// The key 1 under the passphrase `secret`.
const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjOj486fk8sngICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEKsb8ke5qtOWkHX/CZqn+IcEQNPV
b7fLqUAHLREie+xJ9ew6ummu7/WABTVmulMZLbwzTwQTTWjAZaRs2X9KfZnnarmu
9t84rtLoeqL86scipKk=
-----END ENCRYPTED PRIVATE KEY-----
";

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

fn put(dir: &Scratch, name: &str, bytes: &[u8]) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// A folder whose certificates and keys fit each other.
fn good() -> Scratch {
    let dir = Scratch::new();
    dir.write("swanctl.conf", CONF);
    put(&dir, "private/g1.der", key(1).to_pkcs8().unwrap().expose());
    put(&dir, "x509/g1.pem", format!("{}{}", pem(end(1).make().der()), pem(link().der())).as_bytes());
    put(&dir, "x509ca/root.pem", pem(root().der()).as_bytes());
    put(&dir, "x509crl/link.crl", list("CN=link", LINK, &[3]).der());
    dir
}

fn read_and_check(dir: &Scratch) -> (Config, Vec<String>) {
    let mut diags = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut diags).unwrap();
    check::check(&config, &mut diags);
    let prefix = format!("{}/", dir.path().display());
    (config, diags.iter().map(|d| d.to_string().replace(&prefix, "")).collect())
}

/// The only finding holds this text.
fn finding(dir: &Scratch, says: &str) {
    let (_, found) = read_and_check(dir);
    assert!(found.len() == 1 && found[0].contains(says), "{says}: {found:?}");
}

#[test]
fn a_connection_has_the_certificates_that_its_files_hold() {
    let (config, found) = read_and_check(&good());
    assert!(found.is_empty(), "{found:?}");
    let conn = &config.connections[0];
    let ours = Trust { certificates: vec![end(1).make()], ..Trust::default() };
    assert_eq!(conn.local_auth, Auth::certificate(ours));
    let theirs = Trust {
        certificates: Vec::new(),
        authorities: vec![root()],
        ca_id: IdPattern::parse("CN=link").unwrap(),
        policies: vec![Oid::parse("1.2.3").unwrap()],
        revocation: revocation::Policy::Strict,
    };
    assert_eq!(conn.remote_auth, Auth::certificate(theirs));
    assert!(matches!(conn.remote_id, IdPattern::Name(_)));
    assert_eq!(config.certificates, [(end(1).make(), false), (link(), false), (root(), true)]);
    assert_eq!(config.lists, [list("CN=link", LINK, &[3])]);
}

#[test]
fn a_certificate_names_its_end_and_rules_of_auth_hold_for_it() {
    let dir = good();
    dir.write("swanctl.conf", &CONF.replace(" id = g1.example", " auth = ed25519"));
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(config.connections[0].local_id, Identity::parse("CN=g1.example"));
    let Auth::Certificate { rules, .. } = &config.connections[0].local_auth else { panic!("a certificate") };
    assert_eq!(*rules, Signatures::parse("ed25519").unwrap());
    // An identity that is none of its names.
    dir.write("swanctl.conf", &CONF.replace("g1.example", "g9.example"));
    finding(&dir, "warning: connections.c.local.id: no certificate of local.certs has this name");
}

#[test]
fn certificates_are_named_by_sections_too_and_found_by_our_identity() {
    let dir = good();
    let path = dir.path().join("x509/g1.pem").display().to_string();
    dir.write("swanctl.conf", &CONF.replace("certs = g1.pem", &format!("cert-1 {{ file = {path} }}")));
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty() && config.connections[0].local_auth.trust().unwrap().certificates.len() == 1);
    dir.write("swanctl.conf", &CONF.replace("certs = g1.pem\n", ""));
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty(), "{found:?}");
    assert!(config.connections[0].local_auth.trust().unwrap().certificates.is_empty());
    // Nobody has this name.
    dir.write("swanctl.conf", &CONF.replace("certs = g1.pem\n", "").replace("g1.example", "g9.example"));
    finding(
        &dir,
        "no private key found for 'g9.example', the certificate whose key is loaded is for \"CN=g1.example\" \
         (other names: g1.example); let local.id be one of its names",
    );
}

#[test]
fn a_connection_that_names_neither_certificate_nor_identity_has_the_reason_that_the_daemon_gives() {
    let bare = CONF.replace("certs = g1.pem\n", "").replace(" id = g1.example", " auth = pubkey");
    // No certificate has our address among its names, which is our identity then.
    let dir = good();
    dir.write("swanctl.conf", &bare);
    let place = "swanctl.conf:2: connections.c.local.pubkeys: ";
    finding(&dir, &format!("{place}no private key found for '%any', the certificate whose key is loaded"));
    // With an address that is in no certificate.
    dir.write("swanctl.conf", &bare.replace("remote_addrs", "local_addrs = 192.0.2.1\n remote_addrs"));
    finding(&dir, "no private key found for '192.0.2.1', the certificate whose key is loaded is for");
    // With a certificate for that address, or for any other one when ours is not known yet.
    let address = Make::end("CN=g1", 1, "CN=root", ROOT).with(17, &[0x30, 6, 0x87, 4, 192, 0, 2, 1]);
    put(&dir, "x509/address.der", address.make().der());
    assert_eq!(read_and_check(&dir).1, [""; 0]);
    dir.write("swanctl.conf", &bare);
    assert_eq!(read_and_check(&dir).1, [""; 0]);
    // Without its key.
    fs::remove_file(dir.path().join("private/g1.der")).unwrap();
    dir.write("swanctl.conf", &CONF.replace("certs = g1.pem\n", ""));
    finding(
        &dir,
        "the key of the certificate of \"CN=g1.example\" is not loaded; put it into the folder private",
    );
    // Without any certificate of ours.
    for file in ["x509/g1.pem", "x509/address.der"] {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    finding(
        &dir,
        "needs a certificate or public key of ours, with its private key; write local { certs = FILE }",
    );
}

#[test]
fn a_ca_in_the_middle_is_no_end_of_a_chain() {
    let dir = good();
    put(&dir, "x509ca/root.pem", pem(link().der()).as_bytes());
    let place = "swanctl.conf:4: connections.c.remote: ";
    let lack = "the CA \"CN=link\" was issued by \"CN=root\", whose certificate is not loaded";
    finding(&dir, &format!("{place}{lack}"));
    // The same without `cacerts`; and a root of somebody else does not help a CA that is named.
    dir.write("swanctl.conf", &CONF.replace("cacerts = root.pem\n", ""));
    finding(&dir, lack);
    dir.write("swanctl.conf", CONF);
    let other = Make::ca("CN=other", 9, "CN=other", 9).make();
    put(&dir, "x509ca/other.pem", pem(other.der()).as_bytes());
    finding(&dir, lack);
    put(&dir, "x509ca/top.pem", pem(root().der()).as_bytes());
    assert_eq!(read_and_check(&dir).1, [""; 0]);
}

#[test]
fn what_is_missing_is_named_with_its_file_and_the_remedy() {
    let dir = good();
    fs::remove_file(dir.path().join("private/g1.der")).unwrap();
    finding(
        &dir,
        "no private key found for 'g1.example', none belongs to a key of local.pubkeys or local.certs",
    );
    let dir = good();
    fs::remove_file(dir.path().join("x509ca/root.pem")).unwrap();
    let (_, found) = read_and_check(&dir);
    assert!(found[0].contains("connections.c.remote.cacerts: cannot read x509ca/root.pem"), "{found:?}");
    let dir = good();
    dir.write("swanctl.conf", &CONF.replace("cacerts = root.pem\n", ""));
    fs::remove_file(dir.path().join("x509ca/root.pem")).unwrap();
    // The CA below lies beside our certificate.
    finding(&dir, "the CA \"CN=link\" was issued by \"CN=root\", whose certificate is not loaded");
    put(&dir, "x509/g1.pem", pem(end(1).make().der()).as_bytes());
    finding(&dir, "needs a CA, or the peer's certificate or public key; put the CA's certificate into");
    let dir = good();
    put(&dir, "x509ca/other.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    finding(&dir, "x509ca/other.pem: the file is no certificate: its outer structure is malformed");
    let dir = good();
    put(&dir, "x509crl/other.crl", b"no list");
    let (_, found) = read_and_check(&dir);
    assert!(found.len() == 1 && found[0].starts_with("x509crl/other.crl: the file"), "{found:?}");
}

#[test]
fn a_passphrase_opens_the_file_that_it_names() {
    let with = |file: &str, phrase: &str| {
        let dir = good();
        fs::remove_file(dir.path().join("private/g1.der")).unwrap();
        put(&dir, "pkcs8/g1.pem", ENCRYPTED.as_bytes());
        let secrets = format!("secrets {{ pkcs8-1 {{ file = {file}\n secret = \"{phrase}\" }} }}\n");
        put(&dir, "swanctl.conf", format!("{CONF}{secrets}").as_bytes());
        dir
    };
    let (config, found) = read_and_check(&with("g1.pem", "secret"));
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(config.private_keys, [key(1)]);
    finding(&with("g1.pem", "wrong"), "pkcs8/g1.pem: the file cannot be decrypted: the passphrase is wrong");
    let (_, found) = read_and_check(&with("g2.pem", "secret"));
    assert!(
        found[0].contains("pkcs8/g1.pem: warning: the file cannot be used: the key is encrypted"),
        "{found:?}"
    );
    assert!(found.len() == 2 && found[1].contains("no private key found for 'g1.example'"), "{found:?}");
}

#[test]
fn authorities_name_cas_and_places_for_the_status_of_their_certificates() {
    let dir = good();
    let authorities = "authorities { a { cacert = more/root.pem\n \
         crl_uris = http://ca.example/a.crl, http://127.0.0.1/b\n ocsp_uris = http://ca.example:8080 } }\n";
    dir.write("swanctl.conf", &format!("{}{authorities}", CONF.replace("cacerts = root.pem\n", "")));
    put(&dir, "x509ca/more/root.pem", pem(root().der()).as_bytes());
    fs::remove_file(dir.path().join("x509ca/root.pem")).unwrap();
    let (config, found) = read_and_check(&dir);
    assert!(config.certificates.contains(&(root(), true)));
    assert!(!found.iter().any(|line| line.contains("_uris")), "{found:?}");
    let [(ca, places)] = &config.status_places[..] else { panic!("{:?}", config.status_places) };
    let uris: Vec<&str> = places.lists.iter().map(|place| place.uri()).collect();
    assert_eq!((ca, uris.as_slice()), (&root(), &["http://ca.example/a.crl", "http://127.0.0.1/b"][..]));
    assert_eq!(places.responders[0].uri(), "http://ca.example:8080");
    let authorities = "authorities { a { cacert = more/root.pem\n ocsp_uris = file:///x } }\n";
    dir.write("swanctl.conf", &format!("{CONF}{authorities}"));
    let (_, found) = read_and_check(&dir);
    let line = "authorities.a.ocsp_uris: `file:///x` is not a place of the web";
    assert!(found.iter().any(|found| found.contains(line)), "{found:?}");
    dir.write("swanctl.conf", &format!("{CONF}authorities {{ a {{ }} }}\n"));
    let (_, found) = read_and_check(&dir);
    assert!(
        found.iter().any(|line| line.contains("authorities.a: is missing; write cacert = FILE")),
        "{found:?}"
    );
}
