//! `list`.

use ironswan_wire::vici::{Section, Value};
use serde_json::json;

use crate::args::List;
use crate::failure::Failure;
use crate::text::{amount, duration, table};
use crate::vici::Client;
use crate::{json, plane, replays};

/// Items by name, in their order.
pub(crate) type Named = [(String, Section)];

pub(crate) fn get<'a>(s: &'a Section, key: &str) -> &'a str {
    s.get_str(key).unwrap_or("-")
}

pub(crate) fn seconds(s: &Section, key: &str) -> String {
    s.get_str(key).and_then(|t| t.parse().ok()).map_or_else(|| "-".to_owned(), duration)
}

pub(crate) fn count(s: &Section, key: &str) -> String {
    s.get_str(key).and_then(|t| t.parse().ok()).map_or_else(|| "-".to_owned(), amount)
}

pub(crate) fn joined(s: &Section, key: &str) -> String {
    let items = s.get_list(key).unwrap_or_default();
    items.iter().map(|i| String::from_utf8_lossy(i).into_owned()).collect::<Vec<_>>().join(" ")
}

/// `AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519/KE1_ML_KEM_768`, as swanctl prints it.
pub(crate) fn suite(s: &Section) -> String {
    let mut parts = Vec::new();
    if let Some(encr) = s.get_str("encr-alg") {
        parts.push(match s.get_str("encr-keysize") {
            Some(bits) => format!("{encr}-{bits}"),
            None => encr.to_owned(),
        });
    }
    parts.extend(["integ-alg", "prf-alg", "dh-group"].iter().filter_map(|k| s.get_str(k)).map(str::to_owned));
    let additional = (1..=7).filter_map(|n| Some(format!("KE{n}_{}", s.get_str(&format!("ake{n}"))?)));
    parts.extend(additional);
    parts.join("/")
}

/// How a child's packets are carried: `tunnel ESP in UDP`, `transport AH + IPComp`.
pub(crate) fn carriage(c: &Section) -> String {
    let mut out = get(c, "mode").to_ascii_lowercase();
    let protocols = joined(c, "protocols").replace(' ', " or ");
    let protocol = c.get_str("protocol").unwrap_or(&protocols);
    if !protocol.is_empty() {
        out += &format!(" {protocol}");
    }
    if c.get_str("encap") == Some("yes") {
        out += " in UDP";
    }
    if c.get_str("cpi-in").is_some() || c.get_str("ipcomp") == Some("yes") {
        out += " + IPComp";
    }
    out
}

/// Words for the side that is behind a NAT, or for forced UDP encapsulation; `None` for neither.
pub(crate) fn nat(sa: &Section) -> Option<&'static str> {
    let yes = |key: &str| sa.get_str(key) == Some("yes");
    // A peer that forces UDP encapsulation makes its address look translated, as ours does with
    // `encap = yes`. A NAT that serves several hosts changes the port too, so the port tells the
    // two apart in most cases.
    let own_port = matches!(sa.get_str("remote-port"), None | Some("500" | "4500"));
    match (yes("nat-local"), yes("nat-remote"), yes("nat-fake")) {
        (true, true, false) => Some("NAT at both ends"),
        (true, true, true) if !own_port => Some("NAT at both ends"),
        (true, ..) => Some("behind a NAT"),
        (false, true, _) if !own_port => Some("peer behind a NAT"),
        (false, true, false) => Some("peer behind a NAT, or it forces UDP encapsulation"),
        (false, _, true) => Some("UDP encapsulation forced"),
        (false, false, false) => None,
    }
}

pub(crate) fn objects(list: &Named) -> serde_json::Value {
    list.iter()
        .map(|(name, s)| {
            let mut o = json::object(s);
            o["name"] = name.as_str().into();
            o
        })
        .collect()
}

