//! The laboratory in trouble: gateways that crash, hang or carry nothing, processes that are killed
//! under it, a full disk. The error says whose fault it is and shows the end of the logs, and
//! nothing is left. Needs root, a TUN device and iperf3; of the programs that carry files those are
//! killed that are installed.
//!
//! The tests run side by side: most of their time they wait. What generates and receives packets
//! are threads of the laboratory.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use ironswan_lab::load::apps::App;

use common::commands::{self, LAB, Scratch, ended, in_boxes, remains, start, stderr, stdout};

/// TCP over boxes whose congestion control is one that every kernel allows.
const LINE: &str = "line --dut ironswan --congestion reno";

/// What a run said that has to fail. It leaves nothing, and no folder that looks like that of a
/// run.
fn failed(scratch: &Scratch, child: Child) -> String {
    let pid = child.id();
    let output = ended(child);
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{said}");
    assert_eq!(remains(pid), [""; 0], "{said}");
    assert!(!scratch.path().join("run").exists(), "{said}");
    said
}

/// What an experiment says whose gateways run `body`, a shell's, before they are what they should
/// be: with `$1` the command, `$3` the folder of the configuration, and `$real` the program.
fn with_gateways(line: &str, body: &str) -> String {
    let scratch = Scratch::new();
    let program = scratch.path().join("gateway");
    let real = common::program().expect("ironswan is not built: cargo build");
    fs::write(&program, format!("#!/bin/sh\nreal='{}'\n{body}\nexec \"$real\" \"$@\"\n", real.display()))
        .expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    failed(&scratch, start(&scratch, &format!("{line} --program {}", program.display())))
}

/// Has all of `parts`, in that order.
fn assert_says(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let (_, after) =
            rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not there, or too early: {said}"));
        rest = after;
    }
}

#[test]
fn a_gateway_that_ends_at_once_is_named_with_the_end_of_its_log() {
    let body = "case $1,$3 in run,*/g1) echo no engine, no gateway; exit 3;; esac";
    let said = with_gateways(&format!("{LINE} --smoke"), body);
    let parts = [
        "ironswan lab line: ironswan: the process of g1 ended (exit status: 3)",
        "last lines of g1:",
        "no engine, no gateway",
    ];
    assert_says(&said, &parts);
}

#[test]
fn a_gateway_that_never_answers_is_named_with_the_end_of_its_log() {
    let body = "case $1,$3 in run,*/g2) echo thinking it over; while :; do sleep 1; done;; esac";
    let said = with_gateways(&format!("{LINE} --smoke"), body);
    let parts = ["ironswan: g2 did not answer on VICI within 10 s", "last lines of g2:", "thinking it over"];
    assert_says(&said, &parts);
}

#[test]
fn a_tunnel_that_never_comes_up_is_shown_with_what_both_gateways_say() {
    let body =
        "case $1,$3 in run,*/g2) sed -i 's/secret = .*/secret = \"another\"/' \"$3/swanctl.conf\";; esac";
    let said = with_gateways(&format!("{LINE} --smoke"), body);
    let parts = [
        "ironswan: the tunnel did not come up: ",
        "AUTHENTICATION_FAILED",
        "last lines of g1:",
        "AUTHENTICATION_FAILED",
        "last lines of g2:",
        "net",
    ];
    assert_says(&said, &parts);
}

#[test]
fn a_tunnel_that_carries_nothing_is_shown_with_the_logs() {
    // A rule before all others takes what is meant for the tunnel.
    let body = "case $1,$3 in run,*/g1) ip rule add pref 1 to 10.2.0.0/24 blackhole;; esac";
    let said = with_gateways("rfc2544 --dut ironswan --smoke", body);
    assert_says(
        &said,
        &["lab rfc2544: ironswan: it carries nothing ", "last lines of g1:", "CHILD_SA", "last lines of g2:"],
    );
    assert!(!said.contains("nothing was logged"), "{said}");
}

