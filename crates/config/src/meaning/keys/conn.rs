//! Keys of `connections.<conn>`, `local` and `remote`, and their readers.

use std::time::Duration;

use ironswan_keying::diagnosis::{Configuration, ValueFault};
use ironswan_keying::{AddrSpec, Childless, Fragmentation, SendCert, Signatures, Unique};
use ironswan_pki::{Oid, revocation};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;

use super::Preset::{Depends, Is};
use super::{Entry, Key, Kind, NO, Table, UNSET, Unused, YES, ZERO};
use super::{each, keys, list, no_effect, only, text, time, word, yes_no};
use crate::proposal;
use crate::tree::Value;
use crate::value::{self, Wrong, show, wrong};

const OCSP: &str = "nothing is asked by OCSP yet; remove this key";
const GROUPS: &str =
    "groups of attribute certificates are not built; use `ca_id` or `cacerts`, and remove this key";
const EAP: &str = "EAP is not built yet; use auth = psk and remove this key";
const IKEV1: &str = "only IKEv1 has this, which is not built yet (RFC 9395 deprecates it); remove this key";
const VIPS: &str = "virtual addresses and pools are not built yet; remove this key";
pub(super) const XFRM: &str =
    "XFRM interface ids belong to the kernel's engine, which is not used; remove this key";
const MEDIATION: &str = "mediation is not built; remove this key";

