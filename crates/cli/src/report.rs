//! `report`: one archive for whoever is asked for help. Everything is gathered first, then searched
//! for every secret that this program or the daemon knows, and only then written.
//!
//! ```text
//! doctor, configuration, daemon's answers, machine ─▶ entries
//! entries ─▶ known secrets (files) ─▶ the daemon's secrets (`ironswan-scrub`)
//!         ─▶ searched again ─▶ FILE
//! ```
//! A secret becomes a hash under a key that is made for this report and kept nowhere.

use std::path::PathBuf;
use std::time::Duration;

use ironswan_config::diag::Diagnostics;
use ironswan_config::scrub::{Found, Scrubber, replace};
use ironswan_config::{Daemon as Settings, load_dir};
use ironswan_gateway::report::{self as parts, Entry, Known};
use ironswan_wire::printable::printable;
use ironswan_wire::vici::{Section, Value};
use serde_json::{Value as Json, json};

use crate::args::{Doctor, Report};
use crate::doctor;
use crate::failure::Failure;
use crate::json;
use crate::text::{amount, table};
use crate::vici::{Client, refusal};
use crate::view::objects;

/// Bytes of one text in a question to the daemon, and bytes and number of all texts in one.
const WINDOW: usize = 60_000;
const AT_ONCE: usize = 300_000;
const MOST_AT_ONCE: usize = 500;
/// Bytes that two texts of one question have in common: a secret that begins in the one is whole in
/// the other. Longer ones are found by their parts.
const OVERLAP: usize = 4_096;
/// Limits the bytes of all entries together.
const MAX_TOTAL: usize = 128 << 20;
/// Limits how often entries are searched: what stands where a secret was might make another one.
const ROUNDS: usize = 4;

/// What is gathered, and what became of it.
struct Gathered {
    entries: Vec<Entry>,
    scrubber: Scrubber,
    /// Files that were left out, and why.
    left_out: Vec<String>,
    /// Places where a secret stood.
    hidden: usize,
}

/// Gathers, searches, writes, and lists what was written.
pub(crate) fn report(a: &Report) -> Result<(), Failure> {
    let mut all = gather(a)?;
    let mut client = Client::connect(&a.daemon.vici).ok();
    if let Some(client) = &mut client {
        all.daemon(client);
    }
    all.total()?;
    all.scrub(client.as_mut())?;
    let now = doctor::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let folder = format!("ironswan-report-{since}");
    let file = a.output.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let index = all.listing(client.is_some());
    all.entries.insert(0, Entry::new("INDEX.txt", index.clone()));
    let bytes = parts::pack(&folder, &all.entries, now).map_err(Failure::no)?;
    parts::write(&file, &bytes).map_err(Failure::no)?;
    if a.daemon.json {
        let rows: Vec<Json> = all
            .entries
            .iter()
            .map(|e| json!({ "name": printable(&e.name), "bytes": e.text.len() }))
            .collect();
        json::print(
            "report",
            json!({ "file": file.display().to_string(), "bytes": bytes.len(), "entries": rows, "hidden": all.hidden,
                    "secrets": all.scrubber.secrets(), "left_out": all.left_out.iter().map(|l| printable(l)).collect::<Vec<_>>() }),
        );
    } else {
        say_text!("{index}");
        say!("{} has {} bytes, and only you may read it.", file.display(), amount(bytes.len() as u64));
        say!("Look before you send it: tar -xzf {}", file.display());
    }
    Ok(())
}

/// Everything that needs no daemon. `doctor` asks one, where one runs.
fn gather(a: &Report) -> Result<Gathered, Failure> {
    let config = load_dir(doctor::monotonic, &a.config, &mut Diagnostics::default());
    let settings = config.map(|c| c.daemon).unwrap_or_default();
    let key = parts::random_key();
    let known = parts::known(&a.config, &settings, &key).map_err(|why| {
        Failure::no(format!("{why}; nothing is reported, since nobody could say what in it is secret"))
    })?;
    let Known { scrubber, mut entries, left_out } = known;
    let checks = doctor::checks(&Doctor { config: a.config.clone(), daemon: a.daemon.clone() })?;
    entries.push(Entry::new("doctor.txt", doctor::text(&checks, false)));
    entries.push(document("doctor.json", "doctor", doctor::document(&checks)));
    entries.push(document("check.json", "check", findings(a)));
    entries.push(Entry::new("version.txt", version(&settings)));
    entries.extend(parts::machine());
    Ok(Gathered { entries, scrubber, left_out, hidden: 0 })
}

