//! ESP packets, many at once (RFC 4303), in place and without allocation.
//!
//! ```text
//! buf[start .. start + len]:
//!   SPI (4) | sequence number, low half (4) | IV | text: payload, padding, trailer | ICV
//!   `------- written by the caller -------'  `-- written or encrypted by seal --------'
//! ```
//!
//! | | IV | authenticated |
//! |---|---|---|
//! | AES-GCM, AES-CCM, ChaCha20-Poly1305 | 8: the sequence number | SPI, sequence number; text |
//! | the same with implicit IV | none | the same |
//! | AES-GMAC, which encrypts nothing | 8: the sequence number | SPI, sequence number, IV, text |
//! | AES-CTR | 8: the sequence number | SPI ... ciphertext (, high half with ESN) |
//! | AES-CBC | 16: AES of the sequence number | the same |
//! | 3DES-CBC | 8: the first half of the same | the same |
//! | NULL | none | the same |
//!
//! RFCs: AES-GCM 4106, AES-CCM 4309, ChaCha20-Poly1305 7634, implicit IV 8750, AES-GMAC 4543,
//! AES-CTR 3686, AES-CBC 3602, 3DES-CBC 2451, NULL 2410.
//!
//! The 64-bit sequence number is never used twice with one key, so it may be the IV of AEADs and of
//! AES-CTR. For CBC, AES under a random key of the SA's makes an unpredictable IV of it. An
//! implicit IV is the sequence number of 32 bits, or of 64 bits with ESN. An AEAD authenticates the
//! high half with ESN only.
//!
//! AES-GMAC with ESN authenticates a copy, in one buffer a thread that grows to the longest packet.
//!
//! Beside the last four stands an integrity algorithm: HMAC with MD5 (RFC 2403), SHA-1 (RFC 2404)
//! or SHA-2 (RFC 4868), AES-XCBC (RFC 3566) or AES-CMAC (RFC 4494). It is verified before anything
//! is decrypted.
//!
//! One core, nanoseconds per packet (`benches/packets.rs`; x86-64 with AVX-512, VAES, SHA
//! extensions):
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
//! | AES-128-GMAC, without / with ESN (sealing) | 50 / 65 | 120 / 138 |
//! | AES-128-CCM | 122 / 129 | 993 / 999 |
//! | AES-256-CCM | 148 / 152 | 1,321 / 1,326 |
//! | AES-128-CTR, HMAC-SHA2-256 | 189 / 192 | 1,048 / 1,051 |
//! | AES-128-CBC, HMAC-SHA1 | 215 / 167 | 1,569 / 912 |
//! | AES-128-CBC, AES-CMAC or AES-XCBC | 165 / 105 | 1,598 / 928 |
//! | AES-128-CBC, HMAC-MD5 | 288 / 256 | 2,578 / 1,938 |
//! | 3DES-CBC, HMAC-SHA1 | 1,960 / 1,828 | 39,821 / 37,462 |
//! | AES-128-GCM, 10,000 SAs at random | 102 / 99 | 202 / 218 |
//!
//! Through aws-lc-rs (`LessSafeKey`, the same functions below) AES-128-GCM was seen to take 73 / 67
//! and 160 / 158: calling `EVP_AEAD_CTX_seal_scatter` directly is as fast, puts the ICV where it
//! belongs and keeps the key inside [`EspKey`]. A shorter ICV or an implicit IV changes nothing
//! that can be measured. CBC, CCM's and CMAC's chains go block after block: only an engine that
//! works on several packets at once could do better.
//!
//! Not here: padding and trailer, replay, lifetimes, where a packet comes from and goes.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `setup` | puts the keys of an SA in place |
//! | `cipher` | ciphers that need an integrity algorithm beside them |
//! | `lanes` | packets that an engine wants side by side |
//! | `across` | test: every engine against the others |
//! | `edges` | test: packets between pages that fault |
//! | `vectors` | test: whole packets from RFCs and other programs |
//! | `wiped` | test: searches the memory of a process for dropped keys |