keys! {
    /// Keys of `connections.<conn>`.
    CONN;
    VERSION: () = text("version", Kind::Number, Is("0"), version,
        "0 and 2 both mean IKEv2. 1 is refused: IKEv1 is not built yet (RFC 9395 deprecates it)");
    LOCAL_ADDRS: Vec<AddrSpec> = list("local_addrs", Kind::Addresses, Is("%any"), |v| each(v, value::address),
        "our addresses: list of at most 255 addresses, ranges, subnets, DNS names");
    REMOTE_ADDRS: Vec<AddrSpec> = list("remote_addrs", Kind::Addresses, Is("%any"), |v| each(v, value::address),
        "the peer's addresses, likewise; to initiate, one must be a single address or a [name](#dns-names). Of several, the next is asked when there is no IKE_SA after 2 s, without giving up those before (8 at once at most); the first that authenticates is taken, and nothing is left of the others. `keyingtries` counts rounds through all of them");
    LOCAL_PORT: Option<u16> = text("local_port", Kind::Number, Depends("`port_ike`"), local_port,
        "`port_ike` of `ironswan.conf` (500), or `port_natt` (4500) to start UDP-encapsulated; with another one the connection answers peers and initiates nothing");
    REMOTE_PORT: u16 = text("remote_port", Kind::Number, Is("500"), |t| value::port(t, 500),
        "the peer's: 500, or 4500 to start UDP-encapsulated");
    PROPOSALS: Vec<Proposal> = list("proposals", Kind::Proposals, Is("default"), |v| proposal::list(v.items(), ProtocolId::IKE),
        "IKE algorithms, [see below](#proposals), in at most 64 proposals");
    ENCAP: bool = yes_no("encap", "no",
        "ESP in UDP even when no NAT is in between. On Linux it is also the fast way: UDP has segmentation offload, raw ESP has none");
    MOBIKE: bool = yes_no("mobike", "yes",
        "addresses of either end may change while the IKE_SA and its children stand (RFC 4555), if the peer agrees; IKE then uses port 4500 from IKE_AUTH on. An address that a peer moves to need not be among its `remote_addrs`, which say where an IKE_SA begins. Without it, and for children in transport mode or with `dynamic` selectors, a new IKE_SA takes over from the new address");
    DSCP: u8 = text("dscp", Kind::Word, Is("000000"), dscp,
        "DSCP of the IKE packets that we send, as six binary digits: `101110` is EF. Answers to strangers have 0");
    DPD_DELAY: Duration = time("dpd_delay", Is("0s"),
        "after this much silence from the peer, ask whether it is alive; authenticated ESP is a sign of life. 0: never");
    PATH_PROBE: bool = yes_no("path_probe", "yes",
        "measure the size of packets that the [path](operations.md#path-mtu) to the peer carries, by IKE messages that must not be fragmented: after set-up, when an end has moved, and about every hour. Where less passes than the routing table says, the routes into the tunnel follow");
    CHILDLESS: Childless = text("childless", Kind::Word, Is("allow"), childless,
        "IKE_SAs that are made without a CHILD_SA (RFC 6023): `allow` offers and accepts them, and asks for one when only the IKE_SA is to come up; `prefer` asks for one whenever the peer offers them, and makes each child by an exchange of its own; `force` neither asks for nor accepts anything else; `never` none of it. A peer that does not offer them is never asked for one");
    FRAGMENTATION: Fragmentation = text("fragmentation", Kind::Word, Is("yes"), fragmentation,
        "IKE messages in fragments (RFC 7383), so that none needs fragments of IP: `yes` announces this, and sends messages that are longer than [`fragment_size`](#ironswanconf) so to a peer that announces it too; `accept` announces and takes fragments, and sends none; `no` does neither. `force` is `yes`: only IKEv1 can force it. IKE_SA_INIT is never cut");
    PPK_ID: Option<Identity> = text("ppk_id", Kind::Identity, Depends(""), ppk_identity,
        "the `id` of a [post-quantum preshared key](#secretsppksuffix), which goes to the peer. As responder we take no other one; without `ppk_id` we offer none, and take any that is loaded");
    PPK_REQUIRED: bool = yes_no("ppk_required", "no",
        "refuse IKE_SAs without a post-quantum preshared key. `no`: go on without one when the peer does not have it");
    PPK_INTERMEDIATE: bool = yes_no("ppk_intermediate", "yes",
        "offer and take post-quantum preshared keys in IKE_INTERMEDIATE (RFC 9867), so that they protect the first IKE_SA as well. A peer that does not know this uses them in IKE_AUTH (RFC 8784), as does everybody with `no`");
    SEND_CERT: SendCert = text("send_cert", Kind::Word, Is("ifasked"), send_cert,
        "when our [certificate](#certificates) goes to the peer: `ifasked`, when the peer has sent CERTREQ; `always`; `never`, when the peer has it in its configuration");
    SEND_CERTREQ: bool = yes_no("send_certreq", "yes",
        "ask the peer for its certificate (CERTREQ, with the keys of our CAs)");
    KEYINGTRIES: u32 = text("keyingtries", Kind::Number, Is("1"), keyingtries,
        "tries to bring a connection up, 0 or `%forever`: until it works, with growing pauses (`retry_initial` to `retry_max`). A try goes through all addresses of the peer. Without effect on what is started by itself for a child with `start_action = start` and `dpd_action = restart`: that never ends");
    UNIQUE: Unique = text("unique", Kind::Word, Is("no"), unique,
        "the same pair of identities authenticates again: `no` keeps both unless the peer says INITIAL_CONTACT, `never` keeps both in any case, `keep` refuses the new one, `replace` closes the old one. What both sides have begun at once is settled first: with the same children, one of the two IKE_SAs is deleted (not with `never`). A peer that moves to another address has to make a new one: `keep` holds it off until the old one is given up");
    REKEY_TIME: Duration = time("rekey_time", Depends("4h, or 0 with `reauth_time`"),
        "rekey the IKE_SA after this; 0: never");
    REAUTH_TIME: Duration = time("reauth_time", Is("0s"),
        "make the IKE_SA anew with IKE_AUTH after this, with all its children, before the old one is deleted; 0: never. An end that cannot initiate tells its peer to do so (AUTH_LIFETIME, RFC 4478), and a lifetime that the peer names is kept to, though never more often than every 10 s. It needs `unique` other than `keep` at the peer");
    OVER_TIME: Duration = time("over_time", Depends("10 % of the longer of `rekey_time` and `reauth_time`"),
        "close it this long after either of the two if nothing has taken over");
    RAND_TIME: Duration = time("rand_time", Depends("`over_time`"),
        "a random part of this is taken off `rekey_time` and `reauth_time`, so that two ends do not begin at once");
}

