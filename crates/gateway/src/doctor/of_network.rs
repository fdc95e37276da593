//! Checks of devices and offloads, forwarding and routes, sizes, timeouts and names. Pure.

use ironswan_io::route::Link;

use super::check::Check;
use super::facts::{Facts, Known};
use crate::start::fitness::{self, Topic};

/// Least MTU of a link over which IPv6 goes (RFC 8200 section 5).
const IPV6_MTU: u32 = 1280;
/// Least MTU with which IPv4 works at all in practice: every host takes a datagram of this length
/// (RFC 791).
const IPV4_MTU: u32 = 576;
/// The kernel's default backlog, in packets.
const SMALL_BACKLOG: u64 = 1_000;
/// Time in seconds for which common NATs remember UDP. RFC 4787 section 4.3 asks for 120, and many
/// have 30.
const USUAL_NAT: u64 = 30;
/// Names of links that are shown.
const SHOWN_LINKS: usize = 6;

pub(super) fn judge(facts: &Facts, out: &mut Vec<Check>) {
    tun(facts, out);
    udp(facts, out);
    buffers(facts, out);
    backlog(facts, out);
    match &facts.network.fitness {
        Ok(fit) => {
            mtu(facts, &fit.links, out);
            fitness_of(facts, fit, out);
        }
        Err(why) => ["mtu", "forwarding", "rp_filter", "routes"]
            .into_iter()
            .for_each(|name| out.push(Check::unknown(name, why))),
    }
    conntrack(facts, out);
    nat(facts, out);
    resolver(facts, out);
}

fn tun(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match &facts.kernel.tun {
        Ok(o) if o.uso => Check::ok("tun", "a TUN device can be made, with TSO and USO"),
        Ok(o) if o.tso => Check::warning(
            "tun",
            "a TUN device has TSO and no USO: UDP crosses it packet by packet",
            "a kernel of Linux 6.2 or later",
        ),
        Ok(_) => Check::warning(
            "tun",
            "a TUN device has no segmentation offload: every packet is a read and a write",
            "a kernel that takes TUN_F_TSO4 (Linux 2.6.27 and later), or `data.tun_offload = yes`",
        ),
        Err(why) if why.starts_with("only root") => Check::unknown("tun", why),
        Err(why) => Check::problem(
            "tun",
            format!("no TUN device can be made: {why}"),
            "`modprobe tun`; in a container, give it /dev/net/tun and CAP_NET_ADMIN",
        ),
    });
}

fn udp(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match &facts.kernel.udp {
        Ok(u) if u.segments > 1 && u.merging => Check::ok(
            "udp-offload",
            format!("sends are cut (up to {}), received datagrams merged", u.segments),
        ),
        Ok(u) => {
            let mut lacks = Vec::new();
            if u.segments <= 1 {
                lacks.push("sends are not cut (UDP_SEGMENT, Linux 4.18)");
            }
            if !u.merging {
                lacks.push("received datagrams are not merged (UDP_GRO, Linux 5.0)");
            }
            let remedy = "a newer kernel, and `gso` and `gro` of ironswan.conf as they are by default";
            Check::warning("udp-offload", format!("{}: ESP in UDP is slower", lacks.join(", ")), remedy)
        }
        Err(why) => Check::problem(
            "udp-offload",
            format!("no UDP socket can be made: {why}"),
            "see what the container or the limits of this process forbid",
        ),
    });
}

/// A process with CAP_NET_ADMIN may go past the limits.
fn buffers(facts: &Facts, out: &mut Vec<Check>) {
    let wanted = u64::from(facts.wanted.settings.tuning.socket_buffer);
    let granted = facts.kernel.udp.as_ref().map_or([0, 0], |u| u.buffers);
    let limits = match &facts.kernel.buffer_limits {
        Ok(limits) => *limits,
        Err(why) => return out.push(Check::unknown("buffers", why)),
    };
    let least = granted[0].min(granted[1]);
    out.push(if least >= wanted {
        Check::ok("buffers", format!("sockets get the {wanted} bytes that they ask for"))
    } else if facts.running.is_none() && facts.machine.own.as_ref().is_ok_and(|c| c.uid != 0) {
        let why = format!("root's sockets go past rmem_max = {} and wmem_max = {}", limits[0], limits[1]);
        Check::unknown("buffers", &format!("not run as root, and {why}"))
    } else {
        Check::warning(
            "buffers",
            format!("sockets get {least} of the {wanted} bytes that they ask for: bursts are lost"),
            format!(
                "give CAP_NET_ADMIN, or `sysctl -w net.core.rmem_max={wanted} net.core.wmem_max={wanted}`"
            ),
        )
    });
}

