//! Tests of commands about private keys and raw public keys.

use std::io::Write as _;
use std::process::{Command, Stdio};

use ironswan_keying::Auth;

use ironswan_config::keyfiles;
use ironswan_crypto::hash;
use ironswan_crypto::sign::{Curve, KeyKind, PrivateKey};
use ironswan_keying::Signatures;
use ironswan_testkit::scratch::Scratch;
use ironswan_wire::vici::Value;

use super::tests::{Raw, local, serve, swanctl};
use super::*;
use crate::driver::tests::{conf, pair};

/// RFC 8410 section 10: a key pair.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

/// The private key with this seed, in DER.
fn der(n: u8) -> Vec<u8> {
    let head =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    [&head[..], &[n; 32]].concat()
}

async fn names(c: &mut Raw) -> Vec<Vec<u8>> {
    c.request("get-keys", Section::new()).await.get_list("keys").unwrap_or_default().to_vec()
}

fn message(kind: &str, data: impl Into<Value>) -> Section {
    Section::new().with("type", kind).with("data", data.into())
}

/// The public key of that, in DER.
fn public(n: u8) -> Vec<u8> {
    keyfiles::private_key(&der(n)).unwrap().public().spki().to_vec()
}

fn ok(answer: &Section) -> bool {
    answer.get_str("success") == Some("yes")
}

fn why(answer: &Section) -> &str {
    assert!(!ok(answer), "{answer:?}");
    answer.get_str("errmsg").unwrap()
}

#[tokio::test]
async fn private_keys_come_and_go_by_their_ids() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        assert!(names(&mut c).await.is_empty());
        let mut ids = Vec::new();
        for m in [message("any", PRIVATE), message("ED25519", der(1)), message("ed25519", der(2))] {
            let answer = c.request("load-key", m).await;
            assert!(ok(&answer), "{answer:?}");
            ids.push(answer.get_str("id").unwrap().as_bytes().to_vec());
        }
        // charon's id of the same key.
        assert_eq!(String::from_utf8_lossy(&ids[0]), "a28cc1f86e5960d3e03ae75c962c97a8d448293c");
        let again = c.request("load-key", message("any", PRIVATE)).await;
        assert_eq!(again.get_str("id").unwrap().as_bytes(), ids[0]);
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!(names(&mut c).await, sorted);
        let id = String::from_utf8(ids[1].clone()).unwrap();
        assert!(ok(&c.request("unload-key", Section::new().with("id", id.to_uppercase())).await));
        assert!(why(&c.request("unload-key", Section::new().with("id", id)).await).contains("not found"));
        assert!(why(&c.request("unload-key", Section::new()).await).contains("missing"));
        assert_eq!(names(&mut c).await.len(), 2);
        assert!(ok(&c.request("clear-creds", Section::new()).await));
        assert!(names(&mut c).await.is_empty());
    })
    .await;
}

/// A key of this kind in a file of each form that `openssl` writes: private, and public.
fn files_of(kind: KeyKind) -> (PrivateKey, Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let openssl = |args: &[&str], input: &[u8]| {
        let mut run = Command::new("openssl");
        run.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut run = run.spawn().expect("openssl is installed");
        run.stdin.take().unwrap().write_all(input).unwrap();
        let done = run.wait_with_output().unwrap();
        assert!(done.status.success(), "openssl {args:?}");
        done.stdout
    };
    let key = PrivateKey::generate(kind).unwrap();
    let pkcs8 = key.to_pkcs8().unwrap();
    let private = openssl(&["pkey", "-inform", "DER"], pkcs8.expose());
    let mut privates = vec![pkcs8.expose().to_vec(), private.clone()];
    let mut publics = vec![key.public().spki().to_vec(), openssl(&["pkey", "-pubout"], &private)];
    if kind != KeyKind::Ed25519 {
        // PKCS#1 or SEC 1.
        for form in ["PEM", "DER"] {
            privates.push(openssl(&["pkey", "-traditional", "-outform", form], &private));
        }
    }
    if let KeyKind::Rsa(_) = kind {
        for form in ["PEM", "DER"] {
            publics.push(openssl(&["rsa", "-RSAPublicKey_out", "-outform", form], &private));
        }
    }
    (key, privates, publics)
}

#[tokio::test]
async fn keys_of_every_kind_are_taken_in_every_form_that_openssl_writes() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let kinds = Curve::ALL.map(KeyKind::Ecdsa).into_iter().chain([KeyKind::Ed25519, KeyKind::Rsa(2048)]);
        for (n, kind) in kinds.enumerate() {
            let (key, privates, publics) = files_of(kind);
            let id: String = key.public().id().iter().map(|byte| format!("{byte:02x}")).collect();
            for word in ["any", "rsa", "ecdsa", "ED25519"] {
                for file in &privates {
                    let answer = c.request("load-key", message(word, file.clone())).await;
                    assert_eq!(answer.get_str("id"), Some(id.as_str()), "{kind} {answer:?}");
                }
            }
            assert_eq!(names(&mut c).await.len(), n + 1, "{kind}");
            for file in publics {
                assert!(ok(&c.request("load-cert", message("pubkey", file)).await), "{kind}");
            }
            for file in privates {
                why(&c.request("load-cert", message("pubkey", file)).await);
            }
        }
        for id in names(&mut c).await {
            let id = String::from_utf8(id).unwrap();
            assert!(ok(&c.request("unload-key", Section::new().with("id", id)).await));
        }
        assert!(names(&mut c).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_no_key_are_refused_with_a_reason() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let ed448 = [&der(1)[..11], &[0x71], &der(1)[12..]].concat();
        for (m, says) in [
            (message("any", der(1)[..47].to_vec()), "the bytes are no such key"),
            (message("any", ed448), "the key is for Ed448, which is not supported"),
            (message("any", PUBLIC), "the bytes are no such key"),
            (message("any", ""), "missing private key data"),
            (Section::new().with("data", der(1)), "missing private key type"),
            (message("any", vec![0xff; 60_000]), "the bytes are no such key"),
        ] {
            let answer = c.request("load-key", m).await;
            assert!(why(&answer).contains(says), "{answer:?}");
        }
        assert!(names(&mut c).await.is_empty());
        assert!(ok(&c.request("load-cert", message("PUBKEY", PUBLIC)).await));
        for (m, says) in [
            (message("pubkey", PRIVATE), "the bytes are no such key"),
            (message("X509", PUBLIC), "the message is no certificate"),
            (message("pubkey", ""), "missing certificate data"),
            (Section::new().with("data", PUBLIC), "missing certificate type"),
        ] {
            let answer = c.request("load-cert", m).await;
            assert!(why(&answer).contains(says), "{answer:?}");
        }
    })
    .await;
}

