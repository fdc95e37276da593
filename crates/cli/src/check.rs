//! `check`: a configuration without a daemon.

use std::path::PathBuf;

use ironswan_gateway::config::diag::{Diagnostics, Severity};
use ironswan_gateway::config::{check, load_dir, load_files};
use serde_json::json;

use crate::args::Check;
use crate::{Failure, json};

/// Reads and checks folders one by one, and all files together as one configuration.
pub(crate) fn check(a: &Check) -> Result<(), Failure> {
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = a.paths.iter().cloned().partition(|p| p.is_dir());
    let mut all = Diagnostics::default();
    let (mut unreadable, mut connections, mut secrets) = (false, 0, 0);
    let mut one = |read: &dyn Fn(&mut Diagnostics) -> Option<ironswan_gateway::config::Config>| {
        let mut diags = Diagnostics::default();
        match read(&mut diags) {
            Some(config) => {
                connections += config.connections.len();
                secrets += config.secrets.len();
                check::check(&config, &mut diags);
            }
            None => unreadable = true,
        }
        all.extend(diags);
    };
    for folder in &folders {
        one(&|d| load_dir(folder, d));
    }
    if !files.is_empty() {
        one(&|d| load_files(&files, d));
    }
    let count = |s: Severity| all.iter().filter(|d| d.severity == s).count();
    let (errors, warnings) = (all.errors(), count(Severity::Warning));
    if a.json {
        let findings: Vec<_> = all
            .iter()
            .map(|d| {
                json!({ "severity": d.severity, "file": d.origin.as_ref().map(|o| &*o.file),
                        "line": d.origin.as_ref().map(|o| o.line).filter(|l| *l > 0), "key": d.key, "message": d.message })
            })
            .collect();
        json::print(
            "check",
            json!({ "connections": connections, "secrets": secrets, "errors": errors, "warnings": warnings,
                    "more": all.lost(), "findings": findings }),
        );
    } else {
        for d in all.iter() {
            say!("{d}");
        }
        if all.lost() > 0 {
            say!("and {} more", all.lost());
        }
        say!("{connections} connections, {secrets} secrets: {errors} errors, {warnings} warnings");
    }
    match (unreadable, errors + warnings) {
        (true, _) => Err(Failure { status: 2, lines: Vec::new() }),
        (false, 0) => Ok(()),
        (false, _) => Err(Failure { status: 1, lines: Vec::new() }),
    }
}
