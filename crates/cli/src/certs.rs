//! `list certs` and `list pools`.

use ironswan_pki::{Certificate, Crl, Time};
use ironswan_wire::vici::Section;
use serde_json::{Value, json};

use crate::args::List;
use crate::failure::Failure;
use crate::json;
use crate::text::table;
use crate::vici::{Client, refusal};
use crate::view::get;

/// Certificates, then revocation lists and responses of OCSP. With a name those of this subject,
/// which may be a distinguished name with `*`.
pub(crate) fn certs(a: &List) -> Result<(), Failure> {
    let mut message = Section::new();
    if let Some(subject) = &a.name {
        message.put("subject", subject.as_str());
    }
    let mut all = Vec::new();
    let mut client = Client::connect(&a.daemon.vici)?;
    let answer = client
        .stream("list-certs", "list-cert", message, Some(std::time::Duration::ZERO), |s| all.push(s))?;
    if let Some(why) = refusal(&answer) {
        return Err(Failure::no(why));
    }
    if a.daemon.json {
        json::print("certs", json!({ "certificates": all.iter().map(object).collect::<Vec<_>>() }));
    } else if all.is_empty() {
        say!("no certificate is loaded");
    } else {
        say_text!("{}", text(&all));
    }
    match &a.name {
        Some(subject) if all.is_empty() => {
            Err(Failure::no(format!("{subject}: no certificate of that subject")))
        }
        _ => Ok(()),
    }
}

/// The kind of an item: that of a certificate says what it is used for.
fn kind(item: &Section) -> &str {
    match (get(item, "type"), item.get_str("flag"), item.get_str("has_privkey")) {
        ("X509", Some("CA"), _) => "authority",
        ("X509", _, Some("yes")) => "own",
        ("X509", ..) => "peer",
        ("X509_CRL", ..) => "list",
        ("OCSP_RESPONSE", ..) => "response",
        (other, ..) => other,
    }
}

/// Names and times of an item. The daemon sends DER alone, as charon does. A response of OCSP has
/// no name of its own.
#[derive(Default)]
struct Read {
    subject: Option<String>,
    issuer: Option<String>,
    from: Option<Time>,
    until: Option<Time>,
}

impl Read {
    fn of(item: &Section) -> Self {
        let der = item.get_bytes("data").unwrap_or_default();
        match get(item, "type") {
            "X509" => Certificate::from_der(der).map_or_else(
                |_| Self::default(),
                |c| Self {
                    subject: Some(c.subject().to_string()),
                    issuer: Some(c.issuer().to_string()),
                    from: Some(c.not_before()),
                    until: Some(c.not_after()),
                },
            ),
            "X509_CRL" => Crl::from_der(der).map_or_else(
                |_| Self::default(),
                |list| Self {
                    subject: None,
                    issuer: Some(list.issuer().to_string()),
                    from: Some(list.this_update()),
                    until: list.next_update(),
                },
            ),
            _ => Self::default(),
        }
    }
}

/// The name is the last column: a distinguished name has no bounds.
fn text(all: &[Section]) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|item| {
            let read = Read::of(item);
            let until = read.until.map_or_else(|| "-".to_owned(), |t| t.to_string());
            let name = read.subject.or(read.issuer).unwrap_or_else(|| "-".to_owned());
            vec![kind(item).to_owned(), until.trim_end_matches(" UTC").to_owned(), name]
        })
        .collect();
    table(&["KIND", "UNTIL (UTC)", "NAME"], &rows)
}

fn object(item: &Section) -> Value {
    let read = Read::of(item);
    let time = |t: Option<Time>| t.map(|t| t.to_string());
    let data: String =
        item.get_bytes("data").unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
    json!({ "kind": kind(item), "type": item.get_str("type"), "subject": read.subject, "issuer": read.issuer,
            "not_before": time(read.from), "not_after": time(read.until),
            "has_private_key": item.get_str("has_privkey") == Some("yes"), "der": data })
}

/// An empty table that says why it is empty.
pub(crate) fn pools(a: &List) -> Result<(), Failure> {
    let pools = Client::connect(&a.daemon.vici)?.request("get-pools", Section::new())?;
    let named: Vec<(String, Section)> = pools.sections().map(|(n, s)| (n.to_owned(), s.clone())).collect();
    let note = "pools of addresses are not built: a connection with `pools` or `vips` is refused";
    if a.daemon.json {
        json::print("pools", json!({ "pools": crate::view::objects(&named), "note": note }));
        return Ok(());
    }
    say_text!("{}", table(&["POOL", "BASE", "SIZE", "ONLINE", "OFFLINE"], &[]));
    say!("{note}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use ironswan_testkit::certificates::{LINK, Make, ROOT, list, root};

    use super::*;

    #[test]
    fn certificates_are_listed_by_use_with_their_end_and_lists_by_their_issuer() {
        let item = |kind: &str, der: &[u8]| Section::new().with("type", kind).with("data", der);
        let end = |name: &str, key| Make::end(name, key, "CN=link", LINK).make();
        let all = [
            item("X509", root().der()).with("flag", "CA"),
            item("X509", end("CN=gw", 7).der()).with("flag", "NONE").with("has_privkey", true),
            item("X509", end("CN=peer", 8).der()).with("flag", "NONE"),
            item("X509_CRL", list("CN=root", ROOT, &[7]).der()),
            item("OCSP_RESPONSE", &[0x30, 0x82]),
        ];
        let shown = text(&all);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let kinds: Vec<&str> = lines[1..].iter().map(|words| words[0]).collect();
        assert_eq!(kinds, ["authority", "own", "peer", "list", "response"]);
        assert_eq!((lines[2][3], lines[3][3], lines[5][1]), ("CN=gw", "CN=peer", "-"), "{shown}");
        assert!(lines[4][1].starts_with("2035-") && lines[4][3] == "CN=root", "{shown}");
        let own = object(&all[1]);
        assert_eq!((&own["kind"], &own["has_private_key"]), (&"own".into(), &true.into()));
        assert_eq!((&own["subject"], &own["issuer"]), (&"CN=gw".into(), &"CN=link".into()));
        assert_eq!(object(&all[4])["der"], "3082");
    }
}
