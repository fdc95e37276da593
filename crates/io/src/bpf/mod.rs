//! `bpf(2)`: maps, programs, the link that attaches a program to an interface. Just what programs
//! need that are built in memory ([`assembler`]), without BTF and without a loader library.
//!
//! Everything made here is a descriptor: when the last one is closed, also by a crash, the kernel
//! removes it. A closed link detaches the program. A program that a tc filter names lives as long
//! as the filter (`ingress`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `assembler` | instructions of a program, by name |

pub(crate) mod assembler;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use assembler::Instruction;

// linux/bpf.h: commands,
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const PROG_GET_FD_BY_ID: i32 = 13;
const MAP_GET_FD_BY_ID: i32 = 14;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const PROG_QUERY: i32 = 16;
const LINK_CREATE: i32 = 28;
// what is made,
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
// and where an XDP program runs (linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Kinds of map (`enum bpf_map_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    Xsk = 17,
}

/// Kinds of program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgramKind {
    /// In front of the kernel's network stack.
    Xdp,
    /// A classifier of tc, which may also say what becomes of the packet.
    Classifier,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Element {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

#[repr(C)]
struct ObjectById {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    size: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    lengths: [u32; 2],
    instructions: [u64; 2],
    loaded: u64,
    user: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
}

/// `query` of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Query {
    interface: u32,
    attach: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    reserved: u32,
    /// Flags of each program, of each link, and a revision.
    rest: [u64; 4],
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// The system call. `T` is the part of `union bpf_attr` that `command` reads; the kernel takes what
/// is missing for zeroes.
///
/// # Safety
/// Addresses inside `attr` are of live memory of the size that the command reads or writes there.
unsafe fn bpf<T>(command: i32, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer is to a live structure of that size, which the kernel reads and, for some
    // commands, writes back into; the caller answers for the addresses in it.
    let r = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r as i32) }
}

/// [`bpf`] for a command that gives a descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_fd<T>(command: i32, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller answers for the addresses; a descriptor that a command gives is ours
    // alone, and close-on-exec.
    unsafe { bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    // A borrowed descriptor is never negative.
    fd.as_raw_fd().cast_unsigned()
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    // The last byte stays 0.
    name.iter_mut().take(15).zip(text.bytes()).for_each(|(to, from)| *to = from);
    name
}

/// A map with keys of `K` bytes and values of `V`.
#[derive(Debug)]
pub(crate) struct Map<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> Map<K, V> {
    /// Makes one.
    pub(crate) fn new(kind: MapKind, entries: u32, text: &str) -> io::Result<Self> {
        let mut attr = MapCreate {
            kind: kind as u32,
            key_size: K as u32,
            value_size: V as u32,
            max_entries: entries,
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name: name(text),
        };
        // SAFETY: no addresses.
        unsafe { bpf_fd(MAP_CREATE, &mut attr) }.map(Self)
    }

