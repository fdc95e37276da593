//! Data planes: they hold SAs and policies, and move the packets. The rest of the gateway knows
//! them by the trait [`DataPlane`] alone.
//!
//! ```text
//!               apply(commands) ─▶ ┌───────────┐ ◀─▶ packets
//! control plane  poll_notice    ◀─ │ DataPlane │ ──▶ kernel: device, routes to it (or XFRM)
//!               sa_stats, report ◀ └───────────┘
//! ```
//! The messages are those of [`ironswan_wire::sadb`]. A table in ARCHITECTURE.md says which method
//! or message stands for each message of XFRM and PF_KEY. A data plane in the kernel (XFRM over
//! netlink) sends the commands of one [`DataPlane::apply`] in one `sendmsg`, answers
//! [`Applied::UnderWay`], and gives [`Notice::Applied`] when the kernel has acknowledged the last.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `captured` | copies of packets that a data plane gives to captures |
//! | `choose` | makes the data plane that the configuration asks for |
//! | `userspace/` | moves packets between a TUN device and sockets, by `ironswan-ipsec` |
//! | `recording` | remembers what it was told, for tests |

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use ironswan_config::tuning::Tuning;
use ironswan_crypto::engines::EngineSelection;
use ironswan_ike::event::{Cut, KnownPath, Undelivered};
use ironswan_io::route::Route;
use ironswan_ipsec::{Decision, ReplayDrops, Stages, Wanted, WindowNeeds};
use ironswan_keying::diagnosis::DataPlane as DataPlaneFault;
use ironswan_wire::sadb::{Command, ReqId, SaRef, SaStats, Up};
use ironswan_wire::selector::PacketSelector;

pub mod captured;
pub mod choose;
#[cfg(test)]
pub(crate) mod recording;
pub mod userspace;

use captured::Captured;

/// A data plane, as driver, control, guard and start see it. Lives on the control thread; nothing
/// here may block for longer than a system call takes.
pub trait DataPlane {
    /// Begins to apply these commands, in their order. Each is all or nothing, and a refused one
    /// does not keep the next from being applied. After [`Applied::UnderWay`] the caller waits for
    /// [`Notice::Applied`] before the next call.
    fn apply(&mut self, commands: &[Command]) -> Applied;

    /// The next notice. After [`Notice::Ended`] there is no other.
    fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Notice>;

    /// Sends one IKE message from the port and address of `local`; an unspecified address leaves
    /// the choice to the routing table. `dscp` is that of the IP header, 0 to 63. `message` has
    /// the non-ESP marker where one is due. `cut` says whether IP may fragment it. Never waits: a
    /// message for which there is no buffer space is dropped and counted.
    ///
    /// # Errors
    /// The error of the kernel, and `NotConnected` when `local` has a port that is not ours.
    fn send_ike(
        &mut self,
        ends: (SocketAddr, SocketAddr),
        dscp: u8,
        message: &[u8],
        cut: Cut,
    ) -> io::Result<()>;

    /// Size of packets on the path to a peer, as far as it is known without measurements. `None`:
    /// not known, or this data plane does not follow measurements.
    fn known_path(&mut self, _local: IpAddr, _remote: IpAddr) -> Option<KnownPath> {
        None
    }

    /// A measurement has found that the path to a peer carries packets of `mtu` bytes at most;
    /// `None`: that it carries all that [`Self::known_path`] says, or there is no IKE_SA any more.
    fn path_measured(&mut self, _remote: IpAddr, _mtu: Option<u32>) {}

    /// Counters of these SAs, in their order; `None` for one that is not there. Of an inbound SA
    /// the SPI alone counts.
    fn sa_stats(&self, sas: &[SaRef]) -> Vec<Option<SaStats>>;

    /// The decision about a packet that somebody describes: one that leaves, or one that comes out
    /// of an SA (`arrives`). `None` for a data plane that does not tell.
    fn decide(&self, _packet: &PacketSelector, _arrives: bool) -> Option<Decision> {
        None
    }

    /// Zero of the clock of [`SaStats::last_use`].
    fn epoch(&self) -> Instant;

    /// Properties, and all counters.
    fn report(&self) -> Report;

    /// Authentic packets that the replay check has dropped, by policy. None of a data plane that
    /// does not tell.
    fn window_needs(&self) -> Vec<(ReqId, WindowNeeds)> {
        Vec::new()
    }

    /// Result of the self-test of the engines; `None` for a data plane without engines of ours.
    fn engines(&self) -> Option<&EngineSelection> {
        None
    }

    /// From now on keeps copies of these packets, bounded, for [`Self::take_captured`]; `None` ends
    /// that. False: this data plane has none to give.
    fn capture(&mut self, _wanted: Option<Arc<Wanted>>) -> bool {
        false
    }

    /// Takes the copies that were made since the last call.
    fn take_captured(&mut self) -> Captured {
        Captured::default()
    }

