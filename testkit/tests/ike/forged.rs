//! IKE_SA_INIT messages that somebody has forged or sent back: responses of whoever sees the
//! request and is faster than the peer, our own messages from a mirror, nonces that are too short,
//! payloads that nobody knows, IKE_SAs without CHILD_SA.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_ike::event::Ticket;
use ironswan_keying::{AddrSpec, Childless, Unique};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, PrfId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

/// Two gateways that know two methods each, node 0 in another order than node 1 need not care
/// about.
fn pair(seed: u64) -> World {
    World::pair(seed, |c| {
        c.iter_mut().for_each(|c| {
            c.proposals = vec![config::ike_proposal(&[KeId::CURVE_25519, KeId::ECP_256])];
        });
    })
}

fn init_header(spi_i: u64, spi_r: u64) -> Header {
    Header::new(spi_i, spi_r, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0)
}

/// A response to the request that node 0 has under way, from the peer's address, with these
/// payloads.
fn forge(w: &mut World, spi_r: u64, payloads: Vec<Payload>) {
    let spi_i = w.nodes[0].sas(w.now())[0].spi_i;
    w.inject(b(), a(), Message { header: init_header(spi_i, spi_r), payloads }.emit().unwrap());
}

fn notify(kind: NotifyType, data: &[u8]) -> Vec<Payload> {
    vec![Payload::Notify(Notify::new(kind, data))]
}

/// A response that looks as good as the peer's, with a public value of the forger's.
fn whole(public: Vec<u8>, nonce: usize) -> Vec<Payload> {
    vec![
        Payload::Sa(vec![config::ike_proposal(&[KeId::CURVE_25519])]),
        Payload::Ke(Ke { group: KeId::CURVE_25519, data: public }),
        Payload::Nonce(Nonce(vec![6; nonce])),
    ]
}

fn public() -> Vec<u8> {
    kex::generate(KeId::CURVE_25519, &[5; 32]).unwrap().1
}

#[test]
fn one_forged_response_does_not_end_an_attempt() {
    let ecp = KeId::ECP_256.0.to_be_bytes();
    let forgeries = [
        ("NO_PROPOSAL_CHOSEN", notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])),
        ("INVALID_SYNTAX", notify(NotifyType::INVALID_SYNTAX, &[])),
        ("INVALID_KE_PAYLOAD", notify(NotifyType::INVALID_KE_PAYLOAD, &ecp)),
        ("COOKIE", notify(NotifyType::COOKIE, &[7; 16])),
        ("another's KE", whole(public(), 32)),
        ("a KE that is no point", whole(vec![0; 32], 32)),
        ("a KE that is too short", whole(vec![1; 31], 32)),
    ];
    for (name, payloads) in forgeries {
        for seed in 0..3 {
            let mut w = pair(1 + seed);
            let ticket = w.initiate(0);
            // It arrives before the peer's own.
            forge(&mut w, 77, payloads.clone());
            let start = w.now();
            assert!(w.run_until(20 * S, |w| w.nodes[0].done.contains_key(&ticket)), "{name}");
            println!("{name}: up after {:?}", w.now() - start);
            assert_eq!(w.nodes[0].done[&ticket], Ok(()), "{name}");
            w.run(31 * S);
            w.assert_one();
            w.audit();
        }
    }
}

/// What is no answer to IKE_SA_INIT, or does not come from where the request went.
#[test]
fn junk_before_the_answer_neither_ends_nor_moves_an_attempt_nor_lets_it_begin_again() {
    let mut plain = pair(40);
    plain.establish(0).unwrap();
    let (_, real) = plain.net.log.iter().find(|(s, _)| s.node == 1).cloned().expect("an answer");
    let elsewhere = SocketAddr::new(config::ip("192.0.2.99"), 500);
    let mut junk: Vec<(SocketAddr, Vec<u8>)> =
        (0..real.payload.len()).map(|n| (b(), real.payload[..n].to_vec())).collect();
    // Version, exchange, flags, message ID and length of the header.
    for (at, value) in [
        (16, 0),
        (16, 200),
        (17, 0x30),
        (18, 35),
        (18, 37),
        (18, 99),
        (19, 0x08),
        (19, 0x28),
        (23, 1),
        (27, 1),
    ] {
        let mut bytes = real.payload.clone();
        bytes[at] = value;
        junk.push((b(), bytes));
    }
    junk.push((b(), [&real.payload[..], &[0]].concat()));
    junk.push((b(), [&[0; 4], &real.payload[..]].concat()));
    junk.push((elsewhere, real.payload.clone()));
    let mut w = pair(40);
    let ticket = w.initiate(0);
    let to = a();
    for (from, bytes) in junk {
        w.inject(from, to, bytes);
    }
    w.run(S);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    w.assert_one();
    assert_eq!(w.up(0)[0].remote.ip(), b().ip());
    assert!(
        !w.nodes[0].logged("starting IKE_SA_INIT again") && !w.nodes[0].logged("two different responses")
    );
    assert_eq!(w.net.log.iter().filter(|(s, _)| s.node == 0).count(), 2, "nothing was sent again");
}

