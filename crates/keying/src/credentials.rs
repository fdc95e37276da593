//! Pre-shared keys, and the choice of the key for a pair of identities. The protocol computes
//! proofs from keys.

use std::collections::{BTreeMap, BTreeSet};

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::secret::Secret;

/// A pre-shared key and the identities it belongs to. A key with no owner serves any pair; with
/// owners, the best match of (local, remote) wins, as in `ipsec.secrets`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedKey {
    /// Name in the configuration (`ike-1`), or VICI's `id`.
    pub name: String,
    /// The key.
    pub secret: Secret,
    /// Identities that the key belongs to; empty: any pair.
    pub owners: Vec<IdPattern>,
}

/// How well an owner fits an identity: 3 exactly, 2 by suffix, 1 by `%any`, 0 not at all.
fn fit(owner: &IdPattern, id: &Identity) -> u8 {
    match owner {
        _ if !owner.matches(id) => 0,
        IdPattern::Any => 1,
        IdPattern::Suffix(..) | IdPattern::Name(_) => 2,
        IdPattern::Exact(_) => 3,
    }
}

/// All pre-shared keys, indexed by owner. The endpoint and the checks of a configuration choose a
/// key by the same rules.
#[derive(Default, Debug)]
pub struct SharedKeys {
    by_name: BTreeMap<String, SharedKey>,
    /// Names of keys with one owner, by that owner.
    of_one: BTreeMap<Identity, BTreeSet<String>>,
    /// Names of keys with several owners, by each.
    of_several: BTreeMap<Identity, BTreeSet<String>>,
    /// Names of keys with an owner that is a pattern, or without any.
    general: BTreeSet<String>,
}

impl SharedKeys {
    /// Adds a key, or replaces the one of this name.
    pub fn insert(&mut self, key: SharedKey) {
        self.remove(&key.name);
        let exact: Option<Vec<_>> = key
            .owners
            .iter()
            .map(|o| if let IdPattern::Exact(id) = o { Some(id.folded()) } else { None })
            .collect();
        match exact.filter(|ids| !ids.is_empty()) {
            None => {
                self.general.insert(key.name.clone());
            }
            Some(ids) => {
                let index = if ids.len() == 1 { &mut self.of_one } else { &mut self.of_several };
                for id in ids {
                    index.entry(id).or_default().insert(key.name.clone());
                }
            }
        }
        self.by_name.insert(key.name.clone(), key);
    }

