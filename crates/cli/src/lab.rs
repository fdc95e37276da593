//! `demo` and `lab`: options to the laboratory's own.

use std::time::Duration;

use ironswan_lab::dut::Encap;
use ironswan_lab::{DemoOptions, LineOptions};

use crate::args::{Demo, Experiment, Lab, Line};

/// `demo`; the exit status.
pub(crate) fn demo(a: Demo) -> i32 {
    settle("demo", demo_options(a), ironswan_lab::demo)
}

/// `lab ...`; the exit status.
pub(crate) fn lab(a: Lab) -> i32 {
    match a.experiment {
        Experiment::Line(a) => {
            let json = a.json;
            settle("lab line", line_options(*a), |o| ironswan_lab::line_command(o, json))
        }
        Experiment::Report { run, json } => ironswan_lab::report_command(&run, json),
    }
}

fn settle<T>(command: &str, options: Result<T, String>, go: impl FnOnce(T) -> i32) -> i32 {
    match options {
        Ok(options) => go(options),
        Err(e) => {
            eprintln!("ironswan {command}: error: {e}");
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
        o.dut_options.suite = suite.parse()?;
    }
    Ok(o)
}

fn line_options(a: Line) -> Result<LineOptions, String> {
    let mut o = LineOptions { out: a.out, quick: a.quick, smoke: a.smoke, ..LineOptions::default() };
    if !a.dut.is_empty() {
        o.duts = a.dut;
    }
    if let Some(encap) = a.encap {
        o.encaps = Encap::list(&encap)?;
    }
    if let Some(suite) = a.suite {
        o.dut_options.suite = suite.parse()?;
    }
    o.dut_options.ironswan = a.program;
    if !a.streams.is_empty() {
        o.streams = a.streams;
    }
    if !a.rates.is_empty() {
        o.rates_mbps = a.rates.into_iter().map(Some).collect();
    }
    if !a.mode.is_empty() {
        o.modes = a.mode.iter().map(|m| m.parse()).collect::<Result<_, String>>()?;
    }
    if let Some(direction) = a.direction {
        o.direction = direction.parse()?;
    }
    if let Some(mtu) = a.inner_mtu {
        o.inner_mtu = mtu;
    }
    if let Some(secs) = a.duration {
        o.duration = Duration::try_from_secs_f64(secs).map_err(|e| format!("--duration: {e}"))?;
    }
    if let Some(repeats) = a.repeats {
        o.repeats = repeats;
    }
    Ok(o)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn line(args: &str) -> Result<LineOptions, String> {
        match Args::try_parse_from(args.split(' ')).map_err(|e| e.to_string())?.command {
            Command::Lab(Lab { experiment: Experiment::Line(a) }) => line_options(*a),
            _ => unreachable!("lab line was asked for"),
        }
    }

    #[test]
    fn every_option_of_the_bench_script_is_understood() {
        let o = line(
            "ironswan lab line --dut plain,ironswan --encap udp,raw --streams 1,4 --mode offload,wire --rates 500 \
             --direction both --duration 2.5 --repeats 3 --suite aes128-sha256 --inner-mtu 1300 --quick",
        )
        .unwrap();
        assert_eq!((o.duts.len(), o.encaps.len(), o.streams.len(), o.modes.len()), (2, 2, 2, 2));
        assert_eq!((o.rates_mbps, o.repeats, o.inner_mtu, o.quick), (vec![Some(500)], 3, 1300, true));
        assert!(line("ironswan lab line --mode air").unwrap_err().contains("air"));
        assert!(line("ironswan lab line --duration -1").is_err());
    }
}
