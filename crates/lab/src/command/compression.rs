//! `lab compression`: its options.

use crate::CompressionOptions;

use super::common::{Common, within};

#[derive(clap::Args, Debug)]
pub(crate) struct Compression {
    #[command(flatten)]
    common: Common,
    /// Rates of the link, kbit/s; 0 is no limit [default: 512,10000,0]
    #[arg(long, value_delimiter = ',', value_name = "KBPS", allow_negative_numbers = true, value_parser = within(0_u32, 1_000_000))]
    rates: Vec<u32>,
}

impl Compression {
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// As the laboratory wants them.
    pub(crate) fn options(self) -> Result<CompressionOptions, String> {
        Ok(CompressionOptions { common: self.common.options()?, rates: self.rates })
    }
}
