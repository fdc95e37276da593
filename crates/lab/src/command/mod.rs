//! The program `ironswan-lab`: its command line, and what each command of it does.
//!
//! People start it as `ironswan lab`, `ironswan demo` and `ironswan plan`; messages say so.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `args` | the command line |
//! | `experiment` | the trait of an experiment on the command line |
//! | `common` | options that the experiments share |
//! | `unused` | those for which an experiment has no use |
//! | `background` | options of `lab background` |
//! | `compare` | options of `lab compare` |
//! | `compression` | options of `lab compression` |
//! | `cores` | options of `lab cores` |
//! | `driver` | options of `lab driver` |
//! | `emulated` | options of `lab emulated` |
//! | `fragments` | options of `lab fragments` |
//! | `lowend` | options of `lab lowend` |
//! | `profile` | options of `lab profile` |
//! | `rfc2544` | options of `lab rfc2544` |
//! | `topologies` | options of `lab topologies` |
//! | `traffic` | options of traffic that experiments with packets share |
//! | `transfer` | options of `lab transfer` |
//! | `tunnels` | options of `lab tunnels` |
//! | `plan` | options of `plan` |

mod args;
mod background;
mod common;
mod compare;
mod compression;
mod cores;
mod driver;
mod emulated;
mod experiment;
mod fragments;
mod lowend;
mod plan;
mod profile;
mod rfc2544;
mod topologies;
mod traffic;
mod transfer;
mod tunnels;
mod unused;

use std::io::Write;
use std::process::ExitCode;

use self::args::{Args, Command, Demo, Flood, Line};
use self::experiment::Experiment;
use crate::dut::{Encap, Suite};
use crate::{DemoOptions, FloodOptions, Form, LabError, LineOptions, Report};

/// The program: reads the command line, does what it says, returns the exit status.
pub fn main() -> ExitCode {
    let status = run(Args::read(std::env::args_os()).unwrap_or_else(|e| e.exit()).command);
    ExitCode::from(u8::try_from(status).unwrap_or(2))
}

