//! ESP packets, many at once (RFC 4303), in place and without allocation.
//!
//! ```text
//! buf[start .. start + len]:
//!   SPI (4) | sequence number, low half (4) | IV | text: payload, padding, trailer | ICV
//!   `------- written by the caller -------'  `-- seal writes the IV, encrypts the text, writes the ICV --'
//! ```
//!
//! | | IV | authenticated |
//! |---|---|---|
//! | AES-GCM (RFC 4106), ChaCha20-Poly1305 (RFC 7634) | 8: the 64-bit sequence number, so never twice with a key | SPI, (high half with ESN,) low half; text |
//! | AES-CBC (RFC 3602) | 16: AES of the sequence number under a random key of the SA's, so unpredictable | SPI ... ciphertext (, high half with ESN) |
//! | NULL (RFC 2410) | none | the same |
//!
//! One core, nanoseconds per packet (`benches/packets.rs`; x86-64 with AVX-512, VAES, SHA extensions):
//!
//! | seal / open | 64 bytes | 1,400 bytes |
//! |---|---|---|
//! | AES-128-GCM | 76 / 71 | 158 / 163 |
//! | AES-256-GCM | 74 / 73 | 176 / 180 |
//! | ChaCha20-Poly1305 | 169 / 171 | 757 / 717 |
//! | AES-128-CBC, HMAC-SHA2-256 | 221 / 178 | 1,653 / 999 |
//! | AES-256-CBC, HMAC-SHA2-256 | 234 / 178 | 1,925 / 1,042 |
//! | AES-128-CBC, HMAC-SHA2-512 | 492 / 440 | 3,109 / 2,452 |
//! | NULL, HMAC-SHA2-256 | 170 / 172 | 883 / 886 |
//! | AES-128-GCM, 10,000 SAs at random | 102 / 99 | 202 / 218 |
//!
//! Through aws-lc-rs (`LessSafeKey`, the same functions below) AES-128-GCM was seen to take 73 / 67 and 160 / 158: calling
//! `EVP_AEAD_CTX_seal_scatter` directly is as fast, puts the ICV where it belongs and keeps the key inside [`EspKey`].
//! CBC is encrypted block after block: only an engine that works on several packets at once could do better.
//!
//! Not here: padding and trailer, replay, lifetimes, where a packet comes from and goes.

use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

use crate::engine::aws_lc_sys::aes::{self, BlockKey, CbcKey};
use crate::engine::prefetch::prefetch;
use crate::rng::Rng;
use crate::suite::{self, AEAD_ICV_LEN, AEAD_IV_LEN, IntegKey, SaltedKey};

/// SPI and the low half of the sequence number.
const HEADER_LEN: usize = 8;
/// Pad length and next header: no text is shorter (RFC 4303 section 2).
const TRAILER_LEN: usize = 2;
/// How many jobs ahead a key is fetched into the cache.
const AHEAD: usize = 2;
/// How much of a key is fetched: what an AEAD uses. (CBC and HMAC keys are longer, but take so long to use that their
/// first lines matter little.)
const HOT_LEN: usize = size_of::<SaltedKey>();

/// The keys of one SA, ready for use: key schedules, powers of H and HMAC states are inside the value, which is at most
/// 1.5 KiB, so that it can lie in a slab beside the SA.
#[repr(align(64))]
pub struct EspKey {
    engine: Engine,
    esn: bool,
}

impl std::fmt::Debug for EspKey {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EspKey").field("esn", &self.esn).finish_non_exhaustive()
    }
}

/// What does the work. A library that wants many packets at once (ipsec-mb) becomes a variant here, whose jobs `seal`
/// and `open` collect and submit together.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
enum Engine {
    Aead(SaltedKey),
    Cbc { cbc: CbcKey, ivs: BlockKey, integ: IntegKey },
    Null { integ: IntegKey },
}

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// Where it begins in the buffer, in bytes.
    pub start: u32,
    /// Its length from SPI to ICV, in bytes.
    pub len: u32,
    /// The sequence number; its high half counts with ESN only.
    pub seq: u64,
    /// Index of its key in `keys`.
    pub key: u16,
    /// Result: sealed, or opened and authentic.
    pub ok: bool,
}

