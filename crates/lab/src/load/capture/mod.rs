//! A capture of somebody's own traffic (classic pcap or pcapng), read for what the generator
//! imitates: sizes of the IP packets, the time between them, and the flow of each.
//!
//! ```text
//! file ──classic, pcapng──> records (time, link, bytes) ──link──> IP packet: size, flow
//!                                                          └──> what is not used, counted
//! ```
//! The file may be anything, of any size, cut off anywhere: no more than a record is in memory, no
//! more than [`MOST`] packets are kept, and what cannot be read is an error that says what to do.
//! Contents of packets are looked at for their headers and never kept.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `classic` | records of a classic pcap file |
//! | `pcapng` | records of a pcapng file |
//! | `link` | the IP packet in a frame: its size and its flow |
//! | `pace` | when packets are due, by the gaps of a capture |

mod classic;
mod link;
mod pace;
mod pcapng;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

pub use pace::Pace;

use crate::text_file;

/// Packets that are kept: a trial of some seconds has no more.
pub const MOST: usize = 1_000_000;
/// Records that are looked at, used or not.
const MOST_RECORDS: u64 = 20_000_000;
/// Flows that are told apart; the rest shares the last.
const MOST_FLOWS: u32 = 100_000;
/// The largest record: what libpcap allows.
const LARGEST: u32 = 262_144;
/// Longer pauses are cut to this.
const PAUSE: Duration = Duration::from_secs(1);

/// How a file is written that can be read.
const REMEDY: &str = "write it with `tcpdump -i any -w mix.pcap` or Wireshark, as pcap or pcapng";

/// A packet as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Bytes of the IP packet, its header included.
    pub size: u32,
    /// Number of its flow, from 0.
    pub flow: u32,
    /// Since the packet before it; nothing for the first.
    pub gap: Duration,
}

/// What was read of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capture {
    /// The packets, in the order of the file.
    pub packets: Vec<Packet>,
    /// How many flows they have.
    pub flows: u32,
    /// What the file has besides, and what of it is not as it was captured.
    pub unused: Unused,
}

/// What of a file is not used, or not as it is: counts, and whether it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unused {
    /// Frames with something else than IP: ARP, spanning tree.
    pub not_ip: u64,
    /// Frames with an IP header that is damaged or was cut off.
    pub damaged: u64,
    /// Packets of a flow beyond the first [`MOST_FLOWS`].
    pub more_flows: u64,
    /// Packets whose time is before that of the one before, or that have none.
    pub without_time: u64,
    /// Pauses that were cut.
    pub pauses: u64,
    /// Records on links that cannot be read, by the number of the link's type.
    pub links: HashMap<u16, u64>,
    /// IPv6 packets among those that are used.
    pub ipv6: u64,
    /// The file ends within a record.
    pub cut_off: bool,
    /// The file goes on behind the last packet that is used.
    pub more: bool,
}

/// A record of a file.
struct Record<'a> {
    /// Since whatever epoch; none where the file has no time.
    time: Option<Duration>,
    /// Type of the link.
    link: u16,
    /// Bytes that were captured, and how many there were.
    bytes: &'a [u8],
    original: u32,
}

/// Why a file ends.
enum End {
    /// It is at an end.
    Whole,
    /// It ends within a record.
    CutOff,
}

/// What reading can come to besides a record.
enum Stop {
    End(End),
    /// It is no capture, or damaged: why, and what to do.
    Wrong(String),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::End(End::CutOff),
            _ => Self::Wrong(format!("reading it: {e}")),
        }
    }
}

/// Reads a capture.
///
/// # Errors
/// It is no capture, is damaged, has no IP packet, or cannot be read: a sentence with the file and
/// what to do.
pub fn read(path: &Path) -> Result<Capture, String> {
    let name = path.display();
    let file = text_file::open(path).map_err(|e| format!("{name}: {e}: name a capture file ({REMEDY})"))?;
    from(BufReader::with_capacity(1 << 16, file)).map_err(|why| format!("{name}: {why}"))
}

/// The same of what has been opened.
fn from(mut file: impl Read) -> Result<Capture, String> {
    let mut taking = Taking::default();
    let mut magic = [0; 4];
    file.read_exact(&mut magic).map_err(|_| format!("it has no more than a few bytes: {REMEDY}"))?;
    let mut take = |record: Record<'_>| taking.take(&record);
    let ended = match magic {
        pcapng::MAGIC => pcapng::read(file, &mut take),
        [0x1f, 0x8b, ..] => Err(Stop::Wrong("it is compressed: unpack it first with `gunzip`".into())),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            Err(Stop::Wrong("it is compressed: unpack it first with `unzstd`".into()))
        }
        _ => classic::read(magic, file, &mut take),
    };
    match ended {
        Err(Stop::Wrong(why)) => return Err(why),
        Err(Stop::End(End::CutOff)) => taking.capture.unused.cut_off = true,
        Err(Stop::End(End::Whole)) => {}
        Ok(()) => taking.capture.unused.more = true,
    }
    taking.finish()
}

