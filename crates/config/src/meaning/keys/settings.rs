//! Keys of `ironswan.conf`, `vici { .. }` and `log { .. }`, and their readers.

use std::path::PathBuf;
use std::time::Duration;

use ironswan_keying::Level;
use ironswan_keying::diagnosis::{Configuration, ValueFault};

use super::Preset::{Depends, Is};
use super::{Entry, Key, Kind, Rule, Table, Unused};
use super::{each, keys, list, text, word, yes_no};
use crate::tree::Value;
use crate::value::{self, Wrong, show, wrong};

/// Form of the lines of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// `<time> <level> <conn> text`.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

keys! {
    /// Keys of `ironswan.conf` outside of its sections.
    SETTINGS;
    DEVICE: String = text("device", Kind::Device, Is("ipsec0"), tun_device,
        "name of the TUN device: up to 15 letters, digits and `. _ - + @`");
    PORT_IKE: u16 = text("port_ike", Kind::Number, Is("500"), real_port,
        "UDP port for IKE that the daemon listens on and sends from. Peers that initiate have to be told of another one (their `remote_port`)");
    PORT_NATT: u16 = text("port_natt", Kind::Number, Is("4500"), real_port,
        "UDP port for IKE and ESP behind a NAT, likewise. Must differ from `port_ike`");
    MARK: u32 = text("mark", Kind::Number, Is("0x220"), mark,
        "mark of the gateway's own packets, which skip routing table 220");
    STEER_MARK: u32 = text("steer_mark", Kind::Number, Is("0x10000000"), steer_mark,
        "mark (one bit) of packets that a policy sends into a tunnel; nft puts it on, a rule sends it to table 220. Must not be a bit of `mark`, nor one that other programs use");
    GUARD: bool = yes_no("guard", "yes",
        "`no`: nft is not used at all. Routes and rules alone steer, by destination; what they cannot tell apart goes to `ipsec0` and is dropped there, and nothing holds once the daemon has ended ([operations](operations.md#the-guard))");
    USER: String = text("user", Kind::User, Depends("`ironswan`, where there is one"), user,
        "user of this machine that the daemon becomes once it has started its helper ([operations](operations.md#processes-and-privileges)). Without this key and without a user `ironswan`, or with `root`, it stays root, with the same two capabilities");
    SANDBOX: bool = yes_no("sandbox", "yes",
        "`no`: the daemon may make any system call. For a machine on which one that it needs is refused, as the kernel's log tells ([operations](operations.md#processes-and-privileges)); its user and its capabilities stay as they are");
    KEYLOG: PathBuf = text("keylog", Kind::Folder, Depends(""), |t| Ok(PathBuf::from(t.trim())),
        "a folder: writes every key there, in the tables Wireshark reads. Off unless written; whoever reads that folder reads the traffic, so it must belong to the daemon's user or root and nobody else may write to it, and files that are there already must be the daemon's user's own with mode 600. It ends, and the log says so, when its file system takes nothing");
    QUICK_CRASH_DETECTION: bool = yes_no("quick_crash_detection", "yes",
        "gives each peer a token by which this gateway proves after a crash that it has lost the IKE_SA, and takes such tokens of peers (RFC 6290): [after a crash](operations.md#after-a-crash). `no` for gateways that share one `qcd_secret` and are active at once");
    QCD_SECRET: PathBuf = text("qcd_secret", Kind::File, Is("/var/lib/ironswan/qcd-secret"), absolute,
        "file of the secret from which the tokens are made, absolute. The first start makes it. Each gateway of a machine needs one of its own; a standby gateway that takes over addresses of this one may have a copy");
    RETRANSMIT_TIMEOUT: Duration = text("retransmit_timeout", Kind::Duration, Is("4s"), positive,
        "first retransmission of a request; up to a tenth earlier in attempts that begin by themselves, as may the others");
    RETRANSMIT_BASE: f64 = text("retransmit_base", Kind::Factor, Is("1.8"), |t| value::factor(t, 1.0, 10.0),
        "factor from one retransmission to the next, 1 to 10");
    RETRANSMIT_TRIES: u64 = text("retransmit_tries", Kind::Number, Is("5"), |t| count(t, 0, 100),
        "retransmissions before the peer is given up (165 s in all)");
    HALF_OPEN_TIMEOUT: Duration = text("half_open_timeout", Kind::Duration, Is("30s"), positive,
        "an IKE_SA that is not authenticated by then is forgotten; after a third of it while more than half of `half_open_max` is in use");
    COOKIE_THRESHOLD: u64 = text("cookie_threshold", Kind::Number, Is("30"), |t| count(t, 0, 1_000_000),
        "with this many half-open IKE_SAs, initiators must return a cookie first; 0: always. They must as well while more than 30 requests a second are refused");
    HALF_OPEN_MAX: u64 = text("half_open_max", Kind::Number, Is("1000"), |t| count(t, 1, 1_000_000),
        "no more half-open IKE_SAs than this. When it is reached, the oldest of the fullest network gives way to a peer from elsewhere");
    HALF_OPEN_PER_NET: u64 = text("half_open_per_net", Kind::Number, Is("0"), |t| count(t, 0, 1_000_000),
        "no more half-open IKE_SAs than this from one network, an IPv4 /24 or IPv6 /64; 0: a quarter of `half_open_max`, at least `half_open_per_addr`. A site (/16, /48) may have half of `half_open_max`");
    HALF_OPEN_PER_ADDR: u64 = text("half_open_per_addr", Kind::Number, Is("200"), |t| count(t, 1, 1_000_000),
        "no more half-open IKE_SAs than this from one address. Many peers may be behind one NAT; from the fourth on each must return a cookie, so that nobody else can use an address's share up");
    KEEP_ALIVE: Duration = text("keep_alive", Kind::Duration, Is("20s"), value::fine_time,
        "behind a NAT, one octet goes to the peer when nothing else has for this long, so that the NAT does not forget the mapping; shorter than the NAT's own time for UDP. 0: never");
    DELETE_REKEYED_DELAY: Duration = text("delete_rekeyed_delay", Kind::Duration, Is("5s"), value::fine_time,
        "how long an old inbound CHILD_SA is kept after a rekey, for packets still on their way");
    FRAGMENT_SIZE: u64 = text("fragment_size", Kind::Number, Is("1280"), fragment_size,
        "longest IP packet in bytes, 200 to 10000, in which part of an IKE message is sent when `fragmentation` cuts it; 0: 576 over IPv4, 1280 over IPv6");
    RETRY_INITIAL: Duration = text("retry_initial", Kind::Duration, Is("5s"), positive,
        "first pause between two tries: doubled each time up to `retry_max`, and half of each at random");
    RETRY_MAX: Duration = text("retry_max", Kind::Duration, Is("300s"), positive,
        "longest pause between two tries");
    IKE_SA_MAX: u64 = text("ike_sa_max", Kind::Number, Is("100000"), |t| count(t, 1, 10_000_000),
        "no more IKE_SAs than this. Like the next three limits, it refuses no rekeying");
    IKE_SA_MAX_PER_ID: u64 = text("ike_sa_max_per_id", Kind::Number, Is("1000"), |t| count(t, 0, 10_000_000),
        "no more IKE_SAs than this of [one authenticated identity](#limits-of-one-identity); 0: no limit");
    CHILD_SA_MAX: u64 = text("child_sa_max", Kind::Number, Is("1000"), |t| count(t, 1, 1_000_000),
        "no more CHILD_SAs than this of one IKE_SA");
    CHILD_SA_MAX_PER_ID: u64 = text("child_sa_max_per_id", Kind::Number, Is("10000"), |t| count(t, 0, 100_000_000),
        "no more CHILD_SAs than this of [one authenticated identity](#limits-of-one-identity), on all connections together; 0: no limit");
}

