//! `AF_XDP`, for the gateway to receive: a program in front of the kernel's network stack picks out
//! what is ESP for us, and puts it into memory that is shared with this process. Everything else,
//! IKE and fragments too, goes on to the kernel.
//!
//! ```text
//!                     ┌─ ESP to one of our addresses ──▶ XdpSocket of the queue ──▶ engine
//! interface ─▶ program┤
//!                     └─ everything else, and ESP without a socket ──▶ kernel ──▶ sockets
//! ```
//!
//! Program, maps and sockets are descriptors of this process. When it ends, however it ends, the
//! program is detached and the kernel's path is there as before, with the sockets of whoever comes
//! next. The gateway sends nothing from here, so nothing can leave in clear; what comes in is ESP,
//! which is authenticated by the engine like all other. Only the laboratory's load generator sends
//! ([`XdpSender`]).
//!
//! The kernel's firewall rules on outer packets (`nft` input and prerouting), reverse path
//! filtering, connection tracking, and counting under `/proc/net` do not see these packets. `frame`
//! refuses packets that the kernel would have refused by their headers alone.
//!
//! | module | what it does |
//! |---|---|
//! | `program` | the XDP program and its maps |
//! | `ring` | memory shared with the kernel |
//! | `socket` | one socket for one queue |
//! | `frame` | checks of what arrived |
//! | `sender` | a socket that sends, for the laboratory |
//! | [`serve`] | the steps that need CAP_BPF, for the helper |

mod frame;
mod program;
mod ring;
mod sender;
pub mod serve;
mod socket;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use program::{MAX_ADDRESSES, Maps, Program};
pub use sender::{Handed, XdpSender};
use socket::{HEADROOM, QueueBinding};
pub use socket::{SLOT, XdpSocket, XdpStats};

use crate::error::Error;
use crate::route::{Netlink, Watch};

/// Limits the queues of an interface that get a socket. Packets of further queues go the kernel's
/// way.
pub const MAX_QUEUES: u32 = 64;

/// Which packets to receive, and from which interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpConfig {
    /// The interface.
    pub interface: String,
    /// UDP port of encapsulated ESP.
    pub natt_port: u16,
    /// Also ESP without UDP.
    pub raw_esp: bool,
    /// Whether the kernel's generic path may run the program, or only a driver with XDP of its own.
    pub generic: GenericXdp,
}

/// When the program may run behind the driver (generic XDP), because the driver has no XDP. Generic
/// XDP takes longer than the kernel's own way. On an interface made by software it also sees
/// super-packets of senders on this machine, and takes each for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GenericXdp {
    /// On hardware only, where the kernel turns off merging.
    #[default]
    Hardware,
    /// Always, and only so: for tests, whose packets are cut.
    Only,
}

/// Why ESP cannot be received through `AF_XDP`. The message says what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// There is no such interface, or the kernel does not say.
    Interface(Error),
    /// The interface does not carry Ethernet frames.
    NotEthernet {
        /// Name of the interface.
        interface: String,
    },
    /// The kernel refused a step.
    Refused {
        /// The interface.
        interface: String,
        /// The step.
        step: SetupStep,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Step of [`XdpAttachment::open`] that the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SetupStep {
    /// Making the maps.
    Maps,
    /// Loading the program.
    Load,
    /// Opening a socket.
    Socket,
    /// Attaching the program to the interface.
    Attach,
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interface, step, source) = match self {
            Self::Interface(e) => return e.fmt(f),
            Self::NotEthernet { interface } => {
                return write!(
                    f,
                    "{interface} does not carry Ethernet frames, and AF_XDP takes no others here: name the interface below it"
                );
            }
            Self::Refused { interface, step, source } => (interface, step, source),
        };
        let what = match step {
            SetupStep::Maps => "BPF maps cannot be made",
            SetupStep::Load => "the XDP program cannot be loaded",
            SetupStep::Socket => "an AF_XDP socket cannot be opened",
            SetupStep::Attach => "the XDP program cannot be attached",
        };
        write!(f, "{what} for {interface}: {source}")?;
        f.write_str(match (step, source.raw_os_error()) {
            (_, Some(libc::EPERM | libc::EACCES)) => {
                " (this needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; in a container, or under systemd's \
                 SystemCallFilter, `bpf` must be allowed)"
            }
            (_, Some(libc::ENOSYS)) => " (this kernel has no bpf(): CONFIG_BPF_SYSCALL)",
            (SetupStep::Socket, Some(libc::EAFNOSUPPORT)) => {
                " (this kernel has no AF_XDP: CONFIG_XDP_SOCKETS; under systemd, RestrictAddressFamilies must name it)"
            }
            (SetupStep::Socket, Some(libc::ENOBUFS)) => {
                " (memory is locked for it: raise `ulimit -l`, or give CAP_IPC_LOCK)"
            }
            (SetupStep::Socket | SetupStep::Attach, Some(libc::EBUSY | libc::EEXIST)) => {
                " (another program has the interface: `ip link show` and `bpftool net` show it)"
            }
            (SetupStep::Attach, Some(libc::ERANGE)) => {
                " (the MTU, of this interface or of a veth's other end, is too large for one frame: at most 3,498 there)"
            }
            (SetupStep::Attach, Some(libc::EOPNOTSUPP)) => {
                " (its driver has no XDP; for a VLAN or a bridge, name the interface below it)"
            }
            (SetupStep::Attach, Some(libc::EINVAL)) => " (links to interfaces need Linux 5.9)",
            _ => "",
        })
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Interface(e) => Some(e),
            Self::NotEthernet { .. } => None,
            Self::Refused { source, .. } => Some(source),
        }
    }
}

