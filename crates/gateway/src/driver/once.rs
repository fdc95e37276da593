//! Questions to the world outside that are asked once at a time, whoever asks: of names, and of
//! servers of the web.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::driver::pool::{Pool, Refused, Turn};

/// Questions that are being asked, and who waits for each answer.
type Waiting<K, A> = HashMap<K, Vec<oneshot::Sender<A>>>;

/// The table of such questions.
pub(super) struct Once<K, A> {
    waiting: Arc<Mutex<Waiting<K, A>>>,
}

impl<K, A> Default for Once<K, A> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

impl<K, A> Once<K, A>
where
    K: Hash + Eq + Clone + Send + 'static,
    A: Clone + Send + 'static,
{
    /// Has a thread of the pool ask this, unless one does so already. The receiver is told the
    /// answer. A question for whose answer nobody waits any more when a thread is free is not
    /// asked.
    ///
    /// # Errors
    /// `room` questions wait already, or there is no thread.
    pub(super) fn ask(
        &self,
        pool: &Pool,
        room: usize,
        key: &K,
        ask: impl FnOnce(&K) -> A + Send + 'static,
    ) -> Result<oneshot::Receiver<A>, Refused> {
        let (tx, rx) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if let Some(others) = waiting.get_mut(key) {
            others.retain(|other| !other.is_closed());
            others.push(tx);
            return Ok(rx);
        }
        let (all, of) = (self.waiting.clone(), key.clone());
        let work = move || {
            let mut waiting = lock(&all);
            let wanted = waiting.get_mut(&of).is_some_and(|list| {
                list.retain(|w| !w.is_closed());
                !list.is_empty()
            });
            if !wanted {
                waiting.remove(&of);
                return;
            }
            drop(waiting);
            // Not left behind by a panic: the question could never be asked again.
            let gone = Gone(&all, &of);
            let answer = ask(&of);
            let list = lock(&all).remove(&of).unwrap_or_default();
            drop(gone);
            for w in list {
                let _ = w.send(answer.clone());
            }
        };
        pool.run(Turn::Later(0), room, work)?;
        waiting.insert(key.clone(), vec![tx]);
        Ok(rx)
    }

    /// True when nothing is being asked.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.waiting).is_empty()
    }
}

/// Takes a question out of the table.
struct Gone<'a, K: Hash + Eq, A>(&'a Mutex<Waiting<K, A>>, &'a K);

impl<K: Hash + Eq, A> Drop for Gone<'_, K, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).remove(self.1);
        }
    }
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
