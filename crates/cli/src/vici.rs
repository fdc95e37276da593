//! A blocking VICI client over a Unix socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ironswan_config::vici_uri;
use ironswan_gateway::control::connect_within;
use ironswan_wire::printable::printable;
use ironswan_wire::vici::{FrameReader, Packet, Section, Value};

use crate::failure::Failure;

/// Time that the daemon has to answer. Commands with a timeout of their own add theirs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the daemon.
pub(crate) struct Client {
    stream: UnixStream,
    frames: FrameReader,
    uri: String,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(uri: &str) -> Result<Self, Failure> {
        let path = vici_uri(uri).map_err(|e| Failure::usage(format!("--vici {e}")))?;
        let stream = connect_within(&path, ANSWER_TIMEOUT).map_err(|e| {
            Failure::usage(match e.kind() {
                ErrorKind::TimedOut => {
                    format!("the gateway at {uri} has taken no client for {} s; see whether it hangs", ANSWER_TIMEOUT.as_secs())
                }
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    format!("no gateway answers at {uri} ({e}); start `ironswan run`, or name its socket with --vici")
                }
                ErrorKind::PermissionDenied => format!("no right to speak to {uri} ({e}); run as root"),
                _ => format!("cannot connect to {uri}: {e}"),
            })
        })?;
        let client = Self { stream, frames: FrameReader::new(), uri: uri.to_owned() };
        client.patience(ANSWER_TIMEOUT)?;
        client.stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(|e| client.lost(e))?;
        Ok(client)
    }

    fn lost(&self, why: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("the gateway at {} stopped answering: {why}", self.uri))
    }

    fn patience(&self, time: Duration) -> Result<(), Failure> {
        self.stream.set_read_timeout(Some(time)).map_err(|e| self.lost(e))
    }

    fn send(&mut self, packet: &Packet) -> Result<(), Failure> {
        let bytes = packet.emit().map_err(|e| Failure::usage(format!("too much for one request: {e}")))?;
        self.stream.write_all(&bytes).map_err(|e| self.lost(e))
    }

    fn receive(&mut self) -> Result<Packet, Failure> {
        let mut buf = [0; 8192];
        loop {
            let frame = self.frames.next_frame().map_err(|e| self.lost(e))?;
            if let Some(frame) = frame {
                return Packet::parse(&frame).map(shown).map_err(|e| self.lost(e));
            }
            match self.stream.read(&mut buf) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(n) => self.frames.feed(&buf[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(self.lost("no answer in time"));
                }
                Err(e) => return Err(self.lost(e)),
            }
        }
    }

    /// A command with one answer.
    pub(crate) fn request(&mut self, name: &str, message: Section) -> Result<Section, Failure> {
        self.send(&Packet::CmdRequest { name: name.to_owned(), message })?;
        self.answer(name, &mut |_| {})
    }

    /// A command whose items, or whose log, come as events of the name `event`. `longer`: how long
    /// it may take more than usual; `None`: for ever.
    pub(crate) fn stream(
        &mut self,
        name: &str,
        event: &str,
        message: Section,
        longer: Option<Duration>,
        mut item: impl FnMut(Section),
    ) -> Result<Section, Failure> {
        self.send(&Packet::EventRegister(event.to_owned()))?;
        match self.receive()? {
            Packet::EventConfirm => {}
            _ => {
                return Err(Failure::usage(format!(
                    "the daemon at {} does not know the event {event}",
                    self.uri
                )));
            }
        }
        match longer {
            Some(longer) => self.patience(ANSWER_TIMEOUT + longer)?,
            None => self.stream.set_read_timeout(None).map_err(|e| self.lost(e))?,
        }
        self.send(&Packet::CmdRequest { name: name.to_owned(), message })?;
        let answer = self.answer(name, &mut item)?;
        self.send(&Packet::EventUnregister(event.to_owned()))?;
        while !matches!(self.receive()?, Packet::EventConfirm) {}
        self.patience(ANSWER_TIMEOUT)?;
        Ok(answer)
    }

    fn answer(&mut self, name: &str, item: &mut dyn FnMut(Section)) -> Result<Section, Failure> {
        loop {
            match self.receive()? {
                Packet::CmdResponse(s) => return Ok(s),
                Packet::Event { message, .. } => item(message),
                Packet::CmdUnknown => {
                    return Err(Failure::usage(format!(
                        "the daemon at {} does not know the command {name}",
                        self.uri
                    )));
                }
                _ => return Err(self.lost("a packet that makes no sense here")),
            }
        }
    }

    /// The connections as loaded: name and section.
    pub(crate) fn conns(&mut self, only: Option<&str>) -> Result<Vec<(String, Section)>, Failure> {
        self.items("list-conns", "list-conn", only).map(|list| whole(list, "children"))
    }

    /// The IKE_SAs with their children: connection's name and section.
    pub(crate) fn sas(&mut self, only: Option<&str>) -> Result<Vec<(String, Section)>, Failure> {
        self.items("list-sas", "list-sa", only).map(|list| whole(list, "child-sas"))
    }

    /// The IKE_SAs with names, ages and counters of their children alone.
    pub(crate) fn traffic(&mut self) -> Result<Vec<(String, Section)>, Failure> {
        let mut list = Vec::new();
        let brief = Section::new().with("traffic", true);
        self.stream("list-sas", "list-sa", brief, Some(Duration::ZERO), |message| {
            list.extend(message.sections().map(|(n, s)| (n.to_owned(), s.clone())));
        })?;
        Ok(whole(list, "child-sas"))
    }

    /// Policies with what serves them, and what is said about all of them.
    pub(crate) fn policies(
        &mut self,
        only: Option<&str>,
    ) -> Result<(Vec<(String, Section)>, Section), Failure> {
        self.items_and_answer("ironswan-policies", "list-policy", only)
    }

    /// Asks what keeps traffic from passing: tunnels that should be up and are not, by connection,
    /// and findings about the machine.
    pub(crate) fn troubles(
        &mut self,
        only: Option<&str>,
    ) -> Result<(Vec<(String, Section)>, Section), Failure> {
        self.items_and_answer("ironswan-troubles", "list-trouble", only)
    }

    /// How each tunnel is, by connection.
    pub(crate) fn tunnels(&mut self, only: Option<&str>) -> Result<Vec<(String, Section)>, Failure> {
        self.items("ironswan-status", "list-tunnel", only)
    }

    fn items(
        &mut self,
        name: &str,
        event: &str,
        only: Option<&str>,
    ) -> Result<Vec<(String, Section)>, Failure> {
        self.items_and_answer(name, event, only).map(|(list, _)| list)
    }

    fn items_and_answer(
        &mut self,
        name: &str,
        event: &str,
        only: Option<&str>,
    ) -> Result<(Vec<(String, Section)>, Section), Failure> {
        let mut filter = Section::new();
        if let Some(only) = only {
            filter.put("ike", only);
        }
        let mut list = Vec::new();
        let answer = self.stream(name, event, filter, Some(Duration::ZERO), |message| {
            list.extend(message.sections().map(|(n, s)| (n.to_owned(), s.clone())));
        })?;
        Ok((list, answer))
    }
}

