//! MOBIKE (RFC 4555): an IKE_SA and its children move to other addresses, with all that a network
//! and a peer may do meanwhile.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::limits::ADDITIONAL_ADDRESSES;
use ironswan_keying::{AddrSpec, ChildAction, Connection, Limits};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Notify;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Addresses of node 0.
const HOME: &str = "192.0.2.1";
const AWAY: &str = "198.51.100.20";
const FAR: &str = "203.0.113.30";

fn ip(text: &str) -> IpAddr {
    config::ip(text)
}

/// A road warrior and a hub, up, by an initiation of the road warrior, or of nobody yet.
fn world(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let limits = Limits { retransmit_base: 1.2, ..Limits::default() };
    let mut w = World::pair_at(seed, ip(HOME), ip("192.0.2.2"), limits, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
        c.iter_mut().for_each(|c| c.mobike = true);
        tweak(c);
    });
    (0..2).for_each(|node| w.network_changed(node));
    w.establish(0).unwrap();
    w
}

/// SPIs of the IKE_SA and of the child at node 0.
fn spis(w: &World) -> (u64, u64, u32, u32) {
    let (sa, child) = (w.up(0).remove(0), w.child(0));
    (sa.spi_i, sa.spi_r, child.spi_in.0, child.spi_out.0)
}

fn assert_at(w: &World, at: &str) {
    w.assert_one();
    assert_eq!((w.up(0)[0].local.ip(), w.up(1)[0].remote.ip()), (ip(at), ip(at)));
    let (ours, theirs) = (&w.nodes[0].engine, &w.nodes[1].engine);
    assert!(ours.outbound.iter().chain(ours.inbound.values()).all(|sa| sa.local.ip() == ip(at)));
    assert!(theirs.outbound.iter().chain(theirs.inbound.values()).all(|sa| sa.remote.ip() == ip(at)));
}

/// The request that node `from` would send next, from where it is.
fn say(w: &mut World, from: usize, mid: u32, payloads: &[Payload]) {
    let (up, initiator) = (w.up(from).remove(0), w.up(from)[0].initiator);
    let mut forge = Forger::newest(&w.nodes[from]);
    let bytes = forge.message(initiator, ExchangeType::INFORMATIONAL, false, mid, payloads);
    w.inject(up.local, up.remote, [&[0; 4], &bytes[..]].concat());
    w.run(100 * MS);
}

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

#[test]
fn an_address_that_is_replaced_leaves_every_sa_standing() {
    let mut w = world(1, |_| {});
    w.traffic = Some(10 * MS);
    w.run(S);
    let before = spis(&w);
    for at in [AWAY, FAR, HOME, AWAY] {
        let (inits, lost) = (w.net.log.len(), w.nodes[1].esp.1);
        w.readdress(0, vec![ip(at)]);
        w.run(S);
        assert_at(&w, at);
        assert_eq!(spis(&w), before, "the same SAs");
        let new = w.net.log[inits..].iter().all(|(s, _)| s.exchange == ExchangeType::INFORMATIONAL);
        assert!(
            new && w.nodes[1].esp.1 == lost,
            "nothing but INFORMATIONAL, and every packet has met its SA"
        );
    }
    assert_eq!(w.nodes[0].unsendable, 0);
    let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
    w.run(S);
    assert!(w.nodes[0].esp.0 >= got.0 + 99 && w.nodes[1].esp.0 >= got.1 + 99);
    w.audit();
}

#[test]
fn a_better_source_takes_them_along_without_the_loss_of_a_packet() {
    let mut w = world(2, |_| {});
    w.traffic = Some(5 * MS);
    w.run(S);
    let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
    w.readdress(0, vec![ip(AWAY), ip(HOME)]);
    w.run(10 * S);
    assert_at(&w, AWAY);
    assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.1), (0, 0));
    let more = (w.nodes[0].esp.0 - got.0, w.nodes[1].esp.0 - got.1);
    assert!(more.0 >= 1_999 && more.1 >= 1_999, "{more:?}");
}

#[test]
fn ike_goes_on_by_port_4500_and_esp_without_encapsulation() {
    let w = world(3, |_| {});
    let sa = &w.up(0)[0];
    assert_eq!((sa.local.port(), sa.remote.port()), (4500, 4500));
    assert_eq!((w.up(1)[0].local.port(), w.up(1)[0].remote.port()), (4500, 4500));
    assert!(!w.child(0).udp_encap && !w.child(1).udp_encap);
}