impl EspKey {
    /// Prepares the keys of an SA. For an AEAD the salt is the end of `encr_key` and `integ_key` is empty. `rng` makes the
    /// key for CBC's IVs. `None` when the suite is not supported or a key has the wrong length.
    pub fn new(suite: &EspSuite, encr_key: &[u8], integ_key: &[u8], rng: &mut dyn Rng) -> Option<Self> {
        let engine = if let Some(aead) = suite::aead(suite.encr, suite.key_bits) {
            // RFC 4106 section 4: an AEAD comes without an integrity algorithm; NONE may be spelt out.
            if suite.integ.is_some_and(|id| id != IntegId::NONE) || !integ_key.is_empty() {
                return None;
            }
            Engine::Aead(SaltedKey::new(aead, encr_key)?)
        } else if suite.encr == EncrId::NULL {
            // RFC 4303 section 3.2: NULL encryption and no integrity MUST NOT come together.
            let integ = IntegKey::new(suite.integ?, integ_key)?;
            encr_key.is_empty().then_some(Engine::Null { integ })?
        } else {
            if encr_key.len() != suite::cbc_key_len(suite.encr, suite.key_bits)? {
                return None;
            }
            let integ = IntegKey::new(suite.integ?, integ_key)?;
            let mut iv_key = zeroize::Zeroizing::new([0; 16]);
            rng.fill(&mut *iv_key);
            Engine::Cbc { cbc: CbcKey::new(encr_key)?, ivs: BlockKey::new(&iv_key), integ }
        };
        Some(Self { engine, esn: suite.esn })
    }

    /// Length of the IV in bytes.
    #[inline]
    pub fn iv_len(&self) -> usize {
        match &self.engine {
            Engine::Aead(_) => AEAD_IV_LEN,
            Engine::Cbc { .. } => aes::BLOCK_LEN,
            Engine::Null { .. } => 0,
        }
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub fn icv_len(&self) -> usize {
        match &self.engine {
            Engine::Aead(_) => AEAD_ICV_LEN,
            Engine::Cbc { integ, .. } | Engine::Null { integ } => integ.icv_len(),
        }
    }

    /// The text with its trailer is a multiple of this many bytes: 16 for CBC, else 4 (RFC 4303 section 2.4).
    #[inline]
    pub fn block_len(&self) -> usize {
        match &self.engine {
            Engine::Cbc { .. } => aes::BLOCK_LEN,
            Engine::Aead(_) | Engine::Null { .. } => 4,
        }
    }

    /// Splits a packet; `None` when it is too short, or CBC text is not whole blocks.
    #[inline]
    fn split<'a>(&self, packet: &'a mut [u8]) -> Option<Fields<'a>> {
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_LEN>()?;
        let (iv, rest) = rest.split_at_mut_checked(self.iv_len())?;
        let text_len = rest.len().checked_sub(self.icv_len())?;
        let (text, icv) = rest.split_at_mut(text_len);
        let whole = !matches!(self.engine, Engine::Cbc { .. }) || text.len().is_multiple_of(aes::BLOCK_LEN);
        (text.len() >= TRAILER_LEN && whole).then_some(Fields { header, iv, text, icv })
    }

    /// The sequence number's high half, as far as it is authenticated.
    #[inline]
    fn high<'a>(&self, bytes: &'a [u8; 8]) -> &'a [u8] {
        if self.esn { &bytes[..4] } else { &[] }
    }

    #[inline]
    fn seal(&self, packet: &mut [u8], seq: u64) -> Option<()> {
        let Fields { header, iv, text, icv } = self.split(packet)?;
        let seq = seq.to_be_bytes();
        let high = self.high(&seq);
        match &self.engine {
            Engine::Aead(key) => {
                iv.copy_from_slice(&seq);
                key.seal(Aad::new(header, high).bytes(), &seq, text, icv.try_into().ok()?);
            }
            Engine::Cbc { cbc, ivs, integ } => {
                let mut block = [0; aes::BLOCK_LEN];
                block[8..].copy_from_slice(&seq);
                let chain = ivs.encrypt(&block);
                iv.copy_from_slice(&chain);
                cbc.encrypt(&chain, text);
                integ.sign(&[header, iv, text, high], icv);
            }
            Engine::Null { integ } => integ.sign(&[header, text, high], icv),
        }
        Some(())
    }

    #[inline]
    fn open(&self, packet: &mut [u8], seq: u64) -> Option<()> {
        let Fields { header, iv, text, icv } = self.split(packet)?;
        let seq = seq.to_be_bytes();
        let high = self.high(&seq);
        let authentic = match &self.engine {
            Engine::Aead(key) => {
                let iv: &[u8; AEAD_IV_LEN] = (&*iv).try_into().ok()?;
                key.open(Aad::new(header, high).bytes(), iv, text, (&*icv).try_into().ok()?)
            }
            Engine::Cbc { cbc, integ, .. } => {
                let authentic = integ.verify(&[header, iv, text, high], icv);
                if authentic {
                    cbc.decrypt((&*iv).try_into().ok()?, text);
                }
                authentic
            }
            Engine::Null { integ } => integ.verify(&[header, text, high], icv),
        };
        authentic.then_some(())
    }
}

