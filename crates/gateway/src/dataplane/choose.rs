//! The choice of the data plane. There is one kind today.

use ironswan_config::Daemon;
use ironswan_keying::Diagnosis;

use super::DataPlane;
use super::userspace::UserSpace;
use crate::guard::shared::SharedGuard;

/// Starts the data plane. `guard` shares the kernel's routing with the rest of the gateway.
///
/// # Errors
/// Whatever is missing on this machine, with the remedy. Nothing is left behind then.
pub fn start(config: &Daemon, guard: SharedGuard) -> Result<Box<dyn DataPlane>, Diagnosis> {
    Ok(Box::new(UserSpace::start(config, guard)?))
}
