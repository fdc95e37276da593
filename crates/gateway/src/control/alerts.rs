//! The event `alert`: something has failed, or is doubtful, and why.
//!
//! ```text
//! alert   type = proposal-mismatch-ike
//!         name = no-proposal  fault = no agreement  conn = NAME
//!         msg = ..  remedy = ..  details = [ .. ]
//!         ike-sa { NAME { as in ike-updown } }
//! ```
//! `type` and `ike-sa` are those of strongSwan since 6.0.3. `type` has strongSwan's word for the
//! failure, or, where there is none, the name of our list of diagnoses. The other fields are ours:
//! `name` in that list, the party that has to change something, the connection, sentence, remedy,
//! and lines with data. `conn` and `ike-sa` are missing where none is known, `remedy` and `details`
//! where they are empty.

use ironswan_ike::event::IkeId;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, Path, Selectors};
use ironswan_wire::iana::{ExchangeType, NotifyType, ProtocolId};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::vici::Section;

use super::Control;
use super::events::find;
use super::sas::{ike, name};

/// strongSwan's words for failures that are one entry of our list each.
const TYPES: &[(&str, &str)] = &[
    ("authentication-failed", "peer-auth-failed"),
    ("no-connection-for-identities", "peer-auth-failed"),
    ("other-peer", "peer-auth-failed"),
    ("peer-claims-our-identity", "peer-auth-failed"),
    ("certificate-of-other", "peer-auth-failed"),
    ("certificate-not-named", "peer-auth-failed"),
    ("no-certificate", "peer-auth-failed"),
    ("peer-asks-for-eap", "peer-auth-failed"),
    ("other-ppk", "peer-auth-failed"),
    ("wrong-ppk", "peer-auth-failed"),
    ("rejected-by-peer", "local-auth-failed"),
    ("cannot-sign", "local-auth-failed"),
    ("peer-lacks-our-signatures", "local-auth-failed"),
    ("unknown-issuer", "cert-no-issuer"),
    ("other-authority", "cert-untrusted-root"),
    ("certificate-expired", "cert-expired"),
    ("certificate-not-yet-valid", "cert-expired"),
    ("certificate-revoked", "cert-revoked"),
    ("certificate-status-unknown", "cert-validation-failed"),
    ("certificate-not-allowed", "cert-policy-violation"),
    ("certificate-unusable", "cert-policy-violation"),
    ("chain-limit", "cert-exceeded-path-len"),
    ("not-authenticated-in-time", "half-open-timeout"),
    ("other-ike-sa-kept", "unique-keep"),
    ("name-unresolved", "peer-addr-failed"),
    ("peer-dead", "retransmit-send-timeout"),
    ("unsupported-ike-version", "parse-error-header"),
    ("unreadable-message", "parse-error-body"),
    ("command-refused", "install-child-sa-failed"),
    ("trap-not-installed", "install-child-policy-failed"),
    ("guard-step-refused", "install-child-policy-failed"),
];

/// strongSwan's word for a failure, or else our own name.
fn kind(why: &Diagnosis) -> &'static str {
    let proposals = |list: &[Proposal]| match list.first() {
        Some(p) if p.protocol != ProtocolId::IKE => "proposal-mismatch-child",
        _ => "proposal-mismatch-ike",
    };
    match why {
        Diagnosis::KeyExchange(KeyExchange::NoProposal { configured, .. }) => proposals(configured),
        Diagnosis::KeyExchange(KeyExchange::PeerError { kind, proposed, .. })
            if *kind == NotifyType::NO_PROPOSAL_CHOSEN =>
        {
            proposals(proposed)
        }
        Diagnosis::KeyExchange(KeyExchange::PeerError { kind, .. })
            if *kind == NotifyType::TS_UNACCEPTABLE =>
        {
            "ts-mismatch"
        }
        Diagnosis::KeyExchange(KeyExchange::LifetimeOver { child: false }) => "ike-sa-expired",
        Diagnosis::Selectors(Selectors::Unacceptable { .. } | Selectors::Narrows { .. }) => "ts-mismatch",
        Diagnosis::Path(Path::NoAnswer { request }) if request.exchange == ExchangeType::IKE_SA_INIT => {
            "peer-init-unreachable"
        }
        Diagnosis::Path(Path::NoAnswer { .. }) => "retransmit-send-timeout",
        other => {
            let name = other.entry().name();
            TYPES.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs)
        }
    }
}

