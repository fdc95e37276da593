//! Offloads that the kernel and the network card give the data plane. For each that is missing,
//! says which packets take the slower way, and the remedy. A missing offload loses no packet, and
//! no packet leaves in clear.

use std::fmt;
use std::net::IpAddr;

use ironswan_io::tun::Offloads as TunOffloads;

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

    /// Offloads that were asked for and not granted, a line each with the remedy.
    pub fn shortfalls(&self, asked: &Tuning) -> Vec<String> {
        let mut out = Vec::new();
        if asked.tun_offload && !self.tun.tso {
            out.push(
                "the TUN device has no segmentation offload: every packet is a system call of its own; a kernel of Linux 4.0 \
                 or newer has it (data { tun_offload = no } ends this message)"
                    .to_owned(),
            );
        } else if asked.tun_offload && !self.tun.uso {
            out.push(
                "the TUN device has no UDP segmentation offload (Linux 6.2 has it): UDP packets cross it one by one, TCP is not \
                 affected; a newer kernel makes UDP faster"
                    .to_owned(),
            );
        }
        if asked.gso && self.segments == 1 {
            out.push(
                "the kernel does not cut UDP sends (UDP_SEGMENT, Linux 4.18): every ESP packet is sent by itself; a newer \
                 kernel makes this faster (data { gso = no } ends this message)"
                    .to_owned(),
            );
        }
        if asked.gro && !self.gro {
            out.push(
                "the kernel does not merge received UDP (UDP_GRO, Linux 5.0): every ESP packet is received by itself; a newer \
                 kernel makes this faster (data { gro = no } ends this message)"
                    .to_owned(),
            );
        }
        let [receive, send] = self.buffers;
        if receive.min(send) < asked.socket_buffer {
            out.push(format!(
                "data.socket_buffer = {}: the kernel grants {receive} bytes for receiving and {send} for sending, so bursts may \
                 be dropped; give the daemon CAP_NET_ADMIN, or raise net.core.rmem_max and net.core.wmem_max",
                asked.socket_buffer
            ));
        }
        if !asked.busy_poll.is_zero() && !self.busy_poll {
            out.push(
                "data.busy_poll: this kernel does not let a waiting thread poll network cards (Linux 6.9 does); it sleeps as \
                 without; remove the key"
                    .to_owned(),
            );
        }
        for name in asked.xdp.iter().filter(|name| !self.xdp.contains(name)) {
            out.push(format!(
                "data.xdp: ESP on {name} is received through sockets, not through AF_XDP; remove it from data {{ xdp }}"
            ));
        }
        out
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
}

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segmentation(peer) => write!(
                f,
                "the kernel does not cut UDP sends to {peer} (no checksum offload on the way there?): packets are sent one by \
                 one, none is lost; switch tx-checksumming on (ethtool -K DEVICE tx on), or set data {{ gso = no }}"
            ),
            Self::Merging { udp } => {
                let what = if *udp { "UDP" } else { "TCP" };
                write!(
                    f,
                    "the TUN device refuses merged {what} packets: they are written one by one, none is lost, and it is tried \
                     again every minute; update the kernel, or set data {{ tun_offload = no }}"
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "offloads_tests.rs"]
mod tests;
