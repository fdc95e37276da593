//! The packet that somebody asks about, as people write it.
//!
//! ```text
//! SRC[:PORT] > DST[:PORT] [PROTOCOL [PORT]] [in DEVICE] [len BYTES] [df]
//!
//! 10.1.0.9 > 10.2.5.1 tcp 443          [fd00::9]:50000 > [fd01::1]:443 tcp
//! 10.1.0.9 > 10.2.5.1 icmp len 1400 df    10.1.0.9 > 10.2.5.1 47
//! ```
//! A port behind the protocol is the destination's; behind `icmp` stands a type. Ports that are not
//! written are taken to be 49152, the first of the dynamic ones (RFC 6335 section 6), and a packet
//! without protocol is TCP when it has ports, and else an echo request.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ironswan_wire::ip::protocol;
use ironswan_wire::selector::PacketSelector;

use super::shown;

/// Longest text that is read.
const MAX_TEXT: usize = 300;
/// The port of a packet whose port is not written.
const ANY_PORT: u16 = 49_152;
/// Types of ICMP and ICMPv6 for an echo request.
const ECHO: [u8; 2] = [8, 128];

/// Names of protocols.
const PROTOCOLS: [(&str, u8); 14] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
    ("ipv6-icmp", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("dccp", protocol::DCCP),
    ("udplite", protocol::UDPLITE),
    ("gre", protocol::GRE),
    ("esp", protocol::ESP),
    ("ah", protocol::AH),
    ("ipip", protocol::IPV4),
    ("ospf", 89),
    ("vrrp", 112),
];

/// The packet that somebody asks about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Source port, when it is written.
    pub src_port: Option<u16>,
    /// Destination port, or type of ICMP, when it is written.
    pub dst_port: Option<u16>,
    /// The interface by which it comes, when it is written.
    pub device: Option<String>,
    /// Length in bytes, IP header included, when it is written.
    pub length: Option<u32>,
    /// The packet may not be fragmented: every IPv6 packet, and IPv4 with DF.
    pub df: bool,
}

/// Says what cannot be read, and what is expected.
fn expected(what: &str) -> String {
    format!(
        "{what}; expected: SRC[:PORT] > DST[:PORT] [PROTOCOL [PORT]] [in DEVICE] [len BYTES] [df], such as \
         '10.1.0.9 > 10.2.5.1 tcp 443' or '[fd00::9]:50000 > [fd01::1]:443 tcp'"
    )
}

