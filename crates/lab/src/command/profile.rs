//! `lab profile`: its options.

use crate::ProfileOptions;

use super::common::Common;

#[derive(clap::Args, Debug)]
pub(crate) struct Profile {
    #[command(flatten)]
    common: Common,
}

impl Profile {
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// As the laboratory wants them.
    pub(crate) fn options(self) -> Result<ProfileOptions, String> {
        if !self.common.dut.is_empty() {
            return Err(
                "--dut: only ironswan measures its stages; choose with --encap and --suite".to_owned()
            );
        }
        Ok(ProfileOptions { common: self.common.options()? })
    }
}
