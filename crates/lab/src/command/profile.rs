//! `lab profile`: its options.

use crate::ProfileOptions;

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

    fn command(options: ProfileOptions, json: bool) -> i32 {
        crate::present(Self::NAME, crate::profile(options), json)
    }
}
