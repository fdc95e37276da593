//! ECDSA over P-256, P-384 and P-521 (FIPS 186-5 section 6), signatures as r | s of fixed length.
//!
//! Not here: the encodings of keys and of signatures in DER (`sign`).

use std::ptr::NonNull;

use aws_lc_sys as sys;
use ironswan_wire::secret::Secret;

use super::bn::{self, Bn};

/// A curve of NIST's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nist {
    P256,
    P384,
    P521,
}

impl Nist {
    /// Length of a coordinate, a scalar, and each half of a signature, in bytes.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn group(self) -> *const sys::EC_GROUP {
        // SAFETY: the functions take nothing and return a pointer to a table that is never freed.
        unsafe {
            match self {
                Self::P256 => sys::EC_group_p256(),
                Self::P384 => sys::EC_group_p384(),
                Self::P521 => sys::EC_group_p521(),
            }
        }
    }
}

/// A public or private key. The library wipes it when it frees it.
pub(crate) struct EcKey {
    key: NonNull<sys::EC_KEY>,
    curve: Nist,
}

// SAFETY: the library lets a key be used by several threads at once as long as no thread calls a
// function that changes it; none of the methods that borrow a key does.
unsafe impl Send for EcKey {}
// SAFETY: the same.
unsafe impl Sync for EcKey {}

impl EcKey {
    fn empty(curve: Nist) -> Option<Self> {
        // SAFETY: takes nothing; we own the result.
        let this = Self { key: NonNull::new(unsafe { sys::EC_KEY_new() })?, curve };
        // SAFETY: the key is live, and the group lives for ever.
        (unsafe { sys::EC_KEY_set_group(this.key.as_ptr(), curve.group()) } == 1).then_some(this)
    }

    /// The public key of a point: 4 | x | y (SEC 1 section 2.3.3). `None` when it is not on the
    /// curve.
    pub(crate) fn from_public(curve: Nist, point: &[u8]) -> Option<Self> {
        if point.len() != 1 + 2 * curve.len() || point[0] != 4 {
            return None;
        }
        let this = Self::empty(curve)?;
        let ours = Point::new(curve)?;
        // SAFETY: group and point are live; `point` is read for its length; a null context lets the
        // function make its own.
        let ok = unsafe {
            sys::EC_POINT_oct2point(
                curve.group(),
                ours.0.as_ptr(),
                point.as_ptr(),
                point.len(),
                std::ptr::null_mut(),
            )
        };
        // SAFETY: key and point are live; the library copies the point.
        (ok == 1 && unsafe { sys::EC_KEY_set_public_key(this.key.as_ptr(), ours.0.as_ptr()) } == 1)
            .then_some(this)
    }

    /// The private key of a scalar in network order, with its public key. `None` when the scalar is
    /// not between 1 and the order of the curve.
    pub(crate) fn from_private(curve: Nist, scalar: &[u8]) -> Option<Self> {
        if scalar.len() != curve.len() || scalar.iter().all(|byte| *byte == 0) {
            return None;
        }
        let (this, number, ours) = (Self::empty(curve)?, Bn::from_bytes(scalar)?, Point::new(curve)?);
        // SAFETY: all pointers are live; the library copies the number and the point. The point is
        // the generator times the number: the two null arguments leave out another term.
        let ok = unsafe {
            sys::EC_KEY_set_private_key(this.key.as_ptr(), number.as_ptr()) == 1
                && sys::EC_POINT_mul(
                    curve.group(),
                    ours.0.as_ptr(),
                    number.as_ptr(),
                    std::ptr::null(),
                    std::ptr::null(),
                    std::ptr::null_mut(),
                ) == 1
                && sys::EC_KEY_set_public_key(this.key.as_ptr(), ours.0.as_ptr()) == 1
        };
        ok.then_some(this)
    }

    /// A new private key.
    pub(crate) fn generate(curve: Nist) -> Option<Self> {
        let this = Self::empty(curve)?;
        // SAFETY: the key is live, has a group, and is nobody else's.
        (unsafe { sys::EC_KEY_generate_key(this.key.as_ptr()) } == 1).then_some(this)
    }

