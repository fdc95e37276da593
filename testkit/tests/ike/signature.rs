//! Authentication by signatures and raw public keys (RFC 7427, RFC 8420, RFC 4754), in both
//! directions, and beside PSK.

use std::time::Duration;

use ironswan_crypto::sign::{Curve, KeyKind};
use ironswan_ike::event::{Event, Request};
use ironswan_keying::limits::KEYS_TRIED;
use ironswan_keying::{Auth, Connection, PrivateKey, Signatures, Target, key_identity};
use ironswan_testkit::World;
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::id::IdPattern;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::secret::Secret;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn key(n: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
}

fn by(keys: &[u8]) -> Auth {
    Auth::pubkey(keys.iter().map(|n| key(*n).public().clone()).collect())
}

/// Both sides by signatures: node 0 has key 1, node 1 has key 2.
fn both(c: &mut [Connection; 2]) {
    (c[0].local_auth, c[0].remote_auth) = (by(&[1]), by(&[2]));
    (c[1].local_auth, c[1].remote_auth) = (by(&[2]), by(&[1]));
}

/// Two gateways with these connections and with the private keys 1 and 2, and without a shared key
/// unless `psk`.
fn pair(seed: u64, psk: bool, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(seed, tweak);
    for (node, n) in w.nodes.iter_mut().zip([1, 2]) {
        if !psk {
            node.endpoint.unload_shared("ike-gw");
        }
        node.endpoint.load_private(key(n));
    }
    w
}

#[test]
fn both_sides_authenticate_by_signatures_whoever_begins() {
    for from in [0, 1] {
        let mut w = pair(20, false, both);
        w.establish(from).unwrap();
        w.assert_one();
        for node in &w.nodes {
            assert_eq!(node.signatures, 2, "one made and one verified");
            assert!(node.logged("(myself) with ED25519") && node.logged("with ED25519 successful"));
        }
        // A rekeying needs no more of them.
        w.rekey_ike(from);
        w.run(S);
        w.assert_one();
        assert_eq!(w.nodes[0].signatures, 2);
        w.terminate(from, false);
        w.run(S);
        w.assert_empty();
    }
}

#[test]
fn signatures_that_take_their_time_hold_up_nothing_else() {
    for from in [0, 1] {
        let mut w = pair(21, false, both);
        w.nodes.iter_mut().for_each(|n| n.work = 3 * S);
        // Retransmissions arrive meanwhile, and are of no use.
        w.initiate(from);
        w.run(60 * S);
        w.assert_one();
        w.nodes.iter_mut().for_each(|n| n.work = Duration::ZERO);
        w.terminate(1 - from, false);
        w.run(S);
        w.assert_empty();
    }
}

#[test]
fn one_side_may_have_a_shared_key_and_the_other_a_signature() {
    for (from, signs) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut w = pair(22, true, |c| {
            let keys = by(&[1 + signs as u8]);
            (c[signs].local_auth, c[1 - signs].remote_auth) = (keys.clone(), keys);
        });
        w.establish(from).unwrap();
        w.assert_one();
        assert_eq!((w.nodes[0].signatures, w.nodes[1].signatures), (1, 1));
        assert!(w.nodes[signs].logged("(myself) with ED25519"));
        assert!(w.nodes[1 - signs].logged("(myself) with pre-shared key"));
    }
}

#[test]
fn one_of_several_keys_is_enough_and_the_key_of_ours_that_is_loaded_is_used() {
    let mut w = pair(23, false, |c| {
        both(c);
        c[0].local_auth = by(&[7, 1]);
        c[1].remote_auth = by(&[8, 1, 9]);
    });
    w.establish(0).unwrap();
    w.assert_one();
}