/// Findings of `ironswan check`.
fn findings(a: &Report) -> Json {
    let mut diags = Diagnostics::default();
    if let Some(config) = load_dir(doctor::monotonic, &a.config, &mut diags) {
        ironswan_config::check::check(&config, &mut diags);
        ironswan_config::credentials::check(&config, doctor::now(), &mut diags);
    }
    let findings: Vec<Json> = diags
        .iter()
        .map(|d| json!({ "severity": d.severity, "finding": d.to_string(), "diagnosis": d.diagnosis.entry().name() }))
        .collect();
    json!({ "findings": findings, "more": diags.lost() })
}

fn version(settings: &Settings) -> String {
    format!(
        "ironswan {}\narchitecture {}\ndevice {}\nports {} {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        settings.device,
        settings.port_ike,
        settings.port_natt
    )
}

fn document(name: &str, what: &str, mut body: Json) -> Entry {
    body["schema"] = format!("ironswan.{what}/1").into();
    Entry::new(name, format!("{body:#}\n"))
}

impl Gathered {
    /// Adds what the daemon answers. A question that it does not know is left out, and said.
    fn daemon(&mut self, client: &mut Client) {
        let nothing = Section::new;
        let plain = [("version", "version"), ("stats", "stats"), ("engines", "ironswan-engines")];
        for (name, command) in plain {
            self.answer(name, client.request(command, nothing()).map(|s| json::object(&s)));
        }
        let counters = client.request("ironswan-counters", nothing());
        self.answer("counters", counters.map(|s| json::numbers(&s)));
        self.answer("conns", client.conns(None).map(|list| json!({ "connections": objects(&list) })));
        self.answer("sas", client.sas(None).map(|list| json!({ "sas": objects(&list) })));
        let pols = client.policies(None);
        self.answer(
            "pols",
            pols.map(|(list, all)| json!({ "policies": objects(&list), "all": json::object(&all) })),
        );
        let tunnels = client.tunnels(None);
        self.answer("status", tunnels.map(|list| json!({ "tunnels": objects(&list) })));
        let troubles = client.troubles(None);
        self.answer(
            "troubles",
            troubles.map(|(list, all)| json!({ "down": objects(&list), "all": json::object(&all) })),
        );
        let mut lines = Vec::new();
        let take = |line: Section| lines.push(json::object(&line));
        let log = client.stream("ironswan-log", "log-line", nothing(), Some(Duration::ZERO), take);
        self.answer("log", log.map(|_| json!({ "lines": lines })));
    }

    fn answer(&mut self, name: &str, answer: Result<Json, Failure>) {
        match answer {
            Ok(body) => self.entries.push(document(&format!("daemon/{name}.json"), name, body)),
            Err(why) => self.left_out.push(format!("daemon/{name}.json: {}", why.lines.join("; "))),
        }
    }

    /// Leaves the largest entries out until the rest may be searched in reasonable time.
    fn total(&mut self) -> Result<(), Failure> {
        let mut total: usize = self.entries.iter().map(|e| e.text.len()).sum();
        while total > MAX_TOTAL {
            let largest = self.entries.iter().enumerate().max_by_key(|(_, e)| e.text.len());
            let Some(at) = largest.map(|(at, _)| at) else { break };
            let entry = self.entries.remove(at);
            total -= entry.text.len();
            self.left_out.push(format!("{}: it has {} bytes", entry.name, entry.text.len()));
        }
        Ok(())
    }

    /// Puts hashes in the place of secrets, in the entries, their names, and what is said of those
    /// that were left out.
    fn scrub(&mut self, client: Option<&mut Client>) -> Result<(), Failure> {
        self.entries.iter_mut().for_each(|e| private_blocks(&mut e.text));
        let mut texts: Vec<Vec<u8>> = self.entries.iter_mut().map(|e| std::mem::take(&mut e.text)).collect();
        texts.extend(self.entries.iter_mut().map(|e| std::mem::take(&mut e.name).into_bytes()));
        texts.extend(self.left_out.iter_mut().map(|line| std::mem::take(line).into_bytes()));
        self.hidden += clean(&self.scrubber, client, &mut texts)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut rest = texts.into_iter();
        self.entries.iter_mut().zip(&mut rest).for_each(|(e, bytes)| e.text = bytes);
        self.entries.iter_mut().zip(&mut rest).for_each(|(e, bytes)| e.name = text(bytes));
        self.left_out.iter_mut().zip(rest).for_each(|(line, bytes)| *line = text(bytes));
        Ok(())
    }

