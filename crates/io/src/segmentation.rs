//! Peers to which the kernel refuses segmented sends: no checksum offload on the way, or something
//! else that does not go away by itself. They are sent datagram by datagram for a while, and then
//! it is tried again: the route may be another.

use std::net::IpAddr;

/// Limits the peers that are remembered. When more refuse, all peers are treated as if they did.
const MAX_PEERS: usize = 256;
/// Messages that go in pieces before segmentation is tried again: after a first refusal that may
/// concern one message only, and at most. The number doubles with each refusal in a row.
const MIN_PAUSE: u32 = 4;
const MAX_PAUSE: u32 = 1 << 16;
/// A peer is reported when its pause reaches this number of messages.
const REPORT_PAUSE: u32 = 1 << 10;

#[derive(Debug)]
struct Peer {
    address: IpAddr,
    /// Messages until segmentation is tried again.
    left: u32,
    /// Pause after the next refusal, in messages.
    next: u32,
    reported: bool,
}

/// Peers to which the kernel has refused segmented sends, and when to try again.
#[derive(Debug, Default)]
pub(crate) struct Unsegmentable {
    peers: Vec<Peer>,
    /// Messages to any peer until segmentation is tried again. Not 0 only when more peers than
    /// [`MAX_PEERS`] refuse.
    all: u32,
    news: Vec<IpAddr>,
}

impl Unsegmentable {
    /// True when a message to this peer should go in pieces.
    #[inline]
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.all > 0 || self.peers.iter().any(|p| p.left > 0 && p.address == address)
    }

    /// Counts a message to this peer that went in pieces.
    pub(crate) fn note_sent_in_pieces(&mut self, address: IpAddr) {
        self.all = self.all.saturating_sub(1);
        for peer in self.peers.iter_mut().filter(|p| p.address == address) {
            peer.left = peer.left.saturating_sub(1);
        }
    }

    /// True when no peer has refused.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Notes that a segmented message was refused; `for_good`: because of the route, not because of
    /// the message.
    #[cold]
    pub(crate) fn note_refused(&mut self, address: IpAddr, for_good: bool) {
        let at = self.peers.iter().position(|p| p.address == address).unwrap_or_else(|| {
            self.peers.push(Peer { address, left: 0, next: MIN_PAUSE, reported: false });
            self.peers.len() - 1
        });
        let peer = &mut self.peers[at];
        peer.left = if for_good { MAX_PAUSE } else { peer.next };
        peer.next = (peer.left * 2).min(MAX_PAUSE);
        if peer.left >= REPORT_PAUSE && !peer.reported {
            peer.reported = true;
            self.news.push(address);
        }
        if self.peers.len() > MAX_PEERS {
            // A path that has become narrow refuses single messages, however many peers are behind
            // it.
            if for_good {
                self.all = MAX_PAUSE;
            }
            self.peers.remove(0);
        }
    }

    /// Notes that a segmented message was accepted.
    #[cold]
    pub(crate) fn note_accepted(&mut self, address: IpAddr) {
        // One that was reported is not reported again.
        self.peers.retain(|p| p.address != address || p.reported);
        for peer in self.peers.iter_mut().filter(|p| p.address == address) {
            (peer.left, peer.next) = (0, MIN_PAUSE);
        }
    }

    /// Takes the next peer to report. Each is reported once.
    #[inline]
    pub(crate) fn take_news(&mut self) -> Option<IpAddr> {
        self.news.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// Messages in pieces until it is tried again.
    fn pieces(u: &mut Unsegmentable, peer: IpAddr) -> u32 {
        let mut n = 0;
        while u.contains(peer) {
            u.note_sent_in_pieces(peer);
            n += 1;
        }
        n
    }

    #[test]
    fn a_route_without_segmentation_is_reported_once_and_tried_again_rarely() {
        let mut u = Unsegmentable::default();
        assert!(!u.contains(A));
        u.note_refused(A, true);
        assert_eq!((u.take_news(), u.take_news()), (Some(A), None));
        assert!(!u.contains(B));
        assert_eq!(pieces(&mut u, A), MAX_PAUSE);
        u.note_refused(A, true);
        assert_eq!((pieces(&mut u, A), u.take_news()), (MAX_PAUSE, None));
        // The route has changed for the better, and for the worse again.
        u.note_accepted(A);
        assert!(!u.contains(A));
        u.note_refused(A, true);
        assert_eq!((pieces(&mut u, A), u.take_news()), (MAX_PAUSE, None));
    }

    #[test]
    fn what_may_be_one_message_s_fault_costs_a_few_and_then_more() {
        let mut u = Unsegmentable::default();
        let mut all = Vec::new();
        for _ in 0..16 {
            u.note_refused(A, false);
            all.push(pieces(&mut u, A));
        }
        assert_eq!(all[..3], [4, 8, 16]);
        assert_eq!(all[15], MAX_PAUSE);
        assert_eq!((u.take_news(), u.take_news()), (Some(A), None));
        // One that is taken ends it.
        u.note_refused(B, false);
        u.note_accepted(B);
        u.note_refused(B, false);
        assert_eq!((pieces(&mut u, B), u.take_news()), (MIN_PAUSE, None));
    }

    #[test]
    fn past_a_number_of_peers_none_is_tried() {
        let mut u = Unsegmentable::default();
        for i in 0..=MAX_PEERS as u32 {
            u.note_refused(IpAddr::V4(i.into()), true);
        }
        assert!(u.contains(A));
        u.note_accepted(A);
        assert_eq!(pieces(&mut u, A), MAX_PAUSE);
    }

    #[test]
    fn single_messages_to_many_peers_say_nothing_of_the_others() {
        let mut u = Unsegmentable::default();
        for i in 0..10 * MAX_PEERS as u32 {
            u.note_refused(IpAddr::V4(i.into()), false);
        }
        assert!(!u.contains(A));
        assert!(u.peers.len() <= MAX_PEERS);
    }
}
