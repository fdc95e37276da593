//! rtnetlink: links and addresses, routes and rules, look-ups, and notices of change. Blocking; for
//! the control plane.
//!
//! Steering works as KLIPS and strongSwan's libipsec did it: what is to be protected has a route to
//! the TUN device in table 220, a rule of priority 220 sends everything there but what carries our
//! mark, which is what we send ourselves. What a policy covers for certain is marked, and a rule
//! before it leads there whatever the prefix.
//!
//! ```text
//! ip rule:       219: from all fwmark 0x10000000/0x10000000 lookup 220
//!                220: not from all fwmark 0x220/0x220 lookup 220 suppress_prefixlength 0
//! ip route 220:  10.2.0.0/24 dev ipsec0 src 10.1.0.1 mtu 1422 proto 220
//!                unreachable 10.2.0.0/24 metric 4278198272 proto 220
//!                throw 10.1.0.0/16 proto 220
//! ```
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `netlink` | the socket: requests, replies, acknowledgements |
//! | `link` | interfaces and addresses |
//! | `routes` | routes, and look-ups |
//! | `rule` | routing rules |
//! | `ethernet` | hardware properties of an interface |
//! | `watch` | notices of change |

mod ethernet;
mod link;
mod netlink;
mod routes;
mod rule;
mod watch;

pub use ethernet::Ethernet;
pub use link::{Address, Link};
pub use netlink::Netlink;
pub(crate) use netlink::{attribute, split, text};
pub use routes::{Destination, NextHop, Route, RouteAnswer, RouteKind, RouteQuery};
pub use rule::{ListedRule, Rule};
pub use watch::{NetworkChange, Watch};

/// The table of protected destinations.
pub const TABLE: u32 = 220;

/// The priority of the rule that leads all destinations to it.
pub const PRIORITY: u32 = 220;

/// The priority of the rule that leads what is marked to it.
pub const MARKED_PRIORITY: u32 = 219;

/// The priority of a copy of the rule that leads packets of VRFs to the tables of those: the
/// kernel's own stands at 1000, behind ours.
pub const VRF_PRIORITY: u32 = 218;

/// Who made a route or rule (`proto` in `ip route`): a number that no routing daemon has
/// registered, so that what a dead process of ours left behind is known.
pub const PROTOCOL: u8 = 220;

/// The metric of the unreachable route that stands below a route to the device and holds when it is
/// gone.
pub const UNREACHABLE_METRIC: u32 = 0xff00_2000;
