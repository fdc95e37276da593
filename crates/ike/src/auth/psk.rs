//! AUTH with a pre-shared key (RFC 7296 section 2.15), and which key belongs to whom.
//!
//! `AUTH = prf( prf(Shared Secret, "Key Pad for IKEv2"), SignedOctets)`

use std::collections::BTreeMap;

use ironswan_crypto::prf::Prf;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::secret::{Secret, ct_eq};

use super::SignedOctets;
use crate::config::SharedKey;

/// The AUTH data of the side that `octets` are about.
pub(crate) fn auth(prf: &dyn Prf, psk: &Secret, octets: &SignedOctets<'_>) -> Secret {
    let key = prf.mac(psk.expose(), &[b"Key Pad for IKEv2"]);
    let maced_id = prf.mac(octets.sk_p.expose(), &[octets.id_body]);
    prf.mac(key.expose(), &[octets.message, octets.nonce, maced_id.expose()])
}

/// True when `data` is the AUTH of the side that `octets` are about.
pub(crate) fn verify(prf: &dyn Prf, psk: &Secret, octets: &SignedOctets<'_>, data: &[u8]) -> bool {
    ct_eq(auth(prf, psk, octets).expose(), data)
}

/// How well an owner fits an identity: exactly, by suffix, `%any`, or not at all.
fn fit(owner: &IdPattern, id: &Identity) -> u8 {
    match owner {
        _ if !owner.matches(id) => 0,
        IdPattern::Any => 1,
        IdPattern::Suffix(..) => 2,
        IdPattern::Exact(_) => 3,
    }
}

/// The key for this pair: the best fit for the peer, then for us, then the first by name. A key with one owner belongs
/// to whichever side it names; with several owners both sides must be among them, as in `ipsec.secrets`, so that a key
/// of ours with one peer does not let another peer in.
pub(crate) fn find<'a>(
    keys: &'a BTreeMap<String, SharedKey>,
    local: &Identity,
    remote: &Identity,
) -> Option<&'a SharedKey> {
    let mut best: Option<((u8, u8), &SharedKey)> = None;
    for key in keys.values() {
        let of = |id| key.owners.iter().map(|o| fit(o, id)).max().unwrap_or(0);
        let (theirs, ours) = (of(remote), of(local));
        let score = match key.owners.len() {
            0 => (1, 0),
            1 if theirs == 0 && ours == 0 => continue,
            1 => (theirs, ours),
            _ if theirs == 0 || ours == 0 => continue,
            _ => (theirs, ours),
        };
        if best.is_none_or(|(s, _)| score > s) {
            best = Some((score, key));
        }
    }
    best.map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(entries: &[(&str, &[&str])]) -> BTreeMap<String, SharedKey> {
        entries
            .iter()
            .map(|(name, owners)| {
                let owners = owners.iter().map(|o| IdPattern::parse(o).unwrap()).collect();
                (
                    (*name).to_owned(),
                    SharedKey { name: (*name).to_owned(), secret: Secret::default(), owners },
                )
            })
            .collect()
    }

    fn found(entries: &[(&str, &[&str])], local: &str, remote: &str) -> Option<String> {
        let id = |t| Identity::parse(t).unwrap();
        find(&keys(entries), &id(local), &id(remote)).map(|k| k.name.clone())
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
