//! Bad inputs of `docs/rfc/bad-inputs.md` that go through whole ranges of numbers and lengths. Node
//! 0 is the initiator, and its messages are forged.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_keying::Limits;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::payload::{Delete, Ke, Nonce, Notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const INFO: ExchangeType = ExchangeType::INFORMATIONAL;

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

/// A message in clear with the SPIs of an IKE_SA, in the name of either side.
fn clear(spis: (u64, u64), exchange: u8, flags: Flags, mid: u32, payloads: Vec<Payload>) -> Vec<u8> {
    let header = Header::new(spis.0, spis.1, ExchangeType(exchange), flags, mid);
    Message { header, payloads }.emit().unwrap()
}

fn notify(kind: u16, data: impl Into<Vec<u8>>) -> Payload {
    Payload::Notify(Notify::new(NotifyType(kind), data))
}

/// Sends all that somebody without keys can say with these SPIs: each exchange type, requests and
/// responses of both sides.
fn every_exchange(w: &mut World, spis: (u64, u64)) {
    for exchange in 0..=255 {
        for (initiator, from, to) in [(true, a(), b()), (false, b(), a())] {
            for response in [false, true] {
                // A response to IKE_SA_INIT is not authenticated: NO_PROPOSAL_CHOSEN would end the
                // attempt, after a pause in which a better one may come.
                let flags = Flags::new(initiator, response);
                for mid in 0..3 {
                    let payloads = vec![Payload::Delete(Delete::ike_sa()), notify(24, [])];
                    w.inject(from, to, clear(spis, exchange, flags, mid, payloads));
                    w.inject(from, to, clear(spis, exchange, flags, mid, Vec::new()));
                }
            }
        }
    }
}

#[test]
fn each_exchange_type_in_clear_changes_nothing_in_any_state() {
    // Nobody is there: only an IKE_SA_INIT request would be answered, and this one has no payloads.
    let mut w = World::pair(301, |_| {});
    every_exchange(&mut w, (7, 0));
    every_exchange(&mut w, (7, 8));
    w.run(S);
    assert!(w.nodes.iter().all(|n| n.engine.inbound.is_empty()));
    assert!(w.nodes[0].sas(w.now()).is_empty() && w.nodes[1].sas(w.now()).is_empty());
    // While the first and while the second exchange is under way.
    for wanted in [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_AUTH] {
        let mut w = World::pair(302, |_| {});
        w.net.rules.push(Box::new(move |s| {
            if s.exchange == wanted && s.response { Verdict::Delay(500 * MS) } else { Verdict::Pass }
        }));
        w.initiate(0);
        w.run(100 * MS);
        let sa = w.nodes[0].sas(w.now()).remove(0);
        let responder = w.nodes[1].sas(w.now()).remove(0).spi_r;
        every_exchange(&mut w, (sa.spi_i, responder));
        w.run(5 * S);
        w.assert_one();
    }
    // Established.
    let mut w = World::pair(303, |_| {});
    w.establish(0).unwrap();
    let sa = w.up(0)[0].clone();
    every_exchange(&mut w, (sa.spi_i, sa.spi_r));
    w.run(5 * S);
    w.assert_one();
    w.rekey_child(0);
    w.run(20 * S);
    w.assert_one();
}

#[test]
fn each_error_type_in_clear_changes_nothing_once_there_are_keys() {
    for established in [false, true] {
        let mut w = World::pair(304, |_| {});
        if established {
            w.establish(0).unwrap();
        } else {
            w.net.rules.push(Box::new(|s| {
                if s.exchange == ExchangeType::IKE_AUTH && s.response {
                    Verdict::Delay(S)
                } else {
                    Verdict::Pass
                }
            }));
            w.initiate(0);
            w.run(100 * MS);
        }
        let sa = w.nodes[0].sas(w.now()).remove(0);
        let spis = (sa.spi_i, w.nodes[1].sas(w.now()).remove(0).spi_r);
        let exchange = if established { INFO } else { ExchangeType::IKE_AUTH };
        for kind in 1..16_384 {
            let (from, to, initiator) = if kind % 2 == 0 { (a(), b(), true) } else { (b(), a(), false) };
            let flags = Flags::new(initiator, kind % 4 > 1);
            w.inject(
                from,
                to,
                clear(spis, exchange.0, flags, 1 + u32::from(established), vec![notify(kind, [])]),
            );
        }
        w.run(5 * S);
        w.assert_one();
    }
}

