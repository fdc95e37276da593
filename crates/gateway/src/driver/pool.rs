//! Threads for work that blocks or takes long: a pool of its own for each kind, so that none can
//! starve another.
//!
//! | pool | threads | work |
//! |---|---|---|
//! | `ipsec-kex` | as many as processors, at least 2 | key exchanges |
//! | `ipsec-names` | 16 | name look-ups ([`crate::driver::names`]) |
//! | `ipsec-nft` | 1 | the program `nft` |
//! | `ipsec-live` | 1 | follows a flow through nft for some seconds |
//!
//! Of the key exchanges, those of established peers and of our own attempts come first. While
//! strangers wait, at least one of four is theirs, and the sites of strangers take turns.
//!
//! Threads are started when there is work and end after a while without. Nobody ever joins them:
//! one that hangs in the resolver or in a file system keeps the process from nothing, its end
//! included.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(5);
/// After this many jobs of [`Turn::First`] in a row, one of [`Turn::Later`] is run.
const OVERTAKING: u32 = 3;
/// Owners without work whose turn is remembered: at most this many, beside as many as have work.
const KEPT: usize = 64;
/// Stack of a thread: `getaddrinfo` and the deepest key exchange take less than 200 KB.
const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The order in which jobs get a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Before what is [`Turn::Later`], but for every fourth piece.
    First,
    /// After that, and never without end. The number says whose work it is: owners take turns, so
    /// that one with much work delays another by one piece.
    Later(u64),
}

/// Place of a job that waits, for [`Pool::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    owner: u64,
    number: u64,
}

/// Why a piece of work was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The limit is reached: this many jobs of the same turn, or of the same owner, wait already.
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

/// Work of several owners, a piece of each in turn.
#[derive(Default)]
struct Turns {
    /// The work of each owner, by number. An owner stays in here, perhaps without work, until its
    /// turn comes or too many are without.
    of: BTreeMap<u64, VecDeque<(u64, Job)>>,
    /// The owners in `of`, in the order of their turns.
    order: VecDeque<u64>,
    /// How many of them have work.
    busy: usize,
    /// Pieces of work in `of`.
    len: usize,
    next: u64,
}

impl Turns {
    /// How many pieces of this owner wait.
    fn waiting(&self, owner: u64) -> usize {
        self.of.get(&owner).map_or(0, VecDeque::len)
    }

    fn push(&mut self, owner: u64, job: Job) -> Place {
        let number = self.next;
        self.next += 1;
        self.len += 1;
        let work = self.of.entry(owner).or_insert_with(|| {
            self.order.push_back(owner);
            VecDeque::new()
        });
        self.busy += usize::from(work.is_empty());
        work.push_back((number, job));
        Place { owner, number }
    }

    fn pop(&mut self) -> Option<Job> {
        while let Some(owner) = self.order.pop_front() {
            let Some(work) = self.of.get_mut(&owner) else { continue };
            let job = work.pop_front();
            let last = work.is_empty();
            if last {
                self.of.remove(&owner);
            } else {
                self.order.push_back(owner);
            }
            if let Some((_, job)) = job {
                self.len -= 1;
                self.busy -= usize::from(last);
                return Some(job);
            }
        }
        None
    }

    /// Takes a piece of work out, unless it has begun.
    fn take(&mut self, place: Place) -> Option<Job> {
        let work = self.of.get_mut(&place.owner)?;
        let at = work.binary_search_by_key(&place.number, |(number, _)| *number).ok()?;
        let (_, job) = work.remove(at)?;
        self.len -= 1;
        if work.is_empty() {
            self.busy -= 1;
            self.forget_idle();
        }
        Some(job)
    }

    /// Takes the owners without work out when they are most of all. What they lose is a turn.
    fn forget_idle(&mut self) {
        if self.order.len() > KEPT + 2 * self.busy {
            self.of.retain(|_, work| !work.is_empty());
            self.order.retain(|owner| self.of.contains_key(owner));
        }
    }
}

#[derive(Default)]
struct State {
    first: VecDeque<Job>,
    later: Turns,
    /// How many that come first have gone before one that waits since.
    overtaken: u32,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
}

impl State {
    /// Pieces of work that wait.
    fn waiting(&self) -> usize {
        self.first.len() + self.later.len
    }

