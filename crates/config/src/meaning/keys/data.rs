//! Keys of `data { .. }` of `ironswan.conf`, and their readers.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironswan_crypto::engines::EngineId;
use ironswan_keying::diagnosis::ValueFault;

use super::Preset::{Depends, Is};
use super::settings::device;
use super::{Entry, Key, Kind, Table};
use super::{each, keys, list, text, yes_no};
use crate::value::{self, Wrong, advise, wrong};

/// Most workers.
const MAX_WORKERS: u64 = 256;
/// Highest number of a processor (`CPU_SETSIZE` less 1).
const MAX_CPU: u64 = 1023;
/// Smallest and largest batch in bytes: two super-packets with the bytes that ESP adds, and a size
/// that no cache holds.
const BATCH_BOUNDS: (u64, u64) = (192 << 10, 8 << 20);
/// Smallest and largest socket buffer in bytes: two merged buffers with the kernel's own share, and
/// the kernel's limit.
const SOCKET_BUFFER_BOUNDS: (u64, u64) = (256 << 10, 512 << 20);
/// Shortest and longest queue of the TUN device in packets: the least that keeps a large flow going
/// (`docs/performance.md`), and half a second of small packets.
const TUN_QUEUE_BOUNDS: (u64, u64) = (100, 200_000);
const MAX_BUSY_POLL: Duration = Duration::from_millis(10);

keys! {
    /// Keys of `data { .. }`.
    DATA;
    WORKERS: usize = text("workers", Kind::Number, Is("auto"), workers,
        "threads that move packets, 1 to 256. `auto` chooses by the processors that the daemon may use. More than one work on the same tunnel, in both directions; packets of one SA leave in their order all the same. *Change it* to leave processors to other programs, or to have the same on machines that differ. `workers = 1` needs the least of everything where one processor carries the line");
    PIN: Vec<RangeInclusive<usize>> = list("pin", Kind::Processors, Depends(""), |v| each(v, cpus),
        "processors that the workers are bound to, in turns: numbers and ranges. Without, the scheduler places them. *Change it* when interrupts of the network card are bound to processors of their own: pin the workers to the others, of the same NUMA node");
    NICE: i8 = text("nice", Kind::Number, Is("-10"), nice,
        "nice value of the workers, -20 (before all others) to 19; 0 leaves them as the daemon is. A worker with a backlog never sleeps, so a scheduler may leave it beside another busy program while a processor idles: this way it has most of the one that it is on. Where the kernel groups programs by session (`kernel.sched_autogroup_enabled`), a daemon that leads its session, as under systemd, gives that the value. *Change it* to `0` where something else on this machine matters more than its traffic");
    ENGINE: Option<EngineId> = text("engine", Kind::Word, Is("auto"), engine,
        "whose code encrypts: `aws-lc`, `vaes`, `avx2` (3DES), `ipsec-mb`. `auto` takes the fastest for each algorithm and size in a short test at start. *Change it* to compare, or to rule one out");
    BATCH: u64 = text("batch", Kind::Bytes, Is("256k"), |t| sized(t, BATCH_BOUNDS),
        "bytes that are sealed and sent at once, 192k to 8m. Never waits for more: what is there is sent. *Change it* smaller where the processor's second cache is small; larger hardly ever");
    SOCKET_BUFFER: u64 = text("socket_buffer", Kind::Bytes, Is("8m"), |t| sized(t, SOCKET_BUFFER_BOUNDS),
        "receive and send buffer of each socket, 256k to 512m; the kernel doubles it for what it keeps beside the packets. Each byte of it may be in use under a flood. *Change it* larger when `socket-drops` (`ironswan list counters`) grows though no processor is busy; smaller (2m) where delay under a flood matters more than loss, and on machines with little memory");
    GSO: bool = yes_no("gso", "yes",
        "the kernel cuts one large send into many UDP datagrams (`UDP_SEGMENT`). *Change it* to `no` when a network card or its driver does it wrongly");
    GRO: bool = yes_no("gro", "yes",
        "the kernel hands received UDP datagrams of one peer over as one buffer (`UDP_GRO`). *Change it* to `no` likewise");
    TUN_OFFLOAD: bool = yes_no("tun_offload", "yes",
        "the device `ipsec0` gives and takes super-packets of up to 64 KB, which are cut and merged here. *Change it* to `no` likewise. Every packet is a system call then");
    TUN_QUEUE: u32 = text("tun_queue", Kind::Number, Is("4000"), tun_queue,
        "packets that may wait in the device `ipsec0`, 100 to 200000; a super-packet counts as one. What comes while it is full is lost, and counted there (`ip -s link show ipsec0`: dropped). *Change it* larger when these drops grow though no processor is busy; smaller (1000) where bulk traffic delays other traffic and memory is short: each may hold 64 KB");
    BUSY_POLL: Duration = text("busy_poll", Kind::Duration, Is("0"), busy_poll,
        "how long a thread polls the network cards before it sleeps, up to `10ms`: `50us`. Takes Linux 6.9, and a card whose driver has NAPI; keeps processors busy. *Change it* where microseconds of delay matter more than power");
    XDP: Vec<String> = list("xdp", Kind::Devices, Depends(""), |v| each(v, device),
        "interfaces on which ESP is received through `AF_XDP`, past the kernel's stack: nft, `rp_filter` and conntrack do not see it, and no other IPsec on this machine gets ESP from there. Falls back to sockets, with a message. *Change it* under floods of small packets");
    THREADED_NAPI: Vec<String> = list("threaded_napi", Kind::Devices, Is("auto"), |v| each(v, device),
        "interfaces whose receive is polled by kernel threads, not by softirqs: `lan, wan`; `no`, none. `auto` is all that are up and whose driver can, where the daemon may use one processor only, and none where it may use more. The daemon writes 1 to `/sys/class/net/NAME/threaded` where 0 stands, also when an interface of that name comes later or a reload names it, and puts 0 back when it stops or a reload no longer names it; `kill -9` leaves it at 1. Takes Linux 5.12 and a driver with NAPI (a veth has it with `ethtool -K NAME gro on`). What is in the way of an interface that is named is a warning, and is tried again when links change. *Change it* name them where what arrives is received on a core that carries it, and may be more than it carries, [a flood](troubleshooting.md#slow): the scheduler then shares that core between the two. `no` where a machine with one processor never is flooded: threads take turns, which costs some of the highest rate");
}

