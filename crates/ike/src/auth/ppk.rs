//! Post-quantum preshared keys (PPK, RFC 8784): what both sides agree on in IKE_SA_INIT and
//! IKE_AUTH, and the keys of the IKE_SA from then on.
//!
//! ```text
//! HDR, SAi1, KEi, Ni, N(USE_PPK)  -->
//!                      <--  HDR, SAr1, KEr, Nr, N(USE_PPK)
//! HDR, SK {IDi, AUTH, .., N(PPK_IDENTITY, PPK_ID), [N(NO_PPK_AUTH)]}  -->
//!                      <--  HDR, SK {IDr, AUTH, .., N(PPK_IDENTITY)}
//! ```
//! The initiator sends NO_PPK_AUTH, an AUTH as if there were no PPK, when it can go without one. A
//! responder that knows the PPK answers with PPK_IDENTITY; the other one leaves it out, and both go
//! on without a PPK. The keys themselves are in `keymat`.

use ironswan_keying::diagnosis::{Authentication, Configuration, PpkLack};
use ironswan_keying::{Connection, Diagnosis, Policy, ppk_id};
use ironswan_wire::iana::NotifyType;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Notify, find_notify};
use ironswan_wire::secret::Secret;

use crate::keymat::{IkeKeys, Mixed};

/// PPK_ID of a format that both sides understand (RFC 8784 section 5.1). Its bytes name the PPK as
/// those of PPK_ID_FIXED do.
const PPK_ID_OPAQUE: u8 = 1;
/// PPK_ID with the configured bytes.
const PPK_ID_FIXED: u8 = 2;

/// Exchange in which both sides agree on a PPK.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Way {
    /// The two sides have not both announced PPKs.
    #[default]
    None,
    /// IKE_AUTH: both IKE_SA_INIT messages have USE_PPK.
    Auth,
    /// IKE_INTERMEDIATE: both have USE_PPK_INT (`ppk_int`).
    Intermediate,
}

/// PPK of an IKE_SA while it is set up.
#[derive(Default)]
pub(crate) struct Agreement {
    /// Initiator: our request has USE_PPK.
    pub offered: bool,
    /// The exchange for it.
    pub way: Way,
    /// Identifier of the PPK that is in the keys since IKE_INTERMEDIATE.
    pub mixed: Option<Identity>,
    /// The PPK that AUTH of both sides takes into account, beside the keys.
    pub used: Option<Used>,
    /// A PPK that is not used.
    pub unused: Option<Unused>,
}

impl Agreement {
    /// Identifier of the PPK that AUTH of both sides takes into account.
    pub(crate) fn in_use(&self) -> Option<&Identity> {
        self.mixed.as_ref().or(self.used.as_ref().map(Used::id))
    }
}

/// A PPK that one side has named and that the two sides do not have in common, by its identifier.
pub(crate) enum Unused {
    /// One side does not have it.
    Absent(Identity),
    /// Responder: we have another secret for it, as the PPK Confirmation of the peer shows.
    Differs(Identity),
    /// Initiator: the responder has not named it in IKE_INTERMEDIATE.
    Unconfirmed(Identity),
}

impl std::fmt::Display for Unused {
    /// A line for the log, when both sides go on without.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent(id) => {
                write!(f, "going on without PPK '{id}', which one side does not have and neither requires")
            }
            Self::Differs(id) => {
                write!(
                    f,
                    "going on without PPK '{id}': the peer has another secret for it, and neither side requires it"
                )
            }
            Self::Unconfirmed(id) => write!(
                f,
                "going on without PPK '{id}': the peer does not have it or has another secret for it, and neither side requires it"
            ),
        }
    }
}

/// A PPK in use, and the keys that follow from it.
pub(crate) struct Used {
    id: Identity,
    mixed: Mixed,
}

impl Used {
    fn new(keys: &IkeKeys, id: Identity, ppk: &Secret) -> Self {
        Self { id, mixed: keys.mix(ppk) }
    }

    /// Identifier of the PPK.
    pub(crate) fn id(&self) -> &Identity {
        &self.id
    }

    /// SK_p of our direction.
    pub(crate) fn p_ours(&self) -> &Secret {
        &self.mixed.p_ours
    }

    /// SK_p of the peer's direction.
    pub(crate) fn p_theirs(&self) -> &Secret {
        &self.mixed.p_theirs
    }

