//! `lab rfc2544`: options to the laboratory's own.

use crate::load::Direction;
use crate::{FrameSize, LabError, Report, Rfc2544Options, Rfc2544Setup};

use super::common::{Common, within};
use super::experiment::Experiment;
use super::traffic::Traffic;

#[derive(clap::Args, Debug)]
pub(crate) struct Rfc2544 {
    #[command(flatten)]
    common: Common,
    /// line: gateway to gateway (RFC 2544 figure 3); single: one gateway, with a tester that speaks
    /// IKE and ESP itself (figure 2)
    #[arg(long, default_value = "line", value_name = "TOPOLOGY")]
    topology: Rfc2544Setup,
    /// Frame sizes, bytes with FCS, up to 9000, and imix [default:
    /// 64,128,256,390,512,1024,1280,1424,1456,1518,imix; with --mix none]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    sizes: Vec<FrameSize>,
    /// Directions: forward, reverse, both [default: forward,both; of a single gateway, where
    /// forward is encrypting and reverse decrypting: forward,reverse]
    #[arg(long, value_delimiter = ',')]
    directions: Vec<Direction>,
    /// Flows of the traffic [default: 64]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u32, 1_000_000))]
    flows: Option<u32>,
    /// Largest losses, percent [default: 0,0.001,0.1]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(0.0, 49.9))]
    loss: Vec<f64>,
    /// By how much a throughput may be off, percent [default: 2]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(0.1, 49.9))]
    width: Option<f64>,
    #[command(flatten)]
    traffic: Traffic,
    /// As RFC 2544 has it: one trial of 60 s (or --duration) decides, nothing is forgiven
    #[arg(long)]
    strict: bool,
}

impl Experiment for Rfc2544 {
    const NAME: &'static str = "rfc2544";
    type Options = Rfc2544Options;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<Rfc2544Options, String> {
        Ok(Rfc2544Options {
            setup: self.topology,
            sizes: self.sizes,
            directions: self.directions,
            flows: self.flows,
            losses: self.loss.into_iter().map(|percent| percent / 100.0).collect(),
            width: self.width.map(|percent| percent / 100.0),
            strict: self.strict,
            traffic: self.traffic.options(),
            common: self.common.options()?,
        })
    }

    fn make(options: Rfc2544Options) -> Result<Report, LabError> {
        crate::rfc2544(options)
    }
}
