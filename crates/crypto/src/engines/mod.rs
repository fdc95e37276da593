//! Which engine (library, or code of our own for one kind of processor) does the work of which
//! suite.
//!
//! ```text
//! Engines::portable()   aws-lc for everything
//! Engines::select(..)   known answers, then a stopwatch: the fastest per suite and size
//! Engines::only(id)     one engine for all that it has, whatever the size of a batch: for tests
//! ```
//!
//! | engine | has | where |
//! |---|---|---|
//! | `aws-lc` | everything | everywhere |
//! | `vaes` | AES-GCM, AES-GMAC | x86-64 with VAES and AVX2 |
//! | `avx2` | 3DES | x86-64 with AVX2 |
//! | `ipsec-mb` | all but CCM, ChaCha20-Poly1305; 3DES with AVX-512 only | x86-64, by feature |
//!
//! The feature that builds `ipsec-mb` in has the same name.
//! A suite that an engine does not have is done by aws-lc. The value goes into the packet engine's
//! settings and from there into every key: nothing here is global.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `select` | the self-test that chooses an engine for each suite and size |

use std::str::FromStr;

use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

mod select;

pub use select::{EngineSelection, MeasuredSuite, Speed};

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineId {
    /// AWS-LC, packet by packet. Everywhere, and for what the others lack.
    AwsLc,
    /// AES-GCM of our own with 256-bit AES instructions.
    Vaes,
    /// 3DES of our own, 32 blocks side by side.
    Avx2,
    /// Intel's multi-buffer library.
    IpsecMb,
}

impl EngineId {
    /// All of them, built in or not.
    pub const ALL: [Self; 4] = [Self::AwsLc, Self::Vaes, Self::Avx2, Self::IpsecMb];

    /// As configuration and lists write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Vaes => "vaes",
            Self::Avx2 => "avx2",
            Self::IpsecMb => "ipsec-mb",
        }
    }

    /// Why it cannot be used here; `None` when it can.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Self::AwsLc => None,
            #[cfg(target_arch = "x86_64")]
            Self::Vaes => {
                (!crate::engine::vaes::available()).then_some("this processor lacks VAES or VPCLMULQDQ")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => (!crate::engine::avx2::available()).then_some("this processor lacks AVX2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Vaes | Self::Avx2 => Some("not built in (x86-64 only)"),
            #[cfg(ipsec_mb)]
            Self::IpsecMb => (!crate::engine::ipsec_mb::available())
                .then_some("this processor lacks AES instructions, or the library's own self-test failed"),
            #[cfg(not(ipsec_mb))]
            Self::IpsecMb => Some("not built in (build on x86-64 with `--features ipsec-mb`)"),
        }
    }

    /// The engines that can be used here, `aws-lc` first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|id| id.missing().is_none())
    }

    /// True when it has a class of suites, and can be used here.
    fn has(self, class: SuiteClass) -> bool {
        let gcm = matches!(class, SuiteClass::Gcm(_) | SuiteClass::Gmac);
        match self {
            Self::AwsLc => true,
            Self::Vaes => gcm && self.missing().is_none(),
            Self::Avx2 => {
                matches!(class, SuiteClass::Both(CipherClass::TripleDes, _)) && self.missing().is_none()
            }
            #[cfg(ipsec_mb)]
            Self::IpsecMb => match class {
                SuiteClass::Both(cipher, _) => crate::engine::ipsec_mb::lanes::has(cipher.lanes()),
                _ => gcm && self.missing().is_none(),
            },
            #[cfg(not(ipsec_mb))]
            Self::IpsecMb => false,
        }
    }
}

impl std::fmt::Display for EngineId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineId {
    type Err = String;

    /// Reads a name. The error is for people: it lists the names, or says why this engine cannot be
    /// used here.
    fn from_str(name: &str) -> Result<Self, String> {
        let id = Self::ALL.into_iter().find(|id| id.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|id| id.name()).collect();
            format!("no engine '{name}'; there are: {}", names.join(", "))
        })?;
        match id.missing() {
            None => Ok(id),
            Some(why) => {
                let here: Vec<_> = Self::available().map(Self::name).collect();
                Err(format!("engine '{id}' cannot be used: {why}; here there are: {}", here.join(", ")))
            }
        }
    }
}

/// Ciphers with an integrity algorithm beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CipherClass {
    Null,
    AesCbc,
    AesCtr,
    TripleDes,
}

impl CipherClass {
    const ALL: [Self; 4] = [Self::Null, Self::AesCbc, Self::AesCtr, Self::TripleDes];

