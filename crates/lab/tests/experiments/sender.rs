//! The sockets by which the generator's frames leave. Needs root, nft and ethtool, setpriv, and a
//! kernel with AF_XDP.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use crate::common::commands::{LAB, Scratch, stderr, stdout};
use crate::common::{self, common, left, now, owner, sound};
use ironswan_io::mmsg::RecvSlots;
use ironswan_io::packet::PacketSocket;
use ironswan_io::xdp::XdpSender;
use ironswan_lab::load::capture::Pace;
use ironswan_lab::load::frame::{Burst, Family, Frames, Mix, Route, Row, Shape};
use ironswan_lab::load::{self, BATCH, Offer, Outlet, SendBy, Sender, Sent};
use ironswan_lab::record::{Which, factors};
use ironswan_lab::topology::{DIRECT_DEVICE, Direct, Mode, address};
use ironswan_lab::{FrameSize, LabError, Rfc2544Options, TrafficOptions, rfc2544};

/// Frames all of which were sent at one moment, whatever the clock says.
struct Still(Frames);

impl Burst for Still {
    fn make(&mut self, first: u32, count: usize, _: u64) -> Result<(), LabError> {
        self.0.make(first, count, 42_000)
    }

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn row(&self, first: u32, count: usize, at: usize) -> Row {
        self.0.row(first, count, at)
    }

    fn lens(&self) -> Option<&[usize]> {
        self.0.lens()
    }
}

/// The frames of the generator that arrive at `socket`, of which `expected` were sent.
fn captured(socket: &PacketSocket, expected: usize) -> Vec<Vec<u8>> {
    const SLOT: usize = 9216;
    let (mut slots, mut buffer, mut frames) = (RecvSlots::new(64), vec![0; 64 * SLOT], Vec::new());
    let patience = now() + Duration::from_secs(20);
    while frames.len() < expected && now() < patience {
        let mut received = Vec::new();
        if slots.recv(socket.as_fd(), &mut buffer, SLOT, 0, &mut received).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let all = received.iter().map(|r| buffer[r.offset..r.offset + r.len].to_vec());
        // What neighbours ask each other is not the generator's.
        frames.extend(all.filter(|frame| frame.get(6..12) == Some(&[2, 0, 0, 0, 0, 1])));
    }
    assert_eq!(socket.take_drops(), 0);
    frames
}

/// The most packets that a trial of these tests has.
const PACKETS: u64 = 2_000;

/// What one trial sends from a to b, and what arrives at b's end of the link.
fn trial(pair: &Direct, route: Route, shape: Shape, pace: Pace, by: SendBy) -> (Sent, Vec<Vec<u8>>) {
    let listen = || PacketSocket::listen(DIRECT_DEVICE, 64, 64 << 20).expect("a socket");
    let socket = pair.b().inside(listen).expect("inside");
    let outlet = Outlet { interface: DIRECT_DEVICE, by, queue: 0 };
    let offer = Offer { rate: Some(20_000.0), packets: PACKETS, at_most: Duration::from_secs(20) };
    let frames = &mut Still(Frames::new(shape, route, BATCH));
    let sender = &mut Sender::open(pair.a(), outlet, frames).expect("a sender");
    let sent = load::generate_paced(pair.a(), (sender, frames), (offer, pace), now(), None).expect("sent");
    let arrived = captured(&socket, sent.sent as usize);
    (sent, arrived)
}

#[test]
fn both_generators_send_the_same_packets_in_the_same_order_byte_for_byte() {
    let owner = owner();
    let pair = Direct::build(&owner, Mode::Wire, 8982).expect("a link");
    let route = load::route([2, 0, 0, 0, 0, 9], address::B, 7007).expect("a route");
    let captured = (0..600u16).map(|n| (18 + n * 37 % 1400, u32::from(n % 7))).collect();
    let shape = |payload, family| Shape { payload, mix: None, flows: 5, family, tag: 7 };
    let mixed = |mix| Shape { mix: Some(mix), ..shape(1472, Family::V4) };
    for (shape, pace) in [
        (shape(18, Family::V4), Pace::Even),
        (shape(1452, Family::V6), Pace::Bursts(200)),
        // More than two pages, and more than one.
        (shape(8954, Family::V4), Pace::Bursts(100)),
        (shape(4000, Family::V4), Pace::Even),
        (mixed(Mix::simple([18, 512, 1472])), Pace::Even),
        (mixed(Mix::captured(captured).expect("packets")), Pace::Bursts(32)),
    ] {
        let [packet, xdp] = [SendBy::Packet, SendBy::Xdp].map(|by| trial(&pair, route, shape, pace, by));
        for (sent, frames) in [&packet, &xdp] {
            assert_eq!(sent.intended, sent.sent + sent.unsent, "{shape:?}");
            assert_eq!(frames.len() as u64, sent.sent - sent.refused, "{shape:?}: {sent:?}");
        }
        // What a pause of the machine keeps from being sent is missing at the end.
        let both = packet.1.len().min(xdp.1.len());
        assert!(both as u64 > PACKETS / 10, "{shape:?}: {:?} {:?}", packet.0, xdp.0);
        for (n, (a, b)) in packet.1.iter().zip(&xdp.1).enumerate() {
            assert!(a == b, "{shape:?}: packet {n}: {a:02x?} and {b:02x?}");
        }
        assert_eq!(packet.1[0].len(), 14 + shape.family.headers() + shape.len(0));
    }
}

