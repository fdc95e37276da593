//! The packets of our own generator: Ethernet, IPv4 or IPv6 and UDP headers, then a payload in
//! which every packet carries its number, its flow and the time it was sent, under a check of the
//! trial that it belongs to.
//!
//! ```text
//! 0       4        8            14     18
//! +-------+--------+------------+------+---------------------------+
//! | check | number | time, 48 b | flow | a pattern, up to the size |
//! +-------+--------+------------+------+---------------------------+
//! ```
//! All in network order; the time is nanoseconds since the trial's epoch. The check covers the
//! other three and the trial's tag, so neither damage nor a packet of another trial passes for one
//! of ours. Pure.

use std::net::{IpAddr, Ipv4Addr};

pub use super::mix::Mix;
use crate::error::LabError;
use crate::topology::ipv6_of;

/// The smallest payload: the marks alone.
pub const MIN_PAYLOAD: usize = 18;
/// The largest in an ordinary Ethernet frame, over IPv4.
pub const MAX_PAYLOAD: usize = 1472;
/// The largest in one of 9,000 bytes with its check sequence.
pub const JUMBO_PAYLOAD: usize = 9000 - 18 - 28;
/// Ethernet, IPv4 without options, UDP.
pub const HEADERS: usize = ETHERNET + Family::V4.headers();
const ETHERNET: usize = 14;

/// First source port of the flows, and how many one source address has.
const FIRST_PORT: u16 = 2048;
const PORTS: u32 = 60_000;
/// Most flows: the source addresses from .2 to .250 with all their ports.
pub const MAX_FLOWS: u32 = 249 * PORTS;

/// Fields that all packets of a trial share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of UDP payload; with a mix, of the largest.
    pub payload: usize,
    /// Sizes that take turns; all packets have `payload` bytes when absent.
    pub mix: Option<Mix>,
    /// How many flows, by source port and address.
    pub flows: u32,
    /// Version of IP.
    pub family: Family,
    /// Distinguishes this trial's packets from any other's.
    pub tag: u32,
}

/// Marks in a packet: its trial, number, flow and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the packet among all packets sent, from 0.
    pub number: u32,
    /// Nanoseconds since the trial's epoch.
    pub time: u64,
    /// Number of the flow, from 0.
    pub flow: u32,
}

/// Tags back from which packets may still be under way: of some trials, each of which has one for
/// each direction.
const EARLIER: u32 = 8;
const TIME_MASK: u64 = (1 << 48) - 1;

impl Shape {
    fn check(&self, mark: &Mark) -> u32 {
        // Two rounds of a multiplicative mix: any changed bit changes about half of the result.
        let mix = |x: u64| {
            let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            x ^ (x >> 32)
        };
        let a = mix(u64::from(mark.number) | u64::from(self.tag) << 32);
        let b = mix(a ^ (mark.time & TIME_MASK) ^ u64::from(mark.flow).rotate_left(40));
        (b ^ (b >> 29)) as u32
    }

    /// Flow of the packet with that number.
    pub fn flow(&self, number: u32) -> u32 {
        self.mix.and_then(|mix| mix.flow(number)).unwrap_or_else(|| number % self.flows)
    }

    /// Bytes of UDP payload of the packet with that number.
    pub fn len(&self, number: u32) -> usize {
        self.mix.map_or(self.payload, |mix| mix.len(number))
    }

    /// The mean over all packets, bytes.
    pub fn mean_len(&self) -> f64 {
        self.mix.map_or(self.payload as f64, |mix| mix.mean())
    }

