//! Entries of the area path: the way of messages to the peer and back.

use std::net::{IpAddr, SocketAddr};

use ironswan_wire::iana::NotifyType;
use ironswan_wire::id::Identity;
use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, entries, say};
use super::reach::{self, Icmp, Unanswered};
use super::shown::{displayed, in_the_sentence};

/// What carries the packets of a CHILD_SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// IP protocol 50.
    Esp,
    /// IP protocol 51.
    Ah,
    /// ESP in UDP.
    Udp {
        /// Our port.
        ours: u16,
        /// The peer's port.
        theirs: u16,
    },
}

impl std::fmt::Display for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Esp => f.write_str("ESP, IP protocol 50"),
            Self::Ah => f.write_str("AH, IP protocol 51"),
            Self::Udp { ours, theirs } => write!(f, "ESP in UDP, ports {ours} and {theirs}"),
        }
    }
}

impl Carrier {
    fn remedy(self, remote: IpAddr) -> String {
        let hosts = "and see whether the hosts behind it answer";
        match self {
            Self::Esp => format!(
                "let IP protocol 50 (ESP) through to and from {remote}, or set encap = yes to have it in UDP 4500; {hosts}"
            ),
            Self::Ah => format!("let IP protocol 51 (AH) through to and from {remote}; {hosts}"),
            Self::Udp { theirs, .. } => {
                format!("let UDP {theirs} through to and from {remote}, long datagrams as well; {hosts}")
            }
        }
    }
}

/// Reason why the operating system does not send a datagram, with its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendFault {
    /// There is no route to the peer.
    NoRoute(String),
    /// The source address is none of this machine.
    NotOurs(String),
    /// The datagram is forbidden, by a packet filter for one.
    Forbidden(String),
    /// Another reason.
    Other(String),
}

/// Reason why a DNS name has no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unresolved {
    /// The resolver has answered, and knows no address.
    NoAddress,
    /// The resolver has not answered.
    Silent {
        /// Time that it had, in seconds.
        seconds: u64,
    },
    /// The resolver's own words.
    Resolver(String),
    /// The resolver was not asked, for this reason of our own.
    NotAsked(String),
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAddress => f.write_str("it has no address"),
            Self::Silent { seconds } => write!(f, "no answer from the resolver within {seconds} s"),
            Self::Resolver(why) => f.write_str(why),
            Self::NotAsked(why) => write!(f, "the resolver is not asked: {why}"),
        }
    }
}

/// The way in which a peer refuses a message that measures the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeRefusal {
    /// The peer has answered with this error.
    Error(NotifyType),
    /// The peer's answer cannot be read.
    Unreadable,
    /// The peer has deleted the IKE_SA.
    Deleted,
    /// The peer has not answered, however often and in whatever form the message was sent.
    Silent,
}

impl std::fmt::Display for ProbeRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(kind) => write!(f, "it answers {kind}"),
            Self::Unreadable => f.write_str("its answer cannot be read"),
            Self::Deleted => f.write_str("it deletes the IKE_SA"),
            Self::Silent => f.write_str("it does not answer"),
        }
    }
}

