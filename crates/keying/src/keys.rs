//! Key pairs for signatures, and the choice of our private key. The protocol signs and verifies.

use std::collections::BTreeMap;

use ironswan_crypto::hash::sha1;
pub use ironswan_crypto::sign::{PrivateKey, PublicKey};
use ironswan_pki::Certificate;
use ironswan_wire::iana::IdType;
use ironswan_wire::id::Identity;

use crate::limits::KEYS_TRIED;

/// SHA-1 of a public key, which names the key in VICI and in identities (`keyid`).
pub type Fingerprint = [u8; 20];

/// The identity of somebody who has this key and no name, as charon forms it: the SHA-1 of the
/// whole `SubjectPublicKeyInfo`.
pub fn key_identity(key: &PublicKey) -> Identity {
    Identity { kind: IdType::KEY_ID, data: key.info().to_vec() }
}

/// Of the public keys that a peer may have, the ones that its signature is compared with: the key
/// whose fingerprint is the peer's identity of type ID_KEY_ID, else the first [`KEYS_TRIED`].
pub fn tried<'a>(keys: &'a [PublicKey], peer: &Identity) -> &'a [PublicKey] {
    let names = |key: &&PublicKey| [key.id(), key.info()].iter().any(|print| print[..] == peer.data);
    let named = keys.iter().find(names).filter(|_| peer.kind == IdType::KEY_ID);
    named.map_or(&keys[..keys.len().min(KEYS_TRIED)], std::slice::from_ref)
}

/// Our private keys.
#[derive(Default, Debug)]
pub struct PrivateKeys {
    /// Keys by the SHA-1 of `subjectPublicKey`, by which VICI names them.
    keys: BTreeMap<Fingerprint, PrivateKey>,
    /// Names of the keys in `keys` by the SHA-1 of the whole `SubjectPublicKeyInfo`.
    infos: BTreeMap<Fingerprint, Fingerprint>,
}

impl PrivateKeys {
    /// Adds a key, or replaces the same one.
    pub fn insert(&mut self, key: PrivateKey) {
        let id = key.public().id();
        self.infos.insert(key.public().info(), id);
        self.keys.insert(id, key);
    }

    /// Removes the key of this id; false when there is none.
    pub fn remove(&mut self, id: &Fingerprint) -> bool {
        let Some(key) = self.keys.remove(id) else { return false };
        self.infos.remove(&key.public().info());
        true
    }

    /// Ids of the keys, in order.
    pub fn ids(&self) -> impl Iterator<Item = &Fingerprint> {
        self.keys.keys()
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &PrivateKey> {
        self.keys.values()
    }

    /// The private key of a certificate.
    pub fn of(&self, certificate: &Certificate) -> Option<&PrivateKey> {
        let id = self.infos.get(&sha1(certificate.key_info()))?;
        self.keys.get(id).filter(|key| key.public().spki() == certificate.key_info())
    }

    /// The key to sign with: of the first of these public keys whose private key is here. Without
    /// any public key, the one whose fingerprint is our identity of type ID_KEY_ID.
    pub fn find(&self, of: &[PublicKey], local: &Identity) -> Option<&PrivateKey> {
        if of.is_empty() {
            let print = Fingerprint::try_from(local.data.as_slice()).ok()?;
            let id = self.infos.get(&print).unwrap_or(&print);
            return self.keys.get(id).filter(|_| local.kind == IdType::KEY_ID);
        }
        of.iter().find_map(|public| self.keys.get(&public.id()).filter(|key| key.public() == public))
    }
}

#[cfg(test)]
mod tests {
    use ironswan_wire::secret::Secret;

    use super::*;

    fn key(n: u8) -> PrivateKey {
        PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
    }

    fn public(n: u8) -> PublicKey {
        key(n).public().clone()
    }

    #[test]
    fn few_of_many_keys_are_tried_and_only_the_one_that_the_peer_names() {
        let keys: Vec<PublicKey> = (0..100).map(public).collect();
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
        let me = Identity::parse("g1.example").unwrap();
        let chosen = |keys: &PrivateKeys, list: &[PublicKey], id: &Identity| keys.find(list, id).cloned();
        assert_eq!(chosen(&keys, &[public(9), public(3), public(1)], &me), Some(key(3)));
        assert_eq!(chosen(&keys, &[public(9)], &me), None);
        assert_eq!(chosen(&keys, &[], &me), None);
        for print in [public(2).id(), public(2).info()] {
            let id = Identity { kind: IdType::KEY_ID, data: print.to_vec() };
            assert_eq!(chosen(&keys, &[], &id), Some(key(2)));
            // The same bytes as a name are no fingerprint.
            assert_eq!(chosen(&keys, &[], &Identity { kind: IdType::FQDN, ..id }), None);
        }
        assert!(keys.remove(&public(3).id()) && !keys.remove(&public(3).id()));
        assert_eq!(chosen(&keys, &[public(3), public(1)], &me), Some(key(1)));
        let gone = Identity { kind: IdType::KEY_ID, data: public(3).info().to_vec() };
        assert_eq!(chosen(&keys, &[], &gone), None);
        assert_eq!(keys.ids().count(), 2);
    }
}
