//! The exchanges of an IKE_SA, one a file. Each has `build` (our request), `process` (the response
//! to it) and `answer` (the peer's request), as far as it applies. An exchange that needs work from
//! outside becomes an object, an [`Exchange`], which holds its state until that work is done and
//! then resumes.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `answer_child` | the same as responder |
//! | `answer_init` | IKE_SA_INIT as responder |
//! | `child_payloads` | payloads that a request and a response about a child have in common |
//! | `create_child` | CREATE_CHILD_SA for children, as initiator |
//! | `delete` | DELETE, and other INFORMATIONAL requests |
//! | `exchange` | an exchange while it waits for work outside |
//! | `follow_up` | IKE_FOLLOWUP_KE, which completes a CREATE_CHILD_SA |
//! | `intermediate` | IKE_INTERMEDIATE, with additional key exchanges |
//! | `link` | links between CREATE_CHILD_SA and its IKE_FOLLOWUP_KE |
//! | `liveness` | an empty INFORMATIONAL to a silent peer |
//! | `mobike` | UPDATE_SA_ADDRESSES and further addresses |
//! | `narrowed` | says when a CHILD_SA carries less than is configured |
//! | `path_probe` | INFORMATIONAL requests that measure the path to the peer |
//! | `qcd` | QCD tokens (RFC 6290) in all messages of an IKE_SA |
//! | `refused` | says when the peer refuses to rekey an SA |
//! | `rekey_child` | rekeying a CHILD_SA |
//! | `restart` | answers to IKE_SA_INIT that may be forged |
//! | `sa_init` | IKE_SA_INIT as initiator |
//! | `series` | additional key exchanges behind a CREATE_CHILD_SA, between two of them |
//! | `state` | exchanges that we start, each with its state |
//! | `auth/` | IKE_AUTH |
//! | `rekey_ike/` | rekeying the IKE_SA |

pub(crate) mod answer_child;
pub(crate) mod answer_init;
pub(crate) mod auth;
mod child_payloads;
pub(crate) mod create_child;
pub(crate) mod delete;
mod exchange;
pub(crate) mod follow_up;
pub(crate) mod intermediate;
mod link;
pub(crate) mod liveness;
pub(crate) mod mobike;
mod narrowed;
pub(crate) mod path_probe;
pub(crate) mod qcd;
mod refused;
pub(crate) mod rekey_child;
pub(crate) mod rekey_ike;
pub(crate) mod restart;
pub(crate) mod sa_init;
mod series;
mod state;

pub(crate) use exchange::Exchange;
pub(crate) use series::{Agreement, FollowUps};
pub(crate) use state::{DeleteChild, DeleteIke, Mobike, NewChild, RekeyIke, Task};
