//! Writing pcapng, the format that Wireshark reads: section header, interface descriptions,
//! enhanced packet blocks, interface statistics.
//!
//! ```text
//! | type | total length | body, padded to 32 bits | options | total length |
//! ```
//!
//! Blocks are appended to a vector; the caller writes it to a file. Packets begin with their IP
//! header (LINKTYPE_RAW), times are nanoseconds. Not here: reading captures, key tables.

use std::time::Duration;

use crate::read::{EmitError, Writer};

/// Packets begin with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u16 = 101;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// An interface of the file being written, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interface(u32);

/// Direction of a packet, as seen from the machine that captured it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketDirection {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// One packet to record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Interface on which the packet was seen.
    pub interface: Interface,
    /// When, since 1970-01-01 UTC.
    pub time: Duration,
    /// Which way it went.
    pub way: PacketDirection,
    /// From its IP header on, perhaps cut short.
    pub bytes: &'a [u8],
    /// Length of the packet before it was cut.
    pub original_len: usize,
    /// A remark shown beside it (a drop reason, a connection's name); empty for none.
    pub comment: &'a str,
}

/// Counts of an interface, for the end of a file.
#[derive(Clone, Copy, Debug)]
pub struct Statistics<'a> {
    /// The interface.
    pub interface: Interface,
    /// When, since 1970-01-01 UTC.
    pub time: Duration,
    /// Packets that were to be recorded.
    pub received: u64,
    /// Those of them that are missing, since there was no room for them.
    pub dropped: u64,
    /// A remark for people; empty for none.
    pub comment: &'a str,
}

/// Keeps count of the interfaces of one section; all else is in what it has written.
#[derive(Debug)]
pub struct PcapNg {
    interfaces: u32,
}

impl PcapNg {
    /// Begins a section: the first block of a file. `application` names the writer.
    pub fn begin(out: &mut Vec<u8>, application: &str) -> Result<Self, EmitError> {
        block(out, SECTION_HEADER, |w| {
            // The byte-order magic: readers see from it that this file is in network order.
            w.u32(0x1a2b_3c4d);
            w.u16(1);
            w.u16(0);
            // Section length: not told.
            w.u64(u64::MAX);
            option(w, SHB_USERAPPL, application.as_bytes())?;
            option(w, OPT_END, &[])
        })?;
        Ok(Self { interfaces: 0 })
    }

    /// Goes on with a section that somebody else has begun, with this many interfaces.
    pub fn resume(interfaces: u32) -> Self {
        Self { interfaces }
    }

    /// The interfaces so far, in their order.
    pub fn interfaces(&self) -> impl Iterator<Item = Interface> + use<> {
        (0..self.interfaces).map(Interface)
    }

    /// Describes an interface. `snaplen`: bytes of each packet that are recorded; 0 for all.
    pub fn interface(&mut self, out: &mut Vec<u8>, name: &str, snaplen: u32) -> Result<Interface, EmitError> {
        block(out, INTERFACE, |w| {
            w.u16(LINKTYPE_RAW);
            w.u16(0);
            w.u32(snaplen);
            option(w, IF_NAME, name.as_bytes())?;
            option(w, IF_TSRESOL, &[9])?;
            option(w, OPT_END, &[])
        })?;
        let interface = Interface(self.interfaces);
        self.interfaces += 1;
        Ok(interface)
    }

    /// Records a packet.
    pub fn packet(&self, out: &mut Vec<u8>, record: &Record<'_>) -> Result<(), EmitError> {
        let nanos = u64::try_from(record.time.as_nanos()).map_err(|_| EmitError { what: "capture time" })?;
        let len = |n: usize| u32::try_from(n).map_err(|_| EmitError { what: "captured packet" });
        let (captured, original) = (len(record.bytes.len())?, len(record.original_len)?);
        if record.interface.0 >= self.interfaces {
            return Err(EmitError { what: "interface number" });
        }
        block(out, ENHANCED_PACKET, |w| {
            w.u32(record.interface.0);
            w.u32((nanos >> 32) as u32);
            w.u32(nanos as u32);
            w.u32(captured);
            w.u32(original);
            w.bytes(record.bytes);
            pad(w, record.bytes.len());
            let way: u32 = match record.way {
                PacketDirection::In => 1,
                PacketDirection::Out => 2,
            };
            option(w, EPB_FLAGS, &way.to_be_bytes())?;
            if !record.comment.is_empty() {
                option(w, OPT_COMMENT, record.comment.as_bytes())?;
            }
            option(w, OPT_END, &[])
        })
    }
    /// Records the counts of an interface.
    pub fn statistics(&self, out: &mut Vec<u8>, s: &Statistics<'_>) -> Result<(), EmitError> {
        let nanos = u64::try_from(s.time.as_nanos()).map_err(|_| EmitError { what: "capture time" })?;
        if s.interface.0 >= self.interfaces {
            return Err(EmitError { what: "interface number" });
        }
        block(out, INTERFACE_STATISTICS, |w| {
            w.u32(s.interface.0);
            w.u32((nanos >> 32) as u32);
            w.u32(nanos as u32);
            option(w, ISB_IFRECV, &s.received.to_be_bytes())?;
            option(w, ISB_IFDROP, &s.dropped.to_be_bytes())?;
            if !s.comment.is_empty() {
                option(w, OPT_COMMENT, s.comment.as_bytes())?;
            }
            option(w, OPT_END, &[])
        })
    }
}

