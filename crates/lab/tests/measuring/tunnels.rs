//! The experiment `tunnels` in its shortest form, and simulated peers against a real gateway. Needs
//! root, nft, and the program `ironswan` beside this test.

use crate::common::{self, common, left, program, soaked};
use ironswan_lab::record::{Factors, Which, factors};
use ironswan_lab::{Common, LabError, TunnelAuth, TunnelsOptions, tunnels};

/// A capture of ESP packets with these SPIs, from their IPv4 headers on.
fn trace(spis: &[u32]) -> Vec<u8> {
    let head = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 101].map(u32::to_be_bytes).concat();
    let packet = |spi: &u32| {
        let ip = [0x45, 0, 0, 36, 0, 0, 0, 0, 64, 50, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        let record = [1, 0, 36, 36].map(u32::to_be_bytes).concat();
        [&record[..], &ip, &spi.to_be_bytes(), &[0; 12]].concat()
    };
    head.into_iter().chain(spis.iter().flat_map(packet)).collect()
}

#[test]
fn a_smoke_run_brings_all_tunnels_up_uses_and_restarts_them_and_leaves_nothing_behind() {
    let Some(program) = program() else { return };
    let mut common = common("tunnels", &[]);
    common.dut_options.ironswan = Some(program);
    let pcap = std::env::temp_dir().join(format!("ironlab-trace-{}.pcap", std::process::id()));
    // Three SAs in turn.
    std::fs::write(&pcap, trace(&[300, 301, 302].repeat(10))).expect("a trace");
    let report = tunnels(TunnelsOptions {
        common,
        tunnels: vec![3, 200],
        simulated: Some(20),
        trace: Some(pcap.clone()),
        ..TunnelsOptions::default()
    })
    .expect("a run");
    let record = &report.record;
    assert_eq!(record.experiment, "tunnels");
    let bad = |kind: &str| ["not-all-up", "peer-trouble", "left-out"].contains(&kind);
    assert!(!record.warnings.iter().any(|w| bad(&w.kind)), "{:?}", record.warnings);
    let of = |factors: &Factors, measure: &str| {
        let figure = record.figure(factors).unwrap_or_else(|| panic!("no figure of {factors:?}"));
        figure.number(measure, Which::Median).unwrap_or_else(|| panic!("no {measure} of {factors:?}"))
    };
    let what = |what: &str, n: &str| factors([("what", what), ("dut", "ironswan"), ("tunnels", n)]);
    let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    for n in ["3", "200"] {
        let tunnels: f64 = n.parse().expect("a number");
        let up = what("bring-up", n);
        let seconds = of(&up, "up_s");
        assert!(of(&up, "ready_s") > 0.0 && seconds > 0.0);
        assert!((of(&up, "setups_per_s") * seconds - tunnels).abs() < 1e-6 * tunnels);
        // Nobody computes for longer than all processors have time; each tunnel takes two key
        // exchanges at least.
        let cpu = of(&up, "cpu_us") * tunnels;
        assert!(cpu > 10.0 * tunnels && cpu < 1.1e6 * cpus * (seconds + 0.2), "{cpu} us in {seconds} s");
        let traffic = what("traffic", n);
        assert!((0.0..=1.0).contains(&of(&traffic, "loss")));
        assert!(of(&traffic, "carried") > 0.0);
        assert!(of(&traffic, "carried") <= of(&traffic, "offered") * 1.001, "no more arrives than was sent");
        assert!(of(&traffic, "ns_per_packet") > 100.0);
        if let Some(mhz) = record.machine.mhz {
            let cycles = of(&traffic, "ns_per_packet") * mhz / 1e3;
            assert!((of(&traffic, "cycles_per_packet") / cycles - 1.0).abs() < 1e-9);
        }
        let restart = what("restart", n);
        assert!(of(&restart, "restart_s") > of(&restart, "stop_s"));
    }
    // The tenths of a run add up to no more than its whole.
    let tenths = factors([("what", "bring-up by tenths"), ("tunnels", "200")]);
    let tenths: Vec<f64> =
        record.figures_with(&tenths).filter_map(|f| f.number("tenth_us", Which::Median)).collect();
    assert_eq!(tenths.len(), 10);
    assert!(tenths.iter().sum::<f64>() / 10.0 <= of(&what("bring-up", "200"), "cpu_us") * 1.001);
    let dead = what("dead", "200");
    assert!(of(&dead, "dead_us") >= 0.0 && of(&dead, "dead_us") < 1e6 * cpus);
    // Whoever tried more often than once a second would not be waiting longer and longer.
    assert!((0.0..5.0).contains(&of(&dead, "dead_packets")), "{}", of(&dead, "dead_packets"));
    // A larger cache hits no less.
    let rates: Vec<f64> = record
        .figures_with(&factors([("what", "key cache"), ("trace", "uniform, as sent in this run")]))
        .filter_map(|f| f.number("hit_rate", Which::Median))
        .collect();
    assert!(rates.len() > 3 && rates.windows(2).all(|w| w[0] <= w[1] && w[1] <= 1.0), "{rates:?}");
    // In turn over three, a cache of one never has the next, and one of four misses each once.
    let recorded = |entries: &str| {
        let trace = [("what", "key cache"), ("trace", "recorded"), ("tunnels", "3"), ("entries", entries)];
        of(&factors(trace), "hit_rate")
    };
    assert_eq!((recorded("1"), recorded("4")), (0.0, 0.9));
    assert!(record.settings["trace"].contains("30 of 30 packets are ESP, of 3 SAs"), "{:?}", record.settings);
    std::fs::remove_file(&pcap).expect("removed");
    assert!(of(&what("simulated peers", "20"), "up_s") > 0.0);
    assert!(record.history.len() >= 2);
    assert!(report.text(120).contains("All tunnels up"));
    common::recomputed(&report.folder);
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn a_soaker_is_at_work_beside_set_up_traffic_and_peers_that_are_gone() {
    let Some(program) = program() else { return };
    let mut common = Common { soaker: true, ..common("tunnels-soaker", &["ironswan"]) };
    common.dut_options.ironswan = Some(program);
    let report = tunnels(TunnelsOptions {
        common,
        tunnels: vec![20],
        simulated: Some(5),
        ..TunnelsOptions::default()
    })
    .expect("a run");
    let what = ["bring-up", "traffic", "dead", "simulated peers"].map(|what| factors([("what", what)]));
    soaked(&report.record, &what);
    common::recomputed(&report.folder);
    assert_eq!(left(&report.record.commands), [""; 0]);
}

#[test]
fn strongswan_is_restarted_and_left_by_its_peers_as_well() {
    let common = common("tunnels-strongswan", &["strongswan-libipsec"]);
    let numbers = vec![3, 30];
    let report = match tunnels(TunnelsOptions {
        common,
        tunnels: numbers,
        simulated: Some(0),
        ..TunnelsOptions::default()
    }) {
        Err(LabError::Unfit(lacks)) if std::env::var_os("CI").is_none() => {
            return eprintln!("{lacks:?}: left out");
        }
        report => report.expect("a run"),
    };
    let record = &report.record;
    let bad = |kind: &str| ["not-all-up", "killed"].contains(&kind);
    assert!(!record.warnings.iter().any(|w| bad(&w.kind)), "{:?}", record.warnings);
    let of = |what: &str, n: &str, measure: &str| {
        let of = factors([("what", what), ("dut", "strongswan-libipsec"), ("tunnels", n)]);
        record.figure(&of).and_then(|f| f.number(measure, Which::Median))
    };
    for n in ["3", "30"] {
        let (restart, stop) = (of("restart", n, "restart_s"), of("restart", n, "stop_s"));
        assert!(stop > Some(0.0) && restart > stop, "{restart:?} s, of this {stop:?}");
    }
    // As many as there are at most.
    assert_eq!(of("dead", "3", "dead_us"), None);
    // Whoever waits for half a second needs less than a tenth of a processor, with what is left of
    // the start.
    assert!(of("dead", "30", "dead_us").is_some_and(|us| us * 30.0 < 1e5));
    assert!(of("dead", "30", "dead_packets").is_some_and(|p| (0.0..5.0).contains(&p)));
    common::recomputed(&report.folder);
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn certificates_are_made_for_both_systems_and_their_signatures_are_measured_alone() {
    let Some(program) = program() else { return };
    let mut common = common("tunnels-certificates", &["ironswan", "strongswan-libipsec"]);
    common.dut_options.ironswan = Some(program);
    let auths = vec![TunnelAuth::Psk, TunnelAuth::Ecdsa];
    let options =
        TunnelsOptions { common, tunnels: vec![10], simulated: Some(0), auths, ..TunnelsOptions::default() };
    let report = match tunnels(options) {
        Err(LabError::Unfit(lacks)) if std::env::var_os("CI").is_none() => {
            return eprintln!("{lacks:?}: left out");
        }
        report => report.expect("a run"),
    };
    let record = &report.record;
    assert!(!record.warnings.iter().any(|w| w.kind == "not-all-up"), "{:?}", record.warnings);
    for dut in ["ironswan", "strongswan-libipsec", "ironswan-ecdsa", "strongswan-libipsec-ecdsa"] {
        let up = factors([("what", "bring-up"), ("dut", dut), ("tunnels", "10")]);
        let cpu = record.figure(&up).and_then(|f| f.number("cpu_us", Which::Median));
        assert!(cpu > Some(10.0), "{dut}: {cpu:?}");
    }
    let alone = record.figure(&factors([("what", "signatures"), ("auth", "ecdsa")])).expect("signatures");
    let us = |measure| alone.number(measure, Which::Median).expect("measured");
    assert!(us("sign_us") > 1.0 && us("signatures_us") > 2.0 * us("sign_us"));
    assert!(report.text(120).contains("Signatures alone"));
    common::recomputed(&report.folder);
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn systems_without_ike_and_impossible_numbers_are_refused() {
    let with = |duts: &[&str], numbers: &[u32]| TunnelsOptions {
        common: Common {
            smoke: true,
            duts: duts.iter().map(ToString::to_string).collect(),
            ..Common::default()
        },
        tunnels: numbers.to_vec(),
        simulated: Some(0),
        ..TunnelsOptions::default()
    };
    for (options, wanted) in [
        (with(&["wireguard-go"], &[]), ""),
        (with(&["plain"], &[]), "no IKE"),
        (with(&["ironswan"], &[0]), "counted from 1"),
        (with(&["ironswan"], &[2_000_000]), "counted from 1"),
    ] {
        let e = tunnels(options).expect_err("refused");
        assert!(e.to_string().contains(wanted), "{e}");
    }
    let unreadable = TunnelsOptions { trace: Some("/dev/null".into()), ..with(&["ironswan"], &[3]) };
    match tunnels(unreadable) {
        Err(LabError::Unfit(lacks)) => eprintln!("{lacks:?}: left out"),
        e => assert!(e.is_err_and(|e| e.to_string().contains("/dev/null is not a pcap file"))),
    }
}