/// Six binary digits, as charon writes a DSCP.
fn dscp(text: &str) -> Result<u8, Wrong> {
    let t = text.trim();
    match u8::from_str_radix(t, 2) {
        Ok(n) if t.len() == 6 && t.bytes().all(|digit| digit.is_ascii_digit()) => Ok(n),
        _ => Err(wrong(text, ValueFault::Not("a DSCP"), "write six binary digits, such as 101110 for EF")),
    }
}

/// `connections.<conn>`.
pub(in crate::meaning) const CONN_TABLE: Table = Table { read: CONN, unused: CONN_UNUSED };

const CONN_UNUSED: &[Unused] = &[
    only("vips", UNSET, VIPS),
    only("aggressive", NO, IKEV1),
    only("pull", YES, IKEV1),
    no_effect("dpd_timeout", "IKEv1 only; with IKEv2 a peer is given up when the retransmissions end"),
    only("ocsp", &["reply", "never"], OCSP),
    only("pools", UNSET, VIPS),
    only("if_id_in", ZERO, XFRM),
    only("if_id_out", ZERO, XFRM),
    only("mediation", NO, MEDIATION),
    only("mediated_by", UNSET, MEDIATION),
    only("mediation_peer", UNSET, MEDIATION),
];

/// File of a certificate that a section names.
const CERT: &[&dyn Entry] = &[&text::<String>(
    "file",
    Kind::File,
    Depends(""),
    |t| Ok(t.trim().to_owned()),
    "file of the certificate, absolute",
)];

/// `cert<suffix>` and `cacert<suffix>` of both sides.
pub(in crate::meaning) const CERT_TABLE: Table = Table { read: CERT, unused: CERT_UNUSED };

const TOKEN: &str = "tokens are not built; use `file` and remove this key";

const CERT_UNUSED: &[Unused] =
    &[only("handle", UNSET, TOKEN), only("slot", UNSET, TOKEN), only("module", UNSET, TOKEN)];

/// `round` of both sides.
const ROUND: Key<u64> = text(
    "round",
    Kind::Number,
    Depends("the place of the section"),
    |t| value::number(t, 255),
    "order of this section among those of its side. Each `local` and each `remote` section is a [round](#rounds) in which that side proves who it is",
);

/// A method of authentication, without its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::meaning) enum Method {
    /// A pre-shared key.
    Psk,
    /// Signatures that obey these rules.
    Pubkey(Signatures),
}

/// Files of public keys.
fn files(value: &Value) -> Result<Vec<String>, Vec<Wrong>> {
    each(value, |file| Ok(file.to_owned()))
}

/// Keys of `connections.<conn>.local<suffix>`.
pub(in crate::meaning) mod local {
    use super::*;

    keys! {
        /// Keys of `connections.<conn>.local<suffix>`.
        LOCAL;
        ROUND: u64 = super::ROUND;
        AUTH: Method = text("auth", Kind::Word, Is("pubkey"), auth,
            "how we prove who we are: `psk`, a shared key of `secrets`; or `pubkey`, a signature with the key of a [certificate](#certificates) or a [raw public key](#public-keys). Instead of `pubkey`, [rules](#signatures) may name keys and hashes. The two directions may differ");
        CERTS: Vec<String> = list("certs", Kind::Files, Depends("a certificate of the folder `x509` that speaks for `id`"), files,
            "files of our [certificates](#certificates), absolute or in the folder `x509`. The first one that has its private key and comes from a CA that the peer asks for is used, else the first one that has its private key");
        PUBKEYS: Vec<String> = list("pubkeys", Kind::Files, Depends("the private key whose fingerprint is `id`"), files,
            "files of our public keys, absolute or in the folder `pubkey`. We sign with the private key of the first of them that has one in `private`, `rsa`, `ecdsa` or `pkcs8`");
        ID: Option<Identity> = text("id", Kind::Identity, Depends("our outer address; with `certs` the subject of the first certificate, with `pubkeys` the fingerprint of the first key"), own_identity,
            "our identity: a name (`gw.example`), `user@example`, an address, a distinguished name (`C=CH, O=example, CN=gw`), or `@#hex` for a key ID");
    }