    /// What is in the archive, for whoever is to send it.
    fn listing(&self, daemon: bool) -> String {
        let rows: Vec<Vec<String>> = self
            .entries
            .iter()
            .map(|e| vec![amount(e.text.len() as u64), printable(&e.name).into_owned()])
            .collect();
        let mut out = table(&["BYTES", "FILE"], &rows);
        for line in &self.left_out {
            out += &crate::text::wrapped("left out  ", &printable(line));
        }
        let known = match self.scrubber.secrets() {
            1 => "1 secret of files was".to_owned(),
            n => format!("{n} secrets of files were"),
        };
        let daemon =
            if daemon { "The daemon has looked for those that it knows." } else { "No daemon was asked." };
        let places = match self.hidden {
            0 => "None stood in a wrong place.".to_owned(),
            1 => "1 stood in a wrong place.".to_owned(),
            n => format!("{n} stood in wrong places."),
        };
        out += &crate::text::wrapped(
            "",
            &format!(
                "Files of private keys are not in it. {known} looked for in all forms. {daemon} {places} In place of each \
                 secret is [#HASH], equal for equal secrets, under a key that is gone now."
            ),
        );
        out
    }
}

/// Takes private keys in PEM out of a text, whoever's they are.
fn private_blocks(text: &mut Vec<u8>) {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut at = 0;
    while let Some(start) = position(&text[at..], BEGIN).map(|n| at + n) {
        let head = &text[start..text.len().min(start + 80)];
        let Some(private) = position(head, b"PRIVATE KEY-----") else {
            at = start + BEGIN.len();
            continue;
        };
        let body = start + private;
        let end = position(&text[body..], b"-----END ").map_or(text.len(), |n| body + n);
        let note = b"(a private key was left out)";
        text.splice(start..end, note.iter().copied());
        at = start + note.len();
    }
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// Puts hashes in the place of secrets until none is found, and returns how many places there were.
/// A text in which that has no end is left out.
fn clean(
    scrubber: &Scrubber,
    mut client: Option<&mut Client>,
    texts: &mut [Vec<u8>],
) -> Result<usize, Failure> {
    let mut hidden = 0;
    let mut dirty: Vec<usize> = (0..texts.len()).collect();
    for _ in 0..ROUNDS {
        let asked: Vec<&[u8]> = dirty.iter().map(|n| texts[*n].as_slice()).collect();
        let mut theirs = match client.as_deref_mut() {
            Some(client) => ask(client, scrubber, &asked)?,
            None => asked.iter().map(|_| Vec::new()).collect(),
        };
        let mut still = Vec::new();
        for (n, theirs) in dirty.iter().zip(&mut theirs) {
            let text = &mut texts[*n];
            let all = joined(scrubber.find(text), std::mem::take(theirs));
            let all = outside_hashes(text, all);
            if !all.is_empty() {
                hidden += all.len();
                replace(text, &all);
                still.push(*n);
            }
        }
        dirty = still;
        if dirty.is_empty() {
            break;
        }
    }
    dirty.into_iter().for_each(|n| texts[n] = b"(left out)".to_vec());
    Ok(hidden)
}

/// Part of a text: number of the text, place in it, bytes.
type Window<'a> = (usize, usize, &'a [u8]);

/// Asks the daemon where its own secrets stand in each text.
fn ask(client: &mut Client, scrubber: &Scrubber, texts: &[&[u8]]) -> Result<Vec<Vec<Found>>, Failure> {
    let mut out: Vec<Vec<Found>> = texts.iter().map(|_| Vec::new()).collect();
    let windows = texts.iter().enumerate().flat_map(|(n, text)| {
        let starts = (0..text.len()).step_by(WINDOW - OVERLAP);
        starts.map(move |at| (n, at, &text[at..text.len().min(at + WINDOW)]))
    });
    let mut some: Vec<Window<'_>> = Vec::new();
    let mut bytes = 0;
    for window in windows {
        if bytes + window.2.len() > AT_ONCE || some.len() >= MOST_AT_ONCE {
            ask_some(client, scrubber, &some, &mut out)?;
            (some, bytes) = (Vec::new(), 0);
        }
        bytes += window.2.len();
        some.push(window);
    }
    ask_some(client, scrubber, &some, &mut out)?;
    Ok(out)
}