/// A packet with every text in it fit to be shown: identities are a peer's text, and other names
/// come from files and clients. All output passes here. Names of connections and children stay as
/// they are: the daemon loads none that would change. `data` (a certificate) is no text.
fn shown(packet: Packet) -> Packet {
    match packet {
        Packet::CmdResponse(message) => Packet::CmdResponse(section_shown(&message)),
        Packet::Event { name, message } => Packet::Event { name, message: section_shown(&message) },
        other => other,
    }
}

fn section_shown(section: &Section) -> Section {
    let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes)).into_owned().into_bytes();
    let value = |name: &str, value: &Value| match value {
        // A certificate, and the blocks of a capture.
        Value::Text(_) | Value::List(_) if name == "data" => value.clone(),
        Value::Text(bytes) => Value::Text(text(bytes)),
        Value::List(items) => Value::List(items.iter().map(|item| text(item)).collect()),
        Value::Section(s) => Value::Section(section_shown(s)),
    };
    section.iter().map(|(name, v)| (printable(name).into_owned(), value(name, v))).collect()
}

/// Puts together what came in several events, since one could not hold all its parts: those have
/// the same name and `uniqueid`.
fn whole(list: Vec<(String, Section)>, parts: &str) -> Vec<(String, Section)> {
    let mut out: Vec<(String, Section)> = Vec::new();
    for (name, mut item) in list {
        match out.last_mut() {
            Some((n, first)) if *n == name && first.get("uniqueid") == item.get("uniqueid") => {
                let of = |s: &mut Section| match s.take(parts) {
                    Some(Value::Section(s)) => s,
                    _ => Section::new(),
                };
                let mut all = of(first);
                for (n, part) in of(&mut item).iter() {
                    all.put(n, part.clone());
                }
                first.put(parts, all);
            }
            _ => out.push((name, item)),
        }
    }
    out
}