entries! {
    /// Reaching the peer.
    Path, PathEntry;

    // ---- no answer ----

    /// The peer does not answer when we initiate, and nobody says why.
    NoAnswer {
        /// The request.
        request: Unanswered,
    } = "no-answer" by ThisMachine;
    /// An ICMP error says that the peer's port is closed.
    PortClosed {
        /// The request.
        request: Unanswered,
        /// The error.
        icmp: Box<Icmp>,
    } = "port-closed" by ThisMachine;
    /// An ICMP error says that there is no way to the peer.
    PeerUnreachable {
        /// The request.
        request: Unanswered,
        /// The error.
        icmp: Box<Icmp>,
    } = "peer-unreachable" by ThisMachine;
    /// An ICMP error says that a filter refuses our messages.
    Filtered {
        /// The request.
        request: Unanswered,
        /// The error.
        icmp: Box<Icmp>,
    } = "filtered" by ThisMachine;
    /// The peer answers on UDP 500, and not on UDP 4500.
    SilenceOnNatt {
        /// The connection.
        conn: String,
        /// The request.
        request: Unanswered,
    } = "silence-on-natt" by ThisMachine;
    /// The peer does not answer on UDP 500, and was reached on UDP 4500.
    SilenceOnIke {
        /// The connection.
        conn: String,
        /// The request.
        request: Unanswered,
        /// Address and port at which the peer was reached.
        reached: Box<SocketAddr>,
    } = "silence-on-ike" by ThisMachine;
    /// The peer of an established IKE_SA does not answer any more.
    PeerDead {
        /// The request.
        request: Unanswered,
        /// Time since the last sign of life of the peer, in seconds.
        silent: u64,
        /// The ICMP error about the request.
        icmp: Option<Box<Icmp>>,
    } = "peer-dead" by ThisMachine;

    /// Packets go out on a CHILD_SA and none comes back, while IKE lives.
    OneWay {
        /// Name of the CHILD_SA.
        child: String,
        /// Packets sent since one came in last.
        sent: u64,
        /// Packets received on the same SA, in all.
        received: u64,
        /// Time since one came in, or since the SA was made, in seconds.
        silent: u64,
        /// The peer's address.
        remote: IpAddr,
        /// What carries the packets.
        carrier: Carrier,
    } = "one-way-traffic" by ThisMachine;

    // ---- our side ----

    /// The operating system does not send our messages to the peer.
    NotSent {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// Reason.
        why: SendFault,
    } = "message-not-sent" by ThisMachine;
    /// This machine has no address that `local_addrs` allows.
    NoLocalAddress {
        /// Addresses in `local_addrs`, as text.
        configured: Vec<String>,
        /// The peer's address.
        remote: IpAddr,
        /// The address that the routing table would send from.
        route: IpAddr,
    } = "no-local-address" by Configuration;
    /// There is no route to the peer.
    NoRoute {
        /// The peer's address.
        remote: IpAddr,
    } = "no-route" by ThisMachine;
    /// Nothing can be sent to the peer of an established IKE_SA at present.
    NoWay {
        /// The peer's address.
        remote: IpAddr,
        /// The IKE_SA.
        ike: String,
    } = "no-way" by ThisMachine;
    /// The routing table does not say how the peer is reached.
    RouteUnknown {
        /// The peer's address.
        remote: IpAddr,
        /// The operating system's own words.
        why: String,
    } = "route-unknown" by ThisMachine;
    /// A DNS name in `local_addrs` or `remote_addrs` cannot be resolved.
    NoName {
        /// The names.
        names: Vec<String>,
        /// Reason, for the last one that was looked up. `None`: not known.
        why: Option<Unresolved>,
    } = "name-unresolved" by ThisMachine;
    /// Our address has changed while we were initiating.
    AddressChanged {
        /// The address from which we had begun.
        from: IpAddr,
        /// The new one.
        to: IpAddr,
    } = "address-changed" by ThisMachine;
    /// Our address is gone, and the peer does not answer from another one.
    AddressGone {
        /// The address.
        address: IpAddr,
    } = "address-gone" by ThisMachine;
    /// The peer does not take the addresses to which we have moved the IKE_SA (MOBIKE).
    AddressesRefused {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// The peer's notification.
        kind: NotifyType,
    } = "addresses-refused" by NoAgreement;
    /// The peer has moved the IKE_SA to addresses that cannot be used (MOBIKE).
    BadAddresses {
        /// Our address and port.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// A NAT has changed them, and the peer does not allow one.
        nat: bool,
    } = "bad-addresses" by Peer;
    /// The answer to a test of return routability has another COOKIE2 than the request
    /// (MOBIKE).
    NotRoutable {
        /// The peer's address and port.
        remote: SocketAddr,
    } = "not-routable" by Peer;
    /// The path to the peer carries smaller packets than we believed.
    Narrow {
        /// Our address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
        /// Bytes of the largest packet that we believed to pass.
        believed: u32,
        /// Bytes of the largest packet that was seen to pass.
        found: u32,
        /// MTU of an ICMP error about it, in bytes.
        told: Option<u32>,
    } = "path-narrow" by ThisMachine;
    /// The peer refuses messages that measure the path.
    ProbeRefused {
        /// The peer's identity.
        peer: Identity,
        /// The way in which it refuses.
        how: ProbeRefusal,
    } = "path-probe-refused" by Peer;
}

