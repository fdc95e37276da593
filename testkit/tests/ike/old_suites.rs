//! IKE_SAs with algorithms of old peers: every cipher with every integrity algorithm and PRF is
//! agreed on, rekeyed by both ends and used; IVs on the wire; a change of the PRF; and no default
//! takes any of them.

use std::collections::HashSet;
use std::time::Duration;

use ironswan_testkit::{World, config};
use ironswan_wire::iana::{EncrId, ExchangeType, IntegId, KeId, PrfId, ProtocolId};
use ironswan_wire::ike::{HEADER_LEN, Message};
use ironswan_wire::proposal::{Proposal, Transform};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Cipher, key length on the wire, and length of its IV in bytes.
const CIPHERS: &[(EncrId, Option<u16>, usize)] = &[
    (EncrId::DES3, None, 8),
    (EncrId::AES_CTR, Some(128), 8),
    (EncrId::AES_CTR, Some(256), 8),
    (EncrId::AES_CBC, Some(128), 16),
];
const INTEGS: &[IntegId] = &[IntegId::HMAC_SHA1_96, IntegId::AES_XCBC_96, IntegId::AES_CMAC_96];
const PRFS: &[PrfId] = &[PrfId::HMAC_SHA1, PrfId::AES128_XCBC, PrfId::AES128_CMAC];

fn proposal(encr: EncrId, bits: Option<u16>, integ: IntegId, prf: PrfId) -> Proposal {
    let ke = Transform::Ke(KeId::CURVE_25519);
    let transforms = vec![Transform::Encr(encr, bits), Transform::Integ(integ), Transform::Prf(prf), ke];
    Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
}

/// A world with these proposals for the IKE_SA at both ends.
fn with(seed: u64, ours: &[Proposal], theirs: &[Proposal]) -> World {
    World::pair(seed, |c| {
        c[0].proposals = ours.to_vec();
        c[1].proposals = theirs.to_vec();
    })
}

/// IVs of the messages with an SK payload that a node has sent, in order.
fn ivs(w: &World, node: usize, len: usize) -> Vec<Vec<u8>> {
    let sealed = |payload: &[u8]| {
        let payload = payload.strip_prefix(&[0; 4]).unwrap_or(payload).to_vec();
        let exchange = Message::parse(&payload).ok()?.header.exchange;
        let at = HEADER_LEN + 4;
        (exchange != ExchangeType::IKE_SA_INIT).then(|| payload[at..at + len].to_vec())
    };
    w.net.log.iter().filter(|(s, _)| s.node == node).filter_map(|(_, p)| sealed(&p.payload)).collect()
}

#[test]
fn every_old_suite_makes_an_ike_sa_that_both_ends_rekey() {
    let mut seed = 300;
    for (encr, bits, _) in CIPHERS {
        for integ in INTEGS {
            for prf in PRFS {
                let p = [proposal(*encr, *bits, *integ, *prf)];
                let mut w = with(seed, &p, &p);
                w.traffic = Some(100 * MS);
                w.establish((seed % 2) as usize).unwrap_or_else(|e| panic!("{}: {e}", p[0]));
                for n in [1, 0, 1] {
                    w.rekey_ike(n);
                    w.run(8 * S);
                    w.rekey_child(1 - n);
                    w.run(8 * S);
                    w.assert_one();
                }
                for n in 0..2 {
                    let suite = w.up(n)[0].suite.expect("a suite");
                    assert_eq!((suite.encr, suite.integ, suite.prf), (*encr, Some(*integ), *prf));
                    assert!(w.nodes[n].esp.0 > 100 && w.nodes[n].esp.1 == 0, "{}", p[0]);
                }
                w.terminate(0, true);
                w.run(S);
                w.audit();
                seed += 1;
            }
        }
    }
}

/// CBC needs IVs that nobody foresees (RFC 7296 section 3.14), also where they have 8 bytes; those
/// of AES-CTR must not repeat under one key (RFC 5930 section 2.1).
#[test]
fn ivs_of_cbc_are_random_and_those_of_ctr_never_repeat_under_a_key() {
    for (encr, bits, len) in CIPHERS {
        let p = [proposal(*encr, *bits, IntegId::HMAC_SHA1_96, PrfId::HMAC_SHA1)];
        let mut w = with(400, &p, &p);
        w.establish(0).unwrap();
        for _ in 0..20 {
            w.rekey_child(0);
            w.run(8 * S);
        }
        for node in 0..2 {
            let ivs = ivs(&w, node, *len);
            assert!(ivs.len() > 20, "{} messages", ivs.len());
            assert_eq!(ivs.iter().collect::<HashSet<_>>().len(), ivs.len(), "{encr}: an IV twice");
            // A counter differs from the one before in its last byte alone.
            let steps = ivs.windows(2).filter(|pair| pair[0][..len - 2] == pair[1][..len - 2]).count();
            let counted = *encr == EncrId::AES_CTR;
            assert_eq!(steps, if counted { ivs.len() - 1 } else { 0 }, "{encr}");
        }
    }
}

/// Each end prefers another suite, and the responder's choice holds: the PRF is another one after
/// each rekeying that another end begins.
#[test]
fn a_rekeying_may_change_the_prf() {
    let one = proposal(EncrId::DES3, None, IntegId::HMAC_SHA1_96, PrfId::HMAC_SHA1);
    let other = proposal(EncrId::AES_CTR, Some(128), IntegId::AES_XCBC_96, PrfId::AES128_CMAC);
    let other = Proposal { number: 2, ..other };
    let both = [one.clone(), other.clone()];
    let reversed = [Proposal { number: 1, ..other }, Proposal { number: 2, ..one }];
    let mut w = with(500, &both, &reversed);
    w.traffic = Some(100 * MS);
    w.establish(0).unwrap();
    let mut seen = Vec::new();
    for n in [1, 0, 1, 0] {
        w.rekey_ike(n);
        w.run(8 * S);
        w.rekey_child(1);
        w.run(8 * S);
        w.assert_one();
        seen.push(w.up(0)[0].suite.map(|s| s.prf));
    }
    let (sha1, cmac) = (Some(PrfId::HMAC_SHA1), Some(PrfId::AES128_CMAC));
    assert_eq!(seen, [sha1, cmac, sha1, cmac]);
    assert!(w.nodes.iter().all(|n| n.esp.0 > 100 && n.esp.1 == 0));
}

#[test]
fn nobody_who_does_not_name_an_old_algorithm_takes_it() {
    let usual = config::ike_proposal_cbc(&[KeId::CURVE_25519]);
    for p in [
        proposal(EncrId::DES3, None, IntegId::HMAC_SHA2_256_128, PrfId::HMAC_SHA2_256),
        proposal(EncrId::AES_CTR, Some(128), IntegId::HMAC_SHA2_256_128, PrfId::HMAC_SHA2_256),
        proposal(EncrId::AES_CBC, Some(128), IntegId::HMAC_SHA1_96, PrfId::HMAC_SHA2_256),
        proposal(EncrId::AES_CBC, Some(128), IntegId::HMAC_SHA2_256_128, PrfId::HMAC_SHA1),
        proposal(EncrId::AES_CBC, Some(128), IntegId::HMAC_SHA2_256_128, PrfId::AES128_XCBC),
    ] {
        let mut w = with(600, std::slice::from_ref(&p), std::slice::from_ref(&usual));
        assert!(w.establish(0).is_err(), "{p}");
    }
}
