//! Experiment E3, `lab transfer`: one large file by ftp, http, https, scp and sftp, and by ftp and
//! http over the tunnels, host to host and gateway to gateway, after Miltchev, Ioannidis and
//! Keromytis (2002). Real programs, all with AES-128-GCM.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path as File, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::runner::{self, Method, Schedule};
use super::stage::{Stage, Systems, on_stage, systems};
use crate::clock;
use crate::dut::Dut;
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::load::apps::{App, CIPHER, Server};
use crate::load::content::Content;
use crate::machine::has_room;
use crate::measure::cost::Account;
use crate::measure::soaker::Soak;
use crate::measure::{Meter, account_of};
use crate::process::Process;
use crate::record::{Better, Columns, Factors, Historical, Plot, Record, Table, View, Which, factors};
use crate::report::Warning;
use crate::topology::{HostToHost, Line, LineSpec, Mode, Netns, Owner, Topology};

const ABOUT: About = About {
    name: "transfer",
    number: "E3",
    question: "How long does a large file take by ftp, ftp over IPsec, scp, sftp and https, and who pays for it?",
    measures: &[
        (
            "elapsed_ns",
            "ns/byte",
            "ns",
            "from the start of the client to its end, per byte of the file",
            Better::Less,
        ),
        ("machine_ns", "machine", "ns", "non-idle time of all processors per byte", Better::Less),
        ("client_ns", "client", "ns", "time of the processes on the client's host per byte", Better::Less),
        ("server_ns", "server", "ns", "time of the processes on the server's host per byte", Better::Less),
        (
            "gateways_ns",
            "gateways",
            "ns",
            "time of the processes on gateways of their own per byte",
            Better::Less,
        ),
        ("mb_s", "MB/s", "10^6 bytes/s", "of the file", Better::More),
        ("bytes", "bytes", "bytes", "of the file; it arrived as it was", Better::Neither),
    ],
    baseline: Some(("method", "ftp")),
};

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct TransferOptions {
    /// Options that all experiments share.
    pub common: Common,
    /// Size of the file, 10^6 bytes.
    pub size_mb: Option<u32>,
}

