//! From transform ids to algorithms: what [`crate::message`], [`crate::batch`] and [`crate::icv`]
//! have in common.
//!
//! Lengths come from [`ironswan_wire::algorithm`]; here is which of those algorithms exist, and by
//! what.

use std::cell::RefCell;
use std::ops::Range;

use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::secret::ct_eq;
use zeroize::Zeroize;

use crate::block_mac::{BlockMac, BlockMacKey};
use crate::ccm::CcmKey;
use crate::engine::aws_lc_sys::aead::{Aead, AeadKey, MAX_TAG_LEN, NONCE_LEN};
use crate::engine::aws_lc_sys::hmac::{Hash, HmacKey, MAX_LEN};
#[cfg(ipsec_mb)]
use crate::engine::ipsec_mb;
#[cfg(target_arch = "x86_64")]
use crate::engine::vaes;
use crate::engines::EngineId;
#[cfg(test)]
use crate::testing::{Place, place};

/// Length of an AEAD's IV, whether a packet carries it or not (RFC 4106 section 3.1, RFC 4309
/// section 3.1, RFC 4543 section 3.1, RFC 5282 section 3.1, RFC 7634 section 2, RFC 8750 section
/// 3).
pub(crate) const AEAD_IV_LEN: usize = 8;
/// The longest salt: CCM's has 3 bytes, the others' 4.
const MAX_SALT_LEN: usize = 4;

/// Splits keying material that has the length of this algorithm into key and salt. `None` when it
/// has another.
pub(crate) fn key_and_salt(encr: EncrId, key_bits: u16, keymat: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = algorithm::encr_keymat_len(encr, key_bits)?;
    (keymat.len() == len).then(|| keymat.split_at(len - algorithm::encr(encr).map_or(0, |s| s.salt_len)))
}

/// AES-GCM by the length of its key.
fn gcm(key: &[u8]) -> Option<Aead> {
    match key.len() {
        16 => Some(Aead::Aes128Gcm),
        24 => Some(Aead::Aes192Gcm),
        32 => Some(Aead::Aes256Gcm),
        _ => None,
    }
}

/// Key of an AEAD, in the form of the engine that computes it.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
#[repr(u8)]
enum AeadEngineKey {
    Evp(AeadKey),
    #[cfg(target_arch = "x86_64")]
    Vaes(vaes::GcmKey),
    /// On the heap: inline, its alignment would move the others' keys into more cache lines.
    #[cfg(ipsec_mb)]
    IpsecMb(Box<ipsec_mb::gcm::GcmKey>),
    Ccm(CcmKey),
}

impl AeadEngineKey {
    /// AES-GCM by an engine, or by aws-lc where that engine cannot, without a key so far.
    fn gcm(key_len: usize, icv_len: usize, by: EngineId) -> Self {
        let theirs = match by {
            #[cfg(target_arch = "x86_64")]
            EngineId::Vaes => vaes::GcmKey::blank(icv_len).map(Self::Vaes),
            #[cfg(ipsec_mb)]
            EngineId::IpsecMb => {
                ipsec_mb::gcm::GcmKey::blank(key_len, icv_len).map(|key| Self::IpsecMb(Box::new(key)))
            }
            _ => None,
        };
        let _ = key_len;
        theirs.unwrap_or_else(|| Self::Evp(AeadKey::blank()))
    }

    /// Puts a key in place. `aead` is what aws-lc calls the algorithm.
    fn set(&mut self, aead: Aead, key: &[u8], icv_len: usize) -> Option<()> {
        match self {
            Self::Evp(this) => this.set(aead, key, icv_len),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(this) => this.set(key),
            #[cfg(ipsec_mb)]
            Self::IpsecMb(this) => this.set(key),
            Self::Ccm(this) => this.set(key),
        }
    }

    /// True when it leaves parts of its key on the stack with each packet.
    fn leaves_copies(&self) -> bool {
        match self {
            // Copies the powers of H, or ChaCha20's key, to its own frame.
            Self::Evp(_) => true,
            // The compiler has not a register for every round key and power.
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(_) => true,
            #[cfg(ipsec_mb)]
            Self::IpsecMb(_) => false,
            Self::Ccm(_) => false,
        }
    }

