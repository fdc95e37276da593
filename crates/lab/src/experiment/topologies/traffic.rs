//! The load of `lab topologies`: UDP messages, one packet each, or TCP like ttcp's.

use std::fmt;
use std::str::FromStr;

use crate::error::LabError;
use crate::load::{MessageLoad, Messages, Ttcp, TtcpLoad};
use crate::topology::Path;

/// Kind of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyLoad {
    /// UDP messages: a size is that of a packet.
    Udp,
    /// TCP: a size is that of a write, and the kernel makes packets of the writes as it likes.
    Tcp,
}

impl fmt::Display for TopologyLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

impl FromStr for TopologyLoad {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "udp" => Ok(Self::Udp),
            "tcp" => Ok(Self::Tcp),
            _ => Err(format!("`{s}` is not a load; write udp or tcp")),
        }
    }
}

/// Most messages on their way at once, over all paths: less than any queue on the way holds, and
/// enough that no gateway waits for a sender.
pub(super) const UNDER_WAY: u32 = 256;

/// How the senders send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub load: TopologyLoad,
    /// Connections of each sender, TCP.
    pub connections: u32,
    /// The kernel may join small writes, TCP.
    pub join: bool,
}

/// A load at work.
pub(super) enum Traffic {
    /// With the bytes of a message.
    Udp(Messages, u64),
    Tcp(Ttcp),
}

impl Traffic {
    /// Starts to send messages or writes of `size` bytes along every path. `tag` distinguishes the
    /// packets from those of other loads.
    pub(super) fn start(
        paths: &[Path<'_>],
        sending: Sending,
        size: usize,
        tag: u32,
    ) -> Result<Self, LabError> {
        match sending.load {
            TopologyLoad::Udp => {
                let load = MessageLoad { size, under_way: UNDER_WAY, tag };
                Ok(Self::Udp(Messages::start(paths, load)?, size as u64))
            }
            TopologyLoad::Tcp => {
                let Sending { connections, join, .. } = sending;
                let load = TtcpLoad { connections, write: size, nodelay: !join, rate: None };
                Ttcp::start(paths, load).map(Self::Tcp)
            }
        }
    }

    /// Bytes of payload that have arrived so far.
    pub(super) fn received(&self) -> u64 {
        match self {
            Self::Udp(messages, size) => messages.received() * size,
            Self::Tcp(ttcp) => ttcp.received(),
        }
    }

    /// Writes of the senders so far.
    pub(super) fn writes(&self) -> u64 {
        match self {
            Self::Udp(messages, _) => messages.sent(),
            Self::Tcp(ttcp) => ttcp.writes(),
        }
    }

    /// Ends the load. Returns the share of the messages that did not arrive; `None` of TCP, which
    /// loses nothing.
    pub(super) fn finish(self) -> Result<Option<f64>, LabError> {
        match self {
            Self::Udp(messages, _) => {
                let counts = messages.finish()?;
                Ok(Some(1.0 - counts.received as f64 / counts.sent.max(1) as f64))
            }
            Self::Tcp(ttcp) => ttcp.finish().map(|_| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_named_and_its_name_is_read_back() {
        for load in [TopologyLoad::Udp, TopologyLoad::Tcp] {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        assert!("sctp".parse::<TopologyLoad>().is_err());
    }
}