use ironswan_wire::algorithm;
use ironswan_wire::iana::IntegId;
use ironswan_wire::proposal::EspSuite;

use crate::engine::prefetch::prefetch;
use crate::suite::{self, AEAD_IV_LEN, GmacKey, IntegKey, SaltedKey};
use crate::wipe::{self, PACKET_STACK};

mod cipher;
mod lanes;
mod setup;

use self::cipher::Cipher;

/// SPI and the low half of the sequence number.
const HEADER_LEN: usize = 8;
/// Pad length and next header: no text is shorter (RFC 4303 section 2).
const TRAILER_LEN: usize = 2;
/// Limits the packets of a second engine, in bytes: libipsec-mb counts the bytes of a lane in 16
/// bits.
const MAX_SECOND_LEN: u32 = 0xf000;
/// Bit of [`KeyParams::special`]: the second engine works on packets side by side.
const LANES: u8 = 1;
/// Bit of [`KeyParams::special`]: an engine leaves parts of the key on the stack, which is
/// overwritten after each batch.
const LEAVES_COPIES: u8 = 2;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Number of jobs ahead for which a key is fetched into the cache.
const PREFETCH_AHEAD: usize = 4;
/// Bytes of a key that are fetched: all that the AES-GCM of aws-lc reads. (CBC and HMAC keys are
/// longer, but take so long to use that their first lines matter little.)
const PREFETCH_LEN: usize = 704;

/// The keys of one SA, ready for use: key schedules, powers of H and HMAC states are inside the
/// value, which is at most 1.5 KiB, so that it can lie in a slab beside the SA. Where a second
/// engine takes part, its keys are on the heap.
///
/// Keys are expanded where they stay ([`Self::unset`], [`Self::set`]) and wiped there: whoever
/// moves a key that was set leaves a copy behind.
///
/// The first cache line has everything that is asked beside the key schedule.
#[repr(C, align(64))]
pub struct EspKey {
    params: KeyParams,
    second: Option<Box<SecondEngine>>,
    engine: Engine,
}

/// The bytes of a key that are fetched into the cache before a packet is sealed or opened.
#[derive(Clone, Copy)]
struct PrefetchRange {
    /// For packets up to this length, the bytes before `short_from` are left out, but for the first
    /// cache line.
    short_len: u32,
    short_from: usize,
    to: usize,
}

impl PrefetchRange {
    const ALL: Self = Self { short_len: 0, short_from: 0, to: PREFETCH_LEN };

    /// Starts to load a key for a packet of this length.
    #[inline]
    fn prefetch(&self, key: &EspKey, len: u32) {
        let from = if len <= self.short_len { self.short_from } else { LINE };
        prefetch(key, 0..LINE);
        prefetch(key, from..self.to);
    }
}

/// Parameters of a key that each packet needs before the key itself. Lengths are in bytes.
#[derive(Clone, Copy)]
struct KeyParams {
    iv_len: u8,
    icv_len: u8,
    block_len: u8,
    /// The text is a multiple of this, or cannot be decrypted: a power of two, 1 except for CBC.
    whole: u8,
    esn: bool,
    /// The IV of an AEAD is not in the packet (RFC 8750).
    implicit_iv: bool,
    /// The second engine gets packets side by side when a batch has this many; 0 when it takes one
    /// at a time.
    lanes: u8,
    /// Bits for keys whose packets need another way than plain ones: [`LANES`], [`LEAVES_COPIES`].
    /// One byte holds all of them, so that the engine's key stays at the beginning of a cache line.
    special: u8,
    /// Lengths of packets that the second engine gets: the first such length, and their number.
    second_from: u32,
    second_span: u32,
}

impl KeyParams {
    #[inline]
    fn is_for_second(&self, len: u32) -> bool {
        len.wrapping_sub(self.second_from) < self.second_span
    }
}