/// The parts of a packet.
struct Fields<'a> {
    header: &'a mut [u8; HEADER_LEN],
    iv: &'a mut [u8],
    text: &'a mut [u8],
    icv: &'a mut [u8],
}

/// What an AEAD authenticates beside the text: SPI and sequence number, 8 bytes, or 12 with ESN (RFC 4106 section 5).
struct Aad {
    bytes: [u8; 12],
    len: usize,
}

impl Aad {
    #[inline]
    fn new(header: &[u8; HEADER_LEN], high: &[u8]) -> Self {
        let (spi, low) = header.split_at(4);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(spi);
        bytes[4..4 + high.len()].copy_from_slice(high);
        bytes[4 + high.len()..8 + high.len()].copy_from_slice(low);
        Self { bytes, len: HEADER_LEN + high.len() }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Seals packets: writes each IV, encrypts each text in place, writes each ICV, and sets `ok`. A job whose layout is
/// impossible (outside the buffer, no such key, too short, CBC text not whole blocks) gets `ok = false` and is not touched.
///
/// A sequence number must never come twice with one key.
pub fn seal(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey]) {
    each(buf, jobs, keys, EspKey::seal);
}

/// Opens packets: verifies each ICV, then decrypts each text in place, and sets `ok`. With `ok = false` the ICV was wrong
/// or the layout impossible, and the text is unspecified.
pub fn open(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey]) {
    each(buf, jobs, keys, EspKey::open);
}

#[inline]
fn each(
    buf: &mut [u8],
    jobs: &mut [Job],
    keys: &[&EspKey],
    work: impl Fn(&EspKey, &mut [u8], u64) -> Option<()>,
) {
    for i in 0..jobs.len() {
        if let Some(later) = jobs.get(i + AHEAD)
            && later.key != jobs[i].key
            && let Some(key) = keys.get(usize::from(later.key))
        {
            prefetch(*key, HOT_LEN);
        }
        let job = &mut jobs[i];
        job.ok = keys
            .get(usize::from(job.key))
            .zip(packet(buf, job))
            .and_then(|(key, packet)| work(key, packet, job.seq))
            .is_some();
    }
}

/// The packet of a job, if it lies inside the buffer.
#[inline]
fn packet<'a>(buf: &'a mut [u8], job: &Job) -> Option<&'a mut [u8]> {
    let start = job.start as usize;
    buf.get_mut(start..start.checked_add(job.len as usize)?)
}

#[cfg(test)]
mod tests;
