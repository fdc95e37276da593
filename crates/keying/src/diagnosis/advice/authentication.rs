//! Advice on entries of the area authentication.

use super::entry::advice;
use crate::diagnosis::AuthenticationEntry;

advice! {
    AuthenticationEntry;

    NoConnection [Untrusted, Strangers]
        "a connection whose `local_addrs` and `remote_addrs` hold them";
    NoPeer [Untrusted, Strangers]
        "the log has each connection for the addresses and what does not fit: make `remote.id` here and \
         `local.id` there the same, in type and letters";
    Chosen [NotAsMeant]
        "nothing, if that is meant. Else give the connections that the sentence names other `remote_addrs`, \
         identities or proposals";
    OtherPeer [Untrusted, Strangers]
        "make `remote.id` here and `local.id` there the same";
    OurIdentity [Untrusted, Strangers]
        "give each gateway its own `id`. If both shall have one, name it in `remote.id`";
    NoProof [Untrusted]
        "the sentence names the key, method or algorithm: give both sides the same secret, put the peer's \
         public key into `remote.pubkeys`, or let `remote.auth` allow what it signs by";
    TooManyCertificates [Untrusted]
        "let the peer send its own certificate and those between it and the CA's: ten are the most";
    NoCertificate [Untrusted]
        "`send_cert = always` at the peer, or its certificate in `remote.certs`";
    CertificateOfOther [Untrusted]
        "let the peer's `local.id` be the subject or another name (`subjectAltName`) of its certificate";
    CertificateNotNamed [Untrusted]
        "name the peer's certificate in `remote.certs`, or leave that key out";
    UnknownIssuer [Untrusted]
        "put the certificate of the CA into `x509ca`; the log has the certificates from the peer's own up. \
         Links may lie in `x509ca`, too";
    OtherAuthority [Untrusted]
        "name a CA of the chain in `remote.cacerts` or `remote.ca_id`, or give the peer another certificate";
    CertificateExpired [Untrusted, Ends]
        "give the peer a new certificate. If it should be valid, compare the clocks";
    CertificateNotYetValid [Untrusted]
        "compare the clocks of both gateways and of the CA";
    CertificateRevoked [Untrusted]
        "give the peer a new certificate, if it is still to be let in";
    NoStatus [Untrusted]
        "put a fresh list of each CA of the chain into `x509crl`, or write `revocation = relaxed`";
    CertificateNotAllowed [Untrusted]
        "let the CA issue another certificate; the message names the rule, such as keyUsage or \
         nameConstraints, and the certificate";
    CertificateUnusable [Untrusted]
        "let the CA issue another certificate. If a CA has renewed its key, put the new certificate of the \
         CA into `x509ca`";
    ChainLimit [Untrusted]
        "let the peer send only the certificates of its chain; a chain has ten at most";
    Eap [Untrusted]
        "let the peer authenticate by a secret or a key";
    CannotSign [Untrusted]
        "load the private key again; RSA PSS by a short key needs a shorter hash in `local.auth`; if it \
         stays so, report it";
    NotVerified [Untrusted]
        "the sentence has the hash algorithms of both sides: let them have one in common, use another kind \
         of key, or a secret";
    Rejected [Untrusted]
        "compare secrets and identities: the log has the key and the identities that we used, the peer's \
         log has the ones it looked for";
    PeerLacksRounds [Disagree]
        "one `local` and one `remote` section, or [several](configuration.md#rounds) on both sides";
    OtherRounds [Disagree]
        "a `remote` section for each `local` section of the peer";
    PeerLacksPpk [Untrusted]
        "`ppk_id` and the key on both sides, or `ppk_required = no`; the sentence says how far the peer \
         came";
    OtherPpk [Untrusted]
        "the same `ppk_id` on both sides, and `secrets { ppk-1 { .. } }` with that `id` and one secret";
    WrongPpk [Untrusted]
        "one secret on both sides in `secrets { ppk-1 { .. } }` with the `id` that the sentence names";
    PpkDemanded [Untrusted]
        "load the peer's key under the identifier that the sentence names, or let it be optional there";
    NotInTime [Untrusted, Strangers]
        "look for what keeps its IKE_AUTH from arriving, such as a firewall that drops port 4500 or \
         fragments";
    Childless [Disagree]
        "`childless = allow` takes both";
    ChildNeeded [Disagree, Command]
        "initiate a child instead of the connection";
    KeptOther [Ends]
        "`unique = replace` lets the new one take over";
    IkeLimit [Disagree, Strangers]
        "raise `ike_sa_max` or `ike_sa_max_per_id`, if the peers need so many";
}
