//! A TUN device: what the kernel routes to it is read here, what is written here the kernel
//! receives.
//!
//! Every read and write starts with a 10-byte virtio header (`struct virtio_net_hdr`), so that one
//! call carries up to 64 KB of one TCP or UDP flow (TSO and USO on the way out, merged on the way
//! in). Its meaning is in `wire`; here it is bytes. The device is not persistent: it vanishes with
//! the process, with its addresses and routes.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ironswan_wire::helper::Request;
use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::helper::client::{self, Helper};
use crate::route::{Link, Netlink};

/// Bytes in front of every packet.
pub const VNET_HEADER: usize = 10;

/// A buffer of this size holds whatever a read can give: header, 64 KB packet.
pub const READ_SIZE: usize = VNET_HEADER + 65_536;

/// How often, and how long apart, a device that is busy is tried.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(25);

// linux/if_tun.h
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// How to make a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunConfig {
    /// Interface name, e.g. `ipsec0`.
    pub name: String,
    /// Largest packet that is not a segmentation buffer.
    pub mtu: u32,
    /// Packets the device queues while the process is busy. The kernel's default is 500, which
    /// drops at speed.
    pub queue_len: u32,
    /// Take and give super-packets. Without, every packet is a read and a write, its checksum
    /// finished.
    pub offload: bool,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self { name: "ipsec0".into(), mtu: 1400, queue_len: 1000, offload: true }
    }
}

/// Offloads that the kernel has granted: segmentation and checksums that we do instead of the
/// kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Checksums may be left unfinished.
    pub checksum: bool,
    /// TCP buffers of up to 64 KB.
    pub tso: bool,
    /// UDP buffers of up to 64 KB (Linux 6.2).
    pub uso: bool,
}

/// A device.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    index: u32,
    offloads: Offloads,
}

impl Tun {
    /// Creates the device and brings it up.
    ///
    /// # Errors
    /// [`Error::NoTun`], [`Error::Privilege`], [`Error::DeviceBusy`], [`Error::DeviceName`], or
    /// what rtnetlink says.
    pub fn create(config: &TunConfig) -> Result<Self, Error> {
        let fd = match client::get() {
            Some(helper) => open_by(helper, &config.name)?,
            None => open(&config.name)?,
        };
        set_vnet_header_size(fd.as_fd(), VNET_HEADER as i32)
            .map_err(|e| Error::system("setting the TUN header size", e))?;
        let offloads = negotiate(config.offload, |bits| set_offload(fd.as_fd(), bits))
            .map_err(|e| Error::system("negotiating TUN offloads", e))?;
        let mut netlink = Netlink::open()?;
        let index = netlink.link(&config.name)?.index;
        // Nobody is behind the device who would answer, and no policy would let it out.
        netlink.no_link_local(index);
        netlink.set_link(index, config.mtu, config.queue_len, true)?;
        Ok(Self { fd, name: config.name.clone(), index, offloads })
    }

    /// Interface name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Offloads that the kernel has granted.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Reads one packet with its header. A packet that fills `buf` to the last byte may have been
    /// cut: give [`READ_SIZE`] or more.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `EIO` while the device is down.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, buf)?)
    }

    /// Writes one packet, header first, gathered from `parts` (at most 1,024).
    ///
    /// # Errors
    /// `EINVAL` for a header that contradicts the packet, `EIO` while the device is down.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.fd, parts)?)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// True for a name that the kernel would give an interface.
fn is_name(name: &str) -> bool {
    let name = name.as_bytes();
    !name.is_empty()
        && name.len() < libc::IFNAMSIZ
        && !matches!(name, b"." | b"..")
        && name.iter().all(|b| b.is_ascii_graphic() && !b"/:%".contains(b))
}

/// Opens the TUN device of this name, or makes it, in this process. It is not up, and has no
/// offloads.
///
/// # Errors
/// [`Error::NoTun`], [`Error::Privilege`], [`Error::DeviceBusy`], [`Error::DeviceName`].
pub fn open(name: &str) -> Result<OwnedFd, Error> {
    let bad_name = || Error::DeviceName { name: name.to_owned() };
    if !is_name(name) {
        return Err(bad_name());
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|e| match e {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => {
            Error::Privilege { what: "opening /dev/net/tun" }
        }
        e => Error::NoTun(e.into()),
    })?;
    attach(fd.as_fd(), name.as_bytes()).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => Error::DeviceBusy { name: name.to_owned() },
        // The name exists and is not a TUN device.
        Some(libc::EINVAL) => match exists(Netlink::open().and_then(|mut n| n.link(name))) {
            Ok(true) => Error::DeviceBusy { name: name.to_owned() },
            Ok(false) => bad_name(),
            Err(e) => e,
        },
        _ => Error::system("creating a TUN device", e),
    })?;
    Ok(fd)
}

