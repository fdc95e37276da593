//! Messages of the peer that come in fragments (RFC 7383 section 2.6), and whether ours may.
//!
//! ```text
//! SKF number n of total --> wanted? --> its ICV is verified --> kept --> all there: one message
//!                            |                                   |
//!                            v no: dropped                       v longer than MESSAGE_BYTES:
//!                                                                  all are dropped, and the rest
//!                                                                  is refused;
//!                                                                  too late: all are dropped
//! ```
//! Only a holder of the keys gets a fragment in here, and the window of message IDs leaves it two
//! messages at a time: its next request, and its response to ours.

use std::collections::BTreeMap;
use std::time::Instant;

use ironswan_keying::limits::{FRAGMENTS_PER_MESSAGE, MESSAGE_BYTES};
use ironswan_wire::iana::{ExchangeType, PayloadType};
use ironswan_wire::ike::{Fragment, GENERIC_LEN, HEADER_LEN, Header};

use crate::window::digest;

/// The payloads of one message in bytes, without padding.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Inner {
    /// Type of the first payload.
    pub first: PayloadType,
    /// What stands in front of them in the message, as it would stand there if the message had come
    /// whole ([`Message::front`](ironswan_wire::ike::Message::front)).
    pub front: Vec<u8>,
    pub bytes: Vec<u8>,
    /// [`digest`] of the datagram, or of the one with the first fragment.
    pub digest: u64,
}

/// One fragment of which the ICV is right.
pub(super) struct Opened<'a> {
    pub header: &'a Header,
    pub fragment: Fragment,
    /// Type of the first payload, as this fragment has it; only the first one tells.
    pub first: PayloadType,
    /// [`Inner::front`], of the first fragment only.
    pub front: Vec<u8>,
    /// Contents without padding.
    pub text: &'a [u8],
    /// The datagram.
    pub datagram: &'a [u8],
    /// How long it is kept when it is the first of its message.
    pub until: Instant,
}

/// State of a message after one more fragment.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// Other fragments are missing.
    Part,
    /// All are there.
    Whole(Inner),
    /// The message is longer than a message may be.
    TooLong,
}

/// Fragments of one message.
#[derive(Debug)]
struct Partial {
    mid: u32,
    /// When it is given up: counted from its first fragment, whatever else waits.
    until: Instant,
    exchange: ExchangeType,
    total: u16,
    /// Bytes of all contents and of the payloads in clear so far. More than [`MESSAGE_BYTES`]: the
    /// message is too long, and no fragment of it is kept.
    len: usize,
    /// Contents, by fragment number.
    parts: BTreeMap<u16, Vec<u8>>,
    /// First payload, front and digest, from fragment 1.
    head: Option<(PayloadType, Vec<u8>, u64)>,
}

/// Fragments of one IKE_SA.
#[derive(Default, Debug)]
pub(super) struct Fragments {
    /// Both sides have announced that they take fragments.
    agreed: bool,
    /// In boxes: of many IKE_SAs, few wait for fragments.
    request: Option<Box<Partial>>,
    response: Option<Box<Partial>>,
}

impl Fragments {
    /// Of an IKE_SA on which both sides have announced fragments, or have not.
    pub(super) fn new(agreed: bool) -> Self {
        Self { agreed, request: None, response: None }
    }

    /// Both sides have announced that they take fragments.
    pub(super) fn are_agreed(&self) -> bool {
        self.agreed
    }

