//! IPComp (RFC 7296 section 2.22, RFC 3173): offered, accepted, left out, made anew by rekeying,
//! given back in the end; and notifications that make no sense.

use std::collections::BTreeSet;
use std::time::Duration;

use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Nonce, Notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Direction, Mode};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// What node 0 and node 1 have configured.
fn with(seed: u64, ipcomp: [bool; 2]) -> World {
    World::pair(seed, |c| {
        for (conn, ipcomp) in c.iter_mut().zip(ipcomp) {
            conn.children[0].ipcomp = ipcomp;
        }
    })
}

fn notify(data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::IPCOMP_SUPPORTED, data))
}

/// The data of every IPCOMP_SUPPORTED in messages of this exchange.
fn said(w: &World, exchange: ExchangeType, response: bool) -> Vec<Vec<u8>> {
    let f = Forger::newest(&w.nodes[0]);
    let of = w.net.log.iter().filter(|(s, _)| (s.exchange, s.response) == (exchange, response));
    let payloads = of.filter_map(|(_, p)| f.open(&p.payload)).flat_map(|(_, p)| p);
    payloads
        .filter_map(|p| match p {
            Payload::Notify(n) if n.kind == NotifyType::IPCOMP_SUPPORTED => Some(n.data),
            _ => None,
        })
        .collect()
}

/// CPIs in the engine and in the view of a node are the same, and where they belong.
fn cpis(w: &World, node: usize) -> (Option<u16>, Option<u16>) {
    let (c, e) = (w.child(node), &w.nodes[node].engine);
    assert_eq!(e.inbound[&c.spi_in].options.ipcomp, c.cpi_in);
    let out = e.outbound.iter().find(|o| o.spi == c.spi_out).expect("an outbound SA");
    assert_eq!((out.direction, out.options.ipcomp), (Direction::Out, c.cpi_out));
    (c.cpi_in, c.cpi_out)
}

fn table(w: &World, node: usize) -> usize {
    w.nodes[node].endpoint.tables().into_iter().find(|(name, _)| *name == "CPIs").expect("the table").1
}

#[test]
fn ipcomp_is_used_when_both_want_it() {
    for want in [[true, true], [true, false], [false, true], [false, false]] {
        let mut w = with(1, want);
        w.traffic = Some(50 * MS);
        w.establish(0).unwrap();
        w.assert_one();
        let both = want == [true, true];
        let (ours, theirs) = cpis(&w, 0);
        assert_eq!(cpis(&w, 1), (theirs, ours));
        assert_eq!((ours.is_some(), theirs.is_some()), (both, both), "{want:?}");
        // It is offered by whoever wants it, and answered only when both do: CPI, and DEFLATE.
        let offered = said(&w, ExchangeType::IKE_AUTH, false);
        let answered = said(&w, ExchangeType::IKE_AUTH, true);
        assert_eq!((offered.len(), answered.len()), (usize::from(want[0]), usize::from(both)));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            for (data, cpi) in [(&offered[0], ours), (&answered[0], theirs)] {
                assert_eq!(data[..], [cpi.to_be_bytes()[0], cpi.to_be_bytes()[1], 2]);
                assert!((256..=61_439).contains(&cpi));
            }
            assert!(
                w.nodes[0].logged(&format!("using IPCOMP_DEFLATE with CPIs {ours:04x}_i {theirs:04x}_o"))
            );
        }
        for (n, other) in [(0, 1), (1, 0)] {
            assert_eq!(table(&w, n), usize::from(both), "what is not used is given back");
            let line =
                if n == 0 { "the peer does not agree to IPComp" } else { "the peer does not offer IPComp" };
            assert_eq!(w.nodes[n].logged(line), want[n] && !want[other]);
        }
        w.run(2 * S);
        assert!(w.nodes.iter().all(|n| n.esp.0 > 30 && n.esp.1 == 0));
        w.audit();
    }
}

