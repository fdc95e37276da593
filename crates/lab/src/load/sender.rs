//! Sockets by which the generator's frames leave a host: a packet socket, or one of `AF_XDP`. The
//! frames are the same, and so are the counts.

use std::fmt;
use std::io;
use std::str::FromStr;

use ironswan_io::packet::PacketSocket;
use ironswan_io::xdp::XdpSender;

use super::frame::{Burst, Row};
use super::generator::BATCH;
use crate::error::{LabError, Remedy};
use crate::topology::Netns;

/// Bytes in flight: more than every queue on the way holds.
const BUFFER: u32 = 64 << 20;

/// The kind of socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendBy {
    /// A packet socket (`AF_PACKET`): one system call for a batch of frames.
    #[default]
    Packet,
    /// An `AF_XDP` socket: frames in memory shared with the kernel, which copies them into packets.
    Xdp,
}

impl fmt::Display for SendBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet => "af_packet",
            Self::Xdp => "af_xdp",
        })
    }
}

impl FromStr for SendBy {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "af_packet" => Ok(Self::Packet),
            "af_xdp" => Ok(Self::Xdp),
            _ => Err(format!("`{s}` is not a generator; the generators are af_packet and af_xdp")),
        }
    }
}

impl SendBy {
    /// What this machine lacks to send frames of up to `largest` bytes so.
    pub fn lacks(self, largest: usize) -> Vec<Remedy> {
        let refused = match self {
            Self::Packet => None,
            Self::Xdp => XdpSender::lacks(largest),
        };
        refused.map(|e| lack(&e, largest)).into_iter().collect()
    }
}

/// What is lacking where the kernel refuses so.
fn lack(refused: &io::Error, largest: usize) -> Remedy {
    use rustix::io::Errno;
    let or = "or leave out --generator af_xdp";
    match Errno::from_io_error(refused) {
        Some(Errno::AFNOSUPPORT) => Remedy::new(
            "this kernel has no AF_XDP (--generator af_xdp)",
            format!("take a kernel with CONFIG_XDP_SOCKETS, {or}"),
        ),
        Some(Errno::PERM | Errno::ACCESS) => Remedy::new(
            "this user may not open an AF_XDP socket (--generator af_xdp)",
            format!("run it as root with CAP_NET_RAW, {or}"),
        ),
        Some(Errno::INVAL) => Remedy::new(
            format!(
                "this kernel sends no frame of {largest} bytes through AF_XDP, which has room for 4096 in a frame"
            ),
            format!("take Linux 6.6 or later, {or}"),
        ),
        _ => Remedy::new(
            format!("an AF_XDP socket cannot be opened: {refused} (--generator af_xdp)"),
            "leave out --generator af_xdp",
        ),
    }
}

/// Where frames leave a host.
#[derive(Debug, Clone, Copy)]
pub struct Outlet<'a> {
    /// The interface.
    pub interface: &'a str,
    /// The kind of socket.
    pub by: SendBy,
    /// The interface's send queue, from 0. A packet socket uses that of the processor on which it
    /// is at work, whatever this says.
    pub queue: u32,
}

/// What the kernel took of the frames of a call, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub packets: usize,
    /// Of these: the link, or the receiving end's backlog, dropped them at once.
    pub refused: usize,
}

/// An open socket, for frames of one kind.
#[derive(Debug)]
pub struct Sender(Socket);

#[derive(Debug)]
enum Socket {
    Packet(PacketSocket),
    Xdp(XdpSender),
}

impl Sender {
    /// Opens one inside `netns` for `frames`.
    pub fn open(netns: &Netns, outlet: Outlet<'_>, frames: &dyn Burst) -> Result<Self, LabError> {
        let (largest, offloads) = (frames.row(0, 1, 0).stride, frames.offloads());
        let failed = |why: String| LabError::Measurement(format!("the generator: {why}"));
        let socket = match outlet.by {
            SendBy::Packet => {
                let opened = netns.inside(|| PacketSocket::open(outlet.interface, BATCH, BUFFER))?;
                let socket = opened.map_err(|e| failed(e.to_string()))?;
                if offloads {
                    socket.offload().map_err(|e| failed(e.to_string()))?;
                }
                Socket::Packet(socket)
            }
            SendBy::Xdp if offloads => {
                return Err(failed("AF_XDP sends no frames that the kernel has to finish".into()));
            }
            SendBy::Xdp => {
                let open = || XdpSender::open(outlet.interface, outlet.queue, largest, BUFFER);
                Socket::Xdp(netns.inside(open)?.map_err(|e| failed(e.to_string()))?)
            }
        };
        Ok(Self(socket))
    }

    /// Sends the frames of `row`, which begin at the start of `frames`, or as many as `lens` has,
    /// each with a length of its own; as many as the kernel takes, without blocking.
    ///
    /// # Errors
    /// `WouldBlock` when too much is in flight; else why nothing can be sent.
    pub(super) fn send(&mut self, frames: &[u8], row: Row, lens: Option<&[usize]>) -> io::Result<Taken> {
        match &mut self.0 {
            Socket::Packet(socket) => {
                let taken = match lens {
                    Some(lens) => socket.send_each(frames, row.stride, lens.iter().copied()),
                    None => socket.send(frames, row.stride, row.len, row.messages),
                };
                match taken {
                    Ok(messages) => Ok(Taken { packets: messages * row.packets, refused: 0 }),
                    // The message was handed over, and dropped (of several packets, at least the
                    // last) on the other side of the link.
                    Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                        Ok(Taken { packets: row.packets, refused: row.packets })
                    }
                    Err(e) => Err(e),
                }
            }
            Socket::Xdp(socket) => {
                let handed = match lens {
                    Some(lens) => socket.send_each(frames, row.stride, lens.iter().copied()),
                    None => socket.send_each(frames, row.stride, std::iter::repeat_n(row.len, row.messages)),
                };
                handed.map(|handed| Taken { packets: handed.frames, refused: handed.refused })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_have_the_names_of_their_sockets() {
        for by in [SendBy::Packet, SendBy::Xdp] {
            assert_eq!(by.to_string().parse(), Ok(by));
        }
        let refused = "xdp".parse::<SendBy>().expect_err("no name");
        assert!(refused.contains("`xdp`") && refused.contains("af_packet and af_xdp"), "{refused}");
    }

    #[test]
    fn what_the_kernel_refuses_is_a_sentence_with_the_remedy() {
        let of = |errno: rustix::io::Errno| {
            let Remedy { lack, action } = lack(&errno.into(), 9000);
            format!("{lack}: {action}")
        };
        let cases = [
            (rustix::io::Errno::AFNOSUPPORT, "has no AF_XDP", "CONFIG_XDP_SOCKETS"),
            (rustix::io::Errno::PERM, "may not open", "CAP_NET_RAW"),
            (rustix::io::Errno::INVAL, "no frame of 9000 bytes", "Linux 6.6"),
            (rustix::io::Errno::MFILE, "cannot be opened: ", "leave out"),
        ];
        for (errno, what, remedy) in cases {
            let said = of(errno);
            assert!(
                said.contains(what) && said.contains(remedy) && said.contains("--generator af_xdp"),
                "{said}"
            );
        }
        assert!(SendBy::Packet.lacks(9000).is_empty());
    }
}
