//! `status NAME`: what keeps traffic of one connection from passing, and its SAs.

use ironswan_wire::vici::Section;

use crate::failure::Failure;
use crate::vici::Client;
use crate::view::{Named, carriage, count, get, joined, list, nat, seconds, suite};

/// The text of `status NAME`.
pub(crate) fn of_one(client: &mut Client, name: &str) -> Result<String, Failure> {
    let conns = client.conns(Some(name))?;
    let sas = client.sas(Some(name))?;
    let (down, machine) = client.troubles(Some(name))?;
    let troubles = Troubles { down: &down, machine: &machine };
    Ok(tunnels(&conns, &sas, &troubles).trim_start_matches('\n').to_owned())
}

/// `1 connection`, `2 connections`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Reasons why traffic does not pass, as `ironswan-troubles` answers.
struct Troubles<'a> {
    /// Tunnels that should be up and are not, by connection.
    down: &'a Named,
    /// `machine` and `links`.
    machine: &'a Section,
}

impl Troubles<'_> {
    /// Why the local address of an IKE_SA no longer works.
    fn link(&self, sa: &Section) -> Option<&str> {
        self.machine.section("links")?.get_str(sa.get_str("local-host")?)
    }

    /// What is known of a tunnel that is down: a child or, with `None`, an IKE_SA alone.
    fn of(&self, conn: &str, child: Option<&str>) -> Option<&Section> {
        self.down.iter().find(|(n, s)| n == conn && s.get_str("child") == child).map(|(_, s)| s)
    }

    /// ` for 12s: WHY (NAME); next try in 4s`. NAME is that of the reason in the manual.
    fn why(&self, conn: &str, child: Option<&str>) -> Option<String> {
        let s = self.of(conn, child)?;
        let name = s.get_str("name").map(|name| format!(" ({name})")).unwrap_or_default();
        let next = match get(s, "next") {
            "trying" => "; being tried now".to_owned(),
            "retry" => format!("; next try in {}", seconds(s, "next-try")),
            "packet" => "; next try with the next packet for it".to_owned(),
            _ => "; not tried again by itself".to_owned(),
        };
        Some(format!(" for {}: {}{name}{next}", seconds(s, "since"), get(s, "why")))
    }

    /// Lines with the data of the reason why a tunnel is down, and with what to do about it. Empty
    /// when there is nothing to say.
    fn remedy(&self, conn: &str, child: Option<&str>) -> String {
        let Some(s) = self.of(conn, child) else { return String::new() };
        let details: String = list(s, "details").iter().map(|line| format!("    {line}\n")).collect();
        let remedy = s.get_str("remedy").or_else(|| s.get_str("advice"));
        let remedy = remedy.map(|remedy| format!("    to do: {remedy}\n"));
        details + &remedy.unwrap_or_default()
    }
}

/// Lists what is in the way on this machine, then every connection: those with something down
/// first.
fn tunnels(conns: &Named, sas: &Named, troubles: &Troubles<'_>) -> String {
    let mut out = String::new();
    for line in list(troubles.machine, "machine") {
        out += &format!("\nin the way: {line}\n");
    }
    let bad = |name: &str| {
        troubles.down.iter().any(|(n, _)| n == name)
            || sas.iter().any(|(n, sa)| n == name && troubles.link(sa).is_some())
    };
    let (worse, better): (Vec<_>, Vec<_>) = conns.iter().partition(|(name, _)| bad(name));
    for (name, conn) in worse.into_iter().chain(better) {
        out += &one_status(name, conn, sas, troubles);
    }
    // SAs of connections that were unloaded live on until they are closed.
    for (name, sa) in sas.iter().filter(|(n, _)| !conns.iter().any(|(c, _)| c == n)) {
        out += &ike_line(name, sa, troubles);
    }
    out
}

