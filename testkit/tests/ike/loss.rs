//! A network that loses, doubles and reorders: whatever happens, at rest there is one IKE_SA and
//! one CHILD_SA, or nothing.

use std::time::Duration;

use ironswan_keying::Limits;
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::KeId;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits, any redundant SA stays, any retry waits.
const REST: Duration = Duration::from_secs(1_000);

/// A life: set up by 0, child and IKE_SA rekeyed by both, the child closed by 1 and brought up
/// again, all closed by 0. `check` is called at rest after each step with its name.
fn life(w: &mut World, mut check: impl FnMut(&World, &str, bool)) {
    let _ = w.establish(0);
    w.run(REST);
    check(w, "establish", true);
    for node in 0..2 {
        w.rekey_child(node);
        w.run(REST);
        check(w, "rekey child", true);
        w.rekey_ike(node);
        w.run(REST);
        check(w, "rekey IKE_SA", true);
    }
    w.terminate(1, true);
    w.run(REST);
    w.initiate(1);
    w.run(REST);
    check(w, "child again", true);
    w.terminate(0, false);
    w.run(REST);
    check(w, "terminate", false);
}

fn world(seed: u64, cookies: bool) -> World {
    patient(seed, cookies, 5)
}

/// With more retransmissions, so that no exchange is given up by chance.
fn patient(seed: u64, cookies: bool, retransmit_tries: u32) -> World {
    let cookie_threshold = if cookies { 0 } else { 30 };
    let limits = Limits { cookie_threshold, retransmit_tries, retransmit_base: 1.2, ..Limits::default() };
    let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    World::pair_at(seed, a, b, limits, |c| {
        // INVALID_KE_PAYLOAD in IKE_SA_INIT and in CREATE_CHILD_SA.
        c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
        c[0].children[0].proposals = vec![config::esp_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
        c[1].children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
    })
}

fn good(w: &World, step: &str, up: bool, what: &str) {
    let fault = if up { w.fault() } else { w.remains() };
    if let Some(fault) = fault {
        w.dump();
        panic!("{what}, after {step}: {fault}");
    }
}

#[test]
fn every_message_of_every_exchange_may_be_lost_once() {
    let mut w = world(1, true);
    life(&mut w, |w, step, up| good(w, step, up, "without loss"));
    let total = w.net.count;
    assert!(total > 30, "requests and responses of all exchanges: {total}");
    for k in 0..total {
        let mut w = world(1, true);
        w.net.rules.push(Box::new(move |s| if s.index == k { Verdict::Drop } else { Verdict::Pass }));
        life(&mut w, |w, step, up| good(w, step, up, &format!("message {k} lost")));
        assert_eq!(w.net.lost, 1);
        assert!(w.net.count > total, "it was sent again");
    }
}

#[test]
fn every_message_may_be_lost_four_times_in_a_row() {
    let mut w = world(2, false);
    life(&mut w, |w, step, up| good(w, step, up, "without loss"));
    let total = w.net.count;
    for k in (0..total).step_by(3) {
        let mut w = world(2, false);
        // Every message of the same kind, ID and direction as message k, the first four times.
        let (mut left, mut kind) = (4, None);
        w.net.rules.push(Box::new(move |s| {
            if s.index == k {
                kind = Some((s.node, s.exchange, s.response, s.mid, s.spi_i));
            }
            if left > 0 && kind == Some((s.node, s.exchange, s.response, s.mid, s.spi_i)) {
                left -= 1;
                return Verdict::Drop;
            }
            Verdict::Pass
        }));
        life(&mut w, |w, step, up| good(w, step, up, &format!("message {k} lost four times")));
        assert_eq!(w.net.lost, 4);
    }
}

#[test]
fn a_retransmission_is_the_same_bytes() {
    let mut w = patient(3, false, 20);
    w.net.loss = 200;
    life(&mut w, |_, _, _| {});
    let mut seen: std::collections::BTreeMap<_, Vec<u8>> = std::collections::BTreeMap::new();
    let mut again = 0;
    for (s, p) in &w.net.log {
        // IKE_SA_INIT is message 0 each time it is sent back with INVALID_KE_PAYLOAD.
        if s.mid == 0 && s.exchange == ironswan_wire::iana::ExchangeType::IKE_SA_INIT {
            continue;
        }
        if let Some(first) = seen.insert((s.node, s.spi_i, s.response, s.mid), p.payload.clone()) {
            again += 1;
            assert_eq!(first, p.payload);
        }
    }
    assert!(again > 0, "something was sent again");
}

#[test]
fn duplicates_and_disorder_change_nothing() {
    for seed in 0..60 {
        let mut w = world(1_000 + seed, seed % 2 == 0);
        w.net.duplicate = 400;
        w.net.jitter = 60 * MS;
        life(&mut w, |w, step, up| good(w, step, up, &format!("seed {seed}")));
    }
}

#[test]
fn a_fifth_of_everything_may_be_lost() {
    for seed in 0..80 {
        let mut w = patient(2_000 + seed, seed % 3 == 0, 20);
        w.net.loss = 200;
        w.net.duplicate = 100;
        w.net.jitter = 30 * MS;
        w.nodes.iter_mut().for_each(|n| n.work = Duration::from_millis(seed % 7));
        life(&mut w, |w, step, up| good(w, step, up, &format!("seed {seed}")));
    }
}

#[test]
fn half_of_everything_lost_ends_clean() {
    let mut up = 0;
    for seed in 0..60 {
        let mut w = world(3_000 + seed, false);
        w.net.loss = 500;
        w.net.duplicate = 100;
        w.net.jitter = 50 * MS;
        let result = w.establish(0);
        w.run(REST);
        match result {
            Ok(()) => {
                up += 1;
                good(&w, "establish", true, &format!("seed {seed}"));
            }
            // The responder may think that it is up when the last answer never came; liveness is
            // for that. What must not be is that it is half done on the initiator.
            Err(e) => {
                assert!(w.up(0).is_empty() && w.nodes[0].engine.inbound.is_empty(), "seed {seed}: {e}");
                assert!(w.nodes[0].sas(w.now()).is_empty());
            }
        }
    }
    // Six tries each for three exchanges, of which each try comes through with a quarter's chance.
    assert!((15..60).contains(&up), "{up} of 60");
}

#[test]
fn rekeying_by_time_goes_on_under_loss_on_both_sides() {
    for seed in 0..12 {
        let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
        let mut w = World::pair_at(4_000 + seed, a, b, Limits::default(), |c| {
            for c in c.iter_mut() {
                c.dpd_delay = 60 * S;
                c.rekey_time = 300 * S;
                c.over_time = 200 * S;
                c.rand_time = 100 * S;
                c.children[0].rekey_time = 120 * S;
                c.children[0].rand_time = 60 * S;
                c.children[0].life_time = 400 * S;
            }
        });
        w.establish(0).unwrap();
        w.net.loss = 50;
        w.net.jitter = 20 * MS;
        w.traffic = Some(250 * MS);
        w.run(3_600 * S);
        w.net.loss = 0;
        // Rekeying goes on, so look for a quiet moment.
        let quiet = w.run_until(400 * S, |w| w.fault().is_none());
        if !quiet {
            w.dump();
            panic!("seed {seed}: {:?}", w.fault());
        }
        for n in &w.nodes {
            let c = n.endpoint.protocol().counters();
            assert!(c.child_rekey > 20, "{c:?}");
            assert!(c.ike_rekey_init + c.ike_rekey_resp > 8, "{c:?}");
            assert_eq!(n.count_logged("giving up"), 0);
            assert_eq!(n.esp.1, 0, "seed {seed}: ESP packets without SA: {:?}", n.esp);
        }
    }
}

#[test]
fn rekeying_at_the_same_moment_every_time_never_doubles_anything() {
    for seed in 0..6 {
        let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
        let mut w = World::pair_at(5_000 + seed, a, b, Limits::default(), |c| {
            for c in c.iter_mut() {
                c.rekey_time = 97 * S;
                c.over_time = 90 * S;
                c.children[0].rekey_time = 31 * S;
                c.children[0].life_time = 90 * S;
            }
        });
        w.establish(0).unwrap();
        w.net.jitter = 6 * MS;
        w.net.loss = if seed < 3 { 0 } else { 30 };
        w.traffic = Some(50 * MS);
        w.run(1_800 * S);
        assert!(w.run_until(200 * S, |w| w.fault().is_none()), "seed {seed}: {:?}", w.fault());
        let collisions: usize = w.nodes.iter().map(|n| n.count_logged("collision detected")).sum();
        assert!(collisions > 10, "{collisions} collisions");
        for n in &w.nodes {
            assert_eq!(n.esp.1, 0, "seed {seed}: {:?}", n.esp);
            assert_eq!(n.count_logged("giving up"), 0);
        }
    }
}
