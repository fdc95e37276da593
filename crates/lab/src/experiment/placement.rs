//! Which processors the parts of a flood experiment have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::topology::Cpus;

/// How work is spread over the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// As the kernel's scheduler likes; what a link receives is handled in its sender's context, as veth does.
    Free,
    /// The generator has the first processor for itself. Both gateways, what every link receives (by receive packet
    /// steering) and the receiving host share the second: a gateway must not be starved by what arrives for it.
    OwnCore,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::OwnCore => "own-core",
        })
    }
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "free" => Ok(Self::Free),
            "own-core" => Ok(Self::OwnCore),
            _ => Err(format!("`{s}` is not a placement; the placements are free and own-core")),
        }
    }
}

/// A spread over the processors of this machine.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    generator: Option<Cpus>,
    rest: Option<Cpus>,
}

impl Placement {
    /// Of `spread` on a machine with `cpus` processors.
    pub(super) fn new(spread: Spread, cpus: usize) -> Result<Self, String> {
        match spread {
            Spread::Free => Ok(Self { generator: None, rest: None }),
            Spread::OwnCore if cpus >= 2 => {
                Ok(Self { generator: Some(Cpus::new([0])), rest: Some(Cpus::new([1])) })
            }
            Spread::OwnCore => Err("placement own-core needs two processors".into()),
        }
    }

    pub(super) fn generator(&self) -> Option<&Cpus> {
        self.generator.as_ref()
    }

    pub(super) fn gateways(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }

    pub(super) fn receive(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }

    pub(super) fn receiver(&self) -> Option<&Cpus> {
        self.rest.as_ref()
    }
}
