//! Proving who one is (RFC 7296 section 2.15). One file per method.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `psk` | AUTH with a pre-shared key |

pub(crate) mod psk;

use ironswan_wire::secret::Secret;

/// What AUTH of one side covers.
pub(crate) struct SignedOctets<'a> {
    /// "RealMessage": that side's IKE_SA_INIT message as sent, without the non-ESP marker.
    pub message: &'a [u8],
    /// The other side's nonce, its data only.
    pub nonce: &'a [u8],
    /// SK_p of that side.
    pub sk_p: &'a Secret,
    /// "RestOfIDPayload": that side's ID payload without the generic header, RESERVED as it came.
    pub id_body: &'a [u8],
}
