//! Every suite that the packet engine can carry is negotiated and keyed: ESP with each algorithm
//! and AH with each, in the first exchanges and rekeyed, with the keying material cut as RFC 7296
//! section 2.17 says, computed here by hand.

use std::time::Duration;

use ironswan_crypto::prf;
use ironswan_ike::event::KeyLog;
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, World, config};
use ironswan_wire::iana::{EncrId, EsnId, ExchangeType, IntegId, KeId, NotifyType, PrfId, ProtocolId};
use ironswan_wire::ike::payload::{Nonce, Notify};
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::Spi;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Integrity algorithms with the length of their keys in bytes (RFC 2403, 2404, 3566, 4494, 4868).
const INTEGS: &[(IntegId, usize)] = &[
    (IntegId::HMAC_MD5_96, 16),
    (IntegId::HMAC_SHA1_96, 20),
    (IntegId::AES_XCBC_96, 16),
    (IntegId::AES_CMAC_96, 16),
    (IntegId::HMAC_SHA2_256_128, 32),
    (IntegId::HMAC_SHA2_384_192, 48),
    (IntegId::HMAC_SHA2_512_256, 64),
];

/// AES-GMAC in AH: key and 4 bytes of salt (RFC 4543 section 5).
const GMACS: &[(IntegId, usize)] =
    &[(IntegId::AES_128_GMAC, 20), (IntegId::AES_192_GMAC, 28), (IntegId::AES_256_GMAC, 36)];

/// Ciphers that need an integrity algorithm: key length on the wire, keying material in bytes.
const CIPHERS: &[(EncrId, Option<u16>, usize)] = &[
    (EncrId::NULL, None, 0),
    // "The Key Length attribute MUST NOT be used with transforms that use a fixed-length key" (RFC
    // 7296 section 3.3.5).
    (EncrId::DES3, None, 24),
    (EncrId::AES_CBC, Some(128), 16),
    (EncrId::AES_CBC, Some(192), 24),
    (EncrId::AES_CBC, Some(256), 32),
    // A nonce of 4 bytes (RFC 3686 section 5.1).
    (EncrId::AES_CTR, Some(128), 20),
    (EncrId::AES_CTR, Some(192), 28),
    (EncrId::AES_CTR, Some(256), 36),
];

/// Combined modes: salts of 4 bytes, and of 3 with CCM (RFC 4106, 4309, 4543, 7634, 8750).
const AEADS: &[(EncrId, Option<u16>, usize)] = &[
    (EncrId::AES_GCM_8, Some(128), 20),
    (EncrId::AES_GCM_12, Some(192), 28),
    (EncrId::AES_GCM_16, Some(256), 36),
    (EncrId::AES_CCM_8, Some(128), 19),
    (EncrId::AES_CCM_12, Some(192), 27),
    (EncrId::AES_CCM_16, Some(256), 35),
    (EncrId::NULL_AES_GMAC, Some(128), 20),
    (EncrId::NULL_AES_GMAC, Some(192), 28),
    (EncrId::NULL_AES_GMAC, Some(256), 36),
    (EncrId::CHACHA20_POLY1305, None, 36),
    (EncrId::AES_CCM_8_IIV, Some(128), 19),
    (EncrId::AES_GCM_16_IIV, Some(256), 36),
    (EncrId::CHACHA20_POLY1305_IIV, None, 36),
];

fn proposal(protocol: ProtocolId, transforms: &[Transform]) -> Proposal {
    Proposal { number: 1, protocol, spi: Vec::new(), transforms: transforms.to_vec() }
}

/// A world whose two connections have these proposals for `net`.
fn with(seed: u64, ours: &[Proposal], theirs: &[Proposal]) -> World {
    World::pair(seed, |c| {
        c[0].children[0].proposals = ours.to_vec();
        c[1].children[0].proposals = theirs.to_vec();
    })
}

/// Every method, with the length of its public value in bytes.
const METHODS: &[(KeId, usize)] = &[
    (KeId::CURVE_25519, 32),
    (KeId::ECP_256, 64),
    (KeId::ECP_384, 96),
    (KeId::ECP_521, 132),
    (KeId::MODP_1024, 128),
    (KeId::MODP_1536, 192),
    (KeId::MODP_2048, 256),
    (KeId::MODP_3072, 384),
    (KeId::MODP_4096, 512),
    (KeId::MODP_6144, 768),
    (KeId::MODP_8192, 1_024),
    (KeId::MODP_1024_160, 128),
    (KeId::MODP_2048_224, 256),
    (KeId::MODP_2048_256, 256),
];

