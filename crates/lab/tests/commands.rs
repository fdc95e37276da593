//! The experiments as a user runs them. Needs root, a TUN device, nft, iperf3 and curl.

mod common;

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use common::commands::{LAB, Scratch, ended, remains, start, stderr, stdout};
use ironswan_lab::schema::breaches;
use serde_json::Value;

/// A number in the range of its option that is of no use in this experiment is refused with the
/// option, its value and the range, before anything is made.
#[test]
fn what_is_of_no_use_in_an_experiment_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    for (line, said) in [
        ("line --duration 0.3", "--duration 0.3: in this experiment it is a number from 0.5 to 3600"),
        ("background --duration 0.09", "--duration 0.09: in this experiment it is a number from 0.1 to 600"),
        ("background --duration 601", "--duration 601: in this experiment it is a number from 0.1 to 600"),
        ("profile --duration 601", "--duration 601: in this experiment it is a number from 0.2 to 600"),
        ("topologies --duration 0.05", "--duration 0.05: in this experiment it is a number from 0.1 to 3600"),
        ("tunnels --duration 61", "--duration 61: in this experiment it is a number from 0.05 to 60"),
        ("compression --rates 1000000,512 --duration 3600", "--duration 3600: it takes 450000 MB of memory"),
        (
            "topologies --sizes 1373",
            "a message of 1373 B cannot be measured: a message is one packet, of 18 to 1372 B",
        ),
        ("topologies --join", "--join and --congestion are of TCP: add --load tcp"),
        ("background --rate 5 --share 10", "--rate and --share exclude each other"),
        ("cores --workers 256", "256 workers: this machine has"),
        ("cores --sizes 1500", "frames of 1500 bytes do not fit; the largest has 1418"),
        ("cores --suite aes128gcm16,aes128-sha1", "one suite is measured"),
        ("profile --layers --suite aes256gcm16", "--layers has suites of its own"),
        ("compression --rates 63", "63: a rate is 0 (no limit) or 64 to 1,000,000 kbit/s"),
        ("driver --sizes 20", "a size of 20 bytes cannot be measured"),
        ("driver --engine steam", "no engine 'steam'; there are: aws-lc, vaes, avx2, ipsec-mb, cryptodev"),
        ("rfc2544 --sizes 9001", "`9001` is not a frame size; write 64 to 9000"),
        ("rfc2544 --ipv6 --sizes 64", "frames of 64 bytes do not fit: write 84 or more"),
        ("rfc2544 --ipv6 --topology single", "--ipv6: the tester of one gateway alone"),
        ("rfc2544 --mix /dev/zero", "--mix /dev/zero: it is no regular file: name a capture file"),
        ("rfc2544 --mix /x --burst 2", "--burst: packets of --mix come as they were captured"),
        ("rfc2544 --generator xdp", "`xdp` is not a generator; the generators are af_packet and af_xdp"),
        (
            "rfc2544 --generator af_xdp --topology single",
            "--generator af_xdp: the tester of one gateway alone",
        ),
        ("rfc2544 --generator af_xdp --threads 64", "--threads: with --generator af_xdp each has a queue"),
        ("compare --ipv6 --sizes 64", "frames of 64 bytes do not fit: write 84 or more"),
        ("compare --sizes 1419", "frames of 1419 bytes do not fit: write 1418 or less"),
        ("compare --mix /x --burst 2", "--burst: packets of --mix come as they were captured"),
        ("compare --mix /dev/zero", "--mix /dev/zero: it is no regular file: name a capture file"),
    ] {
        let out = scratch.path().join("run");
        let done = Command::new(LAB).args(line.split(' ')).arg("--out").arg(&out).output().expect(line);
        let text = stderr(&done);
        assert!(text.contains(said) && done.status.code() == Some(2), "{line}: {} {text}", done.status);
        assert!(stdout(&done).is_empty() && !out.exists(), "{line}");
    }
}