    /// Writes the marks into the first bytes of a payload.
    pub fn write(&self, mark: &Mark, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.check(mark).to_be_bytes());
        payload[4..8].copy_from_slice(&mark.number.to_be_bytes());
        payload[8..14].copy_from_slice(&mark.time.to_be_bytes()[2..]);
        payload[14..18].copy_from_slice(&mark.flow.to_be_bytes());
    }

    /// Whether a payload's marks are those of one of the trials before this one: it was under way
    /// for so long that its own trial has counted it as lost. Tags count trials.
    pub fn straggles(&self, payload: &[u8]) -> bool {
        let Some(head) = payload.first_chunk::<MIN_PAYLOAD>() else { return false };
        let u32_at = |at: usize| head[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        let mut time = [0; 8];
        time[2..].copy_from_slice(&head[8..14]);
        let mark = Mark { number: u32_at(4), time: u64::from_be_bytes(time), flow: u32_at(14) };
        (1..=EARLIER).any(|n| Self { tag: self.tag.wrapping_sub(n), ..*self }.check(&mark) == u32_at(0))
    }

    /// The marks of a payload; `None` for one that is damaged, of another size, or not of this
    /// trial.
    pub fn read(&self, payload: &[u8], pattern: &[u8]) -> Option<Mark> {
        let (head, body) = payload.split_first_chunk::<MIN_PAYLOAD>()?;
        let u32_at = |at: usize| head[at..].first_chunk().map(|b| u32::from_be_bytes(*b));
        let mut time = [0; 8];
        time[2..].copy_from_slice(&head[8..14]);
        let mark = Mark { number: u32_at(4)?, time: u64::from_be_bytes(time), flow: u32_at(14)? };
        let sound = u32_at(0)? == self.check(&mark)
            && payload.len() == self.len(mark.number)
            && mark.flow < self.flows
            && pattern.get(..body.len()) == Some(body);
        sound.then_some(mark)
    }
}

/// Filling of a payload behind the marks.
pub fn pattern() -> [u8; JUMBO_PAYLOAD] {
    // Neither constant nor periodic in 256, so that a shifted or repeated piece shows.
    let mut state = 0x1234_5678u32;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

/// The version of IP that packets have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6, between the addresses that [`ipv6_of`] makes of those of IPv4.
    V6,
}

impl Family {
    /// Bytes of the headers of IP and UDP.
    pub const fn headers(self) -> usize {
        match self {
            Self::V4 => 20 + 8,
            Self::V6 => 40 + 8,
        }
    }

    fn address(self, address: Ipv4Addr) -> IpAddr {
        match self {
            Self::V4 => address.into(),
            Self::V6 => ipv6_of(address).into(),
        }
    }
}

/// Destination of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Ethernet address of the next hop.
    pub next_hop: [u8; 6],
    /// Address of the receiving host.
    pub destination: Ipv4Addr,
    /// Port of the destination.
    pub port: u16,
    /// Network of the sending host: its addresses from .2 on are the flows' sources.
    pub sources: [u8; 3],
}

impl Route {
    /// Source address and port of a flow.
    pub fn source(&self, flow: u32) -> (Ipv4Addr, u16) {
        let [a, b, c] = self.sources;
        let host = 2 + (flow / PORTS).min(248) as u8;
        (Ipv4Addr::new(a, b, c, host), FIRST_PORT + (flow % PORTS) as u16)
    }
}

/// Frames for one call: messages of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Offset of the first frame.
    pub start: usize,
    /// From one to the next.
    pub stride: usize,
    /// Bytes of each.
    pub len: usize,
    /// How many.
    pub messages: usize,
    /// Packets in each: more than one where the kernel cuts them.
    pub packets: usize,
}

/// Source of the frames that a generator sends: makes a burst at a time, one frame in each slot of
/// a buffer.
pub trait Burst: Send {
    /// Makes the frames of the `count` packets from number `first` on, stamped `time` (nanoseconds
    /// since the trial's epoch).
    fn make(&mut self, first: u32, count: usize, time: u64) -> Result<(), LabError>;

    /// Memory in which the frames are made.
    fn bytes(&self) -> &[u8];

    /// The frames from slot `at` on that one call can send, of the `count` that were made from
    /// number `first` on.
    fn row(&self, first: u32, count: usize, at: usize) -> Row;

    /// Each begins with a header for the kernel ([`ironswan_wire::offload`]): what is unfinished it
    /// finishes.
    fn offloads(&self) -> bool {
        false
    }

    /// Bytes of each frame that was made, where every one has its own; a row is of one length
    /// otherwise.
    fn lens(&self) -> Option<&[usize]> {
        None
    }
}

/// One of several threads that send the packets of a trial together: every so many-th packet is its
/// own. Where the number of flows is a multiple of theirs, each thread has flows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Which, from 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

impl Lane {
    /// The only one.
    pub const ONLY: Self = Self { index: 0, count: 1 };

    /// All of so many.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (0..count).map(move |index| Self { index, count })
    }

    /// The number among all packets of its packet of that number.
    fn number(self, own: u32) -> u32 {
        own.wrapping_mul(self.count).wrapping_add(self.index)
    }
}

