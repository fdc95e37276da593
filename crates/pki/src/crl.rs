//! Certificate revocation lists (RFC 5280 section 5), read and checked for their structure.
//!
//! A [`Crl`] keeps its bytes, and its entries stay in them: a list of a million entries is read
//! once when it comes, and once for each look-up. Not here: whether a list says anything about a
//! certificate (`revocation`).

use std::sync::Arc;

use crate::certificate::envelope;
use crate::der::{ENUMERATED, GENERALIZED_TIME, INTEGER, Malformed, Read, Reader, SEQUENCE, UTC_TIME};
use crate::der::{explicit, implicit, integer, named_bits, only, small, unsigned};
use crate::extensions::{Extension, PointName, Span, authority_key};
use crate::general_name::GeneralName;
use crate::name::Name;
use crate::oid::{self, Oid};
use crate::status::Reason;
use crate::time::Time;

/// Longest list in bytes.
pub const MAX_CRL: usize = 16 << 20;

/// Why bytes are no revocation list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CrlFault {
    /// The bytes are longer than [`MAX_CRL`]: their number.
    TooLong(usize),
    /// This part is not encoded as RFC 5280 says.
    Malformed(&'static str),
}

impl std::fmt::Display for CrlFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "has {len} bytes, and {MAX_CRL} is the most that a CRL may have"),
            Self::Malformed(part) => write!(f, "is no CRL: its {part} is malformed"),
        }
    }
}

impl std::error::Error for CrlFault {}

/// A revocation list whose structure was checked.
#[derive(Clone)]
pub struct Crl {
    der: Arc<[u8]>,
    signed: Span,
    algorithm: Span,
    issuer: Span,
    this_update: Time,
    next_update: Option<Time>,
    entries: Span,
    signature: Span,
    extensions: Extensions,
}

/// Extensions of a list.
#[derive(Clone, Default)]
struct Extensions {
    /// Magnitude of `cRLNumber`.
    number: Option<Span>,
    /// Magnitude of `deltaCRLIndicator`: number of the list to which this one is a difference.
    base: Option<Span>,
    /// Inside of `issuingDistributionPoint`.
    scope: Option<Span>,
    issuer_key: Option<Span>,
    /// A critical extension, of the list or of one of its entries, that is not known.
    unknown_critical: Option<Oid>,
}

/// Certificates that a list covers (`issuingDistributionPoint`).
#[derive(Default)]
pub(crate) struct Scope<'a> {
    pub(crate) point: Option<PointName<'a>>,
    pub(crate) only_users: bool,
    pub(crate) only_cas: bool,
    pub(crate) only_attributes: bool,
    /// Reasons that the list covers; `None` for all.
    pub(crate) reasons: Option<u16>,
    /// Entries may be of other issuers than the list's.
    pub(crate) indirect: bool,
}

impl<'a> Scope<'a> {
    fn read(inside: &'a [u8]) -> Read<Self> {
        let mut reader = Reader::new(inside);
        let point = reader.optional(explicit(0))?.map(PointName::read).transpose()?;
        let only_users = reader.flag(implicit(1))?;
        let only_cas = reader.flag(implicit(2))?;
        let reasons = reader.optional(implicit(3))?.map(named_bits).transpose()?;
        let indirect = reader.flag(implicit(4))?;
        let only_attributes = reader.flag(implicit(5))?;
        reader.end()?;
        Ok(Self { point, only_users, only_cas, only_attributes, reasons, indirect })
    }
}

/// One entry.
struct Entry<'a> {
    serial: &'a [u8],
    at: Time,
    reason: Reason,
    /// Names of the issuer of this entry and those behind it.
    issuer: Option<&'a [u8]>,
    unknown_critical: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    fn read(list: &mut Reader<'a>) -> Read<Self> {
        let mut reader = list.inside(SEQUENCE)?;
        let serial = reader.read(INTEGER).and_then(integer)?;
        let at = Time::read(&mut reader)?;
        let mut entry = Self { serial, at, reason: Reason::NONE, issuer: None, unknown_critical: None };
        if let Some(list) = reader.optional(SEQUENCE)? {
            let mut list = Reader::new(list);
            while !list.is_empty() {
                let extension = Extension::read(&mut list)?;
                match oid::certificate_extension(extension.name) {
                    Some(21) => {
                        let reason = only(extension.value, ENUMERATED).and_then(small)?;
                        entry.reason = Reason(u8::try_from(reason).map_err(|_| Malformed)?);
                    }
                    Some(29) => {
                        let names = only(extension.value, SEQUENCE)?;
                        GeneralName::check_list(names)?;
                        entry.issuer = Some(names);
                    }
                    // holdInstruction and invalidityDate say nothing that matters here.
                    Some(23 | 24) => {}
                    _ if extension.critical => entry.unknown_critical = Some(extension.name),
                    _ => {}
                }
            }
        }
        reader.end()?;
        Ok(entry)
    }
}

