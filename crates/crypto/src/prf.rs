//! Pseudo-random functions (RFC 7296 section 2.13, RFC 4868) and prf+.

use ironswan_wire::iana::PrfId;
use ironswan_wire::secret::Secret;
use zeroize::Zeroizing;

use crate::engine::aws_lc_sys::hmac::{Hash, HmacKey, MAX_LEN};
use crate::wipe;

/// How much of the stack is overwritten after a MAC: the hash functions' message schedules.
const PRF_STACK: usize = 4 * 1024;

/// A PRF as negotiated by transform type 2.
pub trait Prf: Sync {
    /// Transform ID of the PRF.
    fn id(&self) -> PrfId;

    /// Length of the output in bytes, which is the preferred key length too (RFC 4868 section
    /// 2.1.1).
    fn output_len(&self) -> usize;

    /// prf(key, parts one after another).
    fn mac(&self, key: &[u8], parts: &[&[u8]]) -> Secret;
}

struct Hmac {
    id: PrfId,
    hash: Hash,
}

impl Prf for Hmac {
    fn id(&self) -> PrfId {
        self.id
    }

    fn output_len(&self) -> usize {
        self.hash.output_len()
    }

    fn mac(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        wipe::after::<PRF_STACK, _>(|| {
            let mut hmac = HmacKey::blank(self.hash);
            hmac.set(key);
            let mut digest = Zeroizing::new([0; MAX_LEN]);
            hmac.mac_into(parts, &mut digest);
            Secret::from(&digest[..self.hash.output_len()])
        })
    }
}

static PRFS: [Hmac; 3] = [
    Hmac { id: PrfId::HMAC_SHA2_256, hash: Hash::Sha256 },
    Hmac { id: PrfId::HMAC_SHA2_384, hash: Hash::Sha384 },
    Hmac { id: PrfId::HMAC_SHA2_512, hash: Hash::Sha512 },
];

/// The PRF of this id, if this crate has it: HMAC-SHA2-256, -384 and -512.
pub fn get(id: PrfId) -> Option<&'static dyn Prf> {
    PRFS.iter().find(|p| p.id == id).map(|p| p as &'static dyn Prf)
}

/// `prf+ (key, seed)`, its first `len` bytes. The seed is given in parts.
///
/// ```text
/// T1 = prf (K, S | 0x01)   T2 = prf (K, T1 | S | 0x02)   ...   prf+ = T1 | T2 | T3 | ...
/// ```
///
/// # Panics
/// When more than 255 outputs are asked for, which RFC 7296 section 2.13 does not define; no suite
/// comes near.
pub fn prf_plus(prf: &dyn Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    assert!(len <= 255 * prf.output_len(), "prf+ is not defined beyond 255 times the PRF's output");
    // The full capacity from the start: a reallocation would leave key bytes behind.
    let mut out = Vec::with_capacity(len);
    let mut last = Secret::default();
    let mut counter = 0u8;
    while out.len() < len {
        counter += 1;
        let mut parts = Vec::with_capacity(seed.len() + 2);
        parts.push(last.expose());
        parts.extend_from_slice(seed);
        let count = [counter];
        parts.push(&count);
        let block = prf.mac(key, &parts);
        let n = block.len().min(len - out.len());
        out.extend_from_slice(&block.expose()[..n]);
        last = block;
    }
    Secret::new(out)
}

#[cfg(test)]
mod tests;
