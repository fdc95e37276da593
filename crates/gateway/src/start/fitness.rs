//! Is this machine fit to carry the configuration? What other programs and the operator have set,
//! and what of it would lead protected packets elsewhere or drop them. Nothing of it is changed
//! here: each finding names the thing and the remedy.
//!
//! [`check`] is pure over [`Facts`], which [`Facts::gather`] reads. The daemon logs its findings at
//! start, and `ironswan doctor` shows them beside its own checks.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_io::route::{
    Address, Link, ListedRule, MARKED_PRIORITY, Netlink, PRIORITY, PROTOCOL, Route, RouteKind, TABLE,
    VRF_PRIORITY,
};
use ironswan_io::sysctl::{self, ReversePath};
use ironswan_keying::{AddrSpec, Connection};
use ironswan_wire::selector::AddrRange;

use crate::guard::Nft;
use crate::guard::plan::{self, Policy, Settings, Verdict, from_config};
use ironswan_config::Config;

/// Findings of one kind are reported one by one up to this number.
const EACH: usize = 8;

/// Subject of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// Something could not be looked at.
    Unseen,
    /// Routes of other programs in table 220.
    Routes,
    /// Routing rules of other programs.
    Rules,
    /// VRFs.
    Vrfs,
    /// Marks of packets.
    Marks,
    /// The check of the way back (`rp_filter`).
    ReversePath,
    /// Forwarding.
    Forwarding,
}

/// One thing that stands in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Subject.
    pub topic: Topic,
    /// The thing, and its consequence.
    pub what: String,
    /// What to do about it. Empty where there is nothing to do.
    pub remedy: String,
}

impl Finding {
    fn new(topic: Topic, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { topic, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// State of this machine that can be in the gateway's way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// All rules.
    pub rules: Vec<ListedRule>,
    /// Routes of table 220, whoever made them.
    pub routes: Vec<Route>,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Interfaces.
    pub links: Vec<Link>,
    /// Reports about interfaces that are missing here, because the kernel's answer was not
    /// understood. Other lists are read again elsewhere, and reported there.
    pub left_out: Vec<String>,
    /// `net.ipv4.conf.all.rp_filter`.
    pub reverse_path: ReversePath,
    /// Interfaces where a strict `rp_filter` is in effect, without loopback and our own device.
    pub strict: Vec<String>,
    /// Rules of other programs' nft tables that ask for marks or change them: the table, the rule.
    pub marking: Vec<(String, String)>,
    /// Packets for others are passed on: IPv4, IPv6.
    pub forwarding: [bool; 2],
}

impl Facts {
    /// Looks. `device` is ours and is left out.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn gather(netlink: &mut Netlink, device: &str) -> Result<Self, IoError> {
        let links = netlink.links()?;
        let mut left_out = netlink.left_out();
        // Without `nft` there is no guard that marks could disturb.
        let ruleset = Nft::find().ok().map(|nft| nft.ruleset());
        if let Some(Err(e)) = &ruleset {
            left_out.push(format!(
                "whether rules of nftables use the bits of IronSwan's marks is not known: {e}"
            ));
        }
        let strict = links
            .iter()
            .filter(|l| !l.loopback && l.name != device)
            .filter(|l| sysctl::effective_reverse_path(&l.name) == ReversePath::Strict)
            .map(|l| l.name.clone())
            .collect();
        Ok(Self {
            rules: netlink.all_rules()?,
            routes: netlink.routes(TABLE)?,
            addresses: netlink.addresses()?,
            links,
            left_out,
            reverse_path: sysctl::reverse_path("all"),
            strict,
            marking: ruleset.and_then(Result::ok).map_or_else(Vec::new, |t| marking(&t)),
            forwarding: [false, true].map(sysctl::forwarding),
        })
    }

    /// Looks only at what [`carries`] and [`unusable`] ask for.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn carrying(netlink: &mut Netlink) -> Result<Self, IoError> {
        Ok(Self {
            addresses: netlink.addresses()?,
            links: netlink.links()?,
            forwarding: [false, true].map(sysctl::forwarding),
            ..Self::default()
        })
    }

