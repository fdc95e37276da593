//! Big numbers of AWS-LC, wiped when dropped.

use std::ptr::NonNull;

use aws_lc_sys as sys;

/// An owned BIGNUM, wiped when dropped.
pub(super) struct Bn(NonNull<sys::BIGNUM>);

impl Bn {
    /// Takes over a BIGNUM that nobody else frees.
    pub(super) fn own(bn: NonNull<sys::BIGNUM>) -> Self {
        Self(bn)
    }

    /// The number of these bytes in network order. `None` when memory runs out.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: reads `bytes` for its length; with a null third argument it allocates a BIGNUM,
        // which we own.
        NonNull::new(unsafe { sys::BN_bin2bn(bytes.as_ptr(), bytes.len(), std::ptr::null_mut()) }).map(Self)
    }

    /// The pointer for a call, valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut sys::BIGNUM {
        self.0.as_ptr()
    }

    /// Gives the BIGNUM to a library object that frees it from now on.
    pub(super) fn into_raw(self) -> *mut sys::BIGNUM {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// Writes the number in network order, padded on the left. `None` when it is longer than `out`.
    pub(super) fn write(&self, out: &mut [u8]) -> Option<()> {
        // SAFETY: the BIGNUM is live.
        unsafe { write(self.0.as_ptr(), out) }
    }
}

impl Drop for Bn {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::BN_clear_free(self.0.as_ptr()) };
    }
}

/// Writes a number of the library's in network order, padded on the left. `None` when it is longer
/// than `out`.
///
/// # Safety
/// `bn` is a live BIGNUM.
pub(super) unsafe fn write(bn: *const sys::BIGNUM, out: &mut [u8]) -> Option<()> {
    // SAFETY: `bn` is live by this function's contract; `out` has the length given, and the
    // function pads on the left or fails, it never writes beyond.
    (unsafe { sys::BN_bn2bin_padded(out.as_mut_ptr(), out.len(), bn) } == 1).then_some(())
}
