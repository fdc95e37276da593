//! The rates of `line` beside iperf3's own: of the very same load, over the same time; and, for
//! people on a quiet machine, of runs that only iperf3 measures. Needs root and iperf3, and for
//! tunnels the program `ironswan` beside this test.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::common::{self, common_with_program, left, now, owner};
use ironswan_lab::dut::{DutOptions, Encap, by_name};
use ironswan_lab::stats::median;
use ironswan_lab::topology::{Line, LineSpec, Mode, Node, Owner, address};
use ironswan_lab::{LineOptions, line};
use serde_json::Value;

/// E1 is to agree with iperf3 to this share.
const AGREE: f64 = 0.15;
/// Length of a window, seconds.
const WINDOW: usize = 3;

fn options(name: &str) -> LineOptions {
    let common = common_with_program(name);
    LineOptions {
        duts: common.duts,
        dut_options: common.dut_options,
        duration: Duration::from_secs(WINDOW as u64),
        repeats: 1,
        out: common.out,
        ..LineOptions::default()
    }
}

/// By system: Gb/s of the window by the kernel's counters, and by what iperf3's client says of the
/// same seconds. The window begins a second after the first data, which are sent when iperf3's own
/// time begins, so that it is iperf3's second to fourth second.
fn both_ways(o: LineOptions) -> Vec<(String, f64, f64)> {
    let report = line(o).expect("a run");
    assert_eq!(left(&report.record.commands), [""; 0]);
    let rates = report.record.samples.iter().map(|trial| {
        let own = trial.files.iter().find(|f| f.ends_with(".iperf3.json")).expect("iperf3's report");
        let own = fs::read_to_string(report.folder.join(own)).expect("iperf3's report");
        let own: Value = serde_json::from_str(&own).expect("JSON");
        let seconds = own["intervals"].as_array().expect("intervals");
        assert!(seconds.len() > WINDOW, "{} intervals", seconds.len());
        let sums = seconds[1..=WINDOW].iter().map(|i| &i["sum"]);
        let of = |sum: &Value, name: &str| sum[name].as_f64().expect(name);
        let (bytes, time) =
            sums.fold((0.0, 0.0), |(b, t), sum| (b + of(sum, "bytes"), t + of(sum, "seconds")));
        (trial.factors["dut"].clone(), trial.measures["gbps"], bytes * 8.0 / time / 1e9)
    });
    let rates = rates.collect();
    common::recomputed(&report.folder);
    rates
}

#[test]
fn a_window_is_as_fast_as_iperf3_says_of_the_same_seconds() {
    let mut seen = Vec::new();
    // Where a busy machine held up one of the two clocks their seconds were not the same: another
    // time they are.
    let agreed = (0..6).any(|_| {
        let rates = both_ways(options("iperf3"));
        assert!(rates.iter().all(|(_, ours, theirs)| *ours > 0.0 && *theirs > 0.0), "{rates:?}");
        let near = rates.iter().all(|(_, ours, theirs)| (ours / theirs - 1.0).abs() < AGREE);
        seen.push(rates);
        near
    });
    println!("system, Gb/s by the kernel, Gb/s by iperf3: {seen:?}");
    assert!(agreed, "system, Gb/s by the kernel, Gb/s by iperf3: {seen:?}");
}

/// Gb/s of payload that arrived in a run of a line like that of the laboratory, by iperf3 alone.
fn iperf3_alone(owner: &Owner, dut: &str, options: &DutOptions) -> f64 {
    let line = Line::build(owner, LineSpec { mode: Mode::Offload, inner_mtu: 1400 }).expect("a line");
    let dir = owner.dir().join(format!("alone-{}", line.number()));
    fs::create_dir(&dir).expect("a folder");
    let dut = by_name(dut, &[Encap::Udp], options).expect("a system").pop().expect("a system");
    let running = dut.start(&line.sites(), &dir).expect("it starts");
    let inside = |node: Node, argv: &[&str]| {
        let argv = line.node(node).exec(argv);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        command
    };
    let mut server = inside(Node::B, &["iperf3", "-s", "-1"]);
    let mut server = server.stdout(std::process::Stdio::null()).spawn().expect("a server");
    // It listens soon; a client that comes first is refused.
    let (seconds, patience) = ((WINDOW + 1).to_string(), now() + Duration::from_secs(10));
    let report = loop {
        let client = ["iperf3", "-c", address::B, "-t", &seconds, "-O", "1", "-J"];
        let done = inside(Node::A, &client).output().expect("a client");
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        if json.get("error").is_none() {
            break json;
        }
        assert!(now() < patience, "{json}");
        std::thread::sleep(Duration::from_millis(100));
    };
    server.wait().expect("its end");
    running.stop();
    report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate") / 1e9
}

#[test]
#[ignore = "compares speeds of different runs: for people, on a quiet machine, in a release build"]
fn medians_of_interleaved_runs_agree_with_those_of_iperf3_alone() {
    let (owner, o) = (owner(), options("iperf3-alone"));
    let (mut ours, mut theirs) = (vec![Vec::new(); o.duts.len()], vec![Vec::new(); o.duts.len()]);
    for _ in 0..5 {
        for (nth, dut) in o.duts.iter().enumerate() {
            let only = LineOptions { duts: vec![dut.clone()], ..o.clone() };
            ours[nth].push(both_ways(only)[0].1);
            theirs[nth].push(iperf3_alone(&owner, dut, &o.dut_options));
        }
    }
    for (nth, dut) in o.duts.iter().enumerate() {
        let [ours, theirs] = [&ours[nth], &theirs[nth]].map(|all| median(all).expect("five"));
        println!("{dut}: {ours:.2} Gb/s by `line`, {theirs:.2} by iperf3 alone: {:.3}", ours / theirs);
        assert!((ours / theirs - 1.0).abs() < AGREE, "{dut}: {ours} {theirs}");
    }
}
