//! IKE_SAs with algorithms of old peers: every cipher with every integrity algorithm and PRF is
//! agreed on, rekeyed by both ends and used; IVs on the wire; rekeyings keep the PRF; and no
//! default takes any of them.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{EncrId, ExchangeType, IntegId, KeId, NotifyType, PrfId, ProtocolId};
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::ike::{HEADER_LEN, Message, Payload};
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

const SHA1: Option<PrfId> = Some(PrfId::HMAC_SHA1);
const CMAC: Option<PrfId> = Some(PrfId::AES128_CMAC);

/// Two proposals with nothing in common but the group; what is preferred comes first.
fn one_and_other(prefer_other: bool) -> [Proposal; 2] {
    let one = proposal(EncrId::DES3, None, IntegId::HMAC_SHA1_96, PrfId::HMAC_SHA1);
    let other = proposal(EncrId::AES_CTR, Some(128), IntegId::AES_XCBC_96, PrfId::AES128_CMAC);
    let [first, second] = if prefer_other { [other, one] } else { [one, other] };
    [first, Proposal { number: 2, ..second }]
}

/// Rekeys by these ends in turn; PRFs of the IKE_SA after each.
fn prfs_after(w: &mut World, ends: &[usize]) -> Vec<Option<PrfId>> {
    w.traffic = Some(100 * MS);
    let mut seen = Vec::new();
    for n in ends {
        w.rekey_ike(*n);
        w.run(8 * S);
        w.rekey_child(1);
        w.run(8 * S);
        w.assert_one();
        seen.push(w.up(0)[0].suite.map(|s| s.prf));
    }
    assert!(w.nodes.iter().all(|n| n.esp.0 > 100 && n.esp.1 == 0));
    seen
}

/// Each end prefers another suite, so that without more, each rekeying that another end begins
/// would change the PRF.
#[test]
fn a_rekeying_keeps_the_prf_that_both_ends_allow() {
    for (initiator, prf) in [(0, CMAC), (1, SHA1)] {
        let mut w = with(500, &one_and_other(false), &one_and_other(true));
        w.establish(initiator).unwrap();
        assert_eq!(prfs_after(&mut w, &[1, 0, 1, 0]), [prf; 4]);
    }
}

/// As before, where the PRFs are alternatives in one proposal.
#[test]
fn a_rekeying_keeps_a_prf_of_several_in_a_proposal() {
    let list = |prfs: [PrfId; 2]| {
        let mut p = proposal(EncrId::AES_CBC, Some(128), IntegId::HMAC_SHA1_96, prfs[0]);
        p.transforms.push(Transform::Prf(prfs[1]));
        [p]
    };
    let (sha1, cmac) = (PrfId::HMAC_SHA1, PrfId::AES128_CMAC);
    for (initiator, prf) in [(0, CMAC), (1, SHA1)] {
        let mut w = with(510, &list([sha1, cmac]), &list([cmac, sha1]));
        w.establish(initiator).unwrap();
        assert_eq!(prfs_after(&mut w, &[0, 1, 1, 0]), [prf; 4]);
    }
}

/// The peer, loaded anew, refuses the PRF that it has agreed to: it is asked again with all that we
/// allow, once.
#[test]
fn a_peer_that_takes_the_prf_no_more_is_offered_the_others() {
    let mut w = with(520, &one_and_other(false), &one_and_other(true));
    w.establish(0).unwrap();
    let (mut f, before) = (Forger::newest(&w.nodes[0]), w.up(0)[0].id);
    // As the peer: refuses. As we: something with the same message ID that changes nothing.
    w.net.rules.push(Box::new(|s| {
        let lost = s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA && s.mid == 2;
        if lost || s.exchange == ExchangeType::INFORMATIONAL { Verdict::Drop } else { Verdict::Pass }
    }));
    w.rekey_ike(0);
    w.run(100 * MS);
    let [a, b] = ["192.0.2.1:500", "192.0.2.2:500"].map(|text| text.parse::<SocketAddr>().unwrap());
    let no = [Payload::Notify(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN, []))];
    let nothing = f.message(true, ExchangeType::INFORMATIONAL, false, 2, &[]);
    let no = f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &no);
    w.inject(a, b, nothing);
    w.run(10 * MS);
    w.inject(b, a, no);
    w.run(100 * MS);
    let offers: Vec<Vec<Proposal>> = (w.net.log.iter())
        .filter(|(s, _)| s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA)
        .filter_map(|(_, p)| f.open(&p.payload))
        .filter_map(|(_, list)| {
            list.into_iter().find_map(|p| if let Payload::Sa(p) = p { Some(p) } else { None })
        })
        .collect();
    let prfs = |offer: &[Proposal]| -> Vec<Option<PrfId>> {
        let of = |t: &Transform| if let Transform::Prf(id) = t { Some(*id) } else { None };
        offer.iter().flat_map(|p| p.transforms.iter().filter_map(of)).map(Some).collect()
    };
    assert_eq!(offers.iter().map(|o| prfs(o)).collect::<Vec<_>>(), [vec![CMAC], vec![SHA1, CMAC]]);
    w.net.rules.clear();
    w.run(8 * S);
    w.assert_one();
    assert_ne!(w.up(0)[0].id, before);
    assert!(w.nodes[0].logged("does not take this PRF any more"));
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
