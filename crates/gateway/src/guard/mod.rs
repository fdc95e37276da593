//! The guard: rules, routes, an nft table and programs at the ingress, so that protected packets
//! never travel in clear. Here are the functions that put a whole [`Plan`] into the kernel, show
//! what stands and remove it, with a daemon or without.
//!
//! # Files
//!
//! | file | does |
//! |---|---|
//! | `plan/` | makes the plan from policies: routes, rules, nft table, ingress lists; pure |
//! | `standing/` | records what of the plan stands in the kernel; sets and removes the rest |
//! | `shared` | the record and the kernel's routing, for driver and data plane |
//! | `passes` | state of the passes of the daemon |
//! | `apply` | runs the passes: at most one replacement of the table at a time |
//! | `table` | the nft table as the daemon replaces it |
//! | `keep` | restores what other programs remove; tells IKE of a changed network |
//! | `start_and_end` | the guard at the daemon's start and end |
//! | `ingress/` | the program at the ingress of every interface, and its thread |
//! | `nft` | runs the program `nft` |
//! | `offline` | `ironswan guard`: shows, installs and removes without a daemon |
//! | `claim` | allows one gateway per network namespace |
//!
//! The nft table (without owner flag), the programs at the ingress, the rules, and the unreachable
//! and throw routes of table 220 outlive the daemon; only routes to the device go with it. The next
//! start replaces all of them by its own plan. With `guard = no` that start removes the table, the
//! programs and the rule for marks.
//!
//! All functions of this file block for some milliseconds.

pub mod apply;
mod claim;
pub mod ingress;
pub mod keep;
pub(crate) mod nft;
pub mod offline;
pub mod passes;
pub mod plan;
pub mod shared;
pub mod standing;
pub(crate) mod start_and_end;
pub mod table;

use std::collections::HashSet;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE, UNREACHABLE_METRIC};
use ironswan_keying::Diagnosis;

pub use claim::{Claim, Holder, holder};
pub use nft::{Count, Counters, NAME, NEEDED, Nft, Version};

use crate::diagnosis::Diagnosed;
use crate::guard::plan::{Plan, Way};

/// The routes of a plan that stand without a device: an unreachable route for each destination that
/// leads into the tunnel, and the throw routes.
pub fn standing_routes(plan: &Plan) -> Vec<Route> {
    plan.routes.iter().map(|(to, way)| standing_route(*to, *way)).collect()
}

/// The route of one destination that stands without a device.
pub fn standing_route(destination: Destination, way: Way) -> Route {
    let (kind, metric) = match way {
        Way::Tunnel => (RouteKind::Unreachable, UNREACHABLE_METRIC),
        Way::Throw => (RouteKind::Throw, 0),
    };
    Route { table: TABLE, destination, kind, metric, source: None, mtu: 0, protocol: PROTOCOL }
}

/// Puts the whole plan into the kernel, for when no daemon runs: table, programs at the ingress,
/// routes and rules. Removes parts of an earlier guard that are not in the plan. A kernel without
/// IPv6 gets the IPv4 part. Returns how far the programs stand: the table guards without them.
///
/// # Errors
/// The first part that was refused. Parts set before it stand.
pub fn install(
    nft: Option<&Nft>,
    netlink: &mut Netlink,
    plan: &Plan,
    device: &str,
) -> Result<ingress::KeepOutcome, Diagnosis> {
    let mut keeper = ingress::Keeper::open(device).diagnosed()?;
    // The table first: what it refuses changes nothing, and it closes at once what the plan does.
    match (nft, &plan.nft) {
        (Some(nft), Some(text)) => drop(nft.apply(text)?),
        (None, Some(_)) => {}
        // A table of an earlier configuration would go on dropping.
        (_, None) => drop(delete_table().diagnosed()?),
    }
    let kept = keeper.keep(&plan.ingress);
    let routes = standing_routes(plan);
    for route in &routes {
        unless_absent(netlink.set_route(route)).diagnosed()?;
    }
    // IPv6 names the default metric.
    let of = |r: &Route| (r.destination, r.kind);
    let wanted: HashSet<_> = routes.iter().map(of).collect();
    for route in netlink.routes(TABLE).diagnosed()? {
        if route.protocol == PROTOCOL && !wanted.contains(&of(&route)) {
            netlink.delete_route(&route).diagnosed()?;
        }
    }
    set_rules(netlink, &plan.rules)?;
    if let Some(rule) = renewing(&plan.rules) {
        unless_absent(netlink.add_rule(&rule)).diagnosed()?;
        unless_absent(netlink.delete_rule(&rule).map(|_| ())).diagnosed()?;
    }
    Ok(kept)
}