    #[cfg(ipsec_mb)]
    pub(crate) fn lanes(self) -> crate::engine::ipsec_mb::lanes::Cipher {
        use crate::engine::ipsec_mb::lanes::Cipher;
        match self {
            Self::Null => Cipher::Null,
            Self::AesCbc => Cipher::AesCbc,
            Self::AesCtr => Cipher::AesCtr,
            Self::TripleDes => Cipher::TripleDesCbc,
        }
    }
}

const INTEGS: [IntegId; 7] = [
    IntegId::HMAC_SHA1_96,
    IntegId::HMAC_SHA2_256_128,
    IntegId::HMAC_SHA2_384_192,
    IntegId::HMAC_SHA2_512_256,
    IntegId::HMAC_MD5_96,
    IntegId::AES_XCBC_96,
    IntegId::AES_CMAC_96,
];

/// Suites that are measured together and get the same engine. Key lengths share a class where only
/// the number of rounds differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SuiteClass {
    /// With the index of the key length: 128, 192, 256.
    Gcm(u8),
    ChaCha,
    Ccm,
    Gmac,
    /// With the index in [`INTEGS`].
    Both(CipherClass, u8),
}

const CLASSES: usize = 6 + CipherClass::ALL.len() * INTEGS.len();

impl SuiteClass {
    /// `None` for suites that no key is made of.
    pub(crate) fn of(suite: &EspSuite) -> Option<Self> {
        let both = |cipher| {
            let at = INTEGS.iter().position(|id| Some(*id) == suite.integ)?;
            Some(Self::Both(cipher, at as u8))
        };
        match suite.encr {
            EncrId::AES_GCM_8 | EncrId::AES_GCM_12 | EncrId::AES_GCM_16 | EncrId::AES_GCM_16_IIV => {
                Some(Self::Gcm((suite.key_bits.checked_sub(128)? / 64).min(2) as u8))
            }
            EncrId::CHACHA20_POLY1305 | EncrId::CHACHA20_POLY1305_IIV => Some(Self::ChaCha),
            EncrId::AES_CCM_8 | EncrId::AES_CCM_12 | EncrId::AES_CCM_16 | EncrId::AES_CCM_8_IIV => {
                Some(Self::Ccm)
            }
            EncrId::NULL_AES_GMAC => Some(Self::Gmac),
            EncrId::NULL => both(CipherClass::Null),
            EncrId::AES_CBC => both(CipherClass::AesCbc),
            EncrId::AES_CTR => both(CipherClass::AesCtr),
            EncrId::DES3 => both(CipherClass::TripleDes),
            _ => None,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Gcm(bits) => usize::from(bits),
            Self::ChaCha => 3,
            Self::Ccm => 4,
            Self::Gmac => 5,
            Self::Both(cipher, integ) => 6 + cipher as usize * INTEGS.len() + usize::from(integ),
        }
    }

    /// All, in the order of [`Self::index`].
    fn all() -> impl Iterator<Item = Self> {
        let both = CipherClass::ALL
            .into_iter()
            .flat_map(|cipher| (0..INTEGS.len() as u8).map(move |integ| Self::Both(cipher, integ)));
        [0, 1, 2].map(Self::Gcm).into_iter().chain([Self::ChaCha, Self::Ccm, Self::Gmac]).chain(both)
    }

    /// The suite that stands for it, and how `swanctl` would write it.
    fn suite(self) -> (EspSuite, String) {
        let suite = |encr, key_bits, integ| EspSuite { encr, key_bits, integ, ke: None, esn: true };
        match self {
            Self::Gcm(bits) => {
                let bits = 128 + 64 * u16::from(bits);
                (suite(EncrId::AES_GCM_16, bits, None), format!("aes{bits}gcm16"))
            }
            Self::ChaCha => (suite(EncrId::CHACHA20_POLY1305, 256, None), "chacha20poly1305".into()),
            Self::Ccm => (suite(EncrId::AES_CCM_16, 128, None), "aes128ccm16".into()),
            Self::Gmac => (suite(EncrId::NULL_AES_GMAC, 128, None), "aes128gmac".into()),
            Self::Both(cipher, integ) => {
                let integ = INTEGS[usize::from(integ)];
                let (encr, bits, name) = match cipher {
                    CipherClass::Null => (EncrId::NULL, 0, "null"),
                    CipherClass::AesCbc => (EncrId::AES_CBC, 128, "aes128"),
                    CipherClass::AesCtr => (EncrId::AES_CTR, 128, "aes128ctr"),
                    CipherClass::TripleDes => (EncrId::DES3, 0, "3des"),
                };
                let hash = match integ {
                    IntegId::HMAC_MD5_96 => "md5",
                    IntegId::HMAC_SHA1_96 => "sha1",
                    IntegId::HMAC_SHA2_256_128 => "sha256",
                    IntegId::HMAC_SHA2_384_192 => "sha384",
                    IntegId::HMAC_SHA2_512_256 => "sha512",
                    IntegId::AES_XCBC_96 => "aesxcbc",
                    _ => "aescmac",
                };
                (suite(encr, bits, Some(integ)), format!("{name}-{hash}"))
            }
        }
    }
}

