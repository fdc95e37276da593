//! Captures as they are, as they should not be, and as nobody would write them.

use std::time::Duration;

use super::*;

const MICROS: [u8; 4] = [0xa1, 0xb2, 0xc3, 0xd4];
const NANOS: [u8; 4] = [0xa1, 0xb2, 0x3c, 0x4d];

/// Words in the byte order of a file.
fn words(big: bool, all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
}

/// A classic file of one kind of link: the time (seconds and the unit of the magic number) and the
/// bytes of each frame.
fn classic(big: bool, magic: [u8; 4], link: u32, frames: &[((u32, u32), Vec<u8>)]) -> Vec<u8> {
    let magic = u32::from_be_bytes(magic);
    let mut file = words(big, &[magic, if big { 2 << 16 | 4 } else { 4 << 16 | 2 }, 0, 0, 65_535, link]);
    for ((seconds, part), frame) in frames {
        let len = frame.len() as u32;
        file.extend(words(big, &[*seconds, *part, len, len]));
        file.extend(frame);
    }
    file
}

/// A block of pcapng.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = body.len() as u32 + 12;
    [words(big, &[kind, length]), body, words(big, &[length])].concat()
}

fn section(big: bool) -> Vec<u8> {
    let version = words(big, &[if big { 1 << 16 } else { 1 }]);
    block(big, 0x0a0d_0d0a, &[words(big, &[0x1a2b_3c4d]), version, vec![0xff; 8]].concat())
}

fn interface(big: bool, link: u16, options: &[u8]) -> Vec<u8> {
    let head = if big { words(big, &[u32::from(link) << 16, 0]) } else { words(big, &[u32::from(link), 0]) };
    block(big, 1, &[head, options.to_vec()].concat())
}

/// A packet at so many counts of its interface's clock.
fn enhanced(big: bool, interface: u32, counts: u64, frame: &[u8]) -> Vec<u8> {
    let len = frame.len() as u32;
    let head = words(big, &[interface, (counts >> 32) as u32, counts as u32, len, len]);
    block(big, 6, &[head, frame.to_vec()].concat())
}

/// An IPv4 packet with UDP from that port, of which only the headers are there.
fn v4(size: u16, port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(size.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 53, 0, 0, 0, 0]);
    packet
}

/// An IPv6 packet with TCP behind a header for every hop.
fn v6(payload: u16, port: u16) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(payload.to_be_bytes());
    packet.extend([0, 64]);
    packet.extend([[1; 16], [2; 16]].concat());
    packet.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 80, 0, 0, 0, 0]);
    packet
}

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    [vec![2; 12], kind.to_be_bytes().to_vec(), packet.to_vec()].concat()
}

fn read_bytes(file: &[u8]) -> Result<Capture, String> {
    from(file)
}

/// Sizes, flows and gaps in microseconds.
fn packets(file: &[u8]) -> Vec<(u32, u32, u128)> {
    let capture = read_bytes(file).expect("a capture");
    capture.packets.iter().map(|p| (p.size, p.flow, p.gap.as_micros())).collect()
}

#[test]
fn sizes_gaps_and_flows_are_read_in_every_form_of_the_files() {
    let frames: Vec<Vec<u8>> = vec![
        ethernet(0x0800, &v4(1500, 7)),
        ethernet(0x86dd, &v6(60, 9)),
        ethernet(0x0800, &v4(40, 8)),
        ethernet(0x0800, &v4(1500, 7)),
    ];
    let expected = [(1500, 0, 0), (100, 1, 250), (40, 2, 0), (1500, 0, 1_000_000)];
    let times = [(5, 0), (5, 250), (5, 250), (6, 250)];
    for big in [false, true] {
        for (magic, unit) in [(MICROS, 1), (NANOS, 1000)] {
            let all: Vec<_> =
                times.iter().map(|(s, part)| (*s, part * unit)).zip(frames.iter().cloned()).collect();
            assert_eq!(packets(&classic(big, magic, 1, &all)), expected, "{big}, {unit}");
        }
        // Micro- and nanoseconds, a power of two; and a block of a kind that nobody knows.
        for (options, counts) in [
            (vec![], 1_000_000.0),
            ([words(big, &[if big { 9 << 16 | 1 } else { 1 << 16 | 9 }]), vec![9, 0, 0, 0]].concat(), 1e9),
            (
                [words(big, &[if big { 9 << 16 | 1 } else { 1 << 16 | 9 }]), vec![0x94, 0, 0, 0]].concat(),
                1_048_576.0,
            ),
        ] {
            let mut file = [section(big), interface(big, 1, &options), block(big, 77, &[1; 9])].concat();
            for ((seconds, micros), frame) in times.iter().zip(&frames) {
                let at = (f64::from(*seconds) + f64::from(*micros) / 1e6) * counts;
                file.extend(enhanced(big, 0, at.round() as u64, frame));
            }
            let got = packets(&file);
            let near = |a: u128, b: u128| a.abs_diff(b) <= 1;
            let same =
                |(g, e): (&(u32, u32, u128), &(u32, u32, u128))| (g.0, g.1) == (e.0, e.1) && near(g.2, e.2);
            assert!(got.len() == 4 && got.iter().zip(&expected).all(same), "{big}, {counts}: {got:?}");
        }
    }
    // Without times, of the first interface.
    let simple =
        |frame: &[u8]| block(false, 3, &[words(false, &[frame.len() as u32]), frame.to_vec()].concat());
    let file = [section(false), interface(false, 1, &[]), simple(&frames[0]), simple(&frames[2])].concat();
    let capture = read_bytes(&file).expect("a capture");
    assert_eq!((capture.packets.len(), capture.unused.without_time, capture.rate()), (2, 2, None));
    // A second section, in the other byte order, has interfaces of its own.
    let second = [section(true), interface(true, 101, &[]), enhanced(true, 0, 9, &v4(99, 1))].concat();
    assert_eq!(packets(&[file, second].concat()).last().map(|p| p.0), Some(99));
}

