//! Bad input: from anyone (floods, forgeries, replays, corruption), and from a peer that is authenticated and misbehaves.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::event::IkeState;
use ironswan_keying::{AddrSpec, Limits};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::payload::{Delete, Ke, Nonce, Notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
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

fn sa_init(spi_i: u64, nonce: u8, cookie: Option<Vec<u8>>) -> Vec<u8> {
    let (_, public) = kex::generate(KeId::CURVE_25519, &[nonce; 32]).unwrap();
    let mut payloads = Vec::new();
    payloads.extend(cookie.map(|c| Payload::Notify(Notify::new(NotifyType::COOKIE, c))));
    payloads.push(Payload::Sa(vec![config::ike_proposal(&[KeId::CURVE_25519])]));
    payloads.push(Payload::Ke(Ke { group: KeId::CURVE_25519, data: public }));
    payloads.push(Payload::Nonce(Nonce(vec![nonce; 32])));
    let header = Header::new(spi_i, 0, ExchangeType::IKE_SA_INIT, Flags::new(true, false), 0);
    Message { header, payloads }.emit().unwrap()
}

#[test]
fn a_flood_of_spoofed_requests_costs_nothing_once_cookies_are_on() {
    let mut w = World::pair(1, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    let mut rng = Seeded::new(77);
    let request = sa_init(1, 9, None);
    let mut sent = 0u64;
    for n in 0..100_000u32 {
        let mut bytes = request.clone();
        bytes[..8].copy_from_slice(&(u64::from(n) + 1).to_be_bytes());
        let from = SocketAddr::from((((rng.u32() >> 1) | 1 << 24).to_be_bytes(), 500));
        sent += bytes.len() as u64;
        let now = w.now();
        w.nodes[1].endpoint.call(now, |e| e.handle_datagram(now, b(), from, &bytes));
        if n % 1_000 == 0 {
            w.run(MS);
            assert!(w.nodes[1].sas(w.now()).len() <= 30);
        }
    }
    w.run(MS);
    let c = *w.nodes[1].endpoint.protocol().counters();
    assert_eq!(w.nodes[1].kex, 30, "a key pair for each of the first thirty, and no shared secret");
    assert_eq!((c.half_open, c.cookies_sent), (30, 100_000 - 30));
    assert!(w.nodes[1].log.len() < 500, "{} lines", w.nodes[1].log.len());
    let answered: u64 = w.net.log.iter().map(|(_, p)| p.payload.len() as u64).sum();
    assert!(answered <= sent, "no amplification: {answered} for {sent}");
    // An honest client gets through meanwhile, with a cookie.
    w.establish(0).unwrap();
    assert_eq!(w.up(1).len(), 1);
    // And in half a minute it is as if nothing had been.
    w.run(31 * S);
    w.assert_one();
    let c = *w.nodes[1].endpoint.protocol().counters();
    assert_eq!((c.half_open, c.half_open_expired), (0, 30));
}

#[test]
fn one_address_gets_few_half_open_ike_sas_even_with_cookies() {
    let limits = Limits { half_open_per_addr: 5, ..Limits::default() };
    let mut w = World::pair_at(2, a().ip(), b().ip(), limits, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    let from = addr("198.51.100.3:500");
    for n in 1..=50u64 {
        w.inject(from, b(), sa_init(n, 3, None));
        w.run(20 * MS);
        // Brings the cookie back, if one was asked for.
        let Some((_, p)) = w.net.log.last().cloned() else { continue };
        let m = Message::parse(&p.payload).unwrap();
        if let Some(Payload::Notify(c)) = m.payloads.first() {
            assert_eq!(c.kind, NotifyType::COOKIE);
            w.inject(from, b(), sa_init(n, 3, Some(c.data.clone())));
            w.run(20 * MS);
        }
    }
    let c = *w.nodes[1].endpoint.protocol().counters();
    assert_eq!(c.half_open, 5);
    assert!(c.cookies_sent >= 40 && c.half_open_refused >= 40, "{c:?}");
    // Another address is not touched by it.
    w.establish(0).unwrap();
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn a_cookie_of_another_is_no_cookie() {
    let limits = Limits { cookie_threshold: 0, ..Limits::default() };
    let mut w = World::pair_at(3, a().ip(), b().ip(), limits, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    w.inject(addr("198.51.100.3:500"), b(), sa_init(1, 3, None));
    w.run(20 * MS);
    let (_, p) = w.net.log.last().unwrap().clone();
    let Some(Payload::Notify(n)) = Message::parse(&p.payload).unwrap().payloads.pop() else { panic!() };
    for (from, spi, nonce) in
        [("198.51.100.4:500", 1, 3), ("198.51.100.3:500", 2, 3), ("198.51.100.3:500", 1, 4)]
    {
        w.inject(addr(from), b(), sa_init(spi, nonce, Some(n.data.clone())));
        w.run(20 * MS);
    }
    let c = *w.nodes[1].endpoint.protocol().counters();
    assert_eq!((c.cookies_invalid, c.cookies_sent, c.half_open), (3, 4, 0));
    w.inject(addr("198.51.100.3:500"), b(), sa_init(1, 3, Some(n.data)));
    w.run(20 * MS);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().half_open, 1);
}

#[test]
fn forged_ike_auths_do_not_kill_a_half_open_ike_sa_and_cost_one_agreement() {
    let mut w = World::pair(4, |_| {});
    // The true IKE_AUTH is held back.
    w.net.rules.push(Box::new(|s| {
        if s.exchange == ExchangeType::IKE_AUTH && !s.response {
            Verdict::Delay(2 * S)
        } else {
            Verdict::Pass
        }
    }));
    w.initiate(0);
    w.run(100 * MS);
    let sa = w.nodes[1].sas(w.now()).remove(0);
    assert_eq!(sa.state, IkeState::Connecting);
    let mut rng = Seeded::new(5);
    for n in 0..1_000 {
        let header = Header::new(sa.spi_i, sa.spi_r, ExchangeType::IKE_AUTH, Flags::new(true, false), 1);
        let mut body = vec![0; 60 + n % 50];
        rng.fill(&mut body);
        let sk = Payload::Sk(ironswan_wire::ike::payload::Sk { inner: PayloadType::IDI, body });
        let bytes = Message { header, payloads: vec![sk] }.emit().unwrap();
        w.inject(a(), b(), bytes);
        w.run(MS);
    }
    assert_eq!(w.nodes[1].kex, 2, "one key pair, one shared secret");
    assert!(w.nodes[1].endpoint.protocol().counters().invalid >= 990);
    w.run(5 * S);
    w.assert_one();
    assert_eq!(w.nodes[1].kex, 2);
}

#[test]
fn unprotected_errors_and_deletes_kill_nothing() {
    let mut w = World::pair(6, |_| {});
    // In IKE_SA_INIT: every error but a plain NO_PROPOSAL_CHOSEN, from the right address with the right SPI.
    w.net.rules.push(Box::new(|s| {
        if s.exchange == ExchangeType::IKE_SA_INIT && s.response { Verdict::Delay(S) } else { Verdict::Pass }
    }));
    w.initiate(0);
    let sa = w.nodes[0].sas(w.now()).remove(0);
    for kind in (1..60).filter(|k| *k != NotifyType::NO_PROPOSAL_CHOSEN.0) {
        let header = Header::new(sa.spi_i, 0, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0);
        let payloads = vec![Payload::Notify(Notify::new(NotifyType(kind), [0, 1]))];
        w.inject(b(), a(), Message { header, payloads }.emit().unwrap());
        w.run(MS);
    }
    // The refusal itself from elsewhere.
    let header = Header::new(sa.spi_i, 0, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0);
    let payloads = vec![Payload::Notify(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN, []))];
    w.inject(addr("198.51.100.9:500"), a(), Message { header, payloads }.emit().unwrap());
    w.run(5 * S);
    w.assert_one();
    // Established: every exchange in clear, both ways, request and response.
    let sa = w.up(0)[0].clone();
    for exchange in [34, 35, 36, 37, 38, 43] {
        for response in [false, true] {
            for mid in 0..4 {
                for (initiator, from, to) in [(true, a(), b()), (false, b(), a())] {
                    let flags = Flags::new(initiator, response);
                    let header = Header::new(sa.spi_i, sa.spi_r, ExchangeType(exchange), flags, mid);
                    let payloads = vec![
                        Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, [])),
                        Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI, [])),
                        Payload::Delete(Delete::ike_sa()),
                    ];
                    w.inject(from, to, Message { header, payloads }.emit().unwrap());
                }
            }
        }
    }
    w.run(5 * S);
    w.assert_one();
    w.rekey_child(0);
    w.run(20 * S);
    w.assert_one();
}

