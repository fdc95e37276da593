//! What the replay check has dropped, in `list counters`.

use ironswan_wire::vici::{Section, Value};

use crate::text::table;

/// How far left of the window late packets were: a line for each bucket from the first that is not
/// empty to the last.
pub(crate) fn late(all: &Section) -> String {
    let Some(late) = all.section("replays").and_then(|s| s.section("late")) else { return String::new() };
    let counted = numbers(late);
    let filled = |(_, n): &(String, u64)| *n != 0;
    let (Some(first), Some(last)) = (counted.iter().position(filled), counted.iter().rposition(filled))
    else {
        return String::new();
    };
    let rows: Vec<Vec<String>> = counted[first..=last]
        .iter()
        .map(|(bound, n)| {
            let place = if bound == "more" { "  farther".to_owned() } else { format!("  up to {bound}") };
            vec![place, n.to_string()]
        })
        .collect();
    table(&["late, packets left of the window", ""], &rows)
}

/// A line for each child that has lost late packets of its peer, with the window that would have
/// kept them.
pub(crate) fn windows(all: &Section) -> String {
    let mut out = String::new();
    for (conn, children) in all.section("replay-windows").into_iter().flat_map(Section::sections) {
        for (child, s) in children.sections() {
            let name = format!("{}/{}", conn.escape_debug(), child.escape_debug());
            if let Some([late, then]) = advice(s) {
                out += &format!("{name}: {late}\n  {then}\n");
            }
        }
    }
    out
}

/// That a child has lost late packets of its peer, and what window would have kept them; `None`
/// when it has lost none.
pub(crate) fn advice(s: &Section) -> Option<[String; 2]> {
    let number = |key: &str| s.get_str(key).and_then(|n| n.parse::<u64>().ok());
    let (window, late) = (number("window")?, number("late").filter(|n| *n != 0)?);
    let packets = if late == 1 { "1 packet".to_owned() } else { format!("{late} packets") };
    let (of, then) = match (number("advised"), number("kept")) {
        _ if window == 0 => ("the window that it had".to_owned(), "the replay check is off now".to_owned()),
        (Some(advised), Some(kept)) if advised > window => {
            let part = kept.saturating_mul(100) / late;
            (
                format!("its window of {window}"),
                format!("replay_window = {advised} would have kept {part} % of them"),
            )
        }
        (Some(_), _) => (
            "the window that it had".to_owned(),
            format!("the window of {window} that it has now keeps them"),
        ),
        _ => (
            format!("its window of {window}"),
            "no window would have kept half of them: they were held up, or sent again".to_owned(),
        ),
    };
    Some([format!("{packets} of the peer came too late for {of};"), then])
}

fn numbers(s: &Section) -> Vec<(String, u64)> {
    let number = |value: &Value| match value {
        Value::Text(n) => std::str::from_utf8(n).ok()?.parse().ok(),
        _ => None,
    };
    s.iter().filter_map(|(name, value)| Some((name.to_owned(), number(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(late: u64, advised: Option<(u64, u64)>) -> Section {
        let s = Section::new().with("window", 32u64).with("late", late);
        match advised {
            Some((window, kept)) => s.with("advised", window).with("kept", kept),
            None => s,
        }
    }

    #[test]
    fn the_window_that_would_have_kept_late_packets_is_named() {
        let net = Section::new()
            .with("net", child(120, Some((256, 118))))
            .with("old", child(1, None))
            .with("well", child(0, None))
            .with("mended", child(2, Some((32, 2))))
            .with("off", child(3, None).with("window", 0u64));
        let all = Section::new().with("replay-windows", Section::new().with("a\u{1b}[2J", net));
        assert_eq!(
            windows(&all),
            "a\\u{1b}[2J/net: 120 packets of the peer came too late for its window of 32;\n  \
             replay_window = 256 would have kept 98 % of them\n\
             a\\u{1b}[2J/old: 1 packet of the peer came too late for its window of 32;\n  \
             no window would have kept half of them: they were held up, or sent again\n\
             a\\u{1b}[2J/mended: 2 packets of the peer came too late for the window that it had;\n  \
             the window of 32 that it has now keeps them\n\
             a\\u{1b}[2J/off: 3 packets of the peer came too late for the window that it had;\n  \
             the replay check is off now\n"
        );
        assert_eq!(windows(&Section::new()), "");
    }

    #[test]
    fn the_histogram_begins_and_ends_with_what_was_counted() {
        let late =
            Section::new().with("1", 0u64).with("2", 4u64).with("4", 0u64).with("8", 1u64).with("more", 0u64);
        let all = Section::new().with("replays", Section::new().with("late", late));
        let got = late_lines(&all);
        assert_eq!(got[1..], ["up to 2 4", "up to 4 0", "up to 8 1"]);
        assert_eq!(super::late(&Section::new()), "");
    }

    fn late_lines(all: &Section) -> Vec<String> {
        super::late(all).lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}