#[test]
fn every_message_of_a_move_may_be_lost_doubled_or_late() {
    let life = |w: &mut World| {
        w.readdress(0, vec![ip(AWAY)]);
        w.run(100 * S);
        w.rekey_ike(1);
        w.run(100 * S);
        // The hub has begun the IKE_SA that stands now, and the road warrior moves it all the same.
        w.readdress(0, vec![ip(HOME)]);
        w.run(100 * S);
    };
    let mut plain = world(4, |_| {});
    let (first, before) = (plain.net.count, spis(&plain));
    life(&mut plain);
    assert_at(&plain, HOME);
    assert_eq!((spis(&plain).2, spis(&plain).3), (before.2, before.3), "the same child");
    let total = plain.net.count;
    assert!(total - first >= 12, "two moves, a rekeying, and tests of the way back");
    let story = |what: &str, with: &dyn Fn(&mut World)| {
        let mut w = world(4, |_| {});
        with(&mut w);
        life(&mut w);
        if let Some(fault) = w.fault() {
            w.dump();
            panic!("{what}: {fault}");
        }
        assert_at(&w, HOME);
        assert_eq!((spis(&w).2, spis(&w).3), (before.2, before.3), "{what}");
    };
    for k in first..total {
        for verdict in [Verdict::Drop, Verdict::Delay(3 * S), Verdict::Delay(15 * S)] {
            let rule = move |s: &Seen| if s.index == k { verdict } else { Verdict::Pass };
            story(&format!("message {k}: {verdict:?}"), &|w| w.net.rules.push(Box::new(rule)));
        }
    }
    story("all doubled", &|w| (w.net.duplicate, w.net.jitter) = (1_000, 200 * MS));
}

#[test]
fn an_address_may_change_at_each_step() {
    // Between any two messages of a life, once and twice.
    for step in 0..24 {
        for twice in [false, true] {
            let mut w = world(5, |c| c[0].children[0].start_action = ChildAction::Start);
            w.traffic = Some(50 * MS);
            w.rekey_child(0);
            w.rekey_ike(1);
            w.run(step * 2 * MS + MS);
            w.readdress(0, vec![ip(AWAY)]);
            if twice {
                w.run(step * MS);
                w.readdress(0, vec![ip(FAR)]);
            }
            w.run(120 * S);
            w.run_until(20 * S, |w| w.fault().is_none());
            assert_at(&w, if twice { FAR } else { AWAY });
            assert!(w.net.log.iter().filter(|(s, _)| s.exchange == ExchangeType::IKE_SA_INIT).count() <= 2);
        }
    }
}

#[test]
fn a_nat_appears_and_disappears() {
    let mut w = world(6, |_| {});
    let before = spis(&w);
    w.traffic = Some(50 * MS);
    w.net.nat = Some(Nat::new(ip(AWAY), ip("203.0.113.1")));
    w.readdress(0, vec![ip(AWAY)]);
    w.run(5 * S);
    assert_eq!(spis(&w), before);
    assert!(w.child(0).udp_encap && w.child(1).udp_encap, "in UDP through the NAT");
    assert_eq!(w.up(1)[0].remote.ip(), ip("203.0.113.1"));
    assert!(w.up(0)[0].nat_local && w.up(1)[0].nat_remote);
    let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
    w.run(S);
    assert!(w.nodes[0].esp.0 > got.0 + 15 && w.nodes[1].esp.0 > got.1 + 15);
    w.traffic = None;
    w.run(60 * S);
    assert!(w.nodes[0].keepalives > 1, "the mapping is kept");
    w.traffic = Some(50 * MS);
    w.net.nat = None;
    w.readdress(0, vec![ip(HOME)]);
    w.run(5 * S);
    assert_at(&w, HOME);
    assert_eq!(spis(&w), before);
    assert!(!w.child(0).udp_encap && !w.child(1).udp_encap);
    w.traffic = None;
    let sent = w.nodes[0].keepalives;
    w.run(100 * S);
    assert!(w.nodes[0].keepalives <= sent + 1, "nothing is kept any more");
}