fn backlog(facts: &Facts, out: &mut Vec<Check>) {
    let (size, drops) = match (&facts.kernel.backlog, &facts.kernel.backlog_drops) {
        (Ok(size), Ok(drops)) => (*size, *drops),
        (Err(why), _) | (_, Err(why)) => return out.push(Check::unknown("backlog", why)),
    };
    let remedy = "`sysctl -w net.core.netdev_max_backlog=10000` (and in /etc/sysctl.d for good)";
    out.push(if drops > 0 {
        let what =
            format!("{drops} packets were dropped since boot because the kernel's backlog ({size}) was full");
        Check::warning("backlog", what, remedy)
    } else if size < SMALL_BACKLOG {
        Check::warning(
            "backlog",
            format!("{size} packets of a burst may wait, fewer than by default"),
            remedy,
        )
    } else {
        Check::ok("backlog", format!("{size} packets may wait, and none was dropped since boot"))
    });
}

fn mtu(facts: &Facts, links: &[Link], out: &mut Vec<Check>) {
    let device = &facts.wanted.plan.device;
    let links = links.iter().filter(|l| l.up && !l.loopback && l.name != *device);
    let before = out.len();
    let mut shown = Vec::new();
    for link in links {
        let (name, mtu) = (plain(&link.name), link.mtu);
        let remedy = format!("`ip link set {name} mtu 1500`, if the network behind it takes that");
        if mtu < IPV4_MTU {
            out.push(Check::problem(
                "mtu",
                format!("{mtu} at {name}: tunnels over it carry nothing"),
                remedy,
            ));
        } else if mtu < IPV6_MTU {
            let what = format!("{mtu} at {name}: IPv6 needs {IPV6_MTU}, and tunnels over it carry little");
            out.push(Check::warning("mtu", what, remedy));
        } else {
            shown.push(format!("{mtu} at {name}"));
        }
    }
    if out.len() == before {
        let more = shown.len().saturating_sub(SHOWN_LINKS);
        shown.truncate(SHOWN_LINKS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        out.push(match shown.is_empty() {
            true => Check::warning("mtu", "no link is up but loopback", "`ip link set NAME up`"),
            false => Check::ok("mtu", shown.join(", ") + &more),
        });
    }
}

/// The name of an interface without control characters.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).collect()
}

/// What the daemon says at its start, and what there is to say without any policy.
fn fitness_of(facts: &Facts, fit: &fitness::Facts, out: &mut Vec<Check>) {
    let wanted = &facts.wanted;
    let found = fitness::check(fit, &wanted.plan, &wanted.policies, &wanted.peers);
    let before = out.len();
    for f in &found {
        let name = match f.topic {
            Topic::Unseen => "unseen",
            Topic::Routes => "routes",
            Topic::Rules => "rules",
            Topic::Vrfs => "vrfs",
            Topic::Marks => "marks",
            Topic::ReversePath => "rp_filter",
            Topic::Forwarding => "forwarding",
        };
        out.push(match f.topic {
            // The ruleset has a check of its own.
            Topic::Unseen if facts.firewall.ruleset.is_err() && f.what.contains("nftables") => continue,
            Topic::Unseen => Check::unknown(name, &f.what),
            Topic::Forwarding | Topic::ReversePath | Topic::Marks => {
                Check::problem(name, f.what.as_str(), f.remedy.as_str())
            }
            Topic::Routes | Topic::Rules | Topic::Vrfs => {
                Check::warning(name, f.what.as_str(), f.remedy.as_str())
            }
        });
    }
    let named = |name: &str, out: &[Check]| out[before..].iter().any(|c| c.name == name);
    for (interface, ipv6) in &facts.network.not_forwarding {
        let (interface, family) = (plain(interface), if *ipv6 { "ipv6" } else { "ipv4" });
        let what = format!("{interface} passes no {} on, although the kernel does elsewhere", shown(*ipv6));
        let remedy = format!("`sysctl -w net/{family}/conf/{interface}/forwarding=1`");
        out.push(Check::warning("forwarding", what, remedy));
    }
    if !named("forwarding", out) {
        let [v4, v6] = fit.forwarding;
        let on = |on: bool| if on { "on" } else { "off" };
        let what = format!("IPv4 {}, IPv6 {}", on(v4), on(v6));
        out.push(match (v4 || v6, wanted.policies.is_empty()) {
            (false, true) => Check::warning(
                "forwarding",
                format!("{what}: tunnels would carry this machine's own packets only"),
                "`sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`, for a gateway",
            ),
            _ => Check::ok("forwarding", what),
        });
    }
    if !named("rp_filter", out) {
        let strict = fit.strict.iter().take(SHOWN_LINKS).map(|n| plain(n)).collect::<Vec<_>>().join(", ");
        out.push(Check::ok(
            "rp_filter",
            match strict.is_empty() {
                true => "strict nowhere".to_owned(),
                false => format!("strict at {strict}, in no policy's way"),
            },
        ));
    }
    if !["routes", "rules", "marks", "vrfs"].iter().any(|name| named(name, out)) {
        out.push(Check::ok("routes", "no other program's routes, rules or marks are in the way"));
    }
}

