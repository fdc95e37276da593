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
//! | `initramfs` | the archive that the guest begins with, and its `init` |
//! | `inside` | the part that runs in the guest |
//! | `kernel` | Debian's kernel, fetched once and not installed |
//! | `machine` | the QEMU process and its lines |
//! | `orders` | what crosses between the two |

mod conclude;
mod initramfs;
mod inside;
mod kernel;
mod machine;
mod orders;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use inside::inside;

use self::kernel::Kernel;
use self::machine::Guest;
use self::orders::{Counted, Load, Message, Orders};
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::general_doubts::is_debug;
use super::line::once;
use super::runner::{self, Method, Schedule};
use crate::dut::{self, Encap};
use crate::error::{LabError, Remedy};
use crate::record::{Better, Record, factors};
use crate::report::Warning;
use crate::topology::{Mode, Owner};

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
}

/// What is measured when no system is named.
const SYSTEMS: [&str; 5] = ["plain", "strongswan-kernel", "ironswan", "kernel-wireguard", "wireguard-go"];
/// Bytes of a frame that are not UDP payload: Ethernet header and FCS, IP, UDP.
const OVERHEAD: u32 = 18 + 20 + 8;
const INNER_MTU: u32 = 1400;
/// Largest inner frame that crosses in one packet.
const LARGEST: u32 = INNER_MTU + 18;

/// Makes the experiment.
pub fn emulated(options: EmulatedOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let loads = loads(&options)?;
    let mut names = common.duts.clone();
    if names.is_empty() {
        names = SYSTEMS.map(String::from).to_vec();
    }
    once(&mut names);
    // What there is in the guest is found out there, but a name must be one.
    for name in names.iter().filter(|n| *n != "all") {
        dut::by_name(name, &common.encaps, &common.dut_options)?;
    }
    let lacks = machine::lacks();
    if !lacks.is_empty() {
        return Err(LabError::Unfit(lacks));
    }
    let repeats = common.repeats.unwrap_or(common.by_care(2, 1, 1));
    let samples = names.len() * loads.len() * repeats as usize;
    let schedule =
        Schedule { about: ABOUT, common, cells: vec![()], repeats, samples, guess: Duration::from_secs(8) };
    runner::run(schedule, &Work { common, names, loads, repeats })
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
    common: &'a Common,
    names: Vec<String>,
    loads: Vec<Load>,
    repeats: u32,
}

/// What stands during all rounds.
struct Bench {
    /// Its folder has the archive and the orders, and is removed with it.
    owner: Owner,
    kernel: Kernel,
    archive: PathBuf,
    /// Engines of this machine, by suite.
    here: BTreeMap<String, String>,
}

impl Method for Work<'_> {
    /// A guest, with all systems and loads.
    type Cell = ();
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        if !self.names.iter().any(|n| n == "plain" || n == "all") {
            c.doubt(Warning::NoPlain);
        }
        if self.names.iter().any(|n| n == "ironswan" || n == "all") && is_debug(&self.common.dut_options) {
            c.doubt(Warning::DebugBuild);
        }
        // Whatever else this machine does changes no count.
        c.disturbed_by(0.0, 0.0);
        c.says("Debian's kernel")?;
        let kernel = Kernel::fetched()?;
        let owner = Owner::claim()?;
        let archive = initramfs::write(&kernel, owner.dir())?;
        self.orders()?.write(owner.dir())?;
        c.versions.insert("the guest's kernel".into(), kernel.version.clone());
        if let Some(version) = machine::version() {
            c.versions.insert("QEMU".into(), version);
        }
        c.settings.insert("repeats".into(), format!("{} guests, each booted anew", self.repeats));
        c.settings.insert("processor of the guest".into(), machine::PROCESSOR.into());
        c.settings.insert("inner MTU".into(), INNER_MTU.to_string());
        c.settings.insert("suites".into(), self.common.dut_options.esp());
        let here = inside::engines(&self.common.dut_options.suites);
        Ok(Bench { owner, kernel, archive, here })
    }

    fn trial(&self, c: &mut Campaign, bench: &mut Bench, (): &(), repeat: u32) -> Result<(), LabError> {
        c.says("the guest boots")?;
        let dir = bench.owner.dir();
        let mut guest = Guest::boot(&bench.kernel, &bench.archive, dir)?;
        let mut samples = 0;
        loop {
            let began = c.elapsed();
            match guest.next()? {
                Message::Says(what) => c.says(&what)?,
                Message::System { name, version } => {
                    if let Some(version) = version {
                        c.versions.insert(name, version);
                    }
                }
                Message::LeftOut { name, lack, action } => {
                    c.doubt(Warning::NotInstalled { dut: name, lack, action });
                }
                Message::Engine { suite, ours, kernel } => {
                    let here = bench.here.get(&suite).map_or("none", String::as_str);
                    c.settings.insert(format!("engines, {suite}"), conclude::engines(&ours, here, &kernel));
                }
                Message::Killed { name, processes } => c.doubt(Warning::Killed { dut: name, processes }),
                Message::Counted(counted) => {
                    samples += 1;
                    take(c, &counted, repeat, began);
                }
                Message::Failed(why) => return Err(guest.failed(&why)),
                Message::Ran(commands) => c.ran(commands),
                Message::Done => break,
            }
        }
        c.ran(guest.commands());
        if samples == 0 {
            return Err(guest.failed("it measured nothing"));
        }
        Ok(())
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

impl Work<'_> {
    /// What the guest is to do.
    fn orders(&self) -> Result<Orders, LabError> {
        let options = &self.common.dut_options;
        let named = !self.common.duts.is_empty() && !self.names.iter().any(|n| n == "all");
        let program = options.gateway();
        if program.is_none() && self.names.iter().any(|n| n == "ironswan") {
            return Err(LabError::Unfit(vec![Remedy::new(
                "the program ironswan is neither beside ironswan-lab nor on PATH",
                "name it with --program",
            )]));
        }
        let absolute = |p: PathBuf| std::fs::canonicalize(&p).unwrap_or(p);
        Ok(Orders {
            systems: self.names.clone(),
            named,
            raw: self.common.encaps.contains(&Encap::Raw),
            udp: self.common.encaps.contains(&Encap::Udp),
            suites: options.suites.iter().map(|s| format!("{}/{}", s.esp, s.ike)).collect(),
            program: program.map(absolute),
            wireguard_go: options.wireguard_go().map(absolute),
            wireguard_go_tailscale: options.wireguard_go_tailscale().map(absolute),
            loads: self.loads.clone(),
            inner_mtu: INNER_MTU,
            shift: machine::SHIFT,
        })
    }
}

/// Takes one load down.
fn take(c: &mut Campaign, counted: &Counted, repeat: u32, began: f64) {
    let instructions = counted.instructions as f64;
    let mut measures = vec![("idle", counted.idle), ("million", instructions / 1e6)];
    measures.push(match counted.load {
        Load::Udp { .. } => ("per_packet", instructions / counted.units as f64),
        Load::Tcp { .. } => ("per_byte", instructions / counted.units as f64),
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
}
