//! Key pairs for signatures, and the choice of our private key. The protocol signs and verifies.

use std::collections::BTreeMap;

use ironswan_crypto::hash::sha1;
use ironswan_crypto::sign;
use ironswan_wire::iana::IdType;
use ironswan_wire::id::Identity;
use ironswan_wire::secret::Secret;

use crate::limits::KEYS_TRIED;

/// SHA-1 of a public key, which names the key in VICI and in identities (`keyid`).
pub type Fingerprint = [u8; 20];

/// A public key, by its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PublicKey {
    /// A point of Ed25519 in its encoding (RFC 8032 section 5.1.2).
    Ed25519([u8; 32]),
}

/// A private key with its public key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateKey {
    /// SHA-1 of `subjectPublicKey`. VICI names the key by it.
    pub id: Fingerprint,
    /// SHA-1 of the whole `SubjectPublicKeyInfo`.
    pub info: Fingerprint,
    /// The public key.
    pub public: PublicKey,
    /// The private key: for Ed25519 its seed of 32 bytes.
    pub secret: Secret,
}

impl PublicKey {
    /// SHA-1 of `subjectPublicKey`.
    pub fn id(&self) -> Fingerprint {
        let Self::Ed25519(point) = self;
        sha1(point)
    }

    /// SHA-1 of the whole `SubjectPublicKeyInfo`.
    pub fn info(&self) -> Fingerprint {
        let Self::Ed25519(point) = self;
        sha1(&sign::public_to_der(point))
    }

    /// The identity of somebody who has this key and no name, as charon forms it.
    pub fn identity(&self) -> Identity {
        Identity { kind: IdType::KEY_ID, data: self.info().to_vec() }
    }
}

/// Of the public keys that a peer may have, the ones that its signature is compared with: the key
/// whose fingerprint is the peer's identity of type ID_KEY_ID, else the first [`KEYS_TRIED`].
pub fn tried<'a>(keys: &'a [PublicKey], peer: &Identity) -> &'a [PublicKey] {
    let names = |key: &&PublicKey| [key.id(), key.info()].iter().any(|print| print[..] == peer.data);
    let named = keys.iter().find(names).filter(|_| peer.kind == IdType::KEY_ID);
    named.map_or(&keys[..keys.len().min(KEYS_TRIED)], std::slice::from_ref)
}

impl PrivateKey {
    /// The key of Ed25519 with this seed. `None` when `seed` has not 32 bytes.
    pub fn ed25519(seed: Secret) -> Option<Self> {
        let public = PublicKey::Ed25519(sign::public(&seed)?);
        Some(Self { id: public.id(), info: public.info(), public, secret: seed })
    }
}

/// Our private keys.
#[derive(Default, Debug)]
pub struct PrivateKeys(BTreeMap<Fingerprint, PrivateKey>);

impl PrivateKeys {
    /// Adds a key, or replaces the same one.
    pub fn insert(&mut self, key: PrivateKey) {
        self.0.insert(key.id, key);
    }

    /// Removes the key of this id; false when there is none.
    pub fn remove(&mut self, id: &Fingerprint) -> bool {
        self.0.remove(id).is_some()
    }

    /// Ids of the keys, in order.
    pub fn ids(&self) -> impl Iterator<Item = &Fingerprint> {
        self.0.keys()
    }

    /// The key to sign with: of the first of these public keys whose private key is here. Without
    /// any public key, the one whose fingerprint is our identity of type ID_KEY_ID.
    pub fn find(&self, of: &[PublicKey], local: &Identity) -> Option<&PrivateKey> {
        if of.is_empty() {
            let named = |key: &&PrivateKey| [&key.id[..], &key.info].contains(&local.data.as_slice());
            return self.0.values().find(named).filter(|_| local.kind == IdType::KEY_ID);
        }
        of.iter().find_map(|public| self.0.values().find(|key| key.public == *public))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PrivateKey {
        PrivateKey {
            id: [n; 20],
            info: [n + 100; 20],
            public: PublicKey::Ed25519([n; 32]),
            secret: Secret::new(vec![n; 32]),
        }
    }

    #[test]
    fn few_of_many_keys_are_tried_and_only_the_one_that_the_peer_names() {
        let keys: Vec<PublicKey> = (0..100).map(|n| PublicKey::Ed25519([n; 32])).collect();
        let fqdn = Identity::parse("g1.example").unwrap();
        assert_eq!(tried(&keys, &fqdn), &keys[..KEYS_TRIED]);
        assert_eq!(tried(&keys[..2], &fqdn), &keys[..2]);
        assert_eq!(tried(&[], &fqdn), []);
        for print in [keys[70].id(), keys[70].info()] {
            let id = Identity { kind: IdType::KEY_ID, data: print.to_vec() };
            assert_eq!(tried(&keys, &id), &keys[70..71]);
            // The same bytes as a name are no fingerprint.
            assert_eq!(tried(&keys, &Identity { kind: IdType::FQDN, ..id }), &keys[..KEYS_TRIED]);
        }
        // A name of another kind of key.
        let id = Identity { kind: IdType::KEY_ID, data: b"gateway 1".to_vec() };
        assert_eq!(tried(&keys, &id), &keys[..KEYS_TRIED]);
    }

    #[test]
    fn the_first_public_key_with_a_private_key_is_chosen_else_the_identity() {
        let mut keys = PrivateKeys::default();
        (1..4).for_each(|n| keys.insert(key(n)));
        let of = |n| PublicKey::Ed25519([n; 32]);
        let me = Identity::parse("g1.example").unwrap();
        let chosen =
            |keys: &PrivateKeys, list: &[PublicKey], id: &Identity| keys.find(list, id).map(|k| k.id[0]);
        assert_eq!(chosen(&keys, &[of(9), of(3), of(1)], &me), Some(3));
        assert_eq!(chosen(&keys, &[of(9)], &me), None);
        assert_eq!(chosen(&keys, &[], &me), None);
        for n in [2, 102] {
            let id = Identity { kind: IdType::KEY_ID, data: vec![n; 20] };
            assert_eq!(chosen(&keys, &[], &id), Some(2));
            // The same bytes as a name are no fingerprint.
            assert_eq!(chosen(&keys, &[], &Identity { kind: IdType::FQDN, ..id }), None);
        }
        assert!(keys.remove(&[3; 20]) && !keys.remove(&[3; 20]));
        assert_eq!(chosen(&keys, &[of(3), of(1)], &me), Some(1));
        assert_eq!(keys.ids().count(), 2);
    }
}