    #[cfg(test)]
    fn place(&self) -> Place {
        match self {
            Self::Evp(key) => place(key),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(key) => place(key),
            #[cfg(ipsec_mb)]
            Self::IpsecMb(key) => key.place(),
            Self::Ccm(key) => place(key),
        }
    }

    #[inline]
    fn seal(
        &self,
        salt: &[u8; MAX_SALT_LEN],
        iv: &[u8; AEAD_IV_LEN],
        aad: &[u8],
        text: &mut [u8],
        icv: &mut [u8],
    ) {
        match self {
            Self::Evp(key) => key.seal(&nonce(salt, iv), aad, text, icv),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(key) => key.seal(&nonce(salt, iv), aad, text, icv),
            #[cfg(ipsec_mb)]
            Self::IpsecMb(key) => key.seal(&nonce(salt, iv), aad, text, icv),
            Self::Ccm(key) => key.seal(&ccm_nonce(salt, iv), aad, text, icv),
        }
    }

    #[inline]
    #[must_use]
    fn open(
        &self,
        salt: &[u8; MAX_SALT_LEN],
        iv: &[u8; AEAD_IV_LEN],
        aad: &[u8],
        text: &mut [u8],
        icv: &[u8],
    ) -> bool {
        match self {
            Self::Evp(key) => key.open(&nonce(salt, iv), aad, text, icv),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(key) => key.open(&nonce(salt, iv), aad, text, icv),
            #[cfg(ipsec_mb)]
            Self::IpsecMb(key) => key.open(&nonce(salt, iv), aad, text, icv),
            Self::Ccm(key) => key.open(&ccm_nonce(salt, iv), aad, text, icv),
        }
    }
}

/// True for the combined-mode algorithms that [`SaltedKey`] has. AES-GMAC is not one: it encrypts
/// nothing.
pub(crate) fn is_combined(encr: EncrId) -> bool {
    encr.is_aead() && encr != EncrId::NULL_AES_GMAC && algorithm::encr(encr).is_some()
}

/// An AEAD key with its salt, which lies in front of it: at its end it would be in a cache line of
/// its own.
#[repr(C)]
pub(crate) struct SaltedKey {
    salt: [u8; MAX_SALT_LEN],
    key: AeadEngineKey,
}

impl SaltedKey {
    /// For an engine, without key and salt so far; what that engine does not have is aws-lc's.
    /// `None` for algorithms that are not here.
    pub(crate) fn blank(engine: EngineId, encr: EncrId, key_bits: u16) -> Option<Self> {
        is_combined(encr).then_some(())?;
        let icv_len = algorithm::encr(encr)?.icv_len;
        let key = match encr {
            EncrId::AES_CCM_8 | EncrId::AES_CCM_12 | EncrId::AES_CCM_16 | EncrId::AES_CCM_8_IIV => {
                AeadEngineKey::Ccm(CcmKey::blank(icv_len)?)
            }
            EncrId::CHACHA20_POLY1305 | EncrId::CHACHA20_POLY1305_IIV => AeadEngineKey::Evp(AeadKey::blank()),
            _ => AeadEngineKey::gcm(usize::from(key_bits / 8), icv_len, engine),
        };
        Some(Self { salt: [0; MAX_SALT_LEN], key })
    }

    /// Puts `key | salt` of the algorithm that `blank` was told in place. `None` when the length is
    /// wrong.
    pub(crate) fn set(&mut self, encr: EncrId, key_bits: u16, keymat: &[u8]) -> Option<()> {
        let icv_len = algorithm::encr(encr)?.icv_len;
        let (key, salt) = key_and_salt(encr, key_bits, keymat)?;
        let aead = match encr {
            EncrId::CHACHA20_POLY1305 | EncrId::CHACHA20_POLY1305_IIV => Aead::ChaCha20Poly1305,
            _ => gcm(key)?,
        };
        self.key.set(aead, key, icv_len)?;
        self.salt.get_mut(..salt.len())?.copy_from_slice(salt);
        Some(())
    }

    /// True when it leaves parts of its key on the stack with each packet.
    pub(crate) fn leaves_copies(&self) -> bool {
        self.key.leaves_copies()
    }

