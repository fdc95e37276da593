//! Bounded queue of frames to one client, in order. A client is disconnected when an event finds no
//! room; answers to its own commands wait for room. A frame may bring keys to a capture: it is
//! wiped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;
use zeroize::Zeroizing;

/// Bytes that may wait. One frame more may stand behind them.
const MAX_BYTES: usize = 256 * 1024;

/// The frames that wait for a client.
#[derive(Default)]
pub(super) struct Queue {
    frames: RefCell<VecDeque<Zeroizing<Vec<u8>>>>,
    bytes: Cell<usize>,
    most: Cell<usize>,
    closed: Cell<bool>,
    finished: Cell<bool>,
    more: Notify,
    room: Notify,
    gone: Notify,
}

impl Queue {
    /// Adds a frame if there is room, else closes.
    pub(super) fn push(&self, frame: Vec<u8>) {
        if self.closed.get() {
            return;
        }
        if self.bytes.get() > MAX_BYTES {
            self.close();
            return;
        }
        self.bytes.set(self.bytes.get() + frame.len());
        self.most.set(self.most.get().max(self.bytes.get()));
        self.frames.borrow_mut().push_back(Zeroizing::new(frame));
        self.more.notify_one();
    }

    /// Adds a frame once there is room. False when the client is gone.
    pub(super) async fn push_when_room(&self, frame: Vec<u8>) -> bool {
        while !self.closed.get() && self.bytes.get() > MAX_BYTES / 2 {
            self.room.notified().await;
        }
        self.push(frame);
        !self.closed.get()
    }

    /// The next frame; `None` at the end.
    pub(super) async fn next(&self) -> Option<Zeroizing<Vec<u8>>> {
        loop {
            if self.closed.get() {
                return None;
            }
            if let Some(frame) = self.frames.borrow_mut().pop_front() {
                self.bytes.set(self.bytes.get().saturating_sub(frame.len()));
                self.room.notify_one();
                return Some(frame);
            }
            if self.finished.get() {
                return None;
            }
            self.more.notified().await;
        }
    }

    /// Nothing more will come; what is in it is still sent.
    pub(super) fn finish(&self) {
        self.finished.set(true);
        self.more.notify_one();
    }

    /// Ends it at once.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.frames.borrow_mut().clear();
        self.more.notify_one();
        self.room.notify_one();
        self.gone.notify_one();
    }

    /// Bytes that waited at one time, at most.
    pub(super) fn most(&self) -> usize {
        self.most.get()
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        while !self.closed.get() {
            self.gone.notified().await;
        }
        // For whoever waits next.
        self.gone.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block<F: Future>(f: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
    }

    #[test]
    fn frames_come_out_in_order_and_the_end_comes_last() {
        let q = Queue::default();
        q.push(vec![1]);
        q.push(vec![2]);
        q.finish();
        let got = block(async { [q.next().await, q.next().await, q.next().await] });
        assert_eq!(got.map(|frame| frame.map(|f| f.to_vec())), [Some(vec![1]), Some(vec![2]), None]);
    }

    #[test]
    fn events_without_room_close_it_and_answers_wait() {
        let q = Queue::default();
        (0..10).for_each(|_| q.push(vec![0; 64 * 1024]));
        assert!(q.closed.get());
        assert_eq!(q.most(), MAX_BYTES + 64 * 1024);
        assert_eq!(block(q.next()), None);
        let q = Queue::default();
        block(async {
            let fill = async {
                for _ in 0..100 {
                    assert!(q.push_when_room(vec![0; 64 * 1024]).await);
                }
                q.finish();
            };
            let drain = async {
                let mut n = 0;
                while q.next().await.is_some() {
                    n += 1;
                    tokio::task::yield_now().await;
                }
                n
            };
            assert_eq!(tokio::join!(fill, drain).1, 100);
        });
    }
}
