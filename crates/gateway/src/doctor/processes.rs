//! Reads `/proc`: who holds the UDP ports of IKE, and which other IKE daemons run.
//!
//! ```text
//! /proc/net/udp:  sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout
//!                 inode
//! /proc/PID/fd/N: a link to socket:[INODE]
//! ```
//! Only root may look at the files of other users' processes, and at their namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::facts::{Confinement, Holder, Known, Other, Port};

/// Names of programs that speak IKE, as `/proc/PID/comm` has them.
const DAEMONS: [&str; 9] =
    ["charon", "charon-systemd", "charon-nm", "charon-svc", "pluto", "iked", "racoon", "racoon2", "isakmpd"];
/// Limits how many lines of a list of sockets are read.
const MAX_SOCKETS: usize = 100_000;

/// A line of `/proc/net/udp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Socket {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// The sockets of this network namespace at these ports, with their processes.
///
/// # Errors
/// The reason why the list cannot be read.
pub(super) fn ports(wanted: [u16; 2]) -> Known<Vec<Port>> {
    let mut sockets = Vec::new();
    for (file, ipv6) in [("udp", false), ("udp6", true)] {
        // A kernel without IPv6 has no list of it.
        let text = match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
            Ok(text) => text,
            Err(_) if ipv6 => continue,
            Err(e) => return Err(format!("/proc/net/{file} cannot be read ({e})")),
        };
        sockets.extend(text.lines().take(MAX_SOCKETS).filter_map(|line| socket(line, ipv6)));
    }
    sockets.retain(|s| wanted.contains(&s.port));
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let holders = holders(&sockets);
    let port = |s: &Socket| Port { number: s.port, address: s.address, holder: holder(s.inode, &holders) };
    Ok(sockets.iter().map(port).collect())
}

/// The process of a socket.
fn holder(inode: u64, holders: &BTreeMap<u64, i32>) -> Known<Holder> {
    let pid = *holders.get(&inode).ok_or(match ironswan_io::privileges::is_root() {
        true => "its process is not in this PID namespace",
        false => "only root may see its process",
    })?;
    Ok(Holder { pid, name: name(pid), ours: is_ours(pid) })
}

/// Reads one line. `None`: the head, or a line that is not understood.
fn socket(line: &str, ipv6: bool) -> Option<Socket> {
    let mut fields = line.split_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.nth(7)?.parse().ok()?;
    // The kernel writes words of 32 bits as numbers of this machine.
    let word = |n: usize| u32::from_str_radix(address.get(8 * n..8 * n + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address = if ipv6 {
        let mut bytes = [0; 16];
        for (n, chunk) in bytes.chunks_exact_mut(4).enumerate() {
            chunk.copy_from_slice(&word(n)?);
        }
        Ipv6Addr::from(bytes).into()
    } else {
        Ipv4Addr::from(word(0)?).into()
    };
    Some(Socket { address, port, inode })
}

/// Finds the processes that have these sockets open, by inode. A socket that several have counts
/// for the last of them: a daemon, not the helper that was started before it.
fn holders(sockets: &[Socket]) -> BTreeMap<u64, i32> {
    let mut out = BTreeMap::new();
    for pid in all() {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for link in files.flatten().filter_map(|file| fs::read_link(file.path()).ok()) {
            let inode =
                link.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| sockets.iter().any(|s| s.inode == *inode)) {
                out.insert(inode, pid);
            }
        }
    }
    out
}

/// Numbers of all processes, in order.
fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The name of a process, without control characters.
fn name(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim().chars().filter(|c| !c.is_control()).collect()
}

/// True for a process that runs this program, or another file of its name.
fn is_ours(pid: i32) -> bool {
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let theirs = program(&pid.to_string());
    let name = theirs.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    theirs.is_some() && theirs == program("self")
        || name.is_some_and(|n| n == "ironswan" || n == "ironswan (deleted)")
}

/// Other IKE daemons that run.
///
/// # Errors
/// `/proc` cannot be read.
pub(super) fn others() -> Known<Vec<Other>> {
    let own = fs::read_link("/proc/thread-self/ns/net").map_err(|e| format!("/proc cannot be read ({e})"))?;
    let here = |pid: i32| match fs::read_link(format!("/proc/{pid}/ns/net")) {
        Ok(theirs) => Ok(theirs == own),
        Err(_) => Err("only root may see its network namespace".to_owned()),
    };
    let daemons = all().into_iter().map(|pid| (pid, name(pid)));
    let daemons = daemons.filter(|(_, name)| DAEMONS.contains(&name.as_str()));
    Ok(daemons.map(|(pid, name)| Other { pid, name, here: here(pid) }).collect())
}

/// Privileges of a process (`self`, or its number).
///
/// # Errors
/// The process has ended, or its state is not understood.
pub(super) fn confinement(process: &str) -> Known<Confinement> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|e| format!("/proc/{process}/status cannot be read ({e})"))?;
    parse_status(&status).ok_or_else(|| format!("/proc/{process}/status is not understood"))
}

