//! Keys of an IKE_SA and of its CHILD_SAs (RFC 7296 sections 2.14, 2.17, 2.18).
//!
//! ```text
//! SKEYSEED = prf(Ni | Nr, g^ir)                       first IKE_SA     SkeySeed::initial
//!            of each nonce the first 8 bytes, with AES-XCBC and AES-CMAC as PRF
//! SKEYSEED = prf(SK_d (old), g^ir (new) | Ni | Nr)    rekeyed          SkeySeed::rekeyed
//!            with | SK(1) | .. | SK(n) behind         of additional key exchanges (RFC 9370)
//! SKEYSEED = prf+ (PPK, SK_d (before))                 in IKE_INTERMEDIATE  SkeySeed::with_ppk
//! {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr)
//! KEYMAT = prf+(SK_d, [ g^ir (new) | ] Ni | Nr)       IkeKeys::child
//!          with | SK(1) | .. | SK(n) behind, likewise
//! SK_d  = prf+ (PPK, SK_d')                            IkeKeys::mix, of the first IKE_SA alone
//! SK_pi = prf+ (PPK, SK_pi')                           (RFC 8784 section 3)
//! SK_pr = prf+ (PPK, SK_pr')
//! ```
//!
//! The types go one way: a seed is consumed when it becomes keys.

use ironswan_crypto::message::{self, MessageKey};
use ironswan_crypto::prf::{self, Prf};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ike::Geometry;
use ironswan_wire::proposal::{EspSuite, IkeSuite};
use ironswan_wire::secret::Secret;

use crate::negotiate;

/// SKEYSEED, good for one expansion.
pub(crate) struct SkeySeed(Secret);

impl SkeySeed {
    /// Of IKE_SA_INIT. `None` when the PRF is not supported.
    pub(crate) fn initial(suite: &IkeSuite, ni: &[u8], nr: &[u8], shared: &Secret) -> Option<Self> {
        let prf = prf::get(suite.prf)?;
        // "If the negotiated PRF is AES-XCBC-PRF-128 or AES-CMAC-PRF-128, only the first 64 bits of
        // Ni and the first 64 bits of Nr are used in calculating SKEYSEED" (RFC 7296 section 2.14).
        // All of both is in the seed of `expand`.
        let part = |nonce: &[u8]| prf.skeyseed_nonce_len().map_or(nonce.len(), |n| n.min(nonce.len()));
        let key = [&ni[..part(ni)], &nr[..part(nr)]].concat();
        Some(Self(prf.mac(&key, &[shared.expose()])))
    }

    /// Of a rekeyed IKE_SA: "the old IKE SA's PRF MUST be used" (RFC 7296 section 2.18), which
    /// `old` knows. `more`: secrets of additional key exchanges, in their order (RFC 9370 section
    /// 2.2.4).
    pub(crate) fn rekeyed(old: &IkeKeys, ni: &[u8], nr: &[u8], shared: &Secret, more: &[Secret]) -> Self {
        let parts: Vec<&[u8]> =
            [shared.expose(), ni, nr].into_iter().chain(more.iter().map(Secret::expose)).collect();
        Self(old.prf.mac(old.sk_d.expose(), &parts))
    }

    /// Of keys that stand, with a post-quantum preshared key: `prf+ (PPK, SK_d)`, as long as the
    /// output of the PRF (RFC 9867 section 3.1).
    pub(crate) fn with_ppk(keys: &IkeKeys, ppk: &Secret) -> Self {
        Self(prf::prf_plus(keys.prf, ppk.expose(), &[keys.sk_d.expose()], keys.prf.output_len()))
    }

