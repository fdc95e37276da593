//! Bad input from anyone: floods, forgeries, replays, corruption. That of an authenticated peer is
//! in `misbehaving`.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::event::IkeState;
use ironswan_keying::{AddrSpec, Limits};
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType};
use ironswan_wire::ike::payload::{Delete, Ke, Nonce, Notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};

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
    // In IKE_SA_INIT: every error but a plain NO_PROPOSAL_CHOSEN, from the right address with the
    // right SPI.
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
        // IKE_SA_INIT is not authenticated: corrupting it may end the attempt, so it goes
        // undisturbed.
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
