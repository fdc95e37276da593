//! The log on stderr: one event, one line, `<time> <level> <conn> text`, or one JSON object a line.

use std::fmt::Write as _;
use std::sync::OnceLock;

use ironswan_ike::event::Level;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::LogFormat;

/// Starts logging; only the first call of a process has an effect.
pub fn init(level: Level, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .event_format(Line { json: format == LogFormat::Json });
    // A second subscriber is refused; the first one goes on.
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        let _ = LEVEL.set(handle);
    }
}

/// Logs up to this level from now on.
pub fn set_level(level: Level) {
    if let Some(handle) = LEVEL.get() {
        // It fails only for a subscriber that is gone, and then nobody logs.
        let _ = handle.reload(filter(level));
    }
}

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

/// A line of the endpoint's.
pub fn line(level: Level, conn: Option<&str>, text: &str) {
    let conn = conn.unwrap_or("");
    match level {
        Level::Error => tracing::error!(conn, "{text}"),
        Level::Warn => tracing::warn!(conn, "{text}"),
        Level::Info => tracing::info!(conn, "{text}"),
        Level::Debug => tracing::debug!(conn, "{text}"),
    }
}

struct Line {
    json: bool,
}

#[derive(Default)]
struct Fields {
    conn: String,
    text: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "conn" => self.conn.push_str(value),
            "message" => self.text.push_str(value),
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
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            tracing::Level::INFO => "info",
            _ => "debug",
        };
        // Whatever got into the text, it stays one line.
        let text = fields.text.replace(|c: char| c.is_control(), " ");
        if self.json {
            let mut object = serde_json::Map::new();
            object.insert("time".into(), time.into());
            object.insert("level".into(), level.into());
            if !fields.conn.is_empty() {
                object.insert("conn".into(), fields.conn.into());
            }
            object.insert("text".into(), text.into());
            return writeln!(w, "{}", serde_json::Value::Object(object));
        }
        let conn = if fields.conn.is_empty() { "-" } else { &fields.conn };
        writeln!(w, "{time} {level} {conn} {text}")
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

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
        let page = Page::default();
        let to = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || to.clone())
            .event_format(Line { json })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            line(Level::Error, Some("net"), "bad \"peer\"\nforged line");
            line(Level::Debug, None, "not shown");
            tracing::info!(count = 3, "plain");
        });
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
    }
}
