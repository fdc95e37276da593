//! What the machine says of itself: kernel, processor, links, addresses, routes, rules, nftables,
//! settings, counters. Programs that are missing or hang are left out, and the entry says so.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use ironswan_io::{clock, sysctl};

use super::Entry;

/// How long one program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes that are taken of a file or of a program's output.
const MAX_BYTES: u64 = 8 << 20;

/// Programs, by the names of their entries.
const PROGRAMS: [(&str, &[&str]); 9] = [
    ("machine/ip-link.json", &["ip", "-j", "-d", "-s", "link"]),
    ("machine/ip-addr.json", &["ip", "-j", "address"]),
    ("machine/ip-route4.json", &["ip", "-j", "-4", "route", "show", "table", "all"]),
    ("machine/ip-route6.json", &["ip", "-j", "-6", "route", "show", "table", "all"]),
    ("machine/ip-rule4.json", &["ip", "-j", "-4", "rule"]),
    ("machine/ip-rule6.json", &["ip", "-j", "-6", "rule"]),
    ("machine/ip-neigh.json", &["ip", "-j", "neigh"]),
    ("machine/tc-qdisc.json", &["tc", "-j", "-s", "qdisc"]),
    ("machine/nft.txt", &["nft", "-n", "list", "ruleset"]),
];

/// Files of the kernel.
const FILES: [(&str, &str); 10] = [
    ("machine/kernel.txt", "/proc/version"),
    ("machine/os-release.txt", "/etc/os-release"),
    ("machine/meminfo.txt", "/proc/meminfo"),
    ("machine/loadavg.txt", "/proc/loadavg"),
    ("machine/softnet_stat.txt", "/proc/net/softnet_stat"),
    ("machine/snmp.txt", "/proc/net/snmp"),
    ("machine/snmp6.txt", "/proc/net/snmp6"),
    ("machine/udp.txt", "/proc/net/udp"),
    ("machine/udp6.txt", "/proc/net/udp6"),
    ("machine/xfrm_stat.txt", "/proc/net/xfrm_stat"),
];

/// Settings of the kernel that matter, below `/proc/sys`.
const SETTINGS: [&str; 22] = [
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/conf/all/accept_redirects",
    "net/ipv4/conf/all/send_redirects",
    "net/ipv4/conf/all/src_valid_mark",
    "net/ipv4/ip_no_pmtu_disc",
    "net/ipv4/route/min_pmtu",
    "net/ipv4/route/mtu_expires",
    "net/ipv4/fwmark_reflect",
    "net/ipv4/ipfrag_high_thresh",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/core/netdev_budget",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_udp_timeout",
    "net/netfilter/nf_conntrack_udp_timeout_stream",
    "kernel/random/entropy_avail",
    "kernel/unprivileged_bpf_disabled",
];

/// Looks at everything.
pub fn gather() -> Vec<Entry> {
    let mut out: Vec<Entry> = FILES.iter().map(|(name, path)| Entry::new(*name, file(path))).collect();
    out.push(Entry::new("machine/processor.txt", processor()));
    out.push(Entry::new("machine/sysctl.txt", settings()));
    out.extend(PROGRAMS.iter().map(|(name, line)| Entry::new(*name, run(line))));
    out
}

fn file(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut out));
    match read {
        Ok(_) => out,
        Err(e) => format!("{path} cannot be read: {e}\n").into_bytes(),
    }
}

/// The first processor, and how many there are.
fn processor() -> Vec<u8> {
    let all = String::from_utf8_lossy(&file("/proc/cpuinfo")).into_owned();
    let count = all.split("\n\n").filter(|one| !one.trim().is_empty()).count();
    format!("processors: {count}\n\n{}\n", all.split("\n\n").next().unwrap_or_default()).into_bytes()
}

/// The settings that matter, and those of each interface.
fn settings() -> String {
    let line = |path: &str| sysctl::setting(path).map(|value| format!("{path} = {value}\n"));
    let mut out: String = SETTINGS.iter().filter_map(|path| line(path)).collect();
    for family in ["ipv4", "ipv6"] {
        let folder = fs::read_dir(format!("/proc/sys/net/{family}/conf")).into_iter().flatten().flatten();
        let mut names: Vec<String> = folder.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        for name in names.iter().take(1_000) {
            for key in ["forwarding", "rp_filter", "mtu", "disable_ipv6"] {
                out.extend(line(&format!("net/{family}/conf/{name}/{key}")));
            }
        }
    }
    out
}

/// The output of a program.
fn run(line: &[&str]) -> Vec<u8> {
    let shown = line.join(" ");
    let mut command = Command::new(line[0]);
    command
        .args(&line[1..])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Users often have no `sbin` in their path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return format!("`{shown}` cannot be run: {e}\n").into_bytes(),
    };
    let (texts, heard) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|s| Box::new(s) as _), child.stderr.take().map(|s| Box::new(s) as _)];
    for (n, stream) in streams.into_iter().enumerate() {
        let texts = texts.clone();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // The other end ends with its process.
            let _ = stream.map(|s| s.take(MAX_BYTES).read_to_end(&mut text));
            let _ = texts.send((n, text));
        });
    }
    drop(texts);
    let begun = clock::now();
    let status = loop {
        match child.try_wait() {
            Ok(None) if clock::now().saturating_duration_since(begun) > PROGRAM_TIMEOUT => {
                let _ = child.kill();
                let _ = child.wait();
                return format!("`{shown}` did not end in {} s\n", PROGRAM_TIMEOUT.as_secs()).into_bytes();
            }
            Ok(None) => std::thread::sleep(LOOK),
            Ok(Some(status)) => break status,
            Err(e) => return format!("`{shown}` was lost: {e}\n").into_bytes(),
        }
    };
    let mut out = [Vec::new(), Vec::new()];
    while let Ok((n, text)) = heard.recv_timeout(Duration::from_secs(1)) {
        out[n] = text;
        if out.iter().all(|t| !t.is_empty()) {
            break;
        }
    }
    let [mut out, errors] = out;
    if !status.success() {
        out.extend(format!("\n`{shown}` failed ({status}): ").into_bytes());
        out.extend(errors);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_says_something() {
        let all = gather();
        let text = |name: &str| {
            let entry = all.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{name}"));
            String::from_utf8_lossy(&entry.text).into_owned()
        };
        assert!(text("machine/kernel.txt").starts_with("Linux version"));
        assert!(
            text("machine/ip-link.json").contains("\"ifname\":\"lo\""),
            "{}",
            text("machine/ip-link.json")
        );
        assert!(text("machine/sysctl.txt").contains("net/ipv4/ip_forward = "));
        assert!(text("machine/processor.txt").contains("flags"));
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_said() {
        let said = |line: &[&str]| String::from_utf8_lossy(&run(line)).into_owned();
        assert!(said(&["no-such-program"]).contains("`no-such-program` cannot be run"));
        let failed = said(&["sh", "-c", "echo out; echo why >&2; exit 3"]);
        assert!(
            failed.contains("out") && failed.contains("exit status: 3") && failed.contains("why"),
            "{failed}"
        );
    }
}