/// Node 0 has taken a forged response, and has sent the next request under the forger's keys. The
/// peer's own response has come as well.
fn deceived(seed: u64, additional: &[(u8, KeId)]) -> (World, Ticket, Forger) {
    let mut w = World::pair(seed, |c| {
        c.iter_mut().for_each(|c| {
            c.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], additional)];
        });
    });
    let ticket = w.initiate(0);
    let mut payloads = whole(public(), 32);
    payloads[0] = Payload::Sa(vec![config::ike_proposal_with(&[KeId::CURVE_25519], additional)]);
    payloads.extend(notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, &[]));
    forge(&mut w, 77, payloads);
    assert!(w.run_until(S, |w| w.nodes[0].logged("two different responses")));
    let forger = Forger::newest(&w.nodes[0]);
    (w, ticket, forger)
}

#[test]
fn sealed_messages_of_the_forger_do_not_end_an_attempt() {
    let ml_kem = [(1, KeId::ML_KEM_768)];
    let error = notify(NotifyType::INVALID_SYNTAX, &[]);
    let refusal = notify(NotifyType::AUTHENTICATION_FAILED, &[]);
    let value = vec![Payload::Ke(Ke { group: KeId::ML_KEM_768, data: vec![1; 7] })];
    // `None`: bytes that are no payloads.
    let intermediate = [None, Some(vec![]), Some(error.clone()), Some(refusal.clone()), Some(value)];
    let auth = [None, Some(vec![]), Some(error), Some(refusal)];
    let cases = intermediate.into_iter().map(|p| (&ml_kem[..], ExchangeType::IKE_INTERMEDIATE, p));
    for (additional, exchange, payloads) in
        cases.chain(auth.into_iter().map(|p| (&[][..], ExchangeType::IKE_AUTH, p)))
    {
        let (mut w, ticket, mut f) = deceived(33, additional);
        let bytes = match &payloads {
            Some(payloads) => f.message(false, exchange, true, 1, payloads),
            None => f.raw(false, exchange, true, 1, PayloadType::NOTIFY, &[1, 2, 3]),
        };
        w.inject(b(), a(), bytes);
        w.run(20 * S);
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())), "{exchange}: {payloads:?}");
        assert_eq!(w.nodes[0].count_logged("starting IKE_SA_INIT again"), 1);
        w.run(31 * S);
        w.assert_one();
        w.audit();
    }
}

#[test]
fn a_forged_cookie_is_no_matter_to_a_peer_that_takes_the_first_request_only() {
    // Node 1 never sees the request with the cookie, and signs and checks the one without.
    let mut w = pair(5);
    let mut requests = 0;
    w.net.rules.push(Box::new(move |s| {
        let request = s.node == 0 && s.exchange == ExchangeType::IKE_SA_INIT;
        requests += usize::from(request);
        if request && requests == 2 { Verdict::Drop } else { Verdict::Pass }
    }));
    let ticket = w.initiate(0);
    forge(&mut w, 0, notify(NotifyType::COOKIE, &[7; 16]));
    assert!(w.run_until(20 * S, |w| w.nodes[0].done.contains_key(&ticket)));
    assert_eq!(w.nodes[0].done[&ticket], Ok(()));
    assert!(w.nodes[0].logged("starting IKE_SA_INIT again"));
}

#[test]
fn who_always_forges_first_ends_it_after_a_few_starts() {
    let mut w = pair(6);
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::IKE_SA_INIT && s.response {
        true => Verdict::Delay(300 * MS),
        false => Verdict::Pass,
    }));
    let ticket = w.initiate(0);
    for _ in 0..400 {
        if w.nodes[0].sas(w.now()).iter().any(|sa| sa.spi_r == 0) {
            forge(&mut w, 77, whole(public(), 32));
        }
        w.run(100 * MS);
    }
    w.run(200 * S);
    assert!(w.nodes[0].done[&ticket].is_err());
    assert_eq!(w.nodes[0].count_logged("starting IKE_SA_INIT again"), 3);
    w.assert_empty();
}

