//! Floods of IKE_SA_INIT requests and of attempts with a wrong key: what one sender may have, what
//! a refusal costs, what is answered and what is written, while an honest peer gets in.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::counters::Counters;
use ironswan_ike::event::Level;
use ironswan_keying::{AddrSpec, Limits};
use ironswan_testkit::direct::{self, Way};
use ironswan_testkit::{World, config};
use ironswan_wire::iana::{EncrId, ExchangeType, KeId, NotifyType, PayloadType, PrfId, ProtocolId};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify, Sk, VendorId};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

/// Node 1 takes anyone, and is what is attacked.
fn gateway(seed: u64, limits: Limits) -> World {
    let (a, b) = (config::ip("192.0.2.1"), b().ip());
    World::pair_at(seed, a, b, limits, |c| c[1].remote_addrs = vec![AddrSpec::Any])
}

/// A request with these payloads, a cookie in front of them if there is one.
fn request(spi_i: u64, cookie: Option<&[u8]>, payloads: &[Payload]) -> Vec<u8> {
    let cookie = cookie.map(|c| Payload::Notify(Notify::new(NotifyType::COOKIE, c)));
    let payloads = cookie.into_iter().chain(payloads.iter().cloned()).collect();
    let header = Header::new(spi_i, 0, ExchangeType::IKE_SA_INIT, Flags::new(true, false), 0);
    Message { header, payloads }.emit().unwrap()
}

/// SA, KE and nonce that node 1 accepts.
fn good() -> Vec<Payload> {
    let (_, public) = kex::generate(KeId::CURVE_25519, &[9; 32]).unwrap();
    vec![
        Payload::Sa(vec![config::ike_proposal(&[KeId::CURVE_25519])]),
        Payload::Ke(Ke { group: KeId::CURVE_25519, data: public }),
        Payload::Nonce(Nonce(vec![9; 32])),
    ]
}

/// The same with proposals that it does not accept: one of 132 bytes, or as many as 9 KB hold.
fn bad(proposals: usize, transforms: usize) -> Vec<Payload> {
    let [_, ke, nonce] = good().try_into().unwrap();
    let mut list = Vec::new();
    for n in 0..proposals {
        let encr = (0..transforms).map(|i| Transform::Encr(EncrId::AES_GCM_16, Some(999 + i as u16)));
        let mut transforms: Vec<_> = encr.collect();
        transforms.extend([Transform::Prf(PrfId::HMAC_SHA2_256), Transform::Ke(KeId::CURVE_25519)]);
        list.push(Proposal { number: n as u8 + 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms });
    }
    vec![Payload::Sa(list), ke, nonce]
}

fn counters(w: &World) -> Counters {
    *w.nodes[1].endpoint.protocol().counters()
}

/// Lines and bytes that node 1 has written, with time and level in front, at the level that daemons
/// have.
fn written(w: &World) -> (usize, usize) {
    let lines = w.nodes[1].log.iter().filter(|(level, _)| *level <= Level::Info);
    lines.fold((0, 0), |(n, bytes), (_, line)| (n + 1, bytes + 40 + line.len()))
}

/// Gives node 1 a datagram and takes its answers, without the network.
fn ask(w: &mut World, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
    let now = w.now();
    w.nodes[1].endpoint.call(now, |e| e.handle_datagram(now, b(), from, bytes));
    w.nodes[1].drain(now).into_iter().filter(|t| t.remote == from).map(|t| t.payload).collect()
}

fn cookie(answers: &[Vec<u8>]) -> Option<Vec<u8>> {
    let message = Message::parse(answers.first()?).unwrap();
    match message.payloads.first() {
        Some(Payload::Notify(n)) if n.kind == NotifyType::COOKIE => Some(n.data.clone()),
        _ => None,
    }
}

