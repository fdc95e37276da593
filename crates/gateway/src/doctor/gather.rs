//! Reads kernel, files and configuration, in the network namespace of the calling thread. Whatever
//! cannot be read becomes a fact that says why.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use ironswan_config::diag::{Diagnostics, Severity};
use ironswan_config::{Config, check, credentials, load_dir};
use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_io::clock;
use ironswan_io::route::{Link, Netlink};
use ironswan_io::tun::{self, Offloads};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_io::{namespace, privileges, sysctl, xfrm};
use ironswan_keying::AddrSpec;
use rustix::fs::{Access, OFlags};

use super::facts::{
    Conntrack, Engine, Facts, Firewall, Given, Kernel, Known, Machine, Network, Place, Places, Processes,
    Running, State, Udp, Unit, Wanted,
};
use super::processes;
use crate::guard::Nft;
use crate::guard::plan::from_config;
use crate::start::fitness;

/// How long the resolver may take for all names together.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(6);
/// Limits how many names are looked up.
const MAX_NAMES: usize = 8;
/// Name of the TUN device that is made to ask for its offloads.
const PROBE: &str = "isdoctor";
/// Size of large packets, as the engines' self-test has it.
const LARGE: usize = 1400;
/// Folders of units, and those of links to them, below the root.
const UNIT_FOLDERS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Looks at everything. Takes some seconds at most.
pub fn gather(given: &Given) -> Facts {
    let running = given.running.clone();
    let (wanted, names) = wanted(given);
    let daemon = running.as_ref().and_then(|r| r.pid);
    Facts {
        machine: machine(&wanted, running.as_ref()),
        kernel: kernel(&wanted, running.as_ref()),
        network: network(&wanted, names),
        processes: Processes {
            ports: processes::ports([wanted.settings.port_ike, wanted.settings.port_natt]),
            others: processes::others()
                .map(|all| all.into_iter().filter(|o| Some(o.pid) != daemon).collect()),
        },
        firewall: firewall(),
        places: Places { folders: folders(&wanted, &given.socket), units: units(Path::new("/")) },
        wanted,
        running,
        unasked: given.unasked.clone(),
    }
}

/// The configuration, and the names of peers in it.
fn wanted(given: &Given) -> (Wanted, Vec<String>) {
    let mut diags = Diagnostics::default();
    let config = load_dir(clock::now, &given.folder, &mut diags);
    let state = match &config {
        None => State::Unread(diags.error_lines().into_iter().next().unwrap_or_default()),
        Some(config) => {
            check::check(config, &mut diags);
            credentials::check(config, clock::wall(), &mut diags);
            let (errors, warnings) = (diags.errors(), diags.count(Severity::Warning));
            State::Read { connections: config.connections.len(), errors, warnings }
        }
    };
    let config = config.unwrap_or_default();
    let mut policies = from_config::policies(&config.connections);
    let mut peers = fitness::peers(&config.connections);
    if let Some(running) = &given.running {
        policies = running.policies.clone();
        peers.extend(&running.peers);
        peers.sort_unstable();
        peers.dedup();
    }
    let names = names(&config);
    let wanted = Wanted {
        folder: given.folder.clone(),
        state,
        plan: from_config::settings(&config.daemon),
        policies,
        peers,
        written: config.written,
        settings: config.daemon,
    };
    (wanted, names)
}