impl std::fmt::Debug for EspKey {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EspKey").field("esn", &self.params.esn).finish_non_exhaustive()
    }
}

/// The engine that seals and opens packet by packet, with its expanded key.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
#[repr(u8)]
enum Engine {
    /// There is no key yet: nothing is sealed or opened.
    Unset,
    Aead(SaltedKey),
    Gmac(GmacKey),
    Both {
        cipher: Cipher,
        integ: IntegKey,
    },
    #[cfg(feature = "null-engine")]
    Null,
}

/// The key of a second engine, which gets packets of some lengths. On the heap, so that its size
/// matters little.
#[allow(clippy::large_enum_variant, reason = "most SAs have none")]
enum SecondEngine {
    Aead(SaltedKey),
    #[cfg(target_arch = "x86_64")]
    TripleDes(crate::engine::avx2::TripleDesKey),
    #[cfg(ipsec_mb)]
    Lanes(crate::engine::ipsec_mb::lanes::LaneKey),
}

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// Offset of the packet in the buffer, in bytes.
    pub start: u32,
    /// Length of the packet from SPI to ICV, in bytes.
    pub len: u32,
    /// The sequence number; its high half counts with ESN only.
    pub seq: u64,
    /// Index of its key in `keys`.
    pub key: u16,
    /// Result: sealed, or opened and authentic.
    pub ok: bool,
}

impl EspKey {
    /// Which bytes of the key are fetched for a packet of this length. The first key of a batch
    /// answers for all: to ask each would be to wait for it.
    #[inline]
    fn prefetch_range(&self) -> PrefetchRange {
        match &self.engine {
            Engine::Aead(key) => key.hot().map_or(PrefetchRange::ALL, |(short, used)| {
                let at = std::ptr::from_ref(key).addr() - std::ptr::from_ref(self).addr();
                let short_len = (HEADER_LEN + self.iv_len() + short + self.icv_len()) as u32;
                PrefetchRange { short_len, short_from: at + used.start, to: at + used.end }
            }),
            _ => PrefetchRange::ALL,
        }
    }

