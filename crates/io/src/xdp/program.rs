//! The XDP program: which frames are the packet engine's.
//!
//! A frame is redirected when it is all of this, and left to the kernel (`XDP_PASS`) otherwise:
//!
//! ```text
//! Ethernet   to the interface's own address, no VLAN tag,
//!            not longer than a frame of the socket's memory
//! IPv4       without options, no fragment        IPv6   without extension headers
//!            to an address in the map of our own addresses
//! UDP        to the encapsulation port, source port not 0,
//!            at least 8 bytes of payload, which begin with an SPI
//!            or ESP (IP protocol 50) of at least 8 bytes
//! SPI        at least 256: 0 is the non-ESP marker of IKE (RFC 3948 section 2.2),
//!            1 to 255 are reserved
//! ```
//!
//! So IKE, keepalives, fragments, errors and everything for others go the kernel's way, and so does
//! all of it when no socket is there for the queue: that is what the redirection's fallback says.
//!
//! Lengths are only looked at to tell ESP from keepalives in padded frames; that they are true is
//! checked in [`super::frame`].

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::bpf::assembler::Register::{R0, R1, R2, R3, R4, R6, R10};
use crate::bpf::assembler::Size::{Byte, Half, Word};
use crate::bpf::assembler::{
    AND32_K, Assembler, EXIT, Instruction, JA, JEQ_K, JEQ32_K, JGT_X, JLE_X, JLT32_K, JNE32_K, Label,
    MAP_LOOKUP_ELEM, REDIRECT_MAP,
};
use crate::bpf::{self, Map, MapKind, ProgramKind};
use crate::helper::client;
use ironswan_wire::helper::{Reply, Request};

// Verdicts.
/// The kernel goes on with the frame.
pub(super) const XDP_PASS: u32 = 2;
/// Verdict: the packet went to a socket.
#[cfg(test)]
pub(super) const XDP_REDIRECT: u32 = 4;
// struct xdp_md
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;

// Lengths of the headers in a frame.
const ETHERNET: i16 = 14;
const IPV4: i16 = 20;
const IPV6: i16 = 40;
const UDP: i16 = 8;

impl Assembler {
    /// Leaves to `pass` unless the frame (R2 to R3) has its first `len` bytes.
    fn require(&mut self, len: i16, pass: &mut Label) {
        self.copy(R4, R2);
        self.add(R4, len.into());
        self.jump_by(JGT_X, R4, R3, pass);
    }

    /// The upper layer, which begins at `at`: ESP, or UDP with ESP in it. The protocol is at
    /// `protocol`. Leaves to `pass` unless it is ours.
    fn esp(&mut self, at: i16, protocol: i16, config: &Program<'_>, pass: &mut Label) {
        let (mut udp, mut checked) = (Label::default(), Label::default());
        self.load(Byte, R1, R2, protocol);
        self.jump(JEQ32_K, R1, 17, &mut udp);
        match config.raw_esp {
            true => self.jump(JNE32_K, R1, 50, pass),
            false => self.jump(JA, R0, 0, pass),
        }
        if config.raw_esp {
            self.require(at + 8, pass);
            self.load_be(Word, R1, R2, at);
            self.jump(JLT32_K, R1, 256, pass);
            self.jump(JA, R0, 0, &mut checked);
        }
        self.bind(udp);
        self.require(at + UDP + 8, pass);
        self.load(Half, R1, R2, at);
        self.jump(JEQ32_K, R1, 0, pass);
        self.load_be(Half, R1, R2, at + 2);
        self.jump(JNE32_K, R1, config.port.into(), pass);
        self.load_be(Half, R1, R2, at + 4);
        self.jump(JLT32_K, R1, i32::from(UDP) + 8, pass);
        self.load_be(Word, R1, R2, at + UDP);
        self.jump(JLT32_K, R1, 256, pass);
        self.bind(checked);
    }
}

