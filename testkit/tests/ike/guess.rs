//! A stranger that gives the address of a configured peer for its own: a guess for whoever reads
//! the log, and nothing else.

use std::time::Duration;

use ironswan_keying::diagnosis::{Authentication, Diagnosis};
use ironswan_keying::{AddrSpec, Connection};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{World, config};

const S: Duration = Duration::from_secs(1);

/// The guesses that node 1 has written down.
fn guesses(w: &World) -> Vec<Option<(String, String)>> {
    let of = |why: &Diagnosis| match why {
        Diagnosis::Authentication(Authentication::NoConnection { guess, .. }) => {
            Some(guess.as_ref().map(|guess| (guess.conn.clone(), guess.address.to_string())))
        }
        _ => None,
    };
    w.nodes[1].failures.iter().filter_map(of).collect()
}

/// Node 0 initiates through a NAT that node 1 does not know of.
fn behind_nat(tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(1, tweak);
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("198.51.100.1")));
    w
}

#[test]
fn a_configured_peer_behind_a_nat_is_guessed_and_not_let_in() {
    let mut w = behind_nat(|_| {});
    assert!(w.establish(0).is_err());
    assert_eq!(guesses(&w)[0], Some(("gw".to_owned(), "192.0.2.1".to_owned())));
    assert!(w.nodes[1].logged("a guess, as the request says that it was sent from 192.0.2.1"));
    assert!(w.nodes[1].logged("add 198.51.100.1 to remote_addrs of gw"));
    assert!(w.up(1).is_empty() && w.nodes[1].sas(w.now()).is_empty());
    // Doing what the text says brings it up.
    let (now, mut conn) = (w.now(), w.nodes[1].connection("gw"));
    conn.remote_addrs.push(AddrSpec::Host(config::ip("198.51.100.1")));
    w.nodes[1].endpoint.load_connection(now, conn);
    w.run(5 * S);
    w.establish(0).expect("an IKE_SA");
}

#[test]
fn a_stranger_of_whom_nobody_knows_has_no_guess() {
    let mut w = behind_nat(|c| c[1].remote_addrs = vec![AddrSpec::Host(config::ip("203.0.113.5"))]);
    assert!(w.establish(0).is_err());
    assert_eq!(guesses(&w)[0], None);
    // One that has sent from where it is seen.
    let mut w = World::pair(1, |c| c[1].remote_addrs = vec![AddrSpec::Host(config::ip("203.0.113.5"))]);
    assert!(w.establish(0).is_err());
    assert_eq!(guesses(&w)[0], None);
    // One that hides it (`encap = yes`).
    let mut w = behind_nat(|c| c[0].encap = true);
    assert!(w.establish(0).is_err());
    assert_eq!(guesses(&w)[0], None);
}

#[test]
fn the_right_one_of_very_many_is_found_sooner_or_later() {
    let mut w = behind_nat(|_| {});
    let (now, conn) = (w.now(), w.nodes[1].connection("gw"));
    // More addresses before it than are compared in a second.
    for n in 0..6_000u32 {
        let mut conn = conn.clone();
        conn.name = format!("c{n}");
        conn.remote_addrs = vec![AddrSpec::Host((0x0a00_0000 + n).to_be_bytes().into())];
        w.nodes[1].endpoint.load_connection(now, conn);
    }
    for _ in 0..4 {
        assert!(w.establish(0).is_err());
        w.run(5 * S);
    }
    let all = guesses(&w);
    assert!(all.len() >= 2, "{all:?}");
    assert_eq!(all[0], None, "not reached in one second");
    assert!(all.contains(&Some(("gw".to_owned(), "192.0.2.1".to_owned()))), "{all:?}");
}