/// The error of an answer, if it is one.
pub(crate) fn refusal(answer: &Section) -> Option<String> {
    match answer.get_str("success") {
        Some("no") => Some(answer.get_str("errmsg").unwrap_or("no reason given").to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_comes_from_the_daemon_moves_a_cursor() {
        let evil = "gw\u{1b}[2J\r\nnet: ESTABLISHED\u{202e}\u{9b}31m";
        let s = Section::new()
            .with("remote-id", evil)
            .with(evil, Section::new().with("local-ts", [evil]))
            .with("bytes", vec![b'a', 0x9b, 0x1b])
            .with("data", vec![0x30, 0x82, 0x1b, 0xff]);
        let Packet::Event { message, .. } = shown(Packet::Event { name: "list-sa".into(), message: s })
        else {
            panic!("another packet")
        };
        let clean = "gw\\u{1b}[2J\\u{d}\\u{a}net: ESTABLISHED\\u{202e}\\u{9b}31m";
        assert_eq!(message.get_str("remote-id"), Some(clean));
        assert_eq!(message.section(clean).unwrap().get_list("local-ts").unwrap(), [clean.as_bytes()]);
        assert_eq!(message.get_str("bytes"), Some("a\u{fffd}\\u{1b}"));
        assert_eq!(message.get("data"), Some(&Value::Text(vec![0x30, 0x82, 0x1b, 0xff])));
        let blocks = Section::new().with("data", vec![vec![10, 13, 13, 10], vec![0x1b, 0xff]]);
        let same = shown(Packet::Event { name: "capture".into(), message: blocks.clone() });
        assert_eq!(same, Packet::Event { name: "capture".into(), message: blocks });
        let Packet::CmdResponse(answer) = shown(Packet::CmdResponse(Section::new().with("errmsg", evil)))
        else {
            panic!("another packet")
        };
        assert_eq!(refusal(&answer.with("success", false)).unwrap(), clean);
        // As JSON, too.
        let json = crate::json::object(&Section::new().with("errmsg", clean)).to_string();
        assert!(!json.contains(ironswan_wire::printable::hides), "{json}");
    }

    #[test]
    fn items_that_came_in_parts_are_put_together_and_others_are_left_apart() {
        let item = |id: &str, kid: &str| {
            let kids = Section::new().with(kid, Section::new().with("state", "up"));
            ("net".to_owned(), Section::new().with("uniqueid", id).with("child-sas", kids))
        };
        let all = whole(vec![item("1", "a"), item("1", "b"), item("1", "c"), item("2", "d")], "child-sas");
        let kids: Vec<(Option<&str>, Vec<&str>)> = all
            .iter()
            .map(|(_, s)| {
                let kids = s.section("child-sas").unwrap();
                (s.get_str("uniqueid"), kids.sections().map(|(n, _)| n).collect())
            })
            .collect();
        assert_eq!(kids, [(Some("1"), vec!["a", "b", "c"]), (Some("2"), vec!["d"])]);
    }
}