/// Kills the process that has `victim` in its command line, in the boxes of a run that is as far as
/// `ready`; what the run says.
fn killed(name: &str, line: &str, victim: &str, ready: impl Fn(u32) -> bool) -> String {
    let scratch = Scratch::new();
    let child = start(&scratch, line);
    killed_in(&scratch, child, name, victim, ready)
}

/// The same of a run that has been started.
fn killed_in(
    scratch: &Scratch,
    mut child: Child,
    name: &str,
    victim: &str,
    ready: impl Fn(u32) -> bool,
) -> String {
    let pid = child.id();
    let mut own = Vec::new();
    for _ in 0..6000 {
        own = in_boxes(pid);
        if ready(pid) && own.iter().any(|(_, line)| line.contains(victim)) {
            break;
        }
        assert_eq!(child.try_wait().expect("wait"), None, "{name}: the run ended early");
        sleep(Duration::from_millis(20));
    }
    let (process, _) = own.iter().find(|(_, line)| line.contains(victim)).expect(victim);
    let done = Command::new("kill").args(["-KILL", &process.to_string()]).status().expect("kill");
    assert!(done.success());
    let said = failed(scratch, child);
    let alive: Vec<_> = own.iter().filter(|(p, _)| lives(*p)).collect();
    assert!(alive.is_empty(), "{name}: {alive:?}");
    said
}

/// A zombie does not live: its parent was killed, and init has yet to hear of its end.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|s| !s.rsplit_once(") ").expect("a stat line").1.starts_with('Z'))
}

/// Packets that a box has received on one of its links.
fn received(pid: u32, name: &str, device: &str) -> u64 {
    let boxes = commands::boxes(pid);
    let Some(netns) = boxes.iter().find(|b| b.ends_with(name)) else { return 0 };
    let shown = Command::new("ip").args(["-n", netns, "-s", "-j", "link", "show", "dev", device]).output();
    let links: serde_json::Value = serde_json::from_slice(&shown.expect("ip").stdout).unwrap_or_default();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or(0)
}

#[test]
fn each_process_that_is_killed_under_a_run_is_named() {
    const TCP: &str = "line --dut ironswan --congestion reno --duration 60";
    const PACKETS: &str = "rfc2544 --dut ironswan --sizes 512 --duration 2";
    const TUNNELS: &str = "tunnels --dut ironswan --tunnels 20 --simulated 0 --duration 5";
    const FILE: &str = "compression --dut ironswan --congestion reno --rates 512";
    let client = |pid| in_boxes(pid).iter().any(|(_, line)| line.starts_with("iperf3 -c"));
    let gone = |gateway: &str| format!(": the process of {gateway} ended (signal: 9 (SIGKILL))");
    let stopped = |end: &str| format!(": the load stopped: the iperf3 {end} ended (signal: 9 (SIGKILL))");
    thread::scope(|scope| {
        let case = |name: &'static str, line: &'static str, victim: &'static str, says: String| {
            let ready = move |pid| match line {
                TCP => client(pid),
                // Slow, and more than it takes to come up.
                FILE => received(pid, "-b", "wan") > 60,
                _ => received(pid, "-g1", "lan") > 2000,
            };
            let log = format!("last lines of {}:", if line == FILE { "a" } else { &name[..2] });
            scope.spawn(move || assert_says(&killed(name, line, victim, ready), &[&says, &log]));
        };
        case("g1-client", TCP, "iperf3 -c", stopped("client"));
        case("g1-server", TCP, "iperf3 -s", stopped("server"));
        case("g1-tcp", TCP, "/g1 --vici", gone("g1"));
        // The logs of both are shown, the first one's first.
        case("g1-second", TCP, "/g2 --vici", gone("g2"));
        case("g1-packets", PACKETS, "/g1 --vici", gone("g1"));
        case("g2-packets", PACKETS, "/g2 --vici", gone("g2"));
        case("g1-tunnels", TUNNELS, "/g1 --vici", gone("g1"));
        case("file", FILE, "/a --vici", gone("a"));
    });
}