    /// Length of the IV in bytes.
    #[inline]
    pub fn iv_len(&self) -> usize {
        usize::from(self.params.iv_len)
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub fn icv_len(&self) -> usize {
        usize::from(self.params.icv_len)
    }

    /// The text with its trailer is a multiple of this many bytes: 16 for AES-CBC, 8 for 3DES-CBC,
    /// else 4 (RFC 4303 section 2.4).
    #[inline]
    pub fn block_len(&self) -> usize {
        usize::from(self.params.block_len)
    }

    /// Splits a packet; `None` when it is too short, or CBC text is not whole blocks.
    #[inline]
    fn split<'a>(&self, packet: &'a mut [u8]) -> Option<Fields<'a>> {
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_LEN>()?;
        let (iv, rest) = rest.split_at_mut_checked(self.iv_len())?;
        let text_len = rest.len().checked_sub(self.icv_len())?;
        let (text, icv) = rest.split_at_mut(text_len);
        let whole = text.len() & (usize::from(self.params.whole) - 1) == 0;
        (text.len() >= TRAILER_LEN && whole).then_some(Fields { header, iv, text, icv })
    }

    /// The sequence number's high half, as far as it is authenticated.
    #[inline]
    fn high<'a>(&self, bytes: &'a [u8; 8]) -> &'a [u8] {
        if self.params.esn { &bytes[..4] } else { &[] }
    }

    /// The AEAD key for a packet of this length.
    #[inline]
    fn aead<'a>(&'a self, main: &'a SaltedKey, len: usize) -> &'a SaltedKey {
        match self.second.as_deref() {
            Some(SecondEngine::Aead(key)) if self.params.is_for_second(len as u32) => key,
            _ => main,
        }
    }

    #[inline]
    fn seal(&self, packet: &mut [u8], seq: u64) -> Option<()> {
        let len = packet.len();
        if let Engine::Gmac(key) = &self.engine {
            return self.sign(key, packet, seq);
        }
        let Fields { header, iv, text, icv } = self.split(packet)?;
        let number = seq.to_be_bytes();
        let high = self.high(&number);
        match &self.engine {
            Engine::Aead(key) => {
                if self.params.implicit_iv {
                    // The IV must be the one that the receiver computes, which does not see the
                    // high half of the number; without ESN a number beyond 32 bits has an IV that
                    // was used.
                    let expected = if self.params.esn { seq } else { u64::from(seq as u32) };
                    (expected == seq && header[4..] == number[4..]).then_some(())?;
                } else {
                    iv.copy_from_slice(&number);
                }
                self.aead(key, len).seal(Aad::new(header, high).bytes(), &number, text, icv);
            }
            Engine::Both { cipher, integ } => {
                cipher.write_iv(&number, iv);
                cipher.encrypt(iv, text)?;
                integ.sign(&[header, iv, text, high], icv);
            }
            Engine::Gmac(_) | Engine::Unset => return None,
            #[cfg(feature = "null-engine")]
            Engine::Null => icv.fill(0),
        }
        Some(())
    }

    #[inline]
    fn open(&self, packet: &mut [u8], seq: u64) -> Option<()> {
        let len = packet.len();
        if let Engine::Gmac(key) = &self.engine {
            return self.verify(key, packet, seq);
        }
        let Fields { header, iv, text, icv } = self.split(packet)?;
        let number = seq.to_be_bytes();
        let high = self.high(&number);
        match &self.engine {
            Engine::Aead(key) => {
                let mut implicit = [0; AEAD_IV_LEN];
                let iv: &[u8; AEAD_IV_LEN] = if self.params.implicit_iv {
                    // RFC 8750 section 4: the low half as it came, the high half as it was
                    // authenticated, else zero.
                    implicit[..high.len()].copy_from_slice(high);
                    implicit[4..].copy_from_slice(&header[4..]);
                    &implicit
                } else {
                    (&*iv).try_into().ok()?
                };
                self.aead(key, len).open(Aad::new(header, high).bytes(), iv, text, icv).then_some(())
            }
            Engine::Both { cipher, integ } => {
                integ.verify(&[header, iv, text, high], icv).then_some(())?;
                cipher.decrypt(iv, text)
            }
            Engine::Gmac(_) | Engine::Unset => None,
            #[cfg(feature = "null-engine")]
            Engine::Null => Some(()),
        }
    }

    /// Writes IV and ICV of a packet that is not encrypted.
    fn sign(&self, key: &GmacKey, packet: &mut [u8], seq: u64) -> Option<()> {
        self.split(packet)?;
        let number = seq.to_be_bytes();
        packet.get_mut(HEADER_LEN..HEADER_LEN + AEAD_IV_LEN)?.copy_from_slice(&number);
        let (body, icv) = packet.split_at_mut(packet.len() - self.icv_len());
        match self.high(&number) {
            [] => key.sign(&number, &[body], icv),
            high => key.sign(&number, &[&body[..4], high, &body[4..]], icv),
        }
        Some(())
    }

    /// Verifies a packet that is not encrypted.
    fn verify(&self, key: &GmacKey, packet: &mut [u8], seq: u64) -> Option<()> {
        self.split(packet)?;
        let number = seq.to_be_bytes();
        let (body, icv) = packet.split_at(packet.len() - self.icv_len());
        let iv: &[u8; AEAD_IV_LEN] = body.get(HEADER_LEN..)?.first_chunk()?;
        let authentic = match self.high(&number) {
            [] => key.verify(iv, &[body], icv),
            high => key.verify(iv, &[&body[..4], high, &body[4..]], icv),
        };
        authentic.then_some(())
    }
}

