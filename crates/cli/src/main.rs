//! The program `ironswan`: the gateway and the commands that operate it.
//!
//! Exit status of every command: 0 success, 1 the answer is no (a check failed, a tunnel did not
//! come up), 2 usage or configuration error. Operator commands speak VICI to the daemon (`vici`);
//! what they print is made in `text` or, with `--json`, in `json`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `args` | the command line |
//! | `operate` | `up`, `down`, `rekey` |
//! | `routes` | `route`, `unroute` |
//! | `lines` | `log` |
//! | `capture` | `capture` |
//! | `view` | `list` |
//! | `status` | `status` of one connection |
//! | `top/` | `top` |
//! | `tunnels` | `status`: one line per tunnel |
//! | `explain` | `explain NAME`, `explain --peer` |
//! | `packet` | `explain --packet` |
//! | `prove` | `prove` |
//! | `certs` | `list certs`, `list pools` |
//! | `plane` | the data plane in `status` and `list counters` |
//! | `replays` | the replay check in `list counters` |
//! | `algs` | `list algs` |
//! | `check` | `check` |
//! | `doctor` | `doctor` |
//! | `report` | `report` |
//! | `guard` | `guard` |
//! | `companion` | starts `ironswan-lab` (`lab`, `demo`, `plan`) and `ironswan-pki` (`pki`) |
//! | `failure` | why a command did not do what it was asked |
//! | `vici` | a client of VICI |
//! | `text` | tables for people |
//! | `json` | the same for programs |

#[macro_use]
mod text;

mod algs;
mod args;
mod capture;
mod certs;
mod check;
mod companion;
mod doctor;
mod explain;
mod failure;
mod guard;
mod json;
mod lines;
#[cfg(test)]
mod manual_tests;
mod operate;
mod packet;
mod plane;
mod prove;
mod replays;
mod report;
mod routes;
mod status;
mod top;
mod tunnels;
mod vici;
mod view;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command, What};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let (name, result) = match args.command {
        Command::Run(a) => ("run", run(&a)),
        Command::Helper(a) => {
            ("helper", ironswan_gateway::helper::serve::run(&a.config).map_err(Failure::usage))
        }
        Command::Fetcher(a) => (
            "fetcher",
            ironswan_gateway::helper::fetch::run(a.uid, a.gid, !a.any_call).map_err(Failure::usage),
        ),
        Command::Up(a) => ("up", operate::up(&a)),
        Command::Down(a) => ("down", operate::down(&a)),
        Command::Rekey(a) => ("rekey", operate::rekey(&a)),
        Command::Top(a) => ("top", top::top(&a)),
        Command::Status(a) => ("status", tunnels::status(&a)),
        Command::Prove(a) => ("prove", prove::prove(&a)),
        Command::Explain(a) => ("explain", explain::explain(&a)),
        Command::Route(a) => ("route", routes::route(&a)),
        Command::Unroute(a) => ("unroute", routes::unroute(&a)),
        Command::Log(a) => ("log", lines::log(&a)),
        Command::List(a) => match a.what {
            What::Conns => ("list conns", view::conns(&a)),
            What::Sas => ("list sas", view::sas(&a)),
            What::Pols => ("list pols", view::pols(&a)),
            What::Counters => ("list counters", view::counters(&a)),
            What::Algs => ("list algs", algs::algs(&a)),
            What::Certs => ("list certs", certs::certs(&a)),
            What::Pools => ("list pools", certs::pools(&a)),
        },
        Command::Capture(a) => ("capture", capture::capture(&a)),
        Command::Check(a) => ("check", check::check(&a)),
        Command::Doctor(a) => ("doctor", doctor::doctor(&a)),
        Command::Report(a) => ("report", report::report(&a)),
        Command::Pki(a) => ("pki", Err(companion::PKI.start(None, &a))),
        Command::Guard(a) => ("guard", guard::guard(&a)),
        Command::Demo(a) => ("demo", Err(companion::LABORATORY.start(Some("demo"), &a))),
        Command::Lab(a) => ("lab", Err(companion::LABORATORY.start(None, &a))),
        Command::Plan(a) => ("plan", Err(companion::LABORATORY.start(Some("plan"), &a))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = |line: &String| format!("ironswan {name}: error: {line}");
            let lines: Vec<String> = failure.lines.iter().map(line).collect();
            match name {
                // A service ends although nobody reads its log.
                "run" => ironswan_gateway::observe::log::last_words(&lines),
                _ => lines.iter().for_each(|line| text::complain(format_args!("{line}"))),
            }
            ExitCode::from(failure.status)
        }
    }
}

fn run(a: &args::Run) -> Result<(), Failure> {
    let options = ironswan_gateway::start::run::RunOptions { config: a.config.clone(), vici: a.vici.clone() };
    ironswan_gateway::start::run::run(&options)
        .map_err(|e| Failure { status: if e.started || e.passes { 1 } else { 2 }, lines: e.lines })
}
