//! Quick crash detection (RFC 6290): who gets a token, when a token ends an IKE_SA, and that no
//! token of a standing IKE_SA is ever told. Node 1 crashes; node 0 finds out by its next request.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::Options;
use ironswan_ike::event::IkeSaInfo;
use ironswan_keying::{ChildAction, Connection, Limits};
use ironswan_testkit::{Forger, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, ProtocolId};
use ironswan_wire::ike::payload::{Notify, notifies};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::secret::Secret;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Bytes of the shortest request with AES-GCM: header, SK, IV, padding length, ICV.
const SHORTEST: usize = 28 + 4 + 8 + 1 + 16;

/// Two gateways that make and take tokens. The child is started again when its peer is dead.
fn world(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let limits = Limits { retransmit_tries: 5, retransmit_base: 1.2, ..Limits::default() };
    let options = Options { keylog: true, take_qcd_tokens: true, ..Options::default() };
    let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    let mut w = World::pair_with(seed, (a, b), limits, options, |c| {
        c[0].children[0].dpd_action = ChildAction::Start;
        tweak(c);
    });
    (0..2).for_each(|n| make_tokens(&mut w, n, secret(n)));
    w
}

/// QCD_SECRET of a node.
fn secret(node: usize) -> u8 {
    0x40 + u8::try_from(node).unwrap()
}

fn make_tokens(w: &mut World, node: usize, byte: u8) {
    let now = w.now();
    w.nodes[node].endpoint.call(now, |e| e.make_qcd_tokens(Secret::new(vec![byte; 32])));
}

/// The node has lost everything but its files.
fn crash(w: &mut World, node: usize, seed: u64) {
    let conn = w.nodes[node].connection("gw");
    w.restart(node, seed, conn);
    make_tokens(w, node, secret(node));
}

fn the_sa(w: &World, node: usize) -> IkeSaInfo {
    let mut up = w.up(node);
    assert_eq!(up.len(), 1, "{up:?}");
    up.remove(0)
}

fn spis(w: &World, node: usize) -> (u64, u64) {
    let sa = the_sa(w, node);
    (sa.spi_i, sa.spi_r)
}

/// Tokens that node has sent under protection: exchange and whether in a response, in order.
fn told(w: &World, node: usize) -> Vec<(ExchangeType, bool)> {
    let mut all = Vec::new();
    for (seen, packet) in w.net.log.iter().filter(|(seen, _)| seen.node == node) {
        let keys = w.nodes[node].keys.iter().filter_map(Forger::with);
        let plain = packet.payload.strip_prefix(&[0; 4]).unwrap_or(&packet.payload);
        let opened = keys.filter_map(|forger| forger.open(plain)).next();
        let Some((_, payloads)) = opened else { continue };
        for n in notifies(&payloads).filter(|n| n.kind == NotifyType::QUICK_CRASH_DETECTION) {
            assert_eq!((n.protocol, n.spi.len(), n.data.len()), (ProtocolId::IKE, 0, 16));
            all.push((seen.exchange, seen.response));
        }
    }
    all
}

/// Messages in clear with a token that a node has sent.
fn in_clear(w: &World, node: usize) -> Vec<(Header, Vec<Payload>)> {
    let sent = w.net.log.iter().filter(|(seen, _)| seen.node == node);
    let messages = sent.filter_map(|(_, packet)| {
        let plain = packet.payload.strip_prefix(&[0; 4]).unwrap_or(&packet.payload);
        Message::parse(plain).ok()
    });
    let has = |m: &Message| notifies(&m.payloads).any(|n| n.kind == NotifyType::QUICK_CRASH_DETECTION);
    messages.filter(has).map(|m| (m.header, m.payloads)).collect()
}

fn good(w: &World, what: &str) {
    if let Some(fault) = w.fault() {
        w.dump();
        panic!("{what}: {fault}");
    }
}

