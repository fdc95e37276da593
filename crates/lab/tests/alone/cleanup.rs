//! Nothing is left behind, and runs do not disturb each other. Needs root: network namespaces are
//! the subject.
//!
//! The runs that are interrupted or killed are this test program again, started with one ignored
//! test each.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use ironswan_lab::process::Process;
use ironswan_lab::topology::{Line, LineSpec, Mode, Node, Owner, address, sweep};
use ironswan_lab::{LabError, LineOptions, line};
use rustix::process::{Pid, Signal, kill_process};

const SPEC: LineSpec = LineSpec { mode: Mode::Offload, inner_mtu: 1400 };

/// One at a time: a test that starts a run would sweep up what another has just killed.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names in `dir` of things made by process `pid`.
fn made_by(pid: u32, dir: &Path) -> Vec<String> {
    let prefix = format!("ironlab-{pid}-");
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .filter_map(|e| e.expect("an entry").file_name().into_string().ok())
        .filter(|n| n.starts_with(&prefix))
        .collect()
}

fn namespaces_of(pid: u32) -> Vec<String> {
    made_by(pid, Path::new("/run/netns"))
}

fn processes_in(namespaces: &[String]) -> BTreeSet<u32> {
    namespaces
        .iter()
        .flat_map(|n| {
            let out = Command::new("ip").args(["netns", "pids", n]).output().expect("ip netns pids");
            let text = String::from_utf8(out.stdout).expect("text");
            text.lines().map(|l| l.trim().parse::<u32>().expect("a pid")).collect::<Vec<_>>()
        })
        .collect()
}

fn lives(pid: u32) -> bool {
    // A zombie is not alive: its parent, which we killed, has yet to be replaced by init.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s.rsplit_once(") ").expect("a stat line").1.starts_with('Z'))
}

/// Starts the ignored test `name` of this program.
fn start(name: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program again")
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("kill");
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("not within a minute: {what}");
}

/// Namespaces, directories and processes of the run of `pid` that are still there.
fn left(pid: u32, processes: &BTreeSet<u32>) -> Vec<String> {
    let alive = processes.iter().filter(|p| lives(**p)).map(|p| format!("process {p}"));
    namespaces_of(pid).into_iter().chain(made_by(pid, &std::env::temp_dir())).chain(alive).collect()
}

/// Child: holds a line with a process on a gateway until it is killed.
#[test]
#[ignore = "started by the other tests"]
fn child_holds_a_line() {
    let owner = Owner::claim().expect("a name");
    let line = Line::build(&owner, SPEC).expect("a line");
    let argv = line.node(Node::G1).exec(&["sh", "-c", "sleep 600 & sleep 600"]);
    let _gateway =
        Process::start(line.journal(), "g1", &argv, &owner.dir().join("g1.log")).expect("a process");
    wait_for("both sleeps", || line.node(Node::G1).pids().len() >= 3);
    println!("\nholding");
    sleep(Duration::from_secs(600));
}

/// Child: a long experiment.
#[test]
#[ignore = "started by the other tests"]
fn child_measures() {
    let out = std::env::temp_dir().join(format!("ironlab-cleanup-{}", std::process::id()));
    let options = LineOptions {
        duts: vec!["plain".into()],
        duration: Duration::from_secs(60),
        out: Some(out.clone()),
        ..LineOptions::default()
    };
    let error = line(options).expect_err("a signal comes first");
    assert!(!out.exists(), "a run folder without a record stays behind");
    assert!(matches!(error, LabError::Interrupted), "{error}");
    std::process::exit(error.exit_code());
}

fn wait_until_holding(child: &mut Child) {
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    assert!(out.lines().map_while(Result::ok).any(|l| l == "holding"), "the child did not build its line");
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let _alone = alone();
    let mut child = start("cleanup::child_holds_a_line");
    wait_until_holding(&mut child);
    let (namespaces, pid) = (namespaces_of(child.id()), child.id());
    let processes = processes_in(&namespaces);
    assert_eq!(namespaces.len(), 4, "{namespaces:?}");
    assert!(processes.len() >= 3, "{processes:?}");

    // While it lives, it is left alone.
    sweep().expect("sweep");
    assert_eq!(namespaces_of(pid).len(), 4);
    assert!(processes.iter().all(|p| lives(*p)));

    signal(&child, Signal::KILL);
    child.wait().expect("reap");
    drop(Owner::claim().expect("the next run"));
    // Another run on this machine may have begun to remove the same, and not be through.
    wait_for("all of it is removed", || left(pid, &processes).is_empty());
}

