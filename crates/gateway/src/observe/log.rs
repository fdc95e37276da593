//! The log on standard error: one event, one line, `<time> <level> <conn> text`, or one JSON object
//! a line. The object of a failure has the failure's name and remedy as well.
//!
//! Whoever logs never waits: lines go through a bounded `queue`, and one thread writes them.
//! Events below the level are not even formatted. [`Repeated`] is for lines that something outside
//! can cause without end. The latest lines are kept in `ring`, whatever standard error takes.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `queue` | lines on their way to standard error |
//! | `raised` | levels that are raised for a connection or a peer |
//! | `repeated` | lines that outside events can repeat without end |
//! | `ring` | the latest lines, for `ironswan log` |

mod queue;
pub(crate) mod raised;
mod repeated;
pub(crate) mod ring;

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use ironswan_ike::event::Level;
use ironswan_keying::Diagnosis;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::diagnosis::no_thread;
use ironswan_config::LogFormat;
use ironswan_wire::printable::hides;
use queue::{Queue, StandardError};
use raised::Raised;
pub use repeated::{Repeated, RepeatedBy};
use ring::{Kept, Ring};

/// How long the end of the process waits for lines that have not been written yet.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Starts logging; only the first call of a process has an effect.
///
/// # Errors
/// There can be no thread that writes.
pub fn init(level: Level, format: LogFormat) -> Result<(), Diagnosis> {
    let json = format == LogFormat::Json;
    let (filter, handle) = reload::Layer::new(filter(level));
    let queue = open(json)?;
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(Lines(queue.clone()))
        .event_format(Line { json, ring: Some(&LATEST) });
    // A second subscriber is refused; the first one goes on.
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        let _ = LEVEL.set(handle);
        WRITTEN.store(level as u8, Ordering::Relaxed);
        JSON.store(json, Ordering::Relaxed);
        // The standard library's hook would wait for standard error.
        std::panic::set_hook(Box::new(|info| {
            tracing::error!("internal error, please report it: {info}");
            flush();
        }));
    }
    Ok(())
}

/// Waits until the log is written, at most a second. To be called before the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_LIMIT);
    }
}

/// Writes these lines to standard error as they are, behind what has been logged, and waits for
/// that at most a second: the last words of a process.
pub fn last_words(lines: &[String]) {
    match open(false) {
        Ok(queue) => {
            lines.iter().for_each(|line| queue.push(format!("{line}\n").as_bytes()));
            queue.flush(FLUSH_LIMIT);
        }
        // Without a thread they are written here.
        Err(_) => lines.iter().for_each(|line| eprintln!("{line}")),
    }
}

/// The queue of the process. Its form is that of the first call.
fn open(json: bool) -> Result<&'static Queue, Diagnosis> {
    if let Some(queue) = QUEUE.get() {
        return Ok(queue);
    }
    let queue = Queue::start(StandardError, if json { lost_json } else { lost_text })
        .map_err(no_thread("writes the log"))?;
    Ok(QUEUE.get_or_init(|| queue))
}

/// Standard error is one for the whole process, and so is the queue to it.
static QUEUE: OnceLock<Queue> = OnceLock::new();

fn lost_text(n: u64) -> Vec<u8> {
    lost(false, n)
}

fn lost_json(n: u64) -> Vec<u8> {
    lost(true, n)
}

/// The line about lines that were lost.
fn lost(json: bool, n: u64) -> Vec<u8> {
    let text = format!("{n} lines were lost here: standard error did not take them");
    let mut out = String::new();
    let fields = Fields { text, ..Fields::default() };
    // Writing to a string does not fail.
    let _ = compose(&mut Writer::new(&mut out), json, (&now(), "warn"), &fields);
    out.into_bytes()
}

/// Makes what one event becomes, which `fmt` writes in one piece, a line of the queue.
struct Lines(Queue);

struct OneLine<'a>(&'a Queue);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = OneLine<'a>;

    fn make_writer(&'a self) -> OneLine<'a> {
        OneLine(&self.0)
    }
}

impl io::Write for OneLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs up to this level from now on.
pub fn set_level(level: Level) {
    if let Some(handle) = LEVEL.get() {
        // A reload fails only when the subscriber is gone, and then nobody logs.
        let _ = handle.reload(filter(level));
        WRITTEN.store(level as u8, Ordering::Relaxed);
    }
}

/// The least important level that is written for every connection, as a number. The log is one for
/// the whole process.
static WRITTEN: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Lines are written as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Levels that commands have raised.
pub(crate) static RAISED: Raised = Raised::new();

/// The latest lines.
pub(crate) static LATEST: Ring = Ring::new();

/// The one subscriber of the process is a global of `tracing`'s, and so is the hold on its level.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    }
}

/// Logs a failure: sentence and remedy of the entry.
pub fn diagnosis(level: Level, conn: Option<&str>, entry: &(impl Clone + Into<Diagnosis>)) {
    let why = entry.clone().into();
    line(level, conn, &why.to_string(), Some(&why));
}

