//! Every key of swanctl.conf by name, and what is done with it.
//!
//! A key that is read has a reader in `conn`, `child` or `secrets`. A key of something that is not built may hold the
//! values that ask for nothing. Everything else is an error, so that no configuration is silently taken for less
//! than it says.

use super::super::diag::{Diagnostics, nearest};
use super::super::tree::{Node, Section};
use super::super::value::{boolean, show};

/// What is done with a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// There is a reader for it.
    Read,
    /// Only these values (`no` and `yes` stand for their synonyms, `0` for `0s` and `0x0`); else this is said.
    Only(&'static [&'static str], &'static str),
    /// Any value; it has no effect, and this says why.
    NoEffect(&'static str),
}

use Rule::{NoEffect, Only, Read};

/// The kind of value that a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A whole number.
    Number,
    /// A time with its unit.
    Duration,
    /// A number of bytes with its unit.
    Bytes,
    /// Yes or no.
    YesNo,
    /// One of a few words.
    Word,
    /// Addresses, ranges, subnets and names.
    Addresses,
    /// Lists of algorithms.
    Proposals,
    /// Traffic selectors.
    Selectors,
    /// The identity of a gateway.
    Identity,
}

impl Kind {
    /// The word for the manual.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Duration => "time",
            Self::Bytes => "size",
            Self::YesNo => "yes or no",
            Self::Word => "word",
            Self::Addresses => "list of addresses",
            Self::Proposals => "list of proposals",
            Self::Selectors => "list of selectors",
            Self::Identity => "identity",
        }
    }
}

/// One key, and what the manual says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Its name in its section.
    pub(super) name: &'static str,
    /// How it is treated.
    pub(super) rule: Rule,
    /// The kind of its value; `None` for a key that is not read.
    pub(super) kind: Option<Kind>,
    /// Its default in the words of the manual; empty when there is none.
    pub(super) default: &'static str,
    /// Its meaning, for the manual.
    pub(super) about: &'static str,
}

/// All keys of one kind of section.
pub(super) type Table = &'static [Key];

const fn read(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, rule: Rule::Read, kind: Some(kind), default, about }
}

