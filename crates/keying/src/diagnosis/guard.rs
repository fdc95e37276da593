//! Entries of the area guard: the nft table, rules and table 220, programs at the ingress, and the
//! claim of one gateway for a network namespace.

use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, entries, say};

entries! {
    /// The guard, which keeps protected packets from travelling in clear.
    Guard, GuardEntry;

    // ---- the program nft ----

    /// The program `nft` is not installed.
    NftMissing {
        /// Folders that were searched besides PATH.
        folders: String,
    } = "nft-missing" by ThisMachine;
    /// The program `nft` is too old for the guard.
    NftTooOld {
        /// Path of the program.
        program: String,
        /// Version that the program reports.
        found: String,
        /// The oldest version that the guard can use.
        needed: String,
    } = "nft-too-old" by ThisMachine;
    /// The program `nft` cannot be run, or does not end.
    NftBroken {
        /// Path of the program.
        program: String,
        /// Description of the failure, which follows the path.
        why: String,
    } = "nft-broken" by ThisMachine;
    /// The program `nft` ended with an error. The table that stood before is unchanged.
    NftRefused {
        /// The request, which completes "nft refused to ...".
        request: &'static str,
        /// Message of the program, shortened.
        why: String,
    } = "nft-refused" by ThisMachine;

    // ---- what does not stand ----

    /// The kernel refused a part of the guard, which is tried again.
    StepRefused {
        /// The part: a rule, a route, the nft table.
        step: String,
        /// Reason.
        why: String,
    } = "guard-step-refused" by ThisMachine;
    /// The program does not stand at the ingress of every interface.
    IngressIncomplete {
        /// Reason.
        why: String,
    } = "ingress-incomplete" by ThisMachine;
    /// The program at the ingress drops more than the policies say, for lack of room.
    IngressStricter {
        /// Addresses, and reason.
        lists: String,
    } = "ingress-stricter" by Configuration;
    /// The program at the ingress of an interface cannot be removed.
    IngressStays {
        /// Name of the interface.
        interface: String,
        /// The kernel's answer.
        why: String,
    } = "ingress-not-removed" by ThisMachine;
    /// The kernel does not show our rules and routes, so that nobody sees whether they stand.
    Unseen {
        /// The kernel's answer.
        why: String,
    } = "guard-unseen" by ThisMachine;
    /// The kernel does not tell the way to a peer. The last known one holds.
    WayUnknown {
        /// The kernel's answer.
        why: String,
    } = "way-unknown" by ThisMachine;
    /// The daemon ends, and its last table stands already.
    Ended = "guard-ended" by ThisMachine;

    // ---- other programs ----

    /// Another program removed or changed a part of the guard, which was restored.
    Disturbed {
        /// The parts, and who did it as far as that is known.
        parts: String,
    } = "guard-disturbed" by ThisMachine;
    /// The guard of an earlier start was removed, because nothing is guarded now.
    FormerRemoved {
        /// `guard = no` in `ironswan.conf`; else no loaded child is guarded.
        switched_off: bool,
        /// The parts that were removed.
        parts: String,
    } = "former-guard-removed" by Configuration;
    /// Another gateway runs in this network namespace.
    OtherGateway {
        /// Its process, or its socket.
        holder: String,
    } = "other-gateway" by ThisMachine;
    /// A process that is no gateway holds the name by which gateways find each other.
    NameHeld {
        /// Name of the abstract Unix socket.
        name: String,
    } = "gateway-name-held" by ThisMachine;
}

impl Guard {
    /// No entry answers a peer.
    pub(super) fn notify(&self) -> Option<Notify> {
        None
    }

    pub(super) fn words(&self) -> Words {
        const WITHOUT: &str = "set guard = no in ironswan.conf to run without it";
        match self {
            Self::NftMissing { folders } => say(
                format!("`nft` is neither in PATH nor in {folders}"),
                format!("install the package nftables, or {WITHOUT}"),
            ),
            Self::NftTooOld { program, found, needed } => say(
                format!("{program} is nftables {found}, and the guard needs {needed} or newer"),
                format!("upgrade the package nftables, or {WITHOUT}"),
            ),
            Self::NftBroken { program, why } => {
                say(format!("{program}: {why}"), format!("repair the package nftables, or {WITHOUT}"))
            }
            Self::NftRefused { request, why } => {
                say(format!("nft refused to {request}: {why}"), refusal(why, WITHOUT))
            }
            Self::StepRefused { step, why } => {
                say(format!("{step}: {why}"), "what it protects goes nowhere until it succeeds")
            }
            Self::IngressIncomplete { why } => say(
                format!(
                    "packets that come in clear and may not are held back by nftables alone, and no longer where somebody \
                     flushes it, as no program stands at the ingress: {why}"
                ),
                "",
            ),
            Self::IngressStricter { lists } => say(lists.clone(), ""),
            Self::IngressStays { interface, why } => say(
                format!("the program at the ingress of {interface} cannot be removed: {why}"),
                format!("`tc qdisc del dev {interface} clsact` removes it with all filters there"),
            ),
            Self::Unseen { why } => say(format!("rules and routes cannot be looked at: {why}"), ""),
            Self::WayUnknown { why } => {
                say(why.clone(), "until the kernel answers, the way that was known last holds (said once)")
            }
            Self::Ended => say("the gateway has put its last table there", ""),
            Self::Disturbed { parts } => say(parts.clone(), ""),
            Self::FormerRemoved { switched_off, parts } => {
                let why =
                    if *switched_off { "guard = no in ironswan.conf" } else { "no loaded child is guarded" };
                say(format!("{why}: removed the guard of an earlier start: {parts}"), "")
            }
            Self::OtherGateway { holder } => say(
                format!(
                    "another gateway ({holder}) runs in this network namespace, and both would claim table 220 and the guard"
                ),
                "stop it, or run this one in a namespace of its own",
            ),
            Self::NameHeld { name } => say(
                format!(
                    "the name @{name} is held by a process that is not root's, or that takes no connections, which is taken for \
                     no gateway"
                ),
                "`ss -xlp` names the process",
            ),
        }
    }
}

/// The remedy for a message of `nft`.
fn refusal(why: &str, without: &str) -> String {
    if why.contains("Operation not permitted") {
        "this needs root or CAP_NET_ADMIN".to_owned()
    } else if ["not supported", "No such file", "Invalid argument"].iter().any(|w| why.contains(w)) {
        format!("the kernel may lack a part of nftables: load nf_tables and nft_fib_inet, or {without}")
    } else {
        String::new()
    }
}
