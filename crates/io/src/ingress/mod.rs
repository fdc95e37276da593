//! Packets that arrive in clear and may not, dropped at the ingress of every interface by a program
//! of ours in the kernel: a second way beside nftables, which no `nft` command takes away.
//!
//! ```text
//! wan0 ─▶ tc, clsact, ingress: filter bpf pref 2 handle 0x220 "ironswan:DIGEST" ─▶ IP
//!                                     │
//!                              program ─▶ memory (the packets to drop), counter
//! ```
//!
//! The filter holds the program, and the program holds its maps, so no process needs to live for
//! them. All of them go with the interface, or when somebody removes the filter.
//!
//! For another [`Filter`] a program with other memory is made, and the kernel exchanges the two
//! between two packets; the counter goes on. The digest in the filter's name tells any process
//! which program stands. A `+` behind the digest says that `clsact` was made for the filter: it is
//! removed with the filter, unless it holds other filters. The process that set the filter knows
//! that, also after somebody has removed the filter alone.
//!
//! The program sees packets as they arrive: before NAT and in fragments. Packets that the kernel
//! has merged count as one. Programs in front of it (TCX programs, tc filters with `pref 1`) may
//! take a packet past it. Needs Linux 5.3.
//!
//! | module | what it does |
//! |---|---|
//! | `coded` | a filter as bytes, for the helper |
//! | [`kernel`] | the steps that need CAP_BPF, here or by the helper |
//! | `filter` | the packets that must not come in |
//! | `fit` | makes a filter smaller that is larger than the program may be |
//! | `table` | the memory |
//! | `program` | the program |
//! | `tc` | filters by rtnetlink |

mod coded;
mod filter;
mod fit;
pub mod kernel;
mod program;
mod table;
pub(crate) mod tc;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bpf::{self, SingleValueMap};
use crate::clock;
use crate::error::Error;
pub use filter::{Family, Filter, List, MOBILITY, Row, WITH_PORTS, WITH_TYPES};
use program::{DROPPED, ProgramImage};
use tc::{HANDLE, PREFERENCE, Tc};

/// Begin of the names of our filters. The digest follows, and [`MADE_CLSACT`] where `clsact` was
/// made for the filter.
const NAME: &str = "ironswan:";
const MADE_CLSACT: char = '+';
/// Pause before we ask the kernel again for a filter that it has refused.
const RETRY: Duration = Duration::from_secs(10);

/// Why a program cannot guard the ingress. The message says what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum IngressError {
    /// More policies than the program can ask.
    TooMany(String),
    /// The kernel refused a step.
    Refused {
        /// Completes "the kernel refused to ...".
        what: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
}

impl fmt::Display for IngressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, source) = match self {
            Self::TooMany(why) => return f.write_str(why),
            Self::Refused { what, source } => (what, source),
        };
        write!(f, "the kernel refused to {what}: {source}")?;
        f.write_str(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                " (this needs root, or CAP_BPF and CAP_NET_ADMIN, before Linux 5.8 CAP_SYS_ADMIN; in a container, or under systemd's \
                 SystemCallFilter, `bpf` must be allowed; before Linux 5.11 raise `ulimit -l`)"
            }
            Some(libc::ENOSYS) => " (this kernel has no bpf(): CONFIG_BPF_SYSCALL)",
            Some(libc::ENOENT | libc::EOPNOTSUPP) => {
                " (the kernel may lack a part: CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF, Linux 5.3; or the interface shares its \
                 filters with others: `tc qdisc show dev NAME ingress` names an `ingress_block` then)"
            }
            Some(libc::EINVAL) => {
                " (another program's filter may have the preference 2: `tc filter show dev NAME ingress`; or the kernel is older \
                 than Linux 5.3)"
            }
            _ => "",
        })
    }
}

impl IngressError {
    /// True when the interface can have no filter: it has gone, or the kernel has no filters at
    /// all.
    pub fn is_without_filters(&self) -> bool {
        let Self::Refused { source, .. } = self else { return false };
        matches!(source.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP))
    }
}

impl std::error::Error for IngressError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooMany(_) => None,
            Self::Refused { source, .. } => Some(source),
        }
    }
}

impl IngressError {
    /// The kernel's own answer, or the sentence, for a process that says the step itself.
    pub fn into_reason(self) -> io::Error {
        match self {
            Self::TooMany(why) => io::Error::other(why),
            Self::Refused { source, .. } => source,
        }
    }

    /// An equal error; `io::Error` cannot be cloned.
    fn duplicate(&self) -> Self {
        match self {
            Self::TooMany(why) => Self::TooMany(why.clone()),
            Self::Refused { what, source } => {
                let same = io::Error::from_raw_os_error;
                let source = source
                    .raw_os_error()
                    .map_or_else(|| io::Error::new(source.kind(), source.to_string()), same);
                Self::Refused { what: what.clone(), source }
            }
        }
    }
}

