//! RFC 7296, exchange by exchange, with a peer that is played by hand: what may be in a message,
//! what its answer must be, and what a message of the other side must not lead to.
//! `docs/rfc/audit.md` says which rule each test holds.
//!
//! The same about floods and forgers is in `hostile`, about both sides acting at once in
//! `collision`.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::IkeState;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::payload::{Delete, Nonce, Notify, VendorId};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::Mode;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const CREATE: ExchangeType = ExchangeType::CREATE_CHILD_SA;
pub(crate) const INFO: ExchangeType = ExchangeType::INFORMATIONAL;

pub(crate) fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

pub(crate) fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

pub(crate) fn other(node: usize) -> usize {
    1 - node
}

pub(crate) fn at(node: usize) -> SocketAddr {
    [a(), b()][node]
}

/// A world with an IKE_SA that node 0 has begun, and the forger of both its ends.
pub(crate) fn up(seed: u64) -> (World, Forger) {
    let mut w = World::pair(seed, |_| {});
    w.establish(0).unwrap();
    w.assert_one();
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

/// Loses what this node sends from now on.
pub(crate) fn silence(w: &mut World, node: usize) {
    w.net.rules.push(Box::new(move |s| if s.node == node { Verdict::Drop } else { Verdict::Pass }));
}

/// The last message of this node that `f` can open.
pub(crate) fn last_of(w: &World, f: &Forger, node: usize) -> Option<(Header, Vec<Payload>)> {
    w.net.log.iter().rev().filter(|(s, _)| s.node == node).find_map(|(_, p)| f.open(&p.payload))
}

/// Gives node `to` a message of the other side, and returns its answer.
pub(crate) fn answer_to(w: &mut World, f: &Forger, to: usize, bytes: Vec<u8>) -> Option<Vec<Payload>> {
    let before = w.net.log.len();
    w.inject(at(other(to)), at(to), bytes);
    w.run(100 * MS);
    let answers = w.net.log[before..].iter().filter(|(s, _)| s.node == to && s.response);
    answers.filter_map(|(_, p)| f.open(&p.payload)).map(|(_, p)| p).next()
}

/// A request of node 0, the initiator, to node 1.
pub(crate) fn ask(
    w: &mut World,
    f: &mut Forger,
    exchange: ExchangeType,
    mid: u32,
    payloads: &[Payload],
) -> Option<Vec<Payload>> {
    let bytes = f.message(true, exchange, false, mid, payloads);
    answer_to(w, f, 1, bytes)
}

pub(crate) fn notify(kind: u16) -> Payload {
    Payload::Notify(Notify::new(NotifyType(kind), []))
}

pub(crate) fn kinds(payloads: &[Payload]) -> Vec<NotifyType> {
    payloads.iter().filter_map(|p| if let Payload::Notify(n) = p { Some(n.kind) } else { None }).collect()
}

/// Types of the payloads, without notifications.
pub(crate) fn types(payloads: &[Payload]) -> Vec<PayloadType> {
    payloads.iter().map(Payload::kind).filter(|k| *k != PayloadType::NOTIFY).collect()
}

pub(crate) fn esp(spi: u32) -> Payload {
    Payload::Sa(vec![Proposal { spi: spi.to_be_bytes().to_vec(), ..config::esp_proposal(&[]) }])
}

pub(crate) fn ts(text: &str) -> TrafficSelector {
    let (addr, len) = text.split_once('/').unwrap();
    TrafficSelector::addresses(AddrRange::prefix(config::ip(addr), len.parse().unwrap()).unwrap())
}

/// All that node 1 says when it agrees to what node 0 has asked for last: its own child, or
/// rekeying.
pub(crate) fn agreement(w: &World, spi: u32) -> Vec<Payload> {
    let c = w.child(0);
    vec![esp(spi), Payload::Nonce(Nonce(vec![9; 32])), Payload::TsI(c.local_ts), Payload::TsR(c.remote_ts)]
}
/// Runs IKE_SA_INIT and loses the IKE_AUTH message of this node. What it says, and the forger.
pub(crate) fn at_ike_auth(seed: u64, of: usize) -> (World, Forger, Vec<Payload>) {
    let mut w = World::pair(seed, |_| {});
    w.net.rules.push(Box::new(move |s| {
        if s.node == of && s.exchange == ExchangeType::IKE_AUTH { Verdict::Drop } else { Verdict::Pass }
    }));
    w.initiate(0);
    w.run(100 * MS);
    let f = Forger::newest(&w.nodes[0]);
    let (header, payloads) = last_of(&w, &f, of).unwrap();
    assert_eq!((header.exchange, header.message_id), (ExchangeType::IKE_AUTH, 1));
    (w, f, payloads)
}

#[test]
fn payloads_come_in_the_order_of_the_figures() {
    use PayloadType as T;
    let mut w = World::pair(1, |c| {
        c.iter_mut().for_each(|c| c.children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])]);
    });
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    let old = w.child(0);
    w.rekey_child(0);
    w.run(10 * S);
    w.rekey_ike(0);
    w.run(10 * S);
    w.assert_one();
    let (mut seen, mut rekeyed) = (Vec::new(), false);
    for (s, p) in &w.net.log {
        let clear = s.exchange == ExchangeType::IKE_SA_INIT;
        let read = match clear {
            true => Message::parse(&p.payload).ok().map(|m| (m.header, m.payloads)),
            false => f.open(&p.payload),
        };
        let Some((header, payloads)) = read else { continue };
        // "MUST set the major version to 2", the minor to 0; V and all that is reserved is cleared.
        assert_eq!(header.version.0, 0x20);
        assert_eq!(header.flags.0 & !(Flags::INITIATOR | Flags::RESPONSE), 0);
        assert_eq!(header.flags.initiator(), s.node == 0);
        assert_eq!((header.initiator_spi != 0, header.responder_spi == 0), (true, clear && !s.response));
        let wanted: &[T] = match (s.exchange, s.response, s.mid) {
            (ExchangeType::IKE_SA_INIT, ..) => &[T::SA, T::KE, T::NONCE],
            (ExchangeType::IKE_AUTH, false, _) => &[T::IDI, T::IDR, T::AUTH, T::SA, T::TSI, T::TSR],
            (ExchangeType::IKE_AUTH, true, _) => &[T::IDR, T::AUTH, T::SA, T::TSI, T::TSR],
            (CREATE, _, 2) => &[T::SA, T::NONCE, T::KE, T::TSI, T::TSR],
            (CREATE, ..) => &[T::SA, T::NONCE, T::KE],
            _ => continue,
        };
        assert_eq!(types(&payloads), wanted, "{s:?}");
        for p in &payloads {
            let Payload::Notify(n) = p else { continue };
            let (of_child, none) = (n.kind == NotifyType::REKEY_SA, ProtocolId::NONE);
            assert!(of_child || (n.protocol == none && n.spi.is_empty()), "{n:?} concerns no child");
        }
        // Behind each "next payload" stands a byte with the critical flag and reserved bits.
        let mut chain = match clear {
            true => p.payload[28..].to_vec(),
            false => f.plain(&p.payload).unwrap().2,
        };
        while !chain.is_empty() {
            assert_eq!(chain[1], 0, "{s:?}: critical, or reserved");
            chain.drain(..usize::from(u16::from_be_bytes([chain[2], chain[3]])));
        }
        // The SPI is in the header first, then 8 bytes for an IKE_SA, and 4 for a child; proposals
        // are numbered from 1.
        let Some(Payload::Sa(list)) = payloads.iter().find(|p| p.kind() == T::SA) else { panic!() };
        let spi = match (s.exchange, s.mid) {
            (ExchangeType::IKE_SA_INIT, _) => 0,
            (CREATE, 4) => 8,
            _ => 4,
        };
        assert!(list.iter().all(|p| p.spi.len() == spi), "{s:?}: {list:?}");
        assert!(list.iter().zip(1..).all(|(p, n)| p.number == n), "{list:?}");
        if s.exchange == ExchangeType::IKE_AUTH {
            let Some(Payload::Sa(list)) = payloads.iter().find(|p| p.kind() == T::SA) else { panic!() };
            let any_ke = list.iter().flat_map(|p| &p.transforms).any(|t| matches!(t, Transform::Ke(_)));
            assert!(!any_ke, "the first child has no key exchange of its own: {list:?}");
        }
        if (s.exchange, s.response, s.mid) == (CREATE, false, 2) {
            let rekey = Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, old.spi_in.0);
            assert_eq!(payloads[0], Payload::Notify(rekey), "the SPI that the sender receives with");
            rekeyed = true;
        }
        seen.push((s.exchange, s.response));
    }
    assert!(rekeyed && seen.len() == 8, "{seen:?}");
}

