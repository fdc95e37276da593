//! Checks of certificates and revocation lists: do they end soon, can they be used, do they fit the
//! identities of the peers, and can their status be learned where it is required? A part of
//! `ironswan check`.
//!
//! Not here: files that cannot be read (`certfiles`), our own identity (`meaning`), private keys
//! that are missing (`check`), and chains, which are judged when a peer sends one (`ironswan_pki`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironswan_keying::diagnosis::{Configuration, DateFault, StatusLack};
use ironswan_keying::{Auth, Certificates, Connection, names_shown};
use ironswan_pki::fetch::{Place, Refused};
use ironswan_pki::{Certificate, Rule, Rules, Time, identity, revocation, validate_alone};
use ironswan_wire::id::IdPattern;

use super::certfiles::Dated;
use super::diag::{Diagnostics, Severity};
use super::load::Config;

/// A certificate that ends within this time is named.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// Checks the certificates of a configuration that could be read, at `now`.
pub fn check(config: &Config, now: SystemTime, diags: &mut Diagnostics) {
    if config.unread {
        return;
    }
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = Time(i64::try_from(seconds).unwrap_or(i64::MAX));
    let loaded = config.loaded();
    dates(config, now, diags);
    for conn in &config.connections {
        for (round, conn) in conn.apart().iter().enumerate() {
            identity_of_peer(config, &loaded, (conn, round), diags);
            uses(config, (conn, round), now, diags);
        }
    }
    statuses(config, &loaded, diags);
}

/// Certificates that are not valid or end soon, and lists whose successor is due.
fn dates(config: &Config, now: Time, diags: &mut Diagnostics) {
    for (at, dated) in &config.dated {
        let (of, fault) = match dated {
            Dated::Certificate(certificate) => {
                let Some(fault) = of_certificate(certificate, now) else { continue };
                (format!("the certificate of \"{}\"", certificate.subject()), fault)
            }
            Dated::List(list) => {
                let Some(since) = list.next_update().filter(|next| *next < now) else { continue };
                (format!("the revocation list of \"{}\"", list.issuer()), DateFault::Overdue { since })
            }
        };
        // Without a valid certificate of its own this gateway authenticates nowhere.
        let ours = matches!(dated, Dated::Certificate(c) if is_ours(config, c));
        let severity = match fault {
            DateFault::Expired { .. } if ours => Severity::Error,
            _ => Severity::Warning,
        };
        diags.push(severity, Some(at), "", Configuration::CertificateDates { of, fault });
    }
}

fn of_certificate(certificate: &Certificate, now: Time) -> Option<DateFault> {
    let (from, until) = (certificate.not_before(), certificate.not_after());
    let left = until.0.saturating_sub(now.0);
    if left < 0 {
        Some(DateFault::Expired { since: until })
    } else if from > now {
        Some(DateFault::NotYet { from })
    } else if left < SOON.as_secs() as i64 {
        Some(DateFault::Soon { until, days: left / 86_400 })
    } else {
        None
    }
}

/// True for a certificate whose private key is loaded.
fn is_ours(config: &Config, certificate: &Certificate) -> bool {
    config.private_keys.iter().any(|key| key.public().spki() == certificate.key_info())
}

/// Certificates that a connection names for its peer in a round, none of which speaks for the
/// peer's identity; and an identity that no CA of the connection may certify.
fn identity_of_peer(
    config: &Config,
    loaded: &Certificates,
    (conn, round): (&Connection, usize),
    diags: &mut Diagnostics,
) {
    let side = config.remote_side(&conn.name, round);
    let Some(trust) = conn.remote_auth.trust() else { return };
    if let Some(first) = trust.certificates.first()
        && !trust.certificates.iter().any(|certificate| identity::fits(certificate, &conn.remote_id))
    {
        let key = format!("{side}.certs");
        let (id, subject) = (conn.remote_id.to_string(), first.subject().to_string());
        let fault = Configuration::CertificateOfAnother { id, subject, names: names_shown(first) };
        diags.push(Severity::Error, config.place(&key), &key, fault);
        return;
    }
    let cas = loaded.authorities(trust);
    let IdPattern::Exact(id) = &conn.remote_id else { return };
    if let Some(ca) = cas.first()
        && (trust.certificates.is_empty() || trust.asks_for_chain())
        && !cas.iter().any(|ca| identity::may_certify(ca, id))
    {
        let key = format!("{side}.id");
        let fault = Configuration::IdNotPermitted { id: id.to_string(), ca: ca.subject().to_string() };
        diags.push(Severity::Error, config.place(&key), &key, fault);
    }
}

