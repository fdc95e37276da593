//! Post-quantum preshared keys (PPK, RFC 8784), and the choice of the key that an identifier names.
//! The protocol mixes them into its keys.

use std::collections::{BTreeMap, BTreeSet};

use ironswan_wire::iana::IdType;
use ironswan_wire::id::Identity;
use ironswan_wire::secret::Secret;

/// Least length in bytes of a PPK that resists a quantum computer: 256 bits of entropy are worth
/// 128 against it (RFC 8784 section 6).
pub const PPK_BYTES: usize = 32;

/// A post-quantum preshared key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ppk {
    /// Name in the configuration (`ppk-1`), or VICI's `id`.
    pub name: String,
    /// The key.
    pub secret: Secret,
    /// Its identifiers, of which the bytes go to the peer (PPK_ID). Empty: the key has any.
    pub ids: Vec<Identity>,
}

/// The identifier of these bytes, as a PPK_ID has them. Text is shown as text.
pub fn ppk_id(data: &[u8]) -> Identity {
    let text = !data.is_empty() && data.iter().all(u8::is_ascii_graphic);
    let kind = if text { IdType::FQDN } else { IdType::KEY_ID };
    Identity { kind, data: data.to_vec() }
}

/// All PPKs, indexed by identifier.
#[derive(Default, Debug)]
pub struct Ppks {
    by_name: BTreeMap<String, Ppk>,
    /// Names of keys by each of their identifiers.
    by_id: BTreeMap<Vec<u8>, BTreeSet<String>>,
    /// Names of keys that have any identifier.
    general: BTreeSet<String>,
}

impl Ppks {
    /// Adds a key, or replaces the one of this name.
    pub fn insert(&mut self, key: Ppk) {
        self.remove(&key.name);
        if key.ids.is_empty() {
            self.general.insert(key.name.clone());
        }
        for id in &key.ids {
            self.by_id.entry(id.data.clone()).or_default().insert(key.name.clone());
        }
        self.by_name.insert(key.name.clone(), key);
    }

    /// Removes the key of this name; false when there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(key) = self.by_name.remove(name) else { return false };
        self.general.remove(name);
        for id in &key.ids {
            if let Some(names) = self.by_id.get_mut(&id.data) {
                names.remove(name);
                if names.is_empty() {
                    self.by_id.remove(&id.data);
                }
            }
        }
        true
    }

    /// Names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &Ppk> {
        self.by_name.values()
    }

    /// True when there is no key.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The key with this identifier: the first by name that names it, else the first that has any.
    /// Identifiers compare byte by byte, whatever their types ("fixed octet strings", RFC 8784
    /// section 5.1).
    pub fn find(&self, id: &[u8]) -> Option<&Ppk> {
        let named = self.by_id.get(id).and_then(BTreeSet::first);
        self.by_name.get(named.or_else(|| self.general.first())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, ids: &[&str]) -> Ppk {
        let ids = ids.iter().map(|id| Identity::parse(id).unwrap()).collect();
        Ppk { name: name.to_owned(), secret: Secret::from(name.as_bytes()), ids }
    }

    #[test]
    fn a_key_is_found_by_its_identifier_then_the_one_that_has_any() {
        let mut keys = Ppks::default();
        assert!(keys.is_empty());
        keys.insert(key("b", &["one", "two"]));
        assert_eq!(keys.find(b"three"), None);
        keys.insert(key("a", &[]));
        let name = |keys: &Ppks, id: &[u8]| keys.find(id).map(|key| key.name.clone());
        assert_eq!(name(&keys, b"two").unwrap(), "b");
        assert_eq!(name(&keys, b"three").unwrap(), "a");
        // Bytes are compared, not names.
        assert_eq!(name(&keys, b"TWO").unwrap(), "a");
        keys.insert(key("b", &["@#74776f"]));
        assert_eq!((name(&keys, b"one").unwrap(), name(&keys, b"two").unwrap()), ("a".into(), "b".into()));
        assert!(keys.remove("a") && !keys.remove("a"));
        assert_eq!(keys.find(b"one"), None);
        assert!(keys.remove("b") && keys.is_empty() && keys.by_id.is_empty() && keys.general.is_empty());
    }

    #[test]
    fn an_identifier_is_shown_as_text_or_in_hexadecimal() {
        assert_eq!(ppk_id(b"ppk.example").to_string(), "ppk.example");
        assert_eq!(ppk_id(b"\x00\xff").to_string(), "00ff");
        assert_eq!(ppk_id(b"a b\n").to_string(), "6120620a");
        assert!(!format!("{:?}", key("secret", &[])).contains("115, 101"), "no bytes of keys");
    }
}
