//! `ironswan.conf`: the daemon's own settings.
//!
//! ```text
//! device = ipsec0            TUN device
//! port_ike = 500             UDP port for plain IKE
//! port_natt = 4500           UDP port for IKE and ESP behind NAT
//! mark = 0x220             mark of the gateway's own packets, which skip table 220
//! steer_mark = 0x10000000    mark (one bit) of packets for the tunnels, put on them by nft
//! guard = yes                nft: exact policies, and no clear packet that a policy protects; no: routes and rules alone
//! keylog = DIR               writes keys in Wireshark's format into DIR; off by default
//! vici { listen = unix:///run/ironswan.vici }
//! log { level = info  format = text }
//! data { .. }                how packets are moved: see `data`
//! retransmit_timeout, retransmit_base, retransmit_tries, half_open_timeout, cookie_threshold, half_open_max,
//! half_open_per_net, half_open_per_addr, delete_rekeyed_delay, retry_initial, retry_max, ike_sa_max, ike_sa_max_per_id,
//! child_sa_max, child_sa_max_per_id
//! ```

use std::path::PathBuf;

use ironswan_crypto::engines::EngineId;
use ironswan_ike::config::Limits;
use ironswan_ike::event::Level;

use super::super::diag::Diagnostics;
use super::super::tree::{Node, Section};
use super::super::value::{self, show};
use super::keys::hint;
use super::{Reader, data};
use crate::tuning::Tuning;

/// How a log line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// `<time> <level> <conn> text`.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

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
    /// Folder for key material, for Wireshark.
    pub keylog: Option<PathBuf>,
    /// Where VICI listens; empty: the default.
    pub vici_listen: Vec<String>,
    /// What is logged.
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
            keylog: None,
            vici_listen: Vec::new(),
            log_level: Level::Info,
            log_format: LogFormat::Text,
            limits: Limits::default(),
            tuning: Tuning::default(),
            engine: None,
        }
    }
}

const KEYS: &[&str] = &[
    "device",
    "port_ike",
    "port_natt",
    "mark",
    "steer_mark",
    "guard",
    "keylog",
    "retransmit_timeout",
    "retransmit_base",
    "retransmit_tries",
    "half_open_timeout",
    "cookie_threshold",
    "half_open_max",
    "half_open_per_net",
    "half_open_per_addr",
    "delete_rekeyed_delay",
    "retry_initial",
    "retry_max",
    "ike_sa_max",
    "ike_sa_max_per_id",
    "child_sa_max",
    "child_sa_max_per_id",
];
const SECTIONS: &[(&str, &[&str])] =
    &[("vici", &["listen"]), ("log", &["level", "format"]), ("data", data::KEYS)];

