//! A page of `top`, for a person, and the document `ironswan.top/1`.
//!
//! ```text
//! ironswan 0.1.0, up 3 hours; 1 down, 2 up
//! all   in .. out .. dropped ..
//! cpu   control 1 %  data-0 34 %
//! TUNNEL    as many lines as the rest leaves
//! DROPPED   LATEST   DOWN: up to a sixth of the height each
//! keys      on a terminal
//! ```

use ironswan_wire::printable::printable;
use serde_json::{Value as Json, json};

use super::sample::{Rates, Sample, Told};
use crate::text::{COLUMNS, amount, cut, duration, wrapped};

/// Characters of a tunnel's name, and of a reason's.
const NAME: usize = 28;
const REASON: usize = 34;
/// Least lines of one of the lists below the tunnels.
const LEAST: usize = 3;
/// Threads of a line.
const THREADS: usize = 5;
/// The keys, on a terminal.
const KEYS: &str = "q ends  b by rate  n by name  up/down scroll  p pauses";

/// Order of the tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Order {
    /// The busiest first.
    #[default]
    Rate,
    Name,
}

/// What a person wants to see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct View {
    /// Lines and columns of the page.
    pub(super) height: usize,
    pub(super) width: usize,
    /// The tunnel in the first line of the list.
    pub(super) first: usize,
    pub(super) order: Order,
    /// No new readings.
    pub(super) paused: bool,
    /// There is one reading yet, and so no rates.
    pub(super) measures: bool,
    /// The daemon does not answer, in words.
    pub(super) silent: Option<String>,
    /// The last line names the keys.
    pub(super) footer: bool,
}

/// How a line looks on a terminal with colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Plain,
    /// The head of a list.
    Head,
    /// Something is down or lost.
    Bad,
}

pub(super) type Line = (Look, String);

/// At most so many lines of so many columns.
pub(super) fn page(new: &Sample, rates: &Rates, view: &View) -> Vec<Line> {
    let silent =
        view.silent.iter().flat_map(|why| wrapped("", &printable(why)).lines().map(bad).collect::<Vec<_>>());
    let mut lines: Vec<Line> = silent.take(LEAST).collect();
    lines.extend([(Look::Plain, head(new)), (Look::Plain, sums(rates))]);
    lines.extend(threads(rates));
    let height = view.height.saturating_sub(usize::from(view.footer));
    let left = height.saturating_sub(lines.len() + 1);
    let below = below(new, rates, view, left);
    // Tunnels get the lines that the rest leaves, and at least two.
    lines.extend(tunnels(rates, view, left.saturating_sub(below.len()).max(2)));
    lines.extend(below);
    lines.truncate(height);
    if view.footer {
        let state = match view {
            View { paused: true, .. } => "  (paused)",
            View { measures: true, .. } => "  (measuring)",
            _ => "",
        };
        lines.resize(height, (Look::Plain, String::new()));
        lines.push((Look::Head, format!("{KEYS}{state}")));
    }
    lines.into_iter().map(|(look, line)| (look, cut(&printable(&line), view.width))).collect()
}

/// The lists below the tunnels: with whole sentences if every tunnel has a line besides, else with
/// less and less. `left`: lines for them and the tunnels.
fn below(new: &Sample, rates: &Rates, view: &View, left: usize) -> Vec<Line> {
    let room = left.saturating_sub(rates.tunnels.len().max(1));
    let least = (view.height / 6).max(LEAST);
    let lists = |most: usize, whole: bool| {
        let mut lines = dropped(rates, most);
        lines.extend(latest(&new.latest, most, whole));
        lines.extend(down(new, most, whole));
        lines
    };
    let sizes = (least..=room).rev().step_by(2);
    let whole = sizes.clone().filter(|_| view.width >= COLUMNS).map(|most| (most, true));
    let tries = whole.chain(sizes.map(|most| (most, false)));
    tries
        .map(|(most, whole)| lists(most, whole))
        .find(|lines| lines.len() <= room)
        .unwrap_or_else(|| lists(least, false))
}

/// Lines as they are written to a terminal or a pipe.
pub(super) fn text(lines: &[Line], colour: bool) -> String {
    let paint = |look: Look| match look {
        Look::Head => "1",
        Look::Bad => "31",
        Look::Plain => "",
    };
    let line = |(look, line): &Line| match (colour, paint(*look)) {
        (false, _) | (_, "") => format!("{line}\n"),
        (true, number) => format!("\x1b[{number}m{line}\x1b[0m\n"),
    };
    lines.iter().map(line).collect()
}

fn bad(line: &str) -> Line {
    (Look::Bad, line.to_owned())
}

