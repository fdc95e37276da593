//! Payloads (RFC 7296 sections 3.2 to 3.16): one file each, and the chain that joins them.
//!
//! ```text
//! | next payload | C, RESERVED | payload length | body |
//! ```
//!
//! "Next payload" names the type of the payload behind this one; in SK and SKF it names the first
//! one inside. Not here: which payloads an exchange needs. Those that may come once only are
//! checked here, for every exchange.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `sa` | proposals and transforms |
//! | `ke` | public value of a key exchange |
//! | `nonce` | nonce |
//! | `id` | identities |
//! | `auth` | proof of an identity |
//! | `cert` | certificates and requests for them |
//! | `ts` | traffic selectors |
//! | `notify` | errors and status |
//! | `delete` | SAs that the sender has deleted |
//! | `config` | addresses and other settings for a peer |
//! | `eap` | EAP messages |
//! | `vendor` | vendor IDs |
//! | `sk` | the encrypted payload |
//! | `skf` | a fragment of the encrypted payload |

pub mod auth;
pub mod cert;
pub mod config;
pub mod delete;
pub mod eap;
pub mod id;
pub mod ke;
pub mod nonce;
pub mod notify;
pub mod sa;
pub mod sk;
pub mod skf;
pub mod ts;
pub mod vendor;

pub use auth::Auth;
pub use cert::{Cert, CertReq, X509_SIGNATURE};
pub use config::{Config, ConfigAttribute};
pub use delete::Delete;
pub use eap::Eap;
pub use id::Id;
pub use ke::Ke;
pub use nonce::Nonce;
pub use notify::Notify;
pub use sk::Sk;
pub use skf::Skf;
pub use vendor::VendorId;

use super::error::{Fault, ParseError};
use crate::iana::{NotifyType, PayloadType};
use crate::proposal::Proposal;
use crate::read::{EmitError, Reader, Writer};
use crate::selector::TrafficSelector;

/// More payloads than this in one chain are a syntax error: no exchange needs a third of it.
pub const MAX_PAYLOADS: usize = 100;

const CRITICAL: u8 = 0x80;
/// Length of the generic header of a payload in bytes (RFC 7296 section 3.2).
pub const GENERIC_LEN: usize = 4;

/// One payload, understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// SA: what is proposed, or chosen.
    Sa(Vec<Proposal>),
    /// KE: a public value.
    Ke(Ke),
    /// IDi.
    IdI(Id),
    /// IDr.
    IdR(Id),
    /// CERT.
    Cert(Cert),
    /// CERTREQ.
    CertReq(CertReq),
    /// AUTH.
    Auth(Auth),
    /// Ni, Nr.
    Nonce(Nonce),
    /// N.
    Notify(Notify),
    /// D.
    Delete(Delete),
    /// V.
    VendorId(VendorId),
    /// TSi.
    TsI(Vec<TrafficSelector>),
    /// TSr.
    TsR(Vec<TrafficSelector>),
    /// SK, still sealed.
    Sk(Sk),
    /// SKF, still sealed.
    Skf(Skf),
    /// CP.
    Config(Config),
    /// EAP.
    Eap(Eap),
    /// A type that is not known here and was not critical: to be ignored.
    Other {
        /// Type of the payload.
        kind: PayloadType,
        /// The critical bit to send; false in what was parsed.
        critical: bool,
        /// Body of the payload.
        body: Vec<u8>,
    },
}

