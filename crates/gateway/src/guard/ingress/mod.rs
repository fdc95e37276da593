//! Puts the program with a plan's lists at the ingress of every interface
//! ([`ironswan_io::ingress`]), and keeps it there.
//!
//! Not at loopback and not at the engine's own device, whose packets come out of tunnels. Not at
//! parts of a bridge, a bond or a team: the whole has it, and what a bridge passes on between
//! others is none of this machine's traffic. Not in a VRF, whose traffic no policy here means.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `thread` | the thread that keeps the program at the ingress |

pub mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;

use ironswan_io::Error as IoError;
use ironswan_io::ingress::{Counter, Filter, Ingress, Interface};
use ironswan_io::route::{Link, Netlink};

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Guard, Machine};

use super::Count;
use crate::diagnosis::{Diagnosed, of_kernel};

/// Limits how many interfaces one line of the log names.
const MAX_NAMED: usize = 4;

/// Sets the program at the ingress of every interface that should have it, and restores it there.
#[derive(Debug)]
pub struct Keeper {
    netlink: Netlink,
    ingress: Ingress,
    device: String,
    /// No interface has the program, because the last lists were empty.
    nowhere: bool,
    /// Interfaces that have the program, as far as is known: names by index.
    stands: BTreeMap<u32, String>,
}

/// Outcome of one pass of [`Keeper::keep`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeepOutcome {
    /// Interfaces that had lost the program, and have it again.
    pub restored: Vec<String>,
    /// Reason why the program does not stand at every interface.
    pub problem: Option<Guard>,
    /// Lists that the program closes, because they have more policies than it has room for.
    pub stricter: Option<Guard>,
    /// Further lines for the log, about lists of the kernel that were not understood.
    pub said: Vec<Machine>,
}

impl Keeper {
    /// Opens the sockets of the keeper. `device` is the engine's own interface, which gets no
    /// program.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink, or no descriptors are left.
    pub fn open(device: &str) -> Result<Self, IoError> {
        Ok(Self {
            netlink: Netlink::open()?,
            ingress: Ingress::open()?,
            device: device.to_owned(),
            nowhere: false,
            stands: BTreeMap::new(),
        })
    }

    /// Sets the program with these lists wherever it should stand, with the addresses that this
    /// machine has now. With empty lists it stands nowhere.
    pub fn keep(&mut self, lists: &Arc<Filter>) -> KeepOutcome {
        let mut kept = KeepOutcome::default();
        // Nobody else sets ours, not at interfaces that come either.
        if lists.is_empty() && self.nowhere {
            return kept;
        }
        let seen = self.netlink.links().and_then(|links| Ok((links, self.netlink.addresses()?)));
        kept.said = left_out(self.netlink.left_out());
        let (links, addresses) = match seen {
            Ok(seen) => seen,
            Err(e) => return KeepOutcome { problem: Some(incomplete(of_kernel(&e))), ..kept },
        };
        let (with, without) = interfaces(&links, &self.device);
        let own = addresses.iter().filter(|a| !a.tentative && !a.ip.is_loopback()).map(|a| a.ip).collect();
        if let Err(e) = self.ingress.set_filter(lists, &own, &with) {
            kept.problem = Some(incomplete(e));
        }
        kept.stricter =
            self.ingress.stricter().map(|lists| Guard::IngressStricter { lists: lists.to_owned() });
        let done = self.ingress.reconcile(&with, &without);
        self.nowhere = lists.is_empty() && done.failed.is_empty();
        let was = std::mem::take(&mut self.stands);
        if self.ingress.has_filter() {
            let failed = |name: &str| done.failed.iter().any(|(n, _)| n == name);
            let there = with.iter().filter(|(_, name)| !failed(name));
            self.stands = there.map(|(index, name)| (*index, (*name).to_owned())).collect();
            // One that has just come never had it.
            let lost = |i: &&Interface<'_>| was.contains_key(&i.0) && done.lost.iter().any(|n| n == i.1);
            kept.restored = with.iter().filter(lost).map(|(_, name)| (*name).to_owned()).collect();
        }
        if let Some((_, why)) = done.failed.first() {
            let names: Vec<&str> = done.failed.iter().take(MAX_NAMED).map(|(n, _)| n.as_str()).collect();
            let more = done.failed.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            kept.problem.get_or_insert_with(|| incomplete(format_args!("{}{more}: {why}", names.join(", "))));
        }
        kept
    }

    /// Counts the interfaces at which a program of ours stands, whoever set it. `None`: the kernel
    /// does not tell.
    pub fn found(&mut self) -> Option<usize> {
        self.netlink.links().ok().and_then(|links| found(&mut self.ingress, &links))
    }

    /// The counter of packets that the program has dropped; `None` before the first program was
    /// set.
    pub fn counter(&self) -> Option<Counter> {
        self.ingress.counter()
    }

    /// The netlink address of the socket that sets programs.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn port(&self) -> Result<u32, IoError> {
        self.ingress.port()
    }

    /// Names of the interfaces that have the program.
    pub fn stands(&self) -> Vec<String> {
        self.stands.values().cloned().collect()
    }
}

