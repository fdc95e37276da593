//! Status of one certificate by revocation lists: RFC 5280 section 6.3.3.
//!
//! A certificate names points at which its status is published; each list covers some certificates,
//! for some reasons. The certificate is good when lists that cover it have no entry of it, for all
//! reasons together. A list of differences counts before the list to which it belongs.

use crate::certificate::Certificate;
use crate::chain::{self, Chain};
use crate::crl::{Crl, Scope};
use crate::der::{SEQUENCE, SET, emit};
use crate::extensions::{CRL_SIGN, CrlPoint, PointName};
use crate::general_name::GeneralName;
use crate::name::Name;
use crate::path;
use crate::revocation::{Evidence, status};
use crate::rules::{Purpose, Rules};
use crate::status::{NoStatus, Reason, Status};
use crate::time::Time;

/// All reasons of `ReasonFlags`; its bit 0 means nothing.
const ALL_REASONS: u16 = 0x7f80;
/// Most points of one certificate that are looked at.
const MAX_POINTS: usize = 8;
/// Most lists that may cover one certificate and are looked at.
const MAX_LISTS: usize = 16;
/// Most certificates of one name, beside those of the chain, that are tried as the signer of a
/// list.
const MAX_SIGNERS: usize = 4;
/// How many signers of lists may stand one above the other, each with a status of its own.
const MAX_DEPTH: usize = 2;

/// Certificates among which the signer of a list is sought.
#[derive(Clone, Copy)]
pub(crate) struct Signers<'a> {
    pub(crate) chain: &'a Chain,
    /// Position of the certificate whose status is asked for.
    pub(crate) position: usize,
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) depth: usize,
}

/// One question.
pub(crate) struct ByList<'a> {
    pub(crate) certificate: &'a Certificate,
    pub(crate) signers: Signers<'a>,
    pub(crate) now: Time,
    pub(crate) rules: &'a Rules,
}

impl<'a> ByList<'a> {
    /// The status, or the reason why the lists do not say it.
    pub(crate) fn status(&self) -> Result<Status, NoStatus> {
        let lists = self.signers.evidence.lists;
        // "Assume a DP with both the reasons and the cRLIssuer fields omitted and a distribution
        // point name of the certificate issuer": for lists that no point names.
        let issuer = emit(0xa4, &[self.certificate.issuer().der()]);
        let own = CrlPoint { name: Some(PointName::Full(&issuer)), ..CrlPoint::default() };
        let points = self.certificate.crl_points().take(MAX_POINTS).chain([own]);
        let mut covered = 0;
        let mut until = Time(i64::MAX);
        let mut why = NoStatus::Nothing;
        for point in points {
            let mut fitting: Vec<(&Crl, u16)> = lists
                .iter()
                .filter(|list| !list.is_delta())
                .filter_map(|list| Some((list, self.reasons(&point, list)?)))
                .collect();
            if fitting.is_empty() && why == NoStatus::Nothing && !lists.is_empty() {
                why = NoStatus::OtherScope;
            }
            // The newest list counts, if it is good.
            fitting.sort_by_key(|(list, _)| std::cmp::Reverse(list.this_update()));
            for (list, reasons) in fitting.into_iter().take(MAX_LISTS) {
                if reasons & !covered == 0 {
                    continue;
                }
                match self.ask(list) {
                    Ok(Status::Good { until: end }) => {
                        covered |= reasons;
                        until = until.min(end);
                    }
                    Ok(revoked) => return Ok(revoked),
                    Err(fault) => why = fault,
                }
            }
            if covered == ALL_REASONS {
                return Ok(Status::Good { until });
            }
        }
        Err(if covered == 0 { why } else { NoStatus::SomeReasons })
    }

