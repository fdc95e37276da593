//! How long an authentication counts: by `reauth_time` of a connection, and by AUTH_LIFETIME of a
//! responder (RFC 4478).

use std::time::Duration;

use ironswan_crypto::rng::Rng;

use crate::limits::AUTH_LIFETIME_MIN;
use crate::{Connection, jitter};

/// Times from now until an authentication is repeated, and until it does not count any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// We make the IKE_SA anew after this, when we can begin.
    pub soft: Duration,
    /// The IKE_SA is closed after this.
    pub hard: Duration,
}

/// Times of an IKE_SA of this connection; `None`: its authentication counts without end.
pub fn configured(conn: &Connection, rng: &mut dyn Rng) -> Option<Span> {
    let time = conn.reauth_time;
    let hard = time.saturating_add(conn.over_time);
    (!time.is_zero()).then(|| Span { soft: jitter::less(rng, time, conn.rand_time), hard })
}

/// Times when the responder names this lifetime. "When the Initiator receives this information, it
/// SHOULD repeat the Initial exchange within the specified time period" (RFC 4478 section 2): up to
/// a quarter of the lifetime is kept for that. A lifetime that is shorter than
/// [`AUTH_LIFETIME_MIN`] counts as that long.
pub fn named(conn: &Connection, seconds: u32, rng: &mut dyn Rng) -> Span {
    let lifetime = Duration::from_secs(seconds.into()).max(AUTH_LIFETIME_MIN);
    let margin = conn.over_time.clamp(lifetime / 10, lifetime / 4);
    let soft = jitter::less(rng, lifetime - margin, conn.rand_time.min(lifetime / 10));
    Span { soft, hard: lifetime.saturating_add(conn.over_time) }
}

/// The lifetime that a responder names on a connection; `None`: it names none, because it can make
/// the IKE_SA anew itself, or because no end is configured.
pub fn to_name(conn: &Connection) -> Option<u32> {
    let none = conn.reauth_time.is_zero() || conn.has_reachable_peer();
    (!none).then(|| u32::try_from(conn.reauth_time.as_secs()).unwrap_or(u32::MAX).max(1))
}
