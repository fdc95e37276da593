//! `explain --packet`: the stations of a packet's way through this machine, and the first obstacle.
//!
//! ```text
//! 10.1.0.9 > 10.2.5.1 tcp 443: does not pass
//! outbound
//!   link     10.1.0.9 is reached by lan0, which is up
//!   policy   net.net (10.1.0.0/24 === 10.2.0.0/16) protects it
//! ! sa       net.net has no SA: peer not responding
//! ?  size    not known before there is an SA
//! why   net.net has no SA: peer not responding (packet-without-sa)
//! do    `ironswan up net`
//! ```
//! `!` marks stations that the packet does not get past, `?` those of which nobody knows.

use ironswan_wire::vici::Section;
use serde_json::{Map, Value as Json, json};

use crate::args::Explain;
use crate::failure::Failure;
use crate::json;
use crate::text::wrapped;
use crate::vici::{Client, refusal};
use crate::view::{get, list};

/// Columns of the names in front of the texts.
const NAMES: usize = 11;

/// Values of stations that are numbers.
const NUMBERS: [&str; 10] = [
    "table",
    "packets",
    "bytes",
    "sequence",
    "largest",
    "path-mtu",
    "answers",
    "limit-packets",
    "limit-bytes",
    "port",
];

/// Asks the daemon, and shows the answer. Exit status 1 when the packet would not pass.
pub(crate) fn explain(packet: &str, a: &Explain) -> Result<(), Failure> {
    let mut client = Client::connect(&a.daemon.vici)?;
    let message = Section::new().with("packet", packet).with("live", a.live);
    let answer = client.request("ironswan-explain-packet", message)?;
    if let Some(why) = refusal(&answer) {
        return Err(Failure::usage(why));
    }
    if a.daemon.json {
        json::print("explain-packet", document(&answer));
    } else {
        say_text!("{}", text(&answer));
    }
    // The answer says why.
    if passes(&answer) { Ok(()) } else { Err(Failure { status: 1, lines: Vec::new() }) }
}

fn passes(s: &Section) -> bool {
    s.get_str("passes") == Some("yes")
}

/// The directions that are meant.
fn directions(answer: &Section) -> impl Iterator<Item = (&'static str, &Section)> {
    ["outbound", "inbound"].into_iter().filter_map(|name| Some((name, answer.section(name)?)))
}

fn text(answer: &Section) -> String {
    // The obstacle is the lack of protection alone.
    let in_clear = directions(answer).any(|(_, s)| {
        s.section("obstacle").and_then(|o| o.section("values")).is_some_and(|v| get(v, "clear") == "yes")
    });
    let verdict = match (passes(answer), in_clear) {
        (true, _) => "passes",
        (false, true) => "is not protected",
        (false, false) => "does not pass",
    };
    let mut out = wrapped("", &format!("{}: {verdict}", get(answer, "packet")));
    for (name, direction) in directions(answer) {
        out += &format!("{name}\n");
        let nothing = Section::new();
        for (station, s) in direction.section("stations").unwrap_or(&nothing).sections() {
            let mark = match get(s, "state") {
                "passes" => ' ',
                "stops" => '!',
                _ => '?',
            };
            out += &line(&format!("{mark} {station}"), get(s, "text"), NAMES);
        }
        let Some(why) = direction.section("obstacle") else { continue };
        out += &line("why", &format!("{} ({})", get(why, "why"), get(why, "name")), 6);
        for detail in list(why, "details") {
            out += &line("", &detail, 6);
        }
        if !get(why, "remedy").is_empty() {
            out += &line("do", get(why, "remedy"), 6);
        }
    }
    for hint in list(answer, "hints") {
        out += &line("hint", &hint, 6);
    }
    if passes(answer) && get(answer, "live") != "yes" {
        out += &line("note", "rules of other nft tables were not looked at: --live follows the flow", 6);
    }
    out
}

/// A name, and a text that begins in column `indent`.
fn line(name: &str, text: &str, indent: usize) -> String {
    let space = if name.chars().count() < indent { "" } else { " " };
    wrapped(&format!("{name:indent$}{space}"), text)
}