    /// `connections.<conn>.local<suffix>`.
    pub(in crate::meaning) const LOCAL_TABLE: Table = Table { read: LOCAL, unused: LOCAL_UNUSED };

    const LOCAL_UNUSED: &[Unused] =
        &[only("eap_id", UNSET, EAP), only("aaa_id", UNSET, EAP), only("xauth_id", UNSET, IKEV1)];
}

/// Keys of `connections.<conn>.remote<suffix>`.
pub(in crate::meaning) mod remote {
    use super::*;

    keys! {
        /// Keys of `connections.<conn>.remote<suffix>`.
        REMOTE;
        ROUND: u64 = super::ROUND;
        AUTH: Method = text("auth", Kind::Word, Is("pubkey"), auth,
            "how the peer proves who it is, written as ours. It must obey these [rules](#signatures)");
        CERTS: Vec<String> = list("certs", Kind::Files, Depends(""), files,
            "files of [certificates](#certificates), absolute or in the folder `x509`: the peer has to have one of them. It needs no chain then, unless `cacerts`, `ca_id` or `cert_policy` is there, too");
        CACERTS: Vec<String> = list("cacerts", Kind::Files, Depends("all of `x509ca` and `authorities`"), files,
            "files of certificates of CAs, absolute or in the folder `x509ca`: the peer's chain has to have one of them");
        CA_ID: IdPattern = text("ca_id", Kind::Identity, Is("%any"), pattern,
            "name of a CA that the peer's chain has to have: its subject, in which a value may be `*`, or another name");
        CERT_POLICY: Vec<Oid> = list("cert_policy", Kind::Policies, Depends(""), |v| each(v, policy),
            "certificate policies, at most 8: each has to be valid along the peer's chain");
        REVOCATION: revocation::Policy = text("revocation", Kind::Word, Is("relaxed"), revocation,
            "what an unknown revocation status of a certificate means: `strict` refuses the peer; `ifuri` refuses it when the certificate says where to ask; `relaxed` lets it in. Lists come from the folder `x509crl` and from places that certificates name");
        PUBKEYS: Vec<String> = list("pubkeys", Kind::Files, Depends(""), files,
            "files of public keys, absolute or in the folder `pubkey`, at most 100. The peer has to sign with the private key of one of them: of the one whose fingerprint is its identity, else of one of the first 8");
        ID: IdPattern = text("id", Kind::Identity, Depends("`%any`; with `pubkeys` the fingerprint of the first key"), pattern,
            "the peer's identity, written as ours; also `%any`, `*.example`, and a distinguished name in which a value is `*`. An exact identity is sent to the peer as the one we expect (IDr)");
    }

    /// `connections.<conn>.remote<suffix>`.
    pub(in crate::meaning) const REMOTE_TABLE: Table = Table { read: REMOTE, unused: REMOTE_UNUSED };

    const REMOTE_UNUSED: &[Unused] = &[only("eap_id", UNSET, EAP), only("groups", UNSET, GROUPS)];
}

/// A certificate policy.
fn policy(text: &str) -> Result<Oid, Wrong> {
    Oid::parse(text.trim()).ok_or_else(|| {
        wrong(text, ValueFault::Not("an object identifier"), "write numbers with dots, as in 1.3.6.1.4.1.9.1")
    })
}

fn revocation(text: &str) -> Result<revocation::Policy, Wrong> {
    use revocation::Policy::{IfUri, Relaxed, Strict};
    word(text, &[("relaxed", Relaxed), ("strict", Strict), ("ifuri", IfUri)])
}

fn version(text: &str) -> Result<(), Wrong> {
    match text.trim() {
        "0" | "2" => Ok(()),
        "1" => {
            let what = "IKEv1 is not built yet, and RFC 9395 deprecates it".to_owned();
            Err(Configuration::NotBuilt { what, write: "set version = 2" })
        }
        t => Err(wrong(t, ValueFault::Not("a version"), "set version = 2")),
    }
}

/// Our port. Whether the daemon listens on it is for `check` to say. 0 is the daemon's own.
fn local_port(text: &str) -> Result<Option<u16>, Wrong> {
    value::port(text, 0).map(|port| (port > 0).then_some(port))
}

