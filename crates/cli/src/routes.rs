//! `route`, `unroute`: traps and shunts by command.

use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::Named;
use crate::failure::Failure;
use crate::json;
use crate::operate::children_named;
use crate::vici::{Client, refusal};

/// Installs the trap, or the shunt, of a child or of every child of a connection.
pub(crate) fn route(a: &Named) -> Result<(), Failure> {
    each(a, "route", "install", "is routed")
}

/// Removes them.
pub(crate) fn unroute(a: &Named) -> Result<(), Failure> {
    each(a, "unroute", "uninstall", "is not routed any more")
}

fn each(a: &Named, what: &'static str, command: &str, done: &str) -> Result<(), Failure> {
    let mut client = Client::connect(&a.daemon.vici)?;
    let conns = client.conns(None)?;
    let mut routed = Vec::new();
    let mut result = Ok(());
    for (conn, child) in children_named(&conns, &a.name, true)? {
        let message = Section::new().with("ike", conn.as_str()).with("child", child.as_str());
        let full = format!("{conn}/{child}");
        match refusal(&client.request(command, message)?) {
            None => routed.push(full),
            Some(why) => {
                result = Err(Failure::no(format!("{full}: {why}")));
                break;
            }
        }
    }
    if a.daemon.json {
        let error = result.as_ref().err().map(|f| f.lines.join("; "));
        json::print(
            what,
            json!({ "name": a.name, "success": result.is_ok(), "error": error, "children": routed }),
        );
    } else {
        routed.iter().for_each(|child| say!("{child} {done}"));
    }
    result
}
