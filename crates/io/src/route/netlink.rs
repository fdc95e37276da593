//! The socket: one request, its replies.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use rustix::net::sockopt;

use crate::error::Error;

/// Limits how often we read a list that changes while it is read.
const DUMP_TRIES: u32 = 10;
/// Time that we wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Receive buffer in bytes. Parts of a list have 32 KiB at most, single objects some hundreds of
/// bytes.
const BUFFER: usize = 64 << 10;

/// A connection to the kernel's routing tables, in the network namespace of the thread that opened
/// it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    /// Bytes of the last reply.
    buffer: Vec<u8>,
    left_out: IncompleteLists,
}

/// Lists that are incomplete, because some of their objects could not be parsed.
#[derive(Debug, Default)]
struct IncompleteLists {
    /// Requests whose lists were incomplete; each is reported once.
    lists: BTreeSet<String>,
    /// Reports that nobody has fetched yet.
    lines: Vec<String>,
}

impl IncompleteLists {
    fn add(&mut self, what: &str, objects: usize) {
        if self.lists.insert(what.into()) {
            let are = if objects == 1 { "1 object is".into() } else { format!("{objects} objects are") };
            self.lines.push(format!(
                "of the kernel's answer to a request to {what}, {are} not understood and left out: the kernel is newer than this \
                 program, which is to be updated"
            ));
        }
    }
}

impl Netlink {
    /// Opens it. No privilege is needed to look.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink, or no descriptors are left.
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Makes look-ups and dumps honour their filters; without it (before 4.20) we filter
            // ourselves anyway.
            let _ = socket.set_netlink_get_strict_chk(true);
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(REPLY_TIMEOUT))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::System { what: "opening a netlink socket", source })?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(BUFFER),
            left_out: IncompleteLists::default(),
        })
    }

    /// Netlink address of this socket. Notices of changes made through it carry this address
    /// ([`super::Watch::ignore_own_routing`]).
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn port(&self) -> Result<u32, Error> {
        let mut addr = SocketAddr::new(0, 0);
        self.socket
            .get_address(&mut addr)
            .map_err(|source| Error::System { what: "asking for a netlink address", source })?;
        Ok(addr.port_number())
    }

    /// Takes one sentence for each list from which objects are missing, because they could not be
    /// parsed. Each list is reported once.
    pub fn left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left_out.lines)
    }

    /// A request that changes something; `what` completes "the kernel refused to ...".
    pub(super) fn change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        match self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags) {
            Ok(_) => Ok(()),
            Err(source) => Err(Error::Netlink { what: what(), source }),
        }
    }

    /// All objects of a kind, without those that could not be parsed ([`Self::left_out`]).
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        what: impl FnOnce() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let mut last = io::Error::from_raw_os_error(libc::EBUSY);
        for _ in 0..DUMP_TRIES {
            match self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP) {
                // The tables changed meanwhile, or were too much for the socket's buffer: what came
                // is not all there is.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::ENOBUFS)) => last = e,
                Err(source) => return Err(Error::Netlink { what: what(), source }),
                Ok((all, 0)) => return Ok(all),
                Ok((all, unknown)) => {
                    self.left_out.add(&what(), unknown);
                    return Ok(all);
                }
            }
        }
        Err(Error::Netlink { what: what(), source: last })
    }

    /// Reads one object. `InvalidData` means that the kernel has sent an object that could not be
    /// parsed, which is not the same as none ([`Error::request`]).
    pub(super) fn get(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let (answer, _) = self.exchange(message, NLM_F_REQUEST)?;
        answer.into_iter().next().ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Returns the objects of the reply, and the number of objects that could not be parsed.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<(Vec<RouteNetlinkMessage>, usize)> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        // A request for neither a list nor an acknowledgement is answered by one message.
        let single = flags & (NLM_F_ACK | NLM_F_DUMP) == 0;
        let (mut replies, mut unknown) = (Vec::new(), 0);
        let mut interrupted = false;
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(len) if len > self.buffer.len() => return Err(io::ErrorKind::FileTooLarge.into()),
                other => other?,
            };
            for bytes in split(&self.buffer) {
                if sequence_of(bytes) != Some(self.sequence) {
                    continue;
                }
                let Some(message) = parse(bytes, single)? else {
                    unknown += 1;
                    continue;
                };
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(m) => {
                        replies.push(m);
                        if single {
                            return Ok((replies, unknown));
                        }
                    }
                    NetlinkPayload::Done(_) if interrupted => {
                        return Err(io::Error::from_raw_os_error(libc::EBUSY));
                    }
                    NetlinkPayload::Done(_) => return Ok((replies, unknown)),
                    // Also the acknowledgement, which is error 0.
                    NetlinkPayload::Error(e) => match e.code {
                        None => return Ok((replies, unknown)),
                        Some(_) => return Err(e.to_io()),
                    },
                    _ => {}
                }
            }
        }
    }
}