#[test]
fn every_key_exchange_method_makes_an_ike_sa_and_rekeys_it_and_its_child() {
    for &(ke, len) in METHODS {
        let mut w = World::pair(7, |c| {
            for c in c {
                c.proposals = vec![config::ike_proposal(&[ke])];
                c.children[0].proposals = vec![config::esp_proposal(&[ke])];
            }
        });
        w.establish(0).unwrap();
        for (_, p) in &w.net.log[..2] {
            let message = Message::parse(&p.payload).unwrap();
            let sent = message.payloads.iter().find_map(|p| match p {
                Payload::Ke(ke) => Some((ke.group, ke.data.len())),
                _ => None,
            });
            assert_eq!(sent, Some((ke, len)));
        }
        w.rekey_child(1);
        w.run(60 * S);
        w.rekey_ike(1);
        w.run(60 * S);
        w.assert_one();
        assert_eq!(w.up(0)[0].suite.map(|s| s.ke), Some(ke));
        assert_eq!(w.child(0).suite.ke, Some(ke));
    }
}

fn inner(payload: &[u8]) -> &[u8] {
    payload.strip_prefix(&[0; 4]).unwrap_or(payload)
}

fn nonce(payloads: &[Payload]) -> Option<Vec<u8>> {
    payloads.iter().find_map(|p| if let Payload::Nonce(n) = p { Some(n.0.clone()) } else { None })
}

/// Ni | Nr of the newest exchange of this type.
fn nonces(w: &World, exchange: ExchangeType) -> Vec<u8> {
    let f = Forger::newest(&w.nodes[0]);
    let of = |response| {
        let message = |payload: &[u8]| match exchange {
            ExchangeType::IKE_SA_INIT => Message::parse(payload).ok().map(|m| m.payloads),
            _ => f.open(payload).map(|(_, p)| p),
        };
        let mut found =
            w.net.log.iter().rev().filter(|(s, _)| (s.exchange, s.response) == (exchange, response));
        found.find_map(|(_, p)| nonce(&message(inner(&p.payload))?)).expect("a nonce")
    };
    [of(false), of(true)].concat()
}

/// KEYMAT = prf+(SK_d, Ni | Nr), written out with the PRF alone.
fn keymat(w: &World, nonces: &[u8], len: usize) -> Vec<u8> {
    let sk_d = w.nodes[0].keys.iter().rev().find_map(|k| match k {
        KeyLog::Ike { keys, .. } => Some(keys[0].clone()),
        KeyLog::Child { .. } => None,
    });
    let (sk_d, prf) = (sk_d.unwrap(), prf::get(PrfId::HMAC_SHA2_256).unwrap());
    let (mut out, mut last, mut n) = (Vec::new(), Vec::new(), 0u8);
    while out.len() < len {
        n += 1;
        last = prf.mac(sk_d.expose(), &[&last, nonces, &[n]]).expose().to_vec();
        out.extend(&last);
    }
    out.truncate(len);
    out
}

/// Asserts that the SAs have the keying material of this exchange, of which node 0 was the
/// initiator: its direction first, encryption before integrity.
fn assert_keys(w: &World, exchange: ExchangeType, encr: usize, integ: usize) {
    let all = keymat(w, &nonces(w, exchange), 2 * (encr + integ));
    let child = w.child(0);
    for (node, spi, at) in [(1, child.spi_out, 0), (0, child.spi_in, encr + integ)] {
        let sa = &w.nodes[node].engine.inbound[&spi];
        assert_eq!(sa.encr_key.expose(), &all[at..at + encr], "{}", sa.suite);
        assert_eq!(sa.integ_key.expose(), &all[at + encr..at + encr + integ], "{}", sa.suite);
        let logged = |k: &&KeyLog| matches!(k, KeyLog::Child { spi: s, .. } if *s == spi);
        match w.nodes[node].keys.iter().rev().find(logged) {
            Some(KeyLog::Child { protocol, encr_key, integ_key, .. }) => {
                assert_eq!((*protocol, encr_key, integ_key), (sa.protocol, &sa.encr_key, &sa.integ_key));
            }
            _ => panic!("no keys in the log"),
        }
    }
}

