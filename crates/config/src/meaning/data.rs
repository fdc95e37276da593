//! `data { .. }` of `ironswan.conf`: how packets are moved.
//!
//! ```text
//! data {
//!   workers = auto           threads that move packets: auto (by processors), or a number
//!   pin = 0,2-5              processors that they are bound to, in turns; default: none is bound
//!   nice = -10               their priority before other programs: -20 (first) to 19; 0: as the daemon is
//!   engine = auto            cryptographic engine: auto (the fastest of a test at start), or one of `ironswan list algs`
//!   batch = 256k             bytes that are sealed at once
//!   socket_buffer = 8m       buffer of each socket, each way
//!   gso = yes                the kernel cuts what is sent in UDP
//!   gro = yes                the kernel merges what is received in UDP
//!   tun_offload = yes        the TUN device takes and gives super-packets
//!   tun_queue = 4000         packets that wait in the TUN device
//!   busy_poll = 0            how long a thread polls network cards before it sleeps
//!   xdp = wan0,wan1          interfaces on which ESP is received through AF_XDP; default: none
//!   threaded_napi = auto     interfaces that kernel threads poll, not softirqs: auto (with one processor all), no, or names
//! }
//! ```

use std::time::Duration;

use ironswan_crypto::engines::EngineId;

use super::super::diag::Diagnostics;
use super::super::tree::Section;
use super::super::value::{self, show};
use super::Reader;
use super::daemon::device;
use crate::tuning::{ThreadedNapi, Tuning};

pub(super) const KEYS: &[&str] = &[
    "workers",
    "pin",
    "nice",
    "engine",
    "batch",
    "socket_buffer",
    "gso",
    "gro",
    "tun_offload",
    "tun_queue",
    "busy_poll",
    "xdp",
    "threaded_napi",
];

/// Most workers, and the highest number of a processor (`CPU_SETSIZE` less 1).
const MAX_WORKERS: u64 = 256;
const MAX_CPU: u64 = 1023;
/// A batch holds two super-packets with what is added to them, and more than this is never in a cache.
const BATCH: (u64, u64) = (192 << 10, 8 << 20);
/// Two merged buffers with the kernel's own share, up to what the kernel takes.
const SOCKET_BUFFER: (u64, u64) = (256 << 10, 512 << 20);
/// What keeps a large flow going (`docs/performance.md`), up to half a second of small packets.
const TUN_QUEUE: (u64, u64) = (100, 200_000);
const MAX_BUSY_POLL: Duration = Duration::from_millis(10);
/// Interfaces of one list.
const MAX_INTERFACES: usize = 32;

/// Reads the section. `device` is the TUN device's name. The second is the engine, when one is named.
pub(super) fn data(section: &Section, tun: &str, diags: &mut Diagnostics) -> (Tuning, Option<EngineId>) {
    let mut t = Tuning::default();
    let mut r = Reader { section, path: "data", diags };
    t.workers = r.get("workers", workers).unwrap_or(t.workers);
    if let Some(lists) = r.list("pin", cpus) {
        for cpu in lists.into_iter().flatten() {
            if t.pin.contains(&cpu) {
                r.error("pin", format!("processor {cpu} is named twice; name each once"));
                break;
            }
            t.pin.push(cpu);
        }
    }
    if t.workers > t.pin.len() && !t.pin.is_empty() {
        let (n, m) = (t.workers, t.pin.len());
        r.warn("pin", format!("{n} workers share {m} processors; name as many, or set workers = {m}"));
    }
    t.nice = r.get("nice", nice).unwrap_or(t.nice);
    let engine = r.get("engine", engine).flatten();
    let size = |(min, max): (u64, u64)| move |text: &str| sized(text, min, max);
    t.batch_bytes = r.get("batch", size(BATCH)).map_or(t.batch_bytes, |n| n as usize);
    t.socket_buffer = r.get("socket_buffer", size(SOCKET_BUFFER)).map_or(t.socket_buffer, |n| n as u32);
    t.gso = r.get("gso", value::boolean).unwrap_or(t.gso);
    t.gro = r.get("gro", value::boolean).unwrap_or(t.gro);
    t.tun_offload = r.get("tun_offload", value::boolean).unwrap_or(t.tun_offload);
    t.tun_queue = r.get("tun_queue", tun_queue).unwrap_or(t.tun_queue);
    t.busy_poll = r.get("busy_poll", busy_poll).unwrap_or(t.busy_poll);
    t.xdp = interfaces(&mut r, "xdp", tun, ["that lead to the peers", "leave the rest to sockets"]);
    t.threaded_napi = threaded_napi(&mut r, tun);
    (t, engine)
}

