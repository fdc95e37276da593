//! A Unix socket that keeps the limits between messages (`SOCK_SEQPACKET`), and passes descriptors
//! (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ironswan_wire::helper::{MAX_DESCRIPTORS, MAX_MESSAGE};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// One end of a pair of sockets. Closed on `exec`.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message that has arrived, with its descriptors in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Message {
    /// The bytes, at most [`MAX_MESSAGE`].
    pub bytes: Vec<u8>,
    /// The descriptors, at most [`MAX_DESCRIPTORS`]; all are closed on `exec`.
    pub descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// Both ends of a new pair.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Takes a descriptor for one end of a pair.
    ///
    /// # Errors
    /// The descriptor is not of such a socket.
    pub fn from_descriptor(fd: OwnedFd) -> io::Result<Self> {
        let domain = rustix::net::sockopt::socket_domain(&fd)?;
        let kind = rustix::net::sockopt::socket_type(&fd)?;
        if domain != AddressFamily::UNIX || kind != SocketType::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self(fd))
    }

    /// The descriptor alone.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Sends a message. Waits while the other end has as many messages as it may have.
    ///
    /// # Errors
    /// The other end is closed, the message is too long, or it has too many descriptors.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(bytes)];
        loop {
            match sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }

    /// Waits for a message; `None` when the other end is closed.
    ///
    /// # Errors
    /// The kernel refuses, or the message was longer than any may be, or had more descriptors.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; MAX_MESSAGE];
        let received = retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was longer than it may be"));
        }
        // No message is empty, so nothing is the end.
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        Ok(Some(Message { bytes, descriptors }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_limits_and_their_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let (c, d) = Channel::pair().unwrap();
        a.send(b"one", &[]).unwrap();
        a.send(b"two", &[c.as_fd(), d.as_fd()]).unwrap();
        let one = b.receive().unwrap().unwrap();
        assert_eq!((&one.bytes[..], one.descriptors.len()), (&b"one"[..], 0));
        let two = b.receive().unwrap().unwrap();
        assert_eq!(two.bytes, b"two");
        let [c2, d2] = <[OwnedFd; 2]>::try_from(two.descriptors)
            .unwrap()
            .map(|fd| Channel::from_descriptor(fd).unwrap());
        c2.send(b"across", &[]).unwrap();
        assert_eq!(d2.receive().unwrap().unwrap().bytes, b"across");
        drop(a);
        assert!(b.receive().unwrap().is_none());
    }

    #[test]
    fn more_than_a_message_may_have_is_refused_on_both_sides() {
        let (a, b) = Channel::pair().unwrap();
        assert!(a.send(&[0; MAX_MESSAGE + 1], &[]).is_err());
        assert!(a.send(b"x", &[a.as_fd(); MAX_DESCRIPTORS + 1]).is_err());
        // A sender that does not keep the limit.
        rustix::net::send(&a.0, &[0; MAX_MESSAGE + 1], SendFlags::empty()).unwrap();
        assert_eq!(b.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [a.as_fd(); MAX_DESCRIPTORS + 5];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&a.0, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(b.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        a.send(b"goes on", &[]).unwrap();
        assert_eq!(b.receive().unwrap().unwrap().bytes, b"goes on");
    }

    #[test]
    fn a_descriptor_of_anything_else_is_no_channel() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Channel::from_descriptor(file.into()).is_err());
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Channel::from_descriptor(stream.into()).is_err());
    }
}
