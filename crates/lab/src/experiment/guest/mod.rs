//! Experiment E13, `lab emulated`: the line inside one QEMU guest that counts instructions. One
//! instruction of the guest is a fixed time of its clock, so a load that never waits takes as many
//! instructions as its time says, whatever else this machine does.
//!
//! ```text
//!   this machine                          guest: one emulated processor
//!   kernel + initramfs ── QEMU ─────────> init ── ironswan-lab inside
//!   orders.json ─── 9p, read only ──────>            line, system, load
//!   record <─────── serial port, JSON ───            instructions of each load
//! ```
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `conclude` | tables, what they do not say, the historical figures |
//! | `count` | what a load takes by the counters of the guest's kernel |
//! | `ftp` | a file by FTP inside the guest |
//! | `host` | the part that runs on this machine |
//! | `initramfs` | the archive that the guest begins with, and its `init` |
//! | `inside` | the part that runs in the guest |
//! | `kernel` | Debian's kernel, fetched once and not installed |
//! | `machine` | the QEMU process and its lines |
//! | `orders` | what crosses between the two |
//! | `slow` | processors as slow as those of the nineties, in the units of then |

mod conclude;
mod count;
mod ftp;
mod host;
mod initramfs;
mod inside;
mod kernel;
mod machine;
mod orders;
mod slow;

use std::time::Duration;

pub use inside::inside;

use self::host::{Bench, Guests, INNER_MTU};
use self::machine::Processor;
use self::orders::{Counted, Load};
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::line::once;
use super::runner::{self, Method, Schedule};
use crate::error::LabError;
use crate::record::{Better, Record, factors};
use crate::topology::Mode;

const ABOUT: About = About {
    name: "emulated",
    number: "E13",
    question: "How many instructions does a packet or a byte take along the whole line, by system and load?",
    measures: &[
        (
            "per_packet",
            "instr/packet",
            "instructions",
            "from the sender's write to the receiver's read, all four boxes, per packet (UDP)",
            Better::Less,
        ),
        (
            "per_byte",
            "instr/byte",
            "instructions",
            "from the sender's write to the receiver's read, all four boxes, per byte of payload (TCP)",
            Better::Less,
        ),
        (
            "idle",
            "idle",
            "share",
            "of the guest's time in which its processor had nothing to do; not among the instructions",
            Better::Neither,
        ),
        (
            "switches",
            "switches",
            "switches/packet",
            "how often the processor went from one thread to another, per packet (UDP)",
            Better::Neither,
        ),
        ("million", "10^6 instr", "10^6 instructions", "of the whole load", Better::Neither),
    ],
    baseline: Some(("system", "plain")),
};

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct EmulatedOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Sizes of UDP packets as frames on the inner links, FCS included; 100 and 1,418 when empty.
    pub sizes: Vec<u32>,
    /// Packets that are sent before the first of them is waited for; 1 and 32 when empty.
    pub bursts: Vec<u32>,
    /// TCP and FTP on processors as slow as those of the nineties instead.
    pub slow: bool,
}

/// What is measured when no system is named.
const SYSTEMS: [&str; 5] = ["plain", "strongswan-kernel", "ironswan", "kernel-wireguard", "wireguard-go"];
/// Largest inner frame that crosses in one packet.
const LARGEST: u32 = INNER_MTU + 18;

/// Makes the experiment.
pub fn emulated(options: EmulatedOptions) -> Result<Report, LabError> {
    let common = &options.common;
    if options.slow {
        if !(options.sizes.is_empty() && options.bursts.is_empty()) {
            return Err(LabError::Usage(
                "--slow carries TCP and FTP: it has no use for --sizes and --bursts".into(),
            ));
        }
        return slow::slow(common);
    }
    let loads = loads(&options)?;
    let guests = Guests { loads, ..Guests::new(common, common.dut_options.clone(), &SYSTEMS)? };
    let repeats = common.repeats.unwrap_or(common.by_care(2, 1, 1));
    let samples = guests.names.len() * guests.loads.len() * repeats as usize;
    let schedule =
        Schedule { about: ABOUT, common, cells: vec![()], repeats, samples, guess: Duration::from_secs(8) };
    runner::run(schedule, &Work { guests, repeats })
}