#[test]
fn endless_cookies_and_methods_end() {
    for kind in [NotifyType::COOKIE, NotifyType::INVALID_KE_PAYLOAD] {
        let mut w = World::pair(7, |c| {
            c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
        });
        w.net.rules.push(Box::new(|s| if s.node == 1 { Verdict::Drop } else { Verdict::Pass }));
        w.initiate(0);
        let spi = w.nodes[0].sas(w.now())[0].spi_i;
        let groups = [KeId::CURVE_25519, KeId::ECP_256];
        for n in 0..200u16 {
            let data = match kind {
                NotifyType::COOKIE => vec![n as u8; 16],
                _ => groups[usize::from(n % 2)].0.to_be_bytes().to_vec(),
            };
            let header = Header::new(spi, 0, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0);
            let payloads = vec![Payload::Notify(Notify::new(kind, data))];
            w.inject(b(), a(), Message { header, payloads }.emit().unwrap());
            w.run(10 * MS);
        }
        let sent = w.net.log.iter().filter(|(s, _)| s.node == 0).count();
        assert!(sent < 12, "{kind}: {sent} requests");
        assert!(w.nodes[0].kex < 10);
        w.run(300 * S);
        assert!(w.nodes[0].sas(w.now()).is_empty(), "it ends");
    }
}