/// `data { .. }` of `ironswan.conf`.
pub(in crate::meaning) const DATA_TABLE: Table = Table { read: DATA, unused: &[] };

/// `auto` is 0.
fn workers(text: &str) -> Result<usize, Wrong> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(0);
    }
    match value::number(text, MAX_WORKERS) {
        Ok(0) => Err(wrong(text, ValueFault::ZeroThreads, "")),
        Ok(n) => Ok(n as usize),
        Err(e) => Err(advise(e, "write auto, or a number of threads")),
    }
}

/// Packets.
fn tun_queue(text: &str) -> Result<u32, Wrong> {
    let (min, max) = TUN_QUEUE_BOUNDS;
    match value::number(text, max) {
        Ok(n) if n < min => Err(wrong(text, ValueFault::Below(min.to_string()), "")),
        Ok(n) => Ok(n as u32),
        Err(e) => Err(advise(e, "write a number of packets")),
    }
}

/// A processor's number, or a range of them.
fn cpus(text: &str) -> Result<RangeInclusive<usize>, Wrong> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |t| value::number(t, MAX_CPU).map_err(|e| advise(e, "write processors as 0,2-5"));
    let (first, last) = (number(first)? as usize, number(last)? as usize);
    if first > last {
        return Err(wrong(text, ValueFault::Backwards { first, last }, ""));
    }
    Ok(first..=last)
}

fn nice(text: &str) -> Result<i8, Wrong> {
    match text.trim().parse() {
        Ok(n) if (-20..=19).contains(&n) => Ok(n),
        _ => Err(wrong(text, ValueFault::Not("a nice value"), "write -20 (first of all) to 19 (last)")),
    }
}

/// A name. Whether that engine is built in and can be used on this machine is said when it is
/// chosen: files are also checked elsewhere.
fn engine(text: &str) -> Result<Option<EngineId>, Wrong> {
    let t = text.trim().to_ascii_lowercase();
    match EngineId::ALL.into_iter().find(|id| id.name() == t) {
        None if t == "auto" => Ok(None),
        None => {
            let known = EngineId::ALL.map(EngineId::name).join(", ");
            Err(wrong(text, ValueFault::NoneOf(format!("auto, {known}")), ""))
        }
        found => Ok(found),
    }
}

fn sized(text: &str, (min, max): (u64, u64)) -> Result<u64, Wrong> {
    let shown = |n: u64| match n {
        n if n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
        n => format!("{}k", n >> 10),
    };
    match value::bytes(text)? {
        n if n < min => Err(wrong(text, ValueFault::Below(shown(min)), "")),
        n if n > max => Err(wrong(text, ValueFault::Above(shown(max)), "")),
        n => Ok(n),
    }
}

/// Microseconds, with their unit; 0 is off.
fn busy_poll(text: &str) -> Result<Duration, Wrong> {
    let t = text.trim();
    let max = MAX_BUSY_POLL.as_micros() as u64;
    let usecs = match (t.strip_suffix("us"), t.strip_suffix("ms")) {
        (Some(n), _) => value::number(n, max),
        (None, Some(n)) => value::number(n, max / 1_000).map(|n| n * 1_000),
        (None, None) if t == "0" => Ok(0),
        (None, None) => Err(wrong(text, ValueFault::NoUnit, "")),
    };
    usecs.map(Duration::from_micros).map_err(|e| advise(e, "write 0, or a time up to 10ms such as 50us"))
}
