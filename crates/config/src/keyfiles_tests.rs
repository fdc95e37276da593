//! Tests of files of keys: PEM and DER, folders, and what connections make of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use base64::engine::{Engine as _, general_purpose::STANDARD};
use ironswan_crypto::hash;
use ironswan_crypto::sign::{Curve, KeyKind};
use ironswan_keying::{Auth, Signatures};
use ironswan_testkit::clock::now;
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::iana::IdType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::secret::Secret;

use super::*;
use crate::{Config, check, load_dir};

/// RFC 8410 section 10: a key pair.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

const CONF: &str = "connections { c { remote_addrs = 192.0.2.2\n\
    local { pubkeys = g1.pem\n id = g1 }\n remote { auth = ike:ed25519\n pubkeys = g2.pem, 'g 3.der'\n id = g2 }\n\
    children { n { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n";

/// A public key of Ed25519 that is the neutral element: everybody can sign for it.
fn weak() -> Vec<u8> {
    let mut der = pair(1).1;
    der[12..].fill(0);
    der
}

/// A key by its seed, in DER: private and public.
fn pair(n: u8) -> (Vec<u8>, Vec<u8>) {
    let head =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let key = PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap();
    ([&head[..], &[n; 32]].concat(), key.public().spki().to_vec())
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\r\n{}\r\n-----END {label}-----\r\n", STANDARD.encode(der))
}

/// A file in a folder, which nobody else may read.
fn put(dir: &Scratch, name: &str, bytes: &[u8]) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// A folder whose keys fit each other.
fn good() -> Scratch {
    let dir = Scratch::new();
    dir.write("swanctl.conf", CONF);
    put(&dir, "private/g1.der", &pair(1).0);
    put(&dir, "pubkey/g1.pem", pem("PUBLIC KEY", &pair(1).1).as_bytes());
    put(&dir, "pubkey/g2.pem", pem("PUBLIC KEY", &pair(2).1).as_bytes());
    put(&dir, "pubkey/g 3.der", &pair(3).1);
    dir
}

/// The configuration of a folder, and its findings as `ironswan check` shows them.
fn read_and_check(dir: &Scratch) -> (Config, Vec<String>) {
    let mut diags = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut diags).unwrap();
    check::check(&config, &mut diags);
    let prefix = format!("{}/", dir.path().display());
    (config, diags.iter().map(|d| d.to_string().replace(&prefix, "")).collect())
}

fn findings(dir: &Scratch) -> Vec<String> {
    read_and_check(dir).1
}

#[test]
fn keys_are_read_in_pem_and_der() {
    let key = private_key(PRIVATE.as_bytes()).unwrap();
    assert_eq!(public_key(PUBLIC.as_bytes()), Ok(key.public().clone()));
    for n in 1..4 {
        let (private, public) = pair(n);
        let key = private_key(&private).unwrap();
        assert_eq!(public_key(&public), Ok(key.public().clone()));
        let around = format!("Bag Attributes\n{}after it", pem("PRIVATE KEY", &private));
        assert_eq!(private_key(around.as_bytes()), Ok(key.clone()));
        assert_eq!(public_key(pem("PUBLIC KEY", &public).as_bytes()), Ok(key.public().clone()));
        // Another block in front of the key is none of it.
        let behind = format!("{}{}", pem("EC PARAMETERS", &[6, 1, 1]), pem("PRIVATE KEY", &private));
        assert_eq!(private_key(behind.as_bytes()), Ok(key));
    }
}

