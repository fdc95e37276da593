//! Data planes: they hold SAs and policies, and move the packets.
//!
//! | module | does |
//! |---|---|
//! | [`userspace`] | moves packets through the engine of `ironswan-ipsec`, between a TUN device and sockets |

pub mod userspace;
