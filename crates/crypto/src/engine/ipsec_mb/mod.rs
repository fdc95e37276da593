//! Intel's multi-buffer library (libipsec-mb, BSD-3-Clause; feature `ipsec-mb`), which works on
//! several packets at once.
//!
//! ```text
//! shim.c     everything that needs the library's header, compiled against it
//! gcm.rs     AES-GCM by direct calls, packet by packet
//! lanes.rs   a cipher with an integrity algorithm beside it, for a batch of packets of any SAs
//! ```
//!
//! A manager (the library's state, and its table of functions) belongs to one thread, which makes
//! it when it first needs it. Between two calls of ours nothing is left in it.

pub(crate) mod gcm;
pub(crate) mod lanes;

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The library's `IMB_MGR`.
#[repr(C)]
struct Mgr {
    _bytes: [u8; 0],
}

/// `aes_gcm_enc_dec_t`: key data, context, output, input, length, IV of 12 bytes, additional data,
/// length, tag, length.
type GcmFn = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    *mut u8,
    *const u8,
    u64,
    *const u8,
    *const u8,
    u64,
    *mut u8,
    u64,
);

unsafe extern "C" {
    static isw_gcm_key_len: u32;
    static isw_gcm_context_len: u32;
    static isw_call_len: u32;
    fn isw_new(narrow: c_int) -> *mut Mgr;
    fn isw_free(mgr: *mut Mgr);
    fn isw_has_avx512(mgr: *const Mgr) -> c_int;
    fn isw_has_shani(mgr: *const Mgr) -> c_int;
    fn isw_gcm(
        mgr: *mut Mgr,
        key: *const u8,
        key_len: u32,
        data: *mut c_void,
        seal: *mut Option<GcmFn>,
        open: *mut Option<GcmFn>,
    ) -> c_int;
    fn isw_aes(mgr: *mut Mgr, key: *const u8, key_len: u32, encrypt: *mut u8, decrypt: *mut u8) -> c_int;
    fn isw_des(mgr: *mut Mgr, key: *const u8, schedule: *mut u64) -> c_int;
    fn isw_block(mgr: *mut Mgr, hash: u32, block: *const u8, state: *mut u8) -> c_int;
    fn isw_block_mac(
        mgr: *mut Mgr,
        hash: u32,
        key: *const u8,
        chain: *mut u8,
        first: *mut u8,
        second: *mut u8,
    ) -> c_int;
    fn isw_run(mgr: *mut Mgr, calls: *mut u8, stride: usize, count: u32, encrypt: c_int);
}

/// A manager, freed when its thread ends.
struct Manager(NonNull<Mgr>);

impl Manager {
    fn new(narrow: bool) -> Option<Self> {
        // SAFETY: takes a flag; the result is null or a manager that we own.
        NonNull::new(unsafe { isw_new(narrow.into()) }).map(Self)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // SAFETY: made by `isw_new`, and not used afterwards.
        unsafe { isw_free(self.0.as_ptr()) };
    }
}

/// The managers of a thread: for the widest instructions of this processor, and for SSE with the
/// SHA extensions, which hash SHA-256 faster than eight lanes of AVX2 do.
struct Managers {
    wide: Manager,
    narrow: Option<Manager>,
}

impl Managers {
    fn new() -> Option<Self> {
        let wide = Manager::new(false)?;
        // SAFETY: a manager of ours; its features are only read.
        let prefer_narrow =
            unsafe { isw_has_shani(wide.0.as_ptr()) != 0 && isw_has_avx512(wide.0.as_ptr()) == 0 };
        Some(Self { wide, narrow: if prefer_narrow { Manager::new(true) } else { None } })
    }
}

thread_local! {
    /// `None` until this thread needs them, `Some(None)` when it cannot have them.
    static MANAGERS: RefCell<Option<Option<Managers>>> = const { RefCell::new(None) };
}

/// Lends this thread's managers. `None` when there is no memory for them, or the processor has no
/// AES instructions.
fn with_managers<R>(work: impl FnOnce(&mut Managers) -> R) -> Option<R> {
    MANAGERS.with_borrow_mut(|slot| slot.get_or_insert_with(Managers::new).as_mut().map(work))
}

/// Instruction sets that the library can use on this processor.
#[derive(Clone, Copy)]
struct InstructionSets {
    avx512: bool,
    narrow: bool,
}

fn abilities() -> Option<InstructionSets> {
    static FOUND: OnceLock<Option<InstructionSets>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = with_managers(|managers| InstructionSets {
            // SAFETY: a manager of ours; its features are only read.
            avx512: unsafe { isw_has_avx512(managers.wide.0.as_ptr()) != 0 },
            narrow: managers.narrow.is_some(),
        })?;
        // SAFETY: constants of the shim.
        let lens = unsafe { [isw_gcm_key_len, isw_gcm_context_len, isw_call_len] };
        // A library whose structures outgrew our arrays is not used.
        let fits = lens[0] as usize <= gcm::DATA_LEN
            && lens[1] as usize <= gcm::CONTEXT_LEN
            && lens[2] as usize == lanes::CALL_LEN;
        fits.then_some(found)
    })
}

/// True when this processor can run the library and its own self-test passed.
pub(crate) fn available() -> bool {
    abilities().is_some()
}

/// True when this thread has its managers. They are made here if they have to be.
pub(crate) fn ready() -> bool {
    with_managers(|_| ()).is_some()
}
