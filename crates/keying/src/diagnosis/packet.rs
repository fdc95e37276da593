//! Entries of the area packet: obstacles on the way of one packet through this machine, as
//! `ironswan explain --packet` finds them. Texts that quote a rule or a name are short and have no
//! control characters: whoever makes an entry has cut and escaped what it quotes.

use std::fmt;
use std::net::IpAddr;

use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, entries, say};
use super::shown::displayed;

/// The policy that comes nearest to covering a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearPolicy {
    /// Its child, `connection.child`.
    pub child: String,
    /// Its selectors, our side first.
    pub selectors: String,
    /// The selectors that do not fit: what the packet has and what the policy has.
    pub misses: Vec<String>,
}

impl fmt::Display for NearPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.child, self.selectors, self.misses.join(", "))
    }
}

/// Limit of an SA that is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaLimit {
    /// Bytes or packets.
    Traffic,
    /// Sequence numbers.
    Sequence,
}

impl fmt::Display for SaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Traffic => "bytes or packets",
            Self::Sequence => "sequence numbers",
        })
    }
}

displayed!(NearPolicy, SaLimit);

entries! {
    /// The way of one packet through this machine.
    Packet, PacketEntry;

    // ---- the machine ----

    /// A link on the packet's way is down, or has no carrier.
    LinkDown {
        /// Name of the interface.
        name: String,
        /// The interface is up and the other end is missing; else it was set down.
        carrier: bool,
    } = "packet-link-down" by ThisMachine;
    /// The kernel does not pass on packets that come by the interface.
    NotForwarded {
        /// The setting that is off.
        setting: String,
    } = "packet-not-forwarded" by ThisMachine;
    /// The check of the way back drops the packet: its source is not reached by the interface by
    /// which it comes.
    ReversePath {
        /// The interface.
        interface: String,
        /// The source.
        source: IpAddr,
        /// The interface by which the source is reached; empty where there is no route.
        back: String,
    } = "packet-reverse-path" by ThisMachine;
    /// The kernel has no route for the packet, or one that refuses it.
    NoRoute {
        /// The destination.
        destination: IpAddr,
        /// The kernel's answer.
        why: String,
        /// Rules and routes of other programs that lead there.
        foreign: Vec<String>,
    } = "packet-no-route" by ThisMachine;
    /// A policy protects the packet, and a route leads it past the tunnel.
    Elsewhere {
        /// The interface by which it would leave; empty: the packet is for this machine.
        interface: String,
        /// The routing table that decided.
        table: u32,
        /// The interface by which it should leave.
        device: String,
        /// The guard drops it there.
        guarded: bool,
        /// Rules and routes of other programs that lead there.
        foreign: Vec<String>,
    } = "packet-routed-elsewhere" by ThisMachine;
    /// A rule of another nft table drops the packet.
    ForeignRule {
        /// Family and name of the table.
        table: String,
        /// Name of the chain.
        chain: String,
        /// The rule as `nft` shows it; empty: the chain's policy drops.
        rule: String,
    } = "packet-dropped-by-rule" by ThisMachine;
    /// The guard drops the packet, which is in clear where it must be protected.
    Guarded {
        /// The child whose policy covers it, `connection.child`.
        child: String,
        /// The packet comes in clear; else it would leave in clear.
        arrives: bool,
    } = "packet-in-clear" by ThisMachine;
    /// The packet was seen, and the kernel dropped it without a rule of nft.
    Vanished {
        /// The station at which it was seen last.
        after: &'static str,
    } = "packet-vanished" by ThisMachine;
    /// No packet of the flow has reached this machine while it was followed.
    Unseen {
        /// Time for which it was followed, in seconds.
        seconds: u64,
    } = "packet-not-seen" by ThisMachine;

    // ---- policies ----

    /// No policy covers the packet.
    NoPolicy {
        /// The packet.
        packet: String,
        /// The policy that comes nearest.
        nearest: Option<Box<NearPolicy>>,
        /// Nothing else is in its way: it goes on in clear.
        clear: bool,
    } = "packet-without-policy" by Configuration;
    /// A child that drops (`mode = drop`) covers the packet.
    Discarded {
        /// The child, `connection.child`.
        child: String,
    } = "packet-discarded" by Configuration;
    /// A policy of another child covers the packet before that of the SA that brings it.
    OtherPolicy {
        /// The child whose policy comes first, `connection.child`.
        child: String,
        /// The SPI of the SA.
        spi: String,
    } = "packet-of-another-policy" by Configuration;

    // ---- SAs ----

    /// A policy covers the packet, and there is no SA.
    NoSa {
        /// The child, `connection.child`.
        child: String,
        /// Why the tunnel is down; empty where nobody has asked for it.
        why: String,
        /// What to do about it; empty where nothing is known.
        write: String,
    } = "packet-without-sa" by NoAgreement;
    /// The SA was narrowed, and does not cover the packet.
    OutsideSa {
        /// The child, `connection.child`.
        child: String,
        /// Selectors of the SA, our side first.
        agreed: String,
    } = "packet-outside-sa" by NoAgreement;
    /// The SA has reached a limit and carries nothing more.
    Spent {
        /// The child, `connection.child`.
        child: String,
        /// The limit.
        limit: SaLimit,
    } = "packet-sa-spent" by NoAgreement;
    /// The SA is in transport mode, and the packet is not between its two ends.
    NotBetweenEnds {
        /// The child, `connection.child`.
        child: String,
        /// Our end and the peer's.
        ends: String,
    } = "packet-not-between-ends" by Configuration;

    // ---- outside ----

    /// The packet does not fit the path, and may not be fragmented.
    TooBig {
        /// Its length in bytes.
        length: u32,
        /// The longest that fits.
        largest: u32,
    } = "packet-too-big" by ThisMachine;
    /// No route leads to the peer.
    NoWayToPeer {
        /// The peer's address.
        peer: IpAddr,
        /// The kernel's answer.
        why: String,
    } = "packet-no-way-to-peer" by ThisMachine;
    /// The SA's own address is no longer an address of this machine.
    AddressGone {
        /// The address.
        address: IpAddr,
    } = "packet-address-gone" by ThisMachine;
}

