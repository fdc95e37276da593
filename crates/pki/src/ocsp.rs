//! The Online Certificate Status Protocol (RFC 6960): requests, and responses that are read and
//! verified.
//!
//! ```text
//! OCSPResponse = status, bytes ─▶ BasicOCSPResponse
//! BasicOCSPResponse = ResponseData, algorithm, signature, certificates
//! ResponseData = responder, time, list of (certificate, status, times)
//! ```
//! Certificates are named by SHA-1 of their issuer's name and key, as RFC 5019 wants it: the hash
//! is no matter of safety there. Not here: whom to ask, and what follows from no answer
//! (`revocation`).

use std::sync::Arc;

use ironswan_crypto::hash::sha1;

use crate::certificate::Certificate;
use crate::der::{
    BIT_STRING, ENUMERATED, INTEGER, Malformed, NULL, OCTET_STRING, OID, Read, Reader, SEQUENCE,
};
use crate::der::{emit, explicit, integer, octets, only, small};
use crate::extensions::Extension;
use crate::name::Name;
use crate::oid;
use crate::path::{self, Signatures};
use crate::rules::{Purpose, Rules};
use crate::status::{NoStatus, Reason, Status};
use crate::time::Time;

/// Longest response in bytes.
pub const MAX_RESPONSE: usize = 64 << 10;
/// Seconds by which clocks may differ.
const SKEW: i64 = 300;
/// Seconds for which a response without `nextUpdate` is believed.
const WITHOUT_NEXT_UPDATE: i64 = 3600;
/// Most certificates of one response that are looked at.
const MAX_CERTIFICATES: usize = 4;
/// Longest nonce in bytes (RFC 8954).
pub const MAX_NONCE: usize = 32;

/// A request for the status of `certificate`, which `issuer` has issued. A nonce of 1 to 32 bytes
/// makes the responder sign anew.
pub fn request(certificate: &Certificate, issuer: &Certificate, nonce: Option<&[u8]>) -> Vec<u8> {
    let id = id(certificate, issuer);
    let list = emit(SEQUENCE, &[&emit(SEQUENCE, &[&id])]);
    let nonce = nonce.filter(|nonce| !nonce.is_empty()).map(|nonce| {
        let value = emit(OCTET_STRING, &[&emit(OCTET_STRING, &[&nonce[..nonce.len().min(MAX_NONCE)]])]);
        let extension = emit(SEQUENCE, &[&emit(OID, &[oid::OCSP_NONCE]), &value]);
        emit(explicit(2), &[&emit(SEQUENCE, &[&extension])])
    });
    let body = emit(SEQUENCE, &[&list, &nonce.unwrap_or_default()]);
    emit(SEQUENCE, &[&body])
}

/// `CertID` of a certificate.
fn id(certificate: &Certificate, issuer: &Certificate) -> Vec<u8> {
    let algorithm = emit(SEQUENCE, &[&emit(OID, &[oid::SHA1]), &emit(NULL, &[])]);
    let name = emit(OCTET_STRING, &[&sha1(issuer.subject().der())]);
    let key = emit(OCTET_STRING, &[&issuer.key_id()]);
    emit(SEQUENCE, &[&algorithm, &name, &key, &emit(INTEGER, &[certificate.serial()])])
}

/// Status of one certificate, in a response.
struct Single<'a> {
    /// The hashes of the issuer are SHA-1.
    is_sha1: bool,
    issuer_name: &'a [u8],
    issuer_key: &'a [u8],
    serial: &'a [u8],
    status: Said,
    this_update: Time,
    next_update: Option<Time>,
    unknown_critical: bool,
}

/// Status as a responder says it.
#[derive(Clone, Copy)]
enum Said {
    Good,
    Revoked(Time, Reason),
    Unknown,
}

impl<'a> Single<'a> {
    fn read(list: &mut Reader<'a>) -> Read<Self> {
        let mut reader = list.inside(SEQUENCE)?;
        let mut id = reader.inside(SEQUENCE)?;
        let is_sha1 = id.inside(SEQUENCE)?.read(OID)? == oid::SHA1;
        let (issuer_name, issuer_key) = (id.read(OCTET_STRING)?, id.read(OCTET_STRING)?);
        let serial = id.read(INTEGER).and_then(integer)?;
        id.end()?;
        let status = reader.element()?;
        let status = match status.tag {
            0x80 => Said::Good,
            0xa1 => {
                let mut revoked = Reader::new(status.value);
                let at = Time::read_generalized(&mut revoked)?;
                let reason = revoked.optional(explicit(0))?.map(|r| only(r, ENUMERATED).and_then(small));
                revoked.end()?;
                Said::Revoked(at, Reason(reason.transpose()?.unwrap_or(0).min(255) as u8))
            }
            0x82 => Said::Unknown,
            _ => return Err(Malformed),
        };
        let this_update = Time::read_generalized(&mut reader)?;
        let next_update = match reader.optional(explicit(0))? {
            Some(time) => Some(Time::read_generalized(&mut Reader::new(time))?),
            None => None,
        };
        let mut unknown_critical = false;
        if let Some(list) = reader.optional(explicit(1))? {
            let mut list = Reader::new(only(list, SEQUENCE)?);
            while !list.is_empty() {
                unknown_critical |= Extension::read(&mut list)?.critical;
            }
        }
        reader.end()?;
        Ok(Self {
            is_sha1,
            issuer_name,
            issuer_key,
            serial,
            status,
            this_update,
            next_update,
            unknown_critical,
        })
    }

