//! Asks the kernel which of its threads poll a device (generic netlink, family `netdev`, Linux
//! 6.8): their names hold the device's, which other laboratories' devices on this machine have too.
//!
//! ```text
//!   nlmsghdr: length u32, type u16, flags u16, sequence u32, port u32
//!   genlmsghdr: command u8, version u8, reserved u16
//!   attributes: length u16, type u16, value, padded to 4 bytes
//! ```

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

const HEADERS: usize = 20;
const ATTRIBUTE: usize = 4;

const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const NAPI_GET: u8 = 11;
const NAPI_IFINDEX: u16 = 1;
const NAPI_PID: u16 = 4;

/// Larger than any datagram of a dump.
const DATAGRAM: usize = 64 * 1024;

type Attributes = Vec<(u16, Vec<u8>)>;

/// Ids of the kernel's threads that poll `device` of the calling thread's network namespace, as the
/// first PID namespace has them.
pub(super) fn polling_threads(device: &str) -> io::Result<Vec<u32>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let family = exchange(&socket, &request(CONTROL, REQUEST, GET_FAMILY, FAMILY_NAME, b"netdev\0"))?;
    let id = family.iter().flatten().find(|(kind, _)| *kind == FAMILY_ID);
    let id = id.and_then(|(_, v)| Some(u16::from_ne_bytes(v.get(..2)?.try_into().ok()?)));
    let id = id.ok_or_else(|| malformed("a family without an id"))?;
    let index = name_to_index(&socket, device)?.to_ne_bytes();
    let napis = exchange(&socket, &request(id, REQUEST | DUMP, NAPI_GET, NAPI_IFINDEX, &index))?;
    let pid = |(kind, value): &(u16, Vec<u8>)| (*kind == NAPI_PID).then(|| u32_of(value)).flatten();
    Ok(napis.iter().flatten().filter_map(pid).collect())
}

fn request(kind: u16, flags: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let padded = value.len().next_multiple_of(4);
    let length = (HEADERS + ATTRIBUTE + padded) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(length as usize, 0);
    message
}

/// Sends a request and collects the attributes of each message of the answer: one, or a dump to its
/// end.
fn exchange(socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<Attributes>> {
    send(socket, request, SendFlags::empty())?;
    let dump = request[6..8] == (REQUEST | DUMP).to_ne_bytes();
    let (mut found, mut datagram) = (Vec::new(), vec![0; DATAGRAM]);
    loop {
        let (length, _) = recv(socket, &mut datagram[..], RecvFlags::empty())?;
        if parse(&datagram[..length.min(DATAGRAM)], &mut found)? || !dump {
            return Ok(found);
        }
    }
}

/// Takes the messages of a datagram; whether the last one of an answer is among them.
fn parse(mut datagram: &[u8], found: &mut Vec<Attributes>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let length = u32_of(datagram).map_or(0, |n| n as usize);
        if length < 16 || length > datagram.len() {
            return Err(malformed("a message of a wrong length"));
        }
        let (message, rest) = datagram.split_at(length);
        datagram = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        match u16::from_ne_bytes([message[4], message[5]]) {
            DONE => return Ok(true),
            ERROR => {
                let errno = u32_of(&message[16..]).unwrap_or_default() as i32;
                return Err(io::Error::from_raw_os_error(-errno));
            }
            _ => found.push(attributes(message.get(HEADERS..).unwrap_or_default())?),
        }
    }
    Ok(false)
}

fn attributes(mut bytes: &[u8]) -> io::Result<Attributes> {
    let mut attributes = Vec::new();
    while bytes.len() >= ATTRIBUTE {
        let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        // The two highest bits are flags.
        let kind = u16::from_ne_bytes([bytes[2], bytes[3]]) & 0x3fff;
        let value =
            bytes.get(ATTRIBUTE..length).ok_or_else(|| malformed("an attribute of a wrong length"))?;
        attributes.push((kind, value.to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(attributes)
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kernel answered with {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_dump_are_taken_to_its_end() {
        let napi = |pid: u32| request(0x20, 0, NAPI_GET, NAPI_PID, &pid.to_ne_bytes());
        let done = request(DONE, 0, 0, 0, &[]);
        let mut found = Vec::new();
        assert!(!parse(&[napi(7), napi(8)].concat(), &mut found).expect("sound"));
        assert!(parse(&[napi(9), done, napi(10)].concat(), &mut found).expect("sound"));
        let pids: Vec<_> = found.iter().flatten().map(|(kind, v)| (*kind, u32_of(v))).collect();
        assert_eq!(pids, [7, 8, 9].map(|pid| (NAPI_PID, Some(pid))));
    }

    #[test]
    fn a_refusal_is_the_kernels_error_and_damage_is_one_too() {
        let mut refusal = request(ERROR, 0, 0, 0, &[]);
        refusal[16..20].copy_from_slice(&(-95i32).to_ne_bytes());
        assert_eq!(parse(&refusal, &mut Vec::new()).expect_err("refused").raw_os_error(), Some(95));
        let whole = request(0x20, 0, NAPI_GET, NAPI_PID, &[0; 4]);
        for wrong in [&whole[..18], &[0; 20], &[1]] {
            assert!(parse(wrong, &mut Vec::new()).is_err(), "{wrong:?}");
        }
        assert!(attributes(&[2, 0, 1, 0]).is_err() && attributes(&[9, 0, 1, 0, 0]).is_err());
    }

    #[test]
    fn this_kernel_knows_no_thread_that_polls_the_loopback() {
        assert_eq!(polling_threads("lo").expect("the family netdev"), Vec::<u32>::new());
        assert!(polling_threads("no-such-device").is_err());
    }
}
