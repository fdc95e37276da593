//! The topologies carry traffic along every path, plain and through tunnels, and leave nothing
//! behind; and the experiment `topologies` in its shortest form. Needs root, nft, and the program
//! `ironswan` beside this test for the tunnels.

use std::path::Path as File;
use std::time::Duration;

use crate::common::{self, common_with_program, left, made_by, now, owner, program};
use ironswan_lab::dut::{Dut, DutOptions, Encap, Hardware, by_name};
use ironswan_lab::load::{MessageLoad, Messages, Ttcp, TtcpLoad};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::topology::{HostToHost, HubSpokes, Mesh, RoadWarriors, Topology};
use ironswan_lab::{LabError, TOPOLOGIES, TopologiesOptions, topologies};

fn dut(name: &str) -> Option<Box<dyn Dut>> {
    let ironswan = if name == "ironswan" { Some(program()?) } else { None };
    let options = DutOptions { ironswan, ..DutOptions::default() };
    by_name(name, &[Encap::Udp], &options).expect("a system").pop()
}

/// Starts the system, sends along every path, and expects every byte.
fn carries(topology: &dyn Topology, dut: &dyn Dut, dir: &File, paths: usize) {
    std::fs::create_dir_all(dir).expect("a folder");
    let running = dut.start(&topology.sites(), dir).unwrap_or_else(|e| panic!("{}: {e}", dut.name()));
    assert_eq!(topology.paths().len(), paths);
    let load = TtcpLoad { connections: 2, write: 1000, nodelay: true, rate: Some(20e6) };
    let start = now();
    let ttcp = Ttcp::start(&topology.paths(), load).unwrap_or_else(|e| panic!("{}: {e}", dut.name()));
    // Senders may have to wait for a processor.
    let patience = start + Duration::from_secs(20);
    while ttcp.received() == 0 && now() < patience {
        std::thread::sleep(Duration::from_millis(300));
    }
    let done = ttcp.finish().expect("every byte arrives");
    let elapsed = (now() - start).as_secs_f64();
    assert!(done.received > 0 && done.sent == done.received, "{done:?}");
    // The senders kept to the rate: 20 Mbit/s over all, and each connection may be a write ahead.
    let most = 20e6 / 8.0 * elapsed + (1000 * 2 * paths) as f64;
    assert!(done.sent as f64 <= most, "{done:?} in {elapsed} s");
    running.stop();
}

#[test]
fn every_topology_carries_traffic_on_all_paths_and_is_gone_afterwards() {
    let owner = owner();
    for name in ["plain", "ironswan"] {
        let Some(dut) = dut(name) else {
            continue;
        };
        let dir = |n: u32| owner.dir().join(format!("{name}-{n}"));
        let pair = HostToHost::build(&owner, 1400, None).expect("two hosts");
        carries(&pair, dut.as_ref(), &dir(0), 1);
        let made = owner.dir().file_name().and_then(|n| n.to_str()).expect("the owner's name");
        let namespaces =
            || made_by(made).into_iter().filter(|n| n.starts_with("/run/netns")).collect::<Vec<_>>();
        assert!(namespaces().len() >= 2, "{made}");
        drop(pair);
        carries(&RoadWarriors::build(&owner, 3, 1400).expect("warriors"), dut.as_ref(), &dir(1), 3);
        carries(&HubSpokes::build(&owner, 4, 1400).expect("a hub"), dut.as_ref(), &dir(2), 2);
        carries(&Mesh::build(&owner, 3, 1400).expect("a mesh"), dut.as_ref(), &dir(3), 3);
        assert_eq!(namespaces(), [""; 0]);
    }
}