/// `auto`, `no`, or names.
fn threaded_napi(r: &mut Reader<'_>, tun: &str) -> ThreadedNapi {
    let key = "threaded_napi";
    let names = interfaces(r, key, tun, ["that packets arrive on", "leave the rest to softirqs"]);
    let word = |name: &String| ["auto", "no"].into_iter().find(|w| name.eq_ignore_ascii_case(w));
    match (names.as_slice(), names.iter().find_map(word)) {
        ([], _) | ([_], Some("auto")) => ThreadedNapi::Auto,
        ([_], Some(_)) => ThreadedNapi::Named(Vec::new()),
        (_, None) => ThreadedNapi::Named(names),
        (_, Some(word)) => {
            r.error(key, format!("{word} stands alone; write {word}, or the names of interfaces"));
            ThreadedNapi::Auto
        }
    }
}

/// The names of a list; `say` completes what is said of the TUN device, and of too many.
fn interfaces(r: &mut Reader<'_>, key: &str, tun: &str, say: [&str; 2]) -> Vec<String> {
    let mut names = Vec::new();
    for name in r.list(key, device).unwrap_or_default() {
        if name == tun {
            r.error(key, format!("{name} is the TUN device; name the interfaces {}", say[0]));
        } else if names.contains(&name) {
            r.error(key, format!("{name} is named twice; name each once"));
        } else if names.len() == MAX_INTERFACES {
            r.error(key, format!("more than {MAX_INTERFACES} interfaces; {}", say[1]));
            break;
        } else {
            names.push(name);
        }
    }
    names
}

/// `auto` is 0.
fn workers(text: &str) -> Result<usize, String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(0);
    }
    match value::number(text, MAX_WORKERS) {
        Ok(0) => Err("0 threads move nothing; write auto, or 1 or more".to_owned()),
        Ok(n) => Ok(n as usize),
        Err(e) => Err(format!("{e}; write auto, or a number of threads")),
    }
}

/// Packets.
fn tun_queue(text: &str) -> Result<u32, String> {
    let (min, max) = TUN_QUEUE;
    match value::number(text, max) {
        Ok(n) if n < min => Err(format!("`{}` is less than {min}", show(text))),
        Ok(n) => Ok(n as u32),
        Err(e) => Err(format!("{e}; write a number of packets")),
    }
}

/// A processor's number, or a range of them.
fn cpus(text: &str) -> Result<std::ops::RangeInclusive<usize>, String> {
    let wrong = |e| format!("{e}; write processors as 0,2-5");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = value::number(first, MAX_CPU).map_err(wrong)? as usize;
    let last = value::number(last, MAX_CPU).map_err(wrong)? as usize;
    if first > last {
        return Err(format!("`{}` goes backwards; write {last}-{first}", show(text)));
    }
    Ok(first..=last)
}

fn nice(text: &str) -> Result<i8, String> {
    match text.trim().parse() {
        Ok(n) if (-20..=19).contains(&n) => Ok(n),
        _ => Err(format!("`{}` is no nice value; write -20 (first of all) to 19 (last)", show(text))),
    }
}

