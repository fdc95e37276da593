//! Experiment E14, `lab cores`: the highest rate and the cost of one gateway alone by the workers
//! of its data plane, by the queues of its links, and by the flows of the traffic. One of the three
//! is varied at a time, with the largest of the other two.
//!
//! ```text
//!   workers 1 ┐                       workers  1, 2, 4 ... with the most queues and flows
//!   workers 2 ┼─ queues 2 ── flows    queues   1, 2, 4 ... with the most workers and flows
//!   ...       │  queues 1             flows    1, 64, 4096 with the most workers and queues
//! ```
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `conclude` | figures and views, made of the samples |

mod conclude;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::bench::{Bench, Ready, ready};
use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::line::once;
use super::placement::{Placement, Spread};
use super::plan::with_workers;
use super::rig::{Bed, Rig};
use super::runner::{self, Method, Schedule};
use super::searched::{self, Load};
use super::tester;
use super::throughput::{self, Care, FRAMING, FrameSize, percent};
use crate::dut::{Dut, DutOptions, Encap};
use crate::error::LabError;
use crate::load::Direction;
use crate::load::frame::Shape;
use crate::record::{Better, Record, factors};
use crate::topology::{Mode, Owner};

/// Options of the experiment. Empty lists: the experiment's own choice.
#[derive(Debug, Clone, Default)]
pub struct CoresOptions {
    /// Options that all experiments have, with one encapsulation and one suite.
    pub common: Common,
    /// Workers of the gateway, at most as many as the machine has processors.
    pub workers: Vec<u32>,
    /// Queues at each end of a link, at most as many.
    pub queues: Vec<u32>,
    /// Flows of the traffic.
    pub flows: Vec<u32>,
    /// Sizes of frames.
    pub sizes: Vec<FrameSize>,
}

const ABOUT: About = About {
    name: "cores",
    number: "E14",
    question: "What do more workers of a gateway, more queues of its links and more flows add to what it carries, and what \
               does a packet cost then?",
    measures: &[
        ("kpps", "kpps", "1000 packets/s", "packets that came out of the gateway", Better::More),
        ("inner_gbps", "inner Gb/s", "Gb/s", "the IP packets inside the tunnel", Better::More),
        ("outer_gbps", "outer Gb/s", "Gb/s", "frames on the outer link with their FCS", Better::Neither),
        ("loss", "loss", "share", "of the intended packets", Better::Less),
        ("busy", "busy", "share", "of the machine's capacity, the tester's part included", Better::Less),
        ("gateways_ns", "gateway ns/p", "ns", "time of the gateway's process for each packet", Better::Less),
        ("machine_ns", "machine ns/p", "ns", "non-idle time of the machine for each packet", Better::Less),
    ],
    baseline: None,
};

const FLOWS: [u32; 3] = [1, 64, 4096];
/// Inner MTU: packets of every size fit the outer link.
const MTU: u32 = 1400;
/// Loss that is allowed at a throughput.
const LOSS: f64 = 0.005;
/// Ways through the gateway.
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// The factor that is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Varied {
    Workers,
    Queues,
    Flows,
}

impl fmt::Display for Varied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workers => "workers",
            Self::Queues => "queues",
            Self::Flows => "flows",
        })
    }
}

/// A gateway and its links: workers, and queues at each end of a link.
type Gateway = (u32, u32);

