//! Pseudo-random functions (RFC 7296 section 2.13, RFC 4868) and prf+.
//!
//! HMAC-SHA2, and for old peers HMAC-SHA-1, AES-XCBC (RFC 4434) and AES-CMAC (RFC 4615). No
//! default names these three: they are negotiated where a connection names them.

use ironswan_wire::iana::PrfId;
use ironswan_wire::secret::Secret;
use zeroize::Zeroizing;

use crate::block_mac::{BlockMac, BlockMacKey};
use crate::engine::aws_lc_sys::aes::BLOCK_LEN;
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

    /// Bytes of each nonce that make the key of SKEYSEED; `None` for all. RFC 7296 section 2.14:
    /// "If the negotiated PRF is AES-XCBC-PRF-128 or AES-CMAC-PRF-128, only the first 64 bits of Ni
    /// and the first 64 bits of Nr are used in calculating SKEYSEED".
    fn skeyseed_nonce_len(&self) -> Option<usize> {
        None
    }
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

/// AES-XCBC-PRF-128 and AES-CMAC-PRF-128. Keys of other lengths than 128 bits are made fit.
struct Block {
    id: PrfId,
    mac: BlockMac,
}

impl Block {
    /// The key of 128 bits that stands for a key of any length.
    fn key(&self, key: &[u8]) -> Zeroizing<[u8; BLOCK_LEN]> {
        let mut out = Zeroizing::new([0; BLOCK_LEN]);
        match (self.mac, key.len()) {
            // RFC 4434 section 2: a shorter key is padded with zeros.
            (_, BLOCK_LEN) | (BlockMac::Xcbc, ..BLOCK_LEN) => out[..key.len()].copy_from_slice(key),
            // RFC 4434 section 2, RFC 4615 section 3: the MAC of the key under a key of zeros.
            _ => {
                let mut zero = BlockMacKey::blank();
                zero.set(self.mac, &[0; BLOCK_LEN]).expect("a key of 128 bits");
                *out = zero.mac(&[key]);
            }
        }
        out
    }
}

impl Prf for Block {
    fn id(&self) -> PrfId {
        self.id
    }

    fn output_len(&self) -> usize {
        BLOCK_LEN
    }

    fn mac(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        wipe::after::<PRF_STACK, _>(|| {
            let key = self.key(key);
            let mut mac = BlockMacKey::blank();
            mac.set(self.mac, &*key).expect("a key of 128 bits");
            Secret::from(&Zeroizing::new(mac.mac(parts))[..])
        })
    }

    fn skeyseed_nonce_len(&self) -> Option<usize> {
        Some(8)
    }
}

static BLOCKS: [Block; 2] = [
    Block { id: PrfId::AES128_XCBC, mac: BlockMac::Xcbc },
    Block { id: PrfId::AES128_CMAC, mac: BlockMac::Cmac },
];

static HMACS: [Hmac; 4] = [
    Hmac { id: PrfId::HMAC_SHA2_256, hash: Hash::Sha256 },
    Hmac { id: PrfId::HMAC_SHA2_384, hash: Hash::Sha384 },
    Hmac { id: PrfId::HMAC_SHA2_512, hash: Hash::Sha512 },
    Hmac { id: PrfId::HMAC_SHA1, hash: Hash::Sha1 },
];

/// The PRF of this id. `None` for those that this crate does not have.
pub fn get(id: PrfId) -> Option<&'static dyn Prf> {
    let hmac = HMACS.iter().find(|p| p.id == id).map(|p| p as &'static dyn Prf);
    hmac.or_else(|| BLOCKS.iter().find(|p| p.id == id).map(|p| p as &'static dyn Prf))
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