/// A request, and again with the cookie that is asked for. What the last one is answered.
fn ask_with_cookie(w: &mut World, from: SocketAddr, spi: u64, payloads: &[Payload]) -> Vec<Vec<u8>> {
    let answers = ask(w, from, &request(spi, None, payloads));
    match cookie(&answers) {
        Some(c) => ask(w, from, &request(spi, Some(&c), payloads)),
        None => answers,
    }
}

/// Some host's address.
fn anyone(rng: &mut Seeded) -> SocketAddr {
    SocketAddr::from((((rng.u32() >> 1) | 1 << 24).to_be_bytes(), 500))
}

fn v6(site: u16, net: u16, host: u64) -> SocketAddr {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (host >> shift) as u16);
    SocketAddr::new(IpAddr::from([0x2001, 0xdb8, site, net, a, b, c, d]), 500)
}

#[test]
fn one_network_cannot_fill_the_table_though_it_brings_cookies() {
    let mut w = gateway(1, Limits::default());
    let payloads = good();
    // 33 a second keep a table of 1,000 full for 30 s each: here from one /64, whose every address
    // is real.
    for n in 0..2_000u64 {
        ask_with_cookie(&mut w, v6(1, 1, n), n + 1, &payloads);
        w.run(30 * MS);
    }
    let c = counters(&w);
    println!("one /64, 60 s: {} half-open, {} refused", c.half_open, c.half_open_refused);
    assert!((240..=250).contains(&c.half_open));
    w.establish(0).unwrap();
    assert_eq!(w.up(1).len(), 1);
    w.run(31 * S);
    assert_eq!(counters(&w).half_open, 0);
}

#[test]
fn one_site_cannot_fill_it_either_and_two_give_way_to_others() {
    let mut w = gateway(2, Limits::default());
    let payloads = good();
    for n in 0..3_000u64 {
        ask_with_cookie(&mut w, v6(1, n as u16, 1), n + 1, &payloads);
        w.run(MS);
    }
    assert_eq!(counters(&w).half_open, 500, "a /48, whatever it does");
    w.establish(0).unwrap();
    for n in 0..1_000u64 {
        ask_with_cookie(&mut w, v6(2, n as u16, 1), n + 10_000, &payloads);
        w.run(MS);
    }
    assert_eq!(counters(&w).half_open, 1_000, "two of them fill it");
    w.terminate(0, false);
    w.run(S);
    w.establish(0).unwrap();
    let c = counters(&w);
    println!("two /48: {} gave way, {} were refused", c.half_open_displaced, c.half_open_refused);
    assert!(c.half_open_displaced > 0 && c.half_open <= 1_000);
    // Above half of the table, a third of the time is all that one gets.
    w.run(11 * S);
    ask_with_cookie(&mut w, v6(3, 1, 1), 1, &payloads);
    ask_with_cookie(&mut w, v6(3, 1, 1), 2, &payloads);
    assert!(counters(&w).half_open_expired >= 4);
    w.run(31 * S);
    assert_eq!(counters(&w).half_open, 0);
}

/// An IKE_AUTH request that nobody has the keys for: the key exchange has to be computed to see
/// that.
fn junk_auth(spi_i: u64, spi_r: u64) -> Vec<u8> {
    let header = Header::new(spi_i, spi_r, ExchangeType::IKE_AUTH, Flags::new(true, false), 1);
    let sk = Payload::Sk(Sk { inner: PayloadType::IDI, body: vec![7; 80] });
    Message { header, payloads: vec![sk] }.emit().unwrap()
}

