//! Message IDs (RFC 7296 sections 2.2 and 2.3) with a window of one in each direction, and what is
//! stored so that a request that comes again gets the very same bytes.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Place of a request in the window, by its message ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inbound {
    /// The next one.
    New,
    /// The one answered last.
    Again,
    /// Neither: older, or too far ahead.
    Outside,
}

/// A message as it goes out: one datagram, or its fragments in order (RFC 7383).
pub(crate) type Sealed = Vec<Vec<u8>>;

/// Both windows of one IKE_SA.
#[derive(Debug, Default)]
pub(crate) struct Window {
    next_out: u32,
    /// Wider than an ID: behind the last one comes none.
    next_in: u64,
    answered: Option<Answered>,
}

#[derive(Debug)]
struct Answered {
    request: u64,
    response: Vec<Vec<u8>>,
}

/// A digest of a request, to tell a retransmission from another message under the same ID. Not
/// cryptographic: whoever makes a collision is sent bytes that were on the wire before.
pub(crate) fn digest(request: &[u8]) -> u64 {
    let mut h = DefaultHasher::new();
    request.hash(&mut h);
    h.finish()
}

impl Window {
    /// The ID of our next request; `None` when the numbers are used up ("the IKE SA MUST be
    /// closed").
    pub(crate) fn next_out(&self) -> Option<u32> {
        (self.next_out < u32::MAX).then_some(self.next_out)
    }

    /// Our request has been answered.
    pub(crate) fn response_seen(&mut self) {
        self.next_out = self.next_out.saturating_add(1);
    }

    /// Judges the peer's request by its ID.
    pub(crate) fn judge(&self, mid: u32) -> Inbound {
        let mid = u64::from(mid);
        if mid == self.next_in {
            Inbound::New
        } else if mid + 1 == self.next_in {
            Inbound::Again
        } else {
            Inbound::Outside
        }
    }

    /// The stored response, when `request` is the datagram that was answered with it, or the first
    /// fragment of that request: the responder "MUST retransmit its response message" for no other
    /// fragment (RFC 7383 section 2.6.1).
    pub(crate) fn stored(&self, request: &[u8]) -> Option<&[Vec<u8>]> {
        self.answered.as_ref().filter(|a| a.request == digest(request)).map(|a| a.response.as_slice())
    }

    /// The digest of the last request and the response to it.
    pub(crate) fn last(&self) -> Option<(u64, &[Vec<u8>])> {
        self.answered.as_ref().map(|a| (a.request, a.response.as_slice()))
    }

    /// The peer's request with the next ID has been answered. `request` is the [`digest`] of its
    /// datagram, or of its first fragment.
    pub(crate) fn answered(&mut self, request: u64, response: Sealed) {
        self.next_in += 1;
        self.answered = Some(Answered { request, response });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_request_is_new_and_only_the_same_bytes_are_a_retransmission() {
        let mut w = Window::default();
        assert_eq!(w.judge(0), Inbound::New);
        assert_eq!(w.judge(1), Inbound::Outside);
        assert_eq!(w.judge(u32::MAX), Inbound::Outside);
        w.answered(digest(b"request"), vec![b"response".to_vec()]);
        assert_eq!(w.judge(0), Inbound::Again);
        assert_eq!(w.judge(1), Inbound::New);
        assert_eq!(w.stored(b"request"), Some(&[b"response".to_vec()][..]));
        assert_eq!(w.stored(b"requesT"), None);
        w.answered(digest(b"second"), Vec::new());
        assert_eq!(w.judge(0), Inbound::Outside);
        assert_eq!(w.stored(b"request"), None);
    }

    #[test]
    fn our_numbers_end_before_they_wrap() {
        let mut w = Window { next_out: u32::MAX - 1, ..Window::default() };
        assert_eq!(w.next_out(), Some(u32::MAX - 1));
        w.response_seen();
        assert_eq!(w.next_out(), None);
    }

    #[test]
    fn behind_the_peers_last_number_no_request_is_new() {
        let mut w = Window { next_in: u64::from(u32::MAX), ..Window::default() };
        assert_eq!(w.judge(u32::MAX), Inbound::New);
        w.answered(digest(b"the last"), Vec::new());
        assert_eq!(w.judge(u32::MAX), Inbound::Again);
        assert_eq!(w.judge(0), Inbound::Outside);
    }
}
