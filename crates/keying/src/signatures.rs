//! Signatures that one end may prove itself by (`auth` of `swanctl.conf`), the choice of the
//! algorithm for a key of ours (RFC 7427 section 4, RFC 8420 section 2), and the methods of peers
//! that do not know RFC 7427 (RFC 7296 section 3.8, RFC 4754).
//!
//! ```text
//! ike:rsa/pss-3072-ecdsa-384-sha512
//! │   │       │    │         └ hashes, the best one first; none: all but SHA-1
//! │   │       │    └ another kind of key, with its least strength in bits
//! │   │       └ least strength in bits of the kind before
//! │   └ kind of key: rsa, rsa/pss, ecdsa, ed25519; pubkey: any
//! └ strongSwan's mark for rules that are not for certificates
//! ```
//! Not here: what is signed, and how AUTH carries it.

use ironswan_crypto::sign::{Hash, KeyKind, Legacy, MIN_RSA_BITS, MIN_SHORT_RSA_BITS, PublicKey, Scheme};
use ironswan_wire::iana::AuthMethod;

/// Hashes that are taken without being named. SHA-1 is not among them.
const HASHES: [Hash; 4] = [Hash::Sha256, Hash::Sha384, Hash::Sha512, Hash::Identity];

/// A family of signature algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Rsa,
    RsaPss,
    Ecdsa,
    Ed25519,
}

impl Family {
    fn of(scheme: Scheme) -> Self {
        match scheme {
            Scheme::RsaPkcs1(_) => Self::Rsa,
            Scheme::RsaPss { .. } => Self::RsaPss,
            Scheme::Ecdsa(_) | Scheme::EcdsaFixed(_) => Self::Ecdsa,
            Scheme::Ed25519 => Self::Ed25519,
        }
    }
}

/// Signatures that one end may prove itself by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signatures {
    /// The rules as the configuration writes them.
    written: String,
    /// Families in the order of the configuration; empty: all.
    families: Vec<Family>,
    /// Hashes in the order of the configuration; empty: [`HASHES`].
    hashes: Vec<Hash>,
    /// Least length of an RSA modulus in bits.
    rsa_bits: usize,
    /// Least length of an order of a curve of ECDSA in bits.
    ecdsa_bits: usize,
}

impl Default for Signatures {
    /// Any key of at least 2,048 bits of RSA, any hash but SHA-1.
    fn default() -> Self {
        Self {
            written: "pubkey".to_owned(),
            families: Vec::new(),
            hashes: Vec::new(),
            rsa_bits: MIN_RSA_BITS,
            ecdsa_bits: 0,
        }
    }
}

impl std::fmt::Display for Signatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written)
    }
}

/// Length of the order of a curve in bits; 0 for other kinds of keys.
fn curve_bits(kind: KeyKind) -> usize {
    match kind {
        // The order of P-521 has 521 bits, which are 66 bytes.
        KeyKind::Ecdsa(curve) => (8 * curve.scalar_len()).min(521),
        KeyKind::Rsa(_) | KeyKind::Ed25519 => 0,
    }
}

