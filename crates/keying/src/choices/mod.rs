//! Pure choices of policy about IKE_SAs. A protocol describes what stands, a function here chooses,
//! and the protocol carries out: it never chooses itself.
//!
//! # Files
//!
//! | file | chooses |
//! |---|---|
//! | `address` | the address of the peer for an attempt, and when the next one is asked besides |
//! | `authentication` | how long an authentication counts |
//! | `contact` | what a newly authenticated IKE_SA means for older ones of the same peer |
//! | `way` | what an IKE_SA does when our addresses and routes change |

pub mod address;
pub mod authentication;
pub mod contact;
pub mod way;