const INNER_MTU: u32 = 1400;
const SEED: u64 = 2002;
const TOPOLOGIES: [&str; 2] = ["host-to-host", "gateway-to-gateway"];
/// Memory that is a file system.
const MEMORY: &str = "/dev/shm";

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Under the name of `owner` in `base`.
    fn create(owner: &Owner, base: &File, name: &str) -> Result<Self, LabError> {
        let own = owner.dir().file_name().unwrap_or_default().to_string_lossy();
        let path = base.join(format!("{own}-{name}"));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(LabError::io(format!("creating {}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Source and destination of the file.
struct Store {
    name: &'static str,
    scratch: Scratch,
}

impl Store {
    fn source(&self) -> PathBuf {
        self.scratch.0.join("file")
    }

    fn sink(&self) -> PathBuf {
        self.scratch.0.join("copy")
    }
}

/// Makes the experiment.
pub fn transfer(options: TransferOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let size = options.size_mb.unwrap_or(common.by_care(256, 32, 4));
    if !(1..=100_000).contains(&size) {
        return Err(LabError::Usage("the size must be between 1 and 100,000 MB".into()));
    }
    // Room for three copies: the file, the copy that the server reads, and the copy that the client
    // writes.
    has_room(&format!("--size {size}"), u64::from(size) * 3_000_000)?;
    let size = size as usize * 1_000_000;
    let repeats = common.repeats.unwrap_or(common.by_care(5, 1, 1));
    let (apps, missing): (Vec<App>, Vec<App>) = App::ALL.into_iter().partition(|a| a.lacks().is_empty());
    let lacks: Vec<(App, Remedy)> =
        missing.iter().flat_map(|a| a.lacks().into_iter().map(|r| (*a, r))).collect();
    let all = if apps.is_empty() { lacks.iter().map(|(_, r)| r.clone()).collect() } else { vec![] };
    let systems = systems(common, &common.dut_options, &["plain", "ironswan"], false, all)?;
    let topologies = common.by_care(&TOPOLOGIES[..], &TOPOLOGIES[..], &TOPOLOGIES[..1]);
    // A program that encrypts by itself goes without a tunnel.
    let own = |dut: &dyn Dut| -> Vec<App> {
        apps.iter().copied().filter(|a| dut.name() == "plain" || !a.encrypts()).collect()
    };
    let on = |topology| {
        let own = &own;
        systems.duts.iter().map(move |dut| Task { topology, dut: dut.as_ref(), apps: own(dut.as_ref()) })
    };
    let cells: Vec<Task<'_>> = topologies.iter().copied().flat_map(on).collect();
    let stores = common.by_care(2, 2, 1);
    let schedule = Schedule {
        about: ABOUT,
        common,
        samples: cells.iter().map(|task| task.apps.len()).sum::<usize>() * stores * repeats as usize,
        guess: Duration::from_millis(500),
        repeats,
        cells,
    };
    let work = Work { systems: &systems, lacks, esp: common.dut_options.esp(), size, stores, repeats };
    runner::run(schedule, &work)
}

/// All transfers over one system on one topology.
struct Task<'a> {
    topology: &'a str,
    dut: &'a dyn Dut,
    apps: Vec<App>,
}

/// The experiment under way.
struct Work<'a> {
    systems: &'a Systems,
    /// Programs that this machine lacks.
    lacks: Vec<(App, Remedy)>,
    /// Suites of ESP, for the record.
    esp: String,
    /// Bytes of the file.
    size: usize,
    /// Number of places that hold the file.
    stores: usize,
    repeats: u32,
}

/// The file in memory and in its places, and the name that they are under.
struct Files {
    data: Vec<u8>,
    stores: Vec<Store>,
    owner: Owner,
}

impl<'a> Method for Work<'a> {
    type Cell = Task<'a>;
    type Bench = Files;

    fn prepare(&self, c: &mut Campaign) -> Result<Files, LabError> {
        c.introduce(self.systems, self.repeats, None);
        for (app, r) in self.lacks.iter().cloned() {
            c.doubt(Warning::NotInstalled { dut: app.name().into(), lack: r.lack, action: r.action });
        }
        c.settings.insert("file".into(), format!("{} random bytes from seed {SEED}", self.size));
        c.settings.insert("cipher of https, scp and sftp".into(), CIPHER.into());
        c.settings.insert("ESP".into(), self.esp.clone());
        let owner = c.claim_for_tcp()?;
        let data = Content::Random.bytes(self.size, SEED);
        let bases = [("memory", File::new(MEMORY)), ("disk", owner.dir())];
        let stores: Vec<Store> = bases
            .into_iter()
            .take(self.stores)
            .map(|(name, base)| Ok(Store { name, scratch: Scratch::create(&owner, base, name)? }))
            .collect::<Result<_, LabError>>()?;
        for store in &stores {
            let source = store.source();
            fs::write(&source, &data).map_err(LabError::io(format!("writing {}", source.display())))?;
        }
        Ok(Files { data, stores, owner })
    }

    fn trial(
        &self,
        c: &mut Campaign,
        files: &mut Files,
        task: &Task<'a>,
        repeat: u32,
    ) -> Result<(), LabError> {
        c.says(&format!("{}, {}", task.topology, task.dut.name()))?;
        let built: Box<dyn Topology> = match task.topology {
            "host-to-host" => Box::new(HostToHost::build(&files.owner, INNER_MTU, None)?),
            _ => {
                let spec = LineSpec { mode: Mode::Offload, inner_mtu: INNER_MTU };
                Box::new(Line::build(&files.owner, spec)?)
            }
        };
        on_stage(c, &files.owner, built, task.dut, |c, stage| task.run(c, stage, files, repeat))
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

impl Task<'_> {
    fn run(
        &self,
        c: &mut Campaign,
        stage: &mut Stage<Box<dyn Topology>>,
        files: &Files,
        repeat: u32,
    ) -> Result<(), LabError> {
        for &app in &self.apps {
            let method = match self.dut.name().as_str() {
                "plain" => app.name().to_string(),
                system => format!("{} over {system}", app.name()),
            };
            for store in &files.stores {
                c.says(&format!("{}, {method}, {}", self.topology, store.name))?;
                let began = c.elapsed();
                let measures = one(stage, app, store, &files.data, c.soak())?;
                let f = factors([("topology", self.topology), ("method", &method), ("store", store.name)]);
                c.sample(f, repeat, began, &measures, vec![]);
            }
        }
        Ok(())
    }
}

/// One transfer.
fn one(
    stage: &mut Stage<Box<dyn Topology>>,
    app: App,
    store: &Store,
    data: &[u8],
    soak: Option<&Arc<Soak>>,
) -> Result<Vec<(&'static str, f64)>, LabError> {
    let dir = stage.dir().join(format!("{}-{}", app.name(), store.name));
    let _ = fs::remove_file(store.sink());
    let (topology, mut alive) = stage.parts();
    let path = topology.paths()[0];
    let journal = topology.journal().clone();
    let mut server = Server::start(app, path.to, &store.scratch.0, &dir, &journal)?;
    let argv = server.fetch(&path, &store.source(), &store.sink(), None);
    let parties = parties(topology);
    let (before, meter) = (server.children(), Meter::start(&parties, &[], soak)?);
    let start = clock::now();
    let mut client = Process::start(&journal, "client", &argv, &dir.join("client.log"))?;
    let at_most = Duration::from_secs(30 + data.len() as u64 / 1_000_000);
    let ended = interrupt::wait_until(at_most, || {
        // A client waits long for a gateway that is gone.
        alive()?;
        server.alive()?;
        over(client.id())
    })?;
    let seconds = (clock::now() - start).as_secs_f64();
    // A process that has ended keeps its CPU account until it is waited for.
    let client_seconds = account_of(client.id()).unwrap_or_default().seconds_since(Account::default());
    let used = meter.stop_late(&parties, "server", || server.settle(&before))?;
    let status = if ended { client.wait(Duration::from_secs(1))? } else { None };
    if !status.is_some_and(|s| s.success()) {
        let seconds = at_most.as_secs();
        let how = status.map_or(format!("did not end within {seconds} s"), |s| format!("ended ({s})"));
        return Err(server.failed(&client, &how, alive));
    }
    alive()?;
    server.alive()?;
    drop(server);
    let copy = fs::read(store.sink()).map_err(LabError::io("reading the copy that arrived"))?;
    if copy != data {
        return Err(LabError::Measurement(format!("{}: the copy is not the file", app.name())));
    }
    fs::remove_file(store.sink()).map_err(LabError::io("removing the copy"))?;
    let bytes = copy.len() as f64;
    let mut measures = vec![
        ("elapsed_ns", seconds * 1e9 / bytes),
        ("machine_ns", used.machine_cost() * 1e9 / bytes),
        ("client_ns", (used.party("client") + client_seconds) * 1e9 / bytes),
        ("server_ns", used.party("server") * 1e9 / bytes),
        ("gateways_ns", used.party("gateways") * 1e9 / bytes),
        ("mb_s", bytes / 1e6 / seconds),
        ("bytes", bytes),
    ];
    measures.extend(used.by_soaker());
    Ok(measures)
}
/// The hosts, and the gateways that are boxes of their own.
fn parties<T: Topology>(topology: &T) -> Vec<(&'static str, &Netns)> {
    let mut parties = Vec::new();
    if let Some(path) = topology.paths().first() {
        parties.extend([("client", path.from.netns), ("server", path.to.netns)]);
    }
    let hosts = parties.len();
    for site in topology.sites().sites {
        if !parties[..hosts].iter().any(|(_, host): &(&str, &Netns)| host.name() == site.netns.name()) {
            parties.push(("gateways", site.netns));
        }
    }
    parties
}

/// Whether a child has ended; it is not waited for, so that its account stays.
fn over(id: u32) -> Result<bool, LabError> {
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return Ok(true) };
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), how)
        .map(|status| status.is_some())
        .map_err(|e| LabError::io("waiting for a client")(e.into()))
}

