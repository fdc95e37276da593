//! What the reports of nft say about the packets of a flow: where each was seen, which rule dropped
//! it. And the table that lets the packets be reported. Pure.
//!
//! ```text
//! there_pre, back_pre   prerouting, early   mark the packets of the flow, ten in a second
//! there_out, back_out   output, early       the same of packets of this machine
//! pre_end               prerouting, last    ┐
//! in_begin .. post_end  first and last of   │ do nothing: the report of their policy says that
//!                       each other hook     ┘ a packet has come so far
//! ```
//! A packet keeps its number from hook to hook, and a later packet may get the same number: the
//! rule that marks a packet begins a new one.

use std::collections::HashMap;
use std::fmt::Write;

use ironswan_io::nft::{Step, StepKind, Traced};

use super::{Question, shown};
use crate::guard::NAME;
use crate::guard::nft::TRACE_NAME;

/// Packets that are marked in a second, for each direction and hook.
const RATE: u32 = 10;
/// Limits the packets whose numbers are remembered.
const MAX_PACKETS: usize = 4096;

/// A place at which a packet was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// It has come by an interface.
    Arrived,
    /// This machine has made it.
    Made,
    /// The hook output is behind it.
    Sent,
    /// The hook prerouting is behind it.
    BeforeRouting,
    /// It is for this machine.
    ForUs,
    /// It has been delivered to this machine.
    Delivered,
    /// It is to be forwarded.
    ToForward,
    /// The hook forward is behind it.
    Forwarded,
    /// It is about to leave.
    ToLeave,
    /// It has left.
    Left,
}

impl Place {
    /// Completes "it was seen ...".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Arrived => "as it came in",
            Self::Made => "as this machine made it",
            Self::Sent => "behind the hook output",
            Self::BeforeRouting => "behind the hook prerouting, before it was routed",
            Self::ForUs => "as it came to the hook input",
            Self::Delivered => "behind the hook input",
            Self::ToForward => "as it came to the hook forward",
            Self::Forwarded => "behind the hook forward",
            Self::ToLeave => "as it came to the hook postrouting",
            Self::Left => "as it left",
        }
    }

    /// Nothing of nft comes behind this place.
    fn is_end(self) -> bool {
        matches!(self, Self::Delivered | Self::Left)
    }
}

/// The chains that show a place: name, hook, first or last of it.
const PLACES: [(&str, &str, i32, Place); 8] = [
    ("pre_end", "prerouting", LAST, Place::BeforeRouting),
    ("in_begin", "input", FIRST, Place::ForUs),
    ("in_end", "input", LAST, Place::Delivered),
    ("fwd_begin", "forward", FIRST, Place::ToForward),
    ("fwd_end", "forward", LAST, Place::Forwarded),
    ("out_end", "output", LAST, Place::Sent),
    ("post_begin", "postrouting", FIRST, Place::ToLeave),
    ("post_end", "postrouting", LAST, Place::Left),
];
/// The chains that mark packets: name, hook, direction, place.
const MARKS: [(&str, &str, Turn, Place); 4] = [
    ("there_pre", "prerouting", Turn::There, Place::Arrived),
    ("back_pre", "prerouting", Turn::Back, Place::Arrived),
    ("there_out", "output", Turn::There, Place::Made),
    ("back_out", "output", Turn::Back, Place::Made),
];
/// Priority of the chains that mark: behind the kernel's own, which puts fragments together (-400),
/// and before those that people call `raw` (-300).
const MARK_PRIORITY: i32 = -390;
const FIRST: i32 = -1_000_000;
const LAST: i32 = 1_000_000;

/// A direction of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// As it was asked about.
    There,
    /// The answers.
    Back,
}

/// The text of the table, which replaces one that was left over.
pub(crate) fn table(question: &Question) -> String {
    let mut t = removal();
    let _ = writeln!(t, "table inet {TRACE_NAME} {{");
    for (name, hook, turn, _) in MARKS {
        let _ = writeln!(
            t,
            "\tchain {name} {{\n\t\ttype filter hook {hook} priority {MARK_PRIORITY}; policy accept;\n\
             \t\t{}limit rate {RATE}/second burst {RATE} packets meta nftrace set 1\n\t}}",
            matches(question, turn)
        );
    }
    for (name, hook, priority, _) in PLACES {
        let _ =
            writeln!(t, "\tchain {name} {{ type filter hook {hook} priority {priority}; policy accept; }}");
    }
    t.push_str("}\n");
    t
}

