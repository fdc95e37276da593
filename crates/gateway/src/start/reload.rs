//! Reload by difference: the files are read again, and only what has changed is touched.
//!
//! The files are read by a thread that may hang ([`files`]); key exchange and commands go on
//! meanwhile. One reload at a time: those that are asked for meanwhile come after it, and are
//! refused while the thread of one that was given up still hangs.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ironswan_ike::Endpoint;
use ironswan_io::clock;

use crate::driver::Driver;
use crate::helper::files::access;
use crate::observe::records;
use crate::start::failure::{NotReloaded, RunError};
use ironswan_config::diag::{Diagnostics, Severity};
use ironswan_config::files::{self, Files, Progress, Task};
use ironswan_config::{self as config, Config, Daemon};
use ironswan_keying::Fingerprint;
use ironswan_keying::diagnosis::{Configuration, NotDone};
use ironswan_keying::{Diagnosis, Joined, Target};
use ironswan_pki::fetch::Places;
use ironswan_pki::{Certificate, Crl};

/// A file that was written this long ago is taken to be whole.
const SETTLED: Duration = Duration::from_millis(20);

/// A configuration without errors and what else there is to say of it, or the errors.
type Read = Result<(Config, Diagnostics), RunError>;

/// Reads the configuration; errors become the reason not to start. Waits no longer than files may
/// take.
pub(crate) fn load(dir: &Path) -> Read {
    let dir = dir.to_owned();
    Task::through(access(), move |fs| load_here(fs, &dir))
        .and_then(Task::wait)
        .map_err(|e| RunError::passing(e.to_string()))?
}

/// The same on this thread, however long it takes.
fn load_here(fs: &Files, dir: &Path) -> Read {
    let mut diags = Diagnostics::default();
    let config = config::read_dir(fs, dir, &mut diags);
    usable(config, diags)
}

fn usable(config: Option<Config>, mut diags: Diagnostics) -> Read {
    match config {
        Some(config) if diags.errors() == 0 => {
            config::check::documented(&config, Severity::Warning, &mut diags);
            Ok((config, diags))
        }
        _ => {
            let mut lines = diags.error_lines();
            if diags.lost() > 0 {
                lines.push(format!("and {} more", diags.lost()));
            }
            Err(RunError { lines, started: false, passes: false })
        }
    }
}

/// Warnings and notes go to the log.
pub(crate) fn report(diags: &Diagnostics) {
    let mut said = HashSet::new();
    for d in diags.iter().filter(|d| said.insert(d.to_string())) {
        match d.severity {
            Severity::Error => tracing::error!("{d}"),
            Severity::Warning => tracing::warn!("{d}"),
            Severity::Note => tracing::info!("{d}"),
        }
    }
}

/// Names of connections, shared keys and private keys; certificates and revocation lists.
#[derive(Default)]
struct Names {
    conns: HashSet<String>,
    secrets: HashSet<String>,
    private: HashSet<Fingerprint>,
    certificates: Vec<Certificate>,
    lists: Vec<Crl>,
    status_places: Vec<(Certificate, Places)>,
}

impl Names {
    /// The names and other parts of a configuration by which the next one is compared with it.
    fn of(config: &Config) -> Self {
        Self {
            conns: config.connections.iter().map(|c| c.name.clone()).collect(),
            secrets: {
                let shared = config.secrets.iter().map(|s| s.name.clone());
                shared.chain(config.ppks.iter().map(|s| s.name.clone())).collect()
            },
            private: config.private_keys.iter().map(|key| key.public().id()).collect(),
            certificates: config.certificates.iter().map(|(certificate, _)| certificate.clone()).collect(),
            lists: config.lists.clone(),
            status_places: config.status_places.clone(),
        }
    }
}

/// Names of everything that came from the files, so that a reload can take away what is no longer
/// there and leave alone what VICI loaded.
pub(crate) struct Loaded {
    dir: PathBuf,
    /// As they are in force.
    settings: RefCell<Daemon>,
    names: RefCell<Names>,
    /// The files were read from a folder with a `swanctl.conf`.
    had_main: Cell<bool>,
    /// Settings of the folder's `ironswan.conf`, when it had one.
    written_settings: RefCell<Option<Daemon>>,
    /// Held by the reload that is under way.
    turn: tokio::sync::Mutex<()>,
    /// The thread that reads, or one that was given up and hangs.
    reading: RefCell<Option<Task<Read>>>,
}

impl Loaded {
    /// Nothing yet from this folder.
    pub(crate) fn new(dir: PathBuf, settings: Daemon) -> Self {
        Self {
            dir,
            settings: RefCell::new(settings),
            names: RefCell::default(),
            had_main: Cell::default(),
            written_settings: RefCell::default(),
            turn: tokio::sync::Mutex::default(),
            reading: RefCell::default(),
        }
    }