/// Names of peers.
fn names(config: &Config) -> Vec<String> {
    let all = config.connections.iter().flat_map(|c| &c.remote_addrs);
    let mut names: Vec<String> = all
        .filter_map(|a| match a {
            AddrSpec::Name(name) => Some(name.clone()),
            AddrSpec::Any | AddrSpec::Host(_) | AddrSpec::Range(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_NAMES);
    names
}

fn machine(wanted: &Wanted, running: Option<&Running>) -> Machine {
    let daemon = running.and_then(|r| r.pid).map(|pid| pid.to_string());
    // With a daemon its own choice counts.
    let selection =
        running.is_none().then(|| Engines::select(&mut clock::nanoseconds, wanted.settings.engine));
    let chosen = selection.iter().flat_map(|s| &s.table).filter(|line| line.size == LARGE);
    let chosen =
        chosen.map(|line| Engine { suite: line.suite.clone(), engine: line.chosen.name().to_owned() });
    Machine {
        now: clock::wall(),
        discipline: clock::discipline().map_err(|e| format!("the kernel does not say ({e})")),
        random: random(),
        instructions: instructions(),
        missing_engines: EngineId::ALL
            .into_iter()
            .filter_map(|id| Some((id.name(), id.missing()?)))
            .collect(),
        engines: running.map_or_else(|| chosen.collect(), |r| r.engines.clone()),
        wrong_engines: selection.map(|s| s.warnings).unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        descriptors: processes::descriptors(daemon.as_deref().unwrap_or("self")),
        own: processes::confinement("self"),
        daemon: daemon.map(|pid| processes::confinement(&pid)),
    }
}

/// Whether the kernel's random numbers are seeded: a read of `/dev/random` waits until they are.
fn random() -> Known<bool> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open("/dev/random");
    match opened.and_then(|mut file| file.read_exact(&mut [0])) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(format!("/dev/random cannot be read ({e})")),
    }
}

/// The processor's instruction sets.
fn instructions() -> Known<Vec<String>> {
    let text =
        fs::read_to_string("/proc/cpuinfo").map_err(|e| format!("/proc/cpuinfo cannot be read ({e})"))?;
    let line = text.lines().find(|l| l.starts_with("flags") || l.starts_with("Features"));
    let words = line.and_then(|l| l.split_once(':')).map(|(_, words)| words);
    Ok(words.unwrap_or_default().split_whitespace().map(str::to_owned).collect())
}

fn kernel(wanted: &Wanted, running: Option<&Running>) -> Kernel {
    let number = |path: &str| sysctl::setting(path).and_then(|t| t.parse().ok());
    let told = |path: &str| number(path).ok_or_else(|| format!("/proc/sys/{path} cannot be read"));
    let limits = [told("net/core/rmem_max"), told("net/core/wmem_max")];
    let [receive, send] = limits;
    let buffers = u64::from(wanted.settings.tuning.socket_buffer);
    let tracked = "net/netfilter/nf_conntrack_udp_timeout";
    let conntrack = number(&format!("{tracked}_stream")).zip(number(tracked));
    Kernel {
        tun: running.map_or_else(offloads, |r| Ok(r.tun)),
        udp: running.map_or_else(|| udp(buffers), |r| Ok(r.udp)),
        buffer_limits: receive.and_then(|receive| Ok([receive, send?])),
        backlog: told("net/core/netdev_max_backlog"),
        backlog_drops: backlog_drops(),
        conntrack: conntrack.map(|(stream, unanswered)| Conntrack { stream, unanswered }),
        xfrm: xfrm::look().map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => "only root may see the kernel's own IPsec".to_owned(),
            _ => format!("the kernel does not show its own IPsec ({e})"),
        }),
    }
}

/// Offloads of a TUN device that is made for this question, in a network namespace of its own where
/// that is permitted.
fn offloads() -> Known<Offloads> {
    let look = || {
        let _ = namespace::unshare();
        tun::probe(PROBE)
    };
    let looked = std::thread::scope(|s| s.spawn(look).join());
    let looked = looked.map_err(|_| "the look at a TUN device failed".to_owned())?;
    looked.map_err(|e| match privileges::is_root() {
        true => e.to_string(),
        false => format!("only root may make a TUN device ({e})"),
    })
}

/// A UDP socket as the daemon would make it, but for its port.
fn udp(buffer: u64) -> Known<Udp> {
    let buffer = u32::try_from(buffer).unwrap_or(u32::MAX);
    let config = UdpConfig { buffer, ..UdpConfig::esp(false, 0, 0) };
    let socket = UdpSocket::bind(config).map_err(|e| e.to_string())?;
    Ok(Udp {
        segments: socket.max_segments() as u64,
        merging: socket.is_merging(),
        buffers: socket.buffers().map(u64::from),
    })
}

