//! Why a kernel object could not be had. Every message says what to do about it.

use std::fmt;
use std::io;

/// A failure to create or configure a kernel object.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `/dev/net/tun` does not exist or has no driver behind it.
    NoTun(io::Error),
    /// The process lacks a capability.
    Privilege {
        /// The action that failed, in words.
        what: &'static str,
    },
    /// Another process holds the TUN device, or another kind of device has its name.
    DeviceBusy {
        /// Interface name.
        name: String,
    },
    /// The kernel does not take this interface name.
    DeviceName {
        /// Interface name.
        name: String,
    },
    /// Another process has the UDP port.
    PortInUse {
        /// Port.
        port: u16,
        /// IPv6 or IPv4.
        ipv6: bool,
    },
    /// The kernel has no IPv6 (or no IPv4).
    NoFamily {
        /// IPv6 or IPv4.
        ipv6: bool,
    },
    /// There is no such interface.
    NoDevice {
        /// Interface name.
        name: String,
    },
    /// rtnetlink refused a request.
    Netlink {
        /// The request with its arguments, in words.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// rtnetlink's answer makes no sense to this program.
    Answer {
        /// The request with its arguments, in words.
        what: String,
    },
    /// Any other system call.
    System {
        /// The action that failed, in words.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Sorts an error of `what` into missing privilege and the rest.
    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { what },
            _ => Self::System { what, source },
        }
    }

    /// The error of an rtnetlink request: a reply that we could not parse, or a refusal.
    pub(crate) fn request(what: String, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::InvalidData => Self::Answer { what },
            _ => Self::Netlink { what, source },
        }
    }

    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::NoTun(e) | Self::Netlink { source: e, .. } | Self::System { source: e, .. } => {
                e.raw_os_error()
            }
            Self::Privilege { .. } => Some(libc::EPERM),
            Self::DeviceBusy { .. } => Some(libc::EBUSY),
            Self::DeviceName { .. } => Some(libc::EINVAL),
            Self::PortInUse { .. } => Some(libc::EADDRINUSE),
            Self::NoFamily { .. } => Some(libc::EAFNOSUPPORT),
            Self::NoDevice { .. } => Some(libc::ENODEV),
            Self::Answer { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |ipv6: &bool| if *ipv6 { "IPv6" } else { "IPv4" };
        match self {
            Self::NoTun(e) => write!(
                f,
                "/dev/net/tun cannot be opened ({e}): load the driver with `modprobe tun`; in a container, pass the device \
                 in (`--device /dev/net/tun`) and give it CAP_NET_ADMIN"
            ),
            Self::Privilege { what } => write!(
                f,
                "{what} is not permitted: run as root, or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW and \
                 CAP_NET_BIND_SERVICE"
            ),
            Self::DeviceBusy { name } => write!(
                f,
                "the interface {name} is held by another process or is not a TUN device: stop the other daemon (`ip tuntap \
                 show`), or remove the interface with `ip link del {name}`"
            ),
            Self::DeviceName { name } => write!(
                f,
                "{name:?} is not a name for an interface: use 1 to 15 characters without blank, slash, colon and percent sign"
            ),
            Self::PortInUse { port, ipv6 } => write!(
                f,
                "UDP port {port} ({}) is used by another process, most likely another IKE daemon: stop it (`ss -ulpn \
                 'sport = :{port}'` shows which), or choose another port",
                family(ipv6)
            ),
            Self::NoFamily { ipv6 } => write!(f, "the kernel has no {} here", family(ipv6)),
            Self::NoDevice { name } => {
                write!(f, "there is no interface {name}: `ip link` lists those that exist")
            }
            Self::Netlink { what, source } => {
                write!(f, "the kernel refused to {what}: {source}")?;
                match source.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => f.write_str(" (this needs root or CAP_NET_ADMIN)"),
                    Some(libc::ENETUNREACH) => f.write_str(" (no route; look at `ip route get`)"),
                    _ => Ok(()),
                }
            }
            Self::Answer { what } => write!(
                f,
                "the kernel's answer to a request to {what} is not understood: it is newer than this program, which is to be \
                 updated"
            ),
            Self::System { what, source } => write!(f, "{what} failed: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoTun(e) | Self::Netlink { source: e, .. } | Self::System { source: e, .. } => Some(e),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privilege_is_told_apart_and_names_the_remedy() {
        let e = Error::system("opening a raw socket", io::Error::from_raw_os_error(libc::EPERM));
        assert!(matches!(e, Error::Privilege { .. }));
        assert!(e.to_string().contains("CAP_NET_RAW"), "{e}");
        let e = Error::system("opening a raw socket", io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(matches!(e, Error::System { .. }));
        assert_eq!(e.errno(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_port_in_use_names_port_family_and_remedy() {
        let text = Error::PortInUse { port: 4500, ipv6: true }.to_string();
        assert!(text.contains("4500") && text.contains("IPv6") && text.contains("ss -ulpn"), "{text}");
    }
}
