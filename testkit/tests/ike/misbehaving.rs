//! Bad input from a peer that is authenticated and misbehaves. Node 0 is the initiator, and its
//! messages are forged.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_keying::Limits;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, Nonce, Notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::Spi;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn a() -> SocketAddr {
    addr("192.0.2.1:500")
}

fn b() -> SocketAddr {
    addr("192.0.2.2:500")
}

/// A world with an IKE_SA, and the forger of both its ends.
fn up(seed: u64) -> (World, Forger) {
    let mut w = World::pair(seed, |_| {});
    w.establish(0).unwrap();
    w.assert_one();
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

/// Sends a request as node 0 (whose next ID is 2) and gives node 1's answer.
fn ask(
    w: &mut World,
    f: &mut Forger,
    exchange: ExchangeType,
    mid: u32,
    payloads: &[Payload],
) -> Option<Vec<Payload>> {
    let bytes = f.message(true, exchange, false, mid, payloads);
    answer_to(w, f, bytes)
}

fn answer_to(w: &mut World, f: &Forger, bytes: Vec<u8>) -> Option<Vec<Payload>> {
    let before = w.net.log.len();
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    w.net.log[before..]
        .iter()
        .filter(|(s, _)| s.node == 1 && s.response)
        .find_map(|(_, p)| f.open(&p.payload))
        .map(|(_, p)| p)
}

fn kinds(payloads: &[Payload]) -> Vec<NotifyType> {
    payloads.iter().filter_map(|p| if let Payload::Notify(n) = p { Some(n.kind) } else { None }).collect()
}

fn proposal(spi: u32, kes: &[KeId]) -> Payload {
    Payload::Sa(vec![Proposal { spi: spi.to_be_bytes().to_vec(), ..config::esp_proposal(kes) }])
}

fn ts(w: &World) -> [Payload; 2] {
    let c = w.child(0);
    [Payload::TsI(c.local_ts), Payload::TsR(c.remote_ts)]
}

#[test]
fn rekeying_what_is_not_there_is_answered_and_harms_nothing() {
    let (mut w, mut f) = up(20);
    let ours = w.child(0);
    let mut mid = 2;
    let mut refused = |w: &mut World, protocol, spi: Vec<u8>| {
        let n = Notify { protocol, spi, kind: NotifyType::REKEY_SA, data: Vec::new() };
        let [tsi, tsr] = ts(w);
        let nonce = Payload::Nonce(Nonce(vec![1; 32]));
        let p = [Payload::Notify(n), proposal(0xc111_1111, &[]), nonce, tsi, tsr];
        let answer = ask(w, &mut f, ExchangeType::CREATE_CHILD_SA, mid, &p).expect("an answer");
        mid += 1;
        kinds(&answer)
    };
    let good = ours.spi_in.0.to_be_bytes().to_vec();
    for protocol in [0, 1, 2, 4, 255] {
        assert_eq!(refused(&mut w, ProtocolId(protocol), good.clone()), [NotifyType::CHILD_SA_NOT_FOUND]);
    }
    for spi in [vec![], vec![1], vec![0; 3], vec![0; 8], vec![7; 255], vec![9, 9, 9, 9]] {
        assert_eq!(refused(&mut w, ProtocolId::ESP, spi), [NotifyType::CHILD_SA_NOT_FOUND]);
    }
    // The SPI of the wrong direction.
    let wrong = ours.spi_out.0.to_be_bytes().to_vec();
    assert_eq!(refused(&mut w, ProtocolId::ESP, wrong), [NotifyType::CHILD_SA_NOT_FOUND]);
    assert_eq!(w.nodes[1].engine.inbound.len(), 1);
    // Twice the same, before deleting it: the second is refused.
    assert!(refused(&mut w, ProtocolId::ESP, good.clone()).is_empty());
    assert_eq!(refused(&mut w, ProtocolId::ESP, good), [NotifyType::TEMPORARY_FAILURE]);
    assert_eq!(w.nodes[1].engine.inbound.len(), 2);
}

#[test]
fn deletes_of_all_kinds() {
    let (mut w, mut f) = up(22);
    let ours = w.child(0);
    let info = ExchangeType::INFORMATIONAL;
    let esp = |spis: &[Spi]| Payload::Delete(Delete::children(ProtocolId::ESP, spis.iter().copied()));
    // Unknown, of the other direction, of another protocol: an empty answer.
    for (i, p) in [
        esp(&[Spi(0x1234_5678)]),
        esp(&[ours.spi_out]),
        Payload::Delete(Delete::children(ProtocolId::AH, [ours.spi_in])),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(ask(&mut w, &mut f, info, 2 + i as u32, &[p]).unwrap(), []);
    }
    w.assert_one();
    // The same SPI twice in one payload, and a second payload: once.
    let twice = [esp(&[ours.spi_in, ours.spi_in]), esp(&[ours.spi_in])];
    assert_eq!(ask(&mut w, &mut f, info, 5, &twice).unwrap(), [esp(&[ours.spi_out])]);
    assert!(w.up(1)[0].children.is_empty() && w.nodes[1].engine.inbound.is_empty());
    // Two thousand.
    let many: Vec<_> = (0..2_000).map(Spi).collect();
    assert_eq!(ask(&mut w, &mut f, info, 6, &[esp(&many)]).unwrap(), []);
    // The IKE_SA and then more in the same message.
    let end = [
        Payload::Delete(Delete::ike_sa()),
        Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT, [])),
        esp(&[ours.spi_in]),
    ];
    assert_eq!(ask(&mut w, &mut f, info, 7, &end).unwrap(), []);
    assert!(w.nodes[1].sas(w.now()).is_empty());
    // The answer to the last is kept for when it comes again, and for that message only.
    let again = f.message(true, info, false, 7, &[]);
    assert!(answer_to(&mut w, &f, again).is_none());
}