fn parse_status(status: &str) -> Option<Confinement> {
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_whitespace().nth(usize::from(name == "Uid")).map(str::to_owned)
    };
    Some(Confinement {
        uid: field("Uid")?.parse().ok()?,
        capabilities: u64::from_str_radix(&field("CapEff")?, 16).ok()?,
        // A kernel without seccomp has no such line.
        seccomp: field("Seccomp").is_some_and(|mode| mode != "0"),
    })
}

/// Files that a process may have open.
///
/// # Errors
/// The process has ended, or its limits are not understood.
pub(super) fn descriptors(process: &str) -> Known<u64> {
    let path = format!("/proc/{process}/limits");
    let limits = fs::read_to_string(&path).map_err(|e| format!("{path} cannot be read ({e})"))?;
    let line = limits.lines().find_map(|l| l.strip_prefix("Max open files"));
    match line.and_then(|l| l.split_whitespace().next()) {
        Some("unlimited") => Ok(u64::MAX),
        Some(n) => n.parse().map_err(|_| format!("{path} is not understood")),
        None => Err(format!("{path} is not understood")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read_and_others_are_left_out() {
        let line = "  482: 0100007F:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 31337 2 x 0";
        let want = Socket { address: Ipv4Addr::LOCALHOST.into(), port: 500, inode: 31_337 };
        assert_eq!(socket(line, false), Some(want));
        let line = "  1: 00000000000000000000000001000000:1194 00000000000000000000000000000000:0000 07 0:0 0:0 0 0 0 7 2 x 0";
        let want = Socket { address: Ipv6Addr::LOCALHOST.into(), port: 4500, inode: 7 };
        assert_eq!(socket(line, true), Some(want));
        for bad in [
            "",
            "  sl  local_address rem_address   st tx_queue",
            "1: 00:01F4 x",
            "1: 0100007F:ZZZZ a b c d e f g h",
        ] {
            assert_eq!(socket(bad, false), None, "{bad}");
        }
    }

    #[test]
    fn the_process_of_a_socket_is_found() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let number = socket.local_addr().expect("an address").port();
        let found = ports([number, 0]).expect("/proc");
        let ours = std::process::id() as i32;
        let holder =
            found.iter().find(|p| p.number == number).expect("the port").holder.clone().expect("a process");
        assert_eq!((holder.pid, holder.ours), (ours, true));
        drop(socket);
        // A program that another test starts has all descriptors for a moment.
        let is_free = || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            ports([number, number]).expect("/proc").is_empty()
        };
        assert!((0..100).any(|_| is_free()), "the port stays taken");
    }

    #[test]
    fn privileges_and_limits_are_read() {
        let status = "Name:\tx\nUid:\t0\t995\t0\t0\nCapEff:\t0000000000003000\nSeccomp:\t2\n";
        let want = Confinement { uid: 995, capabilities: 0x3000, seccomp: true };
        assert_eq!(parse_status(status), Some(want));
        assert_eq!(parse_status("Uid:\t1\n"), None);
        assert!(confinement("self").is_ok() && descriptors("self").is_ok_and(|n| n > 0));
        assert!(confinement("0").is_err() && descriptors("0").is_err());
    }

    #[test]
    fn a_program_of_the_name_of_an_ike_daemon_is_found() {
        use std::os::unix::process::CommandExt;
        let dir = ironswan_testkit::scratch::Scratch::new();
        let program = dir.path().join("pluto");
        fs::copy("/bin/sleep", &program).expect("a copy");
        let mut child =
            std::process::Command::new(&program).arg0("pluto").arg("30").spawn().expect("it runs");
        // The name is that of the file once the program has been executed.
        let found = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            others().ok()?.into_iter().find(|o| o.pid == child.id() as i32)
        });
        child.kill().expect("it ends");
        child.wait().expect("it ends");
        let found = found.expect("it is found");
        assert_eq!((found.name.as_str(), found.here), ("pluto", Ok(true)));
    }
}
