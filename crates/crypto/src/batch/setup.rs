//! How the keys of an SA are put in place: where they stay, since what is moved leaves a copy, and
//! each for the engines that were chosen for its suite.

use ironswan_wire::algorithm;
use ironswan_wire::iana::EncrId;
use ironswan_wire::proposal::EspSuite;

use super::cipher::Cipher;
#[cfg(ipsec_mb)]
use super::lanes;
use super::{Engine, EspKey, KeyParams, LANES, LEAVES_COPIES, MAX_SECOND_LEN, SecondEngine, keymat_lens};
use crate::engines::{EngineId, Engines};
use crate::rng::Rng;
#[cfg(ipsec_mb)]
use crate::suite;
use crate::suite::{GmacKey, IntegKey, SaltedKey};
use crate::wipe::{self, KEY_SETUP_STACK};

impl SecondEngine {
    /// Of another engine, without keys so far, and how many packets it wants at least (0: it works
    /// packet by packet). `None` when it has nothing of its own for this suite.
    fn blank(id: EngineId, suite: &EspSuite, engines: &Engines) -> Option<(Self, u8)> {
        if suite.encr.is_aead() {
            return Some((Self::Aead(SaltedKey::blank(id, suite.encr, suite.key_bits)?), 0));
        }
        #[cfg(target_arch = "x86_64")]
        if id == EngineId::Avx2 && suite.encr == EncrId::DES3 {
            return Some((
                Self::TripleDes(crate::engine::avx2::TripleDesKey::blank()?),
                engines.lanes_from(),
            ));
        }
        #[cfg(ipsec_mb)]
        if id == EngineId::IpsecMb {
            return Some((Self::Lanes(lanes::blank(suite)?), engines.lanes_from()));
        }
        let _ = engines;
        None
    }

    /// Puts keys in place.
    fn set(&mut self, suite: &EspSuite, encr_key: &[u8], integ_key: &[u8]) -> Option<()> {
        match self {
            Self::Aead(key) => key.set(suite.encr, suite.key_bits, encr_key),
            #[cfg(target_arch = "x86_64")]
            Self::TripleDes(key) => key.set(encr_key),
            #[cfg(ipsec_mb)]
            Self::Lanes(keys) => {
                let (key, _) = suite::key_and_salt(suite.encr, suite.key_bits, encr_key)?;
                keys.set(key, integ_key)
            }
        }?;
        let _ = integ_key;
        Some(())
    }
}

impl EspKey {
    /// Prepares the keys of an SA. The salt of an AEAD (the nonce of AES-CTR) is the end of
    /// `encr_key`; with an AEAD or AES-GMAC `integ_key` is empty. `rng` makes the key for CBC's
    /// IVs. `None` when the suite is not supported, a key has the wrong length, or a 3DES key is a
    /// single DES key in disguise. For aws-lc: see [`Self::with_engines`].
    pub fn new(suite: &EspSuite, encr_key: &[u8], integ_key: &[u8], rng: &mut dyn Rng) -> Option<Box<Self>> {
        Self::with_engines(suite, encr_key, integ_key, rng, &Engines::portable())
    }

    /// The same for the engines that were chosen. Packets are the same bytes with all of them.
    pub fn with_engines(
        suite: &EspSuite,
        encr_key: &[u8],
        integ_key: &[u8],
        rng: &mut dyn Rng,
        engines: &Engines,
    ) -> Option<Box<Self>> {
        let mut this = Box::new(Self::unset(suite)?);
        this.set(suite, encr_key, integ_key, rng, engines)?;
        Some(this)
    }

    /// Puts keys in place, once, for a suite with the lengths of that which [`Self::unset`] was
    /// told: see [`Self::with_engines`]. After `None` there is no key.
    pub fn set(
        &mut self,
        suite: &EspSuite,
        encr_key: &[u8],
        integ_key: &[u8],
        rng: &mut dyn Rng,
        engines: &Engines,
    ) -> Option<()> {
        let (encr_len, integ_len) = keymat_lens(suite)?;
        if encr_key.len() != encr_len || integ_key.len() != integ_len || !matches!(self.engine, Engine::Unset)
        {
            return None;
        }
        #[cfg(feature = "null-engine")]
        if crate::null::chosen() {
            self.engine = Engine::Null;
            return Some(());
        }
        let done =
            wipe::after::<KEY_SETUP_STACK, _>(|| self.expand(suite, encr_key, integ_key, rng, engines));
        if done.is_none() {
            (self.engine, self.second) = (Engine::Unset, None);
        }
        done
    }