    /// The next piece of work. Peers that are established can ask without end, so each time that
    /// [`OVERTAKING`] pieces have gone before one that may wait, that one has its turn.
    fn take(&mut self) -> Option<Job> {
        if self.later.len == 0 || (self.overtaken < OVERTAKING && !self.first.is_empty()) {
            self.overtaken = if self.later.len == 0 { 0 } else { self.overtaken + 1 };
            return self.first.pop_front();
        }
        self.overtaken = 0;
        self.later.pop()
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

    /// Has a piece of work done by a thread, unless `room` pieces of its turn and owner wait
    /// already. The receiver is told its result; an error if it has panicked or has been cancelled.
    ///
    /// # Errors
    /// The work was not taken, and will not be done.
    pub fn run<T: Send + 'static>(
        &self,
        turn: Turn,
        room: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Refused> {
        self.put(turn, room, work).map(|(result, _)| result)
    }

    /// The same, with the place in which it waits. Work that comes first has none: it cannot be
    /// cancelled.
    ///
    /// # Errors
    /// The work was not taken, and will not be done.
    pub fn put<T: Send + 'static>(
        &self,
        turn: Turn,
        room: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(oneshot::Receiver<T>, Option<Place>), Refused> {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Whoever asked may not wait any more.
            let _ = tx.send(work());
        });
        let mut state = self.state();
        let waiting = match turn {
            Turn::First => state.first.len(),
            Turn::Later(owner) => state.later.waiting(owner),
        };
        if waiting >= room {
            return Err(Refused::Full(waiting));
        }
        // Idle threads may have been woken already, for jobs that wait.
        if state.idle <= state.waiting() && state.threads < self.0.max {
            let pool = self.clone();
            let thread = std::thread::Builder::new().name(self.0.name.into()).stack_size(STACK);
            match thread.spawn(move || pool.work()) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Refused::NoThread),
                // One that is there will come to it.
                Err(_) => {}
            }
        }
        let place = match turn {
            Turn::First => {
                state.first.push_back(job);
                None
            }
            Turn::Later(owner) => Some(state.later.push(owner, job)),
        };
        self.0.more.notify_one();
        Ok((rx, place))
    }

    /// Takes a piece of work back that nobody wants any more, unless a thread has begun with it.
    pub fn cancel(&self, place: Place) {
        let job = self.state().later.take(place);
        // Drop the job after the lock was released, because dropping runs code of its owner.
        drop(job);
    }

    /// Pieces of work that no thread has begun with.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting()
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
            if timeout.timed_out() && state.waiting() == 0 {
                state.threads -= 1;
                return;
            }
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
        assert!(put(Turn::Later(7), 2, 1).is_ok() && put(Turn::Later(7), 2, 2).is_ok());
        assert_eq!(put(Turn::Later(7), 2, 9).unwrap_err(), Refused::Full(2));
        // However many strangers wait, there is room for the others.
        assert!(put(Turn::First, 2, 3).is_ok());
        drop(hanging);
        let order: Vec<u32> = (0..3).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    /// A signature of this owner, which lasts until its end is dropped. The receiver learns when it
    /// has begun.
    fn signature(pool: &Pool, owner: u64) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let sign = move || {
            let _ = began.send(());
            let _ = ended.recv();
        };
        let _ = pool.run(Turn::Later(owner), usize::MAX, sign);
        (end, begun)
    }

    #[test]
    fn a_long_signature_delays_nobody_by_more_than_its_own_time() {
        const SOON: Duration = Duration::from_secs(10);
        // As few threads as the daemon ever has.
        let pool = Pool::new("test", 2);
        let mut of_one: VecDeque<_> = (0..20).map(|_| signature(&pool, 1)).collect();
        let [first, second] = [of_one.pop_front().unwrap(), of_one.pop_front().unwrap()];
        first.1.recv_timeout(SOON).unwrap();
        second.1.recv_timeout(SOON).unwrap();
        // Both threads are busy for peer 1, which has 18 more. An established peer and another
        // stranger come now.
        let established = pool.run(Turn::First, usize::MAX, || ()).unwrap();
        let (stranger, begun) = signature(&pool, 2);
        drop(first.0);
        // One signature has ended: the established peer is served, then peer 1 has its turn.
        established.blocking_recv().unwrap();
        of_one[0].1.recv_timeout(SOON).unwrap();
        // The other one that ran has ended: nothing that began later has to end for peer 2.
        drop(second.0);
        begun.recv_timeout(SOON).unwrap();
        assert!(of_one[1].1.try_recv().is_err(), "peer 1 has had no second turn");
        drop((stranger, of_one));
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
        put(Turn::Later(7), 100);
        put(Turn::Later(7), 101);
        (0..9).for_each(|n| put(Turn::First, n));
        drop(hanging);
        let order: Vec<u32> = (0..11).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 100, 3, 4, 5, 101, 6, 7, 8]);
    }

    #[test]
    fn owners_take_turns_and_what_nobody_wants_any_more_is_not_done() {
        let pool = Pool::new("test", 1);
        let hanging = hang(&pool);
        let (tx, order) = mpsc::channel();
        let put = |owner, room, n: u32| {
            let tx = tx.clone();
            pool.put(Turn::Later(owner), room, move || tx.send(n).unwrap()).map(|(_, place)| place.unwrap())
        };
        let flood: Vec<_> = (0..100).map(|n| put(1, 100, n).unwrap()).collect();
        // The room is each owner's own.
        assert_eq!(put(1, 100, 999).unwrap_err(), Refused::Full(100));
        let other = put(2, 1, 200).unwrap();
        put(3, 1, 300).unwrap();
        // An owner whose work is taken back keeps its turn and no more.
        pool.cancel(other);
        put(2, 1, 201).unwrap();
        flood[2..].iter().for_each(|place| pool.cancel(*place));
        // Twice, or after it has begun, is nothing.
        pool.cancel(flood[99]);
        put(1, 3, 101).unwrap();
        assert_eq!(pool.state().waiting(), 5);
        drop(hanging);
        let order: Vec<u32> = (0..5).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [0, 201, 300, 1, 101]);
        let state = pool.state();
        assert!(state.later.of.is_empty() && state.later.order.is_empty());
        assert_eq!((state.later.len, state.later.busy), (0, 0));
    }

    #[test]
    fn owners_whose_work_is_taken_back_are_forgotten_while_no_turn_comes() {
        let pool = Pool::new("test", 1);
        let _hanging = hang(&pool);
        let put = |owner| pool.put(Turn::Later(owner), 9, || ()).unwrap().1.unwrap();
        (0..10).for_each(|owner| _ = put(owner));
        (100..10_100).for_each(|owner| pool.cancel(put(owner)));
        let state = pool.state();
        let (kept, turns) = (state.later.of.len(), state.later.order.len());
        println!("{kept} owners in {turns} turns");
        assert!(kept == turns && (10..=KEPT + 20).contains(&kept), "{kept} owners, {turns} turns");
        assert_eq!((state.later.busy, state.later.len), (10, 10));
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