/// Brings a suite up, rekeys it from both ends, and takes it down; gives the suite as the log has
/// it.
fn lives(seed: u64, p: &Proposal, encr: usize, integ: usize) {
    let mut w = with(seed, std::slice::from_ref(p), std::slice::from_ref(p));
    w.traffic = Some(100 * MS);
    w.establish(0).unwrap_or_else(|e| panic!("{p}: {e}"));
    w.assert_one();
    assert_keys(&w, ExchangeType::IKE_SA_INIT, encr, integ);
    for n in 0..2 {
        assert_eq!(w.child(n).protocol, p.protocol);
        assert!(w.nodes[n].logged(&format!("selected proposal: {p}")), "{p}");
    }
    w.rekey_child(1);
    w.run(8 * S);
    w.rekey_child(0);
    w.run(8 * S);
    w.assert_one();
    assert_keys(&w, ExchangeType::CREATE_CHILD_SA, encr, integ);
    for n in &w.nodes {
        assert!(n.esp.0 > 100 && n.esp.1 == 0, "{p}: {:?}", n.esp);
    }
    w.terminate(0, true);
    w.run(S);
    w.audit();
}

#[test]
fn every_cipher_with_every_integrity_algorithm_has_its_keys() {
    let mut seed = 0;
    for (encr, bits, encr_len) in CIPHERS {
        for (integ, integ_len) in INTEGS {
            // Every fourth pair with ESN.
            let esn = if seed % 4 == 0 { EsnId::ESN } else { EsnId::NO_ESN };
            let t = [Transform::Encr(*encr, *bits), Transform::Integ(*integ), Transform::Esn(esn)];
            lives(seed, &proposal(ProtocolId::ESP, &t), *encr_len, *integ_len);
            seed += 1;
        }
    }
}

#[test]
fn every_combined_mode_has_its_key_and_salt() {
    for (seed, (encr, bits, len)) in AEADS.iter().enumerate() {
        for esn in [EsnId::NO_ESN, EsnId::ESN] {
            let t = [Transform::Encr(*encr, *bits), Transform::Esn(esn)];
            lives(100 + seed as u64, &proposal(ProtocolId::ESP, &t), *len, 0);
        }
    }
}

#[test]
fn ah_with_every_integrity_algorithm_has_its_key() {
    for (seed, (integ, len)) in INTEGS.iter().chain(GMACS).enumerate() {
        for esn in [EsnId::NO_ESN, EsnId::ESN] {
            let t = [Transform::Integ(*integ), Transform::Esn(esn)];
            lives(200 + seed as u64, &proposal(ProtocolId::AH, &t), 0, *len);
        }
    }
}

#[test]
fn nothing_is_agreed_on_that_authenticates_nothing() {
    let null = Transform::Encr(EncrId::NULL, None);
    let cbc = Transform::Encr(EncrId::AES_CBC, Some(128));
    let gmac = Transform::Encr(EncrId::NULL_AES_GMAC, Some(128));
    let (none, sha) = (Transform::Integ(IntegId::NONE), Transform::Integ(IntegId::HMAC_SHA2_256_128));
    let no_esn = Transform::Esn(EsnId::NO_ESN);
    for (protocol, transforms) in [
        (ProtocolId::ESP, vec![null, no_esn]),
        (ProtocolId::ESP, vec![null, none, no_esn]),
        (ProtocolId::ESP, vec![cbc, none, no_esn]),
        // AES-GMAC as an integrity algorithm is for AH only (RFC 4543 section 5).
        (ProtocolId::ESP, vec![null, Transform::Integ(IntegId::AES_128_GMAC), no_esn]),
        (ProtocolId::AH, vec![none, no_esn]),
        (ProtocolId::AH, vec![no_esn]),
        // AH that promises to encrypt.
        (ProtocolId::AH, vec![cbc, sha, no_esn]),
        // A combined mode beside an integrity algorithm.
        (ProtocolId::ESP, vec![gmac, sha, no_esn]),
    ] {
        let p = [proposal(protocol, &transforms)];
        let mut w = with(1, &p, &p);
        let e = w.establish(0).unwrap_err();
        assert!(e.contains("NO_PROPOSAL_CHOSEN"), "{}: {e}", p[0]);
        assert!(w.nodes[1].logged("no acceptable proposal found"));
        assert!(w.nodes.iter().all(|n| n.engine.added == 0));
    }
}

