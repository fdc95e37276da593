//! The device, through the functions of `shim.c`, which is compiled against DPDK's headers.
//!
//! DPDK is one in a process: it is started once and ends with the process. The queue of the device
//! belongs to one set of packets at a time; whoever opens a second one waits.

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Answer, Direction, Fault, Key, MOST_ANSWERS, MOST_SLOTS};

/// The shim's `struct isw_set`.
#[repr(C)]
struct Set {
    _bytes: [u8; 0],
}

/// The same as `isw_setup` in `shim.c`.
#[repr(C)]
struct Setup {
    key: *const u8,
    mac: *const u8,
    salt: *const u8,
    key_len: u32,
    mac_len: u32,
    open: u32,
    slots: u32,
    packet_len: u32,
}

unsafe extern "C" {
    static isw_setup_len: u32;
    fn isw_start(vdev: *const c_char, name: *const c_char) -> *const c_char;
    fn isw_said() -> *const c_char;
    fn isw_open(setup: *const Setup) -> *mut Set;
    fn isw_close(set: *mut Set) -> c_int;
    fn isw_busy(set: *mut Set, slot: u32) -> c_int;
    fn isw_packet(set: *mut Set, slot: u32) -> *mut u8;
    fn isw_submit(set: *mut Set, first: u32, count: u32, seq: u64) -> u32;
    fn isw_poll(set: *mut Set, answers: *mut u32, room: u32) -> u32;
}

/// What became of the start, which is tried once.
static STARTED: OnceLock<Result<(), Fault>> = OnceLock::new();
/// Held by the set of packets to which the queue belongs.
static QUEUE: Mutex<()> = Mutex::new(());

/// Starts DPDK in this process with a device of software (`crypto_aesni_mb0`). What is started
/// stays until the process ends; a second call says what became of the first.
///
/// # Errors
/// The device is not there, for instance because the processor lacks something.
pub fn start(device: &str) -> Result<(), Fault> {
    STARTED.get_or_init(|| start_once(device)).clone()
}

fn start_once(device: &str) -> Result<(), Fault> {
    // SAFETY: a constant of the shim.
    let len = unsafe { isw_setup_len };
    assert_eq!(len as usize, size_of::<Setup>(), "the shim's structure is ours");
    let no_zero = |text: String| CString::new(text).unwrap_or_default();
    let (vdev, name) = (no_zero(format!("{device},max_nb_queue_pairs=1")), no_zero(device.to_string()));
    // SAFETY: both are strings with their zero, and outlive the call; `STARTED` sees to it that it
    // is called once.
    let failed = unsafe { isw_start(vdev.as_ptr(), name.as_ptr()) };
    if failed.is_null() {
        return Ok(());
    }
    // SAFETY: a literal of the shim.
    let step = unsafe { CStr::from_ptr(failed) }.to_string_lossy().into_owned();
    // SAFETY: a static of the shim whose last byte nothing writes; no thread of DPDK is at work
    // that could write to it now.
    let said = unsafe { CStr::from_ptr(isw_said()) }.to_string_lossy().into_owned();
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &said[said.len().saturating_sub(3)..];
    let last = if last.is_empty() { String::new() } else { format!(" (DPDK says: {})", last.join("; ")) };
    Err(Fault {
        lack: format!("the device {device} does not start: {step} failed{last}"),
        remedy: "it needs a processor with AES instructions, 256 MB of free memory, and DPDK's driver crypto_ipsec_mb; \
                 leave cryptodev out to measure the engines of the processor alone"
            .into(),
    })
}

/// Packets of one length with one key and one direction. The queue of the device is theirs.
#[derive(Debug)]
pub struct Packets {
    set: NonNull<Set>,
    slots: u32,
    packet_len: usize,
    _queue: MutexGuard<'static, ()>,
}

/// The half that hands over.
#[derive(Debug)]
pub struct Requests<'a> {
    set: NonNull<Set>,
    slots: u32,
    packet_len: usize,
    _of: PhantomData<&'a mut Packets>,
}

/// The half that asks for what has come back.
#[derive(Debug)]
pub struct Answers<'a> {
    set: NonNull<Set>,
    _of: PhantomData<&'a mut Packets>,
}

// SAFETY: the shim's set is not bound to a thread. What `isw_submit` and `isw_poll` both touch are
// the flags of the operations, which are atomic, and the device's queue, which takes one thread at
// each end: there is one `Requests` and one `Answers`, and their calls want `&mut`.
unsafe impl Send for Requests<'_> {}
// SAFETY: the same.
unsafe impl Send for Answers<'_> {}