    /// Reads the files again and takes over the difference. A file with an error changes nothing.
    ///
    /// # Errors
    /// The errors in the files, or the file that does not answer.
    pub(crate) async fn reload(&self, driver: &Driver) -> Result<(), NotReloaded> {
        let _turn = self.turn.lock().await;
        let (config, diags) = self.read().await.map_err(NotReloaded::logged)?;
        if let Some(why) = self.half_written(&config) {
            return Err(NotReloaded::logged(Diagnosis::from(why)));
        }
        // The files may have been slow.
        if driver.view(|e, _| e.is_stopping()) {
            return Err(NotReloaded::logged(Diagnosis::from(NotDone::Stopping)));
        }
        report(&diags);
        self.take_settings(driver, &config.daemon);
        self.take(driver, config);
        tracing::info!("configuration reloaded");
        Ok(())
    }

    /// Has the files read by a thread, and waits for it as long as files may take.
    async fn read(&self) -> Read {
        // One whose client has gone may still be at it.
        if let Err(why) = self.ended().await {
            return Err(format!("an earlier reload still hangs: {why}").into());
        }
        let dir = self.dir.clone();
        let task = Task::through(access(), move |fs| read_settled(fs, &dir)).map_err(|e| e.to_string())?;
        self.reading.replace(Some(task));
        match self.ended().await.map_err(|e| e.to_string())? {
            Some(read) => read,
            None => Err(Configuration::ReadingFailed { why: None }.to_string().into()),
        }
    }

    /// Waits until no thread reads, and takes what it has read. An error names the path that does
    /// not answer.
    async fn ended(&self) -> Result<Option<Read>, Configuration> {
        loop {
            let progress = match self.reading.borrow_mut().as_mut() {
                None => return Ok(None),
                Some(task) => task.look(),
            };
            let read = match progress {
                Progress::UnderWay => {
                    tokio::time::sleep(files::POLL).await;
                    continue;
                }
                Progress::Overdue(why) => return Err(why),
                Progress::Done(read) => Some(read),
                Progress::Failed => None,
            };
            self.reading.replace(None);
            return Ok(read);
        }
    }

    /// A file that looks as files do for a moment while they are written, when something would
    /// change by that.
    fn half_written(&self, config: &Config) -> Option<Configuration> {
        let away = |empty: &Option<String>, name: &str, renamed: bool| match empty {
            Some(file) => Some((file.clone(), true)),
            None => renamed.then(|| (self.dir.join(name).display().to_string(), false)),
        };
        let connections = away(&config.empty, "swanctl.conf", self.had_main.get() && !config.has_main);
        if let Some((file, empty)) = connections
            && let Some(gone) = self.first_gone(config)
        {
            return Some(Configuration::HalfWritten { file, empty, ends: Some(gone) });
        }
        self.written_settings.borrow().as_ref().filter(|before| **before != config.daemon)?;
        let (file, empty) = away(&config.empty_settings, "ironswan.conf", !config.has_settings)?;
        Some(Configuration::HalfWritten { file, empty, ends: None })
    }

    /// A connection that the files do not name any more.
    fn first_gone(&self, config: &Config) -> Option<String> {
        let names = self.names.borrow();
        names.conns.iter().find(|name| !config.connections.iter().any(|c| c.name == **name)).cloned()
    }

    /// Takes over the settings that can change while the daemon runs, and names the others.
    fn take_settings(&self, driver: &Driver, new: &Daemon) {
        let mut settings = self.settings.borrow_mut();
        if new.log_level != settings.log_level {
            crate::observe::log::set_level(new.log_level);
            settings.log_level = new.log_level;
        }
        if new.limits != settings.limits {
            driver.act(|e, now| e.set_limits(now, new.limits.clone()));
            settings.limits = new.limits.clone();
        }
        if new.tuning.threaded_napi != settings.tuning.threaded_napi {
            driver.change_plane(|plane| plane.tune(&new.tuning));
            settings.tuning.threaded_napi.clone_from(&new.tuning.threaded_napi);
        }
        if *new != *settings {
            tracing::warn!(
                "ironswan.conf: {} changed; that needs a restart",
                changed(&settings, new).join(", ")
            );
        }
    }