impl Packet {
    /// No entry answers a peer.
    pub(super) fn notify(&self) -> Option<Notify> {
        None
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::NoPolicy { .. } | Self::Discarded { .. } | Self::OtherPolicy { .. } => self.of_policies(),
            Self::NoSa { .. } | Self::OutsideSa { .. } | Self::Spent { .. } | Self::NotBetweenEnds { .. } => {
                self.of_sas()
            }
            Self::TooBig { .. } | Self::NoWayToPeer { .. } | Self::AddressGone { .. } => self.of_outside(),
            _ => self.of_machine(),
        }
    }

    fn of_machine(&self) -> Words {
        match self {
            Self::LinkDown { name, carrier: false } => {
                say(format!("the link {name} is down"), format!("`ip link set {name} up`"))
            }
            Self::LinkDown { name, carrier: true } => {
                say(format!("the link {name} has no carrier"), "look at its cable or its peer")
            }
            Self::NotForwarded { setting } => say(
                format!("the kernel does not forward ({setting} is 0)"),
                format!("`sysctl -w {setting}=1`, and in /etc/sysctl.d for good"),
            ),
            Self::ReversePath { interface, source, back } => say(
                match back.as_str() {
                    "" => format!("rp_filter of {interface} drops it: no route leads back to {source}"),
                    back => format!("rp_filter of {interface} drops it: {source} is reached by {back}"),
                },
                "correct the route to the source, or `sysctl -w net.ipv4.conf.all.rp_filter=2`",
            ),
            Self::NoRoute { destination, why, foreign } => say(
                format!("the kernel has no route to {destination} ({why})"),
                "look at `ip rule` and `ip route show table all`",
            )
            .with(foreign.clone()),
            Self::Elsewhere { interface, table, device, guarded, foreign } => {
                elsewhere(interface, *table, device, *guarded).with(foreign.clone())
            }
            Self::ForeignRule { table, chain, rule } if rule.is_empty() => say(
                format!("the policy of the nft chain {chain} (table {table}) drops it"),
                "add a rule to that chain that accepts this flow",
            ),
            Self::ForeignRule { table, chain, rule } => say(
                format!("a rule of the nft table {table}, chain {chain}, drops it: {rule}"),
                "let a rule before that one accept this flow, or remove that one",
            ),
            Self::Guarded { child, arrives: true } => say(
                format!("it comes in clear, {child} protects it, and the guard drops it"),
                "let the peer send it through the tunnel; `guard = no` in the child lets it in",
            ),
            Self::Guarded { child, arrives: false } => say(
                format!("it would leave in clear, {child} protects it, and the guard drops it"),
                "find out what leads it past the tunnel: `ip rule`, `ip route show table 220`",
            ),
            Self::Vanished { after } => say(
                format!("it was seen {after}, and no further: the kernel dropped it, without a rule of nft"),
                "look at `nstat -az` and `ip -s link`, and at programs of tc",
            ),
            Self::Unseen { seconds } => say(
                format!("no packet of this flow came within {seconds} s"),
                "look at the sender: its route, its firewall; or a filter in front of nft here (tc, XDP)",
            ),
            _ => say("", ""),
        }
    }

    fn of_policies(&self) -> Words {
        match self {
            Self::NoPolicy { packet, nearest: None, clear } => say(
                format!("no policy covers {packet}{}, and none comes near", in_clear(*clear)),
                "name its networks in local_ts and remote_ts of a child, on both gateways",
            ),
            Self::NoPolicy { packet, nearest: Some(near), clear } => say(
                format!("no policy covers {packet}{}; the nearest is {near}", in_clear(*clear)),
                "widen local_ts or remote_ts of that child, on both gateways",
            ),
            Self::Discarded { child } => {
                say(format!("{child} drops it (mode = drop)"), "remove that child, or narrow its selectors")
            }
            Self::OtherPolicy { child, spi } => say(
                format!("the SA {spi} brings it, and the policy of {child} covers it first"),
                "make the selectors of the two children disjoint, or set `priority`",
            ),
            _ => say("", ""),
        }
    }

    fn of_sas(&self) -> Words {
        match self {
            Self::NoSa { child, why, write } if why.is_empty() => say(
                format!("{child} has no SA, and nobody has asked for one"),
                match write.as_str() {
                    "" => "`ironswan up`, or start_action = start or trap".to_owned(),
                    write => write.to_owned(),
                },
            ),
            Self::NoSa { child, why, write } => say(
                format!("{child} has no SA: {why}"),
                match write.as_str() {
                    "" => "`ironswan up` brings it up, or says why it does not come",
                    write => write,
                },
            ),
            Self::OutsideSa { child, agreed } => say(
                format!("the SA of {child} covers only {agreed}, to which the peer has narrowed it"),
                "widen the selectors of the peer's child",
            ),
            Self::Spent { child, limit } => say(
                format!("the SA of {child} has used up its {limit}, and was not rekeyed in time"),
                "`ironswan rekey`; and a lower rekey_bytes, rekey_packets or rekey_time",
            ),
            Self::NotBetweenEnds { child, ends } => say(
                format!("the SA of {child} is in transport mode, which carries packets between {ends} only"),
                "mode = tunnel for networks behind the gateways",
            ),
            _ => say("", ""),
        }
    }

    fn of_outside(&self) -> Words {
        match self {
            Self::TooBig { length, largest } => say(
                format!("{length} bytes do not fit, {largest} would, and it may not be fragmented (DF)"),
                "let the sender heed ICMP \"fragmentation needed\" or \"packet too big\"; or copy_df = no",
            ),
            Self::NoWayToPeer { peer, why } => say(
                format!("no route leads to the peer {peer} ({why})"),
                format!("look at `ip route get {peer}`"),
            ),
            Self::AddressGone { address } => say(
                format!("the SA ends at {address}, which is no longer an address of this machine"),
                "give the address back, or bring the tunnel up anew",
            ),
            _ => say("", ""),
        }
    }
}

fn in_clear(clear: bool) -> &'static str {
    if clear { ", which goes on in clear" } else { "" }
}

fn elsewhere(interface: &str, table: u32, device: &str, guarded: bool) -> Words {
    let sentence = match interface {
        "" => "its destination is an address of this machine, where no tunnel begins".to_owned(),
        name => {
            let drops = if guarded { ", where the guard drops it" } else { ", in clear" };
            format!("table {table} leads it to {name}, not to {device}{drops}")
        }
    };
    say(sentence, "look at `ip rule`: rules of other programs belong behind priority 220")
}
