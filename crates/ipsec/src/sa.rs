//! One SA: what the packet path needs of it. Everything that changes is atomic or behind a lock
//! that is held for a run of packets, so that workers share SAs.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `outbound` | an outbound SA: sequence numbers, path MTU |
//! | `inbound` | an inbound SA: replay window, quick answers about inner packets |
//! | `key` | the key, for ESP or AH, and its lengths |
//! | `parameters` | parameters that both directions have |
//! | `path` | outer addresses, and other sources that were reported |
//! | `selectors` | traffic selectors |
//! | `ranges` | quick answer of an inbound SA, by addresses |
//! | `usage` | packets and bytes carried, and limits |

mod inbound;
mod key;
mod outbound;
mod parameters;
mod path;
mod ranges;
mod selectors;
mod usage;

pub(crate) use inbound::{InSa, InState};
pub(crate) use key::SaKey;
pub(crate) use outbound::{OutSa, OutState};
pub(crate) use parameters::SaParameters;
pub(crate) use path::{Path, ReportedSources};
pub(crate) use usage::{LimitsReached, Usage};
