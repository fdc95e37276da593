//! One trial: a fresh line, one system under test, one load, one measuring window; everything
//! removed again.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::campaign::Campaign;
use crate::clock;
use crate::dut::Dut;
use crate::error::LabError;
use crate::load::frame::Family;
use crate::load::{Direction, Iperf3, TcpLoad, TcpReport};
use crate::measure::soaker::Busy;
use crate::measure::{self, Window, WindowPlan};
use crate::record::factors;
use crate::report::Warning;
use crate::topology::{Line, LineSpec, Mode, Owner};

/// The traffic of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment) struct Load {
    /// How packets cross the links.
    pub(super) mode: Mode,
    /// TCP connections at once.
    pub(super) streams: u32,
    /// Which way.
    pub(super) direction: Direction,
    /// Payload offered, 10^6 bits per second over all streams; as fast as it goes when absent.
    pub(super) rate_mbps: Option<u32>,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.streams == 1 { "" } else { "s" };
        write!(f, "{} mode, {} stream{s}, {}", self.mode, self.streams, self.direction)?;
        self.rate_mbps.map_or(Ok(()), |rate| write!(f, ", at {rate} Mb/s"))
    }
}

/// One trial: a fresh line, one system, one load.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    /// The system under test.
    pub(super) dut: String,
    pub(super) load: Load,
    /// Time to start the system and bring the tunnel up, seconds.
    setup_seconds: f64,
    /// Counters in the window.
    pub(super) window: Window,
    /// The report of the load generator.
    tcp: TcpReport,
}

impl Trial {
    /// Values that were counted or timed, by the name of the measure. A value that could not be
    /// measured is not a number; a cost whose time was too short is
    /// [`TOO_SHORT`](crate::measure::cost::TOO_SHORT).
    fn measures(&self) -> Vec<(&'static str, f64)> {
        let w = &self.window;
        let largest = w.gateways.iter().filter_map(|g| g.resident_kib).max();
        let own = [
            ("gbps", w.gbps),
            ("machine_ns_per_byte", w.machine_cost()),
            ("gateways_ns_per_byte", w.gateways_ns_per_byte),
            ("softirq_share", w.softirq()),
            ("bytes_per_buffer", w.bytes_per_buffer),
            ("setup_seconds", self.setup_seconds),
            ("resident_kib", largest.map_or(f64::NAN, |kib| kib as f64)),
            ("retransmits", self.tcp.retransmits.map_or(f64::NAN, |n| n as f64)),
        ];
        own.into_iter().chain(Busy::measures(w.busy.as_ref())).collect()
    }
}

/// Left out at the beginning of the load.
const WARM_UP: Duration = Duration::from_secs(1);
/// Added to the load's length: it must outlast the window, whatever connecting took.
const SLACK: Duration = Duration::from_millis(700);

/// Parts of a trial: system, load, window.
pub(in crate::experiment) struct TrialPlan<'a> {
    pub(super) owner: &'a Owner,
    pub(super) dut: &'a dyn Dut,
    pub(super) load: Load,
    pub(super) repeat: u32,
    pub(super) inner_mtu: u32,
    pub(super) duration: Duration,
}

impl TrialPlan<'_> {
    /// About what one takes with a window of `duration`.
    pub(in crate::experiment) fn guess(duration: Duration) -> Duration {
        // iperf3 counts in whole seconds.
        let load = (WARM_UP + duration + SLACK).as_millis().div_ceil(1000);
        Duration::from_secs(u64::try_from(load).unwrap_or(u64::MAX)) + Duration::from_millis(600)
    }

    /// Makes it, and takes it down in the campaign. Returns the trial and the commands that were
    /// run for it.
    pub(super) fn run(&self, campaign: &mut Campaign) -> Result<(Trial, Vec<String>), LabError> {
        let (name, began) = (self.dut.name(), campaign.elapsed());
        let stage = |campaign: &Campaign, what: &str| campaign.says(&format!("{name}, {what}"));
        stage(campaign, "four boxes in a line")?;
        let line = Line::build(self.owner, LineSpec { mode: self.load.mode, inner_mtu: self.inner_mtu })?;
        let dir = self.directory(&line)?;
        stage(campaign, "starting")?;
        let start = clock::now();
        let mut running = self.dut.start(&line.sites(), &dir)?;
        let setup = clock::now() - start;
        let load = TcpLoad {
            streams: self.load.streams,
            direction: self.load.direction,
            rate_mbps: self.load.rate_mbps,
            duration: WARM_UP + self.duration + SLACK,
            family: Family::V4,
        };
        let mut traffic = Iperf3::start(&line, load, &dir)?;
        stage(campaign, "measuring")?;
        let plan = WindowPlan {
            direction: self.load.direction,
            mode: self.load.mode,
            family: Family::V4,
            warm_up: WARM_UP,
            duration: self.duration,
            soak: campaign.soak().map(|soak| soak.as_ref()),
        };
        let window = measure::measure(&line, plan, running.tunnel_device().as_deref(), || {
            running.alive()?;
            traffic.alive()
        })
        .map_err(|e| running.failed(&name, e))?;
        stage(campaign, "reading the books")?;
        let (json, tcp) = traffic.finish().map_err(|e| running.failed(&name, e))?;
        let description = running.describe()?;
        let killed = running.stop();
        let commands = line.journal().lines();
        let trial =
            Trial { dut: name.clone(), load: self.load, setup_seconds: setup.as_secs_f64(), window, tcp };
        let files = self.keep(campaign, line.number(), &dir, (&json, &description, &trial.window))?;
        drop(line);
        // Of no more use, and it holds the keys.
        let _ = fs::remove_dir_all(&dir);
        if !killed.is_empty() {
            campaign.doubt(Warning::Killed { dut: name.clone(), processes: killed });
        }
        let of = factors([("dut", &name), ("load", &self.load.to_string())]);
        campaign.sample(of, self.repeat, began, &trial.measures(), files);
        Ok((trial, commands))
    }

    fn directory(&self, line: &Line) -> Result<PathBuf, LabError> {
        let dir = self.owner.dir().join(line.number().to_string());
        fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        Ok(dir)
    }

    /// Keeps what was printed and counted: the report of iperf3, the system's own status, the
    /// counters of the window, logs and configurations. Returns the names of the files.
    fn keep(
        &self,
        campaign: &Campaign,
        number: u32,
        dir: &Path,
        (iperf3, description, window): (&serde_json::Value, &str, &Window),
    ) -> Result<Vec<String>, LabError> {
        let stem = format!("{number:03}-{}", self.dut.name());
        let counters = serde_json::to_string_pretty(window)
            .map_err(|e| LabError::Measurement(format!("the window cannot be written as JSON: {e}")))?;
        let mut files = vec![
            campaign.keep(&format!("{stem}.iperf3.json"), iperf3.to_string().as_bytes())?,
            campaign.keep(&format!("{stem}.tunnel.txt"), format!("{description}\n").as_bytes())?,
            campaign.keep(&format!("{stem}.window.json"), format!("{counters}\n").as_bytes())?,
        ];
        for gateway in ["g1", "g2"] {
            if let Ok(log) = fs::read(dir.join(format!("{gateway}.log"))) {
                files.push(campaign.keep(&format!("{stem}.{gateway}.log"), &log)?);
            }
            for configuration in [format!("{gateway}/swanctl.conf"), format!("{gateway}.swanctl.conf")] {
                if let Ok(text) = fs::read_to_string(dir.join(configuration)) {
                    let name = format!("{stem}.{gateway}.swanctl.conf");
                    files.push(campaign.keep(&name, without_secrets(&text).as_bytes())?);
                }
            }
        }
        Ok(files)
    }
}

