//! `lab emulated --slow`: the processors that FreeS/WAN's page on performance tells of, by their
//! number of instructions a second, and figures in that page's units.

use std::time::Duration;

use super::conclude::{SILENT, engines_used};
use super::host::{Bench, Guests};
use super::machine::Processor;
use super::orders::{Counted, Load, Place};
use crate::dut::{DutOptions, Suite};
use crate::error::LabError;
use crate::experiment::campaign::{About, Campaign, Common, Conclusion, Report};
use crate::experiment::runner::{self, Method, Schedule};
use crate::load::apps::App;
use crate::record::{
    Better, Columns, Derived, Figure, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::report::Warning;
use crate::report::history::lowend as published;
use crate::topology::Mode;

const ABOUT: About = About {
    name: "emulated",
    number: "E13",
    question: "What does a processor carry that is as slow as a 486/66 or a Pentium 60?",
    measures: &[
        (
            "mbps",
            "Mbit/s",
            "Mbit/s",
            "of the file or of TCP payload, by the guest's clock; one processor does the work of all boxes",
            Better::More,
        ),
        (
            "per_byte",
            "instr/byte",
            "instructions",
            "from the sender's write to the receiver's read, all boxes, per byte of payload (TCP)",
            Better::Less,
        ),
        (
            "idle",
            "idle",
            "share",
            "of the guest's time in which its processor had nothing to do; among the time, not among the \
             instructions (TCP)",
            Better::Neither,
        ),
    ],
    baseline: Some(("system", "plain")),
};

const SYSTEMS: [&str; 2] = ["plain", "ironswan"];
const SUITES: [&str; 2] = ["3des-sha1", "aes128gcm16"];
const PROCESSORS: [Processor; 2] = [Processor::LIKE_486, Processor::LIKE_PENTIUM];
const PLACES: [Place; 2] = [Place::HostToHost, Place::Line];

/// Makes the experiment.
pub(super) fn slow(common: &Common) -> Result<Report, LabError> {
    let mut dut_options = common.dut_options.clone();
    if dut_options.suites == DutOptions::default().suites {
        let suites = common.by_care(&SUITES[..], &SUITES[..], &SUITES[..1]);
        dut_options.suites =
            suites.iter().map(|s| s.parse::<Suite>()).collect::<Result<_, _>>().map_err(LabError::Usage)?;
    }
    let mut guests = Guests::new(common, dut_options, &SYSTEMS)?;
    let bytes = common.by_care(2 << 20, 1 << 20, 128 << 10);
    guests.loads = vec![Load::Tcp { mode: Mode::Wire, bytes }];
    let without_ftp: Vec<Warning> = App::Ftp
        .lacks()
        .into_iter()
        .map(|r| Warning::NotInstalled { dut: "FTP".into(), lack: r.lack, action: r.action })
        .collect();
    if without_ftp.is_empty() {
        guests.loads.push(Load::Ftp { bytes });
    }
    guests.places = common.by_care(PLACES.to_vec(), PLACES.to_vec(), PLACES[..1].to_vec());
    guests.suite_in_name = true;
    let cells = common.by_care(PROCESSORS.to_vec(), PROCESSORS.to_vec(), PROCESSORS[..1].to_vec());
    let repeats = common.repeats.unwrap_or(common.by_care(2, 1, 1));
    let systems = guests.names.iter().map(|n| if n == "plain" { 1 } else { guests.options.suites.len() });
    let of_a_guest = systems.sum::<usize>() * guests.places.len() * guests.loads.len();
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: of_a_guest * cells.len() * repeats as usize,
        guess: Duration::from_secs(30),
        cells,
        repeats,
    };
    runner::run(schedule, &Slow { guests, without_ftp, bytes, repeats })
}

/// The experiment under way.
struct Slow<'a> {
    guests: Guests<'a>,
    /// The reasons for which there is no FTP.
    without_ftp: Vec<Warning>,
    bytes: u64,
    repeats: u32,
}

