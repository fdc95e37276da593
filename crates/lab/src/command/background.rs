//! `lab background`: its options.

use crate::{BackgroundOptions, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Background {
    #[command(flatten)]
    common: Common,
    /// Payload of the traffic, Mbit/s [default: 200]
    #[arg(long, value_name = "MBPS", allow_negative_numbers = true, value_parser = within(1_u32, 100_000))]
    rate: Option<u32>,
}

impl Experiment for Background {
    const NAME: &'static str = "background";
    type Options = BackgroundOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<BackgroundOptions, String> {
        Ok(BackgroundOptions { common: self.common.options()?, rate_mbps: self.rate })
    }

    fn make(options: BackgroundOptions) -> Result<Report, LabError> {
        crate::background(options)
    }
}