/// Certificates that a connection names for one of its sides in a round, and that cannot be used
/// for IKE. Their dates have been judged.
fn uses(config: &Config, (conn, round): (&Connection, usize), now: Time, diags: &mut Diagnostics) {
    let sides = [config.local_side(&conn.name, round), config.remote_side(&conn.name, round)];
    for (side, auth) in sides.iter().zip([&conn.local_auth, &conn.remote_auth]) {
        let Auth::Certificate { trust, rules } = auth else { continue };
        let key = format!("{side}.certs");
        let rules = Rules { legacy: rules.legacy(), ..Rules::default() };
        for certificate in &trust.certificates {
            let Err(fault) = validate_alone(certificate, now, &rules) else { continue };
            if matches!(fault.rule, Rule::Expired { .. } | Rule::NotYetValid { .. }) {
                continue;
            }
            let (subject, why) = (certificate.subject().to_string(), fault.rule);
            let unfit = Configuration::UnfitCertificate { subject, why };
            diags.push(Severity::Error, config.place(&key), &key, unfit);
        }
    }
}

/// Connections that require the status of certificates, and CAs whose certificates have none that
/// can be learned; and certificates that name only places which are never asked.
fn statuses(config: &Config, loaded: &Certificates, diags: &mut Diagnostics) {
    let mut asked = false;
    let rounds = config.connections.iter().flat_map(|conn| conn.apart().into_iter().enumerate());
    for (round, conn) in rounds {
        let Some(trust) = conn.remote_auth.trust() else { continue };
        if !trust.certificates.is_empty() && !trust.asks_for_chain() {
            continue;
        }
        asked |= trust.revocation != revocation::Policy::Relaxed;
        if trust.revocation != revocation::Policy::Strict {
            continue;
        }
        let named = &trust.certificates;
        let cas = loaded.authorities(trust).into_iter();
        let without = cas.filter(|ca| {
            let issued = |own: &&Certificate| own.issuer() == ca.subject();
            let says = |own: &Certificate| places(own).any(|place| place.is_ok());
            let named_all_say = named.iter().any(|own| issued(&own)) && named.iter().filter(issued).all(says);
            !named_all_say && !loaded.knows_status_of(&ca.subject())
        });
        let subjects: Vec<String> = without.map(|ca| ca.subject().to_string()).take(CAS_SHOWN).collect();
        if !subjects.is_empty() {
            let key = format!("{}.revocation", config.remote_side(&conn.name, round));
            let of = StatusLack::OfAuthorities { subjects };
            diags.push(Severity::Warning, config.place(&key), &key, Configuration::NoStatusSource { of });
        }
    }
    for (at, dated) in config.dated.iter().filter(|_| asked) {
        let Dated::Certificate(certificate) = dated else { continue };
        if loaded.knows_status_of(&certificate.issuer()) || is_ours(config, certificate) {
            continue;
        }
        let refused: Result<Vec<_>, ()> = places(certificate).map(|place| place.err().ok_or(())).collect();
        if let Some((uri, why)) = refused.ok().and_then(|refused| refused.into_iter().next()) {
            let of = StatusLack::Places { subject: certificate.subject().to_string(), uri, why };
            diags.push(Severity::Warning, Some(at), "", Configuration::NoStatusSource { of });
        }
    }
}

/// The places that a certificate names for its status, by the daemon's own judgement. The error has
/// the URI of a place that is never asked, and why.
fn places(certificate: &Certificate) -> impl Iterator<Item = Result<Place, (String, Refused)>> {
    let uris = certificate.ocsp_uris().chain(certificate.crl_uris());
    uris.map(|uri| {
        let shown = uri.escape_ascii().take(URI_SHOWN).map(char::from).collect();
        Place::of_certificate(uri).map_err(|why| (shown, why))
    })
}

/// CAs that one message names.
const CAS_SHOWN: usize = 4;
/// Characters of a URI that a message shows.
const URI_SHOWN: usize = 200;

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