#[test]
fn an_error_in_a_response_means_that_nothing_was_made_whatever_else_is_in_it() {
    // 8,191 is nobody's.
    for kind in [8_191, NotifyType::NO_PROPOSAL_CHOSEN.0] {
        let (mut w, mut f) = up(2);
        let old = w.child(0);
        silence(&mut w, 0);
        w.rekey_child(0);
        w.run(20 * MS);
        // Protocol and SPI mean nothing here, and are ignored.
        let n = Notify { protocol: ProtocolId(77), spi: vec![1; 5], ..Notify::new(NotifyType(kind), []) };
        let answer = [agreement(&w, 0xc999_9999), vec![Payload::Notify(n)]].concat();
        w.inject(b(), a(), f.message(false, CREATE, true, 2, &answer));
        w.run(20 * MS);
        assert_eq!(w.child(0).spi_in, old.spi_in, "{kind}: the old one stands");
        assert_eq!(w.nodes[0].engine.inbound.len(), 1, "{kind}");
        let (header, payloads) = last_of(&w, &f, 0).unwrap();
        assert_eq!(header.message_id, 2, "there is nothing to delete: {payloads:?}");
    }
    // The same of an IKE_SA's rekeying.
    let (mut w, mut f) = up(3);
    let old = w.up(0)[0].clone();
    silence(&mut w, 0);
    w.rekey_ike(0);
    w.run(20 * MS);
    let (_, request) = last_of(&w, &f, 0).unwrap();
    let mut answer: Vec<Payload> = request
        .into_iter()
        .map(|p| match p {
            Payload::Sa(list) => Payload::Sa(vec![Proposal { spi: vec![9; 8], ..list[0].clone() }]),
            Payload::Nonce(_) => Payload::Nonce(Nonce(vec![9; 32])),
            ke => ke,
        })
        .collect();
    answer.push(notify(8_191));
    w.inject(b(), a(), f.message(false, CREATE, true, 2, &answer));
    w.run(20 * MS);
    assert_eq!(w.up(0)[0].spi_i, old.spi_i);
    assert!(w.nodes[0].logged("IKE_SA rekeying failed"), "{:?}", w.nodes[0].log.last());
}

