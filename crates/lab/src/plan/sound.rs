//! Whether a model can be what it says: figures that a machine may have, costs that follow from the
//! model's own measurements, text that a terminal can show. Pure.

use serde_json::Value;

use super::model::{Model, PathCost, Point};
use super::paths::path_cost;

/// The first figure of a model that no machine has, whoever wrote it.
pub fn beyond_reason(model: &Model) -> Option<String> {
    let m = &model.machine;
    let mut checks = vec![
        ("processors", m.cpus as f64, 1.0, 65_536.0),
        ("MHz of the clock", m.mhz.unwrap_or(1e3), 10.0, 20_000.0),
        ("KiB of memory", m.memory_kib.unwrap_or(1 << 20) as f64, 1_024.0, 1e12),
        ("ns to forward a packet", model.forwarding.ns, 0.0, 1e7),
    ];
    // Rekeying, set-up and crypto alone are not measured of another system.
    let own = model.system.is_none();
    if own {
        checks.extend([
            ("us to rekey", model.handshake.rekey_us, 1.0, 1e8),
            ("us to set a tunnel up", model.tunnel.setup_us, 1.0, 1e9),
            ("KiB of a tunnel", model.tunnel.kib, 0.1, 1e6),
        ]);
    }
    for path in &model.paths {
        checks.push(("ns of a byte on a path", path.per_byte, 0.0, 1e4));
        checks.push(("ns of a change of size on a path", path.per_change, 0.0, 1e7));
        checks.push(("error of a path's fit", path.residual, 0.0, 1.0));
        for point in path.packets.iter().chain(&path.merged) {
            checks.push(("packets a second", point.pps, 1.0, 1e9));
            // A fit of noisy loads may leave a base of nothing.
            checks.push(("ns for a packet's way", point.ns, 0.0, 1e9));
            checks.push(("packets in a call", point.burst, 1.0, 1e6));
        }
        let rises = |curve: &[Point]| curve.windows(2).all(|w| w[0].pps <= w[1].pps);
        if !rises(&path.packets) || !rises(&path.merged) {
            return Some(format!(
                "the rates of path {} {} are in no order",
                path.path.name(),
                path.way.name()
            ));
        }
    }
    for way in super::model::Way::BOTH {
        for path in super::model::Path::BOTH {
            let found = model.paths.iter().filter(|p| p.path == path && p.way == way).count();
            // Another system may have UDP alone.
            let least = usize::from(own || path == super::model::Path::Udp);
            if !(least..=1).contains(&found) {
                return Some(format!("path {} {} is there {found} times", path.name(), way.name()));
            }
        }
    }
    for line in model.suites.iter().flat_map(|s| &s.bursts).flat_map(|b| [&b.seal, &b.open]) {
        let ns = line.per_packet + 1_400.0 * line.per_byte;
        checks.push(("ns of crypto for 1,400 bytes", ns, if own { 1.0 } else { 0.0 }, 1e8));
    }
    checks.extend(model.flows.iter().flat_map(|f| f.added).map(|ns| ("ns for many flows", ns, 0.0, 1e7)));
    checks.extend(
        model.workers.iter().flat_map(|w| w.ns).map(|ns| ("ns of a packet by workers", ns, 0.0, 1e9)),
    );
    checks.extend(model.many_sas.iter().map(|m| ("ns for many SAs", m.added, 0.0, 1e7)));
    let wrong = checks.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
    wrong.map(|(what, value, least, most)| format!("{value} {what}, which is {least} to {most}"))
}

/// Costs that are so near are the same; reading a number may round it.
const SAME: f64 = 1e-6;

/// The first cost of a path that does not follow from the measurements in the same model; `None` in
/// a model as a calibration of this version writes it.
pub fn contradiction(model: &Model) -> Option<String> {
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs().max(b.abs()).max(1.0);
    for stored in &model.paths {
        let of = |what: &str| format!("{what} of path {} {}", stored.path.name(), stored.way.name());
        let Ok(fitted) = path_cost(stored.path, stored.way, &model.cells, &model.suites) else {
            return Some(of("no cost follows from them"));
        };
        let curve = |a: &[Point], b: &[Point]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| {
                    same(a.pps, b.pps) && same(a.ns, b.ns) && same(a.calls, b.calls) && same(a.burst, b.burst)
                })
        };
        let waking = |p: &PathCost| p.waking.map_or(0.0, |w| w.value);
        let costs = [
            ("the cost of a byte", stored.per_byte, fitted.per_byte),
            ("the cost of a change of size", stored.per_change, fitted.per_change),
            ("the cost of a waking", waking(stored), waking(&fitted)),
            ("the error", stored.residual, fitted.residual),
        ];
        if let Some((what, ..)) = costs.iter().find(|(_, stored, fitted)| !same(*stored, *fitted)) {
            return Some(of(what));
        }
        if !curve(&stored.packets, &fitted.packets) || !curve(&stored.merged, &fitted.merged) {
            return Some(of("the base"));
        }
    }
    None
}

