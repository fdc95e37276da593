//! The thread that keeps the program at the ingress ([`Keeper`]). It asks the kernel for lists of
//! interfaces, addresses and filters, has a program checked and set at each interface: work that
//! may take long, and that nobody else waits for but who has to.
//!
//! ```text
//! record ── want, look ──▶ asked ──▶ thread: keep ──▶ done ──▶ who waits; lines for the log
//!                            ▲                          │
//!                            └──────── a pause ─────────┘
//! ```
//! The pause is four times as long as the work took, and there is none when somebody waits. After a
//! failure the work is tried again every 10 s.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironswan_io::clock;
use ironswan_io::ingress::{Counter, Filter};
use tokio::sync::watch;

use super::super::Count;
use super::{KeepOutcome, Keeper, incomplete};

/// After work that took t the thread pauses for this many times t, unless somebody waits.
const PAUSE_SHARE: u32 = 4;
/// Pause before we ask the kernel again for what it has refused. No notice says when it would
/// accept.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    lists: Arc<Filter>,
    /// Number of requests so far, and of those that are done.
    asked: u64,
    done: u64,
    /// Requests up to this number are worked off without pauses, because somebody waits for them.
    hurried: u64,
    ended: bool,
    last: KeepOutcome,
    stands: Vec<String>,
    counter: Option<Counter>,
}

impl State {
    /// Lets the thread work off all requests until now without pauses.
    fn hurry(&mut self, shared: &Shared) {
        self.hurried = self.asked;
        shared.change.notify_all();
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    change: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the thread. Dropping the handle ends the thread.
#[derive(Debug)]
pub struct KeeperThread {
    shared: Arc<Shared>,
    done: watch::Receiver<u64>,
}

impl KeeperThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start(keeper: Keeper) -> std::io::Result<Self> {
        Self::with(keeper)
    }

    pub(crate) fn with(keeper: impl KeepIngress) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (tell, done) = watch::channel(0);
        let its = shared.clone();
        // The kernel may take its time: nobody waits for the thread's end.
        let _ = std::thread::Builder::new()
            .name("ipsec-ingress".into())
            .stack_size(512 * 1024)
            .spawn(move || work(&its, keeper, &tell))?;
        Ok(Self { shared, done })
    }

    /// Asks for programs with these lists.
    pub fn want(&self, lists: &Arc<Filter>) {
        self.ask(|state| state.lists = lists.clone());
    }

    /// Asks the thread to look whether the programs still stand, because something has changed.
    pub fn look(&self) {
        self.ask(|_| {});
    }

    fn ask(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        state.asked += 1;
        self.shared.change.notify_all();
    }

    /// Blocks until all requests until now are done.
    pub fn settle(&self) {
        let mut state = self.shared.state();
        state.hurry(&self.shared);
        while state.done < state.asked {
            state = self.shared.change.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends when all requests until now are done.
    pub fn settled(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.shared.state();
        state.hurry(&self.shared);
        let (asked, mut done) = (state.asked, self.done.clone());
        async move {
            // Without the thread there is nothing to wait for.
            let _ = done.wait_for(|done| *done >= asked).await;
        }
    }

    /// A receiver that is told the number of requests done, whenever that grows.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.done.clone()
    }

    /// The outcome of the last pass, with the interfaces restored and the lines for the log since
    /// the last call.
    pub fn take(&self) -> KeepOutcome {
        let mut state = self.shared.state();
        let restored = std::mem::take(&mut state.last.restored);
        let said = std::mem::take(&mut state.last.said);
        KeepOutcome { restored, said, ..state.last.clone() }
    }

    /// Interfaces that have the program.
    pub fn stands(&self) -> Vec<String> {
        self.shared.state().stands.clone()
    }

    /// Packets and bytes that the programs have dropped.
    pub fn counted(&self) -> Count {
        let counter = self.shared.state().counter.clone();
        let read = counter.and_then(|c| c.read());
        read.map(|(packets, bytes)| Count { packets, bytes }).unwrap_or_default()
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.change.notify_all();
    }
}

/// The work of the thread; tests replace [`Keeper`].
pub(crate) trait KeepIngress: Send + 'static {
    fn keep(&mut self, lists: &Arc<Filter>) -> KeepOutcome;
    fn stands(&self) -> Vec<String>;
    fn counter(&self) -> Option<Counter>;
}

