//! Entries of the area data plane: SAs and policies that it refuses, its device, offloads of the
//! kernel, `AF_XDP`, and the threads that move packets. A missing offload loses no packet, and no
//! packet leaves in clear.

use std::net::IpAddr;

use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, entries, say};
use super::shown::in_the_sentence;

entries! {
    /// The data plane, which holds SAs and policies and moves packets.
    DataPlane, DataPlaneEntry;

    /// The data plane refuses to add, change or remove an SA or a policy.
    CommandRefused {
        /// The command, which completes "unable to ...".
        command: String,
        /// Reason.
        why: String,
    } = "command-refused" by ThisMachine;
    /// The data plane has ended by a defect of this program.
    Ended = "data-plane-ended" by ThisMachine;
    /// An engine that the configuration names, or one that failed its self-test, is not used.
    EngineUnused {
        /// The engine, the reason, and who does its work.
        why: String,
    } = "engine-unused" by ThisMachine;

    // ---- the device ----

    /// Another program changed or deleted the device, which is as it was again.
    DeviceDisturbed {
        /// Name of the device.
        name: String,
        /// Change of the device.
        what: DeviceChange,
    } = "device-disturbed" by ThisMachine;
    /// Another program changed or deleted the device, which cannot be restored. It is tried again.
    DeviceLost {
        /// Name of the device.
        name: String,
        /// The kernel's answer.
        why: String,
    } = "device-lost" by ThisMachine;
    /// A setting of the device cannot be written.
    DeviceUnprepared {
        /// The setting, and the kernel's answer.
        why: String,
    } = "device-unprepared" by ThisMachine;

    // ---- offloads ----

    /// The kernel lacks an offload, so packets take a slower way.
    OffloadMissing {
        /// The offload.
        which: Offload,
    } = "offload-missing" by ThisMachine;
    /// The kernel grants smaller socket buffers than the configuration asks for.
    SmallBuffers {
        /// Bytes that `data.socket_buffer` asks for.
        asked: u32,
        /// Bytes for receiving.
        receive: u32,
        /// Bytes for sending.
        send: u32,
    } = "small-socket-buffers" by ThisMachine;
    /// The kernel does not cut UDP sends to a peer.
    SendsNotCut {
        /// The peer.
        peer: IpAddr,
    } = "sends-not-cut" by ThisMachine;
    /// The device refuses merged packets.
    MergesRefused {
        /// UDP, else TCP.
        udp: bool,
    } = "merges-refused" by ThisMachine;

    // ---- interfaces and processors ----

    /// ESP on an interface cannot be received through `AF_XDP`.
    XdpUnused {
        /// Name of the interface.
        interface: String,
        /// Reason.
        why: String,
    } = "xdp-unused" by ThisMachine;
    /// An interface that was received from through `AF_XDP` is gone.
    XdpLost {
        /// Name of the interface.
        interface: String,
    } = "xdp-lost" by ThisMachine;
    /// Who polls an interface cannot be changed.
    PollingUnchanged {
        /// Name of the interface. Empty: the interfaces cannot be listed.
        interface: String,
        /// Reason.
        why: String,
        /// Who polls the interface until then. Empty: nobody knows.
        until: &'static str,
    } = "polling-unchanged" by ThisMachine;
    /// A worker cannot be bound to its processor.
    WorkerUnbound {
        /// Number of the processor.
        processor: usize,
        /// The kernel's answer.
        why: String,
    } = "worker-unbound" by ThisMachine;
    /// The workers may not have the nice value of the configuration.
    WorkerPriority {
        /// `data.nice`.
        nice: i8,
        /// The kernel's answer.
        why: String,
    } = "worker-priority" by ThisMachine;
    /// A thread of the data plane cannot wait for its sources.
    CannotWait {
        /// Sources of the thread.
        sources: Sources,
        /// The kernel's answer.
        why: String,
    } = "cannot-wait" by ThisMachine;
}

/// Change of the device by another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceChange {
    /// Deleted.
    Deleted,
    /// Set down.
    Down,
    /// Its MTU was changed.
    Mtu,
}

/// Offload of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// Segmentation by the TUN device.
    TunSegments,
    /// Segmentation of UDP by the TUN device.
    TunUdpSegments,
    /// Cutting of UDP sends.
    SendSegments,
    /// Merging of received UDP.
    ReceiveMerging,
    /// Polling of network cards by a thread that waits.
    BusyPoll,
}

/// Sources of packets or notices for a thread of the data plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sources {
    /// Packets of sockets and device.
    Packets,
    /// Packets of a device that was made again.
    NewDevice,
    /// ICMP errors.
    IcmpErrors,
    /// Changes of addresses, for `AF_XDP`.
    Addresses,
}

