//! The daemon: joins key exchange (`ike`), packet engine (`ipsec`), kernel (`io`) and configuration
//! (`config`) to a gateway.
//!
//! | module | does |
//! |---|---|
//! | [`start`] | starts and ends the daemon, reloads its configuration |
//! | [`driver`] | the loop around policy and protocol, and threads for what blocks |
//! | [`dataplane`] | holds SAs and policies, moves packets |
//! | [`network`] | the kernel's routing, or a stand-in of tests |
//! | [`guard`] | keeps protected packets from travelling in clear, by routes, nft and programs |
//! | [`control`] | the VICI server |
//! | [`doctor`] | is this machine fit: facts and judgement, with a daemon or without |
//! | [`diagnosis`] | errors of the kernel as entries of the one list of reasons |
//! | [`helper`] | the process that keeps privileges for the daemon |
//! | [`report`] | parts of a report for support: machine, secrets, archive |
//! | [`observe`] | log lines and key tables |
//! | `passage` | the way of one packet through this machine, for whoever asks |

pub mod control;
pub mod dataplane;
pub mod diagnosis;
pub mod doctor;
pub mod driver;
pub mod guard;
pub mod helper;
pub mod network;
pub mod observe;
mod passage;
pub mod report;
pub mod start;