/// The addresses and numbers that are built into the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    /// Our Ethernet address.
    pub mac: [u8; 6],
    /// Longest frame that the sockets can take.
    pub frame: u16,
    /// UDP port of encapsulated ESP.
    pub port: u16,
    /// ESP without UDP is ours too.
    pub raw_esp: bool,
    /// Keys are our addresses, each with its IP version: see [`key`].
    pub addresses: BorrowedFd<'a>,
    /// Sockets by queue.
    pub sockets: BorrowedFd<'a>,
}

impl Program<'_> {
    /// The program: R6 context, R2 frame, R3 its end, R1 and R4 scratch, 20 bytes of stack for the
    /// key of the address map.
    fn assemble(&self) -> Vec<Instruction> {
        let mut a = Assembler::default();
        let (mut pass, mut v6, mut look_up) = (Label::default(), Label::default(), Label::default());
        a.copy(R6, R1);
        a.load(Word, R2, R6, MD_DATA);
        a.load(Word, R3, R6, MD_DATA_END);
        // Longer than the socket takes: the kernel takes it. (Comparing so, and not by a
        // difference, needs no CAP_PERFMON.)
        a.copy(R4, R2);
        a.add(R4, i32::from(self.frame) + 1);
        a.jump_by(JLE_X, R4, R3, &mut pass);
        a.require(ETHERNET + IPV4 + 8, &mut pass);
        let [m0, m1, m2, m3, m4, m5] = self.mac;
        a.load(Word, R1, R2, 0);
        a.jump(JNE32_K, R1, i32::from_ne_bytes([m0, m1, m2, m3]), &mut pass);
        a.load(Half, R1, R2, 4);
        a.jump(JNE32_K, R1, u16::from_ne_bytes([m4, m5]).into(), &mut pass);
        a.load_be(Half, R1, R2, 12);
        a.jump(JEQ32_K, R1, 0x86dd, &mut v6);
        a.jump(JNE32_K, R1, 0x0800, &mut pass);

        a.load(Byte, R1, R2, ETHERNET);
        a.jump(JNE32_K, R1, 0x45, &mut pass);
        // More fragments, or not the first one.
        a.load_be(Half, R1, R2, ETHERNET + 6);
        a.push(AND32_K, R1, 0, 0, 0x3fff);
        a.jump(JNE32_K, R1, 0, &mut pass);
        a.esp(ETHERNET + IPV4, ETHERNET + 9, self, &mut pass);
        a.store_bytes(KEY, V4);
        a.load(Word, R1, R2, ETHERNET + 16);
        a.store(KEY + 4, R1);
        for word in 1..4 {
            a.store_bytes(KEY + 4 + 4 * word, [0; 4]);
        }
        a.jump(JA, R0, 0, &mut look_up);

        a.bind(v6);
        a.require(ETHERNET + IPV6 + 8, &mut pass);
        a.load(Byte, R1, R2, ETHERNET);
        a.push(AND32_K, R1, 0, 0, 0xf0);
        a.jump(JNE32_K, R1, 0x60, &mut pass);
        a.esp(ETHERNET + IPV6, ETHERNET + 6, self, &mut pass);
        a.store_bytes(KEY, V6);
        for word in 0..4 {
            a.load(Word, R1, R2, ETHERNET + 24 + 4 * word);
            a.store(KEY + 4 + 4 * word, R1);
        }

        a.bind(look_up);
        a.map_descriptor(R1, self.addresses);
        a.copy(R2, R10);
        a.add(R2, KEY.into());
        a.call(MAP_LOOKUP_ELEM);
        a.jump(JEQ_K, R0, 0, &mut pass);
        a.map_descriptor(R1, self.sockets);
        a.load(Word, R2, R6, MD_QUEUE);
        a.set(R3, XDP_PASS.cast_signed());
        a.call(REDIRECT_MAP);
        a.push(EXIT, R0, 0, 0, 0);

        a.bind(pass);
        a.set(R0, XDP_PASS.cast_signed());
        a.push(EXIT, R0, 0, 0, 0);
        a.0
    }

    /// Gives it to the kernel.
    pub(super) fn load(&self) -> io::Result<OwnedFd> {
        let Some(helper) = client::get() else {
            return bpf::load(ProgramKind::Xdp, &self.assemble(), "ironswan_esp");
        };
        let Self { mac, frame, port, raw_esp, addresses, sockets } = *self;
        helper.descriptor(&Request::LoadXdp { mac, frame, port, raw_esp }, &[addresses, sockets])
    }
}