#[test]
fn an_attempt_that_begins_again_leaves_nothing_at_a_peer_that_was_only_slow() {
    let mut w = pair(31);
    for i in 0..2 {
        let now = w.now();
        let mut conn = w.nodes[i].connection("gw");
        // What is left stays, whatever the next attempt says of INITIAL_CONTACT.
        conn.unique = Unique::Never;
        w.nodes[i].endpoint.load_connection(now, conn);
    }
    let mut slow = true;
    w.net.rules.push(Box::new(move |s| match s.exchange == ExchangeType::IKE_AUTH && s.response {
        true if std::mem::take(&mut slow) => Verdict::Delay(2 * S),
        _ => Verdict::Pass,
    }));
    let ticket = w.initiate(0);
    assert!(w.run_until(S, |w| w.up(1).len() == 1));
    forge(&mut w, 77, whole(public(), 32));
    w.run(5 * S);
    assert!(w.nodes[0].logged("starting IKE_SA_INIT again"));
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    assert_eq!((w.up(0).len(), w.up(1).len()), (1, 1), "at node 0 and at node 1");
    w.assert_one();
    w.audit();
}

#[test]
fn a_forged_first_response_costs_a_second_also_while_the_secret_is_computed() {
    let mut w = pair(32);
    w.nodes[0].work = 20 * MS;
    let ticket = w.initiate(0);
    assert!(w.run_until(S, |w| w.net.count == 1));
    forge(&mut w, 77, whole(public(), 32));
    let requests = |w: &World| {
        let all = w.net.log.iter().filter(|(s, _)| s.exchange == ExchangeType::IKE_SA_INIT && !s.response);
        all.count()
    };
    let start = w.now();
    assert!(w.run_until(20 * S, |w| requests(w) == 2));
    println!("the second IKE_SA_INIT request after {:?}", w.now() - start);
    assert!(w.now() - start < 1_500 * MS);
    // Then what the peer has of the first request is gone as well.
    w.run(32 * S);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    w.assert_one();
}

#[test]
fn a_refusal_is_told_soon_to_who_waits_and_by_the_schedule_to_nobody() {
    let mut w = World::pair(7, |c| c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_384])]);
    let start = w.now();
    let ticket = w.initiate(0);
    w.run_until(60 * S, |w| w.nodes[0].done.contains_key(&ticket));
    println!("told after {:?}", w.now() - start);
    assert!(w.now() - start <= 4 * S);
    let error = w.nodes[0].done[&ticket].clone().unwrap_err();
    assert_eq!(error, "received NO_PROPOSAL_CHOSEN notify error (not authenticated)");
    // The peer's administrator repairs it meanwhile: what waits for nobody finds out by its next
    // request.
    let mut w = World::pair(8, |c| {
        c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_384])];
        c[0].children[0].start_action = ironswan_keying::ChildAction::Start;
    });
    w.run(10 * S);
    assert!(w.nodes[0].logged("proposed was IKE:"));
    let now = w.now();
    let mut conn = w.nodes[1].connection("gw");
    conn.proposals = vec![config::ike_proposal(&[KeId::ECP_384])];
    w.nodes[1].endpoint.load_connection(now, conn);
    assert!(w.run_until(60 * S, |w| w.fault().is_none()), "{:?}", w.fault());
}

/// One gateway with a key that serves anybody, and a connection to a mirror.
fn mirrored(seed: u64, named: &str) -> World {
    let mut w = World::pair(seed, |c| {
        c[0].remote_addrs = vec![AddrSpec::Host(config::ip("198.51.100.9")), AddrSpec::Any];
        c[0].remote_id = IdPattern::parse(named).unwrap();
        c[0].children[0].remote_ts = c[0].children[0].local_ts.clone();
    });
    w.nodes[0].endpoint.load_shared(config::psk("any", "a key of anybody", &[]));
    w.nodes[0].endpoint.load_shared(config::psk("ike-gw", "a key of anybody", &[]));
    w
}

#[test]
fn a_mirror_is_not_a_peer() {
    let mirror: SocketAddr = "198.51.100.9:500".parse().unwrap();
    for named in ["%any", "g1.example", "*.example"] {
        let mut w = mirrored(9, named);
        let ticket = w.initiate(0);
        let mut seen = 0;
        for _ in 0..2_000 {
            // Everything that goes to the mirror comes back from it.
            let new: Vec<_> = w.net.log[seen..].iter().map(|(_, p)| p.clone()).collect();
            for p in new.into_iter().filter(|p| p.to.ip() == mirror.ip()) {
                w.inject(SocketAddr::new(mirror.ip(), p.to.port()), p.from, p.payload);
            }
            seen = w.net.log.len();
            w.run(10 * MS);
        }
        assert!(w.up(0).is_empty(), "{named}: authenticated by ourselves");
        assert!(w.nodes[0].endpoint.protocol().counters().reflected > 0);
        assert!(w.net.log.iter().all(|(s, _)| !s.response), "no answer");
        w.run(200 * S);
        assert!(w.nodes[0].done[&ticket].is_err());
        w.audit();
    }
}

