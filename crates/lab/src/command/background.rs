//! `lab background`: its options.

use crate::{BackgroundOptions, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Background {
    #[command(flatten)]
    common: Common,
    /// Shares of the highest rate that every kind of traffic carries, which is measured first,
    /// percent [default: 10,50,100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(1_u32, 100))]
    share: Vec<u32>,
    /// Fixed rates of the payload instead, Mbit/s
    #[arg(long, value_delimiter = ',', value_name = "MBPS", allow_negative_numbers = true, value_parser = within(1_u32, 100_000))]
    rate: Vec<u32>,
}

impl Experiment for Background {
    const NAME: &'static str = "background";
    type Options = BackgroundOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<BackgroundOptions, String> {
        Ok(BackgroundOptions { common: self.common.options()?, rates_mbps: self.rate, shares: self.share })
    }

    fn make(options: BackgroundOptions) -> Result<Report, LabError> {
        crate::background(options)
    }
}
