//! Advice for each reason that refuses a chain: what the owner of the certificate or CA does.

use ironswan_pki::fault::Rule;
use ironswan_pki::status::NoStatus;

/// The advice, as the rest of a sentence.
pub(crate) fn of(rule: &Rule) -> &'static str {
    match rule {
        Rule::Unreadable(_) => "copy the file again, or issue the certificate again",
        Rule::Expired { .. } => {
            "issue a new one with `ironswan pki issue` (for a CA: `self`), and check the clock of this machine"
        }
        Rule::NotYetValid { .. } => "wait, or check the clocks of this machine and of the CA",
        Rule::NotCa => "issue the certificate above it with --ca",
        Rule::PathLength { .. } => {
            "issue from a CA higher up, or make that CA again with a greater --pathlen"
        }
        Rule::KeyUsage { .. } => {
            "issue it again with a keyUsage that fits: `ironswan pki issue` sets it, with --ca for a CA"
        }
        Rule::Purpose { .. } => "issue it again with --flag serverAuth, or without any --flag",
        Rule::NameNotPermitted { .. } => {
            "leave the name out, or issue from a CA that permits it (--nc-permitted)"
        }
        Rule::NameExcluded { .. } => {
            "leave the name out, or issue from a CA that does not exclude it (--nc-excluded)"
        }
        Rule::NoPolicy => "issue all certificates of the chain with the same --cert-policy",
        Rule::MappedAnyPolicy => "ask the CA for a certificate without this mapping",
        Rule::Key(_) => "make a new key with `ironswan pki gen`, and issue a certificate for it",
        Rule::WeakDigest => "issue it again: `ironswan pki` signs over SHA-2",
        Rule::UnknownAlgorithm { .. } => "issue it again from a CA whose key is of RSA, ECDSA or Ed25519",
        Rule::UnknownCritical { .. } => {
            "ask the CA for a certificate in which this extension is absent or not critical"
        }
        Rule::Signature => {
            "name the CA that issued it: another CA has the same name, or the file was changed"
        }
        Rule::UnknownIssuer { .. } => {
            "name the issuer's certificate with --cacert when it is trusted, else with --cert"
        }
        Rule::Revoked { .. } => "issue a new certificate, for a new key when the old one was compromised",
        Rule::NoStatus(NoStatus::Old { .. }) => "sign a new list with `ironswan pki signcrl --lastcrl`",
        Rule::NoStatus(_) => "name the revocation list of its CA with --crl",
        Rule::Limit { .. } => "send fewer certificates: those of the chain alone",
    }
}
