//! Requests that nobody has answered: what was sent, what was answered before, and what boxes on
//! the way have said by ICMP. Chooses the most specific entry of the area path.
//!
//! | seen | entry |
//! |---|---|
//! | ICMP: port unreachable | `port-closed` |
//! | ICMP: administratively prohibited | `filtered` |
//! | ICMP: host or net unreachable, or another error | `peer-unreachable` |
//! | an answer on another port before, silence on this one | `silence-on-natt` |
//! | silence on this port, and the peer was reached on 4500 | `silence-on-ike` |
//! | silence | `no-answer` |
//!
//! An ICMP error is never authenticated. One that quotes our SPI is from a box that sees our
//! packets, and is called certain. One that quotes addresses and ports can be from anybody who
//! knows these, and is called likely.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ironswan_wire::iana::ExchangeType;

use super::entry::{Words, say};
use super::path::Path;
use super::shown::displayed;

/// A request that nobody has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Exchange of the request.
    pub exchange: ExchangeType,
    /// Number of times that the request was sent.
    pub sent: u32,
    /// The exchange before it, which the peer has answered in this attempt.
    pub before: Option<Answered>,
}

/// An exchange that the peer has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The exchange.
    pub exchange: ExchangeType,
    /// Port of the peer.
    pub port: u16,
    /// Time from the last sending of the request to the answer, in milliseconds.
    pub millis: u32,
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered in {} ms", self.exchange, self.millis)
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, remote, exchange, sent, .. } = self;
        write!(f, "no answer to {exchange} from {local} to {remote}, sent {sent} times")
    }
}

impl Unanswered {
    /// All that was seen: `IKE_SA_INIT answered in 18 ms; no answer to IKE_AUTH from .. to .., sent
    /// 6 times, no ICMP`.
    fn seen(&self, icmp: Option<&Icmp>) -> String {
        let before = self.before.map_or(String::new(), |before| format!("{before}; "));
        let icmp = icmp.map_or_else(|| "no ICMP".to_owned(), ToString::to_string);
        format!("{before}{self}, {icmp}")
    }
}

/// Meaning of an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No program has the port open, or a filter says so.
    Port,
    /// A filter does not let the packet pass, and says so.
    Prohibited,
    /// The host does not answer on its link, or there is no route to it from there.
    Host,
    /// The packet has passed too many routers: a routing loop.
    Loop,
    /// Another error.
    Other,
}

/// An ICMP error about a request of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// The type. Its meaning depends on the family of `from`.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// Address of the box that has sent it.
    pub from: IpAddr,
    /// The error quotes our SPI; else it quotes addresses and ports alone.
    pub certain: bool,
    /// Number of equal ones about the same request.
    pub times: u32,
}

impl Icmp {
    /// The meaning of type and code (RFC 792, RFC 1812 section 5.2.7.1, RFC 4443 section 3).
    pub fn meaning(&self) -> Unreachable {
        match (self.from.is_ipv6(), self.kind, self.code) {
            (false, 3, 3) | (true, 1, 4) => Unreachable::Port,
            (false, 3, 9 | 10 | 13) | (true, 1, 1 | 5 | 6) => Unreachable::Prohibited,
            (false, 3, 0 | 1 | 5..=8 | 11 | 12) | (true, 1, 0 | 2 | 3) => Unreachable::Host,
            (false, 11, 0) | (true, 3, 0) => Unreachable::Loop,
            _ => Unreachable::Other,
        }
    }

    /// The error to be kept of those about one request: a certain one before likely ones, and the
    /// latest of equals. Equal ones are counted.
    pub fn kept(before: Option<Self>, now: Self) -> Self {
        match before {
            Some(old) if old.certain && !now.certain => old,
            Some(old) if Self { times: now.times, ..old } == now => {
                Self { times: old.times.saturating_add(now.times), ..now }
            }
            _ => now,
        }
    }
}

