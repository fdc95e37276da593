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
        ("ns that forwarding is unsure by", model.forwarding.spread_ns, 0.0, 1e7),
        ("us that rekeying is unsure by", model.handshake.rekey_within_us.unwrap_or(0.0), 0.0, 1e8),
        ("us that a set-up is unsure by", model.tunnel.setup_within_us.unwrap_or(0.0), 0.0, 1e9),
        ("KiB of a gateway without tunnels", model.tunnel.base_kib, 0.0, 1e12),
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
        let waking = path.waking.map_or([0.0; 2], |w| [w.value, w.within]);
        checks.extend(waking.map(|ns| ("ns of a waking", ns, 0.0, 1e9)));
        let within = [(path.per_byte_within, 1e4), (path.per_change_within, 1e7)];
        checks.extend(within.map(|(ns, most)| ("ns that a path is unsure by", ns.unwrap_or(0.0), 0.0, most)));
        for point in path.packets.iter().chain(&path.merged) {
            checks.push(("packets a second", point.pps, 1.0, 1e9));
            // A fit of noisy loads may leave a base of nothing.
            checks.push(("ns for a packet's way", point.ns, 0.0, 1e9));
            checks.push(("packets in a call", point.burst, 1.0, 1e6));
            checks.push(("calls of a packet", point.calls, 0.0, 1e6));
            checks.push(("ns that a packet's way is unsure by", point.within.unwrap_or(0.0), 0.0, 1e9));
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
    for flows in &model.flows {
        checks.extend(
            [flows.added, flows.within].concat().into_iter().map(|ns| ("ns for many flows", ns, 0.0, 1e7)),
        );
    }
    for workers in &model.workers {
        checks.extend(workers.ns.map(|ns| ("ns of a packet by workers", ns, 0.0, 1e9)));
        checks.extend(workers.within.map(|ns| ("ns that workers are unsure by", ns, 0.0, 1e9)));
        checks.extend(workers.pps.map(|pps| ("packets a second by workers", pps, 0.0, 1e9)));
    }
    for sas in &model.many_sas {
        checks.extend([sas.added, sas.within.unwrap_or(0.0)].map(|ns| ("ns for many SAs", ns, 0.0, 1e7)));
    }
    for burst in &model.bursts {
        checks.extend(burst.shared.map(|n| ("packets of a burst in a call", n, 1.0, 1e6)));
        checks.extend(burst.ratio.map(|share| ("part of the base in bursts", share, 1e-6, 1.0)));
    }
    let wrong = checks.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
    wrong.map(|(what, value, least, most)| format!("{value} {what}, which is {least} to {most}"))
}

/// Costs that are so near are the same; reading a number may round it.
const SAME: f64 = 1e-6;

/// The first cost of a path that does not follow from the measurements in the same model; `None` in
/// a model as a calibration of this version writes it.
pub fn contradiction(model: &Model) -> Option<String> {
    // No interval is not one of nothing.
    let interval = |within: Option<f64>| within.unwrap_or(-1.0);
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs().max(b.abs()).max(1.0);
    for stored in &model.paths {
        let of = |what: &str| format!("{what} of path {} {}", stored.path.name(), stored.way.name());
        let Ok(fitted) = path_cost(stored.path, stored.way, &model.cells, &model.suites) else {
            return Some(of("no cost follows from them"));
        };
        let curve = |a: &[Point], b: &[Point]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| {
                    let alike = [(a.pps, b.pps), (a.ns, b.ns), (a.calls, b.calls), (a.burst, b.burst)];
                    let within = (interval(a.within), interval(b.within));
                    alike.into_iter().chain([within]).all(|(a, b)| same(a, b))
                })
        };
        let waking = |p: &PathCost| p.waking.map_or(0.0, |w| w.value);
        let within = |of: fn(&PathCost) -> Option<f64>| (interval(of(stored)), interval(of(&fitted)));
        let (bytes, changes) = (within(|p| p.per_byte_within), within(|p| p.per_change_within));
        let wakings = within(|p| p.waking.map(|w| w.within));
        let costs = [
            ("the cost of a byte", stored.per_byte, fitted.per_byte),
            ("the cost of a change of size", stored.per_change, fitted.per_change),
            ("the cost of a waking", waking(stored), waking(&fitted)),
            ("the error", stored.residual, fitted.residual),
            ("the interval of a byte", bytes.0, bytes.1),
            ("the interval of a change of size", changes.0, changes.1),
            ("the interval of a waking", wakings.0, wakings.1),
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
    use super::super::cost::{BurstShare, Estimate};
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
            (|m: &mut Model| m.paths[3].per_byte_within = Some(1e3), "the interval of a byte of path raw in"),
            (|m: &mut Model| m.paths[0].packets[0].within = Some(1e3), "the base of path udp out"),
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
    fn a_figure_that_no_machine_has_is_found_in_every_part() {
        assert_eq!(beyond_reason(&sample::model()), None);
        for (change, part) in [
            ((|m: &mut Model| m.machine.cpus = 0) as fn(&mut Model), "processors"),
            (|m: &mut Model| m.handshake.rekey_us = 0.0, "us to rekey"),
            (|m: &mut Model| m.handshake.rekey_within_us = Some(1e300), "us that rekeying is unsure by"),
            (|m: &mut Model| m.tunnel.base_kib = 1e300, "KiB of a gateway without tunnels"),
            (
                |m: &mut Model| m.paths[0].waking = Some(Estimate { value: 1e300, within: 0.0 }),
                "ns of a waking",
            ),
            (
                |m: &mut Model| m.paths[1].packets[0].within = Some(1e300),
                "ns that a packet's way is unsure by",
            ),
            (|m: &mut Model| m.paths[1].per_byte_within = Some(1e300), "ns that a path is unsure by"),
            (|m: &mut Model| m.paths[1].packets.reverse(), "in no order"),
            (|m: &mut Model| m.paths.truncate(3), "is there 0 times"),
            (|m: &mut Model| m.flows[0].within[1] = 1e300, "ns for many flows"),
            (|m: &mut Model| m.many_sas[0].within = Some(1e300), "ns for many SAs"),
            (
                |m: &mut Model| {
                    m.bursts = vec![BurstShare { at_once: 16, shared: [4.0, 0.0], ratio: [0.5; 2] }]
                },
                "packets of a burst in a call",
            ),
        ] {
            let mut bad = sample::model();
            change(&mut bad);
            let why = beyond_reason(&bad).unwrap_or_default();
            assert!(why.contains(part), "{part}: {why}");
        }
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