fn head(new: &Sample) -> String {
    let states: Vec<String> = new.states.iter().map(|(state, n)| format!("{n} {state}")).collect();
    let states = if states.is_empty() { "no tunnels".to_owned() } else { states.join(", ") };
    format!("ironswan {}, up {}; {states}", new.version, new.up)
}

fn sums(rates: &Rates) -> String {
    let [bits_in, bits_out, packets_in, packets_out] = rates.sum;
    let all = packets_in + packets_out + rates.lost;
    let part = if all > 0.0 { 100.0 * rates.lost / all } else { 0.0 };
    format!(
        "all   in {}bit/s {}/s  out {}bit/s {}/s  dropped {}/s ({part:.1} %)",
        whole(bits_in),
        whole(packets_in),
        whole(bits_out),
        whole(packets_out),
        whole(rates.lost)
    )
}

/// Work of the threads, in percent of a processor: two lines, and the rest of many threads as a
/// sum.
fn threads(rates: &Rates) -> Vec<Line> {
    let percent = |part: f64| (100.0 * part).round();
    let all: Vec<String> =
        rates.threads.iter().map(|(name, part)| format!("{} {}%", short(name), percent(*part))).collect();
    let mut lines: Vec<Line> =
        all.chunks(THREADS).map(|some| (Look::Plain, format!("cpu   {}", some.join("  ")))).collect();
    if lines.len() > 2 {
        let rest = &rates.threads[2 * THREADS..];
        let sum: f64 = rest.iter().map(|(_, part)| part).sum();
        let most = rest.iter().map(|(_, part)| *part).fold(0.0, f64::max);
        lines.truncate(2);
        let more =
            format!("cpu   {} more {}%, the busiest of them {}%", rest.len(), percent(sum), percent(most));
        lines.push((Look::Plain, more));
    }
    lines
}

