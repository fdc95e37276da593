//! Reads a listing of `nft -n` and finds what becomes of a packet in its chains, as far as can be
//! told: sets are not listed, and sources are not known. So the answer has three values.
//!
//! ```text
//! table inet filter {                       for each rule: does it match?  yes, no, perhaps
//!     chain input {                         accept, yes or perhaps ─▶ may pass
//!         type filter hook input ..;        drop, yes              ─▶ dropped, unless it may pass
//!         udp dport { 500, 4500 } accept    jump                   ─▶ the other chain
//!     } }
//! ```
//! A packet passes when every base chain of its hook lets it pass. Only a chain that drops for
//! certain is reported, since the reader is to be shown no ghosts.

use std::collections::BTreeMap;

/// Limits how deep chains may jump.
const MAX_DEPTH: u32 = 16;
/// Limits how many rules are read.
const MAX_RULES: usize = 100_000;

/// A packet whose fate is asked for. `None`: any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet<'a> {
    /// `input`, `output` or `forward`.
    pub(super) hook: &'a str,
    /// Number of the protocol above IP.
    pub(super) protocol: Option<u8>,
    /// Destination port of UDP or TCP.
    pub(super) port: Option<u16>,
    /// Interface through which it arrives, when that is known.
    pub(super) from: Option<&'a str>,
    /// Interface through which it leaves, when that is known.
    pub(super) to: Option<&'a str>,
}

/// A chain of rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Chain {
    /// `input`, `forward` and so on; empty: other chains jump here.
    hook: String,
    /// Drops what no rule has decided.
    drops: bool,
    rules: Vec<String>,
}

/// All chains, by family and table, and name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ruleset {
    chains: BTreeMap<(String, String), Chain>,
}

/// A rule that gives forwarded flows to a flowtable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offloading {
    /// Family and table.
    pub(super) table: String,
    /// Chain.
    pub(super) chain: String,
    /// The rule.
    pub(super) rule: String,
}

/// Whether a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Match {
    No,
    Perhaps,
    Yes,
}

/// Result of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Some packets may pass.
    MayPass,
    /// Every packet is dropped.
    Dropped,
    /// No rule decides.
    Undecided,
}

impl Ruleset {
    /// Reads a listing. Lines that are not understood are rules that decide nothing.
    pub(super) fn parse(listing: &str) -> Self {
        let (mut table, mut inside, mut rules) = (String::new(), None, 0);
        let mut chains: BTreeMap<(String, String), Chain> = BTreeMap::new();
        for line in listing.lines() {
            let text = line.trim();
            if let Some(name) = line.strip_prefix("table ") {
                table = name.trim_end_matches(" {").to_owned();
                inside = None;
            } else if let Some(name) = text.strip_prefix("chain ").and_then(|t| t.strip_suffix(" {")) {
                let key = (table.clone(), name.to_owned());
                chains.entry(key.clone()).or_default();
                inside = Some(key);
            } else if text == "}" {
                inside = None;
            } else if let Some(chain) = inside.as_ref().and_then(|key| chains.get_mut(key)) {
                if text.starts_with("type ") && text.contains(" hook ") {
                    chain.hook = after(text, "hook").unwrap_or_default().to_owned();
                    chain.drops = text.contains("policy drop");
                } else if !text.is_empty() && rules < MAX_RULES {
                    rules += 1;
                    chain.rules.push(text.to_owned());
                }
            }
        }
        Self { chains }
    }

    /// The first base chain that drops every such packet, as `TABLE CHAIN`; chains of `except` are
    /// passed over.
    pub(super) fn dropped_by(&self, packet: Packet<'_>, except: &str) -> Option<String> {
        self.chains.iter().filter(|((table, _), c)| c.hook == packet.hook && table != except).find_map(
            |((table, name), chain)| {
                let fate = match self.walk(table, chain, packet, 0) {
                    Fate::Undecided if chain.drops => Fate::Dropped,
                    fate => fate,
                };
                // Tables of bridges and devices see other packets.
                let of_ip = matches!(table.split(' ').next(), Some("ip" | "ip6" | "inet"));
                (fate == Fate::Dropped && of_ip).then(|| format!("{table} {name}"))
            },
        )
    }