    /// Reasons for which this list covers the certificate at this point. `None` when it does not.
    fn reasons(&self, point: &CrlPoint<'_>, list: &Crl) -> Option<u16> {
        let scope = list.scope();
        let is_ca = self.certificate.is_ca();
        if (scope.only_users && is_ca) || (scope.only_cas && !is_ca) || scope.only_attributes {
            return None;
        }
        let issuer_fits = match point.issuer {
            // (b) (1): "If the DP includes cRLIssuer, then verify that the issuer field in the
            // complete CRL matches cRLIssuer in the DP and that the complete CRL contains an
            // issuing distribution point extension with the indirectCRL boolean asserted."
            Some(names) => scope.indirect && has_directory(names, &list.issuer()),
            None => list.issuer() == self.certificate.issuer(),
        };
        if !issuer_fits || !self.point_fits(point, list, &scope) {
            return None;
        }
        let reasons =
            point.reasons.unwrap_or(ALL_REASONS) & scope.reasons.unwrap_or(ALL_REASONS) & ALL_REASONS;
        (reasons != 0).then_some(reasons)
    }

    /// (b) (2) (i): one name of the list's point is one of the certificate's.
    fn point_fits(&self, point: &CrlPoint<'_>, list: &Crl, scope: &Scope<'_>) -> bool {
        let Some(published) = &scope.point else { return true };
        // A relative name stands below the issuer of the list.
        let full = |name: &PointName<'_>, issuer: &Name<'_>| match name {
            PointName::Full(names) => names.to_vec(),
            PointName::Relative(rdn) => below(issuer, rdn),
        };
        let published = full(published, &list.issuer());
        let wanted = match (&point.name, point.issuer) {
            (Some(name), Some(issuers)) => {
                let issuer = directory(issuers).unwrap_or(list.issuer());
                full(name, &issuer)
            }
            (Some(name), None) => full(name, &self.certificate.issuer()),
            (None, Some(issuers)) => issuers.to_vec(),
            (None, None) => return false,
        };
        let mut wanted = GeneralName::list(&wanted).take(MAX_POINTS);
        wanted.any(|name| GeneralName::list(&published).take(MAX_POINTS).any(|other| same(&name, &other)))
    }

    /// Asks one list, with its newest list of differences.
    fn ask(&self, list: &Crl) -> Result<Status, NoStatus> {
        let mut until = self.usable(list)?;
        let mut deltas: Vec<&Crl> = self
            .signers
            .evidence
            .lists
            .iter()
            .filter(|delta| delta.is_delta_of(list))
            .take(MAX_LISTS)
            .collect();
        deltas.sort_by_key(|delta| std::cmp::Reverse(delta.this_update()));
        let (issuer, serial) = (self.certificate.issuer(), self.certificate.serial());
        let mut found = None;
        for delta in deltas {
            if let Ok(end) = self.usable(delta) {
                until = until.min(end);
                found = delta.find(&issuer, serial);
                break;
            }
        }
        match found.or_else(|| list.find(&issuer, serial)) {
            None | Some((_, Reason::REMOVED)) => Ok(Status::Good { until }),
            Some((at, reason)) => Ok(Status::Revoked { at, reason }),
        }
    }

    /// Checks that a list may be used now: its times, its extensions, and its signer. Returns the
    /// last second of its use.
    pub(crate) fn usable(&self, list: &Crl) -> Result<Time, NoStatus> {
        if list.this_update() > self.now {
            return Err(NoStatus::NotYetValid { from: list.this_update() });
        }
        // "CRL issuers conforming to this profile MUST include the nextUpdate field in all CRLs": a
        // list without it counts as old at once.
        let until = list.next_update().unwrap_or(list.this_update());
        if until < self.now {
            return Err(NoStatus::Old { since: until });
        }
        if list.unknown_critical().is_some() {
            return Err(NoStatus::UnknownCritical);
        }
        self.signed(list)?;
        Ok(until)
    }

