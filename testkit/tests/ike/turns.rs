//! Key exchanges wait their turn: those for strangers behind those of peers that are known and of
//! our own, and too many of them are refused.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::{Completion, Request};
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};
use ironswan_keying::{Joined, Target};
use ironswan_testkit::World;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_half_open_ike_sa_is_a_strangers_and_one_that_we_began_or_that_is_up_is_not() {
    let mut w = World::pair(1, |_| {});
    w.establish(0).unwrap();
    let request = w.net.log[0].1.payload.clone();
    let now = w.now();
    let endpoint = &mut w.nodes[1].endpoint;
    let asked = |endpoint: &mut Joined<ironswan_ike::Endpoint>| {
        let (id, request) = std::iter::from_fn(|| endpoint.outputs().poll_request())
            .find(|(_, r)| matches!(r, Request::GenerateKey { .. }))
            .expect("a key pair is asked for");
        assert!(matches!(request, Request::GenerateKey { .. }));
        (id, endpoint.protocol().stranger(id).is_some())
    };

    // Whoever is up rekeys, from our side.
    let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
    endpoint.rekey(now, &target, false).unwrap();
    let (id, stranger) = asked(endpoint);
    assert!(!stranger);
    endpoint.call(now, |e| {
        e.complete(
            now,
            id,
            Completion::Failed { why: KeyExchange::NotComputed { why: Uncomputed::Panicked }.into() },
        )
    });

    // A request of anyone.
    let mut stranger_sends = |spi: u64| {
        let mut bytes = request.clone();
        bytes[..8].copy_from_slice(&spi.to_be_bytes());
        endpoint.call(now, |e| e.handle_datagram(now, at("192.0.2.2:500"), at("192.0.2.1:500"), &bytes));
        asked(endpoint)
    };
    let (first, stranger) = stranger_sends(7);
    assert!(stranger);
    let (second, stranger) = stranger_sends(8);
    assert!(stranger);

    // There is no room for it: it ends without a trace and without an answer.
    while endpoint.outputs().poll_transmit().is_some() {}
    endpoint.call(now, |e| e.refuse(now, first));
    assert!(endpoint.outputs().poll_transmit().is_none());
    let counters = *endpoint.protocol().counters();
    assert_eq!((counters.half_open_refused, counters.half_open), (1, 1));
    // The other is not touched, and what is asked for no more is nobody's.
    assert!(endpoint.protocol().stranger(second).is_some() && endpoint.protocol().stranger(first).is_none());

    // Our own attempt.
    let mut w = World::pair(2, |_| {});
    let now = w.now();
    let endpoint = &mut w.nodes[0].endpoint;
    endpoint.initiate(now, Some("gw"), None).unwrap();
    endpoint.handle_timeout(now + Duration::from_millis(1));
    let requests: Vec<_> = std::iter::from_fn(|| endpoint.outputs().poll_request()).collect();
    assert!(
        !requests.is_empty() && requests.iter().all(|(id, _)| endpoint.protocol().stranger(*id).is_none())
    );
}
