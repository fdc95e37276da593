//! Helpers for tests that run the program `ironswan-lab`.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

pub use ironswan_testkit::scratch::Scratch;

/// The program.
pub const LAB: &str = env!("CARGO_BIN_EXE_ironswan-lab");

/// One at a time: each takes the whole machine, and one cleans up what another has killed.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An experiment whose folder is `run` in `scratch`.
pub fn experiment(scratch: &Scratch, line: &str) -> Command {
    let mut command = Command::new(LAB);
    command.args(line.split(' ')).arg("--out").arg(scratch.path().join("run"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it.
pub fn start(scratch: &Scratch, line: &str) -> Child {
    experiment(scratch, line).spawn().expect("ironswan-lab")
}

/// The end of a run, which comes.
pub fn ended(child: Child) -> Output {
    let (pid, (send, receive)) = (child.id(), mpsc::channel());
    // Whoever prints much waits for a reader.
    thread::spawn(move || send.send(child.wait_with_output()));
    match receive.recv_timeout(Duration::from_secs(300)) {
        Ok(output) => output.expect("its output"),
        Err(_) => {
            let has = remains(pid);
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            panic!("no end within five minutes; the run has {has:?}");
        }
    }
}

/// What exists of the run of process `pid`: namespaces, folders, control groups, and processes
/// whose command lines name it.
pub fn remains(pid: u32) -> Vec<String> {
    let mark = format!("ironlab-{pid}-");
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok());
        names.filter(|n| n.starts_with(&mark)).map(|n| dir.join(n).display().to_string()).collect()
    };
    let places = ["/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/dev/shm"].map(PathBuf::from);
    let mut found: Vec<String> =
        places.iter().chain([&std::env::temp_dir()]).flat_map(|place| names(place)).collect();
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|p| p.file_name().to_str()?.parse().ok());
    found.extend(pids.map(command_line).filter(|line| line.contains(&mark)));
    found
}

/// The names of the boxes of the run of process `pid`.
pub fn boxes(pid: u32) -> Vec<String> {
    let mark = format!("ironlab-{pid}-");
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    names.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.starts_with(&mark)).collect()
}

/// The processes in them, each with its command line.
pub fn in_boxes(pid: u32) -> Vec<(u32, String)> {
    let pids = boxes(pid).into_iter().flat_map(|name| {
        let out = Command::new("ip").args(["netns", "pids", &name]).output().expect("ip netns pids");
        let pids = String::from_utf8_lossy(&out.stdout).into_owned();
        pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    pids.map(|pid| (pid, command_line(pid))).collect()
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
