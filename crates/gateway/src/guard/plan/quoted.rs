//! ICMP errors speak of another packet, and quote it. One about a packet that came out of the
//! tunnel carries protected data back to the peer's side, and whoever says it (this gateway, a
//! router behind it) need not have an address inside the policy: the policy that covers the quoted
//! packet, turned around, covers the error, too (RFC 4301 section 6.2).
//!
//! ```text
//!        ICMP header   quoted IP header                       its ports
//! IPv4   0-63          ver/len 64, protocol 136, dst 192-223  sport 224, dport 240
//! IPv6   0-63          next header 112, dst 256-383           sport 384, dport 400
//! ```
//! In bits from the beginning of the ICMP header, as nft counts. The ports stand there when the
//! quoted IPv4 header has no options (`ver/len` is 0x45). The quoted packet went from the
//! peer's side to ours: its source is where the error goes, and its destination is what the policy
//! calls local.

use std::fmt::Write;
use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

use super::cut::{List, Outcome, Ports, Step, WITH_PORTS};

/// The match that recognizes ICMP errors among packets that no policy covers by their own
/// addresses. The types are those of RFC 792, and types below 128 in RFC 4443 section 2.1.
pub(super) fn dispatch(ipv6: bool) -> &'static str {
    if ipv6 {
        "ip6 nexthdr 58 @th,0,8 0-127"
    } else {
        // A set of the table, not one of the rule's own: of those, the kernel looks through all to
        // add one.
        "meta l4proto 1 ip frag-off & 0x1fff == 0 icmp type @errors"
    }
}

/// The set that [`dispatch`] asks, as a line of the table.
pub(super) const ERRORS: &str = "set errors { type icmp_type; elements = { 3, 4, 5, 11, 12 }; }";

/// True when errors can quote what this list closes.
pub(super) fn asks(list: &List) -> bool {
    list.steps.iter().any(|s| s.outcome != Outcome::Passed)
}

/// The steps, asked of what is quoted; `pass` ends them.
pub(super) fn rules(list: &List, ipv6: bool, pass: &str) -> Vec<String> {
    let mut out = Vec::new();
    for step in &list.steps {
        let then = match step.outcome {
            Outcome::Guarded => "return",
            Outcome::Steered => "goto steer",
            Outcome::Passed => pass,
        };
        let mut address = String::new();
        if step.local != AddrRange::any(ipv6) {
            let at = if ipv6 { "@th,256,128" } else { "@th,192,32" };
            let (first, last) = (number(step.local.start()), number(step.local.end()));
            let _ = if first == last {
                write!(address, "{at} {first:#x} ")
            } else {
                write!(address, "{at} {first:#x}-{last:#x} ")
            };
        }
        for condition in conditions(step, ipv6) {
            out.push(format!("{address}{condition}{then}"));
        }
    }
    out.push(pass.to_owned());
    out
}