#[test]
fn a_peer_that_has_proved_nothing_costs_few_verifications_however_many_keys_are_configured() {
    let many: Vec<u8> = (2..102).collect();
    // Node 0 has key 1, which is not among them; then by its name, which is its fingerprint, among
    // 100 keys.
    for (keys, id, most) in [
        (many.clone(), None, KEYS_TRIED),
        ([&many[..50], &[1], &many[50..]].concat(), Some(key_identity(key(1).public())), 1),
    ] {
        let known = id.is_some();
        let mut w = pair(43, false, |c| {
            both(c);
            c[1].remote_auth = by(&keys);
            c[1].remote_id = IdPattern::Any;
            c[0].local_id = id.or(c[0].local_id.clone());
        });
        held(&mut w, 1, 3);
        let [(_, Request::Verify { keys, messages, .. })] = &w.nodes[1].held.as_ref().unwrap()[..] else {
            panic!("no signature is verified");
        };
        assert_eq!((keys.len(), messages.len()), (most, 1));
        let now = w.now();
        w.nodes[1].release(now);
        w.run(S);
        assert_eq!(w.up(1).len(), usize::from(known));
    }
}

#[test]
fn a_wrong_key_is_refused_by_either_side() {
    // The responder does not know the initiator's key.
    let mut w = pair(24, false, |c| {
        both(c);
        c[1].remote_auth = by(&[3]);
    });
    assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
    w.assert_empty();
    assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 1);
    assert!(w.nodes[1].logged(
        "authentication of 'g1.example' with digital signature failed: the signature is not by a key of remote.pubkeys"
    ));
    // The initiator does not know the responder's.
    let mut w = pair(24, false, |c| {
        both(c);
        c[0].remote_auth = by(&[3]);
    });
    let error = w.establish(0).unwrap_err();
    assert!(error.contains("authentication of 'g2.example' with digital signature failed"), "{error}");
    w.run(S);
    w.assert_empty();
    assert_eq!(w.nodes[0].endpoint.protocol().counters().auth_failed, 1);
}

#[test]
fn the_method_must_be_the_configured_one() {
    // Each proves itself by what the other does not take.
    for (ours, theirs, method) in
        [(by(&[1]), Auth::Psk, "remote.auth = psk"), (Auth::Psk, by(&[1]), "remote.auth = pubkey")]
    {
        let mut w = pair(25, true, |c| {
            (c[0].local_auth, c[1].remote_auth) = (ours, theirs);
        });
        assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
        assert!(w.nodes[1].logged(method), "{:?}", w.nodes[1].log);
        w.assert_empty();
    }
}

#[test]
fn a_missing_private_key_is_named() {
    let mut w = pair(26, false, both);
    assert!(w.nodes[0].endpoint.unload_private(&key(1).public().id()));
    let error = w.establish(0).unwrap_err();
    assert!(error.contains("no private key found for 'g1.example'"), "{error}");
    w.run(40 * S);
    w.assert_empty();
    let mut w = pair(26, false, both);
    assert!(w.nodes[1].endpoint.unload_private(&key(2).public().id()));
    assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
    assert!(w.nodes[1].logged("no private key found for 'g2.example'"));
    w.assert_empty();
}

#[test]
fn of_two_connections_for_one_identity_the_method_of_the_peer_decides() {
    for (mine, signatures) in [(Auth::Psk, 0), (by(&[1]), 1)] {
        let mut w = pair(27, true, |c| c[0].local_auth = mine);
        let now = w.now();
        // Node 1 has `gw` with PSK, and `signed` with a signature of the peer's.
        let other =
            Connection { name: "signed".to_owned(), remote_auth: by(&[1]), ..w.nodes[1].connection("gw") };
        w.nodes[1].endpoint.load_connection(now, other);
        w.establish(0).unwrap();
        assert_eq!(w.nodes[1].signatures, signatures);
        assert_eq!(w.up(1)[0].conn, if signatures == 0 { "gw" } else { "signed" });
    }
}

/// Two gateways whose keys are of this kind. Each proves itself by the rules `local`, and takes the
/// rules `remote` of the other.
fn of_kind(seed: u64, kind: KeyKind, local: &str, remote: &str) -> World {
    let keys = [0, 1].map(|_| PrivateKey::generate(kind).unwrap());
    let auth = |n: usize, rules: &str| Auth::Pubkey {
        keys: vec![keys[n].public().clone()],
        rules: Signatures::parse(rules).unwrap(),
    };
    let mut w = World::pair(seed, |c| {
        for (n, conn) in c.iter_mut().enumerate() {
            (conn.local_auth, conn.remote_auth) = (auth(n, local), auth(1 - n, remote));
        }
    });
    for (node, key) in w.nodes.iter_mut().zip(keys) {
        node.endpoint.unload_shared("ike-gw");
        node.endpoint.load_private(key);
    }
    w
}

