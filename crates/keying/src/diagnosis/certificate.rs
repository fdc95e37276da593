//! Sentences and remedies of the entries about the peer's certificates.

use ironswan_pki::{ChainFault, Rule};
use ironswan_wire::id::Identity;

use super::authentication::Authentication;
use super::entry::{Words, say};
use super::shown::{Shown, cut};
use crate::limits::CERTIFICATES_PER_PEER;

/// A certificate of a peer's chain that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untrusted {
    /// Identity that the peer claims.
    pub peer: Identity,
    /// The rule that failed, and at which certificate.
    pub fault: ChainFault,
    /// Lines about the certificates from the peer's own up, as far as they are known.
    pub walked: Vec<String>,
}

impl Untrusted {
    /// The entry for a rule that the chain of this peer breaks.
    pub(crate) fn entry(peer: &Identity, fault: ChainFault, walked: Vec<String>) -> Authentication {
        let rule = fault.rule.clone();
        let of = Box::new(Self { peer: peer.clone(), fault, walked });
        match rule {
            Rule::UnknownIssuer { .. } => Authentication::UnknownIssuer { of },
            Rule::Expired { .. } => Authentication::CertificateExpired { of },
            Rule::NotYetValid { .. } => Authentication::CertificateNotYetValid { of },
            Rule::Revoked { .. } => Authentication::CertificateRevoked { of },
            Rule::NoStatus(_) => Authentication::NoStatus { of },
            Rule::Limit { .. } => Authentication::ChainLimit { of },
            Rule::NotCa
            | Rule::PathLength { .. }
            | Rule::KeyUsage { .. }
            | Rule::Purpose { .. }
            | Rule::NameNotPermitted { .. }
            | Rule::NameExcluded { .. }
            | Rule::NoPolicy
            | Rule::MappedAnyPolicy
            | Rule::UnknownCritical { .. } => Authentication::CertificateNotAllowed { of },
            Rule::Unreadable(_)
            | Rule::Key(_)
            | Rule::WeakDigest
            | Rule::UnknownAlgorithm { .. }
            | Rule::Signature => Authentication::CertificateUnusable { of },
        }
    }
}

/// True for entries that refuse the peer because of its certificates.
pub(super) fn is_about_one(why: &Authentication) -> bool {
    use Authentication as A;
    matches!(
        why,
        A::TooManyCertificates { .. }
            | A::NoCertificate { .. }
            | A::CertificateOfOther { .. }
            | A::CertificateNotNamed { .. }
            | A::OtherAuthority { .. }
    ) || of(why).is_some()
}

/// The certificate that an entry is about, and what to do.
fn of(why: &Authentication) -> Option<(&Untrusted, &'static str)> {
    use Authentication as A;
    Some(match why {
        A::UnknownIssuer { of } => (
            of,
            "put the certificate of the peer's CA into the folder x509ca, or let the peer send the ones between",
        ),
        A::CertificateExpired { of } => {
            (of, "give the peer a new certificate; compare the clocks of both ends")
        }
        A::CertificateNotYetValid { of } => (of, "compare the clocks of both ends and the CA"),
        A::CertificateRevoked { of } => (of, "give the peer a new certificate"),
        A::NoStatus { of } => (
            of,
            "let the places that the certificate names answer, put the CA's revocation list into the folder x509crl, or write revocation = relaxed",
        ),
        A::CertificateNotAllowed { of } => (of, "let the CA issue a certificate that allows this use"),
        A::CertificateUnusable { of } if of.fault.rule == Rule::Signature => (
            of,
            "a CA of this name has another key: put the certificate that it has now into the folder x509ca",
        ),
        A::CertificateUnusable { of } => (
            of,
            "let the CA issue a certificate with a signature over SHA2 and a key of 2,048 bits of RSA, ECDSA or Ed25519",
        ),
        A::ChainLimit { of } => (of, "let the peer send only the certificates between its own and the CA's"),
        _ => return None,
    })
}

pub(super) fn words(why: &Authentication) -> Words {
    use Authentication as A;
    if let Some((Untrusted { peer, fault, walked }, remedy)) = of(why) {
        return say(format!("the certificate of '{peer}' is refused: {fault}"), remedy).with(walked.clone());
    }
    match why {
        A::TooManyCertificates { peer, count } => say(
            format!("'{peer}' sent {count} certificates; {CERTIFICATES_PER_PEER} are the most"),
            "let the peer send only the certificates between its own and the CA's",
        ),
        A::NoCertificate { peer } => say(
            format!("'{peer}' sent no certificate, and remote.certs names none for it"),
            "let the peer send its certificate (send_cert = always), or name its file in remote.certs",
        ),
        A::CertificateOfOther { peer, subject, names } => {
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            say(
                format!(
                    "the peer says it is '{peer}', and its certificate is for \"{subject}\" (other names: {names})"
                ),
                "let local.id there be the subject or another name of its certificate",
            )
        }
        A::CertificateNotNamed { peer, subject } => say(
            format!("the certificate of '{peer}', \"{subject}\", is none of remote.certs"),
            "name the file of this certificate in remote.certs, or leave remote.certs out",
        ),
        A::OtherAuthority { peer, chain } => say(
            format!("the chain of '{peer}' has no CA that remote.cacerts and remote.ca_id ask for: {chain}"),
            "name a CA of this chain, or give the peer a certificate of the CA that is named",
        ),
        _ => say("", ""),
    }
}
impl Shown for Untrusted {
    fn shown(&self) -> Option<String> {
        Some(cut(&self.fault))
    }
}
