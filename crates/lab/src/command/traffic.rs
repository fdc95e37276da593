//! Options of traffic that experiments with packets share.

use std::path::PathBuf;

use crate::TrafficOptions;
use crate::load::SendBy;

use super::common::within;

#[derive(clap::Args, Debug)]
pub(crate) struct Traffic {
    /// Traffic of your own: sizes, gaps and flows of the packets in a capture (pcap or pcapng;
    /// Ethernet, raw IP or Linux cooked)
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,
    /// IPv6 inside instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// So many packets at once, the bursts evenly spaced [default: every packet evenly spaced]
    #[arg(long, value_name = "PACKETS", allow_negative_numbers = true, value_parser = within(1_u32, 10_000))]
    burst: Option<u32>,
    /// Threads that send, and as many that receive, each way [default: 1]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u32, 64))]
    threads: Option<u32>,
    /// Sockets by which packets are sent: af_packet, af_xdp
    #[arg(long, default_value = "af_packet", value_name = "SOCKETS")]
    generator: SendBy,
}

impl Traffic {
    /// As the laboratory wants them.
    pub(crate) fn options(self) -> TrafficOptions {
        let Self { mix, ipv6, burst, threads, generator } = self;
        TrafficOptions { mix, ipv6, burst, threads, generator }
    }
}
