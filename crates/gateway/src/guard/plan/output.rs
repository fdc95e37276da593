//! Output of the plan: the text of the nft table, rules, routes of table 220, and lists for the
//! ingress.

use std::sync::Arc;

use ironswan_io::ingress::Filter;
use ironswan_io::route::{Destination, Rule};

/// The table's name; its family is inet.
pub const TABLE: &str = "ironswan";

/// The kind of route that a destination has in table 220.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Way {
    /// To the device. An unreachable route stands below, for when the device is gone.
    Tunnel,
    /// Back to the other tables: our own side inside a wider remote selector, and BYPASS of whole
    /// prefixes.
    Throw,
}

/// Everything that the kernel is told: table, lists for the ingress, rules and routes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The text of the whole table for `nft -f`, which replaces the former table atomically; its
    /// counters are 0. `None` without nft. If no policy protects anything, the text only removes
    /// the table.
    pub nft: Option<String>,
    /// Lists of the program that drops packets where they arrive, without nft's help; the addresses
    /// of this machine are added later. Empty without nft, because then there is no guard.
    pub ingress: Arc<Filter>,
    /// Rules, for each address family in which a policy protects something.
    pub rules: Vec<Rule>,
    /// Destinations of table 220, in order, each once.
    pub routes: Vec<(Destination, Way)>,
    /// Policies, or parts of them, that could not be expressed, with the remedy.
    pub warnings: Vec<String>,
    /// Routes and chains of each policy: first the policies in the order in which they were given,
    /// then the narrowed ones. A narrowed policy has the chains of the policy from which it was
    /// narrowed.
    pub serving: Vec<Serving>,
}

/// The routes and chains that serve one policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Serving {
    /// Destinations of the policy in table 220.
    pub routes: Vec<(Destination, Way)>,
    /// Chains of the table that recognize the policy's packets on their way out; at most the first
    /// few. Empty when other policies come first everywhere.
    pub chains: Vec<String>,
}
