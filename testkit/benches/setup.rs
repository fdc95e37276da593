//! CPU time of IKE alone: two gateways in one thread set up IKE_SAs, without network, packet engine
//! and log. *Own cost* is the CPU time of a set-up, both ends, less that of its asymmetric
//! operations, which are computed once more right after it.
//!
//! `cargo bench -p ironswan-testkit --bench setup` prints
//!
//! * the own cost of a set-up by each way, medians of sets of rounds in turns;
//! * with a number behind `--`, the same set-up at a hub with up to so many IKE_SAs, the time of an
//!   answer to a request that is repeated, and the hub's resident memory for each IKE_SA.
//!
//! `-- ROUNDS psk` (or `ecdsa`, `hybrid`) does one way alone, for a profiler.

use std::hint::black_box;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_crypto::sign::{Hash, Legacy, PublicKey, Scheme};
use ironswan_ike::event::Request;
use ironswan_testkit::Clock;
use ironswan_testkit::certificates::{LINK, ROOT, p256};
use ironswan_testkit::clock::of_this_thread;
use ironswan_testkit::direct::{self, End, Way};
use ironswan_wire::iana::KeId;

const PSK: Way = Way { ecdsa: false, additional: &[] };
const ECDSA: Way = Way { ecdsa: true, additional: &[] };
const HYBRID: Way = Way { ecdsa: false, additional: &[(1, KeId::ML_KEM_768)] };
const TWICE: Way = Way { ecdsa: false, additional: &[(1, KeId::ML_KEM_768), (2, KeId::ECP_256)] };

/// Rounds of the comparison: one set-up by each way.
const ROUNDS: usize = 400;
/// A look at the hub is the mean of this many.
const SAMPLES: u32 = 1_000;

/// A signature, with the message and the key that verifies it.
struct Signed {
    key: PublicKey,
    message: Vec<u8>,
    signature: Vec<u8>,
}

impl Signed {
    fn new(key: u8, len: usize) -> Self {
        let (private, message) = (p256(key), vec![7; len]);
        let scheme = Scheme::Ecdsa(Hash::Sha256);
        let signature = private.sign(scheme, Legacy::default(), &message).expect("a key that signs");
        Self { key: private.public().clone(), message, signature }
    }

    fn verify(&self) {
        let scheme = Scheme::Ecdsa(Hash::Sha256);
        let verdict = self.key.verify(scheme, Legacy::default(), &self.message, &self.signature);
        assert!(black_box(verdict).is_ok());
    }
}

/// Asymmetric operations that can be computed apart from IKE.
struct Asymmetric {
    /// Stand for the signatures of a chain of three, which has two beside that of the root itself,
    /// and for AUTH; as long as these.
    chain: [Signed; 3],
}

impl Asymmetric {
    fn new() -> Self {
        Self { chain: [Signed::new(1, 700), Signed::new(LINK, 300), Signed::new(ROOT, 250)] }
    }

    /// Computes the asymmetric operations of these requests, and nothing else of them.
    fn compute(&self, requests: &[Request]) {
        for request in requests {
            match request {
                Request::GenerateKey { ke, seed } => _ = black_box(kex::generate(*ke, seed.expose())),
                Request::Agree { ke, private, peer_public } => {
                    _ = black_box(kex::agree(*ke, private, peer_public));
                }
                Request::Respond { ke, seed, peer_public } => {
                    _ = black_box(kex::respond(*ke, seed.expose(), peer_public));
                }
                Request::Sign { key, scheme, legacy, message } => {
                    _ = black_box(key.sign(*scheme, *legacy, message));
                }
                Request::Certify(_) => self.chain.iter().for_each(Signed::verify),
                other => panic!("not measured: {other:?}"),
            }
        }
    }
}

/// CPU time of the whole and of its asymmetric operations.
#[derive(Clone, Copy)]
struct Cost {
    whole: Duration,
    asymmetric: Duration,
}

/// One set-up at this hub by a new peer, which is dropped afterwards.
fn set_up(clock: &Clock, hub: &mut End, n: u32, way: Way, asymmetric: &Asymmetric) -> Cost {
    let mut peer = direct::peer(clock.now(), n, way);
    (hub.computed, peer.computed) = (Some(Vec::new()), Some(Vec::new()));
    let began = of_this_thread();
    direct::set_up(clock.now(), "gw", [&mut peer, hub]);
    let set_up = of_this_thread();
    for end in [&mut *hub, &mut peer] {
        asymmetric.compute(&end.computed.take().expect("they were collected"));
    }
    Cost { whole: set_up - began, asymmetric: of_this_thread() - set_up }
}