impl Control {
    /// Tells of a failure, if somebody wants to know.
    pub(super) fn alert(&self, conn: Option<&str>, id: Option<IkeId>, why: &Diagnosis) {
        self.publish("alert", || {
            let mut s = alert(conn, why);
            if let Some(sa) = id.and_then(|id| find(&self.driver, id)) {
                s.put("ike-sa", Section::new().with(name(&sa), ike(&sa)));
            }
            Some(s)
        });
    }
}

/// An alert without its IKE_SA.
fn alert(conn: Option<&str>, why: &Diagnosis) -> Section {
    let mut s = Section::new()
        .with("type", kind(why))
        .with("name", why.entry().name())
        .with("fault", why.entry().fault().word());
    if let Some(conn) = conn {
        s.put("conn", conn);
    }
    s.put("msg", why.sentence());
    let (remedy, details) = (why.remedy(), why.details());
    if !remedy.is_empty() {
        s.put("remedy", remedy);
    }
    if !details.is_empty() {
        s.put("details", details);
    }
    s
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ironswan_keying::diagnosis::{Configuration, Entry, Unanswered};

    use super::*;

    #[test]
    fn every_word_of_strongswan_s_stands_for_entries_that_are_there_and_is_none_of_ours() {
        let ours: BTreeSet<&str> = Entry::all().map(Entry::name).collect();
        let mut seen = BTreeSet::new();
        for (name, theirs) in TYPES {
            assert!(ours.contains(name) && seen.insert(name), "{name}");
            assert!(!ours.contains(theirs), "{theirs}");
        }
        for theirs in ["proposal-mismatch-ike", "proposal-mismatch-child", "ts-mismatch", "ike-sa-expired"] {
            assert!(!ours.contains(theirs), "{theirs}");
        }
    }

    #[test]
    fn an_alert_has_strongswan_s_word_or_ours_with_sentence_and_remedy() {
        let request = |exchange| Unanswered {
            local: "192.0.2.1:500".parse().unwrap(),
            remote: "192.0.2.2:500".parse().unwrap(),
            exchange,
            sent: 6,
            before: None,
        };
        let silent = |exchange| Diagnosis::from(Path::NoAnswer { request: request(exchange) });
        assert_eq!(kind(&silent(ExchangeType::IKE_SA_INIT)), "peer-init-unreachable");
        assert_eq!(kind(&silent(ExchangeType::IKE_AUTH)), "retransmit-send-timeout");
        let s = alert(Some("net"), &silent(ExchangeType::IKE_SA_INIT));
        let keys: Vec<&str> = s.iter().map(|(key, _)| key).collect();
        assert_eq!(keys[..5], ["type", "name", "fault", "conn", "msg"]);
        assert_eq!((s.get_str("name"), s.get_str("conn")), (Some("no-answer"), Some("net")));
        assert!(s.get_str("msg").unwrap().contains("sent 6 times") && s.get_str("remedy").is_some(), "{s:?}");
        // A failure that strongSwan has no word for, and one without connection.
        let s = alert(None, &Configuration::NoLiveness.into());
        assert_eq!((s.get_str("type"), s.get_str("conn")), (Some("no-liveness"), None));
        let lifetime = |child| kind(&KeyExchange::LifetimeOver { child }.into());
        assert_eq!((lifetime(false), lifetime(true)), ("ike-sa-expired", "lifetime-over"));
    }
}
