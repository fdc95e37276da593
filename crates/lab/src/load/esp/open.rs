//! Opens packets that the gateway has sealed, and counts each once, by its sequence number and by
//! its contents.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ironswan_crypto::batch::{self, Job};
use ironswan_wire::esp;
use ironswan_wire::ip::{Fragment, checksum, protocol, udp, v4};

use super::{Association, ipv4};
use crate::load::frame::{HEADERS, Shape};
use crate::load::tally::{Received, Tally};

/// Behind, only packets whose number is a multiple of this are opened.
const SAMPLE: u64 = 16;
/// A number that is further than this from the highest is not believed unopened.
const NEAR: u64 = 1 << 16;

/// Counts of ESP packets from the gateway, by kind. Only the first kind is in the count of packets
/// received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EspCounts {
    /// Counted by their number and not opened, since the tester was behind.
    pub unopened: u64,
    /// A number that had come before.
    pub repeated: u64,
    /// The ICV was wrong, or the packet too short.
    pub refused: u64,
    /// Another SPI than that of the SA.
    pub foreign: u64,
    /// New, but behind a higher number.
    pub reordered: u64,
    /// Numbers between the lowest and the highest that never came: lost after they were sealed.
    pub missing: u64,
}

/// Destination that the packets inside must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner {
    /// The address.
    pub destination: Ipv4Addr,
    /// The UDP port.
    pub port: u16,
}

/// Takes in frames from the gateway.
#[derive(Debug)]
pub struct Opener {
    /// Of the gateway's outbound SA; none for a gateway that only forwards.
    sa: Option<Arc<Association>>,
    inner: Inner,
    tally: Tally,
    counts: EspCounts,
    numbers: Numbers,
    jobs: Vec<Job>,
    /// When the packet of each job arrived.
    times: Vec<u64>,
}

impl Opener {
    /// For packets of that shape. Without an SA they come in clear.
    pub fn new(sa: Option<Arc<Association>>, inner: Inner, shape: Shape) -> Self {
        let tally = Tally::new(shape);
        let (counts, numbers) = (EspCounts::default(), Numbers::default());
        Self { sa, inner, tally, counts, numbers, jobs: Vec::new(), times: Vec::new() }
    }

    /// Takes in the frames in these places of `buffer`, each with the time of its arrival
    /// (nanoseconds since the trial's epoch), and decrypts them there. When the tester is `behind`,
    /// it opens some and trusts the numbers of the others.
    pub fn take(
        &mut self,
        buffer: &mut [u8],
        frames: impl Iterator<Item = (Range<usize>, u64)>,
        behind: bool,
    ) {
        let Some(sa) = &self.sa else {
            for (packet, now) in frames.filter_map(|(place, now)| Some((ipv4(buffer.get(place)?)?, now))) {
                if packet.get(16..20) == Some(&self.inner.destination.octets()) && !is_icmp(packet) {
                    self.tally.take(self.inner.payload(packet).unwrap_or_default(), now);
                }
            }
            return;
        };
        self.jobs.clear();
        self.times.clear();
        for (place, now) in frames {
            let at = place.start;
            let Some(esp) = buffer.get(place).and_then(|frame| sa.outer.find(frame)) else { continue };
            let (start, end) = (at + esp.start, at + esp.end);
            let Some((spi, seq)) = esp::header(&buffer[start..end]) else {
                self.counts.refused += 1;
                continue;
            };
            let seq = u64::from(seq);
            if spi != sa.spi {
                self.counts.foreign += 1;
            } else if self.numbers.has(seq) {
                self.counts.repeated += 1;
            } else if behind && !seq.is_multiple_of(SAMPLE) && self.numbers.near(seq) {
                self.counts.unopened += 1;
                self.counts.reordered += u64::from(self.numbers.note(seq));
            } else {
                let (start, len) = (start as u32, (end - start) as u32);
                self.jobs.push(Job { start, len, seq, key: 0, ok: false });
                self.times.push(now);
            }
        }
        batch::open(buffer, &mut self.jobs, &[&sa.key]);
        for (job, &now) in self.jobs.iter().zip(&self.times) {
            if !job.ok {
                self.counts.refused += 1;
            } else if self.numbers.has(job.seq) {
                // Twice in one batch.
                self.counts.repeated += 1;
            } else {
                let (start, end) = (job.start as usize, (job.start + job.len) as usize);
                let text = &buffer[start + esp::HEADER + sa.key.iv_len()..end - sa.key.icv_len()];
                let packet = match esp::parse_trailer(text) {
                    Ok((len, protocol::IPV4)) => &text[..len],
                    _ => &[],
                };
                // Only packets of the generator go through this SA, besides ICMP errors of a host.
                // So any other packet is a damaged one, and the tally counts it as corrupt.
                if is_icmp(packet) || self.tally.take(self.inner.payload(packet).unwrap_or_default(), now) {
                    self.counts.reordered += u64::from(self.numbers.note(job.seq));
                }
            }
        }
    }

