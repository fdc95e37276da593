//! Entries of the area this machine: kernel objects, capabilities, threads, sockets. Texts that
//! quote the kernel or a file name are short and have no control characters: whoever makes an entry
//! has cut and escaped what it quotes.

use std::path::PathBuf;

use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, entries, say};
use super::shown::in_the_sentence;

entries! {
    /// The machine that the gateway runs on: kernel, capabilities, threads, sockets.
    Machine, MachineEntry;

    /// The TUN driver is missing, or may not be used.
    NoTun {
        /// The kernel's answer.
        why: String,
    } = "no-tun-driver" by ThisMachine;
    /// The process lacks a capability.
    NoPrivilege {
        /// The action that was not permitted.
        action: String,
    } = "no-privilege" by ThisMachine;
    /// Another process holds the TUN device, or another kind of interface has its name.
    DeviceBusy {
        /// Name of the interface.
        name: String,
    } = "device-busy" by ThisMachine;
    /// The kernel takes no interface of this name.
    DeviceName {
        /// The name.
        name: String,
    } = "device-name" by Configuration;
    /// Another process has the UDP port.
    PortInUse {
        /// The port.
        port: u16,
        /// IPv6, else IPv4.
        ipv6: bool,
    } = "port-in-use" by ThisMachine;
    /// The kernel has no IPv4, or no IPv6.
    NoFamily {
        /// IPv6, else IPv4.
        ipv6: bool,
    } = "no-address-family" by ThisMachine;
    /// There is no interface of this name.
    NoInterface {
        /// The name.
        name: String,
    } = "no-interface" by ThisMachine;
    /// The kernel refused a request about routes, rules, addresses or interfaces.
    KernelRefused {
        /// The request, which completes "the kernel refused to ...".
        request: String,
        /// The kernel's answer.
        why: String,
        /// The remedy. Empty: there is none for this answer.
        write: &'static str,
    } = "kernel-refused" by ThisMachine;
    /// The kernel's answer has a form that this program does not know.
    AnswerUnknown {
        /// The request, which completes "a request to ...".
        request: String,
    } = "kernel-answer-unknown" by ThisMachine;
    /// Of the kernel's answer, objects of a form that this program does not know are left out.
    AnswerIncomplete {
        /// The request and the number of objects.
        lacks: String,
    } = "kernel-answer-incomplete" by ThisMachine;
    /// A system call failed for a reason that no other entry names.
    SystemCall {
        /// The action.
        action: String,
        /// The kernel's answer.
        why: String,
    } = "system-call-failed" by ThisMachine;
    /// The system starts no more threads.
    NoThread {
        /// Work of the thread.
        of: &'static str,
        /// The kernel's answer.
        why: String,
    } = "no-thread" by ThisMachine;
    /// The VICI socket cannot be made.
    ViciSocket {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        why: SocketFault,
    } = "vici-socket" by ThisMachine;
    /// The secret of quick crash detection cannot be used, so peers get no QCD tokens (RFC 6290).
    QcdSecret {
        /// Path of its file.
        path: PathBuf,
        /// Reason.
        why: QcdSecretFault,
    } = "qcd-secret" by ThisMachine;
}

/// Reason why the secret of quick crash detection cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QcdSecretFault {
    /// The file can be neither opened nor made; the kernel's answer.
    System(String),
    /// The path is not that of a regular file.
    NotRegular,
    /// The file has another length than a secret.
    Length {
        /// Its length in bytes.
        bytes: u64,
        /// Bytes of a secret.
        wanted: u64,
    },
    /// All bytes are the same: the file is damaged, or somebody made it by hand.
    NotRandom,
    /// Other users than its owner may read or write it.
    Open {
        /// Its mode.
        mode: u32,
    },
    /// It belongs to a user who is neither root nor the one who starts the daemon.
    Foreign {
        /// Number of the user.
        user: u32,
    },
    /// Another gateway uses it: each would tell tokens of IKE_SAs that the other one has.
    InUse,
}

/// Reason why a listening Unix socket cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketFault {
    /// A daemon answers there.
    Alive,
    /// Something stands there that is no socket.
    NoSocket,
    /// The socket of a killed daemon cannot be removed.
    Stale(String),
    /// The folder does not exist.
    NoFolder,
    /// The folder may not be written.
    Denied(String),
    /// The kernel's answer to anything else.
    System(String),
    /// Somebody removed the new socket at once.
    Vanished(String),
    /// There is no group of this name.
    NoGroup(String),
    /// The file got another group than the one that is to use it.
    OtherGroup,
}

impl Machine {
    /// No entry answers a peer.
    pub(super) fn notify(&self) -> Option<Notify> {
        None
    }