    /// Its identifier, and the keys for the IKE_SA that is established.
    pub(crate) fn into_parts(self) -> (Identity, Mixed) {
        (self.id, self.mixed)
    }
}

// ---- IKE_SA_INIT ----

fn empty(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, []))
}

/// Announcements of an initiator that has a PPK: of each way that it takes.
pub(crate) fn offer(conn: &Connection) -> Vec<Payload> {
    let mut payloads = vec![empty(NotifyType::USE_PPK)];
    if conn.ppk_intermediate {
        payloads.push(empty(NotifyType::USE_PPK_INT));
    }
    payloads
}

/// The announcement of a responder: of the way that it has chosen.
pub(crate) fn answer(way: Way) -> Option<Payload> {
    match way {
        Way::None => None,
        Way::Auth => Some(empty(NotifyType::USE_PPK)),
        Way::Intermediate => Some(empty(NotifyType::USE_PPK_INT)),
    }
}

/// The way that follows from the IKE_SA_INIT message of the peer, when we have a PPK: the one that
/// protects more.
pub(crate) fn way(conn: &Connection, payloads: &[Payload]) -> Way {
    let has = |kind| find_notify(payloads, kind).is_some();
    if conn.ppk_intermediate
        && has(NotifyType::USE_PPK_INT)
        && has(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED)
    {
        return Way::Intermediate;
    }
    if has(NotifyType::USE_PPK) { Way::Auth } else { Way::None }
}

/// Looks whether the PPK that a connection names is loaded, so that an initiator offers it. The
/// error: none is.
pub(crate) fn is_loaded(policy: &dyn Policy, conn: &Connection) -> Result<(), Configuration> {
    let Some(id) = &conn.ppk_id else { return Err(Configuration::PpkUnnamed) };
    match policy.ppk(&id.data) {
        Some(_) => Ok(()),
        None => Err(Configuration::NoPpk { id: id.clone() }),
    }
}

/// The initiator's view of a response: "if the responder did not and the flag mandatory_or_not
/// indicates that using PPKs is mandatory ... the initiator MUST abort the exchange" (RFC 8784
/// section 3).
pub(crate) fn judge_response(conn: &Connection, payloads: &[Payload]) -> Result<(), Diagnosis> {
    if conn.ppk_required && way(conn, payloads) == Way::None {
        return Err(Authentication::PeerLacksPpk { lack: PpkLack::NotSupported }.into());
    }
    Ok(())
}

// ---- IKE_AUTH, initiator ----

/// The PPK for our request. `None`: IKE_AUTH takes none.
pub(crate) fn choose(
    policy: &dyn Policy,
    conn: &Connection,
    agreement: &Agreement,
    keys: &IkeKeys,
) -> Result<Option<Used>, Configuration> {
    let (Way::Auth, Some(id)) = (agreement.way, &conn.ppk_id) else { return Ok(None) };
    // Without it the responder "MUST send back an AUTHENTICATION_FAILED notification" once both
    // sides have announced USE_PPK.
    let Some(ppk) = policy.ppk(&id.data) else { return Err(Configuration::NoPpk { id: id.clone() }) };
    Ok(Some(Used::new(keys, id.clone(), &ppk.secret)))
}

/// The notifications of our request: the PPK, and our AUTH without it if we can go without.
pub(crate) fn request(used: &Used, without: Option<Auth>) -> Vec<Payload> {
    let identity = Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY, fixed_id(&used.id)));
    // "the authentication method used for computing the authentication data MUST be the same as the
    // method indicated in the AUTH payload": both proofs have one prover.
    let without = without.map(|auth| Payload::Notify(Notify::new(NotifyType::NO_PPK_AUTH, auth.data)));
    [identity].into_iter().chain(without).collect()
}

/// What the response says of our PPK. True: the responder uses it. The error: it does not, and we
/// require one. The content of its PPK_IDENTITY is ignored.
pub(crate) fn is_used(conn: &Connection, payloads: &[Payload]) -> Result<bool, Diagnosis> {
    if find_notify(payloads, NotifyType::PPK_IDENTITY).is_some() {
        return Ok(true);
    }
    if conn.ppk_required {
        return Err(Authentication::PeerLacksPpk { lack: PpkLack::NotUsed }.into());
    }
    Ok(false)
}

