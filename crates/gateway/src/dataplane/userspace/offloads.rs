//! Offloads that the kernel and the network card give the data plane. For each that is missing,
//! says which packets take the slower way, and the remedy. A missing offload loses no packet, and
//! no packet leaves in clear.

use std::net::IpAddr;

use ironswan_io::tun::Offloads as TunOffloads;
use ironswan_keying::diagnosis::{DataPlane, Offload};

use crate::dataplane::Property;
use ironswan_config::tuning::Tuning;

/// Offloads that the kernel granted at start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// By the TUN device.
    pub tun: TunOffloads,
    /// Most datagrams that one send is cut into (`UDP_SEGMENT`); 1: none is cut.
    pub segments: usize,
    /// Received datagrams are merged (`UDP_GRO`).
    pub gro: bool,
    /// The least of all sockets' receive and send buffers, in bytes.
    pub buffers: [u32; 2],
    /// A worker polls the network cards before it sleeps.
    pub busy_poll: bool,
    /// Interfaces on which ESP is received through `AF_XDP`.
    pub xdp: Vec<String>,
}

impl Offloads {
    /// The offloads by name, as `stats` shows them.
    pub fn properties(&self) -> Vec<(&'static str, Property)> {
        vec![
            ("tun-tso", Property::Flag(self.tun.tso)),
            ("tun-uso", Property::Flag(self.tun.uso)),
            ("udp-segments", Property::Number(self.segments as u64)),
            ("udp-gro", Property::Flag(self.gro)),
            ("receive-buffer", Property::Number(u64::from(self.buffers[0]))),
            ("send-buffer", Property::Number(u64::from(self.buffers[1]))),
            ("busy-poll", Property::Flag(self.busy_poll)),
            ("xdp", Property::Names(self.xdp.clone())),
        ]
    }

    /// Offloads that were asked for and not granted. Interfaces without `AF_XDP` are reported where
    /// they are opened.
    pub fn shortfalls(&self, asked: &Tuning) -> Vec<DataPlane> {
        let tun = match (asked.tun_offload, self.tun.tso, self.tun.uso) {
            (true, false, _) => Some(Offload::TunSegments),
            (true, true, false) => Some(Offload::TunUdpSegments),
            _ => None,
        };
        let missing = [
            tun,
            (asked.gso && self.segments == 1).then_some(Offload::SendSegments),
            (asked.gro && !self.gro).then_some(Offload::ReceiveMerging),
            (!asked.busy_poll.is_zero() && !self.busy_poll).then_some(Offload::BusyPoll),
        ];
        let missing = missing.into_iter().flatten().map(|which| DataPlane::OffloadMissing { which });
        let [receive, send] = self.buffers;
        let small = (receive.min(send) < asked.socket_buffer).then_some(DataPlane::SmallBuffers {
            asked: asked.socket_buffer,
            receive,
            send,
        });
        missing.chain(small).collect()
    }
}

/// Something faster that the kernel refuses while packets flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slower {
    /// Segmented sends to this peer.
    Segmentation(IpAddr),
    /// Writes of merged packets to the TUN device: of UDP, or of TCP.
    Merging {
        /// Which.
        udp: bool,
    },
}

impl Slower {
    /// In short, for `status`.
    pub fn name(&self) -> String {
        match self {
            Self::Segmentation(peer) => format!("segmentation to {peer}"),
            Self::Merging { udp: true } => "merging of UDP".to_owned(),
            Self::Merging { udp: false } => "merging of TCP".to_owned(),
        }
    }

    /// The entry of the list of reasons.
    pub fn diagnosis(&self) -> DataPlane {
        match *self {
            Self::Segmentation(peer) => DataPlane::SendsNotCut { peer },
            Self::Merging { udp } => DataPlane::MergesRefused { udp },
        }
    }
}

#[cfg(test)]
#[path = "offloads_tests.rs"]
mod tests;
