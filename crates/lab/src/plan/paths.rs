//! From measured loads to the costs of a path: how packets gather first, then what a packet, a byte and an aggregate cost. Pure.

use super::fit;
use super::model::{Cell, Gathering, Model, Path, PathCost, Shared, SuiteCost, Way};
use crate::error::LabError;

/// What a gateway takes at once at most: frames of one read.
const MOST: f64 = 64.0;
/// Steps in which the gathering window is looked for, each a tenth longer than the one before, from a microsecond on.
const STEPS: i32 = 96;

/// Costs of one path and direction from its cells.
pub fn path_cost(path: Path, way: Way, cells: &[Cell], suites: &[SuiteCost]) -> Result<PathCost, LabError> {
    let lacking =
        |what: &str| LabError::Measurement(format!("path {}, direction {}: {what}", path.name(), way.name()));
    // What the line could not carry says nothing about a packet's cost.
    let own: Vec<&Cell> = cells.iter().filter(|c| c.path == path && c.carried()).collect();
    let gathering = gathering(way, &own).ok_or_else(|| {
        lacking("too few loads went through without loss; measure when the machine is quiet")
    })?;
    let (mut rows, mut y) = (Vec::new(), Vec::new());
    for cell in &own {
        let suite = suites.iter().find(|s| s.suite == cell.suite);
        let suite = suite.ok_or_else(|| lacking(&format!("{} was not measured alone", cell.suite)))?;
        let measured = cell.measured(way).zip(cell.aggregates(way));
        let ((ns, _), [buffers, calls]) = measured.ok_or_else(|| lacking("a load has no repeats"))?;
        let crypto = cell.mix.parts.iter().map(|p| p.share * suite.ns(way, p.bytes())).sum();
        rows.push(vec![1.0, cell.mix.bytes(), buffers, calls, crypto]);
        y.push(ns);
    }
    let costs = fit::non_negative(&rows, &y).ok_or_else(|| lacking("the loads have no fit"))?;
    let [per_packet, per_byte, per_buffer, per_call, crypto] = costs[..] else {
        return Err(lacking("the loads have no fit"));
    };
    let residual = missed(&rows, &y, &costs).sqrt();
    Ok(PathCost {
        path,
        way,
        per_packet,
        per_byte,
        per_buffer,
        per_call,
        crypto,
        residual,
        cells: rows.len(),
        gathering,
    })
}

/// Mean square of the relative error.
fn missed(rows: &[Vec<f64>], y: &[f64], x: &[f64]) -> f64 {
    let error =
        |(row, y): (&Vec<f64>, &f64)| (row.iter().zip(x).map(|(r, x)| r * x).sum::<f64>() / y - 1.0).powi(2);
    rows.iter().zip(y).map(error).sum::<f64>() / rows.len().max(1) as f64
}

/// How packets gather: the window for which the buffers and calls that were counted fit best.
fn gathering(way: Way, cells: &[&Cell]) -> Option<Gathering> {
    let merged: Vec<[f64; 2]> =
        cells.iter().filter(|c| c.mix.merged).filter_map(|c| c.aggregates(way)).collect();
    let packets: Vec<(&&Cell, [f64; 2])> =
        cells.iter().filter(|c| !c.mix.merged).filter_map(|c| Some((c, c.aggregates(way)?))).collect();
    let shared = |kind: usize, window: f64| -> Option<(f64, Shared)> {
        let at_once = |pps: f64| 1.0 + pps * window;
        let some = packets.iter().filter(|(_, a)| a[kind] > 0.0);
        let (rows, y): (Vec<Vec<f64>>, Vec<f64>) = some
            .map(|(c, a)| {
                let alone = 1.0 / at_once(c.pps).min(MOST);
                (vec![1.0, alone, c.mix.change * (1.0 - alone)], a[kind])
            })
            .unzip();
        let x = fit::non_negative(&rows, &y)?;
        let merged: Vec<f64> = merged.iter().map(|m| m[kind]).collect();
        // Without such a load, as packets that gather as much as they can.
        let merged = crate::stats::median(&merged).unwrap_or(x[0] + x[1] / MOST);
        Some((missed(&rows, &y, &x), Shared { own: x[0], shared: x[1], change: x[2], merged }))
    };
    let of = |window: f64| {
        let ((b, buffers), (c, calls)) = (shared(0, window)?, shared(1, window)?);
        Some((b + c, Gathering { window, most: MOST, buffers, calls }))
    };
    let all = (0..STEPS).filter_map(|step| of(1e-6 * 1.1f64.powi(step)));
    all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, found)| found)
}

impl Model {
    /// What a packet of a cell should cost in one direction, nanoseconds.
    pub fn predicts(&self, cell: &Cell, way: Way) -> Result<f64, LabError> {
        let suite = self.suite(&cell.suite)?;
        Ok(self.cost(suite, cell.path, way, (&cell.mix, cell.pps), 1.0)?.total())
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{LARGEST, Mix, Seen, Side};
    use super::super::sample;
    use super::*;

    /// Cells that cost exactly what the sample model says.
    fn cells(model: &Model) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mixes =
            [64, 256, 768, LARGEST].map(Mix::frames).into_iter().chain([Mix::rows("rows", [64, 256, 768])]);
        for mix in mixes.chain([Mix::tcp()]) {
            for suite in &model.suites {
                for pps in [1_000.0, 10_000.0, 50_000.0] {
                    let side = |way| -> Side {
                        let cost = model.cost(suite, Path::Udp, way, (&mix, pps), 1.0).expect("a cost");
                        let path = model.path(Path::Udp, way).expect("a path");
                        let [buffers, calls] = path.gathering.aggregates(&mix, pps);
                        Side { ns: cost.total(), buffers, calls }
                    };
                    let seen = Seen { out: side(Way::Out), into: side(Way::In), ..sample::EMPTY };
                    let (suite, path) = (suite.suite.clone(), Path::Udp);
                    cells.push(Cell { suite, path, mix: mix.clone(), pps, seen: vec![seen] });
                }
            }
        }
        cells
    }

    #[test]
    fn costs_that_made_the_measurements_are_found_and_predict_what_was_kept_back() {
        let known = sample::model();
        let mut found = known.clone();
        let cells = cells(&known);
        for way in Way::BOTH {
            let cost = path_cost(Path::Udp, way, &cells, &known.suites).expect("a fit");
            assert!(cost.residual < 0.01, "{cost:?}");
            *found.paths.iter_mut().find(|p| p.path == Path::Udp && p.way == way).expect("a path") = cost;
        }
        for (mix, pps) in [(Mix::frames(390), 20_000.0), (Mix::imix(), 5_000.0)] {
            let seen = vec![sample::EMPTY];
            let cell = Cell { suite: "aes128gcm16".into(), path: Path::Udp, mix, pps, seen };
            for way in Way::BOTH {
                let (a, b) = (known.predicts(&cell, way).expect("a"), found.predicts(&cell, way).expect("b"));
                assert!((a / b - 1.0).abs() < 0.02, "{a} {b}");
            }
        }
    }

    #[test]
    fn loads_that_were_lost_are_left_out_and_too_few_are_an_error() {
        let known = sample::model();
        let mut cells = cells(&known);
        cells.iter_mut().flat_map(|c| &mut c.seen).for_each(|s| s.loss = 0.5);
        let e = path_cost(Path::Udp, Way::Out, &cells, &known.suites).expect_err("all lost");
        assert!(e.to_string().contains("quiet"), "{e}");
    }
}