// ---- IKE_AUTH, responder ----

/// What a responder does with a request that could be taken.
pub(crate) enum Judged {
    /// Neither side speaks of a PPK.
    Standard,
    /// Both sides have the PPK.
    Used(Used),
    /// We do not have the peer's PPK of this identifier, and neither side needs one: the data of
    /// AUTH without it.
    Without(Identity, Vec<u8>),
}

/// Compares an IKE_AUTH request with the connection that it belongs to, by table 1 of RFC 8784
/// section 3. The error: the request is refused.
pub(crate) fn judge_request(
    policy: &dyn Policy,
    conn: &Connection,
    agreement: &Agreement,
    keys: &IkeKeys,
    payloads: &[Payload],
) -> Result<Judged, Diagnosis> {
    match agreement.way {
        Way::Auth => {}
        // IKE_INTERMEDIATE could not refuse this: the peer's identity, and so its connection, was
        // not known then.
        _ => return is_enough(conn, agreement).map(|()| Judged::Standard),
    }
    // "If no PPK_IDENTITY notification is found and the peers successfully exchanged USE_PPK
    // notifications in the IKE_SA_INIT exchange, then the responder MUST send back an
    // AUTHENTICATION_FAILED notification".
    let Some(identity) = find_notify(payloads, NotifyType::PPK_IDENTITY) else {
        return Err(Authentication::PeerLacksPpk { lack: PpkLack::NotNamed }.into());
    };
    let id = id_of(&identity.data);
    if let Some(id) = id.filter(|id| is_configured(conn, id))
        && let Some(ppk) = policy.ppk(id)
    {
        return Ok(Judged::Used(Used::new(keys, ppk_id(id), &ppk.secret)));
    }
    let theirs = ppk_id(id.unwrap_or(&identity.data));
    let ours = conn.ppk_id.clone().map(Box::new);
    if conn.ppk_required {
        return Err(Authentication::OtherPpk { theirs, ours }.into());
    }
    match find_notify(payloads, NotifyType::NO_PPK_AUTH) {
        Some(without) => Ok(Judged::Without(theirs, without.data.clone())),
        None => Err(Authentication::PpkDemanded { theirs, ours }.into()),
    }
}

/// Looks whether a connection has the PPK that it requires. It may be another connection than the
/// one whose PPK both sides have agreed on: the peer's identity tells, in any round of IKE_AUTH.
pub(crate) fn is_enough(conn: &Connection, agreement: &Agreement) -> Result<(), Diagnosis> {
    let in_use = agreement.in_use();
    if !conn.ppk_required || in_use.is_some_and(|id| is_configured(conn, &id.data)) {
        return Ok(());
    }
    let ours = conn.ppk_id.clone().map(Box::new);
    Err(match (in_use, &agreement.unused, agreement.way) {
        (Some(theirs), ..) | (None, Some(Unused::Absent(theirs) | Unused::Unconfirmed(theirs)), _) => {
            Authentication::OtherPpk { theirs: theirs.clone(), ours }
        }
        (None, Some(Unused::Differs(id)), _) => Authentication::WrongPpk { id: id.clone() },
        (None, None, Way::None) => Authentication::PeerLacksPpk { lack: PpkLack::NotSupported },
        (None, None, _) => Authentication::PeerLacksPpk { lack: PpkLack::NotOffered },
    }
    .into())
}

/// The bytes of a PPK_ID that name a PPK. `None`: its type is reserved or private, so it names none
/// of ours.
pub(super) fn id_of(data: &[u8]) -> Option<&[u8]> {
    match data.split_first() {
        Some((&(PPK_ID_OPAQUE | PPK_ID_FIXED), id)) => Some(id),
        _ => None,
    }
}

/// PPK_ID of type PPK_ID_FIXED.
pub(super) fn fixed_id(id: &Identity) -> Vec<u8> {
    [&[PPK_ID_FIXED], id.data.as_slice()].concat()
}

/// True when a connection names the PPK of these bytes, or takes any.
fn is_configured(conn: &Connection, id: &[u8]) -> bool {
    conn.ppk_id.as_ref().is_none_or(|ours| ours.data == id)
}

/// N(PPK_IDENTITY) of the response: "with no data to indicate that the PPK is used".
pub(crate) fn confirmation() -> Payload {
    Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY, []))
}
