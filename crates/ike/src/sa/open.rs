//! Seals and opens the messages of one IKE_SA, whole or in fragments (RFC 7383).

use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_keying::Fragmentation;
use ironswan_wire::ike::{Header, Message, ParseError, Payload, Within, parse_chain, sealed};

use super::IkeSa;
use super::fragments::{self, Added, Fragments, Inner};
use crate::window::{Sealed, digest};

/// Bytes of a notification in front of its data, with its generic header, without SPI.
const NOTIFY_HEADER: usize = 8;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of the non-ESP marker.
const MARKER: usize = 4;

/// A message of the peer, as far as it can be read.
pub(crate) enum Opened {
    /// Not authentic, or not even that: nothing may change because of it.
    Junk,
    /// A fragment that is known or not wanted. Whether it is authentic has not been asked.
    Stale,
    /// An authentic fragment of a message of which others are missing.
    Part,
    /// An authentic fragment, with which its message is longer than a message may be.
    TooLong,
    /// An authentic message.
    Whole(Inner, Result<Vec<Payload>, ParseError>),
}

impl IkeSa {
    /// Seals payloads into a message, in fragments if both sides take them and its IP packet would
    /// be longer than `fragment_size` bytes. `None` only when something does not fit its field on
    /// the wire, or without keys.
    pub(crate) fn seal(
        &mut self,
        rng: &mut dyn Rng,
        header: &Header,
        inner: &[Payload],
        fragment_size: usize,
    ) -> Option<Sealed> {
        let may = self.fragments.are_agreed() && self.conn.fragmentation == Fragmentation::Yes;
        // IP and UDP headers, and the non-ESP marker.
        let (smallest, headers) =
            if self.remote().is_ipv4() { (576, 20 + 8 + 4) } else { (1_280, 40 + 8 + 4) };
        let size = if fragment_size == 0 { smallest } else { fragment_size };
        self.crypt.seal(rng, header, inner, may.then(|| size.saturating_sub(headers)))
    }

    /// Seals payloads into one message, however long it is.
    pub(crate) fn seal_whole(
        &mut self,
        rng: &mut dyn Rng,
        header: &Header,
        inner: &[Payload],
    ) -> Option<Sealed> {
        self.crypt.seal(rng, header, inner, None)
    }

    /// A message for an IP packet that is as large as it can be within `bytes`: bytes of data in
    /// its notification, and of the packet. `natt`: our port for NAT traversal.
    pub(crate) fn probe_size(&self, bytes: u32, natt: u16) -> Option<(usize, u32)> {
        let ip = if self.remote().is_ipv4() { 20 } else { 40 };
        let headers = ip + UDP + if self.local().port() == natt { MARKER } else { 0 };
        let (room, len) = self.crypt.room((bytes as usize).checked_sub(headers)?)?;
        Some((room.checked_sub(NOTIFY_HEADER)?, u32::try_from(headers + len).ok()?))
    }

    /// Opens a message: authenticates it first, and reads the payloads inside then. A fragment that
    /// is the first of its message waits for the others `until` then.
    pub(crate) fn open(&mut self, bytes: &[u8], until: Instant) -> Opened {
        let Ok(message) = Message::parse(bytes) else { return Opened::Junk };
        // Clear payloads before SK carry no meaning in any exchange here. AUTH covers those of
        // IKE_INTERMEDIATE.
        let inner = match message.payloads.last() {
            Some(Payload::Sk(sk)) => {
                let Some(text) = self.crypt.open(bytes, &message) else { return Opened::Junk };
                let front = message.front(bytes).unwrap_or_default();
                let digest = digest(bytes);
                sealed::unpad(&text).map(|plain| Inner {
                    first: sk.inner,
                    front,
                    bytes: plain.to_vec(),
                    digest,
                })
            }
            Some(Payload::Skf(skf)) => {
                if !self.fragments.wants(&message.header, skf.fragment) {
                    return Opened::Stale;
                }
                let Some(text) = self.crypt.open(bytes, &message) else { return Opened::Junk };
                match sealed::unpad(&text) {
                    Ok(text) => {
                        let (header, fragment, first) = (&message.header, skf.fragment, skf.inner);
                        let front = match fragment.number {
                            1 => message.front(bytes).unwrap_or_default(),
                            _ => Vec::new(),
                        };
                        let datagram = bytes;
                        let opened =
                            fragments::Opened { header, fragment, first, front, text, datagram, until };
                        match self.fragments.add(opened) {
                            Added::Part => return Opened::Part,
                            Added::TooLong => return Opened::TooLong,
                            Added::Whole(inner) => Ok(inner),
                        }
                    }
                    Err(e) => Err(e),
                }
            }
            _ => return Opened::Junk,
        };
        match inner {
            Ok(inner) => {
                let payloads = parse_chain(inner.first, &inner.bytes, Within::Sk);
                Opened::Whole(inner, payloads)
            }
            Err(e) => {
                let (first, digest) = (ironswan_wire::iana::PayloadType::NONE, digest(bytes));
                Opened::Whole(Inner { first, front: Vec::new(), bytes: Vec::new(), digest }, Err(e))
            }
        }
    }

    /// True when this is an authentic first fragment. A peer that gets no answer may send its
    /// request again in smaller fragments (RFC 7383 section 2.5.2).
    pub(crate) fn is_first_fragment(&self, bytes: &[u8]) -> bool {
        let Ok(message) = Message::parse(bytes) else { return false };
        let first = matches!(message.payloads.last(), Some(Payload::Skf(skf)) if skf.fragment.number == 1);
        first && self.fragments.are_agreed() && self.crypt.open(bytes, &message).is_some()
    }

    /// Both sides take fragments, or one of them does not.
    pub(crate) fn agree_fragments(&mut self, agreed: bool) {
        self.fragments = Fragments::new(agreed);
    }

    /// When fragments that wait for others are given up next; `None`: none wait.
    pub(crate) fn fragments_due(&self) -> Option<Instant> {
        self.fragments.due()
    }

    /// Drops fragments whose others have not come in time.
    pub(crate) fn expire_fragments(&mut self, now: Instant) {
        self.fragments.expire(now);
    }
}
