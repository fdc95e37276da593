//! Memory between two pages that nobody may touch, for tests: an engine that reads or writes one
//! byte in front of a buffer that begins here, or behind one that ends here, is stopped by the
//! processor (SIGSEGV), and so is the test.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// Writable pages with a page without any access at each end.
pub(crate) struct Guarded {
    mapped: NonNull<u8>,
    page: usize,
    len: usize,
    _bytes: PhantomData<[u8]>,
}

impl Guarded {
    /// Room for `len` bytes, rounded up to whole pages.
    pub(crate) fn new(len: usize) -> Self {
        // SAFETY: takes a number and returns one.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page's length");
        let len = len.max(1).next_multiple_of(page);
        // SAFETY: a new private mapping, at an address that the kernel chooses, is nobody else's
        // memory.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len + 2 * page,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        let mapped = NonNull::new(mapped.cast()).expect("an address that is not null");
        let this = Self { mapped, page, len, _bytes: PhantomData };
        // SAFETY: changes the access to the pages in the middle of our own mapping.
        let done =
            unsafe { libc::mprotect(this.middle().as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0, "mprotect: {}", std::io::Error::last_os_error());
        this
    }

    fn middle(&self) -> NonNull<u8> {
        // SAFETY: the mapping has a page in front of the middle.
        unsafe { self.mapped.add(self.page) }
    }

    /// All of it.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        // SAFETY: the middle is `len` bytes that can be read and written, zero at first, and
        // borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.middle().as_ptr(), self.len) }
    }

    /// `len` bytes at one of the two ends.
    pub(crate) fn at(&mut self, end: End, len: usize) -> &mut [u8] {
        let range = end.range(self.len, len);
        &mut self.whole()[range]
    }

    /// A copy of these bytes at one of the two ends.
    pub(crate) fn copy(&mut self, end: End, bytes: &[u8]) -> &mut [u8] {
        let to = self.at(end, bytes.len());
        to.copy_from_slice(bytes);
        to
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: exactly our own mapping, which nothing borrows any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.len + 2 * self.page) };
    }
}

/// The end of a buffer that touches a guard page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The buffer begins behind the guard page.
    Front,
    /// The buffer ends in front of the guard page.
    Back,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Front, Self::Back];

    fn range(self, of: usize, len: usize) -> Range<usize> {
        match self {
            Self::Front => 0..len,
            Self::Back => of - len..of,
        }
    }
}

/// A guard stops whoever touches it: a child process that reads one byte too many ends with
/// SIGSEGV.
#[test]
fn a_byte_behind_the_end_or_in_front_of_the_beginning_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    const ROLE: &str = "IRONSWAN_TOUCH_GUARD";
    if let Ok(end) = std::env::var(ROLE) {
        let mut memory = Guarded::new(1);
        let len = memory.len;
        let middle = memory.at(End::Front, len).as_ptr();
        let byte = match end.as_str() {
            "front" => middle.wrapping_sub(1),
            "back" => middle.wrapping_add(len),
            _ => middle,
        };
        // SAFETY: one byte of this process's memory. Where there is no access the process ends,
        // which is what is tested.
        std::hint::black_box(unsafe { byte.read_volatile() });
        return;
    }
    let name = "engine::guarded::a_byte_behind_the_end_or_in_front_of_the_beginning_ends_the_process";
    for (end, signal) in [("front", Some(libc::SIGSEGV)), ("back", Some(libc::SIGSEGV)), ("inside", None)] {
        let this = std::env::current_exe().expect("the path of this test");
        let child = std::process::Command::new(this).args(["--exact", name]).env(ROLE, end).output();
        let status = child.expect("this test again").status;
        assert_eq!((status.signal(), status.success()), (signal, signal.is_none()), "{end}");
    }
}