    /// When the first of the messages that wait for fragments is given up; `None`: none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        [&self.request, &self.response].into_iter().flatten().map(|p| p.until).min()
    }

    /// Drops the fragments of messages that have waited long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        for slot in [&mut self.request, &mut self.response] {
            *slot = slot.take().filter(|p| p.until > now);
        }
    }

    /// Judges a fragment before its ICV is computed: the number is new, and the total "is greater
    /// than or equal to the Total Fragments field in the IKE Fragment Messages that have already
    /// been stored" (RFC 7383 section 2.6).
    pub(super) fn wants(&self, header: &Header, fragment: Fragment) -> bool {
        let kept = if header.is_response() { &self.response } else { &self.request };
        let place = (1..=fragment.total).contains(&fragment.number);
        self.agreed
            && place
            && fragment.total <= FRAGMENTS_PER_MESSAGE
            && kept.as_ref().filter(|p| p.mid == header.message_id).is_none_or(|p| {
                p.exchange == header.exchange
                    && p.len <= MESSAGE_BYTES
                    && (fragment.total > p.total
                        || fragment.total == p.total && !p.parts.contains_key(&fragment.number))
            })
    }

    /// Keeps a fragment that is [wanted](Self::wants) and authentic. A larger total than before
    /// means smaller fragments of the same message: the receiver "MUST discard all received
    /// fragments and start the reassembly process over".
    pub(super) fn add(&mut self, opened: Opened<'_>) -> Added {
        let Opened { header, fragment, first, front, text, datagram, until } = opened;
        let slot = if header.is_response() { &mut self.response } else { &mut self.request };
        let fresh = || {
            let (mid, exchange, total) = (header.message_id, header.exchange, fragment.total);
            Box::new(Partial { mid, until, exchange, total, len: 0, parts: BTreeMap::new(), head: None })
        };
        if slot.as_ref().is_some_and(|p| p.mid != header.message_id || p.total != fragment.total) {
            *slot = None;
        }
        let partial = slot.get_or_insert_with(fresh);
        // What stands in front of SKF in clear counts, too.
        partial.len += text.len() + front.len().saturating_sub(HEADER_LEN + GENERIC_LEN);
        if partial.len > MESSAGE_BYTES {
            partial.parts.clear();
            partial.head = None;
            return Added::TooLong;
        }
        partial.parts.insert(fragment.number, text.to_vec());
        if fragment.number == 1 {
            partial.head = Some((first, front, digest(datagram)));
        }
        if partial.parts.len() < usize::from(partial.total) {
            return Added::Part;
        }
        let whole = slot.take().and_then(|p| Some((p.head?, p.parts)));
        whole.map_or(Added::Part, |((first, front, digest), parts)| {
            Added::Whole(Inner { first, front, bytes: parts.into_values().flatten().collect(), digest })
        })
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;
    use ironswan_wire::ike::Flags;

    const NOTIFY: PayloadType = PayloadType::NOTIFY;

    fn header(response: bool, mid: u32) -> Header {
        Header::new(1, 2, ExchangeType::INFORMATIONAL, Flags::new(true, response), mid)
    }

    fn give(f: &mut Fragments, header: &Header, number: u16, total: u16, text: &[u8]) -> Option<Inner> {
        give_until(f, header, (number, total), text, Instant::now())
    }

    fn give_until(
        f: &mut Fragments,
        header: &Header,
        (number, total): (u16, u16),
        text: &[u8],
        until: Instant,
    ) -> Option<Inner> {
        let fragment = Fragment { number, total };
        assert!(f.wants(header, fragment), "{fragment:?}");
        let first = if number == 1 { NOTIFY } else { PayloadType::NONE };
        let (front, datagram) = (vec![number as u8], &number.to_be_bytes());
        match f.add(Opened { header, fragment, first, front, text, datagram, until }) {
            Added::Part => None,
            Added::Whole(inner) => Some(inner),
            Added::TooLong => panic!("too long"),
        }
    }

    fn refuses(f: &Fragments, header: &Header, number: u16, total: u16) -> bool {
        !f.wants(header, Fragment { number, total })
    }

    #[test]
    fn fragments_in_any_order_make_the_message_once() {
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let (mut f, h) = (Fragments::new(true), header(false, 7));
            let mut whole = None;
            for n in order {
                assert_eq!(whole, None);
                whole = give(&mut f, &h, n, 3, &[n as u8; 2]);
                assert!(whole.is_some() || refuses(&f, &h, n, 3), "the same one again");
            }
            let bytes = vec![1, 1, 2, 2, 3, 3];
            let expected = Inner { first: NOTIFY, front: vec![1], bytes, digest: digest(&[0, 1]) };
            assert_eq!(whole, Some(expected));
            assert_eq!(f.due(), None);
        }
    }

    #[test]
    fn numbers_outside_the_total_and_totals_outside_the_limit_are_refused() {
        let (f, h) = (Fragments::new(true), header(false, 7));
        for (number, total) in [(0, 1), (0, 0), (2, 1), (1, 0), (1, FRAGMENTS_PER_MESSAGE + 1), (1, u16::MAX)]
        {
            assert!(refuses(&f, &h, number, total), "{number} of {total}");
        }
        assert!(!refuses(&f, &h, FRAGMENTS_PER_MESSAGE, FRAGMENTS_PER_MESSAGE));
        assert!(refuses(&Fragments::new(false), &h, 1, 2), "nothing was announced");
    }

    #[test]
    fn a_smaller_total_is_refused_and_a_larger_one_begins_anew() {
        let (mut f, h) = (Fragments::new(true), header(true, 7));
        assert_eq!(give(&mut f, &h, 1, 3, b"old"), None);
        assert_eq!(give(&mut f, &h, 2, 3, b"old"), None);
        assert!(refuses(&f, &h, 1, 2));
        assert_eq!(give(&mut f, &h, 4, 4, b"d"), None);
        assert!(refuses(&f, &h, 3, 3), "a fragment of before");
        for (n, text) in [(1, b"a"), (2, b"b")] {
            assert_eq!(give(&mut f, &h, n, 4, text), None);
        }
        assert_eq!(give(&mut f, &h, 3, 4, b"c").map(|w| w.bytes), Some(b"abcd".to_vec()));
    }

    #[test]
    fn a_message_that_grows_beyond_the_limit_is_dropped_whole_and_its_other_fragments_are_refused() {
        let (mut f, h) = (Fragments::new(true), header(false, 0));
        assert_eq!(give(&mut f, &h, 1, 3, &vec![0; MESSAGE_BYTES]), None);
        let (fragment, first) = (Fragment { number: 2, total: 3 }, PayloadType::NONE);
        let until = Instant::now();
        let (front, text, datagram) = (Vec::new(), &[0][..], &[][..]);
        let one_more = Opened { header: &h, fragment, first, front, text, datagram, until };
        assert_eq!(f.add(one_more), Added::TooLong);
        assert!(f.request.as_ref().is_some_and(|p| p.parts.is_empty()));
        for (number, total) in [(1, 3), (2, 3), (3, 3), (1, 4), (4, 4)] {
            assert!(refuses(&f, &h, number, total), "{number} of {total}");
        }
        assert_eq!(give(&mut f, &header(false, 1), 1, 2, b"q"), None, "the next message is another one");
    }

    #[test]
    fn requests_and_responses_are_apart_and_another_message_replaces_the_one_before() {
        let mut f = Fragments::new(true);
        assert_eq!(give(&mut f, &header(false, 1), 1, 2, b"q"), None);
        assert_eq!(give(&mut f, &header(true, 1), 2, 2, b"R"), None);
        let other = Header { exchange: ExchangeType::CREATE_CHILD_SA, ..header(false, 1) };
        assert!(refuses(&f, &other, 2, 2), "of another exchange");
        assert_eq!(give(&mut f, &header(false, 2), 2, 2, b"Q"), None);
        assert_eq!(give(&mut f, &header(true, 1), 1, 2, b"r").map(|w| w.bytes), Some(b"rR".to_vec()));
        assert_eq!(give(&mut f, &header(false, 2), 1, 2, b"p").map(|w| w.bytes), Some(b"pQ".to_vec()));
    }

    #[test]
    fn each_message_has_a_time_of_its_own() {
        let (mut f, start) = (Fragments::new(true), Instant::now());
        let at = |s| start + std::time::Duration::from_secs(s);
        assert_eq!(give_until(&mut f, &header(false, 1), (1, 3), b"q", at(10)), None);
        assert_eq!(give_until(&mut f, &header(true, 1), (1, 2), b"r", at(20)), None);
        // A later fragment does not prolong it, a larger total and another message begin anew.
        assert_eq!(give_until(&mut f, &header(false, 1), (2, 3), b"q", at(30)), None);
        assert_eq!(f.due(), Some(at(10)));
        f.expire(at(10));
        assert!(f.request.is_none());
        assert_eq!(f.due(), Some(at(20)));
        assert_eq!(give_until(&mut f, &header(true, 1), (1, 3), b"r", at(40)), None);
        assert_eq!(f.due(), Some(at(40)));
        assert_eq!(give_until(&mut f, &header(true, 2), (1, 2), b"r", at(50)), None);
        assert_eq!(f.due(), Some(at(50)));
        f.expire(at(50));
        assert_eq!(f.due(), None);
    }
}
