//! Batches that several threads work on leave in the order of their tickets.
//!
//! ```text
//! taken under a lock:      #7  #8  #9 ...   a thread that takes a batch takes the next ticket
//! worked on in any order:  #6  #7  #8
//! left in order:           #5               the next one that leaves
//! ```
//! The thread that completes the next batch lets it leave, and all that follow it and are complete.
//! A batch that is complete and not the next waits in its slot for that thread.
//!
//! Nobody waits for anybody: a thread that completes a batch out of turn goes on with other work.
//! Every ticket that was taken has to be completed, or nothing leaves any more.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The order in which batches leave.
#[derive(Debug)]
pub(super) struct Order<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// The ticket that leaves next.
    next: u64,
    /// Complete batches from ticket `next` on; `None` for one that is not complete yet.
    complete: VecDeque<Option<T>>,
    /// A thread lets batches leave.
    leaving: bool,
}

impl<T> Order<T> {
    /// Begins with ticket 0, with room for so many batches that wait.
    pub(super) fn new(room: usize) -> Self {
        let state = State { next: 0, complete: VecDeque::with_capacity(room), leaving: false };
        Self { state: Mutex::new(state) }
    }

    /// A batch is complete: `leave` is called for every batch whose turn it is, in order, and by
    /// one thread at a time; here for at most so many. True when there is one more whose turn it
    /// is, for which nobody may come: [`Self::go_on`].
    pub(super) fn complete(&self, ticket: u64, batch: T, most: usize, leave: impl FnMut(T)) -> bool {
        let mut state = self.lock();
        let at = (ticket - state.next) as usize;
        while state.complete.len() <= at {
            state.complete.push_back(None);
        }
        state.complete[at] = Some(batch);
        self.leave(state, most, leave)
    }

    /// Lets batches leave whose turn it is, as [`Self::complete`] does.
    pub(super) fn go_on(&self, most: usize, leave: impl FnMut(T)) -> bool {
        self.leave(self.lock(), most, leave)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        most: usize,
        mut leave: impl FnMut(T),
    ) -> bool {
        if state.leaving {
            // The thread that lets batches leave looks again before it stops, and finds this one.
            return false;
        }
        state.leaving = true;
        for _ in 0..most {
            let Some(batch) = state.complete.front_mut().and_then(Option::take) else { break };
            state.complete.pop_front();
            state.next += 1;
            drop(state);
            leave(batch);
            state = self.lock();
        }
        state.leaving = false;
        matches!(state.complete.front(), Some(Some(_)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Every order in which a few batches can be completed, and at every departure any of the
    /// others may be completed by another thread: they leave in the order of their tickets, each
    /// once, and one at a time.
    #[test]
    fn every_schedule_leaves_in_the_order_of_tickets() {
        // A schedule: which batch is completed next, and whether that happens while another one
        // leaves.
        fn permutations(n: u64) -> Vec<Vec<u64>> {
            if n == 0 {
                return vec![vec![]];
            }
            let shorter = permutations(n - 1);
            let insert = |p: &Vec<u64>, at| [&p[..at], &[n - 1], &p[at..]].concat();
            shorter.iter().flat_map(|p| (0..=p.len()).map(move |at| insert(p, at))).collect()
        }
        struct Run {
            order: Order<u64>,
            todo: RefCell<Vec<u64>>,
            nested: RefCell<u32>,
            left: RefCell<Vec<u64>>,
        }
        impl Run {
            fn one(&self) {
                let Some(ticket) = self.todo.borrow_mut().pop() else { return };
                self.order.complete(ticket, ticket, usize::MAX, |t| {
                    self.left.borrow_mut().push(t);
                    let before = self.left.borrow().len();
                    // Another thread comes in while this one leaves.
                    while self.nested.replace_with(|bits| *bits >> 1) & 1 == 1 {
                        self.one();
                    }
                    assert_eq!(self.left.borrow().len(), before, "nobody leaves meanwhile");
                });
            }
        }
        for n in 1..=5u64 {
            for schedule in permutations(n) {
                for nested in 0..1 << (2 * n) {
                    let run = Run {
                        order: Order::new(2),
                        todo: RefCell::new(schedule.clone()),
                        nested: RefCell::new(nested),
                        left: RefCell::default(),
                    };
                    while !run.todo.borrow().is_empty() {
                        run.one();
                    }
                    assert!(run.left.borrow().iter().copied().eq(0..n), "{schedule:?} {nested:b}");
                }
            }
        }
    }

    #[test]
    fn threads_that_finish_at_any_time_leave_in_order() {
        const EACH: u64 = 50_000;
        let (order, tickets) = (Order::new(8), Mutex::new(0u64));
        let left = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for i in 0..EACH {
                        let ticket = {
                            let mut next = tickets.lock().unwrap();
                            *next += 1;
                            *next - 1
                        };
                        if (ticket ^ i) % 7 == 0 {
                            std::thread::yield_now();
                        }
                        // Nobody else is inside: `try_lock` never fails.
                        order.complete(ticket, ticket, usize::MAX, |t| left.try_lock().unwrap().push(t));
                    }
                });
            }
        });
        assert!(left.into_inner().unwrap().into_iter().eq(0..4 * EACH));
    }

    #[test]
    fn a_thread_is_not_kept_for_longer_than_it_says_and_another_goes_on() {
        let order = Order::new(4);
        let mut left = Vec::new();
        for ticket in [1, 2, 3] {
            assert!(!order.complete(ticket, ticket, 2, |t| left.push(t)));
        }
        assert!(order.complete(0, 0, 2, |t| left.push(t)), "2 and 3 are left");
        assert!(order.go_on(1, |t| left.push(t)));
        assert!(!order.go_on(2, |t| left.push(t)));
        assert!(!order.go_on(2, |t| left.push(t)));
        assert_eq!(left, [0, 1, 2, 3]);
    }
}