impl Path {
    pub(super) fn notify(&self) -> Option<Notify> {
        match self {
            Self::BadAddresses { nat: true, .. } => {
                Some(Notify::new(NotifyType::UNEXPECTED_NAT_DETECTED, []))
            }
            Self::BadAddresses { nat: false, .. } => {
                Some(Notify::new(NotifyType::UNACCEPTABLE_ADDRESSES, []))
            }
            // Nobody is there to be told.
            _ => None,
        }
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::NoAnswer { request } => reach::no_answer(request),
            Self::PortClosed { request, icmp } => reach::port_closed(request, icmp),
            Self::PeerUnreachable { request, icmp } => reach::peer_unreachable(request, icmp),
            Self::Filtered { request, icmp } => reach::filtered(request, icmp),
            Self::SilenceOnNatt { conn, request } => reach::silence_on_natt(conn, request),
            Self::SilenceOnIke { conn, request, reached } => reach::silence_on_ike(conn, request, **reached),
            Self::PeerDead { request, silent, icmp } => reach::peer_dead(request, *silent, icmp.as_deref()),
            Self::OneWay { child, sent, received, silent, remote, carrier } => {
                one_way(child, (*sent, *received), *silent, *remote, *carrier)
            }
            Self::NotSent { local, remote, why } => why.words(*local, *remote),
            Self::NoLocalAddress { configured, remote, route } => say(
                format!(
                    "no address of this machine is among local_addrs ({}); the way to {remote} begins at {route}",
                    configured.join(", ")
                ),
                "correct local_addrs, or give this machine the address",
            ),
            Self::NoRoute { remote } => {
                say(format!("no route to {remote}"), "add a route, or correct remote_addrs")
            }
            Self::NoWay { remote, ike } => say(
                format!("no way to {remote} at present, IKE_SA {ike} waits for one"),
                format!(
                    "look at `ip route get {remote}`, and whether local_addrs has an address of this machine"
                ),
            ),
            Self::RouteUnknown { remote, why } => say(
                format!("the route to {remote} is not known: {why}"),
                format!("look at `ip route get {remote}`"),
            ),
            Self::NoName { names, why } => no_name(names, why.as_ref()),
            Self::AddressChanged { from, to } => {
                say(format!("our address has changed from {from} to {to}"), "")
            }
            Self::AddressGone { address } => say(
                format!("our address {address} is gone, and the peer does not answer from another"),
                "let the peer's remote_addrs hold the new address",
            ),
            Self::AddressesRefused { local, remote, kind } => say(
                format!("the peer does not take the IKE_SA from {local} to {remote} ({kind})"),
                "nothing: a new IKE_SA is made; the peer's log says why",
            ),
            Self::BadAddresses { local, remote, nat } => bad_addresses(*local, *remote, *nat),
            Self::NotRoutable { remote } => say(
                format!("the answer from {remote} to a test of the way back is wrong"),
                "look for who can answer in the peer's name; the IKE_SA is made anew if it should be up",
            ),
            Self::Narrow { local, remote, believed, found, told } => {
                narrow((*local, *remote), *believed, *found, *told)
            }
            Self::ProbeRefused { peer, how } => say(
                format!("the peer '{peer}' takes no messages that measure the path: {how}"),
                "nothing: it is not asked again; `path_probe = no` says so from the start",
            ),
        }
    }
}

/// Words about names that have no address.
fn no_name(names: &[String], why: Option<&Unresolved>) -> Words {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let (noun, list) = (if names.len() == 1 { "name" } else { "names" }, names.join(", "));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let remedy = "correct it in remote_addrs or local_addrs, or mend the resolver (`getent ahosts NAME`)";
    say(format!("the {noun} {list} cannot be resolved{why}"), remedy)
}

/// Words about a CHILD_SA on which packets go out and none comes back.
fn one_way(
    child: &str,
    (sent, received): (u64, u64),
    silent: u64,
    remote: IpAddr,
    carrier: Carrier,
) -> Words {
    say(
        format!(
            "packets go out and none comes back while IKE lives: {sent} sent on CHILD_SA {child} in {silent} s, {received} \
             received before ({carrier})"
        ),
        carrier.remedy(remote),
    )
}

/// Words about a path that carries packets of `found` bytes. `told`: MTU of an ICMP error.
fn narrow((local, remote): (IpAddr, IpAddr), believed: u32, found: u32, told: Option<u32>) -> Words {
    let told = match told {
        None => "no ICMP error has said so".to_owned(),
        Some(mtu) => format!("an ICMP error has said {mtu}"),
    };
    say(
        format!(
            "the path from {local} to {remote} is narrower than believed: {found} bytes pass, {believed} do not, and {told}"
        ),
        format!(
            "nothing here: routes and MSS follow; let ICMP \"fragmentation needed\" from the way to {remote} in, so that it is known at once"
        ),
    )
}

/// Words about addresses to which the peer has moved the IKE_SA.
fn bad_addresses(local: SocketAddr, remote: SocketAddr, nat: bool) -> Words {
    match nat {
        false => say(
            format!("the peer moves to {remote}, which cannot be used from {local}"),
            "see what address the peer sends from",
        ),
        true => say(
            format!("the peer allows no NAT, and there is one between {remote} and {local}"),
            "remove the NAT, or let the peer allow it",
        ),
    }
}

impl SendFault {
    fn words(&self, local: SocketAddr, remote: SocketAddr) -> Words {
        let (ours, theirs) = (local.ip(), remote.ip());
        match self {
            Self::NoRoute(why) => say(
                format!("error writing to socket: no route to {theirs} from {ours} ({why})"),
                "add a route, or correct remote_addrs or local_addrs",
            ),
            Self::NotOurs(why) => say(
                format!("error writing to socket: {ours} is no address of this machine ({why})"),
                "correct local_addrs, or give this machine the address",
            ),
            Self::Forbidden(why) => say(
                format!("error writing to socket: a packet from {local} to {remote} is forbidden ({why})"),
                "let UDP 500 and 4500 out: see `nft list ruleset`, and the sandbox of the service",
            ),
            Self::Other(why) => {
                say(format!("error writing to socket: {why} (packet from {local} to {remote})"), "")
            }
        }
    }
}

displayed!(Carrier, ProbeRefusal, Unresolved);
in_the_sentence!(SendFault);
