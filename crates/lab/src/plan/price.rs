//! What a model says that a packet of a load costs: each part of it, and how surely that part is
//! known. Pure.

use super::cost::{BurstShare, Cost, Estimate, FlowCost, Widths, together};
use super::mix::Mix;
use super::model::{FLOWS, Model, Path, Point, Way};
use super::suite::SuiteCost;
use crate::error::LabError;

/// A load of which a model says what its packets cost.
#[derive(Debug, Clone, Copy)]
pub struct Traffic<'a> {
    /// The packets.
    pub mix: &'a Mix,
    /// So many a second; at saturation where they are infinitely many.
    pub pps: f64,
    /// SAs that they take turns in.
    pub sas: f64,
    /// Flows; as many as the calibration sent where absent.
    pub flows: Option<u32>,
    /// Packets that come at once.
    pub burst: f64,
}

/// Cost of a packet of a load in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The cost.
    pub cost: Cost,
    /// How surely its parts are known.
    pub within: Widths,
    /// The point of the curve that the load is at.
    pub at: Point,
}

impl Model {
    /// Average cost of a packet of the mix in one direction when the gateway carries `pps` of them
    /// with `sas` SAs.
    pub fn cost(
        &self,
        suite: &SuiteCost,
        path: Path,
        way: Way,
        (mix, pps): (&Mix, f64),
        sas: f64,
    ) -> Result<Cost, LabError> {
        let traffic = Traffic { mix, pps, sas, flows: None, burst: 1.0 };
        Ok(self.price(suite, path, way, traffic)?.cost)
    }

    /// Average cost of a packet of a load in one direction, with its parts and how surely they are
    /// known.
    pub fn price(
        &self,
        suite: &SuiteCost,
        path: Path,
        way: Way,
        load: Traffic<'_>,
    ) -> Result<Price, LabError> {
        let p = self.path(path, way)?;
        let mix = load.mix;
        let at = p.base(mix, load.pps, suite.of_mix(way, mix, 1.0), self.in_bursts(way, load.burst))?;
        let calls = (at.calls - p.full_calls()).max(0.0);
        let wakings = p.waking.map_or(0.0, |w| (w.value * calls).min(at.ns));
        // The base was measured with the usual flows.
        let (usual, asked) = (self.of_flows(way, FLOWS), self.of_flows(way, load.flows.unwrap_or(FLOWS)));
        let of_usual = usual.value.min(at.ns - wakings);
        let changes = mix.change * at.gathered();
        let cost = Cost {
            base: at.ns - wakings - of_usual,
            wakings,
            bytes: p.per_byte * mix.of_bytes(),
            changes: p.per_change * changes,
            crypto: suite.of_mix(way, mix, at.burst),
            sas: self.of_sas(load.sas),
            flows: (of_usual + asked.value - usual.value).max(0.0),
        };
        let of_wakings = p.waking.map(|w| w.within * calls);
        let mut within = Widths {
            base: at.within.map(|own| own.hypot(of_wakings.unwrap_or(0.0))),
            wakings: of_wakings,
            bytes: p.per_byte_within.map(|w| w * mix.of_bytes()),
            changes: p.per_change_within.map(|w| w * changes),
            crypto: Some(suite.within(way, at.burst)),
            sas: self.within_sas(load.sas),
            flows: (!self.flows.is_empty()).then_some(asked.within),
            total: None,
        };
        let own = [at.within, within.bytes, within.changes, within.crypto, within.sas, within.flows];
        within.total = at.within.and_then(|_| together(own));
        Ok(Price { cost, within, at })
    }

    /// Cost that `sas` SAs add: between measurements by the logarithm, beyond the last as the last.
    pub fn of_sas(&self, sas: f64) -> f64 {
        between(self.many_sas.iter().map(|m| (f64::from(m.sas), m.added)), sas)
    }

    /// Half of the interval of that.
    fn within_sas(&self, sas: f64) -> Option<f64> {
        let known: Option<Vec<(f64, f64)>> =
            self.many_sas.iter().map(|m| Some((f64::from(m.sas), m.within?))).collect();
        known.filter(|all| !all.is_empty()).map(|all| between(all.into_iter(), sas))
    }

    /// Packets that share a call when so many come at once, and the part of the base that is left:
    /// between measured lengths on a line of the logarithms. Where bursts were not measured all of
    /// them share one, and cost what so many do that are found at once.
    pub fn in_bursts(&self, way: Way, at_once: f64) -> (f64, f64) {
        if self.bursts.is_empty() {
            return (at_once, 0.0);
        }
        let n = usize::from(way == Way::In);
        let of = |value: fn(&BurstShare) -> [f64; 2]| {
            let measured = self.bursts.iter().map(|b| (f64::from(b.at_once), value(b)[n].ln()));
            between(measured, at_once).exp()
        };
        (of(|b| b.shared), of(|b| b.ratio))
    }

