//! The congestion control of the boxes' TCP is the laboratory's choice and not the machine's, and a
//! run says which it was. Needs root and nft.

use std::process::Command;

use crate::common::{self, common, made_by, out, owner};
use ironswan_lab::relay::RelaySpec;
use ironswan_lab::report::Stored;
use ironswan_lab::topology::{
    Congestion, HostToHost, HubSpokes, Line, LineSpec, Mesh, Mode, Owner, RoadWarriors,
};
use ironswan_lab::{Common, LabError, LineOptions, TopologiesOptions, TopologyLoad, line, topologies};

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What each namespace of an owner is set to.
fn settings_of(owner: &Owner) -> Vec<String> {
    let name = owner.dir().file_name().expect("a name").to_str().expect("a word");
    let made = made_by(name);
    let boxes = made.iter().filter_map(|path| path.strip_prefix("/run/netns/"));
    boxes
        .map(|netns| {
            let read = Command::new("ip").args(["netns", "exec", netns, "cat", SYSCTL]).output();
            String::from_utf8(read.expect("ip").stdout).expect("a name").trim().to_string()
        })
        .collect()
}

/// Cubic, or reno where the kernel keeps that from namespaces.
fn usual() -> String {
    let usual = Congestion::default().to_string();
    assert!(["cubic", "reno"].contains(&&*usual), "{usual}");
    usual
}

fn all_topologies(owner: &Owner) -> Vec<(usize, Vec<String>)> {
    let mut seen = Vec::new();
    let spec = LineSpec { mode: Mode::Offload, inner_mtu: 1400 };
    let relay = RelaySpec::default();
    let line = Line::build(owner, spec).expect("a line");
    seen.push((4, settings_of(owner)));
    drop(line);
    let pair = HostToHost::build(owner, 1400, Some(relay)).expect("a pair");
    seen.push((3, settings_of(owner)));
    drop(pair);
    let warriors = RoadWarriors::build(owner, 2, 1400).expect("road warriors");
    seen.push((5, settings_of(owner)));
    drop(warriors);
    let hub = HubSpokes::build(owner, 2, 1400).expect("a hub");
    seen.push((4, settings_of(owner)));
    drop(hub);
    let mesh = Mesh::build(owner, 2, 1400).expect("a mesh");
    seen.push((5, settings_of(owner)));
    drop(mesh);
    seen
}

#[test]
fn every_box_of_every_topology_has_that_of_its_owner_whatever_the_machines_is() {
    for (boxes, found) in all_topologies(&owner()) {
        assert_eq!(found, vec![usual(); boxes]);
    }
    // Another that this kernel lets namespaces have: most allow reno and cubic.
    let allowed =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").expect("Linux");
    let another = allowed.split_whitespace().find(|name| *name != usual()).expect("a second one");
    let other = Owner::claim_for_tcp(&another.parse().expect("a name")).expect("a name");
    for (boxes, found) in all_topologies(&other) {
        assert_eq!(found, vec![another; boxes]);
    }
}

#[test]
fn a_run_says_what_it_was_measured_with() {
    let options = LineOptions {
        duts: vec!["plain".into()],
        smoke: true,
        out: Some(out("congestion-line")),
        congestion: "reno".parse().expect("a name"),
        ..LineOptions::default()
    };
    let report = line(options).expect("a run");
    let text = report.text(1000);
    assert!(text.contains("TCP congestion control: reno; "), "{text}");
    let run = Stored::read(&report.folder).expect("a run");
    let record = run.record();
    assert_eq!(record.settings.get("TCP congestion control").map(String::as_str), Some("reno"));
    common::recomputed(&report.folder);

    let options = TopologiesOptions {
        common: common("congestion-topologies", &["plain"]),
        topologies: vec!["host-to-host".into()],
        load: Some(TopologyLoad::Tcp),
        ..TopologiesOptions::default()
    };
    let report = topologies(options).expect("a run");
    let said = format!("TCP congestion control: {}", usual());
    assert!(report.text(100).contains(&said), "{}", report.text(100));
    common::recomputed(&report.folder);
}

#[test]
fn what_the_kernel_does_not_have_is_refused_before_anything_starts() {
    let lacking: Congestion = "nosuchcontrol".parse().expect("a name");
    let folder = out("congestion-lacking");
    let common = Common { congestion: Some(lacking.clone()), ..common("congestion-lacking", &["plain"]) };
    let options = LineOptions {
        duts: vec!["plain".into()],
        out: Some(folder.clone()),
        congestion: lacking,
        ..LineOptions::default()
    };
    let of_line = line(options).expect_err("no such thing");
    let load = Some(TopologyLoad::Tcp);
    let of_another = topologies(TopologiesOptions { common, load, ..TopologiesOptions::default() })
        .expect_err("no such thing");
    for e in [of_line, of_another] {
        let text = e.to_string();
        assert!(matches!(e, LabError::Usage(_)), "{text}");
        assert!(text.contains("`nosuchcontrol`") && text.contains("reno"), "{text}");
    }
    assert!(!folder.exists());
}
