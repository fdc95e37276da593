//! The ICVs of many AH packets at once (RFC 4302), without encryption and without allocation.
//!
//! ```text
//! heads[head ..]:  IP header and extensions, mutable fields zeroed      (may be empty)
//! buf[start ..]:   AH: .. sequence number | IV | ICV | payload
//!                                         `-- field --'
//! authenticated:   head | buf up to the field | zeros for the field | the rest of buf
//!                  (| high half of the sequence number, with ESN)
//! IV:              AES-GMAC only (RFC 4543 section 4)
//! ```
//!
//! The field counts as zeros wherever it lies in the packet (RFC 4302 section 3.3.3.1), with
//! AES-GMAC's IV, which the nonce covers: the caller need not clear it, and a received packet is
//! verified where it is. A field outside of `buf[start .. start + len]` is only written or read.
//!
//! (AES-GMAC puts the parts together in one buffer a thread, which grows to the longest packet.)
//!
//! Not here: which header fields are mutable, and the padding behind the ICV (which is
//! authenticated as it is).

use ironswan_wire::algorithm;
use ironswan_wire::iana::IntegId;

use crate::engines::EngineId;
use crate::suite::{self, AEAD_IV_LEN, GmacKey, IntegKey};
use crate::wipe::{self, KEY_SETUP_STACK, PACKET_STACK};

/// The longest field: HMAC-SHA2-512-256's ICV.
const MAX_FIELD: usize = 32;

/// The integrity key of one SA, ready for use.
pub struct IcvKey {
    engine: Engine,
    field_len: usize,
    esn: bool,
}

impl std::fmt::Debug for IcvKey {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IcvKey").field("esn", &self.esn).finish_non_exhaustive()
    }
}

#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
enum Engine {
    /// There is no key yet: nothing is signed or verified.
    Unset,
    Integ(IntegKey),
    Gmac(GmacKey),
    #[cfg(feature = "null-engine")]
    Null,
}

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcvJob {
    /// Offset of the zeroed headers in `heads`, in bytes.
    pub head: u32,
    /// Length of the zeroed headers, in bytes.
    pub head_len: u32,
    /// Offset of the rest of the packet in `buf`, in bytes.
    pub start: u32,
    /// Length of that rest, in bytes.
    pub len: u32,
    /// Offset of the field (IV and ICV) in `buf`, in bytes.
    pub field: u32,
    /// The sequence number; its high half counts with ESN only.
    pub seq: u64,
    /// Index of its key in `keys`.
    pub key: u16,
    /// Result: signed, or authentic.
    pub ok: bool,
}

/// Length of an algorithm's keying material in bytes, with the salt of AES-GMAC. `None` when it is
/// not supported.
pub fn key_len(integ: IntegId) -> Option<usize> {
    algorithm::integ(integ).map(|shape| shape.key_len)
}

impl IcvKey {
    /// Prepares the key of an SA. `None` when the algorithm is not supported or the key has the
    /// wrong length.
    pub fn new(integ: IntegId, key: &[u8], esn: bool) -> Option<Box<Self>> {
        let mut this = Box::new(Self::unset(integ, esn)?);
        this.set(integ, key)?;
        Some(this)
    }

    /// The lengths of an algorithm, without a key so far: it signs and verifies nothing. A key is
    /// put in where it stays, since whoever moves a key that was set leaves a copy behind. `None`
    /// when the algorithm is not supported.
    pub fn unset(integ: IntegId, esn: bool) -> Option<Self> {
        let shape = algorithm::integ(integ)?;
        Some(Self { engine: Engine::Unset, field_len: shape.iv_len + shape.icv_len, esn })
    }

    /// Puts the key of the algorithm that [`Self::unset`] was told in place, once. `None`, and no
    /// key, when it has the wrong length.
    pub fn set(&mut self, integ: IntegId, key: &[u8]) -> Option<()> {
        let shape = algorithm::integ(integ)?;
        (key.len() == shape.key_len && matches!(self.engine, Engine::Unset)).then_some(())?;
        #[cfg(feature = "null-engine")]
        if crate::null::chosen() {
            self.engine = Engine::Null;
            return Some(());
        }
        self.engine = if suite::integ_key_len(integ).is_some() {
            Engine::Integ(IntegKey::blank(integ)?)
        } else {
            Engine::Gmac(GmacKey::blank(EngineId::AwsLc, key.len()))
        };
        let done = wipe::after::<KEY_SETUP_STACK, _>(|| match &mut self.engine {
            Engine::Integ(this) => this.set(integ, key),
            Engine::Gmac(this) => this.set(key),
            _ => None,
        });
        if done.is_none() {
            self.engine = Engine::Unset;
        }
        done
    }

    /// Addresses and lengths of the key's parts in memory, without the salt.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<crate::testing::Place> {
        match &self.engine {
            Engine::Integ(key) => key.places(),
            Engine::Gmac(key) => vec![key.place()],
            _ => Vec::new(),
        }
    }

    /// Length of IV and ICV in AH, in bytes, before the padding that IPv6 may want.
    #[inline]
    pub fn field_len(&self) -> usize {
        self.field_len
    }
}