    pub(super) fn words(&self) -> Words {
        let family = |ipv6: &bool| if *ipv6 { "IPv6" } else { "IPv4" };
        match self {
            Self::NoTun { why } => say(
                format!("/dev/net/tun cannot be opened ({why})"),
                "load the driver with `modprobe tun`; in a container, pass the device in (`--device /dev/net/tun`) and give it \
                 CAP_NET_ADMIN",
            ),
            Self::NoPrivilege { action } => say(
                format!("{action} is not permitted"),
                "run as root, or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE",
            ),
            Self::DeviceBusy { name } => say(
                format!("the interface {name} is held by another process or is not a TUN device"),
                format!(
                    "stop the other daemon (`ip tuntap show`), or remove the interface with `ip link del {name}`"
                ),
            ),
            Self::DeviceName { name } => say(
                format!("{name:?} is not a name for an interface"),
                "use 1 to 15 characters without blank, slash, colon and percent sign",
            ),
            Self::PortInUse { port, ipv6 } => say(
                format!(
                    "UDP port {port} ({}) is used by another process, most likely another IKE daemon",
                    family(ipv6)
                ),
                format!("stop it (`ss -ulpn 'sport = :{port}'` shows which), or choose another port"),
            ),
            Self::NoFamily { ipv6 } => say(format!("the kernel has no {} here", family(ipv6)), ""),
            Self::NoInterface { name } => {
                say(format!("there is no interface {name}"), "`ip link` lists those that exist")
            }
            Self::KernelRefused { request, why, write } => {
                say(format!("the kernel refused to {request}: {why}"), *write)
            }
            Self::AnswerUnknown { request } => say(
                format!("the kernel's answer to a request to {request} is not understood"),
                "the kernel is newer than this program, which is to be updated",
            ),
            Self::AnswerIncomplete { lacks } => say(format!("{lacks} (said once)"), ""),
            Self::SystemCall { action, why } => say(format!("{action} failed: {why}"), ""),
            Self::NoThread { of, why } => say(
                format!("a thread that {of} cannot be started: {why}"),
                "look at `ulimit -u`, and at TasksMax of the service",
            ),
            Self::ViciSocket { path, why } => why.words(&path.display().to_string()),
            Self::QcdSecret { path, why } => why.words(&path.display().to_string()),
        }
    }
}

impl SocketFault {
    fn words(&self, name: &str) -> Words {
        const OTHER: &str = "give another --vici";
        match self {
            Self::Alive => {
                say(format!("VICI at {name}: already running"), format!("stop the other daemon, or {OTHER}"))
            }
            Self::NoSocket => {
                say(format!("{name} exists and is not a socket"), format!("remove it, or {OTHER}"))
            }
            Self::Stale(why) => {
                say(format!("cannot remove the stale socket {name}: {why}"), format!("remove it, or {OTHER}"))
            }
            Self::NoFolder => say(
                format!("cannot make the VICI socket {name}: there is no such folder"),
                format!("make it, or {OTHER}"),
            ),
            Self::Denied(why) => {
                say(format!("cannot make the VICI socket {name}: {why}"), format!("run as root, or {OTHER}"))
            }
            Self::System(why) => say(format!("cannot make the VICI socket {name}: {why}"), OTHER),
            Self::Vanished(why) => say(format!("the VICI socket {name} vanished: {why}"), OTHER),
            Self::NoGroup(group) => say(
                format!("the VICI socket {name} is for the group {group}, which is not in /etc/group"),
                format!("make it (`groupadd --system {group}`), or write another vici.readonly_group"),
            ),
            Self::OtherGroup => say(
                format!(
                    "the VICI socket {name} gets the group of its folder, not that of vici.readonly_group"
                ),
                "write a vici.readonly in a folder without the set-group-ID bit",
            ),
        }
    }
}

impl QcdSecretFault {
    fn words(&self, name: &str) -> Words {
        const ANEW: &str = "remove it; the next start makes a new one";
        let without = |why: String| format!("peers get no QCD tokens: {why}");
        match self {
            Self::System(why) => say(
                without(format!("the secret {name} can be neither read nor made: {why}")),
                "let root write into its folder, or write another `qcd_secret`, or `quick_crash_detection = no`",
            ),
            Self::NotRegular => say(without(format!("the secret {name} is not a regular file")), ANEW),
            Self::Length { bytes, wanted } => {
                say(without(format!("the secret {name} has {bytes} bytes, and needs {wanted}")), ANEW)
            }
            Self::NotRandom => say(without(format!("the secret {name} has the same byte throughout")), ANEW),
            Self::Open { mode } => {
                say(without(format!("others may read or write the secret {name} (mode {mode:03o})")), ANEW)
            }
            Self::Foreign { user } => {
                say(without(format!("the secret {name} belongs to user {user}, not to root")), ANEW)
            }
            Self::InUse => say(
                without(format!("another gateway uses the secret {name}")),
                "give each gateway of this machine a `qcd_secret` of its own",
            ),
        }
    }
}

in_the_sentence!(QcdSecretFault, SocketFault);
