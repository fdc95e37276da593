//! Frames out of a byte stream: length in 32 bits, then the packet. Frames may bring keys, so that
//! what has been handed out is wiped, and so is memory that became too small.

use zeroize::{Zeroize, Zeroizing};

use super::{Error, MAX_FRAME};

/// Collects what a stream socket delivers and hands out whole frames. Holds at most one frame and
/// what was fed in one go, as long as the caller takes all frames before it feeds more.
#[derive(Default)]
pub struct FrameReader {
    buffer: Zeroizing<Vec<u8>>,
    /// Bytes at the front that were handed out.
    taken: usize,
}

impl FrameReader {
    /// An empty reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what was read from the socket, in pieces of any size.
    pub fn feed(&mut self, bytes: &[u8]) {
        let left = self.buffer.len() - self.taken;
        if left + bytes.len() <= self.buffer.capacity() {
            if self.taken > 0 {
                self.buffer.copy_within(self.taken.., 0);
                // The bytes behind the moved rest are old copies: wipe them, too.
                self.buffer[left..].zeroize();
                self.buffer.truncate(left);
            }
        } else {
            let mut larger = Vec::with_capacity((left + bytes.len()).next_power_of_two());
            larger.extend_from_slice(&self.buffer[self.taken..]);
            // The old one is wiped when it goes.
            self.buffer = Zeroizing::new(larger);
        }
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame without its length field, once all of it has come. After an error the stream
    /// cannot be followed any more and has to be closed; the error stays.
    pub fn next_frame(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let Some((length, rest)) = self.buffer[self.taken..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > MAX_FRAME {
            return Err(Error::FrameLength(length));
        }
        let Some(frame) = rest.get(..size) else { return Ok(None) };
        let frame = Zeroizing::new(frame.to_vec());
        let from = self.taken;
        self.taken += 4 + size;
        self.buffer[from..self.taken].zeroize();
        Ok(Some(frame))
    }

    /// True when the stream may end here: no frame has begun.
    pub fn is_between_frames(&self) -> bool {
        self.taken == self.buffer.len()
    }
}

impl std::fmt::Debug for FrameReader {
    /// Says how much there is, and nothing of it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameReader({} bytes)", self.buffer.len() - self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the reader's memory holds, in use or not, is what it has not handed out.
    #[test]
    fn nothing_of_a_frame_stays_when_it_has_been_handed_out() {
        let frame = [&[0, 0, 0, 9][..], b"swordfish"].concat();
        let mut reader = FrameReader::new();
        for split in [1, 4, 7, 13] {
            reader.feed(&frame[..split]);
            reader.feed(&[&frame[split..], &[0, 0, 0, 200], &[7; 30]].concat());
            assert_eq!(reader.next_frame().unwrap().unwrap().as_slice(), b"swordfish");
            assert_eq!(reader.next_frame(), Ok(None));
            let shows = |reader: &FrameReader| {
                let len = reader.buffer.len();
                let mut whole = reader.buffer.to_vec();
                whole.resize(len.max(13), 0);
                whole.windows(3).any(|w| b"swordfish".windows(3).any(|s| s == w))
            };
            assert!(!shows(&reader), "handed out");
            // The rest moves to the front, and then to larger memory.
            reader.feed(&[7; 170]);
            assert_eq!(reader.next_frame().unwrap().unwrap().as_slice(), [7; 200]);
            assert!(!shows(&reader) && reader.is_between_frames());
        }
        assert_eq!(format!("{reader:?}"), "FrameReader(0 bytes)");
    }
}
