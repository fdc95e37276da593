//! What is inside the system calls in which gateways receive and send, and what the machine does
//! for a packet beside them, by samples of all processors. Of every system.

use std::collections::BTreeMap;
use std::time::Duration;

use super::work::{self, Parties, WITHIN, Who};
use super::{Load, MTU, PAYLOAD, introduce};
use crate::dut::Dut;
use crate::error::LabError;
use crate::experiment::campaign::{About, Campaign, Common, Conclusion, Report, useful};
use crate::experiment::line::{choose_duts, once};
use crate::experiment::placement::{Placement, Spread};
use crate::experiment::rig::Rig;
use crate::experiment::runner::{self, Method, Schedule};
use crate::load::Iperf3;
use crate::machine;
use crate::measure::stacks::{Sampler, Stack};
use crate::record::{Better, Columns, Factors, Plot, Record, Table, View, Which, factors};
use crate::report::Warning;
use crate::topology::{Line, Mode, Node, Owner};

const ABOUT: About = About {
    question: "What does the machine do for a packet, inside the system calls of the gateways and beside them?",
    measures: &[
        (
            "ns_per_packet",
            "ns",
            "ns",
            "time of the machine's processors per packet that arrived, by samples",
            Better::Less,
        ),
        ("share", "share", "share", "part in all that the table is about", Better::Neither),
        ("samples", "samples", "samples", "looks at a processor that found it at this", Better::Neither),
    ],
    ..super::ABOUT
};

/// Systems that are measured when none is named.
const USUAL: [&str; 2] = ["plain", "ironswan"];
/// Parts of the result: the whole machine, and the gateways' processes.
const MACHINE: &str = "machine";
const GATEWAYS: &str = "gateways";
/// All areas, and everybody, together.
const ALL: &str = "all";

/// Makes the experiment.
pub(super) fn inside(common: &Common) -> Result<Report, LabError> {
    if common.soaker {
        return Err(LabError::Usage(
            "--soaker: --inside looks at the processors itself; leave one of them out".into(),
        ));
    }
    let seconds = Duration::from_secs_f64;
    let duration = common.duration.unwrap_or(common.by_care(seconds(5.0), seconds(2.0), seconds(0.5)));
    useful("--duration", duration, 0.2..=60.0)?;
    let repeats = common.repeats.unwrap_or(common.by_care(3, 1, 1));
    let mut lacks = machine::lacks_privilege();
    lacks.extend(Line::lacks(Mode::Offload));
    lacks.extend(Iperf3::lacks());
    lacks.extend(Sampler::lacks());
    let named = common.duts.clone();
    let names = if named.is_empty() { USUAL.map(String::from).to_vec() } else { named };
    let (duts, missing, doubts) = choose_duts(&names, &common.encaps, &common.dut_options)?;
    lacks.extend(missing);
    if !lacks.is_empty() {
        once(&mut lacks);
        return Err(LabError::Unfit(lacks));
    }
    let schedule = Schedule {
        about: ABOUT,
        common,
        cells: duts.iter().map(AsRef::as_ref).collect(),
        repeats,
        // A load is measured at once, for all of its samples.
        samples: repeats as usize * duts.len() * Load::all().len(),
        guess: duration + Duration::from_secs(2),
    };
    let esp = common.dut_options.esp();
    runner::run(schedule, &Inside { duts: &duts, doubts, esp, duration, repeats })
}

/// The experiment under way.
struct Inside<'a> {
    duts: &'a [Box<dyn Dut>],
    doubts: Vec<Warning>,
    /// Suites of ESP, for the record.
    esp: String,
    /// Length of each load.
    duration: Duration,
    repeats: u32,
}

impl<'a> Method for Inside<'a> {
    type Cell = &'a dyn Dut;
    type Bench = Owner;

    fn prepare(&self, c: &mut Campaign) -> Result<Owner, LabError> {
        self.doubts.iter().for_each(|doubt| c.doubt(doubt.clone()));
        introduce(c, self.duts, &self.esp, (self.duration, self.repeats));
        let packet = format!("of TCP: {PAYLOAD} bytes of payload; what does not arrive is none");
        c.settings.insert("packet".into(), packet);
        c.versions.extend(Iperf3::version().map(|v| ("iperf3".to_string(), v)));
        c.claim_for_tcp()
    }

