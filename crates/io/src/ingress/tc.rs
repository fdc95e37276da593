//! rtnetlink for tc: the queueing discipline `clsact`, and filters of the kind `bpf` at its
//! ingress.
//!
//! ```text
//! nlmsghdr 16 | tcmsg: family 1, padding 3, interface 4, handle 4, parent 4, info 4 | attributes
//! attribute: length 2, type 2, value
//! info of a filter: preference << 16 | protocol of the frame, in network byte order
//! ```

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt;

use crate::route::{attribute, split, text};

/// The preference of our filter: behind 1, which Cilium takes, and before all that administrators
/// and tc itself choose.
pub(crate) const PREFERENCE: u16 = 2;
/// Handle of our filter.
pub(super) const HANDLE: u32 = 0x220;

// linux/rtnetlink.h
const NEW_QDISC: u16 = 36;
pub(crate) const DELETE_QDISC: u16 = 37;
pub(crate) const NEW_FILTER: u16 = 44;
pub(crate) const DELETE_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
// linux/pkt_sched.h
const CLSACT: u32 = 0xffff_fff1;
pub(crate) const CLSACT_HANDLE: u32 = 0xffff_0000;
pub(crate) const INGRESS: u32 = 0xffff_fff2;
pub(crate) const EGRESS: u32 = 0xffff_fff3;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// In front of filters of other kinds than `bpf` the attribute's nested parts have other meanings.
const BPF: &[u8] = b"bpf\0";
// linux/pkt_cls.h
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_FLAGS_GEN: u16 = 9;
const BPF_ID: u16 = 11;
/// The program's result is the verdict.
const DIRECT_ACTION: u32 = 1;
/// Not in the network card.
const SKIP_HARDWARE: u32 = 1;
const ALL_PROTOCOLS: u16 = 3;

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const DUMP: u16 = libc::NLM_F_DUMP as u16;
const CREATE: u16 = libc::NLM_F_CREATE as u16;
const EXCL: u16 = libc::NLM_F_EXCL as u16;

/// A filter at the ingress of an interface, as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TcFilter {
    pub(super) preference: u16,
    pub(super) handle: u32,
    /// Kind of the filter.
    pub(super) kind: String,
    /// For a filter of the kind `bpf`: its name, and the kernel's number of the program.
    pub(super) name: Option<String>,
    pub(super) program: Option<u32>,
}

/// A connection to the kernel's traffic control, in the network namespace of the thread that opened
/// it.
#[derive(Debug)]
pub(super) struct Tc {
    socket: Socket,
    sequence: u32,
}