/// Messages go along every path of every kind, each as one packet, and are counted where they
/// arrive.
#[test]
fn messages_are_carried_along_every_path_and_nothing_of_them_is_damaged() {
    let owner = owner();
    let plain = dut("plain").expect("plain forwarding");
    let pair = HostToHost::build(&owner, 1400, None).expect("two hosts");
    let warriors = RoadWarriors::build(&owner, 3, 1400).expect("warriors");
    for (topology, sizes) in [(&pair as &dyn Topology, &[18, 1372][..]), (&warriors, &[512])] {
        let dir = owner.dir().join(format!("messages-{}", topology.number()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let running = plain.start(&topology.sites(), &dir).expect("plain forwarding");
        for (size, n) in sizes.iter().copied().zip(0_u32..) {
            let load = MessageLoad { size, under_way: 60, tag: 16 * n };
            let messages = Messages::start(&topology.paths(), load).expect("messages");
            let patience = now() + Duration::from_secs(20);
            while messages.received() < 1000 && now() < patience {
                std::thread::sleep(Duration::from_millis(10));
            }
            let counts = messages.finish().expect("their counts");
            assert!(counts.received >= 1000 && counts.received <= counts.sent, "{size}: {counts:?}");
            assert_eq!((counts.duplicates, counts.corrupt), (0, 0), "{size}: {counts:?}");
        }
        running.stop();
    }
    let none = Messages::start(&[], MessageLoad { size: 64, under_way: 1, tag: 0 });
    assert!(matches!(none, Err(LabError::Usage(_))));
}

#[test]
fn impossible_numbers_of_boxes_are_refused() {
    let owner = owner();
    assert!(matches!(RoadWarriors::build(&owner, 0, 1400), Err(LabError::Usage(_))));
    assert!(matches!(HubSpokes::build(&owner, 241, 1400), Err(LabError::Usage(_))));
    assert!(matches!(Mesh::build(&owner, 1, 1400), Err(LabError::Usage(_))));
}

#[test]
fn a_run_has_a_figure_for_every_cell_and_leaves_nothing_behind() {
    let mut common = common_with_program("topologies");
    let duts = common.duts.clone();
    // On a busy machine a shorter window may see nothing arrive.
    common.duration = Some(Duration::from_secs(1));
    common.soaker = true;
    common.smoke = true;
    let options = TopologiesOptions {
        common,
        topologies: TOPOLOGIES.map(String::from).to_vec(),
        sizes: vec![512, 1372],
        ..TopologiesOptions::default()
    };
    let report = topologies(options).expect("a run");
    let r = &report.record;
    // Each tunnel with the processor's crypto instructions and without.
    let systems: Vec<String> = duts
        .iter()
        .flat_map(|dut| {
            let off = (dut != "plain").then(|| format!("{dut}{}", Hardware::OFF));
            [Some(dut.clone()), off].into_iter().flatten()
        })
        .collect();
    assert_eq!(r.samples.len(), 3 * systems.len() * 2);
    // Links that are not emulated are not spoken of.
    assert!(r.measure("rtt_ms").is_none() && !r.settings.contains_key("link"));
    assert_eq!((r.settings["load"].as_str(), r.settings["hardware"].as_str()), ("udp", "both"));
    for s in &r.samples {
        let m = &s.measures;
        assert!(m["gbps"] > 0.0 && m["bytes"] > 0.0 && m["writes"] > 0.0, "{s:?}");
        assert!((0.0..=1.0).contains(&m["busy"]) && m["machine_ns"] > 0.0, "{s:?}");
        assert!(
            (m["busy_kernel"] - m["busy"]).abs() < 1e-9 && (0.0..=1.0).contains(&m["busy_soaker"]),
            "{s:?}"
        );
        // Whole messages arrive, and those that a window lets out are not lost for want of room.
        let size: f64 = s.factors["size"].parse().expect("a size");
        assert!((m["bytes"] / size).fract() == 0.0 && (0.0..0.5).contains(&m["lost"]), "{s:?}");
        // What arrives in a window was written in it, or was under way before.
        assert!(m["bytes"] / size <= m["writes"] * 1.5 + 512.0, "{s:?}");
    }
    for topology in TOPOLOGIES {
        for system in &systems {
            let f = factors([("topology", topology), ("system", system), ("size", "1372")]);
            let figure = r.figure(&f).expect("a figure");
            assert_eq!(figure.number("gbps", Which::Ratio).is_some(), system != "plain");
        }
    }
    let worth = r.derived.iter().filter(|d| d.name == "hardware_least").count();
    assert_eq!(worth, 3 * (duts.len() - 1));
    assert_eq!(r.history.len(), 1);
    assert!(r.warnings.iter().any(|w| w.kind == "few-repeats"), "{:?}", r.warnings);
    let text = report.text(100);
    assert!(text.contains("line: share of plain") && text.contains("bytes per message"), "{text}");
    assert_eq!(left(&r.commands), [""; 0]);
    assert!(report.folder.join("run.json").exists());
    common::recomputed(&report.folder);
}

#[test]
fn over_emulated_links_the_round_trip_and_the_rate_are_those_of_the_link() {
    let mut common = common_with_program("topologies-link");
    let duts = common.duts.clone();
    common.duration = Some(Duration::from_secs(1));
    let link = "rate=20mbit,delay=15ms".parse().expect("a link");
    let options = TopologiesOptions {
        common,
        topologies: TOPOLOGIES.map(String::from).to_vec(),
        sizes: vec![8192],
        hardware: Some(Hardware::On),
        link: Some(link),
        ..TopologiesOptions::default()
    };
    let report = topologies(options).expect("a run");
    let r = &report.record;
    assert_eq!(r.settings["link"], "rate=20mbit,queue=250kb,delay=15ms");
    assert_eq!(r.settings["load"], "tcp");
    assert_eq!(r.samples.len(), 3 * duts.len());
    for s in &r.samples {
        let m = &s.measures;
        // There and back; more only where a processor had to be waited for.
        assert!(m["rtt_ms"] >= 30.0 && m["rtt_ms"] < 300.0, "{s:?}");
        // A link carries its rate and what its queue let out, on a busy machine within a window
        // that is not quite the link's; without one it were hundreds of times that. The warriors
        // have one each.
        let links = if s.factors["topology"] == "road-warrior" { 3.0 } else { 1.0 };
        assert!(m["gbps"] > 0.0 && m["gbps"] <= 0.04 * links, "{s:?}");
        assert!((0.0..=1.0).contains(&m["link_lost"]) && (0.0..=1.0).contains(&m["relay_busy"]), "{s:?}");
    }
    let text = report.text(100);
    assert!(text.contains("line: the emulated link (rate=20mbit,queue=250kb,delay=15ms)"), "{text}");
    assert_eq!(left(&r.commands), [""; 0]);
    common::recomputed(&report.folder);
}
