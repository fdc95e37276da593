//! `lab emulated`: its options.

use crate::{EmulatedOptions, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Emulated {
    #[command(flatten)]
    common: Common,
    /// Sizes of UDP packets as frames, FCS included, bytes [default: 100,1418]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", allow_negative_numbers = true, value_parser = within(64_u32, 1418))]
    sizes: Vec<u32>,
    /// Packets sent before the first of them is waited for [default: 1,32]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 128))]
    bursts: Vec<u32>,
    /// TCP and FTP on 64-bit processors without AES that are about as slow as a 486/66 and a
    /// Pentium 60 (31 and 62 million instructions a second), with 3DES and AES
    #[arg(long, conflicts_with_all = ["sizes", "bursts"])]
    slow: bool,
}

impl Experiment for Emulated {
    const NAME: &'static str = "emulated";
    type Options = EmulatedOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<EmulatedOptions, String> {
        Ok(EmulatedOptions {
            common: self.common.options()?,
            sizes: self.sizes,
            bursts: self.bursts,
            slow: self.slow,
        })
    }

    fn make(options: EmulatedOptions) -> Result<Report, LabError> {
        crate::emulated(options)
    }
}