impl Method for Slow<'_> {
    type Cell = Processor;
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        self.without_ftp.iter().for_each(|doubt| c.doubt(doubt.clone()));
        c.settings.insert("repeats".into(), format!("{} guests of each speed", self.repeats));
        for processor in PROCESSORS {
            c.settings.insert(format!("processor, {}", speed(processor)), processor.to_string());
        }
        c.settings
            .insert("FTP".into(), format!("a file of {} bytes in memory, curl from pyftpdlib", self.bytes));
        self.guests.prepare(c)
    }

    fn trial(
        &self,
        c: &mut Campaign,
        bench: &mut Bench,
        processor: &Processor,
        repeat: u32,
    ) -> Result<(), LabError> {
        self.guests.run(c, bench, *processor, |c, counted, began| take(c, *processor, counted, repeat, began))
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

/// A processor as a factor's value.
fn speed(processor: Processor) -> String {
    format!("{:.0} million/s", processor.millions().floor())
}

/// Takes one load down.
fn take(c: &mut Campaign, processor: Processor, counted: &Counted, repeat: u32, began: f64) {
    let mut measures = vec![("mbps", counted.units as f64 * 8e3 / counted.nanos as f64)];
    // How long the processor was idle within the FTP client's own account is not known.
    if counted.load.kind() == "TCP" {
        measures.push(("per_byte", counted.instructions as f64 / counted.units as f64));
        measures.push(("idle", counted.idle));
    }
    let f = factors([
        ("speed", &*speed(processor)),
        ("place", &counted.place.to_string()),
        ("load", counted.load.kind()),
        ("system", &counted.system),
    ]);
    c.sample(f, repeat, began, &measures, vec![]);
}

/// The derived rate of half the boxes.
const HALF: &str = "half_mbps";

fn conclude(record: &Record) -> Conclusion {
    let beside = format!("{SILENT}. Engines: {}", engines_used(record));
    let mut views = Vec::new();
    for processor in PROCESSORS {
        let only = factors([("speed", &*speed(processor))]);
        if record.figures_with(&only).next().is_none() {
            continue;
        }
        views.push(View::Table(Table {
            title: format!(
                "{:.0} million instructions a second, {}: all boxes on this one processor. {beside}",
                processor.millions().floor(),
                machine_of_then(processor)
            ),
            only,
            rows: ["place", "load", "system"].map(String::from).to_vec(),
            columns: Columns::Measures(
                [
                    ("mbps", Which::Median),
                    ("mbps", Which::Ratio),
                    ("per_byte", Which::Median),
                    ("per_byte", Which::Added),
                    ("idle", Which::Median),
                ]
                .map(|(m, which)| (m.to_string(), which))
                .to_vec(),
            ),
        }));
    }
    let derived: Vec<Derived> = record.figures.iter().filter_map(half).collect();
    if !derived.is_empty() {
        views.push(View::Derived {
            title: "Mbit/s of half the boxes: one host, with the gateway that it is or has, on a processor of its own"
                .into(),
            names: vec![HALF.into()],
        });
    }
    for (name, load) in [("ftp", "FTP"), ("tcp", "TCP")] {
        let only = factors([("load", load), ("place", "host to host")]);
        if record.figures_with(&only).next().is_none() {
            continue;
        }
        views.push(View::Plot(Plot {
            name: name.into(),
            title: format!("{load}, host to host, all on one processor"),
            only,
            x: "speed".into(),
            x_label: "instructions".into(),
            y: "mbps".into(),
            which: Which::Median,
            series: vec!["system".into()],
            log_x: false,
            log_y: true,
        }));
    }
    let history = PROCESSORS.into_iter().filter_map(|processor| history(record, processor)).collect();
    Conclusion { derived, views, history }
}

/// The machine of the nineties that has about as many instructions a second.
fn machine_of_then(processor: Processor) -> &'static str {
    if processor == Processor::LIKE_486 { "about what a 486/66 did" } else { "about what a Pentium 60 did" }
}

fn half(figure: &Figure) -> Option<Derived> {
    Some(Derived {
        name: HALF.into(),
        factors: figure.factors.clone(),
        value: 2.0 * figure.number("mbps", Which::Median)?,
        unit: "Mbit/s".into(),
        how: "twice what the one processor carried that did the work of both halves".into(),
    })
}

