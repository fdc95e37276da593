//! `lab profile`: its options.

use crate::{LabError, ProfileOptions, Report};

use super::common::Common;
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Profile {
    #[command(flatten)]
    common: Common,
}

impl Experiment for Profile {
    const NAME: &'static str = "profile";
    type Options = ProfileOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<ProfileOptions, String> {
        if !self.common.dut.is_empty() {
            return Err(
                "--dut: only ironswan measures its stages; choose with --encap and --suite".to_owned()
            );
        }
        Ok(ProfileOptions { common: self.common.options()? })
    }

    fn make(options: ProfileOptions) -> Result<Report, LabError> {
        crate::profile(options)
    }
}
