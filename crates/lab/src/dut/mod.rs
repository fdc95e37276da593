//! Systems under test, always as processes on the gateways of a topology. One file each; adding one
//! is that file and its line in [`NAMES`].
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `system` | the interface of a system under test |
//! | `options` | choices that a user has for the systems |
//! | `choice` | the systems by name |
//! | `pair` | the processes of a system on its gateways |
//! | `plain` | plain forwarding |
//! | `ironswan` | `ironswan run` |
//! | `strongswan` | strongSwan's charon |
//! | `libreswan` | Libreswan's pluto |
//! | `wireguard` | WireGuard in the kernel |
//! | `wireguard_go` | wireguard-go, and forks of it |
//! | `openvpn` | OpenVPN |
//! | `vici` | asks a daemon by VICI whether it is there |
//! | `engine` | counters of a system's packet engine |

mod choice;
mod engine;
pub(crate) mod ironswan;
mod libreswan;
mod openvpn;
mod options;
mod pair;
mod plain;
pub(crate) mod strongswan;
mod system;
pub(crate) mod vici;
mod wireguard;
mod wireguard_go;

pub use choice::{LIBIPSEC, NAMES, There, XFRM, by_name, there};
pub use engine::{EngineCounts, StageTimes};
pub use ironswan::SOFTWARE_ENVIRONMENT;
pub use options::{DataSetting, DutOptions, Encap, Hardware, Suite};
pub(crate) use pair::Pair;
pub use system::{Dut, Running};