/// Appends a block, or nothing when it does not fit.
fn block(
    out: &mut Vec<u8>,
    kind: u32,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), EmitError>,
) -> Result<(), EmitError> {
    let start = out.len();
    let mut w = Writer::new(out);
    let emit = || {
        w.u32(kind);
        let front = w.reserve32();
        body(&mut w)?;
        let back = w.reserve32();
        w.patch32(front, start, "pcapng block")?;
        w.patch32(back, start, "pcapng block")
    };
    let done = emit();
    if done.is_err() {
        out.truncate(start);
    }
    done
}

fn option(w: &mut Writer<'_>, code: u16, value: &[u8]) -> Result<(), EmitError> {
    w.u16(code);
    w.count16(value.len(), "pcapng option")?;
    w.bytes(value);
    pad(w, value.len());
    Ok(())
}

fn pad(w: &mut Writer<'_>, len: usize) {
    w.zeros(len.next_multiple_of(4) - len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Reader;

    /// Types and bodies of all blocks; checks that both lengths agree and are multiples of 4.
    fn blocks(bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let mut r = Reader::new(bytes);
        let mut all = Vec::new();
        while r.any_left() {
            let kind = r.u32("type").unwrap();
            let total = r.u32("length").unwrap();
            assert_eq!(total % 4, 0);
            let body = r.bytes(total as usize - 12, "body").unwrap();
            assert_eq!(r.u32("length again").unwrap(), total);
            all.push((kind, body));
        }
        all
    }

    fn record(interface: Interface, bytes: &[u8]) -> Record<'_> {
        let time = Duration::new(1_700_000_000, 123_456_789);
        Record { interface, time, way: PacketDirection::Out, bytes, original_len: 1400, comment: "replayed" }
    }

    #[test]
    fn a_file_is_a_section_its_interfaces_and_packets() {
        let mut out = Vec::new();
        let mut file = PcapNg::begin(&mut out, "ironswan").unwrap();
        let outer = file.interface(&mut out, "wan", 0).unwrap();
        let inner = file.interface(&mut out, "ipsec0", 96).unwrap();
        for n in 20..24 {
            file.packet(&mut out, &record(inner, &vec![0x45; n])).unwrap();
        }
        let all = blocks(&out);
        assert_eq!(all.iter().map(|b| b.0).collect::<Vec<_>>(), [SECTION_HEADER, 1, 1, 6, 6, 6, 6]);
        assert_ne!(outer, inner);
        assert_eq!(all[0].1[..4], [0x1a, 0x2b, 0x3c, 0x4d]);
        assert_eq!(all[1].1[..2], [0, 101]);

        let mut r = Reader::new(all[4].1);
        assert_eq!(r.u32("interface").unwrap(), 1);
        assert_eq!(r.u64("time").unwrap(), 1_700_000_000_123_456_789);
        assert_eq!((r.u32("captured").unwrap(), r.u32("original").unwrap()), (21, 1400));
        assert_eq!(r.bytes(24, "packet").unwrap()[20..], [0x45, 0, 0, 0]);
        assert_eq!(r.bytes(8, "flags").unwrap(), [0, 2, 0, 4, 0, 0, 0, 2]);
        assert_eq!(r.bytes(12, "comment").unwrap(), b"\0\x01\0\x08replayed");
        assert_eq!(r.rest(), [0; 4]);
    }

    #[test]
    fn counts_of_an_interface_come_from_whoever_goes_on_with_the_section() {
        let mut out = Vec::new();
        let file = PcapNg::resume(2);
        let outer = file.interfaces().nth(1).unwrap();
        let time = Duration::new(1_700_000_000, 123_456_789);
        let counts = Statistics { interface: outer, time, received: 12, dropped: 3, comment: "3 missed" };
        file.statistics(&mut out, &counts).unwrap();
        let all = blocks(&out);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, 5);
        let mut r = Reader::new(all[0].1);
        assert_eq!(r.u32("interface").unwrap(), 1);
        assert_eq!(r.u64("time").unwrap(), 1_700_000_000_123_456_789);
        assert_eq!(r.bytes(12, "received").unwrap(), [0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 12]);
        assert_eq!(r.bytes(12, "dropped").unwrap(), [0, 5, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(r.bytes(12, "comment").unwrap(), b"\0\x01\0\x083 missed");
        assert_eq!(r.rest(), [0; 4]);
        let other = Statistics { interface: Interface(2), ..counts };
        assert!(file.statistics(&mut out, &other).is_err());
    }

    #[test]
    fn what_does_not_fit_leaves_the_file_as_it_was() {
        let mut out = Vec::new();
        let mut file = PcapNg::begin(&mut out, "ironswan").unwrap();
        let wan = file.interface(&mut out, "wan", 0).unwrap();
        let before = out.clone();
        let long = "x".repeat(70_000);
        assert!(file.packet(&mut out, &Record { comment: &long, ..record(wan, &[0x45]) }).is_err());
        assert!(file.packet(&mut out, &Record { time: Duration::MAX, ..record(wan, &[0x45]) }).is_err());
        assert!(file.packet(&mut out, &record(Interface(1), &[0x45])).is_err());
        assert!(file.interface(&mut out, &long, 0).is_err());
        assert_eq!(out, before);
    }
}
