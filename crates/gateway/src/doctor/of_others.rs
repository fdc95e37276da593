//! Checks of other programs: who has our ports, other IKE daemons and the kernel's IPsec, rules of
//! nftables that drop or divert packets. Pure.

use super::check::Check;
use super::facts::{Facts, Known, Other, Port};
use super::ruleset::{Offloading, Packet, Ruleset};
use crate::guard::plan::TABLE;

/// Findings of one kind are reported one by one up to this number.
const EACH: usize = 6;

pub(super) fn judge(facts: &Facts, out: &mut Vec<Check>) {
    ports(facts, out);
    daemons(facts, out);
    kernel_ipsec(facts, out);
    nft(facts, out);
    match &facts.firewall.ruleset {
        Ok(text) => {
            let rules = Ruleset::parse(text);
            flowtables(facts, &rules, out);
            firewall(facts, &rules, out);
            forwarded(facts, &rules, out);
        }
        Err(why) => {
            ["flowtables", "firewall"].into_iter().for_each(|name| out.push(Check::unknown(name, why)));
        }
    }
    if facts.firewall.legacy {
        let what = "there are rules of iptables-legacy, which nft does not show and which were not examined";
        out.push(Check::warning("firewall", what, "`iptables-legacy -S; ip6tables-legacy -S`"));
    }
}

fn ports(facts: &Facts, out: &mut Vec<Check>) {
    let all = match &facts.processes.ports {
        Ok(all) => all,
        Err(why) => return out.push(Check::unknown("ports", why)),
    };
    let settings = &facts.wanted.settings;
    let daemon = facts.running.as_ref().map(|r| r.pid);
    let before = out.len();
    for Port { number, address, holder } in all {
        match holder {
            Ok(h) if h.ours && daemon.is_some() => {}
            Ok(h) if daemon.flatten() == Some(h.pid) => {}
            Ok(h) if h.ours && facts.unasked.is_some() => {}
            Ok(h) => {
                let what = format!("UDP {number} at {address} is taken by {} (process {})", h.name, h.pid);
                out.push(Check::problem(
                    "ports",
                    what,
                    format!("stop it: `systemctl stop {0}`, or `kill {1}`", service(&h.name), h.pid),
                ));
            }
            // With a daemon the port is most likely the daemon's.
            Err(_) if daemon.is_some() => {}
            Err(why) if facts.unasked.is_some() => {
                out.push(Check::unknown("ports", &format!("UDP {number} is taken, and {why}")));
            }
            Err(why) => {
                let what = format!("UDP {number} at {address} is taken, and {why}");
                out.push(Check::problem("ports", what, format!("`ss -lunp sport = :{number}` as root")));
            }
        }
    }
    if out.len() == before {
        let whose = if daemon.is_some() { "are the daemon's" } else { "are free" };
        out.push(Check::ok("ports", format!("UDP {} and {} {whose}", settings.port_ike, settings.port_natt)));
    }
}

/// The service that starts a program, as Debian names it.
fn service(program: &str) -> &str {
    match program {
        "charon" => "strongswan-starter",
        "charon-systemd" => "strongswan",
        "pluto" => "ipsec",
        "iked" => "iked",
        other => other,
    }
}

fn daemons(facts: &Facts, out: &mut Vec<Check>) {
    let all = match &facts.processes.others {
        Ok(all) => all,
        Err(why) => return out.push(Check::unknown("other-daemons", why)),
    };
    let before = out.len();
    for Other { pid, name, here } in all.iter().take(EACH) {
        let remedy =
            format!("`systemctl disable --now {}`, if it is not to run beside IronSwan", service(name));
        match here {
            Ok(true) => out.push(Check::warning(
                "other-daemons",
                format!("another IKE daemon runs here: {name} (process {pid}); it wants the same ports"),
                remedy,
            )),
            // In another network namespace it is in nobody's way.
            Ok(false) => {}
            Err(why) => {
                let why = format!("{name} (process {pid}) runs, and {why}");
                out.push(Check::unknown("other-daemons", &why));
            }
        }
    }
    if out.len() == before {
        out.push(Check::ok("other-daemons", "no other IKE daemon runs here"));
    }
}

/// IronSwan puts nothing into the kernel's IPsec.
fn kernel_ipsec(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match &facts.kernel.xfrm {
        Err(why) => Check::unknown("kernel-ipsec", why),
        Ok(k) if k.policy_count == 0 && k.sa_count == 0 => {
            Check::ok("kernel-ipsec", "the kernel's own IPsec has no policies and no SAs")
        }
        Ok(k) => {
            let first = k.policies.first().map(|p| format!(", the first: {p}")).unwrap_or_default();
            Check::warning(
                "kernel-ipsec",
                format!(
                    "another program has policies ({}) and SAs ({}) in the kernel{first}; packets that they match do not reach \
                     a tunnel of IronSwan",
                    k.policy_count, k.sa_count
                ),
                "stop that program, then `ip xfrm policy flush; ip xfrm state flush`",
            )
        }
    });
}

