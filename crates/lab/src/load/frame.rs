//! The packets of our own generator: Ethernet, IPv4 and UDP headers, then a payload in which every
//! packet carries its number, its flow and the time it was sent, under a check of the trial that it
//! belongs to.
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

use std::net::Ipv4Addr;

use crate::error::LabError;

/// The smallest payload: the marks alone.
pub const MIN_PAYLOAD: usize = 18;
/// The largest: an unfragmented Ethernet frame.
pub const MAX_PAYLOAD: usize = 1472;
/// Ethernet, IPv4 without options, UDP.
pub const HEADERS: usize = 14 + 20 + 8;

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
    /// Distinguishes this trial's packets from any other's.
    pub tag: u32,
}

/// A repeating pattern of sizes: packet `n` has the size at `n` modulo its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix([u16; Self::LEN]);

impl Mix {
    /// Packets of a pattern.
    pub const LEN: usize = 12;

    /// The simple Internet mix: of twelve packets seven of the first size, four of the second, one
    /// of the third (bytes of UDP payload). Those of a size come in a row, so that a row is one
    /// system call.
    pub fn simple(sizes: [u16; 3]) -> Self {
        Self(std::array::from_fn(|n| sizes[usize::from(n >= 7) + usize::from(n >= 11)]))
    }

    /// The mean, bytes.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|s| f64::from(*s)).sum::<f64>() / Self::LEN as f64
    }

    fn len(&self, number: u32) -> usize {
        usize::from(self.0[number as usize % Self::LEN])
    }
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
pub fn pattern() -> [u8; MAX_PAYLOAD] {
    // Neither constant nor periodic in 256, so that a shifted or repeated piece shows.
    let mut state = 0x1234_5678u32;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
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
}

/// Frames ready to be sent but for their marks.
#[derive(Debug)]
pub struct Frames {
    shape: Shape,
    route: Route,
    buffer: Vec<u8>,
    /// By size: the sum of all 16-bit words that the UDP checksum covers and that no packet of the
    /// size changes.
    constant_sums: Vec<(usize, u64)>,
}

impl Frames {
    /// Bytes from one frame to the next.
    pub const STRIDE: usize = 1536;

    /// Room for `batch` frames.
    pub fn new(shape: Shape, route: Route, batch: usize) -> Self {
        let mut frame = [0u8; Self::STRIDE];
        frame[..6].copy_from_slice(&route.next_hop);
        // A locally administered source; nobody answers it.
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&[8, 0]);
        let ip = &mut frame[14..34];
        ip[0] = 0x45;
        // DF: what does not fit is an error to be seen, not two packets.
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = 17;
        ip[16..20].copy_from_slice(&route.destination.octets());
        frame[36..38].copy_from_slice(&route.port.to_be_bytes());
        let body = &mut frame[HEADERS + MIN_PAYLOAD..HEADERS + MAX_PAYLOAD];
        body.copy_from_slice(&pattern()[..MAX_PAYLOAD - MIN_PAYLOAD]);
        let mut sizes: Vec<usize> = (0..Mix::LEN as u32).map(|number| shape.len(number)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        // Pseudo header (destination, protocol, length), ports and length, pattern; the rest is
        // added packet by packet.
        let constant = |size: usize| {
            let udp_len = 8 + size as u64;
            sum(&route.destination.octets())
                + 17
                + 2 * udp_len
                + u64::from(route.port)
                + sum(&frame[HEADERS + MIN_PAYLOAD..HEADERS + size])
        };
        let constant_sums = sizes.into_iter().map(|size| (size, constant(size))).collect();
        Self { shape, route, buffer: frame.repeat(batch), constant_sums }
    }

    /// Fills frame `slot` for the packet of that mark.
    pub fn fill(&mut self, slot: usize, mark: &Mark) {
        let payload = self.shape.len(mark.number);
        let constant =
            self.constant_sums.iter().find(|(size, _)| *size == payload).map_or(0, |(_, sum)| *sum);
        let frame = &mut self.buffer[slot * Self::STRIDE..][..HEADERS + payload];
        let (address, port) = self.route.source(mark.flow);
        let udp_len = (8 + payload) as u16;
        frame[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
        frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
        frame[26..30].copy_from_slice(&address.octets());
        frame[24..26].fill(0);
        let ip_sum = !fold(sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&ip_sum.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        self.shape.write(mark, &mut frame[HEADERS..]);
        let marks = sum(&frame[HEADERS..HEADERS + MIN_PAYLOAD]);
        let udp_sum = !fold(constant + sum(&address.octets()) + u64::from(port) + marks);
        // Zero means no checksum (RFC 768).
        let udp_sum = if udp_sum == 0 { 0xffff } else { udp_sum };
        frame[40..42].copy_from_slice(&udp_sum.to_be_bytes());
    }

    /// Bytes of the frame of the packet with that number.
    pub fn frame_len(&self, number: u32) -> usize {
        HEADERS + self.shape.len(number)
    }
}

impl Burst for Frames {
    fn make(&mut self, first: u32, count: usize, time: u64) -> Result<(), LabError> {
        for slot in 0..count {
            let number = first.wrapping_add(slot as u32);
            self.fill(slot, &Mark { number, time, flow: number % self.shape.flows });
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn row(&self, first: u32, count: usize, at: usize) -> Row {
        let len = |slot: usize| self.frame_len(first.wrapping_add(slot as u32));
        let messages = (at..count).take_while(|slot| len(*slot) == len(at)).count();
        Row { start: at * Self::STRIDE, stride: Self::STRIDE, len: len(at), messages, packets: 1 }
    }
}

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
        for payload in [18, 19, 64, 1300, 1301, MAX_PAYLOAD] {
            let shape = Shape { payload, mix: None, flows: 200_000, tag: 7 };
            sound(shape);
        }
        sound(Shape { payload: 1472, mix: Some(Mix::simple([18, 524, 1472])), flows: 200_000, tag: 7 });
    }

    fn sound(shape: Shape) {
        let mut frames = Frames::new(shape, ROUTE, 2);
        for (number, flow) in [(0, 0), (1, 1), (u32::MAX, 199_999), (77, 60_000), (9, 5), (11, 7), (12, 8)] {
            let mark = Mark { number, time: 123_456_789_012, flow };
            frames.fill(1, &mark);
            let frame = &frames.bytes()[Frames::STRIDE..][..frames.frame_len(number)];
            assert_eq!(fold(sum(&frame[14..34])), 0xffff, "IPv4 header");
            // Pseudo header: both addresses, protocol, length.
            let pseudo = sum(&frame[26..34]) + 17 + sum(&frame[38..40]);
            assert_eq!(fold(pseudo + sum(&frame[34..])), 0xffff, "UDP of {shape:?}");
            assert_eq!(shape.read(&frame[HEADERS..], &pattern()), Some(mark));
        }
    }

    #[test]
    fn any_flipped_bit_another_trial_and_another_size_are_seen() {
        let shape = Shape { payload: 40, mix: None, flows: 10, tag: 7 };
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
    fn no_two_flows_share_address_and_port() {
        let mut seen = std::collections::HashSet::new();
        assert!((0..130_000).all(|flow| seen.insert(ROUTE.source(flow))));
        assert_eq!(ROUTE.source(MAX_FLOWS - 1).0, Ipv4Addr::new(10, 1, 0, 250));
    }

    #[test]
    fn a_mix_has_its_sizes_in_their_proportions_and_a_packet_of_another_size_is_none_of_it() {
        let mix = Mix::simple([18, 524, 1472]);
        let shape = Shape { payload: 1472, mix: Some(mix), flows: 1, tag: 3 };
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