/// The second column of `softnet_stat`, over all processors.
fn backlog_drops() -> Known<u64> {
    let path = "/proc/net/softnet_stat";
    let text = fs::read_to_string(path).map_err(|e| format!("{path} cannot be read ({e})"))?;
    let drops = text.lines().filter_map(|l| u64::from_str_radix(l.split_whitespace().nth(1)?, 16).ok());
    Ok(drops.sum())
}

fn network(wanted: &Wanted, names: Vec<String>) -> Network {
    let facts =
        Netlink::open().and_then(|mut netlink| fitness::Facts::gather(&mut netlink, &wanted.plan.device));
    let fitness = facts.map_err(|e| format!("the kernel does not show its links and routes ({e})"));
    let links = fitness.as_ref().map(|f| f.links.as_slice()).unwrap_or_default();
    let not_forwarding = not_forwarding(links, &wanted.plan.device);
    Network { not_forwarding, fitness, names: resolve(names) }
}

/// Interfaces with a forwarding of their own that is off, while the kernel forwards.
fn not_forwarding(links: &[Link], device: &str) -> Vec<(String, bool)> {
    let mut out = Vec::new();
    for ipv6 in [false, true].into_iter().filter(|v6| sysctl::forwarding(*v6)) {
        for link in links.iter().filter(|l| l.up && !l.loopback && l.name != device) {
            if sysctl::forwards(ipv6, &link.name) == Some(false) {
                out.push((link.name.clone(), ipv6));
            }
        }
    }
    out
}

/// Asks the system's resolver for every name, on threads that may hang for longer.
fn resolve(names: Vec<String>) -> Vec<(String, Known<()>)> {
    let (answers, heard) = channel();
    let mut out: Vec<(String, Known<()>)> = Vec::new();
    for (n, name) in names.into_iter().enumerate() {
        let (answers, asked) = (answers.clone(), name.clone());
        let ask = move || {
            let found = (asked.as_str(), 500).to_socket_addrs().map(|_| ()).map_err(|e| e.to_string());
            // Nobody hears an answer that is late.
            let _ = answers.send((n, found));
        };
        let begun = std::thread::Builder::new().spawn(ask);
        let silent = format!("no answer within {} s", RESOLVER_TIMEOUT.as_secs());
        out.push((name, Err(begun.map_or_else(|e| e.to_string(), |_| silent))));
    }
    drop(answers);
    let begun = clock::now();
    while let Some(left) = RESOLVER_TIMEOUT.checked_sub(clock::now().saturating_duration_since(begun)) {
        let Ok((n, found)) = heard.recv_timeout(left) else { break };
        out[n].1 = found;
    }
    out
}

fn firewall() -> Firewall {
    let nft = Nft::find().map_err(|e| e.to_string());
    let ruleset = match &nft {
        Ok(nft) => nft.ruleset().map_err(|e| match privileges::is_root() {
            true => e.to_string(),
            false => "only root may see the rules of nftables".to_owned(),
        }),
        Err(e) => Err(e.clone()),
    };
    let old = ["ip_tables_names", "ip6_tables_names"];
    let legacy = old.iter().any(|file| {
        fs::read_to_string(format!("/proc/thread-self/net/{file}"))
            .is_ok_and(|tables| !tables.trim().is_empty())
    });
    Firewall { nft: nft.map(|nft| nft.version().to_string()), ruleset, legacy }
}

/// Folders in which the daemon makes files.
fn folders(wanted: &Wanted, socket: &Path) -> Vec<Place> {
    let listens = wanted.settings.vici_listen.iter().filter_map(|uri| ironswan_config::vici_uri(uri).ok());
    let mut sockets: Vec<PathBuf> = listens.collect();
    if sockets.is_empty() {
        sockets.push(socket.to_owned());
    }
    let mut out: Vec<Place> = Vec::new();
    let secret = wanted.settings.quick_crash_detection.then(|| wanted.settings.qcd_secret.clone());
    let files = sockets.into_iter().map(|s| (s, "the VICI socket"));
    for (file, holds) in files.chain(secret.map(|s| (s, "the secret of quick crash detection"))) {
        let Some(folder) = file.parent().map(Path::to_owned) else { continue };
        if !out.iter().any(|p| p.path == folder) {
            out.push(Place { writable: writable(&folder), path: folder, holds });
        }
    }
    if let Some(folder) = &wanted.settings.keylog {
        out.push(Place { writable: writable(folder), path: folder.clone(), holds: "the key log" });
    }
    out
}