#[test]
fn every_rekeying_has_new_cpis_and_the_old_ones_stay_as_long_as_the_old_sa() {
    for (mode, ah) in
        [(Mode::Tunnel, false), (Mode::Transport, false), (Mode::Tunnel, true), (Mode::Transport, true)]
    {
        let mut w = World::pair(2, |c| {
            for conn in c {
                if mode == Mode::Transport {
                    config::transport(conn);
                }
                conn.children[0].ipcomp = true;
                if ah {
                    conn.children[0].proposals = vec![config::ah_proposal(&[])];
                }
            }
        });
        w.traffic = Some(50 * MS);
        w.establish(0).unwrap();
        let mut seen = BTreeSet::from([cpis(&w, 0)]);
        for node in [0, 1, 1, 0] {
            w.rekey_child(node);
            w.run(S);
            assert_eq!((table(&w, 0), table(&w, 1)), (2, 2), "of the old inbound SA and of the new one");
            w.run(8 * S);
            assert_eq!((table(&w, 0), table(&w, 1)), (1, 1));
            w.assert_one();
            let (ours, theirs) = cpis(&w, 0);
            assert_eq!(cpis(&w, 1), (theirs, ours));
            assert!(ours.is_some() && seen.insert((ours, theirs)), "{seen:?}");
        }
        assert!(w.nodes.iter().all(|n| n.esp.0 > 500 && n.esp.1 == 0));
        assert_eq!(w.child(0).mode, mode);
        w.audit();
    }
}

#[test]
fn both_rekey_at_once_with_ipcomp() {
    for seed in 0..8 {
        let mut w = with(seed, [true, true]);
        w.traffic = Some(20 * MS);
        w.establish(0).unwrap();
        w.run(S);
        w.rekey_child(0);
        w.rekey_child(1);
        w.run(40 * S);
        w.assert_one();
        assert!(w.nodes[0].logged("CHILD_SA rekey collision detected"));
        assert_eq!((table(&w, 0), table(&w, 1)), (1, 1), "seed {seed}");
        assert!(cpis(&w, 0).0.is_some());
        assert!(w.nodes.iter().all(|n| n.esp.1 == 0), "seed {seed}");
        w.audit();
    }
}

#[test]
fn cpis_are_not_lost_on_a_bad_line() {
    for seed in 0..8 {
        let mut w = with(50 + seed, [true, true]);
        (w.net.loss, w.net.duplicate, w.net.jitter) = (150, 200, 30 * MS);
        w.establish(0).unwrap();
        for _ in 0..3 {
            w.rekey_child_if_any(0);
            w.rekey_child_if_any(1);
            w.run(60 * S);
        }
        (w.net.loss, w.net.duplicate) = (0, 0);
        w.run(200 * S);
        w.assert_one();
        assert_eq!((table(&w, 0), table(&w, 1)), (1, 1), "seed {seed}");
        w.audit();
    }
}

#[test]
fn a_refused_child_gives_its_cpi_back() {
    let mut w = World::pair(3, |c| {
        c.iter_mut().for_each(|c| c.children[0].ipcomp = true);
        c[1].children[0].local_ts = vec![config::net("10.77.0.0/24")];
    });
    assert!(w.establish(0).is_err());
    assert_eq!((table(&w, 0), table(&w, 1)), (0, 0));
    w.audit();
}

#[test]
fn ipcomp_passes_a_nat_inside_of_esp() {
    let mut w = World::pair(4, |c| {
        c[1].remote_addrs = vec![ironswan_keying::AddrSpec::Any];
        c.iter_mut().for_each(|c| c.children[0].ipcomp = true);
    });
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1")));
    w.traffic = Some(50 * MS);
    w.establish(0).unwrap();
    w.run(S);
    w.assert_one();
    assert!(cpis(&w, 0).0.is_some() && w.nodes.iter().all(|n| n.esp.0 > 10 && n.esp.1 == 0));
}

