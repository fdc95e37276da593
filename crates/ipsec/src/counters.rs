//! Counts every packet under the one thing that happened to it. "The books balance"
//! (ARCHITECTURE.md, invariant 3):
//!
//! ```text
//! out_frames + out_made + out_dummies = out_sent + out_absorbed + held + drops (DropReason::Out*)
//! in_packets                          = in_writes + in_merged + in_dummies + in_held + drops (In*)
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a packet was dropped: a closed list, one sentence each. Names follow
        /// `/proc/net/xfrm_stat` where it has one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of the discriminants.
            pub const ALL: &[DropReason] = &[$(DropReason::$name,)+];

            /// The name, as metrics and `list counters` show it.
            pub fn name(self) -> &'static str {
                match self {
                    $(DropReason::$name => stringify!($name),)+
                }
            }

            /// One sentence for people.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(DropReason::$name => concat!($($doc),+).trim_ascii_start(),)+
                }
            }
        }
    };
}

drop_reasons! {
    /// A packet from the TUN device is not a well-formed IP packet.
    OutHdrError,
    /// A packet from the TUN device contradicts its offload header.
    OutOffloadError,
    /// No policy covers the packet (RFC 4301: the last resort is discard).
    OutNoPolicy,
    /// A DISCARD policy covers the packet.
    OutPolBlock,
    /// A BYPASS policy covers the packet, which steering should have kept away from the TUN device.
    OutPolBypass,
    /// A PROTECT policy covers the packet, there is no SA, and the packet could not wait for one,
    /// or not long enough.
    OutNoStates,
    /// The SA of the packet's policy was narrowed to selectors that do not cover the packet.
    OutStateMismatch,
    /// The SA's sequence numbers are used up.
    OutStateSeqError,
    /// The SA's hard limit of bytes or packets is reached.
    OutStateExpired,
    /// The packet with its encapsulation is longer than a datagram or a send batch can be.
    OutTooBig,
    /// A transport mode SA covers the packet, which does not go from the SA's own address to its
    /// peer's or has an IP header that cannot be kept.
    OutTransport,
    /// A fragment for a transport mode SA, of a packet that could not be put together: fragments
    /// overlap, are missing or are too many.
    OutReassembly,
    /// No engine sealed the packet, which is a defect of this program: it was wiped and not sent.
    OutStateProtoError,
    /// The datagram lies outside the buffer that it is said to be in, or its batch becomes more
    /// than a batch may hold.
    InBufferError,
    /// The datagram is too short to be ESP, or is not AH with the lengths of its SA.
    InHdrError,
    /// The SPI is one of the reserved 0 to 255.
    InReservedSpi,
    /// The AH packet, or what a transport mode SA carried, or an ICMP error, is a fragment.
    InFragment,
    /// No SA has the packet's SPI, and the packet could not wait for one, or not long enough.
    InNoStates,
    /// The packet is ESP and its SA speaks AH, or the other way round.
    InStateProtocol,
    /// The sequence number is left of the replay window, or zero.
    InStateSeqOld,
    /// The sequence number has been received before.
    InStateSeqDuplicate,
    /// The integrity check failed: a wrong key, or a forged or damaged packet.
    InStateProtoError,
    /// The SA's hard limit of bytes or packets is reached.
    InStateExpired,
    /// The ESP trailer has an impossible pad length or padding other than 1, 2, 3.
    InTrailerError,
    /// The next header is not an IP version: this is a tunnel mode SA.
    InStateModeError,
    /// What IPComp compressed does not inflate to a packet, or holds IPComp again, or the SA has no
    /// IPComp with this CPI.
    InIpcompError,
    /// The inner packet's version is not the one that the next header says.
    InInnerVersion,
    /// The inner packet is not a well-formed IP packet.
    InInnerHdrError,
    /// The inner IPv4 header's checksum is wrong.
    InInnerChecksum,
    /// The inner packet has an address that no packet on a wire may have.
    InInnerMartian,
    /// The inner packet's addresses, protocol or ports are outside the SA's selectors.
    InStateMismatch,
    /// A DISCARD policy covers the inner packet.
    InPolBlock,
    /// Another policy than that of its SA covers the inner packet, or the packet that it complains
    /// about, first.
    InTmplMismatch,
    /// The outer header says congestion experienced and the inner packet cannot carry it (RFC
    /// 6040).
    InEcnError,
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

const REASONS: usize = DropReason::ALL.len();

/// Traffic, in packets unless the name says bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Reads from the TUN device: packets and super-packets.
    pub out_frames: u64,
    /// Packets more than `out_frames` that cutting super-packets made.
    pub out_made: u64,
    /// Fragments that became part of a packet for transport mode, which one of them stands for.
    pub out_absorbed: u64,
    /// Dummy packets made (RFC 4303 section 2.6).
    pub out_dummies: u64,
    /// ESP and AH packets put into send batches, less those that were taken out again
    /// ([`DropReason::OutStateProtoError`]).
    pub out_sent: u64,
    /// Inner bytes of the packets put into send batches.
    pub out_bytes: u64,
    /// ESP and AH packets received.
    pub in_packets: u64,
    /// Writes to the TUN device: packets and merged packets.
    pub in_writes: u64,
    /// Packets that were merged into an earlier one's write.
    pub in_merged: u64,
    /// Dummy packets (next header 59), absorbed as RFC 4303 section 2.6 wants.
    pub in_dummies: u64,
    /// Inner bytes delivered.
    pub in_bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: &Self) {
        self.out_frames += other.out_frames;
        self.out_made += other.out_made;
        self.out_absorbed += other.out_absorbed;
        self.out_dummies += other.out_dummies;
        self.out_sent += other.out_sent;
        self.out_bytes += other.out_bytes;
        self.in_packets += other.in_packets;
        self.in_writes += other.in_writes;
        self.in_merged += other.in_merged;
        self.in_dummies += other.in_dummies;
        self.in_bytes += other.in_bytes;
    }
}

