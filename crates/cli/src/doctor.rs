//! `doctor`: is this machine fit to be a gateway? Asks the daemon, where one runs, for what only
//! the daemon knows; the checks themselves are in `ironswan_gateway::doctor`.

use std::io::IsTerminal;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use ironswan_config::selector;
use ironswan_gateway::doctor::{self, Check, Engine, Given, Offloads, Running, Udp, Verdict};
use ironswan_gateway::guard::plan::{Policy, Verdict as Way};
use ironswan_gateway::guard::{Holder, holder};
use ironswan_wire::printable::printable;
use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::Doctor;
use crate::failure::Failure;
use crate::json;
use crate::text::wrapped;
use crate::vici::Client;
use crate::view::{Named, get};

/// Looks, judges, and prints.
pub(crate) fn doctor(a: &Doctor) -> Result<(), Failure> {
    let checks = checks(a)?;
    if a.daemon.json {
        json::print("doctor", document(&checks));
    } else {
        say_text!("{}", text(&checks, in_colour()));
    }
    match count(&checks, Verdict::Problem) {
        0 => Ok(()),
        _ => Err(Failure { status: 1, lines: Vec::new() }),
    }
}

/// All checks, with what the daemon answers where one runs.
pub(crate) fn checks(a: &Doctor) -> Result<Vec<Check>, Failure> {
    let socket =
        ironswan_config::vici_uri(&a.daemon.vici).map_err(|e| Failure::usage(format!("--vici {e}")))?;
    let (running, unasked) = match Client::connect(&a.daemon.vici).and_then(|mut c| running(&mut c)) {
        Ok(running) => (Some(running), None),
        // Without a daemon there is nothing to ask.
        Err(why) => (None, holder().map(|h| format!("a gateway runs ({h}), and {}", why.lines.join("; ")))),
    };
    let given = Given { folder: a.config.clone(), running, unasked, socket };
    Ok(doctor::judge(&doctor::gather(&given)))
}

/// Everything that the daemon is asked for.
fn running(client: &mut Client) -> Result<Running, Failure> {
    let stats = client.request("stats", Section::new())?;
    let engines = client.request("ironswan-engines", Section::new())?;
    let (policies, _) = client.policies(None)?;
    let (conns, sas) = (client.conns(None)?, client.sas(None)?);
    let plane = stats.section("data-plane").cloned().unwrap_or_default();
    let yes = |key: &str| plane.get_str(key) == Some("yes");
    let number = |key: &str| plane.get_str(key).and_then(|n| n.parse().ok()).unwrap_or(0);
    let pid = match holder() {
        Some(Holder::Process(pid)) => Some(pid),
        Some(Holder::Full) | None => None,
    };
    Ok(Running {
        pid,
        workers: number("workers"),
        tun: Offloads { checksum: yes("tun-tso"), tso: yes("tun-tso"), uso: yes("tun-uso") },
        udp: Udp {
            segments: number("udp-segments"),
            merging: yes("udp-gro"),
            buffers: [number("receive-buffer"), number("send-buffer")],
        },
        behind_nat: sas.iter().filter(|(_, sa)| sa.get_str("nat-local") == Some("yes")).count(),
        engines: engines_of(&engines),
        policies: policies_of(&policies),
        peers: peers_of(&conns),
    })
}

/// The engine of each suite for the largest packets that were measured.
fn engines_of(answer: &Section) -> Vec<Engine> {
    let suites = answer.section("suites").into_iter().flat_map(Section::sections);
    let mut out: Vec<Engine> = Vec::new();
    for (_, s) in suites {
        let (suite, engine) = (get(s, "suite").to_owned(), get(s, "engine").to_owned());
        // Sizes come in order.
        out.retain(|e| e.suite != suite);
        out.push(Engine { suite, engine });
    }
    out
}

/// Policies of the daemon, as far as their selectors name addresses.
fn policies_of(list: &Named) -> Vec<Policy> {
    let policy = |(name, s): &(String, Section)| {
        let verdict = match get(s, "verdict") {
            "protect" => Way::Protect,
            "discard" => Way::Discard,
            _ => Way::Bypass,
        };
        Some(Policy {
            name: name.clone(),
            verdict,
            local: selector(get(s, "local-ts"))?,
            remote: selector(get(s, "remote-ts"))?,
            priority: get(s, "priority").parse().unwrap_or(0),
            open: 0,
            guard: get(s, "guard") == "yes",
        })
    };
    list.iter().filter_map(policy).collect()
}

/// Addresses of peers that are written out.
fn peers_of(conns: &Named) -> Vec<IpAddr> {
    let lists = conns.iter().filter_map(|(_, c)| c.get_list("remote_addrs"));
    lists.flatten().filter_map(|a| std::str::from_utf8(a).ok()?.parse().ok()).collect()
}

/// The time of day.
#[allow(clippy::disallowed_methods, reason = "checks and names of files take the time from their caller")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The clock by which a file system that does not answer is given up.
#[allow(clippy::disallowed_methods, reason = "the reader of files takes the clock from its caller")]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// Colours help on a terminal, and are noise elsewhere (<https://no-color.org>).
pub(crate) fn in_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    std::io::stdout().is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

fn count(checks: &[Check], verdict: Verdict) -> usize {
    checks.iter().filter(|c| c.verdict == verdict).count()
}