/// Its name, which tells it from the other gateways of the run.
fn named((workers, queues): &Gateway) -> String {
    format!("{}, {}", count(*workers, "worker"), count(*queues, "queue"))
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Some gateways under one load, in turns.
#[derive(Debug, Clone)]
struct Cell {
    varied: Varied,
    /// Numbers of the gateways in [`Plan::gateways`].
    gateways: Range<usize>,
    flows: u32,
    size: FrameSize,
    direction: Direction,
}

/// The measurements of a run.
struct Plan {
    /// By workers, fewest first; the last of these has the most queues too. Then those with fewer
    /// queues, most first.
    gateways: Vec<Gateway>,
    cells: Vec<Cell>,
    repeats: u32,
    care: Care,
}

/// Makes the experiment.
pub fn cores(options: CoresOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let plan = Plan::new(&options, crate::measure::cpus())?;
    let [encap] = common.encaps[..] else {
        return Err(LabError::Usage("--encap: one encapsulation is measured; choose yes or no".into()));
    };
    if common.dut_options.suites.len() != 1 {
        return Err(LabError::Usage("--suite: one suite is measured; name one".into()));
    }
    let ready = ready(&["ironswan".into()], common)?;
    if let Some(why) = ready.duts.first().and_then(|dut| tester::cannot(dut.as_ref())) {
        return Err(LabError::Usage(format!("nothing to measure: {why}")));
    }
    let schedule = Schedule {
        about: ABOUT,
        common,
        cells: plan.cells.clone(),
        repeats: plan.repeats,
        samples: plan.searches() as usize,
        guess: plan.care.guess(),
    };
    runner::run(schedule, &Work { plan: &plan, ready, options: &common.dut_options, encap })
}

/// The experiment under way.
struct Work<'a> {
    plan: &'a Plan,
    ready: Ready,
    options: &'a DutOptions,
    encap: Encap,
}

impl Method for Work<'_> {
    type Cell = Cell;
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        let gateways: Vec<String> = self.plan.gateways.iter().map(named).collect();
        self.ready.introduce(
            c,
            [
                ("gateways", gateways.join("; ")),
                ("processors", format!("{}, which the tester uses, too", crate::measure::cpus())),
                ("suite", self.options.suites.first().map_or_else(String::new, |s| s.esp.clone())),
                ("inner MTU", MTU.to_string()),
                ("packets", format!("a loss of at most {}", percent(LOSS))),
                ("repeats", self.plan.repeats.to_string()),
            ],
        );
        self.plan.care.describe(c);
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut bench = Bench::new(Owner::claim()?);
        for gateway in &self.plan.gateways {
            c.says(&format!("starting the gateway with {}", named(gateway)))?;
            let dut: Box<dyn Dut> = with_workers(self.options, self.encap, gateway.0)?;
            let bed = Bed { queues: gateway.1 as usize, ..Bed::usual(Mode::Wire, MTU) };
            let rig = Rig::start_single_on(&bench.owner, dut.as_ref(), bed, &placement)?;
            bench.add(c, rig.called(format!("ironswan, {}", named(gateway))))?;
        }
        Ok(bench)
    }

    /// The gateways of one cell in turns, each searched at its own pace.
    fn trial(&self, c: &mut Campaign, bench: &mut Bench, cell: &Cell, repeat: u32) -> Result<(), LabError> {
        let shape = shape(cell.size, cell.flows)?;
        let way = way(cell.direction);
        let named_load = format!("by {}: {} B, {way}", cell.varied, cell.size);
        let began = c.elapsed();
        let rigs = &mut bench.rigs[cell.gateways.clone()];
        let load = Load { shape, direction: cell.direction, cell: &named_load };
        let searched = searched::search(c, rigs, load, &self.plan.care)?;
        for (gateway, s) in self.plan.gateways[cell.gateways.clone()].iter().zip(searched) {
            let (workers, queues, flows) =
                (gateway.0.to_string(), gateway.1.to_string(), cell.flows.to_string());
            let of = format!("{named_load}, {}, {}", named(gateway), count(cell.flows, "flow"));
            let words = [&*cell.varied.to_string(), &workers, &queues, &flows, &cell.size.to_string(), way];
            let files = s.keep(c, ("ironswan", &of), &words, repeat)?;
            let trials: Vec<_> = s.at.iter().flatten().map(|p| throughput::measures(&shape, p)).collect();
            let mut measures = throughput::medians(&trials);
            measures.extend(s.confirmed(0));
            let found = s.found.first().and_then(|f| f.conditional_throughput);
            if let Some(pps) = found {
                measures.retain(|(name, _)| !["kpps", "inner_gbps"].contains(name));
                measures.extend([("kpps", pps / 1e3), ("inner_gbps", throughput::inner_gbps(&shape, pps))]);
            }
            let factors = factors([
                ("varied", cell.varied.to_string().as_str()),
                ("workers", &workers),
                ("queues", &queues),
                ("flows", &flows),
                ("size", &cell.size.to_string()),
                ("direction", way),
            ]);
            c.sample(factors, repeat, began, &measures, files);
        }
        Ok(())
    }

    fn end(&self, c: &mut Campaign, bench: Bench) -> Result<(), LabError> {
        bench.stop(c)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

/// Name of a way through the gateway.
fn way(direction: Direction) -> &'static str {
    if direction == Direction::Forward { "encrypting" } else { "decrypting" }
}

