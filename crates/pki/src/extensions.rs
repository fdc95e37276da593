//! Extensions of a certificate that take part in validation (RFC 5280 section 4.2).
//!
//! All are read and checked once, with the certificate. Lists stay as bytes in the certificate, and
//! are read again where they are used: [`Span`] says where. Not here: their meaning
//! (`path`, `constraints`, `policies`, `revocation`).

use crate::der::{
    BIT_STRING, BOOLEAN, INTEGER, Malformed, OCTET_STRING, OID, Read, Reader, SEQUENCE, explicit, implicit,
    named_bits, only, small,
};
use crate::general_name::GeneralName;
use crate::oid::{self, Oid};

/// Most extensions of one certificate.
const MAX_EXTENSIONS: usize = 64;
/// Most policies of one certificate, and most mappings: each is compared with each.
const MAX_POLICIES: usize = 64;

/// Bit of `keyUsage`: verifies signatures of IKE.
pub(crate) const DIGITAL_SIGNATURE: u16 = 0x8000;
/// Bit of `keyUsage`, also called contentCommitment.
pub(crate) const NON_REPUDIATION: u16 = 0x4000;
/// Bit of `keyUsage`: verifies certificates.
pub(crate) const KEY_CERT_SIGN: u16 = 0x0400;
/// Bit of `keyUsage`: verifies CRLs.
pub(crate) const CRL_SIGN: u16 = 0x0200;

/// A part of the bytes of a certificate, CRL or response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Place of `part` in `whole`, of which it is a part.
    pub(crate) fn of(whole: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        Self { start: start as u32, end: (start + part.len()) as u32 }
    }

    /// The bytes.
    pub(crate) fn within(self, whole: &[u8]) -> &[u8] {
        whole.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// `basicConstraints`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BasicConstraints {
    pub(crate) ca: bool,
    pub(crate) path_length: Option<u32>,
}

/// Extensions of one certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extensions {
    pub(crate) key_usage: Option<u16>,
    pub(crate) basic: Option<BasicConstraints>,
    /// OBJECT IDENTIFIERs of `extKeyUsage`.
    pub(crate) purposes: Option<Span>,
    /// Names of `subjectAltName`.
    pub(crate) alt_names: Option<Span>,
    /// Inside of `nameConstraints`.
    pub(crate) name_constraints: Option<Span>,
    /// Inside of `certificatePolicies`.
    pub(crate) policies: Option<Span>,
    /// Inside of `policyMappings`.
    pub(crate) mappings: Option<Span>,
    /// `requireExplicitPolicy` of `policyConstraints`.
    pub(crate) require_policy: Option<u32>,
    /// `inhibitPolicyMapping` of `policyConstraints`.
    pub(crate) inhibit_mapping: Option<u32>,
    pub(crate) inhibit_any: Option<u32>,
    pub(crate) subject_key: Option<Span>,
    /// `keyIdentifier` of `authorityKeyIdentifier`.
    pub(crate) issuer_key: Option<Span>,
    /// Inside of `cRLDistributionPoints`.
    pub(crate) crl_points: Option<Span>,
    /// Inside of `authorityInfoAccess`.
    pub(crate) authority_info: Option<Span>,
    /// The certificate has `id-pkix-ocsp-nocheck`: its status need not be asked.
    pub(crate) no_check: bool,
    /// A critical extension that is not in this list.
    pub(crate) unknown_critical: Option<Oid>,
}

/// Fault of the extensions: the extension that is malformed or stands there twice.
pub(crate) type Fault = &'static str;

impl Extensions {
    /// Reads the inside of `Extensions`. `whole` are the bytes of the certificate.
    pub(crate) fn read(whole: &[u8], mut list: Reader<'_>) -> Result<Self, Fault> {
        let mut this = Self::default();
        let mut seen: Vec<&[u8]> = Vec::new();
        if list.is_empty() {
            return Err("list of extensions");
        }
        while !list.is_empty() {
            let extension = Extension::read(&mut list).map_err(|Malformed| "list of extensions")?;
            // "A certificate MUST NOT include more than one instance of a particular extension."
            if seen.contains(&extension.name) {
                return Err("list of extensions: one stands there twice");
            }
            if seen.len() == MAX_EXTENSIONS {
                return Err("list of extensions: more than 64");
            }
            seen.push(extension.name);
            this.add(whole, &extension)?;
        }
        Ok(this)
    }