/// Deletes the guard's nft table without the program `nft`, which may have been removed since the
/// table was made, and which a daemon without a guard does not need. Returns whether the table
/// stood. A kernel without nftables has no table.
///
/// # Errors
/// The kernel does not say whether the table stands, or refuses to delete it.
pub(crate) fn delete_table() -> Result<bool, IoError> {
    match ironswan_io::nft::has_table(NAME) {
        Ok(true) => ironswan_io::nft::delete_table(NAME),
        Ok(false) => Ok(false),
        Err(e) if is_without_nftables(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Deletes the table by which a flow was followed, when a daemon that was killed has left it.
pub(crate) fn delete_trace_table() -> Result<bool, IoError> {
    match ironswan_io::nft::delete_table(nft::TRACE_NAME) {
        Err(e) if is_without_nftables(&e) => Ok(false),
        other => other,
    }
}

/// The kernel's answers where it lacks nfnetlink or nf_tables.
fn is_without_nftables(e: &IoError) -> bool {
    use rustix::io::Errno;
    let answers =
        [Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT, Errno::OPNOTSUPP, Errno::INVAL, Errno::CONNREFUSED];
    answers.iter().any(|n| e.errno() == Some(n.raw_os_error()))
}

/// True when there are VRFs: with the first one the kernel makes a rule for them.
pub fn has_vrf(rules: &[Rule]) -> bool {
    rules.iter().any(|r| r.l3mdev && r.protocol != PROTOCOL)
}

/// The rule whose coming and going makes every IPv6 socket look its route up again. Linux does so
/// by itself when a route of the same table changes, not when one comes into a table that is asked
/// before. It says what one of `rules` says, a little earlier; `None` when IPv6 has no rules.
pub fn renewing(rules: &[Rule]) -> Option<Rule> {
    let first = rules.iter().filter(|r| r.ipv6).min_by_key(|r| r.priority)?;
    Some(Rule { priority: first.priority - 1, ..*first })
}

/// Adds these rules, and deletes all other rules with our protocol number.
///
/// # Errors
/// The kernel refuses one.
pub fn set_rules(netlink: &mut Netlink, rules: &[Rule]) -> Result<(), Diagnosis> {
    for rule in rules {
        unless_absent(netlink.add_rule(rule)).diagnosed()?;
    }
    for rule in netlink.rules().diagnosed()? {
        if rule.protocol == PROTOCOL && !rules.contains(&rule) {
            netlink.delete_rule(&rule).diagnosed()?;
        }
    }
    Ok(())
}

/// The parts that [`remove`] took away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// The nft table stood.
    pub table: bool,
    /// Rules.
    pub rules: usize,
    /// Routes of table 220.
    pub routes: usize,
    /// Interfaces at whose ingress a program stood.
    pub programs: usize,
}

/// Removes the whole guard: the rules first, so that no packet is led into a table that is going,
/// the routes of table 220 with our protocol number, the nft table, and the programs at the
/// ingress. Without `nft` the kernel is asked to delete the table. A part that cannot be removed
/// does not keep the other parts from being removed.
///
/// # Errors
/// The first part that was refused.
pub fn remove(nft: Option<&Nft>, netlink: &mut Netlink) -> Result<Removed, Diagnosis> {
    let mut removed = Removed::default();
    let steps = [
        remove_rules(netlink, &mut removed),
        remove_routes(netlink, &mut removed),
        remove_table(nft, &mut removed),
        remove_programs(netlink, &mut removed),
    ];
    steps.into_iter().collect::<Result<(), _>>().map(|()| removed)
}

fn remove_rules(netlink: &mut Netlink, removed: &mut Removed) -> Result<(), Diagnosis> {
    for rule in netlink.rules().diagnosed()?.iter().filter(|r| r.protocol == PROTOCOL) {
        removed.rules += netlink.delete_rule(rule).diagnosed()?;
    }
    Ok(())
}

fn remove_routes(netlink: &mut Netlink, removed: &mut Removed) -> Result<(), Diagnosis> {
    for route in netlink.routes(TABLE).diagnosed()?.iter().filter(|r| r.protocol == PROTOCOL) {
        netlink.delete_route(route).diagnosed()?;
        removed.routes += 1;
    }
    Ok(())
}

fn remove_table(nft: Option<&Nft>, removed: &mut Removed) -> Result<(), Diagnosis> {
    removed.table = match nft {
        Some(nft) => nft.present()?,
        None => delete_table().diagnosed()?,
    };
    if let Some(nft) = nft.filter(|_| removed.table) {
        nft.remove()?;
    }
    delete_trace_table().diagnosed().map(drop)
}

fn remove_programs(netlink: &mut Netlink, removed: &mut Removed) -> Result<(), Diagnosis> {
    removed.programs = ingress::remove(&netlink.links().diagnosed()?)?;
    Ok(())
}

/// The parts of the guard that stand in the kernel now.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// The nft table, as `nft` shows it.
    pub table: Option<String>,
    /// Counters of the table.
    pub counters: Counters,
    /// Rules that carry our protocol number.
    pub rules: Vec<Rule>,
    /// Routes of table 220, whoever made them.
    pub routes: Vec<Route>,
}

impl Snapshot {
    /// Reads table, rules and routes from the kernel. Without `nft` the table is not read.
    ///
    /// # Errors
    /// The first part that the kernel or `nft` refused to show.
    pub fn read(nft: Option<&Nft>, netlink: &mut Netlink) -> Result<Self, Diagnosis> {
        let table = nft.map_or(Ok(None), Nft::listing)?;
        let mut rules = netlink.rules().diagnosed()?;
        rules.retain(|r| r.protocol == PROTOCOL);
        let counters = table.as_deref().map(nft::counters).unwrap_or_default();
        Ok(Self { table, counters, rules, routes: netlink.routes(TABLE).diagnosed()? })
    }
}

/// A kernel without IPv6 has no rules and routes for it.
fn unless_absent(done: Result<(), IoError>) -> Result<(), IoError> {
    match done {
        Err(e) if no_such_family(&e) => Ok(()),
        other => other,
    }
}

/// True for the kernel's answers where it lacks the address family.
pub(crate) fn no_such_family(e: &IoError) -> bool {
    use rustix::io::Errno;
    [Errno::AFNOSUPPORT, Errno::OPNOTSUPP].iter().any(|n| e.errno() == Some(n.raw_os_error()))
}

#[cfg(test)]
mod tests;