#[test]
fn status_notifications_that_nobody_knows_change_nothing() {
    let (mut w, mut f) = up(4);
    // In requests, unknown errors too.
    let unknown = [notify(8_191), notify(16_383), notify(40_000), notify(65_535)];
    assert_eq!(ask(&mut w, &mut f, INFO, 2, &unknown).unwrap(), []);
    let request = [&agreement(&w, 0xc111_1111)[..], &unknown].concat();
    let answer = ask(&mut w, &mut f, CREATE, 3, &request).unwrap();
    assert_eq!(kinds(&answer), []);
    assert_eq!(types(&answer).len(), 4);
    // In a response, and with them an answer to USE_TRANSPORT_MODE that nobody has asked for, and a
    // window that we need not use.
    let (mut w, mut f) = up(5);
    silence(&mut w, 0);
    w.rekey_child(0);
    w.run(20 * MS);
    let extra = vec![notify(40_000), notify(NotifyType::USE_TRANSPORT_MODE.0), notify(65_535)];
    let answer = [agreement(&w, 0xc999_9999), extra].concat();
    w.inject(b(), a(), f.message(false, CREATE, true, 2, &answer));
    w.run(20 * MS);
    let engine = &w.nodes[0].engine;
    assert!(engine.outbound.iter().any(|sa| sa.spi.0 == 0xc999_9999 && sa.mode == Mode::Tunnel));
}

#[test]
fn deletes_that_cross_name_nothing_and_take_the_outbound_sa_at_once() {
    let (mut w, mut f) = up(12);
    let child = w.child(0);
    silence(&mut w, 0);
    w.terminate(0, true);
    w.run(20 * MS);
    assert_eq!(
        last_of(&w, &f, 0).unwrap().1,
        [Payload::Delete(Delete::children(ProtocolId::ESP, [child.spi_in]))]
    );
    // Node 1 has decided the same; its request comes before its answer.
    let theirs = Payload::Delete(Delete::children(ProtocolId::ESP, [child.spi_out]));
    let request = f.message(false, INFO, false, 0, &[theirs]);
    assert_eq!(answer_to(&mut w, &f, 0, request).unwrap(), [], "the answer names no SA");
    let e = &w.nodes[0].engine;
    assert_eq!(
        (e.outbound.len(), e.inbound.len()),
        (0, 1),
        "outbound with the request, inbound with the response"
    );
    w.inject(b(), a(), f.message(false, INFO, true, 2, &[]));
    w.run(20 * MS);
    assert!(w.nodes[0].engine.inbound.is_empty());
    assert_eq!((w.up(0).len(), w.up(0)[0].children.len()), (1, 0));
}