    /// Bytes of the largest packet inside.
    pub fn largest(&self) -> usize {
        HEADERS + self.tally.largest()
    }

    /// Packets of this trial so far, each once.
    pub fn unique(&self) -> u64 {
        self.tally.unique() + self.counts.unopened
    }

    /// The sum of it: what was inside of the packets that were opened, and what their ESP was,
    /// where there was any.
    pub fn finish(self) -> (Received, Option<EspCounts>) {
        let counts = EspCounts { missing: self.numbers.missing(), ..self.counts };
        if let (Some(sa), Some((_, high))) = (&self.sa, self.numbers.range) {
            sa.next.fetch_max(high + 1, Ordering::Relaxed);
        }
        (self.tally.finish(), self.sa.is_some().then_some(counts))
    }
}

/// A host answers a packet that comes after its receiver has closed with an ICMP error (RFC 1122
/// section 4.1.3.1).
fn is_icmp(packet: &[u8]) -> bool {
    packet.get(9) == Some(&protocol::ICMP)
}

impl Inner {
    /// The UDP payload of a packet that goes where it should; `None` when anything is wrong with
    /// its headers.
    fn payload<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let info = v4::parse(packet).ok()?;
        let (header, datagram) = packet.split_at_checked(v4::MIN_HEADER)?;
        let sound = (info.upper, info.total_len, info.protocol, info.fragment)
            == (v4::MIN_HEADER, packet.len(), protocol::UDP, Fragment::No)
            && v4::checksum_ok(header)
            && header[16..] == self.destination.octets()
            && udp::length(datagram) == Some(datagram.len())
            && datagram[2..4] == self.port.to_be_bytes();
        let sum = checksum::pseudo(&header[12..], protocol::UDP)
            + checksum::be16(datagram.len() as u16)
            + checksum::sum(datagram);
        (sound && checksum::fold(sum) == 0xffff).then(|| &datagram[udp::HEADER..])
    }
}

/// The sequence numbers that have come.
#[derive(Debug, Default)]
struct Numbers {
    /// The number of the first bit: somewhat below the first that came.
    base: Option<u64>,
    seen: Vec<u64>,
    /// The lowest and the highest, and how many in all.
    range: Option<(u64, u64)>,
    count: u64,
}

impl Numbers {
    fn place(&self, seq: u64) -> Option<(usize, u64)> {
        let bit = seq.checked_sub(self.base?)?;
        Some((usize::try_from(bit / 64).ok()?, 1 << (bit % 64)))
    }

    fn has(&self, seq: u64) -> bool {
        self.place(seq).is_some_and(|(word, bit)| self.seen.get(word).is_some_and(|w| w & bit != 0))
    }

    /// Whether a number may belong to this trial, for all that is known of it: above the first, and
    /// not far from the last.
    fn near(&self, seq: u64) -> bool {
        self.range.is_some_and(|(low, high)| seq > low && seq < high + NEAR && seq + NEAR > high)
    }

    /// Notes a new number; true when it is below the highest.
    fn note(&mut self, seq: u64) -> bool {
        self.base.get_or_insert(seq.saturating_sub(NEAR));
        if let Some((word, bit)) = self.place(seq) {
            if word >= self.seen.len() {
                self.seen.resize((word + 1).next_power_of_two(), 0);
            }
            self.seen[word] |= bit;
        }
        self.count += 1;
        let late = self.range.is_some_and(|(_, high)| seq < high);
        self.range = Some(self.range.map_or((seq, seq), |(low, high)| (low.min(seq), high.max(seq))));
        late
    }

    fn missing(&self) -> u64 {
        self.range.map_or(0, |(low, high)| (high - low + 1).saturating_sub(self.count))
    }
}
