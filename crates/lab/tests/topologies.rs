//! The topologies carry traffic along every path, plain and through tunnels, and leave nothing behind; and the experiment
//! `topologies` in its shortest form. Needs root, nft, and the program `ironswan` beside this test for the tunnels.

use std::path::{Path as File, PathBuf};
use std::time::{Duration, Instant};

use ironswan_lab::dut::{Dut, DutOptions, Encap, by_name};
use ironswan_lab::load::{Ttcp, TtcpLoad};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::topology::{HostToHost, HubSpokes, Mesh, Owner, RoadWarriors, Topology};
use ironswan_lab::{Common, LabError, TopologiesOptions, topologies};

fn owner() -> Owner {
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
    Owner::claim().expect("a name")
}

/// The program, in the folder where cargo puts it or in that of release builds; absent when only this package was built, which
/// may not be where everything is tested.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test's own path");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let folders = [folder, &folder.with_file_name("release")];
    let program = folders.map(|f| f.join("ironswan")).into_iter().find(|p| p.exists());
    assert!(
        program.is_some() || std::env::var_os("CI").is_none(),
        "ironswan is not built: cargo build --release"
    );
    program
}

fn dut(name: &str) -> Option<Box<dyn Dut>> {
    let ironswan = if name == "ironswan" { Some(program()?) } else { None };
    let options = DutOptions { ironswan, ..DutOptions::default() };
    by_name(name, &[Encap::Udp], &options).expect("a system").pop()
}

/// The namespaces whose names begin so: tests of this process run side by side, each with an owner of its own.
fn namespaces(prefix: &str) -> Vec<String> {
    std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.starts_with(prefix))
        .collect()
}

#[allow(clippy::disallowed_methods, reason = "a rate is measured")]
fn now() -> Instant {
    Instant::now()
}

/// Starts the system, sends along every path, and expects every byte.
fn carries(topology: &dyn Topology, dut: &dyn Dut, dir: &File, paths: usize) {
    std::fs::create_dir_all(dir).expect("a folder");
    let running = dut.start(&topology.sites(), dir).unwrap_or_else(|e| panic!("{}: {e}", dut.name()));
    assert_eq!(topology.paths().len(), paths);
    let load = TtcpLoad { connections: 2, write: 1000, nodelay: true, rate: Some(20e6) };
    let start = now();
    let ttcp = Ttcp::start(&topology.paths(), load).unwrap_or_else(|e| panic!("{}: {e}", dut.name()));
    std::thread::sleep(Duration::from_millis(300));
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
            eprintln!("{name} is not built: left out");
            continue;
        };
        let dir = |n: u32| owner.dir().join(format!("{name}-{n}"));
        let pair = HostToHost::build(&owner, 1400, None).expect("two hosts");
        carries(&pair, dut.as_ref(), &dir(0), 1);
        let made = owner.dir().file_name().and_then(|n| n.to_str()).expect("the owner's name");
        assert!(namespaces(made).len() >= 2, "{made}");
        drop(pair);
        carries(&RoadWarriors::build(&owner, 3, 1400).expect("warriors"), dut.as_ref(), &dir(1), 3);
        carries(&HubSpokes::build(&owner, 4, 1400).expect("a hub"), dut.as_ref(), &dir(2), 2);
        carries(&Mesh::build(&owner, 3, 1400).expect("a mesh"), dut.as_ref(), &dir(3), 3);
        let left = namespaces(made);
        assert!(left.is_empty(), "{left:?}");
    }
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
    let out = std::env::temp_dir().join(format!("ironlab-test-topologies-{}", std::process::id()));
    let ironswan = program();
    let mut duts = vec!["plain".to_string()];
    duts.extend(ironswan.as_ref().map(|_| "ironswan".to_string()));
    let mut common = Common { duts: duts.clone(), smoke: true, out: Some(out.clone()), ..Common::default() };
    common.dut_options.ironswan = ironswan;
    // On a busy machine a shorter window may see nothing arrive.
    common.duration = Some(Duration::from_secs(1));
    let writes = vec![512, 8192];
    let report =
        topologies(TopologiesOptions { common, writes, ..TopologiesOptions::default() }).expect("a run");
    let r = &report.record;
    assert_eq!(r.samples.len(), 3 * duts.len() * 2);
    for s in &r.samples {
        let m = &s.measures;
        assert!(m["gbps"] > 0.0 && m["bytes"] > 0.0 && m["writes"] > 0.0, "{s:?}");
        assert!((0.0..=1.0).contains(&m["busy"]) && m["machine_ns"] > 0.0, "{s:?}");
    }
    for topology in ["host-to-host", "line", "road-warrior"] {
        for system in &duts {
            let f = factors([("topology", topology), ("system", system), ("write", "8192")]);
            let figure = r.figure(&f).expect("a figure");
            assert_eq!(figure.number("gbps", Which::Ratio).is_some(), system != "plain");
        }
    }
    assert_eq!(r.history.len(), 1);
    assert!(r.warnings.iter().any(|w| w.kind == "few-repeats"), "{:?}", r.warnings);
    let text = report.text(100);
    assert!(text.contains("line: share of plain") && text.contains("512 B"), "{text}");
    let left = namespaces(&format!("ironlab-{}-", std::process::id()));
    assert!(!r.commands.iter().any(|c| left.iter().any(|n| c.contains(n.as_str()))), "{left:?}");
    assert!(out.join("run.json").exists());
    std::fs::remove_dir_all(&out).expect("remove");
}