#[test]
fn a_nat_that_appears_without_a_change_of_address_is_seen_by_the_next_question() {
    let mut w = world(7, |c| c[0].dpd_delay = 10 * S);
    let before = spis(&w);
    w.net.nat = Some(Nat::new(ip(HOME), ip("203.0.113.1")));
    w.run(30 * S);
    assert_eq!(spis(&w), before);
    assert_eq!(w.up(1)[0].remote.ip(), ip("203.0.113.1"));
    assert!(w.child(0).udp_encap && w.child(1).udp_encap);
    // Another mapping.
    w.net.nat.as_mut().unwrap().rebind();
    w.run(30 * S);
    assert_eq!((spis(&w), w.up(1)[0].remote.port()), (before, 20_002));
}

/// "The host not behind a NAT MUST NOT use these dynamic updates for IKEv2 packets" (RFC 4555
/// section 3.8): a message may try a way without anything going there.
#[test]
fn behind_a_nat_too_no_ike_message_moves_anything_but_an_update_and_packets_do() {
    let mut w = world(27, |c| c[0].dpd_delay = 10 * S);
    w.net.nat = Some(Nat::new(ip(HOME), ip("203.0.113.1")));
    w.run(30 * S);
    let before = w.up(1)[0].remote;
    assert_eq!(before.ip(), ip("203.0.113.1"));
    // The next request of node 0, as if it came by another mapping.
    let mids: Vec<u32> =
        w.net.log.iter().filter(|(s, _)| s.node == 0 && !s.response).map(|(s, _)| s.mid).collect();
    let next = mids.into_iter().max().unwrap() + 1;
    let mut forge = Forger::newest(&w.nodes[0]);
    let bytes = forge.message(true, ExchangeType::INFORMATIONAL, false, next, &[]);
    let elsewhere = std::net::SocketAddr::new(ip("203.0.113.9"), 4_500);
    w.inject(elsewhere, w.up(1)[0].local, [&[0; 4], &bytes[..]].concat());
    let sent = w.net.count;
    w.run(100 * MS);
    assert!(w.net.count > sent, "the request was answered");
    assert_eq!(w.up(1)[0].remote, before);
    assert!(w.nodes[1].engine.outbound.iter().all(|sa| sa.remote == before));
    // Packets may move it.
    let mut w = world(28, |c| c[0].dpd_delay = 10 * S);
    w.net.nat = Some(Nat::new(ip(HOME), ip("203.0.113.1")));
    w.run(30 * S);
    w.traffic = Some(100 * MS);
    w.run(S);
    let before = w.up(1)[0].remote;
    w.net.nat.as_mut().unwrap().rebind();
    w.run(S);
    assert_ne!(w.up(1)[0].remote, before);
}

#[test]
fn where_one_end_does_not_want_it_a_new_ike_sa_takes_over() {
    for without in 0..2 {
        let mut w = world(8, |c| c[without].mobike = false);
        let before = spis(&w);
        w.readdress(0, vec![ip(AWAY)]);
        w.run(20 * S);
        assert_at(&w, AWAY);
        assert_ne!(spis(&w).0, before.0);
    }
}

#[test]
fn transport_mode_and_outer_addresses_as_selectors_take_a_new_ike_sa() {
    for mode in 0..2 {
        let mut w = world(9, |c| {
            for c in c.iter_mut() {
                if mode == 0 {
                    config::transport(c);
                } else {
                    (c.children[0].local_ts, c.children[0].remote_ts) =
                        (vec![config::dynamic(0, 0)], vec![config::dynamic(0, 0)]);
                }
            }
        });
        let before = spis(&w);
        w.readdress(0, vec![ip(AWAY)]);
        w.run(20 * S);
        assert_at(&w, AWAY);
        assert_ne!(spis(&w).0, before.0);
    }
}

#[test]
fn further_addresses_of_the_hub_are_told_and_taken_when_the_first_is_silent() {
    let mut w = world(10, |c| {
        c[0].dpd_delay = 10 * S;
        c[1].local_addrs = vec![AddrSpec::Any];
    });
    let before = spis(&w);
    w.nodes[1].addrs.push(ip("192.0.2.77"));
    w.network_changed(1);
    w.run(S);
    // The first address does not answer any more, and nobody is told.
    w.nodes[1].addrs.remove(0);
    w.run(60 * S);
    assert_eq!(spis(&w), before);
    assert_eq!((w.up(0)[0].remote.ip(), w.up(1)[0].local.ip()), (ip("192.0.2.77"), ip("192.0.2.77")));
    w.assert_one();
}

