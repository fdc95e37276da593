//! Path MTUs to the peers of outbound SAs: asked of the kernel, lowered by the ICMP errors that
//! were believed ([`crate::dataplane::userspace::paths`]) and by measurements, and told to the
//! engine.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_ike::event::KnownPath;
use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_ipsec::mtu::Encapsulation;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::protocol;
use ironswan_wire::sadb::{Command, Direction, ReqId, SaRef, Spi};

use super::{ADDRESSES, Installer};
use crate::dataplane::userspace::paths::Shape;
use crate::guard::standing::StandingGuard;
use crate::network::Kernel;

/// Pause before we repeat a look-up of a path MTU that the kernel did not answer.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Path MTU in bytes that we assume while there is no SA yet.
pub(super) const UNKNOWN_PATH_MTU: u32 = 1500;

/// The outside of an outbound SA. Of a reqid's SAs the newest that is not gone decides the MTU, as
/// it carries the packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) spi: Spi,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) encapsulation: Encapsulation,
    pub(super) copy_df: bool,
    /// The path MTU, once it has been looked up: many peers may share a route, and not all are
    /// looked up when one comes.
    pub(super) path: Option<u32>,
    /// The path MTU is to be looked up again; the old one holds until the kernel answers.
    pub(super) stale: bool,
    /// The SA has been deleted.
    pub(super) gone: bool,
}

impl Outside {
    pub(super) fn is(&self, sa: &SaRef) -> bool {
        self.spi == sa.spi && self.remote.ip() == sa.remote
    }

    pub(super) fn named(&self, reqid: ReqId) -> SaRef {
        SaRef { direction: Direction::Out, spi: self.spi, reqid, remote: self.remote.ip() }
    }

    /// Protocol and port of the SA's packets, as a router sees them.
    pub(super) fn shape(&self) -> Shape {
        let protocol =
            if self.encapsulation.protocol == ProtocolId::AH { protocol::AH } else { protocol::ESP };
        Shape { protocol, port: self.encapsulation.udp_encap.then_some(self.remote.port()) }
    }
}

/// The MTU of the route to a peer, in bytes.
#[derive(Clone, Copy, Debug)]
struct RouteMtu {
    /// The route's, or that of its link.
    mtu: u32,
    /// The route's own, when it has one.
    own: Option<u32>,
    /// The MTU that an ICMP error has made the kernel believe.
    heard: Option<u32>,
}

/// The SA that carries the packets, or that carried them last when all are gone.
fn newest(all: &[Outside]) -> Option<&Outside> {
    all.iter().rfind(|o| !o.gone).or(all.last())
}

impl Installer {
    /// The largest inner packet that fits the path unfragmented, in bytes. When the outer packets
    /// may be fragmented, 1,500 bytes pass however narrow the path has become; without an MTU of
    /// its own the route would have the device's.
    pub(super) fn inner_mtu(&mut self, reqid: ReqId, inner_ipv6: bool) -> u32 {
        // RFC 8200 section 5: no IPv6 link is narrower than 1280; RFC 791: 576 for IPv4 (68 in
        // theory).
        let floor = if inner_ipv6 { 1280 } else { 576 };
        let Some(o) = self.outside.get(&reqid).and_then(|all| newest(all)).copied() else {
            return UNKNOWN_PATH_MTU - 100;
        };
        let path = match o.path {
            Some(path) if !o.stale => path,
            _ => self.look_up(reqid, &o),
        };
        let fits = if o.copy_df { o.encapsulation.inner_max(path) } else { path.max(UNKNOWN_PATH_MTU) };
        fits.max(floor)
    }