/// Bytes that have arrived of the file that a run has in memory.
fn arrived(pid: u32) -> u64 {
    let mark = format!("ironlab-{pid}-");
    let folders = fs::read_dir("/dev/shm").expect("memory").flatten();
    let own = folders.filter(|f| f.file_name().to_string_lossy().starts_with(&mark));
    own.filter_map(|f| fs::metadata(f.path().join("copy")).ok()).map(|copy| copy.len()).max().unwrap_or(0)
}

#[test]
fn each_program_that_carries_files_and_is_killed_is_named() {
    const FILES: &str = "transfer --dut plain --congestion reno --smoke --size 16";
    const TUNNEL: &str = "transfer --dut ironswan --congestion reno --smoke --size 16";
    const BESIDE: &str = "background --dut plain --congestion reno --rate 8 --duration 2 --repeats 1";
    let kill = |name: &str, line: &str, app: App, victim: &str| {
        let scratch = Scratch::new();
        // Clients that take their time.
        let slow = scratch.path().join("slow");
        fs::create_dir(&slow).expect("a folder");
        let client = if app == App::Scp { "scp" } else { "curl" };
        let mark = if app == App::Scp { "scp -l 8000".into() } else { format!("{}://", app.name()) };
        let body = match app {
            App::Scp => "exec scp -l 8000 \"$@\"".into(),
            _ => format!("case \"$*\" in *{mark}*) set -- \"$@\" --limit-rate 1M;; esac; exec curl \"$@\""),
        };
        let script = slow.join(client);
        fs::write(&script, format!("#!/bin/sh\nPATH=${{PATH#*:}}\n{body}\n")).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
        let path = format!("{}:{}", slow.display(), std::env::var("PATH").expect("a path"));
        let mut run = commands::experiment(&scratch, line);
        let child = run.env("PATH", path).spawn().expect("ironswan");
        let ready = |pid| {
            let carries = in_boxes(pid).iter().any(|(_, line)| line.contains(&mark));
            carries && (line == BESIDE || arrived(pid) > 100_000)
        };
        killed_in(&scratch, child, name, victim, ready)
    };
    const SERVER: &str = "server ended (signal: 9 (SIGKILL))";
    const FTP: &[&str] = &["the load stopped: the ftp ", SERVER];
    const HTTPS: &[&str] = &["the load stopped: the https ", SERVER];
    const SCP: &[&str] = &["the load stopped: the scp ", SERVER];
    const WORKER: &[&str] =
        &["the https client ended (exit status: ", "of the client:", "curl: (", "of the server:", "signal 9"];
    const SESSION: &[&str] = &["the scp client ended (exit status: ", "of the client:"];
    const CLIENT: &[&str] = &["the https client ended (signal: 9 (SIGKILL))"];
    const EARLY: &[&str] = &["the scp client ended early (signal: 9 (SIGKILL))"];
    const GATEWAY: &[&str] = &[": the process of a ended (signal: 9 (SIGKILL))", "last lines of a:"];
    let cases = [
        ("ftp-gateway", TUNNEL, App::Ftp, "/a --vici", GATEWAY),
        ("ftp-server", FILES, App::Ftp, "pyftpdlib", FTP),
        ("https-server", FILES, App::Https, "nginx: master", HTTPS),
        ("https-worker", FILES, App::Https, "nginx: worker", WORKER),
        ("https-client", FILES, App::Https, "https://", CLIENT),
        ("scp-server", FILES, App::Scp, " -D -e -f ", SCP),
        ("scp-session", FILES, App::Scp, "root@notty", SESSION),
        ("beside-server", BESIDE, App::Https, "nginx: master", HTTPS),
        ("beside-client", BESIDE, App::Scp, "scp -l", EARLY),
    ];
    thread::scope(|scope| {
        for (name, line, app, victim, says) in cases.into_iter().filter(|c| c.2.lacks().is_empty()) {
            scope.spawn(move || assert_says(&kill(name, line, app, victim), says));
        }
    });
}