#[test]
fn sites_that_keep_the_key_exchange_busy_give_way_all_the_same_and_their_work_is_not_wanted_any_more() {
    let mut w = gateway(9, Limits::default());
    let payloads = good();
    let mut auths = Vec::new();
    for n in 0..1_000u64 {
        let from = v6(1 + (n % 2) as u16, n as u16, 1);
        let answers = ask_with_cookie(&mut w, from, n + 1, &payloads);
        auths.push((from, junk_auth(n + 1, Header::parse(&answers[0]).unwrap().responder_spi)));
        w.run(MS);
    }
    w.nodes[1].held = Some(Vec::new());
    for (from, auth) in auths {
        ask(&mut w, from, &auth);
    }
    let waiting = |w: &World| w.nodes[1].held.as_ref().unwrap().len();
    assert_eq!((counters(&w).half_open, waiting(&w)), (1_000, 1_000), "all wait for a thread");
    w.initiate(0);
    w.run(S);
    let c = counters(&w);
    let newcomer =
        w.nodes[1].sas(w.now()).iter().filter(|sa| sa.remote.ip() == config::ip("192.0.2.1")).count();
    println!("{} gave way, {} refused, {} wait", c.half_open_displaced, c.half_open_refused, waiting(&w));
    assert_eq!((newcomer, c.half_open_displaced, c.half_open), (1, 1, 1_000));
    // What was computed for the one that gave way has been taken back.
    assert_eq!(waiting(&w), 1_000);
    let now = w.now();
    w.nodes[1].release(now);
    w.run(5 * S);
    assert_eq!(w.up(1).len(), 1);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it measures, and asserts no time")]
fn a_refusal_is_cheap_counts_towards_cookies_and_is_explained_when_it_is_written() {
    let many = bad(60, 6);
    let vendor = Payload::VendorId(VendorId(vec![7; 8_800]));
    let requests = [
        ("132 B", request(1, None, &bad(1, 1))),
        ("4 KB of proposals", request(1, None, &many)),
        ("9 KB", request(1, None, &[bad(1, 1), vec![vendor]].concat())),
    ];
    for (name, bytes) in requests {
        let mut w = gateway(3, Limits::default());
        // As many connections for anyone as there may be, and three lists of proposals.
        let (now, conn) = (w.now(), w.nodes[1].connection("gw"));
        for n in 0..500 {
            let mut conn = conn.clone();
            conn.name = format!("c{n}");
            if n % 3 > 0 {
                conn.proposals = vec![config::ike_proposal_cbc(&[KeId::ECP_256, KeId::ECP_384][..n % 3])];
            }
            w.nodes[1].endpoint.load_connection(now, conn);
        }
        w.run(MS);
        w.nodes[1].log.clear();
        let mut rng = Seeded::new(1);
        // 600 a second from any address, as each refusal cost up to 3.9 ms.
        let (mut spent, mut answered) = (Duration::ZERO, 0);
        const COUNT: u32 = 6_000;
        for n in 0..COUNT {
            let mut bytes = bytes.clone();
            bytes[..8].copy_from_slice(&(u64::from(n) + 1).to_be_bytes());
            let from = anyone(&mut rng);
            let start = std::time::Instant::now();
            let answers = ask(&mut w, from, &bytes);
            spent += start.elapsed();
            answered += answers.iter().map(Vec::len).sum::<usize>();
            w.run(S / 600);
        }
        let c = counters(&w);
        w.run(S);
        let (_, log) = written(&w);
        println!(
            "{name}: {} ns each, {} pairs of proposals compared, {} refused, {} cookies, {log} B of log in 11 s",
            spent.as_nanos() / u128::from(COUNT),
            c.compared,
            c.no_proposal,
            c.cookies_sent,
        );
        // 10 s: at most every second half of a second begins with as many as may be refused.
        assert!(c.no_proposal <= 31 * 10 && c.no_proposal + c.cookies_sent >= u64::from(COUNT));
        let each = if name == "4 KB of proposals" { 60 } else { 1 };
        assert_eq!(c.compared, c.no_proposal * each * 3, "each list of proposals once");
        assert!(answered < COUNT as usize * 60, "{answered} B");
        assert!(log < 150_000, "{log} B");
        assert!(w.nodes[1].logged("not written in the last 10 s"));
        w.establish(0).unwrap();
    }
}

#[test]
fn more_proposals_than_anyone_has_are_not_looked_at() {
    let mut w = gateway(4, Limits::default());
    for payloads in [bad(65, 1), bad(3, 170)] {
        let from = "198.51.100.3:500".parse().unwrap();
        assert!(ask(&mut w, from, &request(1, None, &payloads)).is_empty());
    }
    let c = counters(&w);
    assert_eq!((c.invalid, c.compared, c.no_proposal), (2, 0, 0));
}

#[test]
fn a_flood_of_refusals_does_not_silence_the_answer_that_another_waits_for() {
    let mut w = World::pair(5, |c| {
        c[1].remote_addrs = vec![AddrSpec::Any];
        c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_256])];
    });
    let payloads = bad(1, 1);
    let mut rng = Seeded::new(2);
    let mut told = 0;
    for round in 0..20u64 {
        w.initiate(0);
        for n in 0..200u64 {
            // Real addresses, which bring cookies, each in a network of its own; and made-up ones.
            let real = SocketAddr::from(([198, 51, n as u8, 1], 500));
            ask_with_cookie(&mut w, real, 1 + round * 1_000 + n, &payloads);
            ask(&mut w, anyone(&mut rng), &request(n + 1, None, &payloads));
            w.run(5 * MS);
        }
        told += u32::from(w.nodes[0].count_logged("received NO_PROPOSAL_CHOSEN") > round as usize);
        w.run(4 * S);
    }
    assert_eq!(told, 20, "within a second each time");
    let c = counters(&w);
    let sent = w.nodes[1].count_logged("sending NO_PROPOSAL_CHOSEN");
    println!("{} refused, {sent} written", c.no_proposal);
    assert!(c.no_proposal > 4_000 && (20..300).contains(&sent));
}

