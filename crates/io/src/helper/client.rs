//! The daemon's end: one helper for the whole process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use ironswan_wire::fetched::{FetchFault, MAX_BODY};
use ironswan_wire::helper::{Reply, Request};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};

use super::Channel;

/// Limits the bytes of a list of paths.
const MAX_LIST: u64 = 256 << 20;

/// The helper of this process. Privileges belong to a process, so their substitute does.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// The fetcher of this process.
static FETCHER: OnceLock<Helper> = OnceLock::new();

/// The way to the helper or to the fetcher. Any thread may ask; each waits for its own reply.
#[derive(Debug)]
pub struct Helper(Channel);

/// The helper, where this process has one.
pub fn get() -> Option<&'static Helper> {
    HELPER.get()
}

/// From now on this process asks the helper at the other end for everything that needs privileges.
///
/// # Errors
/// There is a helper already.
pub fn connect(channel: Channel) -> io::Result<()> {
    HELPER.set(Helper(channel)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// The fetcher, where this process has one.
pub fn fetcher() -> Option<&'static Helper> {
    FETCHER.get()
}

/// From now on this process asks the fetcher at the other end for names.
///
/// # Errors
/// There is a fetcher already.
pub fn connect_fetcher(channel: Channel) -> io::Result<()> {
    FETCHER.set(Helper(channel)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// The error for a reply that does not belong to its request.
fn nonsense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "another process of the daemon gave an answer that was not asked for",
    )
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the process that carries requests out has ended")
}

impl Helper {
    /// Sends a request with its descriptors, and waits for the reply and its descriptors. A reply
    /// that says why the request has failed is an error here.
    ///
    /// # Errors
    /// The helper's own, or that it has ended.
    pub fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let (reply, descriptors) = self.reply(request, descriptors)?;
        match reply {
            Reply::Failed { errno: 0, reason } => Err(io::Error::other(reason)),
            Reply::Failed { errno, reason } if reason.is_empty() => {
                Err(io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(libc::EIO)))
            }
            Reply::Failed { errno, reason } => {
                let kind = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(libc::EIO)).kind();
                Err(io::Error::new(kind, reason))
            }
            reply => Ok((reply, descriptors)),
        }
    }

    /// The same, with a reply that says why the request has failed as it came.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn reply(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let (ours, theirs) = Channel::pair()?;
        let all: Vec<BorrowedFd<'_>> =
            std::iter::once(theirs.as_fd()).chain(descriptors.iter().copied()).collect();
        self.0.send(&request.encode(), &all).map_err(|e| match e.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET) => gone(),
            _ => e,
        })?;
        drop(theirs);
        let message = ours.receive()?.ok_or_else(gone)?;
        let reply = Reply::decode(&message.bytes).map_err(io::Error::other)?;
        if message.descriptors.len() != reply.descriptors() {
            return Err(nonsense());
        }
        Ok((reply, message.descriptors))
    }

    /// Carries out a request whose only answer is that it is done.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn order(&self, request: &Request) -> io::Result<()> {
        self.order_on(request, &[])
    }

    /// The same, for a request with descriptors.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn order_on(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.ask(request, descriptors)? {
            (Reply::Done { descriptors: 0 }, _) => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// Carries out a request, with its descriptors, whose answer is one descriptor.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn descriptor(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
        let (reply, mut descriptors) = self.ask(request, descriptors)?;
        match (reply, descriptors.pop()) {
            (Reply::Done { descriptors: 1 }, Some(fd)) => Ok(fd),
            _ => Err(nonsense()),
        }
    }

    /// Asks for the addresses of a host.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self.ask(&Request::Resolve(name.into()), &[])? {
            (Reply::Addresses(addresses), _) => Ok(addresses),
            _ => Err(nonsense()),
        }
    }

    /// Asks a server of the web, with this request of OCSP, or for a document when that is empty.
    /// `ours`: the configuration names the place.
    ///
    /// # Errors
    /// As [`Helper::ask`]. Inside: the reason why the server gave no answer.
    pub fn fetch(
        &self,
        uri: &str,
        ours: bool,
        time: Duration,
        request: &[u8],
    ) -> io::Result<Result<Vec<u8>, FetchFault>> {
        let milliseconds = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        let (uri, request) = (uri.into(), request.to_vec());
        let (reply, mut descriptors) = self.ask(&Request::Fetch { uri, ours, milliseconds, request }, &[])?;
        match (reply, descriptors.pop()) {
            (Reply::Done { descriptors: 1 }, Some(body)) => contents(body, MAX_BODY as u64).map(Ok),
            (Reply::NotFetched(fault), None) => Ok(Err(fault)),
            _ => Err(nonsense()),
        }
    }

    /// Carries out a request whose answer is two numbers.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn count(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<(u64, u64)> {
        match self.ask(request, descriptors)? {
            (Reply::Count { packets, bytes }, _) => Ok((packets, bytes)),
            _ => Err(nonsense()),
        }
    }

    /// Carries out a request whose answer is yes or no.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn flag(&self, request: &Request) -> io::Result<bool> {
        match self.ask(request, &[])? {
            (Reply::Flag { yes, descriptor: false }, _) => Ok(yes),
            _ => Err(nonsense()),
        }
    }

    /// Carries out a request whose answer is a path, which may be empty.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn path(&self, request: &Request) -> io::Result<PathBuf> {
        match self.ask(request, &[])? {
            (Reply::Path(path), _) => Ok(std::ffi::OsString::from_vec(path).into()),
            _ => Err(nonsense()),
        }
    }

    /// Says whether there is something under this name.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        self.flag(&Request::Exists(bytes(path)))
    }

    /// Lists a folder, in no order; `None` when there is none of that name.
    ///
    /// # Errors
    /// As [`Helper::ask`].
    pub fn list(&self, folder: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let (reply, mut descriptors) = self.ask(&Request::List(bytes(folder)), &[])?;
        match (reply, descriptors.pop()) {
            (Reply::Flag { yes: false, .. }, None) => Ok(None),
            (Reply::Flag { yes: true, .. }, Some(list)) => {
                let text = contents(list, MAX_LIST)?;
                let paths = text.split(|b| *b == 0).filter(|name| !name.is_empty());
                Ok(Some(paths.map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(p))).collect()))
            }
            _ => Err(nonsense()),
        }
    }
}

/// The bytes of a path, as a message has them.
pub fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// A file in memory that holds these bytes, read from its begin.
///
/// # Errors
/// No memory or no descriptors are left.
pub fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("ironswan", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Everything in a file, from its begin.
///
/// # Errors
/// The file cannot be read, or is longer than `max` bytes.
pub fn contents(fd: OwnedFd, max: u64) -> io::Result<Vec<u8>> {
    let file = File::from(fd);
    seek(&file, SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    (&file).take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