/// The engines chosen for one suite: one for short packets, one for long ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EngineChoice {
    /// For packets shorter than `from`.
    pub(crate) small: EngineId,
    /// For the others.
    pub(crate) large: EngineId,
    /// Bytes of a packet, from SPI to ICV.
    pub(crate) from: u16,
}

impl EngineChoice {
    pub(crate) const fn one(id: EngineId) -> Self {
        Self { small: id, large: id, from: 0 }
    }

    /// The lengths for which `id` is used, from and up to (without).
    pub(crate) fn span(self, id: EngineId) -> std::ops::Range<u32> {
        let from = u32::from(self.from);
        match (self.small == id, self.large == id) {
            (true, true) => 0..u32::MAX,
            (true, false) => 0..from,
            (false, true) => from..u32::MAX,
            (false, false) => 0..0,
        }
    }
}

/// Which engine does which suite. A small value: it is copied into settings and asked when a key is
/// made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Engines {
    choices: [EngineChoice; CLASSES],
    /// An engine that works on packets side by side gets them when a batch has so many for it.
    lanes_from: u8,
}

/// Packets side by side that are worth it: with fewer, most of eight to 32 lanes stay empty. By
/// libipsec-mb on AVX-512, AES-CBC with HMAC-SHA256 takes 1.4 to 1.6 times aws-lc's time for 1,400
/// bytes in fours, 0.9 times in sixes to eights.
pub const WORTH: u8 = 8;

impl Engines {
    /// aws-lc for everything.
    pub const fn portable() -> Self {
        Self { choices: [EngineChoice::one(EngineId::AwsLc); CLASSES], lanes_from: WORTH }
    }

    /// One engine for all that it has, and aws-lc for the rest; whatever the number and size of
    /// packets. For tests and benchmarks: [`Self::select`] with a wish leaves single packets to
    /// aws-lc.
    pub fn only(id: EngineId) -> Self {
        Self { lanes_from: 1, ..Self::forced(id) }
    }

    /// [`Self::only`] the engine that `IRONSWAN_ENGINE` names, [`Self::portable`] without it: for
    /// tests and benchmarks.
    ///
    /// # Panics
    /// If there is no such engine, or it cannot be used here.
    pub fn of_environment() -> Self {
        let name = std::env::var("IRONSWAN_ENGINE").ok();
        name.map_or_else(Self::portable, |name| Self::only(name.parse().unwrap_or_else(|e| panic!("{e}"))))
    }

    /// Two engines with a border between small and large packets, for tests.
    #[cfg(test)]
    pub(crate) fn by_size(small: EngineId, large: EngineId, from: u16) -> Self {
        let mut this = Self::portable();
        for class in SuiteClass::all().filter(|class| small.has(*class) && large.has(*class)) {
            this.choices[class.index()] = EngineChoice { small, large, from };
        }
        this
    }

    fn forced(id: EngineId) -> Self {
        let mut this = Self::portable();
        for class in SuiteClass::all().filter(|class| id.has(*class)) {
            this.choices[class.index()] = EngineChoice::one(id);
        }
        this
    }

    pub(crate) fn choice(&self, suite: &EspSuite) -> EngineChoice {
        SuiteClass::of(suite).map_or(EngineChoice::one(EngineId::AwsLc), |class| self.choices[class.index()])
    }

    /// The engine for packets of this suite, `len` bytes from SPI to ICV.
    pub fn engine(&self, suite: &EspSuite, len: usize) -> EngineId {
        let choice = self.choice(suite);
        if len < usize::from(choice.from) { choice.small } else { choice.large }
    }

    pub(crate) fn lanes_from(&self) -> u8 {
        self.lanes_from
    }
}

impl Default for Engines {
    fn default() -> Self {
        Self::portable()
    }
}

impl std::fmt::Debug for Engines {
    /// Says what is not aws-lc's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others =
            SuiteClass::all().zip(&self.choices).filter(|(_, c)| **c != EngineChoice::one(EngineId::AwsLc));
        f.debug_map().entries(others).finish()
    }
}

#[cfg(test)]
mod tests;
