//! Revocation lists and responses of OCSP that were fetched, kept until the next one is due, within
//! bounds of number and bytes.
//!
//! A signer who may speak for a chain has signed each of them when it came. Whoever uses one later
//! verifies it again for the chain at hand. Not here: lists from files
//! ([`Certificates`](crate::Certificates)), and what a status means
//! ([`Inquiry`](crate::Inquiry)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironswan_crypto::hash::sha1;
use ironswan_pki::ocsp::Response;
use ironswan_pki::{Certificate, Crl, Time};

use crate::keys::Fingerprint;
use crate::limits::{STATUS_BYTES_KEPT, STATUSES_KEPT};

/// Name of what is kept.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    /// The list from this URI.
    List(String),
    /// The response about the certificate whose DER has this SHA-1.
    Response(Fingerprint),
}

/// A list or a response.
#[derive(Clone, Debug)]
pub enum Kept {
    /// A revocation list.
    List(Crl),
    /// A response of OCSP.
    Response(Response),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Self::List(list) => list.der().len(),
            Self::Response(response) => response.der().len(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    /// Last second at which it is used.
    until: Time,
    /// Number of the insertion: the oldest goes first.
    number: u64,
}

#[derive(Default, Debug)]
struct Cache {
    entries: BTreeMap<Key, Entry>,
    bytes: usize,
    next: u64,
}

impl Cache {
    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.entries.remove(key) {
            self.bytes -= old.kept.bytes();
        }
    }

    fn forget(&mut self, gone: impl Fn(&Key, &Entry) -> bool) {
        let keys: Vec<Key> =
            self.entries.iter().filter(|(key, entry)| gone(key, entry)).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    fn insert(&mut self, key: Key, kept: Kept, until: Time, now: Time) {
        self.remove(&key);
        let bytes = kept.bytes();
        if bytes > STATUS_BYTES_KEPT || until < now {
            return;
        }
        let full =
            |cache: &Self| cache.entries.len() >= STATUSES_KEPT || cache.bytes + bytes > STATUS_BYTES_KEPT;
        if full(self) {
            self.forget(|_, entry| entry.until < now);
        }
        while full(self) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.number);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.remove(&oldest);
        }
        self.bytes += bytes;
        self.entries.insert(key, Entry { kept, until, number: self.next });
        self.next += 1;
    }
}

/// The lists and responses that are kept. Clones are the same.
#[derive(Clone, Default, Debug)]
pub struct Statuses(Arc<Mutex<Cache>>);

impl PartialEq for Statuses {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Statuses {}

impl Statuses {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the list from this URI until a time.
    pub(crate) fn keep_list(&self, uri: &str, list: Crl, until: Time, now: Time) {
        self.cache().insert(Key::List(uri.to_owned()), Kept::List(list), until, now);
    }

    /// Keeps the response about a certificate until a time.
    pub(crate) fn keep_response(&self, of: &Certificate, response: Response, until: Time, now: Time) {
        self.cache().insert(Key::Response(sha1(of.der())), Kept::Response(response), until, now);
    }

    /// All lists that are used at `now`.
    pub(crate) fn lists(&self, now: Time) -> Vec<Crl> {
        let cache = self.cache();
        let lists = cache.entries.values().filter(|entry| entry.until >= now);
        lists
            .filter_map(|entry| match &entry.kept {
                Kept::List(list) => Some(list.clone()),
                Kept::Response(_) => None,
            })
            .collect()
    }

    /// The response about a certificate that is used at `now`.
    pub(crate) fn response(&self, of: &Certificate, now: Time) -> Option<Response> {
        match self.cache().entries.get(&Key::Response(sha1(of.der()))) {
            Some(Entry { kept: Kept::Response(response), until, .. }) if *until >= now => {
                Some(response.clone())
            }
            _ => None,
        }
    }

    /// Everything that is kept, lists first.
    pub fn all(&self) -> Vec<Kept> {
        self.cache().entries.values().map(|entry| entry.kept.clone()).collect()
    }