/// The parts of the buffers that a job names by offset and length, after these were checked.
struct JobSlices<'a> {
    head: &'a [u8],
    /// Before and behind the field.
    parts: [&'a [u8]; 2],
    /// Zeros in place of the field, as long as it lies inside.
    zeros: &'static [u8],
}

static ZEROS: [u8; MAX_FIELD] = [0; MAX_FIELD];

fn range(start: u32, len: usize, within: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = start as usize;
    let end = start.checked_add(len)?;
    (end <= within.len()).then_some(start..end)
}

fn layout<'a>(heads: &'a [u8], buf: &'a [u8], job: &IcvJob, key: &IcvKey) -> Option<JobSlices<'a>> {
    let head = &heads[range(job.head, job.head_len as usize, heads)?];
    let body = range(job.start, job.len as usize, buf)?;
    let field = range(job.field, key.field_len, buf)?;
    if field.end <= body.start || body.end <= field.start {
        return Some(JobSlices { head, parts: [&buf[body], &[]], zeros: &[] });
    }
    // A field that is half inside is nobody's packet.
    let inside = body.start <= field.start && field.end <= body.end;
    inside.then(|| JobSlices {
        head,
        parts: [&buf[body.start..field.start], &buf[field.end..body.end]],
        zeros: &ZEROS[..key.field_len],
    })
}

/// Signs packets: writes each field (IV and ICV) and sets `ok`. A job whose numbers do not fit gets
/// `ok = false` and nothing is written for it.
///
/// A sequence number must never come twice with one key.
pub fn sign(heads: &[u8], buf: &mut [u8], jobs: &mut [IcvJob], keys: &[&IcvKey]) {
    sign_all(heads, buf, jobs, keys);
    forget(keys);
}

/// Overwrites what keys have left on the stack, once for all packets: those of AES-GMAC leave parts
/// of themselves.
#[inline]
fn forget(keys: &[&IcvKey]) {
    if keys.iter().any(|key| matches!(key.engine, Engine::Gmac(_))) {
        wipe::overwrite::<PACKET_STACK>();
    }
}

/// Has a frame of its own, which [`forget`] overwrites.
#[inline(never)]
fn sign_all(heads: &[u8], buf: &mut [u8], jobs: &mut [IcvJob], keys: &[&IcvKey]) {
    for job in jobs {
        job.ok = keys.get(usize::from(job.key)).and_then(|key| sign_one(heads, buf, job, key)).is_some();
    }
}

fn sign_one(heads: &[u8], buf: &mut [u8], job: &IcvJob, key: &IcvKey) -> Option<()> {
    let number = job.seq.to_be_bytes();
    let mut field = [0; MAX_FIELD];
    let field = &mut field[..key.field_len];
    let JobSlices { head, parts: [before, behind], zeros } = layout(heads, buf, job, key)?;
    let parts = [head, before, zeros, behind, if key.esn { &number[..4] } else { &[] }];
    match &key.engine {
        Engine::Unset => return None,
        Engine::Integ(integ) => integ.sign(&parts, field),
        Engine::Gmac(gmac) => {
            let (iv, icv) = field.split_first_chunk_mut::<AEAD_IV_LEN>()?;
            *iv = number;
            gmac.sign(&number, &parts, icv);
        }
        #[cfg(feature = "null-engine")]
        Engine::Null => drop(std::hint::black_box(&parts)),
    }
    let at = range(job.field, key.field_len, buf)?;
    buf[at].copy_from_slice(field);
    Some(())
}

/// Verifies packets: `ok` says which have the right ICV. Nothing is written to them.
pub fn verify(heads: &[u8], buf: &[u8], jobs: &mut [IcvJob], keys: &[&IcvKey]) {
    verify_all(heads, buf, jobs, keys);
    forget(keys);
}

/// Has a frame of its own, which [`forget`] overwrites.
#[inline(never)]
fn verify_all(heads: &[u8], buf: &[u8], jobs: &mut [IcvJob], keys: &[&IcvKey]) {
    for job in jobs {
        job.ok =
            keys.get(usize::from(job.key)).and_then(|key| verify_one(heads, buf, job, key)) == Some(true);
    }
}

fn verify_one(heads: &[u8], buf: &[u8], job: &IcvJob, key: &IcvKey) -> Option<bool> {
    let number = job.seq.to_be_bytes();
    let JobSlices { head, parts: [before, behind], zeros } = layout(heads, buf, job, key)?;
    let parts = [head, before, zeros, behind, if key.esn { &number[..4] } else { &[] }];
    let field = &buf[range(job.field, key.field_len, buf)?];
    Some(match &key.engine {
        Engine::Unset => false,
        Engine::Integ(integ) => integ.verify(&parts, field),
        Engine::Gmac(gmac) => {
            let (iv, icv) = field.split_first_chunk::<AEAD_IV_LEN>()?;
            gmac.verify(iv, &parts, icv)
        }
        #[cfg(feature = "null-engine")]
        Engine::Null => std::hint::black_box(&parts).len() == parts.len(),
    })
}

#[cfg(test)]
mod tests;