/// The loads of every system, in their order.
fn loads(options: &EmulatedOptions) -> Result<Vec<Load>, LabError> {
    let or = |list: &[u32], own: &[u32]| if list.is_empty() { own.to_vec() } else { list.to_vec() };
    let (mut sizes, mut bursts) = (or(&options.sizes, &[100, LARGEST]), or(&options.bursts, &[1, 32]));
    once(&mut sizes);
    once(&mut bursts);
    if let Some(bad) = sizes.iter().find(|s| !(64..=LARGEST).contains(*s)) {
        return Err(LabError::Usage(format!(
            "--sizes {bad}: in this experiment a frame has 64 to {LARGEST} bytes"
        )));
    }
    let packets = options.common.by_care(2048, 512, 64);
    let bytes = options.common.by_care(16 << 20, 4 << 20, 1 << 20);
    let udp = sizes.iter().flat_map(|&size| {
        bursts.iter().map(move |&burst| Load::Udp { size, burst, packets: packets.max(burst) })
    });
    let tcp = [Mode::Offload, Mode::Wire].map(|mode| Load::Tcp { mode, bytes });
    Ok(udp.chain(tcp).collect())
}

/// The experiment under way.
struct Work<'a> {
    guests: Guests<'a>,
    repeats: u32,
}

impl Method for Work<'_> {
    /// A guest, with all systems and loads.
    type Cell = ();
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        c.settings.insert("repeats".into(), format!("{} guests, each booted anew", self.repeats));
        c.settings.insert("processor of the guest".into(), Processor::USUAL.to_string());
        self.guests.prepare(c)
    }

    fn trial(&self, c: &mut Campaign, bench: &mut Bench, (): &(), repeat: u32) -> Result<(), LabError> {
        self.guests.run(c, bench, Processor::USUAL, |c, counted, began| take(c, counted, repeat, began))
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

/// Takes one load down.
fn take(c: &mut Campaign, counted: &Counted, repeat: u32, began: f64) {
    let instructions = counted.instructions as f64;
    let mut measures = vec![("idle", counted.idle), ("million", instructions / 1e6)];
    let units = counted.units as f64;
    if matches!(counted.load, Load::Udp { .. }) {
        measures.push(("switches", counted.switches as f64 / units));
    }
    measures.push(match counted.load {
        Load::Udp { .. } => ("per_packet", instructions / units),
        Load::Tcp { .. } | Load::Ftp { .. } => ("per_byte", instructions / units),
    });
    let (kind, load) = (counted.load.kind(), counted.load.to_string());
    let f = factors([("traffic", kind), ("load", &load), ("system", &counted.system)]);
    c.sample(f, repeat, began, &measures, vec![]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_meets_every_burst_and_tcp_crosses_in_both_forms() {
        let names: Vec<String> =
            loads(&EmulatedOptions::default()).expect("loads").iter().map(ToString::to_string).collect();
        let wanted = [
            "100 B, one at a time",
            "100 B, bursts of 32",
            "1418 B, one at a time",
            "1418 B, bursts of 32",
            "offload",
            "wire",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn frames_that_do_not_cross_in_one_packet_and_unknown_systems_are_refused() {
        for sizes in [vec![63], vec![1419]] {
            let e = emulated(EmulatedOptions { sizes, ..EmulatedOptions::default() }).expect_err("a size");
            assert!(matches!(&e, LabError::Usage(why) if why.contains("64 to 1418")), "{e}");
        }
        let common = Common { duts: vec!["opensvan".into()], ..Common::default() };
        let e = emulated(EmulatedOptions { common, ..EmulatedOptions::default() }).expect_err("a system");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }

    #[test]
    fn loads_that_it_does_not_have_are_refused() {
        let options = EmulatedOptions { slow: true, sizes: vec![100], ..EmulatedOptions::default() };
        let e = emulated(options).expect_err("a size");
        assert!(matches!(&e, LabError::Usage(why) if why.contains("--sizes")), "{e}");
        let common = Common { duts: vec!["opensvan".into()], ..Common::default() };
        let e = emulated(EmulatedOptions { slow: true, common, ..EmulatedOptions::default() })
            .expect_err("a system");
        assert!(matches!(e, LabError::Usage(_)), "{e}");
    }
}
