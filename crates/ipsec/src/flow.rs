//! Flows: a packet's selectors packed for comparison, and the inner flows that were accepted on
//! inbound SAs.

use std::net::IpAddr;

use ironswan_wire::ip::{Fragment, IpInfo};
use ironswan_wire::selector::PacketSelector;

/// Slots of [`AcceptedFlows`]: a power of two.
const SLOTS: usize = 4096;

/// Bit of [`FlowKey::rest`]: the packet shows its ports.
const PORTS_SHOWN: u64 = 1 << 1;
/// Bit of [`FlowKey::rest`]: the packet is a later fragment, which shows no ports.
const PORTS_HIDDEN: u64 = 1 << 2;

/// The selectors of a packet, packed for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlowKey {
    pub(crate) src: u128,
    pub(crate) dst: u128,
    /// Ports, protocol, family, [`PORTS_SHOWN`], [`PORTS_HIDDEN`].
    pub(crate) rest: u64,
}

#[inline]
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

impl FlowKey {
    /// The key of a packet that was parsed.
    #[inline]
    pub(crate) fn new(info: &IpInfo, packet: &[u8]) -> Option<Self> {
        let (src, dst) = Self::addresses(info, packet)?;
        let ports = info.ports(packet);
        let (s, d) = ports.unwrap_or_default();
        let rest = u64::from(s) << 48
            | u64::from(d) << 32
            | u64::from(info.protocol) << 8
            | if ports.is_some() { PORTS_SHOWN } else { 0 }
            | u64::from(info.ipv6)
            | if info.fragment == Fragment::Later { PORTS_HIDDEN } else { 0 };
        Some(Self { src, dst, rest })
    }

    /// The key of a whole packet with these selectors.
    pub(crate) fn of_selector(p: &PacketSelector) -> Self {
        let ports = p.src_port.zip(p.dst_port);
        let (s, d) = ports.unwrap_or_default();
        let rest = u64::from(s) << 48
            | u64::from(d) << 32
            | u64::from(p.protocol) << 8
            | if ports.is_some() { PORTS_SHOWN } else { 0 }
            | u64::from(p.src.is_ipv6());
        Self { src: bits(p.src), dst: bits(p.dst), rest }
    }

    /// Source and destination of a packet.
    #[inline]
    pub(crate) fn addresses(info: &IpInfo, packet: &[u8]) -> Option<(u128, u128)> {
        info.addresses(packet).map(|(src, dst)| (bits(src), bits(dst)))
    }

    /// A key that is no packet's, for its [`Self::slot`].
    pub(crate) fn from_parts((src, dst): (u128, u128), rest: u64) -> Self {
        Self { src, dst, rest }
    }

    /// The key of all later fragments between its addresses, of its protocol.
    pub(crate) fn without_ports(self) -> Self {
        Self { rest: self.rest & 0xffff_ffff & !PORTS_SHOWN | PORTS_HIDDEN, ..self }
    }

    /// True for IPv6.
    #[inline(always)]
    pub(crate) fn is_ipv6(&self) -> bool {
        self.rest & 1 != 0
    }

    /// True for later fragments.
    #[inline]
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.rest & PORTS_HIDDEN != 0
    }

    /// The selectors as the SPD takes them.
    #[inline]
    pub(crate) fn selector(&self) -> PacketSelector {
        let addr = |v: u128| match self.rest & 1 {
            0 => IpAddr::V4((v as u32).into()),
            _ => IpAddr::V6(v.into()),
        };
        let shown = self.rest & PORTS_SHOWN != 0;
        PacketSelector {
            src: addr(self.src),
            dst: addr(self.dst),
            protocol: (self.rest >> 8) as u8,
            src_port: shown.then_some((self.rest >> 48) as u16),
            dst_port: shown.then_some((self.rest >> 32) as u16),
        }
    }

    /// Itself and a generation, as an entry of the cache has them.
    #[inline]
    pub(crate) fn words(&self, generation: u64) -> [u64; 6] {
        let halves = |v: u128| (v as u64, (v >> 64) as u64);
        let ((s0, s1), (d0, d1)) = (halves(self.src), halves(self.dst));
        [s0, s1, d0, d1, self.rest, generation]
    }

    /// A hash of 16 bits.
    #[inline]
    pub(crate) fn hash16(&self) -> u16 {
        // The upper bits of a product depend on all bits of its factors.
        (self.hash() >> 48) as u16
    }

    /// A slot of `slots`, a power of two of at most 65,536.
    #[inline]
    pub(crate) fn slot(&self, slots: usize) -> usize {
        usize::from(self.hash16()) & (slots - 1)
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut x = (self.src as u64 ^ (self.src >> 64) as u64).wrapping_mul(K);
        x = (x.rotate_left(29) ^ self.dst as u64 ^ (self.dst >> 64) as u64).wrapping_mul(K);
        // With the ports below, since a product's lower bits do not depend on its factors' upper
        // ones.
        (x.rotate_left(29) ^ self.rest.rotate_left(32)).wrapping_mul(K)
    }
}

/// Inner flows that were accepted on an inbound SA: martian, selector and policy checks give the
/// same answer for all packets of one flow, so they are made once for each.
pub(crate) struct AcceptedFlows {
    entries: Box<[(FlowKey, u32)]>,
    /// Something was entered since the last [`Self::clear`].
    dirty: bool,
}

impl AcceptedFlows {
    pub(crate) fn new() -> Self {
        // SPI 0 is no SA's.
        Self { entries: vec![(FlowKey::default(), 0); SLOTS].into_boxed_slice(), dirty: false }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.entries.fill((FlowKey::default(), 0));
        }
    }

    /// True when this flow was accepted on the SA of this SPI.
    #[inline(always)]
    pub(crate) fn contains(&self, key: &FlowKey, spi: u32) -> bool {
        let (known, of) = &self.entries[key.slot(SLOTS)];
        // In one go: no branch that depends on which part differs.
        (known.src ^ key.src | known.dst ^ key.dst | u128::from(known.rest ^ key.rest | u64::from(of ^ spi)))
            == 0
    }

    pub(crate) fn insert(&mut self, key: &FlowKey, spi: u32) {
        self.entries[key.slot(SLOTS)] = (*key, spi);
        self.dirty = true;
    }
}