/// The smallest requests of every kind, and what they are answered.
#[test]
fn nothing_is_answered_with_much_more_than_it_brought_until_a_cookie_came_back() {
    let hashes = |len| -> Vec<Payload> {
        let kinds = [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP];
        kinds.map(|kind| Payload::Notify(Notify::new(kind, vec![1; len]))).into()
    };
    let mut proved = 0;
    let kinds = |answers: &[Vec<u8>]| -> Vec<PayloadType> {
        answers.iter().flat_map(|a| Message::parse(a).unwrap().payloads).map(|p| p.kind()).collect()
    };
    for nonce in [16, 17, 20, 32, 256] {
        for hash in [None, Some(20), Some(0)] {
            let mut w = gateway(6, Limits::default());
            let from: SocketAddr = "198.51.100.3:500".parse().unwrap();
            let mut payloads = good();
            payloads[2] = Payload::Nonce(Nonce(vec![3; nonce]));
            // NAT detection makes the answer 56 bytes longer, whatever it was asked for with.
            payloads.extend(hash.map(hashes).into_iter().flatten());
            let mut last = Vec::new();
            for n in 0..2_000u64 {
                let bytes = request(1, None, &payloads);
                let answers = ask(&mut w, from, &bytes);
                let size: usize = answers.iter().map(Vec::len).sum();
                assert!(5 * size <= 6 * bytes.len(), "{size} for {} bytes", bytes.len());
                assert!(n % 100 == 0 || answers.is_empty() || cookie(&answers).is_some(), "once a second");
                if !answers.is_empty() {
                    last = answers;
                }
                w.run(10 * MS);
            }
            match cookie(&last) {
                Some(c) => {
                    let answers = ask(&mut w, from, &request(1, Some(&c), &payloads));
                    assert!(kinds(&answers).contains(&PayloadType::KE), "{nonce}");
                    proved += 1;
                }
                None => {
                    let hashes = kinds(&last).iter().filter(|k| **k == PayloadType::NOTIFY).count();
                    assert_eq!(
                        hashes,
                        if hash.is_some() { 3 } else { 1 },
                        "CHILDLESS_IKEV2_SUPPORTED, and hashes if asked for"
                    );
                }
            }
        }
    }
    println!("{proved} of 15 kinds of requests had to bring a cookie");
    assert!((1..15).contains(&proved));
}