    /// Looks only at what [`leads_elsewhere`] asks for.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn routing(netlink: &mut Netlink, links: Vec<Link>) -> Result<Self, IoError> {
        Ok(Self { rules: netlink.all_rules()?, routes: netlink.routes(TABLE)?, links, ..Self::default() })
    }

    fn device_name(&self, index: u32) -> String {
        self.links.iter().find(|l| l.index == index).map_or_else(|| format!("#{index}"), |l| l.name.clone())
    }
}

/// Logs what stands in the way of a configuration.
pub fn warn(config: &Config) {
    let policies = from_config::policies(&config.connections);
    let settings = from_config::settings(&config.daemon);
    let found = Netlink::open()
        .and_then(|mut netlink| Facts::gather(&mut netlink, &settings.device))
        .map(|facts| check(&facts, &settings, &policies, &peers(&config.connections)));
    match found {
        Ok(lines) => lines.iter().for_each(|line| tracing::warn!("{line}")),
        Err(e) => tracing::warn!("cannot look whether this machine is fit for the configuration: {e}"),
    }
}

/// The addresses of peers that are written out.
pub fn peers<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> Vec<IpAddr> {
    let hosts = connections.into_iter().flat_map(|c| &c.remote_addrs).filter_map(|a| match a {
        AddrSpec::Host(ip) => Some(*ip),
        AddrSpec::Any | AddrSpec::Range(_) | AddrSpec::Name(_) => None,
    });
    hosts.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Everything that stands in the way.
pub fn check(facts: &Facts, settings: &Settings, policies: &[Policy], peers: &[IpAddr]) -> Vec<Finding> {
    let unseen = |line: &String| Finding::new(Topic::Unseen, line, "");
    let mut out: Vec<Finding> = facts.left_out.iter().map(unseen).collect();
    foreign_routes(facts, &mut out);
    foreign_rules(facts, settings, &mut out);
    vrfs(facts, &mut out);
    foreign_marks(facts, settings, &mut out);
    reverse_path(facts, settings, policies, peers, &mut out);
    forwarding(facts, policies, &mut out);
    out
}

/// Reasons why tunnels that are up carry nothing, a line each.
pub fn carries(facts: &Facts, policies: &[Policy]) -> Vec<String> {
    let mut out = Vec::new();
    forwarding(facts, policies, &mut out);
    out.iter().map(ToString::to_string).collect()
}

/// Rules and routes of other programs that may lead protected packets elsewhere, a line each.
pub fn leads_elsewhere(facts: &Facts, settings: &Settings) -> Vec<String> {
    let mut out = Vec::new();
    foreign_routes(facts, &mut out);
    foreign_rules(facts, settings, &mut out);
    out.iter().map(ToString::to_string).collect()
}

/// Those of these addresses of ours that cannot be used at present, as far as this machine is
/// concerned, and why.
pub fn unusable(facts: &Facts, ours: impl IntoIterator<Item = IpAddr>) -> Vec<(IpAddr, String)> {
    let places: HashMap<IpAddr, u32> = facts.addresses.iter().map(|a| (a.ip, a.link)).collect();
    let why = |ip: IpAddr| {
        let Some(place) = places.get(&ip) else {
            return Some(format!("{ip} is no longer an address of this machine"));
        };
        let link = facts.links.iter().find(|l| l.index == *place)?;
        if !link.up {
            return Some(format!("the link {} is down: `ip link set {} up`", link.name, link.name));
        }
        (!link.carrier)
            .then(|| format!("the link {} has no carrier: look at its cable or its peer", link.name))
    };
    ours.into_iter().filter_map(|ip| Some((ip, why(ip)?))).collect()
}

/// Routes of other programs in table 220: the tunnels' way leads over them.
fn foreign_routes(facts: &Facts, out: &mut Vec<Finding>) {
    let foreign: Vec<&Route> = facts.routes.iter().filter(|r| r.protocol != PROTOCOL).collect();
    for r in foreign.iter().take(EACH) {
        let what = match r.kind {
            RouteKind::Device(index) => format!("{} dev {}", r.destination, facts.device_name(index)),
            RouteKind::Unreachable => format!("unreachable {}", r.destination),
            RouteKind::Throw => format!("throw {}", r.destination),
            RouteKind::Other => r.destination.to_string(),
        };
        out.push(Finding::new(
            Topic::Routes,
            format!(
                "table {TABLE} has the route `{what}` of another program (protocol {}): it is left alone, and steered packets \
                 may follow it",
                protocol(r.protocol)
            ),
            format!("stop that program, or `ip route del {what} table {TABLE}`"),
        ));
    }
    more(Topic::Routes, foreign.len(), "routes of other programs in table 220", out);
}

/// Rules of other programs that come before ours, or share priority or mark with them.
fn foreign_rules(facts: &Facts, settings: &Settings, out: &mut Vec<Finding>) {
    const LOCAL: u32 = 255;
    // The same rule for both families is told once.
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for l in facts.rules.iter().filter(|l| l.rule.protocol != PROTOCOL) {
        let rule = &l.rule;
        if rule.priority == 0 && rule.table == LOCAL && rule.mark.is_none() && !l.conditions {
            continue;
        }
        let shown = show(l);
        if !seen.insert(shown.clone()) {
            continue;
        }
        let ours = settings.mark | settings.steer_mark;
        if matches!(rule.priority, MARKED_PRIORITY | PRIORITY) {
            found.push((
                format!(
                    "the rule `{shown}` of another program has a priority of IronSwan's ({MARKED_PRIORITY} and {PRIORITY}), and \
                     which of two such is asked first is chance"
                ),
                format!("give it another priority (above {PRIORITY})"),
            ));
        } else if rule.l3mdev {
            // Rules of VRFs lead no packet of ours elsewhere.
        } else if rule.priority < MARKED_PRIORITY {
            let way = if l.lookup { "what its table has a route for leaves by that" } else { "it decides" };
            found.push((
                format!(
                    "the rule `{shown}` of another program is asked before IronSwan's ({MARKED_PRIORITY}, {PRIORITY}), and {way}: \
                     protected packets that it leads elsewhere do not reach the tunnel{}",
                    if settings.nft { " (the guard drops them)" } else { "" }
                ),
                format!("give it a priority above {PRIORITY}"),
            ));
        }
        let Some(mark) = rule.mark else { continue };
        if mark & rule.mask & ours != 0 {
            found.push((
                format!(
                    "the rule `{shown}` of another program uses bits of IronSwan's marks (mark = {:#x}, steer_mark = {:#x})",
                    settings.mark, settings.steer_mark
                ),
                OTHER_BITS.to_owned(),
            ));
        } else if rule.mask & ours != 0 && settings.nft {
            found.push((
                format!(
                    "the rule `{shown}` of another program asks for bits of the mark that IronSwan sets (mark = {:#x}, steer_mark \
                     = {:#x}), and does not match packets that carry both",
                    settings.mark, settings.steer_mark
                ),
                format!("write it with a mask (`fwmark {mark:#x}/{:#x}`)", rule.mask & !ours),
            ));
        }
    }
    let all = found.len();
    out.extend(found.into_iter().take(EACH).map(|(what, remedy)| Finding::new(Topic::Rules, what, remedy)));
    more(Topic::Rules, all, "findings about rules of other programs", out);
}

/// VRFs, whose rule the kernel puts behind ours.
fn vrfs(facts: &Facts, out: &mut Vec<Finding>) {
    let behind =
        |l: &&ListedRule| l.rule.l3mdev && l.rule.protocol != PROTOCOL && l.rule.priority > VRF_PRIORITY;
    if let Some(l) = facts.rules.iter().find(behind) {
        out.push(Finding::new(
            Topic::Vrfs,
            format!(
                "there are VRFs, and their rule `{}` stands behind IronSwan's ({MARKED_PRIORITY}, {PRIORITY}): a copy of it is put \
                 before them ({VRF_PRIORITY}), so that what is in a VRF is neither steered nor guarded",
                show(l)
            ),
            "give each VRF a default route (`ip route add unreachable default metric 4278198272 vrf NAME`), or what its table has \
             no route for goes on to the rules behind",
        ));
    }
}

/// Programs that use bits of our marks: what they set leads packets past the tunnel, or others'
/// into it.
fn foreign_marks(facts: &Facts, settings: &Settings, out: &mut Vec<Finding>) {
    let ours = settings.mark | settings.steer_mark;
    let values = format!("(mark = {:#x}, steer_mark = {:#x})", settings.mark, settings.steer_mark);
    let mut found: Vec<String> = Vec::new();
    for (table, rule) in facts.marking.iter().filter(|_| settings.nft) {
        let bits = mark_bits(rule);
        if bits & ours != 0 {
            found.push(format!(
                "the nft rule `{rule}` of the table {table} uses the bits {:#x} of IronSwan's marks {values}",
                bits & ours
            ));
        }
    }
    for (prefix, program, bits) in MARKERS {
        let Some(link) = facts.links.iter().find(|l| l.name.starts_with(prefix)) else { continue };
        if bits & ours != 0 {
            found.push(format!(
                "the interface {} is {program}'s, whose marks are by default of the bits {bits:#x}, and so are IronSwan's {values}",
                link.name
            ));
        }
    }
    let all = found.len();
    out.extend(found.into_iter().take(EACH).map(|what| Finding::new(Topic::Marks, what, OTHER_BITS)));
    more(Topic::Marks, all, "findings about marks of other programs", out);
}

/// Remedy where another program uses bits of our marks.
const OTHER_BITS: &str = "set mark and steer_mark in ironswan.conf to bits that nothing else uses";

/// Programs that mark packets themselves, past what `nft` shows: how their interfaces begin, and
/// the bits that they use by default.
const MARKERS: [(&str, &str, u32); 2] = [("cilium_", "Cilium", 0xffff_0f00), ("cali", "Calico", 0xffff_0000)];

/// Rules of other tables than ours that speak of marks, of packets or connections: table and rule.
fn marking(ruleset: &str) -> Vec<(String, String)> {
    let (mut table, mut out) = ("", Vec::new());
    for line in ruleset.lines() {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if table != format!("inet {}", plan::TABLE)
            && line.split_whitespace().any(|w| w == "mark")
            && out.len() < MOST_MARKING
        {
            let rule: String = line.trim().chars().filter(|c| !c.is_control()).take(200).collect();
            out.push((table.to_owned(), rule));
        }
    }
    out
}

/// Limits how many rules that ask for marks or change them are examined.
const MOST_MARKING: usize = 1000;

/// The bits of a mark that a rule of nft asks for or changes; all bits when it names none. A rule
/// that writes the mark of a connection changes no packet. A rule that copies that mark into
/// packets names the bits.
fn mark_bits(rule: &str) -> u32 {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let number = |w: &str| match w.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => w.parse().ok(),
    };
    let mut bits = 0;
    let mut at = 0;
    while let Some(next) = words.get(at..).and_then(|rest| rest.iter().position(|w| *w == "mark")) {
        let mut i = at + next + 1;
        let sets = words.get(i) == Some(&"set");
        let saves = sets && (at + next).checked_sub(1).and_then(|n| words.get(n)) == Some(&"ct");
        let (mut mask, mut values, mut whole) = (None, 0, false);
        i += usize::from(sets);
        // Another mark may be what is set; later in the rule it begins the next statement.
        if sets && matches!(words.get(i), Some(&("meta" | "ct"))) {
            i += 2;
        }
        // `set meta mark & M | V`, `set V`, `& M == V`, `V`.
        while let Some(word) = words.get(i) {
            match (*word, words.get(i + 1).and_then(|w| number(w))) {
                ("&" | "and", Some(n)) => (mask, i) = (Some(n), i + 1),
                ("|" | "or" | "^" | "xor", Some(n)) => (values, i) = (values | n, i + 1),
                ("==" | "!=", _) => {}
                (w, _) => match number(w) {
                    Some(n) => (values, whole) = (values | n, mask.is_none()),
                    None => break,
                },
            }
            i += 1;
        }
        bits |= match (sets, mask, whole) {
            _ if saves => 0,
            (true, Some(mask), _) => !mask | values,
            (false, Some(mask), _) => mask,
            // Another's value in place of the whole mark; or no value that can be read, as one out
            // of a map.
            (true, None, true) => u32::MAX,
            (true, None, false) if values == 0 => u32::MAX,
            (false, None, true) => values,
            (_, None, _) => values,
        };
        at = i.max(at + next + 1);
    }
    bits
}