/// A snapshot of all counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Traffic.
    pub traffic: Traffic,
    drops: [u64; REASONS],
    /// Frames that wait inside the engine: for an SA, or for the other fragments of their packet.
    pub held: u64,
    /// Packets received that wait for an SA which is being made.
    pub in_held: u64,
    /// Acquires that were not queued: rate-limited, or the queue was full.
    pub acquires_suppressed: u64,
}

impl Counters {
    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Every reason with its count.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|r| (*r, self.drops[*r as usize]))
    }

    /// Packets dropped going out.
    pub fn dropped_out(&self) -> u64 {
        self.drops().filter(|(r, _)| r.name().starts_with("Out")).map(|(_, n)| n).sum()
    }

    /// Packets dropped coming in.
    pub fn dropped_in(&self) -> u64 {
        self.drops().filter(|(r, _)| r.name().starts_with("In")).map(|(_, n)| n).sum()
    }

    /// True when every packet that came is accounted for.
    pub fn balance(&self) -> bool {
        let t = &self.traffic;
        t.out_frames + t.out_made + t.out_dummies
            == t.out_sent + t.out_absorbed + self.held + self.dropped_out()
            && t.in_packets == t.in_writes + t.in_merged + t.in_dummies + self.in_held + self.dropped_in()
    }
}

/// Counts of a worker between two flushes, without atomics.
pub(crate) struct Tally {
    pub(crate) traffic: Traffic,
    /// Frames taken in to be held, less those let go.
    pub(crate) held: i64,
    /// Packets received that began to wait, less those that no longer do.
    pub(crate) in_held: i64,
    /// Packets taken out of send batches again.
    unsent: u64,
    drops: [u64; REASONS],
    dropped: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            traffic: Traffic::default(),
            held: 0,
            in_held: 0,
            unsent: 0,
            drops: [0; REASONS],
            dropped: false,
        }
    }
}

