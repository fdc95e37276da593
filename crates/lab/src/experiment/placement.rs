//! Which processors the parts of a flood experiment have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::topology::{Cpus, Line};

/// How work is spread over the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// As the kernel's scheduler likes; what a link receives is handled in its sender's context, as veth does.
    Free,
    /// The generator has the first processor for itself. Both gateways, what every link receives (by receive packet
    /// steering) and the receiving host share the second: a gateway must not be starved by what arrives for it.
    OwnCore,
    /// The same, but what links receive is polled by threads of the kernel (threaded NAPI) that are kept on the second processor
    /// and take turns with the gateways there, where software interrupts come first.
    OwnCoreThreads,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
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
            "own-core" => Ok(Self::OwnCore),
            "own-core-threads" => Ok(Self::OwnCoreThreads),
            _ => Err(format!(
                "`{s}` is not a placement; the placements are free, own-core and own-core-threads"
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
}

impl Placement {
    /// Of `spread` on a machine with `cpus` processors.
    pub(super) fn new(spread: Spread, cpus: usize) -> Result<Self, String> {
        match spread {
            Spread::Free => Ok(Self { generator: None, rest: None, threads: false }),
            Spread::OwnCore | Spread::OwnCoreThreads if cpus >= 2 => {
                let threads = spread == Spread::OwnCoreThreads;
                Ok(Self { generator: Some(Cpus::new([0])), rest: Some(Cpus::new([1])), threads })
            }
            Spread::OwnCore | Spread::OwnCoreThreads => {
                Err(format!("placement {spread} needs two processors"))
            }
        }
    }

    pub(super) fn generator(&self) -> Option<&Cpus> {
        self.generator.as_ref()
    }

    pub(super) fn gateways(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }

    /// Whether it has links receive by polling, in whatever mode.
    pub(super) fn polls(&self) -> bool {
        self.threads
    }

    /// Has what the links of `line` receive handled where it belongs.
    pub(super) fn steer(&self, line: &Line) -> Result<(), LabError> {
        match &self.rest {
            Some(cpus) if self.threads => line.poll_on(cpus).map(|_| ()),
            Some(cpus) => line.receive_on(cpus),
            None => Ok(()),
        }
    }

    pub(super) fn receiver(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }
}