#[test]
fn a_peer_with_our_own_identity_is_refused_unless_it_is_named() {
    for named in [false, true] {
        let mut w = World::pair(10, |c| {
            c[1].local_id = Identity::parse("G1.example");
            c[0].remote_id = IdPattern::parse(if named { "g1.example" } else { "%any" }).unwrap();
            c[1].remote_id = IdPattern::parse(if named { "g1.example" } else { "%any" }).unwrap();
        });
        for n in &mut w.nodes {
            n.endpoint.load_shared(config::psk("any", "a key of anybody", &[]));
        }
        let result = w.establish(0);
        assert_eq!(result.is_ok(), named, "{result:?}");
        assert_eq!(w.nodes[1].logged("which is our own identity"), !named);
    }
}

/// A request of node 0's address with these payloads, and what node 1 answers.
fn ask(w: &mut World, spi: u64, payloads: Vec<Payload>) -> Vec<Message> {
    let header = Header::new(spi, 0, ExchangeType::IKE_SA_INIT, Flags::new(true, false), 0);
    let from = w.net.log.len();
    w.inject(a(), b(), Message { header, payloads }.emit().unwrap());
    w.run(20 * MS);
    w.net.log[from..].iter().map(|(_, p)| Message::parse(&p.payload).unwrap()).collect()
}

#[test]
fn a_nonce_is_half_as_long_as_the_key_of_the_prf_at_least() {
    for (prf, least) in [(PrfId::HMAC_SHA2_256, 16), (PrfId::HMAC_SHA2_384, 24), (PrfId::HMAC_SHA2_512, 32)] {
        let mut proposal = config::ike_proposal(&[KeId::CURVE_25519]);
        proposal.transforms[1] = Transform::Prf(prf);
        let mut w = World::pair(11, |c| c.iter_mut().for_each(|c| c.proposals = vec![proposal.clone()]));
        for len in [16, 23, 24, 31, 32, 256] {
            let mut payloads = whole(public(), len);
            payloads[0] = Payload::Sa(vec![Proposal { number: 1, ..proposal.clone() }]);
            let answers = ask(&mut w, len as u64, payloads);
            assert_eq!(answers.len(), 1);
            let refused = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, []));
            assert_eq!(answers[0].payloads == [refused], len < least, "{prf} {len}");
        }
        w.run(31 * S);
        // As initiator: such a response is passed over.
        let ticket = w.initiate(0);
        let mut payloads = whole(public(), least - 1);
        payloads[0] = Payload::Sa(vec![proposal.clone()]);
        if least > 16 {
            forge(&mut w, 5, payloads);
        }
        w.run_until(20 * S, |w| w.nodes[0].done.contains_key(&ticket));
        assert_eq!(w.nodes[0].done[&ticket], Ok(()));
        assert!(!w.nodes[0].logged("two different responses"));
    }
}

#[test]
fn rekeyings_have_nonces_of_that_length_too() {
    let mut proposal = config::ike_proposal(&[KeId::CURVE_25519]);
    proposal.transforms[1] = Transform::Prf(PrfId::HMAC_SHA2_512);
    for (len, taken) in [(31, false), (32, true)] {
        for ike in [false, true] {
            let mut w = World::pair(15, |c| c.iter_mut().for_each(|c| c.proposals = vec![proposal.clone()]));
            w.establish(0).unwrap();
            let mut f = Forger::newest(&w.nodes[0]);
            let child = w.child(0);
            let nonce = Payload::Nonce(Nonce(vec![1; len]));
            let payloads = match ike {
                false => vec![
                    Payload::Sa(vec![Proposal { spi: vec![0xc1, 1, 1, 1], ..config::esp_proposal(&[]) }]),
                    nonce,
                    Payload::TsI(child.local_ts),
                    Payload::TsR(child.remote_ts),
                ],
                true => vec![
                    Payload::Sa(vec![Proposal { spi: vec![7; 8], ..proposal.clone() }]),
                    nonce,
                    Payload::Ke(Ke { group: KeId::CURVE_25519, data: public() }),
                ],
            };
            w.inject(a(), b(), f.message(true, ExchangeType::CREATE_CHILD_SA, false, 2, &payloads));
            w.run(50 * MS);
            let answer = w.net.log.iter().rev().find_map(|(s, p)| {
                (s.node == 1 && s.response && s.mid == 2).then(|| f.open(&p.payload)).flatten()
            });
            let refused = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, []));
            assert_eq!(answer.unwrap().1 != [refused], taken, "{len} {ike}");
        }
    }
}

