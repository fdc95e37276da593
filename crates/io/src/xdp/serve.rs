//! For the helper: the steps that need CAP_BPF. The daemon gives numbers and descriptors, never
//! instructions.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use super::MAX_QUEUES;
use super::program::{Maps, Program};
use crate::bpf::{self, Map, MapKind};

/// Makes the maps: of addresses, and of sockets.
///
/// # Errors
/// The kernel refuses, or an interface has fewer queues than that.
pub fn maps(queues: u32) -> io::Result<[OwnedFd; 2]> {
    if !(1..=MAX_QUEUES).contains(&queues) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let Maps { addresses, sockets } = Maps::new(queues)?;
    Ok([addresses.into_descriptor(), sockets.into_descriptor()])
}

/// Loads the program over two maps.
///
/// # Errors
/// The kernel refuses, or the descriptors are not of such maps.
pub fn load(mac: [u8; 6], frame: u16, port: u16, raw_esp: bool, maps: [OwnedFd; 2]) -> io::Result<OwnedFd> {
    let [addresses, sockets] = maps;
    let addresses = Map::<{ super::program::KEY_LEN }, 4>::adopt(addresses, MapKind::Hash)?;
    let sockets = Map::<4, 4>::adopt(sockets, MapKind::Xsk)?;
    let (addresses, sockets) = (addresses.as_fd(), sockets.as_fd());
    Program { mac, frame, port, raw_esp, addresses, sockets }.load()
}

/// Puts a socket into the map of sockets.
///
/// # Errors
/// The kernel refuses, or the descriptors are of something else.
pub fn set_socket(queue: u32, map: OwnedFd, socket: OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let map = Map::<4, 4>::adopt(map, MapKind::Xsk)?;
    map.insert(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
}

/// Adds an address to the map of addresses, or takes it away.
///
/// # Errors
/// The kernel refuses, or the descriptor is of something else.
pub fn set_address(address: IpAddr, ours: bool, map: OwnedFd) -> io::Result<()> {
    let map = Map::<{ super::program::KEY_LEN }, 4>::adopt(map, MapKind::Hash)?;
    let key = super::program::key(address);
    if ours { map.insert(&key, &[0; 4]) } else { map.remove(&key) }
}

/// Attaches a program to an interface as long as the descriptor is open.
///
/// # Errors
/// The kernel refuses.
pub fn attach(program: OwnedFd, index: u32, generic: bool) -> io::Result<OwnedFd> {
    bpf::attach(program.as_fd(), index, generic)
}
