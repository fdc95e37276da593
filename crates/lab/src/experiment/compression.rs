//! Experiment E9, `lab compression`: a file of text and one of random bytes over slow links and a
//! fast one, through a tunnel with IPComp and without, after FreeS/WAN's "speed with compression".

use std::time::Duration;

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::line::once;
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, on_stage, systems};
use crate::dut::{self, Dut};
use crate::error::LabError;
use crate::load::carry;
use crate::load::content::Content;
use crate::machine::has_room;
use crate::record::{
    Better, Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::relay::{Impairment, RelaySpec};
use crate::topology::{HostToHost, Owner, Topology};

const ABOUT: About = About {
    name: "compression",
    number: "E9",
    question: "What does IPComp gain, by the speed of the link and by what is carried, and what does it cost?",
    measures: &[
        (
            "kb_s",
            "kB/s",
            "1000 bytes/s",
            "of the file, from the first write to the last byte's arrival",
            Better::More,
        ),
        (
            "machine_ns",
            "ns/byte",
            "ns",
            "non-idle time of all processors per byte of the file, the relay included",
            Better::Less,
        ),
        (
            "gateways_ns",
            "gw ns/byte",
            "ns",
            "time of the gateway processes per byte of the file",
            Better::Less,
        ),
        (
            "on_link",
            "on link",
            "1",
            "bytes on the slow link, headers and repetitions included, per byte of the file",
            Better::Less,
        ),
        ("bytes", "bytes", "bytes", "of the file; all arrived as they were sent", Better::Neither),
    ],
    baseline: Some(("system", "ironswan")),
};

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct CompressionOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Rates of the link, kbit/s; 0 is no limit. 512, 10,000 and no limit when empty (a smoke run
    /// has no 10,000).
    pub rates: Vec<u32>,
}

const INNER_MTU: u32 = 1400;
/// Added to each frame on a slow link, each way.
const DELAY: Duration = Duration::from_millis(10);
const SEED: u64 = 2000;
const CONTENTS: [Content; 2] = [Content::Text, Content::Random];

/// Makes the experiment.
pub fn compression(options: CompressionOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let mut rates = options.rates.clone();
    if rates.is_empty() {
        // Each system is started anew for each link.
        rates = common.by_care(vec![512, 10_000, 0], vec![512, 10_000, 0], vec![512, 0]);
    }
    once(&mut rates);
    if let Some(bad) = rates.iter().find(|r| **r != 0 && !(64..=1_000_000).contains(*r)) {
        return Err(LabError::Usage(format!(
            "--rates {bad}: a rate is 0 (no limit) or 64 to 1,000,000 kbit/s"
        )));
    }
    let repeats = common.repeats.unwrap_or(common.by_care(5, 1, 1));
    // How long a file takes on a slow link without compression.
    let window = common.duration.unwrap_or(common.by_care(
        Duration::from_secs(10),
        Duration::from_millis(1500),
        Duration::from_millis(300),
    ));
    let largest = rates.iter().map(|r| file(*r, window)).max().unwrap_or(0);
    has_room(&format!("--duration {}", window.as_secs_f64()), largest as u64)?;
    let systems = systems(common, &common.dut_options, &["plain", "ironswan"], true, vec![])?;
    let mut with = common.dut_options.clone();
    with.ipcomp = true;
    let mut duts: Vec<(String, &dyn Dut)> = systems.duts.iter().map(|d| (d.name(), d.as_ref())).collect();
    let compressing = if duts.iter().any(|(name, _)| name.starts_with("ironswan")) {
        dut::by_name("ironswan", &common.encaps, &with)?
    } else {
        vec![]
    };
    duts.extend(compressing.iter().map(|d| (format!("{} ipcomp", d.name()), d.as_ref())));
    let on = |rate| duts.iter().map(move |(name, dut)| (rate, name.as_str(), *dut));
    let cells: Vec<_> = rates.iter().copied().flat_map(on).collect();
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: cells.len() * CONTENTS.len() * repeats as usize,
        guess: window,
        repeats,
        cells,
    };
    runner::run(schedule, &Work { systems: &systems, repeats, window })
}