impl Payload {
    /// Type of the payload.
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SA,
            Self::Ke(_) => PayloadType::KE,
            Self::IdI(_) => PayloadType::IDI,
            Self::IdR(_) => PayloadType::IDR,
            Self::Cert(_) => PayloadType::CERT,
            Self::CertReq(_) => PayloadType::CERTREQ,
            Self::Auth(_) => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::VendorId(_) => PayloadType::VENDOR_ID,
            Self::TsI(_) => PayloadType::TSI,
            Self::TsR(_) => PayloadType::TSR,
            Self::Sk(_) => PayloadType::SK,
            Self::Skf(_) => PayloadType::SKF,
            Self::Config(_) => PayloadType::CP,
            Self::Eap(_) => PayloadType::EAP,
            Self::Other { kind, .. } => *kind,
        }
    }

    fn parse(
        kind: PayloadType,
        critical: bool,
        next: PayloadType,
        mut r: Reader<'_>,
    ) -> Result<Self, PayloadFault> {
        let r = &mut r;
        let payload = match kind {
            PayloadType::SA => Self::Sa(sa::parse(r)?),
            PayloadType::KE => Self::Ke(Ke::parse(r)?),
            PayloadType::IDI => Self::IdI(Id::parse(r)?),
            PayloadType::IDR => Self::IdR(Id::parse(r)?),
            PayloadType::CERT => Self::Cert(Cert::parse(r)?),
            PayloadType::CERTREQ => Self::CertReq(CertReq::parse(r)?),
            PayloadType::AUTH => Self::Auth(Auth::parse(r)?),
            PayloadType::NONCE => Self::Nonce(Nonce::parse(r)?),
            PayloadType::NOTIFY => Self::Notify(Notify::parse(r)?),
            PayloadType::DELETE => Self::Delete(Delete::parse(r)?),
            PayloadType::VENDOR_ID => Self::VendorId(VendorId::parse(r)),
            PayloadType::TSI => Self::TsI(ts::parse(r)?),
            PayloadType::TSR => Self::TsR(ts::parse(r)?),
            PayloadType::SK => Self::Sk(Sk::parse(next, r)),
            PayloadType::SKF => Self::Skf(Skf::parse(next, r)?),
            PayloadType::CP => Self::Config(Config::parse(r)?),
            PayloadType::EAP => Self::Eap(Eap::parse(r)?),
            // The critical bit "MUST be set to one if the sender wants the recipient to reject this
            // entire message if it does not understand the payload type. MUST be ignored by the
            // recipient if the recipient understands the payload type code" (RFC 7296 section 3.2):
            // so it is looked at here only.
            _ if critical => return Err(PayloadFault::Critical),
            _ => Self::Other { kind, critical, body: r.rest().to_vec() },
        };
        if r.any_left() { Err(Fault::Trailing(r.left()).into()) } else { Ok(payload) }
    }

    fn emit_body(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        match self {
            Self::Sa(proposals) => return sa::emit(proposals, w),
            Self::TsI(selectors) | Self::TsR(selectors) => return ts::emit(selectors, w),
            Self::Notify(p) => return p.emit(w),
            Self::Delete(p) => return p.emit(w),
            Self::Config(p) => return p.emit(w),
            Self::Ke(p) => p.emit(w),
            Self::IdI(p) | Self::IdR(p) => p.emit(w),
            Self::Cert(p) => p.emit(w),
            Self::CertReq(p) => p.emit(w),
            Self::Auth(p) => p.emit(w),
            Self::Skf(p) => p.emit(w),
            Self::Nonce(p) => w.bytes(&p.0),
            Self::VendorId(p) => w.bytes(&p.0),
            Self::Eap(p) => w.bytes(&p.0),
            Self::Sk(p) => w.bytes(&p.body),
            Self::Other { body, .. } => w.bytes(body),
        }
        Ok(())
    }
}

/// The first notification of this type.
pub fn find_notify(payloads: &[Payload], kind: NotifyType) -> Option<&Notify> {
    notifies(payloads).find(|n| n.kind == kind)
}

/// All notifications, in order.
pub fn notifies(payloads: &[Payload]) -> impl Iterator<Item = &Notify> {
    payloads.iter().filter_map(|p| match p {
        Payload::Notify(n) => Some(n),
        _ => None,
    })
}

/// Fault in one payload, before the caller adds the place of the payload in the message.
enum PayloadFault {
    Fault(Fault),
    Critical,
}

impl<T: Into<Fault>> From<T> for PayloadFault {
    fn from(fault: T) -> Self {
        Self::Fault(fault.into())
    }
}

/// Place of a chain of payloads: in clear, or inside SK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// Behind the header: an SK or SKF payload may end it.
    Clear,
    /// Inside SK or SKF, where no other SK or SKF may stand.
    Sk,
}

/// Reads the chain of payloads that fills `bytes`, the first of type `first`. Offsets in errors
/// count from the beginning of `bytes`.
pub fn parse_chain(first: PayloadType, bytes: &[u8], within: Within) -> Result<Vec<Payload>, ParseError> {
    parse_from(first, Reader::new(bytes), within)
}