/// A configuration as the record keeps it: the value of every `secret` left out, for runs are shown
/// to others.
fn without_secrets(configuration: &str) -> String {
    configuration
        .lines()
        .map(|line| match line.split_once('=') {
            Some((key, _)) if key.trim() == "secret" => format!("{key}= (left out)\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::counters::{CpuTicks, LinkCounters};
    use crate::measure::{Gateway, Sample, TunnelDevice};

    /// A trial of two seconds with one stream in offload mode.
    pub(in super::super) fn trial(dut: &str, gbps: f64, ns: f64) -> Trial {
        let tunnel = dut != "plain";
        let gateway = |node: &str, kib| Gateway {
            node: node.into(),
            process: "ironswan".into(),
            cpu_ns: 1_000_000_000,
            resident_kib: Some(kib),
        };
        let bytes = (gbps * 2.5e8) as u64;
        Trial {
            dut: dut.into(),
            load: Load { mode: Mode::Offload, streams: 1, direction: Direction::Forward, rate_mbps: None },
            setup_seconds: 0.25,
            window: Window {
                seconds: 2.0,
                bytes,
                buffers: 1000,
                payload_bytes: bytes,
                gbps,
                bytes_per_buffer: 60_000.0,
                machine_ns_per_byte: ns,
                gateways_ns_per_byte: if tunnel { 1.0 } else { 0.0 },
                softirq_share: 0.25,
                busy_share: 0.9,
                busy: None,
                other_load_share: 0.0,
                backlog_drops: 0,
                cpu: CpuTicks::default(),
                ticks_per_second: 100,
                gateways: if tunnel { vec![gateway("g1", 9_000), gateway("g2", 10_240)] } else { vec![] },
                links: BTreeMap::from([("b.eth0".to_string(), LinkCounters::default())]),
                tunnel: tunnel
                    .then(|| TunnelDevice { name: "ipsec0".into(), counters: LinkCounters::default() }),
                samples: vec![Sample { t: 2.0, bytes, buffers: 1000, busy_ticks: 360 }],
            },
            tcp: TcpReport { retransmits: Some(0), payload_gbps: gbps },
        }
    }

    #[test]
    fn a_load_is_named_as_tables_show_it() {
        let load = trial("plain", 10.0, 1.0).load;
        assert_eq!(load.to_string(), "offload mode, 1 stream, a to b");
        let limited = Load { streams: 4, rate_mbps: Some(500), ..load };
        assert_eq!(limited.to_string(), "offload mode, 4 streams, a to b, at 500 Mb/s");
    }

    #[test]
    fn the_measures_of_a_trial_are_those_of_its_window_and_the_larger_gateway() {
        let measures: BTreeMap<_, _> = trial("ironswan", 6.0, 2.0).measures().into_iter().collect();
        assert_eq!((measures["gbps"], measures["machine_ns_per_byte"]), (6.0, 2.0));
        assert_eq!((measures["resident_kib"], measures["setup_seconds"]), (10_240.0, 0.25));
        assert!(trial("plain", 6.0, 2.0).measures().iter().any(|(k, v)| *k == "resident_kib" && v.is_nan()));
    }

    #[test]
    fn the_record_of_a_configuration_has_no_secret() {
        let kept =
            without_secrets("secrets {\n  ike-1 {\n    secret = \"swordfish\"\n    id-1 = g1\n  }\n}\n");
        assert_eq!(kept, "secrets {\n  ike-1 {\n    secret = (left out)\n    id-1 = g1\n  }\n}\n");
    }
}
