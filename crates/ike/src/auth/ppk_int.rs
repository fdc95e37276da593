//! Post-quantum preshared keys in IKE_INTERMEDIATE (RFC 9867 section 3.1), so that they protect the
//! first IKE_SA as well.
//!
//! ```text
//! HDR, SAi1, KEi, Ni, N(INTERMEDIATE_EXCHANGE_SUPPORTED), N(USE_PPK), N(USE_PPK_INT)  -->
//!     <--  HDR, SAr1, KEr, Nr, N(INTERMEDIATE_EXCHANGE_SUPPORTED), N(USE_PPK_INT)
//! HDR, SK {[KEi(n)], N(PPK_IDENTITY_KEY, PPK_ID | PPK Confirmation)}  -->
//!     <--  HDR, SK {[KEr(n)], N(PPK_IDENTITY, PPK_ID)}
//! PPK Confirmation = the first 8 bytes of prf(PPK, Ni | Nr | SPIi | SPIr)
//! ```
//! The PPK goes with the last additional key exchange, or in an exchange of its own when there is
//! none. A responder that has the same PPK names it in the response; its keys then follow from the
//! PPK and from SK_d after that key exchange (`keymat`). Without PPK_IDENTITY both go on without.
//!
//! PPKs in CREATE_CHILD_SA (section 3.2) are not here: a PPK is mixed in once.

use ironswan_crypto::prf::Prf;
use ironswan_keying::diagnosis::{Authentication, Configuration, PpkLack};
use ironswan_keying::{Connection, Diagnosis, Policy, ppk_id};
use ironswan_wire::iana::NotifyType;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify, notifies};
use ironswan_wire::secret::{Secret, ct_eq};

use super::ppk::{Unused, fixed_id, id_of};

/// Length of a PPK Confirmation in bytes.
const CONFIRMATION_LEN: usize = 8;
/// Limits how many PPKs of one request are compared with ours: each costs a PRF, and nobody has
/// proved who the peer is.
const MAX_OFFERED: usize = 8;

/// A PPK to be mixed into the keys, and its identifier.
pub(crate) struct Mixing {
    pub id: Identity,
    pub secret: Secret,
}

/// The values that a PPK Confirmation covers.
pub(crate) struct Covered<'a> {
    pub prf: &'static dyn Prf,
    pub ni: &'a [u8],
    pub nr: &'a [u8],
    /// SPIs of initiator and responder.
    pub spis: (u64, u64),
}

impl Covered<'_> {
    fn confirmation(&self, ppk: &Secret) -> Vec<u8> {
        let spis = [self.spis.0.to_be_bytes(), self.spis.1.to_be_bytes()].concat();
        let mac = self.prf.mac(ppk.expose(), &[self.ni, self.nr, &spis]);
        mac.expose().iter().take(CONFIRMATION_LEN).copied().collect()
    }
}

// ---- initiator ----

/// N(PPK_IDENTITY_KEY) of our request. `None`: the PPK has been unloaded meanwhile, and we can go
/// without.
pub(crate) fn offer(
    policy: &dyn Policy,
    conn: &Connection,
    covered: &Covered<'_>,
) -> Result<Option<Payload>, Diagnosis> {
    let Some(id) = &conn.ppk_id else { return Ok(None) };
    match policy.ppk(&id.data) {
        Some(ppk) => {
            let data = [fixed_id(id), covered.confirmation(&ppk.secret)].concat();
            Ok(Some(Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY_KEY, data))))
        }
        None if conn.ppk_required => Err(Configuration::NoPpk { id: id.clone() }.into()),
        None => Ok(None),
    }
}

/// The PPK that the response names. `None`: it names none, and we can go without.
pub(crate) fn answered(
    policy: &dyn Policy,
    conn: &Connection,
    payloads: &[Payload],
) -> Result<Option<Mixing>, Diagnosis> {
    let Some(identity) = find_notify(payloads, NotifyType::PPK_IDENTITY) else {
        if conn.ppk_required {
            return Err(Authentication::PeerLacksPpk { lack: PpkLack::NotConfirmed }.into());
        }
        return Ok(None);
    };
    let named = id_of(&identity.data);
    match conn.ppk_id.as_ref().filter(|ours| named == Some(&ours.data)) {
        Some(ours) => match policy.ppk(&ours.data) {
            Some(ppk) => Ok(Some(Mixing { id: ours.clone(), secret: ppk.secret })),
            None => Err(Configuration::NoPpk { id: ours.clone() }.into()),
        },
        None => {
            let theirs = ppk_id(named.unwrap_or(&identity.data));
            Err(Authentication::PpkDemanded { theirs, ours: conn.ppk_id.clone().map(Box::new) }.into())
        }
    }
}

// ---- responder ----

/// The first PPK of the request that we have as well. Which connection the peer belongs to is not
/// known yet, so `ppk_id` and `ppk_required` count in IKE_AUTH only. The error: the PPK of the
/// request that comes closest, when it names any.
pub(crate) fn select(
    policy: &dyn Policy,
    covered: &Covered<'_>,
    payloads: &[Payload],
) -> Result<Mixing, Option<Unused>> {
    let mut unused = None;
    let offered = notifies(payloads).filter(|n| n.kind == NotifyType::PPK_IDENTITY_KEY).take(MAX_OFFERED);
    for (id, confirmation) in offered.filter_map(|n| split(&n.data)) {
        match policy.ppk(id) {
            Some(ppk) if ct_eq(&covered.confirmation(&ppk.secret), confirmation) => {
                return Ok(Mixing { id: ppk_id(id), secret: ppk.secret });
            }
            Some(_) => unused = Some(Unused::Differs(ppk_id(id))),
            None if unused.is_none() => unused = Some(Unused::Absent(ppk_id(id))),
            None => {}
        }
    }
    Err(unused)
}

/// Identifier and PPK Confirmation of the data of N(PPK_IDENTITY_KEY).
fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (id, confirmation) = data.split_at_checked(data.len().checked_sub(CONFIRMATION_LEN)?)?;
    Some((id_of(id)?, confirmation))
}

/// N(PPK_IDENTITY) of our response.
pub(crate) fn selected(ppk: &Mixing) -> Payload {
    Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY, fixed_id(&ppk.id)))
}
