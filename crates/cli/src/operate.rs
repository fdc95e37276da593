//! `up`, `down`, `rekey`.

use std::collections::BTreeSet;
use std::time::Duration;

use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::{Daemon, Operate, Rekey};
use crate::failure::Failure;
use crate::json;
use crate::vici::{Client, refusal};

/// An operation that was asked for, and its log.
struct Operation<'a> {
    /// Ours, for the JSON document.
    what: &'static str,
    /// VICI's.
    command: &'static str,
    name: &'a str,
    daemon: &'a Daemon,
    timeout: u32,
    log: Vec<String>,
}

impl Operation<'_> {
    /// Carries out one command and shows its log as it comes.
    fn run(&mut self, client: &mut Client, message: Section) -> Result<(), Failure> {
        let message = message.with("timeout", u64::from(self.timeout) * 1_000).with("loglevel", "1");
        let longer = (self.timeout > 0).then(|| Duration::from_secs(self.timeout.into()));
        let (quiet, log) = (self.daemon.json, &mut self.log);
        let answer = client.stream(self.command, "control-log", message, longer, |event| {
            let line = format!(
                "[{}] {}",
                event.get_str("group").unwrap_or("?"),
                event.get_str("msg").unwrap_or_default()
            );
            if !quiet {
                say!("{line}");
            }
            log.push(line);
        })?;
        match refusal(&answer) {
            None => Ok(()),
            // Nothing can be sent: this machine's routes or the configuration have to be mended
            // first.
            Some(why) if answer.get_str("unreachable") == Some("yes") => {
                Err(Failure::usage(format!("{}: {why}", self.name)))
            }
            Some(why) => Err(Failure::no(format!("{}: {why}", self.name))),
        }
    }

    /// The last line, or the JSON document.
    fn end(self, result: Result<(), Failure>, done: &str) -> Result<(), Failure> {
        if self.daemon.json {
            let error = result.as_ref().err().map(|f| f.lines.join("; "));
            json::print(
                self.what,
                json!({ "name": self.name, "success": result.is_ok(), "error": error, "log": self.log }),
            );
        } else if result.is_ok() {
            say!("{} {done}", self.name);
        }
        result
    }
}

fn begin<'a>(
    what: &'static str,
    command: &'static str,
    a: &'a Operate,
) -> Result<(Client, Operation<'a>), Failure> {
    let client = Client::connect(&a.daemon.vici)?;
    Ok((
        client,
        Operation { what, command, name: &a.name, daemon: &a.daemon, timeout: a.timeout, log: Vec::new() },
    ))
}

/// Brings a child up, or every child of a connection.
pub(crate) fn up(a: &Operate) -> Result<(), Failure> {
    let (mut client, mut op) = begin("up", "initiate", a)?;
    let conns = client.conns(None)?;
    let targets = children_named(&conns, &a.name, false)?;
    let mut result = Ok(());
    for (conn, child) in targets {
        result = op.run(&mut client, Section::new().with("ike", conn).with("child", child));
        if result.is_err() {
            break;
        }
    }
    op.end(result, "is up")
}

/// The children that a name means: `conn/child`, all of a connection, or the one child of that
/// name. With `shunts` also those to which no SA belongs.
pub(crate) fn children_named(
    conns: &[(String, Section)],
    name: &str,
    shunts: bool,
) -> Result<Vec<(String, String)>, Failure> {
    let all: Vec<(&str, &str, &str)> = conns
        .iter()
        .filter_map(|(conn, s)| s.section("children").map(|k| (conn, k)))
        .flat_map(|(conn, k)| {
            k.sections().map(move |(child, s)| (conn.as_str(), child, s.get_str("mode").unwrap_or("")))
        })
        .filter(|(_, _, mode)| shunts || !matches!(*mode, "PASS" | "DROP"))
        .collect();
    let pairs = |keep: &dyn Fn(&str, &str) -> bool| -> Vec<(String, String)> {
        all.iter()
            .filter(|(c, k, _)| keep(c, k))
            .map(|(c, k, _)| ((*c).to_owned(), (*k).to_owned()))
            .collect()
    };
    if let Some((conn, child)) = name.split_once('/') {
        let found = pairs(&|c, k| c == conn && k == child);
        return if found.is_empty() { Err(unknown(conns, name)) } else { Ok(found) };
    }
    if conns.iter().any(|(c, _)| c == name) {
        let found = pairs(&|c, _| c == name);
        return if found.is_empty() {
            Err(Failure::no(format!("{name}: has no child for that")))
        } else {
            Ok(found)
        };
    }
    let found = pairs(&|_, k| k == name);
    match found.len() {
        0 => Err(unknown(conns, name)),
        1 => Ok(found),
        _ => {
            let where_: Vec<String> = found.iter().map(|(c, k)| format!("{c}/{k}")).collect();
            Err(Failure::usage(format!(
                "{name}: several connections have such a child; say one of {}",
                where_.join(", ")
            )))
        }
    }
}

