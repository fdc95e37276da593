//! Records of a pcapng file (draft-ietf-opsawg-pcapng): blocks, each with its length before and
//! behind it. A section's header says the byte order, a description of an interface its link and
//! what its clock counts; blocks of any other kind are passed over.

use std::io::{self, Read};
use std::time::Duration;

use super::{End, LARGEST, REMEDY, Record, Stop};

/// The type of the block at the beginning of every section.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;
/// Type and both lengths.
const AROUND: u32 = 12;
/// More interfaces than this no machine has.
const MOST_INTERFACES: usize = 65_536;
/// The resolution of an interface's clock, among its options.
const IF_TSRESOL: u16 = 9;

#[derive(Clone, Copy)]
struct Interface {
    link: u16,
    /// Bytes that are captured of a packet; no limit when 0.
    most: u32,
    /// Counts of its clock in a second.
    resolution: u64,
}

struct Blocks<R> {
    file: R,
    big: bool,
    interfaces: Vec<Interface>,
    number: u64,
}

/// Gives every record of the file to `take`, until that says that it is enough. [`MAGIC`] has been
/// read.
pub(super) fn read(file: impl Read, take: &mut dyn FnMut(Record<'_>) -> bool) -> Result<(), Stop> {
    let mut blocks = Blocks { file, big: false, interfaces: Vec::new(), number: 1 };
    blocks.section()?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 4];
        match blocks.file.read(&mut head[..1])? {
            0 => return Err(Stop::End(End::Whole)),
            _ => blocks.file.read_exact(&mut head[1..])?,
        }
        blocks.number += 1;
        // The same in both byte orders.
        if head == MAGIC {
            blocks.section()?;
            continue;
        }
        let kind = blocks.word(&head, 0);
        let mut length = [0; 4];
        blocks.file.read_exact(&mut length)?;
        let length = blocks.word(&length, 0);
        if length < AROUND || !length.is_multiple_of(4) {
            return Err(blocks.wrong(&format!("says that it has {length} bytes")));
        }
        let inside = length - AROUND;
        if ![INTERFACE, SIMPLE, ENHANCED].contains(&kind) {
            blocks.skip(u64::from(inside) + 4)?;
            continue;
        }
        // A packet with its header and its options.
        if inside > 2 * LARGEST {
            return Err(blocks.wrong(&format!("says that it has {length} bytes")));
        }
        body.resize(inside as usize, 0);
        blocks.file.read_exact(&mut body)?;
        let mut again = [0; 4];
        blocks.file.read_exact(&mut again)?;
        if blocks.word(&again, 0) != length {
            return Err(blocks.wrong("has two different lengths"));
        }
        let more = match kind {
            INTERFACE => {
                blocks.interface(&body)?;
                true
            }
            ENHANCED => take(blocks.enhanced(&body)?),
            _ => take(blocks.simple(&body)?),
        };
        if !more {
            return Ok(());
        }
    }
}

impl<R: Read> Blocks<R> {
    fn wrong(&self, what: &str) -> Stop {
        Stop::Wrong(format!(
            "block {} {what}: the file is damaged from there on; have Wireshark's `editcap` write what it can of it, or \
             capture anew",
            self.number
        ))
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let four = bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
        if self.big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let two = bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
        if self.big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
    }

    /// Passes over so many bytes.
    fn skip(&mut self, bytes: u64) -> Result<(), Stop> {
        let passed = io::copy(&mut self.file.by_ref().take(bytes), &mut io::sink())?;
        if passed == bytes { Ok(()) } else { Err(Stop::End(End::CutOff)) }
    }

    /// The rest of a section's header: length, byte order, version, length of the section.
    fn section(&mut self) -> Result<(), Stop> {
        let mut head = [0; 8];
        let cut_off = |_| Stop::Wrong(format!("the header of a section is cut off: {REMEDY}"));
        self.file.read_exact(&mut head).map_err(cut_off)?;
        self.big = match head[4..] {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return Err(Stop::Wrong(format!("it begins as pcapng does, and is none: {REMEDY}"))),
        };
        let length = self.word(&head, 0);
        if length < 28 || !length.is_multiple_of(4) {
            return Err(self.wrong(&format!("says that it has {length} bytes")));
        }
        self.interfaces.clear();
        debug_assert_eq!(SECTION.to_be_bytes(), MAGIC);
        self.skip(u64::from(length) - 12)
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), Stop> {
        if body.len() < 8 || self.interfaces.len() >= MOST_INTERFACES {
            return Err(self.wrong("describes no interface"));
        }
        let mut resolution = 1_000_000;
        let mut at = 8;
        // Each has a code, a length, and its value up to a multiple of four bytes.
        while at + 4 <= body.len() {
            let (code, len) = (self.half(body, at), usize::from(self.half(body, at + 2)));
            if code == 0 {
                break;
            }
            if let (IF_TSRESOL, Some(&power)) = (code, body.get(at + 4).filter(|_| len == 1)) {
                let base = if power & 0x80 == 0 { 10 } else { 2 };
                let counts = u64::checked_pow(base, u32::from(power & 0x7f));
                resolution = counts.ok_or_else(|| self.wrong("has a clock that is too fine"))?;
            }
            at += 4 + len.next_multiple_of(4);
        }
        let (link, most) = (self.half(body, 0), self.word(body, 4));
        self.interfaces.push(Interface { link, most, resolution });
        Ok(())
    }

    /// A packet with its interface and its time.
    fn enhanced<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Stop> {
        let interface = self.interfaces.get(self.word(body, 0) as usize);
        let interface = interface.ok_or_else(|| self.wrong("is of an interface that nothing describes"))?;
        let (captured, original) = (self.word(body, 12) as usize, self.word(body, 16));
        let bytes = body.get(20..).and_then(|b| b.get(..captured));
        let bytes = bytes.ok_or_else(|| self.wrong("is shorter than its packet"))?;
        let counts = u64::from(self.word(body, 4)) << 32 | u64::from(self.word(body, 8));
        let (whole, part) = (counts / interface.resolution, counts % interface.resolution);
        let nanos = u128::from(part) * 1_000_000_000 / u128::from(interface.resolution);
        let time = Duration::from_secs(whole) + Duration::from_nanos(nanos as u64);
        Ok(Record { time: Some(time), link: interface.link, bytes, original })
    }

    /// A packet of the first interface, without a time; what is behind it fills up to four bytes.
    fn simple<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Stop> {
        let interface = self.interfaces.first();
        let interface = interface.ok_or_else(|| self.wrong("is of an interface that nothing describes"))?;
        let original = self.word(body, 0);
        let all = body.get(4..).unwrap_or_default();
        let most = if interface.most == 0 { original } else { original.min(interface.most) };
        let bytes = all.get(..all.len().min(most as usize)).unwrap_or_default();
        Ok(Record { time: None, link: interface.link, bytes, original })
    }
}
