//! `data { .. }` of `ironswan.conf`: how packets are moved.

use ironswan_crypto::engines::EngineId;
use ironswan_keying::diagnosis::{Configuration, Conflict, Unwise};

use super::super::diag::Diagnostics;
use super::super::tree::Section;
use super::Reader;
use super::keys::Key;
use super::keys::data as k;
use crate::tuning::{ThreadedNapi, Tuning};

/// Most interfaces of one list.
const MAX_INTERFACES: usize = 32;

/// Reads the section. `tun` is the TUN device's name. The second result is the engine, when one is
/// named.
pub(super) fn data(section: &Section, tun: &str, diags: &mut Diagnostics) -> (Tuning, Option<EngineId>) {
    let mut r = Reader { section, path: "data", diags };
    let workers = r.read(&k::WORKERS);
    let pin = processors(&mut r);
    if workers > pin.len() && !pin.is_empty() {
        r.doubt(&k::PIN, Unwise::FewProcessors { workers, processors: pin.len() });
    }
    let tuning = Tuning {
        workers,
        pin,
        nice: r.read(&k::NICE),
        batch_bytes: r.read(&k::BATCH) as usize,
        socket_buffer: r.read(&k::SOCKET_BUFFER) as u32,
        gso: r.read(&k::GSO),
        gro: r.read(&k::GRO),
        tun_offload: r.read(&k::TUN_OFFLOAD),
        tun_queue: r.read(&k::TUN_QUEUE),
        busy_poll: r.read(&k::BUSY_POLL),
        xdp: interfaces(
            &mut r,
            &k::XDP,
            tun,
            ["name the interfaces that lead to the peers", "leave the rest to sockets"],
        ),
        threaded_napi: threaded_napi(&mut r, tun),
    };
    (tuning, r.read(&k::ENGINE))
}

/// Reads the numbers of the processors of `pin`. A number that is written twice is an error.
fn processors(r: &mut Reader<'_>) -> Vec<usize> {
    let mut pin = Vec::new();
    for cpu in r.written(&k::PIN).unwrap_or_default().into_iter().flatten() {
        if pin.contains(&cpu) {
            r.conflict(&k::PIN, Conflict::NamedTwice { name: format!("processor {cpu}") });
            break;
        }
        pin.push(cpu);
    }
    pin
}

/// Reads `threaded_napi`: `auto`, `no`, or names of interfaces.
fn threaded_napi(r: &mut Reader<'_>, tun: &str) -> ThreadedNapi {
    let key = &k::THREADED_NAPI;
    let names =
        interfaces(r, key, tun, ["name the interfaces that packets arrive on", "leave the rest to softirqs"]);
    let word = |name: &String| ["auto", "no"].into_iter().find(|w| name.eq_ignore_ascii_case(w));
    match (names.as_slice(), names.iter().find_map(word)) {
        ([], _) | ([_], Some("auto")) => ThreadedNapi::Auto,
        ([_], Some(_)) => ThreadedNapi::Named(Vec::new()),
        (_, None) => ThreadedNapi::Named(names),
        (_, Some(word)) => {
            r.conflict(key, Conflict::StandsAlone { word });
            ThreadedNapi::Auto
        }
    }
}

/// Reads a list of interfaces. `write` holds two remedies: one for a list that names the TUN
/// device, one for a list of more than [`MAX_INTERFACES`].
fn interfaces(
    r: &mut Reader<'_>,
    key: &Key<Vec<String>>,
    tun: &str,
    write: [&'static str; 2],
) -> Vec<String> {
    let mut names = Vec::new();
    for name in r.written(key).unwrap_or_default() {
        if name == tun {
            r.conflict(key, Conflict::TunDevice { name, write: write[0] });
        } else if names.contains(&name) {
            r.conflict(key, Conflict::NamedTwice { name });
        } else if names.len() == MAX_INTERFACES {
            r.error(key, Configuration::TooMany { max: MAX_INTERFACES, of: "interfaces", write: write[1] });
            break;
        } else {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use std::time::Duration;

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
            ("nice = 20", "data.nice: `20` is not a nice value; write -20 (first of all) to 19 (last)"),
            ("nice = -21", "data.nice: `-21` is not a nice value"),
            ("nice = high", "data.nice: `high` is not a nice value"),
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