    /// Cost that so many flows add to one flow's packet, in the same way.
    fn of_flows(&self, way: Way, flows: u32) -> Estimate {
        let n = usize::from(way == Way::In);
        let of = |value: fn(&FlowCost) -> [f64; 2]| {
            between(self.flows.iter().map(|f| (f64::from(f.flows), value(f)[n])), f64::from(flows))
        };
        Estimate { value: of(|f| f.added), within: of(|f| f.within) }
    }
}

/// Between measured numbers, from 1 on where there is nothing to add, by the logarithm; beyond the
/// last as the last.
fn between(measured: impl Iterator<Item = (f64, f64)>, number: f64) -> f64 {
    let mut before = (1.0, 0.0);
    for (count, added) in measured.filter(|(count, _)| *count > 1.0) {
        if number <= count {
            let log = |n: f64| n.max(1.0).ln();
            let (from, to) = (log(before.0), log(count));
            let at = ((log(number) - from) / (to - from)).clamp(0.0, 1.0);
            return before.1 + (added - before.1) * at;
        }
        before = (count, added);
    }
    before.1
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn sas_between_two_measured_numbers_cost_what_lies_between() {
        let m = sample::model();
        assert_eq!(
            (m.of_sas(1.0), m.of_sas(100.0), m.of_sas(10_000.0), m.of_sas(1e6)),
            (0.0, 10.0, 110.0, 110.0)
        );
        assert!((m.of_sas(1_000.0) - 60.0).abs() < 1e-9);
    }

    #[test]
    fn wakings_and_flows_are_split_off_the_base_and_change_no_total() {
        let (mut m, mix) = (sample::model(), Mix::frames(64));
        let suite = m.suites[0].clone();
        let of = |m: &Model, flows, burst, pps| {
            let load = Traffic { mix: &mix, pps, sas: 1.0, flows, burst };
            m.price(&suite, Path::Udp, Way::Out, load).expect("a price")
        };
        let split = of(&m, None, 1.0, 10_000.0);
        // 3 us for each call beyond a fifth, 10 ns for 64 flows.
        assert!((split.cost.wakings - 2_400.0).abs() < 1e-6 && split.cost.flows == 10.0, "{split:?}");
        assert!((split.cost.base - 1_490.0).abs() < 1e-6, "{split:?}");
        let one = of(&m, Some(1), 1.0, 10_000.0).cost;
        assert!((split.cost.total() - one.total() - 10.0).abs() < 1e-9 && one.flows == 0.0, "{one:?}");
        assert_eq!(of(&m, Some(u32::MAX), 1.0, 10_000.0).cost.flows, 110.0);
        let many = of(&m, None, 5.0, 10_000.0);
        // Five in a call, between the two points that have two and ten.
        assert!((many.at.burst - 5.0).abs() < 1e-9 && many.cost.wakings < 1_300.0, "{many:?}");
        assert_eq!((many.at.pps, of(&m, None, 1e6, 10_000.0).at.burst), (10_000.0, 10.0));
        // A gateway that reads what has come when it is woken: 16 at once share calls by fours, and
        // cost a quarter less.
        m.bursts = vec![BurstShare { at_once: 16, shared: [4.0, 16.0], ratio: [0.75, 0.01] }];
        let found = [1.0, 4.0, 16.0, 99.0].map(|n| m.in_bursts(Way::Out, n));
        let expected = [(1.0, 1.0), (2.0, 0.75f64.sqrt()), (4.0, 0.75), (4.0, 0.75)];
        let near = |(a, b): (&(f64, f64), (f64, f64))| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
        assert!(found.iter().zip(expected).all(near), "{found:?}");
        let (even, fours) = (of(&m, None, 1.0, 10_000.0).at, of(&m, None, 16.0, 10_000.0).at);
        assert!((fours.burst - 4.0).abs() < 1e-9 && (fours.ns / even.ns - 0.75).abs() < 1e-9, "{fours:?}");
        m.bursts[0].ratio = [0.01; 2];
        let least = of(&m, None, 16.0, 10_000.0).at;
        // No less than where four are found at once anyway.
        assert!(least.ns < fours.ns && least.ns > 1_500.0, "{least:?}");
        m.bursts.clear();
        assert_eq!(m.in_bursts(Way::Out, 16.0), (16.0, 0.0));
        // Saturation is what it is.
        assert_eq!(of(&m, None, 3.0, f64::INFINITY), of(&m, None, 1.0, f64::INFINITY));
        m.paths.iter_mut().for_each(|p| p.waking = None);
        m.flows.clear();
        let whole = of(&m, None, 1.0, 10_000.0);
        assert!((whole.cost.total() - split.cost.total()).abs() < 1e-9 && whole.cost.wakings == 0.0);
        assert!(whole.within.wakings.is_none() && whole.within.flows.is_none(), "{whole:?}");
        assert!(split.within.total.is_some_and(|w| w > 0.0 && w < split.cost.total() / 10.0), "{split:?}");
    }
}