    /// Removes the key of this name; false when there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(key) = self.by_name.remove(name) else { return false };
        self.general.remove(name);
        for owner in &key.owners {
            let IdPattern::Exact(id) = owner else { continue };
            let id = id.folded();
            for index in [&mut self.of_one, &mut self.of_several] {
                if let Some(names) = index.get_mut(&id) {
                    names.remove(name);
                    if names.is_empty() {
                        index.remove(&id);
                    }
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
    pub fn iter(&self) -> impl Iterator<Item = &SharedKey> {
        self.by_name.values()
    }

    /// The key for this pair: the best fit for the peer, then for us, then the first by name. A key
    /// with one owner belongs to whichever side it names; with several owners both sides must be
    /// among them, as in `ipsec.secrets`, so that a key of ours with one peer does not let another
    /// peer in.
    pub fn find(&self, local: &Identity, remote: &Identity) -> Option<&SharedKey> {
        self.choose(local, remote).map(|(key, _)| key)
    }

    /// The key that [`SharedKeys::find`] finds, and the next by name that fits as well and is
    /// another key.
    pub fn choose(&self, local: &Identity, remote: &Identity) -> Option<(&SharedKey, Option<&SharedKey>)> {
        let (ours, theirs) = (local.folded(), remote.folded());
        // Both sides must be among several owners, so either set has them all.
        let (a, b) = (self.of_several.get(&theirs), self.of_several.get(&ours));
        let len = |names: Option<&BTreeSet<String>>| names.map_or(0, BTreeSet::len);
        let several = if len(a) <= len(b) { a } else { b };
        let indexed = [self.of_one.get(&theirs), self.of_one.get(&ours), several];
        let names: BTreeSet<&String> = indexed.into_iter().flatten().flatten().chain(&self.general).collect();
        let mut best: Option<((u8, u8), &SharedKey, Option<&SharedKey>)> = None;
        for key in names.into_iter().filter_map(|name| self.by_name.get(name)) {
            let of = |id| key.owners.iter().map(|o| fit(o, id)).max().unwrap_or(0);
            let (theirs, ours) = (of(remote), of(local));
            let score = match key.owners.len() {
                0 => (1, 0),
                1 if theirs == 0 && ours == 0 => continue,
                1 => (theirs, ours),
                _ if theirs == 0 || ours == 0 => continue,
                _ => (theirs, ours),
            };
            match &mut best {
                Some((s, ..)) if score < *s => {}
                Some((s, first, rival)) if score == *s => {
                    if rival.is_none() && key.secret != first.secret {
                        *rival = Some(key);
                    }
                }
                _ => best = Some((score, key, None)),
            }
        }
        best.map(|(_, key, rival)| (key, rival))
    }

    /// True when some key could fit a pair of identities that is not fully known yet. `local` is
    /// `None` when our identity will be the address that we send from; `remote` is the pattern that
    /// the peer's identity must match.
    pub fn may_find(&self, local: Option<&Identity>, remote: &IdPattern) -> bool {
        self.by_name.values().any(|key| {
            let ours = |o: &IdPattern| local.is_none_or(|id| o.matches(id));
            let theirs = |o: &IdPattern| match (remote, o) {
                (IdPattern::Exact(id), o) | (o, IdPattern::Exact(id)) => o.matches(id),
                _ => true,
            };
            let (we, they) = (key.owners.iter().any(ours), key.owners.iter().any(theirs));
            match key.owners.len() {
                0 => true,
                1 => we || they,
                _ => we && they,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(entries: &[(&str, &[&str])]) -> SharedKeys {
        let mut secrets = SharedKeys::default();
        for (name, owners) in entries {
            let owners = owners.iter().map(|o| IdPattern::parse(o).unwrap()).collect();
            secrets.insert(SharedKey { name: (*name).to_owned(), secret: Secret::default(), owners });
        }
        secrets
    }

    fn found(entries: &[(&str, &[&str])], local: &str, remote: &str) -> Option<String> {
        let id = |t| Identity::parse(t).unwrap();
        keys(entries).find(&id(local), &id(remote)).map(|k| k.name.clone())
    }

    #[test]
    fn a_key_is_found_without_regard_to_case_and_not_after_it_is_gone() {
        let id = |t| Identity::parse(t).unwrap();
        let mut k = keys(&[("one", &["GW.example"]), ("two", &["me", "Peer.Example"])]);
        assert!(k.find(&id("x"), &id("gw.EXAMPLE")).is_some());
        assert_eq!(k.find(&id("ME"), &id("peer.example")).unwrap().name, "two");
        assert!(k.remove("two") && !k.remove("two"));
        assert!(k.find(&id("me"), &id("peer.example")).is_none());
        k.insert(SharedKey { name: "one".into(), secret: Secret::default(), owners: Vec::new() });
        assert_eq!(k.find(&id("any"), &id("pair")).unwrap().name, "one");
        assert!(k.remove("one") && k.names().next().is_none());
        assert!(k.of_one.is_empty() && k.of_several.is_empty() && k.general.is_empty());
    }

    #[test]
    fn the_best_fit_wins() {
        let entries: &[(&str, &[&str])] = &[
            ("all", &[]),
            ("domain", &["*.example"]),
            ("exact", &["me", "b.example"]),
            ("other", &["c.example"]),
        ];
        assert_eq!(found(entries, "me", "b.example").unwrap(), "exact");
        assert_eq!(found(entries, "me", "d.example").unwrap(), "domain");
        assert_eq!(found(entries, "me", "somebody").unwrap(), "all");
        assert_eq!(found(entries, "me", "c.example").unwrap(), "other");
    }

    #[test]
    fn a_key_of_two_does_not_let_a_third_in() {
        let entries: &[(&str, &[&str])] = &[("ab", &["a", "b"])];
        assert_eq!(found(entries, "a", "b").unwrap(), "ab");
        assert_eq!(found(entries, "b", "a").unwrap(), "ab");
        assert_eq!(found(entries, "a", "c"), None);
    }

    #[test]
    fn one_owner_may_be_either_side() {
        let entries: &[(&str, &[&str])] = &[("mine", &["me"])];
        assert_eq!(found(entries, "me", "anyone").unwrap(), "mine");
        assert_eq!(found(entries, "you", "me").unwrap(), "mine");
        assert_eq!(found(entries, "you", "they"), None);
    }
}
