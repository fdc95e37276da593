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
//! | `filter` | the packets that must not come in |
//! | `fit` | makes a filter smaller that is larger than the program may be |
//! | `table` | the memory |
//! | `program` | the program |
//! | `tc` | filters by rtnetlink |

mod filter;
mod fit;
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

use crate::bpf::{self, Value};
use crate::clock;
use crate::error::Error;
pub use filter::{Family, Filter, List, MOBILITY, Row, WITH_PORTS, WITH_TYPES};
use program::{COUNTER, COUNTER_SIZE, DROPPED, Image};
use tc::{HANDLE, PREFERENCE, Tc};

/// Begin of the names of our filters; the digest follows, and [`MADE`] where what holds the filter
/// was made for it.
const NAME: &str = "ironswan:";
const MADE: char = '+';
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
    /// True when it was asked where no filter can be: the interface has gone, or the kernel has no
    /// filters at all.
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
    /// The same once more.
    fn again(&self) -> Self {
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
pub struct Attached {
    /// The digest of our filter, if it is there.
    pub digest: Option<u64>,
    /// Others' that are asked before it, and may take packets past it.
    pub before: Vec<String>,
}

/// Result of [`Ingress::keep`], by interface.
#[derive(Debug, Default)]
pub struct Kept {
    /// Interfaces at which the filter stands now, and another one of ours stood before or none.
    pub set: Vec<String>,
    /// Interfaces of `set` that had no filter of ours: a new interface, or somebody removed the
    /// filter.
    pub lost: Vec<String>,
    /// Interfaces at which it was removed.
    pub removed: Vec<String>,
    /// Interfaces at which it cannot be set, or removed.
    pub failed: Vec<(String, IngressError)>,
}

/// An interface: index and name.
pub type Interface<'a> = (u32, &'a str);

/// The filter that the daemon asks for, and the program made from it.
#[derive(Debug)]
struct Wanted {
    asked: Arc<Filter>,
    /// `asked`, shortened to the room that the program has, with this machine's addresses.
    fitted: Filter,
    stricter: Option<String>,
    program: Program,
}

/// A filter that this process has set.
#[derive(Clone, Copy, Debug)]
struct Set {
    digest: u64,
    /// The queueing discipline that holds the filter was made by us, for this filter.
    made: bool,
}

/// Our filters, in the network namespace of the thread that opened this. What it set stays when
/// this is dropped.
#[derive(Debug)]
pub struct Ingress {
    tc: Tc,
    wanted: Option<Wanted>,
    /// The filter that the kernel has refused, its error, and when we may ask again.
    refused: Option<(Arc<Filter>, IngressError, Instant)>,
    counter: Option<Arc<Value>>,
    /// The filters that this set, by interface.
    set: BTreeMap<u32, Set>,
    /// Interfaces that are not to have one and have none. Nobody else sets ours while this does.
    free: BTreeSet<u32>,
}

