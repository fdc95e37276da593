//! Checks of certificates and revocation lists: do they end soon, and do they fit the identities
//! of the peers for which connections name them? A part of `ironswan check`.
//!
//! Not here: files that cannot be read (`certfiles`), our own identity (`meaning`), private keys
//! that are missing (`check`), and chains, which are judged when a peer sends one (`ironswan_pki`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironswan_keying::Connection;
use ironswan_keying::diagnosis::{Configuration, DateFault};
use ironswan_pki::{Certificate, Time, identity};

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
    dates(config, Time(i64::try_from(seconds).unwrap_or(i64::MAX)), diags);
    for conn in &config.connections {
        identity_of_peer(config, conn, diags);
    }
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

/// Certificates that a connection names for its peer, none of which speaks for the peer's identity.
fn identity_of_peer(config: &Config, conn: &Connection, diags: &mut Diagnostics) {
    let Some(trust) = conn.remote_auth.trust() else { return };
    let Some(first) = trust.certificates.first() else { return };
    if trust.certificates.iter().any(|certificate| identity::fits(certificate, &conn.remote_id)) {
        return;
    }
    let key = format!("connections.{}.remote.certs", conn.name);
    let names = first.alt_names().take(NAMES_SHOWN).map(|name| name.to_string()).collect();
    let (id, subject) = (conn.remote_id.to_string(), first.subject().to_string());
    let fault = Configuration::CertificateOfAnother { id, subject, names };
    diags.push(Severity::Error, config.place(&key), &key, fault);
}

/// Names of a certificate that a message shows.
const NAMES_SHOWN: usize = 8;

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