/// The text that removes the table, whether it stands or not.
fn removal() -> String {
    format!("table inet {TRACE_NAME} {{}}\ndelete table inet {TRACE_NAME}\n")
}

/// The conditions for packets of one direction, with a space at the end.
fn matches(question: &Question, turn: Turn) -> String {
    let there = turn == Turn::There;
    let pair = |a, b| if there { (a, b) } else { (b, a) };
    let (src, dst) = pair(question.src, question.dst);
    let ip = if src.is_ipv6() { "ip6" } else { "ip" };
    let mut out = format!("{ip} saddr {src} {ip} daddr {dst} meta l4proto {} ", question.protocol);
    if question.has_ports() {
        let (sport, dport) = if there {
            (question.src_port, question.dst_port)
        } else {
            (question.dst_port, question.src_port)
        };
        // Bits of the transport header: names of its fields need a newer nft than the guard does.
        for (at, port) in [(0, sport), (16, dport)] {
            if let Some(port) = port {
                let _ = write!(out, "@th,{at},16 {port} ");
            }
        }
    }
    out
}

/// A chain that dropped a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dropped {
    /// Family and name of the table.
    pub(crate) table: String,
    /// The chain.
    pub(crate) chain: String,
    /// Handle of the rule; `None`: the chain's policy.
    pub(crate) handle: Option<u64>,
    /// It is the guard's table.
    pub(crate) ours: bool,
}

/// One packet on its way.
#[derive(Clone, Debug)]
struct Seen {
    turn: Turn,
    place: Place,
    /// The interface by which it is to leave, where that is known.
    leaves_by: Option<u32>,
    /// Why nothing more is expected of it.
    end: Option<End>,
}

/// How a packet ended before the last hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A rule or a policy dropped it.
    Dropped(Dropped),
    /// A rule handed it to a program: table and chain.
    Queued(String, String),
    /// Another part of the kernel took it over: table and chain.
    Taken(String, String),
}

/// The packets of one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Path {
    /// Packets that were marked.
    pub(crate) packets: u64,
    /// The place at which the last packet was seen last.
    pub(crate) last: Option<Place>,
    /// The interface by which the last packet was to leave.
    pub(crate) leaves_by: Option<u32>,
    /// How the last packet that ended early ended.
    pub(crate) end: Option<End>,
}

impl Path {
    /// The last packet got past every hook.
    pub(crate) fn is_through(&self) -> bool {
        self.last.is_some_and(Place::is_end)
    }
}

/// The packets of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    packets: HashMap<u32, Seen>,
    there: Path,
    back: Path,
    /// Reports were lost.
    pub(crate) lost: bool,
}

impl Story {
    /// Takes one report.
    pub(crate) fn take(&mut self, report: &Traced) {
        let ours = report.family == "inet" && report.table == TRACE_NAME;
        if ours && self.begins(report) {
            return;
        }
        let Some(seen) = self.packets.get_mut(&report.packet) else { return };
        if ours {
            if let Some((.., place)) = PLACES.iter().find(|(name, ..)| *name == report.chain) {
                seen.place = *place;
                seen.leaves_by = report.leaves_by.or(seen.leaves_by);
            }
        } else {
            seen.end = end(report).or(seen.end.take());
        }
        let seen = seen.clone();
        let path = self.path(seen.turn);
        path.last = Some(seen.place);
        path.leaves_by = seen.leaves_by;
        if seen.end.is_some() {
            path.end = seen.end;
        }
    }

    /// A packet begins with the rule that marks it.
    fn begins(&mut self, report: &Traced) -> bool {
        let mark = MARKS.iter().find(|(name, ..)| *name == report.chain);
        let (Some((_, _, turn, place)), StepKind::Rule(_)) = (mark, report.kind) else { return false };
        if self.packets.len() >= MAX_PACKETS {
            self.packets.clear();
        }
        let seen = Seen { turn: *turn, place: *place, leaves_by: None, end: None };
        self.packets.insert(report.packet, seen);
        let path = self.path(*turn);
        path.packets += 1;
        path.last = Some(*place);
        path.leaves_by = None;
        true
    }

