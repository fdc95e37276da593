//! `lab cores`: its options.

use crate::{CoresOptions, FrameSize, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Cores {
    #[command(flatten)]
    common: Common,
    /// Workers of the gateway, at most as many as this machine has processors [default: 1, 2, 4 and
    /// so on up to all]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 256))]
    workers: Vec<u32>,
    /// Queues at each end of a link, at most as many as this machine has processors [default: 1, 2,
    /// 4 and so on up to all]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 256))]
    queues: Vec<u32>,
    /// Flows of the traffic [default: 1,64,4096]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 1_000_000))]
    flows: Vec<u32>,
    /// Frame sizes, bytes with FCS, and imix [default: 256,1400]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    sizes: Vec<FrameSize>,
}

impl Experiment for Cores {
    const NAME: &'static str = "cores";
    type Options = CoresOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<CoresOptions, String> {
        Ok(CoresOptions {
            workers: self.workers,
            queues: self.queues,
            flows: self.flows,
            sizes: self.sizes,
            common: self.common.options()?,
        })
    }

    fn make(options: CoresOptions) -> Result<Report, LabError> {
        crate::cores(options)
    }
}
