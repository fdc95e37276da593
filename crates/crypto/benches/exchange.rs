//! Microseconds of what an IKE exchange costs: a key pair, an agreement, and the self-test at
//! start.
//!
//! `cargo bench -p ironswan-crypto --bench exchange`

use std::hint::black_box;
use std::time::{Duration, Instant};

use ironswan_crypto::{kex, selftest};
use ironswan_wire::iana::KeId;

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// The median of many single calls, in microseconds.
fn median(mut call: impl FnMut()) -> f64 {
    let (mut samples, start) = (Vec::new(), now());
    while start.elapsed() < Duration::from_millis(300) || samples.len() < 5 {
        let start = now();
        call();
        samples.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    println!("{:<20} {:>12} {:>12}", "microseconds, median", "key pair", "agreement");
    for ke in [KeId::CURVE_25519, KeId::ECP_256, KeId::ECP_384, KeId::MODP_2048, KeId::MODP_3072] {
        let (private, _) = kex::generate(ke, &[1; 32]).expect("supported");
        let (_, peer) = kex::generate(ke, &[2; 32]).expect("supported");
        let mut seed = [0u8; 32];
        let pair = median(|| {
            seed[0] = seed[0].wrapping_add(1);
            black_box(kex::generate(ke, &seed).expect("supported"));
        });
        let agreement = median(|| {
            black_box(kex::agree(ke, &private, &peer).expect("valid"));
        });
        println!("{:<20} {pair:>12.1} {agreement:>12.1}", ke.to_string());
    }
    println!("{:<20} {:>12.1}", "self-test", median(|| selftest::run().expect("known answers")));
}
