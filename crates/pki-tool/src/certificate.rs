//! `self` and `issue`: certificates (RFC 5280 section 4.1).

use der::asn1::{Any, Int, ObjectIdentifier};
use der::{Decode, Sequence};
use ironswan_crypto::rng::{Rng, System};
use ironswan_crypto::sign::{PrivateKey, PublicKey};
use ironswan_pki::{Certificate, Purpose, Rules, Time, validate};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

use crate::args::{Content, InputKind, Issue, Output, SelfSigned};
use crate::authority::Authority;
use crate::dates::{self, DAY};
use crate::failure::Failure;
use crate::files::{self, Readers};
use crate::kind::{self, Item};
use crate::request::{self, Request};
use crate::signed::{self, encoding};
use crate::words::{self, hex};
use crate::{extensions, keys, names, remedy, wanted};

/// Length of a serial number of ours in bytes. "CAs MUST NOT use serialNumber values longer than 20
/// octets".
const SERIAL_LEN: usize = 16;
/// Days for which certificates are valid by default, as strongSwan has it.
const DAYS: u32 = 1095;
/// The same for a CA.
const CA_DAYS: u32 = 3650;

#[derive(Sequence)]
struct Body {
    /// Version 3, which is 2.
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    version: u8,
    serial: Int,
    algorithm: Any,
    issuer: Any,
    validity: Validity,
    subject: Any,
    key: Any,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT")]
    extensions: Vec<Extension>,
}

/// What a certificate binds to its key.
struct Owner {
    subject: Any,
    names: Vec<GeneralName>,
    purposes: Vec<ObjectIdentifier>,
    key: PublicKey,
}

/// Who signs a certificate.
struct Issuer {
    name: Any,
    /// Identifier of its key.
    key_id: Vec<u8>,
    /// Last second of its own certificate. `None` when it signs itself.
    until: Option<Time>,
}

/// Carries out `self`.
pub(crate) fn self_signed(a: &SelfSigned) -> Result<(), Failure> {
    let source = files::read(a.input.path.as_deref())?;
    let key = wanted::private_key(&source, a.input.passphrase_file.as_deref())?;
    let owner = owner(&a.content, key.public().clone(), None)?;
    let issuer = Issuer { name: owner.subject.clone(), key_id: key.public().id().to_vec(), until: None };
    let certificate = make(&a.content, &owner, issuer, &key)?;
    write(&a.output, &certificate, a.content.ca)
}

/// Carries out `issue`.
pub(crate) fn issue(a: &Issue) -> Result<(), Failure> {
    let authority = Authority::open(&a.authority)?;
    let source = files::read(a.path.as_deref())?;
    let item = kind::items(&source)?.into_iter().next();
    let fits = match (&item, a.kind) {
        (_, None) => true,
        (Some(Item::Request(_)), Some(kind)) => kind == InputKind::Pkcs10,
        (Some(Item::Public(_)), Some(kind)) => kind == InputKind::Pub,
        (_, Some(kind)) => kind == InputKind::Priv,
    };
    if !fits {
        return Err(Failure::usage(format!(
            "{} is of another kind than --type says: leave --type out",
            source.name
        )));
    }
    let owner = match item {
        Some(Item::Request(request)) => {
            request.verify().map_err(|e| {
                Failure::usage(format!(
                    "{} is not signed by its own key ({e}): whoever sent it may not have that key; ask for a new request",
                    source.name
                ))
            })?;
            let key = request.key(signed::SHOW_ALL);
            let key = key
                .map_err(|e| Failure::usage(format!("{} has a key that cannot be used: {e}", source.name)))?;
            owner(&a.content, key, Some(&request))?
        }
        _ => owner(&a.content, keys::public_of(&source, a.authority.passphrase_file.as_deref())?, None)?,
    };
    let issuer = Issuer {
        name: Any::from_der(authority.certificate.subject().der()).map_err(encoding)?,
        key_id: authority.key_id(),
        until: Some(authority.certificate.not_after()),
    };
    let certificate = make(&a.content, &owner, issuer, &authority.key)?;
    check(&certificate, &authority)?;
    write(&a.output, &certificate, a.content.ca)
}

/// Who the certificate is for: by the command line, and by the request where that says nothing.
fn owner(content: &Content, key: PublicKey, request: Option<&Request>) -> Result<Owner, Failure> {
    let subject = match (&content.subject.dn, request) {
        (None, Some(request)) => Any::from_der(request.subject().der()).map_err(encoding)?,
        (dn, _) => names::distinguished(dn.as_deref().unwrap_or_default())?,
    };
    let (mut names, mut purposes) = request::names_and_purposes(&content.subject)?;
    if let Some(request) = request {
        if names.is_empty() {
            names = request.names().unwrap_or_default();
        }
        if purposes.is_empty() {
            purposes = request.purposes().unwrap_or_default();
        }
    }
    if subject.value().is_empty() && (names.is_empty() || content.ca) {
        return Err(Failure::usage(if content.ca {
            "a CA needs a name: give it one with --dn \"O=Example, CN=Example CA\""
        } else {
            "nobody is named: give the subject with --dn, or its names with --san"
        }));
    }
    Ok(Owner { subject, names, purposes, key })
}