/// Logs a line, and in JSON name and remedy of the failure that it is about.
pub fn line(level: Level, conn: Option<&str>, text: &str, why: Option<&Diagnosis>) {
    line_of(level, conn, &|| None, text, why);
}

/// The same about an IKE_SA. `peer` finds the address of its peer; it is not called for a line that
/// nobody wants.
pub(crate) fn line_of(
    level: Level,
    conn: Option<&str>,
    peer: &dyn Fn() -> Option<IpAddr>,
    text: &str,
    why: Option<&Diagnosis>,
) {
    let written = level as u8 <= WRITTEN.load(Ordering::Relaxed);
    let raised = !written && RAISED.covers(level, conn, peer, text);
    let (diagnosis, remedy) = match why {
        Some(why) if written || raised => (why.entry().name(), why.remedy()),
        _ => ("", String::new()),
    };
    if raised {
        let fields = Fields {
            conn: conn.unwrap_or_default().to_owned(),
            peer: peer(),
            text: text.to_owned(),
            diagnosis: diagnosis.to_owned(),
            remedy,
            raised: true,
        };
        return write_raised(level, fields);
    }
    let peer = if written { peer().map(|peer| peer.to_string()) } else { None };
    let (conn, remedy, peer) = (conn.unwrap_or(""), remedy.as_str(), peer.as_deref().unwrap_or(""));
    match level {
        Level::Error => tracing::error!(conn, diagnosis, remedy, peer, "{text}"),
        Level::Warn => tracing::warn!(conn, diagnosis, remedy, peer, "{text}"),
        Level::Info => tracing::info!(conn, diagnosis, remedy, peer, "{text}"),
        Level::Debug => tracing::debug!(conn, diagnosis, remedy, peer, "{text}"),
    }
}

/// Writes a line that the level of the log would keep back.
fn write_raised(level: Level, fields: Fields) {
    let (time, word) = (now(), word(level));
    if let Some(queue) = QUEUE.get() {
        let mut out = String::new();
        let json = JSON.load(Ordering::Relaxed);
        // Writing to a string does not fail.
        let _ = compose(&mut Writer::new(&mut out), json, (&time, word), &fields);
        queue.push(out.as_bytes());
    }
    LATEST.push(fields.kept(time, word));
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

/// The level of this word.
pub(crate) fn level_of(text: &str) -> Option<Level> {
    [Level::Error, Level::Warn, Level::Info, Level::Debug].into_iter().find(|level| word(*level) == text)
}

/// The time of now, as lines have it.
fn now() -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

struct Line {
    json: bool,
    /// Where lines are kept.
    ring: Option<&'static Ring>,
}

/// Parts of a line. An empty one is not there.
#[derive(Default)]
struct Fields {
    conn: String,
    text: String,
    /// Name of the failure that the line is about.
    diagnosis: String,
    /// Remedy for it. The text ends with it as well.
    remedy: String,
    /// Address of the peer, for the ring alone.
    peer: Option<IpAddr>,
    /// Below the level of the log, and raised.
    raised: bool,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "conn" => self.conn.push_str(value),
            "message" => self.text.push_str(value),
            "diagnosis" => self.diagnosis.push_str(value),
            "remedy" => self.remedy.push_str(value),
            "peer" => self.peer = value.parse().ok(),
            name => self.other(name, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.text, "{value:?}");
        } else {
            self.other(field.name(), value);
        }
    }
}

impl Fields {
    /// As the ring keeps it.
    fn kept(self, time: String, level: &'static str) -> Kept {
        let Self { conn, text, diagnosis, remedy, peer, raised } = self;
        Kept { time, level, raised, conn, peer, diagnosis, remedy, text: one_line(&text) }
    }

    fn other(&mut self, name: &str, value: &dyn std::fmt::Debug) {
        let _ = write!(self.text, " {name}={value:?}");
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut w: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            _ => "debug",
        };
        let time = now();
        compose(&mut w, self.json, (&time, level), &fields)?;
        if let Some(ring) = self.ring {
            ring.push(fields.kept(time, level));
        }
        Ok(())
    }
}

/// Whatever got into the text, it stays one line.
fn one_line(text: &str) -> String {
    text.replace(hides, " ")
}