/// A name. Whether that engine is built in and can be used on this machine is said when it is chosen: files are also checked
/// elsewhere.
fn engine(text: &str) -> Result<Option<EngineId>, String> {
    let t = text.trim().to_ascii_lowercase();
    match EngineId::ALL.into_iter().find(|id| id.name() == t) {
        None if t == "auto" => Ok(None),
        None => {
            let known = EngineId::ALL.map(EngineId::name).join(", ");
            Err(format!("`{}` is none of auto, {known}", show(text)))
        }
        found => Ok(found),
    }
}

fn sized(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let shown = |n: u64| match n {
        n if n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
        n => format!("{}k", n >> 10),
    };
    match value::bytes(text)? {
        n if n < min => Err(format!("`{}` is less than {}", show(text), shown(min))),
        n if n > max => Err(format!("`{}` is more than {}", show(text), shown(max))),
        n => Ok(n),
    }
}

/// Microseconds, with their unit; 0 is off.
fn busy_poll(text: &str) -> Result<Duration, String> {
    let t = text.trim();
    let max = MAX_BUSY_POLL.as_micros() as u64;
    let usecs = match (t.strip_suffix("us"), t.strip_suffix("ms")) {
        (Some(n), _) => value::number(n, max),
        (None, Some(n)) => value::number(n, max / 1_000).map(|n| n * 1_000),
        (None, None) if t == "0" => Ok(0),
        (None, None) => Err(format!("`{}` has no unit", show(text))),
    };
    usecs.map(Duration::from_micros).map_err(|e| format!("{e}; write 0, or a time up to 10ms such as 50us"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn read(text: &str) -> (Tuning, Option<EngineId>, Vec<String>) {
        let mut d = Diagnostics::default();
        let settings = super::super::daemon(&tree(text), &mut d);
        let lines = d.iter().map(ToString::to_string).collect();
        (settings.tuning, settings.engine, lines)
    }

    #[test]
    fn nothing_written_is_the_default() {
        for text in
            ["", "data { }", "data { workers = auto\n engine = AUTO\n busy_poll = 0\n threaded_napi = auto }"]
        {
            assert_eq!(read(text), (Tuning::default(), None, vec![]), "{text}");
        }
    }

    #[test]
    fn every_key_is_read() {
        let (t, engine, lines) = read(
            "data {\n workers = 3\n pin = 0, 2-3\n nice = -5\n engine = aws-lc\n batch = 512k\n socket_buffer = 32m\n gso = no\n gro = no\n \
             tun_offload = no\n tun_queue = 500\n busy_poll = 50us\n xdp = wan0, wan1\n threaded_napi = lan, wan0\n}",
        );
        assert_eq!(lines, [""; 0]);
        let want = Tuning {
            workers: 3,
            pin: vec![0, 2, 3],
            nice: -5,
            batch_bytes: 512 << 10,
            socket_buffer: 32 << 20,
            gso: false,
            gro: false,
            tun_offload: false,
            tun_queue: 500,
            busy_poll: Duration::from_micros(50),
            xdp: vec!["wan0".into(), "wan1".into()],
            threaded_napi: ThreadedNapi::Named(vec!["lan".into(), "wan0".into()]),
        };
        assert_eq!((t, engine), (want, Some(EngineId::AwsLc)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_a_remedy() {
        for (text, say) in [
            ("workers = 0", "data.workers: 0 threads move nothing; write auto"),
            ("workers = many", "data.workers: `many` is not a number up to 256; write auto"),
            ("workers = 257", "data.workers: `257` is more than 256"),
            ("pin = 1024", "data.pin: `1024` is more than 1023; write processors as 0,2-5"),
            ("pin = 5-2", "data.pin: `5-2` goes backwards; write 2-5"),
            ("pin = 0-2,1", "data.pin: processor 1 is named twice"),
            ("pin = a", "data.pin: `a` is not a number"),
            ("nice = 20", "data.nice: `20` is no nice value; write -20 (first of all) to 19 (last)"),
            ("nice = -21", "data.nice: `-21` is no nice value"),
            ("nice = high", "data.nice: `high` is no nice value"),
            ("engine = openssl", "data.engine: `openssl` is none of auto, aws-lc, vaes, avx2, ipsec-mb"),
            ("batch = 64k", "data.batch: `64k` is less than 192k"),
            ("batch = 1g", "data.batch: `1g` is more than 8m"),
            ("socket_buffer = 10", "data.socket_buffer: `10` is less than 256k"),
            ("socket_buffer = 4g", "data.socket_buffer: `4g` is more than 512m"),
            ("gso = maybe", "data.gso: `maybe` is neither yes nor no"),
            ("gro = 2", "data.gro: `2` is neither yes nor no"),
            ("tun_offload = x", "data.tun_offload: `x` is neither yes nor no"),
            ("tun_queue = 99", "data.tun_queue: `99` is less than 100"),
            (
                "tun_queue = 1m",
                "data.tun_queue: `1m` is not a number up to 200000; write a number of packets",
            ),
            (
                "busy_poll = 50",
                "data.busy_poll: `50` has no unit; write 0, or a time up to 10ms such as 50us",
            ),
            ("busy_poll = 1s", "data.busy_poll: `1s` has no unit"),
            ("busy_poll = 11ms", "data.busy_poll: `11` is more than 10"),
            ("xdp = a/b", "data.xdp: `a/b` is not a device's name"),
            ("xdp = wan0,wan0", "data.xdp: wan0 is named twice"),
            ("xdp = ipsec0", "data.xdp: ipsec0 is the TUN device"),
            ("threaded_napi = a/b", "data.threaded_napi: `a/b` is not a device's name"),
            ("threaded_napi = lan,lan", "data.threaded_napi: lan is named twice"),
            ("threaded_napi = ipsec0", "data.threaded_napi: ipsec0 is the TUN device"),
            ("threaded_napi = lan,Auto", "data.threaded_napi: auto stands alone; write auto, or the names"),
            ("threaded_napi = no,lan", "data.threaded_napi: no stands alone"),
            ("worker = 2", "data.worker: unknown key; did you mean `workers`?"),
            ("sockets = 2", "data.sockets: unknown key"),
        ] {
            let (_, _, lines) = read(&format!("data {{\n {text}\n}}"));
            assert!(
                lines.len() == 1 && lines[0].contains(say) && lines[0].contains("t.conf:2"),
                "{text}: {lines:?}"
            );
        }
    }

    #[test]
    fn no_is_no_interface() {
        let (t, _, lines) = read("data { threaded_napi = no }");
        assert_eq!((t.threaded_napi, lines), (ThreadedNapi::Named(vec![]), vec![]));
    }

    #[test]
    fn a_list_of_interfaces_has_an_end() {
        let names: Vec<String> = (0..=MAX_INTERFACES).map(|n| format!("eth{n}")).collect();
        for (key, say) in
            [("xdp", "leave the rest to sockets"), ("threaded_napi", "leave the rest to softirqs")]
        {
            let (_, _, lines) = read(&format!("data {{\n {key} = {}\n}}", names.join(",")));
            assert!(
                lines.len() == 1 && lines[0].contains("more than 32 interfaces") && lines[0].contains(say),
                "{lines:?}"
            );
            assert_eq!(read(&format!("data {{\n {key} = {}\n}}", names[1..].join(","))).2, [""; 0]);
        }
    }

    #[test]
    fn workers_outside_of_the_section_are_told_the_new_place() {
        let (_, _, lines) = read("workers = 2");
        assert!(lines.len() == 1 && lines[0].contains("data { workers = 2 }"), "{lines:?}");
        let (_, _, lines) = read("dta { workers = 2 }");
        assert!(lines.len() == 1 && lines[0].contains("`data`"), "{lines:?}");
    }

    #[test]
    fn more_workers_than_processors_to_pin_them_to_is_a_warning() {
        let (t, _, lines) = read("data {\n workers = 3\n pin = 0-1\n}");
        assert!(lines.len() == 1 && lines[0].contains("3 workers share 2 processors"), "{lines:?}");
        assert_eq!((t.workers, t.pin), (3, vec![0, 1]));
    }
}