#[test]
fn the_first_selectors_decide_which_child_it_is() {
    for (packet, wanted) in [("10.2.1.7/32", "10.2.1.0/24"), ("10.2.2.7/32", "10.2.2.0/24")] {
        let mut w = World::pair(13, |c| {
            c[1].children = vec![
                config::child("one", "10.2.1.0/24", "10.1.0.0/24"),
                config::child("two", "10.2.2.0/24", "10.1.0.0/24"),
            ];
            c[0].children[0].remote_ts = vec![config::net("10.2.0.0/16")];
        });
        w.establish(0).unwrap();
        let mut f = Forger::newest(&w.nodes[0]);
        let tsi = Payload::TsI(vec![ts("10.1.0.5/32"), ts("10.1.0.0/24")]);
        let tsr = Payload::TsR(vec![ts(packet), ts("10.2.0.0/16")]);
        let request = [esp(0xc111_1111), Payload::Nonce(Nonce(vec![1; 32])), tsi, tsr];
        let answer = ask(&mut w, &mut f, CREATE, 2, &request).unwrap();
        assert!(answer.contains(&Payload::TsR(vec![ts(wanted)])), "for {packet}: {answer:?}");
        assert!(answer.contains(&Payload::TsI(vec![ts("10.1.0.0/24")])));
    }
}

#[test]
fn an_authentic_request_that_has_no_place_is_answered_and_ends_the_ike_sa() {
    // IKE_AUTH once more, exchanges that nobody has agreed on, and types that do not exist.
    for exchange in [35, 38, 43, 0, 255] {
        let (mut w, mut f) = up(14);
        let answer = ask(&mut w, &mut f, ExchangeType(exchange), 2, &[notify(40_000)]).expect("an answer");
        assert_eq!(answer, [notify(NotifyType::INVALID_SYNTAX.0)], "exchange {exchange}");
        assert!(w.nodes[1].sas(w.now()).is_empty(), "exchange {exchange}");
        assert!(w.nodes[1].engine.inbound.is_empty());
    }
    // Before IKE_AUTH nobody is authenticated, and there is no answer.
    let (mut w, mut f, _) = at_ike_auth(15, 0);
    for exchange in [CREATE, INFO, ExchangeType(43)] {
        assert!(ask(&mut w, &mut f, exchange, 1, &[Payload::Delete(Delete::ike_sa())]).is_none());
    }
    assert_eq!(w.nodes[1].sas(w.now())[0].state, IkeState::Connecting);
}

#[test]
fn a_peer_that_answers_temporary_failure_for_minutes_is_out_of_step_and_given_up() {
    let (mut w, mut f) = up(16);
    silence(&mut w, 0);
    let start = w.now();
    w.rekey_child(0);
    let (mut mid, mut asked) = (2, Vec::new());
    while w.up(0).len() == 1 && w.now() - start < 1_200 * S {
        let due =
            |w: &World| w.net.log.iter().any(|(s, _)| s.node == 0 && s.exchange == CREATE && s.mid == mid);
        if !w.run_until(60 * S, due) {
            break;
        }
        asked.push(w.now());
        w.inject(b(), a(), f.message(false, CREATE, true, mid, &[notify(NotifyType::TEMPORARY_FAILURE.0)]));
        w.run(20 * MS);
        mid += 1;
    }
    let pauses: Vec<_> = asked.windows(2).map(|p| p[1] - p[0]).collect();
    assert!(pauses.iter().all(|p| *p >= 4 * S), "it waits before it tries again: {pauses:?}");
    let lasted = w.now() - start;
    println!("{} requests in {lasted:?}", asked.len());
    assert!(w.up(0).is_empty(), "several minutes are enough");
    assert!((180..=600).contains(&lasted.as_secs()), "{lasted:?}");
    let (_, payloads) = last_of(&w, &f, 0).unwrap();
    assert_eq!(payloads, [Payload::Delete(Delete::ike_sa())], "the peer is told");

    // Twice in an hour is not out of step.
    let (mut w, mut f) = up(17);
    silence(&mut w, 0);
    let mut mid = 2;
    for _ in 0..2 {
        w.rekey_child(0);
        for answer in [true, false] {
            let due = |w: &World| {
                w.net.log.iter().any(|(s, _)| s.node == 0 && s.exchange == CREATE && s.mid == mid)
            };
            assert!(w.run_until(60 * S, due));
            let payloads = if answer {
                vec![notify(NotifyType::TEMPORARY_FAILURE.0)]
            } else {
                agreement(&w, 0xc900_0000 + mid)
            };
            w.inject(b(), a(), f.message(false, CREATE, true, mid, &payloads));
            w.run(20 * MS);
            mid += 1;
        }
        // The DELETE of the old child.
        w.inject(b(), a(), f.message(false, INFO, true, mid, &[]));
        mid += 1;
        w.run(1_800 * S);
    }
    assert_eq!(w.up(0).len(), 1);
}