fn one_status(name: &str, conn: &Section, sas: &Named, troubles: &Troubles<'_>) -> String {
    let mine: Vec<&(String, Section)> = sas.iter().filter(|(n, _)| n == name).collect();
    let mut out = String::new();
    if mine.is_empty() {
        let why = troubles.why(name, None).unwrap_or_default();
        let ends = format!("{} -> {}", joined(conn, "local_addrs"), joined(conn, "remote_addrs"));
        out += &format!("\n{name}: down{why}, {ends}\n");
        out += &troubles.remedy(name, None);
    }
    for (_, sa) in &mine {
        out += "\n";
        out += &ike_line(name, sa, troubles);
    }
    // Children that are configured and not up.
    let up: Vec<&str> = mine
        .iter()
        .filter_map(|(_, sa)| sa.section("child-sas"))
        .flat_map(|c| c.sections().map(|(_, s)| get(s, "name")))
        .collect();
    for (child, s) in conn.section("children").into_iter().flat_map(Section::sections) {
        if !up.contains(&child) {
            let state = match get(s, "mode") {
                "TUNNEL" | "TRANSPORT" => {
                    "down".to_owned() + &troubles.why(name, Some(child)).unwrap_or_default()
                }
                shunt => shunt.to_ascii_lowercase(),
            };
            out += &format!("  {child}: {state}, {} === {}\n", joined(s, "local-ts"), joined(s, "remote-ts"));
            out += &troubles.remedy(name, Some(child));
        }
    }
    out
}

