//! `prove`: puts a tunnel to the test when it goes into service. Each line of its output is passed,
//! or has the reason; then all is as it was before.
//!
//! | line | shows |
//! |---|---|
//! | `up` | the IKE_SA and every child come up, or are |
//! | `ports` | the UDP ports at which the peer has answered |
//! | `rekey child` | each CHILD_SA is replaced while the old one goes on |
//! | `rekey ike` | the same of the IKE_SA |
//! | `mtu` | the largest packet that was seen to pass towards the peer |
//! | `traffic` | packets went into the tunnel, and others came back out of it |

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ironswan_wire::vici::Section;
use serde_json::json;

use crate::args::Prove;
use crate::failure::Failure;
use crate::json;
use crate::text::wrapped;
use crate::vici::{Client, refusal};
use crate::view::{Named, get, list};

/// How long one host behind the peer has to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long the counters of packets have to show what was sent: workers publish them with the next
/// round.
const COUNTED: Duration = Duration::from_secs(3);
/// How long the daemon has to measure the path, which takes longest where it is narrow.
const MEASURED: Duration = Duration::from_secs(40);
/// Port of a host behind the peer that is tried without another word. Whether something listens
/// there does not matter: a refusal is an answer.
const PORT: u16 = 443;
/// Limits the hosts that are tried.
const HOSTS: usize = 8;

/// The clock by which steps are timed.
#[allow(clippy::disallowed_methods, reason = "a command of the terminal measures its own time")]
fn now() -> Instant {
    Instant::now()
}

/// One line.
struct Line {
    what: &'static str,
    passed: bool,
    text: String,
}

/// A tunnel under test.
struct Proof<'a> {
    client: Client,
    a: &'a Prove,
    conn: String,
    /// Its children that are negotiated.
    children: Vec<String>,
    lines: Vec<Line>,
}

/// `prove NAME`.
pub(crate) fn prove(a: &Prove) -> Result<(), Failure> {
    let mut client = Client::connect(&a.daemon.vici)?;
    let tunnels = client.tunnels(None)?;
    let (conn, only) = match a.name.split_once('/') {
        Some((conn, child)) => (conn, Some(child)),
        None => (a.name.as_str(), None),
    };
    let children: Vec<String> = tunnels
        .iter()
        .filter(|(name, s)| name == conn && !matches!(get(s, "state"), "pass" | "drop"))
        .filter_map(|(_, s)| s.get_str("child"))
        .filter(|child| only.is_none_or(|only| only == *child))
        .map(str::to_owned)
        .collect();
    if children.is_empty() {
        let why =
            "no connection of that name is loaded that has a child to bring up; `ironswan status` lists all";
        return Err(Failure::usage(format!("{}: {why}", a.name)));
    }
    let before: Vec<_> = tunnels.into_iter().filter(|(name, _)| name == conn).collect();
    let mut proof = Proof { client, a, conn: conn.to_owned(), children, lines: Vec::new() };
    let result = proof.run();
    let restored = proof.restore(&before);
    proof.end(result.and(restored))
}

