//! `lab transfer`: its options.

use crate::{LabError, Report, TransferOptions};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Transfer {
    #[command(flatten)]
    common: Common,
    /// Size of the file, 10^6 bytes [default: 256]
    #[arg(long, value_name = "MB", allow_negative_numbers = true, value_parser = within(1_u32, 100_000))]
    size: Option<u32>,
}

impl Experiment for Transfer {
    const NAME: &'static str = "transfer";
    type Options = TransferOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<TransferOptions, String> {
        Ok(TransferOptions { common: self.common.options()?, size_mb: self.size })
    }

    fn make(options: TransferOptions) -> Result<Report, LabError> {
        crate::transfer(options)
    }
}
