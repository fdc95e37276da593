//! Boxes and links made of network namespaces and veth pairs. Each topology is a file of its own;
//! all share one [`Owner`], whose names say which process made them, so that nothing outlives its
//! maker for long:
//!
//! - a topology removes its namespaces, and every process inside them, when it is dropped (return,
//!   error, signal);
//! - what a killed process could not remove, the next run does ([`Owner::claim`]).
//!
//! Every namespace has the TCP congestion control of its owner, and not the machine's.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `line` | four boxes in a line |
//! | `pair` | two hosts, each its own gateway |
//! | `ipv6` | IPv6 beside the IPv4 of a line |
//! | `direct` | two hosts without a gateway, for the tester alone |
//! | `star` | road warriors, or a hub with spokes |
//! | `mesh` | every gateway with every other |
//! | `sites` | addresses and networks that systems under test are told |
//! | `network` | boxes, links, and relays in the links |
//! | `netns` | one network namespace |
//! | `owner` | names that say which process made a namespace |
//! | `congestion` | congestion control of TCP in a namespace |
//! | `cpus` | processors of threads and of what a link receives |
//! | `netdev` | kernel threads that poll a device |

mod congestion;
mod cpus;
mod direct;
mod ipv6;
mod line;
mod mesh;
mod netdev;
mod netns;
mod network;
mod owner;
mod pair;
mod sites;
mod star;

pub use congestion::Congestion;
pub use cpus::{Cpus, Steered};
pub use direct::{DEVICE as DIRECT_DEVICE, Direct};
pub use ipv6::{ipv6_of, ipv6_text};
pub use line::{Line, LineSpec, Mode, Node, address};
pub use mesh::Mesh;
pub use netns::Netns;
pub use network::{Host, LinkEnd, Network, Path, Topology, queues};
pub use owner::{Owner, Swept, sweep};
pub use pair::HostToHost;
pub use sites::{End, Played, Site, Sites};
pub use star::{HubSpokes, MOST, RoadWarriors};