/// The conditions of a step besides the address, each with a space at its end; a packet that meets
/// one of them is covered. A quoted packet whose protocol or ports are not at their usual place is
/// closed.
fn conditions(step: &Step, ipv6: bool) -> Vec<String> {
    let closes = step.outcome != Outcome::Passed;
    let protocol = match step.protocol {
        0 => String::new(),
        p if ipv6 => format!("@th,112,8 {p} "),
        p => format!("@th,136,8 {p} "),
    };
    let mut out = Vec::new();
    let in_sight = |p| !matches!(p, Ports::Opaque);
    if !step.asks_ports() {
        out.push(protocol);
    } else if WITH_PORTS.contains(&step.protocol) && in_sight(step.local_ports) && in_sight(step.remote_ports)
    {
        let (sport, dport) = if ipv6 { (384, 400) } else { (224, 240) };
        let mut exact = protocol.clone();
        if !ipv6 {
            exact.push_str("@th,64,8 0x45 ");
        }
        for (at, ports) in [(sport, step.remote_ports), (dport, step.local_ports)] {
            if let Ports::Range(a, b) = ports {
                let _ = if a == b {
                    write!(exact, "@th,{at},16 {a} ")
                } else {
                    write!(exact, "@th,{at},16 {a}-{b} ")
                };
            }
        }
        out.push(exact);
        if closes && !ipv6 {
            out.push(format!("{protocol}@th,64,8 != 0x45 "));
        }
    } else if closes {
        out.push(protocol);
    }
    if closes && ipv6 && step.protocol != 0 {
        // Extension headers and AH. Not by one set of the rule's own, see `dispatch`; one of the
        // table does not go with raw bytes.
        out.extend(["0", "43-44", "51", "60"].map(|behind| format!("@th,112,8 {behind} ")));
    }
    out
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{policy, settings};
    use super::super::{Verdict, plan};
    use super::dispatch;

    /// The rules of the chain for errors, of one policy and, if there is one, a hole in it.
    fn errors(local: &str, remote: &str, hole: Option<(&str, &str)>) -> Vec<String> {
        let mut all = vec![policy(Verdict::Protect, local, remote)];
        all.extend(hole.map(|(local, remote)| policy(Verdict::Bypass, local, remote)));
        let text = plan(&settings(), &all).nft.unwrap();
        let chain = text.lines().skip_while(|l| !(l.starts_with("\tchain o") && l.ends_with("e {"))).skip(1);
        let chain: Vec<String> = chain.take_while(|l| *l != "\t}").map(|l| l.trim().to_owned()).collect();
        if !chain.is_empty() {
            return chain;
        }
        // One question needs no chain; what follows it is its end.
        let found = |l: &&str| [false, true].iter().any(|v6| l.trim().starts_with(dispatch(*v6)));
        let ends = text.lines().skip_while(|l| !found(l)).take(2);
        let trimmed = |l: &str| {
            [false, true]
                .iter()
                .fold(l.trim(), |l, v6| l.strip_prefix(dispatch(*v6)).unwrap_or(l))
                .trim()
                .to_owned()
        };
        ends.map(trimmed).collect()
    }

    #[test]
    fn an_error_is_covered_by_the_policy_of_what_it_quotes() {
        assert_eq!(
            errors("10.1.0.0/16", "10.2.0.0/16", None),
            ["@th,192,32 0xa010000-0xa01ffff return", "goto skip"]
        );
        assert_eq!(
            errors("fd00:1::7/128", "fd00:2::/64", None),
            ["@th,256,128 0xfd000001000000000000000000000007 return", "goto skip"]
        );
    }

    #[test]
    fn ports_are_read_where_they_are_and_what_hides_them_closes() {
        assert_eq!(
            errors("10.1.0.0/16[17/any]", "10.2.0.0/16[17/7000-7199]", None),
            [
                "@th,192,32 0xa010000-0xa01ffff @th,136,8 17 @th,64,8 0x45 @th,224,16 7000-7199 return",
                "@th,192,32 0xa010000-0xa01ffff @th,136,8 17 @th,64,8 != 0x45 return",
                "goto skip"
            ]
        );
        assert_eq!(
            errors("fd00:1::/64[6/80]", "fd00:2::/64", None),
            [
                "@th,256,128 0xfd000001000000000000000000000000-0xfd00000100000000ffffffffffffffff @th,112,8 6 \
                 @th,400,16 80 return",
                "@th,256,128 0xfd000001000000000000000000000000-0xfd00000100000000ffffffffffffffff @th,112,8 0 return",
                "@th,256,128 0xfd000001000000000000000000000000-0xfd00000100000000ffffffffffffffff @th,112,8 43-44 return",
                "@th,256,128 0xfd000001000000000000000000000000-0xfd00000100000000ffffffffffffffff @th,112,8 51 return",
                "@th,256,128 0xfd000001000000000000000000000000-0xfd00000100000000ffffffffffffffff @th,112,8 60 return",
                "goto skip"
            ]
        );
    }

    #[test]
    fn a_hole_that_cannot_be_told_from_what_is_quoted_lets_no_error_by() {
        let hole = Some(("10.1.0.0/16[1/2048]", "10.2.0.0/16[1/2048]"));
        assert_eq!(
            errors("10.1.0.0/16", "10.2.0.0/16", hole),
            ["@th,192,32 0xa010000-0xa01ffff return", "goto skip"]
        );
        let hole = Some(("10.1.0.0/16[6/22]", "10.2.0.0/16[6/any]"));
        assert_eq!(
            errors("10.1.0.0/16", "10.2.0.0/16", hole),
            [
                "@th,192,32 0xa010000-0xa01ffff @th,136,8 6 @th,64,8 0x45 @th,240,16 22 goto skip",
                "@th,192,32 0xa010000-0xa01ffff return",
                "goto skip"
            ]
        );
    }
}