/// A request that looks like one of an IKE_SA with keys, of this length in bytes.
fn sealed((spi_i, spi_r): (u64, u64), exchange: ExchangeType, by_initiator: bool, len: usize) -> Vec<u8> {
    let mut header = Header::new(spi_i, spi_r, exchange, Flags::new(by_initiator, false), 7);
    header.next_payload = ironswan_wire::iana::PayloadType::SK;
    header.length = u32::try_from(len).unwrap();
    let mut bytes = Vec::new();
    header.emit(&mut ironswan_wire::read::Writer::new(&mut bytes));
    let body = u16::try_from(len - bytes.len()).unwrap();
    bytes.extend([0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.resize(len, 0xaa);
    bytes
}

fn ends() -> (SocketAddr, SocketAddr) {
    ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap())
}

#[test]
fn either_side_tells_its_token_in_ike_auth_and_for_each_successor() {
    use ExchangeType as X;
    let mut w = world(1, |_| {});
    w.establish(0).unwrap();
    let (auth, again) = ((X::IKE_AUTH, false), (X::IKE_AUTH, true));
    assert_eq!((told(&w, 0), told(&w, 1)), (vec![auth], vec![again]));
    // The initiator of the rekeying says so in an INFORMATIONAL, its responder in the response.
    let (own, response) = ((X::INFORMATIONAL, false), (X::CREATE_CHILD_SA, true));
    w.rekey_ike(0);
    w.run(10 * S);
    assert_eq!((told(&w, 0), told(&w, 1)), (vec![auth, own], vec![again, response]));
    w.rekey_ike(1);
    w.run(10 * S);
    assert_eq!(told(&w, 0), vec![auth, own, response]);
    assert_eq!(told(&w, 1), vec![again, response, own]);
    w.rekey_child(0);
    w.rekey_child(1);
    w.run(10 * S);
    assert_eq!((told(&w, 0).len(), told(&w, 1).len()), (3, 3), "children have none");
    w.assert_one();
    assert!(in_clear(&w, 0).is_empty() && in_clear(&w, 1).is_empty());
}

#[test]
fn a_peer_without_the_extension_gets_a_token_and_sends_none() {
    let mut w = World::pair(2, |_| {});
    make_tokens(&mut w, 0, 1);
    w.establish(1).unwrap();
    w.rekey_ike(0);
    w.run(10 * S);
    w.assert_one();
    assert_eq!((told(&w, 0).len(), told(&w, 1).len()), (2, 0));
    // Without a secret, nothing is answered; and a token means nothing to who keeps none.
    let conn = w.nodes[1].connection("gw");
    w.restart(1, 77, conn);
    w.rekey_child(0);
    w.run(S);
    assert!(in_clear(&w, 1).is_empty());
    assert_eq!(w.nodes[1].endpoint.protocol().counters().qcd_sent, 0);
}

/// Requests that a survivor may have, by number.
fn ask(w: &mut World, how: usize) {
    match how {
        0 => drop(w.rekey_child(0)),
        1 => drop(w.rekey_ike(0)),
        2 => drop(w.terminate(0, true)),
        _ => w.run(10 * S),
    }
}

#[test]
fn a_crash_is_found_out_by_the_next_request_whatever_it_is_and_whoever_began() {
    for (starter, rekeyed, how) in
        (0..2).flat_map(|s| (0..3).flat_map(move |r| (0..4).map(move |h| (s, r, h))))
    {
        let what = format!("begun by {starter}, rekeyed by {rekeyed}, request {how}");
        let mut w = world(3, |c| c[0].dpd_delay = 10 * S);
        w.establish(starter).unwrap();
        if rekeyed < 2 {
            w.rekey_ike(rekeyed);
            w.run(2 * S);
        }
        good(&w, &what);
        let before = spis(&w, 0);
        crash(&mut w, 1, 99);
        let sent = w.net.count;
        ask(&mut w, how);
        w.run(S);
        let c = *w.nodes[0].endpoint.protocol().counters();
        assert_eq!((c.qcd_taken, c.qcd_mismatched), (1, 0), "{what}");
        if how == 2 {
            // The command is obeyed: nothing comes up again.
            assert!(w.up(0).iter().all(|sa| (sa.spi_i, sa.spi_r) != before), "{what}");
            continue;
        }
        good(&w, &what);
        assert_ne!(spis(&w, 0), before, "{what}");
        assert!(w.nodes[0].failures.iter().any(|why| why.entry().name() == "peer-crashed"), "{what}");
        // One request, its answer, and the four messages of a new IKE_SA: no DELETE of the old one.
        assert_eq!(w.net.count - sent, 6, "{what}");
        let (header, payloads) = in_clear(&w, 1).remove(0);
        assert_eq!((header.initiator_spi, header.responder_spi), before);
        let kinds: Vec<_> = notifies(&payloads).map(|n| n.kind).collect();
        match how {
            // An empty request has no room for more.
            3 => assert_eq!(kinds, [NotifyType::QUICK_CRASH_DETECTION]),
            _ => assert_eq!(kinds, [NotifyType::INVALID_IKE_SPI, NotifyType::QUICK_CRASH_DETECTION]),
        }
    }
}

#[test]
fn without_an_action_the_connection_stays_down_and_says_why() {
    let mut w = world(4, |c| c[0].children[0].dpd_action = ChildAction::None);
    w.establish(0).unwrap();
    crash(&mut w, 1, 99);
    w.rekey_child(0);
    w.run(S);
    w.assert_empty();
    let why = w.nodes[0].failures.last().unwrap();
    assert_eq!(why.entry().name(), "peer-crashed");
    assert!(why.sentence().contains("has restarted without this IKE_SA"), "{}", why.sentence());
}

#[test]
fn additional_key_exchanges_have_the_token_in_their_last_response() {
    let with = |proposal: Proposal| {
        let mut p = proposal;
        p.transforms.push(Transform::AddKe(1, KeId::ML_KEM_768));
        p.transforms.push(Transform::AddKe(2, KeId::ECP_256));
        vec![p]
    };
    let mut w = world(5, |c| {
        c.iter_mut().for_each(|c| c.proposals = with(config::ike_proposal(&[KeId::CURVE_25519])))
    });
    w.establish(0).unwrap();
    w.rekey_ike(0);
    w.run(10 * S);
    w.assert_one();
    assert_eq!(told(&w, 1), [(ExchangeType::IKE_AUTH, true), (ExchangeType::IKE_FOLLOWUP_KE, true)]);
    crash(&mut w, 1, 99);
    w.rekey_child(0);
    w.run(S);
    w.assert_one();
    assert_eq!(w.nodes[0].endpoint.protocol().counters().qcd_taken, 1);
}

#[test]
fn a_later_token_takes_the_place_of_the_one_before() {
    for (exchange, kept) in [(ExchangeType::INFORMATIONAL, true), (ExchangeType::CREATE_CHILD_SA, false)] {
        let mut w = world(15, |_| {});
        w.establish(0).unwrap();
        let before = spis(&w, 0);
        let (a, b) = ends();
        let token = || Payload::Notify(Notify::new(NotifyType::QUICK_CRASH_DETECTION, vec![5; 40]));
        let request = Forger::newest(&w.nodes[1]).message(false, exchange, false, 0, &[token()]);
        w.inject(b, a, request);
        w.run(100 * MS);
        let header = Header::new(before.0, before.1, ExchangeType::INFORMATIONAL, Flags::new(false, true), 2);
        w.inject(b, a, Message { header, payloads: vec![token()] }.emit().unwrap());
        w.run(100 * MS);
        let taken = w.nodes[0].endpoint.protocol().counters().qcd_taken;
        assert_eq!(taken, u64::from(kept), "{exchange:?}");
    }
}

#[test]
fn a_token_may_come_from_another_address_and_late() {
    let mut w = world(6, |_| {});
    w.establish(0).unwrap();
    crash(&mut w, 1, 99);
    // The answer is caught, and comes from elsewhere after the request was given up on.
    let from_one = |s: &Seen| if s.node == 1 { Verdict::Drop } else { Verdict::Pass };
    w.net.rules.push(Box::new(from_one));
    w.rekey_child(0);
    w.run(S);
    let (_, packet) = w.net.log.iter().rfind(|(s, _)| s.node == 1).unwrap().clone();
    w.net.rules.clear();
    w.inject("198.51.100.7:4711".parse().unwrap(), packet.to, packet.payload);
    w.run(S);
    w.assert_one();
    assert_eq!(w.nodes[0].endpoint.protocol().counters().qcd_taken, 1);
}

#[test]
fn no_forged_token_ends_anything() {
    let mut w = world(7, |_| {});
    w.establish(0).unwrap();
    let before = spis(&w, 0);
    let (a, b) = ends();
    // A token of the peer for other SPIs, one of our own for these, and guesses.
    let hmac = |role: bool, byte: u8, (i, r): (u64, u64)| {
        let mac = ironswan_crypto::prf::get(ironswan_wire::iana::PrfId::HMAC_SHA2_256).unwrap();
        let parts: [&[u8]; 3] = [&[u8::from(role)], &i.to_be_bytes(), &r.to_be_bytes()];
        mac.mac(&[byte; 32], &parts).expose()[..16].to_vec()
    };
    let right = hmac(false, secret(1), before);
    let others = [
        hmac(false, secret(1), (before.0, before.1 ^ 1)),
        hmac(false, secret(1), (before.1, before.0)),
        hmac(true, secret(1), before),
        hmac(true, secret(0), before),
        vec![0; 16],
        right[..15].to_vec(),
        [&right[..], &[0]].concat(),
        Vec::new(),
        vec![0xff; 4_000],
    ];
    let message = |tokens: &[Vec<u8>], (i, r): (u64, u64), initiator: bool, response: bool, exchange| {
        let header = Header::new(i, r, exchange, Flags::new(initiator, response), 2);
        let token = |t: &Vec<u8>| Payload::Notify(Notify::new(NotifyType::QUICK_CRASH_DETECTION, t.clone()));
        Message { header, payloads: tokens.iter().map(token).collect() }.emit().unwrap()
    };
    let info = ExchangeType::INFORMATIONAL;
    let right = [right];
    for token in &others {
        w.inject(b, a, message(std::slice::from_ref(token), before, false, true, info));
    }
    w.inject(b, a, message(&vec![vec![1; 16]; 90], before, false, true, info));
    // The right one, but as a request, with our own flag, under other SPIs, or behind four wrong.
    w.inject(b, a, message(&right, before, false, false, info));
    w.inject(b, a, message(&right, before, true, true, info));
    w.inject(b, a, message(&right, (before.0, before.1 ^ 1), false, true, info));
    w.inject(b, a, message(&right, (before.0 ^ 1, before.1), false, true, info));
    w.inject(b, a, message(&[&others[..4], &right].concat(), before, false, true, info));
    w.run(10 * S);
    w.assert_one();
    assert_eq!(spis(&w, 0), before);
    let c = *w.nodes[0].endpoint.protocol().counters();
    assert_eq!((c.qcd_taken, c.qcd_mismatched), (0, others.len() as u64 + 2));
    // One line a second about one network.
    assert_eq!(w.nodes[0].count_logged("does not fit IKE_SA"), 1);
    // Guesses without end neither end it nor are all compared; a second later the right one counts.
    for n in 0..1_000u64 {
        w.inject(b, a, message(&[n.to_be_bytes().repeat(2)], before, false, true, info));
    }
    w.inject(b, a, message(&right, before, false, true, info));
    w.run(2 * S);
    assert_eq!(spis(&w, 0), before);
    w.inject(b, a, message(&right, before, false, true, info));
    w.run(100 * MS);
    assert_eq!(w.nodes[0].endpoint.protocol().counters().qcd_taken, 1);
}

/// Asks node 1 in every way for tokens of these SPIs.
fn pry(w: &mut World, (spi_i, spi_r): (u64, u64)) {
    use ExchangeType as X;
    let (a, b) = ends();
    let exchanges =
        [X::IKE_SA_INIT, X::IKE_AUTH, X::CREATE_CHILD_SA, X::INFORMATIONAL, X::IKE_FOLLOWUP_KE, X(99)];
    for spis in [(spi_i, spi_r), (spi_r, spi_i), (spi_i, 7), (7, spi_r), (spi_r, 7), (7, spi_i)] {
        for (exchange, by_initiator) in exchanges.into_iter().flat_map(|x| [(x, true), (x, false)]) {
            w.inject(a, b, sealed(spis, exchange, by_initiator, 200));
            w.inject("203.0.113.9:500".parse().unwrap(), b, sealed(spis, exchange, by_initiator, 200));
        }
    }
    w.run(20 * MS);
}

/// True when some token in clear is one that a peer holds for these SPIs, in either role.
fn given_away(w: &World, (spi_i, spi_r): (u64, u64)) -> bool {
    let mac = ironswan_crypto::prf::get(ironswan_wire::iana::PrfId::HMAC_SHA2_256).unwrap();
    let tokens = [0, 1].map(|role| {
        let parts: [&[u8]; 3] = [&[role], &spi_i.to_be_bytes(), &spi_r.to_be_bytes()];
        mac.mac(&[secret(1); 32], &parts).expose()[..16].to_vec()
    });
    let clear = in_clear(w, 1);
    clear.iter().flat_map(|(_, payloads)| notifies(payloads)).any(|n| tokens.contains(&n.data))
}

#[test]
fn a_token_of_a_standing_ike_sa_is_never_told() {
    for starter in 0..2 {
        let mut w = world(8, |_| {});
        let ticket = w.initiate(starter);
        // Half-open, established, rekeyed and the old one not yet deleted, deleted by either side.
        let mut seen = std::collections::BTreeSet::new();
        for step in 0..400 {
            let here: Vec<_> = w.nodes[1].sas(w.now()).iter().map(|sa| (sa.spi_i, sa.spi_r)).collect();
            for spis in here.iter().filter(|spis| spis.1 != 0) {
                let count = w.nodes[1].endpoint.protocol().counters().qcd_sent;
                pry(&mut w, *spis);
                let still = w.nodes[1].sas(w.now()).iter().any(|sa| (sa.spi_i, sa.spi_r) == *spis);
                // Requests with one SPI that is nobody's may be answered, with another token.
                assert!(!still || !given_away(&w, *spis), "step {step}");
                assert!(w.nodes[1].endpoint.protocol().counters().qcd_sent - count <= 24);
                seen.insert(*spis);
            }
            match step {
                60 => drop(w.rekey_ike(0)),
                // The DELETE of the old one is lost for a while.
                61 => w.net.rules.push(Box::new(|s| match s.exchange {
                    ExchangeType::INFORMATIONAL => Verdict::Drop,
                    _ => Verdict::Pass,
                })),
                140 => w.net.rules.clear(),
                200 => drop(w.rekey_ike(1)),
                320 => drop(w.terminate(0, false)),
                _ => w.run(5 * MS),
            }
        }
        assert!(w.nodes[starter].done[&ticket].is_ok());
        assert!(seen.len() >= 3, "{seen:?}");
    }
}

#[test]
fn an_answer_is_never_longer_than_its_request() {
    let mut w = world(9, |_| {});
    let (a, b) = ends();
    for len in 32..120 {
        let before = w.net.log.len();
        w.inject(a, b, sealed((len as u64, 9), ExchangeType::INFORMATIONAL, true, len));
        w.run(100 * MS);
        let sent: Vec<usize> = w.net.log[before..].iter().map(|(_, p)| p.payload.len()).collect();
        assert!(sent.len() <= 1 && sent.iter().all(|bytes| *bytes <= len), "{len}: {sent:?}");
        assert_eq!(sent.len(), usize::from(len >= 52), "{len}");
    }
    let c = w.nodes[1].endpoint.protocol().counters();
    assert_eq!((c.qcd_sent, c.invalid_spi), (68, 88));
    const { assert!(SHORTEST >= 52, "each request of an IKE_SA is long enough") };
}

#[test]
fn what_is_no_request_of_an_ike_sa_with_keys_is_not_answered() {
    let mut w = world(10, |_| {});
    let (a, b) = ends();
    let info = ExchangeType::INFORMATIONAL;
    let mut response = sealed((3, 9), info, true, 200);
    response[19] |= Flags::RESPONSE;
    let header = Header::new(3, 9, info, Flags::new(true, false), 0);
    let notify = Notify::new(NotifyType::QUICK_CRASH_DETECTION, vec![1; 64]);
    let clear = Message { header, payloads: vec![Payload::Notify(notify)] }.emit().unwrap();
    let all = [
        response,
        clear,
        sealed((0, 9), info, true, 200),
        sealed((3, 0), info, true, 200),
        sealed((3, 9), ExchangeType::IKE_AUTH, true, 200),
        sealed((3, 9), ExchangeType::IKE_INTERMEDIATE, true, 200),
        sealed((3, 9), ExchangeType(250), true, 200),
    ];
    for bytes in all {
        w.inject(a, b, bytes);
    }
    for from in ["0.0.0.0:500", "224.0.0.1:500", "198.51.100.1:0"] {
        w.inject(from.parse().unwrap(), b, sealed((3, 9), info, true, 200));
    }
    w.run(S);
    assert_eq!((w.net.count, w.nodes[1].endpoint.protocol().counters().qcd_sent), (0, 0));
}

#[test]
fn tokens_have_a_rate_for_each_network_and_for_all() {
    let mut w = world(11, |_| {});
    let (_, b) = ends();
    let send = |w: &mut World, net: u32, n: u64| {
        let from = SocketAddr::new(std::net::Ipv4Addr::from(0xc612_0000 + (net << 8)).into(), 500);
        w.inject(from, b, sealed((n + 1, 9), ExchangeType::INFORMATIONAL, true, 200));
    };
    (0..1_000).for_each(|n| send(&mut w, 1, n));
    w.run(100 * MS);
    let sent = |w: &World| w.nodes[1].endpoint.protocol().counters().qcd_sent;
    assert_eq!(sent(&w), 50);
    w.run(2 * S);
    (0..20_000).for_each(|n| send(&mut w, (n % 500) as u32, n));
    w.run(100 * MS);
    assert_eq!(sent(&w), 50 + 500);
    let c = w.nodes[1].endpoint.protocol().counters();
    assert_eq!(c.qcd_held_back, 21_000 - 550);
    assert_eq!(w.nodes[1].log.len(), 0, "no line about strangers");
}

#[test]
fn with_another_secret_retransmission_finds_the_crash_out() {
    let mut w = world(12, |_| {});
    w.establish(0).unwrap();
    crash(&mut w, 1, 99);
    make_tokens(&mut w, 1, 0x77);
    w.rekey_child(0);
    w.run(S);
    let c = *w.nodes[0].endpoint.protocol().counters();
    assert_eq!((c.qcd_taken, c.qcd_mismatched), (0, 1));
    w.run(100 * S);
    w.assert_one();
    assert!(w.nodes[0].failures.iter().any(|why| why.entry().name() == "peer-dead"));
}

/// A life with two crashes: set up, rekeyed by both, a crash of 1, rekeyed, a crash of 0.
fn life(w: &mut World) {
    let _ = w.establish(0);
    w.run(200 * S);
    for crashed in [1, 0] {
        for node in 0..2 {
            if !w.up(node).is_empty() {
                w.rekey_ike(node);
            }
            w.run(200 * S);
        }
        crash(w, crashed, 90 + crashed as u64);
        if !w.up(1 - crashed).is_empty() {
            w.rekey_child_if_any(1 - crashed);
        }
        w.run(400 * S);
    }
}

#[test]
fn every_message_may_be_lost_doubled_or_late() {
    let start = |c: &mut [Connection; 2]| {
        c.iter_mut().for_each(|c| (c.children[0].dpd_action, c.dpd_delay) = (ChildAction::Start, 60 * S));
    };
    let mut plain = world(13, start);
    life(&mut plain);
    good(&plain, "without faults");
    let taken = |w: &World, n: usize| w.nodes[n].endpoint.protocol().counters().qcd_taken;
    assert_eq!(taken(&plain, 1), 1, "node 0 has crashed after node 1 had");
    let total = plain.net.log.iter().map(|(s, _)| s.index).max().unwrap();
    for k in 0..total {
        for verdict in [Verdict::Drop, Verdict::Delay(20 * MS), Verdict::Delay(7 * S)] {
            // Liveness goes on for ever: its messages are all alike.
            if k > 60 && k % 7 != 0 {
                continue;
            }
            let mut w = world(13, start);
            w.net.rules.push(Box::new(move |s| if s.index == k { verdict } else { Verdict::Pass }));
            life(&mut w);
            good(&w, &format!("message {k} {verdict:?}"));
        }
    }
    for seed in 0..20 {
        let mut w = world(100 + seed, start);
        (w.net.duplicate, w.net.jitter, w.net.loss) = (500, 100 * MS, if seed % 2 == 0 { 100 } else { 0 });
        life(&mut w);
        w.net.loss = 0;
        w.run(600 * S);
        good(&w, &format!("seed {seed}"));
    }
}

#[test]
fn a_crash_at_each_step_ends_with_one_tunnel() {
    let start = |c: &mut [Connection; 2]| {
        c.iter_mut().for_each(|c| (c.children[0].dpd_action, c.dpd_delay) = (ChildAction::Start, 10 * S));
        c[0].children[0].start_action = ChildAction::Start;
    };
    for (node, at) in (0..2).flat_map(|node| (0..36).map(move |at| (node, at))) {
        let mut w = world(14, start);
        let _ = w.establish(0);
        w.rekey_ike(node);
        w.rekey_child(1 - node);
        // Each step is half a way through the network.
        w.run(at * 5 * MS / 2);
        crash(&mut w, node, 91);
        w.run(400 * S);
        good(&w, &format!("node {node} crashed at step {at}"));
    }
}