impl Crl {
    /// Reads a list in DER.
    ///
    /// # Errors
    /// The bytes are too long, or no list: the part that is malformed.
    pub fn from_der(der: &[u8]) -> Result<Self, CrlFault> {
        use CrlFault::Malformed as Bad;
        if der.len() > MAX_CRL {
            return Err(CrlFault::TooLong(der.len()));
        }
        let part = |name| move |_| Bad(name);
        let bytes: Arc<[u8]> = der.into();
        let der = &*bytes;
        let (signed, algorithm, signature) = envelope(der).map_err(part("outer structure"))?;
        let mut fields = Reader::new(signed).inside(SEQUENCE).map_err(part("outer structure"))?;
        let version = fields.optional(INTEGER).map_err(part("version"))?;
        if version.is_some_and(|version| version != [1]) {
            return Err(Bad("version"));
        }
        if fields.whole(SEQUENCE).ok() != Some(algorithm) {
            return Err(Bad("algorithm"));
        }
        let issuer = fields.whole(SEQUENCE).and_then(Name::check).map_err(part("issuer"))?;
        let this_update = Time::read(&mut fields).map_err(part("thisUpdate"))?;
        let next_update = match fields.peek() {
            Some(UTC_TIME | GENERALIZED_TIME) => Some(Time::read(&mut fields).map_err(part("nextUpdate"))?),
            _ => None,
        };
        let entries = fields.optional(SEQUENCE).map_err(part("list of entries"))?.unwrap_or_default();
        let mut extensions = Extensions::default();
        if let Some(list) = fields.optional(explicit(0)).map_err(part("list of extensions"))? {
            extensions = Extensions::read(der, list).map_err(Bad)?;
        }
        fields.end().map_err(part("end"))?;
        let mut list = Reader::new(entries);
        while !list.is_empty() {
            let entry = Entry::read(&mut list).map_err(part("list of entries"))?;
            // "If a CRL contains a critical CRL entry extension that the application cannot
            // process, then the application MUST NOT use that CRL to determine the status of any
            // certificates."
            if let Some(name) = entry.unknown_critical {
                extensions.unknown_critical.get_or_insert_with(|| Oid::from_value(name));
            }
        }
        let span = |part| Span::of(der, part);
        Ok(Self {
            signed: span(signed),
            algorithm: span(algorithm),
            issuer: span(issuer.der()),
            this_update,
            next_update,
            entries: if entries.is_empty() { Span::default() } else { span(entries) },
            signature: span(signature),
            extensions,
            der: Arc::clone(&bytes),
        })
    }

