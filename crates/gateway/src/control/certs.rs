//! Commands about certificates, revocation lists and CAs.
//!
//! `swanctl` sends every file of its folders by `load-cert`, and the files of a connection once
//! more within the connection. It sends raw public keys by `load-cert`, too, where charon looks for
//! the key of an identity. Here a connection has the keys of its peer, so `load-cert` only says
//! whether such a file is one that can be used.

use ironswan_config::keyfiles;
use ironswan_keying::Kept;
use ironswan_pki::{Certificate, identity, key_file};
use ironswan_wire::id::IdPattern;
use ironswan_wire::vici::{Section, Value};

use super::authority::Authority;
use super::client::Client;
use super::{Control, failure, success, text};

/// Types of `load-cert` that name files which nothing uses.
const UNUSED: [&str; 2] = ["x509_ac", "ocsp_response"];

impl Control {
    /// `load-cert`. A certificate with the flag `CA` is trusted.
    pub(super) fn load_cert(&self, message: &Section) -> Section {
        let kind = text(message, "type").map(str::to_ascii_lowercase);
        let flag = text(message, "flag").map(str::to_ascii_lowercase);
        let data = match message.get("data") {
            Some(Value::Text(bytes)) if !bytes.is_empty() => bytes,
            _ => return failure("missing certificate data"),
        };
        match kind.as_deref() {
            Some("x509") => match key_file::certificates(data) {
                Ok(found) => {
                    let trusted = flag.as_deref() == Some("ca");
                    if trusted && !found.iter().all(Certificate::is_ca) {
                        return failure("the certificate is not that of a CA (basicConstraints)");
                    }
                    self.driver.act(|e, _| {
                        e.change_certificates(|all| found.into_iter().for_each(|c| all.insert(c, trusted)));
                    });
                    success()
                }
                Err(why) => failure(format!("the message {why}")),
            },
            Some("x509_crl") => match key_file::list(data) {
                Ok(list) => {
                    self.driver.act(|e, _| e.change_certificates(|all| all.insert_list(list)));
                    success()
                }
                Err(why) => failure(format!("the message {why}")),
            },
            Some("pubkey") => match keyfiles::public_key(data) {
                Ok(_) => success(),
                Err(why) => failure(format!("the message holds no usable key: {why}")),
            },
            Some(kind) if UNUSED.contains(&kind) => failure(format!("nothing uses files of type {kind}")),
            Some(kind) => failure(format!("invalid certificate type: {}", kind.escape_debug())),
            None => failure("missing certificate type"),
        }
    }

    /// `list-certs`: certificates, then revocation lists, in DER. `type`, `flag` and `subject` of
    /// the message say which; a `subject` may also be another name of a certificate, or a
    /// distinguished name with `*`.
    pub(super) async fn list_certs(&self, client: &Client, message: &Section) -> Section {
        let wants = |key: &str, value: &str| {
            text(message, key).is_none_or(|w| w.eq_ignore_ascii_case("any") || w.eq_ignore_ascii_case(value))
        };
        let subject = text(message, "subject").map(|s| (s, IdPattern::parse(s)));
        let is_of = |certificate: &Certificate, name: &str| {
            subject.as_ref().is_none_or(|(text, pattern)| {
                *text == name || pattern.as_ref().is_some_and(|p| identity::fits(certificate, p))
            })
        };
        let loaded = self.driver.view(|e, _| e.certificates());
        for (certificate, trusted) in loaded.all() {
            let flag = if trusted { "CA" } else { "NONE" };
            let name = certificate.subject().to_string();
            if !wants("type", "X509") || !wants("flag", flag) || !is_of(certificate, &name) {
                continue;
            }
            let mut item = Section::new().with("type", "X509").with("flag", flag);
            if self.driver.view(|e, _| e.has_private(certificate)) {
                item = item.with("has_privkey", true);
            }
            if !client.stream("list-cert", item.with("data", certificate.der())).await {
                return Section::new();
            }
        }
        for list in loaded.lists().iter().filter(|_| wants("type", "X509_CRL") && subject.is_none()) {
            let item = Section::new().with("type", "X509_CRL").with("data", list.der());
            if !client.stream("list-cert", item).await {
                break;
            }
        }
        let all = self.driver.view(|e, _| e.statuses().all());
        for kept in all.iter().filter(|_| subject.is_none()) {
            let (kind, der) = match kept {
                Kept::List(list) => ("X509_CRL", list.der()),
                Kept::Response(response) => ("OCSP_RESPONSE", response.der()),
            };
            let item = Section::new().with("type", kind).with("data", der);
            if wants("type", kind) && !client.stream("list-cert", item).await {
                break;
            }
        }
        Section::new()
    }

    /// `flush-certs`: forgets lists and responses that were fetched. `type` says which.
    pub(super) fn flush_certs(&self, message: &Section) -> Section {
        let kind = text(message, "type").map(str::to_ascii_lowercase);
        let wants = |one| kind.as_deref().is_none_or(|kind| kind == "any" || kind == one);
        self.driver.view(|e, _| e.statuses().flush(wants("x509_crl"), wants("ocsp_response")));
        success()
    }

    /// `load-authority`: sections, each named and with the certificate of a CA. `crl_uris` and
    /// `ocsp_uris` say where the status of the certificates is that this CA has issued.
    pub(super) fn load_authority(&self, message: &Section) -> Section {
        let mut found = Vec::new();
        for (name, value) in message.iter() {
            let Value::Section(section) = value else {
                return failure(format!("{}: is a section, not a key", name.escape_debug()));
            };
            match Authority::read(section) {
                Ok(authority) => found.push((name.to_owned(), authority)),
                Err(why) => return failure(format!("authority '{}': {why}", name.escape_debug())),
            }
        }
        for (name, authority) in found {
            self.forget_authority(&name);
            self.driver.act(|e, _| {
                e.change_certificates(|all| {
                    authority.certificates.iter().for_each(|c| all.insert(c.clone(), true));
                    all.insert_places(&authority.certificates[0], authority.places.clone());
                });
            });
            self.authorities.borrow_mut().insert(name, authority);
        }
        success()
    }

    /// `unload-authority`.
    pub(super) fn unload_authority(&self, message: &Section) -> Section {
        let Some(name) = text(message, "name") else { return failure("missing CA name to unload") };
        match self.forget_authority(name) {
            true => success(),
            false => failure(format!("CA '{}' not found for unloading", name.escape_debug())),
        }
    }

    /// Unloads the certificates of an authority; false when there is none of this name.
    fn forget_authority(&self, name: &str) -> bool {
        let Some(gone) = self.authorities.borrow_mut().remove(name) else { return false };
        self.driver.act(|e, _| {
            e.change_certificates(|all| {
                all.remove_places(&gone.certificates[0], &gone.places);
                gone.certificates.iter().for_each(|c| _ = all.remove(c));
            });
        });
        true
    }

    /// `get-authorities`.
    pub(super) fn get_authorities(&self) -> Section {
        let names: Vec<String> = self.authorities.borrow().keys().cloned().collect();
        Section::new().with("authorities", names)
    }

    /// `list-authorities`. With `name` in the message, only this one is listed.
    pub(super) async fn list_authorities(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "name");
        let all: Vec<(String, Section)> = {
            let authorities = self.authorities.borrow();
            let wanted = authorities.iter().filter(|(name, _)| only.is_none_or(|n| n == *name));
            wanted.map(|(name, authority)| (name.clone(), authority.listed())).collect()
        };
        for (name, item) in all {
            if !client.stream("list-authority", Section::new().with(&name, item)).await {
                break;
            }
        }
        Section::new()
    }
}