fn ike_line(name: &str, sa: &Section, troubles: &Troubles<'_>) -> String {
    let link = troubles.link(sa).map(|why| format!(", but {why}")).unwrap_or_default();
    let mut out = format!(
        "{name}: {}{link} {}[{}] -> {}[{}]",
        get(sa, "state"),
        get(sa, "local-host"),
        get(sa, "local-id"),
        get(sa, "remote-host"),
        get(sa, "remote-id"),
    );
    // Before the proposals are agreed on there is no suite, and before both are authenticated no
    // age.
    let algorithms = Some(suite(sa)).filter(|s| !s.is_empty());
    let nat = nat(sa).map(str::to_owned);
    let age = sa.get_str("established").map(|_| format!("for {}", seconds(sa, "established")));
    let rekey = sa.get_str("rekey-time").map(|_| format!("rekeying in {}", seconds(sa, "rekey-time")));
    for part in [algorithms, nat, age, rekey].into_iter().flatten() {
        out += &format!(", {part}");
    }
    out.push('\n');
    for (_, c) in sa.section("child-sas").into_iter().flat_map(Section::sections) {
        out += &format!(
            "  {}: {} {} === {}, {} ({}), in {} B / {} packets, out {} B / {} packets, rekeying in {}\n",
            get(c, "name"),
            get(c, "state"),
            joined(c, "local-ts"),
            joined(c, "remote-ts"),
            carriage(c),
            suite(c),
            count(c, "bytes-in"),
            count(c, "packets-in"),
            count(c, "bytes-out"),
            count(c, "packets-out"),
            seconds(c, "rekey-time"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> Section {
        let child = Section::new()
            .with("mode", "TUNNEL")
            .with("local-ts", ["10.1.0.0/24"])
            .with("remote-ts", ["10.2.0.0/24"]);
        Section::new()
            .with("local_addrs", ["192.0.2.1"])
            .with("remote_addrs", ["192.0.2.2"])
            .with("children", Section::new().with("net", child.clone()).with("other", child))
    }

    fn sa() -> Section {
        let kid = Section::new()
            .with("name", "net")
            .with("state", "INSTALLED")
            .with("mode", "TUNNEL")
            .with("protocol", "ESP")
            .with("encap", "yes")
            .with("encr-alg", "AES_GCM_16")
            .with("encr-keysize", "128")
            .with("bytes-in", "1500")
            .with("packets-in", "2");
        Section::new()
            .with("state", "ESTABLISHED")
            .with("local-host", "192.0.2.1")
            .with("remote-host", "192.0.2.2")
            .with("remote-port", "4500")
            .with("nat-fake", "yes")
            .with("established", "75")
            .with("child-sas", Section::new().with("net-1", kid))
    }

    /// Text of `status` for one connection with these SAs and troubles.
    fn shown(sas: &Named, down: &Named, machine: Section) -> String {
        tunnels(&[("c".into(), conn())], sas, &Troubles { down, machine: &machine })
    }

    #[test]
    fn a_status_shows_what_is_up_and_what_is_not() {
        assert_eq!(
            shown(&[], &[], Section::new()),
            "\nc: down, 192.0.2.1 -> 192.0.2.2\n  net: down, 10.1.0.0/24 === 10.2.0.0/24\n  other: down, 10.1.0.0/24 === 10.2.0.0/24\n"
        );
        let text = shown(&[("c".into(), sa())], &[], Section::new());
        assert!(
            text.contains("c: ESTABLISHED 192.0.2.1[-] -> 192.0.2.2[-], UDP encapsulation forced, for 75s\n"),
            "{text}"
        );
        assert!(
            text.contains("net: INSTALLED")
                && text.contains("tunnel ESP in UDP (AES_GCM_16-128), in 1.5k B / 2 packets"),
            "{text}"
        );
        assert!(text.contains("  other: down, 10.1"), "{text}");
    }

    #[test]
    fn a_tunnel_that_should_be_up_says_since_when_why_and_what_is_done() {
        let why = |next: &str| {
            Section::new()
                .with("child", "net")
                .with("since", "12")
                .with("why", "peer not responding")
                .with("next", next)
        };
        let text = |s: Section| shown(&[], &[("c".into(), s)], Section::new());
        for (next, words) in [
            ("trying", "being tried now"),
            ("packet", "next try with the next packet for it"),
            ("nothing", "not tried again by itself"),
        ] {
            let got = text(why(next));
            assert!(
                got.contains(&format!("  net: down for 12s: peer not responding; {words}, 10.1")),
                "{got}"
            );
            assert!(got.contains("  other: down, 10.1"), "{got}");
        }
        let got = text(why("retry").with("next-try", "240"));
        assert!(got.contains("peer not responding; next try in 4m, "), "{got}");
        let got = text(why("nothing").with("name", "no-answer").with("remedy", "let UDP 500 through"));
        let line = "  net: down for 12s: peer not responding (no-answer); not tried again by itself, \
                    10.1.0.0/24 === 10.2.0.0/24\n    to do: let UDP 500 through\n  other: down";
        assert!(got.contains(line), "{got}");
    }

    #[test]
    fn what_is_in_the_way_comes_first_and_then_what_is_down() {
        let conns = [("a".to_owned(), conn()), ("b".to_owned(), conn()), ("c".to_owned(), conn())];
        let sas = [("b".to_owned(), sa())];
        let down = [("c".to_owned(), Section::new().with("child", "net").with("why", "no"))];
        let machine = Section::new()
            .with("machine", ["forwarding is off"])
            .with("links", Section::new().with("192.0.2.1", "the link wan is down"));
        let got = tunnels(&conns, &sas, &Troubles { down: &down, machine: &machine });
        assert!(got.starts_with("\nin the way: forwarding is off\n"), "{got}");
        let at = |text: &str| got.find(text).unwrap_or_else(|| panic!("{text}: {got}"));
        let b = at("\nb: ESTABLISHED, but the link wan is down 192.0.2.1");
        assert!(b < at("\nc: down") && at("\nc: down") < at("\na: down"), "{got}");
    }

    #[test]
    fn an_ike_sa_that_is_not_established_shows_no_suite_and_no_age() {
        let begun = Section::new()
            .with("state", "CONNECTING")
            .with("local-host", "192.0.2.1")
            .with("local-id", "a")
            .with("remote-host", "192.0.2.2")
            .with("remote-id", "%any");
        let got = shown(&[("c".into(), begun)], &[], Section::new());
        assert!(got.starts_with("\nc: CONNECTING 192.0.2.1[a] -> 192.0.2.2[%any]\n"), "{got}");
    }

    #[test]
    fn a_nat_is_named_where_there_is_one_only() {
        let with = |keys: &[&str], port: &str| {
            let s = keys.iter().fold(Section::new(), |s, k| s.with(*k, "yes"));
            nat(&s.with("remote-port", port))
        };
        assert_eq!(with(&[], "500"), None);
        assert_eq!(with(&["nat-fake"], "4500"), Some("UDP encapsulation forced"));
        // Both ends have `encap = yes`.
        assert_eq!(with(&["nat-fake", "nat-remote"], "4500"), Some("UDP encapsulation forced"));
        assert_eq!(with(&["nat-fake", "nat-remote"], "1024"), Some("peer behind a NAT"));
        assert_eq!(with(&["nat-remote"], "1024"), Some("peer behind a NAT"));
        let unclear = Some("peer behind a NAT, or it forces UDP encapsulation");
        assert_eq!(with(&["nat-remote"], "4500"), unclear);
        assert_eq!(with(&["nat-local", "nat-fake", "nat-remote"], "4500"), Some("behind a NAT"));
        assert_eq!(with(&["nat-local", "nat-remote"], "1024"), Some("NAT at both ends"));
    }
}
