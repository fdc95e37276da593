//! `list algs`: the engines, what the self-test at start measured, and what packets are given to.

use ironswan_wire::vici::Section;

use crate::args::List;
use crate::failure::Failure;
use crate::json;
use crate::text::table;
use crate::vici::Client;

/// The table.
pub(crate) fn algs(a: &List) -> Result<(), Failure> {
    let all = Client::connect(&a.daemon.vici)?.request("ironswan-engines", Section::new())?;
    if a.daemon.json {
        json::print("algs", json::numbers(&all));
    } else {
        say_text!("{}", text(&all, a.name.as_deref()));
    }
    Ok(())
}

/// One line a suite and size: seal / open in nanoseconds per packet by each engine, in batches of
/// 32, and the one that is used. With a name, only suites that contain it.
fn text(all: &Section, only: Option<&str>) -> String {
    let nothing = Section::new();
    let engines = all.section("engines").unwrap_or(&nothing);
    let mut out = String::new();
    let mut names = Vec::new();
    for (name, value) in engines.iter() {
        let state = engines.get_str(name).unwrap_or_default();
        debug_assert!(!matches!(value, ironswan_wire::vici::Value::Section(_)));
        if state == "available" {
            names.push(name);
        } else {
            out += &format!("{name}: {state}\n");
        }
    }
    let head: Vec<&str> = ["suite", "bytes", "engine"].into_iter().chain(names.iter().copied()).collect();
    let rows: Vec<Vec<String>> = all
        .section("suites")
        .unwrap_or(&nothing)
        .sections()
        .filter(|(name, _)| only.is_none_or(|only| name.contains(only)))
        .map(|(_, s)| {
            let get = |key| s.get_str(key).unwrap_or("-").to_owned();
            let fallen =
                if s.get_str("falls-back") == Some("yes") { " (the forced one lacks it)" } else { "" };
            let mut row = vec![get("suite"), get("size"), get("engine") + fallen];
            row.extend(names.iter().map(|name| match s.section(name) {
                Some(t) => format!(
                    "{} / {}",
                    t.get_str("seal-ns").unwrap_or("-"),
                    t.get_str("open-ns").unwrap_or("-")
                ),
                None => "-".to_owned(),
            }));
            row
        })
        .collect();
    out + &table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_engine_and_names_the_one_in_use() {
        let times = |seal: &str, open: &str| Section::new().with("seal-ns", seal).with("open-ns", open);
        let gcm = Section::new()
            .with("suite", "aes128gcm16")
            .with("size", "64")
            .with("engine", "vaes")
            .with("falls-back", false)
            .with("aws-lc", times("80", "82"))
            .with("vaes", times("50", "51"));
        let chacha = Section::new()
            .with("suite", "chacha20poly1305")
            .with("size", "64")
            .with("engine", "aws-lc")
            .with("falls-back", true)
            .with("aws-lc", times("170", "171"));
        let all = Section::new()
            .with(
                "engines",
                Section::new()
                    .with("aws-lc", "available")
                    .with("vaes", "available")
                    .with("ipsec-mb", "not built in"),
            )
            .with("suites", Section::new().with("aes128gcm16-64", gcm).with("chacha20poly1305-64", chacha));
        let lines = "ipsec-mb: not built in\n\
             suite             bytes  engine                            aws-lc     vaes\n\
             aes128gcm16       64     vaes                              80 / 82    50 / 51\n\
             chacha20poly1305  64     aws-lc (the forced one lacks it)  170 / 171  -\n";
        assert_eq!(text(&all, None), lines);
        assert_eq!(text(&all, Some("chacha")).lines().count(), 3);
    }
}
