//! `ironswan run`: start, reload by difference, end.
//!
//! The order of the start is such that a failing start leaves behind what was there before:
//! configuration, self-test, a look for another daemon, the data plane, then the guard
//! (`guard::start_and_end`), and only then the VICI socket and the connections. The guard and the
//! socket file of a killed predecessor are adopted or replaced. At the end SAs and device go; the
//! guard stays.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ironswan_config::{Config, Daemon, files, vici_uri};
use ironswan_crypto::rng::System;
use ironswan_crypto::selftest;
use ironswan_ike::event::Level;
use ironswan_ike::{Endpoint, Options};
use ironswan_io::clock;
use ironswan_io::privileges;
use ironswan_io::route::Netlink;
use ironswan_keying::diagnosis::{DataPlane, Machine, SocketFault};
use ironswan_keying::{Diagnosis, Joined, Ports};
use ironswan_wire::secret::Secret;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, LocalSet};

use crate::control::{Control, Listener, is_alive};
use crate::dataplane::choose;
use crate::diagnosis::Diagnosed;
use crate::driver::Driver;
use crate::guard::Claim;
use crate::guard::keep::tell_network;
use crate::guard::plan::from_config;
use crate::guard::shared::SharedGuard;
use crate::guard::standing::StandingGuard;
use crate::guard::start_and_end::DaemonGuard;
use crate::helper::process::{Process, ended};
use crate::observe::keylog::{KeyLogger, Tables};
use crate::observe::log;
use crate::start::failure::RunError;
use crate::start::fitness;
use crate::start::notify::notify;
use crate::start::privileges::User;
use crate::start::qcd_secret::QcdSecret;
use crate::start::reload::{Loaded, load, report};

/// Address of the VICI socket unless told otherwise.
pub const DEFAULT_VICI: &str = "unix:///run/ironswan.vici";
/// Folder of the configuration unless told otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/ironswan";

/// How long SIGTERM waits for the peers' answers to DELETE.
const GOODBYE: Duration = Duration::from_secs(2);
/// Pause between two looks whether any IKE_SA is left, at the end: a retransmission or a key
/// exchange may be the last thing to happen.
const GOODBYE_LOOK: Duration = Duration::from_millis(50);

/// Options of the command line.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Folder with the configuration.
    pub config: PathBuf,
    /// VICI addresses; empty: what `ironswan.conf` says, or the default.
    pub vici: Vec<String>,
}

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
/// When it could not start, or had to end; nothing is left behind then.
pub fn run(options: &RunOptions) -> Result<(), RunError> {
    ironswan_io::malloc::limit_arenas();
    let unstarted = |e| RunError::passing(format!("another process cannot be started: {e}"));
    let helper = Process::start_helper(&options.config).map_err(unstarted)?;
    let (config, diags) = load(&options.config)?;
    // The last steps as root, before there is another thread.
    let prepared = Prepared::new(options, &config.daemon);
    let user = User::find(&config.daemon);
    let fetcher =
        user.as_ref().ok().map(|user| Process::start_fetcher(user.of_fetcher(), config.daemon.sandbox));
    let lines = user.and_then(|user| user.become_daemon(&config.daemon));
    crate::observe::log::init(config.daemon.log_level, config.daemon.log_format)?;
    report(&diags);
    lines?.iter().for_each(|line| tracing::info!("{line}"));
    selftest::run()
        .map_err(|e| format!("the cryptographic self-test failed: {e}; do not use this program"))?;
    let prepared = prepared?;
    let fetcher = fetcher.transpose().map_err(unstarted)?;
    let processes = std::iter::once(helper).chain(fetcher).collect();
    // Blocking work has pools of its own: the runtime would wait for its own threads at the end.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Diagnosis::from(system("starting the control thread", &e)))?;
    let ended = LocalSet::new().block_on(&runtime, daemon(options, config, prepared, processes));
    crate::observe::log::flush();
    ended
}

/// What is opened as root, and used once the daemon is another user.
struct Prepared {
    /// The VICI sockets, at which no daemon listens.
    sockets: Sockets,
    /// The tables of the key log, and its folder.
    tables: Option<(Tables, PathBuf)>,
    /// The secret of QCD tokens, if any are made; or why there is none.
    secret: Option<Result<QcdSecret, Machine>>,
    /// Only a claim of root or of one's own user counts, and `ironswan guard` is root's command.
    claim: Result<Claim, Diagnosis>,
}