    /// Asks the kernel for the MTU of the route to a peer, lowers it to what believed ICMP errors
    /// said of the path, and tells the engine.
    fn look_up(&mut self, reqid: ReqId, o: &Outside) -> u32 {
        let remote = o.remote.ip();
        let path = match self.route_mtu(o.local.ip(), remote) {
            Ok(RouteMtu { mtu, own, .. }) => {
                self.paths.routed(remote, own);
                mtu.min(65_535)
            }
            // The guard has logged why.
            Err(_) => {
                // A successor is on the path of the one before.
                let known = self.outside.get(&reqid).into_iter().flatten().rev();
                let known = known.filter(|k| k.remote.ip() == o.remote.ip()).find_map(|k| k.path);
                self.ask_again.insert(reqid, clock::now() + ASK_AGAIN);
                known.unwrap_or(UNKNOWN_PATH_MTU)
            }
        };
        let known = self.paths.known();
        let learned = known.icmp_mtu(remote).into_iter().chain(known.measured_mtu(remote));
        let path = learned.fold(path, u32::min);
        for known in self.outside.get_mut(&reqid).into_iter().flatten().filter(|k| k.spi == o.spi) {
            (known.path, known.stale) = (Some(path), false);
        }
        let sa = SaRef { direction: Direction::Out, spi: o.spi, reqid, remote: o.remote.ip() };
        // The SA may have been deleted, and its successor not have come yet.
        let _ = self.engine.apply(self.now, &Command::SaPathMtu { sa, mtu: path });
        path
    }

    /// The MTU of the route to a peer.
    fn route_mtu(&mut self, local: IpAddr, remote: IpAddr) -> Result<RouteMtu, IoError> {
        let source = Some(local).filter(|ip| !ip.is_unspecified());
        let Some(hop) = self.guard.lookup(remote, source)? else {
            return Ok(RouteMtu { mtu: UNKNOWN_PATH_MTU, own: None, heard: None });
        };
        let heard = hop.expires.map(|_| hop.mtu).filter(|mtu| *mtu != 0);
        let own = match hop.expires {
            None => hop.mtu,
            // The kernel has learned it from an ICMP error, which may be forged.
            Some(_) => {
                let configured = |guard: &mut StandingGuard, kernel: &mut dyn Kernel| {
                    kernel.configured(remote, source, guard.settings().mark)
                };
                let route = self.guard.change(configured).inspect_err(|e| self.guard.no_answer(e))?;
                route.map_or(0, |route| route.mtu)
            }
        };
        Ok(match own {
            0 => RouteMtu { mtu: self.link_mtu(hop.link)?, own: None, heard },
            mtu => RouteMtu { mtu, own: Some(mtu), heard },
        })
    }

    /// Size of packets on the path to a peer, as far as it is known without measurements. `None`:
    /// the kernel did not answer.
    pub fn known_path(&mut self, local: IpAddr, remote: IpAddr) -> Option<KnownPath> {
        let route = self.route_mtu(local, remote).ok()?;
        let learned = self.paths.known().icmp_mtu(remote);
        let mtu = learned.map_or(route.mtu, |learned| learned.min(route.mtu)).min(65_535);
        Some(KnownPath { mtu, told: learned.into_iter().chain(route.heard).min() })
    }

    /// A measurement has found that the path to a peer carries packets of this size; `None`: of all
    /// sizes that [`Self::known_path`] says, or there is nobody any more who measures.
    pub fn measured(&mut self, remote: IpAddr, mtu: Option<u32>) {
        if self.paths.known().set_measured_mtu(remote, mtu) {
            self.narrowed(&[remote]);
        }
    }

    /// The MTU of an interface. Remembered, since thousands of tunnels leave by the same few.
    fn link_mtu(&mut self, link: u32) -> Result<u32, IoError> {
        let now = clock::now();
        let (since, known) = &mut self.link_mtus;
        if since.is_none_or(|at| now.saturating_duration_since(at) >= ADDRESSES) {
            known.clear();
        }
        if known.is_empty() {
            *since = Some(now);
        }
        if let Some(mtu) = known.get(&link) {
            return Ok(*mtu);
        }
        let mtu = self.guard.change(|_, kernel| kernel.link_mtu(link));
        let mtu = mtu.inspect_err(|e| self.guard.no_answer(e))?.filter(|mtu| *mtu != 0);
        if let Some(mtu) = mtu {
            known.insert(link, mtu);
        }
        Ok(mtu.unwrap_or(UNKNOWN_PATH_MTU))
    }
}
