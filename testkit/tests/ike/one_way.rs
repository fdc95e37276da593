//! Packets that go out and never come back are said of a tunnel whose IKE lives, and of no other.

use std::time::Duration;

use ironswan_testkit::World;

const S: Duration = Duration::from_secs(1);
const LINE: &str = "packets go out and none comes back";

/// A tunnel with liveness, over which node 0 sends a packet a second, and node 1 only if `both`.
fn tunnel(seed: u64, both: bool) -> World {
    let mut w = World::pair(seed, |c| c.iter_mut().for_each(|c| c.dpd_delay = 20 * S));
    w.establish(0).expect("an IKE_SA");
    w.traffic = Some(S);
    if !both {
        w.quiet.insert(1);
    }
    w
}

#[test]
fn a_tunnel_on_which_nothing_ever_comes_back_is_named_within_two_minutes_and_once() {
    let mut w = tunnel(1, false);
    assert!(w.run_until(120 * S, |w| w.nodes[0].logged(LINE)));
    assert!(w.nodes[0].logged("IP protocol 50"));
    w.run(1800 * S);
    assert_eq!(w.nodes[0].count_logged(LINE), 1);
    assert_eq!(w.nodes[1].count_logged(LINE), 0, "the other side receives");
    w.assert_one();
    // The first packet that comes back clears it.
    w.quiet.clear();
    w.run(2 * S);
    assert!(w.run_until(120 * S, |w| w.nodes[0].logged("packets come back on CHILD_SA net{")));
    w.run(1800 * S);
    assert_eq!(w.nodes[0].count_logged(LINE), 1);
}

#[test]
fn it_is_said_after_traffic_in_both_directions_and_not_again_after_each_rekeying() {
    let mut w = tunnel(2, true);
    w.run(600 * S);
    assert!(!w.nodes[0].logged(LINE));
    w.quiet.insert(1);
    w.run(300 * S);
    assert!(!w.nodes[0].logged(LINE), "too soon");
    assert!(w.run_until(180 * S, |w| w.nodes[0].logged(LINE)));
    for _ in 0..3 {
        w.rekey_child(0);
        w.run(300 * S);
    }
    assert_eq!(w.nodes[0].count_logged(LINE), 1);
    w.quiet.clear();
    assert!(w.run_until(300 * S, |w| w.nodes[0].logged("packets come back on CHILD_SA net{")));
}

#[test]
fn a_dead_peer_and_an_idle_tunnel_are_no_one_way_tunnels() {
    let mut w = tunnel(3, true);
    w.run(100 * S);
    w.net.mute.insert(1);
    w.run(400 * S);
    assert!(!w.nodes[0].logged(LINE));
    assert!(w.nodes[0].logged("the peer does not respond"));
    let mut w = tunnel(4, true);
    w.traffic = None;
    w.run(7200 * S);
    assert!(w.nodes.iter().all(|n| !n.logged(LINE)));
}

#[test]
fn an_idle_tunnel_is_looked_at_every_five_minutes() {
    let mut w = World::pair(5, |_| {});
    w.establish(0).expect("an IKE_SA");
    w.run(60 * S);
    let before = w.nodes[0].calls;
    w.run(3600 * S);
    let calls = w.nodes[0].calls - before;
    // The timer, and the answer of the engine.
    assert!((24..=30).contains(&calls), "{calls}");
}
