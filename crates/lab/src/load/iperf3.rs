//! TCP by iperf3: a server on b, a client on a, as processes. iperf3 stands for the ttcp of the
//! historical experiments. The figures of iperf3 are kept as they are; those of the laboratory come
//! from the kernel's counters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Direction;
use super::frame::Family;
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::measure::counters;
use crate::process::{self, Process};
use crate::topology::{Line, Node, address, ipv6_text};

const PORT: u16 = 5201;

/// Load to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpLoad {
    /// TCP connections at once.
    pub streams: u32,
    /// Which way.
    pub direction: Direction,
    /// Payload to offer over all connections, 10^6 bits per second; as much as they take when
    /// absent.
    pub rate_mbps: Option<u32>,
    /// How long.
    pub duration: Duration,
    /// Version of IP.
    pub family: Family,
}

/// A client and a server at work; dropping it ends both.
#[derive(Debug)]
pub struct Iperf3 {
    client: Process,
    server: Process,
    report: PathBuf,
    seconds: u64,
}

/// The report of iperf3 at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpReport {
    /// Segments sent again over the whole test; absent when the kernel does not say.
    pub retransmits: Option<u64>,
    /// Bits per second of payload that arrived, over the whole test with its slow start, in units
    /// of 10^9.
    pub payload_gbps: f64,
}

impl Iperf3 {
    /// Programs and kernel features that this machine lacks, each with its remedy.
    pub fn lacks() -> Vec<Remedy> {
        match process::find("iperf3") {
            Some(_) => vec![],
            None => vec![Remedy::new("`iperf3` is not installed", "apt-get install iperf3")],
        }
    }

    /// `iperf 3.12 ...`
    pub fn version() -> Option<String> {
        let done = process::run_regardless(&["iperf3", "--version"], Duration::from_secs(5)).ok()?;
        Some(done.stdout.lines().next()?.trim().to_string())
    }

    /// Starts the load on `line`, keeping its output under `dir`.
    pub fn start(line: &Line, load: TcpLoad, dir: &Path) -> Result<Self, LabError> {
        let journal = line.journal();
        let (a, b) = (line.node(Node::A), line.node(Node::B));
        let mut server = Process::start(
            journal,
            "iperf3 server",
            &b.exec(&["iperf3", "-s", "-1", "-p", &PORT.to_string()]),
            &dir.join("iperf3-server.txt"),
        )?;
        let up = interrupt::wait_until(Duration::from_secs(5), || {
            // The server listens on IPv6 with IPv4 mapped, where there is IPv6.
            let listens = |file: &str| b.read(file).is_ok_and(|t| counters::listens(&t, PORT));
            Ok(server.ended().is_some()
                || listens("/proc/thread-self/net/tcp6")
                || listens("/proc/thread-self/net/tcp"))
        })?;
        if !up || server.ended().is_some() {
            let tail = server.tail(3).lines.join(" ");
            return Err(LabError::Measurement(format!("the iperf3 server did not start: {tail}")));
        }
        // Whole seconds only.
        let seconds = load.duration.as_millis().div_ceil(1000).max(1) as u64;
        let (t, n, errors) = (seconds.to_string(), load.streams.to_string(), dir.join("iperf3-client.txt"));
        let out = dir.join("iperf3.json");
        // iperf3 appends to its log; two reports in one file are none.
        let _ = fs::remove_file(&out);
        let out_name = out.to_string_lossy().into_owned();
        let port = PORT.to_string();
        let to = match load.family {
            Family::V4 => address::B.to_string(),
            Family::V6 => ipv6_text(address::B).unwrap_or_default(),
        };
        let mut argv = vec!["iperf3", "-c", &to, "-p", &port, "-t", &t, "-P", &n];
        argv.extend(["-J", "--logfile", &out_name, "--connect-timeout", "5000"]);
        // iperf3 wants the rate of each connection.
        let rate =
            load.rate_mbps.map(|r| (u64::from(r) * 1_000_000 / u64::from(load.streams.max(1))).to_string());
        if let Some(rate) = &rate {
            argv.extend(["-b", rate.as_str()]);
        }
        match load.direction {
            Direction::Forward => {}
            Direction::Reverse => argv.push("-R"),
            Direction::Both => argv.push("--bidir"),
        }
        let client = Process::start(journal, "iperf3 client", &a.exec(&argv), &errors)?;
        Ok(Self { client, server, report: out, seconds })
    }

    /// An error once one of the two has ended before its time.
    pub fn alive(&mut self) -> Result<(), LabError> {
        // A client whose server is gone ends, too.
        let server = self.server.ended().filter(|status| !status.success());
        let ended = server.map(|status| ("iperf3 server", status));
        match ended.or_else(|| Some(("iperf3 client", self.client.ended()?))) {
            Some((end, status)) => Err(self.stopped(end, status)),
            None => Ok(()),
        }
    }

    /// Waits for its end and reads its report: iperf3's own JSON, and what is taken from it.
    pub fn finish(mut self) -> Result<(Value, TcpReport), LabError> {
        let limit = Duration::from_secs(self.seconds + 10);
        let Some(status) = self.client.wait(limit)? else {
            return Err(LabError::Measurement("the iperf3 client did not end in time".into()));
        };
        let json = self.report();
        // `-1`: it ends after one test.
        let server = self.server.wait(Duration::from_secs(2))?;
        if let Some(status) = server.filter(|s| !s.success() && json.is_err()) {
            return Err(self.stopped("iperf3 server", status));
        }
        let json = json.map_err(|_| self.stopped("iperf3 client", status))?;
        let report = TcpReport::of(&json)
            .ok_or_else(|| LabError::Measurement("iperf3's report lacks the sums of the test".into()))?;
        Ok((json, report))
    }

    /// One of the two has ended so, and what iperf3 says of it.
    fn stopped(&self, end: &str, status: ExitStatus) -> LabError {
        let said = self.report().err().map(|why| format!(": {why}")).unwrap_or_default();
        LabError::Measurement(format!("the load stopped: the {end} ended ({status}){said}"))
    }

    /// The report, or why there is none.
    fn report(&self) -> Result<Value, String> {
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        let json: Value = serde_json::from_str(&text).map_err(|_| {
            format!("it left no report {}", self.client.tail(3).lines.join(" ")).trim().to_string()
        })?;
        match json.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_string()),
            None => Ok(json),
        }
    }
}

impl TcpReport {
    /// From iperf3's JSON; the sums of both directions where there are two.
    pub fn of(json: &Value) -> Option<Self> {
        let end = json.get("end")?;
        let bits = |name: &str| end.get(name)?.get("bits_per_second")?.as_f64();
        let payload = bits("sum_received")? + bits("sum_received_bidir_reverse").unwrap_or(0.0);
        let retransmits = end.get("sum_sent").and_then(|s| s.get("retransmits")).and_then(Value::as_u64);
        Some(Self { retransmits, payload_gbps: payload / 1e9 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_both_directions_are_added() {
        let json = serde_json::json!({ "end": {
            "sum_sent": { "bits_per_second": 2.5e9, "retransmits": 7 },
            "sum_received": { "bits_per_second": 2.0e9 },
            "sum_received_bidir_reverse": { "bits_per_second": 1.0e9 },
        }});
        let expected = TcpReport { retransmits: Some(7), payload_gbps: 3.0 };
        assert_eq!(TcpReport::of(&json), Some(expected));
        assert_eq!(TcpReport::of(&serde_json::json!({ "end": {} })), None);
    }
}
