//! Messages of the worker threads to the control plane.

use std::net::IpAddr;

use ironswan_ike::event::Undelivered;
use ironswan_wire::sadb::Up;

use super::offloads::Slower;

/// From the workers to the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerNotice {
    /// From the engine.
    Up(Vec<Up>),
    /// The path to these peers has become narrower, or packets to them are larger than the path MTU
    /// and are dropped: ask the routing table and `Workers::paths` for the path MTU and lower
    /// the routes to the device, so that the kernel tells the senders.
    NarrowPath(Vec<IpAddr>),
    /// ICMP errors about requests of IKE.
    Undelivered(Vec<Undelivered>),
    /// A worker has ended by a defect of ours: nothing can be relied on to be carried any more.
    Ended,
    /// The TUN device was deleted by someone; IKE goes on, packets do not until
    /// `Workers::replace_device`.
    DeviceGone,
    /// The kernel refuses something that was faster; packets go the slower way. Once for each, not
    /// for each packet.
    Slower(Slower),
}