    /// The list in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Issuer.
    pub fn issuer(&self) -> Name<'_> {
        Name::checked(self.issuer.within(&self.der))
    }

    /// Time of issue.
    pub fn this_update(&self) -> Time {
        self.this_update
    }

    /// Time before which the next list is issued: this one is old then.
    pub fn next_update(&self) -> Option<Time> {
        self.next_update
    }

    /// True for a list of differences to another one.
    pub fn is_delta(&self) -> bool {
        self.extensions.base.is_some()
    }

    /// True when an entry of `self` may stand where one of `base` is missing: `self` is a list of
    /// differences, of the same issuer, scope and key, to `base` or an older list (section 5.2.4).
    pub(crate) fn is_delta_of(&self, base: &Self) -> bool {
        let number = |crl: &Self, span: Option<Span>| span.map(|span| span.within(&crl.der).to_vec());
        let numbers = (
            number(self, self.extensions.base),
            number(base, base.extensions.number),
            number(self, self.extensions.number),
        );
        let (Some(oldest), Some(ours), Some(newest)) = numbers else { return false };
        // Magnitudes without leading zeros: the longer one is greater.
        let at_most = |a: &[u8], b: &[u8]| (a.len(), a) <= (b.len(), b);
        let part = |crl: &Self, span: Option<Span>| span.map(|span| span.within(&crl.der).to_vec());
        at_most(&oldest, &ours)
            && at_most(&ours, &newest)
            && self.issuer() == base.issuer()
            && part(self, self.extensions.scope) == part(base, base.extensions.scope)
            && part(self, self.extensions.issuer_key) == part(base, base.extensions.issuer_key)
    }

    /// Certificates that the list covers.
    pub(crate) fn scope(&self) -> Scope<'_> {
        let inside = self.extensions.scope.map(|span| span.within(&self.der));
        inside.and_then(|inside| Scope::read(inside).ok()).unwrap_or_default()
    }

    /// A critical extension that is not known.
    pub(crate) fn unknown_critical(&self) -> Option<&Oid> {
        self.extensions.unknown_critical.as_ref()
    }

    /// `keyIdentifier` of `authorityKeyIdentifier`.
    pub(crate) fn issuer_key_id(&self) -> Option<&[u8]> {
        self.extensions.issuer_key.map(|span| span.within(&self.der))
    }

    /// The bytes that are signed.
    pub(crate) fn signed(&self) -> &[u8] {
        self.signed.within(&self.der)
    }

    /// The signature.
    pub(crate) fn signature(&self) -> &[u8] {
        self.signature.within(&self.der)
    }

    /// `AlgorithmIdentifier` of the signature.
    pub(crate) fn algorithm(&self) -> &[u8] {
        self.algorithm.within(&self.der)
    }

    /// The entry of a certificate: when it was revoked, and why. Of several the last one counts.
    pub(crate) fn find(&self, issuer: &Name<'_>, serial: &[u8]) -> Option<(Time, Reason)> {
        let mut list = Reader::new(self.entries.within(&self.der));
        let mut is_ours = self.issuer() == *issuer;
        let mut found = None;
        while let Ok(entry) = Entry::read(&mut list) {
            // "If this extension is not present on subsequent entries in an indirect CRL, the
            // certificate issuer for the entry is the same as that for the preceding entry."
            if let Some(names) = entry.issuer {
                is_ours = GeneralName::list(names).any(|name| name == GeneralName::Directory(*issuer));
            }
            if is_ours && entry.serial == serial {
                found = Some((entry.at, entry.reason));
            }
        }
        found
    }
}

impl PartialEq for Crl {
    fn eq(&self, other: &Self) -> bool {
        self.der() == other.der()
    }
}

impl Eq for Crl {}

impl std::fmt::Debug for Crl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crl({}, {})", self.issuer(), self.this_update)
    }
}

impl Extensions {
    fn read(whole: &[u8], list: &[u8]) -> Result<Self, &'static str> {
        let mut this = Self::default();
        let bad = |name| move |Malformed| name;
        let mut list = Reader::new(only(list, SEQUENCE).map_err(bad("list of extensions"))?);
        while !list.is_empty() {
            let extension = Extension::read(&mut list).map_err(bad("list of extensions"))?;
            let span = |part| Some(Span::of(whole, part));
            let value = extension.value;
            match oid::certificate_extension(extension.name) {
                Some(20) => {
                    let number = only(value, INTEGER).and_then(unsigned);
                    this.number = span(number.map_err(bad("cRLNumber"))?);
                }
                Some(27) => {
                    let number = only(value, INTEGER).and_then(unsigned);
                    this.base = span(number.map_err(bad("deltaCRLIndicator"))?);
                }
                Some(28) => {
                    let scope = only(value, SEQUENCE).and_then(|inside| Scope::read(inside).map(|_| inside));
                    this.scope = span(scope.map_err(bad("issuingDistributionPoint"))?);
                }
                Some(35) => {
                    let key = authority_key(value).map_err(bad("authorityKeyIdentifier"))?;
                    this.issuer_key = key.and_then(span);
                }
                // freshestCRL says where differences are.
                Some(46) => {}
                _ if extension.critical => {
                    this.unknown_critical.get_or_insert_with(|| Oid::from_value(extension.name));
                }
                _ => {}
            }
        }
        Ok(this)
    }
}
