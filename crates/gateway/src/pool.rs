//! Threads for work that blocks or takes long: a pool of its own for each kind, so that none can starve another.
//!
//! | pool | threads | work |
//! |---|---|---|
//! | `ipsec-kex` | as many as processors, at least 2 | key exchanges: those of peers that are established and of our own attempts first, three of four at most while others wait |
//! | `ipsec-names` | 16 | name look-ups ([`crate::names`]) |
//! | `ipsec-nft` | 1 | the program `nft` |
//!
//! Threads are started when there is work and end after a while without. Nobody ever joins them: one that hangs in the
//! resolver or in a file system keeps the process from nothing, its end included.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(5);
/// So many pieces of work that come first go before one that may wait.
const OVERTAKING: u32 = 3;
/// Stack of a thread: `getaddrinfo` and the deepest key exchange take less than 200 KB.
const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Whose turn a piece of work is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Before what is [`Turn::Later`], but for every fourth piece.
    First,
    /// After that, and never without end.
    Later,
}

/// Why a piece of work was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// So many pieces of its turn wait already.
    Full(usize),
    /// The system has no thread for us.
    NoThread,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(n) => write!(f, "{n} others wait already"),
            Self::NoThread => f.write_str("the system starts no more threads"),
        }
    }
}

#[derive(Default)]
struct State {
    first: VecDeque<Job>,
    later: VecDeque<Job>,
    /// How many that come first have gone before one that waits since.
    overtaken: u32,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
}

impl State {
    /// The next piece of work. Peers that are established can ask without end, so each time that [`OVERTAKING`] pieces have gone
    /// before one that may wait, that one has its turn.
    fn take(&mut self) -> Option<Job> {
        if self.later.is_empty() || (self.overtaken < OVERTAKING && !self.first.is_empty()) {
            self.overtaken = if self.later.is_empty() { 0 } else { self.overtaken + 1 };
            return self.first.pop_front();
        }
        self.overtaken = 0;
        self.later.pop_front()
    }
}

struct Shared {
    name: &'static str,
    max: usize,
    state: Mutex<State>,
    more: Condvar,
}

/// A pool. Clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl Pool {
    /// At most `max` threads of this name.
    pub fn new(name: &'static str, max: usize) -> Self {
        Self(Arc::new(Shared { name, max, state: Mutex::default(), more: Condvar::new() }))
    }

    /// Has a piece of work done by a thread, unless `room` pieces of its turn wait already. The receiver is told its result;
    /// an error if it has panicked.
    ///
    /// # Errors
    /// The work was not taken, and will not be done.
    pub fn run<T: Send + 'static>(
        &self,
        turn: Turn,
        room: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Refused> {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Whoever asked may not wait any more.
            let _ = tx.send(work());
        });
        let mut state = self.state();
        let waiting = if turn == Turn::First { state.first.len() } else { state.later.len() };
        if waiting >= room {
            return Err(Refused::Full(waiting));
        }
        // Those that are idle may have been woken for what waits already.
        if state.idle <= state.first.len() + state.later.len() && state.threads < self.0.max {
            let pool = self.clone();
            let thread = std::thread::Builder::new().name(self.0.name.into()).stack_size(STACK);
            match thread.spawn(move || pool.work()) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Refused::NoThread),
                // One that is there will come to it.
                Err(_) => {}
            }
        }
        match turn {
            Turn::First => state.first.push_back(job),
            Turn::Later => state.later.push_back(job),
        }
        self.0.more.notify_one();
        Ok(rx)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of the pool.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.take() {
                drop(state);
                // The panic hook has told; the receiver learns of it as its sender is dropped.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
                continue;
            }
            state.idle += 1;
            let waited = self.0.more.wait_timeout(state, IDLE);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.first.is_empty() && state.later.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// All pools of the daemon.
pub(crate) struct Pools {
    pub(crate) kex: Pool,
    pub(crate) names: crate::names::Resolver,
    pub(crate) nft: Pool,
}

impl Default for Pools {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            kex: Pool::new("ipsec-kex", cores.max(2)),
            names: crate::names::Resolver::default(),
            nft: Pool::new("ipsec-nft", 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A piece of work that hangs until its end is dropped, and has begun when this returns.
    fn hang(pool: &Pool) -> mpsc::Sender<()> {
        let (tx, rx) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let _ = pool.run(Turn::First, usize::MAX, move || {
            let _ = began.send(());
            let _ = rx.recv();
        });
        begun.recv_timeout(Duration::from_secs(10)).unwrap();
        tx
    }

    #[test]
    fn what_comes_first_goes_before_what_may_wait_and_what_finds_no_room_is_refused() {
        let pool = Pool::new("test", 1);
        let hanging = hang(&pool);
        let (tx, order) = mpsc::channel();
        let put = |turn, room, n: u32| {
            let tx = tx.clone();
            pool.run(turn, room, move || tx.send(n).unwrap())
        };
        assert!(put(Turn::Later, 2, 1).is_ok() && put(Turn::Later, 2, 2).is_ok());
        assert_eq!(put(Turn::Later, 2, 9).unwrap_err(), Refused::Full(2));
        // However many strangers wait, there is room for the others.
        assert!(put(Turn::First, 2, 3).is_ok());
        drop(hanging);
        let order: Vec<u32> = (0..3).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn what_may_wait_is_not_put_off_for_ever() {
        let pool = Pool::new("test", 1);
        let hanging = hang(&pool);
        let (tx, order) = mpsc::channel();
        let put = |turn, n: u32| {
            let tx = tx.clone();
            pool.run(turn, usize::MAX, move || tx.send(n).unwrap()).unwrap();
        };
        put(Turn::Later, 100);
        put(Turn::Later, 101);
        (0..9).for_each(|n| put(Turn::First, n));
        drop(hanging);
        let order: Vec<u32> = (0..11).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 100, 3, 4, 5, 101, 6, 7, 8]);
    }

    #[test]
    fn no_more_threads_than_allowed_and_one_for_each_piece_until_then() {
        let pool = Pool::new("test", 3);
        // Each of them has begun although none of those before has ended.
        let hanging: Vec<_> = (0..3).map(|_| hang(&pool)).collect();
        let waits = pool.run(Turn::First, usize::MAX, || 7).unwrap();
        assert_eq!(pool.state().threads, 3);
        assert_eq!(pool.state().first.len(), 1);
        drop(hanging);
        assert_eq!(waits.blocking_recv(), Ok(7));
    }

    #[test]
    fn a_panic_ends_its_piece_of_work_and_no_thread() {
        let pool = Pool::new("test", 1);
        let bad = pool.run(Turn::First, 9, || panic!("a test's panic")).unwrap();
        assert!(bad.blocking_recv().is_err());
        let good = pool.run(Turn::First, 9, || 1).unwrap();
        assert_eq!(good.blocking_recv(), Ok(1));
        assert_eq!(pool.state().threads, 1);
    }
}
