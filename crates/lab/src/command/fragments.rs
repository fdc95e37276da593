//! `lab fragments`: options to the laboratory's own.

use crate::{FragmentsOptions, FrameSize, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Fragments {
    #[command(flatten)]
    common: Common,
    /// Frame sizes, bytes with FCS, and imix [default: 1518]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    sizes: Vec<FrameSize>,
    /// MTU of the link between the gateways that is too narrow, bytes [default: 1400]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = within(576_u32, 1500))]
    outer_mtu: Option<u32>,
}

impl Experiment for Fragments {
    const NAME: &'static str = "fragments";
    type Options = FragmentsOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<FragmentsOptions, String> {
        Ok(FragmentsOptions { sizes: self.sizes, outer_mtu: self.outer_mtu, common: self.common.options()? })
    }

    fn make(options: FragmentsOptions) -> Result<Report, LabError> {
        crate::fragments(options)
    }
}
