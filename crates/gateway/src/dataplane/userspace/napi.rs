//! `data { threaded_napi = lan, wan }`: interfaces that kernel threads poll, so that under a flood
//! the scheduler shares the processors between what arrives and this gateway. Softirqs run at the
//! end of every system call that sends, for up to a tick (Linux 6.5 on), in the time of whoever
//! sends. `auto`, the default, is every interface where there is one processor, which otherwise
//! carries nothing any more when more arrives than it carries.
//!
//! ```text
//! start, reload ─ want(which) ─┐         ┌─ named, and 0 stands there ───────▶ write 1
//! links change (`watch`) ──────┴─ look ──┴─ not named any more, or renamed ──▶ write 0
//! end ─ release ─────────────────────────────────────────────────────────────▶ write 0
//! ```
//! Only what stood at 0 is set, and only what was set is put back. What somebody else writes
//! meanwhile is his. A failure is said once, and tried again when links change; with `auto` an
//! interface that cannot be polled by threads is nothing to be said.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use ironswan_ike::event::Level;
use ironswan_io::Error as IoError;
use ironswan_io::napi::{self, NapiError, NapiFault};
use ironswan_io::route::{Link, Netlink};
use ironswan_keying::diagnosis::DataPlane;

use crate::observe::log;
use ironswan_config::tuning::ThreadedNapi;

/// An interface that is polled by threads.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    /// A name can be another interface's later, an index cannot.
    index: u32,
    /// Under which it was named.
    name: String,
    /// By us; else it was so before.
    set: bool,
}

struct State {
    netlink: Option<Netlink>,
    wanted: ThreadedNapi,
    held: Vec<Held>,
    /// The last line that was logged about each interface.
    said: BTreeMap<String, DataPlane>,
}

impl Default for State {
    fn default() -> Self {
        Self { netlink: None, wanted: NOTHING, held: Vec::new(), said: BTreeMap::new() }
    }
}

const NOTHING: ThreadedNapi = ThreadedNapi::Named(Vec::new());

/// The daemon may use no other.
fn one_processor() -> bool {
    std::thread::available_parallelism().is_ok_and(|n| n.get() == 1)
}

/// The interfaces that kernel threads poll. Lives on the control thread.
#[derive(Default)]
pub struct Threaded(RefCell<State>);

impl Threaded {
    /// These are to be polled by threads, and no others.
    pub fn want(&self, which: &ThreadedNapi) {
        let state = &mut *self.0.borrow_mut();
        state.wanted = match which {
            ThreadedNapi::Auto if !one_processor() => NOTHING,
            which => which.clone(),
        };
        // Who is named again is told again.
        state.said.retain(|name, _| state.wanted.names(name) || state.held.iter().any(|h| h.name == *name));
        state.look();
    }

    /// Interfaces may have come, gone, or changed.
    pub fn look(&self) {
        self.0.borrow_mut().look();
    }

    /// The names of those that are.
    pub fn names(&self) -> Vec<String> {
        self.0.borrow().held.iter().map(|h| h.name.clone()).collect()
    }

    /// The last failure that was logged about an interface.
    #[cfg(test)]
    pub(super) fn said(&self, name: &str) -> Option<DataPlane> {
        self.0.borrow().said.get(name).cloned()
    }

    /// Puts back what was set, at the end.
    pub fn release(&self) {
        self.want(&NOTHING);
    }
}

impl State {
    fn look(&mut self) {
        if self.wanted == NOTHING && self.held.is_empty() {
            return;
        }
        let mut netlink = match self.netlink.take().map_or_else(Netlink::open, Ok) {
            Ok(netlink) => netlink,
            Err(e) => return self.say("", &e, ""),
        };
        self.trim(&mut netlink);
        self.take(&mut netlink);
        self.netlink = Some(netlink);
    }

    /// Returns interfaces to the kernel's usual polling when they are no longer wanted, and forgets
    /// those that have gone.
    fn trim(&mut self, netlink: &mut Netlink) {
        for held in std::mem::take(&mut self.held) {
            let link = match netlink.link_at(held.index) {
                Ok(Some(link)) => link,
                Ok(None) => continue,
                Err(e) => {
                    self.say(&held.name, &e, "");
                    self.held.push(held);
                    continue;
                }
            };
            let wanted = link.name == held.name && self.wanted.names(&held.name);
            if !wanted && let Err(e) = put_back(&link, held.set) {
                self.say(&held.name, &e, "kernel threads poll it");
            } else if !wanted {
                tracing::info!("what {} receives is polled as before (data.threaded_napi)", link.name);
                self.said.remove(&held.name);
                continue;
            }
            self.held.push(held);
        }
    }

    fn take(&mut self, netlink: &mut Netlink) {
        let names = match &self.wanted {
            ThreadedNapi::Named(names) => names.clone(),
            ThreadedNapi::Auto => match netlink.links() {
                Ok(links) => links.into_iter().filter(|l| l.up && !l.loopback).map(|l| l.name).collect(),
                Err(e) => return self.say("", &e, ""),
            },
        };
        for name in names {
            if self.held.iter().any(|h| h.name == name) {
                continue;
            }
            let taken = match netlink.link(&name) {
                Ok(link) => set(&link).map(|set| Held { index: link.index, name: name.clone(), set }),
                Err(IoError::NoDevice { .. }) => {
                    self.say(&name, &"there is no such interface; kernel threads poll it when it comes", "");
                    continue;
                }
                Err(e) => {
                    self.say(&name, &e, "");
                    continue;
                }
            };
            match taken {
                Ok(held) => {
                    tracing::info!("kernel threads poll what {name} receives (data.threaded_napi)");
                    self.said.remove(&name);
                    self.held.push(held);
                }
                // Not every interface has a driver that receives by itself.
                Err(NapiError { why: NapiFault::NoNapi | NapiFault::NoFile, .. })
                    if self.wanted == ThreadedNapi::Auto => {}
                Err(e) => self.say(&name, &e, "softirqs poll it"),
            }
        }
    }

    /// Logs, unless it was the last thing that was said of the interface.
    fn say(&mut self, name: &str, why: &impl fmt::Display, until: &'static str) {
        let (interface, why) = (name.to_owned(), why.to_string());
        let unchanged = DataPlane::PollingUnchanged { interface, why, until };
        if self.said.get(name) != Some(&unchanged) {
            log::diagnosis(Level::Warn, None, &unchanged);
            self.said.insert(name.to_owned(), unchanged);
        }
    }
}

/// True when it was not so before.
fn set(link: &Link) -> Result<bool, NapiError> {
    if napi::threaded(link)? {
        return Ok(false);
    }
    napi::set_threaded(link, true)?;
    Ok(true)
}

fn put_back(link: &Link, set: bool) -> Result<(), NapiError> {
    if set && napi::threaded(link)? { napi::set_threaded(link, false) } else { Ok(()) }
}

#[cfg(test)]
#[path = "napi_tests.rs"]
mod tests;