#[test]
fn message_ids_out_of_turn_are_passed_over() {
    let (mut w, mut f) = up(23);
    let info = ExchangeType::INFORMATIONAL;
    for mid in [0, 1, 3, 4, 2 + (1 << 31), u32::MAX] {
        let bytes = f.message(true, info, false, mid, &[Payload::Delete(Delete::ike_sa())]);
        assert!(answer_to(&mut w, &f, bytes).is_none(), "ID {mid}");
    }
    assert_eq!(ask(&mut w, &mut f, info, 2, &[]).unwrap(), []);
    let other = f.message(true, info, false, 2, &[Payload::Delete(Delete::ike_sa())]);
    assert!(answer_to(&mut w, &f, other).is_none(), "the same ID with other content");
    // Responses to nothing.
    for mid in 0..5 {
        let bytes = f.message(true, info, true, mid, &[Payload::Delete(Delete::ike_sa())]);
        assert!(answer_to(&mut w, &f, bytes).is_none());
    }
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn what_is_authentic_and_cannot_be_read_ends_the_ike_sa_and_an_unknown_critical_payload_does_not() {
    let (mut w, mut f) = up(25);
    let info = ExchangeType::INFORMATIONAL;
    for kind in [1, 32, 49, 255] {
        let other = |critical| Payload::Other { kind: PayloadType(kind), critical, body: vec![1, 2, 3] };
        let mid = 2 + 2 * [1, 32, 49, 255].iter().position(|k| *k == kind).unwrap() as u32;
        assert_eq!(ask(&mut w, &mut f, info, mid, &[other(false)]).unwrap(), []);
        let answer = ask(&mut w, &mut f, info, mid + 1, &[other(true)]).unwrap();
        let unsupported = Notify::new(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [kind]);
        assert_eq!(answer, [Payload::Notify(unsupported)]);
    }
    w.assert_one();
    let bytes = f.raw(true, info, false, 10, PayloadType::DELETE, &[0, 0, 0, 200, 3]);
    let answer = answer_to(&mut w, &f, bytes).unwrap();
    assert_eq!(kinds(&answer), [NotifyType::INVALID_SYNTAX]);
    assert!(w.nodes[1].sas(w.now()).is_empty());
    assert!(w.nodes[1].engine.inbound.is_empty() && w.nodes[1].engine.policies.is_empty());
}

#[test]
fn an_answer_outside_of_what_was_asked_is_refused_and_the_peer_told() {
    for bad in ["wider", "unasked", "two", "reserved"] {
        let (mut w, mut f) = up(26);
        let old = w.child(1);
        // Node 0 rekeys; node 1 does not hear of it, and the answer is forged.
        w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
        w.rekey_child(0);
        w.run(20 * MS);
        let c = w.child(0);
        let (mut tsi, tsr) = (c.local_ts.clone(), c.remote_ts.clone());
        let mut answer = Proposal { spi: vec![0xc9, 9, 9, 9], ..config::esp_proposal(&[]) };
        match bad {
            "wider" => tsi = tsr.clone(),
            "unasked" => answer = Proposal { spi: answer.spi, ..config::esp_proposal(&[KeId::ECP_256]) },
            "reserved" => answer.spi = vec![0, 0, 0, 1],
            _ => {}
        }
        let mut list = vec![answer.clone()];
        if bad == "two" {
            list.push(Proposal { number: 2, ..answer });
        }
        let nonce = Payload::Nonce(Nonce(vec![2; 32]));
        let p = [Payload::Sa(list), nonce, Payload::TsI(tsi), Payload::TsR(tsr)];
        let bytes = f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &p);
        w.net.rules.clear();
        w.inject(b(), a(), bytes);
        w.run(MS);
        assert_eq!(w.child(0).spi_in, old.spi_out, "{bad}: the old one stands");
        assert_eq!(w.nodes[0].engine.inbound.len(), 1);
        let told =
            w.net.log.iter().rev().find_map(|(s, p)| (s.node == 0).then(|| f.open(&p.payload)).flatten());
        let (_, payloads) = told.unwrap();
        assert!(matches!(payloads[..], [Payload::Delete(_)]), "{bad}: {payloads:?}");
    }
}

