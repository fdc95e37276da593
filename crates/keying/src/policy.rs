//! The questions that a key exchange protocol asks of policy: which connection, which secret, and
//! whether an identity may stand. A protocol sees this trait alone; [`Shared`] answers from what is
//! [`Loaded`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ironswan_pki::Certificate;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;

use crate::diagnosis::Configuration;
use crate::{
    AddrSpec, Certificates, Claim, Connection, Connections, Fingerprint, Fit, Ppk, Ppks, PrivateKey,
    PrivateKeys, PublicKey, SharedKey, SharedKeys, Statuses, Trust,
};

/// Policy as a protocol sees it. Every answer is a pure function of what is loaded.
pub trait Policy: Send + Sync {
    /// The loaded connection of this name.
    fn connection(&self, name: &str) -> Option<Arc<Connection>>;

    /// The connections for this pair of addresses, the most precise first: at most `most` of them.
    fn for_addresses(&self, local: IpAddr, remote: IpAddr, most: usize) -> Vec<Arc<Connection>>;

    /// The best connection for these addresses that accepts what a stranger proposes. `accepts`
    /// compares that with one list of proposals; it is called once for each list.
    fn for_proposals(
        &self,
        local: IpAddr,
        remote: IpAddr,
        accepts: &mut dyn FnMut(&[Proposal]) -> bool,
    ) -> Fit;

    /// The first single address of a peer that `fits`, with the name of a connection for it.
    /// `after`: looks at the addresses behind this one first. At most `most` are looked at; the
    /// second answer is the last of them.
    fn find_peer(
        &self,
        after: Option<IpAddr>,
        most: usize,
        fits: &mut dyn FnMut(IpAddr) -> bool,
    ) -> (Option<(IpAddr, String)>, Option<IpAddr>);

    /// The best connection for a peer that has said who it is. `allows` says whether what has been
    /// agreed with the peer already may be agreed on this connection.
    fn for_identity(
        &self,
        claim: &Claim<'_>,
        allows: &dyn Fn(&Connection) -> bool,
    ) -> Option<Arc<Connection>>;

    /// Connections that could have been chosen for a peer instead of `chosen`: those that its
    /// addresses mean more precisely (true), and those that its claim fits as well. At most `most`.
    fn beside(&self, claim: &Claim<'_>, chosen: &Connection, most: usize) -> Vec<(Arc<Connection>, bool)>;

    /// True when this peer must not stand: it says that it is us, where we are `ours`, and
    /// `expected` does not name exactly this identity as the peer's.
    fn claims_to_be_us(&self, expected: &IdPattern, ours: &Identity, peer: &Identity) -> bool;

    /// The shared key for this pair of identities.
    fn shared_key(&self, local: &Identity, remote: &Identity) -> Option<SharedKey>;

    /// The post-quantum preshared key with this identifier.
    fn ppk(&self, id: &[u8]) -> Option<Ppk>;

    /// True when some post-quantum preshared key is loaded.
    fn has_ppks(&self) -> bool;

    /// True when a loaded connection has several rounds of IKE_AUTH (RFC 4739).
    fn have_rounds(&self) -> bool;

    /// Our private key to sign with: that of the first of these public keys which is loaded.
    /// Without any public key, the one that our identity names.
    fn private_key(&self, of: &[PublicKey], local: &Identity) -> Option<PrivateKey>;

    /// Our certificate with those above it, and its private key. `asked`: keys of CAs that the peer
    /// asks for.
    ///
    /// # Errors
    /// The certificate or key that is missing.
    fn our_certificate(
        &self,
        trust: &Trust,
        local: &Identity,
        asked: &[Fingerprint],
    ) -> Result<(Vec<Certificate>, PrivateKey), Configuration>;

    /// The loaded certificates, as they are now.
    fn certificates(&self) -> Arc<Certificates>;

    /// The lists and responses of OCSP that were fetched, and are kept.
    fn statuses(&self) -> Statuses;

    /// The single addresses in a list, in its order and each once, with those that its DNS names
    /// stand for.
    fn hosts(&self, specs: &[AddrSpec]) -> Vec<IpAddr>;

    /// True when a list of addresses means this one.
    fn means(&self, specs: &[AddrSpec], addr: IpAddr) -> bool;

    /// Names of the connections of which an SA may be with the same peer as an SA of this one,
    /// whose peer is at one of these addresses.
    fn that_may_meet(&self, conn: &Connection, here: &BTreeSet<IpAddr>) -> BTreeSet<String>;
}

/// The connections and keys that are loaded.
#[derive(Default)]
pub struct Loaded {
    conns: Connections,
    secrets: SharedKeys,
    ppks: Ppks,
    private_keys: PrivateKeys,
    certificates: Arc<Certificates>,
    statuses: Statuses,
}

impl Loaded {
    /// The connections.
    pub fn connections(&self) -> &Connections {
        &self.conns
    }