/// The experiment under way.
struct Work<'a> {
    systems: &'a Systems,
    repeats: u32,
    /// How long a file takes on a slow link without compression.
    window: Duration,
}

impl<'a> Method for Work<'a> {
    /// Rate of the link in kbit/s, name of the system in the record, and the system.
    type Cell = (u32, &'a str, &'a dyn Dut);
    type Bench = Owner;

    fn prepare(&self, c: &mut Campaign) -> Result<Owner, LabError> {
        c.introduce(self.systems, self.repeats, Some(self.window));
        for content in CONTENTS {
            let what = format!("{:.2} bits a byte, from seed {SEED}", content.entropy());
            c.settings.insert(format!("{} data", content.name()), what);
        }
        c.settings.insert("delay of slow links".into(), format!("{} ms each way", DELAY.as_millis()));
        c.claim_for_tcp()
    }

    /// Measures both files with one system on one link.
    fn trial(
        &self,
        c: &mut Campaign,
        owner: &mut Owner,
        &(rate, name, dut): &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{name}, {}", link(rate)))?;
        let topology = HostToHost::build(owner, INNER_MTU, relay(rate))?;
        on_stage(c, owner, topology, dut, |c, stage| {
            let mut each = CONTENTS.into_iter();
            each.try_for_each(|content| self.file(c, stage, (rate, name, content), repeat))
        })
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// The size of the file for a link: what it carries in `window` without compression.
fn file(rate_kbit: u32, window: Duration) -> usize {
    // A fast link is limited by the processors; about this much.
    let bits = if rate_kbit == 0 { 400e6 } else { f64::from(rate_kbit) * 1e3 };
    // Never less than some packets.
    ((bits / 8.0 * window.as_secs_f64()) as usize).max(16 << 10)
}

fn link(rate_kbit: u32) -> String {
    match rate_kbit {
        0 => "no limit".into(),
        r if r.is_multiple_of(1000) => format!("{} Mbit/s", r / 1000),
        r => format!("{r} kbit/s"),
    }
}

/// The slow link of a rate; none without limit.
fn relay(rate: u32) -> Option<RelaySpec> {
    (rate > 0).then(|| {
        // A tenth of a second, or some packets.
        let queue = (u64::from(rate) * 1000 / 80).max(20_000);
        let with =
            Impairment { rate: Some(u64::from(rate) * 1000), queue, delay: DELAY, ..Impairment::default() };
        RelaySpec::both(with)
    })
}

impl Work<'_> {
    /// Measures one file.
    fn file(
        &self,
        c: &mut Campaign,
        stage: &mut Stage<HostToHost>,
        (rate, name, content): (u32, &str, Content),
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{name}, {}, {}", link(rate), content.name()))?;
        let data = content.bytes(file(rate, self.window), SEED);
        let began = c.elapsed();
        let crossed = |s: &Stage<HostToHost>| s.topology.relay().map(|r| r.counts().there.shaper.bytes);
        let (before, meter) = (crossed(stage), stage.meter(c)?);
        let at_most = self.window * 20 + Duration::from_secs(20);
        let (topology, alive) = stage.parts();
        let carried = carry(&topology.paths()[0], &data, at_most, alive)?;
        let used = stage.measured(meter)?;
        let on_link = before.zip(crossed(stage)).map_or(f64::NAN, |(b, a)| (a - b) as f64);
        let bytes = carried.bytes as f64;
        let mut measures = vec![
            ("kb_s", bytes / 1e3 / carried.seconds),
            ("machine_ns", used.machine_cost() * 1e9 / bytes),
            ("gateways_ns", used.party("gateways") * 1e9 / bytes),
            // Not finite, so left out, where there is no relay.
            ("on_link", on_link / bytes),
            ("bytes", bytes),
        ];
        measures.extend(used.by_soaker());
        let f = factors([("link", &link(rate)), ("system", name), ("data", content.name())]);
        c.sample(f, repeat, began, &measures, vec![]);
        Ok(())
    }
}

/// Gain of IPComp for each figure: the rate with IPComp, divided by the rate without.
fn gains(record: &Record) -> Vec<(Factors, f64)> {
    let gain = |figure: &crate::record::Figure| {
        let mut without = figure.factors.clone();
        let system = without.get("system")?.strip_suffix(" ipcomp")?.to_string();
        without.insert("system".into(), system);
        let base = record.figure(&without)?.number("kb_s", Which::Median)?;
        Some((without, figure.number("kb_s", Which::Median)? / base))
    };
    record.figures.iter().filter_map(gain).collect()
}

fn conclude(record: &Record) -> Conclusion {
    let gains = gains(record);
    let derived = gains.iter().map(|(factors, gain)| Derived {
        name: "gain".into(),
        factors: factors.clone(),
        value: *gain,
        unit: "times".into(),
        how: "the median rate with IPComp over that without".into(),
    });
    let of = |data: &str| {
        let own = gains.iter().filter(|(f, _)| f.get("data").is_some_and(|d| d == data));
        let list: Vec<String> = own
            .map(|(f, gain)| {
                let kb_s = record.figure(f).and_then(|x| x.number("kb_s", Which::Median)).unwrap_or(f64::NAN);
                format!("{:.2} against {kb_s:.2} kB/s ({gain:.2} times) at {}", kb_s * gain, f["link"])
            })
            .collect();
        if list.is_empty() { "not measured".into() } else { list.join(", ") }
    };
    let history = vec![Historical {
        source: "FreeS/WAN, speed with compression, about 2000: two cable modems".into(),
        then: "compressible 110.84 against 41.66 kB/s with IPComp (2.66 times), incompressible 42.59 against 42.08 (1.01 times)"
            .into(),
        now: format!("text: {}; random: {}", of("text"), of("random")),
        caveat: "How much is gained depends on the data: ours has a stated entropy, theirs was a file nobody has. IPComp \
                 compresses each packet by itself. Almost all of today's traffic is encrypted or compressed already, which \
                 is the incompressible row."
            .into(),
    }];
    let table = |title: &str, columns| {
        View::Table(Table {
            title: title.into(),
            only: Factors::new(),
            rows: vec!["link".into(), "data".into(), "system".into()],
            columns,
        })
    };
    let columns =
        ["kb_s", "machine_ns", "gateways_ns", "on_link"].map(|m| (m.to_string(), Which::Median)).to_vec();
    let mut views = vec![table("Rate and cost of a file", Columns::Measures(columns))];
    if !gains.is_empty() {
        views.push(View::Derived { title: "What IPComp gains".into(), names: vec!["gain".into()] });
    }
    for content in CONTENTS {
        views.push(View::Plot(Plot {
            name: content.name().into(),
            title: format!("Rate of a file of {} data", content.name()),
            only: factors([("data", content.name())]),
            x: "link".into(),
            x_label: "link".into(),
            y: "kb_s".into(),
            which: Which::Median,
            series: vec!["system".into()],
            log_x: false,
            log_y: true,
        }));
    }
    Conclusion { derived: derived.collect(), views, history }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_window_on_its_link() {
        assert_eq!(file(512, Duration::from_secs(10)), 640_000);
        assert_eq!(file(64, Duration::from_millis(100)), 16 << 10);
        assert_eq!(
            (link(0), link(512), link(10_000)),
            ("no limit".into(), "512 kbit/s".into(), "10 Mbit/s".into())
        );
    }

    #[test]
    fn rates_that_make_no_sense_are_refused() {
        let o = CompressionOptions { rates: vec![10], ..CompressionOptions::default() };
        assert!(matches!(compression(o), Err(LabError::Usage(_))));
    }
}
