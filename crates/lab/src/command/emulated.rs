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
}

impl Experiment for Emulated {
    const NAME: &'static str = "emulated";
    type Options = EmulatedOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<EmulatedOptions, String> {
        Ok(EmulatedOptions { common: self.common.options()?, sizes: self.sizes, bursts: self.bursts })
    }

    fn make(options: EmulatedOptions) -> Result<Report, LabError> {
        crate::emulated(options)
    }
}
