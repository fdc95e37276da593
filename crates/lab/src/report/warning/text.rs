//! The sentence of each doubt: what was seen, what it means for the figures, and what to do.

use super::{NOISE, Warning};
use crate::report::number::{number, percent as exact_percent};

impl Warning {
    /// The sentence for people.
    pub fn text(&self) -> String {
        let percent = |share: &f64| format!("{:.0} %", share * 100.0);
        match self {
            Self::FewRepeats { repeats } => {
                let s = if *repeats == 1 { "" } else { "s" };
                format!("only {repeats} repeat{s}: the spread says little, and figures that are published have five or more")
            }
            Self::OtherLoad { share } => format!(
                "other programs took up to {} of this machine while it measured; the cost per byte contains them",
                percent(share)
            ),
            Self::Stolen { share } => format!(
                "the host of this virtual machine took up to {} of its processor time away",
                percent(share)
            ),
            Self::DebugBuild => {
                "this is a debug build; its figures say nothing about IronSwan: measure a release build"
                    .into()
            }
            Self::SharedCores { cpus } => format!(
                "both hosts and both gateways share {cpus} processor{}: the rate is that of the whole line, so compare \
                 the cost per byte",
                if *cpus == 1 { "" } else { "s" }
            ),
            Self::RateNotReached { dut, cell, rate_mbps } => {
                format!("{dut}, {cell}: did not carry the {rate_mbps} Mb/s offered")
            }
            Self::Unsteady { dut, cell, trials } => format!(
                "{dut}, {cell}: in {trials} trial{} the rate changed by more than a quarter within the window",
                if *trials == 1 { "" } else { "s" }
            ),
            Self::OffloadOff { dut, cell, bytes_per_buffer } => format!(
                "{dut}, {cell}: packets arrived in buffers of {bytes_per_buffer:.0} bytes, which is not what this mode \
                 means"
            ),
            Self::BacklogDrops { packets } => format!(
                "the kernel dropped {packets} packet{} in its receive backlog, before any gateway saw them",
                if *packets == 1 { "" } else { "s" }
            ),
            Self::FewPackets { packets } => {
                format!(
                    "{packets} packets decide a throughput: a loss of a thousandth of a percent needs a million"
                )
            }
            Self::TesterLimited { dut, cell, trials: 0 } => format!(
                "{dut}, {cell}: it carried as much as the generator sends: its throughput may be higher"
            ),
            Self::TesterLimited { dut, cell, trials } => format!(
                "{dut}, {cell}: in {trials} deciding trial{} the tester itself left out or lost more packets than may be lost: \
                 its throughput may be higher",
                if *trials == 1 { "" } else { "s" }
            ),
            Self::Withheld { dut, cell, losses, alone } => {
                let alone = alone.map_or_else(String::new, |pps| {
                    format!(" (without a gateway it carries {:.1} kpps)", pps / 1e3)
                });
                format!(
                    "{dut}, {cell}: for a loss of {losses} the tester set the limit, not {dut}{alone}: no ratio to it is shown"
                )
            }
            Self::NoThroughput { dut, cell, goal, least: Some(pps) } => format!(
                "{dut}, {cell}: the search for the highest rate at which it loses no more than {} ended before it was done: it is \
                 {:.1} kpps or more",
                exact_percent(*goal),
                pps / 1e3
            ),
            Self::NoThroughput { dut, cell, goal, least: None } => {
                format!(
                    "{dut}, {cell}: no rate was found at which it lost no more than {}",
                    exact_percent(*goal)
                )
            }
            Self::WideSearch { dut, cell, goal, pps, failed } => format!(
                "{dut}, {cell}: the search for a loss of {} ran out of trials: {:.1} kpps passed, {:.1} did not, and between them \
                 nothing is known",
                exact_percent(*goal),
                pps / 1e3,
                failed / 1e3
            ),
            Self::Lowered { dut, cell, goal, before, pps, why, confirmed, of } => {
                let left = match *pps {
                    0.0 => "0: later trials carried no rate at all".to_string(),
                    pps => format!("{:.1} kpps, which {confirmed} of {of} later trials carried", pps / 1e3),
                };
                format!(
                    "{dut}, {cell}: the search found {:.1} kpps for a loss of {goal}, but {} of {} later trials at or below that \
                     lost more, most of all {:.1} % at {:.1} kpps: lowered to {left}",
                    before / 1e3,
                    why.trials,
                    why.of,
                    why.lost * 100.0,
                    why.load / 1e3
                )
            }
            Self::Unconfirmed { dut, cell, goal, pps, confirmed, of } => format!(
                "{dut}, {cell}: {:.1} kpps is what the search found for a loss of {goal}; {confirmed} of {of} later trials carried \
                 it, which are too few to confirm it",
                pps / 1e3
            ),
            Self::Impossible { dut, cell, what, more } => {
                let more = if *more == 0 { String::new() } else { format!(" (and {more} more)") };
                format!("{dut}, {cell}: {what}{more}: the laboratory has miscounted")
            }
            Self::Unexplained { dut, cell, share } => format!(
                "{dut}, {cell}: up to {:.1} % of the packets sent are not accounted for by any counter, or counted twice",
                share * 100.0
            ),
            Self::ClockUnstable { clocksource } => {
                format!("the kernel tells time by {clocksource}, not by the processor's counter")
            }
            Self::Killed { dut, processes } => format!(
                "{dut}: {} did not end within 3 s of SIGTERM and had to be killed",
                processes.join(", ")
            ),
            Self::NotInstalled { dut, lack, action } => format!("{dut} left out: {lack}: {action}"),
            Self::Saturated { share } => format!(
                "loads that should be far below what this machine carries lost up to {:.1} % of their packets: it was busy \
                 with something else, or is too slow for them; measure again when it is quiet",
                share * 100.0
            ),
            Self::Unprotected { dut, packets } => {
                format!(
                    "{dut}: {packets} packets crossed the link between the gateways outside of its protocol"
                )
            }
            Self::Fragments { dut, packets } => format!(
                "{dut}: packets crossed the link between the gateways in pieces ({packets} later ones): its figures are those of \
                 fragmentation"
            ),
            Self::WrongPackets { dut, packets, what } => {
                format!(
                    "{dut}: {packets} packets came out of the gateway that should not have; of all that did: {what}"
                )
            }
            Self::NoPlain => "plain forwarding was not measured: there is no ratio and no added cost".into(),
            Self::LibipsecAlone { measured, usual } => format!(
                "{measured} is strongSwan with its own ESP in user space; as it is usually run, with the kernel's ESP ({usual}), it was \
                 not measured here: `ironswan lab doctor` says what this machine lacks for it, and `ironswan lab emulated` measures \
                 it in a guest"
            ),
            Self::AbovePlain { cells, of, worst, ratio, why } => format!(
                "{cells} of {of} throughputs are above plain's, most of all {worst}: {ratio:.2} times; a tunnel adds work, but {why}: \
                 compare the costs there; no conclusion is drawn from these ratios"
            ),
            Self::NoisyFigures { noisy, of, worst, range } => format!(
                "the repeats of {noisy} of {of} figures differ by more than {} of their median, most of all {worst}: by {}; read \
                 these medians as hints",
                percent(&NOISE),
                percent(range)
            ),
            Self::Throttled { what } => format!("{what}: figures are lower than this machine can do"),
            Self::FrequencyScaling { what } => {
                format!("{what}: times are those of a clock that changes; set the governor to performance")
            }
            Self::NotAllUp { dut, tunnels, up, seconds } => format!(
                "{dut}: {up} of {tunnels} tunnels were up after {seconds:.0} s; there is no time for all of them"
            ),
            Self::CostGrows { dut, tunnels, growth } => format!(
                "{dut}: of {tunnels} tunnels one of the last tenth cost {growth:.2} times as much as one of the second: \
                 the time is not in proportion to their number"
            ),
            Self::RelayLimited { dut, cell, busy, frames } => format!(
                "{dut}, {cell}: the relay that emulates the link was at work for {} of a window and lost {frames} frames that it \
                 should not have: the figure is the relay's, not the link's",
                percent(busy)
            ),
            Self::PeerTrouble { why } => {
                format!("not every exchange was as it should be, first of all: {why}")
            }
            Self::Calibration { what } => {
                format!("{what}: shares that are compared with it are wrong by as much")
            }
            Self::Accounting { cell, kernel, soaker, apart } => format!(
                "{cell}: {} of the processors were busy by the kernel's accounting, {} by the soaker; {:.0} points would be \
                 explained by ticks, other programs and the soaker's own error",
                percent(kernel),
                percent(soaker),
                apart * 100.0
            ),
            Self::LeftOut { what } => format!("left out: {what}"),
            Self::Smoke => "made with --smoke to show that everything works: its figures mean nothing".into(),
            Self::Quick => "made with --quick, one short repeat of each load and fewer tunnels: calibrate without it for figures".into(),
            Self::TooShort { figures, of, first } => format!(
                "in {figures} of {of} figures a cost would rest on fewer than ten clock ticks and is left out (too short), first in \
                 {first}: make the measurement longer"
            ),
            Self::FewTicks { figures, of, first } => format!(
                "{figures} of {of} loads took the machine fewer than ten clock ticks, first {first}: what a packet costs there is \
                 rounded; make the loads longer"
            ),
            Self::ShortTrials { seconds } => {
                format!("trials of {} s: those of figures that are published last 10 s or more", number(*seconds))
            }
            Self::ShortWindow { seconds } => {
                format!("windows of {seconds:.1} s are for trying the laboratory out, not for figures")
            }
        }
    }
}