/// Understands `ironswan.conf`.
pub fn daemon(root: &Section, diags: &mut Diagnostics) -> Daemon {
    unknown_keys(root, diags);
    let mut d = Daemon::default();
    let mut r = Reader { section: root, path: "", diags };
    let set = |slot: &mut u16, v: Option<u16>| *slot = v.unwrap_or(*slot);
    set(&mut d.port_ike, r.get("port_ike", real_port));
    set(&mut d.port_natt, r.get("port_natt", real_port));
    if d.port_ike == d.port_natt {
        r.error("port_natt", "must differ from port_ike");
    }
    if let Some(name) = r.get("device", tun_device) {
        d.device = name;
    }
    if let Some(mark) = r.get("mark", |t| value::number(t, u64::from(u32::MAX))) {
        if mark == 0 {
            r.error("mark", "0 would send the gateway's own packets into the tunnel; write another number");
        }
        d.mark = mark as u32;
    }
    d.steer_mark = r.get("steer_mark", steer_mark).unwrap_or(d.steer_mark);
    if d.mark & d.steer_mark != 0 {
        r.error("steer_mark", format!("{:#x} must not be a bit of mark ({:#x})", d.steer_mark, d.mark));
    }
    d.guard = r.get("guard", value::boolean).unwrap_or(d.guard);
    d.keylog = r.get("keylog", |t| Ok(PathBuf::from(t.trim())));
    limits(&mut r, &mut d.limits);
    if let Some(s) = root.section("vici") {
        let mut r = Reader { section: s, path: "vici", diags };
        d.vici_listen = r.list("listen", |t| vici_uri(t).map(|_| t.to_owned())).unwrap_or_default();
    }
    if let Some(s) = root.section("data") {
        (d.tuning, d.engine) = data::data(s, &d.device, diags);
    }
    if let Some(s) = root.section("log") {
        let mut r = Reader { section: s, path: "log", diags };
        let levels =
            [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
        d.log_level = r.word("level", &levels).unwrap_or(d.log_level);
        d.log_format =
            r.word("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]).unwrap_or_default();
    }
    d
}

fn unknown_keys(root: &Section, diags: &mut Diagnostics) {
    for (name, node) in root.entries() {
        let section = SECTIONS.iter().find(|(n, _)| *n == name);
        match (node, section) {
            (Node::Section(s), Some((_, keys))) => {
                for (key, node) in s.entries() {
                    let message = match node {
                        _ if !keys.contains(&key) => {
                            format!("unknown key{}", hint(key, keys.iter().copied()))
                        }
                        Node::Section(_) => no_section(key),
                        Node::Value(_) => continue,
                    };
                    diags.error(node.origin(), &format!("{name}.{key}"), message);
                }
            }
            (Node::Section(s), None) if KEYS.contains(&name) => {
                diags.error(&s.origin, name, no_section(name))
            }
            (Node::Section(s), None) => {
                let names = SECTIONS.iter().map(|(n, _)| *n);
                diags.error(&s.origin, name, format!("unknown section{}", hint(name, names)));
            }
            (Node::Value(v), Some(_)) => {
                diags.error(&v.origin, name, format!("is a section, not a key; write {name} {{ ... }}"));
            }
            (Node::Value(v), None) if name == "workers" => {
                let text = show(&v.as_text());
                diags.error(&v.origin, name, format!("has moved: write data {{ workers = {text} }}"));
            }
            (Node::Value(v), None) if !KEYS.contains(&name) => {
                diags.error(&v.origin, name, format!("unknown key{}", hint(name, KEYS.iter().copied())));
            }
            (Node::Value(_), None) => {}
        }
    }
}

fn no_section(key: &str) -> String {
    format!("is a key, not a section; write {key} = ...")
}

fn limits(r: &mut Reader<'_>, l: &mut Limits) {
    let count = |min: u64, max: u64| {
        move |t: &str| {
            value::number(t, max)
                .and_then(|n| if n < min { Err(format!("{n} is less than {min}")) } else { Ok(n) })
        }
    };
    let positive = |t: &str| {
        value::fine_time(t)
            .and_then(|d| if d.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(d) })
    };
    macro_rules! read {
        ($key:ident, $reader:expr) => {
            if let Some(v) = r.get(stringify!($key), $reader) {
                l.$key = v;
            }
        };
        ($key:ident as $t:ty, $reader:expr) => {
            if let Some(v) = r.get(stringify!($key), $reader) {
                l.$key = v as $t;
            }
        };
    }
    read!(retransmit_timeout, positive);
    read!(retransmit_base, |t| value::factor(t, 1.0, 10.0));
    read!(retransmit_tries as u32, count(0, 100));
    read!(half_open_timeout, positive);
    read!(cookie_threshold as usize, count(0, 1_000_000));
    read!(half_open_max as usize, count(1, 1_000_000));
    read!(half_open_per_net as usize, count(0, 1_000_000));
    read!(half_open_per_addr as usize, count(1, 1_000_000));
    read!(delete_rekeyed_delay, value::fine_time);
    read!(retry_initial, positive);
    read!(retry_max, positive);
    read!(ike_sa_max as usize, count(1, 10_000_000));
    read!(ike_sa_max_per_id as usize, count(0, 10_000_000));
    read!(child_sa_max as usize, count(1, 1_000_000));
    read!(child_sa_max_per_id as usize, count(0, 100_000_000));
}

fn real_port(text: &str) -> Result<u16, String> {
    match value::number(text, 65_535)? {
        0 => Err("0 is not a port".to_owned()),
        n => Ok(n as u16),
    }
}

/// One bit of a packet's mark: rules and nft ask for it alone and leave the others to other programs.
fn steer_mark(text: &str) -> Result<u32, String> {
    let mark = value::number(text, u64::from(u32::MAX))? as u32;
    if mark.is_power_of_two() {
        Ok(mark)
    } else {
        Err(format!("`{}` must be one bit, such as 0x10000000", show(text)))
    }
}

/// A network device's name: what the kernel takes (`dev_valid_name`).
pub(super) fn device(text: &str) -> Result<String, String> {
    let t = text.trim();
    let ok = !t.is_empty()
        && t.len() <= 15
        && t != "."
        && t != ".."
        && t.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':' && b != b'%');
    if ok {
        Ok(t.to_owned())
    } else {
        Err(format!("`{}` is not a device's name (1 to 15 characters)", show(t)))
    }
}

/// The name of the TUN device, which stands in the text that `nft` reads: there `e*` would mean every device whose name begins
/// with e.
fn tun_device(text: &str) -> Result<String, String> {
    let name = device(text)?;
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+@".contains(&b)) {
        true => Ok(name),
        false => Err(format!("`{}` may have letters, digits and . _ - + @ only", show(&name))),
    }
}

/// A VICI address: only Unix sockets yet. Gives the path.
pub fn vici_uri(uri: &str) -> Result<PathBuf, String> {
    match uri.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') && path.len() <= 107 && !path.contains('\0') => {
            Ok(PathBuf::from(path))
        }
        Some(path) if path.len() > 107 => {
            Err(format!("`{}`: a socket's path has at most 107 bytes", show(uri)))
        }
        Some(_) => {
            Err(format!("`{}`: the path must begin with /; write unix:///run/ironswan.vici", show(uri)))
        }
        None if uri.starts_with("tcp://") => {
            Err(format!("`{}`: VICI over TCP is not built yet; use unix://", show(uri)))
        }
        None => Err(format!("`{}` is not a VICI address; write unix:///run/ironswan.vici", show(uri))),
    }
}
