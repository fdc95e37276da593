//! What crosses between this machine and the guest: orders in a file, then messages, a line of JSON
//! each.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::topology::Mode;

const FILE: &str = "orders.json";
/// Bytes of a frame that are not UDP payload: Ethernet header and FCS, IP, UDP.
pub(super) const OVERHEAD: u32 = 18 + 20 + 8;

/// What the guest is to do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Systems by name, or `all`.
    pub systems: Vec<String>,
    /// They were named by the user: one that is not there is an error.
    pub named: bool,
    /// Raw ESP is to be measured.
    pub raw: bool,
    /// ESP in UDP is to be measured.
    pub udp: bool,
    /// Suites, `ESP/IKE`.
    pub suites: Vec<String>,
    /// The program `ironswan`.
    pub program: Option<PathBuf>,
    /// The program `wireguard-go`.
    pub wireguard_go: Option<PathBuf>,
    /// The program of Tailscale's fork of it.
    pub wireguard_go_tailscale: Option<PathBuf>,
    /// Each is built for every system.
    pub places: Vec<Place>,
    /// Loads of each system.
    pub loads: Vec<Load>,
    /// MTU of the hosts' routes.
    pub inner_mtu: u32,
    /// An instruction takes 2^shift nanoseconds of the guest's clock.
    pub shift: u32,
    /// Systems with a suite have it in their names, also the first.
    pub suite_in_name: bool,
}

/// Boxes inside the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    /// Host, two gateways, host.
    Line,
    /// Two hosts, each its own gateway.
    HostToHost,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Load {
    /// So many packets are sent, then waited for, again and again.
    Udp {
        /// Bytes of a frame on the inner links, FCS included.
        size: u32,
        /// Packets sent before the first is waited for.
        burst: u32,
        /// Packets at least.
        packets: u32,
    },
    /// One connection.
    Tcp {
        /// How packets cross the links.
        mode: Mode,
        /// Bytes at least.
        bytes: u64,
    },
    /// A file by FTP.
    Ftp {
        /// Its bytes.
        bytes: u64,
    },
}

impl Load {
    /// The protocol.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Udp { .. } => "UDP",
            Self::Tcp { .. } => "TCP",
            Self::Ftp { .. } => "FTP",
        }
    }

    /// The line that it needs.
    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::Udp { .. } | Self::Ftp { .. } => Mode::Wire,
            Self::Tcp { mode, .. } => *mode,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "gateway to gateway",
            Self::HostToHost => "host to host",
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { size, burst: 1, .. } => write!(f, "{size} B, one at a time"),
            Self::Udp { size, burst, .. } => write!(f, "{size} B, bursts of {burst}"),
            Self::Tcp { mode, .. } => mode.fmt(f),
            Self::Ftp { bytes } => write!(f, "a file of {bytes} B"),
        }
    }
}

/// A load that has been counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Counted {
    pub system: String,
    pub place: Place,
    pub load: Load,
    /// Time of the guest's clock, nanoseconds.
    pub nanos: u64,
    /// Instructions in which the processor was not idle.
    pub instructions: u64,
    /// Packets of UDP, bytes of TCP and FTP.
    pub units: u64,
    /// Share of the time in which the processor was idle.
    pub idle: f64,
    /// How often the processor went from one thread to another.
    pub switches: u64,
}

/// What the guest says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// What it is about to do.
    Says(String),
    /// A system that it measures.
    System { name: String, version: Option<String> },
    /// One that it does not.
    LeftOut { name: String, lack: String, action: String },
    /// Engines of a suite in the guest: IronSwan's, and the kernel's.
    Engine { suite: String, ours: String, kernel: String },
    /// Processes that did not end when asked.
    Killed { name: String, processes: Vec<String> },
    /// A load.
    Counted(Counted),
    /// Commands that were run in the guest.
    Ran(Vec<String>),
    /// The reason for which it ends too early.
    Failed(String),
    /// It has measured everything.
    Done,
}

impl Orders {
    /// Writes them into the folder that the guest reads.
    pub(super) fn write(&self, dir: &Path) -> Result<(), LabError> {
        let path = dir.join(FILE);
        let json = serde_json::to_vec(self)
            .map_err(|e| LabError::Measurement(format!("the guest's orders cannot be written: {e}")))?;
        fs::write(&path, json).map_err(LabError::io(format!("writing {}", path.display())))
    }

    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join(FILE);
        let json = fs::read(&path).map_err(LabError::io(format!("reading {}", path.display())))?;
        serde_json::from_slice(&json).map_err(|e| LabError::Usage(format!("{}: {e}", path.display())))
    }
}

impl Message {
    /// As a line.
    pub(super) fn line(&self) -> String {
        // A type of ours, with nothing in it that JSON does not have.
        format!("{}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// From a line of the guest's; `None` for what is none, such as a line of its kernel.
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_other_lines_are_none() {
        let load = Load::Udp { size: 100, burst: 32, packets: 64 };
        let counted = Counted {
            system: "plain".into(),
            place: Place::Line,
            load,
            nanos: 1_717_171,
            instructions: 1_700_000,
            units: 64,
            idle: 0.01,
            switches: 12,
        };
        for message in [
            Message::Counted(counted),
            Message::Done,
            Message::Failed("two\nlines".into()),
            Message::Says("x".into()),
        ] {
            let line = message.line();
            assert_eq!(line.matches('\n').count(), 1);
            // A serial port has its own idea of where a line ends.
            assert_eq!(Message::parse(&line.replace('\n', "\r\n")), Some(message));
        }
        for other in ["", "\r\n", "[    0.1] random: crng init done", "{\"counted\":{\"system\":\"pl"] {
            assert_eq!(Message::parse(other), None, "{other}");
        }
    }
}
