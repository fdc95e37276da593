//! `ironswan doctor`: is this machine fit to be a gateway? Works with a daemon and without.
//!
//! ```text
//! Given (configuration, and what a daemon answered) ─▶ gather ─▶ Facts ─▶ judge ─▶ Checks
//!                                          looks at the machine     pure
//! ```
//! [`Facts`] are plain data, which tests fill as they like. [`judge`] is pure over them. A fact
//! that could not be read says why, and its check says so too: nothing is left out in silence. What
//! is in the way of a configuration is judged by [`crate::start::fitness`], as at the start of the
//! daemon.
//!
//! Nothing is changed on this machine. The TUN device that is made to ask for its offloads is made
//! in a network namespace of its own, where that is permitted.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `check` | one line of the answer |
//! | `facts` | all that is known about the machine |
//! | `gather` | reads kernel, files and configuration |
//! | `processes` | reads who holds which port, and which other IKE daemons run |
//! | `ruleset` | rules of nftables: what becomes of a packet, as far as can be told |
//! | `of_machine` | checks of configuration, clock, processors, privileges, files |
//! | `of_network` | checks of devices, forwarding, routes, sizes, timeouts, names |
//! | `of_others` | checks of ports, other programs and their rules |

mod check;
mod facts;
mod gather;
mod of_machine;
mod of_network;
mod of_others;
mod processes;
mod ruleset;

pub use check::{Check, Verdict};
pub use facts::{
    Confinement, Conntrack, Engine, Facts, Firewall, Given, Holder, Kernel, Known, Machine, Network, Other,
    Place, Places, Port, Processes, Running, State, Udp, Unit, Wanted,
};
pub use gather::gather;
pub use ironswan_io::tun::Offloads;

/// Judges all facts, in an order that goes from what was configured to what is far away.
pub fn judge(facts: &Facts) -> Vec<Check> {
    let mut out = Vec::new();
    of_machine::judge(facts, &mut out);
    of_network::judge(facts, &mut out);
    of_others::judge(facts, &mut out);
    out
}

#[cfg(test)]
mod gather_tests;
#[cfg(test)]
mod tests;