/// The page's figure beside ours, in its units.
fn history(record: &Record, processor: Processor) -> Option<Historical> {
    let then_mbps = if processor == Processor::LIKE_486 { published::I486_66 } else { published::PENTIUM_60 };
    // The page's Pentium was a host with a tunnel of its own, and its 486 would be a gateway.
    let (place, then) = if processor == Processor::LIKE_486 {
        let then = format!(
            "486/66: {then_mbps} Mbit/s with 3DES, reckoned from the speed of its cipher alone: \"even a 486 can handle a T1 line\""
        );
        (Place::Line, then)
    } else {
        let then = format!(
            "Pentium 60: slightly over {then_mbps} Mbit/s, FTP over a host-to-host tunnel to a much faster machine"
        );
        (Place::HostToHost, then)
    };
    let of_load = |load: &str| -> Vec<String> {
        let only = factors([("speed", &*speed(processor)), ("place", &place.to_string()), ("load", load)]);
        record
            .figures_with(&only)
            .filter_map(|f| {
                let (mbps, system) = (f.number("mbps", Which::Median)?, &f.factors["system"]);
                if system == "plain" {
                    return None;
                }
                Some(format!(
                    "{system} {mbps:.2} Mbit/s, so {:.2} for half the boxes ({:.1} times the published)",
                    2.0 * mbps,
                    2.0 * mbps / then_mbps
                ))
            })
            .collect()
    };
    let (load, now) =
        ["FTP", "TCP"].into_iter().map(|load| (load, of_load(load))).find(|(_, now)| !now.is_empty())?;
    Some(Historical {
        source: published::SOURCE.into(),
        then,
        now: format!("{load}, {place}, one processor for all boxes: {}", now.join("; ")),
        caveat: "Alike: the number of instructions a second, an end-to-end protocol, ciphers in software. Unlike: an instruction \
                 here takes the same time whatever it does, and memory, caches and network cards cost nothing; registers have \
                 64 bits, and SSE4 does in one instruction what took many; the kernel is of this decade; our gateway is a \
                 process, theirs was in the kernel; the FTP server is a Python program."
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Baseline, Sample, figures};
    use crate::report::sample;

    fn record() -> Record {
        let mut record = sample::record();
        record.settings = [(
            "engines, 3des-sha1".to_string(),
            super::super::conclude::engines("soft", "soft", "des3_ede-asm"),
        )]
        .into();
        record.samples = PROCESSORS
            .into_iter()
            .flat_map(|p| PLACES.map(|place| (p, place)))
            .flat_map(|(p, place)| [(p, place, "plain", 8.0), (p, place, "ironswan 3des-sha1", 0.8)])
            .map(|(p, place, system, mbps)| Sample {
                factors: factors([
                    ("speed", &*speed(p)),
                    ("place", &place.to_string()),
                    ("load", "FTP"),
                    ("system", system),
                ]),
                repeat: 0,
                began: 0.0,
                measures: [("mbps".to_string(), mbps * p.millions() / 31.25), ("idle".into(), 0.01)].into(),
                files: vec![],
                absent: [].into(),
            })
            .collect();
        let baseline = Baseline { factor: "system".into(), value: "plain".into() };
        record.figures = figures(&record.samples, Some(&baseline));
        record
    }

    #[test]
    fn both_machines_stand_beside_ours_in_their_own_units() {
        let made = conclude(&record());
        let [i486, pentium] = &made.history[..] else { panic!("{:?}", made.history) };
        assert!(i486.then.contains("1.6 Mbit/s") && pentium.then.contains("over 5 Mbit/s"));
        let wanted = "FTP, gateway to gateway, one processor for all boxes: ironswan 3des-sha1 0.80 Mbit/s, so 1.60 for half the \
                      boxes (1.0 times the published)";
        assert!(i486.now == wanted, "{}", i486.now);
        assert!(
            pentium.now.contains("host to host")
                && pentium.now.contains("ironswan 3des-sha1 1.60 Mbit/s, so 3.20")
        );
        assert_eq!(made.derived.len(), 8);
        for view in &made.views {
            if let View::Table(table) = view {
                let t = &table.title;
                assert!(
                    t.contains("rep movs") && t.contains("des3_ede-asm") && t.contains("all boxes"),
                    "{t}"
                );
            }
        }
    }
}