    /// Rules that give forwarded flows to a flowtable.
    pub(super) fn offloading(&self) -> Vec<Offloading> {
        let mut out = Vec::new();
        for ((table, name), chain) in &self.chains {
            for rule in
                chain.rules.iter().filter(|r| r.contains("flow add @") || r.contains("flow offload @"))
            {
                out.push(Offloading { table: table.clone(), chain: name.clone(), rule: rule.clone() });
            }
        }
        out
    }

    fn walk(&self, table: &str, chain: &Chain, packet: Packet<'_>, depth: u32) -> Fate {
        if depth > MAX_DEPTH {
            return Fate::MayPass;
        }
        for rule in &chain.rules {
            // What stands in quotes with blanks is the text of a log or a comment.
            let plain = unquoted(rule);
            let words: Vec<&str> = plain.split_whitespace().collect();
            let matches = matches(&words, packet);
            if matches == Match::No {
                continue;
            }
            let has = |word: &str| words.contains(&word);
            // A map of verdicts, or a queue to another program: nobody knows.
            if has("vmap") && verdict_map(&words, packet) || has("queue") {
                return Fate::MayPass;
            }
            if has("vmap") {
                continue;
            }
            if has("accept") {
                return Fate::MayPass;
            }
            let target = ["jump", "goto"].iter().find_map(|word| after(&plain, word));
            if let Some(target) = target {
                let there = self.chains.get(&(table.to_owned(), target.to_owned()));
                match there.map(|c| self.walk(table, c, packet, depth + 1)) {
                    Some(Fate::MayPass) | None => return Fate::MayPass,
                    Some(Fate::Dropped) if matches == Match::Yes => return Fate::Dropped,
                    Some(Fate::Undecided) if matches == Match::Yes && has("goto") => return Fate::Undecided,
                    Some(_) => continue,
                }
            }
            if has("return") && matches == Match::Yes {
                return Fate::Undecided;
            }
            if (has("drop") || has("reject")) && matches == Match::Yes {
                return Fate::Dropped;
            }
        }
        Fate::Undecided
    }
}

/// A rule without the texts in quotes that have blanks, so that no word of them is taken for one of
/// the rule.
fn unquoted(rule: &str) -> String {
    let mut out = String::new();
    for (i, part) in rule.split('"').enumerate() {
        if i % 2 == 0 {
            out.push_str(part);
        } else if !part.contains(' ') {
            out.push('"');
            out.push_str(part);
            out.push('"');
        }
    }
    out
}

/// The word behind `word`.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let mut words = text.split_whitespace();
    words.find(|w| *w == word)?;
    words.next().map(|w| w.trim_end_matches(';'))
}

/// True when a map of verdicts may let such a packet pass: it names the port or protocol, or it is
/// about something that is not known.
fn verdict_map(words: &[&str], packet: Packet<'_>) -> bool {
    let text = words.join(" ");
    let Some((what, elements)) = text.split_once(" vmap ") else { return false };
    let known = if what.ends_with("dport") {
        packet.port.map(u32::from)
    } else if what.ends_with("l4proto") || what.ends_with("ip protocol") || what.ends_with("nexthdr") {
        packet.protocol.map(u32::from)
    } else if what.ends_with("ct state") {
        Some(NEW)
    } else {
        None
    };
    let Some(value) = known.filter(|_| elements.starts_with('{')) else { return true };
    let inside = elements.trim_start_matches('{').split('}').next().unwrap_or_default();
    inside.split(',').any(|element| {
        let Some((key, verdict)) = element.split_once(':') else { return false };
        let matches = if what.ends_with("ct state") {
            number(key.trim()).is_none_or(|bits| bits & value != 0)
        } else {
            within(key.trim(), value) != Match::No
        };
        matches && !matches!(verdict.trim(), "drop" | "continue" | "return")
    })
}

/// Bit of `ct state` for the first packet of a flow.
const NEW: u32 = 8;

/// Whether a rule matches the packet. Conditions that are not understood match perhaps.
fn matches(words: &[&str], packet: Packet<'_>) -> Match {
    let mut least = Match::Yes;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if is_verdict(word) || *word == "vmap" {
            break;
        }
        let (matched, used) = condition(&words[at..], packet);
        least = least.min(matched);
        at += used.max(1);
    }
    least
}

fn is_verdict(word: &str) -> bool {
    matches!(word, "accept" | "drop" | "reject" | "jump" | "goto" | "return" | "queue")
}