/// Writes one line.
fn compose(w: &mut Writer<'_>, json: bool, (time, level): (&str, &str), fields: &Fields) -> std::fmt::Result {
    let text = one_line(&fields.text);
    if json {
        let mut object = serde_json::Map::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                object.insert(key.into(), value.into());
            }
        };
        add("time", time);
        add("level", level);
        add("conn", &fields.conn);
        add("text", &text);
        add("diagnosis", &fields.diagnosis);
        add("remedy", &fields.remedy);
        if fields.raised {
            object.insert("raised".into(), true.into());
        }
        return writeln!(w, "{}", serde_json::Value::Object(object));
    }
    let conn = if fields.conn.is_empty() { "-" } else { &fields.conn };
    let mark = if fields.raised { "[raised] " } else { "" };
    writeln!(w, "{time} {level} {conn} {mark}{text}")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use ironswan_keying::diagnosis::Configuration;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(json: bool) -> String {
        written_by(json, || {
            line(Level::Error, Some("net"), "bad \"peer\"\nforged line", None);
            line(Level::Debug, None, "not shown", None);
            tracing::info!(count = 3, "plain");
        })
    }

    /// The lines that are written while this runs.
    fn written_by(json: bool, log: impl FnOnce()) -> String {
        let page = Page::default();
        let to = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || to.clone())
            .event_format(Line { json, ring: None })
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn one_event_is_one_line_whatever_is_in_it() {
        let text = written(false);
        let lines: Vec<&str> = text.lines().map(|l| l.split_once(' ').unwrap().1).collect();
        assert_eq!(lines, ["error net bad \"peer\" forged line", "info - plain count=3"]);
        let json: Vec<serde_json::Value> =
            written(true).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(json.len(), 2);
        assert_eq!((&json[0]["level"], &json[0]["conn"]), (&"error".into(), &"net".into()));
        assert_eq!(json[0]["text"], "bad \"peer\" forged line");
        assert!(json[1].get("conn").is_none() && json[1]["time"].is_string());
        assert!(json.iter().all(|line| line.get("diagnosis").is_none() && line.get("remedy").is_none()));
    }

    #[test]
    fn a_line_about_a_failure_has_its_name_and_remedy_in_json() {
        let why = Diagnosis::from(Configuration::NoLiveness);
        let log = || {
            line(Level::Warn, Some("net"), &format!("connection net: {why}"), Some(&why));
            diagnosis(Level::Error, None, &Configuration::NoLiveness);
        };
        let text = written_by(false, log);
        assert!(text.lines().all(|line| line.ends_with(&why.to_string())), "{text}");
        assert!(!text.contains("no-liveness"), "{text}");
        let json = written_by(true, log);
        for line in json.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["diagnosis"], "no-liveness");
            assert_eq!(line["remedy"], "set dpd_delay = 30s in the connection");
            assert!(line["text"].as_str().unwrap().ends_with(&why.to_string()), "{line}");
        }
        assert_eq!(json.lines().count(), 2);
    }

    #[test]
    fn a_written_line_is_kept_by_its_parts_and_hides_nothing() {
        static RING: Ring = Ring::new();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(io::sink)
            .event_format(Line { json: false, ring: Some(&RING) })
            .finish();
        let why = Diagnosis::from(Configuration::NoLiveness);
        tracing::subscriber::with_default(subscriber, || {
            let peer = || "192.0.2.9".parse().ok();
            line_of(Level::Warn, Some("net"), &peer, "evil\u{202e}\u{1b}[2J", Some(&why));
            line(Level::Debug, Some("net"), "not written", None);
        });
        let look = RING.look(0);
        assert_eq!(look.lines.len(), 1);
        let kept = Kept { time: String::new(), ..(*look.lines[0]).clone() };
        let expected = Kept {
            level: "warn",
            conn: "net".into(),
            peer: "192.0.2.9".parse().ok(),
            diagnosis: "no-liveness".into(),
            remedy: why.remedy(),
            text: "evil  [2J".into(),
            ..Kept::default()
        };
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_raised_line_is_marked_and_kept() {
        let fields =
            || Fields { conn: "net".into(), text: "parsed".into(), raised: true, ..Fields::default() };
        let mut out = String::new();
        compose(&mut Writer::new(&mut out), false, ("now", "debug"), &fields()).unwrap();
        assert_eq!(out, "now debug net [raised] parsed\n");
        out.clear();
        compose(&mut Writer::new(&mut out), true, ("now", "debug"), &fields()).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["raised"], true);

        let conn = "a connection of this test alone";
        let raise = raised::Raise { conn: Some(conn.into()), peer: None, level: Level::Debug };
        let from = LATEST.end();
        line(Level::Debug, Some(conn), "before", None);
        let guard = RAISED.raise(raise).unwrap();
        line(Level::Debug, Some(conn), "meanwhile", None);
        drop(guard);
        line(Level::Debug, Some(conn), "behind", None);
        let look = LATEST.look(from);
        let texts: Vec<_> = look.lines.iter().filter(|l| l.conn == conn).map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["meanwhile"]);
    }

    #[test]
    fn the_line_about_lost_lines_looks_like_the_others() {
        let text = String::from_utf8(lost_text(12)).unwrap();
        assert!(text.contains(" warn - 12 lines were lost here: ") && text.ends_with('\n'), "{text}");
        let json: serde_json::Value = serde_json::from_slice(&lost_json(12)).unwrap();
        assert_eq!(json["level"], "warn");
    }
}
