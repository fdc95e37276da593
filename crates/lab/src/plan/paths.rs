//! From measured loads to the costs of a path: a base for each rate, what a byte and a change of
//! size cost, and what a call or waking is of the base. Each has an interval, and what the fit
//! cannot tell from the base is left out of the model. Pure.

use super::cost::Estimate;
use super::fit;
use super::gathering::{Gathering, Load};
use super::model::{Cell, Model, Path, PathCost, Point, Way};
use super::price::Traffic;
use super::suite::SuiteCost;
use crate::error::LabError;
use crate::stats;

/// Costs of one path and direction from its cells.
pub fn path_cost(path: Path, way: Way, cells: &[Cell], suites: &[SuiteCost]) -> Result<PathCost, LabError> {
    let lacking =
        |what: &str| LabError::Measurement(format!("path {}, direction {}: {what}", path.name(), way.name()));
    let own: Vec<&Cell> = cells.iter().filter(|c| c.path == path && c.is_of(way)).collect();
    let mut levels: Vec<Level<'_>> = Vec::new();
    for cell in &own {
        match levels.iter_mut().find(|l| l.holds(cell)) {
            Some(level) => level.0.push(cell),
            None => levels.push(Level(vec![cell])),
        }
    }
    let (mut rows, mut y, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for cell in &own {
        let suite = suites.iter().find(|s| s.suite == cell.suite);
        let suite = suite.ok_or_else(|| lacking(&format!("{} was not measured alone", cell.suite)))?;
        let side = cell.median(way).ok_or_else(|| lacking("a load has no repeats"))?;
        // Crypto is known, in bursts as this load had them: what is left is the path's.
        let ns = side.ns - suite.of_mix(way, &cell.mix, side.burst);
        let mut row: Vec<f64> = levels.iter().map(|l| f64::from(l.holds(cell))).collect();
        let point = Point { pps: side.pps, ns, calls: side.calls, burst: side.burst, within: None };
        row.extend([cell.mix.of_bytes(), cell.mix.change * point.gathered()]);
        // A load whose packets never reached the gateway, or cost less than crypto alone, is a
        // disturbed one.
        if side.pps > 0.0 && ns > 0.0 {
            rows.push(row);
            y.push(ns);
            if cell.offered.is_none() && !cell.mix.merged {
                ends.push((
                    *cell,
                    Load { suite: &suite.suite, crypto: suite.of_mix(way, &cell.mix, 1.0), seen: point },
                ));
            }
        }
    }
    let Fit { costs, within } = Fit::told(&mut rows, &y, levels.len())
        .filter(|_| rows.len() * 2 > own.len())
        .ok_or_else(|| lacking("the loads have no fit; measure again when the machine is quiet"))?;
    let residual = missed(&rows, &y, &costs).sqrt();
    let curve = |merged: bool| -> Option<Vec<Point>> {
        let own = levels.iter().zip(costs.iter().zip(&within)).filter(|(l, _)| l.merged() == merged);
        let points: Option<Vec<(bool, Point)>> = own
            .map(|(level, (ns, within))| Some((level.saturates(), level.point(way, *ns, *within)?)))
            .collect();
        points.map(in_order)
    };
    let [packets, merged] = [false, true].map(curve);
    let found = packets.zip(merged).ok_or_else(|| lacking("a load has no repeats"))?;
    let last = |n: usize| (costs.get(costs.len() - n).copied().unwrap_or(0.0), within[within.len() - n]);
    let [(per_byte, of_byte), (per_change, of_change)] = [2, 1].map(last);
    for (cell, load) in &mut ends {
        let beside = per_byte * cell.mix.of_bytes() + per_change * cell.mix.change * load.seen.gathered();
        load.seen.ns -= beside;
    }
    let ends: Vec<Load<'_>> = ends.into_iter().map(|(_, load)| load).collect();
    Ok(PathCost {
        path,
        way,
        per_byte,
        per_change,
        per_byte_within: of_byte.filter(|_| per_byte > 0.0),
        per_change_within: of_change.filter(|_| per_change > 0.0),
        waking: waking(&found.0),
        packets: found.0,
        merged: found.1,
        gathering: Gathering::of(&ends),
        residual,
        cells: rows.len(),
    })
}

/// Costs by their columns, and how surely each is known.
struct Fit {
    costs: Vec<f64>,
    within: Vec<Option<f64>>,
}

impl Fit {
    /// Fits the costs. From column `optional` on, the last first, a cost whose interval reaches to
    /// nothing is left out: its column is emptied, and the others have what it was.
    fn told(rows: &mut [Vec<f64>], y: &[f64], optional: usize) -> Option<Self> {
        let columns = rows.first()?.len();
        loop {
            let costs = fit::robust(rows, y)?;
            let within = fit::errors(rows, y, &costs);
            let told = |n: usize| {
                let estimate = within[n].map(|within| Estimate { value: costs[n], within });
                costs[n] == 0.0 || estimate.and_then(Estimate::told).is_some()
            };
            // Another one may take the part of the one that is left out: all are judged again.
            match (optional..columns).rev().find(|n| !told(*n)) {
                None => return Some(Self { costs, within }),
                Some(untold) => rows.iter_mut().for_each(|row| row[untold] = 0.0),
            }
        }
    }
}

/// Differences of calls for a packet below this do not tell what a call costs.
const CALLS_APART: f64 = 0.2;

/// Time of one call or waking: the difference between a packet by itself and one of a full batch,
/// by that of their calls. `None` where the ends of the curve cannot be told apart.
fn waking(curve: &[Point]) -> Option<Estimate> {
    let (lone, full) = (curve.first()?, curve.last()?);
    let calls = lone.calls - full.calls;
    let within = lone.within?.hypot(full.within?) / calls;
    let value = (lone.ns - full.ns) / calls;
    Some(Estimate { value, within }).filter(|_| calls > CALLS_APART).and_then(Estimate::told)
}

/// Cells of one offered rate.
struct Level<'a>(Vec<&'a Cell>);