/// Whether the first condition of these words holds, and the number of its words.
fn condition(words: &[&str], packet: Packet<'_>) -> (Match, usize) {
    let behind = |n: usize| words.get(n..).unwrap_or_default();
    match (words[0], behind(1).first().copied().unwrap_or_default()) {
        ("meta", "l4proto") | ("ip", "protocol") | ("ip6", "nexthdr") => {
            let (value, used) = value(behind(2));
            (compare(&value, packet.protocol.map(u32::from)), 2 + used)
        }
        (word @ ("udp" | "tcp" | "th"), "dport") => {
            let (value, used) = value(behind(2));
            let of = of_protocol(word, packet.protocol);
            (of.min(compare(&value, packet.port.map(u32::from))), 2 + used)
        }
        (word @ ("udp" | "tcp" | "esp" | "ah" | "icmp" | "icmpv6" | "sctp" | "dccp" | "comp"), _) => {
            let (_, used) = value(behind(2));
            (of_protocol(word, packet.protocol).min(Match::Perhaps), 2 + used)
        }
        ("iifname" | "iif", _) => {
            let (value, used) = value(behind(1));
            let never = packet.to.or((packet.hook == "input").then_some("lo"));
            (interface(&value, packet.from, never), 1 + used)
        }
        ("oifname" | "oif", _) => {
            let (value, used) = value(behind(1));
            (interface(&value, packet.to, packet.from), 1 + used)
        }
        ("ct", "state") => {
            let (value, used) = value(behind(2));
            (new_flow(&value), 2 + used)
        }
        ("counter", "packets") => (Match::Yes, 5),
        ("counter", _) => (Match::Yes, 1),
        // Logging and its options match every packet.
        ("log", _) => (Match::Yes, words.iter().position(|w| is_verdict(w)).unwrap_or(words.len())),
        ("comment", _) => (Match::Yes, words.len()),
        ("ct" | "ip" | "ip6" | "meta" | "fib" | "ether" | "socket" | "rt" | "limit" | "vlan", _) => {
            let (_, used) = value(behind(2));
            (Match::Perhaps, 2 + used)
        }
        _ => (Match::Perhaps, 1),
    }
}

/// Whether a packet is of the protocol that a word names.
fn of_protocol(word: &str, known: Option<u8>) -> Match {
    let of = match word {
        "udp" => 17,
        "tcp" => 6,
        "esp" => 50,
        "ah" => 51,
        "icmp" => 1,
        "icmpv6" => 58,
        // Ports of any protocol that has them.
        "th" => return if known.is_none_or(|p| matches!(p, 6 | 17)) { Match::Perhaps } else { Match::No },
        _ => return if known.is_some_and(|p| matches!(p, 6 | 17 | 50)) { Match::No } else { Match::Perhaps },
    };
    match known {
        None => Match::Perhaps,
        Some(p) if p == of => Match::Yes,
        Some(_) => Match::No,
    }
}

/// The value of a condition: one word, or all words of a set in braces; with `!=` in front of it.
fn value(words: &[&str]) -> (String, usize) {
    let skip = usize::from(matches!(words.first(), Some(&("!=" | "=="))));
    let negated = words.first() == Some(&"!=");
    let rest = words.get(skip..).unwrap_or_default();
    let len = match rest.first() {
        // The map of verdicts itself is the value of none.
        Some(&"vmap") => return (String::new(), skip),
        Some(&"{") => rest.iter().position(|w| *w == "}").map_or(rest.len(), |end| end + 1),
        Some(_) => 1,
        None => 0,
    };
    (if negated { "!" } else { "" }.to_owned() + &rest[..len].join(" "), skip + len)
}

/// Compares a set, a range or a number with what the packet has.
fn compare(value: &str, known: Option<u32>) -> Match {
    let (text, negated) = match value.strip_prefix('!') {
        Some(text) => (text, true),
        None => (value, false),
    };
    let Some(known) = known.filter(|_| !text.is_empty()) else { return Match::Perhaps };
    let inside = text.trim_start_matches('{').trim_end_matches('}');
    let best = inside.split(',').map(|e| within(e.trim(), known)).max().unwrap_or(Match::Perhaps);
    if negated { opposite(best) } else { best }
}

fn opposite(m: Match) -> Match {
    match m {
        Match::No => Match::Yes,
        Match::Perhaps => Match::Perhaps,
        Match::Yes => Match::No,
    }
}

