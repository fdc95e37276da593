//! `guard`: what stands in the kernel, with a daemon or without.

use ironswan_gateway::guard::Count;
use ironswan_gateway::guard::offline::{self, Line, Report};
use serde_json::json;

use crate::args::Guard;
use crate::failure::Failure;
use crate::{json, text};

/// Limits how many lines of one kind are shown to people.
const MAX_LINES: usize = 40;

/// Shows, installs or removes the guard. `daemon` in the functions below is the URI where a running
/// gateway answers, or the name of its process.
pub(crate) fn guard(a: &Guard) -> Result<(), Failure> {
    let paths = offline::vici_paths(&a.vici, &a.config).map_err(|e| Failure::usage(format!("--vici {e}")))?;
    let daemon = offline::daemon(&paths);
    match (a.remove, a.install) {
        (true, _) => remove(a, daemon.as_deref()),
        (_, true) => install(a, daemon.as_deref()),
        _ => show(a, daemon.as_deref()),
    }
}

fn refused(e: impl std::fmt::Display) -> Failure {
    Failure::usage(e.to_string())
}

fn remove(a: &Guard, daemon: Option<&str>) -> Result<(), Failure> {
    if let Some(daemon) = daemon {
        return Err(Failure::no(format!(
            "a gateway runs ({daemon}) and would put it back: stop it first, or unload the connection whose traffic may go in \
             clear (`swanctl --load-conns` without it), or set guard = no there"
        )));
    }
    let removed = offline::remove().map_err(refused)?;
    if a.json {
        let body = json!({ "action": "remove", "table": removed.table, "rules": removed.rules, "routes": removed.routes,
                           "ingress": removed.programs });
        json::print("guard", body);
    } else {
        let table = if removed.table { "the nft table, " } else { "" };
        say!(
            "removed: {table}{} rules, {} routes of table 220, the program at the ingress of {} interfaces",
            removed.rules,
            removed.routes,
            removed.programs
        );
    }
    Ok(())
}

fn install(a: &Guard, daemon: Option<&str>) -> Result<(), Failure> {
    if let Some(daemon) = daemon {
        if a.json {
            json::print("guard", json!({ "action": "install", "daemon": daemon }));
        } else {
            say!("a gateway runs ({daemon}): it keeps the guard itself, nothing to do");
        }
        return Ok(());
    }
    let done = offline::install(&a.config).map_err(|lines| Failure { status: 2, lines })?;
    if a.json {
        let body = json!({ "action": "install", "daemon": null, "policies": done.policies, "routes": done.routes,
                           "table": done.table, "warnings": done.warnings });
        json::print("guard", body);
    } else {
        for w in &done.warnings {
            crate::text::complain(format_args!("ironswan guard: warning: {w}"));
        }
        let table = if done.table { "with" } else { "without" };
        say!(
            "installed: {} policies, {} destinations in table 220, {table} an nft table",
            done.policies,
            done.routes
        );
    }
    Ok(())
}

fn show(a: &Guard, daemon: Option<&str>) -> Result<(), Failure> {
    let report = offline::look().map_err(refused)?;
    if a.json {
        json::print("guard", json_report(&report, daemon));
    } else {
        say_text!("{}", text_report(&report, daemon));
    }
    Ok(())
}

fn json_report(r: &Report, daemon: Option<&str>) -> serde_json::Value {
    let count = |c: Count| json!({ "packets": c.packets, "bytes": c.bytes });
    let nft = r.nft.as_ref();
    let policies: Vec<_> = r
        .policies
        .iter()
        .map(|p| json!({ "destination": p.destination, "match": p.matches, "verdict": p.verdict }))
        .collect();
    json!({
        "action": "show",
        "daemon": daemon,
        "nft": nft.and_then(|n| n.as_ref().ok()).map(ToString::to_string),
        "nft_error": nft.and_then(|n| n.as_ref().err()).map(ToString::to_string),
        "table": r.table,
        "out_clear": count(r.counters.out_clear),
        "in_clear": count(r.counters.in_clear),
        "ingress": r.ingress.at,
        "ingress_before": r.ingress.before.iter().map(|(at, what)| json!({ "interface": at, "what": what })).collect::<Vec<_>>(),
        "ingress_error": r.ingress.problem,
        "policies": policies,
        "rules": r.rules,
        "routes": r.routes,
        "foreign_routes": r.foreign,
    })
}