impl fmt::Display for Icmp {
    /// `ICMP type 3 code 13 from 192.0.2.9, 6 times`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, code, from, times, .. } = self;
        let name = if from.is_ipv6() { "ICMPv6" } else { "ICMP" };
        let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        write!(f, "{name} type {kind} code {code} from {from}, {times}")
    }
}

impl Icmp {
    /// How sure it is that the box has sent the error.
    fn worth(&self) -> &'static str {
        match self.certain {
            true => "certain: the error quotes our SPI",
            false => "likely: the error quotes addresses and ports alone",
        }
    }
}

impl Path {
    /// The most specific entry for an attempt of this connection that has come to no answer.
    /// `icmp`: the error that was kept about the request. `reached`: the peer was reached at this
    /// address and port otherwise.
    pub fn silence(conn: &str, request: Unanswered, icmp: Option<Icmp>, reached: Option<SocketAddr>) -> Self {
        if let Some(icmp) = icmp {
            let icmp = Box::new(icmp);
            return match icmp.meaning() {
                Unreachable::Port => Self::PortClosed { request, icmp },
                Unreachable::Prohibited => Self::Filtered { request, icmp },
                Unreachable::Host | Unreachable::Loop | Unreachable::Other => {
                    Self::PeerUnreachable { request, icmp }
                }
            };
        }
        let port = request.remote.port();
        match (request.before, reached) {
            (Some(before), _) if before.port != port => Self::SilenceOnNatt { conn: conn.into(), request },
            (None, Some(reached)) if reached.port() != port => {
                Self::SilenceOnIke { conn: conn.into(), request, reached: Box::new(reached) }
            }
            _ => Self::NoAnswer { request },
        }
    }
}

displayed!(Unanswered, Icmp);

/// Words for silence. They name that there was no ICMP error, which is a thing to be seen.
pub(super) fn no_answer(request: &Unanswered) -> Words {
    let sentence = format!("peer not responding: {request}, no ICMP");
    match request.before {
        None => say(
            sentence,
            "see that remote_addrs is right and the peer runs there, and let UDP 500 and 4500 through",
        ),
        Some(before) => say(
            sentence,
            "see the peer's log; a long message is lost where a box drops IP fragments: let both sides have \
             fragmentation = yes",
        )
        .with(vec![before.to_string()]),
    }
}

/// Words for a peer that answers on one port and not on the one for NAT traversal.
pub(super) fn silence_on_natt(conn: &str, request: &Unanswered) -> Words {
    let (port, there) = (request.remote.port(), request.remote.ip());
    let before = request.before.map_or(500, |before| before.port);
    say(
        format!("{there} answers on UDP {before}, silence on UDP {port}"),
        format!("let UDP {port} through to and from {there}, then: ironswan prove {conn}"),
    )
    .with(vec![request.seen(None)])
}

/// Words for a peer that was reached on the port for NAT traversal, and does not answer on the
/// other.
pub(super) fn silence_on_ike(conn: &str, request: &Unanswered, reached: SocketAddr) -> Words {
    let (port, there) = (request.remote.port(), request.remote.ip());
    say(
        format!("silence on UDP {port}, although the peer was reached at {reached}"),
        format!("let UDP {port} through to and from {there}, then: ironswan prove {conn}"),
    )
    .with(vec![request.seen(None)])
}

/// Words for the peer of an established IKE_SA. `silent`: seconds without a sign of life.
pub(super) fn peer_dead(request: &Unanswered, silent: u64, icmp: Option<&Icmp>) -> Words {
    let icmp = icmp.map_or_else(|| "no ICMP".to_owned(), |icmp| format!("{icmp} ({})", icmp.worth()));
    say(
        format!("the peer does not respond: {request}; nothing came from it for {silent} s, {icmp}"),
        "see whether the peer runs, and what has changed on the way to it",
    )
}

