//! The experiment `emulated` with a real guest, in its shortest form. Needs QEMU, and a Debian
//! mirror or a kernel in the cache. It takes some minutes: only with FULL=1.

mod common;

use std::process::Command;

use common::commands::{LAB, Scratch, stderr, stdout};
use serde_json::Value;

#[test]
fn a_guest_counts_the_same_instructions_twice_and_more_with_ironswan_than_without() {
    if std::env::var_os("FULL").is_none_or(|full| full.is_empty()) {
        println!("left out: it takes some minutes; FULL=1 runs it");
        return;
    }
    let scratch = Scratch::new();
    let line = "emulated --smoke --json --dut plain,ironswan --repeats 2 --bursts 32 --sizes 100 --out";
    let done =
        Command::new(LAB).args(line.split(' ')).arg(scratch.path().join("run")).output().expect("a run");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let record: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    let counts = |system: &str| -> Vec<f64> {
        let samples = record["samples"].as_array().expect("samples").iter();
        let own = samples.filter(|s| s["factors"]["system"] == system && s["factors"]["traffic"] == "UDP");
        own.map(|s| s["measures"]["per_packet"].as_f64().expect("a count")).collect()
    };
    let (plain, ours) = (counts("plain"), counts("ironswan"));
    assert_eq!((plain.len(), ours.len()), (2, 2));
    for two in [&plain, &ours] {
        // Few packets here: what the kernel does now and then is a larger part than in a run.
        assert!((two[0] / two[1] - 1.0).abs() < 0.1, "{two:?}");
    }
    assert!(plain[0] > 1000.0 && ours[0] > plain[0], "{plain:?} {ours:?}");
}

#[test]
fn without_qemu_it_says_what_to_install() {
    let scratch = Scratch::new();
    let run = scratch.path().join("run");
    let done = Command::new(LAB)
        .args(["emulated", "--smoke", "--dut", "plain", "--out"])
        .arg(&run)
        .env("PATH", scratch.path())
        .output()
        .expect("a run");
    // This program looks in /usr/sbin and /sbin whatever PATH says, where Debian has no QEMU.
    let text = stderr(&done);
    assert_eq!(done.status.code(), Some(2), "{text}");
    assert!(text.contains("apt-get install qemu-system-x86") && !run.exists(), "{text}");
}