const fn only(name: &'static str, values: &'static [&'static str], why: &'static str) -> Key {
    Key { name, rule: Rule::Only(values, why), kind: None, default: "", about: why }
}

const fn no_effect(name: &'static str, why: &'static str) -> Key {
    Key { name, rule: Rule::NoEffect(why), kind: None, default: "", about: why }
}

const UNSET: &[&str] = &[];
const NO: &[&str] = &["no"];
const YES: &[&str] = &["yes"];
const ZERO: &[&str] = &["0"];

const CERTIFICATES: &str =
    "certificates and public keys are not built yet; use auth = psk and remove this key";
const EAP: &str = "EAP is not built yet; use auth = psk and remove this key";
const IKEV1: &str = "IKEv1 only, which is not spoken (RFC 9395); remove this key";
const PPK: &str = "post-quantum preshared keys (RFC 8784) are not built yet; remove this key";
const VIPS: &str = "virtual addresses and pools are not built yet; remove this key";
const XFRM: &str = "XFRM interface ids belong to the kernel's engine, which is not used; remove this key";
const MARKS: &str = "marks are not built yet; remove this key";
const MEDIATION: &str = "mediation is not built; remove this key";
const LABELS: &str = "security labels are not built yet; remove this key";

/// `connections.<conn>`.
pub(super) const CONN: Table = &[
    read(
        "version",
        Kind::Number,
        "0",
        "0 and 2 both mean IKEv2. 1 is refused: IKEv1 is not built yet (RFC 9395 deprecates it)",
    ),
    read(
        "local_addrs",
        Kind::Addresses,
        "`%any`",
        "our addresses: list of at most 255 addresses, ranges, subnets, DNS names",
    ),
    read(
        "remote_addrs",
        Kind::Addresses,
        "`%any`",
        "the peer's addresses, likewise; to initiate, one must be a single address or a [name](#dns-names). Of several, the next is asked when there is no IKE_SA after 2 s, without giving up those before (8 at once at most); the first that authenticates is taken, and nothing is left of the others. `keyingtries` counts rounds through all of them",
    ),
    read(
        "local_port",
        Kind::Number,
        "`port_ike`",
        "`port_ike` of `ironswan.conf` (500), or `port_natt` (4500) to start UDP-encapsulated; with another one the connection answers peers and initiates nothing",
    ),
    read("remote_port", Kind::Number, "500", "the peer's: 500, or 4500 to start UDP-encapsulated"),
    read(
        "proposals",
        Kind::Proposals,
        "`default`",
        "IKE algorithms, [see below](#proposals), in at most 64 proposals",
    ),
    only("vips", UNSET, VIPS),
    only("aggressive", NO, IKEV1),
    only("pull", YES, IKEV1),
    only("dscp", &["000000"], "DSCP of IKE packets is not built yet; remove this key"),
    read(
        "encap",
        Kind::YesNo,
        "no",
        "ESP in UDP even when no NAT is in between. On Linux it is also the fast way: UDP has segmentation offload, raw ESP has none",
    ),
    only("mobike", NO, "MOBIKE is not built yet; set mobike = no or leave the key out"),
    read(
        "dpd_delay",
        Kind::Duration,
        "0s",
        "after this much silence from the peer, ask whether it is alive; authenticated ESP is a sign of life. 0: never",
    ),
    no_effect("dpd_timeout", "IKEv1 only; with IKEv2 a peer is given up when the retransmissions end"),
    only(
        "fragmentation",
        &["yes", "accept", "no"],
        "IKE fragmentation cannot be forced yet; set fragmentation = yes",
    ),
    read(
        "childless",
        Kind::Word,
        "allow",
        "IKE_SAs that are made without a CHILD_SA (RFC 6023): `allow` offers and accepts them, and asks for one when only the IKE_SA is to come up; `prefer` asks for one whenever the peer offers them, and makes each child by an exchange of its own; `force` neither asks for nor accepts anything else; `never` none of it. A peer that does not offer them is never asked for one",
    ),
    only("send_certreq", &["yes", "no"], "write yes or no"),
    only("send_cert", &["ifasked", "always", "never"], "write ifasked, always or never"),
    only("ocsp", &["reply", "never"], CERTIFICATES),
    only("ppk_id", UNSET, PPK),
    only("ppk_required", NO, PPK),
    read(
        "keyingtries",
        Kind::Number,
        "1",
        "tries to bring a connection up, 0 or `%forever`: until it works, with growing pauses (`retry_initial` to `retry_max`). A try goes through all addresses of the peer. Without effect on what is started by itself for a child with `start_action = start` and `dpd_action = restart`: that never ends",
    ),
    read(
        "unique",
        Kind::Word,
        "no",
        "the same pair of identities authenticates again: `no` keeps both unless the peer says INITIAL_CONTACT, `never` keeps both in any case, `keep` refuses the new one, `replace` closes the old one. What both sides have begun at once is settled first: with the same children, one of the two IKE_SAs is deleted (not with `never`). A peer that moves to another address has to make a new one: `keep` holds it off until the old one is given up",
    ),
    only("reauth_time", ZERO, "reauthentication is not built yet; use rekey_time and remove this key"),
    read("rekey_time", Kind::Duration, "4h", "rekey the IKE_SA after this; 0: never"),
    read(
        "over_time",
        Kind::Duration,
        "10 % of `rekey_time`",
        "close it this long after that if rekeying did not work",
    ),
    read(
        "rand_time",
        Kind::Duration,
        "`over_time`",
        "a random part of this is taken off `rekey_time`, so that two ends do not rekey at once",
    ),
    only("pools", UNSET, VIPS),
    only("if_id_in", ZERO, XFRM),
    only("if_id_out", ZERO, XFRM),
    only("mediation", NO, MEDIATION),
    only("mediated_by", UNSET, MEDIATION),
    only("mediation_peer", UNSET, MEDIATION),
];

/// `connections.<conn>.local<suffix>`.
pub(super) const LOCAL: Table = &[
    read("round", Kind::Number, "0", "order of authentication rounds; there is one"),
    read("auth", Kind::Word, "", "must be `psk`"),
    read(
        "id",
        Kind::Identity,
        "our outer address",
        "our identity: a name (`gw.example`), `user@example`, an address, or `@#hex` for a key ID",
    ),
    only("certs", UNSET, CERTIFICATES),
    only("pubkeys", UNSET, CERTIFICATES),
    only("eap_id", UNSET, EAP),
    only("aaa_id", UNSET, EAP),
    only("xauth_id", UNSET, IKEV1),
];

/// `connections.<conn>.remote<suffix>`.
pub(super) const REMOTE: Table = &[
    read("round", Kind::Number, "0", "order of authentication rounds; there is one"),
    read("auth", Kind::Word, "", "must be `psk`"),
    read(
        "id",
        Kind::Identity,
        "`%any`",
        "the peer's identity, written as ours; also `%any` and `*.example`. An exact identity is sent to the peer as the one we expect (IDr)",
    ),
    only("eap_id", UNSET, EAP),
    only("groups", UNSET, CERTIFICATES),
    only("cert_policy", UNSET, CERTIFICATES),
    only("certs", UNSET, CERTIFICATES),
    only("cacerts", UNSET, CERTIFICATES),
    only("ca_id", UNSET, CERTIFICATES),
    only("pubkeys", UNSET, CERTIFICATES),
    only("revocation", &["relaxed"], CERTIFICATES),
];

/// `connections.<conn>.children.<child>`.
pub(super) const CHILD: Table = &[
    read(
        "ah_proposals",
        Kind::Proposals,
        "",
        "AH algorithms: integrity without encryption, of the outer header too. Alone, there is no ESP; beside `esp_proposals` they are alternatives, preferred in the order in which the two keys are written. Not with `encap = yes`, and never through a NAT ([AH](#ah))",
    ),
    read("esp_proposals", Kind::Proposals, "`default`", "ESP algorithms, see [below](#proposals)"),
    only("sha256_96", NO, "the wrong truncation of old peers is not built; set sha256_96 = no"),
    read(
        "local_ts",
        Kind::Selectors,
        "`dynamic`",
        "our traffic selectors: `10.1.0.0/16`, `10.0.0.1-10.0.0.9`, `dynamic` (the outer address), each with an optional `[protocol/port]`: `[tcp]`, `[tcp/80]`, `[udp/1024-2048]`, `[icmp/8]`; a port needs a protocol",
    ),
    read(
        "remote_ts",
        Kind::Selectors,
        "`dynamic`",
        "the peer's traffic selectors, written as those of `local_ts`",
    ),
    read("rekey_time", Kind::Duration, "1h", "rekey the CHILD_SA after this; 0: never"),
    read(
        "life_time",
        Kind::Duration,
        "10 % more than `rekey_time`",
        "close the CHILD_SA after this; 0: never",
    ),
    read(
        "rand_time",
        Kind::Duration,
        "`life_time` less `rekey_time`",
        "a random part of this is taken off `rekey_time`",
    ),
    read(
        "rekey_bytes",
        Kind::Bytes,
        "0",
        "rekey the CHILD_SA after so many bytes in either direction; 0: never. A random part of the difference to `life_bytes` is taken off. With `3des` the default is 1 GiB",
    ),
    read(
        "life_bytes",
        Kind::Bytes,
        "10 % more than `rekey_bytes`",
        "close the CHILD_SA after so many bytes in either direction, at least 262,144; 0: never. With `3des` the default is 2 GiB",
    ),
    no_effect("rand_bytes", "at random up to the difference of life_bytes and rekey_bytes is taken off"),
    read(
        "rekey_packets",
        Kind::Number,
        "0",
        "rekey the CHILD_SA after so many packets in either direction; 0: never. A random part of the difference to `life_packets` is taken off",
    ),
    read(
        "life_packets",
        Kind::Number,
        "10 % more than `rekey_packets`",
        "close the CHILD_SA after so many packets in either direction; 0: never. Nothing leaves or is delivered beyond `life_packets`, or leaves beyond `life_bytes`: a frame of the kernel that would become more packets than are left is dropped, and the CHILD_SA ends. `life_packets` is at least 1,500 and `life_bytes` at least 262,144, which one such frame may take. What arrives may go beyond `life_bytes` by one packet. Every authentic packet counts, also one that selectors or policy refuse, and a dummy",
    ),
    no_effect(
        "rand_packets",
        "at random up to the difference of life_packets and rekey_packets is taken off",
    ),
    only("updown", UNSET, "updown scripts are not built yet; remove this key"),
    no_effect("hostaccess", "only an updown script would see it"),
    read(
        "mode",
        Kind::Word,
        "tunnel",
        "`tunnel`: whole packets inside, between networks; `transport`: what the two gateways send each other themselves, without a second IP header ([transport mode](#transport-mode)); `pass` and `drop` are policies without an SA: let through in clear, or drop",
    ),
    read(
        "policies",
        Kind::YesNo,
        "yes",
        "`no`: no policy is installed, so nothing is sent by the child's SA; what the peer sends by it is taken, unless another child covers it ([overlapping children](#overlapping-children))",
    ),
    only("policies_fwd_out", NO, "the engine has no forward policies; set policies_fwd_out = no"),
    read("dpd_action", Kind::Word, "clear", "when the peer is dead: `clear`, `trap`, `restart`"),
    read(
        "ipcomp",
        Kind::YesNo,
        "no",
        "offer and accept IPComp (deflate) inside of the SA; it is used when the peer agrees, and for packets that get shorter by it ([IPComp](#ipcomp))",
    ),
    only("inactivity", ZERO, "closing idle children is not built yet; remove this key"),
    read(
        "reqid",
        Kind::Number,
        "0",
        "fixed number for the policy, 1 to 2,147,483,647; 0: a larger one is chosen. To the packet engine children with one number are one peer's ([overlapping children](#overlapping-children))",
    ),
    read(
        "priority",
        Kind::Number,
        "0",
        "among overlapping policies, the lower number wins; 0: the more specific wins",
    ),
    read(
        "guard",
        Kind::YesNo,
        "`yes`",
        "what the selectors mean is kept from leaving or entering in clear from load to unload, also while the SA or the daemon is down ([operations](operations.md#the-guard)); `no`: steered only while the child is up or trapped. Of two children with the same selectors, `yes` of one is enough. A changed value holds for what is up, too",
    ),
    only("interface", UNSET, "interfaces of one's own are not built yet; remove this key"),
    only("mark_in", ZERO, MARKS),
    only("mark_in_sa", NO, MARKS),
    only("mark_out", ZERO, MARKS),
    only("set_mark_in", ZERO, MARKS),
    only("set_mark_out", ZERO, MARKS),
    only("if_id_in", ZERO, XFRM),
    only("if_id_out", ZERO, XFRM),
    only("label", UNSET, LABELS),
    only("label_mode", &["system"], LABELS),
    read(
        "tfc_padding",
        Kind::Number,
        "0",
        "tunnel mode ESP: inner packets are padded to at least this many bytes, or with `mtu` to the longest that fits the path ([hiding lengths](#hiding-lengths))",
    ),
    read(
        "tfc_dummies",
        Kind::Duration,
        "0",
        "ours, tunnel mode ESP: while nothing else leaves, a dummy packet does, this often (`20ms`, `1s`; 1ms to 1d)",
    ),
    read(
        "replay_window",
        Kind::Number,
        "4096",
        "anti-replay window in packets, 32 to 65,536; fewer are taken with a warning, and 0 turns the check off. strongSwan's default of 32 loses packets when a network reorders more than that",
    ),
    only("per_cpu_sas", NO, "SAs per CPU (RFC 9611) are not built yet; set per_cpu_sas = no"),
    only("hw_offload", &["no", "auto"], "hardware offload is not built; set hw_offload = no"),
    read(
        "copy_df",
        Kind::YesNo,
        "yes",
        "tunnel mode: inner packets are made to fit the path (fragmented inside when their DF bit allows it, answered with \"fragmentation needed\" or \"packet too big\" else), and the outer packet is never fragmented. `no`: they are sealed whole (those with DF up to 1,500 bytes or the path MTU), and an outer packet that is longer than the path MTU leaves in fragments without DF; one that fits still has DF",
    ),
    read(
        "copy_ecn",
        Kind::YesNo,
        "yes",
        "tunnel mode: congestion marks pass through the tunnel both ways (RFC 6040). `no`: the outer header says Not-ECT, and what it says on arrival is ignored",
    ),
    read(
        "copy_dscp",
        Kind::Word,
        "out",
        "tunnel mode: DSCP is copied from the inner to the outer header (`out`), the other way round on arrival (`in`), both (`yes`), or not at all (`no`: the outer one is 0). `in` and `yes` let the network between change the priority of packets here",
    ),
    read(
        "dscp",
        Kind::Word,
        "",
        "ours: a fixed DSCP for the outer header, 0 to 63 or a name (`ef`, `va`, `le`, `cs0` to `cs7`, `af11` to `af43`), so that the network between cannot tell kinds of traffic apart; with `copy_dscp = in` or `no`, or without it",
    ),
    only("icmp", NO, "forwarding of ICMP errors is not built yet; set icmp = no"),
    read(
        "start_action",
        Kind::Word,
        "none",
        "at load: `none`, `trap` (initiate when traffic comes), `start`",
    ),
    read("close_action", Kind::Word, "none", "when the peer closes it: the same words"),
];

/// Names of the sub-sections of a connection, each with or without a suffix.
pub(super) const CONN_SECTIONS: &[&str] = &["local", "remote", "children"];

/// Looks at every entry of a section: unknown names, values that ask for what is not built. Sub-sections are given to
/// `section`, which says whether it knows that name.
pub(super) fn check<'a>(
    section: &'a Section,
    path: &str,
    table: Table,
    diags: &mut Diagnostics,
    mut sub: impl FnMut(&'a str, &'a Section, &mut Diagnostics) -> bool,
    sub_names: &[&'static str],
) {
    // A million keys that nobody knows are not each compared with all that are known.
    let hint = |name: &str, known: &mut dyn Iterator<Item = &'static str>, diags: &Diagnostics| {
        if diags.is_full() { String::new() } else { hint(name, known) }
    };
    for (name, node) in section.entries() {
        let key = join(path, name);
        let known = table.iter().find(|k| k.name == name).map(|k| &k.rule);
        match (node, known) {
            (Node::Section(s), None) => {
                if !sub(name, s, diags) {
                    let hint = hint(name, &mut sub_names.iter().copied(), diags);
                    diags.error(&s.origin, &key, format!("unknown section{hint}"));
                }
            }
            (Node::Section(s), Some(_)) => {
                diags.error(&s.origin, &key, format!("is a key, not a section; write {name} = ..."));
            }
            (Node::Value(v), None) if sub_names.contains(&name) => {
                diags.error(&v.origin, &key, format!("is a section, not a key; write {name} {{ ... }}"));
            }
            (Node::Value(v), None) => {
                let hint = hint(name, &mut table.iter().map(|k| k.name), diags);
                diags.error(&v.origin, &key, format!("unknown key{hint}"));
            }
            (Node::Value(v), Some(_)) if v.is_empty() => {}
            (Node::Value(_), Some(Read)) => {}
            (Node::Value(v), Some(Only(values, why))) => {
                let text = v.as_text();
                if !values.iter().any(|allowed| same(allowed, &text)) {
                    diags.error(&v.origin, &key, format!("{}: {why}", show(&text)));
                }
            }
            (Node::Value(v), Some(NoEffect(why))) => {
                diags.note(&v.origin, &key, format!("has no effect: {why}"))
            }
        }
    }
}

/// `; did you mean ...?` when something is near.
pub(super) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|n| format!("; did you mean `{n}`?")).unwrap_or_else(|| "; remove it".to_owned())
}

/// A key's full name.
pub(in super::super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a value is the allowed one or a synonym of it.
fn same(allowed: &str, text: &str) -> bool {
    let t = text.trim().to_ascii_lowercase();
    match allowed {
        "yes" => boolean(&t) == Ok(true),
        "no" => boolean(&t) == Ok(false),
        "0" => matches!(t.as_str(), "0" | "0s" | "0x0" | "0m" | "0h" | "0x00000000"),
        _ => t == allowed,
    }
}
