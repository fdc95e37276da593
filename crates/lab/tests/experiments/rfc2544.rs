//! The experiment `rfc2544` in its shortest form. Needs root, nft and OpenVPN, and the program
//! `ironswan` beside this test for one gateway alone.

use crate::common::{self, common, left, program, sound};
use ironswan_lab::dut::Encap;
use ironswan_lab::record::{Figure, Which, factors};
use ironswan_lab::{FrameSize, LabError, Rfc2544Options, Rfc2544Setup, TrafficOptions, rfc2544};

/// Whether two figures are the same but for rounding. Both may be nothing: a gateway that gets no
/// processor for a while loses all of so short a trial.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= b * 1e-6
}

/// Latencies are there if and only if packets arrived, and in order. On a busy machine a tenth of
/// what was carried may be no packet at all in so short a trial.
fn percentiles(latency: &Figure) {
    let some = latency.number("kpps", Which::Median).is_some_and(|k| k > 0.0);
    let p = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(|n| latency.number(n, Which::Median));
    assert!(p.iter().all(|p| p.is_some_and(|p| p > 0.0) == some), "{latency:?}");
    assert!(p.windows(2).all(|w| w[0].unwrap_or(0.0) <= w[1].unwrap_or(0.0) * 1.02), "{latency:?}");
}

/// Devices of tunnels that were given the MTU of the largest inner packets.
fn given_an_mtu(commands: &[String]) -> usize {
    commands.iter().filter(|c| c.contains(" link set ") && c.ends_with(" mtu 1500")).count()
}