/// `ironswan.conf` outside of its sections.
pub(in crate::meaning) const SETTINGS_TABLE: Table = Table {
    read: SETTINGS,
    unused: &[Unused { name: "workers", rule: Rule::Moved("data"), why: "write data { workers = ... }" }],
};

/// Sections of `ironswan.conf`.
pub(in crate::meaning) const SECTIONS: &[&str] = &["vici", "log", "data"];

keys! {
    /// Keys of `vici { .. }`.
    VICI;
    LISTEN: Vec<String> = list("listen", Kind::Sockets, Depends("`unix:///run/ironswan.vici`"), listen,
        "where VICI listens, a list; `--vici` on the command line replaces it");
    READONLY: String = text("readonly", Kind::Socket, Depends("none"), socket,
        "one more socket, whose clients can look and change nothing ([operations](operations.md#a-socket-that-only-reads))");
    READONLY_GROUP: String = text("readonly_group", Kind::Group, Depends("root alone"), group,
        "members of this group may connect to `readonly`");
}

/// `vici { .. }` of `ironswan.conf`.
pub(in crate::meaning) const VICI_TABLE: Table = Table { read: VICI, unused: &[] };

keys! {
    /// Keys of `log { .. }`.
    LOG;
    LEVEL: Level = text("level", Kind::Word, Is("info"), level,
        "the least important lines that are written: `error`, `warn`, `info`, `debug`");
    FORMAT: LogFormat = text("format", Kind::Word, Is("text"), format,
        "`text`, or `json`: one object a line");
}

/// `log { .. }` of `ironswan.conf`.
pub(in crate::meaning) const LOG_TABLE: Table = Table { read: LOG, unused: &[] };

fn count(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    match value::number(text, max)? {
        n if n < min => Err(wrong(text, ValueFault::Below(min.to_string()), "")),
        n => Ok(n),
    }
}