    fn trial(
        &self,
        c: &mut Campaign,
        owner: &mut Owner,
        dut: &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        let placement = Placement::new(Spread::Free, c.machine().cpus).map_err(LabError::Usage)?;
        c.says(&format!("{}, starting", dut.name()))?;
        let mut rig = Rig::start(owner, *dut, Mode::Offload, MTU, &placement)?;
        for load in Load::all() {
            c.says(&format!("{}, {}", dut.name(), load.name()))?;
            let began = c.elapsed();
            let pids = [Node::G1, Node::G2].iter().flat_map(|node| rig.line.node(*node).pids()).collect();
            let parties = Parties { gateways: pids, laboratory: std::process::id() };
            let sampler = Sampler::start(rig.line.journal(), &rig.dir)?;
            let packets = load.carry(&mut rig, self.duration)?;
            let stacks = sampler.stop(rig.line.journal())?;
            let of = factors([("dut", &dut.name()), ("load", &load.name())]);
            let per = 1e9 / f64::from(Sampler::RATE) / packets.max(1.0);
            for (of, measures) in samples(&of, &stacks, &parties, per) {
                c.sample(of, repeat, began, &measures, vec![]);
            }
        }
        super::stop(c, *dut, rig, repeat);
        Ok(())
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// Factors and measures of one sample.
type Measured = (Factors, Vec<(&'static str, f64)>);

/// Samples of one load: of the machine by area and whose work it is, and of the gateways' processes
/// by area and call. `per` is the time of a look by a packet, nanoseconds.
fn samples(of: &Factors, stacks: &[Stack], parties: &Parties, per: f64) -> Vec<Measured> {
    let (mut machine, mut gateways) = (Looks::default(), Looks::default());
    for stack in stacks {
        let Some(who) = parties.who(stack) else { continue };
        let area = work::area(stack);
        machine.add(area, who.name());
        if who == Who::Gateways {
            gateways.add(area, work::within(stack));
        }
    }
    let mut all = machine.samples(of, (MACHINE, "who", &Who::ALL.map(Who::name)), per);
    all.extend(gateways.samples(of, (GATEWAYS, "within", &WITHIN), per));
    all
}

/// How often something was seen, by area and by another factor.
#[derive(Default)]
struct Looks(BTreeMap<(&'static str, &'static str), u64>);

impl Looks {
    fn add(&mut self, area: &'static str, other: &'static str) {
        for key in [(area, other), (area, ALL), (ALL, other), (ALL, ALL)] {
            *self.0.entry(key).or_default() += 1;
        }
    }

    /// Areas, the largest first, and then all together; each by every value of the other factor.
    fn samples(
        &self,
        of: &Factors,
        (part, factor, values): (&str, &str, &[&str]),
        per: f64,
    ) -> Vec<Measured> {
        let count = |area: &str, other: &str| {
            let found = self.0.iter().find(|((a, o), _)| (*a, *o) == (area, other));
            found.map_or(0, |(_, count)| *count)
        };
        let mut areas: Vec<&str> = self.0.keys().map(|(area, _)| *area).filter(|area| *area != ALL).collect();
        areas.dedup();
        areas.sort_by_key(|area| std::cmp::Reverse(count(area, ALL)));
        let sum = count(ALL, ALL) as f64;
        let mut all = Vec::new();
        for area in areas.into_iter().chain((sum > 0.0).then_some(ALL)) {
            for other in values.iter().copied().chain([ALL]) {
                let part = if area == ALL { format!("{part}, {ALL}") } else { part.to_string() };
                let mut of = of.clone();
                of.extend(factors([("part", &*part), ("work", area), (factor, other)]));
                let seen = count(area, other) as f64;
                all.push((of, vec![("ns_per_packet", seen * per), ("share", seen / sum), ("samples", seen)]));
            }
        }
        all
    }
}

fn conclude(record: &Record) -> Conclusion {
    let mut views = Vec::new();
    let part = |part: &str, load: &str| factors([("part", part), ("load", load)]);
    let columns = |factor: &str| Columns::Factor {
        factor: factor.into(),
        measure: "ns_per_packet".into(),
        which: Which::Median,
    };
    let together = |part: &str| format!("{part}, {ALL}");
    // The largest packets last: the most is said of them.
    for (nth, load) in record.values("load", &Factors::new()).into_iter().rev().enumerate() {
        let machine = |mut only: Factors| {
            only.insert("who".into(), ALL.into());
            only
        };
        views.push(View::Plot(Plot {
            name: format!("inside-{}", nth + 1),
            title: format!("The machine's time for a packet: {load}"),
            only: machine(part(MACHINE, load)),
            x: "work".into(),
            x_label: "work".into(),
            y: "ns_per_packet".into(),
            which: Which::Median,
            series: vec!["dut".into()],
            log_x: false,
            log_y: false,
        }));
        views.push(View::Table(Table {
            title: format!("Whose time a packet takes: {load}"),
            only: part(&together(MACHINE), load),
            rows: vec!["who".into()],
            columns: columns("dut"),
        }));
        views.push(View::Table(Table {
            title: format!("For what: {load}"),
            only: machine(part(MACHINE, load)),
            rows: vec!["work".into()],
            columns: columns("dut"),
        }));
        for dut in record.values("dut", &part(GATEWAYS, load)) {
            let of_dut = |mut only: Factors| {
                only.insert("dut".into(), dut.into());
                only
            };
            views.push(View::Table(Table {
                title: format!("Inside the calls of the gateways' processes: {dut}, {load}"),
                only: of_dut(part(GATEWAYS, load)),
                rows: vec!["work".into()],
                columns: columns("within"),
            }));
            views.push(View::Table(Table {
                title: format!("All of that together: {dut}, {load}"),
                only: of_dut(part(&together(GATEWAYS), load)),
                rows: vec!["work".into()],
                columns: columns("within"),
            }));
        }
    }
    Conclusion { derived: vec![], views, history: vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_time_for_a_packet_the_largest_areas_first_and_all_add_up() {
        let parties = Parties { gateways: vec![5], laboratory: 9 };
        let stack = |pid, calls: &[&str]| Stack {
            name: "x".into(),
            pid,
            calls: calls.iter().map(ToString::to_string).collect(),
        };
        let stacks = [
            stack(5, &["tun_do_read", "ksys_read", "do_syscall_64"]),
            stack(5, &["nft_do_chain", "__x64_sys_sendmmsg", "do_syscall_64"]),
            stack(5, &["nft_do_chain", "ksys_read", "do_syscall_64"]),
            stack(5, &[]),
            stack(9, &["nft_do_chain", "net_rx_action"]),
            stack(77, &[]),
            stack(0, &["pv_native_safe_halt"]),
        ];
        // A look is of 500 ns, by ten packets.
        let all = samples(&factors([("dut", "ironswan")]), &stacks, &parties, 50.0);
        let value = |part: &str, work: &str, (factor, other): (&str, &str), measure: &str| {
            let of = factors([("dut", "ironswan"), ("part", part), ("work", work), (factor, other)]);
            let (_, measures) = all.iter().find(|(f, _)| *f == of).expect("a sample");
            measures.iter().find(|(name, _)| *name == measure).expect("a measure").1
        };
        let firewall = "firewall (nftables)";
        assert_eq!(value(MACHINE, firewall, ("who", ALL), "ns_per_packet"), 150.0);
        assert_eq!(value(MACHINE, firewall, ("who", "hosts"), "ns_per_packet"), 50.0);
        assert_eq!(value("machine, all", ALL, ("who", ALL), "samples"), 5.0);
        assert_eq!(value(GATEWAYS, firewall, ("within", "send"), "share"), 0.25);
        assert_eq!(value(GATEWAYS, "TUN device", ("within", "send"), "samples"), 0.0);
        assert_eq!(value("gateways, all", ALL, ("within", "receive"), "ns_per_packet"), 100.0);
        assert_eq!(all[0].0["work"], firewall);
        let shares = |part: &str| -> f64 {
            let of =
                all.iter().filter(|(f, _)| f["part"] == part && f.get("who").is_none_or(|who| who == ALL));
            let of = of.filter(|(f, _)| f.get("within").is_none_or(|within| within == ALL));
            of.map(|(_, m)| m[1].1).sum()
        };
        assert!((shares(MACHINE) - 1.0).abs() < 1e-9 && (shares(GATEWAYS) - 1.0).abs() < 1e-9);
    }
}