#[test]
fn children_without_end_meet_a_limit() {
    let limits = Limits { child_sa_max: 10, ..Limits::default() };
    let mut w = World::pair_at(27, a().ip(), b().ip(), limits, |_| {});
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let [tsi, tsr] = ts(&w);
    for n in 0..20 {
        let nonce = Payload::Nonce(Nonce(vec![1; 32]));
        let p = [proposal(0xc111_0000 + n, &[]), nonce, tsi.clone(), tsr.clone()];
        let answer = ask(&mut w, &mut f, ExchangeType::CREATE_CHILD_SA, 2 + n, &p).unwrap();
        assert_eq!(kinds(&answer).contains(&NotifyType::NO_ADDITIONAL_SAS), n >= 9, "{n}");
    }
    assert_eq!(w.up(1)[0].children.len(), 10);
    assert_eq!(w.nodes[1].engine.policies.len(), 1);
}

#[test]
fn a_message_from_another_address_does_not_move_a_peer_that_is_not_behind_nat() {
    let (mut w, mut f) = up(28);
    let bytes = f.message(true, ExchangeType::INFORMATIONAL, false, 2, &[]);
    w.inject(addr("198.51.100.5:500"), b(), bytes);
    w.run(50 * MS);
    assert_eq!(w.up(1)[0].remote, a());
    let (_, p) = w.net.log.last().unwrap();
    assert_eq!(p.to, addr("198.51.100.5:500"), "the answer goes to where the request came from");
}

#[test]
fn what_is_not_authentic_does_not_move_a_peer_behind_nat() {
    let mut w = World::pair(29, |c| c[0].encap = true);
    w.establish(0).unwrap();
    assert!(w.up(1)[0].nat_remote);
    let mut f = Forger::newest(&w.nodes[0]);
    let elsewhere = addr("198.51.100.5:4500");
    let marked = |bytes: Vec<u8>| [vec![0; 4], bytes].concat();
    let to = addr("192.0.2.2:4500");
    let mut bad = f.message(true, ExchangeType::INFORMATIONAL, false, 2, &[]);
    *bad.last_mut().unwrap() ^= 1;
    w.inject(elsewhere, to, marked(bad));
    // Authentic, and a replay: neither is the last valid packet.
    let old = w.net.log.iter().rfind(|(s, _)| s.node == 0).unwrap().1.payload.clone();
    w.inject(elsewhere, to, old);
    w.run(50 * MS);
    assert_eq!(w.up(1)[0].remote, addr("192.0.2.1:4500"));
    let good = f.message(true, ExchangeType::INFORMATIONAL, false, 2, &[]);
    w.inject(elsewhere, to, marked(good));
    w.run(50 * MS);
    assert_eq!(w.up(1)[0].remote, elsewhere);
    assert_eq!(w.nodes[1].engine.outbound[0].remote, elsewhere);
}

/// Node 0 rekeys its child, and so does its peer, which is played by hand: its request comes first,
/// with the lowest nonce of all, so that node 0 wins. Gives node 0's SPIs of its own new child and
/// of the peer's.
fn won_by_node_0(w: &mut World, f: &mut Forger) -> (Vec<u8>, Spi) {
    w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
    let old = w.child(0);
    w.rekey_child(0);
    w.run(20 * MS);
    let (_, p) = w.net.log.last().unwrap().clone();
    let (_, request) = f.open(&p.payload).unwrap();
    let mine = request
        .iter()
        .find_map(|p| if let Payload::Sa(l) = p { Some(l[0].spi.clone()) } else { None })
        .unwrap();
    let rekey = Payload::Notify(Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, old.spi_out.0));
    let nonce = Payload::Nonce(Nonce(vec![0; 32]));
    let (tsi, tsr) = (Payload::TsI(old.remote_ts.clone()), Payload::TsR(old.local_ts.clone()));
    let p = [rekey, proposal(0xc777_7777, &[]), nonce, tsi, tsr];
    w.inject(b(), a(), f.message(false, ExchangeType::CREATE_CHILD_SA, false, 0, &p));
    w.run(20 * MS);
    assert!(w.nodes[0].logged("CHILD_SA rekey collision detected"));
    let theirs = w.up(0)[0].children.iter().find(|c| c.spi_out == Spi(0xc777_7777)).unwrap().spi_in;
    (mine, theirs)
}