impl Signatures {
    /// Reads the rules of `auth`. `None` for words that are not known, for a strength that follows
    /// no RSA or ECDSA, and for rules that no signature obeys.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let mut rules = Self { written: text.clone(), ..Self::default() };
        let mut any = false;
        for word in text.strip_prefix("ike:").unwrap_or(&text).split('-') {
            let hash = match word {
                "sha1" => Hash::Sha1,
                "sha256" => Hash::Sha256,
                "sha384" => Hash::Sha384,
                "sha512" => Hash::Sha512,
                "identity" => Hash::Identity,
                _ => {
                    any |= rules.family(word)?;
                    continue;
                }
            };
            if !rules.hashes.contains(&hash) {
                rules.hashes.push(hash);
            }
        }
        if any {
            rules.families.clear();
        } else if rules.families.is_empty() {
            return None;
        }
        let takes = |hash: Hash| match hash {
            Hash::Identity => rules.permits(Scheme::Ed25519),
            _ => {
                let pss = Scheme::pss(hash).is_some_and(|scheme| rules.permits(scheme));
                pss || rules.permits(Scheme::RsaPkcs1(hash)) || rules.permits(Scheme::Ecdsa(hash))
            }
        };
        let possible = Hash::ALL.into_iter().any(takes);
        possible.then_some(rules)
    }

    /// Takes a kind of key or a strength. True for `pubkey`, `None` for other words.
    fn family(&mut self, word: &str) -> Option<bool> {
        let family = match word {
            "pubkey" => return Some(true),
            "rsa" => Family::Rsa,
            "rsa/pss" => Family::RsaPss,
            "ecdsa" => Family::Ecdsa,
            "ed25519" => Family::Ed25519,
            _ => {
                let bits = word.parse().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()))?;
                match self.families.last()? {
                    Family::Rsa | Family::RsaPss if bits >= MIN_SHORT_RSA_BITS => self.rsa_bits = bits,
                    Family::Ecdsa => self.ecdsa_bits = bits,
                    _ => return None,
                }
                return Some(false);
            }
        };
        self.families.push(family);
        Some(false)
    }

    /// True when signatures by this algorithm are allowed.
    pub fn permits(&self, scheme: Scheme) -> bool {
        let hashes = if self.hashes.is_empty() { &HASHES[..] } else { &self.hashes };
        let of = self.families.is_empty() || self.families.contains(&Family::of(scheme));
        of && hashes.contains(&scheme.hash())
    }

    /// True when keys of this kind are long enough.
    pub fn permits_key(&self, kind: KeyKind) -> bool {
        match kind {
            KeyKind::Rsa(bits) => bits >= self.rsa_bits,
            KeyKind::Ecdsa(_) => curve_bits(kind) >= self.ecdsa_bits,
            KeyKind::Ed25519 => true,
        }
    }

    /// True when a key of this kind is long enough, and may have signed by this algorithm.
    pub fn takes(&self, kind: KeyKind, scheme: Scheme) -> bool {
        self.permits_key(kind) && fits(kind, scheme)
    }

    /// Weak algorithms that the configuration names.
    pub fn legacy(&self) -> Legacy {
        let sha1 = self.hashes.contains(&Hash::Sha1);
        Legacy { sha1, short_rsa: self.rsa_bits < MIN_RSA_BITS }
    }

    /// Hashes that whoever verifies by these rules announces.
    pub fn announced(&self) -> Vec<Hash> {
        let fits = |hash: &Hash| match hash {
            Hash::Identity => self.permits(Scheme::Ed25519),
            _ => self.families.is_empty() || self.families.iter().any(|of| *of != Family::Ed25519),
        };
        let hashes = if self.hashes.is_empty() { &HASHES[..] } else { &self.hashes };
        hashes.iter().copied().filter(fits).collect()
    }

    /// Hashes over which this key of ours may sign, the best one first.
    pub fn hashes(&self, key: &PublicKey) -> Vec<Hash> {
        let hashes = if self.hashes.is_empty() { key.hashes() } else { &self.hashes };
        hashes.iter().copied().filter(|hash| self.scheme(key, *hash).is_some()).collect()
    }

    /// The algorithm by which this key of ours signs over this hash: RSASSA-PSS when the rules name
    /// it, else RSASSA-PKCS1-v1_5.
    fn scheme(&self, key: &PublicKey, hash: Hash) -> Option<Scheme> {
        let pss = self.families.contains(&Family::RsaPss);
        key.scheme(hash, pss).filter(|scheme| self.permits(*scheme))
    }

    /// The method of AUTH and the algorithm by which this key of ours signs for a peer that has
    /// announced these hashes; `None`: it does not know RFC 7427, so the old methods are left.
    pub fn choose(&self, key: &PublicKey, peer: Option<&[Hash]>) -> Option<(AuthMethod, Scheme)> {
        if !self.permits_key(key.kind()) {
            return None;
        }
        let Some(peer) = peer else {
            return key.old_method().filter(|(_, scheme)| self.permits(*scheme));
        };
        let hash = self.hashes(key).into_iter().find(|hash| peer.contains(hash))?;
        Some((AuthMethod::SIGNATURE, self.scheme(key, hash)?))
    }
}

