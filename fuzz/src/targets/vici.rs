//! What a client writes to the control socket: one frame's packet, and a stream of frames.

use ironswan_wire::vici::{Error, FrameReader, MAX_FRAME, Packet};

use super::signature;

/// Elements, lengths, and names that mean something.
pub const DICTIONARY: &[&[u8]] = &[
    &[1, 1, b's'],
    &[2],
    &[3, 1, b'k', 0, 1, b'v'],
    &[3, 0, 0, 0],
    &[4, 1, b'l'],
    &[5, 0, 1, b'i'],
    &[5, 0, 0],
    &[6],
    &[4, 1, b'l', 6],
    &[1, 1, b's', 1, 1, b's', 1, 1, b's', 1, 1, b's'],
    &[2, 2, 2, 2],
    &[0, 0, 0, 1, 5],
    &[0, 8, 0, 0],
    &[0, 8, 0, 1],
    b"\x00\x07version",
    b"\x03\x07list-sa",
];

/// Runs the bytes as a packet, then as what comes out of a socket in pieces.
pub fn run(data: &[u8]) -> u64 {
    let result = match Packet::parse(data) {
        Ok(packet) => {
            let frame = packet.emit().expect("what was read is small enough to be written");
            assert_eq!(&frame[4..], data, "there is one way to write a packet");
            assert!(!format!("{packet:?}").contains('\n'));
            signature((0, data.first(), data.iter().filter(|b| **b <= 6).count().checked_ilog2()))
        }
        Err(Error::Short(len)) => signature((1, len.what)),
        Err(Error::Unbalanced(what)) => signature((2, what)),
        Err(Error::FrameLength(_)) => unreachable!("a packet has no frame length"),
        Err(e) => signature((3, std::mem::discriminant(&e))),
    };
    let mut reader = FrameReader::new();
    let step = 1 + usize::from(data.first().copied().unwrap_or(0)) % 7;
    'stream: for piece in data.chunks(step) {
        reader.feed(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    assert!((1..=MAX_FRAME).contains(&frame.len()));
                    let _ = Packet::parse(&frame);
                }
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    result
}
