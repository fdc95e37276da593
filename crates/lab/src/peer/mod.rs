//! IKE peers made of the sans-IO `ironswan-ike`, many in one process, over real UDP sockets inside
//! a namespace, for measurements of one gateway. They authenticate the gateway as any peer does,
//! accept no other selectors than those of their tunnel, and hand out the keys of what was agreed
//! to whoever speaks ESP.
//!
//! ```text
//!   one thread:  sockets 500, 4500 ──> Endpoint (a connection per tunnel)
//!                                  ──> SAs by tunnel ──> Peer::keys()
//! ```
//! Not here: ESP ([`crate::load::esp`] speaks it with these keys). What arrives in UDP is counted
//! and dropped.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `node` | the thread of all peers |

mod node;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_wire::iana::{EncrId, EsnId, KeId, PrfId, ProtocolId};
use ironswan_wire::proposal::{EspSuite, Proposal, Transform};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::TrafficSelector;

use crate::error::LabError;
use crate::interrupt;
use crate::topology::Netns;

/// One tunnel, as the peer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTunnel {
    /// The peer's address.
    pub local: IpAddr,
    /// The gateway's.
    pub remote: IpAddr,
    /// The peer's identity, as swanctl.conf writes it.
    pub local_id: String,
    /// The gateway's.
    pub remote_id: String,
    /// The pre-shared key of the two.
    pub secret: Secret,
    /// Network behind the peer.
    pub local_ts: TrafficSelector,
    /// Network behind the gateway.
    pub remote_ts: TrafficSelector,
}

/// Settings that the peers of a process share, and their tunnels.
#[derive(Debug, Clone)]
pub struct PeerSpec {
    /// A tunnel each. No two have the same addresses and selectors.
    pub tunnels: Vec<PeerTunnel>,
    /// Whether the peers initiate. Otherwise they wait for the gateway.
    pub initiate: bool,
    /// Ask for UDP encapsulation without a NAT.
    pub encap: bool,
    /// The ESP proposal: [`aes_gcm`], [`proposal`], or another.
    pub esp: Proposal,
}

/// Keys of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaKeys {
    /// SPI on the wire.
    pub spi: u32,
    /// Encryption key; for an AEAD the salt follows it.
    pub encr: Secret,
    /// Integrity key; empty with an AEAD.
    pub integ: Secret,
}

/// A CHILD_SA as both ends have agreed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelKeys {
    /// Which of [`PeerSpec::tunnels`].
    pub tunnel: usize,
    /// The peer's outer address; the port matters with UDP encapsulation.
    pub local: SocketAddr,
    /// The gateway's.
    pub remote: SocketAddr,
    /// ESP travels in UDP.
    pub udp_encap: bool,
    /// Algorithms.
    pub suite: EspSuite,
    /// From the gateway to the peer.
    pub inbound: SaKeys,
    /// From the peer to the gateway.
    pub outbound: SaKeys,
}

/// AES-GCM with a key of 128, 192 or 256 bits and a 16-byte ICV, sequence numbers of 32 bits.
pub fn aes_gcm(bits: u16) -> Proposal {
    let transforms = vec![Transform::Encr(EncrId::AES_GCM_16, Some(bits)), Transform::Esn(EsnId::NO_ESN)];
    Proposal { number: 1, protocol: ProtocolId::ESP, spi: Vec::new(), transforms }
}

/// The proposal of that suite alone.
pub fn proposal(suite: &EspSuite) -> Proposal {
    let bits = suite.encr.has_key_length().then_some(suite.key_bits);
    let esn = if suite.esn { EsnId::ESN } else { EsnId::NO_ESN };
    let mut transforms = vec![Transform::Encr(suite.encr, bits)];
    transforms.extend(suite.integ.map(Transform::Integ));
    transforms.push(Transform::Esn(esn));
    Proposal { number: 1, protocol: ProtocolId::ESP, spi: Vec::new(), transforms }
}

/// `aes128gcm16-prfsha256-curve25519`, the laboratory's usual one.
fn ike_proposal() -> Proposal {
    let transforms = vec![
        Transform::Encr(EncrId::AES_GCM_16, Some(128)),
        Transform::Prf(PrfId::HMAC_SHA2_256),
        Transform::Ke(KeId::CURVE_25519),
    ];
    Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
}

/// State that the peers' thread and their owner share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The tunnels are to be rekeyed.
    rekey: AtomicBool,
    up: AtomicU64,
    esp: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: Vec<Option<TunnelKeys>>,
    /// The first thing that was not as it should be.
    problem: Option<String>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Peers at work. Dropping it ends them without a word to the gateway.
#[derive(Debug)]
pub struct Peer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    tunnels: usize,
}

impl Peer {
    /// Starts the peers inside `netns`, which must have their addresses.
    pub fn start(netns: &Netns, spec: PeerSpec) -> Result<Self, LabError> {
        let failed = |e: &dyn std::fmt::Display| LabError::Measurement(format!("the simulated peers: {e}"));
        // Sockets belong to the namespace in which they were made, whoever uses them.
        let bind = |port| UdpSocket::bind(UdpConfig { buffer: 64 << 20, ..UdpConfig::ike(false, port, 0) });
        let sockets = netns.inside(|| Ok([bind(500)?, bind(4500)?]))?;
        let sockets = sockets.map_err(|e: ironswan_io::Error| failed(&e))?;
        let tunnels = spec.tunnels.len();
        let node = node::Node::new(spec).map_err(|e| failed(&e))?;
        let shared = Arc::new(Shared::default());
        shared.state().keys = vec![None; tunnels];
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("lab-peers".into())
            .spawn(move || node.run(&sockets, &theirs))
            .map_err(|e| failed(&e))?;
        Ok(Self { shared, thread: Some(thread), tunnels })
    }

    /// How many tunnels there are.
    pub fn tunnels(&self) -> usize {
        self.tunnels
    }

    /// Tunnels that are up, both directions.
    pub fn up(&self) -> usize {
        self.shared.up.load(Ordering::Relaxed) as usize
    }

    /// Packets with ESP in UDP that have arrived.
    pub fn esp_packets(&self) -> u64 {
        self.shared.esp.load(Ordering::Relaxed)
    }

    /// An error when the gateway has done something that it should not, such as agreeing to
    /// selectors of another tunnel.
    pub fn sound(&self) -> Result<(), LabError> {
        match &self.shared.state().problem {
            None => Ok(()),
            Some(why) => Err(LabError::Measurement(format!("the simulated peers: {why}"))),
        }
    }

    /// Waits until all tunnels are up; false when they are not after `timeout`.
    pub fn wait_up(&self, timeout: Duration) -> Result<bool, LabError> {
        interrupt::wait_until(timeout, || self.sound().map(|()| self.up() == self.tunnels))
    }

    /// Rekeys all tunnels (RFC 7296 section 2.8); false when not all have new keys after `timeout`.
    pub fn rekey(&self, timeout: Duration) -> Result<bool, LabError> {
        let old = self.keys();
        self.shared.rekey.store(true, Ordering::Release);
        let other = |(new, old): (&TunnelKeys, &TunnelKeys)| {
            new.inbound.spi != old.inbound.spi && new.outbound.spi != old.outbound.spi
        };
        interrupt::wait_until(timeout, || {
            self.sound()?;
            let new = self.keys();
            Ok(new.len() == old.len() && new.iter().zip(&old).all(other))
        })
    }

    /// The keys of the tunnels that are up, in their order.
    pub fn keys(&self) -> Vec<TunnelKeys> {
        self.shared.state().keys.iter().flatten().cloned().collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}