impl Tally {
    /// Takes back packets that were counted as sent and then not sealed.
    #[cold]
    pub(crate) fn unsealed(&mut self, packets: u64) {
        self.unsent += packets;
        self.drops[DropReason::OutStateProtoError as usize] += packets;
        self.dropped = true;
    }

    /// Adds the counts of another tally, and resets that one.
    pub(crate) fn take(&mut self, other: &mut Self) {
        self.traffic.add(&std::mem::take(&mut other.traffic));
        self.held += std::mem::take(&mut other.held);
        self.in_held += std::mem::take(&mut other.in_held);
        self.unsent += std::mem::take(&mut other.unsent);
        if std::mem::take(&mut other.dropped) {
            self.dropped = true;
            for (to, from) in self.drops.iter_mut().zip(&mut other.drops) {
                *to += std::mem::take(from);
            }
        }
    }

    #[cold]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
        self.dropped = true;
    }
}

/// The place of `out_sent` in [`Totals`].
const OUT_SENT: usize = 4;

/// The counters of all workers together.
pub(crate) struct Totals {
    traffic: [AtomicU64; 11],
    held: AtomicU64,
    in_held: AtomicU64,
    drops: [AtomicU64; REASONS],
    pub(crate) acquires_suppressed: AtomicU64,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            traffic: Default::default(),
            held: AtomicU64::new(0),
            in_held: AtomicU64::new(0),
            drops: [const { AtomicU64::new(0) }; REASONS],
            acquires_suppressed: AtomicU64::new(0),
        }
    }
}

impl Totals {
    /// Adds what a worker counted and resets it.
    pub(crate) fn add(&self, tally: &mut Tally) {
        let t = &tally.traffic;
        let values = [
            t.out_frames,
            t.out_made,
            t.out_absorbed,
            t.out_dummies,
            t.out_sent,
            t.out_bytes,
            t.in_packets,
            t.in_writes,
            t.in_merged,
            t.in_dummies,
            t.in_bytes,
        ];
        for (total, value) in self.traffic.iter().zip(values) {
            if value != 0 {
                total.fetch_add(value, Relaxed);
            }
        }
        tally.traffic = Traffic::default();
        if tally.held != 0 {
            // Two's complement: a negative difference wraps around to the right sum.
            self.held.fetch_add(std::mem::take(&mut tally.held) as u64, Relaxed);
        }
        if tally.in_held != 0 {
            self.in_held.fetch_add(std::mem::take(&mut tally.in_held) as u64, Relaxed);
        }
        if tally.dropped {
            self.traffic[OUT_SENT].fetch_sub(std::mem::take(&mut tally.unsent), Relaxed);
            for (total, value) in self.drops.iter().zip(&mut tally.drops) {
                total.fetch_add(std::mem::take(value), Relaxed);
            }
            tally.dropped = false;
        }
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let [
            out_frames,
            out_made,
            out_absorbed,
            out_dummies,
            out_sent,
            out_bytes,
            in_packets,
            in_writes,
            in_merged,
            in_dummies,
            in_bytes,
        ] = self.traffic.each_ref().map(|c| c.load(Relaxed));
        Counters {
            traffic: Traffic {
                out_frames,
                out_made,
                out_absorbed,
                out_dummies,
                out_sent,
                out_bytes,
                in_packets,
                in_writes,
                in_merged,
                in_dummies,
                in_bytes,
            },
            drops: self.drops.each_ref().map(|c| c.load(Relaxed)),
            held: self.held.load(Relaxed),
            in_held: self.in_held.load(Relaxed),
            acquires_suppressed: self.acquires_suppressed.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_direction_and_a_sentence() {
        for (i, r) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*r as usize, i);
            assert!(r.name().starts_with("Out") != r.name().starts_with("In"), "{r}");
            assert!(r.sentence().ends_with('.') && r.sentence().len() > 20, "{r}");
            assert!(!r.sentence().starts_with(' '));
        }
    }
}