pub(super) fn parse_from(
    first: PayloadType,
    mut r: Reader<'_>,
    within: Within,
) -> Result<Vec<Payload>, ParseError> {
    let mut payloads = Vec::new();
    let mut seen_once = 0u64;
    let mut kind = first;
    while kind != PayloadType::NONE {
        let offset = r.offset();
        let syntax = |fault| ParseError::Syntax { payload: kind, offset, fault };
        if payloads.len() == MAX_PAYLOADS {
            return Err(syntax(Fault::Invalid("too many payloads")));
        }
        let mut generic = r.sub(4, "generic payload header").map_err(|e| syntax(e.into()))?;
        let [next, flags, high, low] =
            generic.array("generic payload header").map_err(|e| syntax(e.into()))?;
        let next = PayloadType(next);
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body = length
            .checked_sub(4)
            .ok_or(Fault::Invalid("payload length below 4"))
            .and_then(|n| Ok(r.sub(n, "payload body")?))
            .map_err(syntax)?;

        let sealed = matches!(kind, PayloadType::SK | PayloadType::SKF);
        if sealed && within == Within::Sk {
            return Err(syntax(Fault::Invalid("an encrypted payload inside an encrypted payload")));
        }
        if once_only(kind) {
            // Every type in the list is below 64.
            let bit = 1u64 << (kind.0 & 63);
            if seen_once & bit != 0 {
                return Err(syntax(Fault::Invalid("a second payload of this type")));
            }
            seen_once |= bit;
        }
        let payload =
            Payload::parse(kind, flags & CRITICAL != 0, next, body).map_err(|cause| match cause {
                PayloadFault::Fault(fault) => syntax(fault),
                PayloadFault::Critical => ParseError::UnsupportedCritical(kind),
            })?;
        payloads.push(payload);
        // "The Encrypted payload, if present in a message, MUST be the last payload in the message"
        // (RFC 7296 section 3.14): its next payload field speaks of what is inside.
        kind = if sealed { PayloadType::NONE } else { next };
    }
    if r.any_left() {
        let fault = Fault::Trailing(r.left());
        return Err(ParseError::Syntax { payload: PayloadType::NONE, offset: r.offset(), fault });
    }
    Ok(payloads)
}

/// The payloads of a chain as they stand, type and body, without understanding or keeping any. Ends
/// at the first that does not fit, and behind SK or SKF. For a look at a message that may not be
/// worth reading whole.
pub fn walk(first: PayloadType, bytes: &[u8]) -> impl Iterator<Item = (PayloadType, &[u8])> {
    let (mut kind, mut rest) = (first, bytes);
    let next = move || {
        if matches!(kind, PayloadType::NONE) {
            return None;
        }
        let [next, _, high, low] = *rest.first_chunk::<4>()?;
        let (payload, behind) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
        let found = (kind, payload.get(4..)?);
        rest = behind;
        kind = match kind {
            PayloadType::SK | PayloadType::SKF => PayloadType::NONE,
            _ => PayloadType(next),
        };
        Some(found)
    };
    std::iter::from_fn(next).take(MAX_PAYLOADS)
}

/// True when SK or SKF ends this chain of payloads, the first of type `first`.
pub fn ends_sealed(first: PayloadType, bytes: &[u8]) -> bool {
    walk(first, bytes).last().is_some_and(|(kind, _)| matches!(kind, PayloadType::SK | PayloadType::SKF))
}

/// No exchange has two of these, and code that takes the first must not differ from code that takes
/// the last.
fn once_only(kind: PayloadType) -> bool {
    matches!(
        kind,
        PayloadType::SA
            | PayloadType::KE
            | PayloadType::IDI
            | PayloadType::IDR
            | PayloadType::AUTH
            | PayloadType::NONCE
            | PayloadType::TSI
            | PayloadType::TSR
            | PayloadType::CP
            | PayloadType::EAP
    )
}

/// The chain in bytes, and the type of its first payload ([`PayloadType::NONE`] when there is
/// none).
pub fn emit_chain(payloads: &[Payload]) -> Result<(PayloadType, Vec<u8>), EmitError> {
    let mut out = Vec::new();
    append(payloads, PayloadType::NONE, &mut Writer::new(&mut out))?;
    Ok((first_type(payloads, PayloadType::NONE), out))
}

/// The type of the first payload when something of type `after` comes behind them.
pub(super) fn first_type(payloads: &[Payload], after: PayloadType) -> PayloadType {
    payloads.first().map_or(after, Payload::kind)
}

/// Appends the chain; `after` is the type of what the caller will append behind it.
pub(super) fn append(payloads: &[Payload], after: PayloadType, w: &mut Writer<'_>) -> Result<(), EmitError> {
    for (i, payload) in payloads.iter().enumerate() {
        let start = w.len();
        let next = match payload {
            Payload::Sk(sk) => sk.inner,
            Payload::Skf(skf) => skf.inner,
            _ => first_type(&payloads[i + 1..], after),
        };
        w.u8(next.0);
        w.u8(if matches!(payload, Payload::Other { critical: true, .. }) { CRITICAL } else { 0 });
        let length = w.reserve16();
        payload.emit_body(w)?;
        w.patch16(length, start, "payload")?;
    }
    Ok(())
}
