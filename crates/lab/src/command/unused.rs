//! Shared options for which an experiment has no use: they are not in its help, and refused with
//! the reason.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use super::args::Args;

const NO_TCP: &str = "it carries no TCP";
const NO_GATEWAY: &str = "it measures crypto engines alone, without a gateway";

/// Experiments, and the options for which each has no use, with the reason.
const UNUSED: [(&str, &[(&str, &str)]); 9] = [
    ("background", &[("soaker", "it has a soaker of its own")]),
    (
        "cores",
        &[
            ("dut", "only ironswan is told how many workers it has"),
            ("soaker", "its rates are the highest ones, which leave nothing to a soaker"),
            ("congestion", NO_TCP),
        ],
    ),
    (
        "driver",
        &[
            ("dut", NO_GATEWAY),
            ("encap", NO_GATEWAY),
            ("program", NO_GATEWAY),
            ("soaker", NO_GATEWAY),
            ("congestion", NO_GATEWAY),
            ("duration", "a measurement is as long as its --operations take"),
        ],
    ),
    (
        "emulated",
        &[
            ("duration", "a load has a number of packets or bytes"),
            ("soaker", "its guest has one processor, which is never idle"),
            ("congestion", "its guest has the usual one"),
        ],
    ),
    (
        "flood",
        &[("congestion", NO_TCP), ("duration", "its short trials have --probe, the deciding ones --packets")],
    ),
    ("fragments", &[("congestion", NO_TCP)]),
    ("rfc2544", &[("congestion", NO_TCP)]),
    ("transfer", &[("duration", "a measurement is as long as a file of --size takes")]),
    ("tunnels", &[("congestion", NO_TCP), ("encap", "all its tunnels are in UDP")]),
];

impl Args {
    /// Reads the command line.
    pub(super) fn read<I, T>(arguments: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let mut command = UNUSED.into_iter().fold(Self::command(), |command, (experiment, unused)| {
            command.mut_subcommand(experiment, |experiment| {
                unused.iter().fold(experiment, |all, (option, _)| all.mut_arg(option, |arg| arg.hide(true)))
            })
        });
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        if let Some((experiment, given)) = matches.subcommand()
            && let Some((_, unused)) = UNUSED.iter().find(|(name, _)| *name == experiment)
            && let Some((option, why)) =
                unused.iter().find(|(option, _)| given.value_source(option) == Some(ValueSource::CommandLine))
        {
            let text = format!("--{option}: lab {experiment} has no use for it: {why}");
            return Err(command.error(ErrorKind::UnknownArgument, text));
        }
        Self::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_experiment_has_no_use_for_is_refused_and_not_in_its_help() {
        for (experiment, unused) in UNUSED {
            let help = Args::read(["ironswan-lab", experiment, "--help"]).expect_err("help").to_string();
            assert!(help.contains("--repeats"), "{help}");
            for (option, why) in unused {
                let flag = format!("--{option}");
                assert!(
                    !help.contains(&format!("{flag} ")) && !help.contains(&format!("{flag}\n")),
                    "{help}"
                );
                let line = ["ironswan-lab", experiment, &flag];
                // Whichever value each takes.
                let line = line.into_iter().chain((*option != "soaker").then_some("1"));
                let refused = Args::read(line).expect_err(option);
                assert_eq!(refused.exit_code(), 2);
                assert!(
                    refused.to_string().contains(why) && refused.to_string().contains(&flag),
                    "{refused}"
                );
            }
            // Elsewhere it means something.
            let line = ["ironswan-lab", "line", "--dut", "plain", "--encap", "raw", "--soaker"];
            assert!(Args::read(line.into_iter().chain(["--congestion", "cubic", "--duration", "1"])).is_ok());
        }
    }
}
