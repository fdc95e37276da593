//! The command line of `ironswan-lab`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use super::common::{Common, seconds, within};

/// Experiments of the laboratory, the demonstration and the planner.
#[derive(Parser, Debug)]
#[command(name = "ironswan-lab", bin_name = "ironswan lab", version, max_term_width = 100, after_help = EXIT)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT: &str = "Examples:\n  ironswan lab line --quick\n  ironswan lab report /var/tmp/ironswan/line-1\n\n\
    Exit status: 0 success, 1 the answer is no, 2 usage or configuration error.\n\
    Every command has --help with an example.";

#[derive(clap::Args, Debug)]
pub(crate) struct Demo {
    /// ESP in UDP (yes) or raw (no)
    #[arg(long, default_value = "yes")]
    pub(crate) encap: String,
    /// Algorithms: ESP or ESP/IKE
    #[arg(long)]
    pub(crate) suite: Option<String>,
    /// Folder for the run
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The record as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// E1: TCP across four boxes in a line, with and without a tunnel between the inner two
    #[command(
        after_help = "Examples:\n  ironswan lab line --quick\n  ironswan lab line --dut plain,ironswan,wireguard-go \
        --streams 1,4 --mode offload,wire --encap udp,raw"
    )]
    Line(Box<Line>),
    /// E2: throughput by topology, algorithm and size of packet, as a share of plain, with and
    /// without the processor's crypto instructions
    #[command(
        after_help = "Examples:\n  ironswan lab topologies --quick\n  ironswan lab topologies --topology line,road-warrior \
        --suite aes128gcm16,3des-sha1 --sizes 256,512,1024\n  ironswan lab topologies --load tcp --hardware on"
    )]
    Topologies(Box<super::topologies::Topologies>),
    /// E3: a large file by ftp, scp, sftp and https, and by ftp and http over the tunnels
    #[command(
        after_help = "Examples:\n  ironswan lab transfer --quick\n  ironswan lab transfer --size 1000 --repeats 5"
    )]
    Transfer(Box<super::transfer::Transfer>),
    /// E4: a sieve of Eratosthenes and a CPU soaker beside ftp, sftp, scp, https, plain TCP and
    /// tunnels, at shares of the highest rate that all of them carry
    #[command(
        after_help = "Examples:\n  ironswan lab background --quick\n  ironswan lab background --share 25,75 --repeats 5\n  ironswan lab \
        background --rate 500"
    )]
    Background(Box<super::background::Background>),
    /// E5: the crypto engines alone: suites by size, direction, and how packets are handed over
    #[command(
        after_help = "Examples:\n  ironswan lab driver --quick\n  ironswan lab driver --suite aes128gcm16,3des-sha1 --engine \
        aws-lc --sizes 64,1408 --dispatch all,after,32"
    )]
    Driver(Box<super::driver::Driver>),
    /// E6: throughput by frame size at bounded losses, latency below it, the curve past it (RFC
    /// 2544)
    #[command(
        after_help = "Examples:\n  ironswan lab rfc2544 --quick\n  ironswan lab rfc2544 --sizes 64,1424,imix --directions both \
        --loss 0,0.001\n  ironswan lab rfc2544 --strict --sizes 64,1518\n  ironswan lab rfc2544 --topology single --quick\n  ironswan lab rfc2544 \
        --mix capture.pcap\n  ironswan lab rfc2544 --ipv6 --burst 32 --sizes 84,1518,9000"
    )]
    Rfc2544(Box<super::rfc2544::Rfc2544>),
    /// E6: packets that do not fit the link between the gateways: which systems cut or refuse them,
    /// and what that costs
    #[command(
        after_help = "Examples:\n  ironswan lab fragments --quick\n  ironswan lab fragments --dut plain,ironswan,openvpn \
        --outer-mtu 1280"
    )]
    Fragments(Box<super::fragments::Fragments>),
    /// E6: floods of small and large UDP packets: throughput at bounded loss, the curve past it,
    /// and where packets are lost
    #[command(
        after_help = "Examples:\n  ironswan lab flood --quick\n  ironswan lab flood --dut plain,ironswan,wireguard-go \
        --payload 18,1300 --flows 1,1000 --placement free,own-core"
    )]
    Flood(Box<Flood>),
    /// E7: every system that this machine has, under TCP and under packets, side by side
    #[command(
        after_help = "Examples:\n  ironswan lab compare --quick\n  ironswan lab compare --dut plain,ironswan,openvpn --sizes \
        64,1418"
    )]
    Compare(Box<super::compare::Compare>),
    /// E8: many tunnels: until all are up, what each costs and keeps, packets over random ones, a
    /// restart, peers that are gone
    #[command(
        after_help = "Examples:\n  ironswan lab tunnels --quick\n  ironswan lab tunnels --dut ironswan --tunnels 1000,10000 \
        --simulated 0"
    )]
    Tunnels(super::tunnels::Tunnels),
    /// E9: text and random data over slow links and a fast one, with IPComp and without
    #[command(
        after_help = "Examples:\n  ironswan lab compression --quick\n  ironswan lab compression --rates 512,10000,0"
    )]
    Compression(Box<super::compression::Compression>),
    /// E10: nanoseconds per packet by stage, both gateways, both directions
    #[command(
        after_help = "Examples:\n  ironswan lab profile --encap both\n  ironswan lab profile --layers\n  ironswan lab profile --inside \
        --dut all"
    )]
    Profile(super::profile::Profile),
    /// E11: gateways held to a share of a core
    #[command(
        after_help = "Examples:\n  ironswan lab lowend --quick\n  ironswan lab lowend --shares 10,25 --rates 1.5,10"
    )]
    Lowend(Box<super::lowend::Lowend>),
    /// E13: instructions per packet and byte of each system, counted in a QEMU guest on an emulated
    /// processor
    #[command(
        after_help = "Examples:\n  ironswan lab emulated --quick\n  ironswan lab emulated --dut plain,strongswan-kernel,ironswan \
        --sizes 100,1418 --bursts 1,32 --suite aes128gcm16,aes128-sha256\n  ironswan lab emulated --slow"
    )]
    Emulated(Box<super::emulated::Emulated>),
    /// E14: throughput and cost of one gateway by its workers, by the queues of its links, and by
    /// flows
    #[command(
        after_help = "Examples:\n  ironswan lab cores --quick\n  ironswan lab cores --workers 1,2,4 --queues 4 --flows 64 \
        --sizes 256 --repeats 5"
    )]
    Cores(Box<super::cores::Cores>),
    /// The part of `emulated` that runs in the guest
    #[command(hide = true, after_help = "Example:\n  ironswan lab inside /run/job")]
    Inside {
        /// Folder with the orders
        dir: PathBuf,
    },
    /// Renders the report of a run made earlier, from its folder alone
    #[command(
        after_help = "Examples:\n  ironswan lab report /var/tmp/ironswan/line-1\n  ironswan lab report --html \
        /var/tmp/ironswan/line-1\n  ironswan lab report --csv /var/tmp/ironswan/line-1 > line.csv"
    )]
    Report {
        /// The run's folder
        run: PathBuf,
        /// The record as JSON
        #[arg(long, group = "form")]
        json: bool,
        /// Every figure as CSV, for spreadsheets: a row for each, with its repeats and their spread
        #[arg(long, group = "form")]
        csv: bool,
        /// The report as Markdown, for documents and tickets
        #[arg(long, group = "form")]
        markdown: bool,
        /// Writes its plots and its page (index.html) again and prints the page's path
        #[arg(long, group = "form")]
        html: bool,
    },
    /// Lays two runs of the same experiment side by side, and says what differs between their
    /// machines, versions and settings
    #[command(
        after_help = "Example:\n  ironswan lab compare-runs /var/tmp/ironswan/line-1 /var/tmp/ironswan/line-2"
    )]
    CompareRuns {
        /// The folder of the first run
        a: PathBuf,
        /// The folder of the second run
        b: PathBuf,
        /// The comparison as JSON
        #[arg(long)]
        json: bool,
    },
    /// The JSON Schema of a document, by the name that stands in it; without a name, all names
    #[command(after_help = "Example:\n  ironswan lab schema ironswan.lab/1")]
    Schema {
        /// Name of the schema, for instance ironswan.lab/1
        name: Option<String>,
    },
    /// Two gateways in network namespaces on this machine, IKEv2, TCP through ESP, a table; under a
    /// minute (root)
    #[command(after_help = "Example:\n  ironswan demo")]
    Demo(Demo),
    /// Plans capacity: the needs of a link and the rates that this machine carries, from a model
    /// fitted to measurements on this machine
    #[command(
        after_help = "Examples:\n  ironswan plan --calibrate\n  ironswan plan --users 200 --up 1M --down 5M --why\n  ironswan plan --this-machine --share 0.5\n  ironswan plan --link 1G \
        --mix imix --suite aes128gcm16 --tunnels 500\n  ironswan plan --links\n  ironswan plan --verify --out DIR\n\n--verify exits with 1 when a prediction misses its goal."
    )]
    Plan(Box<super::plan::Plan>),
}

