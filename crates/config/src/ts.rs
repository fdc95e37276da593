//! Traffic selectors as swanctl.conf writes them: `10.1.0.0/16`, `10.0.0.1-10.0.0.9`, `dynamic`,
//! each with an optional `[protocol/port]`: `[tcp]`, `[tcp/80]`, `[udp/1024-2048]`, `[/53]`,
//! `[icmp/8]`, `[tcp/opaque]`.

use ironswan_keying::TsSpec;
use ironswan_keying::diagnosis::ValueFault;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::diag::nearest;
use super::value::{self, Wrong, wrong};

const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

const SERVICES: &[(&str, u16)] = &[
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("ldaps", 636),
    ("imaps", 993),
    ("radius", 1812),
    ("sip", 5060),
    ("bfd-control", 3784),
    ("l2tp", 1701),
    ("l2f", 1701),
];

/// Remedy for a selector without a usable address.
const WRITE: &str = "write a subnet, a range or dynamic";

/// The text of a selector, which the reader of `local_ts` and `remote_ts` takes.
pub fn text(ts: &TsSpec) -> String {
    match *ts {
        TsSpec::Fixed(ts) => ts.to_string(),
        TsSpec::Dynamic { protocol, start_port, end_port } => {
            // As any selector is written, with `dynamic` where the address is.
            let range = AddrRange::any(false);
            let text = TrafficSelector { range, protocol, start_port, end_port }.to_string();
            text.replacen(&range.to_string(), "dynamic", 1)
        }
    }
}

/// One selector.
pub(super) fn selector(text: &str) -> Result<TsSpec, Wrong> {
    let t = text.trim();
    let (addr, rest) = match t.split_once('[') {
        Some((addr, rest)) => {
            let inner =
                rest.trim_end().strip_suffix(']').ok_or_else(|| wrong(t, ValueFault::NeverClosed, ""))?;
            (addr.trim(), inner.trim())
        }
        None => (t, ""),
    };
    let (protocol, start_port, end_port) =
        if rest.is_empty() { (0, 0, 65_535) } else { protocol_and_ports(rest)? };
    if addr.eq_ignore_ascii_case("dynamic") {
        return Ok(TsSpec::Dynamic { protocol, start_port, end_port });
    }
    if addr.is_empty() {
        return Err(wrong(t, ValueFault::NoAddress, WRITE));
    }
    let range = value::range(addr).map_err(|e| value::advise(e, WRITE))?;
    Ok(TsSpec::Fixed(TrafficSelector { range, protocol, start_port, end_port }))
}

fn protocol_and_ports(text: &str) -> Result<(u8, u16, u16), Wrong> {
    let (name, ports) = match text.split_once('/') {
        Some((name, ports)) => (name.trim(), ports.trim()),
        None => (text, ""),
    };
    let protocol = protocol(name)?;
    let icmp = matches!(protocol, 1 | 58);
    let (start, end) = match ports.to_ascii_lowercase().as_str() {
        "" | "any" | "%any" => (0, 65_535),
        // RFC 7296 section 3.13.1: start 65535 and end 0 mean OPAQUE.
        "opaque" => (65_535, 0),
        p => match p.split_once('-') {
            // A service name may have a hyphen.
            Some((a, b)) if !SERVICES.iter().any(|(n, _)| *n == p) => (one_port(a)?, one_port(b)?),
            _ => {
                let one = one_port(p)?;
                // ICMP: a number below 256 is a type with any code, else type and code.
                if icmp && one < 256 { (one << 8, (one << 8) | 255) } else { (one, one) }
            }
        },
    };
    if start > end && (start, end) != (65_535, 0) {
        return Err(wrong(text, ValueFault::PortsBackwards, ""));
    }
    if protocol == 0 && (start, end) != (0, 65_535) && (start, end) != (65_535, 0) {
        // RFC 7296 section 3.13.1: ports are 0 to 65535 when the protocol is any.
        return Err(wrong(text, ValueFault::PortWithoutProtocol(start), ""));
    }
    Ok((protocol, start, end))
}

fn protocol(name: &str) -> Result<u8, Wrong> {
    let name = name.to_ascii_lowercase();
    if matches!(name.as_str(), "" | "any" | "%any") {
        return Ok(0);
    }
    if let Some((_, n)) = PROTOCOLS.iter().find(|(p, _)| *p == name) {
        return Ok(*n);
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return value::number(&name, 255).map(|n| n as u8);
    }
    let near = nearest(&name, PROTOCOLS.iter().map(|(p, _)| *p)).map(str::to_owned);
    Err(wrong(&name, ValueFault::NoProtocol { near }, ""))
}

fn one_port(text: &str) -> Result<u16, Wrong> {
    let t = text.trim();
    if let Some((_, n)) = SERVICES.iter().find(|(s, _)| *s == t) {
        return Ok(*n);
    }
    value::number(t, 65_535)
        .map(|n| n as u16)
        .map_err(|_| wrong(t, ValueFault::Not("a port"), "write its number"))
}

#[cfg(test)]
mod tests {
    use ironswan_keying::Diagnosis;

    use super::*;

    fn fixed(text: &str) -> String {
        match selector(text).unwrap() {
            TsSpec::Fixed(ts) => ts.to_string(),
            TsSpec::Dynamic { protocol, start_port, end_port } => {
                format!("dynamic {protocol} {start_port} {end_port}")
            }
        }
    }

    #[test]
    fn every_way_of_writing_a_selector() {
        for (text, want) in [
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.1-10.0.0.7[tcp/http]", "10.0.0.1..10.0.0.7[tcp/80]"),
            ("fd00::/64[58]", "fd00::/64[ipv6-icmp]"),
            ("10.0.0.0/8[udp/1024-2048]", "10.0.0.0/8[udp/1024-2048]"),
            ("10.0.0.0/8[tcp/opaque]", "10.0.0.0/8[tcp/OPAQUE]"),
            ("10.0.0.0/8[icmp/8]", "10.0.0.0/8[icmp/2048-2303]"),
            ("10.0.0.0/8[icmp/2048]", "10.0.0.0/8[icmp/2048]"),
            ("dynamic", "dynamic 0 0 65535"),
            ("dynamic[udp/l2tp]", "dynamic 17 1701 1701"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(fixed(text), want, "{text}");
        }
    }

    #[test]
    fn every_way_of_writing_it_wrong() {
        for bad in [
            "",
            "[tcp]",
            "10.0.0.0/33",
            "10.0.0.0/8[tcp",
            "10.0.0.0/8[tpc]",
            "10.0.0.0/8[tcp/70000]",
            "10.0.0.0/8[tcp/9-1]",
            "10.0.0.0/8[256]",
            "10.0.0.0/8[/80]",
            "host.example",
            "dynamic[",
        ] {
            assert!(selector(bad).is_err(), "{bad}");
        }
        assert!(Diagnosis::from(selector("10.0.0.0/8[tpc]").unwrap_err()).remedy().contains("`tcp`"));
    }
}
