//! `signcrl`: revocation lists (RFC 5280 section 5).

use std::path::Path;

use der::asn1::{OctetString, Uint};
use der::{Decode, Encode};
use ironswan_pki::Crl;
use x509_cert::certificate::{Raw, Version};
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, CrlNumber, CrlReason};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::args::{Reason, Signcrl};
use crate::authority::Authority;
use crate::certificate::number;
use crate::dates::{self, DAY};
use crate::extensions::extension;
use crate::failure::Failure;
use crate::files::{self, Readers, Source};
use crate::signed::SHOW_ALL;
use crate::signed::{self, encoding};
use crate::{wanted, words};

/// Longest number of a list in bytes: "CRL issuers MUST NOT use CRLNumber values longer than 20
/// octets".
const MAX_NUMBER: usize = 20;

/// The list before.
struct Last {
    number: Vec<u8>,
    entries: Vec<RevokedCert<Raw>>,
}

/// Carries out `signcrl`.
pub(crate) fn sign(a: &Signcrl) -> Result<(), Failure> {
    let authority = Authority::open(&a.authority)?;
    let now = dates::now();
    let mut last = match &a.lastcrl {
        Some(path) => last(path, &authority)?,
        None => {
            if let Some(out) = a.output.out.as_ref().filter(|out| a.output.force && out.exists()) {
                let out = out.display();
                files::complain(&format!(
                    "ironswan pki signcrl: warning: the entries of the old {out} are not kept: name it with --lastcrl to keep them"
                ));
            }
            Last { number: vec![0], entries: Vec::new() }
        }
    };
    let date = match &a.date {
        Some(text) => dates::parse("--date", text)?,
        None => now,
    };
    let date = dates::encode(date)?;
    for serial in serials(a, &authority)? {
        let serial = decoded_serial(&serial)?;
        if last.entries.iter().any(|entry| entry.serial_number == serial) {
            files::complain(&format!(
                "ironswan pki signcrl: warning: serial {} is revoked already; its entry stays as it is",
                words::hex(serial.as_bytes())
            ));
            continue;
        }
        let reason = a.reason.map(|reason| extension(false, &code(reason))).transpose()?;
        last.entries.push(RevokedCert {
            serial_number: serial,
            revocation_date: date,
            crl_entry_extensions: reason.map(|reason| vec![reason]),
        });
    }
    let count = last.entries.len();
    let scheme = signed::scheme(authority.key.public(), &a.signing)?;
    let next = now.plus(i64::from(a.lifetime) * DAY);
    let number = next_number(&last.number)?;
    let body = body(&authority, scheme, (now, next), &number, last.entries)?;
    let der = signed::sign(&body, &authority.key, scheme)?;
    let list = Crl::from_der(&der).map_err(|e| Failure::usage(format!("the list {e}")))?;
    files::write(&a.output, "X509 CRL", list.der(), Readers::All)?;
    files::made(
        a.output.out.as_deref(),
        &format!(
            "revocation list of {}, number {}, {count} {}, next list due {next} ({})",
            list.issuer(),
            words::hex(&number),
            if count == 1 { "entry" } else { "entries" },
            dates::distance(next, now)
        ),
    )
}

fn body(
    authority: &Authority,
    scheme: ironswan_crypto::sign::Scheme,
    (from, next): (ironswan_pki::Time, ironswan_pki::Time),
    number: &[u8],
    entries: Vec<RevokedCert<Raw>>,
) -> Result<TbsCertList<Raw>, Failure> {
    let key = OctetString::new(authority.key_id()).map_err(encoding)?;
    let key = AuthorityKeyIdentifier { key_identifier: Some(key), ..Default::default() };
    let number = CrlNumber(Uint::new(number).map_err(encoding)?);
    let algorithm = signed::algorithm(scheme)?.to_der().map_err(encoding)?;
    Ok(TbsCertList {
        version: Version::V2,
        signature: AlgorithmIdentifierOwned::from_der(&algorithm).map_err(encoding)?,
        issuer: Name::from_der(authority.certificate.subject().der()).map_err(encoding)?,
        this_update: dates::encode(from)?,
        next_update: Some(dates::encode(next)?),
        // "When there are no revoked certificates, the revoked certificates list MUST be absent."
        revoked_certificates: (!entries.is_empty()).then_some(entries),
        crl_extensions: Some(vec![extension(false, &key)?, extension(false, &number)?]),
    })
}

