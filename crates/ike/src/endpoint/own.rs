//! Our own nonces and public values of IKE_SAs whose peers are not authenticated yet, so that we do
//! not talk to ourselves: whoever sends our datagrams back to us (from another address, or between
//! two of our connections) would otherwise have us authenticate us to ourselves, with a key that
//! serves any pair of identities.
//!
//! A mirror can change neither without failing AUTH, which covers both messages of IKE_SA_INIT.

use std::collections::HashSet;

use crate::init::Init;

/// The beginning of a nonce or public value, which tells ours from others. Every nonce of ours has
/// this length, and no public value is shorter.
type Beginning = [u8; 32];

/// The values that are under way. Never iterated.
#[derive(Default)]
pub(crate) struct OwnValues(HashSet<Beginning>);

fn values(init: &Init, initiator: bool) -> impl Iterator<Item = Beginning> {
    let nonce = if initiator { &init.ni } else { &init.nr };
    let earlier = init.earlier.iter().map(|e| &e.public);
    [nonce, &init.public].into_iter().chain(earlier).filter_map(|v| v.first_chunk().copied())
}

impl OwnValues {
    /// Adds the values that we send for this IKE_SA.
    pub(crate) fn add(&mut self, init: &Init, initiator: bool) {
        self.0.extend(values(init, initiator));
    }

    /// Removes the values of an IKE_SA whose peer is authenticated, or that is gone.
    pub(crate) fn remove(&mut self, init: &Init, initiator: bool) {
        for value in values(init, initiator) {
            self.0.remove(&value);
        }
    }

    /// True when we are sending this nonce or public value ourselves.
    pub(crate) fn has(&self, value: &[u8]) -> bool {
        value.first_chunk().is_some_and(|v: &Beginning| self.0.contains(v))
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