    /// All keys of the IKE_SA.
    pub(crate) fn expand(
        self,
        suite: &IkeSuite,
        ni: &[u8],
        nr: &[u8],
        spi_i: u64,
        spi_r: u64,
        initiator: bool,
    ) -> Option<IkeKeys> {
        let prf = prf::get(suite.prf)?;
        let encr = message::encr_key_len(suite.encr, suite.key_bits)?;
        let integ = match suite.integ {
            Some(id) => message::integ_key_len(id)?,
            None => 0,
        };
        let p = prf.output_len();
        let lens = [p, integ, integ, encr, encr, p, p];
        let seed: [&[u8]; 4] = [ni, nr, &spi_i.to_be_bytes(), &spi_r.to_be_bytes()];
        let all = prf::prf_plus(prf, self.0.expose(), &seed, lens.iter().sum());
        let [sk_d, ai, ar, ei, er, pi, pr] = split(all.expose(), lens)?;
        let key = |e: &Secret, a: &Secret| {
            MessageKey::new(suite.encr, suite.key_bits, suite.integ, e.expose(), a.expose())
        };
        let (to_r, to_i) = (key(&ei, &ai)?, key(&er, &ar)?);
        let geometry = Geometry { iv: to_r.iv_len(), icv: to_r.icv_len(), block: to_r.block_len() };
        let (seal, open) = if initiator { (to_r, to_i) } else { (to_i, to_r) };
        let (p_ours, p_theirs) = if initiator { (pi.clone(), pr.clone()) } else { (pr.clone(), pi.clone()) };
        let log = Box::new([sk_d.clone(), ai, ar, ei, er, pi, pr]);
        Some(IkeKeys { prf, sk_d, p_ours, p_theirs, seal, open, geometry, log: Some(log) })
    }
}

/// The keys of an IKE_SA, from our side.
pub(crate) struct IkeKeys {
    /// The negotiated PRF.
    pub prf: &'static dyn Prf,
    sk_d: Secret,
    /// SK_p of our direction: over our identity.
    pub p_ours: Secret,
    /// SK_p of the peer's direction.
    pub p_theirs: Secret,
    /// Protects what we send.
    pub seal: MessageKey,
    /// Opens what the peer sends.
    pub open: MessageKey,
    /// Lengths for the SK payload.
    pub geometry: Geometry,
    /// SK_d, SK_ai, SK_ar, SK_ei, SK_er, SK_pi, SK_pr for the key log, until it has taken them.
    pub log: Option<Box<[Secret; 7]>>,
}

/// Keys of an IKE_SA with a post-quantum preshared key mixed in, from our side.
pub(crate) struct Mixed {
    sk_d: Secret,
    /// SK_p of our direction.
    pub p_ours: Secret,
    /// SK_p of the peer's direction.
    pub p_theirs: Secret,
}

/// Keys of one direction of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SaKeys {
    /// Encryption, with salt; empty for NULL and AH.
    pub encr: Secret,
    /// Integrity; empty with an AEAD.
    pub integ: Secret,
}

/// KEYMAT of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChildKeys {
    /// For what the initiator of the exchange sends.
    pub initiator: SaKeys,
    /// For what the responder sends.
    pub responder: SaKeys,
}

impl IkeKeys {
    /// The keys that replace SK_d, SK_pi and SK_pr when both sides have this post-quantum preshared
    /// key. Each is as long as the one that it replaces.
    pub(crate) fn mix(&self, ppk: &Secret) -> Mixed {
        let mixed = |key: &Secret| prf::prf_plus(self.prf, ppk.expose(), &[key.expose()], key.len());
        Mixed { sk_d: mixed(&self.sk_d), p_ours: mixed(&self.p_ours), p_theirs: mixed(&self.p_theirs) }
    }

    /// Takes over the keys that [`Self::mix`] has made. `logged`: the keys before, as the key log
    /// has them.
    pub(crate) fn take_mixed(&mut self, mixed: Mixed, logged: Option<Box<[Secret; 7]>>, initiator: bool) {
        (self.sk_d, self.p_ours, self.p_theirs) = (mixed.sk_d, mixed.p_ours, mixed.p_theirs);
        self.log = logged.map(|mut keys| {
            let (pi, pr) =
                if initiator { (&self.p_ours, &self.p_theirs) } else { (&self.p_theirs, &self.p_ours) };
            (keys[0], keys[5], keys[6]) = (self.sk_d.clone(), pi.clone(), pr.clone());
            keys
        });
    }

