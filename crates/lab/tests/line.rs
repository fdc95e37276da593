//! The experiment `line`, for a second: what it writes is what it promises. Needs root and iperf3.

use std::fs;
use std::time::Duration;

use ironswan_lab::report::{Run, SCHEMA};
use ironswan_lab::{LabError, LineOptions, line};

fn options(name: &str) -> LineOptions {
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
    let out = std::env::temp_dir().join(format!("ironlab-test-{name}-{}", std::process::id()));
    LineOptions { duts: vec!["plain".into()], smoke: true, out: Some(out), ..LineOptions::default() }
}

#[test]
fn a_run_folder_holds_the_record_and_the_raw_files_of_every_trial() {
    let report = line(options("folder")).expect("a run");
    let text = fs::read_to_string(report.folder.join("run.json")).expect("run.json");
    let run: Run = serde_json::from_str(&text).expect("a run");
    assert!(run == report.run, "what is written is not what was made");
    assert!(Run::read(&report.folder).expect("a run") == run);
    assert_eq!((run.schema.as_str(), run.trials.len()), (SCHEMA, 1));
    let trial = &run.trials[0];
    for file in &trial.files {
        assert!(fs::metadata(report.folder.join(file)).is_ok_and(|m| m.len() > 0), "{file}");
    }
    let w = &trial.window;
    assert!((0.9..1.5).contains(&w.seconds), "{}", w.seconds);
    assert!(w.gbps > 0.1 && w.machine_ns_per_byte > 0.0, "{w:?}");
    assert_eq!(w.samples.last().map(|s| s.bytes), Some(w.bytes));
    // Forwarding by the kernel: what b received, the gateways carried, and no process of theirs.
    assert!(w.links["g1.wan"].tx_bytes as f64 > 0.9 * w.bytes as f64);
    assert!(w.gateways.is_empty() && w.tunnel.is_none());
    assert!(w.payload_bytes < w.bytes && w.payload_bytes as f64 > 0.9 * w.bytes as f64);
    // The kernel's count and iperf3's own agree, as far as their different windows allow.
    let ratio = w.gbps / trial.tcp.payload_gbps;
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
    for part in ["ip netns add ironlab-", "net.ipv4.ip_forward=1", "iperf3 -c 10.2.0.2"] {
        assert!(trial.commands.iter().any(|c| c.contains(part)), "{part} is not among {:?}", trial.commands);
    }
    for kind in ["few-repeats", "short-window"] {
        assert!(run.warnings.iter().any(|w| w.kind == kind), "{kind}: {:?}", run.warnings);
    }
    assert!(report.text(80).contains("Offload mode, 1 stream, a to b"));
    fs::remove_dir_all(&report.folder).expect("remove");
}

#[test]
fn what_is_not_a_run_is_refused_with_its_name() {
    let folder = std::env::temp_dir().join(format!("ironlab-test-norun-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("run.json");
    let error = || Run::read(&folder).expect_err("no run").to_string();
    assert!(error().contains("run.json") && error().contains("name the folder of a run"), "{}", error());
    for text in ["", "[]", "{\"schema\": \"ironswan.run/1\"}", "{\"schema\": 1"] {
        fs::write(&path, text).expect("write");
        assert!(error().contains("is not a run"), "{}", error());
    }
    fs::remove_dir_all(&folder).expect("remove");
}

#[test]
fn what_is_not_installed_is_named_with_its_remedy_before_anything_is_built() {
    let mut o = options("missing");
    o.duts = vec!["plain".into(), "wireguard-go".into()];
    o.dut_options.wireguard_go = Some("/nonexistent/wireguard-go".into());
    let out = o.out.clone().expect("a folder");
    let e = line(o).expect_err("not installed");
    assert!(matches!(&e, LabError::Unfit(r) if r.iter().any(|r| r.action.contains("go install"))), "{e}");
    assert_eq!(e.exit_code(), 2);
    assert!(!out.exists());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for change in [
        |o: &mut LineOptions| o.repeats = 0,
        |o: &mut LineOptions| o.streams = vec![0],
        |o: &mut LineOptions| o.streams = vec![],
        |o: &mut LineOptions| o.duration = Duration::ZERO,
        |o: &mut LineOptions| o.rates_mbps = vec![Some(0)],
        |o: &mut LineOptions| o.inner_mtu = 9000,
        |o: &mut LineOptions| o.duts = vec!["opensvan".into()],
    ] {
        let mut o = options("nonsense");
        change(&mut o);
        let e = line(o).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
}
