//! `ironswan run`: start, reload by difference, end.
//!
//! The order of the start decides what a failure leaves behind, which is what was there before: configuration, self-test, is
//! another daemon there, sockets and device, then the guard (`guard::start_and_end`), and only then the VICI socket and the connections.
//! What a killed predecessor left (its guard, its socket file) is adopted or replaced. At the end SAs and device go; the
//! guard stays.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::System;
use ironswan_crypto::selftest;
use ironswan_ike::{Endpoint, Options};
use ironswan_io::clock;
use ironswan_io::route::Netlink;
use ironswan_io::tun::TunConfig;
use ironswan_ipsec::Engine;
use ironswan_keying::Ports;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::control::{Control, Listener, Plane, is_alive};
use crate::dataplane::userspace::install::Installer;
use crate::dataplane::userspace::napi::Threaded;
use crate::dataplane::userspace::{DataPlane, DataPlaneConfig, IkeDatagram, Notice};
use crate::driver::Driver;
use crate::guard::Claim;
use crate::guard::keep::{prepare_device, tell_network};
use crate::guard::plan::from_config;
use crate::guard::standing::StandingGuard;
use crate::guard::start_and_end::DaemonGuard;
use crate::observe::keylog::KeyLogger;
use crate::start::fitness;
use crate::start::notify::notify;
use crate::start::reload::{Loaded, load, report};
use ironswan_config::{Config, Daemon, files, vici_uri};

/// Where VICI listens unless told otherwise.
pub const DEFAULT_VICI: &str = "unix:///run/ironswan.vici";
/// Where the configuration is unless told otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/ironswan";

/// IKE messages that may wait for the control thread, and their bytes; more are dropped and counted, as a full socket
/// buffer would. Thousands of peers that initiate at once fit, large datagrams do not fill the memory.
const IKE_QUEUE: usize = 16_384;
const IKE_QUEUE_BYTES: usize = 8 << 20;
/// As many things that became slower are kept for `status`.
const SLOWER: usize = 16;
/// How long SIGTERM waits for the peers' answers to DELETE.
const GOODBYE: Duration = Duration::from_secs(2);

/// What the command line says.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Folder with the configuration.
    pub config: PathBuf,
    /// VICI addresses; empty: what `ironswan.conf` says, or the default.
    pub vici: Vec<String>,
}

/// Why the daemon could not start, or had to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunError {
    /// For people, each with the remedy.
    pub lines: Vec<String>,
    /// It had started; something it cannot live without went away.
    pub started: bool,
    /// It may pass by itself, as a file system that is late at boot does: trying again is worth it.
    pub passes: bool,
}

impl RunError {
    /// What may pass by itself.
    pub(crate) fn passing(line: String) -> Self {
        Self { passes: true, ..line.into() }
    }
}