#[test]
fn throughput_latency_and_the_curve_of_a_mix_both_ways_follow_from_what_was_sent() {
    let options = Rfc2544Options {
        common: common("rfc2544", &["plain", "openvpn"]),
        sizes: vec![FrameSize::Bytes(1518), FrameSize::Imix],
        directions: vec!["both".parse().expect("a direction")],
        losses: vec![0.0, 0.05],
        ..Rfc2544Options::default()
    };
    let report = rfc2544(options).expect("a run");
    let record = &report.record;
    sound(record);
    let mut carried = 0.0;
    for dut in ["plain", "openvpn"] {
        let flood = factors([
            ("part", "curve"),
            ("direction", "both ways"),
            ("size", "1518"),
            ("offered", "flood"),
            ("dut", dut),
        ]);
        let flood = record.figure(&flood).expect("a flood");
        let number = |name: &str| flood.number(name, Which::Median).expect("a number");
        // 1500 bytes of each frame are the inner packet.
        assert!(close(number("inner_gbps"), number("kpps") * 1e3 * 1500.0 * 8.0 / 1e9), "{flood:?}");
        carried += number("kpps");
        // Every packet that arrived crossed the outer link, in a frame no smaller than it came in.
        assert!(number("outer_gbps") >= number("inner_gbps") * 1518.0 / 1500.0 * 0.999, "{flood:?}");
        let latency = factors([
            ("part", "latency"),
            ("direction", "both ways"),
            ("size", "IMIX"),
            ("load", "10%"),
            ("dut", dut),
        ]);
        percentiles(record.figure(&latency).expect("a latency"));
    }
    assert!(carried > 0.0, "neither carried anything in any direction");
    // What crossed the outer link was counted outside of the systems.
    assert!(record.settings["crossed, plain"].contains(" 0 WireGuard or OpenVPN"), "{:?}", record.settings);
    assert!(record.settings["crossed, openvpn"].ends_with(" 0 other"), "{:?}", record.settings);
    assert_eq!(record.history.first().map(|h| h.then.contains("25 %")), Some(true));
    assert_eq!(given_an_mtu(&record.commands), 2);
    assert!(report.folder.join("run.json").exists());
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn one_gateway_encrypts_and_decrypts_what_the_tester_seals_and_opens_itself() {
    let Some(program) = program() else {
        eprintln!("ironswan is not built: left out");
        return;
    };
    let mut common = common("rfc2544-single", &["plain", "ironswan"]);
    common.dut_options.ironswan = Some(program);
    common.encaps = vec![Encap::Udp, Encap::Raw];
    let options = Rfc2544Options {
        common,
        setup: Rfc2544Setup::Single,
        sizes: vec![FrameSize::Bytes(1518)],
        losses: vec![0.05],
        ..Rfc2544Options::default()
    };
    let run = rfc2544(options).expect("a run");
    let record = &run.record;
    sound(record);
    assert_eq!(
        ironswan_lab::schema::breaches(&serde_json::to_value(record).expect("JSON")),
        Vec::<String>::new()
    );
    // Its routes have the MTU that fits; the device's own it would restore, and say that somebody
    // changed it.
    assert_eq!(given_an_mtu(&record.commands), 0);
    let mut carried = 0.0;
    for dut in ["plain", "ironswan", "ironswan-raw"] {
        for direction in ["encrypting", "decrypting"] {
            let of = |part: &str, name: &str, value: &str| {
                let mut all = factors([
                    ("part", part),
                    ("topology", "single gateway"),
                    ("direction", direction),
                    ("size", "1518"),
                    ("dut", dut),
                ]);
                all.insert(name.into(), value.into());
                record.figure(&all).unwrap_or_else(|| panic!("no {all:?}"))
            };
            let flood = of("curve", "offered", "flood");
            let number = |name: &str| flood.number(name, Which::Median).expect("a number");
            // No more arrives than is sent; what is inside is 1500 bytes, and outside there is more
            // around it.
            assert!(number("loss") <= 1.0, "{flood:?}");
            assert!(close(number("inner_gbps"), number("kpps") * 1e3 * 1500.0 * 8.0 / 1e9), "{flood:?}");
            carried += number("kpps");
            let around = if dut == "plain" { 1518.0 } else { 1518.0 + 20.0 + 8.0 + 8.0 + 2.0 + 16.0 };
            assert!(number("outer_gbps") >= number("inner_gbps") * around / 1500.0 * 0.999, "{flood:?}");
            // The tester sees the numbers of what the gateway has sealed, and of nothing else.
            let sealed = dut != "plain" && direction == "encrypting";
            assert_eq!(flood.number("missing", Which::Median).is_some(), sealed, "{flood:?}");
            percentiles(of("latency", "load", "10%"));
        }
        let came = &record.settings[&format!("came out, {dut}")];
        assert!(came.contains(" 0 repeated, 0 not authentic, 0 with another SPI"), "{came}");
    }
    assert!(carried > 0.0, "nothing came out of any of them");
    // The kernel has counted the ESP on the link for itself, and nothing in clear.
    for dut in ["ironswan", "ironswan-raw"] {
        let crossed = &record.settings[&format!("crossed, {dut}")];
        let ipsec: u64 = crossed.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(ipsec > 0 && crossed.ends_with(" 0 other"), "{crossed}");
        let own =
            factors([("part", "tester"), ("topology", "single gateway"), ("size", "1518"), ("dut", dut)]);
        let own = record.figure(&own).expect("the tester's own limit");
        assert!(own.number("seal_kpps", Which::Median) > Some(0.0), "{own:?}");
        assert!(own.number("open_kpps", Which::Median) > Some(0.0), "{own:?}");
    }
    assert!(common::recomputed(&run.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

/// A classic capture on a raw IP link: packets of these sizes with UDP, one flow for each.
fn capture(sizes: &[u16]) -> Vec<u8> {
    let mut file: Vec<u8> =
        [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 101].into_iter().flat_map(u32::to_be_bytes).collect();
    for (n, size) in (0_u32..).zip(sizes) {
        let mut packet = vec![0x45, 0];
        packet.extend(size.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([(n % 200) as u8, 9, 0, 53, 0, 0, 0, 0]);
        file.extend([1, n * n, packet.len() as u32, u32::from(*size)].into_iter().flat_map(u32::to_be_bytes));
        file.extend(packet);
    }
    file
}

#[test]
fn a_capture_large_frames_and_ipv6_cross_whole_and_the_tester_alone_stands_beside_them() {
    let path = common::out("rfc2544-mix.pcap");
    std::fs::write(&path, capture(&[40, 1400, 100, 1500, 52, 700])).expect("written");
    let mut systems = vec!["plain"];
    let mut common = common("rfc2544-mix", &[]);
    if let Some(program) = program() {
        common.dut_options.ironswan = Some(program);
        systems.push("ironswan");
    }
    common.duts = systems.iter().map(ToString::to_string).collect();
    let options = Rfc2544Options {
        common,
        sizes: vec![FrameSize::Bytes(9000)],
        traffic: TrafficOptions { mix: Some(path.clone()), ipv6: true, ..TrafficOptions::default() },
        losses: vec![0.05],
        ..Rfc2544Options::default()
    };
    let report = rfc2544(options).expect("a run");
    std::fs::remove_file(&path).expect("removed");
    let record = &report.record;
    sound(record);
    let said = &record.settings["mix"];
    assert!(said.starts_with("6 IP packets of 40 to 1500 bytes (632 on average) in 6 flows"), "{said}");
    assert!(
        said.ends_with("all are sent as UDP over IPv6; 2 packets of less than 66 bytes are sent with 66"),
        "{said}"
    );
    let flood = |part: &str, size: &str, more: (&str, &str), dut: Option<&str>| {
        let mut of = factors([("part", part), ("direction", "a to b"), ("size", size), more]);
        of.extend(dut.map(|dut| ("dut".to_string(), dut.to_string())));
        record.figure(&of).unwrap_or_else(|| panic!("no {of:?}"))
    };
    for size in ["9000", "mix"] {
        let alone = flood("alone", size, ("loss", "flood"), None);
        assert!(alone.number("sent_kpps", Which::Median) > Some(0.0), "{alone:?}");
        assert!(alone.number("kpps", Which::Median) > Some(0.0), "{alone:?}");
        for dut in &systems {
            let flood = flood("curve", size, ("offered", "flood"), Some(dut));
            let number = |name: &str| flood.number(name, Which::Median).expect("a number");
            assert!(number("kpps") > 0.0, "{flood:?}");
            let bytes =
                if size == "mix" { (66.0 + 1400.0 + 100.0 + 1500.0 + 66.0 + 700.0) / 6.0 } else { 8982.0 };
            let part = number("inner_gbps") / (number("kpps") * 1e3 * bytes * 8.0 / 1e9);
            assert!((part - 1.0).abs() < 1e-3, "{dut}, {size}: {part}");
        }
    }
    assert!(!record.warnings.iter().any(|w| w.kind == "fragments"), "{:?}", record.warnings);
    assert!(common::recomputed(&report.folder).contains(" raw trials"), "no trials were kept");
    assert_eq!(left(&record.commands), [""; 0]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for change in [
        |o: &mut Rfc2544Options| o.losses = vec![0.7],
        |o: &mut Rfc2544Options| o.flows = Some(0),
        |o: &mut Rfc2544Options| o.width = Some(0.9),
        |o: &mut Rfc2544Options| o.common.duts = vec!["opensvan".into()],
        |o: &mut Rfc2544Options| {
            o.common.duts = vec!["openvpn".into()];
            o.setup = Rfc2544Setup::Single;
        },
    ] {
        let mut o = Rfc2544Options::default();
        change(&mut o);
        let e = rfc2544(o).expect_err("nonsense");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
    assert!("63".parse::<FrameSize>().is_err());
}
