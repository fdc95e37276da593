//! Who polls what an interface receives: softirqs, or kernel threads (threaded NAPI,
//! `/sys/class/net/NAME/threaded`, Linux 5.12).
//!
//! Softirqs run at the end of system calls and interrupts, in whatever thread is there; a kernel
//! thread is given time by the scheduler like any other. The file is of the network namespace in
//! which `/sys` was mounted, which need not be the calling thread's, so the interface behind it is
//! compared with the one that is meant.

use std::fmt;
use std::io;

use ironswan_wire::helper::Request;

use crate::helper::client;
use crate::route::Link;

/// The polling of an interface cannot be read or changed. The message says what to do about it.
#[derive(Debug)]
pub struct NapiError {
    /// The interface.
    pub name: String,
    /// The reason.
    pub why: NapiFault,
}

/// Reason why an interface cannot be polled by kernel threads.
#[derive(Debug)]
pub enum NapiFault {
    /// `/sys` is not there, or has another interface under this name, or none.
    OtherSys,
    /// The kernel has no such file.
    NoFile,
    /// The driver has no NAPI, or not as the interface stands now.
    NoNapi,
    /// `/sys` cannot be written.
    ReadOnly,
    /// Anything else.
    Refused(io::Error),
}

impl From<NapiError> for io::Error {
    /// The kernel's number, from which [`set_threaded`] makes the same error again.
    fn from(e: NapiError) -> Self {
        let number = match e.why {
            NapiFault::OtherSys => libc::ENODEV,
            NapiFault::NoFile => libc::ENOENT,
            NapiFault::NoNapi => libc::EOPNOTSUPP,
            NapiFault::ReadOnly => libc::EROFS,
            NapiFault::Refused(e) => return e,
        };
        Self::from_raw_os_error(number)
    }
}

impl fmt::Display for NapiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.why {
            NapiFault::OtherSys => write!(
                f,
                "/sys is not mounted, or is of another network namespace, and does not show the interface {name} of this \
                 one: start the daemon with a /sys of its own, as `ip netns exec` does"
            ),
            NapiFault::NoFile => {
                write!(
                    f,
                    "this kernel has no threaded NAPI for {name} (Linux 5.12 has it): a newer kernel has it"
                )
            }
            NapiFault::NoNapi => write!(
                f,
                "the driver of {name} has no NAPI as the interface stands: set it up (`ip link set {name} up`); a veth has \
                 NAPI once `ethtool -K {name} gro on` was given"
            ),
            NapiFault::ReadOnly => write!(
                f,
                "/sys/class/net/{name}/threaded cannot be written: give the daemon CAP_NET_ADMIN and a writable /sys, or \
                 write the file outside of the container"
            ),
            NapiFault::Refused(e) => write!(f, "/sys/class/net/{name}/threaded: {e}"),
        }
    }
}

impl std::error::Error for NapiError {}

/// True when kernel threads poll the interface.
///
/// # Errors
/// [`NapiFault::OtherSys`], [`NapiFault::NoFile`], [`NapiFault::Refused`].
pub fn threaded(link: &Link) -> Result<bool, NapiError> {
    let text = std::fs::read_to_string(path(link)?).map_err(|e| failed(link, e))?;
    Ok(text.trim() != "0")
}

/// Makes kernel threads poll the interface, or softirqs again.
///
/// # Errors
/// Any [`NapiError`].
pub fn set_threaded(link: &Link, on: bool) -> Result<(), NapiError> {
    let Some(helper) = client::get() else { return write_threaded(link, on) };
    // The helper's answer is a number only; this process can see for itself which `/sys` it has.
    path(link)?;
    let (name, address) = (link.name.clone().into(), link.address.clone());
    let request = Request::SetThreaded { name, index: link.index, address, on };
    helper.order(&request).map_err(|e| failed(link, e))
}

/// The same, in this process.
///
/// # Errors
/// Any [`NapiError`].
pub fn write_threaded(link: &Link, on: bool) -> Result<(), NapiError> {
    std::fs::write(path(link)?, if on { "1" } else { "0" }).map_err(|e| failed(link, e))
}

/// The file of this very interface. Interfaces of two namespaces may have one name and one index
/// (the first but `lo` as a rule); hardly ever one address too.
fn path(link: &Link) -> Result<String, NapiError> {
    let folder = format!("/sys/class/net/{}", link.name);
    let says = |file: &str, want: &str| {
        std::fs::read_to_string(format!("{folder}/{file}")).is_ok_and(|text| text.trim() == want)
    };
    let address: Vec<String> = link.address.iter().map(|byte| format!("{byte:02x}")).collect();
    if says("ifindex", &link.index.to_string()) && says("address", &address.join(":")) {
        Ok(folder + "/threaded")
    } else {
        Err(NapiError { name: link.name.clone(), why: NapiFault::OtherSys })
    }
}

fn failed(link: &Link, e: io::Error) -> NapiError {
    let why = match e.raw_os_error() {
        Some(libc::ENOENT) => NapiFault::NoFile,
        Some(libc::EOPNOTSUPP) => NapiFault::NoNapi,
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => NapiFault::ReadOnly,
        _ => NapiFault::Refused(e),
    };
    NapiError { name: link.name.clone(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_kernel_has_its_remedy() {
        let link = Link { name: "wan0".into(), ..Link::default() };
        for (errno, remedy) in [
            (libc::ENOENT, "Linux 5.12"),
            (libc::EOPNOTSUPP, "ethtool -K wan0 gro on"),
            (libc::EROFS, "a writable /sys"),
            (libc::EPERM, "CAP_NET_ADMIN"),
            (libc::EIO, "/sys/class/net/wan0/threaded"),
        ] {
            let text = failed(&link, io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(remedy) && text.contains("wan0"), "{text}");
        }
    }
}