#[test]
fn files_that_hold_no_key_are_refused_whatever_is_in_them() {
    let (private, public) = pair(7);
    for (label, der) in [("PRIVATE KEY", &private), ("PUBLIC KEY", &public)] {
        let text = pem(label, der);
        for n in 0..text.len() - 3 {
            assert!(
                public_key(&text.as_bytes()[..n]).is_err() && private_key(&text.as_bytes()[..n]).is_err()
            );
        }
        for n in 0..der.len() {
            assert!(public_key(&der[..n]).is_err() && private_key(&der[..n]).is_err(), "cut at {n}");
            let mut turned = der.clone();
            // Neither a flipped bit of the structure nor bytes behind it are a key.
            turned[n] ^= 1;
            let key = [public_key(&turned).is_ok(), private_key(&turned).is_ok()].contains(&true);
            assert!(!key || n >= der.len() - 32 || n == 4, "byte {n}");
        }
        let longer = [&der[..], &[0]].concat();
        assert!(public_key(&longer).is_err() && private_key(&longer).is_err());
        let longer = pem(label, &longer);
        assert!(public_key(longer.as_bytes()).is_err() && private_key(longer.as_bytes()).is_err());
    }
    assert_eq!(public_key(&private), Err(KeyFault::Malformed));
    assert_eq!(private_key(&public), Err(KeyFault::Malformed));
    let headers =
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    assert_eq!(private_key(headers.as_bytes()), Err(KeyFault::Encrypted));
    for text in [
        "-----BEGIN ",
        "-----BEGIN X-----",
        "-----BEGIN X-----A-----END Y-----",
        "-----BEGIN X-----=-----END X-----",
    ] {
        assert_eq!(public_key(text.as_bytes()), Err(KeyFault::Malformed), "{text}");
    }
    let zero = weak();
    assert_eq!(public_key(&zero), Err(KeyFault::Weak));
}

#[test]
fn a_connection_has_the_keys_that_its_files_hold() {
    let (config, found) = read_and_check(&good());
    assert!(found.is_empty(), "{found:?}");
    let by = |keys: &[u8]| keys.iter().map(|n| public_key(&pair(*n).1).unwrap()).collect::<Vec<_>>();
    let conn = &config.connections[0];
    assert_eq!(conn.local_auth, Auth::pubkey(by(&[1])));
    let rules = Signatures::parse("ike:ed25519").unwrap();
    assert_eq!(conn.remote_auth, Auth::Pubkey { keys: by(&[2, 3]), rules });
    assert_eq!(config.private_keys, [private_key(&pair(1).0).unwrap()]);
    // By its path, and from the other folder of private keys; nothing is asked of hidden files.
    let dir = good();
    dir.write(
        "swanctl.conf",
        &CONF.replace("g1.pem", &format!("{}/g1.pem", dir.path().join("pubkey").display())),
    );
    fs::rename(dir.path().join("private"), dir.path().join("pkcs8")).unwrap();
    put(&dir, "pkcs8/.hidden", b"no key");
    let (again, found) = read_and_check(&dir);
    assert!(found.is_empty() && again.connections == config.connections, "{found:?}");
    assert_eq!(again.private_keys, config.private_keys);
}

#[test]
fn rules_of_strongswan_for_signatures_are_taken_and_others_are_refused_by_name() {
    for word in [
        "pubkey",
        "ike:pubkey",
        "ed25519",
        "ike:ed25519-identity",
        "ecdsa-384-ed25519",
        "rsa-2048-sha256",
        "pubkey-identity-sha256",
        "PubKey",
    ] {
        let dir = good();
        dir.write("swanctl.conf", &CONF.replace("ike:ed25519", word));
        let (config, found) = read_and_check(&dir);
        assert!(found.is_empty(), "{word}: {found:?}");
        let Auth::Pubkey { rules, .. } = &config.connections[0].remote_auth else { panic!("{word}") };
        assert_eq!(rules.to_string(), word.to_ascii_lowercase());
    }
    for word in ["ed448", "bliss", "eap", "xauth", "any", "ike:psk", "rsa-sha224", "pubkey-2048", "sha256"] {
        let dir = good();
        dir.write("swanctl.conf", &CONF.replace("ike:ed25519", word));
        let found = findings(&dir);
        let starts =
            format!("swanctl.conf:4: connections.c.remote.auth: `{word}` is no method that is built");
        assert!(found.len() == 1 && found[0].starts_with(&starts), "{word}: {found:?}");
    }
}