fn unknown(conns: &[(String, Section)], name: &str) -> Failure {
    let known: Vec<&str> = conns.iter().map(|(c, _)| c.as_str()).take(20).collect();
    let hint = if known.is_empty() {
        "none is loaded".to_owned()
    } else {
        format!("loaded are {}", known.join(", "))
    };
    Failure::usage(format!("{name}: there is no connection and no child of that name; {hint}"))
}

/// Takes a connection down, or else a child.
pub(crate) fn down(a: &Operate) -> Result<(), Failure> {
    let (mut client, mut op) = begin("down", "terminate", a)?;
    let sas = client.sas(None)?;
    let message = match a.name.split_once('/') {
        Some((conn, child)) => Section::new().with("ike", conn).with("child", child),
        None if sas.iter().any(|(conn, _)| *conn == a.name) => Section::new().with("ike", a.name.as_str()),
        None => Section::new().with("child", a.name.as_str()),
    };
    let result = op.run(&mut client, message);
    op.end(result, "is down")
}

/// Rekeys CHILD_SAs, or the IKE_SA.
pub(crate) fn rekey(a: &Rekey) -> Result<(), Failure> {
    let (mut client, mut op) = begin("rekey", "rekey", &a.operate)?;
    let name = a.operate.name.as_str();
    let messages = match name.split_once('/') {
        Some((conn, child)) => vec![Section::new().with("ike", conn).with("child", child)],
        None if a.ike => vec![Section::new().with("ike", name)],
        None => children_up(&client.sas(None)?, name),
    };
    let result = messages.into_iter().try_for_each(|message| op.run(&mut client, message));
    op.end(result, "is rekeyed")
}

/// What names CHILD_SAs to rekey: those of this name, or where there are none, all of the
/// connection of this name.
fn children_up(sas: &[(String, Section)], name: &str) -> Vec<Section> {
    let children = |conn: Option<&str>| -> BTreeSet<&str> {
        sas.iter()
            .filter(|(of, _)| conn.is_none_or(|conn| conn == of))
            .filter_map(|(_, sa)| sa.section("child-sas"))
            .flat_map(|children| children.sections().filter_map(|(_, child)| child.get_str("name")))
            .collect()
    };
    let of_connection = children(Some(name));
    if children(None).contains(name) || of_connection.is_empty() {
        return vec![Section::new().with("child", name)];
    }
    of_connection.into_iter().map(|child| Section::new().with("ike", name).with("child", child)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conns() -> Vec<(String, Section)> {
        let kid = |mode: &str| Section::new().with("mode", mode);
        let conn = |kids: Section| Section::new().with("children", kids);
        vec![
            (
                "a".into(),
                conn(Section::new().with("x", kid("TUNNEL")).with("y", kid("TUNNEL")).with("z", kid("PASS"))),
            ),
            ("b".into(), conn(Section::new().with("x", kid("TUNNEL")).with("w", kid("TUNNEL")))),
            ("c".into(), conn(Section::new())),
        ]
    }

    #[test]
    fn a_name_is_a_connection_or_a_child_and_never_a_guess() {
        let named = |n: &str| {
            children_named(&conns(), n, false)
                .map(|v| v.into_iter().map(|(c, k)| c + "/" + &k).collect::<Vec<_>>())
        };
        assert_eq!(named("a").unwrap(), ["a/x", "a/y"]);
        assert_eq!(named("w").unwrap(), ["b/w"]);
        assert_eq!(named("b/x").unwrap(), ["b/x"]);
        assert_eq!(
            named("x").unwrap_err().lines,
            ["x: several connections have such a child; say one of a/x, b/x"]
        );
        assert_eq!(named("z").unwrap_err().status, 2);
        assert_eq!(named("c").unwrap_err().status, 1);
        assert!(named("nope").unwrap_err().lines[0].contains("loaded are a, b, c"));
        // A shunt can be routed.
        let all = children_named(&conns(), "a", true).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(children_named(&conns(), "z", true).unwrap(), [("a".to_owned(), "z".to_owned())]);
    }
    #[test]
    fn a_rekeying_is_of_the_children_of_that_name_or_of_the_connection() {
        let child = |name: &str| Section::new().with("name", name);
        let sa = |children: Section| Section::new().with("child-sas", children);
        let sas = vec![
            (
                "a".to_owned(),
                sa(Section::new().with("x-1", child("x")).with("x-3", child("x")).with("y-2", child("y"))),
            ),
            ("b".to_owned(), sa(Section::new().with("a-4", child("w")))),
            ("c".to_owned(), sa(Section::new())),
        ];
        let of = |name: &str| -> Vec<(String, String)> {
            let text = |s: &Section, key: &str| s.get_str(key).unwrap_or_default().to_owned();
            children_up(&sas, name).iter().map(|s| (text(s, "ike"), text(s, "child"))).collect()
        };
        let pair = |conn: &str, child: &str| (conn.to_owned(), child.to_owned());
        assert_eq!(of("a"), [pair("a", "x"), pair("a", "y")]);
        assert_eq!(of("w"), [pair("", "w")]);
        // The daemon says that there is none.
        assert_eq!((of("c"), of("d")), (vec![pair("", "c")], vec![pair("", "d")]));
    }
}
