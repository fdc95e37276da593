//! Errors of kernel objects as entries of the one list of reasons ([`Diagnosis`]). `ironswan-io`
//! does not know the list, so its errors become entries of the area this machine here.

use ironswan_io::Error as IoError;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{DataPlane, Machine, Sources};
use rustix::io::Errno;

/// The entry for an error of a kernel object.
pub fn of_kernel(e: &IoError) -> Diagnosis {
    machine(e).into()
}

/// The entry for an error of a kernel object, within the area this machine.
pub(crate) fn machine(e: &IoError) -> Machine {
    match e {
        IoError::NoTun(why) => Machine::NoTun { why: why.to_string() },
        IoError::Privilege { what } => Machine::NoPrivilege { action: (*what).to_owned() },
        IoError::DeviceBusy { name } => Machine::DeviceBusy { name: name.clone() },
        IoError::DeviceName { name } => Machine::DeviceName { name: name.clone() },
        IoError::PortInUse { port, ipv6 } => Machine::PortInUse { port: *port, ipv6: *ipv6 },
        IoError::NoFamily { ipv6 } => Machine::NoFamily { ipv6: *ipv6 },
        IoError::NoDevice { name } => Machine::NoInterface { name: name.clone() },
        IoError::Netlink { what, source } => {
            let write = match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::PERM | Errno::ACCESS) => "this needs root or CAP_NET_ADMIN",
                Some(Errno::NETUNREACH) => "there is no route; look at `ip route get`",
                _ => "",
            };
            Machine::KernelRefused { request: what.clone(), why: source.to_string(), write }
        }
        IoError::Answer { what } => Machine::AnswerUnknown { request: what.clone() },
        IoError::System { what, source } => {
            Machine::SystemCall { action: (*what).to_owned(), why: source.to_string() }
        }
        // The enum is open for kinds that a later version of the crate adds.
        other => Machine::SystemCall { action: "a request to the kernel".to_owned(), why: other.to_string() },
    }
}

/// Turns errors of kernel objects into entries, for functions that return entries.
pub(crate) trait Diagnosed<T> {
    /// The same result, with the entry for its error.
    fn diagnosed(self) -> Result<T, Diagnosis>;
}

impl<T> Diagnosed<T> for Result<T, IoError> {
    fn diagnosed(self) -> Result<T, Diagnosis> {
        self.map_err(|e| of_kernel(&e))
    }
}

/// The entry for a thread of the data plane that cannot wait for its sources.
pub(crate) fn cannot_wait(sources: Sources, e: &impl std::fmt::Display) -> DataPlane {
    DataPlane::CannotWait { sources, why: e.to_string() }
}

/// The entry for a thread that does `of`, and that the system did not start.
pub(crate) fn no_thread(of: &'static str) -> impl FnOnce(std::io::Error) -> Diagnosis {
    move |why| Machine::NoThread { of, why: why.to_string() }.into()
}

#[cfg(test)]
#[path = "diagnosis_tests/mod.rs"]
pub(crate) mod tests;
