//! Revocation: what lists and responses say about a chain, and what follows from it.
//!
//! ```text
//! Chain ─▶ wanted: places to ask ─▶ (the caller fetches) ─▶ Crl, Response
//!   └────────────────▶ standing(Evidence) ◀─────────────────────┘
//!                        │
//!                        └─▶ Standing ─▶ judged(Policy); or a ChainFault: revoked
//! ```
//! Each certificate of the chain but the CA of the configuration is asked about. Lists are applied
//! as RFC 5280 section 6.3.3 says (`by_list`), responses as RFC 6960 does (`ocsp`). Not here:
//! fetching, and places from which nothing is fetched (`fetch`).

use crate::by_list::{ByList, Signers};
use crate::certificate::Certificate;
use crate::chain::Chain;
use crate::crl::Crl;
use crate::fault::{At, ChainFault, Rule};
use crate::ocsp::Response;
use crate::rules::Rules;
use crate::status::{NoStatus, Reason, Status};
use crate::time::Time;

/// What an unknown status means: `revocation` of `swanctl.conf`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// An unknown status refuses the chain.
    Strict,
    /// An unknown status refuses the chain when the certificate says where to ask.
    IfUri,
    /// Only a certificate that was revoked refuses the chain.
    #[default]
    Relaxed,
}

/// Lists, responses and certificates that may speak about a chain.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Revocation lists: from files, and those that were fetched.
    pub lists: &'a [Crl],
    /// Responses of OCSP, each with the nonce that was sent for it.
    pub responses: &'a [(Response, Option<Vec<u8>>)],
    /// Certificates of those who may have signed lists, and of CAs above them.
    pub certificates: &'a [Certificate],
    /// CAs of the configuration.
    pub anchors: &'a [Certificate],
}

/// Result for a chain that was not refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Last second at which the status of all certificates is known. `None` when one is unknown.
    pub until: Option<Time>,
    /// Certificates whose status is unknown, and why.
    pub unknown: Vec<(At, NoStatus)>,
}

/// Judges a valid chain, at `now`, by a policy. `IfUri` goes by the places that the certificates
/// name.
///
/// # Errors
/// The first certificate, from the peer's own on, that was revoked, or whose status is unknown and
/// has to be known.
pub fn check(
    chain: &Chain,
    evidence: &Evidence<'_>,
    policy: Policy,
    now: Time,
    rules: &Rules,
) -> Result<Standing, ChainFault> {
    let says_where = |position: usize| chain.certificates().get(position).is_some_and(says_where);
    let standing = standing(chain, evidence, now, rules)?;
    match standing.judged(policy, says_where) {
        Some((at, why)) => {
            let (position, why) = (at.position, why.clone());
            Err(ChainFault::new(&chain.certificates()[position], position, Rule::NoStatus(why)))
        }
        None => Ok(standing),
    }
}

/// True when a certificate names places for its status, whatever they are.
pub fn says_where(certificate: &Certificate) -> bool {
    certificate.ocsp_uris().next().is_some() || certificate.crl_uris().next().is_some()
}

/// Finds the status of all certificates of a valid chain, at `now`.
///
/// # Errors
/// The first certificate, from the peer's own on, that was revoked.
pub fn standing(
    chain: &Chain,
    evidence: &Evidence<'_>,
    now: Time,
    rules: &Rules,
) -> Result<Standing, ChainFault> {
    let mut standing = Standing { until: Some(Time(i64::MAX)), unknown: Vec::new() };
    for position in 0..chain.certificates().len() - 1 {
        let certificate = &chain.certificates()[position];
        match status(chain, position, evidence, now, rules, 0) {
            Ok(Status::Good { until }) => standing.until = standing.until.map(|old| old.min(until)),
            Ok(Status::Revoked { at, reason }) => {
                return Err(ChainFault::new(certificate, position, Rule::Revoked { at, reason }));
            }
            Err(why) => {
                standing.until = None;
                standing.unknown.push((At::new(certificate, position), why));
            }
        }
    }
    Ok(standing)
}

impl Standing {
    /// The first certificate whose status is unknown and has to be known. `says_where` tells
    /// whether there are places to ask for the status of the certificate at this position.
    pub fn judged(&self, policy: Policy, says_where: impl Fn(usize) -> bool) -> Option<&(At, NoStatus)> {
        self.unknown.iter().find(|(at, _)| match policy {
            Policy::Strict => true,
            Policy::IfUri => says_where(at.position),
            Policy::Relaxed => false,
        })
    }
}

/// The last second at which a list may be used for a chain: somebody who may do so has signed it,
/// and it is neither old nor from the future. Whether it covers a certificate of the chain is not
/// asked.
///
/// # Errors
/// The reason why the list is of no use.
pub fn usable_list(
    chain: &Chain,
    list: &Crl,
    evidence: &Evidence<'_>,
    now: Time,
    rules: &Rules,
) -> Result<Time, NoStatus> {
    let signers = Signers { chain, position: 0, evidence, depth: 0 };
    ByList { certificate: &chain.certificates()[0], signers, now, rules }.usable(list)
}

/// Status of the certificate at `position`, which is not the last one. `depth` counts the signers
/// of lists whose own status is asked for on the way.
pub(crate) fn status(
    chain: &Chain,
    position: usize,
    evidence: &Evidence<'_>,
    now: Time,
    rules: &Rules,
    depth: usize,
) -> Result<Status, NoStatus> {
    let (certificate, issuer) = (&chain.certificates()[position], &chain.certificates()[position + 1]);
    let mut why = NoStatus::Nothing;
    let mut good = None;
    for (response, nonce) in evidence.responses {
        match response.status(certificate, issuer, nonce.as_deref(), now, rules) {
            Ok(status @ Status::Good { .. }) => good = good.or(Some(status)),
            Ok(revoked) => return Ok(revoked),
            // Most responses are about other certificates of the chain.
            Err(NoStatus::OtherCertificate) => {}
            Err(other) => why = other,
        }
    }
    let signers = Signers { chain, position, evidence, depth };
    let by_list = ByList { certificate, signers, now, rules }.status();
    match (by_list, good) {
        // A response without our nonce may be older than the list: whoever has it can send it again
        // until it ends. A revocation is for good, but for a certificate on hold.
        (Ok(Status::Revoked { at, reason }), Some(_)) if reason != Reason::ON_HOLD => {
            Ok(Status::Revoked { at, reason })
        }
        (_, Some(good)) => Ok(good),
        // A response that was refused says more than the absence of a list.
        (Err(NoStatus::Nothing), None) => Err(why),
        (other, None) => other,
    }
}

#[cfg(test)]
#[path = "revocation_tests.rs"]
mod tests;
