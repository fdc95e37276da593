//! The thread that keeps the program at the ingress ([`Keeper`]). It asks the kernel for lists of
//! interfaces, addresses and filters, has a program checked and set at each interface: work that
//! may take long, and that nobody else waits for but who has to.
//!
//! ```text
//! Steering ─ want, look ─▶ asked ─▶ thread: keep ─▶ done ─▶ who waits; what is to be said
//!                            ▲                        │
//!                            └─ a pause of four times what that took, unless somebody waits; after a failure again each 10 s
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironswan_io::clock;
use ironswan_io::ingress::{Counter, Filter};
use tokio::sync::watch;

use super::super::Count;
use super::{Keeper, Kept};

/// How many times as long as it works the thread pauses.
const SHARE: u32 = 4;
/// What the kernel has refused it may take later, and no notice says when.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    filter: Arc<Filter>,
    /// Counts what was asked for, and up to which of it everything is done.
    asked: u64,
    done: u64,
    /// Somebody waits until it is done up to this: without pauses.
    hurried: u64,
    ended: bool,
    last: Kept,
    stands: Vec<String>,
    counter: Option<Counter>,
}

impl State {
    /// What was asked for until now is waited for.
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

/// The thread, which ends with this.
#[derive(Debug)]
pub struct Keeping {
    shared: Arc<Shared>,
    done: watch::Receiver<u64>,
}

impl Keeping {
    /// Starts it.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start(keeper: Keeper) -> std::io::Result<Self> {
        Self::with(keeper)
    }

    pub(crate) fn with(keeper: impl Keep) -> std::io::Result<Self> {
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

    /// This filter is to stand.
    pub fn want(&self, filter: &Arc<Filter>) {
        self.ask(|state| state.filter = filter.clone());
    }

    /// Something has changed: whether it still stands everywhere.
    pub fn look(&self) {
        self.ask(|_| {});
    }

    fn ask(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        state.asked += 1;
        self.shared.change.notify_all();
    }

    /// Blocks until what was asked for is done.
    pub fn settle(&self) {
        let mut state = self.shared.state();
        state.hurry(&self.shared);
        while state.done < state.asked {
            state = self.shared.change.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends when what was asked for until now is done.
    pub fn settled(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.shared.state();
        state.hurry(&self.shared);
        let (asked, mut done) = (state.asked, self.done.clone());
        async move {
            // Without the thread there is nothing to wait for.
            let _ = done.wait_for(|done| *done >= asked).await;
        }
    }

    /// Is told whenever something is done.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.done.clone()
    }

    /// How it ended the last time, and the interfaces at which it was restored since this was asked
    /// last.
    pub fn take(&self) -> Kept {
        let mut state = self.shared.state();
        let restored = std::mem::take(&mut state.last.restored);
        let said = std::mem::take(&mut state.last.said);
        Kept { restored, said, ..state.last.clone() }
    }

    /// Interfaces at which it stands.
    pub fn stands(&self) -> Vec<String> {
        self.shared.state().stands.clone()
    }

    /// What it has dropped.
    pub fn counted(&self) -> Count {
        let counter = self.shared.state().counter.clone();
        let read = counter.and_then(|c| c.read());
        read.map(|(packets, bytes)| Count { packets, bytes }).unwrap_or_default()
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.change.notify_all();
    }
}

/// What the thread has done.
pub(crate) trait Keep: Send + 'static {
    fn keep(&mut self, filter: &Arc<Filter>) -> Kept;
    fn stands(&self) -> Vec<String>;
    fn counter(&self) -> Option<Counter>;
}

impl Keep for Keeper {
    fn keep(&mut self, filter: &Arc<Filter>) -> Kept {
        Keeper::keep(self, filter)
    }

    fn stands(&self) -> Vec<String> {
        Keeper::stands(self)
    }

    fn counter(&self) -> Option<Counter> {
        Keeper::counter(self)
    }
}

#[cfg(test)]
impl<F: FnMut(&Arc<Filter>) -> Kept + Send + 'static> Keep for F {
    fn keep(&mut self, filter: &Arc<Filter>) -> Kept {
        self(filter)
    }

    fn stands(&self) -> Vec<String> {
        Vec::new()
    }

    fn counter(&self) -> Option<Counter> {
        None
    }
}

fn work(shared: &Shared, mut keeper: impl Keep, tell: &watch::Sender<u64>) {
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
        let (filter, asked) = (state.filter.clone(), state.asked);
        drop(state);
        let began = clock::now();
        let kept = catch_unwind(AssertUnwindSafe(|| keeper.keep(&filter))).unwrap_or_else(|_| Kept {
            problem: Some("an error of the program itself".into()),
            ..Kept::default()
        });
        let cost = clock::now().saturating_duration_since(began);
        let mut state = shared.state();
        let (mut restored, mut said) =
            (std::mem::take(&mut state.last.restored), std::mem::take(&mut state.last.said));
        restored.extend(kept.restored);
        restored.dedup();
        said.extend(kept.said);
        state.last = Kept { restored, said, ..kept };
        state.stands = keeper.stands();
        state.counter = keeper.counter();
        state.done = asked;
        shared.change.notify_all();
        // Nobody may listen.
        tell.send_replace(asked);
        let pause = cost * SHARE;
        let nobody_waits = |s: &mut State| s.hurried <= s.done && !s.ended;
        let _ = shared.change.wait_timeout_while(state, pause, nobody_waits);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What takes so long the first time that it is asked.
    pub(crate) fn slow_once(mut first: Duration) -> impl Keep {
        move |_: &Arc<Filter>| {
            std::thread::sleep(std::mem::take(&mut first));
            Kept::default()
        }
    }

    #[test]
    fn whoever_waits_without_blocking_waits_for_no_pause() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let keeping = Keeping::with(slow_once(Duration::from_secs(1))).unwrap();
        keeping.look();
        runtime.block_on(keeping.settled());
        // The thread pauses for 4 s now.
        keeping.look();
        let began = clock::now();
        runtime.block_on(keeping.settled());
        let took = clock::now().saturating_duration_since(began);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn whoever_waits_is_told_and_who_does_not_is_not_held_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let keeping = Keeping::start(Keeper::open("ipsec0").unwrap()).unwrap();
        keeping.settle();
        let before = *keeping.watch().borrow();
        keeping.want(&Arc::default());
        for _ in 0..1000 {
            keeping.look();
        }
        runtime.block_on(keeping.settled());
        assert_eq!(*keeping.watch().borrow(), before + 1001);
        assert_eq!(keeping.take(), Kept::default());
        assert_eq!((keeping.stands(), keeping.counted()), (vec![], Count::default()));
        keeping.look();
        keeping.settle();
        let shared = Arc::downgrade(&keeping.shared);
        drop(keeping);
        for _ in 0..500 {
            if shared.strong_count() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the thread goes on");
    }
}