fn nft(facts: &Facts, out: &mut Vec<Check>) {
    out.push(match (&facts.firewall.nft, &facts.firewall.ruleset) {
        (Ok(version), Ok(_)) => Check::ok("nft", format!("version {version} works")),
        (Ok(version), Err(why)) if why.starts_with("only root") => {
            Check::unknown("nft", &format!("version {version} is there, and {why}"))
        }
        (Ok(version), Err(why)) => Check::problem(
            "nft",
            format!("version {version} does not work: {why}"),
            "a kernel with nf_tables (`modprobe nf_tables`), or `guard = no` in ironswan.conf",
        ),
        (Err(why), _) if !facts.wanted.settings.guard => {
            Check::warning("nft", format!("{why}; guard = no, so it is not needed"), "")
        }
        (Err(why), _) => {
            Check::problem("nft", why.as_str(), "`apt install nftables`, or `guard = no` in ironswan.conf")
        }
    });
}

/// A flow that a flowtable has taken goes past all rules, those of the guard too, and by the route
/// of its first packets.
fn flowtables(facts: &Facts, rules: &Ruleset, out: &mut Vec<Check>) {
    let device = &facts.wanted.plan.device;
    let all = rules.offloading();
    let exempt = |o: &&Offloading| {
        ["iifname", "oifname"].iter().all(|word| o.rule.contains(&format!("{word} != \"{device}\"")))
    };
    let bad: Vec<&Offloading> = all.iter().filter(|o| !exempt(o)).collect();
    for o in bad.iter().take(EACH) {
        let rule: String = o.rule.chars().filter(|c| !c.is_control()).take(80).collect();
        out.push(Check::problem(
            "flowtables",
            format!(
                "the rule `{rule}` of {} {} lets flows past the guard, and on by an old route when a tunnel comes up",
                o.table, o.chain
            ),
            format!(
                "begin the rule with `iifname != \"{device}\" oifname != \"{device}\"` (`nft -a list chain {} {}` shows \
                 its handle)",
                o.table, o.chain
            ),
        ));
    }
    if bad.is_empty() {
        out.push(Check::ok(
            "flowtables",
            match all.len() {
                0 => "no rule takes forwarded flows past the guard".to_owned(),
                n => format!("{n} rule(s), which leave the flows of {device} alone"),
            },
        ));
    }
}

/// A hint: sets are not examined, and sources are not known.
fn firewall(facts: &Facts, rules: &Ruleset, out: &mut Vec<Check>) {
    let settings = &facts.wanted.settings;
    let packets = [
        (
            format!("UDP {}", settings.port_ike),
            17,
            Some(settings.port_ike),
            format!("udp dport {}", settings.port_ike),
        ),
        (
            format!("UDP {}", settings.port_natt),
            17,
            Some(settings.port_natt),
            format!("udp dport {}", settings.port_natt),
        ),
        ("ESP".to_owned(), 50, None, "meta l4proto esp".to_owned()),
    ];
    let before = out.len();
    let own = format!("inet {TABLE}");
    for hook in ["input", "output"] {
        let mut chain = None;
        let (mut names, mut accepts) = (Vec::new(), Vec::new());
        for (name, protocol, port, accept) in &packets {
            let packet = Packet { hook, protocol: Some(*protocol), port: *port, from: None, to: None };
            if let Some(by) = rules.dropped_by(packet, &own) {
                chain.get_or_insert(by);
                names.push(name.as_str());
                accepts.push(accept.as_str());
            }
        }
        let Some(chain) = chain else { continue };
        let way = if hook == "input" { "that arrive" } else { "that leave" };
        let remedy =
            accepts.iter().map(|a| format!("`nft insert rule {chain} {a} accept`")).collect::<Vec<_>>();
        out.push(Check::warning(
            "firewall",
            format!("likely: the chain {chain} drops packets of {} {way}", names.join(", ")),
            remedy.join(", "),
        ));
    }
    if out.len() == before {
        out.push(Check::ok("firewall", "no chain is seen to drop IKE or ESP"));
    }
}

/// Packets that leave a tunnel and go on, and those that go into one.
fn forwarded(facts: &Facts, rules: &Ruleset, out: &mut Vec<Check>) {
    let device = facts.wanted.plan.device.as_str();
    let forwards: Known<bool> =
        facts.network.fitness.as_ref().map(|f| f.forwarding.contains(&true)).map_err(Clone::clone);
    if forwards != Ok(true) {
        return;
    }
    let own = format!("inet {TABLE}");
    for (from, to, word) in [(Some(device), None, "iifname"), (None, Some(device), "oifname")] {
        let packet = Packet { hook: "forward", protocol: None, port: None, from, to };
        if let Some(chain) = rules.dropped_by(packet, &own) {
            let way = if from.is_some() { "come out of" } else { "go into" };
            out.push(Check::warning(
                "firewall",
                format!("likely: the chain {chain} drops forwarded packets that {way} a tunnel"),
                format!("`nft insert rule {chain} {word} \"{device}\" accept`"),
            ));
        }
    }
}