#[test]
fn a_corrupted_copy_of_everything_first_changes_nothing() {
    for seed in 0..40 {
        let mut w = World::pair(100 + seed, |c| {
            if seed % 2 == 1 {
                c.iter_mut().for_each(|c| c.proposals = vec![config::ike_proposal_cbc(&[KeId::CURVE_25519])]);
            }
        });
        // IKE_SA_INIT is not authenticated: corrupting it may end the attempt, so it goes undisturbed.
        w.initiate(0);
        w.run(12 * MS);
        w.net.corrupt = 25;
        w.run(5 * S);
        w.assert_one();
        for node in 0..2 {
            w.rekey_child(node);
            w.run(20 * S);
            w.rekey_ike(node);
            w.run(20 * S);
            w.assert_one();
        }
        let c = w.nodes[1].endpoint.protocol().counters();
        assert!(c.invalid > 50, "{c:?}");
        w.terminate(1, false);
        w.run(5 * S);
        assert!(w.up(0).is_empty() && w.up(1).is_empty());
    }
}

#[test]
fn a_corrupted_first_exchange_ends_in_one_or_none() {
    let mut up = 0;
    for seed in 0..200 {
        let mut w = World::pair(300 + seed, |_| {});
        w.net.corrupt = 1;
        let _ = w.establish(0);
        w.net.corrupt = 0;
        w.run(300 * S);
        match w.up(0).len() {
            1 => {
                up += 1;
                w.assert_one();
            }
            _ => w.assert_empty(),
        }
    }
    // What arrives first counts, and nobody can tell before IKE_AUTH: RFC 7296 section 2.4.
    assert!((10..200).contains(&up), "{up} of 200");
}

#[test]
fn nothing_of_the_past_has_any_effect() {
    let mut w = World::pair(8, |_| {});
    w.establish(0).unwrap();
    for node in 0..2 {
        w.rekey_child(node);
        w.run(20 * S);
    }
    let (ike, child) = (w.up(0)[0].spi_i, w.child(0).spi_in);
    let log = w.net.log.clone();
    let requests = w.nodes[0].endpoint.protocol().counters().create_child.out_rsp;
    for (_, p) in log.iter().chain(log.iter().rev()) {
        // From where it came, and from elsewhere; and reflected to its sender.
        w.inject(p.from, p.to, p.payload.clone());
        w.inject(addr("198.51.100.66:500"), p.to, p.payload.clone());
        w.inject(p.to, p.from, p.payload.clone());
        w.run(5 * MS);
    }
    w.run(40 * S);
    w.assert_one();
    assert_eq!((ike, child), (w.up(0)[0].spi_i, w.child(0).spi_in));
    assert_eq!(
        requests,
        w.nodes[0].endpoint.protocol().counters().create_child.out_rsp,
        "no work was done again"
    );
    assert_eq!(w.up(0)[0].remote, b());
    assert_eq!(w.up(1)[0].remote, a());
}

#[test]
fn other_versions_are_told_so_rarely() {
    let mut w = World::pair(9, |_| {});
    let mut v1 = sa_init(1, 1, None);
    v1[17] = 0x10;
    let mut v3 = v1.clone();
    v3[17] = 0x30;
    for n in 0..1_000 {
        w.inject(a(), b(), if n % 2 == 0 { v1.clone() } else { v3.clone() });
    }
    w.inject(a(), b(), v1[..28].to_vec());
    w.run(5 * MS);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().invalid_version, 1_001);
    assert!((1..=5).contains(&w.net.count), "{} answers", w.net.count);
    let (_, p) = &w.net.log[0];
    let m = Message::parse(&p.payload).unwrap();
    assert_eq!(m.payloads, [Payload::Notify(Notify::new(NotifyType::INVALID_MAJOR_VERSION, [2]))]);
    assert!(m.header.flags.response());
    // A higher minor version is as good as ours.
    let mut minor = sa_init(1, 1, None);
    minor[17] = 0x2f;
    w.inject(a(), b(), minor);
    w.run(5 * MS);
    assert_eq!(w.nodes[1].endpoint.protocol().counters().half_open, 1);
}

#[test]
fn what_is_not_a_first_message_is_not_answered() {
    let mut w = World::pair(10, |_| {});
    let good = sa_init(7, 1, None);
    for (at, value) in [(8, 1), (19, 0), (23, 1), (7, 0), (18, 35)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        w.inject(a(), b(), bytes);
    }
    for n in 0..good.len() {
        w.inject(a(), b(), good[..n].to_vec());
    }
    w.run(5 * MS);
    assert_eq!(w.net.count, 0);
    assert!(w.nodes[1].sas(w.now()).is_empty() && w.nodes[1].log.is_empty());
}

// ---- a peer that is authenticated and misbehaves: node 0 is the initiator, and its messages are forged ----

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

/// Node 0 rekeys its child, and so does its peer, which is played by hand: its request comes first, with the lowest nonce
/// of all, so that node 0 wins. Gives node 0's SPIs of its own new child and of the peer's.
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
