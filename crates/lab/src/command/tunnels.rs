//! `lab tunnels`: its options.

use std::path::PathBuf;

use crate::{LabError, Report, TunnelAuth, TunnelsOptions};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Tunnels {
    #[command(flatten)]
    common: Common,
    /// Numbers of tunnels between two gateways [default: 1,10,100,1000,10000]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", allow_negative_numbers = true, value_parser = within(1_u32, 1_000_000))]
    tunnels: Vec<u32>,
    /// Simulated peers of one gateway, 0 for none [default: 100000]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = within(0_u32, 1_000_000))]
    simulated: Option<u32>,
    /// How the gateways authenticate each other: psk, ecdsa (P-256), rsa (3,072 bits), in turns;
    /// with certificates up to 1,000 tunnels [default: psk]
    #[arg(long, value_delimiter = ',', value_name = "WAYS")]
    auth: Vec<TunnelAuth>,
    /// A capture (pcap) of ESP or ESP in UDP, whose SPIs go through the simulated key caches, too
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Experiment for Tunnels {
    const NAME: &'static str = "tunnels";
    type Options = TunnelsOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<TunnelsOptions, String> {
        Ok(TunnelsOptions {
            tunnels: self.tunnels,
            simulated: self.simulated,
            auths: self.auth,
            trace: self.trace,
            common: self.common.options()?,
        })
    }

    fn make(options: TunnelsOptions) -> Result<Report, LabError> {
        crate::tunnels(options)
    }
}