/// Whether an interface is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterfaceState {
    /// The interface is there, and its program knows our present addresses.
    Attached,
    /// The interface was deleted, or moved to another network namespace. Its sockets receive
    /// nothing any more.
    Gone,
}

/// A program on an interface, as long as this lives.
#[derive(Debug)]
pub struct XdpAttachment {
    /// Detaches the program when it is closed.
    _link: OwnedFd,
    _program: OwnedFd,
    maps: Maps,
    addresses: BTreeSet<IpAddr>,
    netlink: Netlink,
    watch: Watch,
    interface: String,
    index: u32,
    generic: bool,
}

impl XdpAttachment {
    /// Opens a socket for each receive queue of the interface, and attaches the program. From then
    /// on ESP comes through the sockets; a socket that is dropped gives its queue back to the
    /// kernel.
    ///
    /// # Errors
    /// Names what is missing, with the remedy. A failed call leaves nothing behind.
    pub fn open(config: &XdpConfig) -> Result<(Self, Vec<XdpSocket>), XdpError> {
        let name = &config.interface;
        let refused =
            |step| move |source: io::Error| XdpError::Refused { interface: name.clone(), step, source };
        // Before anything is asked, so that no change is missed.
        let watch = Watch::links_and_addresses().map_err(XdpError::Interface)?;
        let mut netlink = Netlink::open().map_err(XdpError::Interface)?;
        let link = netlink
            .ethernet(name)
            .map_err(XdpError::Interface)?
            .ok_or_else(|| XdpError::NotEthernet { interface: name.clone() })?;
        let queues = link.queues.clamp(1, MAX_QUEUES);
        let maps = Maps::new(queues).map_err(refused(SetupStep::Maps))?;
        // Half a page where the frames fit, a page otherwise; what is larger still goes the
        // kernel's way.
        let frame = if link.mtu + 18 <= 2048 - u32::from(HEADROOM) { 2048 } else { 4096 };
        let program = Program {
            mac: link.mac,
            frame: frame as u16 - HEADROOM,
            port: config.natt_port,
            raw_esp: config.raw_esp,
            addresses: maps.addresses.as_fd(),
            sockets: maps.sockets.as_fd(),
        };
        let program = program.load().map_err(refused(SetupStep::Load))?;
        let sockets =
            open_sockets(link.index, queues, frame, config.natt_port).map_err(refused(SetupStep::Socket))?;
        for (queue, socket) in (0..).zip(&sockets) {
            maps.set_socket(queue, socket.as_fd()).map_err(refused(SetupStep::Maps))?;
        }
        let attach = |generic| program::attach(program.as_fd(), link.index, generic);
        let (attached, generic) = match config.generic {
            GenericXdp::Only => (attach(true), true),
            GenericXdp::Hardware => match attach(false) {
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) && !link.software => {
                    (attach(true), true)
                }
                other => (other, false),
            },
        };
        let attached = attached.map_err(refused(SetupStep::Attach))?;
        let mut attachment = Self {
            _link: attached,
            _program: program,
            maps,
            addresses: BTreeSet::new(),
            netlink,
            watch,
            interface: name.clone(),
            index: link.index,
            generic,
        };
        attachment.learn_addresses().map_err(XdpError::Interface)?;
        Ok((attachment, sockets))
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The program runs behind the driver, not in it.
    pub fn is_generic(&self) -> bool {
        self.generic
    }

    /// Our addresses, as the program knows them.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied()
    }

    /// Gives the program our present addresses. Call this when the descriptor is readable, because
    /// an interface or an address has changed. Makes a few system calls, whose time grows with the
    /// number of addresses.
    pub fn changed(&mut self) -> InterfaceState {
        if self.watch.take().is_empty() {
            return InterfaceState::Attached;
        }
        match self.netlink.ethernet(&self.interface) {
            // Our own address has changed: frames to the new one pass to the kernel, which is
            // slower and right.
            Ok(Some(link)) if link.index == self.index => {}
            // Also when it was renamed: the name in the configuration exists no more.
            Ok(_) | Err(Error::NoDevice { .. }) => return InterfaceState::Gone,
            // The kernel did not answer: nothing is known to be gone.
            Err(_) => {}
        }
        // Keep the old addresses when the new ones cannot be read: for an address that is not ours
        // any more, the engine has no SA that was not made for it.
        let _ = self.learn_addresses();
        InterfaceState::Attached
    }

    /// Makes the map equal to the kernel's list of our addresses.
    fn learn_addresses(&mut self) -> Result<(), Error> {
        let now: BTreeSet<IpAddr> = self
            .netlink
            .addresses()?
            .iter()
            .filter(|a| !a.tentative && !a.ip.is_loopback())
            .map(|a| a.ip)
            .take(MAX_ADDRESSES as usize)
            .collect();
        let failed = |source| Error::System { what: "writing our addresses into a BPF map", source };
        for gone in self.addresses.difference(&now) {
            self.maps.remove_address(*gone).map_err(failed)?;
        }
        for new in now.difference(&self.addresses) {
            self.maps.add_address(*new).map_err(failed)?;
        }
        self.addresses = now;
        Ok(())
    }
}

/// Readable when [`XdpAttachment::changed`] is to be called.
impl AsFd for XdpAttachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// Opens a socket for each queue in use. The kernel refuses a socket for the first queue that is
/// not.
fn open_sockets(index: u32, queues: u32, frame: u32, port: u16) -> io::Result<Vec<XdpSocket>> {
    let mut sockets = Vec::new();
    for queue in 0..queues {
        match XdpSocket::open(QueueBinding { index, queue, frame, port }) {
            Err(e) if queue > 0 && e.raw_os_error() == Some(libc::EINVAL) => break,
            other => sockets.push(other?),
        }
    }
    Ok(sockets)
}