#[test]
fn the_first_ike_proposal_has_no_spi_whatever_the_request_has() {
    let mut w = World::pair(19, |_| {});
    silence(&mut w, 0);
    w.initiate(0);
    w.run(MS);
    let mut m = Message::parse(&w.net.log[0].1.payload).unwrap();
    let Some(Payload::Sa(list)) = m.payloads.first_mut() else { panic!() };
    list.iter_mut().for_each(|p| p.spi = vec![7; 8]);
    let before = w.net.log.len();
    w.inject(a(), b(), m.emit().unwrap());
    w.run(20 * MS);
    for (_, p) in &w.net.log[before..] {
        let answer = Message::parse(&p.payload).unwrap();
        for p in &answer.payloads {
            assert!(!matches!(p, Payload::Sa(list) if list.iter().any(|p| !p.spi.is_empty())), "{p:?}");
        }
    }
}

#[test]
fn messages_of_three_thousand_bytes_are_handled() {
    let long = || Payload::VendorId(VendorId(vec![0x5a; 2_800]));
    let mut w = World::pair(20, |_| {});
    silence(&mut w, 0);
    w.initiate(0);
    w.run(MS);
    let mut m = Message::parse(&w.net.log[0].1.payload).unwrap();
    m.payloads.push(long());
    let bytes = m.emit().unwrap();
    assert!((3_000..3_100).contains(&bytes.len()), "{}", bytes.len());
    w.inject(a(), b(), bytes);
    w.run(20 * MS);
    assert_eq!(w.nodes[1].sas(w.now()).len(), 1);
    let (mut w, mut f) = up(21);
    assert_eq!(
        ask(&mut w, &mut f, INFO, 2, &[long(), Payload::VendorId(VendorId(vec![1; 200]))]).unwrap(),
        []
    );
}

#[test]
fn a_larger_window_is_not_used_and_none_is_offered() {
    let (mut w, mut f) = up(22);
    let window = Payload::Notify(Notify::new(NotifyType::SET_WINDOW_SIZE, 8u32.to_be_bytes()));
    let request = f.message(false, INFO, false, 0, &[window]);
    assert_eq!(answer_to(&mut w, &f, 0, request).unwrap(), []);
    silence(&mut w, 0);
    w.rekey_child(0);
    w.terminate(0, true);
    w.rekey_ike(0);
    w.run(60 * S);
    let out: Vec<u32> =
        w.net.log.iter().filter(|(s, _)| s.node == 0 && !s.response).map(|(s, _)| s.mid).collect();
    assert_eq!(out.iter().max(), Some(&2), "one request at a time: {out:?}");
    // And the next request of the peer but one is not taken.
    let ahead = f.message(false, INFO, false, 2, &[]);
    assert!(answer_to(&mut w, &f, 0, ahead).is_none());
    let sent = w
        .net
        .log
        .iter()
        .filter_map(|(_, p)| f.open(&p.payload))
        .any(|(_, p)| kinds(&p).contains(&NotifyType::SET_WINDOW_SIZE));
    assert!(!sent);
}

