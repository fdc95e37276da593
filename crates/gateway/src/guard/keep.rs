//! Keeps the guard standing. A thread listens to the kernel: rules, routes, an nft table or a
//! device of ours that another program removes are restored at once, and the log names them. When
//! links, addresses or routes change, IKE is told and path MTUs are looked up again.
//!
//! ```text
//! rtnetlink ─ links, addresses ─────────▶ DataPlane::links_changed
//!           ─ table 220, rules, links ──▶ compare, restore at once (in vain: every 100 ms)
//!           ─ filters, links, addresses ▶ the program at the ingress, on its own thread
//!           ─ links, addresses, routes ─▶ Joined::network_changed, MTUs (200 ms later)
//! nftables  ─ our table, not by us ─────▶ replace it, as `apply` paces it
//! data plane ─ DeviceGone ──────────────▶ DataPlane::restore_device
//! ```
//! Our own changes of rules and routes are not told: thousands of tunnels that come up would mean
//! as many comparisons.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ironswan_ike::event::Level;
use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_io::nft::{NftWatch, TableChange};
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::route::{NetworkChange, Watch};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Guard;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use crate::dataplane::Restored;
use crate::diagnosis::{Diagnosed, of_kernel};
use crate::driver::Driver;
use crate::guard::ingress::thread::KeeperThread;
use crate::guard::table::Table;
use crate::observe::log::{self, Repeated};

/// The shortest time between two comparisons of rules and routes.
const COMPARE: Duration = Duration::from_millis(100);
/// The time between two comparisons is also at least this many times what the last one took.
const COMPARE_SHARE: u32 = 5;
/// How long a comparison waits after the first notice. A flush of a table removes one route after
/// the other, and the first notice comes while the last route still stands.
const BURST: Duration = Duration::from_millis(2);
/// How many comparisons may follow each other without [`COMPARE`] between them, in a second in
/// which something was missing.
const BURSTS: u32 = 10;
/// The network has settled when nothing has changed for this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often a network that never settles is looked at.
const RESTLESS: Duration = Duration::from_secs(2);
/// How long to wait before making the device again, when that failed.
const RETRY: Duration = Duration::from_millis(500);
/// Limits how many restored parts one line of the log names.
const MAX_NAMED: usize = 3;
/// A kind of line is logged at most five times within this time.
const SAY: Duration = Duration::from_secs(10);

/// Restores the guard and the device when the kernel tells of a change, and passes on changes of
/// the network.
pub struct Watcher {
    driver: Driver,
    /// `None`: `guard = no`.
    table: Option<Arc<Table>>,
    listener: Listener,
    touches: Vec<TableChange>,
    /// Ways in which other programs touched the nft table, logged when it stands again.
    lost: Vec<String>,
    /// Changes whenever the thread has looked after the programs at the ingress.
    ingress: Option<watch::Receiver<u64>>,
    compare_at: Option<Instant>,
    compared: Option<(Instant, Duration)>,
    /// The number of comparisons that found something missing, and the time of the first.
    burst: Option<(Instant, u32)>,
    settled_at: Option<Instant>,
    restless_since: Option<Instant>,
    device_at: Option<Instant>,
    said: HashMap<String, (Instant, u32)>,
}

