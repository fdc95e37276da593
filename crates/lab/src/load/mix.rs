//! Sizes, and with a capture flows, that the packets of a trial have in turn. Pure.

/// Bytes of UDP payload of packet after packet, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// A short pattern.
    Simple([u16; Mix::LEN]),
    /// The packets of a capture.
    Captured(&'static Captured),
}

/// Packets of a capture, as the generator sends them.
#[derive(Debug, PartialEq, Eq)]
pub struct Captured {
    packets: Vec<(u16, u32)>,
    bytes: u64,
    largest: u16,
    flows: u32,
}

impl Mix {
    /// Packets of the short pattern.
    pub const LEN: usize = 12;

    /// The simple Internet mix: of twelve packets seven of the first size, four of the second, one
    /// of the third (bytes of UDP payload). Those of a size come in a row, so that a row is one
    /// system call.
    pub fn simple(sizes: [u16; 3]) -> Self {
        Self::Simple(std::array::from_fn(|n| sizes[usize::from(n >= 7) + usize::from(n >= 11)]))
    }

    /// Packets of these sizes (bytes of UDP payload) and flows; none without packets. The list is
    /// read once in a run and stays as long as the program does.
    pub fn captured(packets: Vec<(u16, u32)>) -> Option<Self> {
        let largest = packets.iter().map(|(size, _)| *size).max()?;
        let bytes = packets.iter().map(|(size, _)| u64::from(*size)).sum();
        let flows = packets.iter().map(|(_, flow)| flow + 1).max()?;
        Some(Self::Captured(Box::leak(Box::new(Captured { packets, bytes, largest, flows }))))
    }

    /// The mean, bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Simple(sizes) => sizes.iter().map(|s| f64::from(*s)).sum::<f64>() / Self::LEN as f64,
            Self::Captured(all) => all.bytes as f64 / all.packets.len() as f64,
        }
    }

    /// The largest, bytes.
    pub fn largest(&self) -> usize {
        usize::from(match self {
            Self::Simple(sizes) => sizes.iter().copied().max().unwrap_or(0),
            Self::Captured(all) => all.largest,
        })
    }

    /// How many flows its packets have; none where they take turns.
    pub fn flows(&self) -> Option<u32> {
        match self {
            Self::Simple(_) => None,
            Self::Captured(all) => Some(all.flows),
        }
    }

    /// Bytes of the packet of that number.
    pub(super) fn len(&self, number: u32) -> usize {
        usize::from(match self {
            Self::Simple(sizes) => sizes[number as usize % Self::LEN],
            Self::Captured(all) => all.at(number).0,
        })
    }

    /// Flow of the packet of that number; none where flows take turns.
    pub(super) fn flow(&self, number: u32) -> Option<u32> {
        match self {
            Self::Simple(_) => None,
            Self::Captured(all) => Some(all.at(number).1),
        }
    }

    /// Sizes change from packet to packet: those of a call have lengths of their own.
    pub(super) fn changes(&self) -> bool {
        matches!(self, Self::Captured(_))
    }
}

impl Captured {
    fn at(&self, number: u32) -> (u16, u32) {
        self.packets[number as usize % self.packets.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_capture_come_in_its_order_over_and_over() {
        let mix = Mix::captured(vec![(18, 0), (1400, 1), (100, 0)]).expect("a mix");
        let at = |n| (mix.len(n), mix.flow(n));
        assert_eq!([0, 1, 2, 4].map(at), [(18, Some(0)), (1400, Some(1)), (100, Some(0)), (1400, Some(1))]);
        assert_eq!((mix.largest(), mix.mean(), mix.changes()), (1400, 506.0, true));
        assert_eq!(mix.flows(), Some(2));
        assert_eq!(Mix::captured(vec![]), None);
        let simple = Mix::simple([18, 524, 1472]);
        assert_eq!((simple.largest(), simple.flow(3), simple.changes()), (1472, None, false));
    }
}
