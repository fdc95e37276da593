//! Runs experiments of the laboratory without the `ironswan` program, for work on the laboratory itself.
//!
//! ```text
//! line [demo | flood] [--dut a,b] [--streams 1,4] [--rates MBPS,MBPS] [--mode offload,wire] [--encap yes|no|both] [--direction forward,reverse,both] [--suite S,S] [--duration S]
//!      [--repeats N] [--out DIR] [--program IRONSWAN] [--json] [--quick] [--smoke]
//!      flood: [--payload N,N] [--flows N,N] [--placement free,own-core,own-core-threads]
//! ```

use std::process::exit;
use std::str::FromStr;
use std::time::Duration;

use ironswan_lab::dut::Encap;
use ironswan_lab::{DemoOptions, FloodOptions, LineOptions, demo, flood_command, line_command};

fn main() {
    match run() {
        Ok(status) => exit(status),
        Err(why) => {
            eprintln!("{why}");
            exit(2)
        }
    }
}

fn run() -> Result<i32, String> {
    let mut o = LineOptions::default();
    let mut f = FloodOptions::default();
    let (mut json, mut is_demo, mut is_flood, mut touched) = (false, false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(a) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{a} needs a value"));
        match a.as_str() {
            "demo" => is_demo = true,
            "flood" => is_flood = true,
            "--payload" => f.payloads = list(&value()?)?,
            "--flows" => f.flows = list(&value()?)?,
            "--placement" => f.placements = list(&value()?)?,
            "--json" => json = true,
            "--quick" => o.quick = true,
            "--smoke" => o.smoke = true,
            "--dut" => o.duts = list(&value()?)?,
            "--streams" => o.streams = list(&value()?)?,
            "--rates" => o.rates_mbps = list(&value()?)?.into_iter().map(Some).collect(),
            "--direction" => o.directions = list(&value()?)?,
            "--mode" => o.modes = list(&value()?)?,
            "--suite" => o.dut_options.suites = list(&value()?)?,
            "--encap" => o.encaps = Encap::list(&value()?)?,
            "--duration" => {
                touched = true;
                o.duration = Duration::try_from_secs_f64(number(&value()?)?).map_err(|e| e.to_string())?;
            }
            "--repeats" => {
                touched = true;
                o.repeats = number(&value()?)?;
            }
            "--out" => o.out = Some(value()?.into()),
            "--program" => o.dut_options.ironswan = Some(value()?.into()),
            _ => return Err(format!("unknown argument {a}")),
        }
    }
    if is_flood {
        (f.duts, f.encaps, f.dut_options, f.modes) = (o.duts, o.encaps, o.dut_options, o.modes);
        (f.out, f.quick, f.smoke) = (o.out, o.quick, o.smoke);
        return Ok(flood_command(f, json));
    }
    if !is_demo {
        return Ok(line_command(o, json));
    }
    let mut d = DemoOptions {
        dut_options: o.dut_options,
        encap: o.encaps[0],
        out: o.out,
        json,
        ..Default::default()
    };
    if touched {
        (d.duration, d.repeats) = (o.duration, o.repeats);
    }
    Ok(demo(d))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn list<T: FromStr<Err: ToString>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|w| w.parse().map_err(|e: T::Err| e.to_string())).collect()
}