/// Longest text of a model, bytes.
const LONGEST: usize = 4_096;

/// The first text of a document, by its place, that a terminal would not show as it is: control
/// characters, a changed direction of writing, what is not seen, or too much of it.
pub fn unprintable(document: &Value) -> Option<String> {
    let hides = |c: char| {
        matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
    };
    let bad = |text: &str| text.len() > LONGEST || text.chars().any(|c| c.is_control() || hides(c));
    match document {
        Value::String(text) => bad(text).then(String::new),
        Value::Array(items) => {
            let found = items.iter().enumerate().find_map(|(n, item)| Some((n, unprintable(item)?)));
            found.map(|(n, rest)| format!("[{n}]{rest}"))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match bad(name) {
            true => Some(".?".into()),
            false => unprintable(value).map(|rest| format!(".{name}{rest}")),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::Mix;
    use super::super::model::{Cell, Path, Seen, Side, Way};
    use super::super::sample;
    use super::*;

    /// A model whose paths were fitted to its own cells.
    fn consistent() -> Model {
        let mut model = sample::model();
        let suite = model.suites[0].suite.clone();
        let rates = [Some(2_000.0), Some(20_000.0), None];
        let loads = [Mix::frames(64), Mix::frames(768), Mix::tcp()].into_iter();
        let all = loads.flat_map(|mix| rates.map(|offered| (mix.clone(), offered)));
        let cell = |(mix, offered): (Mix, Option<f64>), path| {
            let pps = offered.unwrap_or(90_000.0);
            let side = |more| Side {
                pps,
                ns: 2_000.0 + 4e7 / pps + 0.5 * mix.of_bytes() + more,
                calls: 1.0,
                burst: 2.0,
            };
            let seen = vec![Seen { out: side(0.0), into: side(700.0), ..sample::EMPTY }];
            Cell { suite: suite.clone(), path, mix, flows: None, burst: None, offered, alone: None, seen }
        };
        model.cells = Path::BOTH
            .into_iter()
            .flat_map(|path| all.clone().map(move |load| (load, path)))
            .map(|(load, path)| cell(load, path))
            .collect();
        for path in &mut model.paths {
            *path = path_cost(path.path, path.way, &model.cells, &model.suites).expect("a fit");
        }
        model
    }

    #[test]
    fn costs_that_do_not_follow_from_the_measurements_are_found() {
        let model = consistent();
        assert_eq!(contradiction(&model), None);
        let read: Model =
            serde_json::from_str(&serde_json::to_string(&model).expect("JSON")).expect("a model");
        assert_eq!(contradiction(&read), None);
        for (change, part) in [
            (
                (|m: &mut Model| m.paths[0].per_byte /= 2.0) as fn(&mut Model),
                "the cost of a byte of path udp out",
            ),
            (|m: &mut Model| m.paths[1].packets[2].ns *= 0.9, "the base of path udp in"),
            (|m: &mut Model| m.paths[3].residual = 0.4, "the error of path raw in"),
            (|m: &mut Model| m.paths[2].per_change = 9.0, "the cost of a change of size"),
            (|m: &mut Model| m.paths[2].merged.truncate(1), "the base of path raw out"),
            (|m: &mut Model| m.cells.iter_mut().for_each(|c| c.seen[0].out.ns *= 0.5), "path udp out"),
            (|m: &mut Model| m.cells.clear(), "no cost follows from them"),
        ] {
            let mut bad = model.clone();
            change(&mut bad);
            let why = contradiction(&bad).unwrap_or_default();
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(Way::BOTH.len() * Path::BOTH.len() == model.paths.len());
    }

    #[test]
    fn text_that_a_terminal_would_obey_is_found_with_its_place() {
        let of = |text: &str| unprintable(&serde_json::json!({ "machine": { "flags": ["aes", text] } }));
        assert_eq!(of("Xeon \u{b5}-arch"), None);
        for text in ["\u{1b}[2J", "a\nb", "\u{202e}txt", &"x".repeat(LONGEST + 1)] {
            assert_eq!(of(text).as_deref(), Some(".machine.flags[1]"), "{text:?}");
        }
        assert_eq!(unprintable(&serde_json::json!({ "a\u{7}": 1 })).as_deref(), Some(".?"));
    }
}
