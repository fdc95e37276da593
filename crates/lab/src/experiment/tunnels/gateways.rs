//! Two gateways with thousands of tunnels between them, started and watched as processes: what they
//! say in their logs is how far they are, which costs them nothing that they would not do anyway.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::config::{Config, INNER, batch};
use super::growth::Moment;
use crate::clock;
use crate::dut::{LIBIPSEC, ironswan, strongswan, vici};
use crate::error::{LabError, LogTail};
use crate::interrupt;
use crate::measure::counters::{process_ns, resident_kib};
use crate::process::{self, Process};
use crate::topology::{Line, LineSpec, Mode, Netns, Node, Owner};

/// Between two looks at the logs.
const LOOK: Duration = Duration::from_millis(5);
/// Time that a gateway may take to load thousands of connections, and a command to set thousands of
/// addresses.
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// The system whose gateways are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum System {
    /// `ironswan run` of this program.
    IronSwan(String),
    /// charon with kernel-libipsec.
    StrongSwan,
}

impl System {
    /// Name in tables.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::IronSwan(_) => "ironswan",
            Self::StrongSwan => LIBIPSEC,
        }
    }
}

/// Progress of a gateway, as read from its log so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    /// The daemon is ready.
    pub ready: bool,
    /// IKE_SAs that were begun.
    pub begun: u64,
    /// CHILD_SAs that were established.
    pub established: u64,
}

impl Said {
    /// Takes a line in; the phrases are charon's, which IronSwan has, too.
    fn line(&mut self, line: &str) {
        self.ready |= line.contains(" ready: ");
        self.begun += u64::from(line.contains("initiating IKE_SA "));
        self.established += u64::from(line.contains("CHILD_SA ") && line.contains(" established with SPIs "));
    }
}

/// A gateway at work.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Process,
    log: File,
    rest: Vec<u8>,
    said: Said,
    /// When its time began, and the processor time that it had used by then, nanoseconds.
    since: (Instant, u64),
}

impl Gateway {
    /// A process whose time began at `start`, with nothing done.
    fn new(process: Process, start: Instant) -> Result<Self, LabError> {
        let path = process.log();
        let log = File::open(path).map_err(LabError::io(format!("opening {}", path.display())))?;
        Ok(Self { process, log, rest: Vec::new(), said: Said::default(), since: (start, 0) })
    }

    /// Reads new lines of the log, and returns the progress until now. An error once the gateway
    /// has ended.
    pub(super) fn said(&mut self) -> Result<Said, LabError> {
        self.log.read_to_end(&mut self.rest).map_err(LabError::io("reading a gateway's log"))?;
        let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for line in self.rest[..whole].split(|b| *b == b'\n') {
            self.said.line(&String::from_utf8_lossy(line));
        }
        self.rest.drain(..whole);
        if let Some(status) = self.process.ended() {
            return Err(self.failed(format!("the process of {} ended ({status})", self.process.name())));
        }
        Ok(self.said)
    }

    /// When its time began.
    pub(super) fn began(&self) -> Instant {
        self.since.0
    }

    /// The error of this gateway, with the end of its log.
    fn failed(&self, why: String) -> LabError {
        LabError::Dut { dut: self.process.name().into(), why, logs: vec![self.last_lines()] }
    }

    /// The end of its log, for an error.
    pub(super) fn last_lines(&self) -> LogTail {
        self.process.tail(15)
    }

    /// The end of its log.
    pub(super) fn tail(&self) -> String {
        self.process.tail(200).lines.join("\n") + "\n"
    }

    /// Processor time of its threads, nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        process_ns(self.process.id())
    }

    /// Resident memory of the gateway, KiB.
    pub(super) fn kib(&self) -> f64 {
        resident_kib(self.process.id()).map_or(f64::NAN, |k| k as f64)
    }

    /// Ends it; true when it ended by itself in time.
    pub(super) fn end(self) -> bool {
        process::end_all(&mut [self.process], Duration::from_secs(30)).is_empty()
    }
}

/// The line, prepared for tunnels, and where the gateways' files are. The gateways have to be
/// dropped first.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) line: Line,
    dir: PathBuf,
    system: System,
    starts: u32,
}

