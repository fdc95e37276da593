//! `explain`: why a tunnel is as it is, and what a peer has been seen to do.

use std::collections::BTreeMap;

use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::Explain;
use crate::failure::Failure;
use crate::json;
use crate::packet;
use crate::text::{COLUMNS, table, wrapped};
use crate::vici::{Client, refusal};
use crate::view::{Named, get, list, objects, seconds};

/// Where the text of a line begins.
const INDENT: usize = 8;

/// `explain NAME` and `explain --peer ADDRESS`; [`packet`] has `explain --packet`.
pub(crate) fn explain(a: &Explain) -> Result<(), Failure> {
    if let Some(packet) = &a.packet {
        return packet::explain(packet, a);
    }
    let mut client = Client::connect(&a.daemon.vici)?;
    let question = match (&a.name, &a.peer) {
        (Some(name), _) => Section::new().with("ike", connection_of(&mut client, name)?),
        (None, Some(peer)) => Section::new().with("peer", peer.to_string()),
        (None, None) => {
            return Err(Failure::usage(
                "name a connection or child, or say --peer ADDRESS or --packet PACKET",
            ));
        }
    };
    let known = client.request("ironswan-explain", question)?;
    if let Some(why) = refusal(&known) {
        return Err(Failure::no(why));
    }
    let nothing = Section::new();
    let conns = known.section("connections").unwrap_or(&nothing);
    let mut tunnels: Vec<(String, Section)> = Vec::new();
    for (conn, _) in conns.sections() {
        tunnels.extend(client.tunnels(Some(conn))?);
    }
    if let Some((_, child)) = a.name.as_deref().and_then(|name| name.split_once('/')) {
        tunnels.retain(|(_, s)| s.get_str("child") == Some(child));
    }
    let all_well = is_well(&known, &tunnels);
    if a.daemon.json {
        let of = |key: &str| known.section(key).map(json::object);
        json::print(
            "explain",
            json!({ "well": all_well, "tunnels": objects(&tunnels), "connections": of("connections"),
                    "strangers": of("strangers"),
                    "strangers_left_out": get(&known, "strangers-left-out").parse::<u64>().unwrap_or_default(), "machine": list(&known, "machine") }),
        );
    } else {
        say_text!("{}", text(&known, &tunnels, a.peer.map(|peer| peer.to_string()).as_deref()));
    }
    if all_well { Ok(()) } else { Err(Failure { status: 1, lines: Vec::new() }) }
}

