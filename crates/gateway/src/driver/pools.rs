//! All groups of threads of the daemon, each for one kind of work: none waits for another kind.

use super::fetches::Fetches;
use super::names::Resolver;
use super::pool::Pool;

/// All pools of the daemon.
pub(crate) struct Pools {
    pub(crate) kex: Pool,
    pub(crate) names: Resolver,
    pub(crate) fetches: Fetches,
    pub(crate) nft: Pool,
    pub(crate) live: Pool,
}

impl Default for Pools {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            kex: Pool::new("ipsec-kex", cores.max(2)),
            names: Resolver::default(),
            fetches: Fetches::default(),
            nft: Pool::new("ipsec-nft", 1),
            live: Pool::new("ipsec-live", 1),
        }
    }
}
