//! `lab profile`: its options.

use crate::{LabError, ProfileOptions, Report};

use super::common::Common;
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Profile {
    #[command(flatten)]
    common: Common,
    /// What is inside the system calls of the gateways, and what the machine does beside them, by
    /// samples of the processors; of any systems (--dut)
    #[arg(long)]
    inside: bool,
    /// Cycles per byte by layer, beside those of a Pentium II: plain forwarding, ESP without
    /// cryptography, with SHA-1, with 3DES and SHA-1, with AES-GCM
    #[arg(long, conflicts_with = "inside")]
    layers: bool,
}

impl Experiment for Profile {
    const NAME: &'static str = "profile";
    type Options = ProfileOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<ProfileOptions, String> {
        if !self.common.dut.is_empty() && !self.inside {
            return Err(
                "--dut: only ironswan measures its stages; choose with --encap and --suite, or add --inside for other systems".into()
            );
        }
        let (layers, inside) = (self.layers, self.inside);
        Ok(ProfileOptions { common: self.common.options()?, inside, layers })
    }

    fn make(options: ProfileOptions) -> Result<Report, LabError> {
        crate::profile(options)
    }
}
