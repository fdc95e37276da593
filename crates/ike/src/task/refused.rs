//! Says when the peer refuses to rekey an SA, and when the SA will end by that.

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::proposal::Proposal;

use crate::context::Context;
use crate::timer::Timer;

/// The diagnosis of a rekeying that the peer has refused for `why`. `end` is the timer at which the
/// SA ends, `child` the name of a CHILD_SA. `None`: the rekeying has failed for another reason, or
/// for one that passes by itself.
pub(super) fn rekeying(
    cx: &Context<'_>,
    end: Timer,
    child: Option<String>,
    proposed: &[Proposal],
    why: &Diagnosis,
) -> Option<Diagnosis> {
    let Diagnosis::KeyExchange(KeyExchange::PeerError { kind, authentic: true, .. }) = why else {
        return None;
    };
    let passes =
        [NotifyType::TEMPORARY_FAILURE, NotifyType::NO_ADDITIONAL_SAS, NotifyType::CHILD_SA_NOT_FOUND];
    if passes.contains(kind) {
        return None;
    }
    let ends = cx.time_left(end).map(|left| left.as_secs());
    Some(KeyExchange::RekeyRefused { child, kind: *kind, ends, proposed: proposed.to_vec() }.into())
}
