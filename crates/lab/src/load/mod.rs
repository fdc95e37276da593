//! Load: what puts traffic on a topology. One file per generator.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `generator` | sends packets at a given rate |
//! | `sender` | sockets by which its frames leave |
//! | `receiver` | receives and times them |
//! | `tally` | which packets arrived, and in which order |
//! | `latency` | a histogram of delays |
//! | `frame` | packets of the generator |
//! | `mix` | sizes and flows that they have in turn |
//! | `capture/` | sizes, gaps and flows of somebody's own traffic |
//! | `esp/` | a tester that seals and opens ESP itself |
//! | `messages` | UDP messages, one packet each |
//! | `ttcp` | TCP like ttcp's |
//! | `iperf3` | TCP by iperf3 |
//! | `apps` | real programs that carry a file |
//! | `content` | contents of files, from a seed |

pub mod apps;
pub mod capture;
pub mod content;
pub mod esp;
pub mod frame;
mod generator;
mod iperf3;
mod latency;
mod messages;
mod mix;
mod receiver;
mod sender;
mod tally;
mod ttcp;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use generator::{BATCH, Offer, Sent, generate, generate_bursts, generate_paced, parse_ethernet, route};
pub use iperf3::{Iperf3, TcpLoad, TcpReport};
pub use latency::{Histogram, Latency};
pub use messages::{MessageCounts, MessageLoad, Messages};
pub use receiver::{Counted, Receiver};
pub use sender::{Outlet, SendBy, Sender};
pub use tally::{Received, Tally};
pub use ttcp::{Transferred, Ttcp, TtcpCounts, TtcpLoad, carry, round_trip};

/// Which way the payload flows over the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a to b.
    Forward,
    /// From b to a.
    Reverse,
    /// Both at once; bytes of both are counted.
    Both,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "a to b",
            Self::Reverse => "b to a",
            Self::Both => "both ways",
        })
    }
}

impl FromStr for Direction {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "forward" => Ok(Self::Forward),
            "reverse" => Ok(Self::Reverse),
            "both" => Ok(Self::Both),
            _ => Err(format!("`{s}` is not a direction; the directions are forward, reverse and both")),
        }
    }
}