impl KeepIngress for Keeper {
    fn keep(&mut self, lists: &Arc<Filter>) -> KeepOutcome {
        Keeper::keep(self, lists)
    }

    fn stands(&self) -> Vec<String> {
        Keeper::stands(self)
    }

    fn counter(&self) -> Option<Counter> {
        Keeper::counter(self)
    }
}

#[cfg(test)]
impl<F: FnMut(&Arc<Filter>) -> KeepOutcome + Send + 'static> KeepIngress for F {
    fn keep(&mut self, lists: &Arc<Filter>) -> KeepOutcome {
        self(lists)
    }

    fn stands(&self) -> Vec<String> {
        Vec::new()
    }

    fn counter(&self) -> Option<Counter> {
        None
    }
}

fn work(shared: &Shared, mut keeper: impl KeepIngress, tell: &watch::Sender<u64>) {
    loop {
        let mut state = shared.state();
        while state.done == state.asked && !state.ended {
            if state.last.problem.is_none() {
                state = shared.change.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (after, timed) =
                shared.change.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner);
            state = after;
            if timed.timed_out() {
                break;
            }
        }
        if state.ended {
            return;
        }
        let (lists, asked) = (state.lists.clone(), state.asked);
        drop(state);
        let began = clock::now();
        let kept = catch_unwind(AssertUnwindSafe(|| keeper.keep(&lists))).unwrap_or_else(|_| KeepOutcome {
            problem: Some(incomplete("an error of the program itself")),
            ..KeepOutcome::default()
        });
        let cost = clock::now().saturating_duration_since(began);
        let mut state = shared.state();
        let (mut restored, mut said) =
            (std::mem::take(&mut state.last.restored), std::mem::take(&mut state.last.said));
        restored.extend(kept.restored);
        restored.dedup();
        said.extend(kept.said);
        state.last = KeepOutcome { restored, said, ..kept };
        state.stands = keeper.stands();
        state.counter = keeper.counter();
        state.done = asked;
        shared.change.notify_all();
        // Nobody may listen.
        tell.send_replace(asked);
        let pause = cost * PAUSE_SHARE;
        let nobody_waits = |s: &mut State| s.hurried <= s.done && !s.ended;
        let _ = shared.change.wait_timeout_while(state, pause, nobody_waits);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A keeper whose first pass takes this long.
    pub(crate) fn slow_once(mut first: Duration) -> impl KeepIngress {
        move |_: &Arc<Filter>| {
            std::thread::sleep(std::mem::take(&mut first));
            KeepOutcome::default()
        }
    }

    #[test]
    fn whoever_waits_without_blocking_waits_for_no_pause() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let thread = KeeperThread::with(slow_once(Duration::from_secs(1))).unwrap();
        thread.look();
        runtime.block_on(thread.settled());
        // The thread pauses for 4 s now.
        thread.look();
        let began = clock::now();
        runtime.block_on(thread.settled());
        let took = clock::now().saturating_duration_since(began);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn whoever_waits_is_told_and_who_does_not_is_not_held_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let thread = KeeperThread::start(Keeper::open("ipsec0").unwrap()).unwrap();
        thread.settle();
        let before = *thread.watch().borrow();
        thread.want(&Arc::default());
        for _ in 0..1000 {
            thread.look();
        }
        runtime.block_on(thread.settled());
        assert_eq!(*thread.watch().borrow(), before + 1001);
        assert_eq!(thread.take(), KeepOutcome::default());
        assert_eq!((thread.stands(), thread.counted()), (vec![], Count::default()));
        thread.look();
        thread.settle();
        let shared = Arc::downgrade(&thread.shared);
        drop(thread);
        for _ in 0..500 {
            if shared.strong_count() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the thread goes on");
    }
}
