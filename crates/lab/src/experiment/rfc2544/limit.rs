//! What the tester carries without a gateway, as samples: the most that any system can be seen to
//! carry.

use super::Work;
use super::single::ALONE;
use crate::error::LabError;
use crate::experiment::alone;
use crate::experiment::campaign::Campaign;
use crate::experiment::searched::Searched;
use crate::experiment::throughput::{self, percent};
use crate::experiment::trials;
use crate::load::frame::Shape;
use crate::record::factors;

/// Loss of these figures where the tester is flooded.
const FLOOD: &str = "flood";

impl Work {
    /// Takes down what the tester carries alone, for each goal and in the flood.
    pub(super) fn tester(
        &self,
        c: &mut Campaign,
        tester: &Searched,
        shape: Shape,
        (size, direction): (&str, &str),
        (repeat, began): (u32, f64),
    ) -> Result<(), LabError> {
        let cell = format!("{size} B, {direction}");
        tester.trials.impossible(alone::NAME, &cell).into_iter().for_each(|d| c.doubt(d));
        let file = trials::file(&[size, direction, "tester_alone"], repeat);
        let files = vec![c.keep(&file, tester.trials.csv().as_bytes())?];
        let of = |loss: &str| {
            let mut all = self.setup.factors();
            all.extend(factors([("part", ALONE), ("size", size), ("direction", direction), ("loss", loss)]));
            all
        };
        for (goal, f) in tester.found.iter().enumerate() {
            let Some(all) = alone::carried(tester, goal) else { continue };
            let mut measures = vec![("kpps", all / 1e3), ("inner_gbps", throughput::inner_gbps(&shape, all))];
            measures.extend(f.bounds.upper.map(|u| ("bound_kpps", u / 1e3)));
            c.sample(of(&percent(f.goal.loss_ratio)), repeat, began, &measures, files.clone());
        }
        let (flood, pps) = (&tester.flood, tester.flood.forwarded_pps());
        let measures = [
            ("sent_kpps", flood.sent_pps() / 1e3),
            ("kpps", pps / 1e3),
            ("inner_gbps", throughput::inner_gbps(&shape, pps)),
            ("loss", flood.loss()),
        ];
        c.sample(of(FLOOD), repeat, began, &measures, files);
        Ok(())
    }
}