impl Ground {
    /// Builds it and writes the configurations of both gateways.
    pub(super) fn new(owner: &Owner, system: &System, config: &Config<'_>) -> Result<Self, LabError> {
        let line = Line::build(owner, LineSpec { mode: Mode::Offload, inner_mtu: 1400 })?;
        let dir = owner.dir().join(line.number().to_string());
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(LabError::io(format!("creating {}", dir.display())))?;
        let ground = Self { line, dir, system: system.clone(), starts: 0 };
        for side in [0, 1] {
            let netns = ground.netns(side);
            // A hub has one address, and the peers are not a gateway.
            let tunnels = if config.hub { 0 } else { config.tunnels };
            process::run_with(
                ground.line.journal(),
                &["ip", "-n", netns.name(), "-batch", "-"],
                &batch(side, tunnels),
                READY_TIMEOUT,
            )?;
            let file = ground.conf(side);
            let files = config.files(side);
            // strongSwan has never more than one file.
            let more = ground.folder(side).join("conf.d");
            fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(&more)
                .map_err(LabError::io(format!("creating {}", more.display())))?;
            for (number, text) in files.iter().enumerate().skip(1) {
                ironswan::write_private(&more.join(format!("{number}.conf")), text)?;
            }
            if let Some(credentials) = config.credentials {
                credentials.write(side, config.tunnels, &ground.folder(side))?;
            }
            ironswan::write_private(&file, files.first().map_or("", String::as_str))?;
        }
        ground.line.ip(Node::B, &["route", "add", "local", INNER[1], "dev", "lo"])?;
        Ok(ground)
    }

    /// The box of a gateway.
    pub(super) fn netns(&self, side: usize) -> &Netns {
        self.line.node(if side == 0 { Node::G1 } else { Node::G2 })
    }

    fn name(side: usize) -> &'static str {
        if side == 0 { "g1" } else { "g2" }
    }

    /// The folder of a gateway's configuration, certificates and keys.
    fn folder(&self, side: usize) -> PathBuf {
        self.dir.join(Self::name(side))
    }

    fn conf(&self, side: usize) -> PathBuf {
        self.folder(side).join("swanctl.conf")
    }

    /// Starts a gateway and does not wait for it. What initiates begins as soon as it can. With
    /// strongSwan, also the process that loads its connections. An IronSwan's time begins with its
    /// process, a strongSwan's when it begins to load its connections into the daemon, which
    /// answers by then.
    pub(super) fn start(&mut self, side: usize) -> Result<(Gateway, Option<Process>), LabError> {
        self.starts += 1;
        let (name, netns, journal) = (Self::name(side), self.netns(side), self.line.journal());
        let log = self.dir.join(format!("{name}-{}.log", self.starts));
        let start = clock::now();
        match &self.system {
            System::IronSwan(program) => {
                let (folder, uri) = (self.folder(side), strongswan::uri(&self.dir, name));
                let argv = [program, "run", "--config", &folder.to_string_lossy(), "--vici", &uri]
                    .map(ToString::to_string);
                let process = Process::start(journal, name, &netns.exec(&argv), &log)?;
                Ok((Gateway::new(process, start)?, None))
            }
            System::StrongSwan => {
                let process = strongswan::start_charon(journal, netns, name, &self.dir, &log)?;
                let mut gateway = Gateway::new(process, start)?;
                let socket = strongswan::socket(&self.dir, name);
                wait(&mut gateway, |_| vici::answers(&socket))?;
                let (file, uri) = (self.conf(side), strongswan::uri(&self.dir, name));
                let argv = ["swanctl", "--load-all", "--file", &file.to_string_lossy(), "--uri", &uri]
                    .map(ToString::to_string);
                let log = self.dir.join(format!("{name}-{}.swanctl.log", self.starts));
                gateway.since = (clock::now(), gateway.cpu_ns());
                Ok((gateway, Some(Process::start(journal, "swanctl", &argv, &log)?)))
            }
        }
    }

    /// Starts a gateway that waits for the other, until it is ready.
    pub(super) fn start_responder(&mut self, side: usize) -> Result<Gateway, LabError> {
        let (mut gateway, loading) = self.start(side)?;
        match loading {
            None => wait(&mut gateway, |said| said.ready)?,
            Some(mut loading) => match loading.wait(READY_TIMEOUT)? {
                Some(status) if status.success() => {}
                _ => {
                    let why = "swanctl --load-all did not end as it should".into();
                    let logs = vec![loading.tail(15), gateway.last_lines()];
                    return Err(LabError::Dut { dut: gateway.process.name().into(), why, logs });
                }
            },
        }
        Ok(gateway)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // The files hold keys.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until a gateway is as far as `done` says.
pub(super) fn wait(gateway: &mut Gateway, mut done: impl FnMut(&Said) -> bool) -> Result<(), LabError> {
    let there = interrupt::wait_until(READY_TIMEOUT, || gateway.said().map(|said| done(&said)))?;
    if there {
        Ok(())
    } else {
        Err(gateway.failed(format!("not ready within {} s", READY_TIMEOUT.as_secs())))
    }
}

/// Measurements while tunnels came up.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Counted from the beginning of the first gateway.
    pub moments: Vec<Moment>,
    /// When the initiator was ready, seconds.
    pub ready: Option<f64>,
}

