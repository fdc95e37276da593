//! The generator and the receiver on a real line, and the experiment `flood` in its shortest form:
//! every packet is accounted for. Needs root and nft.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::{self, left, now, owner, recompute};
use ironswan_lab::load::frame::{self, Family, Mark, Route, Shape};
use ironswan_lab::load::{self, Counted, Offer, Receiver, Sent};
use ironswan_lab::record::{Factors, Which};
use ironswan_lab::topology::{Cpus, Line, LineSpec, Mode, Node, Owner, Steered, address};
use ironswan_lab::{FloodOptions, LabError, Report, Spread, flood};
use serde_json::Value;

const PORT: u16 = 7007;

/// One at a time: all floods of a machine share the kernel's queues before its processors, and what
/// another's packets push out of those would be missing here.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line that forwards without a tunnel.
fn plain(owner: &Owner) -> (Line, Route) {
    plain_in(owner, Mode::Offload)
}

fn plain_in(owner: &Owner, mode: Mode) -> (Line, Route) {
    let line = Line::build(owner, LineSpec { mode, inner_mtu: 1400 }).expect("a line");
    line.ip(Node::G1, &["route", "add", address::NET_B, "via", address::G2]).expect("a route");
    line.ip(Node::G2, &["route", "add", address::NET_A, "via", address::G1]).expect("a route");
    let brief = line.ip(Node::G1, &["-br", "link", "show", "dev", "lan"]).expect("the link of g1");
    let next_hop = load::parse_ethernet(&brief).expect("an Ethernet address");
    let route = load::route(next_hop, address::B, PORT).expect("a route");
    (line, route)
}

fn trial(line: &Line, route: Route, shape: Shape, offer: Offer) -> (Sent, Counted) {
    let epoch = now();
    let receiver = Receiver::start(line.node(Node::B), PORT, shape, epoch, None).expect("a receiver");
    // A sender that is moved to another processor overtakes what waits on the first one: the order
    // is then not the wire's.
    let cpus = Cpus::new([0]);
    let sent =
        load::generate(line.node(Node::A), "eth0", route, shape, offer, epoch, Some(&cpus)).expect("sent");
    (sent, receiver.finish())
}

