//! Rekeying the IKE_SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18, 2.25.2).
//!
//! ```text
//! HDR, SK {SA (with a new SPIi), Ni, KEi}  -->
//!                      <--  HDR, SK {SA (with a new SPIr), Nr, KEr, [N(ADDITIONAL_KEY_EXCHANGE)]}
//! ```
//!
//! The new IKE_SA inherits every child; the initiator of the rekeying deletes the old one. Both at
//! once: "the new IKE SA containing the lowest nonce SHOULD be deleted by the node that created it,
//! and the other surviving new IKE SA MUST inherit all the Child SAs". Until it is known which
//! survives, neither has them. With additional key exchanges (`follow_up`), the successor is made
//! after the last of them, and the initiator of the exchange with the lowest nonce "just stops the
//! rekeying process" (RFC 9370 section 2.2.4).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `initiator` | our rekeying, and what becomes of it when the peer rekeys at the same time |
//! | `responder` | the peer's rekeying |

mod initiator;
mod responder;

use ironswan_wire::proposal::IkeSuite;
use ironswan_wire::secret::Secret;

use crate::context::Context;
use crate::event::IkeId;
use crate::keymat::{IkeKeys, SkeySeed};
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};

pub(crate) use initiator::{build, failed, finish, process, unusable};
pub(crate) use responder::{answer, conclude, may_go_on};

/// What both sides have agreed on.
struct Made {
    id: IkeId,
    suite: IkeSuite,
    keys: IkeKeys,
    spis: (u64, u64),
    /// We are the initiator of the rekeying.
    initiator: bool,
}

/// The successor of `old`.
fn successor(cx: &mut Context<'_>, old: &IkeSa, new: Made) -> Box<IkeSa> {
    let Made { id, suite, keys, spis, initiator } = new;
    // It is `Created` until it has the children. "the new IKE SA ... message counters are reset to
    // zero" (RFC 7296 section 2.18 by way of 2.2).
    Box::new(IkeSa::succeed(old, (id, initiator), spis, (suite, keys), cx.now()))
}

/// Keys of the successor; `initiator` is our role in the rekeying.
fn derive(
    old: &IkeSa,
    suite: &IkeSuite,
    (shared, more): (&Secret, &[Secret]),
    (ni, nr): (&[u8], &[u8]),
    (spi_i, spi_r): (u64, u64),
    initiator: bool,
) -> Result<IkeKeys, Diagnosis> {
    let seed = old.keys().map(|keys| SkeySeed::rekeyed(keys, ni, nr, shared, more));
    let keys = seed.and_then(|seed| seed.expand(suite, ni, nr, spi_i, spi_r, initiator));
    keys.ok_or_else(|| KeyExchange::NotComputed { why: Uncomputed::Suite }.into())
}

/// The peer owes the DELETE of the old IKE_SA; it is not waited for longer than a peer retransmits.
fn linger(cx: &mut Context<'_>, sa: &IkeSa) {
    let span = cx.retransmission_span();
    cx.set_timer(Timer::Linger(sa.id()), cx.now() + span);
}