/// Makes a certificate.
fn make(content: &Content, owner: &Owner, issuer: Issuer, key: &PrivateKey) -> Result<Certificate, Failure> {
    let scheme = signed::scheme(key.public(), &content.signing)?;
    let mut list = extensions::of_use(content)?;
    list.extend(extensions::of_subject(&owner.names, &owner.purposes, owner.subject.value().is_empty())?);
    list.extend(extensions::of_keys(&owner.key.id(), &issuer.key_id)?);
    list.extend(extensions::of_issuer(content)?);
    let body = Body {
        version: 2,
        serial: serial(content.serial.as_deref())?,
        algorithm: signed::algorithm(scheme)?,
        issuer: issuer.name,
        validity: validity(content, issuer.until)?,
        subject: owner.subject.clone(),
        key: Any::from_der(owner.key.spki()).map_err(encoding)?,
        extensions: list,
    };
    let der = signed::sign(&body, key, scheme)?;
    Certificate::from_der(&der).map_err(|e| Failure::usage(format!("the certificate {e}: shorten its names")))
}

/// When a certificate is valid. It ends with its CA at the latest, unless somebody wrote an end.
fn validity(content: &Content, limit: Option<Time>) -> Result<Validity, Failure> {
    let from = match &content.not_before {
        Some(text) => dates::parse("--not-before", text)?,
        None => dates::now(),
    };
    let days = content.lifetime.unwrap_or(if content.ca { CA_DAYS } else { DAYS });
    let until = match &content.not_after {
        Some(text) => dates::parse("--not-after", text)?,
        None => {
            let until = from.plus(i64::from(days) * DAY);
            limit.filter(|_| content.lifetime.is_none()).map_or(until, |limit| until.min(limit))
        }
    };
    if until <= from {
        return Err(Failure::usage(format!(
            "the certificate would end at {until}, before it begins at {from}"
        )));
    }
    Ok(Validity::new(dates::encode(from)?, dates::encode(until)?))
}

/// A serial number: the one that is asked for, or a random one. Both are positive.
fn serial(text: Option<&str>) -> Result<Int, Failure> {
    let mut bytes = match text {
        Some(text) => number(text).ok_or_else(|| {
            Failure::usage(format!(
                "--serial {text:?} is no serial number: write 1 to 40 hexadecimal digits, not all 0"
            ))
        })?,
        None => {
            let mut bytes = vec![0; SERIAL_LEN];
            System.fill(&mut bytes);
            // No leading zero, so that all have one length, and no sign.
            bytes[0] = bytes[0] & 0x3f | 0x40;
            bytes
        }
    };
    if bytes[0] & 0x80 != 0 {
        bytes.insert(0, 0);
    }
    Int::new(&bytes).map_err(encoding)
}

/// Bytes of a positive number in hexadecimal digits, which colons may stand between, without
/// leading zeros.
pub(crate) fn number(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    let digits = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
    if digits.is_empty() || digits.len() > 40 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    // "CAs MUST NOT use serialNumber values longer than 20 octets": a sign would be the 21st.
    let bytes = bytes[first..].to_vec();
    (bytes.len() < 20 || bytes[0] < 0x80).then_some(bytes)
}

/// Refuses a certificate that no peer would accept under its CA, by the gateway's own rules.
fn check(certificate: &Certificate, authority: &Authority) -> Result<(), Failure> {
    let ca = &authority.certificate;
    let rules = Rules { purpose: Purpose::Any, legacy: signed::SHOW_ALL, ..Rules::default() };
    let at = dates::now().max(certificate.not_before());
    validate(certificate, &[], std::slice::from_ref(ca), at, &rules).map_err(|fault| {
        Failure::usage(format!(
            "nobody would accept this certificate, so it was not written: {fault}; {}",
            remedy::of(&fault.rule)
        ))
    })?;
    if certificate.not_after() > ca.not_after() {
        files::complain(&format!(
            "ironswan pki issue: warning: the certificate is valid until {}, and its CA {} only until {}: nobody accepts it afterwards",
            certificate.not_after(),
            authority.name,
            ca.not_after()
        ));
    }
    Ok(())
}

/// Writes a certificate, and says what it is.
fn write(output: &Output, certificate: &Certificate, ca: bool) -> Result<(), Failure> {
    let names: Vec<String> = certificate.alt_names().map(|name| name.to_string()).collect();
    if names.is_empty() && !ca {
        files::complain(
            "ironswan pki: warning: the certificate has no --san: a peer finds it by its distinguished name alone, not by a DNS name or address",
        );
    }
    files::write(output, "CERTIFICATE", certificate.der(), Readers::All)?;
    let what = if ca { "certificate of the CA" } else { "certificate of" };
    let mut subject = words::subject(&certificate.subject());
    if !names.is_empty() {
        subject = format!("{subject} ({})", names.join(", "));
    }
    let until = certificate.not_after();
    files::made(
        output.out.as_deref(),
        &format!(
            "{what} {subject}, valid until {until} ({}), serial {}",
            lasts(until),
            hex(certificate.serial())
        ),
    )
}

fn lasts(until: Time) -> String {
    dates::distance(until.plus(1), dates::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_positive_and_short() {
        assert_eq!(number("01:02"), Some(vec![1, 2]));
        assert_eq!(number("0x0abc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(number("abc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(number(&"ff".repeat(19)).map(|bytes| bytes.len()), Some(19));
        for bad in ["", "0", "00:00", "xyz", "-1", &"ff".repeat(20), &"11".repeat(21)] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(serial(Some("80")).unwrap().as_bytes(), [0, 0x80]);
        let random = serial(None).unwrap();
        assert!(random.as_bytes().len() == SERIAL_LEN && random.as_bytes()[0] < 0x80);
    }
}
