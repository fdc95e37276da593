//! Modular exponentiation in the MODP groups of RFC 3526, in constant time for the exponent.
//!
//! Not here: what a valid public value is for IKE (RFC 6989 section 2.1 is in `kex`, on top of
//! [`Group::in_range`]).

use std::ptr::NonNull;

use aws_lc_sys as sys;

use super::bn::Bn;

/// The groups here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    Modp2048,
    Modp3072,
}

impl Group {
    /// Length of the prime and so of every public value and shared secret.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Modp2048 => 256,
            Self::Modp3072 => 384,
        }
    }

    /// Length of our private exponents. At least twice the group's strength (RFC 7919 section 5.2:
    /// 225 and 275 bits; RFC 3526 section 8: 220 and 260).
    pub(crate) fn exponent_len(self) -> usize {
        match self {
            Self::Modp2048 => 32,
            Self::Modp3072 => 40,
        }
    }

    fn prime(self) -> Option<Bn> {
        // SAFETY: with a null argument the functions allocate a new BIGNUM, which we own.
        let bn = unsafe {
            match self {
                Self::Modp2048 => sys::BN_get_rfc3526_prime_2048(std::ptr::null_mut()),
                Self::Modp3072 => sys::BN_get_rfc3526_prime_3072(std::ptr::null_mut()),
            }
        };
        NonNull::new(bn).map(Bn::own)
    }

    /// True when 1 < value < p - 1.
    pub(crate) fn in_range(self, value: &[u8]) -> bool {
        let (Some(prime), Some(value)) = (self.prime(), Bn::from_bytes(value)) else { return false };
        // SAFETY: all three pointers are live BIGNUMs; `prime` is ours to change.
        unsafe {
            sys::BN_sub_word(prime.as_ptr(), 1) == 1
                && sys::BN_cmp_word(value.as_ptr(), 1) > 0
                && sys::BN_cmp(value.as_ptr(), prime.as_ptr()) < 0
        }
    }

    /// `base ^ exponent mod p`, padded on the left to the prime's length. `None` when memory runs
    /// out or `base >= p`.
    pub(crate) fn power(self, base: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
        let prime = self.prime()?;
        let (base, exponent, result) =
            (Bn::from_bytes(base)?, Bn::from_bytes(exponent)?, Bn::from_bytes(&[])?);
        let ctx = Ctx::new()?;
        let mont = Mont::new(&prime, &ctx)?;
        // SAFETY: every pointer is live until the end of this function; the modulus is odd and
        // `mont` was made for it.
        let ok = unsafe {
            sys::BN_mod_exp_mont_consttime(
                result.as_ptr(),
                base.as_ptr(),
                exponent.as_ptr(),
                prime.as_ptr(),
                ctx.0.as_ptr(),
                mont.0.as_ptr(),
            )
        };
        if ok != 1 {
            return None;
        }
        let mut out = vec![0; self.len()];
        result.write(&mut out)?;
        Some(out)
    }
}

/// Scratch space of the BIGNUM functions.
struct Ctx(NonNull<sys::BN_CTX>);

impl Ctx {
    fn new() -> Option<Self> {
        // SAFETY: takes nothing; we own the result.
        NonNull::new(unsafe { sys::BN_CTX_new() }).map(Self)
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::BN_CTX_free(self.0.as_ptr()) };
    }
}

/// Montgomery form of a modulus.
struct Mont(NonNull<sys::BN_MONT_CTX>);

impl Mont {
    fn new(modulus: &Bn, ctx: &Ctx) -> Option<Self> {
        // SAFETY: both arguments are live; the modulus is odd (a prime above 2); we own the result.
        NonNull::new(unsafe { sys::BN_MONT_CTX_new_for_modulus(modulus.as_ptr(), ctx.0.as_ptr()) }).map(Self)
    }
}

impl Drop for Mont {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::BN_MONT_CTX_free(self.0.as_ptr()) };
    }
}