    fn expand(
        &mut self,
        suite: &EspSuite,
        encr_key: &[u8],
        integ_key: &[u8],
        rng: &mut dyn Rng,
        engines: &Engines,
    ) -> Option<()> {
        let choice = engines.choice(suite);
        // Without keys first, so that what moves into its place is no secret.
        self.engine = if suite.encr == EncrId::NULL_AES_GMAC {
            Engine::Gmac(GmacKey::blank(choice.large, encr_key.len()))
        } else if suite.encr.is_aead() {
            Engine::Aead(SaltedKey::blank(choice.large, suite.encr, suite.key_bits)?)
        } else {
            Engine::Both { cipher: Cipher::blank(suite.encr)?, integ: IntegKey::blank(suite.integ?)? }
        };
        match &mut self.engine {
            Engine::Gmac(key) => key.set(encr_key)?,
            Engine::Aead(key) => key.set(suite.encr, suite.key_bits, encr_key)?,
            Engine::Both { cipher, integ } => {
                integ.set(suite.integ?, integ_key)?;
                cipher.set(suite, encr_key, rng)?;
            }
            Engine::Unset => return None,
            #[cfg(feature = "null-engine")]
            Engine::Null => return None,
        }
        // An AEAD's main engine is that of large packets; with an integrity algorithm beside it
        // always aws-lc, which does what comes alone.
        let is_aead = suite.encr.is_aead();
        let candidates = if is_aead { [choice.small; 2] } else { [choice.small, choice.large] };
        let main = if is_aead { choice.large } else { EngineId::AwsLc };
        if let Some(id) = candidates.into_iter().find(|id| *id != main)
            && suite.encr != EncrId::NULL_AES_GMAC
            && let Some((other, lanes)) = SecondEngine::blank(id, suite, engines)
        {
            let mut other = Box::new(other);
            // The main engine does the suites that this one refuses.
            if other.set(suite, encr_key, integ_key).is_some() {
                let span = choice.span(id);
                self.second = Some(other);
                self.params.lanes = lanes;
                self.params.second_from = span.start;
                self.params.second_span =
                    (span.end - span.start).min(MAX_SECOND_LEN.saturating_sub(span.start));
            }
        }
        let by_engine = match &self.engine {
            Engine::Aead(key) => key.leaves_copies(),
            Engine::Gmac(key) => key.leaves_copies(),
            _ => false,
        };
        let by_second =
            matches!(self.second.as_deref(), Some(SecondEngine::Aead(key)) if key.leaves_copies());
        self.params.special = if by_engine || by_second { LEAVES_COPIES } else { 0 };
        self.params.special |= if self.params.lanes > 0 { LANES } else { 0 };
        Some(())
    }

    /// The lengths of a suite's packets, without keys so far: it seals and opens nothing. `None`
    /// when the suite is not supported.
    pub fn unset(suite: &EspSuite) -> Option<Self> {
        keymat_lens(suite)?;
        let of = algorithm::encr(suite.encr)?;
        let icv_len = match suite.integ {
            Some(id) if !suite.encr.is_aead() => algorithm::integ(id)?.icv_len,
            _ => of.icv_len,
        };
        let is_cbc = matches!(suite.encr, EncrId::AES_CBC | EncrId::DES3);
        let params = KeyParams {
            iv_len: u8::try_from(of.iv_len).ok()?,
            icv_len: u8::try_from(icv_len).ok()?,
            block_len: u8::try_from(of.block_len).ok()?,
            whole: if is_cbc { u8::try_from(of.block_len).ok()? } else { 1 },
            esn: suite.esn,
            implicit_iv: suite.encr.is_aead() && of.iv_len == 0,
            lanes: 0,
            special: 0,
            second_from: 0,
            second_span: 0,
        };
        Some(Self { params, second: None, engine: Engine::Unset })
    }

    /// Addresses and lengths of the keys in memory, without unused space between them.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<crate::testing::Place> {
        use crate::testing::place;

        let mut out = match &self.engine {
            Engine::Aead(key) => vec![key.place()],
            Engine::Gmac(key) => vec![key.place()],
            Engine::Both { cipher, integ } => match cipher {
                Cipher::Null => integ.places(),
                Cipher::AesCbc { key, ivs } => [vec![place(key), place(ivs)], integ.places()].concat(),
                Cipher::TripleDesCbc { key, ivs } => [vec![place(key), place(ivs)], integ.places()].concat(),
                Cipher::AesCtr { key, .. } => [vec![place(key)], integ.places()].concat(),
            },
            _ => Vec::new(),
        };
        out.extend(self.second.as_deref().map(|other| match other {
            SecondEngine::Aead(key) => key.place(),
            #[cfg(target_arch = "x86_64")]
            SecondEngine::TripleDes(key) => place(key),
            #[cfg(ipsec_mb)]
            SecondEngine::Lanes(keys) => keys.place(),
        }));
        out
    }
}
