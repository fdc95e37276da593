//! Log lines and key tables, for whoever operates the daemon.
//!
//! | module | does |
//! |---|---|
//! | [`log`] | writes log lines, without making anybody wait for standard error |
//! | [`keylog`] | writes the keys of SAs into tables for Wireshark, when configured |
//! | [`records`] | keeps what was told about connections and strangers |

pub mod keylog;
pub mod log;
pub(crate) mod records;