/// One message. `None`: it has an attribute of a newer kernel than the parser knows, and a list is
/// without that one object; where a
/// `single` one was asked for that is an error.
fn parse(bytes: &[u8], single: bool) -> io::Result<Option<NetlinkMessage<RouteNetlinkMessage>>> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        Ok(message) => Ok(Some(message)),
        Err(_) if single => Err(io::ErrorKind::InvalidData.into()),
        Err(_) => Ok(None),
    }
}

/// The number of the request that a message answers.
fn sequence_of(message: &[u8]) -> Option<u32> {
    message.get(8..12)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Cuts a datagram of the kernel into messages, by checked lengths.
pub(crate) fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        if len < 16 {
            return None;
        }
        let message = bytes.get(..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// The value of the first attribute of a type.
pub(crate) fn attribute(mut body: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*body.first_chunk()?));
        // The two upper bits say nested and network byte order.
        let kind = u16::from_ne_bytes(*body.get(2..)?.first_chunk()?) & 0x3fff;
        let value = body.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        body = body.get(len.next_multiple_of(4)..)?;
    }
}

/// Text of the kernel: ends with the first NUL; what a log line cannot show (a process chooses its
/// name) is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to a look-up of a route: the headers, and RTA_OIF with a value of `len` bytes.
    fn answer(len: u16) -> Vec<u8> {
        let mut m = vec![0; 16 + 12];
        m[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        m[8..12].copy_from_slice(&7u32.to_ne_bytes());
        m[16] = libc::AF_INET as u8;
        m.extend((4 + len).to_ne_bytes());
        m.extend(libc::RTA_OIF.to_ne_bytes());
        m.resize(m.len() + usize::from(len).next_multiple_of(4), 0);
        let all = (m.len() as u32).to_ne_bytes();
        m[..4].copy_from_slice(&all);
        m
    }

    #[test]
    fn what_lists_are_without_is_told_once_for_each() {
        let mut left_out = IncompleteLists::default();
        for (what, objects) in [("list rules", 1), ("list interfaces", 3), ("list rules", 2)] {
            left_out.add(what, objects);
        }
        let [rules, links] = &left_out.lines[..] else { panic!("{left_out:?}") };
        assert!(
            rules.contains("to list rules, 1 object is not understood") && rules.contains("updated"),
            "{rules}"
        );
        assert!(links.contains("to list interfaces, 3 objects are not understood"), "{links}");
    }

    #[test]
    fn an_answer_that_is_not_understood_is_an_error_and_not_none() {
        assert!(parse(&answer(4), true).unwrap().is_some());
        // An index of six bytes, as some kernel to come may have.
        let e = parse(&answer(6), true).unwrap_err();
        assert!(parse(&answer(6), false).unwrap().is_none(), "of a list the others are seen");
        let e = Error::request("look up the route to 192.0.2.2".into(), e);
        assert!(matches!(e, Error::Answer { .. }) && e.errno().is_none(), "{e:?}");
        let text = e.to_string();
        assert!(text.contains("192.0.2.2 is not understood") && text.contains("updated"), "{text}");
    }
}