/// Frames ready to be sent but for their marks.
#[derive(Debug)]
pub struct Frames {
    shape: Shape,
    route: Route,
    lane: Lane,
    buffer: Vec<u8>,
    stride: usize,
    /// The sum of all 16-bit words that the UDP checksum covers and that no packet changes, but for
    /// lengths; and what the pattern up to each size adds.
    constant: u64,
    patterns: Vec<u64>,
    /// Of the frames that were made last, where each has its own.
    lens: Vec<usize>,
}

impl Frames {
    /// Bytes from one frame to the next, where none is larger than ordinary Ethernet's.
    pub const STRIDE: usize = 1536;

    /// Room for `batch` frames.
    pub fn new(shape: Shape, route: Route, batch: usize) -> Self {
        Self::of_lane(shape, route, batch, Lane::ONLY)
    }

    /// The same, of the packets of one thread of several.
    pub fn of_lane(shape: Shape, route: Route, batch: usize, lane: Lane) -> Self {
        let largest = shape.mix.map_or(shape.payload, |mix| mix.largest());
        let headers = ETHERNET + shape.family.headers();
        let stride = (headers + largest).next_multiple_of(64).max(Self::STRIDE);
        let mut frame = vec![0u8; stride];
        frame[..6].copy_from_slice(&route.next_hop);
        // A locally administered source; nobody answers it.
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        let ip = &mut frame[ETHERNET..];
        match shape.family.address(route.destination) {
            IpAddr::V4(destination) => {
                ip[0] = 0x45;
                // DF: what does not fit is an error to be seen, not two packets.
                ip[6] = 0x40;
                ip[8] = 64;
                ip[9] = UDP;
                ip[16..20].copy_from_slice(&destination.octets());
                frame[12..14].copy_from_slice(&[0x08, 0x00]);
            }
            IpAddr::V6(destination) => {
                ip[0] = 0x60;
                ip[6] = UDP;
                ip[7] = 64;
                ip[24..40].copy_from_slice(&destination.octets());
                frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            }
        }
        let udp = headers - 8;
        frame[udp + 2..udp + 4].copy_from_slice(&route.port.to_be_bytes());
        let body = &pattern()[..largest.saturating_sub(MIN_PAYLOAD)];
        frame[headers + MIN_PAYLOAD..][..body.len()].copy_from_slice(body);
        // Pseudo header and ports; lengths and the rest are added packet by packet.
        let destination = match shape.family.address(route.destination) {
            IpAddr::V4(address) => sum(&address.octets()),
            IpAddr::V6(address) => sum(&address.octets()),
        };
        let constant = destination + u64::from(UDP) + u64::from(route.port);
        let mut patterns = vec![0; MIN_PAYLOAD + 1];
        for (n, byte) in body.iter().enumerate() {
            let word = if n.is_multiple_of(2) { u64::from(*byte) << 8 } else { u64::from(*byte) };
            patterns.push(patterns.last().copied().unwrap_or(0) + word);
        }
        let lens = Vec::with_capacity(batch);
        Self { shape, route, lane, buffer: frame.repeat(batch), stride, constant, patterns, lens }
    }