/// Finds the offloads that the kernel would grant. Makes a device of this name, which is never up
/// and is gone when this returns. A caller that wants nobody to see the device calls this in a
/// network namespace of its own.
///
/// # Errors
/// As [`Tun::create`].
pub fn probe(name: &str) -> Result<Offloads, Error> {
    let fd = open(name)?;
    set_vnet_header_size(fd.as_fd(), VNET_HEADER as i32)
        .map_err(|e| Error::system("setting the TUN header size", e))?;
    negotiate(true, |bits| set_offload(fd.as_fd(), bits))
        .map_err(|e| Error::system("negotiating TUN offloads", e))
}

/// The same by the helper. The number of its error says which one it was.
fn open_by(helper: &Helper, name: &str) -> Result<OwnedFd, Error> {
    let bad_name = || Error::DeviceName { name: name.to_owned() };
    if !is_name(name) {
        return Err(bad_name());
    }
    let opened = helper.descriptor(&Request::OpenTun(name.into()), &[]);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => Error::DeviceBusy { name: name.to_owned() },
        Some(libc::EINVAL) => bad_name(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::NoTun(e),
        _ => Error::system("creating a TUN device", e),
    })
}

/// Asks for all offloads (or none) by `set`, then for fewer, until the kernel agrees.
fn negotiate(offload: bool, mut set: impl FnMut(u32) -> io::Result<()>) -> io::Result<Offloads> {
    let tso = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    let wishes = [
        (tso | TUN_F_USO4 | TUN_F_USO6, Offloads { checksum: true, tso: true, uso: true }),
        (tso, Offloads { checksum: true, tso: true, uso: false }),
        (TUN_F_CSUM, Offloads { checksum: true, tso: false, uso: false }),
        (0, Offloads::default()),
    ];
    let from = if offload { 0 } else { wishes.len() - 1 };
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for (bits, offloads) in &wishes[from..] {
        match set(*bits) {
            Ok(()) => return Ok(*offloads),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// TUNSETIFF, with patience: a daemon that has just been killed may still be on its way out.
fn attach(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    for _ in 0..BUSY_TRIES {
        match set_interface(fd, name) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    set_interface(fd, name)
}

/// Whether the interface that was asked for is there, of any kind.
fn exists(asked: Result<Link, Error>) -> Result<bool, Error> {
    match asked {
        Ok(_) => Ok(true),
        Err(Error::NoDevice { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// TUNSETIFF. `name` is shorter than IFNAMSIZ.
fn set_interface(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })
}

/// TUNSETVNETHDRSZ.
fn set_vnet_header_size(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const bytes) })
}

/// TUNSETOFFLOAD.
fn set_offload(fd: BorrowedFd<'_>, bits: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(bits)) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows these bits and no others, and what was asked of it.
    fn kernel(known: u32, offload: bool) -> (io::Result<Offloads>, Vec<u32>) {
        let mut asked = Vec::new();
        let got = negotiate(offload, |bits| {
            asked.push(bits);
            if bits & !known == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
        });
        (got, asked)
    }

    #[test]
    fn a_kernel_that_refuses_uso_is_asked_for_less() {
        let tso = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        let uso = TUN_F_USO4 | TUN_F_USO6;
        for (known, want, asked) in [
            (tso | uso, Offloads { checksum: true, tso: true, uso: true }, 1),
            (tso, Offloads { checksum: true, tso: true, uso: false }, 2),
            (tso | TUN_F_USO4, Offloads { checksum: true, tso: true, uso: false }, 2),
            (TUN_F_CSUM, Offloads { checksum: true, tso: false, uso: false }, 3),
            (0, Offloads::default(), 4),
        ] {
            let (got, list) = kernel(known, true);
            assert_eq!((got.unwrap(), list.len()), (want, asked), "{known:#x}");
        }
    }

    #[test]
    fn what_is_not_wished_is_not_asked_for() {
        let (got, asked) = kernel(u32::MAX, false);
        assert_eq!((got.unwrap(), asked), (Offloads::default(), vec![0]));
    }

    #[test]
    fn an_interface_of_which_the_kernel_says_nothing_is_not_one_that_is_not_there() {
        assert!(matches!(exists(Ok(Link::default())), Ok(true)));
        assert!(matches!(exists(Err(Error::NoDevice { name: "x".into() })), Ok(false)));
        for errno in [libc::EPERM, libc::ENOBUFS] {
            let refused = Error::Netlink { what: "x".into(), source: io::Error::from_raw_os_error(errno) };
            assert_eq!(exists(Err(refused)).unwrap_err().errno(), Some(errno));
        }
        assert!(matches!(exists(Err(Error::Answer { what: "x".into() })), Err(Error::Answer { .. })));
    }

    #[test]
    fn a_kernel_that_refuses_everything_is_an_error() {
        let got = negotiate(true, |_| Err(io::Error::from_raw_os_error(libc::ENOTTY)));
        assert_eq!(got.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