/// Words for an error that says that nothing listens.
pub(super) fn port_closed(request: &Unanswered, icmp: &Icmp) -> Words {
    let (port, there, from) = (request.remote.port(), request.remote.ip(), icmp.from);
    let remedy = match from == there {
        true => format!("start IKE at {there}, or correct remote_addrs or remote_port"),
        false => format!("see why {from} answers for {there}: it filters, or translates addresses"),
    };
    say(format!("UDP {port} is closed at {there}, says {from} ({})", icmp.worth()), remedy)
        .with(vec![request.seen(Some(icmp))])
}

/// Words for a filter that says that it filters.
pub(super) fn filtered(request: &Unanswered, icmp: &Icmp) -> Words {
    let (port, there, from) = (request.remote.port(), request.remote.ip(), icmp.from);
    let at = if from == request.local.ip() { "this machine".to_owned() } else { from.to_string() };
    say(
        format!("a filter at {at} refuses UDP {port} to {there} ({})", icmp.worth()),
        format!("let UDP 500 and 4500 to {there} and from it pass at {at}"),
    )
    .with(vec![request.seen(Some(icmp))])
}

/// Words for a peer to which a box on the way knows no way.
pub(super) fn peer_unreachable(request: &Unanswered, icmp: &Icmp) -> Words {
    let (there, from, worth) = (request.remote.ip(), icmp.from, icmp.worth());
    let (sentence, remedy) = match icmp.meaning() {
        Unreachable::Host if from == request.local.ip() => (
            format!("{there} does not answer on this machine's own link"),
            format!("see whether {there} runs, and `ip route get {there}` and `ip neigh` here"),
        ),
        Unreachable::Host => (
            format!("{from} knows no way to {there}"),
            format!("see whether {there} runs, and the routes of {from}"),
        ),
        Unreachable::Loop => (
            format!("packets to {there} go in a circle, says {from}"),
            format!("look at the routes of {from} and of the routers around it"),
        ),
        _ => (format!("{from} refuses packets to {there}"), format!("look for the reason at {from}")),
    };
    say(format!("{sentence} ({worth})"), remedy).with(vec![request.seen(Some(icmp))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{Diagnosis, PathEntry as E};

    fn request(port: u16, before: Option<u16>) -> Unanswered {
        let ends = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
        let exchange = if before.is_some() { ExchangeType::IKE_AUTH } else { ExchangeType::IKE_SA_INIT };
        let before = before.map(|port| Answered { exchange: ExchangeType::IKE_SA_INIT, port, millis: 18 });
        Unanswered { local: ends("192.0.2.1"), remote: ends("192.0.2.2"), exchange, sent: 6, before }
    }

    fn icmp(from: &str, kind: u8, code: u8) -> Icmp {
        Icmp { kind, code, from: from.parse().unwrap(), certain: true, times: 1 }
    }

    fn chosen(request: Unanswered, icmp: Option<Icmp>, reached: Option<u16>) -> Path {
        let reached = reached.map(|port| SocketAddr::new(request.remote.ip(), port));
        Path::silence("net", request, icmp, reached)
    }

    #[test]
    fn the_most_specific_reason_is_chosen() {
        let cases = [
            (request(500, None), None, None, E::NoAnswer),
            (request(500, None), None, Some(500), E::NoAnswer),
            (request(500, None), None, Some(4500), E::SilenceOnIke),
            (request(4500, None), None, Some(4500), E::NoAnswer),
            (request(4500, Some(500)), None, None, E::SilenceOnNatt),
            (request(4500, Some(500)), None, Some(4500), E::SilenceOnNatt),
            // The same port was silent all at once.
            (request(500, Some(500)), None, None, E::NoAnswer),
            (request(4500, Some(4500)), None, None, E::NoAnswer),
            // What a box says is more than silence.
            (request(4500, Some(500)), Some(icmp("192.0.2.9", 3, 13)), None, E::Filtered),
            (request(500, None), Some(icmp("192.0.2.2", 3, 3)), Some(4500), E::PortClosed),
            (request(500, None), Some(icmp("192.0.2.9", 3, 1)), None, E::PeerUnreachable),
        ];
        for (request, icmp, reached, entry) in cases {
            let why = chosen(request, icmp, reached);
            assert_eq!(why.entry(), entry, "{why}");
            let why = Diagnosis::from(why);
            let told = format!("{why} {:?}", why.details());
            assert!(told.contains("sent 6 times"), "{told}");
        }
    }

    #[test]
    fn every_type_and_code_has_a_meaning_in_both_families() {
        use Unreachable as U;
        let all = |from: &str, kind: u8| -> Vec<U> {
            (0..16).map(|code| icmp(from, kind, code).meaning()).collect()
        };
        let v4 = all("192.0.2.9", 3);
        for (meaning, codes) in
            [(U::Port, &[3][..]), (U::Prohibited, &[9, 10, 13]), (U::Host, &[0, 1, 5, 6, 7, 8, 11, 12])]
        {
            for (code, found) in v4.iter().enumerate() {
                assert_eq!(*found == meaning, codes.contains(&code), "{meaning:?} {code}");
            }
        }
        let v6 = all("2001:db8::9", 1);
        assert_eq!(
            v6[..7],
            [U::Host, U::Prohibited, U::Host, U::Host, U::Port, U::Prohibited, U::Prohibited]
        );
        assert_eq!(
            (icmp("192.0.2.9", 11, 0).meaning(), icmp("2001:db8::9", 3, 0).meaning()),
            (U::Loop, U::Loop)
        );
        assert_eq!(
            (icmp("192.0.2.9", 3, 2).meaning(), icmp("192.0.2.9", 77, 1).meaning()),
            (U::Other, U::Other)
        );
    }

    #[test]
    fn a_certain_error_is_not_replaced_by_a_likely_one() {
        let (certain, likely) =
            (icmp("192.0.2.2", 3, 3), Icmp { certain: false, ..icmp("203.0.113.66", 3, 13) });
        assert_eq!(Icmp::kept(None, likely), likely);
        assert_eq!(Icmp::kept(Some(likely), certain), certain);
        assert_eq!(Icmp::kept(Some(certain), likely), certain);
        let twice = Icmp::kept(Some(certain), certain);
        assert_eq!((twice.times, Icmp::kept(Some(twice), certain).times), (2, 3));
        let other = icmp("192.0.2.2", 3, 1);
        assert_eq!(Icmp::kept(Some(twice), other), other, "the latest of equals");
    }

    #[test]
    fn sentences_name_the_box_what_was_seen_and_how_sure_it_is() {
        let why: Diagnosis = chosen(request(4500, Some(500)), None, None).into();
        assert_eq!(why.sentence(), "192.0.2.2 answers on UDP 500, silence on UDP 4500");
        assert_eq!(
            why.details(),
            [
                "IKE_SA_INIT answered in 18 ms; no answer to IKE_AUTH from 192.0.2.1:4500 to 192.0.2.2:4500, sent 6 \
              times, no ICMP"
            ]
        );
        assert_eq!(why.remedy(), "let UDP 4500 through to and from 192.0.2.2, then: ironswan prove net");
        let likely = Icmp { certain: false, times: 6, ..icmp("192.0.2.9", 3, 13) };
        let why: Diagnosis = chosen(request(500, None), Some(likely), None).into();
        assert!(why.sentence().starts_with("a filter at 192.0.2.9 refuses UDP 500"), "{why}");
        assert!(why.sentence().contains("likely"), "{why}");
        assert!(
            why.details()[0].ends_with("ICMP type 3 code 13 from 192.0.2.9, 6 times"),
            "{:?}",
            why.details()
        );
        let own = chosen(request(500, None), Some(icmp("192.0.2.1", 3, 1)), None).to_string();
        assert!(own.contains("this machine's own link") && own.contains("certain"), "{own}");
    }
}