#[test]
fn keys_of_each_kind_sign_by_the_best_algorithm_that_both_sides_allow() {
    let (rsa, p256) = (KeyKind::Rsa(2048), KeyKind::Ecdsa(Curve::P256));
    for (kind, local, remote, name) in [
        (rsa, "pubkey", "pubkey", "RSA_EMSA_PKCS1_SHA2_256"),
        (rsa, "rsa-sha512-sha256", "pubkey", "RSA_EMSA_PKCS1_SHA2_512"),
        (rsa, "rsa/pss", "pubkey", "RSA_EMSA_PSS_SHA2_256_SALT_32"),
        (rsa, "ike:rsa/pss-2048-sha384", "rsa/pss", "RSA_EMSA_PSS_SHA2_384_SALT_48"),
        (rsa, "rsa-sha1", "rsa-sha1", "RSA_EMSA_PKCS1_SHA1"),
        (p256, "pubkey", "pubkey", "ECDSA_WITH_SHA256_DER"),
        (p256, "ecdsa-sha384", "ecdsa-256", "ECDSA_WITH_SHA384_DER"),
        (KeyKind::Ecdsa(Curve::P384), "pubkey", "ecdsa-384-ed25519", "ECDSA_WITH_SHA384_DER"),
        (KeyKind::Ecdsa(Curve::P521), "pubkey", "pubkey", "ECDSA_WITH_SHA512_DER"),
        (KeyKind::Ed25519, "ed25519", "ike:pubkey-identity", "ED25519"),
    ] {
        for from in [0, 1] {
            let mut w = of_kind(50, kind, local, remote);
            w.establish(from).unwrap_or_else(|why| panic!("{kind} {local} {remote}: {why}"));
            w.assert_one();
            for node in &w.nodes {
                assert!(node.logged(&format!("(myself) with {name}")), "{kind} {local} {remote}");
                assert!(node.logged(&format!("with {name} successful")), "{kind} {local} {remote}");
            }
        }
    }
}

#[test]
fn what_the_configuration_does_not_name_is_refused_with_the_algorithm() {
    let (rsa, p256) = (KeyKind::Rsa(2048), KeyKind::Ecdsa(Curve::P256));
    for (kind, local, remote, says) in [
        (rsa, "rsa", "rsa/pss", "RSA PKCS#1 v1.5 with SHA2-256, which remote.auth = rsa/pss does not allow"),
        (rsa, "rsa/pss", "rsa", "RSA PSS with SHA2-256 and a salt of 32 bytes, which remote.auth = rsa does"),
        (rsa, "rsa", "rsa-3072", "remote.pubkeys has RSA 2048 with remote.auth = rsa-3072"),
        (
            p256,
            "pubkey-sha256-sha512",
            "ecdsa-sha512",
            "ECDSA with SHA2-256, which remote.auth = ecdsa-sha512",
        ),
        (p256, "pubkey", "ecdsa-384", "remote.pubkeys has ECDSA P-256 with remote.auth = ecdsa-384"),
    ] {
        let mut w = of_kind(51, kind, local, remote);
        assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error", "{says}");
        assert!(w.nodes[1].logged(says), "{says}: {:?}", w.nodes[1].log);
        // Nothing has been computed for it.
        assert_eq!(w.nodes[1].signatures, 0);
        w.assert_empty();
    }
}

#[test]
fn an_initiator_announces_the_hashes_of_its_rules_and_a_responder_finds_none_in_common() {
    // Node 0 takes SHA2-512 only, and node 1 signs over SHA2-256 only.
    let mut w = of_kind(52, KeyKind::Rsa(2048), "rsa-sha256", "rsa-sha512");
    let mut conn = w.nodes[1].connection("gw");
    let Auth::Pubkey { rules, .. } = &mut conn.remote_auth else { panic!("signatures") };
    *rules = Signatures::default();
    let now = w.now();
    w.nodes[1].endpoint.load_connection(now, conn);
    assert_eq!(w.establish(0).unwrap_err(), "received AUTHENTICATION_FAILED notify error");
    let says = "our hash algorithms are SHA2-256, those of its SIGNATURE_HASH_ALGORITHMS SHA2-512";
    assert!(w.nodes[1].logged(says), "{:?}", w.nodes[1].log);
    w.assert_empty();
}