#[test]
fn keys_of_every_kind_are_read_from_every_folder() {
    let kinds = Curve::ALL.map(KeyKind::Ecdsa).into_iter().chain([KeyKind::Ed25519, KeyKind::Rsa(2048)]);
    for kind in kinds {
        let key = PrivateKey::generate(kind).unwrap();
        let (private, public) = (key.to_pkcs8().unwrap(), key.public().spki());
        let text = pem("PRIVATE KEY", private.expose());
        assert!(public_key(private.expose()).is_err() && private_key(public).is_err());
        for folder in PRIVATE_FOLDERS {
            let dir = good();
            dir.write("swanctl.conf", &CONF.replace("ike:ed25519", "pubkey"));
            fs::remove_dir_all(dir.path().join("private")).unwrap();
            put(&dir, &format!("{folder}/g1"), text.as_bytes());
            put(&dir, "pubkey/g1.pem", pem("PUBLIC KEY", public).as_bytes());
            put(&dir, "pubkey/g2.pem", public);
            let (config, found) = read_and_check(&dir);
            assert!(found.is_empty(), "{kind} {folder}: {found:?}");
            assert_eq!(config.private_keys, std::slice::from_ref(&key));
            assert_eq!(config.connections[0].local_auth, Auth::pubkey(vec![key.public().clone()]));
        }
    }
}

#[test]
fn sha_1_and_short_keys_of_rsa_are_warned_about_where_they_are_named() {
    for (word, weak) in [
        ("pubkey-sha1-identity", true),
        ("rsa-1024-ed25519", true),
        ("rsa-2048-ed25519", false),
        ("pubkey-sha256-identity", false),
    ] {
        let dir = good();
        dir.write("swanctl.conf", &CONF.replace("ike:ed25519", word));
        let found = findings(&dir);
        let says = "warning: connections.c.remote.auth: signatures over SHA-1 and by RSA below 2,048 bits";
        let warned = found.iter().filter(|line| line.contains(says)).count();
        assert_eq!((warned, found.len()), (usize::from(weak), usize::from(weak)), "{word}: {found:?}");
    }
}

#[test]
fn a_key_that_is_shorter_than_the_rules_is_named_and_taken_when_the_rules_say_so() {
    let key = PrivateKey::generate(KeyKind::Rsa(2048)).unwrap();
    for (word, fits) in
        [("rsa", true), ("rsa-2048", true), ("rsa-3072", false), ("ecdsa-384-rsa-4096", false)]
    {
        let dir = good();
        put(&dir, "pubkey/g2.pem", key.public().spki());
        dir.write("swanctl.conf", &CONF.replace("ike:ed25519", word).replace(", 'g 3.der'", ""));
        let found = findings(&dir);
        assert_eq!(found.is_empty(), fits, "{word}: {found:?}");
        if !fits {
            let says = "remote.pubkeys: g2.pem holds a key of RSA 2048, which is shorter than auth allows";
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }
}

#[test]
fn methods_may_differ_and_unused_keys_are_a_note() {
    let dir = good();
    let secret = "secrets { ike-1 { secret = 0123456789abcdef0 } }\n";
    dir.write(
        "swanctl.conf",
        &format!(
            "{}{secret}",
            CONF.replace("auth = ike:ed25519\n pubkeys = g2.pem, 'g 3.der'", "auth = psk")
        ),
    );
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty(), "{found:?}");
    assert!(matches!(config.connections[0].local_auth, Auth::Pubkey { .. }));
    assert_eq!(config.connections[0].remote_auth, Auth::Psk);
    dir.write("swanctl.conf", &format!("{}{secret}", CONF.replace("ike:ed25519", "psk")));
    let found = findings(&dir);
    assert!(
        found.len() == 1 && found[0].contains("note: connections.c.remote.pubkeys: has no effect"),
        "{found:?}"
    );
    // A shared key is needed for the one direction that uses it.
    dir.write("swanctl.conf", &CONF.replace("ike:ed25519", "psk"));
    assert!(findings(&dir)[1].contains("no shared key found"), "{:?}", findings(&dir));
}