fn shape(size: FrameSize, flows: u32) -> Result<Shape, LabError> {
    size.shape(MTU, flows).ok_or_else(|| {
        LabError::Usage(format!("frames of {size} bytes do not fit; the largest has {}", MTU + FRAMING))
    })
}

/// 1, 2, 4 and so on, and `most` itself.
fn doubled(most: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..32).map(|n| 1 << n).take_while(|n| *n < most).collect();
    all.push(most);
    all
}

impl Plan {
    /// On a machine with so many processors.
    fn new(o: &CoresOptions, cpus: usize) -> Result<Self, LabError> {
        let c = &o.common;
        let most = u32::try_from(cpus).unwrap_or(u32::MAX).max(1);
        let listed = |given: &[u32], own: Vec<u32>| {
            let mut all = if given.is_empty() { own } else { given.to_vec() };
            all.sort_unstable();
            once(&mut all);
            all
        };
        let workers = listed(&o.workers, c.by_care(doubled(most), doubled(most), listed(&[1, most], vec![])));
        let queues = listed(&o.queues, c.by_care(doubled(most), doubled(most), vec![most]));
        let flows = listed(&o.flows, c.by_care(FLOWS.to_vec(), FLOWS.to_vec(), vec![64]));
        for (what, list) in [("workers", &workers), ("queues", &queues)] {
            if let Some(bad) = list.iter().find(|n| !(1..=most).contains(*n)) {
                return Err(LabError::Usage(format!(
                    "{bad} {what}: this machine has {most} processor{}, and more {what} than that would take turns on them",
                    if most == 1 { "" } else { "s" }
                )));
            }
        }
        if let Some(bad) = flows.iter().find(|n| !(1..=1_000_000).contains(*n)) {
            return Err(LabError::Usage(format!("{bad} flows: the number must be between 1 and 1,000,000")));
        }
        let mut sizes = o.sizes.clone();
        if sizes.is_empty() {
            let own: &[u32] = c.by_care(&[256, 1400], &[256], &[256]);
            sizes = own.iter().map(|bytes| FrameSize::Bytes(*bytes)).collect();
        }
        once(&mut sizes);
        sizes.iter().try_for_each(|size| shape(*size, 1).map(drop))?;
        let directions = c.by_care(&DIRECTIONS[..], &DIRECTIONS[..], &DIRECTIONS[..1]);
        let repeats = c.repeats.unwrap_or(c.by_care(3, 1, 1));
        let (by_workers, by_queues, by_flows) = (workers.len(), queues.len(), flows.len());
        let (Some(all_workers), Some(all_queues), Some(all_flows)) =
            (workers.last().copied(), queues.last().copied(), flows.last().copied())
        else {
            return Err(LabError::Usage("nothing to measure: name workers, queues and flows".into()));
        };
        let mut gateways: Vec<Gateway> = workers.into_iter().map(|workers| (workers, all_queues)).collect();
        gateways.extend(queues.into_iter().rev().skip(1).map(|queues| (all_workers, queues)));
        let base = by_workers - 1;
        let mut cells = Vec::new();
        for size in sizes {
            for direction in directions.iter().copied() {
                let cell = |varied, gateways, flows| Cell { varied, gateways, flows, size, direction };
                cells.push(cell(Varied::Workers, 0..by_workers, all_flows));
                // One alone is among the workers already.
                if by_queues > 1 {
                    cells.push(cell(Varied::Queues, base..base + by_queues, all_flows));
                }
                if by_flows > 1 {
                    cells.extend(flows.iter().map(|flows| cell(Varied::Flows, base..base + 1, *flows)));
                }
            }
        }
        let mut plan = Self { gateways, cells, repeats, care: Care::of(c, vec![LOSS]) };
        plan.care = budget::least(c, &plan.care, plan.others(), plan.searches());
        Ok(plan)
    }

