//! Peers to which the kernel refuses segmented sends: no checksum offload on the way, or something
//! else that does not go away by itself. They are sent datagram by datagram for a while, and then
//! it is tried again: the route may be another.

use std::net::IpAddr;

/// Peers that are remembered; past this, all are taken to be like them.
const REMEMBERED: usize = 256;
/// Messages that go in pieces before segmentation is tried again: after a refusal that may be for
/// this one message only, and at most. The number doubles with each refusal in a row.
const FIRST: u32 = 4;
const LAST: u32 = 1 << 16;
/// A peer is reported when so many go in pieces.
const REPORTED: u32 = 1 << 10;

#[derive(Debug)]
struct Peer {
    address: IpAddr,
    /// Messages until it is tried again.
    left: u32,
    /// Messages after the next refusal.
    next: u32,
    reported: bool,
}

/// Peers to which the kernel has refused segmented sends, and when to try again.
#[derive(Debug, Default)]
pub(crate) struct Unsegmentable {
    peers: Vec<Peer>,
    /// There are too many to tell apart: messages to anybody until they are tried again.
    all: u32,
    news: Vec<IpAddr>,
}

impl Unsegmentable {
    /// True when a message to this peer should not be tried as it is.
    #[inline]
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        self.all > 0 || self.peers.iter().any(|p| p.left > 0 && p.address == address)
    }

    /// A message to this peer went in pieces.
    pub(crate) fn passed(&mut self, address: IpAddr) {
        self.all = self.all.saturating_sub(1);
        for peer in self.peers.iter_mut().filter(|p| p.address == address) {
            peer.left = peer.left.saturating_sub(1);
        }
    }

    /// Nothing is known of anybody.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// A segmented message was refused; `for_good`: for a reason that lies in the route and not in
    /// the message.
    #[cold]
    pub(crate) fn refused(&mut self, address: IpAddr, for_good: bool) {
        let at = self.peers.iter().position(|p| p.address == address).unwrap_or_else(|| {
            self.peers.push(Peer { address, left: 0, next: FIRST, reported: false });
            self.peers.len() - 1
        });
        let peer = &mut self.peers[at];
        peer.left = if for_good { LAST } else { peer.next };
        peer.next = (peer.left * 2).min(LAST);
        if peer.left >= REPORTED && !peer.reported {
            peer.reported = true;
            self.news.push(address);
        }
        if self.peers.len() > REMEMBERED {
            // A path that has become narrow refuses single messages, however many peers are behind
            // it.
            if for_good {
                self.all = LAST;
            }
            self.peers.remove(0);
        }
    }

    /// A segmented message was taken.
    #[cold]
    pub(crate) fn taken(&mut self, address: IpAddr) {
        // One that was reported is not reported again.
        self.peers.retain(|p| p.address != address || p.reported);
        for peer in self.peers.iter_mut().filter(|p| p.address == address) {
            (peer.left, peer.next) = (0, FIRST);
        }
    }

    /// The next peer that has to be told about, each once.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<IpAddr> {
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
        while u.holds(peer) {
            u.passed(peer);
            n += 1;
        }
        n
    }

    #[test]
    fn a_route_without_segmentation_is_reported_once_and_tried_again_rarely() {
        let mut u = Unsegmentable::default();
        assert!(!u.holds(A));
        u.refused(A, true);
        assert_eq!((u.take(), u.take()), (Some(A), None));
        assert!(!u.holds(B));
        assert_eq!(pieces(&mut u, A), LAST);
        u.refused(A, true);
        assert_eq!((pieces(&mut u, A), u.take()), (LAST, None));
        // The route has changed for the better, and for the worse again.
        u.taken(A);
        assert!(!u.holds(A));
        u.refused(A, true);
        assert_eq!((pieces(&mut u, A), u.take()), (LAST, None));
    }

    #[test]
    fn what_may_be_one_message_s_fault_costs_a_few_and_then_more() {
        let mut u = Unsegmentable::default();
        let mut all = Vec::new();
        for _ in 0..16 {
            u.refused(A, false);
            all.push(pieces(&mut u, A));
        }
        assert_eq!(all[..3], [4, 8, 16]);
        assert_eq!(all[15], LAST);
        assert_eq!((u.take(), u.take()), (Some(A), None));
        // One that is taken ends it.
        u.refused(B, false);
        u.taken(B);
        u.refused(B, false);
        assert_eq!((pieces(&mut u, B), u.take()), (FIRST, None));
    }

    #[test]
    fn past_a_number_of_peers_none_is_tried() {
        let mut u = Unsegmentable::default();
        for i in 0..=REMEMBERED as u32 {
            u.refused(IpAddr::V4(i.into()), true);
        }
        assert!(u.holds(A));
        u.taken(A);
        assert_eq!(pieces(&mut u, A), LAST);
    }

    #[test]
    fn single_messages_to_many_peers_say_nothing_of_the_others() {
        let mut u = Unsegmentable::default();
        for i in 0..10 * REMEMBERED as u32 {
            u.refused(IpAddr::V4(i.into()), false);
        }
        assert!(!u.holds(A));
        assert!(u.peers.len() <= REMEMBERED);
    }
}