fn text_report(r: &Report, daemon: Option<&str>) -> String {
    let mut out = match daemon {
        Some(uri) => format!("daemon     runs ({uri})\n"),
        None => "daemon     none runs; what is below stands all the same\n".to_owned(),
    };
    out += &match (&r.nft, r.table) {
        (Some(Err(e)), _) => format!("nft table  cannot be looked at: {e}\n"),
        (_, true) => "nft table  stands\n".to_owned(),
        (_, false) => "nft table  none: nothing is dropped for leaving in clear\n".to_owned(),
    };
    let at = r.ingress.at.join(", ");
    out += &match (&r.ingress.problem, r.ingress.at.is_empty()) {
        (Some(why), true) => format!("ingress    cannot be looked at: {why}\n"),
        (Some(why), false) => {
            format!("ingress    the program stands at {at}; not everywhere can be looked: {why}\n")
        }
        (None, false) => format!("ingress    the program stands at {at}\n"),
        (None, true) => {
            "ingress    no program: what comes in clear is dropped by the nft table alone\n".to_owned()
        }
    };
    for (at, what) in &r.ingress.before {
        out += &format!(
            "           at {at} these are asked before it, and may take packets past it: {}\n",
            what.join(", ")
        );
    }
    if r.table || !r.ingress.at.is_empty() {
        for (name, c, what) in [
            ("out_clear", r.counters.out_clear, "would have left in clear"),
            ("in_clear", r.counters.in_clear, "came in clear"),
        ] {
            out += &format!("{name:<10} {} packets, {} bytes dropped that {what}\n", c.packets, c.bytes);
        }
    }
    out += &section("rules", &r.rules);
    out += &section("table 220", &r.routes);
    if !r.foreign.is_empty() {
        out += &section("table 220, of other programs", &r.foreign);
    }
    if !r.policies.is_empty() {
        let row = |p: &Line| {
            let matches = if p.matches.is_empty() { "all" } else { &p.matches };
            vec![p.destination.clone(), p.verdict.to_owned(), matches.to_owned()]
        };
        let rows: Vec<Vec<String>> = r.policies.iter().take(MAX_LINES).map(row).collect();
        out += "\n";
        out += &text::table(&["TO", "IS", "WHAT"], &rows);
        out += &more_lines(r.policies.len());
    }
    out
}

fn section(name: &str, lines: &[String]) -> String {
    let mut out = format!("\n{name}\n");
    if lines.is_empty() {
        out += "  none\n";
    }
    for line in lines.iter().take(MAX_LINES) {
        out += &format!("  {line}\n");
    }
    out + &more_lines(lines.len())
}

fn more_lines(all: usize) -> String {
    if all > MAX_LINES {
        format!("  and {} more (--json shows all)\n", all - MAX_LINES)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_stands_and_what_does_not() {
        let mut r = Report { table: true, ..Report::default() };
        r.counters.out_clear = Count { packets: 3, bytes: 252 };
        r.rules = vec!["219: from all fwmark 0x1/0x1 lookup 220".into()];
        r.foreign = vec!["10.9.0.0/16 dev wan".into()];
        let line = |n: usize| Line {
            destination: format!("10.{n}.0.0/16"),
            matches: String::new(),
            verdict: "guarded",
        };
        r.policies = (0..50).map(line).collect();
        r.ingress.at = vec!["lan".into(), "wan".into()];
        r.ingress.problem = Some("odd0: the kernel refused".into());
        let page = text_report(&r, None);
        for words in [
            "none runs",
            "stands at lan, wan; not everywhere can be looked: odd0: the kernel refused",
            "out_clear  3 packets, 252 bytes",
            "  219: from all",
            "of other programs\n  10.9.0.0/16 dev wan",
            "10.39.0.0/16  guarded  all",
            "and 10 more",
        ] {
            assert!(page.contains(words), "{words}:\n{page}");
        }
        let doc = json_report(&r, Some("unix:///x"));
        assert_eq!(doc["policies"].as_array().map(Vec::len), Some(50));
        assert_eq!(
            (doc["out_clear"]["bytes"].as_u64(), doc["daemon"].as_str()),
            (Some(252), Some("unix:///x"))
        );
    }
}
