//! The parameters of an SA that both directions have.

use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Lifetime, Mode, SaAdd, SaOptions};

use super::selectors::Selectors;

/// The parameters that the key daemon gave an SA and that never change.
pub(crate) struct SaParameters {
    pub(crate) lifetime: Lifetime,
    pub(crate) mode: Mode,
    pub(crate) suite: EspSuite,
    pub(crate) options: SaOptions,
    pub(crate) selectors: Selectors,
}

impl SaParameters {
    pub(super) fn new(sa: &SaAdd) -> Self {
        Self {
            lifetime: sa.lifetime,
            mode: sa.mode,
            suite: sa.suite,
            options: sa.options,
            selectors: Selectors::new(sa),
        }
    }
}