    /// Address and length of the key in memory, without the salt.
    #[cfg(test)]
    pub(crate) fn place(&self) -> Place {
        self.key.place()
    }

    /// How long a short text is, and which bytes of this value it needs; what a longer one needs
    /// ends there too. `None` when it is not known.
    #[inline]
    pub(crate) fn hot(&self) -> Option<(usize, Range<usize>)> {
        match &self.key {
            #[cfg(target_arch = "x86_64")]
            AeadEngineKey::Vaes(key) => {
                let at = std::ptr::from_ref(key).addr() - std::ptr::from_ref(self).addr();
                let (short, used) = key.hot();
                Some((short, at + used.start..at + used.end))
            }
            _ => None,
        }
    }

    /// `icv` is as long as the algorithm's.
    #[inline]
    pub(crate) fn seal(&self, aad: &[u8], iv: &[u8; AEAD_IV_LEN], text: &mut [u8], icv: &mut [u8]) {
        self.key.seal(&self.salt, iv, aad, text, icv);
    }

    /// On `false` the text is wiped. An ICV of another length is wrong.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, aad: &[u8], iv: &[u8; AEAD_IV_LEN], text: &mut [u8], icv: &[u8]) -> bool {
        self.key.open(&self.salt, iv, aad, text, icv)
    }
}

impl Drop for SaltedKey {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}

#[inline]
fn nonce(salt: &[u8; MAX_SALT_LEN], iv: &[u8; AEAD_IV_LEN]) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..MAX_SALT_LEN].copy_from_slice(salt);
    nonce[MAX_SALT_LEN..].copy_from_slice(iv);
    nonce
}

/// RFC 4309 section 4: three bytes of salt, eight of IV.
#[inline]
fn ccm_nonce(salt: &[u8; MAX_SALT_LEN], iv: &[u8; AEAD_IV_LEN]) -> [u8; 11] {
    let mut nonce = [0; 11];
    nonce[..3].copy_from_slice(&salt[..3]);
    nonce[3..].copy_from_slice(iv);
    nonce
}

/// AES-GMAC (RFC 4543): AES-GCM over nothing but additional data. It needs an IV that never comes
/// twice with a key.
pub(crate) struct GmacKey(SaltedKey);

thread_local! {
    /// Buffer for the parts of one message, because the library takes additional data in one piece.
    /// As long as the longest packet of this thread; it holds what went over the wire in clear.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl GmacKey {
    /// For an engine, or for aws-lc where that one cannot, and `key | salt` of this length; without
    /// them so far.
    pub(crate) fn blank(engine: EngineId, keymat_len: usize) -> Self {
        let key_len = keymat_len.saturating_sub(MAX_SALT_LEN);
        let key = AeadEngineKey::gcm(key_len, MAX_TAG_LEN, engine);
        Self(SaltedKey { salt: [0; MAX_SALT_LEN], key })
    }

    /// Puts `key | salt` in place. `None` for a length that AES has not.
    pub(crate) fn set(&mut self, keymat: &[u8]) -> Option<()> {
        let (key, salt) = keymat.split_last_chunk::<MAX_SALT_LEN>()?;
        self.0.key.set(gcm(key)?, key, MAX_TAG_LEN)?;
        self.0.salt = *salt;
        Some(())
    }

    /// True when it leaves parts of its key on the stack with each packet.
    pub(crate) fn leaves_copies(&self) -> bool {
        self.0.leaves_copies()
    }

    /// Address and length of the key in memory, without the salt.
    #[cfg(test)]
    pub(crate) fn place(&self) -> Place {
        self.0.place()
    }

    /// Writes the ICV of the parts, 16 bytes.
    #[inline]
    pub(crate) fn sign(&self, iv: &[u8; AEAD_IV_LEN], parts: &[&[u8]], icv: &mut [u8]) {
        gathered(parts, |whole| self.0.seal(whole, iv, &mut [], icv));
    }

    /// True when this is the ICV of the parts, in time that does not depend on where they differ.
    #[inline]
    #[must_use]
    pub(crate) fn verify(&self, iv: &[u8; AEAD_IV_LEN], parts: &[&[u8]], icv: &[u8]) -> bool {
        gathered(parts, |whole| self.0.open(whole, iv, &mut [], icv))
    }
}