/// The value in the middle, in microseconds.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Medians of the whole, of the asymmetric operations, and of the difference.
fn medians(costs: &[Cost]) -> [f64; 3] {
    let of = |f: fn(&Cost) -> f64| median(costs.iter().map(f).collect());
    [of(|c| micros(c.whole)), of(|c| micros(c.asymmetric)), of(|c| micros(c.whole) - micros(c.asymmetric))]
}

/// Sets up IKE_SAs by all ways in turns.
fn compare(clock: &Clock, asymmetric: &Asymmetric) {
    let ways = [PSK, ECDSA, HYBRID, TWICE];
    let mut costs: [Vec<Cost>; 4] = Default::default();
    for round in 0..ROUNDS {
        for (way, costs) in ways.iter().zip(&mut costs) {
            let mut hub = direct::hub(clock.now(), round as u64, *way);
            costs.push(set_up(clock, &mut hub, round as u32, *way, asymmetric));
        }
    }
    let [psk, ecdsa, hybrid, twice] = costs.map(|costs| medians(&costs));
    println!("us of CPU time, both ends                  whole  asymmetric    own   goal");
    let row = |name: &str, [whole, asymmetric, own]: [f64; 3], goal: &str| {
        println!("{name:40} {whole:8.1} {asymmetric:11.1} {own:6.1} {goal:>6}");
    };
    row("PSK, X25519", psk, "100");
    row("ECDSA P-256, chains of three, X25519", ecdsa, "200");
    row("PSK, X25519, ML-KEM-768", hybrid, "160");
    row("PSK, X25519, ML-KEM-768, ECP-256", twice, "220");
    println!("the second IKE_INTERMEDIATE: {:.1} us more, goal 60", twice[2] - hybrid[2]);
    println!("the first one, with ML-KEM-768: {:.1} us more, goal 60", hybrid[2] - psk[2]);
}

/// Bytes of memory of this process that are resident.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("a number of pages") * 4096.0
}

/// One hub with more and more IKE_SAs.
fn among_many(clock: &Clock, asymmetric: &Asymmetric, most: u32, way: Way) {
    let mut hub = direct::hub(clock.now(), 1, way);
    let (mut n, before) = (0, resident());
    let mut repeated = Vec::new();
    println!("IKE_SAs at the hub   own us of a set-up   us of an answer once more   resident bytes each");
    for size in [1_000, 3_000, 10_000, 30_000, 100_000, 300_000].into_iter().filter(|size| *size <= most) {
        let mut costs = Vec::new();
        while n < size {
            let cost = set_up(clock, &mut hub, n, way, asymmetric);
            costs.extend((size - n <= SAMPLES).then_some(cost));
            n += 1;
        }
        let grown = (resident() - before) / f64::from(n);
        // Requests that have been answered before.
        repeated.clear();
        for _ in 0..SAMPLES.min(200) {
            let mut peer = direct::peer(clock.now(), n, way);
            direct::set_up(clock.now(), "gw", [&mut peer, &mut hub]);
            n += 1;
            repeated.push(direct::ask(clock.now(), &mut peer, &mut hub));
        }
        let began = of_this_thread();
        for _ in 0..5 {
            for request in &repeated {
                hub.receive(clock.now(), request);
                assert_eq!(black_box(hub.drain(clock.now())).len(), 1, "the answer");
            }
        }
        let each = micros(of_this_thread() - began) / (5 * repeated.len()) as f64;
        let own = medians(&costs)[2];
        println!("{size:18} {own:20.1} {each:27.2} {grown:21.0}");
    }
}

fn main() {
    let (clock, asymmetric) = (Clock::new(), Asymmetric::new());
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let number = words.next().map(|word| word.parse::<u32>().expect("a number of IKE_SAs"));
    let way = |word: &str| match word {
        "psk" => PSK,
        "ecdsa" => ECDSA,
        "hybrid" => HYBRID,
        other => panic!("{other} is neither psk, ecdsa nor hybrid"),
    };
    match (number, words.next()) {
        (None, _) => compare(&clock, &asymmetric),
        (Some(most), None) => among_many(&clock, &asymmetric, most, PSK),
        (Some(rounds), Some(word)) => {
            let way = way(&word);
            for n in 0..rounds {
                let mut hub = direct::hub(clock.now(), u64::from(n), way);
                let mut peer = direct::peer(clock.now(), n, way);
                direct::set_up(clock.now(), "gw", [&mut peer, &mut hub]);
            }
        }
    }
}