#[test]
fn every_kind_of_link_is_read_and_what_is_left_out_is_said() {
    let v4 = || v4(100, 7);
    let cooked = |kind: u16| [vec![0; 14], kind.to_be_bytes().to_vec()].concat();
    let cooked2 = |kind: u16| [kind.to_be_bytes().to_vec(), vec![0; 18]].concat();
    let tagged = [vec![2; 12], vec![0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0], v4()].concat();
    for (link, frame) in [
        (1, ethernet(0x0800, &v4())),
        (1, tagged),
        (101, v4()),
        (12, v4()),
        (228, v4()),
        (113, [cooked(0x0800), v4()].concat()),
        (276, [cooked2(0x0800), v4()].concat()),
        // The length of a frame's check sequence is in the same word.
        (1 | 0x5000_0000, ethernet(0x0800, &v4())),
    ] {
        assert_eq!(packets(&classic(false, MICROS, link, &[((1, 0), frame)])), [(100, 0, 0)], "{link}");
    }
    for (link, frame) in [(229, v6(60, 1)), (113, [cooked(0x86dd), v6(60, 1)].concat())] {
        let capture = read_bytes(&classic(true, NANOS, link, &[((1, 0), frame)])).expect("a capture");
        assert_eq!((capture.packets[0].size, capture.unused.ipv6), (100, 1));
    }
    let mut second = ethernet(0x0800, &v4());
    second.truncate(20);
    let all = [
        ((9, 0), ethernet(0x0806, &[0; 28])),
        ((9, 1), ethernet(0x0800, &v4())),
        ((9, 2), second),
        ((9, 3), ethernet(0x0800, &[0x42; 40])),
        // Before the one before.
        ((3, 0), ethernet(0x0800, &v4())),
        ((19, 0), ethernet(0x0800, &v4())),
    ];
    let mut file = classic(false, MICROS, 1, &all);
    file.extend([1, 2, 3]);
    let capture = read_bytes(&file).expect("a capture");
    let unused = &capture.unused;
    assert_eq!((capture.packets.len(), unused.not_ip, unused.damaged), (3, 1, 2));
    assert_eq!((unused.without_time, unused.pauses, unused.cut_off, unused.more), (1, 1, true, false));
    assert_eq!(capture.duration(), Duration::from_secs(1));
    let said = capture.to_string();
    for part in [
        "3 IP packets of 100 to 100 bytes (100 on average) in 1 flows, 3 a second for 1.000 s",
        "; 1 frames without IP are left out",
        "; 2 frames with a damaged or cut off IP header are left out",
        "; 1 packets have no time of their own",
        "; 1 pauses of more than a second are cut to one",
        "; the file ends within a packet, which is left out",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Fragments: the later ones have no ports, and belong to the flow of their addresses.
    let mut later = v4();
    later[6..8].copy_from_slice(&[0, 9]);
    let fragments = [((1, 0), v4()), ((1, 0), later)];
    assert_eq!(packets(&classic(false, MICROS, 101, &fragments)), [(100, 0, 0), (100, 1, 0)]);
    // Two interfaces, one of which nobody can read.
    let file = [
        section(false),
        interface(false, 127, &[]),
        interface(false, 101, &[]),
        enhanced(false, 0, 1, &[0; 30]),
        enhanced(false, 1, 2, &v4()),
    ]
    .concat();
    let said = read_bytes(&file).expect("a capture").to_string();
    assert!(said.contains("; 1 frames of links of type 127 cannot be read and are left out"), "{said}");
}

#[test]
fn what_is_no_capture_is_refused_with_what_to_do() {
    let frame = || ethernet(0x0800, &v4(100, 7));
    let whole = classic(false, MICROS, 1, &[((1, 0), frame())]);
    let mut huge = whole.clone();
    huge[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let begin = [section(false), interface(false, 1, &[])].concat();
    let with = |more: Vec<u8>| [begin.clone(), more].concat();
    let mut uneven = enhanced(false, 0, 1, &frame());
    let end = uneven.len();
    uneven[end - 4] ^= 4;
    let fine = [words(false, &[1 << 16 | 9]), vec![0x7f, 0, 0, 0]].concat();
    for (file, said) in [
        (vec![], "it has no more than a few bytes: write it with `tcpdump"),
        (
            b"GIF89a, and so on".to_vec(),
            "it is no capture in the form of pcap or pcapng: write it with `tcpdump",
        ),
        (whole[..20].to_vec(), "its header is cut off: write it with"),
        (vec![0x1f, 0x8b, 8, 0], "it is compressed: unpack it first with `gunzip`"),
        (vec![0x28, 0xb5, 0x2f, 0xfd], "it is compressed: unpack it first with `unzstd`"),
        (whole[..24].to_vec(), "it has no IP packet (0 frames without IP, 0 damaged): capture IPv4 or IPv6"),
        (
            classic(false, MICROS, 127, &[((1, 0), frame())]),
            "it has no IP packet (1 frames of links of type 127; 0",
        ),
        (huge, "packet 1 is said to have 4294967295 bytes: the file is damaged from there on; cut it"),
        (with(words(false, &[6, 4])), "block 3 says that it has 4 bytes: the file is damaged from there on"),
        (with(words(false, &[6, 0xffff_fffc])), "block 3 says that it has 4294967292 bytes"),
        (with(uneven), "block 3 has two different lengths"),
        (with(enhanced(false, 1, 1, &frame())), "block 3 is of an interface that nothing describes"),
        (with(block(false, 6, &[0; 8])), "block 3 is shorter than its packet"),
        (with(interface(false, 1, &fine)), "block 3 has a clock that is too fine"),
        ([pcapng::MAGIC.to_vec(), vec![0; 30]].concat(), "it begins as pcapng does, and is none"),
    ] {
        let why = read_bytes(&file).expect_err(said);
        assert!(why.starts_with(said), "{said}: {why}");
    }
    let out = std::env::temp_dir().join(format!("ironswan-capture-{}", std::process::id()));
    std::fs::write(&out, &whole).expect("written");
    assert_eq!(read(&out).map(|c| c.packets.len()), Ok(1));
    std::fs::remove_file(&out).expect("removed");
    for path in ["/dev/zero", "/proc", "/nowhere/at-all"] {
        let why = read(Path::new(path)).expect_err(path);
        assert!(why.starts_with(path) && why.contains("name a capture file"), "{why}");
    }
}

/// Numbers that differ from run to run of nothing.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// Cut off anywhere, with any byte changed, with anything behind: it is read as far as it goes or
/// refused, always with packets that are possible.
#[test]
fn nothing_that_a_file_holds_makes_it_panic_or_read_what_is_not_there() {
    let frames = || {
        let all = [ethernet(0x0800, &v4(1500, 7)), ethernet(0x86dd, &v6(60, 9)), ethernet(0x0806, &[0; 20])];
        all.into_iter().map(|frame| ((1, 5), frame))
    };
    let ng = [
        section(false),
        interface(false, 1, &[words(false, &[1 << 16 | 9]), vec![6, 0, 0, 0]].concat()),
        frames().flat_map(|(_, frame)| enhanced(false, 0, 99, &frame)).collect(),
        block(false, 3, &[words(false, &[40]), v4(40, 1)].concat()),
    ]
    .concat();
    let files = [classic(true, MICROS, 1, &frames().collect::<Vec<_>>()), ng];
    let sound = |file: &[u8]| match read_bytes(file) {
        Ok(capture) => {
            assert!((1..=file.len() / 16).contains(&capture.packets.len()));
            assert!(capture.packets.iter().all(|p| p.size >= 20 && p.flow < capture.flows && p.gap <= PAUSE));
        }
        Err(why) => assert!(why.len() > 20, "{why}"),
    };
    let mut random = Random(1);
    for file in &files {
        (0..file.len()).for_each(|end| sound(&file[..end]));
        for _ in 0..20_000 {
            let mut other = file.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(other.len());
                other[at] = [0, 0xff, 0x80, random.below(256) as u8][random.below(4)];
            }
            sound(&other);
        }
    }
    for _ in 0..2_000 {
        let anything: Vec<u8> = (0..random.below(300)).map(|_| random.below(256) as u8).collect();
        for magic in [&pcapng::MAGIC[..], &MICROS, &[0xd4, 0xc3, 0xb2, 0xa1]] {
            sound(&[magic, &anything].concat());
        }
    }
}

/// A file without an end: no more is kept, and no more is read than is kept.
#[test]
fn a_file_of_any_size_is_read_up_to_a_bound() {
    struct Endless {
        record: Vec<u8>,
        read: usize,
    }
    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let at = self.read % self.record.len();
            let n = into.len().min(self.record.len() - at);
            into[..n].copy_from_slice(&self.record[at..at + n]);
            self.read += n;
            Ok(n)
        }
    }
    let one = classic(false, MICROS, 101, &[((1, 0), v4(100, 7))]);
    let (header, record) = one.split_at(24);
    let mut endless = Endless { record: record.to_vec(), read: 0 };
    let capture = from(header.chain(&mut endless)).expect("a capture");
    assert_eq!((capture.packets.len(), capture.unused.more), (MOST, true));
    assert_eq!(endless.read, MOST * record.len());
    assert!(capture.to_string().ends_with("; what the file has behind them is left out"));
}