    /// The public key as 4 | x | y.
    pub(crate) fn point(&self) -> Option<Vec<u8>> {
        let mut out = vec![0; 1 + 2 * self.curve.len()];
        // SAFETY: the key is live and has a point by construction; `out` has the length given.
        let len = unsafe {
            sys::EC_POINT_point2oct(
                self.curve.group(),
                sys::EC_KEY_get0_public_key(self.key.as_ptr()),
                sys::point_conversion_form_t::POINT_CONVERSION_UNCOMPRESSED,
                out.as_mut_ptr(),
                out.len(),
                std::ptr::null_mut(),
            )
        };
        (len == out.len()).then_some(out)
    }

    /// The scalar of a private key in network order. `None` for a public key.
    pub(crate) fn scalar(&self) -> Option<Secret> {
        // SAFETY: the key is live, and so is its number as long.
        let number = unsafe { sys::EC_KEY_get0_private_key(self.key.as_ptr()) };
        if number.is_null() {
            return None;
        }
        let mut written = None;
        let scalar = Secret::filled(self.curve.len(), |out| {
            // SAFETY: `number` is live, see above.
            written = unsafe { bn::write(number, out) };
        });
        written.map(|()| scalar)
    }

    /// True when r | s is a signature of this digest. A digest longer than the order is cut as FIPS
    /// 186-5 says.
    pub(crate) fn verify(&self, digest: &[u8], signature: &[u8]) -> bool {
        let read = || {
            let (r, s) = signature.split_at_checked(self.curve.len()).filter(|(r, s)| r.len() == s.len())?;
            let (r, s) = (Bn::from_bytes(r)?, Bn::from_bytes(s)?);
            let sig = Sig::new()?;
            // SAFETY: the signature is live. The function takes the two numbers over, unless one is
            // null, which neither is.
            (unsafe { sys::ECDSA_SIG_set0(sig.0.as_ptr(), r.into_raw(), s.into_raw()) } == 1).then_some(sig)
        };
        let Some(sig) = read() else { return false };
        // SAFETY: key and signature are live; the digest is read for its length.
        let ok =
            unsafe { sys::ECDSA_do_verify(digest.as_ptr(), digest.len(), sig.0.as_ptr(), self.key.as_ptr()) };
        ok == 1
    }

    /// Signs a digest: r | s. `None` for a public key.
    pub(crate) fn sign(&self, digest: &[u8]) -> Option<Vec<u8>> {
        // SAFETY: the key is live; the digest is read for its length; we own the result.
        let sig = unsafe { sys::ECDSA_do_sign(digest.as_ptr(), digest.len(), self.key.as_ptr()) };
        let sig = Sig(NonNull::new(sig)?);
        let (mut r, mut s) = (std::ptr::null(), std::ptr::null());
        // SAFETY: the signature is live; the two numbers stay its own.
        unsafe { sys::ECDSA_SIG_get0(sig.0.as_ptr(), &raw mut r, &raw mut s) };
        let mut out = vec![0; 2 * self.curve.len()];
        let (first, second) = out.split_at_mut(self.curve.len());
        // SAFETY: both numbers are live as long as `sig`.
        unsafe { bn::write(r, first).and(bn::write(s, second)) }?;
        Some(out)
    }
}

impl Drop for EcKey {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards. The library overwrites what it frees.
        unsafe { sys::EC_KEY_free(self.key.as_ptr()) };
    }
}

/// An owned point.
struct Point(NonNull<sys::EC_POINT>);

impl Point {
    fn new(curve: Nist) -> Option<Self> {
        // SAFETY: the group lives for ever; we own the result.
        NonNull::new(unsafe { sys::EC_POINT_new(curve.group()) }).map(Self)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::EC_POINT_free(self.0.as_ptr()) };
    }
}

/// An owned signature.
struct Sig(NonNull<sys::ECDSA_SIG>);

impl Sig {
    fn new() -> Option<Self> {
        // SAFETY: takes nothing; we own the result.
        NonNull::new(unsafe { sys::ECDSA_SIG_new() }).map(Self)
    }
}

impl Drop for Sig {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::ECDSA_SIG_free(self.0.as_ptr()) };
    }
}
