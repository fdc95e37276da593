//! Our own nonces and public values of IKE_SAs whose peers are not authenticated yet, so that we do
//! not talk to ourselves: whoever sends our datagrams back to us (from another address, or between
//! two of our connections) would otherwise have us authenticate us to ourselves, with a key that
//! serves any pair of identities.
//!
//! A mirror can change neither without failing AUTH, which covers both messages of IKE_SA_INIT.

use super::Endpoint;
use crate::sa::Init;

/// So much of a value says whose it is. Every nonce of ours has this length, and no public value is
/// shorter.
pub(crate) type Own = [u8; 32];

fn values(init: &Init, initiator: bool) -> impl Iterator<Item = Own> {
    let nonce = if initiator { &init.ni } else { &init.nr };
    let earlier = init.earlier.iter().map(|e| &e.public);
    [nonce, &init.public].into_iter().chain(earlier).filter_map(|v| v.first_chunk().copied())
}

impl Endpoint {
    /// What we send from now on for this IKE_SA.
    pub(crate) fn own(&mut self, init: &Init, initiator: bool) {
        self.own.extend(values(init, initiator));
    }

    /// Its peer is authenticated, or it is gone.
    pub(crate) fn disown(&mut self, init: &Init, initiator: bool) {
        for value in values(init, initiator) {
            self.own.remove(&value);
        }
    }

    /// True when we are sending this nonce or public value ourselves.
    pub(crate) fn is_own(&self, value: &[u8]) -> bool {
        value.first_chunk().is_some_and(|v: &Own| self.own.contains(v))
    }
}