impl Level<'_> {
    fn holds(&self, cell: &Cell) -> bool {
        self.0.first().is_some_and(|c| c.offered == cell.offered && c.mix.merged == cell.mix.merged)
    }

    fn merged(&self) -> bool {
        self.0.first().is_some_and(|c| c.mix.merged)
    }

    /// The highest rate.
    fn saturates(&self) -> bool {
        self.0.first().is_some_and(|c| c.offered.is_none())
    }

    /// At the rate that the gateway handled in the middle of them.
    fn point(&self, way: Way, ns: f64, within: Option<f64>) -> Option<Point> {
        let sides: Option<Vec<_>> = self.0.iter().map(|c| c.median(way)).collect();
        let sides = sides?;
        let median =
            |of: fn(&super::model::Side) -> f64| stats::median(&sides.iter().map(of).collect::<Vec<_>>());
        let (calls, burst) = (median(|s| s.calls)?, median(|s| s.burst)?);
        Some(Point { pps: median(|s| s.pps)?, ns, calls, burst, within })
    }
}

/// In the order of their rates. The highest is the end, also where heavy loads made it a lower rate
/// than light ones went at: packets gather since the gateway is full, not since they are many.
fn in_order(mut points: Vec<(bool, Point)>) -> Vec<Point> {
    points.retain(|(_, p)| p.pps > 0.0);
    points.sort_by(|(a_full, a), (b_full, b)| a_full.cmp(b_full).then(a.pps.total_cmp(&b.pps)));
    let most = points.iter().map(|(_, p)| p.pps).fold(0.0, f64::max);
    points.into_iter().map(|(full, p)| if full { Point { pps: most, ..p } } else { p }).collect()
}

/// Mean square of the relative error.
fn missed(rows: &[Vec<f64>], y: &[f64], x: &[f64]) -> f64 {
    let error =
        |(row, y): (&Vec<f64>, &f64)| (row.iter().zip(x).map(|(r, x)| r * x).sum::<f64>() / y - 1.0).powi(2);
    rows.iter().zip(y).map(error).sum::<f64>() / rows.len().max(1) as f64
}

