//! AES-CCM (RFC 3610): counter mode and a CBC-MAC under one key, for ESP (RFC 4309) and IKE (RFC
//! 5282).
//!
//! ```text
//! nonce: salt (3) | IV (8), so the counter and the length of the text have 15 - 11 = 4 bytes
//! MAC over   B0: flags | nonce | text length,   aad length (2) | aad | 0..,   text | 0..
//! ICV        MAC + AES(A0), cut;   text + AES(A1), AES(A2), ...   with Ai: flags | nonce | i
//! ```
//!
//! AWS-LC's own CCM needs a context that each packet writes to; this is made of its AES, so that a
//! key is only read.

use ironswan_wire::secret::ct_eq;

use crate::engine::aws_lc_sys::aes::{BLOCK_LEN, BlockKey};

/// Additional data is shorter than this: longer ones have another form (RFC 3610 section 2.2),
/// which neither protocol needs.
const MAX_AAD: usize = 0xff00;

/// A key ready for use.
pub(crate) struct CcmKey {
    aes: BlockKey,
    tag_len: usize,
}

impl CcmKey {
    /// For ICVs of this length, without a key so far. `None` for another length.
    pub(crate) fn blank(tag_len: usize) -> Option<Self> {
        // RFC 3610 section 2: 4, 6, 8, .. 16.
        let fits = (4..=BLOCK_LEN).contains(&tag_len) && tag_len.is_multiple_of(2);
        fits.then_some(Self { aes: BlockKey::blank(), tag_len })
    }

    /// Prepares a key of 16, 24 or 32 bytes in place. `None` for other lengths.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        self.aes.set(key)
    }

    /// Encrypts `text` in place and writes the ICV. Panics unless `tag` is as long as `blank` was
    /// told, and the nonce has 7 to 13 bytes.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        assert_eq!(tag.len(), self.tag_len, "an ICV of another length");
        let mac = self.mac(nonce, aad, text);
        tag.copy_from_slice(&mac[..self.tag_len]);
        self.crypt(nonce, text);
    }

    /// Decrypts `text` in place and verifies. On `false` the text is wiped.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        self.crypt(nonce, text);
        let authentic = ct_eq(&self.mac(nonce, aad, text)[..self.tag_len], tag);
        if !authentic {
            text.fill(0);
        }
        authentic
    }

    /// The counter block `A0`: how many bytes the counter has, nonce, counter.
    fn counter(nonce: &[u8]) -> [u8; BLOCK_LEN] {
        assert!((7..=13).contains(&nonce.len()), "a nonce of {} bytes", nonce.len());
        let mut block = [0; BLOCK_LEN];
        block[0] = (14 - nonce.len()) as u8;
        block[1..=nonce.len()].copy_from_slice(nonce);
        block
    }

    #[inline]
    fn crypt(&self, nonce: &[u8], text: &mut [u8]) {
        let mut counter = Self::counter(nonce);
        counter[BLOCK_LEN - 1] = 1;
        self.aes.counter_mode(&counter, text);
    }

    /// The MAC of the plain text, encrypted with `A0`.
    #[inline]
    fn mac(&self, nonce: &[u8], aad: &[u8], text: &[u8]) -> [u8; BLOCK_LEN] {
        assert!(aad.len() < MAX_AAD, "{} bytes of additional data", aad.len());
        let counter = Self::counter(nonce);
        let mut first = counter;
        // RFC 3610 section 2.2: Adata | M' | L'.
        first[0] += u8::from(!aad.is_empty()) * 64 + ((self.tag_len - 2) / 2) as u8 * 8;
        let field = &mut first[nonce.len() + 1..];
        let len = (text.len() as u64).to_be_bytes();
        let (high, low) = len.split_at(len.len() - field.len());
        assert!(high.iter().all(|b| *b == 0), "a text of {} bytes", text.len());
        field.copy_from_slice(low);

        let mut value = [0; BLOCK_LEN];
        self.aes.chain(&mut value, &[first]);
        if !aad.is_empty() {
            // The additional data of IPsec and IKE fits the first block; longer data follows as it
            // is.
            let mut block = [0; BLOCK_LEN];
            block[..2].copy_from_slice(&(aad.len() as u16).to_be_bytes());
            let (head, rest) = aad.split_at(aad.len().min(BLOCK_LEN - 2));
            block[2..2 + head.len()].copy_from_slice(head);
            self.aes.chain(&mut value, &[block]);
            self.padded(&mut value, rest);
        }
        self.padded(&mut value, text);
        for (v, k) in value.iter_mut().zip(self.aes.encrypt(&counter)) {
            *v ^= k;
        }
        value
    }

    /// Carries the chain over `data`, filled up with zeros.
    #[inline]
    fn padded(&self, value: &mut [u8; BLOCK_LEN], data: &[u8]) {
        let (blocks, rest) = data.as_chunks();
        self.aes.chain(value, blocks);
        if !rest.is_empty() {
            let mut last = [0; BLOCK_LEN];
            last[..rest.len()].copy_from_slice(rest);
            self.aes.chain(value, &[last]);
        }
    }
}

#[cfg(test)]
mod tests;