impl Watcher {
    /// Begins to listen to all but what is changed from these netlink addresses: that of the
    /// driver's own socket, and that from which programs at the ingress are set.
    ///
    /// # Errors
    /// The kernel refuses a netlink socket, or the thread.
    pub fn new(
        driver: Driver,
        table: Option<Arc<Table>>,
        [routing, programs]: [u32; 2],
    ) -> Result<Self, Diagnosis> {
        let open = || {
            let nft = table.as_ref().map(|_| NftWatch::open(crate::guard::NAME)).transpose()?;
            Listener::start(Watch::open()?.ignore_own_routing(routing).ignore_own_filters(programs), nft)
        };
        let listener = open().diagnosed()?;
        // Nobody heard the changes between the first plan and this moment.
        let ingress = driver.guard(|g| {
            let thread = g.keeper_thread()?;
            thread.look();
            Some(thread.watch())
        });
        Ok(Self {
            driver,
            table,
            listener,
            touches: Vec::new(),
            lost: Vec::new(),
            ingress,
            // As above.
            compare_at: Some(clock::now()),
            compared: None,
            burst: None,
            settled_at: None,
            restless_since: None,
            device_at: None,
            said: HashMap::new(),
        })
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            let next = [self.compare_at, self.settled_at, self.device_at];
            let next = next.into_iter().flatten().min();
            let driver = self.driver.clone();
            tokio::select! {
                heard = self.listener.heard.recv() => match heard {
                    Some(Heard::NetworkChange(change)) => self.changed(change),
                    Some(Heard::Touches(touches)) => self.touches.extend(touches),
                    // Without the listener there is nothing to do; it has said why.
                    None => std::future::pending().await,
                },
                // A replacement of our own has ended, and who it was is known.
                () = driver.replaced(), if !self.touches.is_empty() => self.judge(),
                () = told(&mut self.ingress) => self.ingress_kept(),
                () = driver.table_stands(), if !self.lost.is_empty() => self.restored(),
                () = driver.device_gone() => self.device_at = Some(clock::now()),
                () = at(next) => {}
            }
            let now = clock::now();
            if due(&mut self.device_at, now) {
                self.keep_device(now);
            }
            if due(&mut self.compare_at, now) {
                self.compare(now);
            }
            if due(&mut self.settled_at, now) {
                self.restless_since = None;
                self.network_changed();
            }
        }
    }

    fn changed(&mut self, change: NetworkChange) {
        let now = clock::now();
        if change.links {
            self.device_at.get_or_insert(now);
        }
        // An address that goes takes routes along, of which not every kernel says so.
        if change.links || change.addresses || change.filters {
            self.driver.guard(|g| g.keeper_thread().into_iter().for_each(KeeperThread::look));
        }
        if change.links || change.addresses || change.table || change.rules {
            self.burst.take_if(|(since, _)| now.saturating_duration_since(*since) > Duration::from_secs(1));
            let helps = self.burst.is_some_and(|(_, n)| n < BURSTS);
            let earliest = match self.compared {
                Some((at, cost)) if helps => at + cost * 2,
                Some((at, cost)) => at + COMPARE.max(cost * COMPARE_SHARE),
                None => now,
            };
            self.compare_at.get_or_insert(earliest.max(now + BURST));
        }
        if change.links || change.addresses {
            self.driver.change_plane(|plane| plane.links_changed());
        }
        if change.links || change.addresses || change.routes {
            let since = *self.restless_since.get_or_insert(now);
            self.settled_at = Some((now + QUIET).min(since + RESTLESS));
        }
    }

    /// Who touched the table, when it was not us?
    fn judge(&mut self) {
        let Some(table) = self.table.clone() else { return };
        let touches = std::mem::take(&mut self.touches);
        for touch in touches {
            let why = match table.judge(&touch) {
                None => continue,
                Some(why) => why,
            };
            self.driver.change_guard(|g, _| g.table_lost());
            if !self.lost.contains(&why) {
                self.lost.push(why);
            }
        }
    }

    /// The program at the ingress has been looked after.
    fn ingress_kept(&mut self) {
        let restored = self.driver.change_guard(|g, _| g.ingress_kept());
        if !restored.is_empty() {
            let at = restored[..restored.len().min(3)].join(", ");
            let more = match restored.len() {
                0..=3 => String::new(),
                n => format!(" and {} more", n - 3),
            };
            let parts =
                format!("somebody removed or changed: the program at the ingress of {at}{more}; restored");
            self.say("ingress", Guard::Disturbed { parts });
        }
    }

    /// The nft table stands again.
    fn restored(&mut self) {
        for why in std::mem::take(&mut self.lost) {
            let parts = format!("the nft table inet {} was {why}; restored", crate::guard::NAME);
            self.say("nft", Guard::Disturbed { parts });
        }
    }

    fn compare(&mut self, now: Instant) {
        let restored = self.driver.restore_routing();
        if restored.as_ref().is_ok_and(|missing| !missing.is_empty()) {
            self.burst.get_or_insert((now, 0)).1 += 1;
        }
        self.compared = Some((now, clock::now().saturating_duration_since(now)));
        match restored {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                self.say("routes", disturbed("", &missing));
            }
            Err(e) => {
                self.say("look", unseen(&e));
                self.compare_at = Some(now + RETRY);
            }
        }
    }

    /// Has the data plane look after its device.
    fn keep_device(&mut self, now: Instant) {
        let line = match self.driver.change_plane(|plane| plane.restore_device()) {
            Restored::Nothing => return,
            Restored::Done(line) => line,
            Restored::Failed(line) => {
                self.device_at = Some(now + RETRY);
                line
            }
        };
        self.say("device", line);
        self.compare_at = Some(now);
    }

    fn network_changed(&mut self) {
        tell_network(&self.driver);
        self.driver.change_plane(|plane| plane.network_changed());
    }

    /// Logs, unless the same kind of thing has just been said.
    fn say(&mut self, kind: &str, what: impl Into<Diagnosis>) {
        let now = clock::now();
        let (at, n) = self.said.get(kind).copied().unwrap_or((now, 0));
        if n > 0 && now.saturating_duration_since(at) < SAY && n >= 5 {
            self.said.insert(kind.to_owned(), (at, n + 1));
            return;
        }
        let (at, n) = if now.saturating_duration_since(at) < SAY { (at, n) } else { (now, 0) };
        let held = self.said.get(kind).map_or(0, |(_, n)| n.saturating_sub(5));
        let more =
            if n == 0 && held > 0 { format!(" (and {held} times more before)") } else { String::new() };
        self.said.insert(kind.to_owned(), (at, n + 1));
        let what = what.into();
        log::line(Level::Warn, None, &format!("{what}{more}"), Some(&what));
    }
}