    /// Searches of all rounds.
    fn searches(&self) -> u32 {
        self.cells.iter().map(|cell| cell.gateways.len() as u32).sum::<u32>() * self.repeats
    }

    /// Time that all but the searches takes: starting the gateways, and a flood before each search.
    fn others(&self) -> Duration {
        let flood = budget::trials(&[Duration::from_secs_f64(self.care.last)]);
        Duration::from_millis(1000) * self.gateways.len() as u32 + flood * self.searches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(cpus: usize, change: &dyn Fn(&mut CoresOptions)) -> Result<Plan, LabError> {
        let mut o = CoresOptions::default();
        change(&mut o);
        Plan::new(&o, cpus)
    }

    #[test]
    fn one_number_is_varied_at_a_time_with_the_largest_of_the_others() {
        assert_eq!(doubled(1), [1]);
        assert_eq!((doubled(2), doubled(6), doubled(8)), (vec![1, 2], vec![1, 2, 4, 6], vec![1, 2, 4, 8]));
        let p = plan(4, &|o| o.sizes = vec![FrameSize::Bytes(256)]).expect("a plan");
        assert_eq!(p.gateways, [(1, 4), (2, 4), (4, 4), (4, 2), (4, 1)]);
        let encrypting: Vec<&Cell> = p.cells.iter().filter(|c| c.direction == Direction::Forward).collect();
        let of = |varied| -> Vec<(&[Gateway], u32)> {
            let own = encrypting.iter().filter(|c| c.varied == varied);
            own.map(|c| (&p.gateways[c.gateways.clone()], c.flows)).collect()
        };
        assert_eq!(of(Varied::Workers), [(&[(1, 4), (2, 4), (4, 4)][..], 4096)]);
        assert_eq!(of(Varied::Queues), [(&[(4, 4), (4, 2), (4, 1)][..], 4096)]);
        assert_eq!(of(Varied::Flows), FLOWS.map(|flows| (&[(4, 4)][..], flows)));
        // Three workers, three queues, three flows, both ways, three rounds.
        assert_eq!(p.searches(), 9 * 2 * 3);
        // What has one number only is not varied.
        let p = plan(1, &|o| o.flows = vec![7, 7]).expect("a plan");
        assert!(
            p.gateways == [(1, 1)] && p.cells.iter().all(|c| c.varied == Varied::Workers),
            "{:?}",
            p.cells
        );
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_what_it_has() {
        for (bad, said) in [
            (plan(2, &|o| o.workers = vec![1, 3]), "3 workers: this machine has 2 processors"),
            (plan(1, &|o| o.queues = vec![2]), "2 queues: this machine has 1 processor,"),
            (plan(2, &|o| o.workers = vec![0]), "0 workers"),
            (plan(2, &|o| o.flows = vec![0]), "0 flows"),
            (plan(2, &|o| o.sizes = vec![FrameSize::Bytes(1500)]), "1418"),
        ] {
            let refused = bad.err().expect(said);
            assert!(matches!(&refused, LabError::Usage(text) if text.contains(said)), "{refused}");
        }
    }

    #[test]
    fn short_runs_are_short() {
        for (quick, time) in [(true, budget::QUICK), (false, budget::SMOKE)] {
            let p = plan(2, &|o| (o.common.quick, o.common.smoke) = (quick, !quick)).expect("a plan");
            let trial = Duration::from_secs_f64(p.care.last) + Duration::from_millis(350);
            let whole = p.others() + trial * (p.care.trials + p.care.later) * p.searches();
            assert!(whole <= time, "{whole:?}: {:?}", p.cells);
        }
    }
}