    /// Takes over the settings that can change while it runs. The first call is at the end of the
    /// daemon's start: whatever it sets on this machine, [`Self::stop`] puts back.
    fn tune(&mut self, _: &Tuning) {}

    /// Index of the device into which routes lead packets that are to be protected; `None` for a
    /// data plane that needs none.
    fn device(&self) -> Option<u32> {
        None
    }

    /// Routes to that device which stand.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// Looks whether the device is as it was made, and mends or replaces it.
    fn restore_device(&mut self) -> Restored {
        Restored::Nothing
    }

    /// Sets again those of [`Self::routes`] that are not among `found`, the routes of table 220 in
    /// the kernel. Names them.
    fn restore_routes(&mut self, _found: &[Route]) -> Vec<String> {
        Vec::new()
    }

    /// The guard has made its plan again: other destinations are exempt now, or no longer.
    fn guard_changed(&mut self) {}

    /// Links or addresses of this machine change: forget what was read of them.
    fn links_changed(&mut self) {}

    /// Links, addresses or routes have changed, and the network has settled: look up again whatever
    /// depends on them.
    fn network_changed(&mut self) {}

    /// Removes the routes to the device.
    fn remove_routes(&mut self) {}

    /// Ends, and removes the device. Packets in flight are lost; nothing leaves in clear.
    fn stop(&mut self);
}

/// How far the commands of one [`DataPlane::apply`] are.
#[derive(Debug)]
pub enum Applied {
    /// All have been applied but these.
    Done(Vec<Refused>),
    /// [`Notice::Applied`] will tell.
    UnderWay,
}

/// A command that was refused. Nothing has changed by it.
#[derive(Debug)]
pub struct Refused {
    /// Place of the command among the commands of one [`DataPlane::apply`].
    pub at: usize,
    /// The entry of the list of reasons.
    pub why: DataPlaneFault,
}

/// An IKE message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeDatagram {
    /// Our address and port.
    pub local: SocketAddr,
    /// The sender.
    pub remote: SocketAddr,
    /// The message, without non-ESP marker.
    pub payload: Vec<u8>,
}

/// From a data plane to the control plane.
#[derive(Debug)]
pub enum Notice {
    /// An IKE message has arrived.
    Ike(IkeDatagram),
    /// ICMP errors about requests of IKE. A data plane that does not hear of any gives none.
    Undelivered(Vec<Undelivered>),
    /// Acquire, expire and the like, in their order.
    Up(Vec<Up>),
    /// The commands under way have been applied, but for these.
    Applied(Vec<Refused>),
    /// Somebody deleted the device. IKE goes on; packets do not until
    /// [`DataPlane::restore_device`].
    DeviceGone,
    /// A defect of ours has ended the data plane: nothing can be relied on to be carried any more.
    Ended,
}

/// Result of [`DataPlane::restore_device`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// The device was as it should be.
    Nothing,
    /// The device is as it should be again; the entry says what was wrong.
    Done(DataPlaneFault),
    /// The device is not as it should be. To be tried again.
    Failed(DataPlaneFault),
}

/// A property of a data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Property {
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(u64),
    /// Names, such as those of interfaces.
    Names(Vec<String>),
}

/// Properties and counters, under the names by which `status` and `list counters` show them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Word for this data plane in charon's list of plugins.
    pub name: &'static str,
    /// Threads that move packets.
    pub workers: usize,
    /// Further properties, in the order in which they are shown.
    pub properties: Vec<(&'static str, Property)>,
    /// Packets and bytes, since the start.
    pub packets: Vec<(&'static str, u64)>,
    /// Dropped packets by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// What the replay check has dropped; `None` of a data plane that does not tell.
    pub replays: Option<ReplayDrops>,
    /// Counters of this kind of data plane alone.
    pub counters: Vec<(&'static str, u64)>,
    /// Time of each stage, over the batches that were measured.
    pub stages: Stages,
}

/// The entry for a refused command.
pub(crate) fn refused(command: &Command, why: impl fmt::Display) -> DataPlaneFault {
    let text = match command {
        Command::SaAdd(sa) => format!("install {:?}bound SA {}", sa.direction, sa.spi),
        Command::SaUpdate { sa, .. } | Command::SaPathMtu { sa, .. } => {
            format!("update SA {}", sa.spi)
        }
        Command::SpiReserve { spi, .. } => format!("reserve SPI {spi}"),
        Command::SpiFree(spi) => format!("free SPI {spi}"),
        Command::SaDelete(sa) => format!("remove {:?}bound SA {}", sa.direction, sa.spi),
        Command::PolicyAdd(p) => {
            format!("install policy {} ({} === {})", p.name, p.local, p.remote)
        }
        Command::PolicyDelete(p) => {
            format!("remove policy {} ({} === {})", p.name, p.local, p.remote)
        }
    };
    DataPlaneFault::CommandRefused { command: text, why: why.to_string() }
}