    /// Secrets first: a connection may start at once. What the files named before and do not name
    /// any more ends, SAs included: who takes a peer out of the files does not want to find it
    /// connected.
    pub(crate) fn take(&self, driver: &Driver, config: Config) {
        self.had_main.set(config.has_main);
        self.written_settings.replace(config.has_settings.then(|| config.daemon.clone()));
        let mut names = self.names.borrow_mut();
        let new = Names::of(&config);
        driver.records().set_places(records::Places::of(config.places()));
        driver.loading(&config.connections);
        // One step to the driver, so that what steers packets sees the whole difference at once.
        driver.act(|e, now| {
            for gone in names.secrets.difference(&new.secrets) {
                e.unload_shared(gone);
            }
            config.secrets.into_iter().for_each(|secret| e.load_shared(secret));
            config.ppks.into_iter().for_each(|ppk| e.load_ppk(ppk));
            for gone in names.private.difference(&new.private) {
                e.unload_private(gone);
            }
            config.private_keys.into_iter().for_each(|key| e.load_private(key));
            e.change_certificates(|all| {
                names.certificates.iter().for_each(|gone| _ = all.remove(gone));
                names.lists.iter().for_each(|gone| all.remove_list(gone));
                config.certificates.into_iter().for_each(|(new, trusted)| all.insert(new, trusted));
                config.lists.into_iter().for_each(|new| all.insert_list(new));
                names.status_places.iter().for_each(|(ca, gone)| all.remove_places(ca, gone));
                config.status_places.into_iter().for_each(|(ca, new)| all.insert_places(&ca, new));
            });
            for gone in names.conns.difference(&new.conns) {
                tracing::info!(conn = gone.as_str(), "connection removed");
                e.unload_connection(now, gone);
                close(e, now, gone, None);
            }
            for conn in config.connections {
                let Some(old) = e.connection(&conn.name) else {
                    tracing::info!(conn = conn.name.as_str(), "connection loaded");
                    e.load_connection(now, conn);
                    continue;
                };
                // A connection that has not changed is left alone, with its SAs.
                if *old == conn {
                    continue;
                }
                let kept = |name: &str| conn.children.iter().any(|c| c.name == name);
                let gone: Vec<String> =
                    old.children.iter().map(|c| c.name.clone()).filter(|name| !kept(name)).collect();
                let name = conn.name.clone();
                tracing::info!(conn = name.as_str(), "connection changed");
                e.load_connection(now, conn);
                for child in gone {
                    close(e, now, &name, Some(child));
                }
            }
        });
        driver.records().forget_unless(|conn| driver.view(|e, _| e.connection(conn).is_some()));
        *names = new;
    }
}

/// Reads the files, again when one of them was written just now: between truncating and writing a
/// file is empty, and an empty file would end everything.
fn read_settled(fs: &Files, dir: &Path) -> Read {
    let mut read = load_here(fs, dir);
    for _ in 0..5 {
        let settled = read.as_ref().is_ok_and(|(config, _)| {
            let age = config.written.map(|at| clock::wall().duration_since(at));
            !matches!(age, Some(Ok(age)) if age < SETTLED)
        });
        if settled {
            break;
        }
        let failed = read.is_err();
        std::thread::sleep(SETTLED);
        fs.begin_again();
        read = load_here(fs, dir);
        if failed && read.is_err() {
            break;
        }
    }
    read
}

/// Closes what runs under this name, if something does.
fn close(endpoint: &mut Joined<Endpoint>, now: Instant, conn: &str, child: Option<String>) {
    let target = Target { ike: Some(conn.to_owned()), child, ..Target::default() };
    // Nobody waits for its end.
    let _ = endpoint.terminate(now, &target, false);
}

/// The keys of `ironswan.conf` that differ.
fn changed(a: &Daemon, b: &Daemon) -> Vec<&'static str> {
    let known = [
        ("device", a.device != b.device),
        ("port_ike", a.port_ike != b.port_ike),
        ("port_natt", a.port_natt != b.port_natt),
        ("mark", a.mark != b.mark),
        ("steer_mark", a.steer_mark != b.steer_mark),
        ("guard", a.guard != b.guard),
        ("user", a.user != b.user),
        ("sandbox", a.sandbox != b.sandbox),
        ("keylog", a.keylog != b.keylog),
        ("quick_crash_detection", a.quick_crash_detection != b.quick_crash_detection),
        ("qcd_secret", a.qcd_secret != b.qcd_secret),
        ("vici.listen", a.vici_listen != b.vici_listen),
        ("vici.readonly", a.vici_readonly != b.vici_readonly),
        ("vici.readonly_group", a.vici_readonly_group != b.vici_readonly_group),
        ("log_format", a.log_format != b.log_format),
        ("data", a.tuning != b.tuning || a.engine != b.engine),
    ];
    let found: Vec<_> = known.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect();
    if found.is_empty() { vec!["a setting"] } else { found }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
pub(crate) mod tests;