/// One question about some windows.
fn ask_some(
    client: &mut Client,
    scrubber: &Scrubber,
    windows: &[Window<'_>],
    out: &mut [Vec<Found>],
) -> Result<(), Failure> {
    let texts: Vec<Vec<u8>> = windows.iter().map(|(_, _, bytes)| bytes.to_vec()).collect();
    let message = Section::new().with("key", scrubber.key()).with("texts", Value::List(texts));
    // An older daemon does not know the question, and then nobody knows its secrets.
    let answer = client.request("ironswan-scrub", message)?;
    if let Some(why) = refusal(&answer) {
        return Err(Failure::no(format!(
            "the daemon did not look for its secrets: {why}; nothing was written"
        )));
    }
    for line in crate::view::list(&answer, "found") {
        let (text, found) = placed(&line, windows).ok_or_else(|| {
            Failure::no("the daemon's answer about its secrets is not understood; nothing was written")
        })?;
        out[text].push(found);
    }
    Ok(())
}

/// One place of an answer: window, first byte, end, hash. Gives the number of the text, and the
/// place in it.
fn placed(line: &str, windows: &[Window<'_>]) -> Option<(usize, Found)> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<usize>().ok();
    let (n, start, end) = (number()?, number()?, number()?);
    let (text, at, bytes) = windows.get(n)?;
    (start < end && end <= bytes.len()).then_some(())?;
    Some((*text, Found { range: at + start..at + end, label: words.next()?.to_owned() }))
}

/// Places of both, in order, those that overlap as one.
fn joined(ours: Vec<Found>, theirs: Vec<Found>) -> Vec<Found> {
    let mut all: Vec<Found> = ours.into_iter().chain(theirs).collect();
    all.sort_by_key(|f| (f.range.start, std::cmp::Reverse(f.range.end)));
    let mut out: Vec<Found> = Vec::new();
    for f in all {
        match out.last_mut() {
            Some(last) if f.range.start < last.range.end => last.range.end = last.range.end.max(f.range.end),
            _ => out.push(f),
        }
    }
    out
}

/// Length of `[#0123456789abcdef]`.
const LABEL: usize = 19;

/// Leaves places out that are within a hash: a secret of one digit is no news there.
fn outside_hashes(text: &[u8], found: Vec<Found>) -> Vec<Found> {
    let is_label = |at: usize| {
        text.get(at..at + LABEL).is_some_and(|t| {
            t.starts_with(b"[#") && t.ends_with(b"]") && t[2..LABEL - 1].iter().all(u8::is_ascii_hexdigit)
        })
    };
    let inside = |f: &Found| {
        let from = f.range.end.saturating_sub(LABEL);
        (from..=f.range.start).any(is_label)
    };
    found.into_iter().filter(|f| !inside(f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_in_any_text_is_taken_out() {
        let mut text = b"a\n-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\nb\n".to_vec();
        private_blocks(&mut text);
        assert_eq!(text, b"a\n(a private key was left out)-----END EC PRIVATE KEY-----\nb\n");
        let mut cut = b"# -----BEGIN PRIVATE KEY-----\\nAAAA and no end".to_vec();
        private_blocks(&mut cut);
        assert_eq!(cut, b"# (a private key was left out)");
        let mut public = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        let same = public.clone();
        private_blocks(&mut public);
        assert_eq!(public, same);
    }

    #[test]
    fn places_that_the_daemon_names_are_taken_only_where_they_are_in_the_text() {
        let windows = [(0, 0, &b"0123456789"[..]), (7, 8, &b"89abcdef"[..])];
        let (text, found) = placed("1 2 5 [#0]", &windows).expect("a place");
        assert_eq!((text, found.range, found.label.as_str()), (7, 10..13, "[#0]"));
        for bad in ["", "1 2", "2 0 1 x", "0 5 5 x", "0 5 11 x", "0 6 5 x", "x 1 2 y", "0 -1 2 x"] {
            assert!(placed(bad, &windows).is_none(), "{bad}");
        }
        let place = |range| Found { range, label: "x".into() };
        let all = joined(vec![place(0..3), place(10..12)], vec![place(2..5), place(12..13)]);
        let ranges: Vec<_> = all.into_iter().map(|f| f.range).collect();
        assert_eq!(ranges, [0..5, 10..12, 12..13]);
    }

    #[test]
    fn hashes_are_not_searched_for_secrets() {
        let text = b"x [#0123456789abcdef] abcdef";
        let place = |range| Found { range, label: "x".into() };
        let left = outside_hashes(text, vec![place(2..21), place(14..20), place(22..28)]);
        assert_eq!(left, [place(22..28)]);
    }
}