impl Prepared {
    fn new(options: &RunOptions, settings: &Daemon) -> Result<Self, RunError> {
        let sockets = Sockets::new(options, settings)?;
        for path in sockets.full.iter().chain(sockets.readonly.iter().map(|(path, _)| path)) {
            if is_alive(path) {
                let running = Machine::ViciSocket { path: path.clone(), why: SocketFault::Alive };
                return Err(Diagnosis::from(running).into());
            }
        }
        let (tables, secret) = (open_tables(settings)?, QcdSecret::obtain(settings));
        Ok(Self { sockets, tables, secret, claim: Claim::take() })
    }
}

/// The VICI sockets.
struct Sockets {
    /// Paths of those for every command.
    full: Vec<PathBuf>,
    /// Path of the one for clients that only read, and the group that may connect to it.
    readonly: Option<(PathBuf, Option<u32>)>,
}

impl Sockets {
    fn new(options: &RunOptions, settings: &Daemon) -> Result<Self, RunError> {
        let full = vici_paths(options, settings)?;
        let Some(uri) = &settings.vici_readonly else { return Ok(Self { full, readonly: None }) };
        let path = vici_uri(uri).map_err(|e| format!("vici.readonly: {e}"))?;
        if full.contains(&path) {
            return Err(
                format!("vici.readonly = {uri}: --vici names the same socket; give another --vici").into()
            );
        }
        let group = settings.vici_readonly_group.as_deref().map(|name| group(name, &path)).transpose()?;
        Ok(Self { full, readonly: Some((path, group)) })
    }

    /// Their addresses, for the log.
    fn shown(&self) -> String {
        let uri = |path: &PathBuf| format!("unix://{}", path.display());
        let full = self.full.iter().map(uri).collect::<Vec<_>>().join(", ");
        match &self.readonly {
            Some((path, _)) => format!("{full}, read-only at {}", uri(path)),
            None => full,
        }
    }
}

/// Number of the group of this name, which may connect to the socket at `path`.
fn group(name: &str, path: &Path) -> Result<u32, RunError> {
    let found =
        privileges::find_group(name).map_err(|e| Diagnosis::from(system("reading /etc/group", &e)))?;
    let missing = || {
        let why = SocketFault::NoGroup(name.to_owned());
        Diagnosis::from(Machine::ViciSocket { path: path.to_owned(), why }).into()
    };
    found.ok_or_else(missing)
}

fn vici_paths(options: &RunOptions, daemon: &Daemon) -> Result<Vec<PathBuf>, RunError> {
    let default = [DEFAULT_VICI.to_owned()];
    let uris = match (options.vici.as_slice(), daemon.vici_listen.as_slice()) {
        ([], []) => &default[..],
        ([], listen) => listen,
        (given, _) => given,
    };
    uris.iter().map(|uri| vici_uri(uri).map_err(|e| format!("--vici {e}").into())).collect()
}

/// Everything that lives as long as the daemon.
async fn daemon(
    options: &RunOptions,
    config: Config,
    prepared: Prepared,
    mut processes: Vec<Process>,
) -> Result<(), RunError> {
    let Prepared { sockets, tables, secret, claim } = prepared;
    // The lock of the secret is held until the end.
    let (secret, _locked) = secret.and_then(of_use).map(QcdSecret::into_parts).unzip();
    let keylog = tables.map(start_keylog).transpose()?;
    let mut stop = StopSignals::catch()?;
    let hangup = on(SignalKind::hangup())?;
    let (driver, routing) = start_driver(&config.daemon, keylog, secret)?;
    let ended = match Running::start(options, config, &sockets, claim, driver.clone(), routing, hangup) {
        Ok(running) => running.until_stopped(&mut stop, &mut processes).await,
        Err(e) => Err(e),
    };
    driver.change_plane(|plane| plane.stop());
    driver.end_keylog();
    if ended.is_ok() {
        tracing::info!("stopped");
    }
    ended
}

