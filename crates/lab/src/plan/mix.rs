//! Sizes of packets, and how many of each. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// An Ethernet frame is longer than the IP packet in it by header and FCS.
pub const ETHERNET: u32 = 18;
/// IPv4 and UDP.
pub const HEADERS: u32 = 28;

/// Packets of one size in a mix.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Bytes of the Ethernet frame that would carry the inner packet, FCS included (RFC 2544).
    #[schemars(range(min = 1))]
    pub frame: u32,
    /// Share of the packets.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
}

impl Part {
    /// Bytes of UDP payload.
    pub fn payload(&self) -> u32 {
        self.frame.saturating_sub(ETHERNET + HEADERS)
    }

    /// Bytes of the IP packet.
    pub fn bytes(&self) -> f64 {
        f64::from(self.frame.saturating_sub(ETHERNET))
    }
}

/// Sizes of packets, and how many of each. Shares add up to one.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// As it was asked for.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The sizes.
    #[schemars(length(min = 1))]
    pub parts: Vec<Part>,
    /// How often a packet has not the size of the one before.
    #[schemars(range(min = 0, max = 1))]
    pub change: f64,
    /// Packets are merged on the way, as TCP's are.
    pub merged: bool,
}

/// The largest frame whose packet fits the inner MTU of 1,400 bytes that everything here is
/// measured with.
pub const LARGEST: u32 = 1418;

/// The largest frame of a question: a jumbo frame with a packet of 9,000 bytes.
const LARGEST_JUMBO: u32 = 9_018;

impl Mix {
    /// Frames of one size.
    pub fn frames(frame: u32) -> Self {
        Self { name: frame.to_string(), parts: vec![Part { frame, share: 1.0 }], change: 0.0, merged: false }
    }

    /// Seven of the first size, four of the second, one of the third, as the laboratory's generator
    /// sends them: those of a size in a row.
    pub fn rows(name: &str, frames: [u32; 3]) -> Self {
        let parts = [(0, 7.0), (1, 4.0), (2, 1.0)].map(|(i, n)| Part { frame: frames[i], share: n / 12.0 });
        Self { name: name.into(), parts: parts.into(), change: 3.0 / 12.0, merged: false }
    }

    /// Seven frames of 64 bytes, four of 594 and one of the largest.
    pub fn imix() -> Self {
        Self::rows("imix", [64, 594, LARGEST])
    }

    /// The same sizes in no order.
    pub fn shuffled(self) -> Self {
        let change = 1.0 - self.parts.iter().map(|p| p.share * p.share).sum::<f64>();
        Self { change, ..self }
    }

    /// A bulk transfer over TCP.
    pub fn tcp() -> Self {
        Self { name: "tcp".into(), merged: true, ..Self::frames(LARGEST) }
    }

    /// `imix`, `tcp`, a frame size, or several with weights: `64:7,594:4,1418:1`.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let wrong = |why: &str| {
            LabError::Usage(format!(
                "`{text}` is not a mix: {why}; write imix, tcp, a frame size from 64 to 9018 bytes (FCS included), or sizes \
                 with weights such as 64:7,594:4,1418:1"
            ))
        };
        match text {
            "imix" => return Ok(Self::imix().shuffled()),
            "tcp" => return Ok(Self::tcp()),
            _ => {}
        }
        let mut parts = Vec::new();
        for item in text.split(',') {
            let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
            let frame = size.parse().map_err(|_| wrong(&format!("`{size}` is not a number of bytes")))?;
            let weight: f64 = weight.parse().map_err(|_| wrong(&format!("`{weight}` is not a weight")))?;
            if !(64..=LARGEST_JUMBO).contains(&frame) {
                return Err(wrong(&format!("no Ethernet frame has {frame} bytes")));
            }
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(wrong("a weight is a number above 0"));
            }
            parts.push(Part { frame, share: weight });
        }
        let all: f64 = parts.iter().map(|p| p.share).sum();
        parts.iter_mut().for_each(|p| p.share /= all);
        Ok(Self { name: text.into(), parts, change: 0.0, merged: false }.shuffled())
    }

    /// Bytes that cost by themselves: of merged packets, which are all full, they are a part of the
    /// base.
    pub fn of_bytes(&self) -> f64 {
        if self.merged { 0.0 } else { self.bytes() }
    }

    /// Mean length of the IP packets, bytes.
    pub fn bytes(&self) -> f64 {
        self.parts.iter().map(|p| p.share * p.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_names_sizes_or_weights() {
        let bytes = |text: &str| Mix::parse(text).expect(text).bytes();
        assert_eq!((bytes("64"), bytes("1418"), bytes("tcp")), (46.0, 1400.0, 1400.0));
        assert!((bytes("64:3,128:1") - (46.0 * 3.0 + 110.0) / 4.0).abs() < 1e-9);
        assert!((bytes("imix") - (7.0 * 46.0 + 4.0 * 576.0 + 1400.0) / 12.0).abs() < 1e-9);
        let mix = Mix::parse("64:1,128:1").expect("a mix");
        assert!((mix.change - 0.5).abs() < 1e-9 && !mix.merged);
        for bad in ["", "63", "9019", "big", "64:0", "64:-1", "64:nan", "64:1,,"] {
            assert!(matches!(Mix::parse(bad), Err(LabError::Usage(_))), "{bad}");
        }
    }
}