fn shown(ipv6: bool) -> &'static str {
    if ipv6 { "IPv6" } else { "IPv4" }
}

/// Connection tracking of this machine forgets flows too: those of peers behind a NAT of ours, and
/// ours where we are behind one.
fn conntrack(facts: &Facts, out: &mut Vec<Check>) {
    let keep = facts.wanted.settings.limits.keep_alive.as_secs();
    let Some(c) = facts.kernel.conntrack else {
        out.push(Check::ok("conntrack", "connections are not tracked here"));
        return;
    };
    let what = format!("UDP is remembered for {} s, unanswered for {} s", c.stream, c.unanswered);
    out.push(if keep > 0 && c.stream <= keep {
        Check::warning(
            "conntrack",
            format!(
                "{what}: less than the {keep} s between two NAT-keepalives, so a NAT here forgets tunnels"
            ),
            "`sysctl -w net.netfilter.nf_conntrack_udp_timeout_stream=120`",
        )
    } else {
        Check::ok("conntrack", what)
    });
}

/// NATs of others cannot be asked: what they usually do is compared.
fn nat(facts: &Facts, out: &mut Vec<Check>) {
    let keep = facts.wanted.settings.limits.keep_alive.as_secs();
    let behind = facts.running.as_ref().map(|r| r.behind_nat);
    let how = match behind {
        Some(0) => "no IKE_SA is behind a NAT here".to_owned(),
        Some(n) => format!("{n} IKE_SA(s) are behind a NAT here"),
        None => "whether a NAT is in front of us is seen by an IKE_SA".to_owned(),
    };
    let remedy = "`keep_alive = 20s` in ironswan.conf";
    out.push(match keep {
        0 => Check::warning(
            "nat",
            format!("{how}; no NAT-keepalives are sent, and a NAT forgets tunnels"),
            remedy,
        ),
        n if n > USUAL_NAT => Check::warning(
            "nat",
            format!("{how}; a NAT-keepalive every {n} s, and many NATs forget UDP after {USUAL_NAT} s"),
            remedy,
        ),
        n => Check::ok("nat", format!("{how}; a NAT-keepalive every {n} s")),
    });
}

fn resolver(facts: &Facts, out: &mut Vec<Check>) {
    let names: &[(String, Known<()>)] = &facts.network.names;
    let before = out.len();
    for (name, answer) in names {
        if let Err(why) = answer {
            let what = format!("the peer's name {} is not resolved: {why}", plain(name));
            let remedy = format!("`getent ahosts {}`, /etc/resolv.conf, or write the address", plain(name));
            out.push(Check::problem("resolver", what, remedy));
        }
    }
    if out.len() == before {
        out.push(Check::ok(
            "resolver",
            match names.len() {
                0 => "no peer is named by a DNS name".to_owned(),
                n => format!("answers for {n} name(s) of peers"),
            },
        ));
    }
}