/// Reads the list before. It has to be one of this CA: nobody else may revoke for it.
fn last(path: &Path, authority: &Authority) -> Result<Last, Failure> {
    let source = files::read(Some(path))?;
    let list = wanted::list(&source)?;
    let signed_by_us = signed::verify(list.der(), authority.key.public(), SHOW_ALL);
    if list.issuer() != authority.certificate.subject() || signed_by_us.is_err() {
        return Err(Failure::usage(format!(
            "{} is not a revocation list of the CA {}: name the last list that this CA has signed",
            source.name, authority.name
        )));
    }
    if list.is_delta() {
        return Err(Failure::usage(format!(
            "{} lists differences to another list only: name the last complete list",
            source.name
        )));
    }
    let list =
        CertificateList::<Raw>::from_der(list.der()).map_err(|e| unreadable(&source, &e))?.tbs_cert_list;
    let mut number = vec![0];
    for extension in list.crl_extensions.iter().flatten() {
        if extension.extn_id == <CrlNumber as der::oid::AssociatedOid>::OID {
            let value =
                CrlNumber::from_der(extension.extn_value.as_bytes()).map_err(|e| unreadable(&source, &e))?;
            number = value.0.as_bytes().to_vec();
        }
    }
    Ok(Last { number, entries: list.revoked_certificates.unwrap_or_default() })
}

fn unreadable(source: &Source, e: &der::Error) -> Failure {
    Failure::usage(format!("{} cannot be continued: {e}; start a new list without --lastcrl", source.name))
}

/// Serial numbers to revoke, as they stand in certificates.
fn serials(a: &Signcrl, authority: &Authority) -> Result<Vec<Vec<u8>>, Failure> {
    let mut serials = Vec::new();
    for path in &a.cert {
        let source = files::read(Some(path))?;
        let certificate = wanted::certificate(&source)?;
        if certificate.issuer() != authority.certificate.subject() {
            return Err(Failure::usage(format!(
                "{} was issued by {}, not by {}: only its own CA can revoke it",
                source.name,
                certificate.issuer(),
                authority.certificate.subject()
            )));
        }
        serials.push(certificate.serial().to_vec());
    }
    for text in &a.serial {
        let mut bytes = number(text).ok_or_else(|| {
            Failure::usage(format!("--serial {text:?} is no serial number: write hexadecimal digits, as `ironswan pki print` shows them"))
        })?;
        if bytes[0] & 0x80 != 0 {
            bytes.insert(0, 0);
        }
        serials.push(bytes);
    }
    Ok(serials)
}

/// A serial number from the bytes of its INTEGER.
fn decoded_serial(bytes: &[u8]) -> Result<SerialNumber<Raw>, Failure> {
    let len = u8::try_from(bytes.len()).ok().filter(|len| *len < 0x80);
    let len = len.ok_or_else(|| Failure::usage("a serial number has more than 127 bytes"))?;
    SerialNumber::from_der(&[&[2, len], bytes].concat()).map_err(encoding)
}

fn code(reason: Reason) -> CrlReason {
    match reason {
        Reason::KeyCompromise => CrlReason::KeyCompromise,
        Reason::CaCompromise => CrlReason::CaCompromise,
        Reason::AffiliationChanged => CrlReason::AffiliationChanged,
        Reason::Superseded => CrlReason::Superseded,
        Reason::CessationOfOperation => CrlReason::CessationOfOperation,
        Reason::CertificateHold => CrlReason::CertificateHold,
    }
}

/// The number after this one.
fn next_number(number: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut next = number.to_vec();
    for byte in next.iter_mut().rev() {
        let carry;
        (*byte, carry) = byte.overflowing_add(1);
        if !carry {
            return Ok(next);
        }
    }
    next.insert(0, 1);
    if next.len() > MAX_NUMBER {
        return Err(Failure::usage(
            "the number of the last list is the greatest one: start a new list without --lastcrl",
        ));
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lists_go_up_by_one() {
        assert_eq!(next_number(&[0]).unwrap(), [1]);
        assert_eq!(next_number(&[1, 0xff]).unwrap(), [2, 0]);
        assert_eq!(next_number(&[0xff, 0xff]).unwrap(), [1, 0, 0]);
        assert!(next_number(&[0xff; MAX_NUMBER]).is_err());
    }
}