    /// Takes one extension.
    fn add(&mut self, whole: &[u8], extension: &Extension<'_>) -> Result<(), Fault> {
        let value = extension.value;
        let span = |part| Some(Span::of(whole, part));
        let fault = |name| move |Malformed| name;
        match (oid::certificate_extension(extension.name), extension.name) {
            (Some(14), _) => {
                let key = only(value, OCTET_STRING).map_err(fault("subjectKeyIdentifier"))?;
                self.subject_key = span(key);
            }
            (Some(15), _) => {
                let bits = only(value, BIT_STRING).and_then(named_bits);
                self.key_usage = Some(bits.map_err(fault("keyUsage"))?);
            }
            (Some(17), _) => {
                let names = only(value, SEQUENCE).and_then(|names| {
                    GeneralName::check_list(names)?;
                    Ok(names)
                });
                self.alt_names = span(names.map_err(fault("subjectAltName"))?);
            }
            (Some(19), _) => self.basic = Some(basic(value).map_err(fault("basicConstraints"))?),
            (Some(30), _) => {
                self.name_constraints = span(name_constraints(value).map_err(fault("nameConstraints"))?);
            }
            (Some(31), _) => {
                self.crl_points = span(crl_points(value).map_err(fault("cRLDistributionPoints"))?);
            }
            (Some(32), _) => {
                self.policies = span(policies(value).map_err(fault("certificatePolicies"))?);
            }
            (Some(33), _) => self.mappings = span(mappings(value).map_err(fault("policyMappings"))?),
            (Some(35), _) => {
                let key = authority_key(value).map_err(fault("authorityKeyIdentifier"))?;
                self.issuer_key = key.and_then(span);
            }
            (Some(36), _) => {
                (self.require_policy, self.inhibit_mapping) =
                    policy_constraints(value).map_err(fault("policyConstraints"))?;
            }
            (Some(37), _) => self.purposes = span(purposes(value).map_err(fault("extKeyUsage"))?),
            (Some(54), _) => {
                let skip = only(value, INTEGER).and_then(small);
                self.inhibit_any = Some(skip.map_err(fault("inhibitAnyPolicy"))?);
            }
            (_, oid::AUTHORITY_INFO) => {
                let inside = only(value, SEQUENCE).and_then(|inside| {
                    access(inside).try_for_each(|entry| entry.map(drop))?;
                    Ok(inside)
                });
                self.authority_info = span(inside.map_err(fault("authorityInfoAccess"))?);
            }
            (_, oid::OCSP_NO_CHECK) => self.no_check = true,
            // "A certificate-using system MUST reject the certificate if it encounters a critical
            // extension it does not recognize".
            (_, name) if extension.critical => {
                self.unknown_critical.get_or_insert_with(|| Oid::from_value(name));
            }
            _ => {}
        }
        Ok(())
    }
}

/// One extension, of a certificate, a CRL, an entry of a CRL, or a response.
pub(crate) struct Extension<'a> {
    /// Object identifier.
    pub(crate) name: &'a [u8],
    pub(crate) critical: bool,
    /// Inside of the OCTET STRING.
    pub(crate) value: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Reads the next extension.
    pub(crate) fn read(list: &mut Reader<'a>) -> Read<Self> {
        let mut reader = list.inside(SEQUENCE)?;
        let name = reader.read(OID)?;
        let critical = reader.flag(BOOLEAN)?;
        let value = reader.read(OCTET_STRING)?;
        reader.end()?;
        Ok(Self { name, critical, value })
    }
}

fn basic(value: &[u8]) -> Read<BasicConstraints> {
    let mut reader = Reader::new(only(value, SEQUENCE)?);
    let ca = reader.flag(BOOLEAN)?;
    let path_length = reader.optional(INTEGER)?.map(small).transpose()?;
    reader.end()?;
    Ok(BasicConstraints { ca, path_length })
}

fn purposes(value: &[u8]) -> Read<&[u8]> {
    let inside = only(value, SEQUENCE)?;
    let mut reader = Reader::new(inside);
    while !reader.is_empty() {
        reader.read(OID)?;
    }
    Ok(inside)
}

fn policies(value: &[u8]) -> Read<&[u8]> {
    let inside = only(value, SEQUENCE)?;
    let mut names: Vec<&[u8]> = Vec::new();
    let mut reader = Reader::new(inside);
    while !reader.is_empty() {
        let name = reader.inside(SEQUENCE)?.read(OID)?;
        // "A certificate policy OID MUST NOT appear more than once".
        if names.len() == MAX_POLICIES || names.contains(&name) {
            return Err(Malformed);
        }
        names.push(name);
    }
    Ok(inside)
}

fn mappings(value: &[u8]) -> Read<&[u8]> {
    let inside = only(value, SEQUENCE)?;
    let mut reader = Reader::new(inside);
    let mut count = 0;
    while !reader.is_empty() {
        mapping(&mut reader)?;
        count += 1;
    }
    if count > MAX_POLICIES { Err(Malformed) } else { Ok(inside) }
}