#[test]
fn an_unknown_critical_payload_is_named_and_a_flood_of_them_leads_to_cookies() {
    let mut w = World::pair(12, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    let other = |critical| Payload::Other { kind: PayloadType(200), critical, body: vec![1; 30] };
    let with = |p: Payload| [whole(public(), 32), vec![p]].concat();
    let answers = ask(&mut w, 1, with(other(true)));
    let unsupported = Payload::Notify(Notify::new(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [200]));
    assert_eq!(answers[0].payloads, [unsupported]);
    assert!(answers[0].header.flags.response());
    assert!(matches!(ask(&mut w, 2, with(other(false)))[0].payloads[0], Payload::Sa(_)));
    let mut kinds = [0; 2];
    for n in 0..1_000 {
        for m in ask(&mut w, 10 + n, with(other(true))) {
            match &m.payloads[0] {
                Payload::Notify(n) if n.kind == NotifyType::COOKIE => kinds[1] += 1,
                _ => kinds[0] += 1,
            }
        }
    }
    println!("20 s, 50 a second: {} errors, {} cookies", kinds[0], kinds[1]);
    assert!((20..=105).contains(&kinds[0]) && kinds[1] > 200);
    assert!(w.nodes[1].log.len() < 80, "{}", w.nodes[1].log.len());
}

/// Tries to bring an IKE_SA up, alone or with its child. The result, and whether IKE_AUTH had a
/// child in it.
fn childless(ours: Childless, theirs: Childless, alone: bool) -> (Result<(), String>, Option<bool>) {
    let mut w = World::pair(13, |c| (c[0].childless, c[1].childless) = (ours, theirs));
    let now = w.now();
    let child = (!alone).then_some("net");
    let ticket = w.nodes[0].endpoint.initiate(now, Some("gw"), child).unwrap();
    w.run(30 * S);
    let result = w.nodes[0].done.get(&ticket).cloned().unwrap_or(Err("not done".to_owned()));
    if result.is_ok() {
        assert_eq!(w.up(1).len(), 1);
        assert_eq!(w.up(1)[0].children.len(), usize::from(!alone));
    }
    let auth = w.net.log.iter().find(|(s, _)| s.exchange == ExchangeType::IKE_AUTH && !s.response).cloned();
    let had = auth.map(|(_, p)| {
        let (_, payloads) = Forger::newest(&w.nodes[0]).open(&p.payload).unwrap();
        payloads.iter().any(|p| matches!(p, Payload::Sa(_)))
    });
    (result, had)
}

#[test]
fn childless_ike_sas_are_made_with_those_who_offer_them() {
    use Childless::{Allow, Force, Never, Prefer};
    for theirs in [Allow, Prefer, Force, Never] {
        let offered = theirs != Never;
        for ours in [Allow, Prefer, Force, Never] {
            let (result, had) = childless(ours, theirs, true);
            let may = offered && ours != Never;
            assert_eq!(
                (result.is_ok(), had),
                (may, may.then_some(false)),
                "alone: {ours:?} {theirs:?} {result:?}"
            );
            let (result, had) = childless(ours, theirs, false);
            let asked = match ours {
                Allow | Never => Some(true),
                Prefer => Some(!offered),
                Force => offered.then_some(false),
            };
            let taken = asked.is_some_and(|child| !child || theirs != Force);
            assert_eq!((result.is_ok(), had), (taken, asked), "{ours:?} {theirs:?} {result:?}");
        }
    }
}

#[test]
fn a_responder_that_never_makes_childless_ike_sas_refuses_one_that_comes_all_the_same() {
    // Node 0 believes that node 1 has offered them: it met another configuration in IKE_SA_INIT.
    let mut w = World::pair(14, |_| {});
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::IKE_AUTH && !s.response {
        true => Verdict::Delay(S),
        false => Verdict::Pass,
    }));
    let now = w.now();
    let ticket = w.nodes[0].endpoint.initiate(now, Some("gw"), None).unwrap();
    w.run(500 * MS);
    let now = w.now();
    let mut conn = w.nodes[1].connection("gw");
    conn.childless = Childless::Never;
    w.nodes[1].endpoint.load_connection(now, conn);
    w.run(5 * S);
    assert_eq!(w.nodes[0].done[&ticket], Err("received INVALID_SYNTAX notify error".to_owned()));
    assert!(w.nodes[1].logged("`childless` does not allow"));
}