fn tunnels(rates: &Rates, view: &View, room: usize) -> Vec<Line> {
    let row = |cells: [&str; 5]| {
        let [name, a, b, c, d] = cells;
        format!("{name:<NAME$} {a:>12} {b:>11} {c:>12} {d:>11}")
    };
    let title = row(["TUNNEL", "IN BIT/S", "PACKETS/S", "OUT BIT/S", "PACKETS/S"]);
    let mut lines = vec![(Look::Head, title)];
    if rates.tunnels.is_empty() {
        lines.push((Look::Plain, "no CHILD_SA".to_owned()));
    }
    let mut all: Vec<&(String, [f64; 4])> = rates.tunnels.iter().collect();
    if view.order == Order::Name {
        all.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let left = all.len().saturating_sub(view.first);
    let shown = if left > room || view.first > 0 { room - 1 } else { room };
    for (name, rates) in all.into_iter().skip(view.first).take(shown) {
        let [bits_in, bits_out, packets_in, packets_out] = rates.map(whole);
        let name = cut(&printable(name), NAME);
        lines.push((Look::Plain, row([&name, &bits_in, &packets_in, &bits_out, &packets_out])));
    }
    let (above, below) = (view.first, left.saturating_sub(shown));
    if above > 0 || below > 0 {
        let above = if above > 0 { format!("{above} more above, ") } else { String::new() };
        lines.push((Look::Plain, format!("{above}{below} more below")));
    }
    lines
}

/// Reasons why packets were dropped.
fn dropped(rates: &Rates, most: usize) -> Vec<Line> {
    let head = format!("{:<REASON$} {:>12} {:>12}", "DROPPED", "PACKETS/S", "IN ALL");
    let row = |(name, rate, all): &(String, f64, u64)| {
        let look = if *rate > 0.0 { Look::Bad } else { Look::Plain };
        vec![(look, format!("{:<REASON$} {:>12} {:>12}", cut(name, REASON), whole(*rate), amount(*all)))]
    };
    list(head, &rates.drops, most, "reasons: ironswan list counters", row)
}

fn latest(told: &[Told], most: usize, whole: bool) -> Vec<Line> {
    let row = |t: &Told| {
        let times = if t.count > 1 { format!(" ({} times)", t.count) } else { String::new() };
        let text = format!("{}: {}{times}", t.about, t.why);
        sentence(Look::Plain, &format!("{:>6} ago  ", duration(t.ago)), &text, whole)
    };
    list("LATEST DIAGNOSES".to_owned(), told, most, "of late: ironswan explain NAME", row)
}

fn down(new: &Sample, most: usize, whole: bool) -> Vec<Line> {
    let row = |(name, why): &(String, String)| sentence(Look::Bad, "", &format!("{name}: {why}"), whole);
    list("DOWN".to_owned(), &new.down, most, "are down: ironswan status --down", row)
}

/// A text behind a word: in one line, or in as many as it needs.
fn sentence(look: Look, word: &str, text: &str, whole: bool) -> Vec<Line> {
    if !whole {
        return vec![(look, format!("{word}{text}"))];
    }
    if !word.is_empty() {
        return wrapped(word, &printable(text)).lines().map(|line| (look, line.to_owned())).collect();
    }
    // Lines after the first are indented.
    let lines = wrapped("  ", &printable(text));
    lines.trim_start().lines().map(|line| (look, line.to_owned())).collect()
}

/// A head and at most so many lines, the last of which tells of items without a line. Nothing when
/// there are no items.
fn list<T>(head: String, items: &[T], most: usize, what: &str, row: impl Fn(&T) -> Vec<Line>) -> Vec<Line> {
    if items.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![(Look::Head, head)];
    for (n, item) in items.iter().enumerate() {
        let row = row(item);
        // All but the last item leave a line for the number of the others.
        if lines.len() + row.len() + usize::from(n + 1 < items.len()) > 1 + most {
            lines.push((Look::Plain, format!("{} more {what}", items.len() - n)));
            break;
        }
        lines.extend(row);
    }
    lines
}

/// `data-0` of `ipsec-data-0`.
fn short(thread: &str) -> &str {
    thread.strip_prefix("ipsec-").unwrap_or(thread)
}

fn whole(x: f64) -> String {
    amount(x.round() as u64)
}

/// The document `ironswan.top/1`.
pub(super) fn document(new: &Sample, rates: &Rates) -> Json {
    let row =
        |r: &[f64; 4]| json!({ "bits_in": r[0], "bits_out": r[1], "packets_in": r[2], "packets_out": r[3] });
    let tunnels: Vec<Json> = rates
        .tunnels
        .iter()
        .map(|(name, r)| {
            let mut of = row(r);
            of["name"] = printable(name).into();
            of
        })
        .collect();
    let drops: Vec<Json> = rates
        .drops
        .iter()
        .map(|(name, rate, all)| json!({ "reason": name, "rate": rate, "packets": all }))
        .collect();
    let threads: Vec<Json> =
        rates.threads.iter().map(|(name, part)| json!({ "name": name, "use": part })).collect();
    let down: Vec<Json> = new
        .down
        .iter()
        .map(|(name, why)| json!({ "name": printable(name), "why": printable(why) }))
        .collect();
    let latest: Vec<Json> = new
        .latest
        .iter()
        .map(|t| {
            json!({ "about": printable(&t.about), "ago": t.ago, "count": t.count, "name": t.name, "why": printable(&t.why) })
        })
        .collect();
    json!({ "sum": row(&rates.sum), "lost": rates.lost, "tunnels": tunnels, "drops": drops, "threads": threads,
            "states": new.states, "down": down, "latest": latest })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::sample::Traffic;
    use super::super::sample::tests::pair;
    use super::*;

    fn view(height: usize) -> View {
        View { height, width: COLUMNS, ..View::default() }
    }

    fn shown(new: &Sample, rates: &Rates, view: &View) -> String {
        text(&page(new, rates, view), false)
    }

    #[test]
    fn a_page_fits_its_lines_and_columns_whatever_there_is() {
        let (old, mut new) = pair();
        for n in 0..300 {
            let name = format!("a-connection-with-a-very-long-name-{n}/child\x1b[2J");
            let traffic = Traffic { bytes: [n * 1_000_000_000_000, n], packets: [n, n], age: 0 };
            new.tunnels.insert(name.clone(), [("1/x".to_owned(), traffic)].into());
            new.drops.insert(format!("AReasonWithAVeryLongNameThatGoesOn{n}"), n);
            new.threads.insert(format!("ipsec-data-{n}"), n);
            let why = "a sentence that is much longer than a line of a terminal can be ".repeat(3);
            let told = Told { about: name.clone(), why: why.clone(), count: n, ago: n, ..Told::default() };
            new.latest.push(told);
            new.down.push((name, why));
        }
        let rates = Rates::between(&old, &new);
        for height in [3, 10, 24, 60] {
            for (footer, width) in [(false, 80), (true, 80), (true, 40)] {
                let page = shown(&new, &rates, &View { footer, width, first: 7, ..view(height) });
                assert!(page.lines().count() <= height, "{height}:\n{page}");
                assert!(page.lines().all(|l| l.chars().count() <= width) && !page.contains('\x1b'), "{page}");
            }
        }
        let page = shown(&new, &rates, &view(24));
        for words in [
            "ironswan 0.1.0, up 3 hours; 1 down, 2 up",
            "TUNNEL",
            "DROPPED",
            "LATEST DIAGNOSES\n   12s ago  branch: peer not responding (3 times)",
            "DOWN\nbranch/lan: peer not responding",
            "more below",
            "more reasons",
        ] {
            assert!(page.contains(words), "{words}:\n{page}");
        }
    }

    #[test]
    fn many_threads_take_three_lines_and_a_small_terminal_has_what_fits() {
        let (old, mut new) = pair();
        new.threads = (0..40u64).map(|n| (format!("ipsec-data-{n:02}"), n * 20_000_000)).collect();
        let mut before = old.clone();
        before.threads = new.threads.keys().map(|name| (name.clone(), 0)).collect();
        let rates = Rates::between(&before, &new);
        let page = shown(&new, &rates, &view(24));
        let cpu: Vec<&str> = page.lines().filter(|l| l.starts_with("cpu ")).collect();
        assert_eq!(cpu[0], "cpu   data-00 0%  data-01 1%  data-02 2%  data-03 3%  data-04 4%");
        assert_eq!((cpu.len(), cpu[2]), (3, "cpu   30 more 735%, the busiest of them 39%"));
        for height in 0..30 {
            assert!(
                shown(&new, &rates, &View { footer: true, ..view(height) }).lines().count() <= height.max(1)
            );
        }
    }

    #[test]
    fn sentences_are_whole_where_there_is_room_and_cut_where_there_is_none() {
        let (old, mut new) = pair();
        new.down[0].1 = "peer not responding: ".to_owned() + &"word ".repeat(20);
        let rates = Rates::between(&old, &new);
        let page = shown(&new, &rates, &view(24));
        assert!(page.contains("\nDOWN\nbranch/lan: peer not") && page.contains("\n  word word"), "{page}");
        let page = shown(&new, &rates, &view(12));
        assert!(page.lines().count() <= 12 && page.ends_with("...\n") && page.contains("net/a"), "{page}");
    }

    #[test]
    fn tunnels_are_sorted_and_scrolled() {
        let (mut old, mut new) = pair();
        for n in 0..100u64 {
            let of = |bytes: u64| {
                let traffic = Traffic { bytes: [bytes, bytes], packets: [1, 1], age: 500 };
                BTreeMap::from([("1/x".to_owned(), traffic)])
            };
            old.tunnels.insert(format!("t{n:02}/c"), of(0));
            new.tunnels.insert(format!("t{n:02}/c"), of(1_000_000 * n));
        }
        let rates = Rates::between(&old, &new);
        let at = |page: &str, words: &str| page.find(words).unwrap_or_else(|| panic!("{words}:\n{page}"));
        let page = shown(&new, &rates, &view(24));
        assert!(at(&page, "t99/c") < at(&page, "t98/c") && !page.contains("t00/c"), "{page}");
        let page = shown(&new, &rates, &View { order: Order::Name, ..view(24) });
        assert!(at(&page, "net/a") < at(&page, "t00/c") && !page.contains("t99/c"), "{page}");
        let page = shown(&new, &rates, &View { order: Order::Name, first: 95, ..view(24) });
        assert!(page.contains("t99/c") && page.contains("95 more above, 0 more below"), "{page}");
    }

    #[test]
    fn a_quiet_gateway_has_a_page_too() {
        let (old, new) = pair();
        let quiet = |s: &Sample| Sample {
            tunnels: BTreeMap::new(),
            drops: BTreeMap::new(),
            states: BTreeMap::new(),
            down: Vec::new(),
            latest: Vec::new(),
            ..s.clone()
        };
        let (old, new) = (quiet(&old), quiet(&new));
        let rates = Rates::between(&old, &new);
        let page = shown(&new, &rates, &view(24));
        assert!(
            page.contains("no tunnels") && page.contains("no CHILD_SA") && page.contains("(0.0 %)"),
            "{page}"
        );
        let doc = document(&new, &rates);
        assert_eq!((&doc["lost"], doc["tunnels"].as_array().map(Vec::len)), (&0.0.into(), Some(0)));
    }

    #[test]
    fn what_is_bad_is_red_and_only_in_colour() {
        let (old, new) = pair();
        let lines = page(&new, &Rates::between(&old, &new), &View { footer: true, ..view(24) });
        let painted = text(&lines, true);
        assert!(painted.contains("\x1b[31mbranch/lan: peer not responding\x1b[0m\n"), "{painted}");
        assert!(painted.contains("\x1b[1mDOWN\x1b[0m\n") && !text(&lines, false).contains('\x1b'));
        assert_eq!(lines.len(), 24);
        assert!(lines[23].1.starts_with("q ends"));
    }
}