impl Model {
    /// Predicted cost of a packet of a cell in one direction at the rate that its gateway handled,
    /// or at the end of the curve where that was the highest: packets a second, nanoseconds.
    pub fn predicts(&self, cell: &Cell, way: Way) -> Result<(f64, f64), LabError> {
        let suite = self.suite(&cell.suite)?;
        let pps = cell.median(way).map_or(0.0, |s| s.pps);
        let at = if cell.offered.is_some() { pps } else { f64::INFINITY };
        let load = Traffic {
            mix: &cell.mix,
            pps: at,
            sas: 1.0,
            flows: cell.flows,
            burst: f64::from(cell.burst.unwrap_or(1)),
        };
        Ok((pps, self.price(suite, cell.path, way, load)?.cost.total()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::{LARGEST, Mix};
    use super::super::model::{ALONE, Seen, Side};
    use super::super::sample;
    use super::super::suite::{BURSTS, Burst, Linear};
    use super::*;

    /// A machine whose costs are known: nanoseconds and calls of a packet at a rate, beside crypto
    /// and what is below.
    type Base = fn(f64) -> (f64, f64);

    const PER_BYTE: f64 = 0.3;
    const PER_CHANGE: f64 = 2_000.0;
    /// Rate that the pretended line carries when it is full.
    const MOST: f64 = 120_000.0;

    /// A suite whose engine gets eight packets at least and works on sixteen side by side. Mean
    /// burst as it is: bursts of the two sizes next to it.
    const LANES: &str = "aes128-sha256";

    fn side_by_side(text: f64, burst: f64) -> f64 {
        let call = |packets: f64| match packets {
            n if n < 8.0 => n * (150.0 + 1.2 * text),
            n => (n / 16.0).ceil() * (400.0 + 4.5 * text) + n * (100.0 + 0.1 * text),
        };
        let (low, part) = (burst.floor(), burst.fract());
        (call(low) * (1.0 - part) + call(low + 1.0) * part) / burst
    }

    /// The sample's model, with that suite as it would be measured alone, for its second.
    fn with_lanes() -> Model {
        let mut model = sample::model();
        let line = |packets: u32| {
            let [empty, full] = [0.0, 1_000.0].map(|text| side_by_side(text, f64::from(packets)));
            Linear { per_packet: empty, per_byte: (full - empty) / 1_000.0, residual: 0.0 }
        };
        model.suites[1].suite = LANES.into();
        model.suites[1].bursts =
            BURSTS.map(|packets| Burst { packets, seal: line(packets), open: line(packets) });
        model
    }

    /// Measurement that such a machine would show of a load.
    fn cell(base: Base, suite: &SuiteCost, mix: Mix, offered: Option<f64>) -> Cell {
        let pps = offered.unwrap_or(MOST);
        let side = |way| -> Side {
            let (ns, calls) = base(pps);
            let burst = ALONE / calls;
            let change = PER_CHANGE * mix.change * Point { pps, ns, calls, burst, within: None }.gathered();
            let crypto = if suite.suite == LANES {
                let text = mix.parts.iter().map(|p| p.share * suite.text(p.bytes())).sum::<f64>();
                side_by_side(text, burst)
            } else {
                suite.of_mix(way, &mix, burst)
            };
            Side { pps, ns: ns + change + PER_BYTE * mix.of_bytes() + crypto, calls, burst }
        };
        let seen = vec![Seen { out: side(Way::Out), into: side(Way::In), ..sample::EMPTY }];
        Cell {
            suite: suite.suite.clone(),
            path: Path::Udp,
            mix,
            flows: None,
            burst: None,
            offered,
            alone: None,
            seen,
        }
    }

    /// Cells of a calibration, at its rates.
    fn cells(base: Base, suites: &[SuiteCost]) -> Vec<Cell> {
        let mixes =
            [64, 256, 768, LARGEST].map(Mix::frames).into_iter().chain([Mix::rows("rows", [64, 256, 768])]);
        let mut cells = Vec::new();
        for mix in mixes.chain([Mix::tcp()]) {
            for suite in suites {
                for offered in [Some(2_000.0), Some(8_000.0), Some(25_000.0), Some(60_000.0), None] {
                    cells.push(cell(base, suite, mix.clone(), offered));
                }
            }
        }
        cells
    }

    /// A model calibrated on it.
    fn calibrated(base: Base) -> Model {
        let mut model = sample::model();
        let cells = cells(base, &model.suites);
        for way in Way::BOTH {
            let cost = path_cost(Path::Udp, way, &cells, &model.suites).expect("a fit");
            assert!(cost.residual < 0.01, "{cost:?}");
            assert!((cost.per_byte / PER_BYTE - 1.0).abs() < 0.01, "{cost:?}");
            // A gateway on which no packets gather shows nothing of it.
            let gather = cost.packets.iter().any(|p| p.gathered() > 0.0);
            let known = if gather { PER_CHANGE } else { 0.0 };
            assert!((cost.per_change - known).abs() < 0.01 * PER_CHANGE, "{cost:?}");
            put(&mut model, cost);
        }
        model
    }

    fn put(model: &mut Model, cost: PathCost) {
        let place = model.paths.iter_mut().find(|p| p.path == cost.path && p.way == cost.way);
        *place.expect("a path") = cost;
    }

    /// The largest error at what was kept back from calibrating.
    fn worst(base: Base) -> f64 {
        let model = calibrated(base);
        let mixes = [Mix::frames(390), Mix::frames(1280), Mix::imix(), Mix::tcp()];
        worst_of(base, &model, &model.suites[1], &mixes)
    }

    fn worst_of(base: Base, model: &Model, suite: &SuiteCost, mixes: &[Mix]) -> f64 {
        let mut worst = 0.0f64;
        for mix in mixes {
            for offered in [Some(4_000.0), Some(15_000.0), Some(40_000.0), Some(90_000.0), None] {
                let kept = cell(base, suite, mix.clone(), offered);
                for way in Way::BOTH {
                    let (_, ns) = model.predicts(&kept, way).expect("a prediction");
                    worst = worst.max((ns / kept.median(way).expect("seen").ns - 1.0).abs());
                }
            }
        }
        worst
    }

    #[test]
    fn a_machine_on_which_every_packet_costs_the_same_is_predicted_exactly() {
        assert!(worst(|_| (3_000.0, 2.0)) < 0.01);
    }

    #[test]
    fn a_machine_that_finds_the_more_packets_at_once_the_more_come_is_predicted_within_a_tenth() {
        // 24 us a waking, which finds what came within 100 us.
        let error = worst(|pps| (2_000.0 + 24_000.0 / (1.0 + pps * 1e-4), 2.0 / (1.0 + pps * 1e-4)));
        assert!(error < 0.10, "{error}");
    }

    #[test]
    fn a_machine_whose_wakings_saturate_is_predicted_within_a_fifth() {
        // Every packet wakes the gateway, up to 10,000 a second: the curve has a corner between two
        // calibrated rates.
        let error =
            worst(|pps| (2_000.0 + 25_000.0 * (10_000.0 / pps).min(1.0), 2.0 * (10_000.0 / pps).min(1.0)));
        assert!(error < 0.20, "{error}");
    }

    #[test]
    fn a_suite_that_costs_less_the_more_packets_share_a_call_is_predicted_at_every_rate() {
        let base: Base = |pps| (1_000.0, ALONE / (1.0 + pps * 1e-4));
        let known = with_lanes();
        let cells: Vec<Cell> =
            cells(base, &known.suites).into_iter().filter(|c| c.mix.change == 0.0).collect();
        let error = |suites: Vec<SuiteCost>| {
            let mut model = Model { suites, ..sample::model() };
            for way in Way::BOTH {
                let cost = path_cost(Path::Udp, way, &cells, &model.suites).expect("a fit");
                put(&mut model, cost);
            }
            worst_of(base, &model, &known.suites[1], &[Mix::frames(390), Mix::frames(1280)])
        };
        let burst = error(known.suites.clone());
        // As if all bursts were full.
        let full = known.suites.iter().map(|s| SuiteCost {
            bursts: BURSTS.map(|packets| Burst { packets, ..s.bursts[BURSTS.len() - 1] }),
            ..s.clone()
        });
        let ignored = error(full.collect());
        assert!(burst < 0.05 && ignored > 0.12, "{burst} {ignored}");
    }

    #[test]
    fn all_that_goes_is_the_end_of_the_curve_whatever_its_rate() {
        let point = |pps, ns| Point { pps, ns, calls: 1.0, burst: 2.0, within: None };
        let curve = in_order(vec![
            (true, point(53_000.0, 7_000.0)),
            (false, point(55_000.0, 9_000.0)),
            (false, point(2_000.0, 30_000.0)),
        ]);
        let at = |pps| Point::at(&curve, pps).expect("a point").ns;
        assert_eq!(
            (at(2_000.0), at(55_000.0), at(55_001.0), at(f64::INFINITY)),
            (30_000.0, 9_000.0, 7_000.0, 7_000.0)
        );
        assert!(at(54_000.0) > 9_000.0);
    }

    #[test]
    fn loads_that_cost_less_than_their_crypto_are_left_out_and_too_few_are_an_error() {
        let known = sample::model();
        let suite = &known.suites[0];
        let mut cells: Vec<Cell> = [64, 256, 768, 1024]
            .map(|f| cell(|_| (3_000.0, 2.0), suite, Mix::frames(f), Some(2_000.0)))
            .into();
        cells[0].seen[0].out.ns = 1.0;
        let cost = path_cost(Path::Udp, Way::Out, &cells, &known.suites).expect("three are left");
        assert!(cost.cells == 3 && (cost.packets[0].ns - 3_000.0).abs() < 1.0, "{cost:?}");
        cells[1].seen[0].out.pps = 0.0;
        cells[2].seen[0].out.pps = 0.0;
        let e = path_cost(Path::Udp, Way::Out, &cells, &known.suites).expect_err("one is left");
        assert!(e.to_string().contains("quiet"), "{e}");
    }

    /// A base of 1,200 ns and 3,000 for each of so many calls.
    const WAKES: Base = |pps| {
        let calls = ALONE / (1.0 + pps * 1e-4);
        (1_200.0 + 3_000.0 * calls, calls)
    };

    #[test]
    fn a_waking_is_what_a_packet_by_itself_costs_more_than_one_of_a_full_batch() {
        let model = calibrated(WAKES);
        for way in Way::BOTH {
            let waking = model.path(Path::Udp, way).expect("a path").waking.expect("told");
            assert!((waking.value / 3_000.0 - 1.0).abs() < 0.02, "{waking:?}");
        }
        // Every packet by itself at every rate: nothing tells what a call is.
        let model = calibrated(|_| (3_000.0, 2.0));
        assert!(model.paths.iter().take(2).all(|p| p.waking.is_none()));
    }

    #[test]
    fn a_cost_that_noise_hides_is_left_out_and_the_base_has_it() {
        let known = sample::model();
        let noisy = |size: f64| {
            let mut cells = cells(WAKES, &known.suites);
            for (n, cell) in cells.iter_mut().enumerate() {
                // Up and down in no order, and the same every time.
                let off = 1.0 + size * (((n * 7919 + 13) % 17) as f64 / 8.0 - 1.0);
                cell.seen.iter_mut().for_each(|s| s.out.ns *= off);
            }
            path_cost(Path::Udp, Way::Out, &cells, &known.suites).expect("a fit")
        };
        let (calm, wild) = (noisy(0.01), noisy(0.6));
        let byte = calm.per_byte_within.expect("an interval");
        assert!((calm.per_byte - PER_BYTE).abs() < 2.0 * byte && byte < PER_BYTE, "{calm:?}");
        assert!(calm.packets.iter().all(|p| p.within.is_some_and(|w| w > 0.0)), "{calm:?}");
        assert!((wild.per_change, wild.per_change_within) == (0.0, None), "{wild:?}");
        assert!(wild.per_byte_within.is_none_or(|w| w < wild.per_byte) && wild.waking.is_none(), "{wild:?}");
        assert!(wild.packets[0].within > calm.packets[0].within, "{wild:?}");
    }

    #[test]
    fn a_cost_that_one_load_alone_says_is_left_out_whatever_the_others_are() {
        let known = sample::model();
        let (suite, merged) = (&known.suites[0], Mix::tcp());
        let mut cells: Vec<Cell> = [
            (Mix::frames(64), Some(2_000.0)),
            (Mix::rows("rows", [64, 256, 768]), None),
            (merged, Some(8_000.0)),
        ]
        .map(|(mix, offered)| cell(WAKES, suite, mix, offered))
        .into();
        cells[1].seen[0].out.ns += 9_000.0;
        let cost = path_cost(Path::Udp, Way::Out, &cells, &known.suites).expect("a fit");
        assert_eq!((cost.per_byte, cost.per_change, cost.waking), (0.0, 0.0, None), "{cost:?}");
        assert!(cost.packets.iter().all(|p| p.ns > 1_000.0 && p.within.is_none()), "{cost:?}");
    }
}
