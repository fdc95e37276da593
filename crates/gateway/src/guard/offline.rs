//! The command `ironswan guard`, for operators and for the boot unit: shows the guard, installs it
//! from the configuration, or removes it, without a daemon.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ironswan_io::route::{Link, Netlink, PROTOCOL, Route, RouteKind};

use super::ingress::Report as Ingress;
use super::{Counters, Nft, Removed, Snapshot, Version, holder};
use crate::control::is_alive;
use crate::diagnosis::Diagnosed;
use crate::guard::plan::{self, from_config};
use crate::start::reload;
use crate::start::run::DEFAULT_VICI;
use ironswan_config::diag::Diagnostics;
use ironswan_config::{self as config, Daemon, vici_uri};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Configuration, Guard};

/// The guard as it stands in the kernel, in words for the operator.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The version of `nft`, or why it cannot be used.
    pub nft: Option<Result<Version, Guard>>,
    /// True when the nft table stands.
    pub table: bool,
    /// Packets that the table and the programs at the ingress have dropped.
    pub counters: Counters,
    /// The programs at the ingress.
    pub ingress: Ingress,
    /// Rules of the table for packets that leave, by destination.
    pub policies: Vec<Line>,
    /// Rules of ours.
    pub rules: Vec<String>,
    /// Routes of ours in table 220.
    pub routes: Vec<String>,
    /// Routes of others in table 220.
    pub foreign: Vec<String>,
}

/// One line of the table: packets to `destination` that match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Prefix or range.
    pub destination: String,
    /// Source, protocol and ports as nft writes them; empty: all.
    pub matches: String,
    /// `guarded`: into the tunnel or nowhere; `steered`: into the tunnel, and in clear where
    /// nothing steers it; `clear`.
    pub verdict: &'static str,
}

/// Result of installing the guard from a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Installed {
    /// Policies.
    pub policies: usize,
    /// Destinations of table 220.
    pub routes: usize,
    /// Whether there is an nft table too.
    pub table: bool,
    /// Policies, or parts of them, that could not be expressed.
    pub warnings: Vec<String>,
}

/// Paths of the sockets where a daemon may listen: those of the command line, or else those of
/// `ironswan.conf` in `dir`, or else the default.
///
/// # Errors
/// A URI of the command line is malformed.
pub fn vici_paths(given: &[String], dir: &Path) -> Result<Vec<PathBuf>, Configuration> {
    let default = [DEFAULT_VICI.to_owned()];
    let daemon = if given.is_empty() { settings(dir) } else { Daemon::default() };
    let uris = match (given, daemon.vici_listen.as_slice()) {
        ([], []) => &default[..],
        ([], listen) => listen,
        (given, _) => given,
    };
    uris.iter().map(|uri| vici_uri(uri)).collect()
}

/// `ironswan.conf`, as far as it can be read.
fn settings(dir: &Path) -> Daemon {
    config::load_dir(ironswan_io::clock::now, dir, &mut config::diag::Diagnostics::default())
        .map(|c| c.daemon)
        .unwrap_or_default()
}

/// A daemon that runs: where it answers, or else its process in this network namespace.
pub fn daemon(paths: &[PathBuf]) -> Option<String> {
    let answers = paths.iter().find(|p| is_alive(p)).map(|p| format!("unix://{}", p.display()));
    answers.or_else(|| holder().map(|holder| holder.to_string()))
}

/// Reads the guard from the kernel.
///
/// # Errors
/// The kernel or `nft` does not tell.
pub fn look() -> Result<Report, Diagnosis> {
    let nft = Nft::find();
    let mut netlink = Netlink::open().diagnosed()?;
    let snapshot = Snapshot::read(nft.as_ref().ok(), &mut netlink)?;
    let links = netlink.links().diagnosed()?;
    let (ours, foreign): (Vec<&Route>, Vec<&Route>) =
        snapshot.routes.iter().partition(|r| r.protocol == PROTOCOL);
    let words = |routes: Vec<&Route>| routes.into_iter().map(|r| route(r, &links)).collect();
    let family = |v6: bool| if v6 { " (IPv6)" } else { "" };
    let ingress = Ingress::look(&links);
    Ok(Report {
        nft: Some(nft.map(|n| n.version())),
        table: snapshot.table.is_some(),
        counters: snapshot.counters.and(ingress.count),
        ingress,
        policies: snapshot.table.as_deref().map(lines).unwrap_or_default(),
        rules: snapshot.rules.iter().map(|r| format!("{r}{}", family(r.ipv6))).collect(),
        routes: words(ours),
        foreign: words(foreign),
    })
}