/// Findings after a change of a folder that is good.
fn after(change: impl FnOnce(&Scratch)) -> String {
    let dir = good();
    change(&dir);
    let found = findings(&dir);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn a_missing_or_useless_file_is_named_with_the_key_and_the_remedy() {
    let at = "swanctl.conf:5: connections.c.remote.pubkeys: ";
    let gone = after(|dir| fs::remove_file(dir.path().join("pubkey/g2.pem")).unwrap());
    assert!(gone.starts_with(at) && gone.contains("cannot read pubkey/g2.pem: No such file"), "{gone}");
    assert!(gone.ends_with("; put the file there, or correct its name"), "{gone}");
    let none = after(|dir| put(dir, "pubkey/g2.pem", b""));
    let remedy = "put one key into the file, in PEM or DER (`openssl x509 -in FILE -noout -pubkey` prints that of a certificate)";
    assert_eq!(none, format!("{at}pubkey/g2.pem holds no public key; {remedy}"));
    let private = after(|dir| put(dir, "pubkey/g2.pem", &pair(2).0));
    assert!(private.contains("holds no public key"), "{private}");
    let weak = after(|dir| put(dir, "pubkey/g2.pem", &weak()));
    assert!(weak.contains("everybody can sign"), "{weak}");
    let giant = after(|dir| put(dir, "pubkey/g2.pem", &vec![b'a'; 1 << 20]));
    assert!(giant.contains("pubkey/g2.pem: 1048576 bytes"), "{giant}");
    let folder = after(|dir| {
        fs::remove_file(dir.path().join("pubkey/g2.pem")).unwrap();
        fs::create_dir(dir.path().join("pubkey/g2.pem")).unwrap();
    });
    assert!(folder.contains("not a regular file"), "{folder}");
    let unnamed = after(|dir| {
        dir.write("swanctl.conf", &CONF.replace("pubkeys = g2.pem, 'g 3.der'\n ", ""));
    });
    assert!(
        unnamed.starts_with("swanctl.conf:4: connections.c.remote: ")
            && unnamed.contains("needs a CA, or the peer's certificate or public key"),
        "{unnamed}"
    );
}

#[test]
fn more_keys_of_a_peer_than_are_tried_are_warned_about() {
    let with = |count: u8| {
        let dir = good();
        let files: Vec<String> = (0..count).map(|n| format!("p{n}.pem")).collect();
        for (n, file) in (40..).zip(&files) {
            put(&dir, &format!("pubkey/{file}"), &pair(n).1);
        }
        let list = files.join(", ");
        dir.write("swanctl.conf", &CONF.replace("pubkeys = g2.pem, 'g 3.der'", &format!("pubkeys = {list}")));
        findings(&dir)
    };
    assert_eq!(with(8), [""; 0]);
    let found = with(9);
    assert!(
        found.len() == 1 && found[0].contains("warning: connections.c.remote.pubkeys: only the first 8"),
        "{found:?}"
    );
}

#[test]
fn what_is_wrong_with_a_round_is_said_with_its_section_and_its_line() {
    // They are written in another order than that of the rounds.
    let sides = "local-b { round = 2\n pubkeys = g2.pem\n id = other }\n local-a { round = 1\n pubkeys = g1.pem\n id = g1 }\n \
                 remote-b { round = 2\n id = h }\n remote-a { round = 1\n pubkeys = g2.pem\n id = g2 }\n";
    let (first, end) = (CONF.find("local {").unwrap(), CONF.find("children").unwrap());
    let dir = good();
    dir.write("swanctl.conf", &[&CONF[..first], sides, &CONF[end..]].concat());
    let found = findings(&dir);
    assert_eq!(found.len(), 2, "{found:?}");
    let key = "swanctl.conf:3: connections.c.local-b.pubkeys: no private key found for 'other'";
    assert!(found.iter().any(|line| line.starts_with(key)), "{found:?}");
    let ca = "swanctl.conf:8: connections.c.remote-b: ";
    assert!(found.iter().any(|line| line.starts_with(ca) && line.contains("needs a CA")), "{found:?}");
}

#[test]
fn private_keys_that_cannot_be_used_are_named() {
    let no_key = "swanctl.conf:2: connections.c.local.pubkeys: no private key found for 'g1'";
    let gone = after(|dir| fs::remove_file(dir.path().join("private/g1.der")).unwrap());
    assert!(gone.starts_with(no_key), "{gone}");
    let other = after(|dir| put(dir, "private/g1.der", &pair(9).0));
    assert!(other.starts_with(no_key), "{other}");
    // Without doubt about the one key that is not there: it may have been the one that is needed.
    let broken = after(|dir| put(dir, "private/g1.der", b"no key"));
    assert_eq!(
        broken,
        "private/g1.der: the file holds no private key; put one key into the file, in PEM or DER"
    );
    let open = after(|dir| {
        let path = dir.path().join("private/g1.der");
        fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    });
    assert!(open.contains("others may read it (mode 640)") && open.contains("chmod 600"), "{open}");
    // strongSwan's other keys stay, and are not loaded.
    let x25519 = [&pair(1).0[..11], &[0x6e], &pair(1).0[12..]].concat();
    let found = after(|dir| put(dir, "private/x.der", &x25519));
    assert!(
        found.starts_with("private/x.der: warning: the file cannot be used: the key is for X25519"),
        "{found}"
    );
    let pbes2 = [0x30, 0x0d, 0x30, 0x0b, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
    let found = after(|dir| put(dir, "private/enc.pem", pem("ENCRYPTED PRIVATE KEY", &pbes2).as_bytes()));
    assert!(
        found.contains("warning: the file cannot be used: the key is encrypted; `openssl pkey"),
        "{found}"
    );
    let sub = after(|dir| fs::create_dir(dir.path().join("private/old")).unwrap());
    assert!(sub.contains("private/old: warning: cannot be looked at: not a regular file"), "{sub}");
    let section = after(|dir| {
        dir.write("swanctl.conf", &format!("{CONF}secrets {{ private-g1 {{ secret = \"a b\" }} }}\n"));
    });
    assert!(
        section.contains("secrets.private-g1: has no file or no secret") && !section.contains("a b"),
        "{section}"
    );
}

#[test]
fn a_connection_whose_key_files_are_gone_is_known_to_the_guard_and_takes_no_peer() {
    let dir = good();
    fs::remove_dir_all(dir.path().join("pubkey")).unwrap();
    let (config, found) = read_and_check(&dir);
    assert_eq!(found.len(), 3, "{found:?}");
    let conn = &config.connections[0];
    for auth in [&conn.local_auth, &conn.remote_auth] {
        assert!(matches!(auth, Auth::Pubkey { keys, .. } if keys.is_empty()), "{auth:?}");
    }
    assert_eq!(conn.children.len(), 1);
    // Any other error leaves it out.
    dir.write("swanctl.conf", &CONF.replace("10.2.0.0/24", "10.2.0.0/24\n mode = tunel"));
    assert!(read_and_check(&dir).0.connections.is_empty());
}

#[test]
fn connections_that_differ_in_the_method_of_the_peer_are_no_twins() {
    let dir = good();
    let conn = &CONF["connections {".len()..CONF.trim_end().len() - 1];
    let other = conn.replace(" c {", " d {").replace("10.2", "10.3");
    let psk = other.replace("auth = ike:ed25519\n pubkeys = g2.pem, 'g 3.der'", "auth = psk");
    let secret = "secrets { ike-1 { secret = 0123456789abcdef0 } }\n";
    for (second, twins) in [(other, true), (psk, false)] {
        dir.write("swanctl.conf", &format!("connections {{ {conn} {second} }}\n{secret}"));
        let found = findings(&dir);
        assert_eq!(
            found.iter().any(|line| line.contains("same addresses and identities")),
            twins,
            "{found:?}"
        );
        assert_eq!(found.len(), usize::from(twins), "{found:?}");
    }
}

#[test]
fn an_identity_may_name_our_key_by_its_fingerprint() {
    let dir = good();
    let id: String =
        private_key(&pair(1).0).unwrap().public().id().iter().map(|b| format!("{b:02x}")).collect();
    dir.write("swanctl.conf", &CONF.replace("pubkeys = g1.pem\n id = g1", &format!("id = \"@#{id}\"")));
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty() && config.connections[0].local_auth == Auth::pubkey(Vec::new()), "{found:?}");
    dir.write("swanctl.conf", &CONF.replace("pubkeys = g1.pem\n id = g1", "id = \"@#0102\""));
    assert!(findings(&dir)[0].contains("no key has this fingerprint"));
}

#[test]
fn a_side_without_an_identity_is_named_by_its_first_key_unless_any_is_written() {
    let dir = good();
    let text = CONF.replace("\n id = g1", "").replace("\n id = g2", "");
    dir.write("swanctl.conf", &text);
    let (config, found) = read_and_check(&dir);
    assert!(found.is_empty(), "{found:?}");
    // SHA-1 of the whole SubjectPublicKeyInfo.
    let named = |n: u8| Identity { kind: IdType::KEY_ID, data: hash::sha1(&pair(n).1).to_vec() };
    assert_eq!(config.connections[0].local_id, Some(named(1)));
    assert_eq!(config.connections[0].remote_id, IdPattern::Exact(named(2)));
    dir.write(
        "swanctl.conf",
        &text.replace("{ pubkeys", "{ id = %any\n pubkeys").replace("{ auth", "{ id = %any\n auth"),
    );
    let config = read_and_check(&dir).0;
    assert_eq!(
        (config.connections[0].local_id.clone(), &config.connections[0].remote_id),
        (None, &IdPattern::Any)
    );
}

#[test]
fn ten_thousand_keys_are_read_and_too_many_are_refused() {
    let dir = good();
    for n in 0..10_000_u32 {
        let mut der = pair(1).1;
        der[12..16].copy_from_slice(&n.to_be_bytes());
        fs::write(dir.path().join(format!("pubkey/{n}.der")), der).unwrap();
    }
    // A hundred for each side, all of them read.
    let conns: String = (0..100)
        .map(|c| {
            let keys: Vec<String> = (0..100).map(|k| format!("{}.der", 100 * c + k)).collect();
            let conn = CONF
                .replace("connections { c {", &format!("c{c} {{"))
                .replace("g2.pem, 'g 3.der'", &keys.join(","));
            conn.trim_end().strip_suffix('}').unwrap().replace("id = g2", &format!("id = g{c}"))
        })
        .collect();
    dir.write("swanctl.conf", &format!("connections {{ {conns} }}\n"));
    let mut diags = Diagnostics::default();
    let config = load_dir(now, dir.path(), &mut diags).unwrap();
    assert_eq!((diags.errors(), config.connections.len()), (0, 100), "{:?}", diags.error_lines());
    let keys = vec!["g2.pem"; 101].join(",");
    let many = after(|dir| {
        dir.write("swanctl.conf", &CONF.replace("g2.pem, 'g 3.der'", &keys));
    });
    assert!(many.contains("more than 100 public keys"), "{many}");
}