/// Reads one policy mapping: the issuer's policy, and the subject's that is equal to it.
pub(crate) fn mapping<'a>(list: &mut Reader<'a>) -> Read<(&'a [u8], &'a [u8])> {
    let mut reader = list.inside(SEQUENCE)?;
    let pair = (reader.read(OID)?, reader.read(OID)?);
    reader.end()?;
    Ok(pair)
}

fn policy_constraints(value: &[u8]) -> Read<(Option<u32>, Option<u32>)> {
    let mut reader = Reader::new(only(value, SEQUENCE)?);
    let require = reader.optional(implicit(0))?.map(small).transpose()?;
    let inhibit = reader.optional(implicit(1))?.map(small).transpose()?;
    reader.end()?;
    Ok((require, inhibit))
}

/// `keyIdentifier` of `authorityKeyIdentifier`.
pub(crate) fn authority_key(value: &[u8]) -> Read<Option<&[u8]>> {
    let mut reader = Reader::new(only(value, SEQUENCE)?);
    let key = reader.optional(implicit(0))?;
    reader.optional(explicit(1))?;
    reader.optional(implicit(2))?;
    reader.end()?;
    Ok(key)
}

fn name_constraints(value: &[u8]) -> Read<&[u8]> {
    let inside = only(value, SEQUENCE)?;
    let mut reader = Reader::new(inside);
    for list in [reader.optional(explicit(0))?, reader.optional(explicit(1))?].into_iter().flatten() {
        let mut list = Reader::new(list);
        while !list.is_empty() {
            subtree(&mut list)?;
        }
    }
    reader.end()?;
    Ok(inside)
}

/// Reads one `GeneralSubtree`. "Within this profile, the minimum and maximum fields are not used":
/// a subtree that has them is malformed.
pub(crate) fn subtree<'a>(list: &mut Reader<'a>) -> Read<GeneralName<'a>> {
    let mut reader = list.inside(SEQUENCE)?;
    let name = GeneralName::read(&mut reader)?;
    if let Some(minimum) = reader.optional(implicit(0))?
        && minimum != [0]
    {
        return Err(Malformed);
    }
    reader.end()?;
    Ok(name)
}

/// One `DistributionPoint`, or the first field of `issuingDistributionPoint`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CrlPoint<'a> {
    /// Where the CRL is.
    pub(crate) name: Option<PointName<'a>>,
    /// Reasons that this CRL covers: bits as in `ReasonFlags`. `None` for all.
    pub(crate) reasons: Option<u16>,
    /// Names of the CRL's issuer, when it is not the issuer of the certificate.
    pub(crate) issuer: Option<&'a [u8]>,
}

/// `DistributionPointName`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PointName<'a> {
    /// A list of general names.
    Full(&'a [u8]),
    /// One RDN, below the name of the CRL's issuer: the inside of the SET.
    Relative(&'a [u8]),
}

impl<'a> CrlPoint<'a> {
    /// Reads the next point of a list.
    pub(crate) fn read(list: &mut Reader<'a>) -> Read<Self> {
        let mut reader = list.inside(SEQUENCE)?;
        let name = reader.optional(explicit(0))?.map(PointName::read).transpose()?;
        let reasons = reader.optional(implicit(1))?.map(named_bits).transpose()?;
        let issuer = reader.optional(explicit(2))?;
        reader.end()?;
        issuer.map(GeneralName::check_list).transpose()?;
        Ok(Self { name, reasons, issuer })
    }
}

impl<'a> PointName<'a> {
    /// Reads the inside of the explicit tag.
    pub(crate) fn read(value: &'a [u8]) -> Read<Self> {
        let mut reader = Reader::new(value);
        let element = reader.element()?;
        reader.end()?;
        match element.tag {
            0xa0 => {
                GeneralName::check_list(element.value)?;
                Ok(Self::Full(element.value))
            }
            0xa1 => Ok(Self::Relative(element.value)),
            _ => Err(Malformed),
        }
    }
}

fn crl_points(value: &[u8]) -> Read<&[u8]> {
    let inside = only(value, SEQUENCE)?;
    let mut reader = Reader::new(inside);
    while !reader.is_empty() {
        CrlPoint::read(&mut reader)?;
    }
    Ok(inside)
}

/// Entries of `authorityInfoAccess`: method and location.
pub(crate) fn access(inside: &[u8]) -> impl Iterator<Item = Read<(&[u8], GeneralName<'_>)>> {
    let mut reader = Reader::new(inside);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let mut next = || {
            let mut entry = reader.inside(SEQUENCE)?;
            let pair = (entry.read(OID)?, GeneralName::read(&mut entry)?);
            entry.end()?;
            Ok(pair)
        };
        let entry = next();
        if entry.is_err() {
            reader = Reader::new(&[]);
        }
        Some(entry)
    })
}
