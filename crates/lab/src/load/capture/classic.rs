//! Records of a classic pcap file (draft-ietf-opsawg-pcap): a header, then a short header before
//! each packet; in either byte order, with times in micro- or nanoseconds.

use std::io::Read;
use std::time::Duration;

use super::{End, LARGEST, REMEDY, Record, Stop};

/// Bytes of the file's header behind the magic number, and of a record's.
const FILE_HEADER: usize = 20;
const RECORD_HEADER: usize = 16;

/// Gives every record of the file to `take`, until that says that it is enough. `magic` has been
/// read.
pub(super) fn read(
    magic: [u8; 4],
    mut file: impl Read,
    take: &mut dyn FnMut(Record<'_>) -> bool,
) -> Result<(), Stop> {
    let (big, fraction) = match u32::from_be_bytes(magic) {
        0xa1b2_c3d4 => (true, 1_000),
        0xd4c3_b2a1 => (false, 1_000),
        0xa1b2_3c4d => (true, 1),
        0x4d3c_b2a1 => (false, 1),
        _ => return Err(Stop::Wrong(format!("it is no capture in the form of pcap or pcapng: {REMEDY}"))),
    };
    let word = |bytes: &[u8], at: usize| {
        let four = bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
        if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    };
    let mut header = [0; FILE_HEADER];
    file.read_exact(&mut header).map_err(|_| Stop::Wrong(format!("its header is cut off: {REMEDY}")))?;
    // Bits above these say how long the frames' check sequence is.
    let link = (word(&header, 16) & 0xffff) as u16;
    let mut bytes = Vec::new();
    for number in 1u64.. {
        let mut head = [0; RECORD_HEADER];
        match file.read(&mut head[..1])? {
            0 => return Err(Stop::End(End::Whole)),
            _ => file.read_exact(&mut head[1..])?,
        }
        let (captured, original) = (word(&head, 8), word(&head, 12));
        if captured > LARGEST {
            return Err(Stop::Wrong(format!(
                "packet {number} is said to have {captured} bytes: the file is damaged from there on; cut it before with \
                 `editcap -r FILE NEW 1-{}`, or capture anew",
                number - 1
            )));
        }
        bytes.resize(captured as usize, 0);
        file.read_exact(&mut bytes)?;
        let nanos = u64::from(word(&head, 4)) * fraction;
        let time = Duration::from_secs(word(&head, 0).into()) + Duration::from_nanos(nanos);
        if !take(Record { time: Some(time), link, bytes: &bytes, original }) {
            break;
        }
    }
    Ok(())
}
