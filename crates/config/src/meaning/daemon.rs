//! `ironswan.conf`: the daemon's own settings. Its keys are in `keys::settings`, those of `data {
//! .. }` in `keys::data`.

use std::path::PathBuf;

use ironswan_crypto::engines::EngineId;
use ironswan_keying::diagnosis::Conflict;
use ironswan_keying::{Level, Limits};

use super::super::diag::Diagnostics;
use super::super::tree::Section;
use super::keys::data::DATA_TABLE;
use super::keys::settings::LogFormat;
use super::keys::{self, settings as k};
use super::{Reader, data};
use crate::tuning::Tuning;

/// The daemon's settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Daemon {
    /// TUN device.
    pub device: String,
    /// UDP port for plain IKE.
    pub port_ike: u16,
    /// UDP port for IKE with the non-ESP marker and for encapsulated ESP.
    pub port_natt: u16,
    /// Mark of the gateway's own packets.
    pub mark: u32,
    /// Mark (one bit) of what goes into the tunnels.
    pub steer_mark: u32,
    /// nft is used: steering by exact policies, and the guard. False: routes and rules alone.
    pub guard: bool,
    /// User that the daemon becomes; `None`: `ironswan`, or root where there is none.
    pub user: Option<String>,
    /// The daemon makes only the system calls that it needs. False: any.
    pub sandbox: bool,
    /// Folder for key material, for Wireshark.
    pub keylog: Option<PathBuf>,
    /// Peers get QCD tokens, and theirs are taken (RFC 6290).
    pub quick_crash_detection: bool,
    /// File of the secret from which our QCD tokens are made.
    pub qcd_secret: PathBuf,
    /// Addresses on which VICI listens. Empty: the default.
    pub vici_listen: Vec<String>,
    /// Address of the socket whose clients only read; `None`: there is none.
    pub vici_readonly: Option<String>,
    /// Group whose members may connect to it; `None`: root alone.
    pub vici_readonly_group: Option<String>,
    /// The least important level that is logged.
    pub log_level: Level,
    /// How it is logged.
    pub log_format: LogFormat,
    /// Timers and limits of IKE.
    pub limits: Limits,
    /// How packets are moved.
    pub tuning: Tuning,
    /// The cryptographic engine that is to be used; `None`: the fastest.
    pub engine: Option<EngineId>,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            device: "ipsec0".to_owned(),
            port_ike: 500,
            port_natt: 4500,
            mark: 0x220,
            steer_mark: 0x1000_0000,
            guard: true,
            user: None,
            sandbox: true,
            keylog: None,
            quick_crash_detection: true,
            qcd_secret: PathBuf::from("/var/lib/ironswan/qcd-secret"),
            vici_listen: Vec::new(),
            vici_readonly: None,
            vici_readonly_group: None,
            log_level: Level::Info,
            log_format: LogFormat::Text,
            limits: Limits::default(),
            tuning: Tuning::default(),
            engine: None,
        }
    }
}

/// Understands `ironswan.conf`.
pub fn daemon(root: &Section, diags: &mut Diagnostics) -> Daemon {
    keys::check(root, "", k::SETTINGS_TABLE, diags, section, k::SECTIONS);
    let mut r = Reader { section: root, path: "", diags };
    let (port_ike, port_natt) = (r.read(&k::PORT_IKE), r.read(&k::PORT_NATT));
    if port_ike == port_natt {
        r.conflict(&k::PORT_NATT, Conflict::EqualPorts);
    }
    let (mark, steer_mark) = (r.read(&k::MARK), r.read(&k::STEER_MARK));
    if mark & steer_mark != 0 {
        r.conflict(&k::STEER_MARK, Conflict::EqualMarks { steer: steer_mark, mark });
    }
    let (device, guard, keylog) = (r.read(&k::DEVICE), r.read(&k::GUARD), r.written(&k::KEYLOG));
    let (user, sandbox) = (r.written(&k::USER), r.read(&k::SANDBOX));
    let (quick_crash_detection, qcd_secret) = (r.read(&k::QUICK_CRASH_DETECTION), r.read(&k::QCD_SECRET));
    let limits = limits(&mut r);
    let mut d = Daemon {
        device,
        port_ike,
        port_natt,
        mark,
        steer_mark,
        guard,
        user,
        sandbox,
        keylog,
        quick_crash_detection,
        qcd_secret,
        limits,
        ..Daemon::default()
    };
    if let Some(section) = root.section("vici") {
        let mut r = Reader { section, path: "vici", diags };
        d.vici_listen = r.written(&k::LISTEN).unwrap_or_default();
        d.vici_readonly = r.written(&k::READONLY);
        d.vici_readonly_group = r.written(&k::READONLY_GROUP);
        if d.vici_readonly.as_ref().is_some_and(|uri| d.vici_listen.contains(uri)) {
            r.conflict(&k::READONLY, Conflict::EqualSockets);
        }
        if d.vici_readonly_group.is_some() && !r.has(&k::READONLY) {
            r.conflict(&k::READONLY_GROUP, Conflict::GroupWithoutSocket);
        }
    }
    if let Some(section) = root.section("data") {
        (d.tuning, d.engine) = data::data(section, &d.device, diags);
    }
    if let Some(section) = root.section("log") {
        let mut r = Reader { section, path: "log", diags };
        (d.log_level, d.log_format) = (r.read(&k::LEVEL), r.read(&k::FORMAT));
    }
    d
}

/// Checks the names in a section. False for a section that is not known.
fn section(name: &str, section: &Section, diags: &mut Diagnostics) -> bool {
    let table = match name {
        "vici" => k::VICI_TABLE,
        "log" => k::LOG_TABLE,
        "data" => DATA_TABLE,
        _ => return false,
    };
    keys::check(section, name, table, diags, |_, _, _| false, &[]);
    true
}

fn limits(r: &mut Reader<'_>) -> Limits {
    Limits {
        retransmit_timeout: r.read(&k::RETRANSMIT_TIMEOUT),
        retransmit_base: r.read(&k::RETRANSMIT_BASE),
        retransmit_tries: r.read(&k::RETRANSMIT_TRIES) as u32,
        half_open_timeout: r.read(&k::HALF_OPEN_TIMEOUT),
        cookie_threshold: r.read(&k::COOKIE_THRESHOLD) as usize,
        half_open_max: r.read(&k::HALF_OPEN_MAX) as usize,
        half_open_per_net: r.read(&k::HALF_OPEN_PER_NET) as usize,
        half_open_per_addr: r.read(&k::HALF_OPEN_PER_ADDR) as usize,
        keep_alive: r.read(&k::KEEP_ALIVE),
        delete_rekeyed_delay: r.read(&k::DELETE_REKEYED_DELAY),
        fragment_size: r.read(&k::FRAGMENT_SIZE) as usize,
        retry_initial: r.read(&k::RETRY_INITIAL),
        retry_max: r.read(&k::RETRY_MAX),
        ike_sa_max: r.read(&k::IKE_SA_MAX) as usize,
        ike_sa_max_per_id: r.read(&k::IKE_SA_MAX_PER_ID) as usize,
        child_sa_max: r.read(&k::CHILD_SA_MAX) as usize,
        child_sa_max_per_id: r.read(&k::CHILD_SA_MAX_PER_ID) as usize,
    }
}
