//! The workers' loop over memory, locks and tickets included: 1 worker against 2 on one SA of AES-128-GCM, in turns.
//! `cargo bench -p ironswan-gateway --bench workers [-- ROUNDS]`.

use std::time::Duration;

use ironswan_gateway::worker::memory::{inbound, outbound, sealed};
use ironswan_ipsec::{Stage, StageTimes};

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn main() {
    let rounds: usize = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(15);
    println!(
        "ns per packet of {rounds} rounds in turns: medians, and the second best of each; stages of measured batches"
    );
    println!("{:<20}{:>26}{:>34}", "", "median", "second best");
    println!(
        "{:<20}{:>10}{:>10}{:>8}{:>14}{:>10}{:>8}",
        "", "1 worker", "2", "times", "1 worker", "2", "times"
    );
    for (payload, packets) in [(1_372, 60_000u64), (36, 400_000)] {
        let datagrams = sealed(payload, packets);
        type Run<'a> = &'a dyn Fn(usize) -> (Duration, StageTimes);
        let both: [(&str, Run<'_>); 2] = [
            ("outbound", &|workers| outbound(workers, payload, packets)),
            ("inbound", &|workers| inbound(workers, datagrams.clone(), packets)),
        ];
        for (name, run) in both {
            let mut stages = [StageTimes::default(); 2];
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..rounds.max(2) {
                for (i, (times, stages)) in times.iter_mut().zip(&mut stages).enumerate() {
                    let (took, measured) = run(i + 1);
                    times.push(took.as_nanos() as f64 / packets as f64);
                    stages.merge(&measured);
                }
            }
            let [one, two] = times.map(sorted);
            let row = |at: usize| (one[at], two[at], one[at] / two[at]);
            let ((a, b, c), (d, e, f)) = (row(one.len() / 2), row(1));
            let name = format!("{name}, {} B", payload + 28);
            println!("{name:<20}{a:>10.1}{b:>10.1}{c:>8.2}{d:>14.1}{e:>10.1}{f:>8.2}");
            for (stages, workers) in stages.iter().zip(["1 worker", "2 workers"]) {
                let per = |s: Stage| stages.of(s) as f64 / stages.packets.max(1) as f64;
                let text: Vec<_> =
                    Stage::ALL.iter().map(|s| format!("{} {:.0}", s.name(), per(*s))).collect();
                let share = stages.packets as f64 / (packets * rounds.max(2) as u64) as f64 * 100.0;
                println!("    {workers}: {} (of {share:.2} % of the packets)", text.join(", "));
            }
        }
    }
}
