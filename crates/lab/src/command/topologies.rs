//! `lab topologies`: its options.

use crate::relay::Link;
use crate::{LabError, Report, TopologiesOptions};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Topologies {
    #[command(flatten)]
    common: Common,
    /// Topologies: host-to-host, line, road-warrior [default: all]
    #[arg(long, value_delimiter = ',')]
    topology: Vec<String>,
    /// Bytes of a write of the senders [default: 64 to 65536]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", allow_negative_numbers = true, value_parser = within(1_usize, 1 << 20))]
    sizes: Vec<usize>,
    /// Connections of each sender [default: 1]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u32, 64))]
    connections: Option<u32>,
    /// The kernel may join small writes (no TCP_NODELAY)
    #[arg(long)]
    join: bool,
    /// Emulates the links between the gateways, each way alike: for instance
    /// rate=100mbit,delay=20ms,loss=0.1%; also burst, queue, jitter, reorder, reorder-by,
    /// duplicate, corrupt, mtu, seed [default: links as fast as they go]
    #[arg(long, value_name = "LINK")]
    link: Option<Link>,
}

impl Experiment for Topologies {
    const NAME: &'static str = "topologies";
    type Options = TopologiesOptions;

    fn json(&self) -> bool {
        self.common.json
    }

    fn options(self) -> Result<TopologiesOptions, String> {
        Ok(TopologiesOptions {
            common: self.common.options()?,
            topologies: self.topology,
            writes: self.sizes,
            connections: self.connections,
            join: self.join,
            link: self.link,
        })
    }

    fn make(options: TopologiesOptions) -> Result<Report, LabError> {
        crate::topologies(options)
    }
}