impl Proof<'_> {
    /// The lines, in their order. After one that fails the others may make no sense.
    fn run(&mut self) -> Result<(), Failure> {
        if !self.comes_up()? {
            return Ok(());
        }
        self.ports()?;
        self.rekey_children()?;
        self.rekey_ike()?;
        self.mtu()?;
        self.traffic()
    }

    fn say(&mut self, what: &'static str, passed: bool, text: impl Into<String>) {
        let line = Line { what, passed, text: text.into() };
        if !self.a.daemon.json {
            let word = if passed { "passed" } else { "FAILED" };
            say_text!("{}", wrapped(&format!("{word}  {what:<12}  "), &line.text));
        }
        self.lines.push(line);
    }

    /// Carries out a command, and says how long it took. The inner error is the daemon's reason.
    fn command(&mut self, name: &str, message: Section) -> Result<Result<Duration, String>, Failure> {
        let timeout = self.a.timeout;
        let message = message.with("timeout", u64::from(timeout) * 1_000).with("loglevel", "-1");
        let begun = now();
        let longer = Some(Duration::from_secs(timeout.into()));
        let answer = self.client.stream(name, "control-log", message, longer, |_| {})?;
        Ok(refusal(&answer).map_or(Ok(begun.elapsed()), Err))
    }

    fn of_child(&self, child: &str) -> Section {
        Section::new().with("ike", self.conn.as_str()).with("child", child)
    }

    fn sas(&mut self) -> Result<Vec<(String, Section)>, Failure> {
        let conn = self.conn.clone();
        self.client.sas(Some(&conn))
    }

    /// Every child, up already or brought up now.
    fn comes_up(&mut self) -> Result<bool, Failure> {
        for child in self.children.clone() {
            let tunnels = self.client.tunnels(Some(&self.conn))?;
            let of = tunnels.iter().find(|(_, s)| s.get_str("child") == Some(child.as_str()));
            if of.is_some_and(|(_, s)| get(s, "state") == "up") {
                self.say("up", true, format!("{child} is up"));
                continue;
            }
            match self.command("initiate", self.of_child(&child))? {
                Ok(took) => self.say("up", true, format!("{child} came up in {}", shown(took))),
                Err(why) => {
                    self.say("up", false, why);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn ports(&mut self) -> Result<(), Failure> {
        let sas = self.sas()?;
        let Some((_, sa)) = sas.first() else {
            self.say("ports", false, "the IKE_SA is gone");
            return Ok(());
        };
        let (remote, port) = (get(sa, "remote-host"), get(sa, "remote-port"));
        let children = sa.section("child-sas").into_iter().flat_map(Section::sections);
        let raw = children.filter(|(_, child)| child.get_str("encap").is_none()).count();
        let text = match (port, raw) {
            ("500", 0) => format!("{remote} answers on UDP 500"),
            ("500", _) => format!(
                "{remote} answers on UDP 500; packets go as plain ESP (protocol 50), which the line `traffic` proves; UDP 4500 is \
                 not in use, and was not tried"
            ),
            (port, _) => format!("{remote} answers on UDP {port}, and packets go there too"),
        };
        self.say("ports", true, text);
        Ok(())
    }

    fn rekey_children(&mut self) -> Result<(), Failure> {
        for child in self.children.clone() {
            match self.command("rekey", self.of_child(&child))? {
                Ok(took) => self.say("rekey child", true, format!("{child} in {}", shown(took))),
                Err(why) => self.say("rekey child", false, format!("{child}: {why}")),
            }
        }
        Ok(())
    }

    fn rekey_ike(&mut self) -> Result<(), Failure> {
        let message = Section::new().with("ike", self.conn.as_str());
        match self.command("rekey", message)? {
            Ok(took) => self.say("rekey ike", true, format!("in {}", shown(took))),
            Err(why) => self.say("rekey ike", false, why),
        }
        Ok(())
    }

    /// The largest packet that passes towards the peer, as the daemon measures it by itself.
    fn mtu(&mut self) -> Result<(), Failure> {
        let begun = now();
        loop {
            let question = Section::new().with("ike", self.conn.as_str());
            let known = self.client.request("ironswan-explain", question)?;
            let conn = known.section("connections").and_then(|all| all.section(&self.conn));
            let notes = conn.and_then(|conn| conn.section("notes"));
            let refused = notes.into_iter().flat_map(Section::sections).map(|(_, note)| get(note, "name"));
            let refused = refused.into_iter().any(|name| name == "path-probe-refused");
            let path = conn.and_then(|conn| conn.section("path"));
            let text = match path.map_or("-", |path| get(path, "state")) {
                "known" => path.map(size),
                "off" => Some("not measured: path_probe = no".to_owned()),
                _ if refused => Some("not measured: the peer refuses the messages that do it".to_owned()),
                _ => None,
            };
            if let Some(text) = text {
                self.say("mtu", true, text);
            } else if begun.elapsed() < MEASURED {
                std::thread::sleep(Duration::from_millis(200));
                continue;
            } else {
                self.say("mtu", false, format!("nothing was measured within {} s", MEASURED.as_secs()));
            }
            return Ok(());
        }
    }

    /// Packets that came out of the tunnel, and that went into it.
    fn packets(&mut self) -> Result<(u64, u64), Failure> {
        let children = self.children.clone();
        let sas = self.sas()?;
        let all = sas.iter().filter_map(|(_, sa)| sa.section("child-sas")).flat_map(Section::sections);
        let ours = all.filter(|(_, s)| children.iter().any(|child| s.get_str("name") == Some(child)));
        Ok(ours.fold((0, 0), |(i, o), (_, s)| {
            let number = |key: &str| s.get_str(key).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            (i + number("packets-in"), o + number("packets-out"))
        }))
    }

    /// Hosts behind the peer that may answer: those that were named, or the first and the last host
    /// of each of its networks, where gateways are as a rule.
    fn hosts(&mut self) -> Result<Vec<SocketAddr>, Failure> {
        if !self.a.reach.is_empty() {
            return Ok(self.a.reach.iter().map(|reach| reach.0).collect());
        }
        let children = self.children.clone();
        let sas = self.sas()?;
        let all = sas.iter().filter_map(|(_, sa)| sa.section("child-sas")).flat_map(Section::sections);
        let ours = all.filter(|(_, s)| children.iter().any(|child| s.get_str("name") == Some(child)));
        let networks = ours.flat_map(|(_, s)| list(s, "remote-ts"));
        let mut hosts: Vec<SocketAddr> =
            networks.flat_map(|ts| ends(&ts)).map(|ip| (ip, PORT).into()).collect();
        hosts.dedup();
        hosts.truncate(HOSTS);
        Ok(hosts)
    }

    /// Sends something to hosts behind the peer, and counts what went into the tunnel and came out.
    fn traffic(&mut self) -> Result<(), Failure> {
        let hosts = self.hosts()?;
        let (in_before, out_before) = self.packets()?;
        let attempts: Vec<_> = hosts
            .iter()
            .copied()
            .map(|host| std::thread::spawn(move || TcpStream::connect_timeout(&host, ANSWER).map(drop)))
            .collect();
        for attempt in attempts {
            // Whether it was accepted, refused or neither: the counters say what passed.
            let _ = attempt.join();
        }
        let begun = now();
        let (i, o) = loop {
            let (i, o) = self.packets()?;
            // The counters of replaced SAs are gone with them.
            let both = (i.saturating_sub(in_before), o.saturating_sub(out_before));
            if (both.0 > 0 && both.1 > 0) || begun.elapsed() > COUNTED {
                break both;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let tried: Vec<String> = hosts.iter().map(|host| host.ip().to_string()).collect();
        let tried = if tried.is_empty() { "no host".to_owned() } else { tried.join(", ") };
        let (passed, text) = match (o, i) {
            (0, 0) => (
                false,
                format!(
                    "nothing went into the tunnel (tried {tried}): this machine may have no address inside local_ts, so send \
                     something from a host behind it meanwhile, or name one behind the peer with --reach"
                ),
            ),
            (o, 0) => (
                false,
                format!(
                    "{o} packets went in, and none came back (tried {tried}): name a host that answers with --reach; if one does, \
                     the way back is broken: a route or filter there, or ESP that is filtered"
                ),
            ),
            (0, i) => (false, format!("{i} packets came out, and none went in (tried {tried})")),
            (o, i) => (true, format!("{o} packets in, {i} back (tried {tried})")),
        };
        self.say("traffic", passed, text);
        Ok(())
    }

    /// Takes down what was not up before, and nobody wants.
    fn restore(&mut self, before: &Named) -> Result<(), Failure> {
        for child in self.children.clone() {
            let of = before.iter().find(|(_, s)| s.get_str("child") == Some(child.as_str()));
            if of.is_some_and(|(_, s)| get(s, "state") == "waiting") {
                // The attempt may have failed, and then there is nothing to take down.
                let _ = self.command("terminate", self.of_child(&child))?;
            }
        }
        let waited = before.iter().all(|(_, s)| matches!(get(s, "state"), "waiting" | "pass" | "drop"));
        if waited && !self.sas()?.is_empty() {
            let message = Section::new().with("ike", self.conn.as_str());
            let _ = self.command("terminate", message)?;
        }
        Ok(())
    }

    /// The last line, or the JSON document.
    fn end(self, result: Result<(), Failure>) -> Result<(), Failure> {
        result?;
        let failed = self.lines.iter().filter(|line| !line.passed).count();
        if self.a.daemon.json {
            let lines: Vec<_> = self
                .lines
                .iter()
                .map(|line| json!({ "what": line.what, "passed": line.passed, "text": line.text }))
                .collect();
            json::print("prove", json!({ "name": self.a.name, "passed": failed == 0, "lines": lines }));
        } else if failed == 0 {
            say!("{}: all passed", self.a.name);
        }
        match failed {
            0 => Ok(()),
            _ if self.a.daemon.json => Err(Failure { status: 1, lines: Vec::new() }),
            n => Err(Failure::no(format!(
                "{}: {n} of {} failed; `ironswan explain {}` may say more",
                self.a.name,
                self.lines.len(),
                self.conn
            ))),
        }
    }
}

/// What is known of the path, in words.
fn size(path: &Section) -> String {
    let passes = format!("packets of {} bytes pass towards the peer", get(path, "mtu"));
    match get(path, "narrow") {
        "yes" => format!("{passes}, and {} do not, as was believed", get(path, "believed")),
        _ => passes,
    }
}

/// `0.21 s`, `31 ms`.
fn shown(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..=999 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// The first and the last host of a selector as VICI shows it: `10.2.0.0/24`, `10.2.0.7/32|tcp/80`,
/// `10.2.0.1..10.2.0.9`.
fn ends(ts: &str) -> Vec<IpAddr> {
    let range = ts.split(['|', '[']).next().unwrap_or(ts);
    if let Some((first, last)) = range.split_once("..") {
        return first.parse().into_iter().chain(last.parse().ok()).collect();
    }
    let Some((addr, len)) = range.split_once('/') else { return range.parse().into_iter().collect() };
    let (Ok(addr), Ok(len)) = (addr.parse::<IpAddr>(), len.parse::<u32>()) else { return Vec::new() };
    let (bits, first) = match addr {
        IpAddr::V4(ip) => (32, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (128, u128::from(ip)),
    };
    if len > bits || len == 0 {
        return Vec::new();
    }
    let host = if len == bits { 0 } else { u128::MAX >> (128 - (bits - len)) };
    let (first, last) = (first & !host, first | host);
    let of = |n: u128| match addr {
        IpAddr::V4(_) => IpAddr::from(u32::try_from(n).unwrap_or(0).to_be_bytes()),
        IpAddr::V6(_) => IpAddr::from(n.to_be_bytes()),
    };
    match bits - len {
        0 => vec![addr],
        1 => vec![of(first), of(last)],
        _ => vec![of(first + 1), of(last - 1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_selector_are_its_first_and_last() {
        let got = |ts: &str| ends(ts).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(got("10.2.0.0/24"), ["10.2.0.1", "10.2.0.254"]);
        assert_eq!(got("10.2.0.7/32|tcp/80"), ["10.2.0.7"]);
        assert_eq!(got("10.2.0.6/31"), ["10.2.0.6", "10.2.0.7"]);
        assert_eq!(got("10.2.0.1..10.2.0.9"), ["10.2.0.1", "10.2.0.9"]);
        assert_eq!(got("2001:db8::/64"), ["2001:db8::1", "2001:db8::ffff:ffff:ffff:fffe"]);
        assert_eq!(got("2001:db8::7/128"), ["2001:db8::7"]);
        assert!(got("0.0.0.0/0").is_empty() && got("x/24").is_empty() && got("10.0.0.0/99").is_empty());
    }

    #[test]
    fn times_are_short() {
        assert_eq!(
            (shown(Duration::from_millis(31)), shown(Duration::from_millis(2_140))),
            ("31 ms".into(), "2.1 s".into())
        );
    }
}