/// Whether files can be made in a folder. A folder that is missing is made by the daemon, if it can
/// be made in the one above.
fn writable(folder: &Path) -> Known<()> {
    let there = if folder.exists() { folder } else { folder.parent().unwrap_or(folder) };
    if !there.is_dir() {
        return Err("there is no such folder".to_owned());
    }
    rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|e| {
        match privileges::is_root() {
            true => e.to_string(),
            false => format!("only root can tell ({e})"),
        }
    })?;
    let room = rustix::fs::statvfs(there).map_err(|e| e.to_string())?;
    // File systems without blocks or inodes of their own say 0 of 0.
    if room.f_blocks > 0 && room.f_bfree == 0 || room.f_files > 0 && room.f_ffree == 0 {
        return Err("its file system is full".to_owned());
    }
    Ok(())
}

/// Units of ours, where systemd runs.
fn units(root: &Path) -> Vec<Unit> {
    if !root.join("run/systemd/system").is_dir() {
        return Vec::new();
    }
    ["ironswan.service", "ironswan-guard.service"]
        .into_iter()
        .map(|name| {
            let there = UNIT_FOLDERS.iter().any(|folder| root.join(folder).join(name).exists());
            let entries = fs::read_dir(root.join("etc/systemd/system")).into_iter().flatten().flatten();
            let enabled = entries
                .filter(|e| e.file_name().to_string_lossy().ends_with(".wants"))
                .any(|e| e.path().join(name).symlink_metadata().is_ok());
            Unit { name, there, enabled }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ironswan_testkit::scratch::Scratch;

    use super::*;

    #[test]
    fn units_are_found_where_systemd_keeps_them() {
        let root = Scratch::new();
        assert_eq!(units(root.path()), [], "no systemd");
        fs::create_dir_all(root.path().join("run/systemd/system")).expect("a folder");
        root.write("usr/lib/systemd/system/ironswan.service", "[Unit]\n");
        root.write("etc/systemd/system/multi-user.target.wants/ironswan.service", "");
        let unit = |name, there, enabled| Unit { name, there, enabled };
        let want = [unit("ironswan.service", true, true), unit("ironswan-guard.service", false, false)];
        assert_eq!(units(root.path()), want);
    }

    #[test]
    fn folders_that_are_missing_or_take_no_files_are_told_apart() {
        let root = Scratch::new();
        assert_eq!(writable(root.path()), Ok(()));
        assert_eq!(writable(&root.path().join("new")), Ok(()), "the daemon makes it");
        assert!(writable(&root.path().join("no/such")).is_err_and(|e| e.contains("no such folder")));
        assert!(writable(Path::new("/proc/self")).is_err());
    }

    #[test]
    fn a_name_that_nobody_knows_has_the_resolver_s_reason() {
        let found = resolve(vec!["127.0.0.1".into(), "no-such-name.invalid".into()]);
        assert_eq!(found[0], ("127.0.0.1".to_owned(), Ok(())));
        assert!(found[1].1.is_err(), "{found:?}");
    }

    #[test]
    fn this_machine_says_something_of_everything() {
        assert!(random().is_ok() && backlog_drops().is_ok() && clock::discipline().is_ok());
        assert!(instructions().is_ok_and(|words| !words.is_empty()));
        let offloads = offloads().expect("these tests need root and a TUN device");
        assert!(offloads.checksum, "{offloads:?}");
        assert!(udp(1 << 20).is_ok_and(|u| u.segments >= 1 && u.buffers[0] > 0));
    }
}