/// Removes table, programs, rules and routes of ours, with the program `nft` or without.
///
/// # Errors
/// The first part that the kernel or `nft` refused to remove.
pub fn remove() -> Result<Removed, Diagnosis> {
    super::remove(Nft::find().ok().as_ref(), &mut Netlink::open().diagnosed()?)
}

/// Reads the configuration and installs the guard that stands without a daemon. If the
/// configuration has errors and no guard stands, the policies of the connections without errors are
/// installed: after a boot, half a guard is better than none.
///
/// # Errors
/// Lines for people: errors of the configuration, or the first part that was refused. The former
/// guard is unchanged after an error of the configuration or of `nft`.
pub fn install(dir: &Path) -> Result<Installed, Vec<String>> {
    let (config, wrong) = match reload::load(dir) {
        Ok((config, _)) => (config, Vec::new()),
        Err(e) => match config::load_dir(ironswan_io::clock::now, dir, &mut Diagnostics::default()) {
            Some(config) if !config.connections.is_empty() && !stands() => (config, e.lines),
            _ => return Err(e.lines),
        },
    };
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let mut settings = from_config::settings(&config.daemon);
    let mut netlink = Netlink::open().map_err(|e| one(&e))?;
    settings.vrf = super::has_vrf(&netlink.rules().map_err(|e| one(&e))?);
    let policies = from_config::policies(&config.connections);
    let plan = plan::plan(&settings, &policies);
    let nft = match Nft::find() {
        Err(e) if settings.nft => return Err(one(&e)),
        // Without the guard there is no table to write.
        found => found.ok().filter(|_| settings.nft),
    };
    let kept = super::install(nft.as_ref(), &mut netlink, &plan, &settings.device).map_err(|e| one(&e))?;
    if !wrong.is_empty() {
        let note = format!(
            "nothing stood, so {} policies of connections without errors are guarded all the same; correct the rest and \
             install again",
            policies.len()
        );
        return Err([wrong, vec![note]].concat());
    }
    Ok(Installed {
        policies: policies.len(),
        routes: plan.routes.len(),
        table: settings.nft && !plan.routes.is_empty(),
        warnings: {
            let ingress = kept.problem.into_iter().chain(kept.stricter).map(|d| d.to_string());
            plan.warnings
                .into_iter()
                .chain(ingress)
                .chain(kept.said.iter().map(ToString::to_string))
                .collect()
        },
    })
}

/// True when a part of the guard stands, or when that cannot be told.
fn stands() -> bool {
    let look = || {
        let mut netlink = Netlink::open().diagnosed()?;
        let snapshot = Snapshot::read(Nft::find().ok().as_ref(), &mut netlink)?;
        let programs = super::ingress::stands(&netlink.links().diagnosed()?);
        Ok::<_, Diagnosis>(snapshot.table.is_some() || !snapshot.rules.is_empty() || programs)
    };
    look().unwrap_or(true)
}

/// Formats a route as `ip route` does.
fn route(r: &Route, links: &[Link]) -> String {
    let text = r.to_string();
    let text = text.strip_suffix(&format!(" table {}", r.table)).unwrap_or(&text);
    match r.kind {
        RouteKind::Device(index) => {
            let name = links.iter().find(|l| l.index == index).map(|l| l.name.as_str()).unwrap_or("?");
            text.replace(&format!("dev #{index}"), &format!("dev {name}"))
        }
        RouteKind::Unreachable | RouteKind::Throw => text.to_owned(),
        RouteKind::Other => format!("{text} (of another kind)"),
    }
}