/// `list conns`.
pub(crate) fn conns(a: &List) -> Result<(), Failure> {
    let conns = Client::connect(&a.daemon.vici)?.conns(a.name.as_deref())?;
    if a.daemon.json {
        json::print("conns", json!({ "connections": objects(&conns) }));
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, conn) in &conns {
        let ends = format!("{} -> {}", joined(conn, "local_addrs"), joined(conn, "remote_addrs"));
        let children = conn.section("children").into_iter().flat_map(Section::sections);
        for (child, s) in children {
            rows.push(vec![
                name.clone(),
                child.to_owned(),
                carriage(s),
                ends.clone(),
                format!("{} === {}", joined(s, "local-ts"), joined(s, "remote-ts")),
            ]);
        }
        if conn.section("children").is_none_or(Section::is_empty) {
            rows.push(vec![name.clone(), "-".into(), "-".into(), ends, "-".into()]);
        }
    }
    say_text!("{}", table(&["CONNECTION", "CHILD", "CARRIED", "PEERS", "SELECTORS"], &rows));
    Ok(())
}

/// `list sas`.
pub(crate) fn sas(a: &List) -> Result<(), Failure> {
    let sas = Client::connect(&a.daemon.vici)?.sas(a.name.as_deref())?;
    if a.daemon.json {
        json::print("sas", json!({ "sas": objects(&sas) }));
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, sa) in &sas {
        rows.push(vec![
            format!("{name} #{}", get(sa, "uniqueid")),
            get(sa, "state").to_owned(),
            nat(sa).map_or_else(|| "IKEv2".to_owned(), |nat| format!("IKEv2, {nat}")),
            format!("{}_i {}_r", get(sa, "initiator-spi"), get(sa, "responder-spi")),
            suite(sa),
            seconds(sa, "established"),
            String::new(),
            format!("{} -> {}", get(sa, "local-host"), get(sa, "remote-host")),
        ]);
        for (_, c) in sa.section("child-sas").into_iter().flat_map(Section::sections) {
            let esn = if c.get_str("esn").is_some() { "/ESN" } else { "" };
            rows.push(vec![
                format!("  {} #{}", get(c, "name"), get(c, "uniqueid")),
                get(c, "state").to_owned(),
                carriage(c),
                format!("{}_i {}_o", get(c, "spi-in"), get(c, "spi-out")),
                suite(c) + esn,
                seconds(c, "install-time"),
                format!("{} / {}", count(c, "bytes-in"), count(c, "bytes-out")),
                format!("{} === {}", joined(c, "local-ts"), joined(c, "remote-ts")),
            ]);
        }
    }
    say_text!(
        "{}",
        table(
            &["SA", "STATE", "CARRIED", "SPI", "ALGORITHMS", "AGE", "BYTES IN/OUT", "PEERS, SELECTORS"],
            &rows
        )
    );
    Ok(())
}

