//! Checks of the configuration, of clock, processors and privileges, and of files. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::check::{Check, Verdict};
use super::facts::{Confinement, Engine, Facts, State, Unit};

/// No IronSwan was built before this moment (2026-01-01): a clock before it is wrong.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// No certificate that we know of is valid behind this moment (2100-01-01).
const LATEST: Duration = Duration::from_secs(4_102_444_800);
/// A file may be this much newer than the clock says before the clock is called wrong.
const SLACK: Duration = Duration::from_secs(60);
/// Descriptors that a gateway with some thousands of VICI clients and helpers never reaches.
const FEW_DESCRIPTORS: u64 = 512;
/// Suites whose engines are named.
const SHOWN_SUITES: [&str; 3] = ["aes128gcm16", "aes256gcm16", "chacha20poly1305"];

// linux/capability.h
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;

pub(super) fn judge(facts: &Facts, out: &mut Vec<Check>) {
    daemon(facts, out);
    configuration(facts, out);
    clock(facts, out);
    entropy(facts, out);
    processor(facts, out);
    engines(facts, out);
    workers(facts, out);
    descriptors(facts, out);
    privileges(facts, out);
    service(facts, out);
    folders(facts, out);
}

fn daemon(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match (&facts.running, &facts.unasked) {
        (Some(r), _) => Check::ok(
            "daemon",
            match r.pid {
                Some(pid) => format!("runs as process {pid} and was asked"),
                None => "runs and was asked".to_owned(),
            },
        ),
        (None, Some(why)) => Check::unknown("daemon", why),
        (None, None) => Check::ok("daemon", "none runs here; what it would find is checked"),
    });
}

fn configuration(facts: &Facts, out: &mut Vec<Check>) {
    let check = format!("`ironswan check {}`", facts.wanted.folder.display());
    out.push(match &facts.wanted.state {
        State::Unread(why) => {
            let what = if why.is_empty() { "there is none" } else { why };
            let what = format!("not read, so that nothing can be compared with it: {what}");
            Check::warning("configuration", what, format!("{check}; name another folder with --config"))
        }
        State::Read { connections, errors: 0, warnings: 0 } => {
            Check::ok("configuration", format!("{}, no error, no warning", connections_of(*connections)))
        }
        State::Read { connections, errors: 0, warnings } => {
            let what = format!("{}, no error, {warnings} warning(s)", connections_of(*connections));
            Check::warning("configuration", what, check)
        }
        State::Read { errors, .. } => {
            Check::problem("configuration", format!("{errors} error(s): the daemon does not take it"), check)
        }
    });
}

fn connections_of(n: usize) -> String {
    format!("{n} connection{}", if n == 1 { "" } else { "s" })
}

/// Certificates are valid from one time to another, so a wrong clock ends tunnels.
fn clock(facts: &Facts, out: &mut Vec<Check>) {
    const SET: &str = "set it (`timedatectl set-time 'YYYY-MM-DD HH:MM:SS'`), and run an NTP client \
                       (`timedatectl set-ntp true`)";
    let now = facts.machine.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let behind = |file: SystemTime| file.duration_since(facts.machine.now).is_ok_and(|by| by > SLACK);
    if now < EARLIEST || now > LATEST {
        let what = format!("shows the year {}: certificates seem to be invalid", year(now));
        out.push(Check::problem("clock", what, SET));
        return;
    }
    if facts.wanted.written.is_some_and(behind) {
        let what = "is behind the newest file of the configuration: certificates may seem to be invalid";
        out.push(Check::problem("clock", what, SET));
        return;
    }
    out.push(match &facts.machine.discipline {
        Ok(d) if d.synchronised => {
            Check::ok("clock", format!("synchronised, within {} ms", d.error.as_millis()))
        }
        Ok(_) => Check::warning(
            "clock",
            "nothing synchronises it: in time certificates will seem to be invalid",
            "run an NTP client: `timedatectl set-ntp true`, or install chrony",
        ),
        Err(why) => Check::unknown("clock", why),
    });
}