#[test]
fn cookies_of_any_length_number_and_place_are_answered_by_a_cookie_alone() {
    let limits = Limits { cookie_threshold: 0, ..Limits::default() };
    let mut w = World::pair_at(305, a().ip(), b().ip(), limits, |_| {});
    let (_, public) = kex::generate(KeId::CURVE_25519, &[3; 32]).unwrap();
    let request = |cookies: &[usize], first: bool, spi: u64| {
        let rest = [
            Payload::Sa(vec![config::ike_proposal(&[KeId::CURVE_25519])]),
            Payload::Ke(Ke { group: KeId::CURVE_25519, data: public.clone() }),
            Payload::Nonce(Nonce(vec![9; 32])),
        ];
        let cookies = cookies.iter().map(|n| notify(NotifyType::COOKIE.0, vec![5; *n]));
        let payloads =
            if first { cookies.chain(rest).collect() } else { rest.into_iter().chain(cookies).collect() };
        clear((spi, 0), ExchangeType::IKE_SA_INIT.0, Flags::new(true, false), 0, payloads)
    };
    let cases: [(&[usize], bool); 9] = [
        (&[], true),
        (&[0], true),
        (&[1], true),
        (&[64], true),
        (&[65], true),
        (&[60_000], true),
        (&[24, 24], true),
        (&[24], false),
        (&[1, 60_000], false),
    ];
    for (n, (cookies, first)) in cases.into_iter().enumerate() {
        let before = w.net.log.len();
        w.inject(a(), b(), request(cookies, first, 100 + n as u64));
        w.run(10 * MS);
        let answers: Vec<_> = w.net.log[before..].iter().filter(|(s, _)| s.node == 1).collect();
        // The longest is longer than any message that is read.
        assert_eq!(answers.len(), usize::from(!cookies.contains(&60_000)), "{cookies:?}");
        let Some(answer) = answers.first() else { continue };
        let message = Message::parse(&answer.1.payload).unwrap();
        assert!(
            matches!(&message.payloads[..], [Payload::Notify(n)] if n.kind == NotifyType::COOKIE && n.data.len() <= 64),
            "{cookies:?}: {message:?}"
        );
    }
    assert!(w.nodes[1].sas(w.now()).is_empty());
    assert_eq!(w.nodes[1].kex, 0);
}

#[test]
fn notifies_that_lie_in_length_or_number_are_answered_and_the_ike_sa_stands() {
    let mut w = World::pair(306, |_| {});
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let kind = |t: NotifyType| t.0;
    let many = |n: usize, t: NotifyType, data: &[u8]| vec![notify(t.0, data); n];
    let spi = |protocol: u8| {
        let (kind, data) = (NotifyType::INVALID_SELECTORS, Vec::new());
        Payload::Notify(Notify { protocol: ProtocolId(protocol), spi: vec![1; 4], kind, data })
    };
    let cases: Vec<Vec<Payload>> = vec![
        vec![notify(kind(NotifyType::SET_WINDOW_SIZE), [0; 4])],
        vec![notify(kind(NotifyType::SET_WINDOW_SIZE), [255; 4])],
        vec![notify(kind(NotifyType::SET_WINDOW_SIZE), [])],
        vec![notify(kind(NotifyType::SET_WINDOW_SIZE), [1; 5])],
        many(90, NotifyType::NAT_DETECTION_SOURCE_IP, &[7; 3]),
        many(90, NotifyType::NAT_DETECTION_DESTINATION_IP, &[7; 30]),
        many(90, NotifyType::ADDITIONAL_IP4_ADDRESS, &[198, 51, 100, 7]),
        many(1, NotifyType::ADDITIONAL_IP6_ADDRESS, &[1; 5]),
        many(1, NotifyType::UPDATE_SA_ADDRESSES, &[]),
        many(2, NotifyType::COOKIE2, &[5; 65]),
        many(1, NotifyType::AUTH_LIFETIME, &[]),
        many(1, NotifyType::AUTH_LIFETIME, &[1; 3]),
        many(1, NotifyType::COOKIE, &[1; 3_000]),
        // REDIRECT (RFC 5685) to ourselves, MESSAGE_ID_SYNC (RFC 6311), neither announced.
        vec![notify(16_407, [1, 4, 192, 0, 2, 2])],
        vec![notify(16_422, [0; 12])],
        (0..=4).map(spi).collect(),
        vec![spi(255)],
        vec![notify(65_535, vec![0; 3_000])],
    ];
    for (mid, payloads) in (2..).zip(cases) {
        let before = w.net.log.len();
        w.inject(a(), b(), f.message(true, INFO, false, mid, &payloads));
        w.run(100 * MS);
        let answered = w.net.log[before..].iter().filter(|(s, _)| s.node == 1 && s.response).count();
        assert_eq!(answered, 1, "ID {mid}: {:?}", payloads[0]);
        w.assert_one();
        assert_eq!(w.up(1)[0].remote, a(), "ID {mid}");
    }
}

#[test]
fn configuration_and_eap_that_nobody_asked_for_harm_nothing() {
    let mut w = World::pair(307, |_| {});
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    // CFG_REQUEST, CFG_REPLY, CFG_SET, CFG_ACK and an unknown type, with 300 addresses of name
    // servers, our own inner address, and those that are no host's.
    for (mid, kind) in (2..).zip([1u8, 2, 3, 4, 9]) {
        let mut body = vec![kind, 0, 0, 0];
        for n in 0..300u32 {
            let address = [0, u32::MAX, 0xe000_0001, 0x0a02_0001][n as usize % 4];
            body.extend([0, if n % 2 == 0 { 1 } else { 3 }, 0, 4]);
            body.extend(u32::to_be_bytes(address));
        }
        let cp = [&[0, 0, ((body.len() + 4) >> 8) as u8, (body.len() + 4) as u8][..], &body].concat();
        let before = w.net.log.len();
        w.inject(a(), b(), f.raw(true, INFO, false, mid, PayloadType::CP, &cp));
        w.run(100 * MS);
        let answered = w.net.log[before..].iter().filter(|(s, _)| s.node == 1 && s.response).count();
        assert_eq!(answered, 1, "CP of type {kind}");
        w.assert_one();
    }
    // EAP-Success, EAP-Failure, a request for the identity.
    for (mid, eap) in (7..).zip([&[3u8, 1, 0, 4][..], &[4, 1, 0, 4], &[1, 1, 0, 5, 1]]) {
        let body = [&[0, 0, 0, 4 + eap.len() as u8][..], eap].concat();
        w.inject(a(), b(), f.raw(true, INFO, false, mid, PayloadType::EAP, &body));
        w.run(100 * MS);
        w.assert_one();
    }
}