impl Question {
    /// Reads it.
    ///
    /// # Errors
    /// A sentence that says what cannot be read, and what is expected.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT {
            return Err(expected(&format!("more than {MAX_TEXT} bytes for one packet")));
        }
        let Some((src, rest)) = text.split_once('>') else {
            return Err(expected(&format!("'{}' has no '>' between source and destination", shown(text))));
        };
        let mut words = rest.split_whitespace().peekable();
        let (src, src_port) = end(src.trim(), "source")?;
        let (dst, dst_port) = end(words.next().unwrap_or_default(), "destination")?;
        if src.is_ipv6() != dst.is_ipv6() {
            return Err(expected(&format!("{src} and {dst} are of different families")));
        }
        let ports = src_port.is_some() || dst_port.is_some();
        let default = match (ports, src.is_ipv6()) {
            (true, _) => protocol::TCP,
            (false, false) => protocol::ICMP,
            (false, true) => protocol::ICMPV6,
        };
        let mut question = Self {
            src,
            dst,
            protocol: default,
            src_port,
            dst_port,
            device: None,
            length: None,
            df: src.is_ipv6(),
        };
        if let Some(word) = words.next_if(|word| !OPTIONS.contains(word)) {
            question.protocol = protocol_of(word, src.is_ipv6())?;
            if let Some(word) = words.next_if(|word| !OPTIONS.contains(word)) {
                question.add_port(word)?;
            }
        }
        question.read_options(words)?;
        question.check()?;
        Ok(question)
    }

    fn add_port(&mut self, word: &str) -> Result<(), String> {
        let port: u16 =
            word.parse().map_err(|_| expected(&format!("'{}' is not a port (0 to 65535)", shown(word))))?;
        match self.dst_port.replace(port) {
            Some(before) if before != port => {
                Err(expected(&format!("two destination ports, {before} and {port}")))
            }
            _ => Ok(()),
        }
    }

    fn read_options<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        while let Some(word) = words.next() {
            match word {
                "df" => self.df = true,
                "in" => {
                    let name = words.next().filter(|n| n.len() <= 15 && !n.contains('/'));
                    let name =
                        name.ok_or_else(|| expected("'in' is followed by the name of an interface"))?;
                    self.device = Some(name.to_owned());
                }
                "len" => {
                    let bytes =
                        words.next().and_then(|n| n.parse().ok()).filter(|n| (20..=65_535).contains(n));
                    self.length =
                        Some(bytes.ok_or_else(|| expected("'len' is followed by 20 to 65535 bytes"))?);
                }
                other => {
                    return Err(expected(&format!("'{}' is not expected there", shown(other))));
                }
            }
        }
        Ok(())
    }

    /// What does not go together.
    fn check(&self) -> Result<(), String> {
        let ports = self.src_port.is_some() || self.dst_port.is_some();
        if ports && !self.has_ports() && !self.is_icmp() {
            return Err(expected(&format!("protocol {} has no ports", self.protocol)));
        }
        if self.is_icmp() && (self.src_port.is_some() || self.dst_port.is_some_and(|t| t > 255)) {
            return Err(expected("ICMP has a type (0 to 255) and no ports"));
        }
        Ok(())
    }

    /// The protocol has ports.
    pub fn has_ports(&self) -> bool {
        matches!(
            self.protocol,
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDPLITE
        )
    }

    /// ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, protocol::ICMP | protocol::ICMPV6)
    }

    /// The packet's selectors, with a port or type for each that is not written.
    pub fn selector(&self) -> PacketSelector {
        let (src_port, dst_port) = if self.is_icmp() {
            let echo = ECHO[usize::from(self.protocol == protocol::ICMPV6)].into();
            let kind = Some(self.dst_port.unwrap_or(echo) << 8);
            (kind, kind)
        } else if self.has_ports() {
            (Some(self.src_port.unwrap_or(ANY_PORT)), Some(self.dst_port.unwrap_or(ANY_PORT)))
        } else {
            (None, None)
        };
        PacketSelector { src: self.src, dst: self.dst, protocol: self.protocol, src_port, dst_port }
    }
}

/// Words that are no protocol.
const OPTIONS: [&str; 3] = ["in", "len", "df"];

/// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
fn end(text: &str, which: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(ip) = text.parse() {
        return Ok((ip, None));
    }
    if let Ok(SocketAddr::V4(end)) = text.parse() {
        return Ok(((*end.ip()).into(), Some(end.port())));
    }
    let inside = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let read = match inside {
        Some((ip, "")) => ip.parse().ok().map(|ip| (ip, None)),
        Some((ip, port)) => {
            port.strip_prefix(':').and_then(|port| Some((ip.parse().ok()?, Some(port.parse().ok()?))))
        }
        None => None,
    };
    read.ok_or_else(|| match text {
        "" => expected(&format!("there is no {which}")),
        _ => expected(&format!("'{}' is no address for the {which}", shown(text))),
    })
}

fn protocol_of(word: &str, ipv6: bool) -> Result<u8, String> {
    let lower = word.to_ascii_lowercase();
    let named = PROTOCOLS.iter().find(|(name, _)| *name == lower).map(|(_, number)| *number);
    // People write icmp for both.
    let named = named.map(|number| if ipv6 && number == protocol::ICMP { protocol::ICMPV6 } else { number });
    named
        .or_else(|| word.parse().ok())
        .ok_or_else(|| expected(&format!("'{}' is no protocol (a name or 0 to 255)", shown(word))))
}