/// A number or a range.
fn within(text: &str, known: u32) -> Match {
    let range = match text.split_once('-') {
        Some((from, to)) => number(from).zip(number(to)),
        None => number(text).map(|n| (n, n)),
    };
    match range {
        Some((from, to)) if (from..=to).contains(&known) => Match::Yes,
        Some(_) => Match::No,
        // A set by name, or a word that `-n` did not turn into a number.
        None => Match::Perhaps,
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether the first packet of a flow has one of these states.
fn new_flow(value: &str) -> Match {
    let (text, negated) = match value.strip_prefix('!') {
        Some(text) => (text, true),
        None => (value, false),
    };
    let inside = text.trim_start_matches('{').trim_end_matches('}');
    let mut has = Match::No;
    for state in inside.split(',').map(str::trim) {
        has = has.max(match (state, number(state)) {
            ("new", _) => Match::Yes,
            ("established" | "related" | "invalid" | "untracked", _) => Match::No,
            (_, Some(bits)) if bits & NEW != 0 => Match::Yes,
            (_, Some(_)) => Match::No,
            _ => Match::Perhaps,
        });
    }
    if negated { opposite(has) } else { has }
}

/// Whether the interface is one of these. An interface that is not known is not `never`: packets of
/// others do not come through loopback, and what comes out of a tunnel does not go into one.
fn interface(value: &str, known: Option<&str>, never: Option<&str>) -> Match {
    let (text, negated) = match value.strip_prefix('!') {
        Some(text) => (text, true),
        None => (value, false),
    };
    let names = text.trim_start_matches('{').trim_end_matches('}');
    let mut names = names.split(',').map(|n| n.trim().trim_matches('"'));
    let matched = match known {
        Some(known) => {
            let one = |name: &str| match name.strip_suffix('*') {
                Some(start) => known.starts_with(start),
                None => name == known,
            };
            if names.any(one) { Match::Yes } else { Match::No }
        }
        None if names.all(|n| Some(n) == never) => Match::No,
        None => Match::Perhaps,
    };
    if negated { opposite(matched) } else { matched }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_us(protocol: u8, port: Option<u16>) -> Packet<'static> {
        Packet { hook: "input", protocol: Some(protocol), port, from: None, to: None }
    }

    fn chain(rules: &str, policy: &str) -> Ruleset {
        let rules: String = rules.lines().map(|r| format!("\t\t{}\n", r.trim())).collect();
        Ruleset::parse(&format!(
            "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority 0; policy {policy};\n{rules}\t}}\n\n\
             \tchain ike {{\n\t\tudp dport {{ 500, 4500 }} accept\n\t}}\n\n\tchain nothing {{\n\t\treturn\n\t}}\n}}\n"
        ))
    }

    #[track_caller]
    fn drops(rules: &str, policy: &str) -> [bool; 3] {
        let all = chain(rules, policy);
        [to_us(17, Some(500)), to_us(17, Some(4500)), to_us(50, None)]
            .map(|p| all.dropped_by(p, "").is_some())
    }

    #[test]
    fn a_chain_that_drops_by_policy_drops_what_no_rule_accepts() {
        assert_eq!(drops("", "drop"), [true; 3]);
        assert_eq!(drops("", "accept"), [false; 3]);
        let usual = "ct state 0x2,0x4 accept\nct state vmap { 0x1 : drop, 0x8 : continue }\niifname \"lo\" accept\n\
                     meta l4proto { 1, 58 } accept\ntcp dport { 22, 443 } accept\n";
        assert_eq!(drops(usual, "drop"), [true; 3]);
        let ike = format!("{usual}udp dport {{ 500, 4500 }} accept");
        assert_eq!(drops(&ike, "drop"), [false, false, true]);
        let all = format!("{ike}\nmeta l4proto 50 accept");
        assert_eq!(drops(&all, "drop"), [false; 3]);
    }

    #[test]
    fn every_way_to_accept_is_seen() {
        for rule in [
            "ip saddr @peers udp dport { 500, 4500 } accept",
            "udp dport 400-5000 counter packets 0 bytes 0 accept",
            "udp dport { 500, 4500 } counter packets 12 bytes 3000 log prefix \"ike: drop or not \" accept",
            "meta l4proto 17 accept",
            "ip protocol 17 accept",
            "udp dport vmap { 500 : accept, 4500 : accept }",
            "udp dport @open accept",
            "jump ike",
            "iifname \"wan\" accept",
            "ct state { 0x8 } accept",
            "accept comment \"all\"",
            "udp dport { 500, 4500 } queue num 1",
            "meta mark 0x220 accept",
        ] {
            assert_eq!(drops(rule, "drop")[..2], [false; 2], "{rule}");
        }
    }

    #[test]
    fn rules_that_accept_something_else_do_not_count() {
        for rule in [
            "tcp dport 500 accept",
            "udp dport { 53, 123 } accept",
            "udp dport vmap { 53 : accept, 500 : drop }",
            "meta l4proto 6 accept",
            "iifname \"lo\" accept",
            "iif \"lo\" accept",
            "ct state 0x2,0x4 accept",
            "icmp type 8 accept",
            "jump nothing",
            "udp dport != { 500, 4500 } accept",
            "ip6 nexthdr 58 accept",
        ] {
            assert_eq!(drops(rule, "drop")[..2], [true; 2], "{rule}");
        }
    }

    #[test]
    fn a_rule_that_drops_for_certain_drops_and_one_that_may_match_does_not() {
        assert_eq!(drops("udp dport 4500 drop", "accept"), [false, true, false]);
        assert_eq!(drops("log prefix \"in drop: \" reject with icmpx 3", "accept"), [true; 3]);
        assert_eq!(drops("counter packets 9 bytes 1 drop", "accept"), [true; 3]);
        assert_eq!(drops("meta l4proto 50 drop", "accept"), [false, false, true]);
        assert_eq!(drops("ip saddr 192.0.2.9 drop", "accept"), [false; 3]);
        assert_eq!(drops("iifname \"wan\" drop", "accept"), [false; 3]);
        assert_eq!(drops("accept\ndrop", "accept"), [false; 3]);
    }

    #[test]
    fn forwarded_packets_are_asked_for_by_their_interfaces() {
        let listing = "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority 0; policy drop;\n\
                       \t\toifname \"docker0\" ct state 0x2,0x4 accept\n\t\tiifname \"docker0\" accept\n\t}\n}\n";
        let through = |from, to| Packet { hook: "forward", protocol: None, port: None, from, to };
        let all = Ruleset::parse(listing);
        assert_eq!(all.dropped_by(through(Some("ipsec0"), None), "").as_deref(), Some("ip filter FORWARD"));
        let open = listing.replace("\"docker0\" accept", "\"ipsec*\" accept");
        assert_eq!(Ruleset::parse(&open).dropped_by(through(Some("ipsec0"), None), ""), None);
        assert_eq!(all.dropped_by(through(Some("ipsec0"), None), "ip filter"), None, "passed over");
        let bridge = listing.replace("table ip ", "table bridge ");
        assert_eq!(Ruleset::parse(&bridge).dropped_by(through(Some("ipsec0"), None), ""), None);
    }

    #[test]
    fn rules_that_offload_flows_are_found_in_whatever_chain() {
        let listing = "table inet fast {\n\tflowtable f {\n\t\thook ingress priority 0\n\t\tdevices = { lan, wan }\n\t}\n\n\
                       \tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\
                       \t\tmeta l4proto { 6, 17 } flow add @f\n\t}\n}\n";
        let found = Ruleset::parse(listing).offloading();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].table.as_str(), found[0].chain.as_str()), ("inet fast", "forward"));
    }

    #[test]
    fn a_listing_that_makes_no_sense_drops_nothing() {
        for text in [
            "",
            "chain x {",
            "}}}}",
            "table\nchain\n",
            "table inet t {\n\tchain c {\n\t\ttype filter hook input",
        ] {
            assert_eq!(Ruleset::parse(text).dropped_by(to_us(17, Some(500)), ""), None, "{text}");
        }
        // Chains that jump to each other for ever.
        let round = "table ip t {\n\tchain a {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tjump b\n\t}\n\tchain b {\n\
                     \t\tjump c\n\t}\n\tchain c {\n\t\tjump b\n\t}\n}\n";
        assert_eq!(Ruleset::parse(round).dropped_by(to_us(17, Some(500)), ""), None);
        for rule in [
            "udp dport",
            "udp dport {",
            "ct state",
            "iifname",
            "meta",
            "log",
            "jump",
            "udp dport vmap",
            "vmap {",
        ] {
            let _ = drops(rule, "drop");
        }
    }
}