#[test]
fn a_key_length_on_a_cipher_that_has_only_one_is_another_algorithm() {
    let sha = Transform::Integ(IntegId::HMAC_SHA1_96);
    let of = |bits| {
        [proposal(
            ProtocolId::ESP,
            &[Transform::Encr(EncrId::DES3, bits), sha, Transform::Esn(EsnId::NO_ESN)],
        )]
    };
    assert!(with(1, &of(None), &of(Some(192))).establish(0).is_err());
    assert!(with(1, &of(Some(192)), &of(None)).establish(0).is_err());
}

#[test]
fn esn_may_be_required_or_left_to_the_peer() {
    let gcm = Transform::Encr(EncrId::AES_GCM_16, Some(128));
    let sha = Transform::Integ(IntegId::HMAC_SHA2_256_128);
    let (yes, no) = (Transform::Esn(EsnId::ESN), Transform::Esn(EsnId::NO_ESN));
    for (protocol, t) in [(ProtocolId::ESP, gcm), (ProtocolId::AH, sha)] {
        for (ours, theirs, agreed) in [
            (vec![t, yes, no], vec![t, no, yes], Some(false)),
            (vec![t, no, yes], vec![t, yes, no], Some(true)),
            (vec![t, yes], vec![t, no, yes], Some(true)),
            (vec![t, no, yes], vec![t, yes], Some(true)),
            (vec![t, yes, no], vec![t, no], Some(false)),
            (vec![t, yes], vec![t, no], None),
            (vec![t, yes], vec![t], None),
            (vec![t], vec![t, yes, no], Some(false)),
        ] {
            let mut w = with(1, &[proposal(protocol, &ours)], &[proposal(protocol, &theirs)]);
            let got = w.establish(0).map(|()| w.child(0).suite.esn).ok();
            assert_eq!(got, agreed, "{protocol} {ours:?} {theirs:?}");
        }
    }
}

#[test]
fn ah_and_esp_are_alternatives_and_the_responders_order_decides() {
    let (esp, ah) = (config::esp_proposal(&[]), config::ah_proposal(&[]));
    for (ours, theirs, want) in [
        (vec![esp.clone(), ah.clone()], vec![ah.clone(), esp.clone()], ProtocolId::AH),
        (vec![ah.clone(), esp.clone()], vec![esp.clone(), ah.clone()], ProtocolId::ESP),
        (vec![ah.clone(), esp.clone()], vec![esp.clone()], ProtocolId::ESP),
        (vec![esp.clone(), ah.clone()], vec![ah.clone()], ProtocolId::AH),
    ] {
        let mut w = with(2, &ours, &theirs);
        w.establish(0).unwrap();
        w.rekey_child(0);
        w.run(10 * S);
        w.assert_one();
        assert_eq!(w.child(0).protocol, want);
    }
    assert!(with(2, &[esp], &[ah]).establish(0).unwrap_err().contains("NO_PROPOSAL_CHOSEN"));
}

#[test]
fn what_is_said_about_an_ah_child_says_ah() {
    let ah = [config::ah_proposal(&[KeId::CURVE_25519])];
    let mut w = with(3, &ah, &ah);
    w.establish(0).unwrap();
    let old = w.child(0);
    w.rekey_child(0);
    w.run(10 * S);
    let new = w.child(0);
    w.terminate(0, true);
    w.run(S);
    let f = Forger::newest(&w.nodes[0]);
    let said: Vec<Payload> =
        w.net.log.iter().filter_map(|(_, p)| f.open(&p.payload)).flat_map(|(_, p)| p).collect();
    let (mut rekeys, mut deletes, mut proposals) = (Vec::new(), Vec::new(), 0);
    for p in said {
        match p {
            Payload::Notify(n) if n.kind == NotifyType::REKEY_SA => rekeys.push((n.protocol, n.child_spi())),
            Payload::Delete(d) if d.protocol != ProtocolId::IKE => {
                deletes.extend(d.child_spis().map(|spi| (d.protocol, spi)));
            }
            Payload::Sa(list) => {
                proposals += list.len();
                assert!(list.iter().all(|p| p.protocol == ProtocolId::AH));
            }
            _ => {}
        }
    }
    assert_eq!(rekeys, [(ProtocolId::AH, Some(old.spi_in.0))]);
    let pairs = [old.spi_in, old.spi_out, new.spi_in, new.spi_out].map(|spi| (ProtocolId::AH, spi));
    assert_eq!(deletes, pairs);
    assert_eq!(proposals, 4);
    assert!(w.nodes[0].logged("selected proposal: AH:HMAC_SHA2_256_128/CURVE_25519/NO_EXT_SEQ"));
    assert!(w.nodes[1].logged(&format!("received DELETE for AH CHILD_SA with SPI {}", new.spi_in)));
}