/// Packets under way into a [`Capture`].
#[derive(Default)]
struct Taking {
    capture: Capture,
    flows: HashMap<link::Flow, u32>,
    records: u64,
    last: Option<Duration>,
}

impl Taking {
    /// Takes one in; false when that is enough.
    fn take(&mut self, record: &Record<'_>) -> bool {
        self.records += 1;
        let unused = &mut self.capture.unused;
        match link::packet(record.link, record.bytes, record.original) {
            link::Seen::Packet(packet) => self.packet(&packet, record.time),
            link::Seen::NotIp => unused.not_ip += 1,
            link::Seen::Damaged => unused.damaged += 1,
            link::Seen::Link => *unused.links.entry(record.link).or_default() += 1,
        }
        self.capture.packets.len() < MOST && self.records < MOST_RECORDS
    }

    fn packet(&mut self, packet: &link::Packet, time: Option<Duration>) {
        let unused = &mut self.capture.unused;
        unused.ipv6 += u64::from(packet.is_ipv6);
        let next = self.flows.len() as u32;
        let flow = match self.flows.get(&packet.flow) {
            Some(flow) => *flow,
            None if next < MOST_FLOWS => *self.flows.entry(packet.flow).or_insert(next),
            None => {
                unused.more_flows += 1;
                MOST_FLOWS - 1
            }
        };
        let gap = match (self.last, time) {
            (_, None) => {
                unused.without_time += 1;
                Duration::ZERO
            }
            (None, Some(_)) => Duration::ZERO,
            (Some(last), Some(now)) => now.checked_sub(last).unwrap_or_else(|| {
                unused.without_time += 1;
                Duration::ZERO
            }),
        };
        unused.pauses += u64::from(gap > PAUSE);
        // The time that a packet is behind the latest, not the one before: one record with a time
        // of its own must not make two gaps.
        self.last = self.last.max(time);
        self.capture.packets.push(Packet { size: packet.size, flow, gap: gap.min(PAUSE) });
    }

    fn finish(mut self) -> Result<Capture, String> {
        self.capture.flows = self.flows.len() as u32;
        if self.capture.packets.is_empty() {
            let unused = &self.capture.unused;
            let links = match unused.links.is_empty() {
                true => String::new(),
                false => format!("{}; ", unused.links_text()),
            };
            return Err(format!(
                "it has no IP packet ({links}{} frames without IP, {} damaged): capture IPv4 or IPv6 on an Ethernet, a \
                 raw IP or a Linux cooked link, for instance with `tcpdump -i any -w mix.pcap ip or ip6`",
                unused.not_ip, unused.damaged
            ));
        }
        Ok(self.capture)
    }
}

impl Capture {
    /// How long it took.
    pub fn duration(&self) -> Duration {
        self.packets.iter().map(|p| p.gap).sum()
    }

    /// Its packets a second; none where they have no time.
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| self.packets.len() as f64 / seconds)
    }

    /// The smallest and the largest size, and the mean.
    pub fn sizes(&self) -> (u32, u32, f64) {
        let sizes = || self.packets.iter().map(|p| p.size);
        let mean = sizes().map(f64::from).sum::<f64>() / self.packets.len().max(1) as f64;
        (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0), mean)
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most, mean) = self.sizes();
        let (packets, flows) = (self.packets.len(), self.flows);
        write!(f, "{packets} IP packets of {least} to {most} bytes ({mean:.0} on average) in {flows} flows")?;
        match self.rate() {
            Some(rate) => write!(f, ", {rate:.0} a second for {:.3} s", self.duration().as_secs_f64())?,
            None => f.write_str(", without times: evenly spaced")?,
        }
        write!(f, "{}", self.unused)
    }
}

impl Unused {
    fn links_text(&self) -> String {
        let mut links: Vec<_> = self.links.iter().collect();
        links.sort();
        let all: Vec<String> =
            links.iter().map(|(link, n)| format!("{n} frames of links of type {link}")).collect();
        all.join(", ")
    }
}

/// Each thing that is not used, behind a semicolon; nothing when all is.
impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.not_ip, "frames without IP are left out"),
            (self.damaged, "frames with a damaged or cut off IP header are left out"),
            (self.more_flows, "packets of further flows share one"),
            (self.without_time, "packets have no time of their own, and follow the one before at once"),
            (self.pauses, "pauses of more than a second are cut to one"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {count} {what}")?;
        }
        if !self.links.is_empty() {
            write!(f, "; {} cannot be read and are left out", self.links_text())?;
        }
        if self.cut_off {
            f.write_str("; the file ends within a packet, which is left out")?;
        }
        if self.more {
            f.write_str("; what the file has behind them is left out")?;
        }
        Ok(())
    }
}