/// `list pols`.
pub(crate) fn pols(a: &List) -> Result<(), Failure> {
    let (pols, all) = Client::connect(&a.daemon.vici)?.policies(a.name.as_deref())?;
    let guard = all.section("guard");
    if a.daemon.json {
        let dropped = guard.map(json::numbers);
        let problem = all.get_str("problem");
        json::print(
            "pols",
            json!({ "policies": objects(&pols), "guard": dropped, "ingress": list(&all, "ingress"),
                    "ingress_problem": all.get_str("ingress-problem"), "problem": problem }),
        );
        return Ok(());
    }
    let mut rows = Vec::new();
    for (name, s) in &pols {
        rows.push(vec![
            name.clone(),
            get(s, "verdict").to_uppercase(),
            get(s, "state").to_owned(),
            match (get(s, "guard"), get(s, "verdict")) {
                ("yes", "protect" | "discard") => "guarded".to_owned(),
                _ => "-".to_owned(),
            },
            get(s, "priority").to_owned(),
            format!("{} === {}", get(s, "local-ts"), get(s, "remote-ts")),
            [lines(s, "routes"), lines(s, "chains")]
                .into_iter()
                .filter(|l| !l.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        ]);
    }
    say_text!(
        "{}",
        table(&["POLICY", "VERDICT", "STATE", "GUARD", "PRIO", "SELECTORS", "ROUTES; CHAINS"], &rows)
    );
    let mut rules: Vec<String> = pols.iter().flat_map(|(_, s)| list(s, "rules")).collect();
    rules.sort_unstable();
    rules.dedup();
    rules.iter().for_each(|r| say!("rule {r}"));
    match guard {
        Some(g) => {
            let at = list(&all, "ingress");
            match (all.get_str("ingress-problem"), at.is_empty()) {
                (Some(why), _) => say!("the program at the ingress does not stand everywhere: {why}"),
                (None, false) => say!("ingress program at {}", at.join(", ")),
                (None, true) => {}
            }
            say!(
                "dropped in clear: {} packets on the way out, {} on the way in",
                get(g, "out_clear"),
                get(g, "in_clear")
            );
        }
        None => say!("no guard (guard = no in ironswan.conf)"),
    }
    match all.get_str("problem") {
        Some(why) => Err(Failure::no(format!("not all of it stands in the kernel: {why}"))),
        None => Ok(()),
    }
}

pub(crate) fn list(s: &Section, key: &str) -> Vec<String> {
    let items = s.get_list(key).unwrap_or_default();
    items.iter().map(|i| String::from_utf8_lossy(i).into_owned()).collect()
}

/// A few of a list.
fn lines(s: &Section, key: &str) -> String {
    let all = list(s, key);
    match all.len() {
        0..=3 => all.join(", "),
        n => format!("{}, and {} more", all[..2].join(", "), n - 2),
    }
}

/// `list counters`.
pub(crate) fn counters(a: &List) -> Result<(), Failure> {
    let mut message = Section::new();
    if let Some(name) = &a.name {
        message.put("ike", name.as_str());
    }
    let all = Client::connect(&a.daemon.vici)?.request("ironswan-counters", message)?;
    if a.daemon.json {
        json::print("counters", json::numbers(&all));
        return Ok(());
    }
    for (group, s) in all.sections().filter(|(group, _)| !matches!(*group, "stages" | "replay-windows")) {
        let rows: Vec<Vec<String>> = s
            .iter()
            .filter_map(|(name, v)| match v {
                // A drop that never happened is no news.
                Value::Text(n) if group == "drops" && n == b"0" => None,
                Value::Text(n) => Some(vec![format!("  {name}"), String::from_utf8_lossy(n).into_owned()]),
                _ => None,
            })
            .collect();
        say_text!("{}", table(&[group, ""], &rows));
    }
    say_text!("{}", replays::late(&all));
    say_text!("{}", replays::windows(&all));
    // The times of a packet have a column for each direction.
    if let Some(stages) = all.section("stages") {
        say_text!("{}", plane::table(stages));
        say_text!("{}", plane::times(stages));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_packets_are_carried_is_shown_of_sas_and_of_connections() {
        let sa = |mode: &str, protocol: &str| Section::new().with("mode", mode).with("protocol", protocol);
        assert_eq!(carriage(&sa("TUNNEL", "ESP")), "tunnel ESP");
        assert_eq!(
            carriage(&sa("TRANSPORT", "AH").with("cpi-in", "a001").with("cpi-out", "0002")),
            "transport AH + IPComp"
        );
        assert_eq!(carriage(&sa("TRANSPORT", "ESP").with("encap", "yes")), "transport ESP in UDP");
        let conn =
            Section::new().with("mode", "TUNNEL").with("protocols", ["ESP", "AH"]).with("ipcomp", "yes");
        assert_eq!(carriage(&conn), "tunnel ESP or AH + IPComp");
        assert_eq!(carriage(&Section::new().with("mode", "PASS")), "pass");
    }
}