/// The document `ironswan.doctor/1`.
pub(crate) fn document(checks: &[Check]) -> serde_json::Value {
    let rows: Vec<_> = checks
        .iter()
        .map(|c| {
            json!({ "name": c.name, "verdict": c.verdict.to_string(), "what": printable(&c.what),
                    "remedy": Some(printable(&c.remedy)).filter(|r| !r.is_empty()) })
        })
        .collect();
    json!({ "problems": count(checks, Verdict::Problem), "warnings": count(checks, Verdict::Warning),
            "unknown": count(checks, Verdict::Unknown), "checks": rows })
}

/// One line a check, the worst first, and below it what to do.
pub(crate) fn text(checks: &[Check], colour: bool) -> String {
    let mut sorted: Vec<&Check> = checks.iter().collect();
    sorted.sort_by_key(|c| std::cmp::Reverse(c.verdict));
    let mut out = String::new();
    for c in sorted {
        let verdict = c.verdict.to_string();
        let lines = wrapped(&format!("{verdict:<7}  {:<13}  ", c.name), &printable(&c.what));
        out += &match colour {
            true => format!("\x1b[{}m{verdict}\x1b[0m{}", paint(c.verdict), &lines[verdict.len()..]),
            false => lines,
        };
        if !c.remedy.is_empty() {
            out += &wrapped("         do: ", &printable(&c.remedy));
        }
    }
    let [problems, warnings, unknown] =
        [Verdict::Problem, Verdict::Warning, Verdict::Unknown].map(|v| count(checks, v));
    let plural = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let unknown = if unknown > 0 { format!(", {unknown} not checked") } else { String::new() };
    out + &format!("{}, {}{unknown}\n", plural(problems, "problem"), plural(warnings, "warning"))
}

/// Number of a colour (ECMA-48, SGR).
fn paint(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "32",
        Verdict::Unknown => "36",
        Verdict::Warning => "33",
        Verdict::Problem => "31",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, verdict: Verdict, what: &str, remedy: &str) -> Check {
        Check { name, verdict, what: what.into(), remedy: remedy.into() }
    }

    #[test]
    fn the_worst_comes_first_and_everything_fits_80_columns() {
        let long = "a sentence that goes on ".repeat(8);
        let all = [
            check("mtu", Verdict::Ok, "1500 at wan", ""),
            check("nat", Verdict::Warning, &long, "`keep_alive = 20s` in ironswan.conf"),
            check("ports", Verdict::Problem, "UDP 500 is taken", "`systemctl stop strongswan-starter`"),
            check("kernel-ipsec", Verdict::Unknown, "not checked: only root may", "run it as root"),
        ];
        let page = text(&all, false);
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}:\n{page}"));
        assert!(
            at("problem  ports          UDP 500") < at("warning  nat")
                && at("warning") < at("unknown  kernel-ipsec")
        );
        assert!(at("unknown") < at("ok       mtu            1500 at wan\n"), "{page}");
        assert!(page.contains("\n         do: `systemctl stop strongswan-starter`\n"), "{page}");
        assert!(page.lines().all(|l| l.chars().count() <= 80), "{page}");
        assert!(page.ends_with("\n1 problem, 1 warning, 1 not checked\n"), "{page}");
        assert!(!page.contains('\x1b') && text(&all, true).contains("\x1b[31mproblem\x1b[0m  ports"));
    }

    #[test]
    fn names_of_others_cannot_move_the_cursor_or_turn_the_line() {
        let all = [check("ports", Verdict::Problem, "taken by \x1b[2Jevil\u{202e}\u{9b}1m", "kill it")];
        let page = text(&all, false);
        assert!(page.contains("\\u{1b}[2Jevil\\u{202e}\\u{9b}1m"), "{page}");
        let doc = document(&all);
        assert_eq!(doc["checks"][0]["what"], "taken by \\u{1b}[2Jevil\\u{202e}\\u{9b}1m");
        assert_eq!((&doc["problems"], &doc["checks"][0]["verdict"]), (&1.into(), &"problem".into()));
    }

    #[test]
    fn a_daemon_s_answers_are_read() {
        let policy = Section::new()
            .with("verdict", "protect")
            .with("local-ts", "10.1.0.0/16")
            .with("remote-ts", "10.2.0.0/16[tcp/80]")
            .with("priority", "3")
            .with("guard", "yes");
        let strange = policy.clone().with("remote-ts", "dynamic");
        let strange: Section = strange.iter().map(|(n, v)| (n.to_owned(), v.clone())).collect();
        let found = policies_of(&[("net.a".into(), policy), ("net.b".into(), strange)]);
        assert_eq!((found[0].name.as_str(), found[0].verdict, found[0].priority), ("net.a", Way::Protect, 3));
        assert_eq!(found[0].remote.to_string(), "10.2.0.0/16[tcp/80]");
        let conn = Section::new().with("remote_addrs", ["192.0.2.2", "hub.example", "%any"]);
        let want: Vec<IpAddr> = vec!["192.0.2.2".parse().expect("an address")];
        assert_eq!(peers_of(&[("net".into(), conn)]), want);
        let line = |size: &str, engine: &str| {
            Section::new().with("suite", "aes128gcm16").with("size", size).with("engine", engine)
        };
        let suites = Section::new().with("a-64", line("64", "aws-lc")).with("a-1400", line("1400", "vaes"));
        let want = [Engine { suite: "aes128gcm16".into(), engine: "vaes".into() }];
        assert_eq!(engines_of(&Section::new().with("suites", suites)), want);
    }
}
