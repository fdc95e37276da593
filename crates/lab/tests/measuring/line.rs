//! The experiment `line`, for a second: what it writes is what it promises. Needs root and iperf3.

use std::fs;
use std::time::Duration;

use crate::common;
use ironswan_lab::measure::Window;
use ironswan_lab::report::Stored;
use ironswan_lab::{LabError, LineOptions, line};

fn options(name: &str) -> LineOptions {
    common::assert_root();
    LineOptions {
        duts: vec!["plain".into()],
        smoke: true,
        out: Some(common::out(name)),
        ..LineOptions::default()
    }
}

#[test]
fn a_run_folder_holds_the_record_and_the_raw_files_of_every_trial() {
    let report = line(options("folder")).expect("a run");
    let stored = Stored::read(&report.folder).expect("a run");
    assert!(*stored.record() == report.record, "what is written is not what was made");
    let record = stored.record();
    assert!(record.faults().is_empty(), "{:?}", record.faults());
    let page = fs::read_to_string(report.folder.join("index.html")).expect("the page");
    assert!(page.contains("few-repeats") && page.contains("<svg") && page.ends_with("</html>\n"), "{page}");
    assert!(report.folder.join("throughput.svg").exists());
    assert_eq!((record.experiment.as_str(), record.number.as_str(), record.samples.len()), ("line", "E1", 1));
    let sample = &record.samples[0];
    for file in &sample.files {
        assert!(fs::metadata(report.folder.join(file)).is_ok_and(|m| m.len() > 0), "{file}");
    }
    let raw = |ending: &str| {
        let file = sample.files.iter().find(|f| f.ends_with(ending)).expect(ending);
        fs::read_to_string(report.folder.join(file)).expect(ending)
    };
    let w: Window = serde_json::from_str(&raw(".window.json")).expect("a window");
    assert_eq!(sample.measures["gbps"], w.gbps);
    // It may end late where others want the processors, never early.
    assert!(w.seconds > 0.99, "{}", w.seconds);
    assert!((w.gbps * 1e9 * w.seconds / 8.0 / w.payload_bytes as f64 - 1.0).abs() < 1e-9, "{w:?}");
    assert!(w.gbps > 0.0 && w.machine_ns_per_byte > 0.0, "{w:?}");
    assert_eq!(w.samples.last().map(|s| s.bytes), Some(w.bytes));
    // Forwarding by the kernel: what b received, the gateways carried, and no process of theirs.
    // The counters of the four boxes are read one after the other, and whoever reads them may have
    // to wait in between.
    assert!(w.links["g1.wan"].tx_bytes as f64 > 0.5 * w.bytes as f64);
    assert!(w.gateways.is_empty() && w.tunnel.is_none());
    assert!(w.payload_bytes < w.bytes && w.payload_bytes as f64 > 0.9 * w.bytes as f64);
    // What the kernel counted in the window is a part of what iperf3 says of its whole run, give or
    // take repeated segments.
    let own: serde_json::Value = serde_json::from_str(&raw(".iperf3.json")).expect("JSON");
    let whole = own["end"]["sum_received"]["bytes"].as_f64().expect("bytes");
    assert!(w.payload_bytes as f64 <= whole * 1.05, "{} of {whole}", w.payload_bytes);
    for part in ["ip netns add ironlab-", "net.ipv4.ip_forward=1", "iperf3 -c 10.2.0.2"] {
        assert!(
            record.commands.iter().any(|c| c.contains(part)),
            "{part} is not among {:?}",
            record.commands
        );
    }
    for kind in ["few-repeats", "short-window", "smoke"] {
        assert!(record.warnings.iter().any(|w| w.kind == kind), "{kind}: {:?}", record.warnings);
    }
    assert!(report.text(80).contains("TCP, offload mode, 1 stream, a to b"));
    let said = common::recomputed(&report.folder);
    assert!(said.contains("and from 1 windows"), "{said}");
}

#[test]
fn a_gateway_that_has_to_be_killed_is_named_and_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;

    let Some(program) = common::program() else { return };
    // A shell that will not end is what the laboratory started; the gateway is its child.
    let (program, stubborn) = (program.display(), common::out("stubborn"));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = run ] || exec '{program}' \"$@\"\ntrap '' TERM\n'{program}' \"$@\" &\n\
         while :; do wait; sleep 1; done\n"
    );
    fs::write(&stubborn, script).expect("a script");
    fs::set_permissions(&stubborn, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut o = options("killed");
    o.duts = vec!["ironswan".into()];
    o.dut_options.ironswan = Some(stubborn.clone());
    let report = line(o).expect("a run");
    let killed: Vec<&str> =
        report.record.warnings.iter().filter(|w| w.kind == "killed").map(|w| w.text.as_str()).collect();
    assert!(matches!(killed[..], [one] if one.starts_with("ironswan: g1, g2 did not end")), "{killed:?}");
    assert_eq!(common::left(&report.record.commands), [""; 0]);
    // Neither the shells nor their children live on.
    let alive = common::processes_with(&report.record.commands);
    assert_eq!(alive, [""; 0]);
    fs::remove_file(&stubborn).expect("removed");
    common::recomputed(&report.folder);
}

#[test]
fn a_soaker_says_beside_accounting_what_a_window_left_and_is_in_no_cost() {
    let mut o = options("soaker");
    o.soaker = true;
    let report = line(o).expect("a run");
    let sample = &report.record.samples[0];
    let file = sample.files.iter().find(|f| f.ends_with(".window.json")).expect("the window");
    let w: Window =
        serde_json::from_str(&fs::read_to_string(report.folder.join(file)).expect("text")).expect("a window");
    let busy = w.busy.expect("both");
    assert!(busy.accounting == w.busy_share && (0.0..=1.0).contains(&busy.soaker), "{busy:?}");
    assert_eq!(sample.measures["busy_soaker"], busy.soaker);
    let cpus = ironswan_lab::machine::Fingerprint::take().cpus as f64;
    // The soaker's ticks are no work, give or take some at either end; those of other programs at
    // low priority are.
    let most = (0.1 + 2.0 * w.other_load_share) * w.seconds * cpus * w.ticks_per_second as f64;
    assert!((w.cpu.nice as f64) <= most, "{most} {w:?}");
    let cost = w.machine_ns_per_byte * w.payload_bytes as f64 / 1e9;
    let share = cost / w.seconds / cpus;
    assert!((share - w.busy_share).abs() < 1e-6, "{share} {w:?}");
    let doubted = report.record.warnings.iter().any(|w| w.kind == "accounting");
    assert_eq!(
        doubted,
        (busy.accounting - busy.soaker).abs() > busy.apart,
        "{busy:?} {:?}",
        report.record.warnings
    );
    assert!(
        report.text(100).contains("Busy processors, by accounting and by a soaker"),
        "{}",
        report.text(100)
    );
    assert!(report.record.figures[0].measures.contains_key("busy_soaker"));
    common::recomputed(&report.folder);
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
