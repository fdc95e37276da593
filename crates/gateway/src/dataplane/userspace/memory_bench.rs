//! Measures the workers' loop over memory, locks and tickets included, in ns per packet: one
//! worker, two on one SA of AES-128-GCM, and two gateways of one worker each, in turns. The two
//! gateways share nothing. Their packets in the time of one show how much this machine
//! gives a second thread: processors of a virtual machine may be threads of one core.
//!
//! ```text
//! [IRONSWAN_ENGINE=vaes] [ROUNDS=15] cargo test --release -p ironswan-gateway --lib -- \
//!     --ignored --nocapture nanoseconds_per_packet
//! ```

use std::time::Duration;

use ironswan_ipsec::{Stage, StageTimes};

use super::memory::{inbound, outbound, sealed};

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "measures for minutes, and judges nothing but the order of sequence numbers"]
fn nanoseconds_per_packet() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(15).max(1);
    println!(
        "ns per packet, medians of {rounds} rounds in turns; times one worker, medians of the rounds' ratios"
    );
    println!(
        "{:<20}{:>9}{:>11}{:>8}{:>14}{:>8}{:>12}",
        "", "1 worker", "2 workers", "times", "2 gateways", "times", "of gateways"
    );
    for (payload, packets) in [(1_372, 60_000u64), (36, 400_000)] {
        let datagrams = sealed(payload, packets);
        type Run<'a> = &'a dyn Fn(usize, usize) -> (Duration, StageTimes);
        let both: [(&str, Run<'_>); 2] = [
            ("outbound", &|gateways, workers| outbound(gateways, workers, payload, packets)),
            ("inbound", &|gateways, workers| inbound(vec![datagrams.clone(); gateways], workers, packets)),
        ];
        for (name, run) in both {
            let mut stages = [StageTimes::default(); 2];
            let mut times = Vec::new();
            for _ in 0..rounds {
                let [one, two, apart] = [(1, 1), (1, 2), (2, 1)].map(|(gateways, workers)| {
                    let (took, measured) = run(gateways, workers);
                    if gateways == 1 {
                        stages[workers - 1].merge(&measured);
                    }
                    took.as_nanos() as f64 / (packets * gateways as u64) as f64
                });
                times.push([one, two, apart]);
            }
            let ns = |i: usize| median(times.iter().map(|t| t[i]));
            let ratio = |of: usize, to: usize| median(times.iter().map(|t| t[of] / t[to]));
            println!(
                "{:<20}{:>9.1}{:>11.1}{:>8.2}{:>14.1}{:>8.2}{:>10.0} %",
                format!("{name}, {} B", payload + 28),
                ns(0),
                ns(1),
                ratio(0, 1),
                ns(2),
                ratio(0, 2),
                ratio(2, 1) * 100.0
            );
            for (stages, workers) in stages.iter().zip(["1 worker", "2 workers"]) {
                let per = |s: Stage| stages.of(s) as f64 / stages.packets.max(1) as f64;
                let text: Vec<_> =
                    Stage::ALL.iter().map(|s| format!("{} {:.0}", s.name(), per(*s))).collect();
                let share = stages.packets as f64 / (packets * rounds as u64) as f64 * 100.0;
                println!("    {workers}: {} (of {share:.2} % of the packets)", text.join(", "));
            }
        }
    }
}