    /// Forgets the lists, the responses, or both.
    pub fn flush(&self, lists: bool, responses: bool) {
        self.cache().forget(|key, _| match key {
            Key::List(_) => lists,
            Key::Response(_) => responses,
        });
    }
}

#[cfg(test)]
mod tests {
    use ironswan_wire::der::{BIT_STRING, INTEGER, SEQUENCE, UTC_TIME, emit};
    use ironswan_wire::name_text;

    use super::*;

    const NOW: Time = Time(1_800_000_000);

    /// A list that nobody has signed.
    fn list_of(serials: &[u8]) -> Crl {
        let time = emit(UTC_TIME, &[b"260101000000Z"]);
        let one = |serial: &u8| emit(SEQUENCE, &[&emit(INTEGER, &[&[serial & 0x7f]]), &time]);
        let entries = emit(SEQUENCE, &[&serials.iter().flat_map(one).collect::<Vec<u8>>()]);
        let scheme = ironswan_crypto::sign::Scheme::Ed25519.to_der().unwrap();
        let fields =
            [emit(INTEGER, &[&[1]]), scheme.clone(), name_text::parse("CN=ca").unwrap(), time.clone()];
        let end = emit(UTC_TIME, &[b"360101000000Z"]);
        let body = emit(SEQUENCE, &[&fields.concat(), &end, if serials.is_empty() { &[] } else { &entries }]);
        Crl::from_der(&emit(SEQUENCE, &[&body, &scheme, &emit(BIT_STRING, &[&[0, 1]])])).unwrap()
    }

    #[test]
    fn no_more_is_kept_than_the_bounds_and_the_oldest_goes_first() {
        let statuses = Statuses::default();
        let end = NOW.plus(100);
        for n in 0..STATUSES_KEPT + 10 {
            statuses.keep_list(&format!("http://ca.example/{n}"), list_of(&[]), end, NOW);
        }
        assert_eq!(statuses.all().len(), STATUSES_KEPT);
        let cache = statuses.cache();
        assert!(!cache.entries.contains_key(&Key::List("http://ca.example/9".to_owned())));
        assert!(cache.entries.contains_key(&Key::List("http://ca.example/10".to_owned())));
        assert_eq!(cache.bytes, cache.entries.values().map(|entry| entry.kept.bytes()).sum::<usize>());
        drop(cache);
        // Large lists meet the bound of bytes.
        let serials: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let large = list_of(&serials);
        assert!(large.der().len() > 1 << 20);
        for n in 0..20 {
            statuses.keep_list(&format!("http://large.example/{n}"), large.clone(), end, NOW);
        }
        let cache = statuses.cache();
        assert!(cache.bytes <= STATUS_BYTES_KEPT && cache.entries.len() < 10, "{} bytes", cache.bytes);
    }

    #[test]
    fn nothing_is_used_after_its_end_and_what_has_ended_makes_room_first() {
        let statuses = Statuses::default();
        statuses.keep_list("http://a.example/", list_of(&[]), NOW.plus(100), NOW);
        statuses.keep_list("http://b.example/", list_of(&[]), NOW.plus(10), NOW);
        assert_eq!(statuses.lists(NOW.plus(10)).len(), 2);
        assert_eq!(statuses.lists(NOW.plus(11)).len(), 1);
        statuses.keep_list("http://c.example/", list_of(&[]), NOW.plus(-1), NOW);
        assert_eq!(statuses.all().len(), 2, "what has ended already is not kept");
        for n in 0..STATUSES_KEPT - 2 {
            statuses.keep_list(&format!("http://ca.example/{n}"), list_of(&[]), NOW.plus(100), NOW);
        }
        statuses.keep_list("http://d.example/", list_of(&[]), NOW.plus(100), NOW.plus(50));
        let cache = statuses.cache();
        assert!(cache.entries.contains_key(&Key::List("http://a.example/".to_owned())));
        assert!(!cache.entries.contains_key(&Key::List("http://b.example/".to_owned())));
        drop(cache);
        statuses.flush(false, true);
        assert_eq!(statuses.all().len(), STATUSES_KEPT);
        statuses.flush(true, false);
        assert!(statuses.all().is_empty());
    }
}