    fn path(&mut self, turn: Turn) -> &mut Path {
        match turn {
            Turn::There => &mut self.there,
            Turn::Back => &mut self.back,
        }
    }

    /// The packets of one direction.
    pub(crate) fn of(&self, turn: Turn) -> &Path {
        match turn {
            Turn::There => &self.there,
            Turn::Back => &self.back,
        }
    }

    /// Some rule of nft has ended a packet: more packets say nothing new.
    pub(crate) fn is_told(&self) -> bool {
        self.there.end.is_some() || self.back.end.is_some()
    }
}

/// How a report ends its packet, if it does.
fn end(report: &Traced) -> Option<End> {
    let table = format!("{} {}", report.family, shown(&report.table));
    let chain = shown(&report.chain);
    match report.step {
        Step::Drop => {
            let handle = match report.kind {
                StepKind::Rule(handle) => Some(handle),
                StepKind::Policy | StepKind::Return | StepKind::Begin => None,
            };
            let ours = report.family == "inet" && report.table == NAME;
            Some(End::Dropped(Dropped { table, chain, handle, ours }))
        }
        Step::Queue => Some(End::Queued(table, chain)),
        Step::Stolen => Some(End::Taken(table, chain)),
        Step::Accept | Step::Goes => None,
    }
}

/// The text of a rule by its table and handle, in a listing with handles; `None` when it is no
/// longer there.
pub(crate) fn rule_text(listing: &str, table: &str, handle: u64) -> Option<String> {
    let (mut inside, mut rule) = (false, String::new());
    for line in listing.lines() {
        if let Some(head) = line.strip_prefix("table ") {
            inside = head.split(" {").next() == Some(table);
            rule.clear();
            continue;
        }
        let line = line.trim();
        if !inside {
            continue;
        }
        if line == "}" || line.starts_with("chain ") || line.starts_with("type ") && rule.is_empty() {
            rule.clear();
            continue;
        }
        if !rule.is_empty() {
            rule.push(' ');
        }
        rule.push_str(line);
        // A comment may hold anything: the last words of the line are the program's own.
        let Some((text, number)) = rule.rsplit_once(" # handle ") else { continue };
        if number.parse() == Ok(handle) {
            return Some(shown(text));
        }
        rule.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(packet: u32, table: &str, chain: &str, kind: StepKind, step: Step) -> Traced {
        let (table, chain) = (table.to_owned(), chain.to_owned());
        let (family, came_by, leaves_by) = ("inet", Some(2), Some(7));
        Traced { packet, family, table, chain, kind, step, came_by, leaves_by }
    }

    fn told(reports: &[(u32, &str, &str, StepKind, Step)]) -> Story {
        let mut story = Story::default();
        for (packet, table, chain, kind, step) in reports {
            story.take(&report(*packet, table, chain, *kind, *step));
        }
        story
    }

    const MARK: StepKind = StepKind::Rule(9);
    const END: StepKind = StepKind::Policy;

    #[test]
    fn a_packet_that_leaves_is_seen_at_each_place_and_its_answers_apart() {
        let story = told(&[
            (1, TRACE_NAME, "there_pre", MARK, Step::Goes),
            (1, TRACE_NAME, "back_pre", END, Step::Accept),
            (1, "filter", "pre", StepKind::Rule(3), Step::Accept),
            (1, TRACE_NAME, "pre_end", END, Step::Accept),
            (1, TRACE_NAME, "fwd_end", END, Step::Accept),
            (1, TRACE_NAME, "post_end", END, Step::Accept),
            (5, TRACE_NAME, "back_pre", MARK, Step::Goes),
            (5, TRACE_NAME, "pre_end", END, Step::Accept),
            (8, "filter", "forward", END, Step::Drop),
        ]);
        let there = story.of(Turn::There);
        assert!(there.is_through() && !story.is_told(), "a packet that was not marked does not count");
        assert_eq!((there.packets, there.last, there.leaves_by), (1, Some(Place::Left), Some(7)));
        let back = story.of(Turn::Back);
        assert_eq!((back.packets, back.last, &back.end), (1, Some(Place::BeforeRouting), &None));
        assert!(!back.is_through());
    }

    #[test]
    fn rules_and_policies_that_drop_are_named_and_the_guards_are_told_from_others() {
        for (table, chain, kind, handle, ours) in [
            ("filter", "forward", StepKind::Rule(42), Some(42), false),
            ("filter", "input", END, None, false),
            (NAME, "guard_out", StepKind::Rule(8), Some(8), true),
        ] {
            let story =
                told(&[(1, TRACE_NAME, "there_out", MARK, Step::Goes), (1, table, chain, kind, Step::Drop)]);
            let dropped = Dropped { table: format!("inet {table}"), chain: chain.to_owned(), handle, ours };
            assert_eq!(story.of(Turn::There).end, Some(End::Dropped(dropped)));
            assert!(story.is_told());
        }
        let story = told(&[
            (1, TRACE_NAME, "there_pre", MARK, Step::Goes),
            (1, "x\x1b[2J", "c", StepKind::Rule(1), Step::Queue),
        ]);
        let queued = End::Queued("inet x\\u{1b}[2J".to_owned(), "c".to_owned());
        assert_eq!(story.of(Turn::There).end, Some(queued), "escaped");
    }

    #[test]
    fn a_number_that_comes_again_is_another_packet_and_numbers_are_bounded() {
        let mut story = told(&[
            (1, TRACE_NAME, "there_pre", MARK, Step::Goes),
            (1, TRACE_NAME, "post_end", END, Step::Accept),
            (1, TRACE_NAME, "there_pre", MARK, Step::Goes),
        ]);
        assert_eq!((story.of(Turn::There).packets, story.of(Turn::There).last), (2, Some(Place::Arrived)));
        for n in 0..3 * MAX_PACKETS as u32 {
            story.take(&report(n, TRACE_NAME, "there_pre", MARK, Step::Goes));
        }
        assert!(story.packets.len() <= MAX_PACKETS);
    }

    #[test]
    fn the_table_marks_this_flow_alone_in_both_directions_and_slowly() {
        let question = Question::read("10.1.0.9:50000 > 10.2.5.1 tcp 443").unwrap();
        let text = table(&question);
        let there = "ip saddr 10.1.0.9 ip daddr 10.2.5.1 meta l4proto 6 @th,0,16 50000 @th,16,16 443 limit";
        let back = "ip saddr 10.2.5.1 ip daddr 10.1.0.9 meta l4proto 6 @th,0,16 443 @th,16,16 50000 limit";
        assert_eq!((text.matches(there).count(), text.matches(back).count()), (2, 2));
        assert_eq!(text.matches("meta nftrace set 1").count(), text.matches("limit rate 10/second").count());
        assert!(text.starts_with(&removal()) && !text.contains("include"));
        let ping = table(&Question::read("fd00::9 > fd01::1 icmp").unwrap());
        assert!(ping.contains("ip6 saddr fd01::1 ip6 daddr fd00::9 meta l4proto 58 limit"), "{ping}");
    }

    #[test]
    fn a_rule_is_found_by_its_handle_in_its_own_table_and_shown_without_escape_sequences() {
        let listing = "table ip nat { # handle 1\n\tchain x { # handle 1\n\t\ttype nat hook input priority 100; \
                       policy accept;\n\t\tcounter drop # handle 4\n\t}\n}\n\
                       table inet filter { # handle 2\n\tset s { # handle 9\n\t\ttype ipv4_addr\n\t}\n\n\
                       \tchain forward { # handle 1\n\t\ttype filter hook forward priority 0; policy accept;\n\
                       \t\tip saddr { 10.1.0.1, 10.1.0.2,\n\t\t\t     10.1.0.9 } drop # handle 4\n\
                       \t\ttcp dport 443 drop comment \"\x1b[31m # handle 4 \u{202e}\" # handle 5\n\t}\n}\n";
        let of = |table: &str, handle| rule_text(listing, table, handle);
        assert_eq!(of("ip nat", 4).as_deref(), Some("counter drop"));
        assert_eq!(of("inet filter", 4).as_deref(), Some("ip saddr { 10.1.0.1, 10.1.0.2, 10.1.0.9 } drop"));
        let hostile = of("inet filter", 5).unwrap();
        assert_eq!(hostile, "tcp dport 443 drop comment \"\\u{1b}[31m # handle 4 \\u{202e}\"");
        assert_eq!((of("inet filter", 77), of("inet other", 4)), (None, None));
    }
}