#[test]
fn an_spi_of_the_other_protocol_is_another_sa() {
    let ah = [config::ah_proposal(&[])];
    let mut w = with(4, &ah, &ah);
    w.establish(0).unwrap();
    let (child, mut f) = (w.child(0), Forger::newest(&w.nodes[0]));
    let (a, b) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
    let answers = |w: &World, f: &Forger, mid| {
        let of = |(s, p): &(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
            (s.node == 1 && s.response && s.mid == mid).then(|| f.open(&p.payload)).flatten()
        };
        w.net.log.iter().find_map(of).expect("an answer").1
    };
    let delete = ironswan_wire::ike::payload::Delete::children(ProtocolId::ESP, [child.spi_in]);
    let bytes = f.message(true, ExchangeType::INFORMATIONAL, false, 2, &[Payload::Delete(delete)]);
    w.inject(a, b, bytes);
    w.run(S);
    assert!(answers(&w, &f, 2).is_empty());
    let request = [
        Payload::Notify(Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, child.spi_in.0)),
        Payload::Sa(vec![Proposal { spi: vec![0xc1, 1, 1, 1], ..ah[0].clone() }]),
        Payload::Nonce(Nonce(vec![1; 32])),
        Payload::TsI(child.local_ts.clone()),
        Payload::TsR(child.remote_ts.clone()),
    ];
    let bytes = f.message(true, ExchangeType::CREATE_CHILD_SA, false, 3, &request);
    w.inject(a, b, bytes);
    w.run(S);
    let want = Notify::about(NotifyType::CHILD_SA_NOT_FOUND, ProtocolId::ESP, child.spi_in.0);
    assert_eq!(answers(&w, &f, 3), [Payload::Notify(want)]);
    assert_eq!(w.nodes[1].engine.inbound.len(), 1);
}

#[test]
fn a_peer_that_has_lost_an_ah_child_is_given_a_new_one() {
    let ah = [config::ah_proposal(&[])];
    let mut w = with(5, &ah, &ah);
    w.establish(0).unwrap();
    // Node 1 closes it, and node 0 never hears of it.
    w.net.rules.push(Box::new(|s| {
        match s.node == 1 && s.exchange == ExchangeType::INFORMATIONAL && !s.response {
            true => ironswan_testkit::Verdict::Drop,
            false => ironswan_testkit::Verdict::Pass,
        }
    }));
    w.terminate(1, true);
    w.run(S);
    w.rekey_child(0);
    w.run(S);
    w.net.rules.clear();
    w.run(60 * S);
    assert!(w.nodes[0].engine.inbound.values().all(|sa| sa.protocol == ProtocolId::AH));
    assert!(w.up(0)[0].children.iter().all(|c| c.protocol == ProtocolId::AH && c.spi_in != Spi(0)));
    w.audit();
}

/// Node 0 behind a NAT, with these proposals.
fn behind_nat(seed: u64, ours: &[Proposal], theirs: &[Proposal]) -> World {
    let mut w = World::pair(seed, |c| {
        c[0].children[0].proposals = ours.to_vec();
        c[1].children[0].proposals = theirs.to_vec();
        c[1].remote_addrs = vec![ironswan_keying::AddrSpec::Any];
    });
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1")));
    w
}

const WHY: &str = "AH cannot pass a NAT (RFC 3948 encapsulates ESP only); configure ESP (esp_proposals)";

#[test]
fn ah_is_not_even_offered_through_a_nat() {
    let (esp, ah) = (config::esp_proposal(&[]), config::ah_proposal(&[]));
    // Alone: the attempt ends before the peer is bothered with IKE_AUTH.
    let mut w = behind_nat(6, std::slice::from_ref(&ah), std::slice::from_ref(&ah));
    assert!(w.establish(0).unwrap_err().contains("AH cannot pass a NAT"));
    assert!(w.nodes[0].logged(WHY));
    assert!(!w.net.log.iter().any(|(s, _)| s.exchange == ExchangeType::IKE_AUTH));
    w.run(60 * S);
    w.audit();
    // Beside ESP: ESP it is, whatever is preferred.
    let both = [ah, esp];
    let mut w = behind_nat(7, &both, &both);
    w.establish(0).unwrap();
    w.rekey_child(0);
    w.run(10 * S);
    w.rekey_child(1);
    w.run(10 * S);
    w.assert_one();
    assert_eq!(w.child(0).protocol, ProtocolId::ESP);
    let f = Forger::newest(&w.nodes[0]);
    let mut offered = w.net.log.iter().filter_map(|(_, p)| f.open(inner(&p.payload))).flat_map(|(_, p)| p);
    assert!(!offered.any(|p| matches!(p, Payload::Sa(l) if l.iter().any(|p| p.protocol == ProtocolId::AH))));
}

