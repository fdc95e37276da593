//! `lab compare`: options to the laboratory's own.

use crate::{CompareOptions, FrameSize, LabError, Report};

use super::common::Common;
use super::experiment::Experiment;
use super::traffic::Traffic;

#[derive(clap::Args, Debug)]
pub(crate) struct Compare {
    #[command(flatten)]
    common: Common,
    /// Frame sizes of the packets, bytes with FCS, and imix [default:
    /// 64,512,1418; with --mix none]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    sizes: Vec<FrameSize>,
    #[command(flatten)]
    traffic: Traffic,
}

impl Experiment for Compare {
    const NAME: &'static str = "compare";
    type Options = CompareOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<CompareOptions, String> {
        Ok(CompareOptions {
            sizes: self.sizes,
            traffic: self.traffic.options(),
            common: self.common.options()?,
        })
    }

    fn make(options: CompareOptions) -> Result<Report, LabError> {
        crate::compare(options)
    }
}