fn keyingtries(text: &str) -> Result<u32, Wrong> {
    match text.trim() {
        "%forever" => Ok(0),
        t => value::number(t, u64::from(u32::MAX)).map(|n| n as u32),
    }
}

fn unique(text: &str) -> Result<Unique, Wrong> {
    let words =
        [("no", Unique::No), ("never", Unique::Never), ("keep", Unique::Keep), ("replace", Unique::Replace)];
    word(text, &words)
}

fn send_cert(text: &str) -> Result<SendCert, Wrong> {
    let words = [("ifasked", SendCert::IfAsked), ("always", SendCert::Always), ("never", SendCert::Never)];
    word(text, &words)
}

fn childless(text: &str) -> Result<Childless, Wrong> {
    let words = [
        ("allow", Childless::Allow),
        ("never", Childless::Never),
        ("prefer", Childless::Prefer),
        ("force", Childless::Force),
    ];
    word(text, &words)
}

fn fragmentation(text: &str) -> Result<Fragmentation, Wrong> {
    let words = [
        ("yes", Fragmentation::Yes),
        ("accept", Fragmentation::Accept),
        ("force", Fragmentation::Yes),
        ("no", Fragmentation::No),
    ];
    word(text, &words)
}

/// A shared key, or strongSwan's words for signatures.
fn auth(text: &str) -> Result<Method, Wrong> {
    if text.trim().eq_ignore_ascii_case("psk") {
        return Ok(Method::Psk);
    }
    Signatures::parse(text).map(Method::Pubkey).ok_or_else(|| {
        let what = format!("`{}` is no method that is built", show(text.trim()));
        let write = "write auth = pubkey, one of rsa, rsa/pss, ecdsa and ed25519 with least lengths and hashes (rsa-3072-sha512), or auth = psk";
        Configuration::NotBuilt { what, write }
    })
}

/// Our identity. `%any` is the outer address, as without the key.
fn own_identity(text: &str) -> Result<Option<Identity>, Wrong> {
    match text.trim() {
        "%any" => Ok(None),
        text => identity(text).and_then(|id| match id.has_wildcard() {
            true => Err(wrong(text, ValueFault::Not("one identity"), "write the name without `*`")),
            false => Ok(Some(id)),
        }),
    }
}

/// Identifier of a post-quantum preshared key. `%any` and nothing name none.
pub(super) fn ppk_identity(text: &str) -> Result<Option<Identity>, Wrong> {
    match text.trim() {
        "" | "%any" => Ok(None),
        t if t.starts_with('*') => {
            Err(wrong(t, ValueFault::Not("the identity of one PPK"), "write a name, user@name or @#hex"))
        }
        t => identity(t).map(Some),
    }
}

/// Longest identity in bytes.
const MAX_IDENTITY: usize = 1_024;

fn identity(text: &str) -> Result<Identity, Wrong> {
    match Identity::parse(text) {
        Some(id) if id.data.is_empty() => Err(wrong(text, ValueFault::EmptyIdentity, "")),
        Some(id) if id.data.len() > MAX_IDENTITY => {
            Err(wrong(text, ValueFault::LongIdentity(MAX_IDENTITY), ""))
        }
        Some(id) => Ok(id),
        None if text.contains('=') => {
            let write = "write it as `C=CH, O=example, CN=gw.example`, with types that are known";
            Err(wrong(text, ValueFault::Not("a distinguished name"), write))
        }
        None => {
            let write = "write a name, user@name, an address, a distinguished name or @#hex";
            Err(wrong(text, ValueFault::Not("an identity"), write))
        }
    }
}

/// An identity or a pattern of one.
pub(super) fn pattern(text: &str) -> Result<IdPattern, Wrong> {
    let t = text.trim();
    if t == "%any" || t.starts_with('*') {
        return IdPattern::parse(t).ok_or_else(|| wrong(t, ValueFault::Not("a pattern"), ""));
    }
    let id = identity(t)?;
    Ok(if id.has_wildcard() { IdPattern::Name(id.data) } else { IdPattern::Exact(id) })
}