/// How much keying material an SA's direction takes: for encryption with salt, and for integrity,
/// in bytes. `None` when the suite is not supported: an unknown algorithm, an AEAD (or AES-GMAC)
/// beside an integrity algorithm, or anything else without one (RFC 4303 section 3.2 for NULL; RFC
/// 3686 section 6 and RFC 8221 section 4 for the others).
pub fn keymat_lens(suite: &EspSuite) -> Option<(usize, usize)> {
    let encr = algorithm::encr_keymat_len(suite.encr, suite.key_bits)?;
    // NONE may be spelt out (RFC 4106 section 4, RFC 7296 section 3.3.3).
    match suite.integ.filter(|id| *id != IntegId::NONE) {
        None => suite.encr.is_aead().then_some((encr, 0)),
        Some(id) if !suite.encr.is_aead() => Some((encr, suite::integ_key_len(id)?)),
        Some(_) => None,
    }
}

/// The parts of a packet.
struct Fields<'a> {
    header: &'a mut [u8; HEADER_LEN],
    iv: &'a mut [u8],
    text: &'a mut [u8],
    icv: &'a mut [u8],
}

/// Additional authenticated data of an AEAD: SPI and sequence number, 8 bytes, or 12 with ESN (RFC
/// 4106 section 5).
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

/// Seals packets: writes each IV, encrypts each text in place, writes each ICV, and sets `ok`. A
/// job whose layout is impossible (outside the buffer, no such key, too short, CBC text not whole
/// blocks, an implicit IV that is not the packet's sequence number) gets `ok = false` and is not
/// touched.
///
/// A sequence number must never come twice with one key.
pub fn seal(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey]) {
    each(buf, jobs, keys, EspKey::seal, lanes::seal);
}

/// Opens packets: verifies each ICV, then decrypts each text in place, and sets `ok`. With `ok =
/// false` the ICV was wrong or the layout impossible, and the text is unspecified.
pub fn open(buf: &mut [u8], jobs: &mut [Job], keys: &[&EspKey]) {
    each(buf, jobs, keys, EspKey::open, lanes::open);
}

#[inline]
fn each(
    buf: &mut [u8],
    jobs: &mut [Job],
    keys: &[&EspKey],
    work: impl Fn(&EspKey, &mut [u8], u64) -> Option<()>,
    side_by_side: impl Fn(&mut [u8], &mut [Job], &[&EspKey], usize),
) {
    let (mut waiting, mut copies) = (0, false);
    let hot = keys.first().map_or(PrefetchRange::ALL, |key| key.prefetch_range());
    for i in 0..jobs.len() {
        if let Some(later) = jobs.get(i + PREFETCH_AHEAD)
            && later.key != jobs[i].key
            && let Some(key) = keys.get(usize::from(later.key))
        {
            hot.prefetch(key, later.len);
        }
        let job = &mut jobs[i];
        let Some(key) = keys.get(usize::from(job.key)) else {
            job.ok = false;
            continue;
        };
        if key.params.special != 0 {
            copies |= key.params.special & LEAVES_COPIES != 0;
            if key.params.special & LANES != 0 && key.params.is_for_second(job.len) {
                job.ok = false;
                waiting += 1;
                continue;
            }
        }
        job.ok = packet(buf, job).and_then(|packet| work(key, packet, job.seq)).is_some();
    }
    if waiting > 0 {
        side_by_side(buf, jobs, keys, waiting);
    }
    if copies {
        wipe::overwrite::<PACKET_STACK>();
    }
}

/// The packet of a job, if it lies inside the buffer.
#[inline]
fn packet<'a>(buf: &'a mut [u8], job: &Job) -> Option<&'a mut [u8]> {
    let start = job.start as usize;
    buf.get_mut(start..start.checked_add(job.len as usize)?)
}

#[cfg(test)]
mod across;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
#[cfg(test)]
mod wiped;
