//! Modular exponentiation in the MODP groups of RFC 3526, RFC 2409 and RFC 5114, in constant time
//! for the exponent.
//!
//! Not here: what a valid public value is for IKE (RFC 6989 sections 2.1 and 2.2 are in `kex`, on
//! top of [`Group::in_range`] and [`Group::in_subgroup`]).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `old` | the numbers of groups that nothing new should use |

use std::ptr::NonNull;

use aws_lc_sys as sys;

use super::bn::Bn;

mod old;

/// The groups here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    Modp1024,
    Modp1536,
    Modp2048,
    Modp3072,
    Modp4096,
    Modp6144,
    Modp8192,
    Modp1024Sub160,
    Modp2048Sub224,
    Modp2048Sub256,
}

impl Group {
    /// Length of the prime and so of every public value and shared secret.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Modp1024 | Self::Modp1024Sub160 => 128,
            Self::Modp1536 => 192,
            Self::Modp2048 | Self::Modp2048Sub224 | Self::Modp2048Sub256 => 256,
            Self::Modp3072 => 384,
            Self::Modp4096 => 512,
            Self::Modp6144 => 768,
            Self::Modp8192 => 1024,
        }
    }

    /// Length of our private exponents. At least twice the group's strength (RFC 7919 section 5.2:
    /// 225, 275, 325, 375 and 400 bits from 2,048 bits on; RFC 3526 section 8: 180, 220, 260, 300,
    /// 340 and 380 from 1,536 bits on). In the groups of RFC 5114 as long as the subgroup's order.
    pub(crate) fn exponent_len(self) -> usize {
        match self {
            Self::Modp1024Sub160 => 20,
            Self::Modp1024 | Self::Modp1536 => 24,
            Self::Modp2048Sub224 => 28,
            Self::Modp2048 | Self::Modp2048Sub256 => 32,
            Self::Modp3072 => 40,
            Self::Modp4096 => 42,
            Self::Modp6144 => 48,
            Self::Modp8192 => 52,
        }
    }

    /// The generator.
    pub(crate) fn generator(self) -> &'static [u8] {
        match self {
            Self::Modp1024Sub160 => &old::GENERATOR_1024_160,
            Self::Modp2048Sub224 => &old::GENERATOR_2048_224,
            Self::Modp2048Sub256 => &old::GENERATOR_2048_256,
            _ => &[2],
        }
    }

    /// The order of a subgroup that is smaller than half of the group.
    fn subgroup(self) -> Option<&'static [u8]> {
        match self {
            Self::Modp1024Sub160 => Some(&old::ORDER_1024_160),
            Self::Modp2048Sub224 => Some(&old::ORDER_2048_224),
            Self::Modp2048Sub256 => Some(&old::ORDER_2048_256),
            _ => None,
        }
    }

    fn prime(self) -> Option<Bn> {
        let new = std::ptr::null_mut();
        // SAFETY: with a null argument the functions allocate a new BIGNUM, which we own.
        let bn = unsafe {
            match self {
                Self::Modp1024 => return Bn::from_bytes(&old::PRIME_1024),
                Self::Modp1024Sub160 => return Bn::from_bytes(&old::PRIME_1024_160),
                Self::Modp2048Sub224 => return Bn::from_bytes(&old::PRIME_2048_224),
                Self::Modp2048Sub256 => return Bn::from_bytes(&old::PRIME_2048_256),
                Self::Modp1536 => sys::BN_get_rfc3526_prime_1536(new),
                Self::Modp2048 => sys::BN_get_rfc3526_prime_2048(new),
                Self::Modp3072 => sys::BN_get_rfc3526_prime_3072(new),
                Self::Modp4096 => sys::BN_get_rfc3526_prime_4096(new),
                Self::Modp6144 => sys::BN_get_rfc3526_prime_6144(new),
                Self::Modp8192 => sys::BN_get_rfc3526_prime_8192(new),
            }
        };
        NonNull::new(bn).map(Bn::own)
    }

    /// True when the value is in the subgroup that the generator makes, as far as anybody has to
    /// ask: in a group with a safe prime every value between 1 and p - 1 has a large order.
    pub(crate) fn in_subgroup(self, value: &[u8]) -> bool {
        let one =
            |power: Vec<u8>| power.split_last().is_some_and(|(l, r)| *l == 1 && r.iter().all(|b| *b == 0));
        self.subgroup().is_none_or(|order| self.power(value, order).is_some_and(one))
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