/// A connection whose sides name these public keys.
fn signed(ours: impl Into<Value>, theirs: impl Into<Value>) -> Section {
    let side = |id: &str, keys: Value| Section::new().with("id", id).with("pubkeys", keys);
    let net = Section::new()
        .with("remote_addrs", ["192.0.2.9"])
        .with("local", side("a", ours.into()))
        .with("remote", side("b", theirs.into()).with("auth", "ike:ed25519"))
        .with("children", Section::new().with("kid", Section::new().with("local_ts", ["10.1.0.0/24"])));
    Section::new().with("signed", net)
}

#[tokio::test]
async fn a_connection_brings_its_public_keys() {
    local(async {
        let s = serve(pair());
        let mut c = Raw::connect(&s).await;
        let key = |n: u8| keyfiles::private_key(&der(n)).unwrap().public().clone();
        // DER that is no text, PEM, and a list of both.
        let both = Value::List(vec![public(2), PUBLIC.into()]);
        let answer = c.request("load-conn", signed(public(1), both)).await;
        assert!(ok(&answer), "{answer:?}");
        let theirs = keyfiles::public_key(PUBLIC.as_bytes()).unwrap();
        let conn = s.a.view(|e, _| e.connection("signed")).unwrap();
        assert_eq!(conn.local_auth, Auth::pubkey(vec![key(1)]));
        let rules = Signatures::parse("ike:ed25519").unwrap();
        assert_eq!(conn.remote_auth, Auth::Pubkey { keys: vec![key(2), theirs], rules });
        for (ours, theirs, says) in [
            (
                public(1),
                Value::List(vec![public(2), b"no key".to_vec()]),
                "remote.pubkeys: public key 3 holds no public key",
            ),
            (der(1), public(2).into(), "local.pubkeys: public key 1 holds no public key"),
            (public(1), Value::List(vec![public(3); 101]), "remote.pubkeys: more than 100 public keys"),
        ] {
            let answer = c.request("load-conn", signed(ours, theirs)).await;
            assert!(why(&answer).contains(says), "{answer:?}");
        }
        assert!(
            s.a.view(|e, _| e.connection("signed").as_ref() == Some(&conn)),
            "what was refused has changed something"
        );
        // Without keys of the peer its certificate counts.
        assert!(ok(&c.request("load-conn", signed(public(1), Value::List(Vec::new()))).await));
        let conn = s.a.view(|e, _| e.connection("signed")).unwrap();
        assert!(matches!(conn.remote_auth, Auth::Certificate { .. }), "{:?}", conn.remote_auth);
    })
    .await;
}

/// A folder with the key pair of this seed and the public key of the peer. Returns `swanctl.conf`.
fn folder(dir: &Scratch, me: u8, peer: u8) -> String {
    let text = conf(me, peer)
        .replace("local { auth = psk", "local { auth = pubkey\n pubkeys = me.der")
        .replace("remote { auth = psk", "remote { pubkeys = peer.der");
    let file = dir.write("swanctl.conf", &text);
    for (name, bytes) in
        [("private/me.der", der(me)), ("pubkey/me.der", public(me)), ("pubkey/peer.der", public(peer))]
    {
        std::fs::write(dir.write(name, ""), bytes).unwrap();
    }
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn debian_s_swanctl_loads_keys_and_two_gateways_sign_with_them() {
    local(async {
        let (a, b) = pair();
        let (first, second) = (serve((a.clone(), b.clone())), serve((b, a)));
        for (s, me, peer) in [(&first, 1, 2), (&second, 2, 1)] {
            let dir = Scratch::new();
            let file = folder(&dir, me, peer);
            let (ok, out) = swanctl(s, &["--load-all", "--file", &file]).await;
            let loaded = ["loaded certificate from", "loaded ED25519 key from", "successfully loaded 1 conn"];
            assert!(ok && loaded.iter().all(|line| out.contains(line)), "{out}");
        }
        let (ok, out) = swanctl(&first, &["--list-conns"]).await;
        // SHA-1 of SubjectPublicKeyInfo, as `openssl pkey -pubout -outform der | sha1sum` shows it.
        let ours = hash::sha1(&public(1)).map(|byte| format!("{byte:02x}")).join(":");
        assert!(ok && out.contains(&format!("    certs: {ours}")), "{out}");
        assert!(out.contains("local public key authentication"), "{out}");
        let (ok, out) = swanctl(&first, &["--initiate", "--child", "net", "--timeout", "10"]).await;
        assert!(ok && out.contains("authentication of 'g2.example' with ED25519 successful"), "{out}");
    })
    .await;
}
