//! Chains that are accepted or refused, judged by this crate and by others: NIST's test suite says
//! what it expects (`suite`), and OpenSSL judges the same chains and many more (`oracle`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `judges` | one question, and who answers it: this crate, and `openssl verify` |
//! | `suite` | the cases of NIST PKITS |
//! | `made` | certificates that are made and signed here |
//! | `single` | chains with one peculiarity: structure, time, use, signatures |
//! | `names` | chains with one peculiarity: names and name constraints |
//! | `policies` | chains with one peculiarity: certificate policies |
//! | `ways` | cross-signed CAs, loops, several ways up |
//! | `oracle` | compares the answers with the table of `docs/rfc/chains.md` |

mod judges;
mod made;
mod names;
mod oracle;
mod policies;
mod single;
mod suite;
mod ways;
