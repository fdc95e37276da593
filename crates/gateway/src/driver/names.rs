//! Name look-ups by the system's resolver, which the fetcher asks, on threads of their own: a
//! resolver that is silent holds up nothing but names.
//!
//! A name is looked up once at a time, whoever asks. Whoever asks has an answer within
//! [`TIME_LIMIT`], although the thread may hang in the resolver for longer. The RFC 7296 side of it
//! (which name, when) is `keying`'s `tunnels::names`.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ironswan_io::helper::client;
use ironswan_keying::diagnosis::Unresolved;
use ironswan_keying::limits::ADDRESSES_PER_NAME;

use super::once::Once;
use crate::driver::pool::Pool;

/// How long an answer is waited for.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Look-ups at a time. Each of that many silent names may hang a thread for as long as the resolver
/// tries.
const THREADS: usize = 16;
/// Names that wait for a thread.
const MAX_WAITING: usize = 4_096;

/// The addresses of a name, or the reason why they are not known.
type Answer = Result<Vec<IpAddr>, Unresolved>;

/// Asks the system.
type Ask = dyn Fn(&str) -> Answer + Send + Sync;

/// The resolver.
pub(crate) struct Resolver {
    pool: Pool,
    once: Once<String, Answer>,
    ask: Arc<Ask>,
    limit: Duration,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(THREADS, TIME_LIMIT, Arc::new(system))
    }
}

impl Resolver {
    fn new(threads: usize, limit: Duration, ask: Arc<Ask>) -> Self {
        Self { pool: Pool::new("ipsec-names", threads), once: Once::default(), ask, limit }
    }

    /// Begins to look a name up. The future ends with the answer, or within the time limit without.
    pub(crate) fn look_up(&self, name: &str) -> impl Future<Output = Answer> + 'static + use<> {
        let (ask, limit) = (self.ask.clone(), self.limit);
        let begun = self.once.ask(&self.pool, MAX_WAITING, &name.to_owned(), move |name| ask(name));
        async move {
            let answer = begun.map_err(|why| Unresolved::NotAsked(why.to_string()))?;
            match tokio::time::timeout(limit, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Unresolved::NotAsked("the look-up ended badly".to_owned())),
                Err(_) => Err(Unresolved::Silent { seconds: limit.as_secs() }),
            }
        }
    }
}

/// Asks the fetcher where there is one, and the resolver itself where there is none.
fn system(name: &str) -> Answer {
    let found = match client::fetcher() {
        Some(fetcher) => fetcher.addresses(name),
        None => resolve(name),
    };
    found.map_err(|e| Unresolved::Resolver(e.to_string()))
}

/// `getaddrinfo`; blocks for as long as that likes to.
///
/// # Errors
/// The resolver's own words.
pub(crate) fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut addrs: Vec<IpAddr> = Vec::new();
    for ip in (name, 0).to_socket_addrs()?.map(|a| a.ip()) {
        if !addrs.contains(&ip) && addrs.len() < ADDRESSES_PER_NAME {
            addrs.push(ip);
        }
    }
    Ok(addrs)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// Names that begin with `silent` hang until the sender is dropped; all others have one
    /// address.
    fn resolver(threads: usize) -> (Resolver, Arc<AtomicUsize>, mpsc::Sender<()>) {
        let (tx, rx) = mpsc::channel::<()>();
        let rx = Mutex::new(rx);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let ask = move |name: &str| {
            count.fetch_add(1, Ordering::SeqCst);
            if name.starts_with("silent") {
                let _ = rx.lock().unwrap().recv();
            }
            Ok(vec![IpAddr::from([192, 0, 2, 1])])
        };
        (Resolver::new(threads, Duration::from_millis(300), Arc::new(ask)), asked, tx)
    }

    #[tokio::test]
    async fn a_silent_resolver_is_waited_for_so_long_and_asked_once_for_each_name() {
        let (resolver, asked, hanging) = resolver(3);
        let first = resolver.look_up("silent-1");
        let (again, other) = (resolver.look_up("silent-1"), resolver.look_up("silent-2"));
        let answers = tokio::join!(first, again, other);
        for answer in [answers.0, answers.1, answers.2] {
            assert_eq!(answer.unwrap_err(), Unresolved::Silent { seconds: 0 });
        }
        // Both hang on; a third thread serves others.
        assert!(resolver.look_up("a").await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // The same name is not asked for by another thread, and whoever waits when the answer comes
        // has it.
        let late = resolver.look_up("silent-1");
        drop(hanging);
        assert!(late.await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn when_all_threads_hang_names_fail_in_time_and_are_not_looked_up_for_nobody() {
        let (resolver, asked, hanging) = resolver(2);
        let silent = [resolver.look_up("silent-1"), resolver.look_up("silent-2")];
        let more = (0..100).map(|n| resolver.look_up(&format!("n{n}")));
        let all: Vec<_> = silent.into_iter().chain(more).map(tokio::spawn).collect();
        for look_up in all {
            assert!(look_up.await.unwrap().is_err());
        }
        drop(hanging);
        assert!(resolver.look_up("a").await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 3, "of 100 that nobody waits for any more, none is asked");
        // A thread that hung may still be on its way back.
        for _ in 0..500 {
            if resolver.once.is_idle() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("names stay in the table");
    }

    #[test]
    fn the_system_knows_itself_and_no_such_name() {
        assert!(system("127.0.0.1").is_ok_and(|a| a == [IpAddr::from([127, 0, 0, 1])]));
        assert!(system("no such name").is_err());
    }
}