fn open_tables(settings: &Daemon) -> Result<Option<(Tables, PathBuf)>, RunError> {
    let Some(dir) = &settings.keylog else { return Ok(None) };
    let tables = files::within_limit(clock::now, dir, Tables::open)
        .map_err(|e| RunError::passing(e.to_string()))?
        .map_err(|e| format!("keylog = {}: {e}", dir.display()))?;
    Ok(Some((tables, dir.clone())))
}

/// Says why peers get no QCD tokens, if they get none.
fn of_use(secret: Result<QcdSecret, Machine>) -> Option<QcdSecret> {
    secret.inspect_err(|why| log::diagnosis(Level::Warn, None, why)).ok()
}

fn start_keylog((tables, dir): (Tables, PathBuf)) -> Result<KeyLogger, RunError> {
    let log = KeyLogger::start(tables).map_err(|e| format!("keylog = {}: {e}", dir.display()))?;
    tracing::warn!("KEY LOG IS ON: everyone who can read {} can decrypt the traffic", dir.display());
    Ok(log)
}

/// Starts the data plane and a driver over it. Returns also the netlink address from which our
/// rules and routes are set.
fn start_driver(
    settings: &Daemon,
    keylog: Option<KeyLogger>,
    secret: Option<Secret>,
) -> Result<(Driver, u32), RunError> {
    let kernel = Netlink::open().diagnosed()?;
    let routing = kernel.port().diagnosed()?;
    let standing = StandingGuard::new(from_config::settings(settings));
    let guard = SharedGuard::new(standing, Box::new(kernel));
    let plane = choose::start(settings, guard.clone())?;
    let options = Options {
        keylog: keylog.is_some(),
        ports: Ports { ike: settings.port_ike, natt: settings.port_natt },
        take_qcd_tokens: settings.quick_crash_detection,
    };
    let endpoint = |policy| {
        let mut endpoint = Endpoint::new(policy, settings.limits.clone(), Box::new(System), options);
        if let Some(secret) = secret {
            endpoint.make_qcd_tokens(secret);
        }
        endpoint
    };
    let endpoint = Joined::new(settings.limits.clone(), Box::new(System), endpoint);
    let driver = Driver::new(endpoint, plane, guard, keylog);
    let timers = driver.clone();
    tokio::task::spawn_local(async move { timers.timers().await });
    Ok((driver, routing))
}

/// A daemon that has started.
struct Running {
    driver: Driver,
    guard: DaemonGuard,
    /// The servers of the VICI sockets.
    servers: Vec<JoinHandle<()>>,
    /// The tasks that keep the guard, and that reload.
    keepers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Closes what the configuration protects, opens the VICI sockets, and loads the configuration.
    /// `routing`: the netlink address from which our rules and routes are set.
    fn start(
        options: &RunOptions,
        config: Config,
        sockets: &Sockets,
        claim: Result<Claim, Diagnosis>,
        driver: Driver,
        routing: u32,
        hangup: Signal,
    ) -> Result<Self, RunError> {
        let claim = claim?;
        claim.doubt().into_iter().for_each(|doubt| log::diagnosis(Level::Warn, None, doubt));
        tokio::task::spawn_local(async move { claim.keep_free().await });
        let settings = config.daemon.clone();
        let guard = DaemonGuard::new(driver.clone(), settings.guard)?;
        guard.install(&config)?;
        fitness::warn(&config);
        let device = settings.device.clone();
        let loaded = Rc::new(Loaded::new(options.config.clone(), settings));
        let mut running = Self { driver, guard, servers: Vec::new(), keepers: Vec::new() };
        let opened = running.open(sockets, &loaded, routing, hangup);
        opened.inspect_err(|_| running.guard.undo_start())?;
        let driver = &running.driver;
        // Set last, so that a failing start never leaves the interfaces changed.
        driver.change_plane(|plane| plane.tune(&config.daemon.tuning));
        tell_network(driver);
        loaded.take(driver, config);
        tracing::info!(
            "ready: IronSwan {} on {device}, VICI at {}",
            env!("CARGO_PKG_VERSION"),
            sockets.shown()
        );
        notify("READY=1");
        Ok(running)
    }