impl Tc {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(10)))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Netlink address of this socket.
    pub(super) fn port(&self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// The filters at the ingress of an interface; none where it has no queueing discipline for
    /// that.
    pub(super) fn filters(&mut self, interface: u32) -> io::Result<Vec<TcFilter>> {
        let answers = self.ask(GET_FILTER, DUMP, message(interface, 0, INGRESS, 0), &[])?;
        Ok(answers.iter().filter_map(|m| found(m)).collect())
    }

    /// Sets a filter with this program in place of the one with our handle, and makes the queueing
    /// discipline `clsact` where the interface has none. `made_clsact`: it was made for an earlier
    /// filter of ours. Returns whether it was made for our filter, now or before; the filter's
    /// `name` depends on that.
    pub(super) fn set(
        &mut self,
        interface: u32,
        program: i32,
        made_clsact: bool,
        name: impl Fn(bool) -> String,
    ) -> io::Result<bool> {
        let set = |tc: &mut Self, made_clsact: bool| {
            let options = nested(&[
                (BPF_FD, &program.to_ne_bytes()),
                (BPF_NAME, &[name(made_clsact).as_bytes(), b"\0"].concat()),
                (BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes()),
                (BPF_FLAGS_GEN, &SKIP_HARDWARE.to_ne_bytes()),
            ]);
            let attributes: [(u16, &[u8]); 2] = [(KIND, BPF), (OPTIONS, &options)];
            tc.ask(NEW_FILTER, ACK | CREATE, own_filter_header(interface), &attributes).map(|_| made_clsact)
        };
        match set(self, made_clsact) {
            // There is no queueing discipline at the ingress.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {}
            other => return other,
        }
        let clsact: [(u16, &[u8]); 1] = [(KIND, b"clsact\0")];
        let new =
            self.ask(NEW_QDISC, ACK | CREATE | EXCL, message(interface, CLSACT_HANDLE, CLSACT, 0), &clsact);
        let made_clsact = match new {
            Ok(_) => true,
            // There is one, so the filter was refused for another reason.
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => false,
            Err(e) => return Err(e),
        };
        set(self, made_clsact).inspect_err(|_| {
            if made_clsact {
                self.remove_clsact(interface);
            }
        })
    }

    /// Removes our filter and, with `made_clsact`, the queueing discipline that was made for it,
    /// unless others have put filters into that.
    pub(super) fn remove(&mut self, interface: u32, made_clsact: bool) -> io::Result<()> {
        let attributes: [(u16, &[u8]); 1] = [(KIND, BPF)];
        self.ask(DELETE_FILTER, ACK, own_filter_header(interface), &attributes)?;
        if made_clsact { self.remove_unused_clsact(interface) } else { Ok(()) }
    }

    /// Removes the queueing discipline `clsact`, unless others have put filters into it.
    pub(super) fn remove_unused_clsact(&mut self, interface: u32) -> io::Result<()> {
        for parent in [INGRESS, EGRESS] {
            if !self.ask(GET_FILTER, DUMP, message(interface, 0, parent, 0), &[])?.is_empty() {
                return Ok(());
            }
        }
        self.remove_clsact(interface);
        Ok(())
    }

    fn remove_clsact(&mut self, interface: u32) {
        // The kernel removes a discipline of this name only, so one of another kind stays.
        let clsact: [(u16, &[u8]); 1] = [(KIND, b"clsact\0")];
        let _ = self.ask(DELETE_QDISC, ACK, message(interface, CLSACT_HANDLE, CLSACT, 0), &clsact);
    }

    /// Sends one request, and returns the objects in the answer.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        body: Vec<u8>,
        attributes: &[(u16, &[u8])],
    ) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut m = vec![0; 16];
        m.extend(body);
        m.extend(nested(attributes));
        let len = (m.len() as u32).to_ne_bytes();
        m[..4].copy_from_slice(&len);
        m[4..6].copy_from_slice(&kind.to_ne_bytes());
        m[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        m[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        self.socket.send(&m, 0)?;
        let mut answers = Vec::new();
        loop {
            let bytes = match self.socket.recv_from_full() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?.0,
            };
            for message in split(&bytes) {
                if number(message, 8) != Some(self.sequence) {
                    continue;
                }
                match ends(message) {
                    Some(ended) => return ended.map(|()| answers),
                    None => answers.push(message.to_vec()),
                }
            }
        }
    }
}

/// The result of a request, when this message ends its answer; `None` when more messages follow. A
/// list that ends with an error is not complete.
pub(crate) fn ends(message: &[u8]) -> Option<io::Result<()>> {
    let kind = i32::from(u16::from_ne_bytes(*message.get(4..)?.first_chunk()?));
    match (kind, number(message, 16).map(u32::cast_signed)) {
        (libc::NLMSG_DONE, Some(0) | None) | (libc::NLMSG_ERROR, Some(0)) => Some(Ok(())),
        (libc::NLMSG_DONE | libc::NLMSG_ERROR, Some(code)) => {
            Some(Err(io::Error::from_raw_os_error(code.saturating_neg())))
        }
        (libc::NLMSG_ERROR, None) => Some(Err(io::ErrorKind::InvalidData.into())),
        _ => None,
    }
}

/// `struct tcmsg`.
fn message(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, interface, handle, parent, info].iter().flat_map(|n| n.to_ne_bytes()).collect()
}

fn own_filter_header(interface: u32) -> Vec<u8> {
    message(interface, HANDLE, INGRESS, u32::from(PREFERENCE) << 16 | u32::from(ALL_PROTOCOLS.to_be()))
}

fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, value) in attributes {
        out.extend((4 + value.len() as u16).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(*value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

fn number(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?))
}

/// The filter that an answer shows; `None` for what is not one: the kernel shows a preference in
/// front of its filters, too.
fn found(m: &[u8]) -> Option<TcFilter> {
    let kind = u16::from_ne_bytes(*m.get(4..)?.first_chunk()?);
    let (handle, info) = (number(m, 24)?, number(m, 32)?);
    if kind != NEW_FILTER || handle == 0 {
        return None;
    }
    let body = m.get(36..)?;
    let kind: String = attribute(body, KIND).map(text)?;
    let options = attribute(body, OPTIONS).filter(|_| kind == "bpf");
    Some(TcFilter {
        preference: (info >> 16) as u16,
        handle,
        name: options.and_then(|o| attribute(o, BPF_NAME)).map(text),
        program: options.and_then(|o| number(attribute(o, BPF_ID)?, 0)),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let mut m = vec![0; 16];
        m[4..6].copy_from_slice(&NEW_FILTER.to_ne_bytes());
        m.extend(own_filter_header(7));
        let options = nested(&[(BPF_NAME, b"ironswan:12\0"), (BPF_ID, &77u32.to_ne_bytes())]);
        m.extend(nested(&[(KIND, BPF), (OPTIONS, &options)]));
        m
    }

    /// True when `lo` has the queueing discipline that holds filters, by `tc qdisc show dev lo`.
    fn holds() -> bool {
        let out = std::process::Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).contains("clsact")
    }

    #[test]
    fn what_was_made_for_a_filter_that_cannot_be_set_is_taken_away_again() {
        let in_namespace = || {
            crate::namespace::unshare().expect("these tests need root: they make network namespaces");
            let mut tc = Tc::open().unwrap();
            let mut asked = Vec::new();
            let names = std::cell::RefCell::new(&mut asked);
            // No program has this descriptor.
            let e = tc
                .set(1, -1, false, |made_clsact| {
                    names.borrow_mut().push(made_clsact);
                    "ironswan:1".into()
                })
                .unwrap_err();
            assert_eq!(asked, [false, true], "{e}");
            assert!(!holds());
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }

    #[test]
    fn a_filter_is_read_as_the_kernel_shows_it() {
        let f = found(&answer()).unwrap();
        assert_eq!((f.preference, f.handle, &*f.kind), (PREFERENCE, HANDLE, "bpf"));
        assert_eq!((f.name.as_deref(), f.program), (Some("ironswan:12"), Some(77)));
    }

    #[test]
    fn a_list_that_ends_with_an_error_is_not_whole() {
        let end = |kind: i32, code: &[u8]| {
            let mut m = vec![0; 16];
            m[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
            m.extend(code);
            ends(&m).map(|ended| ended.map_err(|e| e.raw_os_error()))
        };
        let code = |n: i32| n.to_ne_bytes();
        assert_eq!(end(libc::NLMSG_DONE, &code(0)), Some(Ok(())));
        assert_eq!(end(libc::NLMSG_DONE, &[]), Some(Ok(())));
        assert_eq!(end(libc::NLMSG_DONE, &code(-libc::ENOBUFS)), Some(Err(Some(libc::ENOBUFS))));
        assert_eq!(end(libc::NLMSG_ERROR, &code(0)), Some(Ok(())));
        assert_eq!(end(libc::NLMSG_ERROR, &code(-libc::EPERM)), Some(Err(Some(libc::EPERM))));
        assert_eq!(end(libc::NLMSG_ERROR, &[1]), Some(Err(None)));
        assert!(ends(&answer()).is_none() && ends(&[0; 5]).is_none());
    }

    #[test]
    fn lengths_that_lie_are_survived() {
        let whole = answer();
        for n in 0..whole.len() {
            let f = found(&whole[..n]);
            assert!(f.is_none_or(|f| f.program.is_none()), "{n}");
        }
        for at in 36..whole.len() {
            for value in [0, 1, 3, 4, 255] {
                let mut bad = whole.clone();
                bad[at] = value;
                let _ = found(&bad);
            }
        }
    }
}