/// What a request may say about IPComp, and the CPI that is understood.
const REQUESTS: &[(&[&[u8]], Option<u16>)] = &[
    (&[&[0x30, 1, 2]], Some(0x3001)),
    (&[&[0x01, 0, 2]], Some(256)),
    (&[&[0xef, 0xff, 2]], Some(61_439)),
    // Attributes of the transform follow.
    (&[&[0x30, 1, 2, 0x80, 1, 0, 9]], Some(0x3001)),
    // LZS and LZJH, then DEFLATE: several may be offered.
    (&[&[0x30, 1, 3], &[0x30, 2, 4], &[0x30, 3, 2]], Some(0x3003)),
    (&[&[0x30, 1, 2], &[0x30, 2, 2]], Some(0x3001)),
    // Nothing that we have.
    (&[&[0x30, 1, 1]], None),
    (&[&[0x30, 1, 3]], None),
    (&[&[0x30, 1, 0]], None),
    (&[&[0x30, 1, 255]], None),
    // Cut short.
    (&[&[]], None),
    (&[&[2]], None),
    (&[&[0x30, 1]], None),
    // CPIs that are reserved, well-known, or private.
    (&[&[0, 0, 2]], None),
    (&[&[0, 2, 2]], None),
    (&[&[0, 63, 2]], None),
    (&[&[0, 255, 2]], None),
    (&[&[0xf0, 0, 2]], None),
    (&[&[0xff, 0xff, 2]], None),
    (&[&[0, 2, 2], &[0x30, 7, 2]], Some(0x3007)),
];

#[test]
fn a_request_that_makes_no_sense_gets_a_child_without_ipcomp() {
    for (data, want) in REQUESTS {
        let mut w = with(5, [false, true]);
        w.establish(0).unwrap();
        let (child, mut f) = (w.child(0), Forger::newest(&w.nodes[0]));
        let mut request: Vec<Payload> = data.iter().map(|d| notify(d)).collect();
        request.extend([
            Payload::Sa(vec![Proposal { spi: vec![0xc4, 4, 4, 4], ..config::esp_proposal(&[]) }]),
            Payload::Nonce(Nonce(vec![4; 32])),
            Payload::TsI(child.local_ts),
            Payload::TsR(child.remote_ts),
        ]);
        let bytes = f.message(true, ExchangeType::CREATE_CHILD_SA, false, 2, &request);
        let errors = w.nodes[1].log.iter().filter(|(l, _)| *l == ironswan_ike::event::Level::Error).count();
        w.inject("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap(), bytes);
        w.run(S);
        let e = &w.nodes[1].engine;
        let out = e.outbound.iter().find(|sa| sa.spi.0 == 0xc404_0404).expect("a child all the same");
        assert_eq!(out.options.ipcomp, *want, "{data:?}");
        let answered = said(&w, ExchangeType::CREATE_CHILD_SA, true);
        assert_eq!(answered.len(), usize::from(want.is_some()), "{data:?}");
        let quiet = w.nodes[1].log.iter().filter(|(l, _)| *l == ironswan_ike::event::Level::Error).count();
        assert_eq!(errors, quiet, "quietly");
    }
}

#[test]
fn an_answer_that_makes_no_sense_gives_a_child_without_ipcomp() {
    for wanted in [true, false] {
        for (data, want) in REQUESTS {
            let mut w = with(6, [wanted, false]);
            w.establish(0).unwrap();
            let (child, mut f) = (w.child(0), Forger::newest(&w.nodes[0]));
            w.net.rules.push(Box::new(|s| {
                match s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA {
                    true => Verdict::Drop,
                    false => Verdict::Pass,
                }
            }));
            w.rekey_child(0);
            w.run(10 * MS);
            let mut answer: Vec<Payload> = data.iter().map(|d| notify(d)).collect();
            answer.extend([
                Payload::Sa(vec![Proposal { spi: vec![0xc5, 5, 5, 5], ..config::esp_proposal(&[]) }]),
                Payload::Nonce(Nonce(vec![5; 32])),
                Payload::TsI(child.local_ts),
                Payload::TsR(child.remote_ts),
            ]);
            let bytes = f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &answer);
            w.inject("192.0.2.2:500".parse().unwrap(), "192.0.2.1:500".parse().unwrap(), bytes);
            w.run(10 * MS);
            let e = &w.nodes[0].engine;
            let out = e.outbound.iter().find(|sa| sa.spi.0 == 0xc505_0505).expect("the new child");
            // What was not offered is not accepted.
            let want = want.filter(|_| wanted);
            assert_eq!(out.options.ipcomp, want, "{data:?}");
            let inbound = e.inbound.values().find(|sa| sa.options.ipcomp.is_some());
            assert_eq!(inbound.is_some(), want.is_some());
            assert_eq!(table(&w, 0), usize::from(want.is_some()));
        }
    }
}
