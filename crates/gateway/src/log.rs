//! The log on stderr: one event, one line, `<time> <level> <conn> text`, or one JSON object a line.

use std::fmt::Write as _;

use ironswan_ike::event::Level;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// Starts logging; only the first call of a process has an effect.
pub fn init(level: Level, format: LogFormat) {
    let max = match level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
    };
    // A second subscriber is refused; the first one goes on.
    let _ = tracing_subscriber::fmt()
        .with_max_level(max)
        .with_writer(std::io::stderr)
        .event_format(Line { json: format == LogFormat::Json })
        .try_init();
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