impl DataPlane {
    /// No entry answers a peer.
    pub(super) fn notify(&self) -> Option<Notify> {
        None
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::CommandRefused { command, why } => say(format!("unable to {command}: {why}"), ""),
            Self::Ended => say("the data plane has ended", "please report the lines before this one"),
            Self::EngineUnused { why } => say(why.clone(), ""),
            Self::DeviceDisturbed { name, what } => say(what.words(name), ""),
            Self::DeviceLost { name, why } => say(
                format!("somebody changed or deleted {name}, and it cannot be made again: {why}"),
                "protected packets go nowhere until it is, which is tried twice a second",
            ),
            Self::DeviceUnprepared { why } => say(
                why.clone(),
                "if net.ipv4.conf.all.rp_filter is 1, what comes out of the tunnel may be dropped",
            ),
            Self::OffloadMissing { which } => which.words(),
            Self::SmallBuffers { asked, receive, send } => say(
                format!(
                    "data.socket_buffer = {asked}: the kernel grants {receive} bytes for receiving and {send} for sending, so \
                     bursts may be dropped"
                ),
                "give the daemon CAP_NET_ADMIN, or raise net.core.rmem_max and net.core.wmem_max",
            ),
            Self::SendsNotCut { peer } => say(
                format!(
                    "the kernel does not cut UDP sends to {peer} (no checksum offload on the way there?), packets are sent one \
                     by one, none is lost"
                ),
                "switch tx-checksumming on (ethtool -K DEVICE tx on), or set data { gso = no }",
            ),
            Self::MergesRefused { udp } => say(
                format!(
                    "the TUN device refuses merged {} packets, they are written one by one, none is lost, and it is tried again \
                     every minute",
                    if *udp { "UDP" } else { "TCP" }
                ),
                "update the kernel, or set data { tun_offload = no }",
            ),
            Self::XdpUnused { interface, why } => say(
                format!("data.xdp: {interface} is left to the sockets: {why}"),
                "remove the reason, or the interface from data { xdp }",
            ),
            Self::XdpLost { interface } => say(
                format!(
                    "the interface {interface} is gone, and AF_XDP with it: ESP is received through sockets from now on"
                ),
                "once it is back, restart the daemon to have AF_XDP again",
            ),
            Self::PollingUnchanged { interface, why, until } => {
                let colon = if interface.is_empty() { "" } else { ": " };
                let until = if until.is_empty() { String::new() } else { format!("until then {until}") };
                say(format!("data.threaded_napi: {interface}{colon}{why}"), until)
            }
            Self::WorkerUnbound { processor, why } => say(
                format!("a worker cannot be bound to processor {processor}, and runs on any: {why}"),
                "name processors of this machine in data { pin }",
            ),
            Self::WorkerPriority { nice, why } => say(
                format!("data.nice = {nice}: the workers may not ({why}), and keep the daemon's priority"),
                format!("give it CAP_SYS_NICE or a unit with LimitNICE={nice}, or write nice = 0"),
            ),
            Self::CannotWait { sources, why } => {
                say(format!("cannot wait for {}: {why}", sources.words()), "restart the daemon")
            }
        }
    }
}

impl DeviceChange {
    fn words(self, name: &str) -> String {
        match self {
            Self::Deleted => format!("somebody deleted {name}; it was made again, the SAs go on"),
            Self::Down => format!("somebody set {name} down; it is up again"),
            Self::Mtu => format!("somebody changed the MTU of {name}; restored"),
        }
    }
}

impl Offload {
    fn words(self) -> Words {
        match self {
            Self::TunSegments => say(
                "the TUN device has no segmentation offload, every packet is a system call of its own",
                "a kernel of Linux 4.0 or newer has it (data { tun_offload = no } ends this message)",
            ),
            Self::TunUdpSegments => say(
                "the TUN device has no UDP segmentation offload (Linux 6.2 has it), UDP packets cross it one by one, TCP is not \
                 affected",
                "a newer kernel makes UDP faster",
            ),
            Self::SendSegments => say(
                "the kernel does not cut UDP sends (UDP_SEGMENT, Linux 4.18), every ESP packet is sent by itself",
                "a newer kernel makes this faster (data { gso = no } ends this message)",
            ),
            Self::ReceiveMerging => say(
                "the kernel does not merge received UDP (UDP_GRO, Linux 5.0), every ESP packet is received by itself",
                "a newer kernel makes this faster (data { gro = no } ends this message)",
            ),
            Self::BusyPoll => say(
                "data.busy_poll: this kernel does not let a waiting thread poll network cards (Linux 6.9 does), it sleeps as \
                 without",
                "remove the key",
            ),
        }
    }
}

impl Sources {
    fn words(self) -> &'static str {
        match self {
            Self::Packets => "packets, and the data plane ends",
            Self::NewDevice => "packets of the new device, which go nowhere",
            Self::IcmpErrors => "ICMP errors, and narrow paths are not learned any more",
            Self::Addresses => "changes of addresses, and AF_XDP knows only those of before",
        }
    }
}

in_the_sentence!(DeviceChange, Offload, Sources);