#[test]
fn the_way_back_is_tested_and_a_wrong_answer_ends_the_ike_sa() {
    let mut w = world(11, |_| {});
    w.readdress(0, vec![ip(AWAY)]);
    w.run(S);
    let asked = |w: &World| w.net.log.iter().any(|(s, _)| s.node == 1 && !s.response && s.mid == 0);
    assert!(asked(&w), "the hub asks at the new address");
    // The peer, which is not where it says, does not see the cookie, and answers with another one,
    // with none, or with an error in its place.
    let error = notify(NotifyType::TEMPORARY_FAILURE, &[]);
    for wrong in [vec![notify(NotifyType::COOKIE2, &[7; 16])], vec![], vec![error]] {
        let mut w = world(11, |_| {});
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.response {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        w.readdress(0, vec![ip(AWAY)]);
        w.run(S);
        let (to, from) = (w.up(1)[0].local, w.up(1)[0].remote);
        let mut forge = Forger::newest(&w.nodes[0]);
        let bytes = forge.message(true, ExchangeType::INFORMATIONAL, true, 0, &wrong);
        w.inject(from, to, [&[0; 4], &bytes[..]].concat());
        w.run(100 * MS);
        let ended = w.up(1).is_empty() && w.nodes[1].logged("to a test of the way back is wrong");
        assert!(ended, "{wrong:?}");
    }
}

#[test]
fn a_hub_that_refuses_the_new_address_gets_a_new_ike_sa() {
    // The address is one of the hub's own.
    let mut w = world(12, |_| {});
    let before = spis(&w);
    let now = w.now();
    w.nodes[1].endpoint.network_changed(now, &[ip("192.0.2.2"), ip(AWAY)]);
    w.readdress(0, vec![ip(AWAY)]);
    w.run(20 * S);
    assert!(w.nodes[0].logged("UNACCEPTABLE_ADDRESSES") && w.nodes[1].logged("which cannot be used"));
    assert_ne!(spis(&w).0, before.0);
}

#[test]
fn an_update_that_allows_no_nat_is_refused_behind_one() {
    let mut w = world(13, |_| {});
    let at = w.up(0)[0].local;
    let right: Vec<u8> =
        [[192, 0, 2, 1], [192, 0, 2, 2]].concat().into_iter().chain([17, 148, 17, 148]).collect();
    let update = notify(NotifyType::UPDATE_SA_ADDRESSES, &[]);
    say(&mut w, 0, 2, &[update.clone(), notify(NotifyType::NO_NATS_ALLOWED, &right)]);
    assert!(!w.nodes[1].logged("allows no NAT"));
    for (mid, wrong) in [(3, &[0; 12][..]), (4, &[][..]), (5, &[1; 100][..])] {
        say(&mut w, 0, mid, &[update.clone(), notify(NotifyType::NO_NATS_ALLOWED, wrong)]);
        assert_eq!(w.nodes[1].count_logged("allows no NAT"), mid as usize - 2);
    }
    assert_eq!(w.up(1)[0].remote, at);
}

#[test]
fn a_refusal_returns_the_cookie_and_nat_detection_of_the_request() {
    let mut w = world(18, |_| {});
    let forge = Forger::newest(&w.nodes[0]);
    let cookie = notify(NotifyType::COOKIE2, &[9; 16]);
    let update = [
        notify(NotifyType::UPDATE_SA_ADDRESSES, &[]),
        notify(NotifyType::NO_NATS_ALLOWED, &[0; 12]),
        notify(NotifyType::NAT_DETECTION_SOURCE_IP, &[1; 20]),
        notify(NotifyType::NAT_DETECTION_DESTINATION_IP, &[1; 20]),
        cookie.clone(),
    ];
    say(&mut w, 0, 2, &update);
    let answer = w.net.log.iter().rev().find(|(s, _)| s.node == 1 && s.response).cloned();
    let (_, payloads) = forge.open(&answer.unwrap().1.payload[4..]).unwrap();
    assert_eq!(payloads.first(), Some(&notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[])));
    assert_eq!(payloads.last(), Some(&cookie));
    assert_eq!(payloads.len(), 4, "{payloads:?}");
}