impl Ingress {
    /// Opens a connection to the kernel.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink, or no descriptors are left.
    pub fn open() -> Result<Self, Error> {
        let tc = Tc::open().map_err(|source| Error::System { what: "opening a netlink socket", source })?;
        let (set, free) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { tc, wanted: None, refused: None, counter: None, set, free })
    }

    /// Sets the lists that the programs have from now on, with the addresses of this machine.
    /// `interfaces` are searched for the counter of a program that stands, so that the counter goes
    /// on.
    ///
    /// # Errors
    /// The kernel cannot have a program with these lists; then no program is wanted. The same lists
    /// are not tried again for 10 s.
    pub fn want(
        &mut self,
        filter: &Arc<Filter>,
        own: &BTreeSet<IpAddr>,
        interfaces: &[Interface<'_>],
    ) -> Result<(), IngressError> {
        if filter.is_empty() {
            (self.wanted, self.refused) = (None, None);
            return Ok(());
        }
        let is_same = |asked: &Arc<Filter>| Arc::ptr_eq(asked, filter) || asked == filter;
        if let Some(Wanted { fitted, .. }) = self.wanted.as_ref().filter(|w| is_same(&w.asked))
            && fit::reached(fitted, own).eq(fitted.own.iter().copied())
        {
            return Ok(());
        }
        let now = clock::now();
        match &self.refused {
            Some((asked, why, until)) if is_same(asked) && now < *until => return Err(why.again()),
            _ => {}
        }
        let made = self.make(filter, own, interfaces);
        self.refused = made.as_ref().err().map(|why| (filter.clone(), why.again(), now + RETRY));
        // The old filter would go on dropping by policies and addresses that are gone.
        self.wanted = None;
        self.wanted = Some(made?);
        Ok(())
    }

    fn make(
        &mut self,
        filter: &Arc<Filter>,
        own: &BTreeSet<IpAddr>,
        interfaces: &[Interface<'_>],
    ) -> Result<Wanted, IngressError> {
        let fit::Fitted { filter: fitted, stricter } = fit::fit(filter, program::longest());
        let mut fitted = fitted.into_owned();
        fitted.own = fit::reached(&fitted, own).collect();
        let image = Image::new(&fitted).map_err(IngressError::TooMany)?;
        let counter = match self.counter.take() {
            Some(counter) => counter,
            None => match self.standing_counter(interfaces) {
                Some(counter) => Arc::new(counter),
                None => Arc::new(Value::new(COUNTER_SIZE, COUNTER).map_err(refused("make a BPF map"))?),
            },
        };
        let program = Program::of(&image, &counter);
        self.counter = Some(counter);
        Ok(Wanted { asked: filter.clone(), fitted, stricter, program: program? })
    }

    /// The lists for which the program drops more than was asked for, because there is no room for
    /// all of them; in words.
    pub fn stricter(&self) -> Option<&str> {
        self.wanted.as_ref()?.stricter.as_deref()
    }

    /// Makes what is wanted stand at these interfaces. `others`: interfaces that are not to have
    /// it.
    pub fn keep(&mut self, interfaces: &[Interface<'_>], others: &[Interface<'_>]) -> Kept {
        let mut kept = Kept::default();
        let none: &[Interface<'_>] = &[];
        let (with, without) = match &self.wanted {
            Some(_) => (interfaces, [others, none]),
            None => (none, [others, interfaces]),
        };
        let known: BTreeSet<u32> =
            [interfaces, others].into_iter().flatten().map(|(index, _)| *index).collect();
        self.set.retain(|index, _| known.contains(index));
        self.free.retain(|index| known.contains(index));
        for (index, name) in with {
            let Some(Wanted { program, .. }) = &self.wanted else { continue };
            self.free.remove(index);
            // An interface whose filters cannot be listed gets the filter all the same, and does
            // not count as lost.
            let stood = self.tc.filters(*index).map(|found| ours(&found));
            // A predecessor's may count where nobody here can read it.
            if matches!(&stood, Ok(Some(ours)) if ours.digest == program.digest)
                && self.set.get(index).is_some_and(|set| set.digest == program.digest)
            {
                continue;
            }
            let made = match &stood {
                Ok(Some(ours)) => ours.made,
                // Who took the filter away has left what held it.
                _ => self.set.get(index).is_some_and(|set| set.made),
            };
            match program.attach(&mut self.tc, *index, made) {
                Ok(made) => {
                    self.set.insert(*index, Set { digest: program.digest, made });
                    kept.set.push((*name).to_owned());
                    if matches!(stood, Ok(None)) {
                        kept.lost.push((*name).to_owned());
                    }
                }
                Err(e) if is_gone(&e) => {}
                Err(e) => kept.failed.push(((*name).to_owned(), refused("set a filter at the ingress")(e))),
            }
        }
        for (index, name) in without.into_iter().flatten() {
            if self.free.contains(index) {
                continue;
            }
            let stands = match self.tc.filters(*index) {
                Ok(found) => Ok(ours(&found)),
                Err(e) => Err(refused("list filters at the ingress")(e)),
            };
            let removed = match stands {
                Ok(None) => {
                    // Somebody may have removed the queueing discipline, and the filter with it.
                    if self.set.remove(index).is_some_and(|set| set.made) {
                        let _ = self.tc.remove_holder(*index);
                    }
                    self.free.insert(*index);
                    continue;
                }
                Ok(Some(ours)) => {
                    self.tc.remove(*index, ours.made).map_err(refused("remove a filter at the ingress"))
                }
                Err(e) => Err(e),
            };
            match removed {
                Ok(()) => {
                    self.set.remove(index);
                    self.free.insert(*index);
                    kept.removed.push((*name).to_owned());
                }
                Err(e) if e.is_without_filters() => {}
                Err(e) => kept.failed.push(((*name).to_owned(), e)),
            }
        }
        kept
    }

    /// Reads the filters at the ingress of an interface.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn look(&mut self, interface: u32) -> Result<Attached, IngressError> {
        let found = self.tc.filters(interface).map_err(refused("list filters at the ingress"))?;
        // Of those with our preference, the kernel asks the newest first, and lists them in that
        // order.
        let mut before: Vec<String> = found
            .iter()
            .take_while(|f| !is_ours(f))
            .filter(|f| f.preference <= PREFERENCE)
            .map(|f| format!("tc filter {} pref {}", f.kind, f.preference))
            .collect();
        match bpf::tcx_at(interface) {
            Ok(n) if n > 0 => before.insert(0, format!("{n} TCX")),
            // A kernel without TCX has none.
            _ => {}
        }
        before.dedup();
        Ok(Attached { digest: ours(&found).map(|ours| ours.digest), before })
    }

    /// Counts what is dropped by what was wanted until now.
    pub fn counter(&self) -> Option<Counter> {
        self.counter.clone().map(Counter)
    }

    /// The netlink address from which filters are set: notices of that carry it.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn port(&self) -> Result<u32, Error> {
        self.tc.port().map_err(|source| Error::System { what: "asking for a netlink address", source })
    }

    /// Packets and bytes that the filter at one of these interfaces has dropped, whoever set it;
    /// `None` when it stands at none.
    pub fn standing_count(&mut self, interfaces: &[Interface<'_>]) -> Option<(u64, u64)> {
        read(&self.standing_counter(interfaces)?)
    }

    /// True when something is wanted.
    pub fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// The counter of a filter that stands, whoever set it.
    fn standing_counter(&mut self, interfaces: &[Interface<'_>]) -> Option<Value> {
        let program = interfaces.iter().find_map(|(index, _)| {
            let found = self.tc.filters(*index).ok()?;
            bpf::program_by_id(ours(&found)?.program?).ok()
        })?;
        Value::of_program(program.as_fd(), COUNTER_SIZE, COUNTER).ok()?
    }
}

/// The counter of what filters have dropped.
#[derive(Clone, Debug)]
pub struct Counter(Arc<Value>);

impl Counter {
    /// Packets and bytes; `None` when the kernel does not say.
    pub fn read(&self) -> Option<(u64, u64)> {
        read(&self.0)
    }
}

fn read(counter: &Value) -> Option<(u64, u64)> {
    let bytes = counter.get().ok()?;
    let number = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    Some((number(0)?, number(8)?))
}

/// A filter, loaded.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    digest: u64,
}

impl Program {
    /// Loads a filter without setting it anywhere, to [ask](Self::drops) it.
    ///
    /// # Errors
    /// Why the kernel cannot have it.
    pub fn load(filter: &Filter) -> Result<Self, IngressError> {
        let image = Image::new(filter).map_err(IngressError::TooMany)?;
        let counter = Value::new(COUNTER_SIZE, COUNTER).map_err(refused("make a BPF map"))?;
        Self::of(&image, &counter)
    }

    fn of(image: &Image, counter: &Value) -> Result<Self, IngressError> {
        let fd = image.load(counter).map_err(refused("load a program"))?;
        Ok(Self { fd, digest: image.digest() })
    }

    /// Whether it would drop this Ethernet frame to the station 00:00:00:00:00:00. The frame goes
    /// nowhere.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn drops(&self, frame: &[u8]) -> io::Result<bool> {
        bpf::test_run(self.fd.as_fd(), frame, 1).map(|(verdict, _)| verdict == DROPPED)
    }

    /// The nanoseconds that one of `repeat` runs over a frame takes.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn takes(&self, frame: &[u8], repeat: u32) -> io::Result<u32> {
        bpf::test_run(self.fd.as_fd(), frame, repeat).map(|(_, nanoseconds)| nanoseconds)
    }

    /// `made`: what holds the filter that stands was made for it. Returns the same of this one.
    fn attach(&self, tc: &mut Tc, interface: u32, made: bool) -> io::Result<bool> {
        let name = |made: bool| {
            format!("{NAME}{:016x}{}", self.digest, if made { MADE.into() } else { String::new() })
        };
        tc.set(interface, self.fd.as_fd().as_raw_fd(), made, name)
    }
}

/// A filter of ours that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ours {
    digest: u64,
    /// The kernel's number of its program.
    program: Option<u32>,
    /// The queueing discipline that holds the filter was made for it, and is removed with it.
    made: bool,
}

fn is_ours(f: &tc::Found) -> bool {
    f.preference == PREFERENCE && f.handle == HANDLE
}

/// Our filter among these.
fn ours(found: &[tc::Found]) -> Option<Ours> {
    let f = found.iter().find(|f| is_ours(f))?;
    let name = f.name.as_deref()?.strip_prefix(NAME)?;
    let digest = name.strip_suffix(MADE);
    let made = digest.is_some();
    let digest = u64::from_str_radix(digest.unwrap_or(name), 16).ok()?;
    Some(Ours { digest, program: f.program, made })
}

/// The interface went meanwhile.
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