/// The entry for parts of the guard that another program removed, and that stand again.
pub(crate) fn disturbed(of: &str, parts: &[String]) -> Guard {
    let more = match parts.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let shown = parts[..parts.len().min(MAX_NAMED)].join(", ");
    Guard::Disturbed { parts: format!("somebody removed or changed: {of}{shown}{more}; restored") }
}

/// The entry for rules and routes that the kernel does not show.
pub(crate) fn unseen(e: &IoError) -> Guard {
    Guard::Unseen { why: e.to_string() }
}

/// Tells the endpoint which addresses are ours.
pub fn tell_network(driver: &Driver) {
    match driver.addresses() {
        Ok(addresses) => driver.act(|e, now| e.network_changed(now, &addresses)),
        Err(e) => {
            static LINES: Repeated = Repeated::new();
            LINES.line(Level::Warn, || of_kernel(&e).to_string());
        }
    }
}

/// Takes the time when it has come.
fn due(at: &mut Option<Instant>, now: Instant) -> bool {
    at.take_if(|at| *at <= now).is_some()
}

async fn at(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}

/// Ends when there is something new.
async fn told(by: &mut Option<watch::Receiver<u64>>) {
    if let Some(by) = by
        && by.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// News from the listening thread.
#[derive(Debug)]
enum Heard {
    NetworkChange(NetworkChange),
    Touches(Vec<TableChange>),
}

/// The thread that listens; it ends with this.
struct Listener {
    heard: mpsc::UnboundedReceiver<Heard>,
    stop: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

const STOP: u64 = 0;
const LINKS: u64 = 1;
const NFT: u64 = 2;

impl Listener {
    fn start(links: Watch, mut nft: Option<NftWatch>) -> Result<Self, IoError> {
        let poller = Poller::new()?;
        let stop = Arc::new((AtomicBool::new(false), Waker::new()?));
        poller.add(&stop.1, STOP)?;
        poller.add(&links, LINKS)?;
        if let Some(nft) = &nft {
            poller.add(nft, NFT)?;
        }
        let (tx, heard) = mpsc::unbounded_channel();
        let told = stop.clone();
        let listen = move || {
            let mut ready = Ready::with_capacity(3);
            while !told.0.load(Ordering::Acquire) && poller.wait(&mut ready, None).is_ok() {
                for token in ready.tokens() {
                    let heard = match (*token, &mut nft) {
                        (LINKS, _) => Some(links.take()).filter(|c| !c.is_empty()).map(Heard::NetworkChange),
                        (NFT, Some(nft)) => Some(nft.take()).filter(|t| !t.is_empty()).map(Heard::Touches),
                        _ => None,
                    };
                    // The receiver goes together with this thread.
                    heard.map(|h| tx.send(h));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("ipsec-watch".into())
            .stack_size(256 * 1024)
            .spawn(listen)
            .map_err(|source| IoError::System { what: "starting a thread", source })?;
        Ok(Self { heard, stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        self.stop.1.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
