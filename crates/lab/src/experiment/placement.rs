//! Which processors the parts of a flood experiment have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::topology::{Cpus, Line, Node, Steered};

/// How work is spread over the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// As the kernel's scheduler likes; what a link receives is handled in its sender's context, as
    /// veth does.
    Free,
    /// Each gateway has a processor of its own, as it would on a machine of its own; hosts and
    /// links as with `Free`.
    Apart,
    /// The generator has the first processor for itself. Both gateways, what every link receives
    /// (by receive packet steering) and the receiving host share the second: a gateway must not be
    /// starved by what arrives for it.
    OwnCore,
    /// The same, but what links receive is polled by threads of the kernel (threaded NAPI) that are
    /// kept on the second processor and take turns with the gateways there, where software
    /// interrupts come first.
    OwnCoreThreads,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Apart => "apart",
            Self::OwnCore => "own-core",
            Self::OwnCoreThreads => "own-core-threads",
        })
    }
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "free" => Ok(Self::Free),
            "apart" => Ok(Self::Apart),
            "own-core" => Ok(Self::OwnCore),
            "own-core-threads" => Ok(Self::OwnCoreThreads),
            _ => Err(format!(
                "`{s}` is not a placement; the placements are free, apart, own-core and own-core-threads"
            )),
        }
    }
}

/// A spread over the processors of this machine.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    generator: Option<Cpus>,
    rest: Option<Cpus>,
    threads: bool,
    apart: bool,
}

impl Placement {
    /// Of `spread` on a machine with `cpus` processors.
    pub(super) fn new(spread: Spread, cpus: usize) -> Result<Self, String> {
        let (threads, apart) = (spread == Spread::OwnCoreThreads, spread == Spread::Apart);
        match spread {
            Spread::Free => Ok(Self { generator: None, rest: None, threads, apart }),
            _ if cpus < 2 => Err(format!("placement {spread} needs two processors")),
            Spread::Apart => Ok(Self { generator: None, rest: None, threads, apart }),
            Spread::OwnCore | Spread::OwnCoreThreads => {
                Ok(Self { generator: Some(Cpus::new([0])), rest: Some(Cpus::new([1])), threads, apart })
            }
        }
    }

    pub(super) fn generator(&self) -> Option<&Cpus> {
        self.generator.as_ref()
    }

    pub(super) fn gateways(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }

    /// Keeps the processes of gateways that run where they belong.
    pub(super) fn hold(&self, line: &Line) -> Result<(), LabError> {
        if self.apart {
            for (gateway, cpu) in [(Node::G1, 0), (Node::G2, 1)] {
                let cpus = Cpus::new([cpu]);
                line.node(gateway).pids().into_iter().try_for_each(|pid| cpus.hold_process(pid))?;
            }
        }
        Ok(())
    }

    /// Whether it has links receive by polling, in whatever mode.
    pub(super) fn polls(&self) -> bool {
        self.threads
    }

    /// Has what the links of `boxes` receive handled where it belongs.
    pub(super) fn steer(&self, boxes: &impl Steered) -> Result<(), LabError> {
        match &self.rest {
            Some(cpus) if self.threads => boxes.poll_on(cpus).map(|_| ()),
            Some(cpus) => boxes.receive_on(cpus),
            None => Ok(()),
        }
    }

    pub(super) fn receiver(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }
}
