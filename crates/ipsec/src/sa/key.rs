//! The key of an SA, and the lengths that follow from its algorithms.

use ironswan_crypto::batch::EspKey;
use ironswan_crypto::icv::IcvKey;
use ironswan_wire::iana::ProtocolId;

/// The key of an SA, for the protocol that it speaks.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
pub(crate) enum SaKey {
    Esp(EspKey),
    Ah(IcvKey),
}

impl SaKey {
    /// The protocol that the SA speaks.
    pub(crate) fn protocol(&self) -> ProtocolId {
        match self {
            Self::Esp(_) => ProtocolId::ESP,
            Self::Ah(_) => ProtocolId::AH,
        }
    }

    /// The key of an ESP SA; `None` for AH.
    #[inline]
    pub(crate) fn esp(&self) -> Option<&EspKey> {
        match self {
            Self::Esp(key) => Some(key),
            Self::Ah(_) => None,
        }
    }

    /// The key of an AH SA; `None` for ESP.
    pub(crate) fn ah(&self) -> Option<&IcvKey> {
        match self {
            Self::Ah(key) => Some(key),
            Self::Esp(_) => None,
        }
    }

    pub(super) fn lengths(&self) -> EspLengths {
        self.esp().map_or(EspLengths { iv: 0, icv: 0, block: 1 }, |k| EspLengths {
            iv: k.iv_len() as u8,
            icv: k.icv_len() as u8,
            block: k.block_len() as u8,
        })
    }
}

/// Lengths in bytes of an ESP SA's IV and ICV, and of what text is padded to: the longest is the
/// ICV of HMAC-SHA2-512, 32.
#[derive(Clone, Copy)]
pub(super) struct EspLengths {
    pub(super) iv: u8,
    pub(super) icv: u8,
    pub(super) block: u8,
}