    /// Checks that a list was signed by somebody who may do so: a CA of the chain above the
    /// certificate, or another certificate of the issuer's name that leads to the same CA of the
    /// configuration and was not revoked itself.
    fn signed(&self, list: &Crl) -> Result<(), NoStatus> {
        let Signers { chain, position, evidence, depth } = self.signers;
        let issuer = list.issuer();
        let certificates = chain.certificates();
        let mut why = NoStatus::Responder;
        // A peer sends certificates of any name and key identifier, so those that say another key
        // go last, and no number of them stands before a CA of the chain.
        let wanted = list.issuer_key_id();
        let is_other_key = |signer: &Certificate| {
            wanted.is_some() && signer.subject_key_id().is_some_and(|id| Some(id) != wanted)
        };
        let above = &certificates[position + 1..];
        let mut others: Vec<_> =
            evidence.certificates.iter().filter(|c| c.subject() == issuer && !above.contains(c)).collect();
        others.sort_by_key(|signer| is_other_key(signer));
        let above = above.iter().filter(|signer| signer.subject() == issuer);
        let others = others.into_iter().take(MAX_SIGNERS);
        let mut named: Vec<_> =
            above.map(|signer| (signer, true)).chain(others.map(|signer| (signer, false))).collect();
        named.sort_by_key(|(signer, _)| is_other_key(signer));
        for (signer, is_above) in named {
            // The signature first: a certificate that did not sign needs no chain.
            let good = signer.key(self.rules.legacy).is_ok_and(|key| {
                path::signature(list.algorithm(), &key, list.signed(), list.signature(), self.rules).is_ok()
            });
            if !good {
                if why == NoStatus::Responder {
                    why = NoStatus::Signature;
                }
                continue;
            }
            if is_above {
                match signer.extensions().key_usage {
                    Some(usage) if usage & CRL_SIGN == 0 => {
                        let rule = crate::fault::Rule::KeyUsage { needed: "signatures of CRLs" };
                        let at = certificates.iter().position(|c| c == signer).unwrap_or(0);
                        why = NoStatus::Signer(Box::new(crate::ChainFault::new(signer, at, rule)));
                        continue;
                    }
                    _ => return Ok(()),
                }
            }
            match self.trusted(signer, chain, evidence, depth) {
                Ok(()) => return Ok(()),
                Err(fault) => why = fault,
            }
        }
        Err(why)
    }

    /// Checks the certificate of a signer that is no part of the chain.
    fn trusted(
        &self,
        signer: &Certificate,
        chain: &Chain,
        evidence: &Evidence<'_>,
        depth: usize,
    ) -> Result<(), NoStatus> {
        // "The trust anchor for the certification path MUST be the same as the trust anchor used to
        // validate the target certificate."
        let anchor = chain.certificates().last().map(std::slice::from_ref).unwrap_or_default();
        let rules = self.rules.for_signer(Purpose::Crl);
        let others: Vec<Certificate> = evidence
            .certificates
            .iter()
            .chain(chain.certificates())
            .take(rules.limits.certificates)
            .cloned()
            .collect();
        let above = chain::validate(signer, &others, anchor, self.now, &rules)
            .map_err(|fault| NoStatus::Signer(Box::new(fault)))?;
        // A signer whose list covers its own certificate would need itself.
        if depth >= MAX_DEPTH {
            return Err(NoStatus::Responder);
        }
        for position in 0..above.certificates().len() - 1 {
            match status(&above, position, evidence, self.now, &rules, depth + 1)? {
                Status::Good { .. } => {}
                Status::Revoked { at, reason } => {
                    let rule = crate::fault::Rule::Revoked { at, reason };
                    let certificate = &above.certificates()[position];
                    return Err(NoStatus::Signer(Box::new(crate::ChainFault::new(
                        certificate,
                        position,
                        rule,
                    ))));
                }
            }
        }
        Ok(())
    }
}

/// The first distinguished name of a list of names.
fn directory(names: &[u8]) -> Option<Name<'_>> {
    GeneralName::list(names).find_map(|name| match name {
        GeneralName::Directory(name) => Some(name),
        _ => None,
    })
}

fn has_directory(names: &[u8], wanted: &Name<'_>) -> bool {
    GeneralName::list(names).take(MAX_POINTS).any(|name| name == GeneralName::Directory(*wanted))
}

fn same(a: &GeneralName<'_>, b: &GeneralName<'_>) -> bool {
    !matches!(a, GeneralName::Other(_)) && a == b
}

/// The list of one general name: the name of `issuer` with one RDN more.
fn below(issuer: &Name<'_>, rdn: &[u8]) -> Vec<u8> {
    let rdns = crate::der::only(issuer.der(), SEQUENCE).unwrap_or_default();
    let name = emit(SEQUENCE, &[rdns, &emit(SET, &[rdn])]);
    emit(0xa4, &[&name])
}