/// Without the feature there is no device, and the message says how to build it in.
#[cfg(not(feature = "cryptodev"))]
#[test]
fn a_device_that_is_not_built_in_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    for engine in ["cryptodev", "cryptodev-poll", "aws-lc,cryptodev-wait"] {
        let out = scratch.path().join("run");
        let mut lab = Command::new(LAB);
        let done =
            lab.args(["driver", "--smoke", "--engine", engine, "--out"]).arg(&out).output().expect(LAB);
        let text = stderr(&done);
        let built = text.contains("--features cryptodev") || text.contains("x86-64 alone");
        assert!(text.contains("the engine cryptodev: not built in") && built, "{engine}: {text}");
        assert_eq!(done.status.code(), Some(2), "{engine}");
        assert!(stdout(&done).is_empty() && !out.exists(), "{engine}");
    }
}

/// Every experiment, the longest first: with the congestion control that every kernel allows where
/// it carries TCP.
const EXPERIMENTS: [(&str, &str); 14] = [
    ("fragments", ""),
    ("compression", "--congestion reno"),
    ("line", "--congestion reno"),
    ("tunnels", ""),
    ("rfc2544", ""),
    ("topologies", ""),
    ("flood", ""),
    ("transfer", "--congestion reno"),
    ("compare", "--congestion reno"),
    ("background", "--congestion reno"),
    ("lowend", "--congestion reno"),
    ("cores", ""),
    ("profile", "--congestion reno"),
    ("driver", ""),
];

/// The experiment that is not among them: its guest takes many minutes. Its own tests run it.
const EMULATED: &str = "emulated";

/// The name of the experiment that a line of the help describes: `  line   E1: ...`.
fn named_in_help(line: &str) -> Option<&str> {
    let (name, about) = line.trim().split_once(' ')?;
    let number = about.trim_start().strip_prefix('E')?.split_once(": ")?.0;
    number.parse::<u8>().is_ok().then_some(name)
}

/// Runs one in its shortest form: its record is all that it prints, and what is in its folder;
/// nothing else is left.
fn shortest((name, more): (&str, &str)) {
    let scratch = Scratch::new();
    let began = now();
    let child = start(&scratch, format!("{name} --smoke --json {more}").trim_end());
    let pid = child.id();
    let output = ended(child);
    println!("{name}: {:.1} s", (now() - began).as_secs_f64());
    assert_eq!(remains(pid), [""; 0], "{name}");
    let (said, printed) = (stderr(&output), stdout(&output));
    if name == "lowend" && output.status.code() == Some(2) && said.contains("control groups") {
        // A machine without them; its own test looks whether that is so.
        return;
    }
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{name}");
    let record: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{name}: {e}: {printed}"));
    assert_eq!((&record["schema"], &record["experiment"]), (&"ironswan.lab/1".into(), &name.into()));
    assert_eq!(breaches(&record), [""; 0], "{name}");
    let kept = fs::read_to_string(scratch.path().join("run").join("run.json")).expect("run.json");
    assert!(serde_json::from_str::<Value>(&kept).expect("JSON") == record, "{name}");
    assert!(scratch.path().join("run").join("index.html").exists(), "{name}");
}

#[allow(clippy::disallowed_methods, reason = "tests measure and wait")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn every_experiment_prints_its_record_beside_another_that_runs_at_the_same_time() {
    let lab = Command::new(LAB).arg("--help").output().expect("ironswan-lab");
    let help = stdout(&lab);
    let mut listed: Vec<&str> =
        help.lines().filter_map(named_in_help).filter(|name| *name != EMULATED).collect();
    let mut run = EXPERIMENTS.map(|(name, _)| name);
    listed.sort_unstable();
    run.sort_unstable();
    assert_eq!(listed, run, "{help}");
    let left = Mutex::new(EXPERIMENTS.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(experiment) = next() {
                    shortest(*experiment);
                }
            });
        }
    });
}
