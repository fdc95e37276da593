//! `status`: one line per tunnel, bad ones first. With a name, all about one connection (`status`).

use std::collections::HashMap;

use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::Status;
use crate::failure::Failure;
use crate::text::{COLUMNS, cut, duration, table};
use crate::vici::Client;
use crate::view::{Named, get, list, objects, seconds};
use crate::{json, plane, status};

/// The longest name of a tunnel that is shown whole.
const NAME: usize = 24;

/// `status`.
pub(crate) fn status(a: &Status) -> Result<(), Failure> {
    let mut client = Client::connect(&a.daemon.vici)?;
    let only = a.name.as_deref();
    let tunnels = client.tunnels(only)?;
    if let Some(name) = only.filter(|_| tunnels.is_empty()) {
        // SAs of a connection that was unloaded live on until they are closed.
        if client.sas(Some(name))?.is_empty() {
            return Err(Failure::no(format!("{name}: no connection of that name is loaded")));
        }
    }
    let bad = bad_first(&tunnels);
    let outcome = match (a.check, bad.iter().any(|(_, s)| is_bad(s))) {
        (true, true) => Err(Failure { status: 1, lines: Vec::new() }),
        _ => Ok(()),
    };
    let shown: Vec<&(String, Section)> =
        bad.into_iter().filter(|(_, s)| !(a.down || a.check) || is_bad(s)).collect();
    if a.daemon.json {
        document(&mut client, only, &shown)?;
    } else if let (Some(name), false) = (only, a.down || a.check) {
        say_text!("{}", status::of_one(&mut client, name)?);
    } else {
        if !(a.down || a.check) {
            say_text!("{}", head(&mut client, &tunnels)?);
        }
        say_text!("{}", lines(&shown, &tunnels));
    }
    outcome
}

/// The JSON document.
fn document(client: &mut Client, only: Option<&str>, shown: &[&(String, Section)]) -> Result<(), Failure> {
    let version = client.request("version", Section::new())?;
    let stats = client.request("stats", Section::new())?;
    let conns = client.conns(only)?;
    let sas = client.sas(only)?;
    let (down, machine) = client.troubles(only)?;
    let of = |key: &str| stats.section(key).map(json::object);
    let stages = stats.section("stages").map(json::numbers);
    let tunnels: Vec<_> = shown.iter().map(|one| (*one).clone()).collect();
    json::print(
        "status",
        json!({ "version": json::object(&version), "uptime": of("uptime"), "ikesas": of("ikesas"),
                "data_plane": of("data-plane"), "stages": stages,
                "machine": list(&machine, "machine"), "links": machine.section("links").map(json::object),
                "tunnels": objects(&tunnels), "down": objects(&down), "connections": objects(&conns),
                "sas": objects(&sas) }),
    );
    Ok(())
}

/// What the daemon is, what is in the way on this machine, and how many tunnels are how.
fn head(client: &mut Client, tunnels: &Named) -> Result<String, Failure> {
    let version = client.request("version", Section::new())?;
    let stats = client.request("stats", Section::new())?;
    let machine = client.request("ironswan-troubles", Section::new())?;
    let nothing = Section::new();
    let (up, ike) =
        (stats.section("uptime").unwrap_or(&nothing), stats.section("ikesas").unwrap_or(&nothing));
    let mut out = format!(
        "{} {}, up {}, {} ({} half-open)\n",
        get(&version, "daemon"),
        get(&version, "version"),
        get(up, "running"),
        status::plural(get(ike, "total").parse().unwrap_or(0), "IKE_SA"),
        get(ike, "half-open"),
    );
    out += &plane::text(&stats);
    for line in list(&machine, "machine") {
        out += &format!("in the way: {line}\n");
    }
    if let Some(links) = machine.section("links") {
        for (address, why) in links.iter().filter_map(|(address, _)| Some((address, links.get_str(address)?)))
        {
            out += &format!("in the way: {address}: {why}\n");
        }
    }
    let count = |state: &str| tunnels.iter().filter(|(_, s)| get(s, "state") == state).count();
    let all: Vec<String> = ["down", "trying", "waiting", "up", "pass", "drop"]
        .iter()
        .map(|state| (count(state), state))
        .filter(|(n, _)| *n > 0)
        .map(|(n, state)| format!("{n} {state}"))
        .collect();
    let all = if all.is_empty() { "none is loaded".to_owned() } else { all.join(", ") };
    Ok(out + &format!("{}: {all}\n", status::plural(tunnels.len(), "tunnel")))
}