    fn is_of(&self, certificate: &Certificate, issuer: &Certificate) -> bool {
        self.is_sha1
            && self.serial == certificate.serial()
            && self.issuer_name == sha1(issuer.subject().der())
            && self.issuer_key == issuer.key_id()
    }

    /// The last second at which the status is known; an error when `now` is not within its times.
    fn current(&self, now: Time) -> Result<Time, NoStatus> {
        if self.this_update > now.plus(SKEW) {
            return Err(NoStatus::NotYetValid { from: self.this_update });
        }
        let until = self.next_update.unwrap_or(self.this_update.plus(WITHOUT_NEXT_UPDATE));
        if until.plus(SKEW) < now { Err(NoStatus::Old { since: until }) } else { Ok(until) }
    }
}

/// How a response names who signed it.
#[derive(Clone, Copy)]
enum Responder<'a> {
    Name(Name<'a>),
    /// SHA-1 of the key.
    Key(&'a [u8]),
}

impl Responder<'_> {
    fn is(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Name(name) => certificate.subject() == *name,
            Self::Key(hash) => *hash == certificate.key_id(),
        }
    }
}

/// A response whose structure was checked, still without regard to who signed it.
#[derive(Clone)]
pub struct Response {
    der: Arc<[u8]>,
}

/// Parts of a response.
struct Parts<'a> {
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// Inside of the list of certificates.
    certificates: &'a [u8],
    responder: Responder<'a>,
    /// Inside of the list of statuses.
    singles: &'a [u8],
    nonce: Option<&'a [u8]>,
    unknown_critical: bool,
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Read<Self> {
        let mut whole = Reader::new(der);
        let mut basic = whole.inside(SEQUENCE)?;
        whole.end()?;
        let signed = basic.whole(SEQUENCE)?;
        let algorithm = basic.whole(SEQUENCE)?;
        let signature = octets(basic.read(BIT_STRING)?)?;
        let certificates = match basic.optional(explicit(0))? {
            Some(list) => only(list, SEQUENCE)?,
            None => &[],
        };
        basic.end()?;
        let mut data = Reader::new(only(signed, SEQUENCE)?);
        if let Some(version) = data.optional(explicit(0))?
            && only(version, INTEGER)? != [0]
        {
            return Err(Malformed);
        }
        let responder = data.element()?;
        let responder = match responder.tag {
            0xa1 => Responder::Name(Name::check(responder.value)?),
            0xa2 => Responder::Key(only(responder.value, OCTET_STRING)?),
            _ => return Err(Malformed),
        };
        Time::read_generalized(&mut data)?;
        let singles = data.read(SEQUENCE)?;
        let mut list = Reader::new(singles);
        while !list.is_empty() {
            Single::read(&mut list)?;
        }
        let (mut nonce, mut unknown_critical) = (None, false);
        if let Some(list) = data.optional(explicit(1))? {
            let mut list = Reader::new(only(list, SEQUENCE)?);
            while !list.is_empty() {
                let extension = Extension::read(&mut list)?;
                if extension.name == oid::OCSP_NONCE {
                    nonce = Some(only(extension.value, OCTET_STRING).unwrap_or(extension.value));
                } else {
                    unknown_critical |= extension.critical;
                }
            }
        }
        data.end()?;
        Ok(Self { signed, algorithm, signature, certificates, responder, singles, nonce, unknown_critical })
    }

    /// The statuses of this certificate.
    fn about(&self, certificate: &Certificate, issuer: &Certificate) -> Vec<Single<'a>> {
        let mut singles = Reader::new(self.singles);
        let all = std::iter::from_fn(|| Single::read(&mut singles).ok());
        all.filter(|single| single.is_of(certificate, issuer)).collect()
    }
}

/// Why bytes are no response with a status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResponseFault {
    /// The bytes are longer than [`MAX_RESPONSE`]: their number.
    TooLong(usize),
    /// The bytes are no response, or of another type than id-pkix-ocsp-basic.
    Malformed,
    /// The responder refuses to answer: its status (RFC 6960 section 4.2.1).
    Refused(u8),
}

impl std::fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "has {len} bytes, and {MAX_RESPONSE} are the most"),
            Self::Malformed => f.write_str("is no response of OCSP"),
            Self::Refused(status) => f.write_str(match status {
                1 => "says that the request was malformed",
                2 => "says that the responder has an internal error",
                3 => "says to try again later",
                5 => "says that requests must be signed",
                6 => "says that the responder may not answer this request",
                _ => "has a status that RFC 6960 does not know",
            }),
        }
    }
}