fn document(answer: &Section) -> Json {
    let directions = directions(answer).map(|(name, s)| {
        let stations = s.section("stations").map(|all| all.sections().map(station).collect::<Vec<_>>());
        let obstacle = s.section("obstacle").map(|o| {
            let mut o = json::object(o);
            o["details"] = s.section("obstacle").map(|o| list(o, "details")).into();
            o
        });
        (name.to_owned(), json!({ "passes": passes(s), "stations": stations, "obstacle": obstacle }))
    });
    let first =
        ["outbound", "inbound"].into_iter().filter_map(|name| answer.section(name)?.section("obstacle"));
    let obstacle = first.map(|o| get(o, "name")).next().filter(|_| !passes(answer));
    json!({ "packet": get(answer, "packet"), "passes": passes(answer), "obstacle": obstacle,
            "live": get(answer, "live") == "yes", "hints": list(answer, "hints"),
            "directions": directions.collect::<Map<_, _>>() })
}

fn station((name, s): (&str, &Section)) -> Json {
    let mut out = Map::new();
    // A second station of one kind has a number behind its name.
    out.insert("station".into(), name.trim_end_matches(|c: char| c == '-' || c.is_ascii_digit()).into());
    for (name, value) in s.iter() {
        let text = s.get_str(name).unwrap_or_default();
        let value = match text.parse::<u64>() {
            Ok(n) if NUMBERS.contains(&name) => n.into(),
            _ => match value {
                ironswan_wire::vici::Value::Text(_) => text.into(),
                _ => Json::Null,
            },
        };
        out.insert(name.to_owned(), value);
    }
    Json::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(passes: bool) -> Section {
        let long = "its destination port is 443, and remote_ts has 80, which is the port of another \
                    service, of which nobody knows why it was written there";
        let station = |state: &str, text: &str| Section::new().with("state", state).with("text", text);
        let mut out = Section::new().with("passes", passes).with(
            "stations",
            Section::new()
                .with("link", station("passes", "lan0 is up").with("interface", "lan0"))
                .with("rules", station("stops", long).with("packets", 3u64))
                .with("rules-2", station("unknown", "none")),
        );
        if !passes {
            out.put(
                "obstacle",
                Section::new()
                    .with("station", "rules")
                    .with("name", "packet-dropped-by-rule")
                    .with("why", long)
                    .with("remedy", "let it pass")
                    .with("details", ["a rule"]),
            );
        }
        Section::new()
            .with("packet", "10.1.0.9 > 10.2.5.1 tcp 443")
            .with("passes", passes)
            .with("live", false)
            .with("hints", Vec::<String>::new())
            .with("outbound", out)
    }

    #[test]
    fn the_text_fits_eighty_columns_and_marks_the_obstacle() {
        let text = text(&answer(false));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            text.starts_with("10.1.0.9 > 10.2.5.1 tcp 443: does not pass\noutbound\n  link     lan0 is up\n")
        );
        assert!(text.contains("\n! rules    its destination"), "{text}");
        assert!(text.contains("\n? rules-2  none"), "{text}");
        assert!(
            text.contains("(packet-dropped-by-rule)") && text.contains("\ndo    let it pass\n"),
            "{text}"
        );
        let text = super::text(&answer(true));
        assert!(text.contains(": passes\n") && text.contains("\nnote  rules of other nft"), "{text}");
    }

    #[test]
    fn the_document_has_stations_in_order_and_the_name_of_the_first_obstacle() {
        let document = document(&answer(false));
        assert_eq!(document["obstacle"], "packet-dropped-by-rule");
        let out = &document["directions"]["outbound"];
        assert_eq!(
            (&out["stations"][0]["station"], &out["stations"][2]["station"]),
            (&"link".into(), &"rules".into())
        );
        assert_eq!(
            (&out["stations"][1]["packets"], &out["obstacle"]["details"][0]),
            (&3.into(), &"a rule".into())
        );
        assert_eq!(super::document(&answer(true))["obstacle"], Json::Null);
    }
}