    /// The connections, to load and unload them.
    pub fn connections_mut(&mut self) -> &mut Connections {
        &mut self.conns
    }

    /// The shared keys.
    pub fn secrets(&self) -> &SharedKeys {
        &self.secrets
    }

    /// The shared keys, to load and unload them.
    pub fn secrets_mut(&mut self) -> &mut SharedKeys {
        &mut self.secrets
    }

    /// The post-quantum preshared keys.
    pub fn ppks(&self) -> &Ppks {
        &self.ppks
    }

    /// The post-quantum preshared keys, to load and unload them.
    pub fn ppks_mut(&mut self) -> &mut Ppks {
        &mut self.ppks
    }

    /// Our private keys.
    pub fn private_keys(&self) -> &PrivateKeys {
        &self.private_keys
    }

    /// Our private keys, to load and unload them.
    pub fn private_keys_mut(&mut self) -> &mut PrivateKeys {
        &mut self.private_keys
    }

    /// The certificates.
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// The certificates, to load and unload them. Whoever judges by the older ones keeps these.
    pub fn certificates_mut(&mut self) -> &mut Certificates {
        Arc::make_mut(&mut self.certificates)
    }
}

/// A handle to what is loaded. [`Tunnels`](crate::Tunnels) has one and changes what is loaded; each
/// protocol has one and asks.
#[derive(Clone, Default)]
pub struct Shared(Arc<RwLock<Loaded>>);

impl Shared {
    /// What is loaded, to look at. Nothing is loaded or unloaded while the guard lives.
    pub fn read(&self) -> RwLockReadGuard<'_, Loaded> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is loaded, to change it. No guard of [`Self::read`] may live in the same thread.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Loaded> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for Shared {
    fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.read().conns.get(name).cloned()
    }

    fn for_addresses(&self, local: IpAddr, remote: IpAddr, most: usize) -> Vec<Arc<Connection>> {
        self.read().conns.for_addrs(local, remote).take(most).cloned().collect()
    }

    fn for_proposals(
        &self,
        local: IpAddr,
        remote: IpAddr,
        accepts: &mut dyn FnMut(&[Proposal]) -> bool,
    ) -> Fit {
        self.read().conns.fitting((local, remote), accepts)
    }

    fn find_peer(
        &self,
        after: Option<IpAddr>,
        most: usize,
        fits: &mut dyn FnMut(IpAddr) -> bool,
    ) -> (Option<(IpAddr, String)>, Option<IpAddr>) {
        let loaded = self.read();
        let (found, last) = loaded.conns.find_peer(after, most, fits);
        (found.map(|(addr, name)| (addr, name.to_owned())), last)
    }

    fn for_identity(
        &self,
        claim: &Claim<'_>,
        allows: &dyn Fn(&Connection) -> bool,
    ) -> Option<Arc<Connection>> {
        self.read().conns.by_identity(claim, allows)
    }

    fn beside(&self, claim: &Claim<'_>, chosen: &Connection, most: usize) -> Vec<(Arc<Connection>, bool)> {
        self.read().conns.beside(claim, chosen, most)
    }

    fn claims_to_be_us(&self, expected: &IdPattern, ours: &Identity, peer: &Identity) -> bool {
        self.read().conns.claims_to_be_us(expected, ours, peer)
    }

    fn shared_key(&self, local: &Identity, remote: &Identity) -> Option<SharedKey> {
        self.read().secrets.find(local, remote).cloned()
    }

    fn ppk(&self, id: &[u8]) -> Option<Ppk> {
        self.read().ppks.find(id).cloned()
    }

    fn has_ppks(&self) -> bool {
        !self.read().ppks.is_empty()
    }

    fn have_rounds(&self) -> bool {
        self.read().conns.have_rounds()
    }

    fn private_key(&self, of: &[PublicKey], local: &Identity) -> Option<PrivateKey> {
        self.read().private_keys.find(of, local).cloned()
    }

    fn our_certificate(
        &self,
        trust: &Trust,
        local: &Identity,
        asked: &[Fingerprint],
    ) -> Result<(Vec<Certificate>, PrivateKey), Configuration> {
        let loaded = self.read();
        loaded.certificates.ours(trust, local, &loaded.private_keys, asked)
    }

    fn certificates(&self) -> Arc<Certificates> {
        Arc::clone(&self.read().certificates)
    }

    fn statuses(&self) -> Statuses {
        self.read().statuses.clone()
    }

    fn hosts(&self, specs: &[AddrSpec]) -> Vec<IpAddr> {
        let mut hosts = Vec::new();
        for host in self.read().conns.hosts(specs) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    fn means(&self, specs: &[AddrSpec], addr: IpAddr) -> bool {
        self.read().conns.fit(specs, addr).is_some()
    }

    fn that_may_meet(&self, conn: &Connection, here: &BTreeSet<IpAddr>) -> BTreeSet<String> {
        self.read().conns.that_may_meet(conn, here).into_iter().cloned().collect()
    }
}
