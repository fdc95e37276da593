//! The daemon: joins key exchange (`ike`), packet engine (`ipsec`), kernel (`io`) and configuration
//! (`config`) to a gateway.
//!
//! | module | does |
//! |---|---|
//! | [`start`] | starts and ends the daemon, reloads its configuration |
//! | [`driver`] | the control plane: the loop around `ike::Endpoint`, and threads for what blocks |
//! | [`dataplane`] | holds SAs and policies, moves packets |
//! | [`guard`] | the rules, routes, nft table and ingress programs that keep protected packets from travelling in clear |
//! | [`control`] | the VICI server |
//! | [`observe`] | log lines and key tables |

pub mod control;
pub mod dataplane;
pub mod driver;
pub mod guard;
pub mod observe;
pub mod start;
