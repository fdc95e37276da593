//! `lab topologies`: its options.

use crate::dut::Hardware;
use crate::relay::Link;
use crate::{LabError, Report, TopologiesOptions, TopologyLoad};

use super::common::{Common, within};
use super::experiment::Experiment;

#[derive(clap::Args, Debug)]
pub(crate) struct Topologies {
    #[command(flatten)]
    common: Common,
    /// Topologies: host-to-host, line, road-warrior [default: all]
    #[arg(long, value_delimiter = ',')]
    topology: Vec<String>,
    /// udp: messages, one packet each; tcp: like ttcp, where the kernel makes packets of the writes
    /// [default: udp, and tcp over emulated links]
    #[arg(long)]
    load: Option<TopologyLoad>,
    /// Bytes of a message (18 to 1372) or of a write of TCP [default: 64 to 1372; TCP: 64 to 65536]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", allow_negative_numbers = true, value_parser = within(1_usize, 1 << 20))]
    sizes: Vec<usize>,
    /// ironswan with the processor's crypto instructions (on: the engines that it chooses), without
    /// (off: AWS-LC with these instructions masked), or both [default: both]
    #[arg(long)]
    hardware: Option<Hardware>,
    /// Connections of each sender, with --load tcp [default: 1]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u32, 64))]
    connections: Option<u32>,
    /// The kernel may join small writes (no TCP_NODELAY), with --load tcp
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
            load: self.load,
            sizes: self.sizes,
            hardware: self.hardware,
            connections: self.connections,
            join: self.join,
            link: self.link,
        })
    }

    fn make(options: TopologiesOptions) -> Result<Report, LabError> {
        crate::topologies(options)
    }
}