impl From<String> for RunError {
    fn from(line: String) -> Self {
        Self { lines: vec![line], started: false, passes: false }
    }
}

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
/// When it could not start, or had to end; nothing is left behind then.
pub fn run(options: &RunOptions) -> Result<(), RunError> {
    ironswan_io::malloc::share_arenas();
    let (config, diags) = load(&options.config)?;
    crate::observe::log::init(config.daemon.log_level, config.daemon.log_format)?;
    report(&diags);
    selftest::run()
        .map_err(|e| format!("the cryptographic self-test failed: {e}; do not use this program"))?;
    let sockets = vici_paths(options, &config.daemon)?;
    for path in &sockets {
        if is_alive(path) {
            let name = path.display();
            return Err(format!(
                "VICI at {name}: already running; stop the other daemon, or give another --vici"
            )
            .into());
        }
    }
    // What blocks has pools of its own: the runtime's would be waited for at the end.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start the control thread: {e}"))?;
    let ended = LocalSet::new().block_on(&runtime, daemon(options, config, sockets));
    crate::observe::log::flush();
    ended
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
async fn daemon(options: &RunOptions, config: Config, sockets: Vec<PathBuf>) -> Result<(), RunError> {
    let settings = config.daemon.clone();
    let keylog = match &settings.keylog {
        None => None,
        Some(dir) => {
            let log = files::within_limit(clock::now, dir, KeyLogger::open)
                .map_err(RunError::passing)?
                .map_err(|e| format!("keylog = {}: {e}", dir.display()))?;
            tracing::warn!("KEY LOG IS ON: everyone who can read {} can decrypt the traffic", dir.display());
            Some(log)
        }
    };
    let mut terminate = on(SignalKind::terminate())?;
    let mut interrupt = on(SignalKind::interrupt())?;
    let hangup = on(SignalKind::hangup())?;

    let epoch = clock::now();
    let selection = Engines::select(&mut || nanos(epoch), settings.engine);
    selection.warnings.iter().for_each(|line| tracing::warn!("{line}"));
    let ipsec = ironswan_ipsec::Config { engines: selection.engines, ..ironswan_ipsec::Config::default() };
    let engine = Engine::new(Box::new(System), ipsec);
    let (ike_tx, mut ike_rx) = mpsc::channel::<IkeDatagram>(IKE_QUEUE);
    let waiting = Arc::new(AtomicUsize::new(0));
    let queued = waiting.clone();
    let (notice_tx, mut notice_rx) = mpsc::unbounded_channel();
    let plane_config = DataPlaneConfig {
        device: TunConfig {
            name: settings.device.clone(),
            queue_len: settings.tuning.tun_queue,
            offload: settings.tuning.tun_offload,
            ..TunConfig::default()
        },
        mark: settings.mark,
        ike_port: settings.port_ike,
        natt_port: settings.port_natt,
        raw_esp: true,
        tuning: settings.tuning.clone(),
        epoch,
    };
    let plane = DataPlane::start(
        &plane_config,
        engine.clone(),
        move |datagram| {
            let len = datagram.payload.len();
            if queued.load(Relaxed) + len > IKE_QUEUE_BYTES {
                return false;
            }
            queued.fetch_add(len, Relaxed);
            let taken = ike_tx.try_send(datagram).is_ok();
            if !taken {
                queued.fetch_sub(len, Relaxed);
            }
            taken
        },
        move |notice| {
            // The receiver is gone only when the daemon ends.
            let _ = notice_tx.send(notice);
        },
    )
    .map_err(|e| e.to_string())?;
    prepare_device(&plane_config.device.name);
    plane.offloads().shortfalls(&settings.tuning).iter().for_each(|line| tracing::warn!("{line}"));
    let sender = plane.ike_sender();
    let (guard, standing_guard) = (settings.guard, StandingGuard::new(from_config::settings(&settings)));
    let kernel = Netlink::open().map_err(|e| e.to_string())?;
    let installer_port = kernel.port().map_err(|e| e.to_string())?;
    let installer = Installer::new(engine.clone(), Box::new(kernel), plane.device_index(), standing_guard);
    let installer = installer.waking(plane.refresher()).over(plane.paths().clone());
    let endpoint = Endpoint::new(
        settings.limits.clone(),
        Box::new(System),
        Options {
            keylog: keylog.is_some(),
            ports: Ports { ike: settings.port_ike, natt: settings.port_natt },
        },
    );
    let send = Box::new(move |t: &ironswan_ike::event::Transmit| sender.send(t.local, t.remote, &t.payload));
    let driver = Driver::new(endpoint, engine, installer, send, keylog, epoch);
    let timers = driver.clone();
    tokio::task::spawn_local(async move { timers.timers().await });
    let paths = driver.clone();
    tokio::task::spawn_local(async move { paths.paths().await });
    let claim = Claim::take()?;
    tokio::task::spawn_local(async move { claim.keep_free().await });
    let guard = DaemonGuard::new(driver.clone(), guard)?;
    guard.install(&config)?;
    fitness::warn(&config);

    let threaded = Rc::new(Threaded::default());
    let polled = settings.tuning.threaded_napi.clone();
    let loaded = Rc::new(Loaded::new(options.config.clone(), settings, threaded.clone()));
    let (reload_driver, reload_loaded) = (driver.clone(), loaded.clone());
    let plane = Rc::new(plane);
    // The control is reachable for as long as the process lives; the data plane ends before it.
    let counted = Rc::downgrade(&plane);
    let slower = Rc::new(RefCell::new(Vec::new()));
    let told = slower.clone();
    let (found, shown) = (selection.clone(), threaded.clone());
    let control = Control::new(
        driver.clone(),
        Box::new(move || {
            let (driver, loaded) = (reload_driver.clone(), reload_loaded.clone());
            Box::pin(async move { loaded.reload(&driver).await })
        }),
        Box::new(move || {
            let plane = |p: Rc<_>| Plane::of(&p, &selection.table, shown.names(), &told.borrow());
            counted.upgrade().map(plane).unwrap_or_default()
        }),
    );
    control.set_engines(found);
    let mut servers = Vec::new();
    for path in &sockets {
        match Listener::bind(path) {
            Ok(listener) => servers.push(tokio::task::spawn_local(control.clone().serve(listener))),
            Err(e) => {
                guard.undo_start();
                return Err(e.into());
            }
        }
    }
    let watcher =
        guard.watch(&plane, &plane_config.device, installer_port).inspect_err(|_| guard.undo_start())?;
    let watcher = watcher.polling(threaded.clone());
    // Nothing after this can fail and leave it set.
    threaded.want(&polled);
    let gone = watcher.gone.clone();
    let keepers = [
        tokio::task::spawn_local(watcher.run()),
        tokio::task::spawn_local(driver.run_guard_passes(guard.replace())),
        tokio::task::spawn_local(reload_at(hangup, driver.clone(), loaded.clone())),
    ];
    tell_network(&driver);
    loaded.take(&driver, config);
    let names: Vec<String> = sockets.iter().map(|p| format!("unix://{}", p.display())).collect();
    tracing::info!(
        "ready: IronSwan {} on {}, VICI at {}",
        env!("CARGO_PKG_VERSION"),
        plane_config.device.name,
        names.join(", ")
    );
    notify("READY=1");

    // What has left the queue makes room in it.
    let came = |d: IkeDatagram| {
        waiting.fetch_sub(d.payload.len(), Relaxed);
        driver.datagram(d.local, d.remote, &d.payload);
    };
    let mut failed = None;
    loop {
        tokio::select! {
            datagram = ike_rx.recv() => match datagram {
                Some(d) => came(d),
                None => {
                    failed = Some("the data plane has ended".to_owned());
                    break;
                }
            },
            notice = notice_rx.recv() => match notice {
                Some(Notice::Up(list)) => driver.engine_up(list),
                Some(Notice::NarrowPath(peers)) => driver.narrowed(&peers),
                Some(Notice::DeviceGone) => gone.notify_one(),
                Some(Notice::Slower(what)) => {
                    tracing::warn!("{what}");
                    if slower.borrow().len() < SLOWER {
                        slower.borrow_mut().push(what.name());
                    }
                }
                Some(Notice::Ended) | None => {
                    failed = Some("the data plane has ended".to_owned());
                    break;
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }

    notify("STOPPING=1");
    tracing::info!("shutting down");
    // What stands now stands on, whatever the endpoint lets go of.
    let protected = driver.view(|e, _| from_config::configured(e.connections()));
    for keeper in keepers {
        keeper.abort();
        let _ = keeper.await;
    }
    driver.act(|e, now| e.shutdown(now));
    let deadline = tokio::time::sleep(GOODBYE);
    tokio::pin!(deadline);
    // Until every peer has answered the DELETE, or time or patience is over.
    while driver.view(|e, _| e.ike_sa_count() > 0) {
        tokio::select! {
            () = &mut deadline => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            datagram = ike_rx.recv() => match datagram {
                Some(d) => came(d),
                None => break,
            },
            // A retransmission or a key exchange may be the last thing to happen.
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
    servers.iter().for_each(tokio::task::JoinHandle::abort);
    for server in servers {
        // The listener goes with its task, and the socket file with the listener.
        let _ = server.await;
    }
    threaded.release();
    guard.end(protected);
    if let Some(plane) = Rc::into_inner(plane) {
        plane.stop();
    }
    driver.end_keylog();
    match failed {
        None => {
            tracing::info!("stopped");
            Ok(())
        }
        Some(why) => Err(RunError { lines: vec![why], started: true, passes: false }),
    }
}

/// Reads the configuration again at every SIGHUP; those that come meanwhile are one more.
async fn reload_at(mut hangup: Signal, driver: Driver, loaded: Rc<Loaded>) {
    while hangup.recv().await.is_some() {
        notify("RELOADING=1");
        // What is wrong has been logged, and nobody waits for an answer.
        let _ = loaded.reload(&driver).await;
        notify("READY=1");
    }
}

/// Nanoseconds since the start.
fn nanos(epoch: Instant) -> u64 {
    u64::try_from(clock::now().saturating_duration_since(epoch).as_nanos()).unwrap_or(u64::MAX)
}

fn on(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(|e| format!("cannot catch signals: {e}").into())
}