impl std::error::Error for ResponseFault {}

impl Response {
    /// Reads a response in DER.
    ///
    /// # Errors
    /// The bytes are no response, or one without a status.
    pub fn from_der(der: &[u8]) -> Result<Self, ResponseFault> {
        if der.len() > MAX_RESPONSE {
            return Err(ResponseFault::TooLong(der.len()));
        }
        let read = || {
            let mut whole = Reader::new(der);
            let mut response = whole.inside(SEQUENCE)?;
            whole.end()?;
            let status = response.read(ENUMERATED).and_then(small)?;
            let bytes = response.optional(explicit(0))?;
            response.end()?;
            Ok((status, bytes))
        };
        let (status, bytes) = read().map_err(|Malformed| ResponseFault::Malformed)?;
        if status != 0 {
            return Err(ResponseFault::Refused(u8::try_from(status).unwrap_or(u8::MAX)));
        }
        let read = || {
            let mut bytes = Reader::new(only(bytes.ok_or(Malformed)?, SEQUENCE)?);
            if bytes.read(OID)? != oid::OCSP_BASIC {
                return Err(Malformed);
            }
            let basic = bytes.read(OCTET_STRING)?;
            bytes.end()?;
            Parts::read(basic)?;
            Ok(basic)
        };
        read().map(|basic| Self { der: basic.into() }).map_err(|Malformed| ResponseFault::Malformed)
    }

    /// Judges what the response says about `certificate`, which `issuer` has issued. `issuer` is a
    /// CA that was validated. With a nonce, a response that has another one is refused, and a
    /// response without one is accepted, since many responders sign in advance.
    ///
    /// RFC 6960 section 4.2.2.2: the key that signed must be the issuer's own, or of a certificate
    /// that the issuer issued for OCSP. Whether that one was revoked is not asked: section
    /// 4.2.2.2.1 leaves this to local policy.
    pub fn status(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        nonce: Option<&[u8]>,
        now: Time,
        rules: &Rules,
    ) -> Result<Status, NoStatus> {
        let parts = Parts::read(&self.der).map_err(|Malformed| NoStatus::Unreadable)?;
        let ours = parts.about(certificate, issuer);
        let first = ours.first().ok_or(NoStatus::OtherCertificate)?;
        if parts.unknown_critical || ours.iter().any(|single| single.unknown_critical) {
            return Err(NoStatus::UnknownCritical);
        }
        if let (Some(sent), Some(came)) = (nonce, parts.nonce)
            && sent != came
        {
            return Err(NoStatus::OtherNonce);
        }
        // Of several statuses of one certificate a revocation counts.
        let is_revocation = |single: &&Single<'_>| matches!(single.status, Said::Revoked(..));
        let mut revocations = ours.iter().filter(is_revocation);
        let single = revocations.find(|single| single.current(now).is_ok()).unwrap_or(first);
        let until = single.current(now)?;
        self.check_signature(&parts, issuer, now, rules)?;
        match single.status {
            Said::Good => Ok(Status::Good { until }),
            Said::Revoked(at, reason) => Ok(Status::Revoked { at, reason }),
            Said::Unknown => Err(NoStatus::SaidUnknown),
        }
    }

    /// Time at which there will be a newer response about `certificate`, by the first of several
    /// statuses of it to be renewed. `None`: there is one "all the time" (RFC 6960 section
    /// 4.2.2.1), so this response is not to be kept.
    pub fn next_update(&self, certificate: &Certificate, issuer: &Certificate) -> Option<Time> {
        let ours = Parts::read(&self.der).ok()?.about(certificate, issuer);
        let times: Option<Vec<Time>> = ours.iter().map(|single| single.next_update).collect();
        times?.into_iter().min()
    }

    /// `BasicOCSPResponse` in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    fn check_signature(
        &self,
        parts: &Parts<'_>,
        issuer: &Certificate,
        now: Time,
        rules: &Rules,
    ) -> Result<(), NoStatus> {
        let by = |signer: &Certificate| {
            let key = signer.key(rules.legacy).map_err(|_| NoStatus::Signature)?;
            path::signature(parts.algorithm, &key, parts.signed, parts.signature, rules)
                .map_err(|_| NoStatus::Signature)
        };
        if parts.responder.is(issuer) {
            return by(issuer);
        }
        let for_signer = rules.for_signer(Purpose::Ocsp);
        let mut list = Reader::new(parts.certificates);
        let certificates = std::iter::from_fn(|| Some(list.whole(SEQUENCE).ok()?.to_vec()));
        let mut why = NoStatus::Responder;
        for der in certificates.take(MAX_CERTIFICATES) {
            let Ok(responder) = Certificate::from_der(&der) else { continue };
            if !parts.responder.is(&responder) {
                continue;
            }
            match path::validate(&[&responder], issuer, now, &for_signer, &mut Signatures::new(1)) {
                Ok(()) => return by(&responder),
                Err((_, fault)) => why = NoStatus::Signer(Box::new(fault)),
            }
        }
        Err(why)
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Response({} bytes)", self.der.len())
    }
}