fn conclude(record: &Record) -> Conclusion {
    let list = |topology: &str| {
        let only = factors([("topology", topology), ("store", "memory")]);
        let all: Vec<String> = record
            .figures_with(&only)
            .filter_map(|f| {
                let ns = f.number("elapsed_ns", Which::Median)?;
                Some(format!("{} {ns:.2}", f.factors.get("method")?))
            })
            .collect();
        (!all.is_empty()).then(|| format!("{topology}, ns/byte: {}", all.join(", ")))
    };
    let now: Vec<String> = TOPOLOGIES.iter().filter_map(|t| list(t)).collect();
    let history = vec![Historical {
        source: "Miltchev, Ioannidis, Keromytis, USENIX FREENIX 2002: a large file, hosts of 100 Mbit/s Ethernet".into(),
        then: "ftp over IPsec beat scp, sftp and https; gateways in the path made it faster than host to host".into(),
        now: now.join("; "),
        caveat: "Then each box had a processor of its own, so gateways took work off the hosts; here all boxes share the \
                 same ones. TLS and SSH use AES instructions today, in bulk of 16 KB and 32 KB and without leaving their \
                 process, which is the best case for them."
            .into(),
    }];
    let measures = [
        ("elapsed_ns", Which::Median),
        ("elapsed_ns", Which::Ratio),
        ("machine_ns", Which::Median),
        ("client_ns", Which::Median),
        ("server_ns", Which::Median),
        ("gateways_ns", Which::Median),
    ];
    let mut views = Vec::new();
    for topology in record.values("topology", &Factors::new()) {
        views.push(View::Table(Table {
            title: format!("{topology}: nanoseconds per byte"),
            only: factors([("topology", topology)]),
            rows: vec!["store".into(), "method".into()],
            columns: Columns::Measures(measures.map(|(m, w)| (m.to_string(), w)).to_vec()),
        }));
    }
    views.push(View::Plot(Plot {
        name: "elapsed".into(),
        title: "Elapsed time per byte, file in memory".into(),
        only: factors([("store", "memory")]),
        x: "method".into(),
        x_label: "method".into(),
        y: "elapsed_ns".into(),
        which: Which::Median,
        series: vec!["topology".into()],
        log_x: false,
        log_y: false,
    }));
    Conclusion { derived: vec![], views, history }
}