#[test]
fn a_cookie_is_smaller_than_the_smallest_request() {
    let limits = Limits { cookie_threshold: 0, ..Limits::default() };
    let mut w = gateway(7, limits);
    let from: SocketAddr = "198.51.100.3:500".parse().unwrap();
    // From a header alone to a whole request, padded by a nonce.
    let header = Header::new(1, 0, ExchangeType::IKE_SA_INIT, Flags::new(true, false), 0);
    for len in 16..=256 {
        let bytes = Message { header, payloads: vec![Payload::Nonce(Nonce(vec![1; len]))] }.emit().unwrap();
        let answers = ask(&mut w, from, &bytes);
        assert_eq!(answers.len(), usize::from(bytes.len() >= 100), "{} bytes", bytes.len());
        assert!(answers.iter().all(|a| a.len() < bytes.len() && a.len() < 60));
    }
    let mut short = good();
    short[2] = Payload::Nonce(Nonce(vec![1; 16]));
    let bytes = request(1, None, &short);
    let answers = ask(&mut w, from, &bytes);
    println!("a cookie takes {} bytes, the request {}", answers[0].len(), bytes.len());
    assert!(cookie(&answers).is_some() && answers[0].len() < bytes.len());
}

#[test]
fn peers_with_a_wrong_key_are_written_about_with_a_bound() {
    let mut w = gateway(8, Limits::default());
    w.nodes[0].endpoint.load_shared(config::psk("ike-gw", "another secret", &["g1.example", "g2.example"]));
    w.nodes[1].log.clear();
    const ATTEMPTS: u64 = 1_200;
    for _ in 0..ATTEMPTS {
        w.initiate(0);
        w.run(50 * MS);
    }
    w.run(11 * S);
    let c = counters(&w);
    let (lines, log) = written(&w);
    println!(
        "{} attempts with a wrong key in 60 s: {lines} lines, {} B an attempt",
        c.auth_failed,
        log as u64 / ATTEMPTS
    );
    assert!(c.auth_failed > 1_000 && log < 40_000, "{log} B");
    assert!(w.nodes[1].logged("the MAC does not match shared key 'ike-gw'"));
    let summed: u64 = w.nodes[1]
        .log
        .iter()
        .filter_map(|(_, l)| l.split(" peers that failed").next()?.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    let written = w.nodes[1].count_logged("the MAC does not match") as u64;
    assert_eq!(summed + written, c.auth_failed, "what is not written is counted");
}

/// Peers without the secret come for over half an hour, 5,000 a second, from many networks.
#[test]
fn ten_million_wrong_secrets_write_less_than_a_megabyte() {
    // Without optimisation ten million would take hours.
    let full = std::env::var_os("FULL").is_some() && !cfg!(debug_assertions);
    let attempts: u32 = if full { 10_000_000 } else { 10_000 };
    let (way, mut now) = (Way { ecdsa: false, additional: &[] }, ironswan_testkit::clock::now());
    let mut hub = direct::hub(now, 1, way);
    let mut peer = direct::peer(now, 1, way);
    peer.endpoint.load_shared(config::psk("all", "another secret", &[]));
    // The key exchange alone would take an hour.
    (hub.one_key, peer.one_key) = (true, true);
    for n in 0..attempts {
        peer.endpoint.initiate(now, Some("gw"), Some("net")).expect("a connection");
        // Each attempt seems to come from behind a NAT with another address.
        let nat = IpAddr::from((0x0b00_0000 + n).to_be_bytes());
        loop {
            let sent = peer.drain(now);
            if sent.is_empty() {
                break;
            }
            for mut request in sent {
                let own = request.local;
                request.local.set_ip(nat);
                hub.receive(now, &request);
                for mut response in hub.drain(now) {
                    response.remote = own;
                    peer.receive(now, &response);
                }
            }
        }
        now += S / 5_000;
        hub.endpoint.handle_timeout(now);
        (hub.failures, peer.failures) = Default::default();
    }
    let failed = hub.endpoint.protocol().counters().auth_failed;
    println!("{failed} wrong proofs: {} bytes of log", hub.log_bytes);
    assert_eq!((failed, hub.ups), (u64::from(attempts), 0));
    assert!((1..1 << 20).contains(&hub.log_bytes), "{} bytes", hub.log_bytes);
}

#[test]
fn what_no_answer_can_go_to_is_dropped_before_anything_else() {
    let mut w = gateway(11, Limits::default());
    let requests = [request(1, None, &good()), request(2, None, &bad(1, 1))];
    let mut version = requests[0].clone();
    version[17] = 0x30;
    let ends = [
        ("198.51.100.3:0", "192.0.2.2:500"),
        ("0.0.0.0:500", "192.0.2.2:500"),
        ("255.255.255.255:500", "192.0.2.2:500"),
        ("224.0.0.1:500", "192.0.2.2:500"),
        ("198.51.100.3:500", "224.0.0.1:500"),
        ("198.51.100.3:500", "255.255.255.255:500"),
        ("[2001:db8::1]:0", "[2001:db8::2]:500"),
        ("[::]:500", "[2001:db8::2]:500"),
        ("[ff02::1]:500", "[2001:db8::2]:500"),
        ("[2001:db8::1]:500", "[ff02::1]:500"),
    ];
    let mut dropped = 0;
    for (from, to) in ends {
        for bytes in requests.iter().chain([&version]) {
            let now = w.now();
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            w.nodes[1].endpoint.call(now, |e| e.handle_datagram(now, to, from, bytes));
            let sent = w.nodes[1].drain(now);
            assert!(sent.is_empty(), "{from} to {to}: {} answers", sent.len());
            dropped += 1;
        }
    }
    let c = counters(&w);
    assert_eq!((c.invalid, c.half_open, c.no_proposal, c.invalid_version), (dropped, 0, 0, 0));
    // A port that is only strange is a peer's behind a NAT.
    assert_eq!(ask(&mut w, "198.51.100.3:1".parse().unwrap(), &requests[0]).len(), 1);
}

#[test]
fn a_cookie_that_is_used_again_and_again_buys_few_comparisons() {
    // Proposals that do not fit; and such as fit, with a key exchange method that is not the one
    // selected.
    let mut other = good();
    other[1] = Payload::Ke(Ke { group: KeId::ECP_256, data: vec![9; 64] });
    for (name, payloads) in [("NO_PROPOSAL_CHOSEN", bad(60, 6)), ("INVALID_KE_PAYLOAD", other)] {
        let mut w = gateway(12, Limits::default());
        let mut rng = Seeded::new(3);
        let flood = |w: &mut World, rng: &mut Seeded| {
            // Anyone's refusals, so that cookies are asked for.
            for _ in 0..31 {
                let from = anyone(rng);
                ask(w, from, &request(rng.u64() | 1, None, &bad(1, 1)));
            }
        };
        flood(&mut w, &mut rng);
        let from: SocketAddr = "198.51.100.3:500".parse().unwrap();
        let cookie = cookie(&ask(&mut w, from, &request(1, None, &payloads))).expect("a cookie");
        let again = request(1, Some(&cookie), &payloads);
        let before = counters(&w);
        let mut answers = 0;
        for n in 0..20_000 {
            if n % 1_000 == 0 {
                flood(&mut w, &mut rng);
            }
            answers += ask(&mut w, from, &again).len();
            w.run(S / 2_000);
        }
        let c = counters(&w);
        let (compared, dropped) = (c.compared - before.compared, c.half_open_refused);
        println!(
            "{name}: {answers} answers to 20,000 requests in 10 s, {compared} compared, {dropped} dropped"
        );
        assert!((5..=60).contains(&answers), "{answers}");
        assert!(compared <= 60 * 60 + 20 * 31, "{compared}");
        assert!(dropped >= 19_900, "{dropped}");
        // Who brings a cookie from elsewhere is heard meanwhile.
        w.establish(0).unwrap();
    }
}