/// Watches until `up` of the gateways is `tunnels`, or the time is over. `up` counts tunnels; time,
/// and processor time of the first of `gateways`, count from when that one's began, processor time
/// of the others from the call.
pub(super) fn watch(
    gateways: &mut [&mut Gateway],
    tunnels: u64,
    at_most: Duration,
    mut up: impl FnMut(&[Said]) -> Result<u64, LabError>,
) -> Result<Seen, LabError> {
    let mut seen = Seen::default();
    let mut before: Vec<u64> = gateways.iter().map(|g| g.cpu_ns()).collect();
    let mut start = clock::now();
    if let (Some(first), Some(cpu)) = (gateways.first(), before.first_mut()) {
        (start, *cpu) = first.since;
    }
    loop {
        let said = gateways.iter_mut().map(|g| g.said()).collect::<Result<Vec<Said>, LabError>>()?;
        let cpu: u64 = gateways.iter().zip(&before).map(|(g, b)| g.cpu_ns().saturating_sub(*b)).sum();
        let seconds = (clock::now() - start).as_secs_f64();
        let up = up(&said)?;
        if said.first().is_some_and(|s| s.ready) {
            seen.ready.get_or_insert(seconds);
        }
        seen.moments.push(Moment { seconds, up, cpu_ns: cpu as f64 });
        if up >= tunnels || seconds >= at_most.as_secs_f64() {
            return Ok(seen);
        }
        interrupt::pause(LOOK)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_did_before_it_was_watched_counts() {
        let dir = std::env::temp_dir().join(format!("ironlab-watch-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let log = dir.join("log");
        let argv = ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ' ready: '; sleep 9"];
        let process = Process::start(&process::Journal::default(), "x", &argv.map(String::from), &log);
        let mut gateway = Gateway::new(process.expect("a process"), clock::now()).expect("a gateway");
        wait(&mut gateway, |said| said.ready).expect("ready");
        let so_far = (clock::now() - gateway.since.0).as_secs_f64();
        let seen = watch(&mut [&mut gateway], 1, Duration::from_secs(9), |said| Ok(said.len() as u64));
        let first = seen.expect("seen").moments[0];
        assert!(first.seconds >= so_far && first.cpu_ns > 0.0, "{first:?}, {so_far} s");
        drop(gateway);
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn the_logs_of_both_systems_say_how_far_they_are() {
        let mut said = Said::default();
        for line in [
            "2026-11-22T11:34:40.138993Z info t0 initiating IKE_SA t0[1] to 10.96.0.1",
            "2026-11-22T11:34:40.139071Z info - ready: IronSwan 0.1.0 on ipsec0, VICI at unix:///x",
            "2026-11-22T11:59:06.668152Z info t5 CHILD_SA t5{4} established with SPIs c1ba0efd_i cd33c176_o and TS 10.128.1.245/32 === 10.192.1.245/32",
            "09[IKE] CHILD_SA net-1{1} established with SPIs c1ba0efd_i cd33c176_o and TS 10.1.0.0/24 === 10.2.0.0/24",
            "09[IKE] establishing CHILD_SA net-1{1}",
            "12[IKE] IKE_SA net-1[1] established between 192.0.2.1[a]...192.0.2.2[b]",
        ] {
            said.line(line);
        }
        assert_eq!(said, Said { ready: true, begun: 1, established: 2 });
    }
}