#[test]
fn a_rekeyed_ike_sa_begins_with_message_id_0_and_its_initiator_is_who_rekeyed() {
    for node in 0..2 {
        let (mut w, old) = up(23);
        w.rekey_ike(node);
        w.run(10 * S);
        w.assert_one();
        // The DELETE of itself is the last that an initiator sends on the old one.
        let last: Vec<_> = w.net.log.iter().filter(|(s, _)| s.node == node && !s.response).collect();
        let (_, p) = last.last().unwrap();
        assert_eq!(old.open(&p.payload).unwrap().1, [Payload::Delete(Delete::ike_sa())]);
        let before = w.net.log.len();
        let f = Forger::newest(&w.nodes[0]);
        w.rekey_child(0);
        w.run(10 * S);
        w.rekey_child(1);
        w.run(10 * S);
        w.assert_one();
        for (s, p) in &w.net.log[before..] {
            let (header, _) = f.open(&p.payload).expect("a message of the new IKE_SA");
            assert_eq!(header.flags.initiator(), s.node == node);
        }
        for n in 0..2 {
            let mids =
                w.net.log[before..].iter().filter(|(s, _)| s.node == n && !s.response).map(|(s, _)| s.mid);
            assert_eq!(
                mids.collect::<Vec<_>>(),
                [0, 1],
                "node {n}: the child, then the DELETE of the old one"
            );
        }
    }
}

#[test]
fn the_whole_offer_is_made_again_with_another_method_and_with_a_cookie() {
    for cookie_threshold in [30, 0] {
        let limits = ironswan_keying::Limits { cookie_threshold, ..Default::default() };
        let mut w = World::pair_at(24, a().ip(), b().ip(), limits, |c| {
            c[0].proposals = vec![
                config::ike_proposal(&[KeId::ECP_256, KeId::CURVE_25519]),
                Proposal { number: 2, ..config::ike_proposal_cbc(&[KeId::CURVE_25519]) },
            ];
        });
        w.establish(0).unwrap();
        let sent = w.net.log.iter().filter(|(s, _)| s.node == 0 && s.exchange == ExchangeType::IKE_SA_INIT);
        let requests: Vec<Message> = sent.map(|(_, p)| Message::parse(&p.payload).unwrap()).collect();
        assert_eq!(requests.len(), if cookie_threshold == 0 { 3 } else { 2 });
        let of = |m: &Message, kind| m.payloads.iter().find(|p| p.kind() == kind).cloned();
        for again in &requests[1..] {
            assert_eq!(again.header.message_id, 0);
            assert_eq!(again.header.initiator_spi, requests[0].header.initiator_spi);
            for kind in [PayloadType::SA, PayloadType::NONCE] {
                assert_eq!(of(again, kind), of(&requests[0], kind), "unchanged");
            }
        }
        if cookie_threshold == 0 {
            // The cookie leads, everything behind it is as before; and it stays for the other
            // method.
            let Payload::Notify(cookie) = &requests[1].payloads[0] else { panic!() };
            assert_eq!(cookie.kind, NotifyType::COOKIE);
            assert_eq!(requests[1].payloads[1..], requests[0].payloads);
            assert_eq!(requests[2].payloads[0], requests[1].payloads[0]);
        }
    }
}

#[test]
fn what_belongs_to_no_ike_sa_is_not_answered_and_changes_nothing() {
    let (mut w, _) = up(25);
    let sa = w.up(0)[0].clone();
    let before = w.net.log.len();
    for exchange in [34, 35, 36, 37, 0, 43, 255] {
        for flags in [(true, false), (true, true), (false, false), (false, true)] {
            // SPIs of nobody, and one of the right ones beside a wrong one.
            for (spi_i, spi_r) in [(1, 2), (sa.spi_i, 2), (1, sa.spi_r)] {
                let header =
                    Header::new(spi_i, spi_r, ExchangeType(exchange), Flags::new(flags.0, flags.1), 2);
                let payloads = vec![notify(NotifyType::INVALID_IKE_SPI.0), notify(NotifyType::INVALID_SPI.0)];
                let bytes = Message { header, payloads }.emit().unwrap();
                w.inject(b(), a(), bytes.clone());
                w.inject(a(), b(), bytes);
            }
        }
    }
    w.run(10 * S);
    assert_eq!(w.net.log.len(), before, "not one answer");
    w.assert_one();
    assert_eq!(w.up(0)[0].spi_i, sa.spi_i);
}