/// Rules of the table for packets that leave, read from its listing: each element of the maps by
/// destination, with the rules of the chain to which the element leads.
fn lines(listing: &str) -> Vec<Line> {
    let chains = chains(listing);
    let mut out = Vec::new();
    for map in ["out4", "out6"] {
        for element in elements(listing, map) {
            let Some((destination, chain)) = element.split_once(" : goto ") else { continue };
            for (matches, verdict) in rules(&chains, chain.trim()) {
                out.push(Line { destination: destination.trim().to_owned(), matches, verdict });
            }
        }
    }
    out
}

/// The elements of a map.
fn elements<'a>(listing: &'a str, map: &str) -> impl Iterator<Item = &'a str> {
    let body = listing
        .split_once(&format!("map {map} {{"))
        .and_then(|(_, rest)| rest.split_once("elements = {"))
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or("", |(body, _)| body);
    body.split(',').map(str::trim).filter(|e| !e.is_empty())
}

/// The lines of every chain, by its name.
fn chains(listing: &str) -> HashMap<&str, Vec<&str>> {
    let mut chains: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut inside = None;
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("chain ").and_then(|l| l.strip_suffix(" {")) {
            inside = Some(name);
        } else if line == "}" {
            inside = None;
        } else if let Some(name) = inside {
            chains.entry(name).or_default().push(line);
        }
    }
    chains
}

/// The rules of a chain as pairs of match and verdict. A chain that branches by how much a packet
/// shows is read by its branch for packets that show all.
fn rules(chains: &HashMap<&str, Vec<&str>>, chain: &str) -> Vec<(String, &'static str)> {
    let branch = ["s", "p"].iter().find_map(|letter| chains.get(format!("{chain}{letter}").as_str()));
    let mut out = Vec::new();
    for rule in branch.or_else(|| chains.get(chain)).into_iter().flatten() {
        // Errors that quote what the rules before cover (`plan::quoted`): no policy of their own.
        if rule.contains("icmp type @errors") || rule.starts_with("ip6 nexthdr ") {
            continue;
        }
        let endings =
            [("return", "guarded"), ("goto steer", "steered"), ("goto skip", "clear"), ("accept", "clear")];
        let Some((matches, verdict)) =
            endings.iter().find_map(|(end, verdict)| Some((rule.strip_suffix(end)?, *verdict)))
        else {
            continue;
        };
        // The last rule of a chain is for the rest.
        if verdict != "clear" || !matches.is_empty() {
            out.push((matches.trim().to_owned(), verdict));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_told_by_destination() {
        let listing = "table inet ironswan {\n\tmap out4 {\n\t\ttype ipv4_addr : verdict\n\t\tflags interval\n\t\telements = { \
                       10.2.0.0/16 : goto o4_0,\n\t\t\t     10.3.0.1-10.3.0.9 : goto o4_1 }\n\t}\n\n\tchain o4_0 {\n\t\tip saddr \
                       10.1.0.0/16 return\n\t\tip frag-off & 8191 == 0 icmp type @errors @th,192,32 0xa010000-0xa01ffff return\n\t\t\
                       ip6 nexthdr ipv6-icmp icmpv6 type 0-127 @th,256,128 0x1-0x2 return\n\t\tgoto skip\n\t}\n\n\t\
                       chain o4_1 {\n\t\t@th,0,32 & 0 == 0 goto o4_1s\n\t\taccept\n\t}\n\n\
                       \tchain o4_1s {\n\t\tip saddr 10.1.0.0/16 meta l4proto 6 th dport 22 accept\n\t\tgoto steer\n\t}\n}\n";
        let line = |d: &str, m: &str, verdict| Line { destination: d.into(), matches: m.into(), verdict };
        assert_eq!(
            lines(listing),
            [
                line("10.2.0.0/16", "ip saddr 10.1.0.0/16", "guarded"),
                line("10.3.0.1-10.3.0.9", "ip saddr 10.1.0.0/16 meta l4proto 6 th dport 22", "clear"),
                line("10.3.0.1-10.3.0.9", "", "steered"),
            ]
        );
        assert_eq!(lines("table inet ironswan {\n}\n"), []);
        assert_eq!(lines("map out4 { elements = { 1 : goto x, ,, : goto "), []);
    }
}