/// Runs a script in the one folder of a file system of so many KiB, `$lab` being the program; its
/// status, what it said, and the files that it left, each with its size.
fn on_a_disk(kib: u64, script: &str) -> (i32, String, Vec<(String, u64)>) {
    let scratch = Scratch::new();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let all = format!(
        "mount -t tmpfs -o size={kib}k tmpfs \"$disk\" && cd \"$disk\" && ({script}) >&2; status=$?
         find . -type f -printf '%P %s\\n'; exit $status"
    );
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &all]).env("lab", LAB).env("disk", &disk);
    let output = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare");
    let output = ended(output);
    let list = stdout(&output);
    let files = list.lines().map(|line| {
        let (name, size) = line.rsplit_once(' ').expect("a name and a size");
        (name.to_string(), size.parse().expect("bytes"))
    });
    (output.status.code().expect("a status"), stderr(&output), files.collect())
}

#[test]
fn a_full_disk_is_named_and_no_run_looks_whole() {
    let driver = "$lab driver --smoke --out run";
    let (status, said, files) = on_a_disk(8192, driver);
    assert_eq!(status, 0, "{said}");
    let size = |name: &str| files.iter().find(|(n, _)| n == name).expect(name).1;
    let pages = |bytes: u64| bytes.div_ceil(4096) * 4;
    let all: u64 = files.iter().map(|(_, size)| pages(*size)).sum();
    let (record, page) = (pages(size("run/run.json")), pages(size("run/index.html")));
    // Room for half of a plot, for half of the page, for half of the record, which is the last.
    for (kib, file) in
        [(4, ".svg"), (all - record - page / 2, "run/index.html"), (all - record / 2, "run/run.json")]
    {
        let (status, said, left) = on_a_disk(kib, driver);
        assert_says(&said, &["ironswan lab driver: writing /", &format!("{file}: No space left on device")]);
        assert_eq!((status, left), (1, vec![]), "{said}");
    }
    // Raw files come first.
    let line = "$lab line --smoke --dut plain --congestion reno --out run";
    let (status, said, left) = on_a_disk(4, line);
    assert_says(&said, &["ironswan lab line: writing /", "/run/raw/", ": No space left on device"]);
    assert_eq!((status, left), (1, vec![]), "{said}");
}

#[test]
fn a_disk_without_room_for_a_model_is_named_before_anything_is_measured() {
    let script = "echo old > plan.json && $lab plan --calibrate --smoke --model plan.json";
    let (status, said, left) = on_a_disk(64, script);
    assert_says(&said, &["the model cannot be written to plan.json (No space left on device", "--model"]);
    assert_eq!((status, left), (2, vec![("plan.json".into(), 4)]), "{said}");
}

#[test]
fn the_page_of_a_run_is_written_anew_or_stays() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/sizes");
    let script =
        format!("cp -r '{}' run && echo old > run/index.html && $lab report --html run", stored.display());
    let (status, said, _) = on_a_disk(8192, &script);
    assert_eq!(status, 0, "{said}");
    let all =
        fs::read_dir(&stored).expect("a run").map(|f| f.expect("a file").metadata().expect("its size").len());
    // Room for the run, and no more: plots take the place of the page, and it that of nothing.
    let kib = all.map(|size| size.div_ceil(4096) * 4).sum::<u64>();
    let (status, said, left) = on_a_disk(kib, &script);
    assert_says(&said, &["writing run/index.html: No space left on device"]);
    assert_eq!(status, 1);
    assert!(
        left.contains(&("run/index.html".into(), 4)) && left.iter().all(|(name, _)| !name.ends_with(".part")),
        "{left:?}"
    );
}
