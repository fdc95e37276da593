//! The crate beside a real kernel, in network namespaces. Needs root.

mod common;
mod header;
mod netlink;
mod sockets;
mod steering;
mod tun;
mod xdp;
mod xdp_rate;