/// The connection that a name means: a connection, CONNECTION/CHILD, or the one child of that name.
fn connection_of(client: &mut Client, name: &str) -> Result<String, Failure> {
    let head = name.split_once('/').map_or(name, |(conn, _)| conn);
    if !client.tunnels(Some(head))?.is_empty() {
        return Ok(head.to_owned());
    }
    let tunnels = client.tunnels(None)?;
    let mut of: Vec<&str> = tunnels
        .iter()
        .filter(|(_, s)| s.get_str("child") == Some(name))
        .map(|(conn, _)| conn.as_str())
        .collect();
    of.dedup();
    match of.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => {
            let mut known: Vec<&str> = tunnels.iter().map(|(conn, _)| conn.as_str()).collect();
            known.dedup();
            let some: Vec<&str> = known.iter().take(20).copied().collect();
            let hint = if some.is_empty() {
                "none is loaded".into()
            } else {
                format!("loaded are {}", some.join(", "))
            };
            Err(Failure::usage(format!("{name}: there is no connection and no child of that name; {hint}")))
        }
        several => Err(Failure::usage(format!(
            "{name}: several connections have such a child; say one of {}",
            several.iter().map(|conn| format!("{conn}/{name}")).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// All that is wanted is up, and nothing is said against it.
fn is_well(known: &Section, tunnels: &Named) -> bool {
    let down = |s: &Section| get(s, "wanted") == "yes" && get(s, "state") != "up";
    let conns = known.section("connections").into_iter().flat_map(Section::sections);
    let mut notes = conns.filter_map(|(_, conn)| conn.section("notes")).flat_map(Section::sections);
    let bad_note = notes.any(|(_, note)| matches!(get(note, "level"), "error" | "warn"));
    let nobody = known.section("connections").is_none_or(Section::is_empty);
    let refused = nobody && known.section("strangers").is_some_and(|s| !s.is_empty());
    let machine = !list(known, "machine").is_empty();
    !(bad_note || refused || machine || tunnels.iter().any(|(_, s)| down(s)))
}

/// The whole answer for people.
fn text(known: &Section, tunnels: &Named, peer: Option<&str>) -> String {
    let mut out = String::new();
    for line in list(known, "machine") {
        out += &line_of("in the way", &line);
    }
    let nothing = Section::new();
    for (conn, s) in known.section("connections").unwrap_or(&nothing).sections() {
        let of: Vec<&Section> = tunnels.iter().filter(|(name, _)| name == conn).map(|(_, t)| t).collect();
        out += &connection(conn, s, &of);
    }
    let strangers: Vec<_> = known.section("strangers").into_iter().flat_map(Section::sections).collect();
    if let (Some(peer), true) = (peer, out.is_empty() && strangers.is_empty()) {
        return format!("{peer}: no connection is for this address, and nothing has come from it\n");
    }
    for (_, s) in strangers {
        let meant = s.get_str("meant").map(|conn| format!(", for {conn}")).unwrap_or_default();
        out += &wrapped("", &format!("{}: a sender that has not proved who it is{meant}", get(s, "from")));
        out += &note(s);
        out += &line_of("seen", &times(s));
    }
    if let Some(more) = known.get_str("strangers-left-out").filter(|more| *more != "0") {
        out += &wrapped("", &format!("and {more} older notes about such senders"));
    }
    out
}

/// One connection: its tunnels with equal stories together, and then what else has been told.
fn connection(conn: &str, s: &Section, tunnels: &[&Section]) -> String {
    let mut out = String::new();
    let name = |t: &Section| match (t.get_str("child"), tunnels.len()) {
        (Some(child), 2..) => format!("{conn}/{child}"),
        _ => conn.to_owned(),
    };
    // Children that fail together are told of once.
    let mut groups: BTreeMap<(u8, String), Vec<&Section>> = BTreeMap::new();
    for t in tunnels {
        let why = t.section("trouble").and_then(|t| t.get_str("why")).unwrap_or_default();
        let order = u8::from(get(t, "state") == "up");
        groups.entry((order, format!("{} {why}", get(t, "state")))).or_default().push(t);
    }
    let notes: Vec<&Section> =
        s.section("notes").into_iter().flat_map(Section::sections).map(|(_, note)| note).collect();
    let mut told = Vec::new();
    for group in groups.values() {
        let names: Vec<String> = group.iter().map(|t| name(t)).collect();
        let some = match names.as_slice() {
            [first, rest @ ..] if rest.len() > 3 => format!("{first} and {} more", rest.len()),
            all => all.join(", "),
        };
        out += &story(&some, group[0], &notes, &mut told);
    }
    if let Some(path) = s.section("path").filter(|path| get(path, "state") == "known") {
        let (bytes, ago) = (get(path, "mtu"), seconds(path, "ago"));
        let narrow = match get(path, "narrow") {
            "yes" => format!("; {} were believed to pass", get(path, "believed")),
            _ => String::new(),
        };
        out += &line_of(
            "path",
            &format!("packets of {bytes} bytes pass towards the peer, measured {ago} ago{narrow}"),
        );
    }
    // What the stories above have not said.
    for other in notes.iter().rev().filter(|n| !told.contains(&get(n, "why"))) {
        let remedy = other.get_str("remedy").map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let line = format!("{}{remedy} ({}; {})", get(other, "why"), get(other, "name"), times(other));
        out += &line_of("also", &line);
    }
    out
}

/// The story of one tunnel.
fn story<'a>(name: &str, t: &Section, notes: &[&'a Section], told: &mut Vec<&'a str>) -> String {
    let since = t.get_str("since").map(|_| format!(" for {}", seconds(t, "since"))).unwrap_or_default();
    let place = t.get_str("place").map(|place| format!(", {place}")).unwrap_or_default();
    let action = format!("start_action = {}{place}", get(t, "action"));
    // What has been up, or was tried on command, is missed whatever its start_action.
    let wanted = if get(t, "action").contains("start") { "wanted" } else { "asked for" };
    let remote = t.get_str("remote").map(|remote| format!(" to {remote}")).unwrap_or_default();
    let head = match (get(t, "state"), get(t, "wanted")) {
        ("up", _) => format!("{name}: up{since}{remote}"),
        ("waiting", _) if t.get_str("action").is_some_and(|action| action.contains("trap")) => {
            format!("{name}: waits for a packet ({action})")
        }
        ("waiting", _) => format!("{name}: not up, and nobody has asked for it ({action})"),
        (state @ ("pass" | "drop"), _) => format!("{name}: {state}, without keys"),
        (state, _) => format!(
            "{name}: {}{since} ({wanted}: {action})",
            if state == "trying" { "being tried, down" } else { "down" }
        ),
    };
    let mut out = wrapped("", &head);
    let trouble = t.section("trouble");
    let why = trouble.and_then(|t| t.get_str("why"));
    // The note has what was counted; the trouble is what the tunnel itself was told.
    let noted = notes.iter().rev().find(|n| why == n.get_str("why"));
    if let Some(s) = trouble {
        out += &note(s);
        if let Some(n) = noted {
            told.push(get(n, "why"));
            out += &line_of("seen", &times(n));
            for place in list(n, "places") {
                out += &line_of("at", &place);
            }
        }
    }
    // What came up at once was never down, for a person.
    let at_once = |before: &&Section| get(before, "lasted") == "0" && before.get_str("name").is_none();
    if let Some(before) = t.section("before").filter(|before| !(get(t, "state") == "up" && at_once(before))) {
        let (lasted, ended) = (seconds(before, "lasted"), seconds(before, "ended"));
        let why = before.get_str("name").map(|name| format!(": {name}")).unwrap_or_default();
        let line = match get(t, "state") {
            "up" => format!("down for {lasted}, until {ended} ago{why}"),
            // Whatever the peer, the path or the time ends has a reason.
            _ if why.is_empty() => format!("up for {lasted}, ended {ended} ago: closed here"),
            _ => format!("up for {lasted}, ended {ended} ago{why}"),
        };
        out += &line_of("was", &line);
    }
    if let Some(s) = trouble {
        if let Some(remedy) = s.get_str("remedy").or_else(|| s.get_str("advice")) {
            out += &line_of("do", remedy);
        }
        let next = match get(s, "next") {
            "trying" => "an attempt is under way".to_owned(),
            "retry" => format!("in {} (try {})", seconds(s, "next-try"), get(s, "next-number")),
            "packet" => "with the next packet for it".to_owned(),
            _ => "not by itself: `ironswan up`, or the peer".to_owned(),
        };
        out += &line_of("next", &next);
    }
    if get(t, "state") == "waiting" && get(t, "action") == "none" {
        out += &line_of("do", "`ironswan up` it, let the peer initiate, or set start_action = start");
    }
    out
}

/// The reason, its data, and the values of both sides.
fn note(s: &Section) -> String {
    let name = s.get_str("name").map(|name| format!(" ({name})")).unwrap_or_default();
    let sides: Vec<&Section> =
        s.section("sides").into_iter().flat_map(Section::sections).map(|(_, side)| side).collect();
    // Where the values stand beside each other, the sentence need not have them, too.
    let both = sides.iter().any(|side| get(side, "differs") == "yes");
    let why = match s.get_str("meaning").filter(|_| both) {
        Some(meaning) => meaning.trim_end_matches('.'),
        None => get(s, "why"),
    };
    let mut out = line_of("why", &format!("{why}{name}"));
    if !sides.is_empty() {
        out += &beside_each_other(&sides);
    } else {
        for line in list(s, "details") {
            out += &line_of("", &line);
        }
    }
    out
}

/// A table of both sides' values, or where that is too wide, one under the other. What differs is
/// marked.
fn beside_each_other(sides: &[&Section]) -> String {
    let mark = |side: &Section| if get(side, "differs") == "yes" { "!=" } else { "" };
    let rows: Vec<Vec<String>> = sides
        .iter()
        .map(|side| {
            let values = ["what", "ours", "theirs"].map(|key| get(side, key).to_owned());
            std::iter::once(mark(side).to_owned()).chain(values).collect()
        })
        .collect();
    let wide = table(&["", "", "OURS", "THE PEER'S"], &rows);
    if wide.lines().all(|line| line.chars().count() + INDENT <= COLUMNS) {
        return wide.lines().map(|line| format!("{:INDENT$}{line}\n", "")).collect();
    }
    let mut out = String::new();
    for side in sides {
        let what = format!("{} {}", get(side, "what"), mark(side));
        out += &line_of("", &what);
        for (word, key) in [("ours", "ours"), ("peer's", "theirs")] {
            out += &wrapped(&format!("{:INDENT$}  {word:<7} ", ""), get(side, key));
        }
    }
    out
}

/// `17 times, first 54m ago, last 41s ago`.
fn times(note: &Section) -> String {
    match get(note, "count") {
        "1" => format!("once, {} ago", seconds(note, "last")),
        count => {
            format!("{count} times, first {} ago, last {} ago", seconds(note, "first"), seconds(note, "last"))
        }
    }
}

/// A line with its word before it, over several lines when it is long.
fn line_of(word: &str, text: &str) -> String {
    wrapped(&format!("  {word:<w$}", w = INDENT - 2), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(what: &str, ours: &str, theirs: &str, differs: bool) -> Section {
        Section::new().with("what", what).with("ours", ours).with("theirs", theirs).with("differs", differs)
    }

    fn down() -> Section {
        let sides = Section::new()
            .with("1", side("IKE: ENCR", "AES_GCM_16_256", "AES_GCM_16_128", true))
            .with("2", side("IKE: KE", "CURVE_25519", "CURVE_25519", false));
        let trouble = Section::new()
            .with("why", "no proposal fits")
            .with("name", "no-proposal")
            .with("meaning", "The two have no proposal in common.")
            .with("remedy", "let both have one")
            .with("sides", sides)
            .with("next", "retry")
            .with("next-try", "41")
            .with("next-number", "17");
        Section::new()
            .with("child", "net")
            .with("state", "down")
            .with("wanted", true)
            .with("action", "start")
            .with("place", "swanctl.conf:12")
            .with("since", "3240")
            .with(
                "before",
                Section::new().with("lasted", "777600").with("ended", "3240").with("name", "peer-dead"),
            )
            .with("trouble", trouble)
    }

    fn known(notes: Section) -> Section {
        let conn = Section::new().with("notes", notes);
        Section::new().with("connections", Section::new().with("branch7", conn))
    }

    #[test]
    fn the_story_of_a_tunnel_has_reason_both_sides_remedy_and_next_try() {
        let note = Section::new()
            .with("why", "no proposal fits")
            .with("level", "error")
            .with("count", "16")
            .with("first", "3240")
            .with("last", "41")
            .with("places", ["proposals swanctl.conf:5"]);
        let (known, tunnels) = (known(Section::new().with("1", note)), vec![("branch7".to_owned(), down())]);
        let text = text(&known, &tunnels, None);
        assert_eq!(
            text,
            "branch7: down for 54m (wanted: start_action = start, swanctl.conf:12)\n  \
             why   The two have no proposal in common (no-proposal)\n                       \
             OURS            THE PEER'S\n        \
             !=  IKE: ENCR  AES_GCM_16_256  AES_GCM_16_128\n            \
             IKE: KE    CURVE_25519     CURVE_25519\n  \
             seen  16 times, first 54m ago, last 41s ago\n  \
             at    proposals swanctl.conf:5\n  \
             was   up for 9d00h, ended 54m ago: peer-dead\n  \
             do    let both have one\n  \
             next  in 41s (try 17)\n"
        );
        assert!(!is_well(&known, &tunnels));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn without_a_remedy_the_advice_of_the_manual_says_what_to_do() {
        let trouble = Section::new()
            .with("why", "the peer deleted the IKE_SA")
            .with("name", "peer-deleted")
            .with("advice", "let the peer say why in its log")
            .with("next", "nothing");
        let down = down().with("trouble", trouble);
        let text = text(&known(Section::new()), &[("branch7".to_owned(), down)], None);
        assert!(text.contains("\n  do    let the peer say why in its log\n"), "{text}");
    }

    #[test]
    fn what_nobody_wants_is_well_and_what_is_up_says_what_was_before() {
        let waiting = Section::new().with("state", "waiting").with("wanted", false).with("action", "none");
        let before = Section::new().with("lasted", "120").with("ended", "60").with("name", "peer-dead");
        let up = Section::new()
            .with("state", "up")
            .with("wanted", true)
            .with("action", "start")
            .with("since", "60")
            .with("before", before);
        let tunnels = |t: &Section| vec![("branch7".to_owned(), t.clone())];
        let known = known(Section::new());
        assert!(is_well(&known, &tunnels(&waiting)) && is_well(&known, &tunnels(&up)));
        assert_eq!(
            text(&known, &tunnels(&up), None),
            "branch7: up for 60s\n  was   down for 2m, until 60s ago: peer-dead\n"
        );
        let at_once = up.with("before", Section::new().with("lasted", "0").with("ended", "60"));
        assert_eq!(text(&known, &tunnels(&at_once), None), "branch7: up for 60s\n");
        let closed = waiting.clone().with("before", Section::new().with("lasted", "120").with("ended", "60"));
        let text = text(&known, &tunnels(&closed), None);
        assert!(
            text.contains("nobody has asked for it")
                && text.contains("up for 2m, ended 60s ago: closed here")
        );
    }
}