    /// A map that another process has made: of this kind, with such keys and values.
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub(crate) fn adopt(fd: OwnedFd, kind: MapKind) -> io::Result<Self> {
        let info = map_info(fd.as_fd())?;
        let fits = info.kind == kind as u32 && info.key_size as usize == K && info.value_size as usize == V;
        if fits { Ok(Self(fd)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Takes a descriptor for a map that the helper has made for this process.
    pub(crate) fn trusted(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor alone.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Puts `value` at `key`.
    pub(crate) fn insert(&self, key: &[u8; K], value: &[u8; V]) -> io::Result<()> {
        let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
        let mut attr = Element { map: number(self.as_fd()), reserved: 0, key, value, flags: 0 };
        // SAFETY: both addresses are of live arrays of the sizes that the map was made with; the
        // kernel reads them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Takes away what is at `key`. That nothing is there is no error.
    pub(crate) fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        let key = key.as_ptr() as u64;
        let mut attr = Element { map: number(self.as_fd()), reserved: 0, key, value: 0, flags: 0 };
        // SAFETY: as above; this command has no value.
        match unsafe { bpf(MAP_DELETE_ELEM, &mut attr) } {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }
}

impl<const K: usize, const V: usize> AsFd for Map<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A map of one value of any size. A program has it in memory, without a look-up.
#[derive(Debug)]
pub(crate) struct SingleValueMap {
    map: OwnedFd,
    size: usize,
}

impl SingleValueMap {
    /// Makes one, all zeroes.
    pub(crate) fn new(size: usize, text: &str) -> io::Result<Self> {
        let mut attr = MapCreate {
            kind: MapKind::Array as u32,
            key_size: 4,
            value_size: u32::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?,
            max_entries: 1,
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name: name(text),
        };
        // SAFETY: no addresses.
        unsafe { bpf_fd(MAP_CREATE, &mut attr) }.map(|map| Self { map, size })
    }

    /// The map of this name and size that a program uses; `None` when it has none.
    pub(crate) fn of_program(program: BorrowedFd<'_>, size: usize, text: &str) -> io::Result<Option<Self>> {
        let mut ids = [0u32; 16];
        let mut info = ProgramInfo {
            maps: ids.len() as u32,
            map_ids: ids.as_mut_ptr() as u64,
            ..ProgramInfo::default()
        };
        let at = std::ptr::from_mut(&mut info) as u64;
        let mut attr =
            ObjectInfo { object: number(program), size: size_of::<ProgramInfo>() as u32, info: at };
        // SAFETY: `info` is a live structure of that size, which the kernel writes; it has the
        // address of a live array of
        // `maps` numbers, which the kernel writes too, and no other address: the lengths before it
        // are 0.
        unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) }?;
        for id in ids.into_iter().take(info.maps as usize) {
            // SAFETY: no addresses.
            let map = unsafe { bpf_fd(MAP_GET_FD_BY_ID, &mut ObjectById { id, next: 0, flags: 0 }) }?;
            let info = map_info(map.as_fd())?;
            if info.is_single(size) && info.name == name(text) {
                return Ok(Some(Self { map, size }));
            }
        }
        Ok(None)
    }

    /// A map of this size that another process has made.
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub(crate) fn adopt(map: OwnedFd, size: usize) -> io::Result<Self> {
        let single = map_info(map.as_fd())?.is_single(size);
        if single { Ok(Self { map, size }) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Takes a descriptor for a map of this size that the helper has made for this process.
    pub(crate) fn trusted(map: OwnedFd, size: usize) -> Self {
        Self { map, size }
    }

    /// The descriptor alone.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.map
    }

    /// Writes it.
    ///
    /// # Panics
    /// When `bytes` are not as many as it was made for.
    pub(crate) fn set(&self, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(bytes.len(), self.size, "the kernel reads as much as the map was made for");
        let key = 0u32;
        let (key, value) = (std::ptr::from_ref(&key) as u64, bytes.as_ptr() as u64);
        let mut attr = Element { map: number(self.as_fd()), reserved: 0, key, value, flags: 0 };
        // SAFETY: both addresses are of live memory of the sizes that the map was made with; the
        // kernel reads them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Reads it.
    pub(crate) fn get(&self) -> io::Result<Vec<u8>> {
        let key = 0u32;
        // The kernel writes multiples of eight bytes.
        let mut bytes = vec![0u8; self.size.next_multiple_of(8)];
        let (key, value) = (std::ptr::from_ref(&key) as u64, bytes.as_mut_ptr() as u64);
        let mut attr = Element { map: number(self.as_fd()), reserved: 0, key, value, flags: 0 };
        // SAFETY: the key is live, and the value is a live array of at least as much as the kernel
        // writes.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }?;
        bytes.truncate(self.size);
        Ok(bytes)
    }
}

impl AsFd for SingleValueMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// What the kernel says of a map.
fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut info = MapInfo::default();
    let at = std::ptr::from_mut(&mut info) as u64;
    let mut attr = ObjectInfo { object: number(map), size: size_of::<MapInfo>() as u32, info: at };
    // SAFETY: `info` is a live structure of that size, which the kernel writes.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

impl MapInfo {
    /// An array of one value of this size.
    fn is_single(&self, size: usize) -> bool {
        self.kind == MapKind::Array as u32
            && self.key_size == 4
            && self.max_entries == 1
            && self.value_size as usize == size
    }
}

/// The program with this number; the kernel has one number for each.
pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no addresses.
    unsafe { bpf_fd(PROG_GET_FD_BY_ID, &mut ObjectById { id, next: 0, flags: 0 }) }
}

/// How many programs sit at an interface's ingress in front of tc (TCX). A kernel that has none of
/// this says an error.
pub(crate) fn tcx_at(interface: u32) -> io::Result<u32> {
    let mut attr = Query { interface, attach: ATTACH_TCX_INGRESS, ..Query::default() };
    // SAFETY: no addresses: room for 0 programs.
    unsafe { bpf(PROG_QUERY, &mut attr) }?;
    Ok(attr.count)
}

/// Loads a program. What the verifier has to say against it is part of the error.
pub(crate) fn load(kind: ProgramKind, instructions: &[Instruction], text: &str) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut log = vec![0u8; 64 * 1024];
    let mut attr = ProgLoad {
        kind: match kind {
            ProgramKind::Xdp => PROG_TYPE_XDP,
            ProgramKind::Classifier => PROG_TYPE_SCHED_CLS,
        },
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: name(text),
        interface: 0,
        expected_attach: if kind == ProgramKind::Xdp { ATTACH_XDP } else { 0 },
    };
    // SAFETY: the instructions are a live slice of `count` 8-byte structures laid out as `struct
    // bpf_insn`; the licence is a live C string.
    let error = match unsafe { bpf_fd(PROG_LOAD, &mut attr) } {
        Err(e)
            if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EACCES | libc::EFAULT | libc::E2BIG)) =>
        {
            e
        }
        other => return other,
    };
    // Again, to hear why.
    attr.log_level = 1;
    attr.log_size = log.len() as u32;
    attr.log = log.as_mut_ptr() as u64;
    // SAFETY: as above, and the log is a live array of `log_size` bytes that nothing else borrows
    // during the call.
    if let Ok(fd) = unsafe { bpf_fd(PROG_LOAD, &mut attr) } {
        return Ok(fd);
    }
    let said = log.split(|b| *b == 0).next().unwrap_or(&[]);
    match String::from_utf8_lossy(said).trim().lines().rfind(|l| !l.starts_with("processed")) {
        Some(line) => Err(io::Error::new(error.kind(), format!("{error}; the verifier says: {line}"))),
        None => Err(error),
    }
}

/// Attaches a program to an interface as long as the descriptor is open: in the driver, or
/// (`generic`) behind it.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, generic: bool) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        program: number(program),
        interface,
        attach: ATTACH_XDP,
        flags: if generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE },
    };
    // SAFETY: no addresses.
    unsafe { bpf_fd(LINK_CREATE, &mut attr) }
}

/// Runs a program over one frame and returns its verdict, and the nanoseconds one of `repeat` runs
/// took. The frame is not changed, and goes nowhere.
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    let mut attr = TestRun {
        program: number(program),
        size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: the one address is of a live slice of `size_in` bytes, which the kernel only reads.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
    Ok((attr.verdict, attr.duration))
}
