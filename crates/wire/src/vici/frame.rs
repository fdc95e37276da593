//! Frames out of a byte stream: length in 32 bits, then the packet.

use super::{Error, MAX_FRAME};

/// Collects what a stream socket delivers and hands out whole frames. Holds at most one frame and what was fed in one
/// go, as long as the caller takes all frames before it feeds more.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
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
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame without its length field, once all of it has come. After an error the stream cannot be followed any
    /// more and has to be closed; the error stays.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((length, rest)) = self.buffer[self.taken..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > MAX_FRAME {
            return Err(Error::FrameLength(length));
        }
        let Some(frame) = rest.get(..size) else { return Ok(None) };
        let frame = frame.to_vec();
        self.taken += 4 + size;
        Ok(Some(frame))
    }

    /// True when the stream may end here: no frame has begun.
    pub fn is_between_frames(&self) -> bool {
        self.taken == self.buffer.len()
    }
}