/// The answer to node 0's rekeying, played by hand.
fn answer_rekeying(w: &mut World, f: &mut Forger) {
    let old = &w.up(0)[0].children[0];
    let (tsi, tsr) = (Payload::TsI(old.local_ts.clone()), Payload::TsR(old.remote_ts.clone()));
    let p = [proposal(0xc888_8888, &[]), Payload::Nonce(Nonce(vec![255; 32])), tsi, tsr];
    w.inject(b(), a(), f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &p));
    w.run(20 * MS);
}

/// The SPIs that node 0 has sent DELETEs for, retransmissions once.
fn deleted(w: &World, f: &Forger) -> Vec<Spi> {
    let mut spis = Vec::new();
    for (s, p) in &w.net.log {
        if let (0, false, Some((_, payloads))) = (s.node, s.response, f.open(&p.payload)) {
            for p in payloads {
                if let Payload::Delete(d) = p {
                    spis.extend(d.child_spis().filter(|s| !spis.contains(s)).collect::<Vec<_>>());
                }
            }
        }
    }
    spis
}

#[test]
fn a_redundant_child_that_the_peer_forgets_is_deleted() {
    let (mut w, mut f) = up(30);
    let old = w.child(0).spi_in;
    let (_, theirs) = won_by_node_0(&mut w, &mut f);
    answer_rekeying(&mut w, &mut f);
    assert!(w.nodes[0].logged("CHILD_SA rekey collision won"));
    assert_eq!(deleted(&w, &f), [old]);
    w.inject(b(), a(), f.message(false, ExchangeType::INFORMATIONAL, true, 3, &[]));
    w.run(11 * S);
    assert_eq!(deleted(&w, &f), [old, theirs]);
    w.inject(b(), a(), f.message(false, ExchangeType::INFORMATIONAL, true, 4, &[]));
    w.run(S);
    assert_eq!(w.child(0).spi_out, Spi(0xc888_8888));
    assert_eq!((w.nodes[0].engine.inbound.len(), w.nodes[0].engine.outbound.len()), (1, 1));
}

#[test]
fn a_peer_that_has_settled_on_its_own_child_is_followed_whatever_the_nonces_say() {
    let (mut w, mut f) = up(31);
    let old = w.child(0);
    let (mine, theirs) = won_by_node_0(&mut w, &mut f);
    let delete = Payload::Delete(Delete::children(ProtocolId::ESP, [old.spi_out]));
    w.inject(b(), a(), f.message(false, ExchangeType::INFORMATIONAL, false, 1, &[delete]));
    w.run(20 * MS);
    assert_eq!(w.nodes[0].engine.sending().unwrap().spi, Spi(0xc777_7777));
    answer_rekeying(&mut w, &mut f);
    let mine = Spi(u32::from_be_bytes(mine.try_into().unwrap()));
    assert_eq!(deleted(&w, &f), [mine], "ours is given up, for nobody would delete the peer's");
    w.inject(b(), a(), f.message(false, ExchangeType::INFORMATIONAL, true, 3, &[]));
    w.run(20 * S);
    assert_eq!((w.child(0).spi_in, w.child(0).spi_out), (theirs, Spi(0xc777_7777)));
    assert_eq!((w.nodes[0].engine.inbound.len(), w.nodes[0].engine.outbound.len()), (1, 1));
}

#[test]
fn a_child_that_one_message_deletes_a_thousand_times_is_written_about_once() {
    let mut w = World::pair(51, |_| {});
    w.establish(0).unwrap();
    let spi = w.child(0).spi_in;
    // Node 1 deletes the child and is not answered.
    w.net.mute.insert(0);
    w.terminate(1, true);
    w.run(S);
    let before = w.nodes[1].log.len();
    let delete = Payload::Delete(Delete::children(ProtocolId::ESP, vec![spi; 1_000]));
    let from = w.up(1)[0].remote;
    let mut forger = Forger::newest(&w.nodes[0]);
    let bytes = forger.message(true, ExchangeType::INFORMATIONAL, false, 2, &[delete]);
    let now = w.now();
    w.nodes[1].endpoint.call(now, |e| e.handle_datagram(now, b(), from, &bytes));
    assert_eq!(w.nodes[1].drain(now).len(), 1, "it is answered");
    assert_eq!(w.nodes[1].count_logged("received DELETE for"), 1);
    assert!(w.nodes[1].log.len() - before < 10);
    w.net.mute.clear();
    w.run(200 * S);
    assert!(w.nodes.iter().all(|n| n.engine.inbound.is_empty() && n.engine.outbound.is_empty()));
    w.audit();
}
