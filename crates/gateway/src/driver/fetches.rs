//! Revocation lists and responses of OCSP from servers of the web, by the fetcher, on threads of
//! their own: a server that is silent holds up nothing but those who wait for it.
//!
//! A thing is fetched once at a time, whoever wants it. Each server has threads of its own, and
//! whoever wants something has an answer within the time that it says. Which things are wanted is
//! `keying`'s `standing`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironswan_io::clock;
use ironswan_io::helper::client;
use ironswan_keying::Fetched;
use ironswan_keying::limits::STATUS_TIME;
use ironswan_pki::fetch::Fetch;
use ironswan_wire::fetched::FetchFault;
use tokio::sync::oneshot;

use super::once::Once;
use crate::driver::pool::Pool;
use crate::helper::fetch;

/// Servers of which something is wanted at a time.
const SERVERS: usize = 16;
/// Threads for each server. All of them together are no more than the requests that the fetcher
/// carries out at a time.
const THREADS_PER_SERVER: usize = 4;
/// Things that wait for a thread of one server.
const MAX_WAITING: usize = 1_024;

/// Gets one thing within a time.
type Get = dyn Fn(&Fetch, Duration) -> Fetched + Send + Sync;

/// A server of which something is wanted.
struct Server {
    pool: Pool,
    /// Callers that wait for its answers.
    callers: usize,
}

type Servers = Arc<Mutex<HashMap<String, Server>>>;

/// All fetches.
pub(crate) struct Fetches {
    servers: Servers,
    once: Once<Fetch, Fetched>,
    get: Arc<Get>,
}

impl Default for Fetches {
    fn default() -> Self {
        Self::new(Arc::new(by_fetcher))
    }
}

/// A caller of a server. The server is forgotten with the last one; its threads end by themselves.
struct Caller(Servers, String);

impl Drop for Caller {
    fn drop(&mut self) {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get_mut(&self.1) {
            server.callers -= 1;
            if server.callers == 0 {
                servers.remove(&self.1);
            }
        }
    }
}

impl Fetches {
    fn new(get: Arc<Get>) -> Self {
        Self { servers: Servers::default(), once: Once::default(), get }
    }

    /// Begins to fetch all of this. The future ends with an answer for each, in the same order, and
    /// the time that passed: at most `limit`.
    pub(crate) fn fetch(
        &self,
        wanted: &[Fetch],
        limit: Duration,
    ) -> impl Future<Output = (Vec<Fetched>, Duration)> + 'static + use<> {
        let begun: Vec<_> = wanted.iter().map(|fetch| self.begin(fetch)).collect();
        let start = clock::now();
        async move {
            let until = start + limit;
            let mut answers = Vec::with_capacity(begun.len());
            for one in begun {
                answers.push(match one {
                    Ok((caller, answer)) => {
                        let answer = wait(answer, until, limit).await;
                        drop(caller);
                        answer
                    }
                    Err(why) => Err(why),
                });
            }
            (answers, clock::now().duration_since(start))
        }
    }

    fn begin(&self, fetch: &Fetch) -> Result<(Caller, oneshot::Receiver<Fetched>), FetchFault> {
        let (pool, caller) = self.server(fetch.place.authority())?;
        let (get, until) = (self.get.clone(), clock::now() + STATUS_TIME);
        let work = move |fetch: &Fetch| {
            // The work may have waited for a thread.
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() { Err(silent(STATUS_TIME)) } else { get(fetch, left) }
        };
        let answer = self.once.ask(&pool, MAX_WAITING, fetch, work);
        answer.map(|answer| (caller, answer)).map_err(|why| FetchFault::NotAsked(why.to_string()))
    }

    /// The threads for this server.
    fn server(&self, name: &str) -> Result<(Pool, Caller), FetchFault> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() >= SERVERS && !servers.contains_key(name) {
            return Err(FetchFault::NotAsked(format!("{SERVERS} other servers are asked already")));
        }
        let server = servers
            .entry(name.to_owned())
            .or_insert_with(|| Server { pool: Pool::new("ipsec-fetch", THREADS_PER_SERVER), callers: 0 });
        server.callers += 1;
        Ok((server.pool.clone(), Caller(self.servers.clone(), name.to_owned())))
    }
}