/// A line to standard error; nothing when nobody reads it.
fn complain(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Makes an experiment, if its options make sense, and prints its report; the exit status.
fn measure<E: Experiment>(experiment: E) -> i32 {
    let json = experiment.json();
    let made = |options| crate::present(E::NAME, E::make(options), json);
    settle(&format!("lab {}", E::NAME), experiment.options(), made)
}

/// One command; the exit status.
fn run(command: Command) -> i32 {
    match command {
        Command::Line(a) => measure(*a),
        Command::Flood(a) => measure(*a),
        Command::Driver(a) => measure(*a),
        Command::Background(a) => measure(*a),
        Command::Compression(a) => measure(*a),
        Command::Transfer(a) => measure(*a),
        Command::Topologies(a) => measure(*a),
        Command::Rfc2544(a) => measure(*a),
        Command::Compare(a) => measure(*a),
        Command::Emulated(a) => measure(*a),
        Command::Inside { dir } => crate::inside(&dir),
        Command::Fragments(a) => measure(*a),
        Command::Lowend(a) => measure(*a),
        Command::Cores(a) => measure(*a),
        Command::Profile(a) => measure(a),
        Command::Tunnels(a) => measure(a),
        Command::Report { run, json, csv, markdown, html } => {
            let form = match (json, csv, markdown, html) {
                (true, ..) => Form::Json,
                (_, true, ..) => Form::Csv,
                (_, _, true, _) => Form::Markdown,
                (.., true) => Form::Page,
                _ => Form::Text,
            };
            crate::report_command(&run, form)
        }
        Command::CompareRuns { a, b, json } => crate::compare_runs_command(&a, &b, json),
        Command::Schema { name } => crate::schema_command(name.as_deref()),
        Command::Demo(a) => settle("demo", demo_options(a), crate::demo),
        Command::Plan(a) => plan::plan(*a),
    }
}

fn settle<T>(command: &str, options: Result<T, String>, go: impl FnOnce(T) -> i32) -> i32 {
    match options {
        Ok(options) => go(options),
        Err(e) => {
            complain(format_args!("ironswan {command}: error: {e}"));
            2
        }
    }
}

fn demo_options(a: Demo) -> Result<DemoOptions, String> {
    let mut o = DemoOptions { out: a.out, json: a.json, ..DemoOptions::default() };
    o.encap = match Encap::list(&a.encap)?.as_slice() {
        [one] => *one,
        _ => return Err("--encap of the demo is yes or no".to_owned()),
    };
    if let Some(suite) = a.suite {
        o.dut_options.suites = Suite::list(&suite)?;
    }
    Ok(o)
}

impl Experiment for Line {
    const NAME: &'static str = "line";
    type Options = LineOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<LineOptions, String> {
        let common = self.common.options()?;
        let mut o = LineOptions {
            encaps: common.encaps,
            dut_options: common.dut_options,
            out: common.out,
            quick: common.quick,
            smoke: common.smoke,
            soaker: common.soaker,
            congestion: common.congestion.unwrap_or_default(),
            ..LineOptions::default()
        };
        o.dut_options.data = self.data.iter().map(|d| d.parse()).collect::<Result<_, _>>()?;
        given(common.duts, &mut o.duts);
        given(self.streams, &mut o.streams);
        // 0: as much as the connections take.
        given(self.rates.into_iter().map(|r| (r > 0).then_some(r)).collect(), &mut o.rates_mbps);
        given(self.mode.iter().map(|m| m.parse()).collect::<Result<_, String>>()?, &mut o.modes);
        given(self.direction.iter().map(|d| d.parse()).collect::<Result<_, String>>()?, &mut o.directions);
        o.inner_mtu = self.inner_mtu.unwrap_or(o.inner_mtu);
        o.duration = common.duration.unwrap_or(o.duration);
        o.repeats = common.repeats.unwrap_or(o.repeats);
        Ok(o)
    }

    fn make(options: LineOptions) -> Result<Report, LabError> {
        crate::line(options)
    }
}

impl Experiment for Flood {
    const NAME: &'static str = "flood";
    type Options = FloodOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<FloodOptions, String> {
        let common = self.common.options()?;
        let mut o = FloodOptions {
            encaps: common.encaps,
            dut_options: common.dut_options,
            out: common.out,
            quick: common.quick,
            smoke: common.smoke,
            soaker: common.soaker,
            ..FloodOptions::default()
        };
        o.dut_options.data = self.data.iter().map(|d| d.parse()).collect::<Result<_, _>>()?;
        given(common.duts, &mut o.duts);
        given(self.payload, &mut o.payloads);
        given(self.flows, &mut o.flows);
        given(self.multiples, &mut o.multiples);
        given(self.loss.into_iter().map(|percent| percent / 100.0).collect(), &mut o.goals);
        given(self.placement.iter().map(|p| p.parse()).collect::<Result<_, String>>()?, &mut o.placements);
        given(self.mode.iter().map(|m| m.parse()).collect::<Result<_, String>>()?, &mut o.modes);
        o.packets = self.packets.unwrap_or(o.packets);
        o.repeats = common.repeats.unwrap_or(o.repeats);
        o.inner_mtu = self.inner_mtu.unwrap_or(o.inner_mtu);
        o.width = self.width.map_or(o.width, |percent| percent / 100.0);
        o.probe = self.probe.unwrap_or(o.probe);
        Ok(o)
    }

    fn make(options: FloodOptions) -> Result<Report, LabError> {
        crate::flood(options)
    }
}

/// A list replaces the default when it was given.
fn given<T>(list: Vec<T>, option: &mut Vec<T>) {
    if !list.is_empty() {
        *option = list;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    use super::*;

    fn line(args: &str) -> Result<LineOptions, String> {
        match Args::try_parse_from(args.split(' ')).map_err(|e| e.to_string())?.command {
            Command::Line(a) => a.options(),
            _ => unreachable!("lab line was asked for"),
        }
    }

    #[test]
    fn every_option_of_the_bench_script_is_understood() {
        let o = line(
            "ironswan-lab line --dut plain,ironswan --encap udp,raw --streams 1,4 --mode offload,wire --rates 0,500 \
             --direction forward,both --duration 2.5 --repeats 3 --suite aes128-sha256,aes128gcm16 --inner-mtu 1300 --quick --soaker \
             --congestion bbr",
        )
        .unwrap();
        assert_eq!((o.duts.len(), o.encaps.len(), o.streams.len(), o.modes.len()), (2, 2, 2, 2));
        assert_eq!((o.rates_mbps, o.repeats, o.inner_mtu), (vec![None, Some(500)], 3, 1300));
        assert!(o.quick && o.soaker && o.duration == Duration::from_millis(2500));
        assert_eq!((o.directions.len(), o.dut_options.suites.len()), (2, 2));
        assert_eq!(o.congestion.to_string(), "bbr");
        assert!(line("ironswan-lab line --mode air").unwrap_err().contains("air"));
    }

    #[test]
    fn a_flood_takes_losses_in_percent() {
        let args = "ironswan-lab flood --dut plain --payload 18,64 --flows 10 --placement own-core,own-core-threads --loss 0.5,0.1 \
                    --packets 5000 --width 10 --probe 0.5 --multiples 2 --repeats 2 --mode wire --smoke";
        let o = match Args::try_parse_from(args.split_whitespace()).unwrap().command {
            Command::Flood(a) => a.options().unwrap(),
            _ => unreachable!("lab flood was asked for"),
        };
        assert_eq!((o.duts.len(), o.payloads, o.flows, o.multiples), (1, vec![18, 64], vec![10], vec![2.0]));
        assert_eq!((o.goals, o.packets, o.width, o.repeats), (vec![0.005, 0.001], 5000, 0.1, 2));
        assert!(o.smoke && !o.quick && !o.soaker && o.placements.len() == 2);
    }

    /// Options of experiments that are words, or lists of them.
    const WORDS: [&str; 22] = [
        "dut",
        "encap",
        "suite",
        "out",
        "program",
        "congestion",
        "data",
        "mode",
        "direction",
        "directions",
        "placement",
        "topology",
        "trace",
        "auth",
        "engine",
        "dispatch",
        "check",
        "link",
        "mix",
        "generator",
        "load",
        "hardware",
    ];
    /// Options in which 0 has a meaning: no limit, or none.
    const ZERO: [(&str, &str); 5] = [
        ("line", "rates"),
        ("compression", "rates"),
        ("tunnels", "simulated"),
        ("flood", "loss"),
        ("rfc2544", "loss"),
    ];

    #[test]
    fn every_number_of_every_experiment_has_a_range_and_what_is_outside_is_refused_with_it() {
        let args = Args::command();
        let records = ["report", "compare-runs", "schema", "demo", "plan", "inside", "help"];
        let mut seen = 0;
        for experiment in args.get_subcommands().map(clap::Command::get_name).filter(|n| !records.contains(n))
        {
            let options = args.find_subcommand(experiment).unwrap().get_arguments();
            let options = options.filter(|a| a.get_action().takes_values()).filter_map(|a| a.get_long());
            let numbers: Vec<&str> = options.filter(|name| !WORDS.contains(name)).collect();
            assert!(["duration", "repeats"].iter().all(|n| numbers.contains(n)), "{experiment}: {numbers:?}");
            for name in numbers {
                for value in ["0", "-1", "1e18", "NaN", "inf", "99999999999", "one"] {
                    if value == "0" && ZERO.contains(&(experiment, name)) {
                        continue;
                    }
                    let line = ["ironswan-lab", experiment, &format!("--{name}"), value];
                    let refused = Args::try_parse_from(line).map(|_| ()).expect_err(&line.join(" "));
                    let said = refused.to_string();
                    assert_eq!(refused.exit_code(), 2);
                    let named = said.contains(&format!("'{value}' for '--{name} "));
                    assert!(named && said.contains(" to "), "{}: {said}", line.join(" "));
                    seen += 1;
                }
            }
        }
        assert!(seen > 200, "{seen}");
    }
}