impl fmt::Display for Question {
    /// As it would be written: no name of the text that was read comes through.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |ip: IpAddr, port: Option<u16>| match port {
            Some(port) => SocketAddr::new(ip, port).to_string(),
            None => ip.to_string(),
        };
        write!(f, "{} > {} ", end(self.src, self.src_port), self.dst)?;
        match PROTOCOLS.iter().find(|(_, number)| *number == self.protocol) {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "{}", self.protocol)?,
        }
        if let Some(port) = self.dst_port {
            write!(f, " {port}")?;
        }
        if let Some(device) = &self.device {
            write!(f, " in {}", shown(device))?;
        }
        if let Some(length) = self.length {
            write!(f, " len {length}")?;
        }
        if self.df && !self.src.is_ipv6() { f.write_str(" df") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Question {
        Question::read(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn packets_are_read_as_people_write_them_and_shown_in_one_form() {
        for (text, shown) in [
            ("10.1.0.9 > 10.2.5.1 tcp 443", "10.1.0.9 > 10.2.5.1 tcp 443"),
            ("10.1.0.9>10.2.5.1", "10.1.0.9 > 10.2.5.1 icmp"),
            ("10.1.0.9:50000 > 10.2.5.1:443", "10.1.0.9:50000 > 10.2.5.1 tcp 443"),
            ("10.1.0.9:50000 > 10.2.5.1:443 UDP", "10.1.0.9:50000 > 10.2.5.1 udp 443"),
            ("10.1.0.9 > 10.2.5.1 47", "10.1.0.9 > 10.2.5.1 gre"),
            ("10.1.0.9 > 10.2.5.1 254", "10.1.0.9 > 10.2.5.1 254"),
            ("fd00::9 > fd01::1 icmp", "fd00::9 > fd01::1 icmpv6"),
            ("[fd00::9]:53 > [fd01::1]:53 udp", "[fd00::9]:53 > fd01::1 udp 53"),
            ("10.1.0.9 > 10.2.5.1 in lan0 len 1400 df", "10.1.0.9 > 10.2.5.1 icmp in lan0 len 1400 df"),
            ("10.1.0.9 > 10.2.5.1 icmp 3", "10.1.0.9 > 10.2.5.1 icmp 3"),
        ] {
            let question = read(text);
            assert_eq!(question.to_string(), shown);
            assert_eq!(read(shown), question, "its own form is read again");
        }
    }

    #[test]
    fn ports_that_are_not_written_are_dynamic_ones_and_icmp_is_an_echo_request() {
        let selector = read("10.1.0.9 > 10.2.5.1 tcp 443").selector();
        assert_eq!((selector.src_port, selector.dst_port), (Some(49_152), Some(443)));
        let echo = read("10.1.0.9 > 10.2.5.1").selector();
        assert_eq!((echo.protocol, echo.src_port, echo.dst_port), (1, Some(0x800), Some(0x800)));
        assert_eq!(read("fd00::9 > fd01::1").selector().dst_port, Some(0x8000));
        assert_eq!(read("10.1.0.9 > 10.2.5.1 gre").selector().dst_port, None);
        assert!(read("fd00::9 > fd01::1").df && !read("10.1.0.9 > 10.2.5.1").df);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_is_expected_and_without_escape_sequences() {
        for (text, word) in [
            ("", "no '>'"),
            ("10.1.0.9 10.2.5.1", "no '>'"),
            ("10.1.0.9 >", "no destination"),
            ("> 10.2.5.1", "no source"),
            ("10.1.0.300 > 10.2.5.1", "no address for the source"),
            ("10.1.0.9 > fd01::1", "different families"),
            ("10.1.0.9 > 10.2.5.1 tpc 443", "'tpc' is no protocol"),
            ("10.1.0.9 > 10.2.5.1 tcp http", "'http' is not a port"),
            ("10.1.0.9 > 10.2.5.1 tcp 70000", "'70000' is not a port"),
            ("10.1.0.9 > 10.2.5.1:80 tcp 443", "two destination ports"),
            ("10.1.0.9:1 > 10.2.5.1 47", "has no ports"),
            ("10.1.0.9:1 > 10.2.5.1 icmp", "has a type"),
            ("10.1.0.9 > 10.2.5.1 tcp 443 in", "name of an interface"),
            ("10.1.0.9 > 10.2.5.1 tcp 443 len 7", "20 to 65535"),
            ("10.1.0.9 > 10.2.5.1 tcp 443 \x1b[31mred", "is not expected"),
            ("10.1.0.9 > \x1b]0;title\x07", "no address"),
            ("\u{202e}10.1.0.9 > 10.2.5.1", "no address"),
        ] {
            let why = Question::read(text).unwrap_err();
            assert!(why.contains(word) && why.contains("expected: SRC[:PORT] > DST"), "{text}: {why}");
            assert!(!why.chars().any(|c| c.is_control() || c == '\u{202e}'), "{why:?}");
        }
        assert!(Question::read(&"1".repeat(4000)).unwrap_err().len() < 400);
    }
}
