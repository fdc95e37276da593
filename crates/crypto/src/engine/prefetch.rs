//! Asking the processor for memory ahead of use.

use std::ops::Range;

/// Starts to load these bytes of `value` into the cache, without waiting for them. With many SAs at
/// random most of the time of a small packet is otherwise the wait for its key.
#[inline(always)]
pub fn prefetch<T>(value: &T, bytes: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (bytes.start..bytes.end.min(size_of::<T>())).step_by(64) {
            // SAFETY: a prefetch reads nothing that the program can see and faults on no address;
            // this one is inside
            // `value` anyway.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes);
}