/// The year of a time since 1970, near enough for a message.
fn year(since: Duration) -> u64 {
    1970 + since.as_secs() / 31_556_952
}

fn entropy(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match &facts.machine.random {
        Ok(true) => Check::ok("entropy", "the kernel's random numbers are seeded"),
        Ok(false) => Check::problem(
            "entropy",
            "the kernel has no random numbers yet, and the daemon waits for them",
            "wait, run `rngd` or `haveged`, or give the virtual machine a virtio-rng device",
        ),
        Err(why) => Check::unknown("entropy", why),
    });
}

/// Instruction sets that make AES fast.
fn processor(facts: &Facts, out: &mut Vec<Check>) {
    let words = match &facts.machine.instructions {
        Ok(words) => words,
        Err(why) => return out.push(Check::unknown("processor", why)),
    };
    let has = |word: &str| words.iter().any(|w| w == word);
    let wanted = [("aes", "AES"), ("pclmulqdq", "PCLMULQDQ"), ("pmull", "PMULL"), ("avx2", "AVX2")];
    let more = [("vaes", "VAES"), ("vpclmulqdq", "VPCLMULQDQ"), ("avx512f", "AVX-512"), ("sha_ni", "SHA")];
    let found: Vec<&str> =
        wanted.iter().chain(&more).filter(|(word, _)| has(word)).map(|(_, name)| *name).collect();
    out.push(match (has("aes"), has("vaes")) {
        (true, true) => Check::ok("processor", found.join(", ")),
        (true, false) => Check::ok("processor", format!("{}; no VAES", found.join(", "))),
        (false, _) => Check::warning(
            "processor",
            "no AES instructions: AES is slow, and chacha20poly1305 faster",
            "show them to the virtual machine (CPU model `host`), or put chacha20poly1305 first in esp_proposals",
        ),
    });
}

fn engines(facts: &Facts, out: &mut Vec<Check>) {
    for wrong in &facts.machine.wrong_engines {
        let remedy = "report it, with `ironswan report`; the other engines do its work";
        out.push(Check::warning("engines", wrong.as_str(), remedy));
    }
    let of = |suite: &str| facts.machine.engines.iter().find(|e| e.suite == suite);
    let shown: Vec<String> = SHOWN_SUITES
        .iter()
        .filter_map(|suite| of(suite))
        .map(|Engine { suite, engine }| format!("{suite} by {engine}"))
        .collect();
    if shown.is_empty() {
        out.push(Check::unknown("engines", "the daemon does not tell its engines"));
        return;
    }
    let missing: Vec<String> =
        facts.machine.missing_engines.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let missing = if missing.is_empty() { String::new() } else { format!(" (not {})", missing.join("; ")) };
    out.push(Check::ok("engines", shown.join(", ") + &missing));
}

fn workers(facts: &Facts, out: &mut Vec<Check>) {
    let processors = facts.machine.processors as u64;
    let (workers, asked) = match (&facts.running, facts.wanted.settings.tuning.workers as u64) {
        (Some(running), _) => (running.workers, true),
        (None, 0) => (processors.div_ceil(2).min(8), false),
        (None, n) => (n, true),
    };
    let of = |n: u64, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let what = format!("{} for {}", of(workers, "worker"), of(processors, "processor"));
    out.push(if asked && workers > processors {
        let why = "they take processors from each other and from the kernel";
        Check::warning("workers", format!("{what}: {why}"), "leave `data.workers` out of ironswan.conf")
    } else {
        Check::ok("workers", what)
    });
}

fn descriptors(facts: &Facts, out: &mut Vec<Check>) {
    let whose = if facts.running.is_some() { "the daemon" } else { "a process started here" };
    out.push(match &facts.machine.descriptors {
        Ok(u64::MAX) => Check::ok("descriptors", format!("{whose} may open any number of files")),
        Ok(n) if *n < FEW_DESCRIPTORS => Check::warning(
            "descriptors",
            format!("{whose} may open {n} files: VICI clients and interfaces of AF_XDP may be refused"),
            "`LimitNOFILE=4096` in the unit of the service, or `ulimit -n 4096`",
        ),
        Ok(n) => Check::ok("descriptors", format!("{whose} may open {n} files")),
        Err(why) => Check::unknown("descriptors", why),
    });
}