#[test]
fn a_queue_that_somebody_has_is_a_sentence_and_one_that_was_left_is_free_again() {
    let owner = owner();
    let pair = Direct::build(&owner, Mode::Wire, 1500).expect("a link");
    let route = load::route([2, 0, 0, 0, 0, 9], address::B, 7007).expect("a route");
    let shape = Shape { payload: 18, mix: None, flows: 1, family: Family::V4, tag: 1 };
    let offer = Offer { rate: Some(1_000.0), packets: 20, at_most: Duration::from_secs(20) };
    let send = |queue| {
        let outlet = Outlet { interface: DIRECT_DEVICE, by: SendBy::Xdp, queue };
        let frames = &mut Frames::new(shape, route, BATCH);
        let sender = &mut Sender::open(pair.a(), outlet, frames)?;
        load::generate_paced(pair.a(), (sender, frames), (offer, Pace::Even), now(), None)
    };
    let open = || XdpSender::open(DIRECT_DEVICE, 0, 1514, 1 << 20).expect("a sender");
    let taken = pair.a().inside(open).expect("inside");
    let said = send(0).expect_err("taken").to_string();
    assert!(said.contains("an AF_XDP socket cannot be opened") && said.contains("ip link show"), "{said}");
    // The other queue is free, and so is this one afterwards, again and again.
    assert_eq!(send(1).map(|sent| sent.sent + sent.unsent).expect("sent"), 20);
    drop(taken);
    for _ in 0..3 {
        assert_eq!(send(0).map(|sent| sent.sent + sent.unsent).expect("sent"), 20);
    }
}

#[test]
fn a_run_by_af_xdp_measures_its_tester_so_too_and_leaves_nothing() {
    let options = Rfc2544Options {
        common: common("rfc2544-xdp", &["plain"]),
        sizes: vec![FrameSize::Bytes(64), FrameSize::Bytes(9000)],
        losses: vec![0.05],
        traffic: TrafficOptions {
            burst: Some(16),
            threads: Some(2),
            generator: SendBy::Xdp,
            ..TrafficOptions::default()
        },
        ..Rfc2544Options::default()
    };
    let report = rfc2544(options).expect("a run");
    let record = &report.record;
    sound(record);
    let said = ["generator", "threads", "bursts"].map(|name| record.settings[name].as_str());
    assert_eq!(said[0], "af_xdp");
    assert!(said[1].starts_with("2 that send") && said[2].starts_with("16 packets at once"), "{said:?}");
    for size in ["64", "9000"] {
        let of = |part: &str, more: &[(&str, &str)]| {
            let mut all = factors([("part", part), ("direction", "a to b"), ("size", size)]);
            all.extend(more.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())));
            record.figure(&all).unwrap_or_else(|| panic!("no {all:?}"))
        };
        let alone = of("alone", &[("loss", "flood")]);
        let flood = of("curve", &[("offered", "flood"), ("dut", "plain")]);
        for figure in [alone, flood] {
            assert!(figure.number("kpps", Which::Median) > Some(0.0), "{figure:?}");
        }
    }
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn without_the_right_to_open_such_a_socket_nothing_is_made_and_the_remedy_is_said() {
    common::assert_root();
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_raw", LAB, "rfc2544", "--smoke", "--generator", "af_xdp", "--out"]);
    let done = command.arg(&out).output().expect("setpriv");
    let said = stderr(&done);
    assert!(said.contains("this user may not open an AF_XDP socket (--generator af_xdp)"), "{said}");
    assert!(said.contains("run it as root with CAP_NET_RAW, or leave out --generator af_xdp"), "{said}");
    assert!(!done.status.success() && stdout(&done).is_empty() && !out.exists(), "{said}");
}