async fn wait(answer: oneshot::Receiver<Fetched>, until: Instant, limit: Duration) -> Fetched {
    match tokio::time::timeout_at(until.into(), answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(FetchFault::NotAsked("the fetch ended badly".to_owned())),
        Err(_) => Err(silent(limit)),
    }
}

fn silent(limit: Duration) -> FetchFault {
    FetchFault::Silent { milliseconds: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX) }
}

/// Asks the fetcher where there is one, and the server itself where there is none.
fn by_fetcher(wanted: &Fetch, time: Duration) -> Fetched {
    let Fetch { place, request } = wanted;
    let request = request.as_deref().unwrap_or_default();
    match client::fetcher() {
        None => fetch::get(place, request, time),
        Some(fetcher) => fetcher
            .fetch(place.uri(), place.is_ours(), time, request)
            .unwrap_or_else(|e| Err(FetchFault::NotAsked(e.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use ironswan_pki::fetch::Place;

    use super::*;

    fn list(server: &str, path: &str) -> Fetch {
        let uri = format!("http://{server}.example/{path}");
        Fetch { place: Place::of_certificate(uri.as_bytes()).unwrap(), request: None }
    }

    /// Servers whose names begin with `silent` hang until the sender is dropped; the answer of each
    /// other one is its path.
    fn fetches() -> (Fetches, Arc<AtomicUsize>, mpsc::Sender<()>) {
        let (tx, rx) = mpsc::channel::<()>();
        let rx = Mutex::new(rx);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let get = move |fetch: &Fetch, _: Duration| {
            count.fetch_add(1, Ordering::SeqCst);
            if fetch.place.host().starts_with("silent") {
                let _ = rx.lock().unwrap().recv();
            }
            Ok(fetch.place.target().into_bytes())
        };
        (Fetches::new(Arc::new(get)), asked, tx)
    }

    const LIMIT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_silent_server_holds_up_nothing_of_another_and_no_answer_that_has_come() {
        let (fetches, asked, hanging) = fetches();
        let many: Vec<Fetch> = (0..100).map(|n| list("silent", &n.to_string())).collect();
        let stuck = tokio::spawn(fetches.fetch(&many, LIMIT));
        let (answers, took) =
            fetches.fetch(&[list("a", "x"), list("silent", "y"), list("b", "z")], LIMIT).await;
        assert_eq!(answers[0], Ok(b"/x".to_vec()));
        assert_eq!(answers[1], Err(FetchFault::Silent { milliseconds: 200 }));
        assert_eq!(answers[2], Ok(b"/z".to_vec()));
        assert!(took >= LIMIT && took < LIMIT * 5, "{took:?}");
        let (answers, _) = stuck.await.unwrap();
        assert!(answers.iter().all(Result::is_err));
        let (others, took) = fetches.fetch(&[list("a", "x"), list("b", "y")], LIMIT).await;
        assert!(others.iter().all(Result::is_ok) && took < LIMIT, "{others:?}");
        // Nobody waits for the 97 that no thread was free for, so they are not asked.
        drop(hanging);
        for _ in 0..500 {
            if fetches.once.is_idle() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(fetches.once.is_idle());
        assert_eq!(asked.load(Ordering::SeqCst), THREADS_PER_SERVER + 4);
        assert!(fetches.servers.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_thing_is_fetched_once_for_all_who_want_it_and_servers_are_counted() {
        let (fetches, asked, hanging) = fetches();
        let same: Vec<_> =
            (0..50).map(|_| tokio::spawn(fetches.fetch(&[list("silent", "x")], LIMIT * 20))).collect();
        let more: Vec<Fetch> = (1..SERVERS).map(|n| list(&format!("silent{n}"), "x")).collect();
        let all = tokio::spawn(fetches.fetch(&more, LIMIT));
        let (answers, _) = fetches.fetch(&[list("one-more", "x"), list("silent", "z")], LIMIT).await;
        assert!(matches!(&answers[0], Err(FetchFault::NotAsked(_))), "{answers:?}");
        all.await.unwrap();
        let (answers, _) = fetches.fetch(&[list("one-more", "x")], LIMIT).await;
        assert!(answers[0].is_ok(), "others are forgotten when nobody wants anything of them");
        drop(hanging);
        for one in same {
            assert_eq!(one.await.unwrap().0, [Ok(b"/x".to_vec())]);
        }
        assert!(asked.load(Ordering::SeqCst) <= SERVERS + 2);
    }
}
