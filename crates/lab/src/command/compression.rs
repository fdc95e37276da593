//! `lab compression`: its options.

use crate::{CompressionOptions, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Compression {
    #[command(flatten)]
    common: Common,
    /// Rates of the link, kbit/s; 0 is no limit [default: 512,10000,0]
    #[arg(long, value_delimiter = ',', value_name = "KBPS", allow_negative_numbers = true, value_parser = within(0_u32, 1_000_000))]
    rates: Vec<u32>,
}

impl Experiment for Compression {
    const NAME: &'static str = "compression";
    type Options = CompressionOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<CompressionOptions, String> {
        Ok(CompressionOptions { common: self.common.options()?, rates: self.rates })
    }

    fn make(options: CompressionOptions) -> Result<Report, LabError> {
        crate::compression(options)
    }
}
