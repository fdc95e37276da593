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

pub(super) type Table = &'static [(&'static str, Rule)];

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
    ("version", Read),
    ("local_addrs", Read),
    ("remote_addrs", Read),
    ("local_port", Read),
    ("remote_port", Read),
    ("proposals", Read),
    ("vips", Only(UNSET, VIPS)),
    ("aggressive", Only(NO, IKEV1)),
    ("pull", Only(YES, IKEV1)),
    ("dscp", Only(&["000000"], "DSCP of IKE packets is not built yet; remove this key")),
    ("encap", Read),
    ("mobike", Only(NO, "MOBIKE is not built yet; set mobike = no or leave the key out")),
    ("dpd_delay", Read),
    ("dpd_timeout", NoEffect("IKEv1 only; with IKEv2 a peer is given up when the retransmissions end")),
    (
        "fragmentation",
        Only(&["yes", "accept", "no"], "IKE fragmentation cannot be forced yet; set fragmentation = yes"),
    ),
    ("childless", Read),
    ("send_certreq", Only(&["yes", "no"], "write yes or no")),
    ("send_cert", Only(&["ifasked", "always", "never"], "write ifasked, always or never")),
    ("ocsp", Only(&["reply", "never"], CERTIFICATES)),
    ("ppk_id", Only(UNSET, PPK)),
    ("ppk_required", Only(NO, PPK)),
    ("keyingtries", Read),
    ("unique", Read),
    ("reauth_time", Only(ZERO, "reauthentication is not built yet; use rekey_time and remove this key")),
    ("rekey_time", Read),
    ("over_time", Read),
    ("rand_time", Read),
    ("pools", Only(UNSET, VIPS)),
    ("if_id_in", Only(ZERO, XFRM)),
    ("if_id_out", Only(ZERO, XFRM)),
    ("mediation", Only(NO, MEDIATION)),
    ("mediated_by", Only(UNSET, MEDIATION)),
    ("mediation_peer", Only(UNSET, MEDIATION)),
];

/// `connections.<conn>.local<suffix>`.
pub(super) const LOCAL: Table = &[
    ("round", Read),
    ("auth", Read),
    ("id", Read),
    ("certs", Only(UNSET, CERTIFICATES)),
    ("pubkeys", Only(UNSET, CERTIFICATES)),
    ("eap_id", Only(UNSET, EAP)),
    ("aaa_id", Only(UNSET, EAP)),
    ("xauth_id", Only(UNSET, IKEV1)),
];

/// `connections.<conn>.remote<suffix>`.
pub(super) const REMOTE: Table = &[
    ("round", Read),
    ("auth", Read),
    ("id", Read),
    ("eap_id", Only(UNSET, EAP)),
    ("groups", Only(UNSET, CERTIFICATES)),
    ("cert_policy", Only(UNSET, CERTIFICATES)),
    ("certs", Only(UNSET, CERTIFICATES)),
    ("cacerts", Only(UNSET, CERTIFICATES)),
    ("ca_id", Only(UNSET, CERTIFICATES)),
    ("pubkeys", Only(UNSET, CERTIFICATES)),
    ("revocation", Only(&["relaxed"], CERTIFICATES)),
];

/// `connections.<conn>.children.<child>`.
pub(super) const CHILD: Table = &[
    ("ah_proposals", Read),
    ("esp_proposals", Read),
    ("sha256_96", Only(NO, "the wrong truncation of old peers is not built; set sha256_96 = no")),
    ("local_ts", Read),
    ("remote_ts", Read),
    ("rekey_time", Read),
    ("life_time", Read),
    ("rand_time", Read),
    ("rekey_bytes", Read),
    ("life_bytes", Read),
    ("rand_bytes", NoEffect("at random up to the difference of life_bytes and rekey_bytes is taken off")),
    ("rekey_packets", Read),
    ("life_packets", Read),
    (
        "rand_packets",
        NoEffect("at random up to the difference of life_packets and rekey_packets is taken off"),
    ),
    ("updown", Only(UNSET, "updown scripts are not built yet; remove this key")),
    ("hostaccess", NoEffect("only an updown script would see it")),
    ("mode", Read),
    ("policies", Read),
    ("policies_fwd_out", Only(NO, "the engine has no forward policies; set policies_fwd_out = no")),
    ("dpd_action", Read),
    ("ipcomp", Read),
    ("inactivity", Only(ZERO, "closing idle children is not built yet; remove this key")),
    ("reqid", Read),
    ("priority", Read),
    ("guard", Read),
    ("interface", Only(UNSET, "interfaces of one's own are not built yet; remove this key")),
    ("mark_in", Only(ZERO, MARKS)),
    ("mark_in_sa", Only(NO, MARKS)),
    ("mark_out", Only(ZERO, MARKS)),
    ("set_mark_in", Only(ZERO, MARKS)),
    ("set_mark_out", Only(ZERO, MARKS)),
    ("if_id_in", Only(ZERO, XFRM)),
    ("if_id_out", Only(ZERO, XFRM)),
    ("label", Only(UNSET, LABELS)),
    ("label_mode", Only(&["system"], LABELS)),
    ("tfc_padding", Read),
    ("tfc_dummies", Read),
    ("replay_window", Read),
    ("per_cpu_sas", Only(NO, "SAs per CPU (RFC 9611) are not built yet; set per_cpu_sas = no")),
    ("hw_offload", Only(&["no", "auto"], "hardware offload is not built; set hw_offload = no")),
    ("copy_df", Read),
    ("copy_ecn", Read),
    ("copy_dscp", Read),
    ("dscp", Read),
    ("icmp", Only(NO, "forwarding of ICMP errors is not built yet; set icmp = no")),
    ("start_action", Read),
    ("close_action", Read),
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
        let known = table.iter().find(|(n, _)| *n == name).map(|(_, rule)| rule);
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
                let hint = hint(name, &mut table.iter().map(|(n, _)| *n), diags);
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