#[test]
fn ah_is_not_offered_when_a_nat_is_pretended() {
    let ah = [config::ah_proposal(&[])];
    for pretender in 0..2 {
        let mut w = World::pair(8, |c| {
            c[pretender].encap = true;
            c.iter_mut().for_each(|c| c.children[0].proposals = ah.to_vec());
        });
        assert!(w.establish(0).unwrap_err().contains("AH cannot pass a NAT"));
        assert!(w.nodes.iter().all(|n| n.engine.added == 0));
    }
}

#[test]
fn ah_that_a_peer_offers_through_a_nat_is_refused_with_the_reason() {
    let both = [config::ah_proposal(&[]), config::esp_proposal(&[])];
    let mut w = behind_nat(9, &both, &both);
    w.establish(0).unwrap();
    let (child, mut f) = (w.child(0), Forger::newest(&w.nodes[0]));
    let peer = w.up(1)[0].remote;
    let request = [
        Payload::Sa(vec![Proposal { spi: vec![0xc1, 1, 1, 1], ..both[0].clone() }]),
        Payload::Nonce(Nonce(vec![1; 32])),
        Payload::TsI(child.local_ts),
        Payload::TsR(child.remote_ts),
    ];
    let bytes = f.message(true, ExchangeType::CREATE_CHILD_SA, false, 2, &request);
    w.inject(peer, "192.0.2.2:4500".parse().unwrap(), [&[0; 4], &bytes[..]].concat());
    w.run(S);
    let answer = w.net.log.iter().find_map(|(s, p)| {
        (s.node == 1 && s.response && s.mid == 2).then(|| f.open(inner(&p.payload))).flatten()
    });
    let want = Payload::Notify(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN, []));
    assert_eq!(answer.expect("an answer").1, [want]);
    assert!(w.nodes[1].logged(WHY));
    assert_eq!(w.nodes[1].engine.inbound.len(), 1);
}

#[test]
fn an_spi_that_is_in_use_is_refused_under_either_protocol() {
    let both = [config::esp_proposal(&[]), config::ah_proposal(&[])];
    for p in &both {
        let mut w = with(10, &both, &both);
        w.establish(0).unwrap();
        let (child, mut f) = (w.child(0), Forger::newest(&w.nodes[0]));
        let (a, b) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
        let body = |spi: Spi| {
            vec![
                Payload::Sa(vec![Proposal { spi: spi.0.to_be_bytes().to_vec(), ..p.clone() }]),
                Payload::Nonce(Nonce(vec![7; 32])),
                Payload::TsI(child.local_ts.clone()),
                Payload::TsR(child.remote_ts.clone()),
            ]
        };
        // In a request: as a new child and as its own successor.
        let rekey = Payload::Notify(Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, child.spi_in.0));
        for (mid, first) in [(2, None), (3, Some(rekey))] {
            let request: Vec<Payload> = first.into_iter().chain(body(child.spi_in)).collect();
            w.inject(a, b, f.message(true, ExchangeType::CREATE_CHILD_SA, false, mid, &request));
            w.run(S);
        }
        assert_eq!(w.nodes[1].count_logged("which another CHILD_SA of it has"), 2);
        assert_eq!((w.nodes[1].engine.inbound.len(), w.nodes[1].engine.outbound.len()), (1, 1));
        // In an answer.
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA {
            true => ironswan_testkit::Verdict::Drop,
            false => ironswan_testkit::Verdict::Pass,
        }));
        w.rekey_child(0);
        w.run(10 * MS);
        let mut answer = body(child.spi_out);
        if let Payload::Sa(list) = &mut answer[0] {
            list[0].number = if p.protocol == ProtocolId::ESP { 1 } else { 2 };
        }
        w.inject(b, a, f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &answer));
        w.run(10 * MS);
        assert!(w.nodes[0].logged("which another CHILD_SA of it has"), "{p}");
        assert_eq!((w.nodes[0].engine.inbound.len(), w.nodes[0].engine.outbound.len()), (1, 1));
    }
}
