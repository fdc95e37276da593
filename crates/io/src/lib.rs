//! The kernel: TUN devices, UDP and raw sockets, routes and rules, the clock. The only crate with
//! sockets.
//!
//! | module | kernel object |
//! |---|---|
//! | [`tun`] | `/dev/net/tun`, with virtio headers so that 64 KB buffers cross in one call |
//! | [`udp`] | UDP sockets that cut on output and merge on input (`UDP_SEGMENT`, `UDP_GRO`) |
//! | [`raw`] | raw sockets: ESP without UDP, AH, packets with their header, ICMP errors |
//! | [`known`] | path MTUs that are smaller than the links' |
//! | [`fragment`] | cuts IP packets, where the kernel does not |
//! | [`packet`] | packet sockets, for sending whole frames |
//! | [`mmsg`] | `recvmmsg` and `sendmmsg` with control messages, for both kinds of socket |
//! | [`route`] | rtnetlink: links, addresses, routes, rules, look-ups, change notices |
//! | [`ingress`] | a program at the ingress of interfaces (tc, `bpf`) that drops clear packets |
//! | [`nft`] | notices of change of a table of nftables |
//! | [`sysctl`] | settings of routing in `/proc/sys/net` |
//! | [`napi`] | whether softirqs or kernel threads poll an interface |
//! | [`poller`] | epoll and the eventfd that wakes it |
//! | [`xdp`] | ESP straight from the driver (`AF_XDP`), the program that picks it out; a sender |
//! | [`http`] | TCP: one exchange with a server of the web |
//! | [`xfrm`] | policies and SAs of the kernel's own IPsec, which are not ours |
//! | [`listener`] | the owner of a listening Unix socket (`sock_diag`) |
//! | [`helper`] | the process that keeps privileges for this one |
//! | [`namespace`] | network namespaces |
//! | [`privileges`] | user, capabilities and limits that are given up |
//! | [`sandbox`] | system calls that are allowed (seccomp) |
//! | [`signals`] | signals that a process ignores |
//! | [`clock`] | the clock |
//!
//! `unsafe` lives in `mmsg`, `packet`, `sockaddr`, `sockopt`, `tun` and `poller` (ioctls), `bpf`,
//! `xdp`, `namespace`, `sandbox`, `signals` and `clock` only. Nothing here knows what ESP or IKE
//! is; the loops that join these objects to the packet engine are in the gateway.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `path` | the route to a peer and its MTU, for packets with their header |
//! | `send` | sends lists of packets: segments, fragments, narrow paths |
//! | `segmentation` | peers to which the kernel does not send segments |
//! | `malloc` | arenas of the allocator |
//! | `bpf/` | system calls for BPF, and an assembler |
//! | `sockaddr` | addresses of sockets, as the kernel reads them |
//! | `sockopt` | options of sockets |
//! | `error` | reasons why a kernel object could not be had |

mod bpf;
pub mod clock;
pub mod error;
pub mod fragment;
pub mod helper;
pub mod http;
pub mod ingress;
pub mod known;
pub mod listener;
pub mod malloc;
pub mod mmsg;
pub mod namespace;
pub mod napi;
pub mod nft;
pub mod packet;
mod path;
pub mod poller;
pub mod privileges;
pub mod raw;
pub mod route;
pub mod sandbox;
mod segmentation;
pub mod send;
pub mod signals;
mod sockaddr;
mod sockopt;
pub mod sysctl;
pub mod tun;
pub mod udp;
pub mod xdp;
pub mod xfrm;

pub use error::Error;
