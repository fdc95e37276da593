//! Options that the laboratory's experiments share.

use std::path::PathBuf;
use std::time::Duration;

use ironswan_lab::dut::{Encap, Suite};
use ironswan_lab::topology::Congestion;

#[derive(clap::Args, Debug)]
pub(crate) struct Common {
    /// Systems under test: plain, ironswan, wireguard-go, wireguard-go-tailscale, strongswan, strongswan-kernel, libreswan,
    /// kernel-wireguard, openvpn, or all for those installed
    #[arg(long, value_delimiter = ',')]
    pub(crate) dut: Vec<String>,
    /// Encapsulation where there is the choice: yes (udp), no (raw), both, or a list
    #[arg(long)]
    pub(crate) encap: Option<String>,
    /// Algorithms: ESP or ESP/IKE, for instance aes128-sha256; or a list of them
    #[arg(long)]
    pub(crate) suite: Option<String>,
    /// Length of one measurement, seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Repeats of each measurement
    #[arg(long)]
    pub(crate) repeats: Option<u32>,
    /// Folder for the run
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The ironswan program to test [default: this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// The record as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// A minute at most: fewer cells, shorter measurements, fewer repeats
    #[arg(long)]
    pub(crate) quick: bool,
    /// Some seconds: shows that everything works, its figures mean nothing
    #[arg(long)]
    pub(crate) smoke: bool,
    /// A CPU soaker beside the traffic: shares of the processors by it as well as by the kernel's accounting
    #[arg(long)]
    pub(crate) soaker: bool,
    /// Congestion control of the boxes' TCP, whatever the machine's is [default: cubic]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<Congestion>,
}

impl Common {
    /// The same for an experiment that has no window of traffic for a soaker to run beside, or has one of its own.
    pub(crate) fn no_soaker(self) -> Result<Self, String> {
        if self.soaker {
            return Err("--soaker: not in this experiment; it is for line, flood, rfc2544, fragments, compare, lowend, topologies, transfer, \
                        compression, tunnels, profile and plan"
                .into());
        }
        Ok(self)
    }

    /// The same for an experiment whose traffic is not TCP.
    pub(crate) fn no_tcp(self) -> Result<Self, String> {
        if self.congestion.is_some() {
            return Err("--congestion: not in this experiment, which carries no TCP; it is for line, compare, lowend, topologies, transfer, \
                        compression, background and profile"
                .into());
        }
        Ok(self)
    }

    /// As the laboratory wants them.
    pub(crate) fn options(self) -> Result<ironswan_lab::Common, String> {
        let mut o = ironswan_lab::Common {
            duts: self.dut,
            repeats: self.repeats,
            out: self.out,
            quick: self.quick,
            smoke: self.smoke,
            soaker: self.soaker,
            congestion: self.congestion,
            ..ironswan_lab::Common::default()
        };
        if let Some(encap) = self.encap {
            o.encaps = Encap::list(&encap)?;
        }
        if let Some(suite) = self.suite {
            o.dut_options.suites = Suite::list(&suite)?;
        }
        o.dut_options.ironswan = self.program;
        if let Some(secs) = self.duration {
            let duration = Duration::try_from_secs_f64(secs).map_err(|e| format!("--duration: {e}"))?;
            o.duration = Some(duration);
        }
        if o.repeats == Some(0) {
            return Err("--repeats: at least one".into());
        }
        Ok(o)
    }
}