/// Capabilities that the daemon needs when it starts, and confinement of the one that runs.
fn privileges(facts: &Facts, out: &mut Vec<Check>) {
    let has = |c: &Confinement, bit: u32| c.capabilities & 1 << bit != 0;
    if let Some(daemon) = &facts.machine.daemon {
        out.push(match daemon {
            Err(why) => Check::unknown("privileges", why),
            Ok(c) if !c.seccomp && facts.wanted.settings.sandbox => Check::warning(
                "privileges",
                "the daemon's system calls are not filtered, although sandbox = yes",
                "see the daemon's log: the kernel may lack CONFIG_SECCOMP_FILTER",
            ),
            Ok(c) => Check::ok("privileges", confined(c)),
        });
        return;
    }
    let needed =
        [(NET_ADMIN, "CAP_NET_ADMIN"), (NET_RAW, "CAP_NET_RAW"), (NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE")];
    out.push(match &facts.machine.own {
        Err(why) => Check::unknown("privileges", why),
        Ok(c) => {
            let lacks: Vec<&str> =
                needed.iter().filter(|(bit, _)| !has(c, *bit)).map(|(_, name)| *name).collect();
            match (lacks.is_empty(), c.uid) {
                (true, _) => Check::ok("privileges", "this user has the capabilities that a start takes"),
                (false, 0) => Check::problem(
                    "privileges",
                    format!("root here lacks {}: the daemon cannot start", lacks.join(", ")),
                    "give the container these capabilities (`--cap-add`), and /dev/net/tun",
                ),
                (false, _) => {
                    Check::unknown("privileges", "not run as root, so what a start takes is not seen")
                }
            }
        }
    });
}

fn confined(c: &Confinement) -> String {
    let calls = if c.seccomp { "system calls filtered" } else { "system calls not filtered (sandbox = no)" };
    let user = if c.uid == 0 { "root".to_owned() } else { format!("user {}", c.uid) };
    format!("the daemon is {user} with {} capabilities, {calls}", c.capabilities.count_ones())
}

fn service(facts: &Facts, out: &mut Vec<Check>) {
    let units = &facts.places.units;
    if units.is_empty() {
        out.push(Check::ok("service", "no systemd here; the guard stands from the start of the daemon only"));
        return;
    }
    let before = out.len();
    for Unit { name, there, enabled } in units {
        if !there {
            let what = format!("the unit {name} is not installed: nothing starts at boot");
            let remedy = "install the package, or copy packaging/systemd/*.service to /etc/systemd/system";
            out.push(Check::warning("service", what, remedy));
        } else if !enabled {
            let what = match *name {
                "ironswan-guard.service" => format!(
                    "{name} is not enabled: between boot and start protected traffic may leave in clear"
                ),
                _ => format!("{name} is not enabled: no tunnel after the next boot"),
            };
            out.push(Check::warning("service", what, format!("`systemctl enable {name}`")));
        }
    }
    if out.len() == before {
        out.push(Check::ok("service", "both units are enabled"));
    }
}

fn folders(facts: &Facts, out: &mut Vec<Check>) {
    let before = out.len();
    for place in &facts.places.folders {
        let path = place.path.display();
        match &place.writable {
            Ok(()) => {}
            Err(why) if why.starts_with("only root") => {
                out.push(Check::unknown("folders", &format!("{path}: {why}")));
            }
            Err(why) => {
                let what = format!("{path} takes no files ({why}), and {} belongs there", place.holds);
                let remedy = format!("`mkdir -p {path}`, remount it writable, or make room: `df -h {path}`");
                out.push(Check::problem("folders", what, remedy));
            }
        }
    }
    let paths: Vec<String> = facts.places.folders.iter().map(|p| p.path.display().to_string()).collect();
    if out.len() == before {
        out.push(Check {
            name: "folders",
            verdict: Verdict::Ok,
            what: format!("{} take files", paths.join(", ")),
            remedy: String::new(),
        });
    }
}