    /// Fills frame `slot` for the packet of that mark.
    pub fn fill(&mut self, slot: usize, mark: &Mark) {
        let payload = self.shape.len(mark.number);
        let headers = ETHERNET + self.shape.family.headers();
        let frame = &mut self.buffer[slot * self.stride..][..headers + payload];
        let (address, port) = self.route.source(mark.flow);
        let udp_len = (8 + payload) as u16;
        let source = match self.shape.family.address(address) {
            IpAddr::V4(address) => {
                frame[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
                frame[26..30].copy_from_slice(&address.octets());
                frame[24..26].fill(0);
                let ip_sum = !fold(sum(&frame[14..34]));
                frame[24..26].copy_from_slice(&ip_sum.to_be_bytes());
                sum(&address.octets())
            }
            IpAddr::V6(address) => {
                frame[18..20].copy_from_slice(&udp_len.to_be_bytes());
                frame[22..38].copy_from_slice(&address.octets());
                sum(&address.octets())
            }
        };
        let udp = headers - 8;
        frame[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        self.shape.write(mark, &mut frame[headers..]);
        let marks = sum(&frame[headers..headers + MIN_PAYLOAD]);
        let pattern = self.patterns.get(payload).copied().unwrap_or(0);
        // The length is in the pseudo header as well.
        let lengths = 2 * u64::from(udp_len);
        let udp_sum = !fold(self.constant + lengths + pattern + source + u64::from(port) + marks);
        // Zero means no checksum (RFC 768).
        let udp_sum = if udp_sum == 0 { 0xffff } else { udp_sum };
        frame[udp + 6..udp + 8].copy_from_slice(&udp_sum.to_be_bytes());
    }

    /// Bytes of the frame of the packet with that number.
    pub fn frame_len(&self, number: u32) -> usize {
        ETHERNET + self.shape.family.headers() + self.shape.len(number)
    }

    /// Bytes from one frame to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

impl Burst for Frames {
    fn make(&mut self, first: u32, count: usize, time: u64) -> Result<(), LabError> {
        for slot in 0..count {
            let number = self.lane.number(first.wrapping_add(slot as u32));
            self.fill(slot, &Mark { number, time, flow: self.shape.flow(number) });
        }
        if self.shape.mix.is_some_and(|mix| mix.changes()) {
            self.lens.clear();
            for slot in 0..count {
                self.lens.push(self.frame_len(self.lane.number(first.wrapping_add(slot as u32))));
            }
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn row(&self, first: u32, count: usize, at: usize) -> Row {
        let len = |slot: usize| self.frame_len(self.lane.number(first.wrapping_add(slot as u32)));
        let messages = (at..count).take_while(|slot| len(*slot) == len(at)).count();
        Row { start: at * self.stride, stride: self.stride, len: len(at), messages, packets: 1 }
    }

    fn lens(&self) -> Option<&[usize]> {
        (!self.lens.is_empty()).then_some(&self.lens)
    }
}

const UDP: u8 = 17;

/// The sum of 16-bit words in network order; an odd last byte counts as the higher half (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |b| u64::from(*b) << 8);
    words.map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u64>() + last
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: Route = Route {
        next_hop: [2, 1, 2, 3, 4, 5],
        destination: Ipv4Addr::new(10, 2, 0, 2),
        port: 7000,
        sources: [10, 1, 0],
    };

    #[test]
    fn frames_have_right_checksums_and_marks_at_every_size() {
        let of = |payload, mix| Shape { payload, mix, flows: 200_000, family: Family::V4, tag: 7 };
        for payload in [18, 19, 64, 1300, 1301, MAX_PAYLOAD, 8001, JUMBO_PAYLOAD] {
            sound(of(payload, None));
            sound_over_ipv6(of(payload, None));
        }
        let captured = Mix::captured(vec![(18, 3), (1301, 0), (8000, 1), (19, 199_999)]);
        for mix in [Some(Mix::simple([18, 524, 1472])), captured] {
            sound(of(mix.map_or(0, |mix| mix.largest()), mix));
            sound_over_ipv6(of(mix.map_or(0, |mix| mix.largest()), mix));
        }
    }

    /// Marks of some packets.
    const MARKS: [(u32, u32); 7] =
        [(0, 0), (1, 1), (u32::MAX, 199_999), (77, 60_000), (9, 5), (11, 7), (12, 8)];

    fn sound_over_ipv6(shape: Shape) {
        let mut frames = Frames::new(Shape { family: Family::V6, ..shape }, ROUTE, 2);
        for (number, flow) in MARKS {
            let mark = Mark { number, time: 123_456_789_012, flow };
            frames.fill(1, &mark);
            let frame = &frames.bytes()[frames.stride()..][..frames.frame_len(number)];
            assert_eq!((&frame[12..14], frame[14] >> 4), (&[0x86, 0xdd][..], 6));
            assert_eq!(frame[18..20], frame[58..60], "lengths of IPv6 and UDP");
            assert_eq!(frame[38..54], ipv6_of(ROUTE.destination).octets());
            // Pseudo header: both addresses, protocol, length.
            let pseudo = sum(&frame[22..54]) + 17 + sum(&frame[58..60]);
            assert_eq!(fold(pseudo + sum(&frame[54..])), 0xffff, "UDP of {shape:?}");
            assert_eq!(shape.read(&frame[62..], &pattern()), Some(mark));
        }
    }

    #[test]
    fn packets_of_a_capture_have_its_flows_and_each_its_own_length_in_a_call() {
        let mix = Mix::captured(vec![(18, 1), (1400, 0), (100, 1)]);
        let shape = Shape { payload: 1400, mix, flows: 2, family: Family::V4, tag: 7 };
        let mut frames = Frames::new(shape, ROUTE, 4);
        frames.make(2, 4, 99).expect("frames");
        assert_eq!(frames.lens(), Some(&[142, 60, 1442, 142][..]));
        let flow = |slot: usize| {
            let frame = &frames.bytes()[slot * frames.stride()..];
            shape.read(&frame[HEADERS..frames.frame_len(2 + slot as u32)], &pattern()).map(|mark| mark.flow)
        };
        assert_eq!([0, 1, 2, 3].map(flow), [Some(1), Some(1), Some(0), Some(1)]);
        let mut even = Frames::new(Shape { mix: None, ..shape }, ROUTE, 4);
        even.make(0, 4, 99).expect("frames");
        assert_eq!(even.lens(), None);
    }

    fn sound(shape: Shape) {
        let mut frames = Frames::new(shape, ROUTE, 2);
        for (number, flow) in MARKS {
            let mark = Mark { number, time: 123_456_789_012, flow };
            frames.fill(1, &mark);
            let frame = &frames.bytes()[frames.stride()..][..frames.frame_len(number)];
            assert_eq!(fold(sum(&frame[14..34])), 0xffff, "IPv4 header");
            // Pseudo header: both addresses, protocol, length.
            let pseudo = sum(&frame[26..34]) + 17 + sum(&frame[38..40]);
            assert_eq!(fold(pseudo + sum(&frame[34..])), 0xffff, "UDP of {shape:?}");
            assert_eq!(shape.read(&frame[HEADERS..], &pattern()), Some(mark));
        }
    }

    #[test]
    fn any_flipped_bit_another_trial_and_another_size_are_seen() {
        let shape = Shape { payload: 40, mix: None, flows: 10, family: Family::V4, tag: 7 };
        let mut frames = Frames::new(shape, ROUTE, 1);
        frames.fill(0, &Mark { number: 5, time: 99, flow: 3 });
        let good = frames.bytes()[HEADERS..frames.frame_len(5)].to_vec();
        let pattern = pattern();
        assert!(shape.read(&good, &pattern).is_some());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(shape.read(&bad, &pattern), None, "bit {bit}");
        }
        assert_eq!(Shape { tag: 8, ..shape }.read(&good, &pattern), None);
        assert_eq!(shape.read(&good[..39], &pattern), None);
        assert_eq!(shape.read(&[], &pattern), None);
    }

    #[test]
    fn threads_together_send_every_packet_once_and_each_has_flows_of_its_own() {
        let mix = Some(Mix::simple([18, 524, 1472]));
        let shape = Shape { payload: 1472, mix, flows: 6, family: Family::V4, tag: 7 };
        let mut seen = Vec::new();
        for lane in Lane::all(3) {
            let mut frames = Frames::of_lane(shape, ROUTE, 8, lane);
            for first in [0, 8] {
                frames.make(first, 8, 99).expect("frames");
                let mut at = 0;
                while at < 8 {
                    let row = frames.row(first, 8, at);
                    for n in 0..row.messages {
                        let frame = &frames.bytes()[row.start + n * row.stride..][..row.len];
                        let mark = shape.read(&frame[HEADERS..], &pattern()).expect("a packet");
                        assert_eq!(mark.flow % 3, lane.index);
                        seen.push(mark.number);
                    }
                    at += row.messages;
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..48).collect::<Vec<_>>());
    }

    #[test]
    fn no_two_flows_share_address_and_port() {
        let mut seen = std::collections::HashSet::new();
        assert!((0..130_000).all(|flow| seen.insert(ROUTE.source(flow))));
        assert_eq!(ROUTE.source(MAX_FLOWS - 1).0, Ipv4Addr::new(10, 1, 0, 250));
    }

    #[test]
    fn a_mix_has_its_sizes_in_their_proportions_and_a_packet_of_another_size_is_none_of_it() {
        let mix = Mix::simple([18, 524, 1472]);
        let shape = Shape { payload: 1472, mix: Some(mix), flows: 1, family: Family::V4, tag: 3 };
        let count = |size| (0..1200).filter(|n| shape.len(*n) == size).count();
        assert_eq!((count(18), count(524), count(1472)), (700, 400, 100));
        assert!((shape.mean_len() - (7.0 * 18.0 + 4.0 * 524.0 + 1472.0) / 12.0).abs() < 1e-9);
        let mut frames = Frames::new(shape, ROUTE, 1);
        frames.fill(0, &Mark { number: 8, time: 1, flow: 0 });
        let whole = &frames.bytes()[HEADERS..frames.frame_len(8)];
        assert!(shape.read(whole, &pattern()).is_some());
        assert_eq!(shape.read(&frames.bytes()[HEADERS..HEADERS + 18], &pattern()), None);
    }
}