fn absolute(text: &str) -> Result<PathBuf, Wrong> {
    match PathBuf::from(text.trim()) {
        path if path.is_absolute() => Ok(path),
        _ => Err(wrong(text, ValueFault::Not("an absolute path"), "")),
    }
}

/// 0, or a length in bytes into which the headers and one byte of every cipher suite fit.
fn fragment_size(text: &str) -> Result<u64, Wrong> {
    match value::number(text, 10_000)? {
        0 => Ok(0),
        n if n < 200 => Err(wrong(text, ValueFault::Below("200".into()), "")),
        n => Ok(n),
    }
}

fn positive(text: &str) -> Result<Duration, Wrong> {
    match value::fine_time(text)? {
        Duration::ZERO => Err(wrong(text, ValueFault::Zero, "")),
        time => Ok(time),
    }
}

fn real_port(text: &str) -> Result<u16, Wrong> {
    match value::number(text, 65_535)? {
        0 => Err(wrong(text, ValueFault::Zero, "")),
        n => Ok(n as u16),
    }
}

fn user(text: &str) -> Result<String, Wrong> {
    account(text, "a user's name (1 to 32 characters)")
}

fn group(text: &str) -> Result<String, Wrong> {
    account(text, "a group's name (1 to 32 characters)")
}

/// The name of a user or group, which stands in a list with colons.
fn account(text: &str, kind: &'static str) -> Result<String, Wrong> {
    let name = text.trim();
    let fits = (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b':' && b != b'/');
    if fits { Ok(name.to_owned()) } else { Err(wrong(name, ValueFault::Not(kind), "")) }
}

fn mark(text: &str) -> Result<u32, Wrong> {
    match value::number(text, u64::from(u32::MAX))? {
        0 => Err(wrong(text, ValueFault::ZeroMark, "")),
        n => Ok(n as u32),
    }
}

/// One bit of a packet's mark: rules and nft ask for it alone and leave the others to other
/// programs.
fn steer_mark(text: &str) -> Result<u32, Wrong> {
    let mark = value::number(text, u64::from(u32::MAX))? as u32;
    if mark.is_power_of_two() { Ok(mark) } else { Err(wrong(text, ValueFault::NotOneBit, "")) }
}

/// A network device's name: one that the kernel takes (`dev_valid_name`).
pub(super) fn device(text: &str) -> Result<String, Wrong> {
    let t = text.trim();
    let ok = !t.is_empty()
        && t.len() <= 15
        && t != "."
        && t != ".."
        && t.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':' && b != b'%');
    if ok {
        Ok(t.to_owned())
    } else {
        Err(wrong(t, ValueFault::Not("a device's name (1 to 15 characters)"), ""))
    }
}

/// The name of the TUN device, which stands in the text that `nft` reads: there `e*` would mean
/// every device whose name begins with e.
fn tun_device(text: &str) -> Result<String, Wrong> {
    let name = device(text)?;
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+@".contains(&b)) {
        true => Ok(name),
        false => Err(wrong(&name, ValueFault::BadDeviceName, "")),
    }
}

fn listen(list: &Value) -> Result<Vec<String>, Vec<Wrong>> {
    each(list, |uri| vici_uri(uri).map(|_| uri.to_owned()))
}

fn socket(text: &str) -> Result<String, Wrong> {
    let uri = text.trim();
    vici_uri(uri).map(|_| uri.to_owned())
}

/// Longest path of a Unix socket in bytes: `sun_path` of unix(7) less the NUL at its end.
const MAX_SOCKET_PATH: usize = 107;
/// Remedy for what is no address of VICI.
const USUAL_SOCKET: &str = "write unix:///run/ironswan.vici";

/// A VICI address: only Unix sockets yet. Gives the path.
///
/// # Errors
/// The value cannot be used, or names another transport.
pub fn vici_uri(uri: &str) -> Result<PathBuf, Wrong> {
    match uri.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') && path.len() <= MAX_SOCKET_PATH && !path.contains('\0') => {
            Ok(PathBuf::from(path))
        }
        Some(path) if path.len() > MAX_SOCKET_PATH => {
            Err(wrong(uri, ValueFault::LongSocketPath(MAX_SOCKET_PATH), ""))
        }
        Some(_) => Err(wrong(uri, ValueFault::RelativeSocketPath, USUAL_SOCKET)),
        None if uri.starts_with("tcp://") => {
            let what = format!("`{}`: VICI over TCP is not built yet", show(uri));
            Err(Configuration::NotBuilt { what, write: "use unix://" })
        }
        None => Err(wrong(uri, ValueFault::Not("a VICI address"), USUAL_SOCKET)),
    }
}

fn level(text: &str) -> Result<Level, Wrong> {
    let words =
        [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
    word(text, &words)
}

fn format(text: &str) -> Result<LogFormat, Wrong> {
    word(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
}
