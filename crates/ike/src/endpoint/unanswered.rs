//! The request of an attempt that nobody has answered, for the attempt that repeats it.

use crate::init::Init;

/// SPI, key pair and nonce of an IKE_SA_INIT request without an answer.
pub(crate) struct UnansweredInit {
    pub spi_i: u64,
    pub init: Box<Init>,
}