/// A tunnel that should be up and is not.
fn is_bad(s: &Section) -> bool {
    get(s, "wanted") == "yes" && get(s, "state") != "up"
}

/// All tunnels, those that should be up and are not before the others.
fn bad_first(tunnels: &Named) -> Vec<&(String, Section)> {
    let (bad, good): (Vec<_>, Vec<_>) = tunnels.iter().partition(|(_, s)| is_bad(s));
    bad.into_iter().chain(good).collect()
}

/// A line for each tunnel, in [`COLUMNS`] columns.
fn lines(shown: &[&(String, Section)], all: &Named) -> String {
    if shown.is_empty() {
        return String::new();
    }
    // A connection with one tunnel is named without its child.
    let mut children: HashMap<&str, usize> = HashMap::new();
    all.iter().for_each(|(conn, _)| *children.entry(conn).or_default() += 1);
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|(conn, s)| {
            let name = match s.get_str("child") {
                Some(child) if children.get(conn.as_str()) != Some(&1) => format!("{conn}/{child}"),
                _ => conn.clone(),
            };
            let trouble = s.section("trouble");
            let next = trouble.map_or(String::new(), |t| match get(t, "next") {
                "trying" => "now".to_owned(),
                "retry" => seconds(t, "next-try"),
                "packet" => "packet".to_owned(),
                _ => "-".to_owned(),
            });
            let since =
                s.get_str("since").and_then(|since| since.parse().ok()).map_or_else(String::new, duration);
            let why = trouble.and_then(|t| t.get_str("why")).unwrap_or_default();
            let remote = s.get_str("remote").unwrap_or("any");
            vec![cut(&name, NAME), get(s, "state").to_owned(), since, next, remote.to_owned(), why.to_owned()]
        })
        .collect();
    let titles = ["TUNNEL", "STATE", "SINCE", "NEXT", "PEER", "WHY"];
    let table = table(&titles, &rows);
    table.lines().map(|line| cut(line, COLUMNS) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(conn: &str, child: &str, state: &str, wanted: bool) -> (String, Section) {
        let s = Section::new()
            .with("child", child)
            .with("state", state)
            .with("wanted", wanted)
            .with("remote", "198.51.100.2")
            .with("since", "3240");
        (conn.to_owned(), s)
    }

    #[test]
    fn bad_tunnels_come_first_and_each_has_one_line_of_eighty_columns() {
        let mut bad = tunnel("branch7", "net", "down", true);
        let trouble = Section::new()
            .with("why", "answers on UDP 500, silence on UDP 4500, and so on without end")
            .with("next", "retry")
            .with("next-try", "41");
        bad.1.put("trouble", trouble);
        let all = vec![
            tunnel("hq", "a", "up", true),
            tunnel("hq", "b", "waiting", false),
            bad,
            tunnel(&"long".repeat(20), "net", "up", true),
        ];
        let text = lines(&bad_first(&all), &all);
        let got: Vec<&str> = text.lines().collect();
        assert_eq!(got.len(), 5);
        assert!(got.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(
            got[1].starts_with("branch7 ")
                && got[1].contains("down     54m    41s")
                && got[1].ends_with("..."),
            "{text}"
        );
        assert!(got[2].starts_with("hq/a ") && got[3].starts_with("hq/b "), "{text}");
        assert!(got[4].starts_with("longlong") && got[4].contains("..."), "{text}");
        assert_eq!(lines(&[], &all), "");
    }

    #[test]
    fn what_nobody_wants_is_not_bad() {
        assert!(is_bad(&tunnel("a", "net", "trying", true).1));
        assert!(!is_bad(&tunnel("a", "net", "waiting", false).1));
        assert!(!is_bad(&tunnel("a", "net", "up", true).1));
    }
}