#[test]
fn a_refusal_with_another_cookie_ends_the_ike_sa_and_one_without_does_not() {
    for (returned, stands) in [(None, true), (Some([7; 16]), false)] {
        let mut w = world(19, |_| {});
        // Nobody answers at the new address but the forger.
        w.net.mute.insert(1);
        w.readdress(0, vec![ip(AWAY)]);
        w.run(100 * MS);
        let up = w.up(0).remove(0);
        let mut refusal = vec![notify(NotifyType::UNACCEPTABLE_ADDRESSES, &[])];
        refusal.extend(returned.map(|cookie| notify(NotifyType::COOKIE2, &cookie)));
        let mut forge = Forger::newest(&w.nodes[0]);
        let bytes = forge.message(false, ExchangeType::INFORMATIONAL, true, 2, &refusal);
        w.inject(up.remote, up.local, [&[0; 4], &bytes[..]].concat());
        w.run(100 * MS);
        assert_eq!(w.up(0).iter().any(|sa| sa.id == up.id), stands, "{returned:?}");
        assert_eq!(w.nodes[0].logged("to a test of the way back is wrong"), !stands);
    }
}

#[test]
fn a_peer_that_lies_about_addresses_changes_nothing_and_costs_little() {
    // The hub has no say: it was not the original initiator.
    let mut w = world(14, |_| {});
    let before = (spis(&w), w.up(0)[0].remote);
    say(&mut w, 1, 0, &[notify(NotifyType::UPDATE_SA_ADDRESSES, &[])]);
    assert_eq!((spis(&w), w.up(0)[0].remote), before);
    // As many addresses as a message holds, and such as nobody can be at.
    let mut many: Vec<Payload> = [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]]
        .iter()
        .map(|a| notify(NotifyType::ADDITIONAL_IP4_ADDRESS, a))
        .collect();
    many.push(notify(NotifyType::ADDITIONAL_IP4_ADDRESS, &[1, 2, 3]));
    many.push(notify(NotifyType::ADDITIONAL_IP6_ADDRESS, &[0; 17]));
    many.extend((1..80).map(|n| notify(NotifyType::ADDITIONAL_IP4_ADDRESS, &[198, 51, 100, n])));
    say(&mut w, 1, 1, &many);

    w.net.mute.insert(1);
    let sent = w.net.log.len();
    w.rekey_child(0);
    w.run(300 * S);
    let sent = w.net.log[sent..].iter().filter(|(s, _)| s.node == 0).count();
    assert!(sent <= 6 + 4 * 4, "each retransmission goes to few of them: {sent} datagrams for one request");
    const { assert!(ADDITIONAL_ADDRESSES <= 32) };
    // A cookie of any length is no reason to say more than came.
    let mut w = world(15, |_| {});
    for (mid, len) in [(0, 0), (1, 1), (2, 64), (3, 65), (4, 2_000)] {
        let seen = w.net.log.len();
        say(&mut w, 1, mid, &[notify(NotifyType::COOKIE2, &vec![9; len])]);
        let answer = w.net.log[seen..].last().expect("an answer").1.payload.len();
        assert_eq!(answer > 100, len == 64, "{len} bytes: {answer}");
    }
    w.assert_one();
}

/// A world in which the hub has told a second address, at which it answers nobody.
fn two_addresses(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = world(seed, |c| {
        c[1].local_addrs = vec![AddrSpec::Any];
        tweak(c);
    });
    w.nodes[1].addrs.push(ip("192.0.2.77"));
    w.network_changed(1);
    w.run(S);
    w
}