#[test]
fn a_peer_without_rfc_7427_gets_the_old_method_of_ecdsa_and_of_rsa_only_by_name() {
    let (rsa, short) = (KeyKind::Rsa(2048), "no SIGNATURE_HASH_ALGORITHMS");
    for (kind, local, node, says) in [
        (KeyKind::Ecdsa(Curve::P256), "pubkey", 0, "with ECDSA-256 signature failed: remote.auth = psk"),
        (KeyKind::Ecdsa(Curve::P384), "ecdsa", 0, "with ECDSA-384 signature failed: remote.auth = psk"),
        (KeyKind::Ecdsa(Curve::P521), "pubkey", 0, "with ECDSA-521 signature failed: remote.auth = psk"),
        (rsa, "rsa-sha1", 0, "with RSA signature failed: remote.auth = psk"),
        (rsa, "pubkey", 1, short),
        (rsa, "rsa/pss-sha1", 1, short),
        (KeyKind::Ecdsa(Curve::P384), "ecdsa-sha512", 1, short),
        (KeyKind::Ed25519, "pubkey", 1, short),
    ] {
        // Node 0 proves itself by a shared key, and asks for one, so it announces no hashes.
        let key = PrivateKey::generate(kind).unwrap();
        let mut w = World::pair(53, |c| {
            let rules = Signatures::parse(local).unwrap();
            c[1].local_auth = Auth::Pubkey { keys: vec![key.public().clone()], rules };
        });
        w.nodes[1].endpoint.load_private(key);
        assert!(w.establish(0).is_err());
        assert!(w.nodes[node].logged(says), "{kind} {local}: {:?}", w.nodes[node].log);
        w.run(60 * S);
        w.assert_empty();
    }
}

/// Takes SIGNATURE_HASH_ALGORITHMS out of an IKE_SA_INIT message, or changes its data.
fn set_hashes(bytes: &mut Vec<u8>, hashes: Option<&[u8]>) {
    let Ok(mut message) = Message::parse(bytes) else { return };
    if message.header.exchange != ExchangeType::IKE_SA_INIT {
        return;
    }
    let announces =
        |p: &Payload| matches!(p, Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS);
    message.payloads.retain(|p| !announces(p));
    if let Some(hashes) = hashes {
        message.payloads.push(Payload::Notify(Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes)));
    }
    *bytes = message.emit().unwrap();
}

#[test]
fn nobody_signs_for_a_peer_that_does_not_announce_the_identity_hash() {
    for (hashes, why) in [
        (None, "it has sent no SIGNATURE_HASH_ALGORITHMS"),
        (
            Some(&[0, 2, 0, 3][..]),
            "our hash algorithms are Identity, those of its SIGNATURE_HASH_ALGORITHMS SHA2-256, SHA2-384",
        ),
    ] {
        let mut w = pair(28, false, both);
        w.net.tamper = Some(Box::new(move |bytes| set_hashes(bytes, hashes)));
        let error = w.establish(0).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert_eq!((w.nodes[0].signatures, w.nodes[1].signatures), (0, 0));
        w.run(60 * S);
        w.assert_empty();
    }
}

#[test]
fn an_announcement_that_was_added_under_way_is_found_out() {
    // The announcement is covered by AUTH, whichever method that has.
    let mut w = World::pair(29, |_| {});
    w.net.tamper = Some(Box::new(|bytes| set_hashes(bytes, Some(&[0, 5]))));
    assert!(w.establish(0).is_err());
    assert_eq!(w.up(0).len() + w.up(1).len(), 0);
}

#[test]
fn gateways_with_shared_keys_only_announce_nothing() {
    let mut w = World::pair(30, |_| {});
    w.net.tamper = Some(Box::new(|bytes| {
        let announces =
            |p: &Payload| matches!(p, Payload::Notify(n) if n.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS);
        assert!(!Message::parse(bytes).is_ok_and(|m| m.payloads.iter().any(announces)));
    }));
    w.establish(0).unwrap();
    w.assert_one();
}

