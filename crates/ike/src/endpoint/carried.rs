//! Things that an attempt takes over from an earlier IKE_SA.

use crate::event::IkeId;
use crate::init::Init;

/// Things that an attempt takes over from an earlier IKE_SA. Policy knows them by the number of the
/// attempt.
#[derive(Default)]
pub(crate) struct Carried {
    /// The IKE_SA that the new one replaces, once it is up.
    pub replaces: Option<IkeId>,
    /// The request of the attempt before, which nobody has answered.
    pub kept: Option<Kept>,
}

/// SPI, key pair and nonce of an IKE_SA_INIT request without an answer, for the next attempt.
pub(crate) struct Kept {
    pub spi_i: u64,
    pub init: Box<Init>,
}