/// A strict check of the way back drops what comes from where table 220 leads: the peer's own
/// packets, when a selector covers its address, and what the peer's network sends in clear by
/// right.
fn reverse_path(
    facts: &Facts,
    settings: &Settings,
    policies: &[Policy],
    peers: &[IpAddr],
    out: &mut Vec<Finding>,
) {
    if facts.strict.is_empty() {
        return;
    }
    let where_ = match facts.reverse_path {
        ReversePath::Strict => "net.ipv4.conf.all.rp_filter is 1".to_owned(),
        _ => format!(
            "rp_filter is 1 on {}",
            facts.strict.iter().take(EACH).cloned().collect::<Vec<_>>().join(", ")
        ),
    };
    let remedy = "`sysctl -w net.ipv4.conf.all.rp_filter=2` (loose wins over strict)";
    let steered = |p: &&Policy| p.verdict != Verdict::Bypass && !p.remote.range.is_ipv6();
    // With nft a default route in table 220 is for marked packets only, and the check asks without
    // a mark.
    let seen = |p: &Policy| !(settings.nft && p.remote.range.prefix_len() == Some(0));
    let covers = |p: &Policy| peers.iter().find(|ip| p.remote.range.contains(**ip));
    let peer = policies.iter().filter(steered).filter(|p| seen(p)).find_map(|p| Some((p, covers(p)?)));
    if let Some((p, peer)) = peer {
        let what = format!(
            "{where_}, and {} protects {}, where the peer {peer} itself is: what it sends will be dropped as coming from the \
             wrong interface",
            p.name, p.remote
        );
        out.push(Finding::new(Topic::ReversePath, what, remedy));
    }
    let finer = |p: &&Policy| {
        p.remote.protocol != 0 || p.local.protocol != 0 || !p.remote.any_port() || !p.local.any_port()
    };
    if let Some(p) = policies.iter().filter(steered).filter(|p| seen(p)).find(finer) {
        let what = format!(
            "{where_}, and {} protects only {} of its addresses' traffic: the rest, which may come in clear, will be dropped \
             as coming from the wrong interface",
            p.name, p.remote
        );
        out.push(Finding::new(Topic::ReversePath, what, remedy));
    }
}

