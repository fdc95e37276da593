//! What both experiments do on this machine: they fetch the kernel, write orders, boot guests and
//! take down what these say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::conclude;
use super::initramfs;
use super::inside;
use super::kernel::Kernel;
use super::machine::{self, Guest, Processor};
use super::orders::{Counted, Load, Message, Orders, Place};
use crate::dut::{self, DutOptions, Encap};
use crate::error::{LabError, Remedy};
use crate::experiment::campaign::{Campaign, Common};
use crate::experiment::general_doubts::is_debug;
use crate::experiment::line::once;
use crate::report::Warning;
use crate::topology::Owner;

pub(super) const INNER_MTU: u32 = 1400;

/// The guests of a run, which differ by their processors at most.
pub(super) struct Guests<'a> {
    pub common: &'a Common,
    /// Algorithms and programs of the systems.
    pub options: DutOptions,
    /// Systems by name.
    pub names: Vec<String>,
    pub places: Vec<Place>,
    pub loads: Vec<Load>,
    pub suite_in_name: bool,
}

/// What stands during all rounds.
pub(super) struct Bench {
    /// Its folder has the archive and the orders, and is removed with it.
    owner: Owner,
    kernel: Kernel,
    archive: PathBuf,
    /// Engines of this machine, by suite.
    here: BTreeMap<String, String>,
}

impl<'a> Guests<'a> {
    /// Checks what can be checked before a guest boots; `usual` are the systems when none is named.
    pub(super) fn new(common: &'a Common, options: DutOptions, usual: &[&str]) -> Result<Self, LabError> {
        let mut names = common.duts.clone();
        if names.is_empty() {
            names = usual.iter().map(ToString::to_string).collect();
        }
        once(&mut names);
        // What there is in the guest is found out there, but a name must be one.
        for name in names.iter().filter(|n| *n != "all") {
            dut::by_name(name, &common.encaps, &options)?;
        }
        let lacks = machine::lacks();
        if !lacks.is_empty() {
            return Err(LabError::Unfit(lacks));
        }
        Ok(Self { common, options, names, places: vec![Place::Line], loads: vec![], suite_in_name: false })
    }

    fn names(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name || n == "all")
    }

    /// Makes ready what all guests boot from.
    pub(super) fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        if !self.names("plain") {
            c.doubt(Warning::NoPlain);
        }
        if self.names("ironswan") && is_debug(&self.options) {
            c.doubt(Warning::DebugBuild);
        }
        // Whatever else this machine does changes no count.
        c.disturbed_by(0.0, 0.0);
        c.says("Debian's kernel")?;
        let kernel = Kernel::fetched()?;
        let owner = Owner::claim()?;
        let archive = initramfs::write(&kernel, owner.dir())?;
        c.versions.insert("the guest's kernel".into(), kernel.version.clone());
        if let Some(version) = machine::version() {
            c.versions.insert("QEMU".into(), version);
        }
        c.settings.insert("inner MTU".into(), INNER_MTU.to_string());
        c.settings.insert("suites".into(), self.options.esp());
        Ok(Bench { owner, kernel, archive, here: inside::engines(&self.options.suites) })
    }

    /// Boots a guest, and hands over all that it counts with the time at which each began.
    pub(super) fn run(
        &self,
        c: &mut Campaign,
        bench: &Bench,
        processor: Processor,
        mut take: impl FnMut(&mut Campaign, &Counted, f64),
    ) -> Result<(), LabError> {
        c.says("the guest boots")?;
        let dir = bench.owner.dir();
        self.orders(processor)?.write(dir)?;
        let mut guest = Guest::boot(processor, &bench.kernel, &bench.archive, dir)?;
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
                    take(c, &counted, began);
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

    /// What the guest is to do.
    fn orders(&self, processor: Processor) -> Result<Orders, LabError> {
        let options = &self.options;
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
            places: self.places.clone(),
            loads: self.loads.clone(),
            inner_mtu: INNER_MTU,
            shift: processor.shift,
            suite_in_name: self.suite_in_name,
        })
    }
}