fn refused(what: impl Into<String>) -> impl FnOnce(io::Error) -> IngressError {
    move |source| IngressError::Refused { what: what.into(), source }
}

/// State of the ingress of one interface: our filter there, and filters of others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IngressState {
    /// The digest of our filter; `None` when the interface has none of ours.
    pub digest: Option<u64>,
    /// Filters of others that the kernel runs before ours. They may take packets past it.
    pub before: Vec<String>,
}

/// Result of [`Ingress::reconcile`], by interface.
#[derive(Debug, Default)]
pub struct ReconcileReport {
    /// Interfaces at which the filter was set, in place of another one of ours or of none.
    pub set: Vec<String>,
    /// Interfaces of `set` that had no filter of ours: a new interface, or somebody removed the
    /// filter.
    pub lost: Vec<String>,
    /// Interfaces at which the filter was removed.
    pub removed: Vec<String>,
    /// Interfaces at which the filter cannot be set or removed.
    pub failed: Vec<(String, IngressError)>,
}

/// An interface: index and name.
pub type Interface<'a> = (u32, &'a str);

/// The filter that the daemon asks for, and the program made from it.
#[derive(Debug)]
struct DesiredProgram {
    filter: Arc<Filter>,
    /// `filter`, shortened to the room that the program has, with this machine's addresses.
    fitted: Filter,
    stricter: Option<String>,
    program: Program,
}

/// A filter that this process has set.
#[derive(Clone, Copy, Debug)]
struct AttachedFilter {
    digest: u64,
    /// We made the queueing discipline `clsact` for this filter.
    made_clsact: bool,
}

/// Our filters, in the network namespace of the thread that opened this. The filters stay when this
/// is dropped.
#[derive(Debug)]
pub struct Ingress {
    tc: Tc,
    desired: Option<DesiredProgram>,
    /// The filter that the kernel has refused, its error, and when we may ask again.
    refused: Option<(Arc<Filter>, IngressError, Instant)>,
    counter: Option<Arc<SingleValueMap>>,
    /// The filters that this process has set, by index of the interface.
    attached: BTreeMap<u32, AttachedFilter>,
    /// Indexes of interfaces from which the filter was removed, so that they need no second look:
    /// only this process sets our filters.
    cleared: BTreeSet<u32>,
}

