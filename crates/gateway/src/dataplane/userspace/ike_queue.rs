//! IKE messages on their way from the worker threads to the control thread: bounded, as a socket
//! buffer is. A message that finds no room is dropped, and the worker counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;

use crate::dataplane::IkeDatagram;

/// Messages that may wait: thousands of peers that initiate at once fit.
const MAX_WAITING: usize = 16_384;
/// Bytes of all messages that wait, so that large ones do not fill the memory.
const MAX_BYTES: usize = 8 << 20;

/// Bytes that have waited at once after which the allocator may keep much for nothing.
const MUCH: usize = 64 * 1024;

/// The control thread's end.
pub(super) struct IkeQueue {
    datagrams: mpsc::Receiver<IkeDatagram>,
    bytes: Arc<AtomicUsize>,
    held_much: bool,
}

/// A queue, and the function that puts a message into it. The function returns false when there is
/// no room.
pub(super) fn ike_queue() -> (impl FnMut(IkeDatagram) -> bool + Send + 'static, IkeQueue) {
    let (tx, datagrams) = mpsc::channel(MAX_WAITING);
    let bytes = Arc::new(AtomicUsize::new(0));
    let queued = bytes.clone();
    let put = move |datagram: IkeDatagram| {
        let len = datagram.payload.len();
        if queued.load(Relaxed) + len > MAX_BYTES {
            return false;
        }
        queued.fetch_add(len, Relaxed);
        let taken = tx.try_send(datagram).is_ok();
        if !taken {
            queued.fetch_sub(len, Relaxed);
        }
        taken
    };
    (put, IkeQueue { datagrams, bytes, held_much: false })
}

impl IkeQueue {
    /// The next message; `None` when the workers have ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<IkeDatagram>> {
        let datagram = ready!(self.datagrams.poll_recv(cx));
        if let Some(datagram) = &datagram {
            let waited = self.bytes.fetch_sub(datagram.payload.len(), Relaxed);
            self.held_much |= waited > MUCH;
        }
        Poll::Ready(datagram)
    }

    /// Whether much has waited at once since this was asked the last time.
    pub(super) fn take_held_much(&mut self) -> bool {
        std::mem::take(&mut self.held_much)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn of(len: usize) -> IkeDatagram {
        let local = "192.0.2.1:500".parse().unwrap();
        IkeDatagram { local, remote: local, payload: vec![0; len] }
    }

    #[tokio::test]
    async fn neither_many_nor_large_messages_fill_the_memory_and_taking_one_makes_room() {
        let (mut put, mut queue) = ike_queue();
        assert!(put(of(MAX_BYTES)));
        assert!(!put(of(1)), "no room for a byte");
        assert_eq!(poll_fn(|cx| queue.poll(cx)).await, Some(of(MAX_BYTES)));
        assert_eq!([queue.take_held_much(), queue.take_held_much()], [true, false]);
        assert_eq!((0..MAX_WAITING + 10).filter(|_| put(of(1))).count(), MAX_WAITING);
        // A message that was refused has left no bytes behind.
        assert_eq!(queue.bytes.load(Relaxed), MAX_WAITING);
        drop(put);
        for _ in 0..MAX_WAITING {
            assert_eq!(poll_fn(|cx| queue.poll(cx)).await, Some(of(1)));
        }
        assert_eq!(poll_fn(|cx| queue.poll(cx)).await, None);
        assert_eq!(queue.bytes.load(Relaxed), 0);
    }
}