impl Packets {
    /// Makes a packet in every slot. Waits while others have the queue.
    ///
    /// # Errors
    /// The device has not been started, there is no memory, or it does not take the key.
    pub fn open(key: Key<'_>, direction: Direction, slots: u32, packet_len: usize) -> Result<Self, Fault> {
        let fault = |lack: String| Fault { lack, remedy: "measure other suites or sizes".into() };
        match STARTED.get() {
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(fault("the device has not been started".into())),
        }
        if let Some(why) = key.refuses(packet_len) {
            return Err(fault(why));
        }
        if !(1..=MOST_SLOTS).contains(&slots) {
            return Err(fault(format!("there are 1 to {MOST_SLOTS} packets, not {slots}")));
        }
        let (key, mac, salt) = match &key {
            Key::Gcm { key, salt } => (*key, &[][..], *salt),
            Key::CbcSha256 { key, mac } => (*key, *mac, [0; 4]),
        };
        let setup = Setup {
            key: key.as_ptr(),
            mac: if mac.is_empty() { ptr::null() } else { mac.as_ptr() },
            salt: salt.as_ptr(),
            key_len: key.len() as u32,
            mac_len: mac.len() as u32,
            open: u32::from(direction == Direction::Open),
            slots,
            packet_len: packet_len as u32,
        };
        let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the device runs; pointers and lengths of `setup` are those of slices that outlive
        // the call, which keeps none of them; the lengths are some that the suite has.
        let set = NonNull::new(unsafe { isw_open(&raw const setup) });
        let none =
            || fault(format!("the device takes no {slots} packets of {packet_len} bytes with this key"));
        Ok(Self { set: set.ok_or_else(none)?, slots, packet_len, _queue: queue })
    }

    /// Reads the bytes of a packet, from SPI to ICV.
    ///
    /// # Panics
    /// With a slot that is not there, and room of another length.
    pub fn read(&mut self, slot: u32, into: &mut [u8]) {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: the slot is one of the set, whose packets have `packet_len` bytes for as long as
        // it is open. Nobody writes to them: the ends of the queue are not lent out while we are
        // borrowed, and the device works within `Answers::poll` alone.
        into.copy_from_slice(unsafe {
            std::slice::from_raw_parts(isw_packet(self.set.as_ptr(), slot), self.packet_len)
        });
    }

    /// The two ends of the queue, for two threads or for one.
    pub fn ends(&mut self) -> (Requests<'_>, Answers<'_>) {
        let Self { set, slots, packet_len, .. } = *self;
        (Requests { set, slots, packet_len, _of: PhantomData }, Answers { set, _of: PhantomData })
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // SAFETY: made by `isw_open`, and not used afterwards. A set of which the device keeps a
        // packet stays in memory.
        unsafe { isw_close(self.set.as_ptr()) };
    }
}

impl Requests<'_> {
    /// Writes the bytes of a packet, from SPI to ICV.
    ///
    /// # Panics
    /// With a slot that is not there, bytes of another length, and a packet that is with the
    /// device.
    pub fn write(&mut self, slot: u32, packet: &[u8]) {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: the set is open for as long as its ends are lent out, and the slot is one of it.
        assert!(unsafe { isw_busy(self.set.as_ptr(), slot) } == 0, "packet {slot} is with the device");
        // SAFETY: as above; the packets have `packet_len` bytes. This one is not with the device,
        // which has written to it for the last time before it cleared the flag that we have read;
        // only `submit` sets the flag again, which wants `&mut self` as well.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(isw_packet(self.set.as_ptr(), slot), self.packet_len) };
        bytes.copy_from_slice(packet);
    }

    /// Hands over the packets of `count` slots from `first` on, with sequence numbers from `seq`
    /// on. Stops at a packet that is with the device, and when the queue is full. Returns how
    /// many were taken.
    ///
    /// # Panics
    /// With slots that are not there.
    pub fn submit(&mut self, first: u32, count: u32, seq: u64) -> u32 {
        let fits = first.checked_add(count).is_some_and(|end| end <= self.slots);
        assert!(fits, "{count} slots from {first} of {}", self.slots);
        // SAFETY: the set is open for as long as its ends are lent out, and the slots are some of
        // it.
        unsafe { isw_submit(self.set.as_ptr(), first, count, seq) }
    }
}

impl Answers<'_> {
    /// What has come back, at most [`MOST_ANSWERS`] in a call; the device works within this call.
    /// Returns how many answers there are.
    pub fn poll(&mut self, into: &mut [Answer]) -> usize {
        let room = into.len().min(MOST_ANSWERS) as u32;
        // SAFETY: the set is open for as long as its ends are lent out; `Answer` is a `u32`, and
        // there is room for as many as we say.
        unsafe { isw_poll(self.set.as_ptr(), into.as_mut_ptr().cast(), room) as usize }
    }
}
