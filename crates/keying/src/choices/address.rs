//! Several addresses of one peer: which one an attempt is for, and when the next one is asked
//! besides.
//!
//! Attempts are numbered from 1, and each address counts as one. A round is once through all
//! addresses.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_crypto::rng::Rng;

use crate::jitter;
use crate::limits::{ADDRESSES_AT_ONCE, NEXT_ADDRESS};

/// The address of the peer for attempt `number`: of `hosts` in their order, but first `prefer`, if
/// the peer has it. `None` when the peer has no address.
pub fn of_attempt(hosts: &[IpAddr], prefer: Option<IpAddr>, number: u32) -> Option<IpAddr> {
    let first = hosts.iter().position(|host| Some(*host) == prefer).unwrap_or(0);
    let at = (first + number.max(1) as usize - 1).checked_rem(hosts.len())?;
    hosts.get(at).copied()
}

/// True when this round has no address after that of attempt `number`, of so many addresses.
pub fn ends_round(number: u32, addresses: u32) -> bool {
    addresses <= 1 || number.is_multiple_of(addresses)
}

/// Pause until the next address of the round is asked besides that of attempt `number`; `None`:
/// there is no other in this round. `automatic` attempts may be many that began at one moment: they
/// wait up to a tenth less.
pub fn pause(rng: &mut dyn Rng, number: u32, addresses: u32, automatic: bool) -> Option<Duration> {
    let pause =
        |rng| if automatic { jitter::less(rng, NEXT_ADDRESS, NEXT_ADDRESS / 10) } else { NEXT_ADDRESS };
    (!ends_round(number, addresses)).then(|| pause(rng))
}

/// Whether attempt `last` + 1 may begin now, when attempts at `asked` addresses of the peer are
/// under way and there are `ike_sas` IKE_SAs of at most `ike_sa_max`.
pub fn may_begin(last: u32, addresses: u32, asked: usize, ike_sas: usize, ike_sa_max: usize) -> bool {
    !ends_round(last, addresses) && asked < ADDRESSES_AT_ONCE && ike_sas < ike_sa_max
}