fn drop_answers_of_the_hub(w: &mut World) {
    w.net.rules.push(Box::new(|s| match s.node == 1 && s.response {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
}

/// Gives node 0 a response to this request, as if it came from the hub's second address.
fn answer_from_the_second(w: &mut World, mid: u32, payloads: &[Payload]) {
    let to = w.up(0)[0].local;
    let bytes = Forger::newest(&w.nodes[0]).message(false, ExchangeType::INFORMATIONAL, true, mid, payloads);
    w.inject(std::net::SocketAddr::new(ip("192.0.2.77"), 4_500), to, [&[0; 4], &bytes[..]].concat());
    w.run(100 * MS);
}

/// Whoever is on the way can write any address on a datagram: only one that was asked answers.
#[test]
fn an_answer_from_a_known_address_that_was_not_asked_moves_nothing() {
    let mut w = two_addresses(29, |c| c[0].dpd_delay = 10 * S);
    let before = (spis(&w), w.up(0)[0].remote);
    drop_answers_of_the_hub(&mut w);
    let asked = |w: &World| w.net.log.iter().rev().find(|(s, _)| s.node == 0 && !s.response).unwrap().0.mid;
    let last = asked(&w);
    assert!(w.run_until(20 * S, |w| asked(w) > last), "a question for a sign of life");
    let mid = asked(&w);
    answer_from_the_second(&mut w, mid, &[]);
    assert!(!w.nodes[0].logged("...192.0.2.77"), "it stays where it is");
    assert_eq!((spis(&w), w.up(0)[0].remote), before);
    w.net.rules.clear();
    w.run(60 * S);
    assert_eq!((spis(&w), w.up(0)[0].remote), before);
    w.assert_one();
}

/// A list of the hub's addresses, without the one in use, that comes from another one. Where the
/// hub is there, the IKE_SA follows at once; where somebody has written that address on the way,
/// it stays.
#[test]
fn where_the_hub_says_it_is_not_any_more_it_is_asked_at_both_addresses() {
    for there in [false, true] {
        let mut w = two_addresses(40, |_| {});
        if there {
            w.nodes[1].addrs.remove(0);
        } else {
            w.nodes[1].addrs.remove(1);
        }
        let (before, here) = (spis(&w), w.up(0)[0].remote);
        let from = std::net::SocketAddr::new(ip("192.0.2.77"), 4_500);
        let to = w.up(0)[0].local;
        let none = notify(NotifyType::NO_ADDITIONAL_ADDRESSES, &[]);
        let next = w.net.log.iter().filter(|(s, _)| s.node == 1 && !s.response).map(|(s, _)| s.mid + 1).max();
        let mut forge = Forger::newest(&w.nodes[0]);
        let mid = next.unwrap_or(0);
        let bytes = forge.message(false, ExchangeType::INFORMATIONAL, false, mid, &[none]);
        w.inject(from, to, [&[0; 4], &bytes[..]].concat());
        w.run(S);
        let at = w.up(0)[0].remote;
        assert_eq!(at, if there { from } else { here }, "at once");
        assert_eq!(w.nodes[0].logged("...192.0.2.77"), there);
        assert!(w.nodes[0].engine.outbound.iter().all(|sa| sa.remote == at));
        w.run(60 * S);
        assert_eq!((spis(&w), w.up(0)[0].remote), (before, at));
        let asked = w.net.log.iter().filter(|(s, p)| s.node == 0 && p.to == from && !s.response);
        assert!(there || asked.count() == 1, "a question at that address, and no other");
    }
}

/// "If the values do not match, the IKE_SA MUST be closed" (RFC 4555 section 3.7), before anything
/// goes to where the wrong one came from.
#[test]
fn an_answer_with_a_wrong_cookie_moves_nothing_before_it_ends_the_ike_sa() {
    let mut w = two_addresses(30, |_| {});
    w.net.mute.insert(1);
    w.readdress(0, vec![ip(AWAY)]);
    let second = |w: &World| w.net.log.iter().filter(|(_, p)| p.to.ip() == ip("192.0.2.77")).count();
    assert!(w.run_until(30 * S, |w| second(w) > 0), "the second address is asked as well");
    let (mid, sent) = (w.net.log.last().unwrap().0.mid, second(&w));
    answer_from_the_second(&mut w, mid, &[notify(NotifyType::COOKIE2, &[7; 16])]);
    assert!(w.nodes[0].logged("to a test of the way back is wrong"));
    assert!(!w.nodes[0].logged("...192.0.2.77"), "nothing has moved");
    assert_eq!(second(&w), sent, "and the last word goes to where the hub was");
}

/// "If an address change has occurred after the request was first sent, no MOBIKE processing is
/// done for the reply message" (RFC 4555 section 3.5), also where the address is the first one
/// again.
#[test]
fn a_refusal_of_an_address_that_was_left_again_is_no_matter() {
    let mut w = world(31, |_| {});
    let (before, now) = (spis(&w), w.now());
    w.nodes[1].endpoint.network_changed(now, &[ip("192.0.2.2"), ip(FAR)]);
    // The update is made here, and the hub hears of it only from the next address.
    w.net.mute.insert(0);
    w.readdress(0, vec![ip(AWAY)]);
    w.run(S);
    w.net.mute.clear();
    drop_answers_of_the_hub(&mut w);
    w.readdress(0, vec![ip(FAR)]);
    w.run(S);
    assert!(w.nodes[1].logged("which cannot be used"));
    w.net.rules.clear();
    w.readdress(0, vec![ip(AWAY)]);
    w.run(20 * S);
    assert_eq!(spis(&w), before);
    assert_at(&w, AWAY);
}

/// NO_NATS_ALLOWED stands in every message that can change addresses (RFC 4555 section 3.9).
#[test]
fn a_list_of_addresses_that_allows_no_nat_is_refused_behind_one() {
    let ends = [[192, 0, 2, 2], [192, 0, 2, 1]].concat();
    let right: Vec<u8> = ends.into_iter().chain([17, 148, 17, 148]).collect();
    let second = notify(NotifyType::ADDITIONAL_IP4_ADDRESS, &[192, 0, 2, 77]);
    for (seed, data, taken) in [(32, &right[..], true), (33, &[0; 12], false), (34, &[], false)] {
        let mut w = world(seed, |_| {});
        let forge = Forger::newest(&w.nodes[0]);
        say(&mut w, 1, 0, &[second.clone(), notify(NotifyType::NO_NATS_ALLOWED, data)]);
        let (_, answer) =
            w.net.log.iter().rev().find(|(s, _)| s.node == 0 && s.response).cloned().expect("an answer");
        let (_, payloads) = forge.open(&answer.payload[4..]).unwrap();
        let refusal = notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[]);
        assert_eq!(payloads, if taken { vec![] } else { vec![refusal] });
        assert_eq!(w.nodes[0].logged("allows no NAT"), !taken);
        w.net.mute.insert(1);
        w.rekey_child(0);
        w.run(60 * S);
        let asked = w.net.log.iter().any(|(s, p)| s.node == 0 && p.to.ip() == ip("192.0.2.77"));
        assert_eq!(asked, taken, "{data:?}");
    }
}

#[test]
fn an_initiator_that_allows_no_nat_gets_no_ike_sa_behind_one() {
    let ends = [[192, 0, 2, 1], [192, 0, 2, 2]].concat();
    let right: Vec<u8> = ends.into_iter().chain([17, 148, 17, 148]).collect();
    // To an end without MOBIKE it is a notification that nobody knows.
    let cases = [(true, &right[..], true), (true, &[0; 12], false), (false, &[0; 12], true)];
    for (seed, (mobike, data, up)) in (35..).zip(cases) {
        let mut w = World::pair_at(seed, ip(HOME), ip("192.0.2.2"), Limits::default(), |c| {
            c[0].mobike = true;
            c[1].mobike = mobike;
        });
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_AUTH {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        w.initiate(0);
        w.run(100 * MS);
        let mut forge = Forger::newest(&w.nodes[0]);
        let (_, request) = w.net.log.iter().rev().find(|(s, _)| s.node == 0).cloned().unwrap();
        let (header, mut payloads) = forge.open(&request.payload[4..]).unwrap();
        for p in &mut payloads {
            if let Payload::Notify(n) = p
                && n.kind == NotifyType::MOBIKE_SUPPORTED
            {
                // It has no data, and what it has is ignored.
                assert!(n.data.is_empty());
                n.data = vec![9; 7];
            }
        }
        payloads.push(notify(NotifyType::NO_NATS_ALLOWED, data));
        let bytes = forge.message(true, header.exchange, false, header.message_id, &payloads);
        w.inject(request.from, request.to, [&[0; 4], &bytes[..]].concat());
        w.run(100 * MS);
        let (_, answer) = w.net.log.iter().rev().find(|(s, _)| s.node == 1).cloned().unwrap();
        let (_, payloads) = forge.open(&answer.payload[4..]).unwrap();
        let refused = payloads == [notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[])];
        assert_eq!((refused, w.up(1).len()), (!up, usize::from(up)), "{mobike}, {data:?}: {payloads:?}");
        assert_eq!(w.nodes[1].engine.inbound.len(), usize::from(up));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || {
        let mut w = world(16, |_| {});
        w.net.loss = 200;
        for at in [AWAY, FAR, HOME, AWAY] {
            w.readdress(0, vec![ip(at)]);
            w.run(60 * S);
        }
        w.net.log.iter().map(|(_, p)| p.payload.clone()).collect::<Vec<_>>()
    };
    let (first, second) = (trace(), trace());
    assert!(first.len() > 20 && first == second);
}
