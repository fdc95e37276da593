//! `lab driver`: its options.

use crate::{DriverOptions, LabError, Report};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Driver {
    #[command(flatten)]
    common: Common,
    /// Bytes of text of a packet, multiples of 16
    #[arg(long, value_delimiter = ',', value_name = "BYTES", allow_negative_numbers = true, value_parser = within(16_u32, 32_768))]
    sizes: Vec<u32>,
    /// Crypto engines: aws-lc, vaes, avx2, ipsec-mb [default: all that this machine has], or
    /// cryptodev, a device beside the processor (if built in): cryptodev-inline, cryptodev-poll and
    /// cryptodev-wait are the ways to ask it
    #[arg(long, value_delimiter = ',')]
    engine: Vec<String>,
    /// How packets are handed over: all, after (the next when the last is done), or packets of a
    /// burst
    #[arg(long, value_delimiter = ',')]
    dispatch: Vec<String>,
    /// Memory of the packets: same (stays in the cache), unique
    #[arg(long, value_delimiter = ',')]
    data: Vec<String>,
    /// When results are looked at: inside, after, never
    #[arg(long, value_delimiter = ',')]
    check: Vec<String>,
    /// Operations of a cell [default: 50000]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u64, 100_000_000))]
    operations: Option<u64>,
}

impl Experiment for Driver {
    const NAME: &'static str = "driver";
    type Options = DriverOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<DriverOptions, String> {
        let suites = self.common.suite.as_deref().unwrap_or_default();
        Ok(DriverOptions {
            suites: suites.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            sizes: self.sizes,
            engines: self.engine,
            dispatch: self.dispatch,
            data: self.data,
            check: self.check,
            operations: self.operations,
            common: self.common.options()?,
        })
    }

    fn make(options: DriverOptions) -> Result<Report, LabError> {
        crate::driver(options)
    }
}