/// The parts in one piece. A single part is not copied.
#[inline]
fn gathered<R>(parts: &[&[u8]], work: impl FnOnce(&[u8]) -> R) -> R {
    match parts {
        [whole] => work(whole),
        parts => GATHERED.with_borrow_mut(|buf| {
            buf.clear();
            parts.iter().for_each(|part| buf.extend_from_slice(part));
            work(buf)
        }),
    }
}

/// Key of a MAC that needs no IV.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
enum Mac {
    Hmac(HmacKey),
    Block(BlockMacKey),
}

/// An integrity key, and how much of the MAC is sent.
pub(crate) struct IntegKey {
    key: Mac,
    icv_len: usize,
}

/// Key length of an integrity algorithm that [`IntegKey`] has, in bytes. AES-GMAC is not one: it
/// needs an IV.
pub(crate) fn integ_key_len(id: IntegId) -> Option<usize> {
    algorithm::integ(id).filter(|shape| shape.iv_len == 0).map(|shape| shape.key_len)
}

impl IntegKey {
    /// Of an algorithm, without a key so far. `None` for those that are not here.
    pub(crate) fn blank(id: IntegId) -> Option<Self> {
        let mac = match id {
            IntegId::HMAC_MD5_96 => Mac::Hmac(HmacKey::blank(Hash::Md5)),
            IntegId::HMAC_SHA1_96 => Mac::Hmac(HmacKey::blank(Hash::Sha1)),
            IntegId::HMAC_SHA2_256_128 => Mac::Hmac(HmacKey::blank(Hash::Sha256)),
            IntegId::HMAC_SHA2_384_192 => Mac::Hmac(HmacKey::blank(Hash::Sha384)),
            IntegId::HMAC_SHA2_512_256 => Mac::Hmac(HmacKey::blank(Hash::Sha512)),
            IntegId::AES_XCBC_96 | IntegId::AES_CMAC_96 => Mac::Block(BlockMacKey::blank()),
            _ => return None,
        };
        Some(Self { key: mac, icv_len: algorithm::integ(id)?.icv_len })
    }

    /// Puts a key of the algorithm that `blank` was told in place, once. `None` when the length is
    /// not the algorithm's.
    pub(crate) fn set(&mut self, id: IntegId, key: &[u8]) -> Option<()> {
        if key.len() != integ_key_len(id)? {
            return None;
        }
        match &mut self.key {
            Mac::Hmac(hmac) => {
                hmac.set(key);
                Some(())
            }
            Mac::Block(mac) if id == IntegId::AES_XCBC_96 => mac.set(BlockMac::Xcbc, key),
            Mac::Block(mac) => mac.set(BlockMac::Cmac, key),
        }
    }

    /// Addresses and lengths of the key's parts in memory.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<Place> {
        match &self.key {
            Mac::Hmac(key) => key.places().to_vec(),
            Mac::Block(key) => vec![place(key)],
        }
    }

    /// Length of the ICV in bytes.
    #[inline]
    pub(crate) fn icv_len(&self) -> usize {
        self.icv_len
    }

    /// The MAC of the parts, uncut.
    #[inline]
    fn mac(&self, parts: &[&[u8]]) -> [u8; MAX_LEN] {
        match &self.key {
            Mac::Hmac(key) => key.mac(parts),
            Mac::Block(key) => {
                let mut mac = [0; MAX_LEN];
                let short = key.mac(parts);
                mac[..short.len()].copy_from_slice(&short);
                mac
            }
        }
    }

    /// Writes the ICV of the parts. `icv` is as long as [`Self::icv_len`].
    #[inline]
    pub(crate) fn sign(&self, parts: &[&[u8]], icv: &mut [u8]) {
        icv.copy_from_slice(&self.mac(parts)[..self.icv_len]);
    }

    /// True when this is the ICV of the parts, in time that does not depend on where they differ.
    #[inline]
    #[must_use]
    pub(crate) fn verify(&self, parts: &[&[u8]], icv: &[u8]) -> bool {
        ct_eq(&self.mac(parts)[..self.icv_len], icv)
    }
}