#[derive(clap::Args, Debug)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A setting of ironswan's data plane (key=value of the section data), measured beside the
    /// defaults; several allowed
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) data: Vec<String>,
    /// Numbers of TCP connections
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 128))]
    pub(crate) streams: Vec<u32>,
    /// Rates to offer, Mbit/s over all connections, to the first number of streams in the first
    /// direction; 0 offers as much as goes
    #[arg(long, value_delimiter = ',', value_name = "MBPS", allow_negative_numbers = true, value_parser = within(0_u32, 1_000_000))]
    pub(crate) rates: Vec<u32>,
    /// Forms in which packets cross the links: offload, wire
    #[arg(long, value_delimiter = ',')]
    pub(crate) mode: Vec<String>,
    /// Which ways the payload flows: forward, reverse, both at once
    #[arg(long, value_delimiter = ',')]
    pub(crate) direction: Vec<String>,
    /// MTU of the hosts' routes, bytes
    #[arg(long, allow_negative_numbers = true, value_parser = within(576_u32, 1500))]
    pub(crate) inner_mtu: Option<u32>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Flood {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A setting of ironswan's data plane (key=value of the section data), measured beside the
    /// defaults; several allowed
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) data: Vec<String>,
    /// Bytes of UDP payload, 18 and more
    #[arg(long, value_delimiter = ',', value_name = "BYTES", allow_negative_numbers = true, value_parser = within(18_u32, 1472))]
    pub(crate) payload: Vec<u32>,
    /// Numbers of flows
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(1_u32, 1_000_000))]
    pub(crate) flows: Vec<u32>,
    /// Which processors the parts have: free, apart (each gateway has one of its own), own-core
    /// (the generator alone on the first; the gateways, all receiving, in software interrupts, and
    /// the receiver together on the second), own-core-threads (the same, but threads of the kernel
    /// poll the links and take turns with the gateways)
    #[arg(long, value_delimiter = ',')]
    pub(crate) placement: Vec<String>,
    /// Forms in which packets cross the links: offload, wire
    #[arg(long, value_delimiter = ',')]
    pub(crate) mode: Vec<String>,
    /// Largest losses, percent [default: 0.5,0.001]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(0.0, 49.9))]
    pub(crate) loss: Vec<f64>,
    /// Packets of a deciding trial [default: 1000000]
    #[arg(long, allow_negative_numbers = true, value_parser = within(1000_u64, 100_000_000))]
    pub(crate) packets: Option<u64>,
    /// A throughput is known to within this many percent [default: 5]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = within(0.1, 50.0))]
    pub(crate) width: Option<f64>,
    /// Length of a short trial of the search, seconds; those of the curve take twice as long
    /// [default: 1]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds(0.01, 600.0))]
    pub(crate) probe: Option<Duration>,
    /// Multiples of the throughput to offer [default: 1,2,4]
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_parser = within(0.01, 100.0))]
    pub(crate) multiples: Vec<f64>,
    /// MTU of the hosts' routes, bytes
    #[arg(long, allow_negative_numbers = true, value_parser = within(576_u32, 1500))]
    pub(crate) inner_mtu: Option<u32>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        Args::command().debug_assert();
        let mut left: Vec<clap::Command> = Args::command().get_subcommands().cloned().collect();
        let mut seen = 0;
        while let Some(c) = left.pop() {
            let help = c.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", c.get_name());
            left.extend(c.get_subcommands().cloned());
            seen += 1;
        }
        assert!(seen >= 12);
    }
}