    /// KEYMAT: "keying material for the SAs carrying data from the initiator to the responder is
    /// taken first", and in each direction encryption before integrity (RFC 7296 section 2.17). AH
    /// has integrity only. `more`: secrets of additional key exchanges, in their order (RFC 9370
    /// section 2.2.4). `None` for a suite not supported.
    pub(crate) fn child(
        &self,
        protocol: ProtocolId,
        suite: &EspSuite,
        (shared, more): (Option<&Secret>, &[Secret]),
        ni: &[u8],
        nr: &[u8],
    ) -> Option<ChildKeys> {
        let (encr, integ) = negotiate::keymat_lens(protocol, suite)?;
        let shared = shared.map_or(&[][..], Secret::expose);
        let seed: Vec<&[u8]> = [shared, ni, nr].into_iter().chain(more.iter().map(Secret::expose)).collect();
        let all = prf::prf_plus(self.prf, self.sk_d.expose(), &seed, 2 * (encr + integ));
        let [ei, ai, er, ar] = split(all.expose(), [encr, integ, encr, integ])?;
        Some(ChildKeys {
            initiator: SaKeys { encr: ei, integ: ai },
            responder: SaKeys { encr: er, integ: ar },
        })
    }
}

/// Cuts key material into pieces of these lengths.
fn split<const N: usize>(mut bytes: &[u8], lens: [usize; N]) -> Option<[Secret; N]> {
    let mut out: [Secret; N] = std::array::from_fn(|_| Secret::default());
    for (piece, len) in out.iter_mut().zip(lens) {
        let (head, rest) = bytes.split_at_checked(len)?;
        *piece = Secret::from(head);
        bytes = rest;
    }
    bytes.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use ironswan_wire::iana::{EncrId, IntegId, KeId, PrfId};
    use ironswan_wire::proposal::Additional;

    use super::*;

    const IKE: IkeSuite = IkeSuite {
        encr: EncrId::AES_CBC,
        key_bits: 128,
        integ: Some(IntegId::HMAC_SHA2_256_128),
        prf: PrfId::HMAC_SHA2_256,
        ke: KeId::CURVE_25519,
        additional: Additional::NONE,
    };

    fn keys(initiator: bool) -> IkeKeys {
        let seed = SkeySeed::initial(&IKE, &[1; 32], &[2; 32], &Secret::from(&[3; 32][..])).unwrap();
        seed.expand(&IKE, &[1; 32], &[2; 32], 4, 5, initiator).unwrap()
    }

    /// The chain of RFC 7296 section 2.14 written out by hand with the PRF alone.
    #[test]
    fn the_order_of_the_keys_is_that_of_the_rfc() {
        let prf = prf::get(PrfId::HMAC_SHA2_256).unwrap();
        let seed = prf.mac(&[[1u8; 32], [2; 32]].concat(), &[&[3; 32]]);
        let mut s = [[1u8; 32], [2; 32]].concat();
        s.extend(4u64.to_be_bytes());
        s.extend(5u64.to_be_bytes());
        let (mut stream, mut last) = (Vec::new(), Vec::new());
        for n in 1..=8u8 {
            last = prf.mac(seed.expose(), &[&last, &s, &[n]]).expose().to_vec();
            stream.extend(&last);
        }
        let k = keys(true).log.unwrap();
        let at = [0, 32, 64, 96, 112, 128, 160, 192];
        for (i, key) in k.iter().enumerate() {
            assert_eq!(key.expose(), &stream[at[i]..at[i + 1]], "key {i}");
        }
    }

    #[test]
    fn what_one_side_seals_the_other_opens() {
        let (i, r) = (keys(true), keys(false));
        let (mut text, mut icv) = ([7u8; 32], [0u8; 16]);
        i.seal.seal(b"aad", &[9; 16], &mut text, &mut icv);
        assert!(i.open.open(b"aad", &[9; 16], &mut text.clone(), &icv).is_err(), "reflected");
        r.open.open(b"aad", &[9; 16], &mut text, &icv).unwrap();
        assert_eq!(text, [7; 32]);
        assert_eq!((i.p_ours, i.p_theirs), (r.p_theirs, r.p_ours));
    }

    #[test]
    fn keymat_is_the_initiators_direction_first_and_encryption_before_integrity() {
        let suite = EspSuite {
            encr: EncrId::AES_CBC,
            key_bits: 256,
            integ: Some(IntegId::HMAC_SHA2_256_128),
            ke: None,
            esn: false,
        };
        let k = keys(true);
        let all = prf::prf_plus(k.prf, k.sk_d.expose(), &[&[1; 32], &[2; 32]], 128);
        let child = k.child(ProtocolId::ESP, &suite, (None, &[]), &[1; 32], &[2; 32]).unwrap();
        assert_eq!(child.initiator.encr.expose(), &all.expose()[..32]);
        assert_eq!(child.initiator.integ.expose(), &all.expose()[32..64]);
        assert_eq!(child.responder.encr.expose(), &all.expose()[64..96]);
        assert_eq!(child.responder.integ.expose(), &all.expose()[96..]);
        let secret = |n: u8| Secret::from(&[n; 32][..]);
        let with = |more: &[Secret]| {
            k.child(ProtocolId::ESP, &suite, (Some(&secret(6)), more), &[1; 32], &[2; 32]).unwrap()
        };
        assert_ne!(child, with(&[]));
        // "KEYMAT = prf+ (SK_d, SK(0) | Ni | Nr | SK(1) | ... SK(n))" (RFC 9370 section 2.2.4).
        let seed: [&[u8]; 5] = [&[6; 32], &[1; 32], &[2; 32], &[7; 32], &[8; 32]];
        let all = prf::prf_plus(k.prf, k.sk_d.expose(), &seed, 128);
        assert_eq!(with(&[secret(7), secret(8)]).initiator.encr.expose(), &all.expose()[..32]);
    }

    #[test]
    fn the_old_prf_makes_the_seed_and_the_new_one_the_keys() {
        let old = keys(true);
        let suite = IkeSuite { prf: PrfId::HMAC_SHA2_512, ..IKE };
        let shared = Secret::from(&[8; 32][..]);
        let new = SkeySeed::rekeyed(&old, &[1; 32], &[2; 32], &shared, &[]);
        let new = new.expand(&suite, &[1; 32], &[2; 32], 6, 7, true).unwrap();
        let (sha256, sha512) =
            (prf::get(PrfId::HMAC_SHA2_256).unwrap(), prf::get(PrfId::HMAC_SHA2_512).unwrap());
        let seed = sha256.mac(old.sk_d.expose(), &[&[8; 32], &[1; 32], &[2; 32]]);
        let spis = [6u64.to_be_bytes(), 7u64.to_be_bytes()].concat();
        let first = sha512.mac(seed.expose(), &[&[1; 32], &[2; 32], &spis, &[1]]);
        assert_eq!(new.sk_d.expose(), first.expose(), "SK_d is as long as the new PRF's output");
    }

    /// RFC 7296 section 2.14 of AES-XCBC and AES-CMAC: 8 bytes of each nonce make the key of
    /// SKEYSEED, and whole nonces the seed of prf+.
    #[test]
    fn a_prf_of_aes_takes_eight_bytes_of_each_nonce_for_the_first_seed_only() {
        for id in [PrfId::AES128_XCBC, PrfId::AES128_CMAC] {
            let suite = IkeSuite { prf: id, integ: Some(IntegId::AES_XCBC_96), ..IKE };
            let (ni, nr) = ([[1u8; 8], [2; 8]].concat(), [[3u8; 8], [4; 8], [5; 8]].concat());
            let shared = Secret::from(&[9; 32][..]);
            let seed = SkeySeed::initial(&suite, &ni, &nr, &shared).unwrap();
            let keys = seed.expand(&suite, &ni, &nr, 4, 5, true).unwrap();
            let prf = prf::get(id).unwrap();
            let seed = prf.mac(&[[1u8; 8], [3; 8]].concat(), &[&[9; 32]]);
            let spis = [4u64.to_be_bytes(), 5u64.to_be_bytes()].concat();
            let log = keys.log.as_ref().unwrap();
            assert_eq!(log.each_ref().map(|key| key.len()), [16; 7]);
            let first = prf.mac(seed.expose(), &[&ni, &nr, &spis, &[1]]);
            assert_eq!(log[0].expose(), first.expose(), "{id}");
            // A rekeying has SK_d as its key, and whole nonces behind the shared secret.
            let again = SkeySeed::rekeyed(&keys, &ni, &nr, &shared, &[]);
            assert_eq!(again.0.expose(), prf.mac(first.expose(), &[&[9; 32], &ni, &nr]).expose(), "{id}");
        }
    }

    /// The two PRFs of a rekeying, in both orders, and with an output that is shorter than the
    /// nonces.
    #[test]
    fn a_rekeying_between_an_old_prf_and_a_new_one_takes_each_for_its_part() {
        let suite = |prf| IkeSuite { prf, ..IKE };
        for (old_id, new_id) in [
            (PrfId::HMAC_SHA1, PrfId::HMAC_SHA2_256),
            (PrfId::AES128_XCBC, PrfId::HMAC_SHA2_512),
            (PrfId::HMAC_SHA2_256, PrfId::AES128_CMAC),
        ] {
            let (ni, nr) = ([1; 32], [2; 32]);
            let shared = Secret::from(&[8; 32][..]);
            let seed = SkeySeed::initial(&suite(old_id), &ni, &nr, &shared).unwrap();
            let old = seed.expand(&suite(old_id), &ni, &nr, 4, 5, true).unwrap();
            let new = SkeySeed::rekeyed(&old, &ni, &nr, &shared, &[]);
            let new = new.expand(&suite(new_id), &ni, &nr, 6, 7, true).unwrap();
            let (old_prf, new_prf) = (prf::get(old_id).unwrap(), prf::get(new_id).unwrap());
            let seed = old_prf.mac(old.sk_d.expose(), &[&[8; 32], &ni, &nr]);
            let spis = [6u64.to_be_bytes(), 7u64.to_be_bytes()].concat();
            let first = new_prf.mac(seed.expose(), &[&ni, &nr, &spis, &[1]]);
            assert_eq!(new.sk_d.expose(), first.expose(), "{old_id} and {new_id}");
            assert_eq!((new.prf.id(), new.sk_d.len()), (new_id, new_prf.output_len()));
        }
    }

    #[test]
    fn keys_have_the_lengths_of_their_suites() {
        let sha1 = Some(IntegId::HMAC_SHA1_96);
        for (encr, key_bits, integ, prf, lens) in [
            (EncrId::DES3, 0, sha1, PrfId::HMAC_SHA1, [20, 20, 24]),
            (EncrId::AES_CTR, 128, Some(IntegId::AES_XCBC_96), PrfId::AES128_XCBC, [16, 16, 20]),
            (EncrId::AES_CTR, 256, Some(IntegId::HMAC_SHA2_256_128), PrfId::HMAC_SHA2_256, [32, 32, 36]),
            (EncrId::AES_CBC, 192, Some(IntegId::AES_CMAC_96), PrfId::AES128_CMAC, [16, 16, 24]),
        ] {
            let suite = IkeSuite { encr, key_bits, integ, prf, ..IKE };
            let (shared, [d, a, e]) = (Secret::from(&[3; 32][..]), lens);
            let seed = SkeySeed::initial(&suite, &[1; 32], &[2; 32], &shared).unwrap();
            let keys = seed.expand(&suite, &[1; 32], &[2; 32], 4, 5, true).unwrap();
            let found = keys.log.unwrap().each_ref().map(|key| key.len());
            assert_eq!(found, [d, a, a, e, e, d, d], "{encr} {prf}");
        }
    }

    #[test]
    fn a_rekeyed_ike_sa_depends_on_the_old_one() {
        let old = keys(true);
        let shared = Secret::from(&[8; 32][..]);
        let a = SkeySeed::rekeyed(&old, &[1; 32], &[2; 32], &shared, &[])
            .expand(&IKE, &[1; 32], &[2; 32], 6, 7, true);
        let b = SkeySeed::initial(&IKE, &[1; 32], &[2; 32], &shared)
            .unwrap()
            .expand(&IKE, &[1; 32], &[2; 32], 6, 7, true);
        assert_ne!(a.unwrap().sk_d, b.unwrap().sk_d);
    }
}
