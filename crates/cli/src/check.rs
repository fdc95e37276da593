//! `check`: a configuration without a daemon, and the algorithms that one can name.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use ironswan_config::algorithms::{PROTOCOLS, algorithms};
use ironswan_config::diag::{Diagnostic, Diagnostics, Severity};
use ironswan_config::files::within_limit;
use ironswan_config::{check, credentials, load_dir, load_files};
use serde_json::json;

use crate::args::Check;
use crate::failure::Failure;
use crate::json;
use crate::text::table;

/// The clock by which a file system that does not answer is given up.
#[allow(clippy::disallowed_methods, reason = "the reader of files takes the clock from its caller")]
fn now() -> Instant {
    Instant::now()
}

/// The time by which certificates are valid or not.
#[allow(clippy::disallowed_methods, reason = "the checks take the time from their caller")]
fn today() -> SystemTime {
    SystemTime::now()
}

/// Reads and checks folders one by one, and all files together as one configuration.
pub(crate) fn check(a: &Check) -> Result<(), Failure> {
    if a.algorithms {
        list_algorithms(a.json);
        return Ok(());
    }
    let (mut folders, mut files): (Vec<PathBuf>, Vec<PathBuf>) = Default::default();
    for path in &a.paths {
        let folder =
            within_limit(now, path, std::path::Path::is_dir).map_err(|e| Failure::usage(e.to_string()))?;
        if folder { folders.push(path.clone()) } else { files.push(path.clone()) }
    }
    let mut all = Diagnostics::default();
    let (mut read_any, mut unread, mut connections, mut secrets) = (false, false, 0, 0);
    let mut one = |read: &dyn Fn(&mut Diagnostics) -> Option<ironswan_config::Config>| {
        let mut diags = Diagnostics::default();
        if let Some(config) = read(&mut diags) {
            read_any = true;
            unread |= config.unread;
            connections += config.connections.len();
            secrets += config.secrets.len() + config.ppks.len();
            check::check(&config, &mut diags);
            credentials::check(&config, today(), &mut diags);
        }
        all.extend(diags);
    };
    for folder in &folders {
        one(&|d| load_dir(now, folder, d));
    }
    if !files.is_empty() {
        one(&|d| load_files(now, &files, d));
    }
    // As people read a file; what has one place stays in the order in which it was found.
    let mut found: Vec<&Diagnostic> = all.iter().collect();
    found.sort_by_key(|d| d.origin.as_ref().map(|o| (&*o.file, o.line)));
    let (errors, warnings) = (all.errors(), all.count(Severity::Warning));
    if a.json {
        let findings: Vec<_> = found
            .iter()
            .map(|d| {
                let entry = d.diagnosis.entry();
                json!({ "severity": d.severity, "file": d.origin.as_ref().map(|o| &*o.file),
                        "line": d.origin.as_ref().map(|o| o.line).filter(|l| *l > 0), "key": d.key,
                        "message": d.diagnosis.to_string(), "diagnosis": entry.name(),
                        "remedy": d.diagnosis.remedy() })
            })
            .collect();
        json::print(
            "check",
            json!({ "connections": connections, "secrets": secrets, "errors": errors, "warnings": warnings,
                    "more": all.lost(), "findings": findings }),
        );
    } else {
        for d in &found {
            say!("{d}");
        }
        if all.lost() > 0 {
            say!("and {} more", all.lost());
        }
        say!("{connections} connections, {secrets} secrets: {errors} errors, {warnings} warnings");
        if unread {
            say!("What else there is to say is said when all of it can be read.");
        }
    }
    match (read_any, errors, warnings) {
        (false, ..) => Err(Failure { status: 2, lines: Vec::new() }),
        (true, 0, w) if w == 0 || !a.strict => Ok(()),
        _ => Err(Failure { status: 1, lines: Vec::new() }),
    }
}

/// `--algorithms`.
fn list_algorithms(as_json: bool) {
    let all = algorithms();
    if as_json {
        let rows: Vec<_> = all
            .iter()
            .map(|row| {
                let (kind, id, key_bits) = row.transform;
                let transform = json!({ "type": kind, "id": id, "key_bits": key_bits });
                let mut o = json!({ "kind": row.kind.to_string(), "words": row.words, "name": row.name,
                                    "transform": transform });
                for (protocol, level) in PROTOCOLS.iter().zip(&row.levels) {
                    let name = protocol.to_string().to_ascii_lowercase();
                    o[name] = level.map_or(serde_json::Value::Null, |r| {
                        json!({ "level": r.level.to_string(), "small_devices": r.iot, "old_peers": r.old, "source": r.source })
                    });
                }
                o
            })
            .collect();
        json::print("algorithms", json!({ "algorithms": rows }));
        return;
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|row| {
            let levels = row.levels.iter().map(|level| match level {
                None => "-".to_owned(),
                Some(r) => format!("{}{}", r.level, r.notes()),
            });
            let mut cells = vec![row.words[0].to_owned(), row.kind.to_string()];
            cells.extend(levels);
            cells.push(row.words[1..].join(" "));
            cells
        })
        .collect();
    say_text!("{}", table(&["WORD", "KIND", "ESP", "AH", "IKE", "ALSO"], &rows));
    say!(
        "Levels: RFC 8221 for ESP and AH, RFC 8247 for IKE. -: not there. Who names an algorithm with (old peers), SHOULD NOT or \
         MUST NOT is warned."
    );
}
