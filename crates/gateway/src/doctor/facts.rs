//! All that the checks know about a machine. Plain data: tests fill it as they like.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use ironswan_config::Daemon;
use ironswan_io::clock::Discipline;
use ironswan_io::tun::Offloads;
use ironswan_io::xfrm;

use crate::guard::plan::{Policy, Settings};
use crate::start::fitness;

/// A fact, or the reason why it is not known.
pub type Known<T> = Result<T, String>;

/// Input of [`super::gather`]: what the caller knows already.
#[derive(Clone, Debug)]
pub struct Given {
    /// Folder with the configuration.
    pub folder: PathBuf,
    /// What a daemon answered; `None`: none runs here.
    pub running: Option<Running>,
    /// Reason why a daemon that runs was not asked.
    pub unasked: Option<String>,
    /// Socket at which a daemon is expected to listen.
    pub socket: PathBuf,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The configuration.
    pub wanted: Wanted,
    /// The daemon that runs.
    pub running: Option<Running>,
    /// Reason why a daemon that runs was not asked.
    pub unasked: Option<String>,
    /// Clock, processors, privileges.
    pub machine: Machine,
    /// What the kernel offers.
    pub kernel: Kernel,
    /// Links, addresses, routes, rules.
    pub network: Network,
    /// Other programs.
    pub processes: Processes,
    /// Rules of nftables.
    pub firewall: Firewall,
    /// Files and folders.
    pub places: Places,
}

/// What the configuration, or the daemon that runs, asks of this machine.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Folder with the configuration.
    pub folder: PathBuf,
    /// How reading it went.
    pub state: State,
    /// Settings of `ironswan.conf`.
    pub settings: Daemon,
    /// The same, as the guard needs them.
    pub plan: Settings,
    /// Policies that are to stand.
    pub policies: Vec<Policy>,
    /// Addresses of peers that are written out.
    pub peers: Vec<IpAddr>,
    /// When the newest file was written.
    pub written: Option<SystemTime>,
}

/// How reading the configuration went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// There is none, or it cannot be read: the first reason.
    Unread(String),
    /// It was read.
    Read {
        /// Number of connections.
        connections: usize,
        /// Number of errors.
        errors: usize,
        /// Number of warnings.
        warnings: usize,
    },
}

/// Answers of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Running {
    /// Its process, where that could be told.
    pub pid: Option<i32>,
    /// Threads that move packets.
    pub workers: u64,
    /// Segmentation offloads of its TUN device.
    pub tun: Offloads,
    /// What its UDP sockets got.
    pub udp: Udp,
    /// Number of its IKE_SAs that are behind a NAT on our side.
    pub behind_nat: usize,
    /// The engine of each suite.
    pub engines: Vec<Engine>,
    /// Policies that stand, and addresses of peers: beside those of the files, what was loaded by
    /// VICI.
    pub policies: Vec<Policy>,
    /// Addresses of peers that are written out.
    pub peers: Vec<IpAddr>,
}

/// The engine of one suite for large packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Engine {
    /// The suite, as `swanctl.conf` writes it.
    pub suite: String,
    /// Name of the engine.
    pub engine: String,
}

/// What UDP sockets get from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Udp {
    /// Most datagrams that one send is cut into; 1: none is cut.
    pub segments: u64,
    /// Received datagrams are merged.
    pub merging: bool,
    /// Bytes of receive and send buffer.
    pub buffers: [u64; 2],
}

/// Capabilities and system call filter of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Confinement {
    /// User.
    pub uid: u32,
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// System calls are filtered.
    pub seccomp: bool,
}

/// Clock, processors, privileges.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The time of day.
    pub now: SystemTime,
    /// How well the kernel knows it.
    pub discipline: Known<Discipline>,
    /// The kernel's random numbers are seeded.
    pub random: Known<bool>,
    /// Names of the processor's instruction sets, as `/proc/cpuinfo` has them.
    pub instructions: Known<Vec<String>>,
    /// Engines that cannot be used here, and why.
    pub missing_engines: Vec<(&'static str, &'static str)>,
    /// The engine of each suite.
    pub engines: Vec<Engine>,
    /// Engines that answered wrongly.
    pub wrong_engines: Vec<String>,
    /// Processors that this process may use.
    pub processors: usize,
    /// Files that the daemon (without one: this process) may have open.
    pub descriptors: Known<u64>,
    /// Privileges of this process.
    pub own: Known<Confinement>,
    /// Privileges of the daemon that runs.
    pub daemon: Option<Known<Confinement>>,
}

/// What the kernel offers.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Offloads of a TUN device.
    pub tun: Known<Offloads>,
    /// What UDP sockets get.
    pub udp: Known<Udp>,
    /// `net.core.rmem_max` and `wmem_max`.
    pub buffer_limits: Known<[u64; 2]>,
    /// `net.core.netdev_max_backlog`.
    pub backlog: Known<u64>,
    /// Packets that were dropped because the backlog was full, since the machine started.
    pub backlog_drops: Known<u64>,
    /// Connection tracking; `None`: not loaded in this namespace.
    pub conntrack: Option<Conntrack>,
    /// The kernel's own IPsec.
    pub xfrm: Known<xfrm::Kernel>,
}

/// Seconds for which connection tracking remembers UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conntrack {
    /// Of a flow that has had an answer (`nf_conntrack_udp_timeout_stream`).
    pub stream: u64,
    /// Of a flow that has had none (`nf_conntrack_udp_timeout`).
    pub unanswered: u64,
}

/// Links, addresses, routes, rules.
#[derive(Clone, Debug)]
pub struct Network {
    /// What the daemon looks at when it starts.
    pub fitness: Known<fitness::Facts>,
    /// Interfaces that pass nothing on although the kernel does: name, and true for IPv6.
    pub not_forwarding: Vec<(String, bool)>,
    /// Names of peers, and the resolver's error for each.
    pub names: Vec<(String, Known<()>)>,
}

/// Other programs.
#[derive(Clone, Debug)]
pub struct Processes {
    /// Who has the UDP ports of IKE.
    pub ports: Known<Vec<Port>>,
    /// Other IKE daemons.
    pub others: Known<Vec<Other>>,
}

/// A socket at a port of IKE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The port.
    pub number: u16,
    /// Address to which the socket is bound.
    pub address: IpAddr,
    /// The process that has the socket.
    pub holder: Known<Holder>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number.
    pub pid: i32,
    /// Its name, as the kernel has it: at most 15 characters.
    pub name: String,
    /// It is an IronSwan.
    pub ours: bool,
}

/// Another IKE daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Other {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// It is in this network namespace.
    pub here: Known<bool>,
}

/// Rules of nftables.
#[derive(Clone, Debug)]
pub struct Firewall {
    /// Version of the program `nft`.
    pub nft: Known<String>,
    /// All rules, with numbers in place of names.
    pub ruleset: Known<String>,
    /// There are rules of the old kind (`iptables-legacy`), which `nft` does not show.
    pub legacy: bool,
}

/// Files and folders.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders in which the daemon makes files.
    pub folders: Vec<Place>,
    /// Units of systemd; empty where there is no systemd.
    pub units: Vec<Unit>,
}

/// A folder in which the daemon makes files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its path.
    pub path: PathBuf,
    /// What the daemon makes there.
    pub holds: &'static str,
    /// Files can be made there; or why not.
    pub writable: Known<()>,
}

/// A unit of systemd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its name.
    pub name: &'static str,
    /// There is a file of it.
    pub there: bool,
    /// It is started at boot.
    pub enabled: bool,
}