/// Runs nft on a box and returns what it prints.
fn nft(line: &Line, node: Node, command: &str) -> String {
    let argv = line.node(node).exec(&["nft", command]);
    let done = Command::new(&argv[0]).args(&argv[1..]).output().expect("nft");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn what_a_lossy_gateway_drops_is_exactly_what_is_missing() {
    let _alone = alone();
    let owner = owner();
    let (line, route) = plain(&owner);
    nft(&line, Node::G1, "add table ip lossy; add chain ip lossy c { type filter hook forward priority 0; }");
    for (payload, flows) in [(18, 1), (1300, 1000)] {
        let shape = Shape { payload, mix: None, flows, family: Family::V4, tag: flows };
        // Slow enough that nothing but the rule loses packets.
        let offer = Offer { rate: Some(10_000.0), packets: 5_000, at_most: Duration::from_secs(20) };
        // A rule anew begins to count at nothing.
        nft(&line, Node::G1, "flush chain ip lossy c");
        nft(&line, Node::G1, "add rule ip lossy c udp dport 7007 numgen random mod 10 == 0 counter drop");
        let (sent, counted) = trial(&line, route, shape, offer);
        let rules = nft(&line, Node::G1, "list table ip lossy");
        let mut words = rules.split_whitespace().skip_while(|w| *w != "packets").skip(1);
        let dropped: u64 = words.next().and_then(|n| n.parse().ok()).expect("a counter");
        let r = counted.received;
        assert_eq!(sent.intended, sent.sent + sent.unsent);
        // A receiver that did not get a processor in time says what it lost itself.
        assert_eq!(sent.sent, r.unique + dropped + counted.socket_drops, "{sent:?} {counted:?}");
        assert!(dropped > sent.sent / 20, "{dropped} of {}", sent.sent);
        assert_eq!((r.duplicates, r.reordered, r.corrupt), (0, 0, 0));
        let latency = r.latency.expect("latency");
        assert_eq!(latency.samples, r.unique);
        assert!(latency.min_us > 0.0 && latency.p50_us <= latency.p99_us && latency.p99_us <= latency.max_us);
    }
}

/// The name of a thread of the kernel, where there is one of that id.
fn name_of(thread: u32) -> String {
    fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default().trim().to_string()
}

/// Processor time of a thread, ns.
fn time_of(thread: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{thread}/schedstat")).expect("a thread");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

#[test]
fn threads_of_the_kernel_poll_the_links_of_a_line_and_end_with_it() {
    let _alone = alone();
    let owner = owner();
    for mode in [Mode::Offload, Mode::Wire] {
        let (line, other) = (plain_in(&owner, mode), plain_in(&owner, mode));
        let cpus = Cpus::new([1]);
        let threads = line.0.poll_on(&cpus).expect("threads");
        let others = other.0.poll_on(&cpus).expect("threads");
        // Six ends with two queues each; those of another line with the same names are other ones.
        assert_eq!((threads.len(), others.len()), (12, 12));
        assert!(threads.iter().all(|t| !others.contains(t)), "{threads:?} {others:?}");
        for thread in &threads {
            assert!(name_of(*thread).starts_with("napi/"), "{}", name_of(*thread));
            let status = fs::read_to_string(format!("/proc/{thread}/status")).expect("a thread");
            assert!(status.contains("Cpus_allowed_list:\t1\n"), "{status}");
        }
        let time = || threads.iter().map(|t| time_of(*t)).sum::<u64>();
        let (before, idle) = (time(), others.iter().map(|t| time_of(*t)).sum::<u64>());
        let shape = Shape { payload: 64, mix: None, flows: 10, family: Family::V4, tag: 3 };
        let offer = Offer { rate: Some(10_000.0), packets: 5_000, at_most: Duration::from_secs(20) };
        let (sent, counted) = trial(&line.0, line.1, shape, offer);
        // A thread that waits for its processor may lose some.
        let arrived = counted.received.unique;
        assert!(arrived * 2 >= sent.sent && arrived > 0, "{mode}: {sent:?} {counted:?}");
        // Each packet was received three times, and they did it; for a link of another line they do
        // nothing.
        let took = time() - before;
        assert!(took > 3 * arrived * 200, "{mode}: {took} ns for {arrived}");
        assert!(others.iter().map(|t| time_of(*t)).sum::<u64>() - idle < took / 2);
        drop(line);
        drop(other);
        let patience = now() + Duration::from_secs(20);
        while threads.iter().chain(&others).any(|t| name_of(*t).starts_with("napi/")) {
            assert!(now() < patience, "threads of a line that is gone");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn damaged_repeated_and_reordered_packets_on_the_wire_are_counted() {
    let _alone = alone();
    let owner = owner();
    let (line, _) = plain(&owner);
    let shape = Shape { payload: 200, mix: None, flows: 2, family: Family::V4, tag: 9 };
    let receiver = Receiver::start(line.node(Node::B), PORT, shape, now(), None).expect("a receiver");
    let socket =
        line.node(Node::A).inside(|| UdpSocket::bind((address::A, 0))).expect("inside").expect("a socket");
    let packet = |number: u32, flow: u32| {
        let mut payload = vec![0; shape.payload];
        payload[frame::MIN_PAYLOAD..]
            .copy_from_slice(&frame::pattern()[..shape.payload - frame::MIN_PAYLOAD]);
        shape.write(&Mark { number, time: 0, flow }, &mut payload);
        payload
    };
    let mut damaged = packet(6, 0);
    damaged[150] ^= 0x10;
    let short = packet(7, 0)[..100].to_vec();
    let packets =
        [packet(0, 0), packet(4, 0), packet(2, 0), packet(3, 1), packet(4, 0), damaged, short, vec![]];
    // One by one and from one processor, so that no queue on the way puts them into another order.
    let send = || {
        for p in packets {
            socket.send_to(&p, (address::B, PORT)).expect("sent");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    Cpus::new([0]).while_pinned(send).expect("pinned");
    let r = receiver.finish().received;
    assert_eq!((r.unique, r.duplicates, r.reordered, r.corrupt), (4, 1, 1, 3));
}

#[test]
fn a_rate_is_held_and_what_cannot_be_sent_is_said() {
    let _alone = alone();
    let owner = owner();
    let (line, route) = plain(&owner);
    let shape = Shape { payload: 18, mix: None, flows: 3, family: Family::V4, tag: 1 };
    let offer = Offer { rate: Some(2_000.0), packets: 2_000, at_most: Duration::from_secs(30) };
    let (sent, counted) = trial(&line, route, shape, offer);
    assert_eq!(sent.intended, 2_000);
    assert!((0.9..31.0).contains(&sent.seconds), "{sent:?}");
    assert!(counted.received.unique <= sent.sent);
    // More than any machine sends from one thread: the difference is unsent, and nothing is made up
    // for later.
    let offer = Offer { rate: Some(1e9), packets: u64::MAX, at_most: Duration::from_millis(300) };
    let (sent, _) = trial(&line, route, Shape { tag: 2, ..shape }, offer);
    assert_eq!(sent.intended, sent.sent + sent.unsent);
    assert!(sent.unsent > sent.sent && sent.seconds < 30.0, "{sent:?}");
}

#[test]
fn threads_stay_where_they_are_put() {
    let pinned = Cpus::new([0]).while_pinned(|| {
        let text = fs::read_to_string("/proc/thread-self/status").expect("status");
        Ok(text
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
            .expect("a list")
            .trim()
            .to_string())
    });
    assert_eq!(pinned.expect("pinned"), "0");
}

/// Every trial of a run, from its raw files.
fn trials(report: &Report) -> Vec<Value> {
    let files: BTreeSet<&String> = report.record.samples.iter().flat_map(|s| &s.files).collect();
    let texts = files.into_iter().map(|f| fs::read_to_string(report.folder.join(f)).expect(f));
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.map(|line| serde_json::from_str(&line).expect("a trial")).collect()
}

#[test]
fn a_flood_run_accounts_for_every_packet_and_leaves_nothing_behind() {
    common::assert_root();
    let _alone = alone();
    let report = flood(FloodOptions {
        duts: vec!["plain".into()],
        payloads: vec![18],
        flows: vec![10],
        placements: vec![Spread::Free, Spread::OwnCore, Spread::OwnCoreThreads],
        smoke: true,
        out: Some(common::out("flood")),
        ..FloodOptions::default()
    })
    .expect("a run");
    let record = &report.record;
    assert_eq!((record.values("load", &Factors::new()).len(), record.faults().len()), (3, 0));
    let trials = trials(&report);
    for t in &trials {
        let count = |pointer: &str| t.pointer(pointer).and_then(Value::as_i64).expect(pointer);
        let places = t["account"]["places"].as_array().expect("places").iter();
        let lost: i64 = places.map(|p| p["packets"].as_i64().expect("a number")).sum();
        let rest = count("/account/received") + lost + count("/account/unexplained");
        assert_eq!(count("/account/sent"), rest, "{t}");
        assert_eq!(count("/account/sent"), count("/sent/sent"));
        assert_eq!(count("/sent/intended"), count("/sent/sent") + count("/sent/unsent"));
        assert_eq!(count("/received/corrupt"), 0);
    }
    let of = |part: &'static str| record.figures.iter().filter(move |f| f.factors["part"] == part);
    // The tester alone, under every load, stands beside what the gateways carry.
    let alone = of("alone").filter(|f| f.number("kpps", Which::Median).is_some_and(|k| k > 0.0));
    assert_eq!(alone.count(), 3);
    let beside = of("throughput").filter(|f| f.factors["loss"] == "any");
    let measures = ["tester_kpps", "tester_limited"];
    assert!(beside.into_iter().all(|f| measures.iter().all(|m| f.number(m, Which::Median).is_some())));
    let peaks = of("throughput").filter(|f| f.factors["loss"] == "any");
    assert_eq!(peaks.filter(|f| f.number("kpps", Which::Median).is_some_and(|k| k > 0.0)).count(), 3);
    assert_eq!(of("curve").count(), 6);
    let commands = &record.commands;
    assert!(commands.iter().any(|c| c.contains("ip netns add ironlab-")), "{commands:?}");
    assert_eq!(left(commands), [""; 0]);
    assert!(report.folder.join("run.json").exists());
    let (status, said) = recompute(&report.folder);
    assert_eq!(status, Some(0), "{said}");
    fs::remove_dir_all(&report.folder).expect("remove");
}

/// Ids of the kernel's threads that poll a device of this name.
fn polling(device: &str) -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    ids.filter(|id| name_of(*id).starts_with(&format!("napi/{device}-"))).collect()
}

#[test]
fn the_placement_with_threads_has_them_while_it_runs_and_carries_packets() {
    common::assert_root();
    let _alone = alone();
    let before = polling("wan");
    let options = FloodOptions {
        duts: vec!["plain".into()],
        payloads: vec![64],
        flows: vec![1],
        placements: vec![Spread::OwnCoreThreads],
        smoke: true,
        out: Some(common::out("flood-threads")),
        ..FloodOptions::default()
    };
    let (seen, report) = std::thread::scope(|scope| {
        let run = scope.spawn(|| flood(options));
        let mut seen = BTreeSet::new();
        while !run.is_finished() {
            seen.extend(polling("wan").difference(&before));
            std::thread::sleep(Duration::from_millis(20));
        }
        (seen, run.join().expect("no panic").expect("a run"))
    });
    // Both gateways' ends of the link between them, with two queues each.
    assert!(seen.len() >= 4, "{seen:?}");
    let trials = trials(&report);
    assert!(trials.iter().any(|t| t["received"]["unique"].as_u64() > Some(0)), "nothing was carried");
    assert!(trials.iter().all(|t| t["load"]["placement"] == "own-core-threads"));
    let text = serde_json::to_value(&report.record).expect("JSON");
    assert_eq!(ironswan_lab::schema::breaches(&text), [""; 0]);
    let (status, said) = recompute(&report.folder);
    assert_eq!(status, Some(0), "{said}");
    let patience = now() + Duration::from_secs(20);
    while !polling("wan").is_disjoint(&seen) {
        assert!(now() < patience, "threads of a run that is over");
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_dir_all(&report.folder).expect("remove");
}

#[test]
fn options_of_a_flood_that_make_no_sense_are_refused() {
    for change in [
        |o: &mut FloodOptions| o.payloads = vec![17],
        |o: &mut FloodOptions| o.payloads = vec![1400],
        |o: &mut FloodOptions| o.flows = vec![0],
        |o: &mut FloodOptions| o.goals = vec![],
        |o: &mut FloodOptions| o.goals = vec![1.5],
        |o: &mut FloodOptions| o.multiples = vec![0.0],
        |o: &mut FloodOptions| o.duts = vec!["opensvan".into()],
    ] {
        let mut o = FloodOptions::default();
        change(&mut o);
        let e = flood(o).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
}