/// Node 0 initiates, and the `n`th computation (from 1) of a node is not done before its
/// [`Node::release`]: a key pair, the shared secret, then our signature and the peer's, in the
/// order that the role gives.
fn held(w: &mut World, node: usize, n: usize) {
    w.nodes[node].held = Some(Vec::new());
    w.initiate(0);
    let waits = |w: &World| w.nodes[node].held.as_ref().is_some_and(|h| h.len() == 1);
    for done in 1..=n {
        assert!(w.run_until(S, waits), "computation {done} of node {node}");
        if done < n {
            let now = w.now();
            w.nodes[node].release(now);
            w.nodes[node].held = Some(Vec::new());
        }
    }
}

/// No table of a node holds anything but what is loaded.
fn assert_forgotten(w: &World) {
    for node in &w.nodes {
        let left: Vec<_> = node.endpoint.tables().into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(left, []);
    }
}

#[test]
fn whoever_is_let_go_while_something_is_computed_is_gone_on_both_sides() {
    // Without the first one of the responder, nobody has been answered: the peer asks again, and
    // gets a new IKE_SA.
    let all = (0..2).flat_map(|node| (1 + node..=4).flat_map(move |n| [(node, n, false), (node, n, true)]));
    for (node, computation, force) in all {
        let story = format!("node {node}, computation {computation}, force {force}");
        let mut w = pair(40, false, both);
        held(&mut w, node, computation);
        // The driver has begun it: it cannot be cancelled any more, and its answer comes late.
        let late = w.nodes[node].held.take().unwrap_or_default();
        let now = w.now();
        let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
        let (_, ticket) = w.nodes[node].endpoint.terminate(now, &target, force).unwrap();
        w.run(100 * MS);
        assert_eq!(w.nodes[node].done.get(&ticket), Some(&Ok(())), "{story}");
        let now = w.now();
        w.nodes[node].held = Some(late);
        w.nodes[node].release(now);
        w.run(400 * S);
        for (i, n) in w.nodes.iter().enumerate() {
            let up = n.events.iter().filter(|e| matches!(e, Event::IkeUp(_))).count();
            let down = n.events.iter().filter(|e| matches!(e, Event::IkeDown(_))).count();
            assert_eq!(up, down, "{story}: node {i}");
            assert!(i != node || up == 0, "{story}: {:?}", n.events);
        }
        w.assert_empty();
        w.audit();
        assert_forgotten(&w);
    }
}

#[test]
fn a_peer_whose_key_goes_while_its_signature_is_judged_is_not_let_in() {
    for (computation, unload) in [(3, true), (3, false), (4, true), (4, false)] {
        let story = format!("computation {computation}, unload {unload}");
        let mut w = pair(41, false, both);
        held(&mut w, 1, computation);
        let now = w.now();
        if unload {
            w.nodes[1].endpoint.unload_connection(now, "gw");
        } else {
            let mut conn = w.nodes[1].connection("gw");
            conn.remote_auth = by(&[3]);
            w.nodes[1].endpoint.load_connection(now, conn);
        }
        w.nodes[1].release(now);
        w.run(S);
        assert_eq!((w.up(0).len(), w.up(1).len()), (0, 0), "{story}");
        assert!(!w.nodes[1].events.iter().any(|e| matches!(e, Event::IkeUp(_))), "{story}");
        w.run(400 * S);
        w.assert_empty();
        w.audit();
    }
}

#[test]
fn a_reload_that_changes_nothing_for_the_peer_lets_it_in_all_the_same() {
    for (computation, node) in (0..2).flat_map(|node| (1..=4).map(move |n| (n, node))) {
        let mut w = pair(42, false, both);
        held(&mut w, node, computation);
        let now = w.now();
        let mut conn = w.nodes[node].connection("gw");
        conn.dpd_delay = 17 * S;
        w.nodes[node].endpoint.load_connection(now, conn);
        w.nodes[node].release(now);
        w.run(5 * S);
        w.assert_one();
        w.audit();
    }
}
