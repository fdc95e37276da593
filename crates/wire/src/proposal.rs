//! Proposals and transforms (RFC 7296 section 3.3), and the suites that a negotiation ends in.

use crate::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId, TransformType};

/// One transform. A number that this code does not know keeps its type and id, so that it can be
/// shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transform {
    /// Encryption, with its key length in bits where the algorithm takes one.
    Encr(EncrId, Option<u16>),
    /// Pseudo-random function.
    Prf(PrfId),
    /// Integrity.
    Integ(IntegId),
    /// Key exchange.
    Ke(KeId),
    /// Sequence number size.
    Esn(EsnId),
    /// Additional key exchange 1 to 7 (RFC 9370).
    AddKe(u8, KeId),
    /// A transform type, or an attribute, that is not known: makes its proposal unacceptable (RFC
    /// 7296 section 3.3.6).
    Unknown {
        /// Transform type.
        kind: u8,
        /// Transform id.
        id: u16,
    },
}

impl Transform {
    /// The transform's type.
    pub fn kind(&self) -> TransformType {
        match self {
            Self::Encr(..) => TransformType::ENCR,
            Self::Prf(_) => TransformType::PRF,
            Self::Integ(_) => TransformType::INTEG,
            Self::Ke(_) => TransformType::KE,
            Self::Esn(_) => TransformType::ESN,
            Self::AddKe(n, _) => TransformType(TransformType::ADDKE1.0.wrapping_add(n.wrapping_sub(1))),
            Self::Unknown { kind, .. } => TransformType(*kind),
        }
    }
}

impl std::fmt::Display for Transform {
    /// As strongSwan prints it: `AES_CBC_128`, `AES_GCM_16_256`, `PRF_HMAC_SHA2_256`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Encr(id, Some(bits)) => write!(f, "{id}_{bits}"),
            Self::Encr(id, None) => write!(f, "{id}"),
            Self::Prf(id) => write!(f, "{id}"),
            Self::Integ(id) => write!(f, "{id}"),
            Self::Ke(id) => write!(f, "{id}"),
            Self::Esn(id) => write!(f, "{id}"),
            Self::AddKe(n, id) => write!(f, "KE{n}_{id}"),
            Self::Unknown { kind, id } => write!(f, "({kind}:{id})"),
        }
    }
}

/// One proposal: every transform of one type is an alternative to the others of that type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Proposal {
    /// Position, from 1.
    pub number: u8,
    /// IKE, AH or ESP.
    pub protocol: ProtocolId,
    /// Sender's SPI: empty in IKE_SA_INIT, 8 bytes when rekeying an IKE_SA, 4 bytes for AH and ESP.
    pub spi: Vec<u8>,
    /// In order of preference within each type.
    pub transforms: Vec<Transform>,
}

impl Proposal {
    /// The transforms of one type, in order of preference.
    pub fn of_type(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |t| t.kind() == kind)
    }
}

impl std::fmt::Display for Proposal {
    /// As charon logs it: `ESP:AES_GCM_16_128/NO_EXT_SEQ`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.protocol)?;
        for (i, t) in self.transforms.iter().enumerate() {
            if i > 0 {
                f.write_str("/")?;
            }
            write!(f, "{t}")?;
        }
        Ok(())
    }
}

/// Additional key exchange methods that both sides have agreed on, by their number from 1 to 7 (RFC
/// 9370 section 2.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Additional([KeId; 7]);

impl Additional {
    /// None at all.
    pub const NONE: Self = Self([KeId::NONE; 7]);

    /// The methods among these transforms, of which each number has one at most.
    pub fn of(transforms: &[Transform]) -> Self {
        let mut out = Self::NONE;
        for t in transforms {
            if let Transform::AddKe(n, id) = *t
                && let Some(slot) = out.0.get_mut(usize::from(n).wrapping_sub(1))
            {
                *slot = id;
            }
        }
        out
    }

    /// Number and method of each exchange that takes place, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, KeId)> {
        (1..).zip(self.0).filter(|(_, id)| *id != KeId::NONE)
    }

    /// The method of the exchange that follows after `done` of them.
    pub fn after(&self, done: usize) -> Option<KeId> {
        self.iter().nth(done).map(|(_, id)| id)
    }

    /// True without any.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// The algorithms that an IKE_SA has agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IkeSuite {
    /// Encryption.
    pub encr: EncrId,
    /// Encryption key length in bits (256 for ChaCha20-Poly1305, which negotiates none).
    pub key_bits: u16,
    /// Integrity; `None` with an AEAD.
    pub integ: Option<IntegId>,
    /// Pseudo-random function.
    pub prf: PrfId,
    /// Key exchange.
    pub ke: KeId,
    /// Additional key exchanges.
    pub additional: Additional,
}

impl std::fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = self.encr.has_key_length().then_some(self.key_bits);
        write!(f, "IKE:{}", Transform::Encr(self.encr, bits))?;
        if let Some(integ) = self.integ {
            write!(f, "/{integ}")?;
        }
        write!(f, "/{}/{}", self.prf, self.ke)?;
        self.additional.iter().try_for_each(|(n, id)| write!(f, "/{}", Transform::AddKe(n, id)))
    }
}

/// The algorithms that a pair of ESP SAs has agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EspSuite {
    /// Encryption.
    pub encr: EncrId,
    /// Encryption key length in bits, without salt (256 for ChaCha20-Poly1305, 0 for NULL).
    pub key_bits: u16,
    /// Integrity; `None` with an AEAD.
    pub integ: Option<IntegId>,
    /// Key exchange of the CREATE_CHILD_SA that made it; `None` without PFS and for the first
    /// child.
    pub ke: Option<KeId>,
    /// Extended (64-bit) sequence numbers.
    pub esn: bool,
}

impl std::fmt::Display for EspSuite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = self.encr.has_key_length().then_some(self.key_bits);
        write!(f, "ESP:{}", Transform::Encr(self.encr, bits))?;
        if let Some(integ) = self.integ {
            write!(f, "/{integ}")?;
        }
        if let Some(ke) = self.ke {
            write!(f, "/{ke}")?;
        }
        write!(f, "/{}", if self.esn { EsnId::ESN } else { EsnId::NO_ESN })
    }
}
