//! `lab lowend`: options to the laboratory's own.

use crate::{LabError, LowendOptions, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Lowend {
    #[command(flatten)]
    common: Common,
    /// Shares of a core for each gateway, percent, 10 to 100 [default: 10,25,50,100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(10_u32, 100))]
    shares: Vec<u32>,
    /// Rates offered, Mbit/s [default: 1.5,10,50,100]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(0.01, 100_000.0))]
    rates: Vec<f64>,
}

impl Experiment for Lowend {
    const NAME: &'static str = "lowend";
    type Options = LowendOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<LowendOptions, String> {
        Ok(LowendOptions { shares: self.shares, rates: self.rates, common: self.common.options()? })
    }

    fn make(options: LowendOptions) -> Result<Report, LabError> {
        crate::lowend(options)
    }
}
