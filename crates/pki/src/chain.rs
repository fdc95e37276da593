//! Search for a path from the peer's certificate to a CA of the configuration.
//!
//! ```text
//! peer's certificate ──issuer──▶ certificates that the peer sent ──issuer──▶ CA
//!        position 0                    in any order, up to 100
//! ```
//! The search goes up by names alone: a CA of the configuration first, then certificates whose key
//! identifier fits, then all others of that name. A path that reaches a CA is validated from there
//! down (`path`). Steps and signatures are limited: certificates with one name and many keys make
//! more paths than anybody can try.

use std::collections::HashMap;

use crate::certificate::Certificate;
use crate::fault::{ChainFault, Limit, Rule};
use crate::path::{self, Signatures};
use crate::rules::{Policies, Rules};
use crate::time::Time;

/// A valid chain: certificates from the peer's own to a CA of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    certificates: Vec<Certificate>,
}

impl Chain {
    /// The certificates: the peer's own first, a CA of the configuration last. There are two at
    /// least.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// The peer's own certificate.
    pub fn own(&self) -> &Certificate {
        &self.certificates[0]
    }

    /// First second at which a certificate of the chain is not valid any more.
    pub fn not_after(&self) -> Time {
        self.certificates.iter().map(Certificate::not_after).min().unwrap_or(Time(i64::MIN))
    }
}

/// Finds a valid chain from `own` to one of `anchors`, at `now`. `others` are the certificates that
/// the peer sent beside its own, and those of our files that are no CA by themselves, in any order.
///
/// # Errors
/// The fault of the path that came closest to `own`.
pub fn validate(
    own: &Certificate,
    others: &[Certificate],
    anchors: &[Certificate],
    now: Time,
    rules: &Rules,
) -> Result<Chain, ChainFault> {
    validate_each(own, others, anchors, now, rules, std::slice::from_ref(&rules.policies))
}

/// The same, with each of these policies in the place of that of `rules`: a path must be valid for
/// every one of them. The limits count the work of all searches together. Returns the chain for the
/// first policy; there must be one.
///
/// # Errors
/// The fault of the first policy for which no path is valid.
pub fn validate_each(
    own: &Certificate,
    others: &[Certificate],
    anchors: &[Certificate],
    now: Time,
    rules: &Rules,
    policies: &[Policies],
) -> Result<Chain, ChainFault> {
    let limits = rules.limits;
    if others.len() > limits.certificates {
        return Err(ChainFault::limit(Limit::Certificates, limits.certificates));
    }
    if others.iter().map(|c| c.der().len()).sum::<usize>() > limits.bytes {
        return Err(ChainFault::limit(Limit::Bytes, limits.bytes));
    }
    let of_policy = |policies: &Policies| Rules { policies: policies.clone(), ..rules.clone() };
    let each: Vec<Rules> = policies.iter().map(of_policy).collect();
    let mut search = Search::new(others, anchors, now, rules);
    let mut found = None;
    for rules in &each {
        search.rules = rules;
        let mut path = vec![own];
        let Some(anchor) = search.above(&mut path) else { return Err(search.fault(own)) };
        found.get_or_insert_with(|| path.into_iter().chain([anchor]).cloned().collect());
    }
    found.map(|certificates| Chain { certificates }).ok_or_else(|| unknown_issuer(own, 0))
}

/// Judges a certificate that the configuration trusts by itself, at `now`: validity, use and key.
///
/// # Errors
/// The rule that it breaks.
pub fn validate_alone(own: &Certificate, now: Time, rules: &Rules) -> Result<(), ChainFault> {
    path::alone(own, now, rules).map_err(|rule| ChainFault::new(own, 0, rule))
}

/// Certificates by the name of their subject, in a form that equal names have in common. Each
/// certificate stands there once.
type BySubject<'a> = HashMap<Vec<u8>, Vec<&'a Certificate>>;

fn by_subject<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> BySubject<'a> {
    let mut map = BySubject::new();
    for certificate in certificates {
        let list = map.entry(certificate.subject().folded()).or_default();
        if !list.contains(&certificate) {
            list.push(certificate);
        }
    }
    map
}