impl Ingress {
    /// Opens a connection to the kernel.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink, or no descriptors are left.
    pub fn open() -> Result<Self, Error> {
        let tc = Tc::open().map_err(|source| Error::System { what: "opening a netlink socket", source })?;
        let (attached, cleared) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { tc, desired: None, refused: None, counter: None, attached, cleared })
    }

    /// Loads the program for a filter, and for the addresses of this machine (`own`). Interfaces
    /// get it by [`Self::reconcile`]; an empty filter means that none shall have one. `interfaces`
    /// are searched for the counter of a program of ours, so that the counter goes on.
    ///
    /// # Errors
    /// The kernel refuses a program for this filter; then no interface shall have one. The same
    /// filter is not tried again for 10 s.
    pub fn set_filter(
        &mut self,
        filter: &Arc<Filter>,
        own: &BTreeSet<IpAddr>,
        interfaces: &[Interface<'_>],
    ) -> Result<(), IngressError> {
        if filter.is_empty() {
            (self.desired, self.refused) = (None, None);
            return Ok(());
        }
        let is_same = |other: &Arc<Filter>| Arc::ptr_eq(other, filter) || other == filter;
        if let Some(DesiredProgram { fitted, .. }) = self.desired.as_ref().filter(|w| is_same(&w.filter))
            && fit::affected_addresses(fitted, own).eq(fitted.own.iter().copied())
        {
            return Ok(());
        }
        let now = clock::now();
        match &self.refused {
            Some((other, why, until)) if is_same(other) && now < *until => return Err(why.duplicate()),
            _ => {}
        }
        let program = self.make_program(filter, own, interfaces);
        self.refused = program.as_ref().err().map(|why| (filter.clone(), why.duplicate(), now + RETRY));
        // The old filter would go on dropping by policies and addresses that are gone.
        self.desired = None;
        self.desired = Some(program?);
        Ok(())
    }

    fn make_program(
        &mut self,
        filter: &Arc<Filter>,
        own: &BTreeSet<IpAddr>,
        interfaces: &[Interface<'_>],
    ) -> Result<DesiredProgram, IngressError> {
        let fit::FittedFilter { filter: fitted, stricter } = fit::fit(filter, program::max_list_rows());
        let mut fitted = fitted.into_owned();
        fitted.own = fit::affected_addresses(&fitted, own).collect();
        let image = ProgramImage::new(&fitted).map_err(IngressError::TooMany)?;
        let counter = match self.counter.take() {
            Some(counter) => counter,
            None => match self.standing_counter(interfaces) {
                Some(counter) => Arc::new(counter),
                None => Arc::new(kernel::make_counter().map_err(refused("make a BPF map"))?),
            },
        };
        let program = Program::of(&fitted, &image, &counter);
        self.counter = Some(counter);
        Ok(DesiredProgram { filter: filter.clone(), fitted, stricter, program: program? })
    }

    /// A sentence about the policies that the program applies more strictly than written, because
    /// it has no room for all of them.
    pub fn stricter(&self) -> Option<&str> {
        self.desired.as_ref()?.stricter.as_deref()
    }

    /// Sets the filter at each of `interfaces` that lacks it, and removes our filters from
    /// `others`, and from all when no interface shall have one.
    pub fn reconcile(&mut self, interfaces: &[Interface<'_>], others: &[Interface<'_>]) -> ReconcileReport {
        let mut report = ReconcileReport::default();
        let none: &[Interface<'_>] = &[];
        let (with, without) = match &self.desired {
            Some(_) => (interfaces, [others, none]),
            None => (none, [others, interfaces]),
        };
        let known: BTreeSet<u32> =
            [interfaces, others].into_iter().flatten().map(|(index, _)| *index).collect();
        self.attached.retain(|index, _| known.contains(index));
        self.cleared.retain(|index| known.contains(index));
        for (index, name) in with {
            let Some(DesiredProgram { program, .. }) = &self.desired else { continue };
            self.cleared.remove(index);
            // An interface whose filters cannot be listed gets the filter all the same, and does
            // not count as lost.
            let stood = self.tc.filters(*index).map(|found| own_filter(&found));
            // A filter that an earlier process set may count in a map that we cannot read: set it
            // again.
            if matches!(&stood, Ok(Some(ours)) if ours.digest == program.digest)
                && self.attached.get(index).is_some_and(|set| set.digest == program.digest)
            {
                continue;
            }
            let made_clsact = match &stood {
                Ok(Some(ours)) => ours.made_clsact,
                // Somebody removed the filter alone; the `clsact` that we made for it is left.
                _ => self.attached.get(index).is_some_and(|set| set.made_clsact),
            };
            match program.attach(&mut self.tc, *index, made_clsact) {
                Ok(made_clsact) => {
                    self.attached.insert(*index, AttachedFilter { digest: program.digest, made_clsact });
                    report.set.push((*name).to_owned());
                    if matches!(stood, Ok(None)) {
                        report.lost.push((*name).to_owned());
                    }
                }
                Err(e) if is_gone(&e) => {}
                Err(e) => report.failed.push(((*name).to_owned(), refused("set a filter at the ingress")(e))),
            }
        }
        for (index, name) in without.into_iter().flatten() {
            if self.cleared.contains(index) {
                continue;
            }
            let stands = match self.tc.filters(*index) {
                Ok(found) => Ok(own_filter(&found)),
                Err(e) => Err(refused("list filters at the ingress")(e)),
            };
            let removed = match stands {
                Ok(None) => {
                    // Somebody may have removed the queueing discipline, and the filter with it.
                    if self.attached.remove(index).is_some_and(|set| set.made_clsact) {
                        let _ = self.tc.remove_unused_clsact(*index);
                    }
                    self.cleared.insert(*index);
                    continue;
                }
                Ok(Some(ours)) => self
                    .tc
                    .remove(*index, ours.made_clsact)
                    .map_err(refused("remove a filter at the ingress")),
                Err(e) => Err(e),
            };
            match removed {
                Ok(()) => {
                    self.attached.remove(index);
                    self.cleared.insert(*index);
                    report.removed.push((*name).to_owned());
                }
                Err(e) if e.is_without_filters() => {}
                Err(e) => report.failed.push(((*name).to_owned(), e)),
            }
        }
        report
    }

    /// Reads the filters at the ingress of an interface.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn state(&mut self, interface: u32) -> Result<IngressState, IngressError> {
        let found = self.tc.filters(interface).map_err(refused("list filters at the ingress"))?;
        // Of those with our preference, the kernel asks the newest first, and lists them in that
        // order.
        let mut before: Vec<String> = found
            .iter()
            .take_while(|f| !is_ours(f))
            .filter(|f| f.preference <= PREFERENCE)
            .map(|f| format!("tc filter {} pref {}", f.kind, f.preference))
            .collect();
        match kernel::count_tcx(interface) {
            Ok(n) if n > 0 => before.insert(0, format!("{n} TCX")),
            // A kernel without TCX has none.
            _ => {}
        }
        before.dedup();
        Ok(IngressState { digest: own_filter(&found).map(|ours| ours.digest), before })
    }

    /// The counter of all programs loaded by [`Self::set_filter`]; `None` before the first.
    pub fn counter(&self) -> Option<Counter> {
        self.counter.clone().map(Counter)
    }

    /// The netlink address of our socket. Notices of filters that we set carry this address.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn port(&self) -> Result<u32, Error> {
        self.tc.port().map_err(|source| Error::System { what: "asking for a netlink address", source })
    }

    /// Packets and bytes that our filter at one of these interfaces has dropped, whichever process
    /// set it; `None` when no interface has one.
    pub fn standing_count(&mut self, interfaces: &[Interface<'_>]) -> Option<(u64, u64)> {
        kernel::read(&self.standing_counter(interfaces)?)
    }

    /// True when interfaces shall have a filter.
    pub fn has_filter(&self) -> bool {
        self.desired.is_some()
    }

    /// The counter of our filter at one of these interfaces, whichever process set it.
    fn standing_counter(&mut self, interfaces: &[Interface<'_>]) -> Option<SingleValueMap> {
        interfaces.iter().find_map(|(index, _)| {
            let found = self.tc.filters(*index).ok()?;
            kernel::counter_of(own_filter(&found)?.program?).ok()
        })
    }
}

/// The counter of packets that our filters have dropped.
#[derive(Clone, Debug)]
pub struct Counter(Arc<SingleValueMap>);

impl Counter {
    /// Packets and bytes; `None` when the kernel does not say.
    pub fn read(&self) -> Option<(u64, u64)> {
        kernel::read(&self.0)
    }
}

/// A program that the kernel has loaded for a filter.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    digest: u64,
}

impl Program {
    /// Loads a program without setting it at an interface, to [test](Self::drops) it.
    ///
    /// # Errors
    /// The step that the kernel refused, or that the filter is too large.
    pub fn load(filter: &Filter) -> Result<Self, IngressError> {
        let image = ProgramImage::new(filter).map_err(IngressError::TooMany)?;
        let counter = kernel::make_counter().map_err(refused("make a BPF map"))?;
        Self::of(filter, &image, &counter)
    }

    fn of(filter: &Filter, image: &ProgramImage, counter: &SingleValueMap) -> Result<Self, IngressError> {
        let fd = kernel::load(filter, image, counter).map_err(refused("load a program"))?;
        Ok(Self { fd, digest: image.digest() })
    }

    /// Whether the program would drop this Ethernet frame to the station 00:00:00:00:00:00. The
    /// kernel runs the program over the frame and sends it nowhere.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn drops(&self, frame: &[u8]) -> io::Result<bool> {
        bpf::test_run(self.fd.as_fd(), frame, 1).map(|(verdict, _)| verdict == DROPPED)
    }

    /// Time of one run over a frame in nanoseconds, as the mean of `repeat` runs.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn run_time(&self, frame: &[u8], repeat: u32) -> io::Result<u32> {
        bpf::test_run(self.fd.as_fd(), frame, repeat).map(|(_, nanoseconds)| nanoseconds)
    }

    /// Sets the filter at an interface, in place of our old one. `made_clsact`: `clsact` was made
    /// for the old one. Returns whether it was made for the new one.
    fn attach(&self, tc: &mut Tc, interface: u32, made_clsact: bool) -> io::Result<bool> {
        let name = |made_clsact: bool| {
            format!(
                "{NAME}{:016x}{}",
                self.digest,
                if made_clsact { MADE_CLSACT.into() } else { String::new() }
            )
        };
        tc.set(interface, self.fd.as_fd().as_raw_fd(), made_clsact, name)
    }
}