/// The entry for a program that does not stand everywhere.
pub(crate) fn incomplete(why: impl std::fmt::Display) -> Guard {
    Guard::IngressIncomplete { why: why.to_string() }
}

/// The entries for lists of the kernel that were not understood.
pub(crate) fn left_out(lines: Vec<String>) -> Vec<Machine> {
    lines.into_iter().map(|lacks| Machine::AnswerIncomplete { lacks }).collect()
}

/// Kinds of interfaces that take in all packets of their parts.
const WHOLES: [&str; 5] = ["bridge", "bond", "team", "vrf", "openvswitch"];

/// True when what arrives at an interface comes in at another one, of which it is part. Not every
/// interface that has others below it takes their packets: batman-adv and HSR leave those of other
/// protocols to the part. One that does not say what it is does.
fn is_part(link: &Link) -> bool {
    link.controller.is_some() && link.part_of.as_deref().is_none_or(|kind| WHOLES.contains(&kind))
}

/// Splits the interfaces: those that are to have the program, and those that are not.
fn interfaces<'a>(links: &'a [Link], device: &str) -> (Vec<Interface<'a>>, Vec<Interface<'a>>) {
    let all = |l: &'a Link| (l.index, l.name.as_str());
    let (with, without): (Vec<&Link>, Vec<&Link>) =
        links.iter().partition(|l| !l.loopback && l.name != device && !is_part(l) && !l.vrf);
    (with.into_iter().map(all).collect(), without.into_iter().map(all).collect())
}

/// Counts the interfaces among `links` at which a program of ours stands. `None`: the kernel does
/// not tell.
fn found(ingress: &mut Ingress, links: &[Link]) -> Option<usize> {
    let mut count = 0;
    for link in links {
        match ingress.state(link.index) {
            Ok(found) => count += usize::from(found.digest.is_some()),
            Err(e) if e.is_without_filters() => {}
            Err(_) => return None,
        }
    }
    Some(count)
}

/// True when a program of ours stands at some interface, or when that cannot be told.
pub(super) fn stands(links: &[Link]) -> bool {
    Ingress::open().map_or(true, |mut ingress| found(&mut ingress, links).is_none_or(|count| count > 0))
}

/// Programs and filters at the ingress of all interfaces, for `ironswan guard`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Interfaces that have our program.
    pub at: Vec<String>,
    /// Packets and bytes that our program has dropped.
    pub count: Count,
    /// Programs and filters of others that see packets before ours, by interface.
    pub before: Vec<(String, Vec<String>)>,
    /// The first reason why an interface could not be read.
    pub problem: Option<String>,
}

impl Report {
    /// Reads the filters of these interfaces.
    pub(crate) fn look(links: &[Link]) -> Self {
        let mut report = Self::default();
        let mut ingress = match Ingress::open() {
            Ok(ingress) => ingress,
            Err(e) => return Self { problem: Some(e.to_string()), ..report },
        };
        let mut at = Vec::new();
        for link in links {
            match ingress.state(link.index) {
                Ok(found) if found.digest.is_some() => {
                    at.push((link.index, link.name.as_str()));
                    if !found.before.is_empty() {
                        report.before.push((link.name.clone(), found.before));
                    }
                }
                Ok(_) => {}
                Err(e) => {
                    report.problem.get_or_insert(format!("{}: {e}", link.name));
                }
            }
        }
        if let Some((packets, bytes)) = ingress.standing_count(&at) {
            report.count = Count { packets, bytes };
        }
        report.at = at.into_iter().map(|(_, name)| name.to_owned()).collect();
        report
    }
}

/// Removes our program from all these interfaces; returns from how many.
///
/// # Errors
/// The first interface where the kernel refused, and why.
pub(crate) fn remove(links: &[Link]) -> Result<usize, Diagnosis> {
    let all: Vec<Interface<'_>> = links.iter().map(|l| (l.index, l.name.as_str())).collect();
    let mut ingress = Ingress::open().diagnosed()?;
    let done = ingress.reconcile(&[], &all);
    match done.failed.into_iter().next() {
        Some((interface, e)) => Err(Guard::IngressStays { interface, why: e.to_string() }.into()),
        None => Ok(done.removed.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_has_it_once() {
        let link = |index: u32, name: &str| Link { index, name: name.into(), ..Link::default() };
        let links = [
            Link { loopback: true, ..link(1, "lo") },
            link(2, "wan"),
            link(3, "br0"),
            Link { controller: Some(3), ..link(4, "port") },
            link(5, "ipsec0"),
            Link { vrf: true, ..link(6, "blue") },
            Link { controller: Some(6), part_of: Some("vrf".into()), ..link(7, "customer") },
            Link { controller: Some(3), part_of: Some("bridge".into()), ..link(8, "another") },
            Link { controller: Some(10), part_of: Some("batadv".into()), ..link(9, "mesh") },
        ];
        let (with, without) = interfaces(&links, "ipsec0");
        assert_eq!(with, [(2, "wan"), (3, "br0"), (9, "mesh")]);
        assert_eq!(without.iter().map(|l| l.0).collect::<Vec<_>>(), [1, 4, 5, 6, 7, 8]);
    }
}