fn unknown_issuer(certificate: &Certificate, position: usize) -> ChainFault {
    let issuer = certificate.issuer().to_string();
    ChainFault::new(certificate, position, Rule::UnknownIssuer { issuer })
}

/// How far a path came: it reached a CA, and how many of its certificates were good; or how long it
/// was when nobody with the issuer's name was found.
type Progress = (bool, usize);

struct Search<'a> {
    others: BySubject<'a>,
    anchors: BySubject<'a>,
    now: Time,
    rules: &'a Rules,
    signatures: Signatures,
    steps: usize,
    /// Fault of the path that came furthest.
    best: Option<(Progress, ChainFault)>,
    /// The limit at which the search ended.
    ended: Option<ChainFault>,
}

impl<'a> Search<'a> {
    fn new(others: &'a [Certificate], anchors: &'a [Certificate], now: Time, rules: &'a Rules) -> Self {
        Self {
            others: by_subject(others),
            anchors: by_subject(anchors),
            now,
            rules,
            signatures: Signatures::new(rules.limits.signatures),
            steps: rules.limits.steps,
            best: None,
            ended: None,
        }
    }

    /// The fault of a search without success: a limit, or the fault of the path that came furthest.
    fn fault(self, own: &Certificate) -> ChainFault {
        let best = self.ended.or(self.best.map(|(_, fault)| fault));
        best.unwrap_or_else(|| unknown_issuer(own, 0))
    }

    /// Continues a path to a CA, and returns that CA. `path` is complete then. Calls itself once
    /// for each certificate of a path, so no deeper than the limit of its length.
    fn above(&mut self, path: &mut Vec<&'a Certificate>) -> Option<&'a Certificate> {
        let top = *path.last()?;
        let issuer = top.issuer().folded();
        let anchors = in_order(&self.anchors, &issuer, top);
        let others = in_order(&self.others, &issuer, top);
        if anchors.is_empty() && others.is_empty() {
            self.note((false, path.len()), unknown_issuer(top, path.len() - 1));
        }
        for anchor in anchors {
            if !self.step() {
                return None;
            }
            // A CA's own certificate needs no path. It is validated as its own issuer, which its
            // signature must bear out.
            match path::validate(path, anchor, self.now, self.rules, &mut self.signatures) {
                Ok(()) => return Some(anchor),
                Err((good, fault)) => {
                    if let Rule::Limit { of: Limit::Signatures, max } = fault.rule {
                        self.ended = Some(ChainFault::limit(Limit::Signatures, max));
                        return None;
                    }
                    self.note((true, good), fault);
                }
            }
        }
        for other in others {
            if path.contains(&other) {
                continue;
            }
            if path.len() + 1 >= self.rules.limits.depth {
                self.note((false, 0), ChainFault::limit(Limit::Depth, self.rules.limits.depth));
                break;
            }
            if !self.step() {
                return None;
            }
            path.push(other);
            if let Some(anchor) = self.above(path) {
                return Some(anchor);
            }
            path.pop();
            if self.ended.is_some() {
                return None;
            }
        }
        None
    }

    /// Counts one step. False when there were too many.
    fn step(&mut self) -> bool {
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => self.ended = Some(ChainFault::limit(Limit::Steps, self.rules.limits.steps)),
        }
        self.ended.is_none()
    }

    /// Remembers a fault when its path came further than all before.
    fn note(&mut self, progress: Progress, fault: ChainFault) {
        if self.best.as_ref().is_none_or(|(best, _)| progress > *best) {
            self.best = Some((progress, fault));
        }
    }
}

/// Certificates of this name: first those whose key identifier is the one that `below` names.
fn in_order<'a>(map: &BySubject<'a>, issuer: &[u8], below: &Certificate) -> Vec<&'a Certificate> {
    let mut list = map.get(issuer).cloned().unwrap_or_default();
    if let Some(wanted) = below.issuer_key_id() {
        list.sort_by_key(|certificate| certificate.subject_key_id() != Some(wanted));
    }
    list
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