    /// Opens the VICI sockets, and begins to watch the kernel and to wait for SIGHUP.
    fn open(
        &mut self,
        sockets: &Sockets,
        loaded: &Rc<Loaded>,
        routing: u32,
        hangup: Signal,
    ) -> Result<(), RunError> {
        let (driver, guard) = (&self.driver, &self.guard);
        let reloading = (driver.clone(), loaded.clone());
        let control = Control::new(
            driver.clone(),
            Box::new(move || {
                let (driver, loaded) = reloading.clone();
                Box::pin(async move { loaded.reload(&driver).await })
            }),
        );
        let mut listeners = Vec::new();
        for path in &sockets.full {
            listeners.push(Listener::bind(path).map_err(Diagnosis::from)?);
        }
        if let Some((path, group)) = &sockets.readonly {
            listeners.push(Listener::bind_to_read(path, *group).map_err(Diagnosis::from)?);
        }
        for listener in listeners {
            self.servers.push(tokio::task::spawn_local(control.clone().serve(listener)));
        }
        let watcher = guard.watch(routing)?;
        self.keepers = vec![
            tokio::task::spawn_local(watcher.run()),
            tokio::task::spawn_local(driver.run_guard_passes(guard.replace())),
            tokio::task::spawn_local(reload_at(hangup, driver.clone(), loaded.clone())),
        ];
        Ok(())
    }

    /// Runs until it is told to stop, the data plane or another process ends; then says goodbye to
    /// the peers, and leaves the guard as it is to stand.
    async fn until_stopped(
        mut self,
        stop: &mut StopSignals,
        processes: &mut [Process],
    ) -> Result<(), RunError> {
        let failed = tokio::select! {
            () = self.driver.serve_plane() => Some(DataPlane::Ended.to_string()),
            why = ended(processes) => Some(why),
            () = stop.come() => None,
        };
        notify("STOPPING=1");
        tracing::info!("shutting down");
        // Remember which policies are guarded; they stay guarded after the endpoint has let go of
        // its connections.
        let protected =
            self.driver.view(|e, _| from_config::configured(e.connections().iter().map(|c| &**c)));
        end_all(std::mem::take(&mut self.keepers)).await;
        self.say_goodbye(stop).await;
        // The listener goes with its task, and the socket file with the listener.
        end_all(std::mem::take(&mut self.servers)).await;
        self.guard.end(protected);
        match failed {
            None => Ok(()),
            Some(why) => Err(RunError { lines: vec![why], started: true, passes: false }),
        }
    }

    /// Deletes all IKE_SAs. Waits until every peer has answered, time is over, or a second signal
    /// comes.
    async fn say_goodbye(&self, stop: &mut StopSignals) {
        self.driver.act(|e, now| e.shutdown(now));
        let answered = async {
            while self.driver.view(|e, _| e.protocol().ike_sa_count() > 0) {
                tokio::time::sleep(GOODBYE_LOOK).await;
            }
        };
        tokio::select! {
            () = answered => {}
            () = self.driver.serve_plane() => {}
            () = tokio::time::sleep(GOODBYE) => {}
            () = stop.come() => {}
        }
    }
}

async fn end_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        // The error says that the task was aborted, which was done here.
        let _ = task.await;
    }
}

/// SIGTERM and SIGINT.
struct StopSignals([Signal; 2]);

impl StopSignals {
    fn catch() -> Result<Self, RunError> {
        Ok(Self([on(SignalKind::terminate())?, on(SignalKind::interrupt())?]))
    }

    /// Waits for one of them.
    async fn come(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Reads the configuration again at every SIGHUP; those that come meanwhile are one more.
async fn reload_at(mut hangup: Signal, driver: Driver, loaded: Rc<Loaded>) {
    while hangup.recv().await.is_some() {
        notify("RELOADING=1");
        // An error has been logged, and nobody waits for an answer.
        let _ = loaded.reload(&driver).await;
        notify("READY=1");
    }
}

fn system(action: &str, e: &std::io::Error) -> Machine {
    Machine::SystemCall { action: action.to_owned(), why: e.to_string() }
}

fn on(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(|e| Diagnosis::from(system("catching signals", &e)).into())
}