fn interrupted_by(s: Signal) {
    let child = start("cleanup::child_measures");
    let pid = child.id();
    // Until the load runs: four namespaces, iperf3 at both ends.
    wait_for("traffic", || {
        let processes = processes_in(&namespaces_of(pid));
        namespaces_of(pid).len() == 4 && processes.len() >= 2
    });
    let processes = processes_in(&namespaces_of(pid));
    signal(&child, s);
    let ended = child.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(left(pid, &processes), [""; 0]);
}

#[test]
fn ctrl_c_removes_everything() {
    let _alone = alone();
    interrupted_by(Signal::INT);
}

#[test]
fn sigterm_removes_everything() {
    let _alone = alone();
    interrupted_by(Signal::TERM);
}

/// True when UDP from a reaches b within `at_most`.
fn carries(line: &Line, at_most: Duration) -> bool {
    let bind = |node: Node, at: &str| {
        line.node(node).inside(|| UdpSocket::bind((at, 4000))).expect("inside").expect("bind")
    };
    let (a, b) = (bind(Node::A, address::A), bind(Node::B, address::B));
    b.set_read_timeout(Some(at_most)).expect("timeout");
    a.send_to(b"x", (address::B, 4000)).expect("send");
    b.recv(&mut [0; 8]).is_ok()
}

#[test]
fn two_lines_at_once_do_not_see_each_other() {
    let _alone = alone();
    // What arrives may have to wait for a processor; what must not arrive is given less time, for
    // all of it is spent.
    let (yes, no) = (Duration::from_secs(10), Duration::from_millis(300));
    let owners = [Owner::claim().expect("a name"), Owner::claim().expect("another")];
    let [one, other] = owners.each_ref().map(|o| Line::build(o, SPEC).expect("a line"));
    for line in [&one, &other] {
        assert!(!carries(line, no), "there is no route yet");
    }
    let route = |line: &Line| {
        line.ip(Node::G1, &["route", "add", address::NET_B, "via", address::G2]).expect("route");
        line.ip(Node::G2, &["route", "add", address::NET_A, "via", address::G1]).expect("route");
    };
    route(&one);
    assert!(carries(&one, yes));
    assert!(!carries(&other, no), "the same addresses, but another line");
    route(&other);
    let name = one.node(Node::G1).name().to_string();
    drop(one);
    assert!(carries(&other, yes), "the end of one line is not the end of the other");
    assert!(!Path::new("/run/netns").join(name).exists());
}

#[test]
fn wire_mode_turns_segmentation_offload_off() {
    let _alone = alone();
    let owner = Owner::claim().expect("a name");
    let line = Line::build(&owner, LineSpec { mode: Mode::Wire, inner_mtu: 1400 }).expect("a line");
    let argv = line.node(Node::G1).exec(&["ethtool", "-k", "wan"]);
    let out = Command::new(&argv[0]).args(&argv[1..]).output().expect("ethtool");
    let features = String::from_utf8(out.stdout).expect("text");
    for feature in ["tcp-segmentation-offload: off", "generic-segmentation-offload: off"] {
        assert!(features.lines().any(|l| l.starts_with(feature)), "{feature}\n{features}");
    }
    assert!(features.lines().any(|l| l.starts_with("generic-receive-offload: on")), "{features}");
}

/// Child: has `ip` but no `ethtool`, which is wanted when the boxes and links are there.
#[test]
#[ignore = "started by the other tests"]
fn child_fails_late() {
    let owner = Owner::claim().expect("a name");
    let error = Line::build(&owner, LineSpec { mode: Mode::Wire, inner_mtu: 1400 }).expect_err("no ethtool");
    assert!(error.to_string().contains("ethtool"), "{error}");
    assert_eq!(namespaces_of(std::process::id()), Vec::<String>::new());
}

#[test]
fn a_line_that_cannot_be_finished_is_removed_again() {
    let _alone = alone();
    let tools = std::env::temp_dir().join(format!("ironlab-tools-{}", std::process::id()));
    fs::create_dir_all(&tools).expect("a folder");
    let ip = ironswan_lab::process::find("ip").expect("iproute2");
    std::os::unix::fs::symlink(ip, tools.join("ip")).expect("a link");
    let done = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "cleanup::child_fails_late", "--ignored", "--nocapture"])
        .env("PATH", &tools)
        .output()
        .expect("this program again");
    fs::remove_dir_all(&tools).expect("remove");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}
