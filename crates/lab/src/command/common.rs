//! Options that the laboratory's experiments share.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::dut::{Encap, Suite};
use crate::topology::Congestion;

/// Reads a number between two: of every option that is one, so that nonsense is refused before
/// anything else is done.
pub(crate) fn within<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        // A text that is no number, and a number outside the range, get the same message.
        let number = text.parse().ok().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| format!("it is a number from {least} to {most}"))
    }
}

/// The same for a time in seconds.
pub(crate) fn seconds(least: f64, most: f64) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| within(least, most)(text).map(Duration::from_secs_f64)
}

#[derive(clap::Args, Debug)]
pub(crate) struct Common {
    /// Systems under test: plain, ironswan, wireguard-go, wireguard-go-tailscale,
    /// strongswan-libipsec, strongswan-kernel, libreswan, kernel-wireguard, openvpn, or all for
    /// those installed
    #[arg(long, value_delimiter = ',')]
    pub(crate) dut: Vec<String>,
    /// Encapsulation where there is the choice: yes (udp), no (raw), both, or a list
    #[arg(long)]
    pub(crate) encap: Option<String>,
    /// Algorithms: ESP or ESP/IKE, for instance aes128-sha256; or a list of them
    #[arg(long)]
    pub(crate) suite: Option<String>,
    /// Length of one measurement, seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds(0.005, 3600.0))]
    pub(crate) duration: Option<Duration>,
    /// Repeats of each measurement
    #[arg(long, allow_negative_numbers = true, value_parser = within(1_u32, 1000))]
    pub(crate) repeats: Option<u32>,
    /// Folder for the run
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The ironswan program to test [default: the one that started this, beside it, or on PATH]
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
    /// A CPU soaker beside the traffic: shares of the processors by it as well as by the kernel's
    /// accounting
    #[arg(long)]
    pub(crate) soaker: bool,
    /// Congestion control of the boxes' TCP, whatever the machine's is [default: cubic, or reno
    /// where this kernel keeps cubic from namespaces]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<Congestion>,
}

impl Common {
    /// As the laboratory wants them.
    pub(crate) fn options(self) -> Result<crate::Common, String> {
        let mut o = crate::Common {
            duts: self.dut,
            duration: self.duration,
            repeats: self.repeats,
            out: self.out,
            quick: self.quick,
            smoke: self.smoke,
            soaker: self.soaker,
            congestion: self.congestion,
            ..crate::Common::default()
        };
        if let Some(encap) = self.encap {
            o.encaps = Encap::list(&encap)?;
        }
        if let Some(suite) = self.suite {
            o.dut_options.suites = Suite::list(&suite)?;
        }
        o.dut_options.ironswan = self.program;
        Ok(o)
    }
}
