//! Keying policy: the tunnels that should be up, whatever the key exchange protocol. This crate
//! holds no SA and no message.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `certificates` | loaded certificates, the choice of ours, and the judgement of the peer's |
//! | `choices/` | pure choices about IKE_SAs: addresses, ways, duplicates |
//! | `connection` | connections, children, addresses and selectors as configured |
//! | `connections` | the loaded connections, and the choice of the one that a peer belongs to |
//! | `credentials` | pre-shared keys, and the choice of the key for a pair of identities |
//! | `diagnosis/` | the closed list of reasons why something failed |
//! | `jitter` | random parts of times |
//! | `joined` | policy and a protocol together: reports in, orders out |
//! | `keys` | key pairs for signatures: the private key to sign with, the public keys to try |
//! | `level` | levels of lines for the log |
//! | `limits` | every limit and time of keying |
//! | `policy` | the questions that a protocol asks of policy |
//! | `ports` | our UDP ports |
//! | `ppks` | post-quantum preshared keys, and the choice of the key that an identifier names |
//! | `protocol` | a key exchange protocol as policy sees it |
//! | `signatures` | signatures that one end may prove itself by, and the choice of the algorithm |
//! | `standing` | was a certificate of the peer's chain revoked: what is known, whom to ask |
//! | `statuses` | revocation lists and responses of OCSP that were fetched, and are kept |
//! | `timers` | a table of timers |
//! | `tunnels/` | the tunnels that should be up: reports in, orders out |
#![forbid(unsafe_code)]

mod certificates;
pub mod choices;
mod connection;
mod connections;
mod credentials;
pub mod diagnosis;
pub mod jitter;
mod joined;
mod keys;
mod level;
pub mod limits;
mod policy;
mod ports;
mod ppks;
mod protocol;
mod signatures;
mod standing;
mod statuses;
mod timers;
pub mod tunnels;

pub use certificates::{Certificates, Trust, names_shown};
pub use connection::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Childless, Connection, Fragmentation, LocalRound,
    MAX_REQID, RemoteRound, SendCert, TsSpec, Unique,
};
pub use connections::{Claim, Connections, Fit};
pub use credentials::{SharedKey, SharedKeys};
pub use diagnosis::Diagnosis;
pub use joined::Joined;
pub use keys::{Fingerprint, PrivateKey, PrivateKeys, PublicKey, key_identity, tried};
pub use level::Level;
pub use limits::Limits;
pub use policy::{Loaded, Policy, Shared};
pub use ports::Ports;
pub use ppks::{PPK_BYTES, Ppk, Ppks, ppk_id};
pub use protocol::{Protocol, Target};
pub use signatures::Signatures;
pub use standing::{Chained, Fetched, Inquiry, Proven, Unproven};
pub use statuses::{Kept, Statuses};
pub use timers::Timers;
pub use tunnels::{Before, Close, Down, IkeId, Next, Order, Report, Ticket, Tunnels, Up};