/// Our filter at an interface, as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnFilter {
    digest: u64,
    /// The kernel's number of the program.
    program: Option<u32>,
    /// The queueing discipline `clsact` was made for the filter, and is removed with it.
    made_clsact: bool,
}

fn is_ours(f: &tc::TcFilter) -> bool {
    f.preference == PREFERENCE && f.handle == HANDLE
}

/// Our filter among the filters of an interface.
fn own_filter(found: &[tc::TcFilter]) -> Option<OwnFilter> {
    let f = found.iter().find(|f| is_ours(f))?;
    let name = f.name.as_deref()?.strip_prefix(NAME)?;
    let digest = name.strip_suffix(MADE_CLSACT);
    let made_clsact = digest.is_some();
    let digest = u64::from_str_radix(digest.unwrap_or(name), 16).ok()?;
    Some(OwnFilter { digest, program: f.program, made_clsact })
}

/// The interface has gone meanwhile.
fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refused_is_said_in_one_line_without_gaps() {
        for code in [libc::EPERM, libc::ENOSYS, libc::ENOENT, libc::EINVAL, libc::EBUSY] {
            let text = refused("set a filter")(io::Error::from_raw_os_error(code)).to_string();
            assert!(text.starts_with("the kernel refused to set a filter: "), "{text}");
            assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
        }
    }
}
