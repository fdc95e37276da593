//! Start and end of the daemon, and what changes in between without an end.
//!
//! | module | does |
//! |---|---|
//! | [`run`] | starts everything in order, ends it in the other order |
//! | `reload` | reads the configuration again and applies the difference |
//! | [`failure`] | reasons why the daemon does not start, has to end, or does not reload |
//! | [`fitness`] | names what on this machine stands in the way of a gateway |
//! | `privileges` | becomes the daemon's user, with two capabilities |
//! | `qcd_secret` | gets the secret of quick crash detection from the helper |
//! | [`notify`] | tells the service manager how far the daemon is |

pub mod failure;
pub mod fitness;
pub mod notify;
mod privileges;
pub(crate) mod qcd_secret;
pub(crate) mod reload;
pub mod run;