/// A gateway that does not forward is a host.
fn forwarding(facts: &Facts, policies: &[Policy], out: &mut Vec<Finding>) {
    for (ipv6, on) in [false, true].into_iter().zip(facts.forwarding) {
        let others = |p: &&Policy| {
            p.verdict == Verdict::Protect
                && p.local.range.is_ipv6() == ipv6
                && !is_ours(&p.local.range, facts)
        };
        if on {
            continue;
        }
        let Some(p) = policies.iter().find(others) else { continue };
        let key = if ipv6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        let what = format!(
            "the kernel does not forward, and {} protects {}, which is more than this machine's own addresses",
            p.name, p.local
        );
        let remedy = format!("`sysctl -w {key}=1` (and in /etc/sysctl.d for good)");
        out.push(Finding::new(Topic::Forwarding, what, remedy));
    }
}

/// Nothing but an address of this machine.
fn is_ours(range: &AddrRange, facts: &Facts) -> bool {
    range.start() == range.end() && facts.addresses.iter().any(|a| a.ip == range.start())
}

fn more(topic: Topic, found: usize, what: &str, out: &mut Vec<Finding>) {
    if found > EACH {
        out.push(Finding::new(topic, format!("and {} more {what}", found - EACH), ""));
    }
}

/// The rule, and what cannot be shown of it.
fn show(l: &ListedRule) -> String {
    let mut text = l.rule.to_string();
    if !l.lookup {
        text = text.split(" lookup").next().unwrap_or_default().to_owned() + " ... (no table)";
    }
    if l.conditions {
        text += " (with other conditions)";
    }
    text
}

/// As `ip route` names it.
fn protocol(number: u8) -> String {
    let name = match number {
        2 => "kernel",
        3 => "boot",
        4 => "static",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        186 => "bgp",
        188 => "ospf",
        n => return n.to_string(),
    };
    format!("{number}, {name}")
}

#[cfg(test)]
#[path = "fitness_tests.rs"]
mod tests;