/// True when a key of this kind may have signed by this algorithm. Each old method of ECDSA means
/// one curve (RFC 4754 section 3).
fn fits(kind: KeyKind, scheme: Scheme) -> bool {
    use ironswan_crypto::sign::Curve::{P256, P384, P521};
    match (kind, scheme) {
        (KeyKind::Rsa(_), Scheme::RsaPkcs1(_) | Scheme::RsaPss { .. })
        | (KeyKind::Ecdsa(_), Scheme::Ecdsa(_))
        | (KeyKind::Ed25519, Scheme::Ed25519) => true,
        (KeyKind::Ecdsa(curve), Scheme::EcdsaFixed(hash)) => {
            matches!((curve, hash), (P256, Hash::Sha256) | (P384, Hash::Sha384) | (P521, Hash::Sha512))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ironswan_crypto::sign::{Curve, PrivateKey};

    use super::*;

    fn rules(text: &str) -> Signatures {
        Signatures::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    fn key(kind: KeyKind) -> PublicKey {
        PrivateKey::generate(kind).unwrap().public().clone()
    }

    #[test]
    fn every_rule_of_strongswan_is_read_and_others_are_not() {
        for text in [
            "pubkey",
            "PubKey",
            "ike:pubkey",
            "rsa",
            "rsa/pss",
            "ecdsa",
            "ed25519",
            "ike:ed25519-identity",
            "pubkey-identity",
            "pubkey-sha256-sha512",
            "rsa-sha512",
            "ecdsa-sha384",
            "rsa-2048-ecdsa-256-sha256-sha384",
            "ike:rsa/pss-3072-sha256",
            "rsa-1024-sha1",
            "ecdsa-384",
        ] {
            assert_eq!(rules(text).to_string(), text.to_ascii_lowercase());
        }
        for text in [
            "",
            "ike:",
            "-",
            "sha256",
            "rsa-",
            "rsa-+2048",
            "2048",
            "pubkey-2048",
            "ed25519-256",
            "rsa-1023",
            "rsa-512",
            "ed25519-sha256",
            "rsa-identity",
            "ed448",
            "bliss",
            "psk",
            "ike:psk",
            "eap",
            "any",
            "rsa-sha224",
            "rsa-99999999999999999999999",
            "ike:ike:rsa",
            "rsa:sha256",
        ] {
            assert_eq!(Signatures::parse(text), None, "{text}");
        }
    }

    #[test]
    fn rules_permit_what_they_name_and_sha_1_and_short_keys_only_by_name() {
        let pss = Scheme::pss(Hash::Sha256).unwrap();
        let (pkcs1, sha1) = (Scheme::RsaPkcs1(Hash::Sha256), Scheme::RsaPkcs1(Hash::Sha1));
        let ecdsa = Scheme::Ecdsa(Hash::Sha384);
        for (text, permitted) in [
            ("pubkey", [true, true, false, true, true]),
            ("rsa", [false, true, false, false, false]),
            ("rsa/pss", [true, false, false, false, false]),
            ("rsa-rsa/pss", [true, true, false, false, false]),
            ("pubkey-sha256", [true, true, false, false, false]),
            ("pubkey-sha1-sha384", [false, false, true, true, false]),
            ("rsa-ed25519", [false, true, false, false, true]),
            ("ecdsa-sha384", [false, false, false, true, false]),
        ] {
            let rules = rules(text);
            assert_eq!(
                [pss, pkcs1, sha1, ecdsa, Scheme::Ed25519].map(|s| rules.permits(s)),
                permitted,
                "{text}"
            );
            assert_eq!(rules.legacy(), Legacy { sha1: text.contains("sha1"), short_rsa: false });
        }
        assert!(rules("rsa-1024").legacy().short_rsa && rules("rsa-1024").permits_key(KeyKind::Rsa(1024)));
        assert!(
            !rules("rsa").permits_key(KeyKind::Rsa(2047))
                && !rules("rsa-3072").permits_key(KeyKind::Rsa(2048))
        );
        let curves = Curve::ALL.map(KeyKind::Ecdsa);
        assert_eq!(curves.map(|c| rules("ecdsa-384").permits_key(c)), [false, true, true]);
        assert_eq!(curves.map(|c| rules("ecdsa-521").permits_key(c)), [false, false, true]);
        assert!(rules("ecdsa-384").permits_key(KeyKind::Ed25519));
    }

    #[test]
    fn the_best_hash_of_both_sides_is_chosen_for_each_kind_of_key() {
        use Hash::{Identity, Sha1, Sha256, Sha384, Sha512};
        let (rsa, p384, ed) =
            (key(KeyKind::Rsa(2048)), key(KeyKind::Ecdsa(Curve::P384)), key(KeyKind::Ed25519));
        let chosen = |text: &str, key: &PublicKey, peer: &[Hash]| {
            let chosen = rules(text).choose(key, Some(peer));
            assert!(chosen.is_none_or(|(method, _)| method == AuthMethod::SIGNATURE));
            chosen.map(|(_, scheme)| scheme)
        };
        let all = [Identity, Sha512, Sha1, Sha384, Sha256];
        for (text, key, peer, scheme) in [
            ("pubkey", &rsa, &all[..], Some(Scheme::RsaPkcs1(Sha256))),
            ("pubkey", &rsa, &[Sha512, Sha384], Some(Scheme::RsaPkcs1(Sha384))),
            ("rsa-sha512-sha256", &rsa, &all, Some(Scheme::RsaPkcs1(Sha512))),
            ("rsa/pss-sha384", &rsa, &all, Scheme::pss(Sha384)),
            ("rsa/pss", &rsa, &all, Scheme::pss(Sha256)),
            ("pubkey", &rsa, &[Sha1, Identity], None),
            ("pubkey-sha1", &rsa, &[Sha1], Some(Scheme::RsaPkcs1(Sha1))),
            ("rsa-3072", &rsa, &all, None),
            ("pubkey", &p384, &all, Some(Scheme::Ecdsa(Sha384))),
            ("pubkey", &p384, &[Sha256], None),
            ("pubkey-sha256", &p384, &[Sha256], Some(Scheme::Ecdsa(Sha256))),
            ("pubkey", &ed, &all, Some(Scheme::Ed25519)),
            ("pubkey", &ed, &[Sha256, Sha512], None),
            ("pubkey-sha256", &ed, &all, None),
            ("rsa", &ed, &all, None),
            ("pubkey", &rsa, &[], None),
        ] {
            assert_eq!(chosen(text, key, peer), scheme, "{text} {} {peer:?}", key.kind());
        }
        // Peers without RFC 7427.
        let old = |text: &str, key| rules(text).choose(key, None);
        assert_eq!(old("pubkey", &p384), Some((AuthMethod::ECDSA_384, Scheme::EcdsaFixed(Sha384))));
        assert_eq!(old("ecdsa-sha512", &p384), None);
        assert_eq!((old("pubkey", &ed), old("pubkey", &rsa)), (None, None));
        assert_eq!(old("rsa-sha1", &rsa), Some((AuthMethod::RSA, Scheme::RsaPkcs1(Sha1))));
    }

    #[test]
    fn hashes_that_a_verifier_announces_are_those_of_its_rules() {
        use Hash::{Identity, Sha1, Sha256, Sha384, Sha512};
        for (text, hashes) in [
            ("pubkey", &[Sha256, Sha384, Sha512, Identity][..]),
            ("rsa", &[Sha256, Sha384, Sha512]),
            ("ed25519", &[Identity]),
            ("pubkey-sha512-sha1", &[Sha512, Sha1]),
            ("ecdsa-ed25519-identity-sha384", &[Identity, Sha384]),
        ] {
            assert_eq!(rules(text).announced(), hashes, "{text}");
        }
    }
}