/// Attaches a program to an interface as long as the descriptor is open ([`bpf::attach`]).
pub(super) fn attach(program: BorrowedFd<'_>, index: u32, generic: bool) -> io::Result<OwnedFd> {
    match client::get() {
        Some(helper) => helper.descriptor(&Request::AttachXdp { index, generic }, &[program]),
        None => bpf::attach(program, index, generic),
    }
}

/// Length of a key of the address map: the IP version, then the address, IPv4 with zeros behind it.
/// Without the version an IPv6 frame to `::ffff:a.b.c.d` would pass for one to our IPv4 address.
pub(super) const KEY_LEN: usize = 20;
/// Offset of the look-up key on the program's stack, which is at its end.
const KEY: i16 = -(KEY_LEN as i16);
const V4: [u8; 4] = [4, 0, 0, 0];
const V6: [u8; 4] = [6, 0, 0, 0];

/// Most of our own addresses; with more, those that come last go the kernel's way.
pub(super) const MAX_ADDRESSES: u32 = 4096;

/// The two maps.
#[derive(Debug)]
pub(super) struct Maps {
    pub addresses: Map<KEY_LEN, 4>,
    pub sockets: Map<4, 4>,
}

impl Maps {
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        if let Some(helper) = client::get() {
            let (reply, descriptors) = helper.ask(&Request::MakeXdpMaps(queues), &[])?;
            let (Reply::Done { .. }, Ok([addresses, sockets])) =
                (reply, <[OwnedFd; 2]>::try_from(descriptors))
            else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            return Ok(Self { addresses: Map::trusted(addresses), sockets: Map::trusted(sockets) });
        }
        Ok(Self {
            addresses: Map::new(MapKind::Hash, MAX_ADDRESSES, "ironswan_own")?,
            sockets: Map::new(MapKind::Xsk, queues, "ironswan_xsk")?,
        })
    }

    /// An address becomes ours.
    pub(super) fn add_address(&self, address: IpAddr) -> io::Result<()> {
        match client::get() {
            Some(helper) => {
                let request = Request::SetXdpAddress { address, ours: true };
                helper.order_on(&request, &[self.addresses.as_fd()])
            }
            None => self.addresses.insert(&key(address), &[0; 4]),
        }
    }

    /// An address is ours no more.
    pub(super) fn remove_address(&self, address: IpAddr) -> io::Result<()> {
        match client::get() {
            Some(helper) => {
                let request = Request::SetXdpAddress { address, ours: false };
                helper.order_on(&request, &[self.addresses.as_fd()])
            }
            None => self.addresses.remove(&key(address)),
        }
    }

    /// `socket` takes what arrives on `queue`. It leaves the map by itself when it is closed.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        match client::get() {
            Some(helper) => helper.order_on(&Request::SetXdpSocket(queue), &[self.sockets.as_fd(), socket]),
            None => self.sockets.insert(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes()),
        }
    }
}

/// An address as the map has it.
pub(super) fn key(address: IpAddr) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let (version, octets) = key.split_at_mut(4);
    match address {
        IpAddr::V4(a) => {
            version.copy_from_slice(&V4);
            octets[..4].copy_from_slice(&a.octets());
        }
        IpAddr::V6(a) => {
            version.copy_from_slice(&V6);
            octets.copy_from_slice(&a.octets());
        }
    }
    key
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
