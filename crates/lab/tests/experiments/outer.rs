//! What crosses the outer link of the laboratory's line, counted outside of the program: by
//! tcpdump, and by the link's own counters of bytes. Needs root, tcpdump, and for tunnels the
//! program `ironswan` beside this test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{owner, program};
use ironswan_lab::dut::{DutOptions, Encap, by_name};
use ironswan_lab::load;
use ironswan_lab::topology::{Line, LineSpec, Mode, Node, Topology, address};

/// In clear, this stands in every segment of the load.
const MARK: &[u8; 16] = b"IN CLEAR, LOOK: ";
const DATA: usize = 4 << 20;

/// Bytes of frames, by what they are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Crossed {
    esp: u64,
    /// IKE and keepalives.
    ike: u64,
    /// ARP, and neighbour discovery.
    neighbours: u64,
    other: u64,
    /// Frames, of whatever kind, in which the mark stands.
    marked: u64,
}

impl Crossed {
    fn bytes(&self) -> u64 {
        self.esp + self.ike + self.neighbours + self.other
    }

    /// Reads what tcpdump has written.
    fn read(file: &[u8]) -> Self {
        assert_eq!(file[..4], 0xa1b2_c3d4_u32.to_le_bytes(), "a capture of this machine's byte order");
        let (mut crossed, mut at) = (Self::default(), 24);
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
        while at < file.len() {
            let (kept, len) = (word(at + 8), word(at + 12));
            assert_eq!(kept, len, "a whole frame");
            let frame = &file[at + 16..at + 16 + kept];
            crossed.count(frame);
            at += 16 + kept;
        }
        crossed
    }

    fn count(&mut self, frame: &[u8]) {
        let gateways =
            [address::G1, address::G2].map(|a| a.parse::<std::net::Ipv4Addr>().expect("one").octets());
        let of = match (&frame[12..14], frame.get(14..)) {
            ([8, 6], _) => &mut self.neighbours,
            // Neighbour discovery, and who listens to it (a hop-by-hop header before ICMPv6).
            ([0x86, 0xdd], Some(ip)) if ip[6] == 58 || ip[6] == 0 && ip[40] == 58 => &mut self.neighbours,
            ([8, 0], Some(ip)) => {
                let between = gateways.iter().all(|g| ip[12..16] == *g || ip[16..20] == *g);
                let next = &ip[4 * usize::from(ip[0] & 15)..];
                match (between, ip[9]) {
                    (true, 50) => &mut self.esp,
                    (true, 17) => match (&next[..4], next.get(8..12)) {
                        ([1, 0xf4, 1, 0xf4], _) => &mut self.ike,
                        ([0x11, 0x94, 0x11, 0x94], None | Some([0, 0, 0, 0])) => &mut self.ike,
                        ([0x11, 0x94, 0x11, 0x94], Some(_)) => &mut self.esp,
                        _ => &mut self.other,
                    },
                    _ => &mut self.other,
                }
            }
            _ => &mut self.other,
        };
        *of += frame.len() as u64;
        self.marked += u64::from(frame.windows(MARK.len()).any(|w| w == MARK));
    }
}

/// tcpdump on the outer link, listening. Of its buffer each packet takes 64 KiB, since one may be
/// as large.
fn capture(line: &Line, file: &std::path::Path) -> Child {
    let file = file.to_str().expect("a name");
    let argv = [
        "tcpdump",
        "-Z",
        "root",
        "-U",
        "--immediate-mode",
        "-ni",
        "wan",
        "-s",
        "0",
        "-B",
        "262144",
        "-w",
        file,
    ];
    let argv = line.node(Node::G1).exec(&argv);
    let mut child =
        Command::new(&argv[0]).args(&argv[1..]).stderr(Stdio::piped()).spawn().expect("tcpdump is installed");
    let mut said = String::new();
    let mut reader = BufReader::new(child.stderr.as_mut().expect("its messages"));
    while !said.contains("listening on") {
        assert_ne!(reader.read_line(&mut said).expect("a line"), 0, "tcpdump: {said}");
    }
    child
}

/// Bytes that the outer link of g1 has received and sent.
fn link_bytes(line: &Line) -> u64 {
    let shown = line.ip(Node::G1, &["-s", "-j", "link", "show", "dev", "wan"]).expect("the link");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let stats = &shown[0]["stats64"];
    ["rx", "tx"].iter().map(|way| stats[way]["bytes"].as_u64().expect("a count")).sum()
}

/// What crosses while 4 MiB go from a to b.
fn crossed(dut: &str, encap: Encap) -> Crossed {
    let owner = owner();
    let line = Line::build(&owner, LineSpec { mode: Mode::Offload, inner_mtu: 1400 }).expect("a line");
    let dir = owner.dir().join(format!("outer-{}", line.number()));
    fs::create_dir(&dir).expect("a folder");
    let options = DutOptions { ironswan: program(), ..DutOptions::default() };
    let before = link_bytes(&line);
    let mut tcpdump = capture(&line, &dir.join("outer.pcap"));
    let running = by_name(dut, &[encap], &options).expect("a system").pop().expect("a system");
    let running = running.start(&line.sites(), &dir).expect("it starts");
    let data: Vec<u8> = MARK.iter().copied().cycle().take(DATA).collect();
    load::carry(&line.paths()[0], &data, Duration::from_secs(60), || Ok(())).expect("carried");
    let after = link_bytes(&line);
    // What is on its way into the file has come when it has not grown for half a second.
    let size = || fs::metadata(dir.join("outer.pcap")).expect("a capture").len();
    let mut sizes = vec![size()];
    while sizes.len() < 6 || sizes[sizes.len() - 6] != sizes[sizes.len() - 1] {
        std::thread::sleep(Duration::from_millis(100));
        sizes.push(size());
    }
    let pid = rustix::process::Pid::from_child(&tcpdump);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it ends");
    let mut said = String::new();
    for l in BufReader::new(tcpdump.stderr.take().expect("its messages")).lines() {
        said += &(l.expect("a line") + "\n");
    }
    tcpdump.wait().expect("its end");
    running.stop();
    assert!(
        said.contains("\n0 packets dropped by kernel") || said.starts_with("0 packets dropped"),
        "{said}"
    );
    let crossed = Crossed::read(&fs::read(dir.join("outer.pcap")).expect("a capture"));
    println!("{dut}, {encap:?}: {crossed:?}; the link's own counters: {} bytes", after - before);
    // Neighbours look for each other before and after the capture, too.
    assert!(
        crossed.bytes().abs_diff(after - before) < 16 << 10,
        "{crossed:?}: {} by the link",
        after - before
    );
    crossed
}

#[test]
fn between_two_gateways_there_is_esp_and_nothing_else_but_ike_and_neighbours() {
    if program().is_none() {
        return;
    }
    for encap in [Encap::Udp, Encap::Raw] {
        let seen = crossed("ironswan", encap);
        assert!(seen.esp > DATA as u64 && seen.ike > 0, "{seen:?}");
        assert_eq!((seen.other, seen.marked), (0, 0), "{seen:?}");
    }
}

#[test]
fn without_a_tunnel_the_same_look_sees_everything_in_clear() {
    let seen = crossed("plain", Encap::Udp);
    assert!(seen.other > DATA as u64 && seen.marked > 10 && seen.esp == 0, "{seen:?}");
}
