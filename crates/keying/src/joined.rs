//! Policy and a protocol together. Whoever drives a gateway holds this: neither of the two knows
//! the other.
//!
//! ```text
//!            ┌──────── orders ───────▶ ┌──────────┐ ─▶ events, requests, datagrams
//! ┌─────────┐                          │ protocol │
//! │ Tunnels │ ◀─────── reports ─────── └──────────┘ ◀─ datagrams, answers, timers
//! └─────────┘                               │
//!      └──── what is loaded ◀── questions ──┘
//! ```
//! Each call here ends when the protocol has no report and policy no order left.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_pki::Certificate;

use crate::{
    Before, Certificates, Connection, Diagnosis, Down, Fingerprint, Limits, Policy, Ppk, PrivateKey,
    Protocol, SharedKey, Statuses, Target, Ticket, Tunnels, Up,
};

/// Policy and a protocol.
pub struct Joined<P> {
    tunnels: Tunnels,
    protocol: P,
    /// Draws the random parts of policy's times.
    rng: Box<dyn Rng>,
}

impl<P: Protocol> Joined<P> {
    /// A policy without connections, and the protocol that `protocol` makes of the policy that it
    /// is to ask. `rng` draws the random parts of policy's times.
    pub fn new(limits: Limits, rng: Box<dyn Rng>, protocol: impl FnOnce(Arc<dyn Policy>) -> P) -> Self {
        let tunnels = Tunnels::new(limits);
        let protocol = protocol(Arc::new(tunnels.policy().clone()));
        Self { tunnels, protocol, rng }
    }

    /// The protocol, to look at.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The protocol, to take what it wants done: nothing that it reports.
    pub fn outputs(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Calls the protocol, and does what follows.
    pub fn call<R>(&mut self, now: Instant, call: impl FnOnce(&mut P) -> R) -> R {
        let result = call(&mut self.protocol);
        self.settle(now);
        result
    }

    /// The tunnels that should be up, to look at.
    pub fn tunnels(&self) -> &Tunnels {
        &self.tunnels
    }

    /// Takes all reports and obeys all orders.
    fn settle(&mut self, now: Instant) {
        loop {
            if let Some(report) = self.protocol.poll_report() {
                let protocol = &self.protocol;
                let at_work = |conn: &str, child: Option<&str>| protocol.progress(conn, child).is_some();
                self.tunnels.report(now, &mut *self.rng, report, &at_work);
            } else if let Some(order) = self.tunnels.poll_order(now) {
                self.protocol.obey(now, order);
            } else {
                return;
            }
        }
    }

    // ---- what is loaded ----

    /// Loads a connection by difference, as [`Tunnels::load`] says.
    pub fn load_connection(&mut self, now: Instant, conn: Connection) {
        self.tunnels.load(conn);
        self.settle(now);
    }

    /// Unloads a connection, as [`Tunnels::unload`] says.
    pub fn unload_connection(&mut self, now: Instant, name: &str) -> bool {
        let known = self.tunnels.unload(name);
        self.settle(now);
        known
    }

    /// The connections, by name.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.tunnels.policy().read().connections().values().cloned().collect()
    }

    /// The connection of this name.
    pub fn connection(&self, name: &str) -> Option<Arc<Connection>> {
        self.tunnels.policy().connection(name)
    }

    /// Loads a shared key, or replaces the one of the same name.
    pub fn load_shared(&mut self, key: SharedKey) {
        self.tunnels.load_shared(key);
    }

    /// Loads a post-quantum preshared key, or replaces the shared key of the same name.
    pub fn load_ppk(&mut self, key: Ppk) {
        self.tunnels.load_ppk(key);
    }

    /// Unloads a shared key of either kind; false when there is none. SAs that were authenticated
    /// with it go on.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        self.tunnels.unload_shared(name)
    }

    /// Names of the shared keys of both kinds, in order.
    pub fn shared_names(&self) -> Vec<String> {
        let loaded = self.tunnels.policy().read();
        let mut names: Vec<String> =
            loaded.secrets().names().chain(loaded.ppks().names()).map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// Shows each secret that is loaded: a shared key of either kind, or with true a private key in
    /// PKCS#8. For whoever looks whether a text has one of them.
    pub fn for_each_secret(&self, mut take: impl FnMut(bool, &[u8])) {
        let loaded = self.tunnels.policy().read();
        loaded.secrets().iter().for_each(|key| take(false, key.secret.expose()));
        loaded.ppks().iter().for_each(|key| take(false, key.secret.expose()));
        for key in loaded.private_keys().iter().filter_map(|key| key.to_pkcs8()) {
            take(true, key.expose());
        }
    }

    /// Loads a private key of ours, or replaces the same one.
    pub fn load_private(&mut self, key: PrivateKey) {
        self.tunnels.load_private(key);
    }

    /// Unloads a private key; false when there is none. SAs that were authenticated with it go on.
    pub fn unload_private(&mut self, id: &Fingerprint) -> bool {
        self.tunnels.unload_private(id)
    }

    /// Ids of our private keys.
    pub fn private_ids(&self) -> Vec<Fingerprint> {
        self.tunnels.policy().read().private_keys().ids().copied().collect()
    }

    /// Loads and unloads certificates. SAs that were authenticated with them go on.
    pub fn change_certificates<T>(&mut self, change: impl FnOnce(&mut Certificates) -> T) -> T {
        self.tunnels.change_certificates(change)
    }

    /// The loaded certificates, as they are now.
    pub fn certificates(&self) -> Arc<Certificates> {
        self.tunnels.policy().certificates()
    }

    /// The lists and responses of OCSP that were fetched, and are kept.
    pub fn statuses(&self) -> Statuses {
        self.tunnels.policy().statuses()
    }

    /// True when the private key of this certificate is loaded.
    pub fn has_private(&self, certificate: &Certificate) -> bool {
        self.tunnels.policy().read().private_keys().of(certificate).is_some()
    }

    /// Takes over limits and times. Timers that are set already stay, except for those of
    /// NAT-keepalives.
    pub fn set_limits(&mut self, now: Instant, limits: Limits) {
        self.protocol.set_limits(now, limits.clone());
        self.tunnels.set_limits(limits);
    }

    // ---- commands ----

    /// Brings up a child, or with `child` `None` the IKE_SA alone. `conn` may be left out when a
    /// connection has the child.
    ///
    /// # Errors
    /// As [`Tunnels::command`] and [`Protocol::initiate`].
    pub fn initiate(
        &mut self,
        now: Instant,
        conn: Option<&str>,
        child: Option<&str>,
    ) -> Result<Ticket, Diagnosis> {
        let start = self.tunnels.command(conn, child)?;
        let begun = self.protocol.initiate(now, start);
        self.settle(now);
        begun
    }

    /// Closes the SAs that match, as [`Protocol::terminate`] says. When the target is a whole
    /// connection, its attempts to come are forgotten.
    ///
    /// # Errors
    /// When nothing matches.
    pub fn terminate(
        &mut self,
        now: Instant,
        target: &Target,
        force: bool,
    ) -> Result<(usize, Ticket), Diagnosis> {
        if let Some(conn) = target.ike.as_ref().filter(|_| !target.children_only()) {
            self.tunnels.cancel(conn);
        }
        let closed = self.protocol.terminate(now, target, force);
        self.settle(now);
        closed
    }

    /// Rekeys the SAs that match, as [`Protocol::rekey`] says.
    ///
    /// # Errors
    /// When nothing matches.
    pub fn rekey(
        &mut self,
        now: Instant,
        target: &Target,
        reauth: bool,
    ) -> Result<(usize, Ticket), Diagnosis> {
        self.call(now, |protocol| protocol.rekey(now, target, reauth))
    }

    /// Installs the trap or shunt of a child, as [`Tunnels::install_trap`] says.
    pub fn install_trap(&mut self, now: Instant, conn: &str, child: &str) {
        self.tunnels.install_trap(conn, child);
        self.settle(now);
    }

    /// A command to install the trap or shunt of a child, as [`Tunnels::route_command`] says.
    ///
    /// # Errors
    /// Nothing has this name, or there can be no trap.
    pub fn route(&mut self, now: Instant, conn: Option<&str>, child: &str) -> Result<String, Diagnosis> {
        let routed = self.tunnels.route_command(conn, child);
        self.settle(now);
        routed
    }

    /// A command to remove it, as [`Tunnels::unroute_command`] says.
    pub fn unroute(&mut self, now: Instant, conn: Option<&str>, child: &str) -> bool {
        let found = self.tunnels.unroute_command(conn, child);
        self.settle(now);
        found
    }

    /// True after [`Self::shutdown`].
    pub fn is_stopping(&self) -> bool {
        self.tunnels.is_stopping()
    }

    /// Ends every SA with a word to its peer, and drops everything, traps and shunts included. From
    /// then on nothing is loaded and nothing initiated: what came up now would go without a word to
    /// its peer.
    pub fn shutdown(&mut self, now: Instant) {
        self.tunnels.stop();
        self.settle(now);
        self.protocol.shutdown(now);
        self.settle(now);
    }

    // ---- the world ----

    /// Links, addresses or routes have changed; `addresses` are all addresses that are ours now.
    pub fn network_changed(&mut self, now: Instant, addresses: &[IpAddr]) {
        self.protocol.network_changed(now, addresses);
        self.tunnels.routes_changed(now, &mut *self.rng);
        self.settle(now);
    }

    /// Time has passed: fires every timer that is due. Call it when [`Self::poll_timeout`] says, or
    /// at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.protocol.handle_timeout(now);
        self.settle(now);
        self.tunnels.handle_timeout(now);
        self.settle(now);
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.protocol.poll_timeout().into_iter().chain(self.tunnels.poll_timeout()).min()
    }

    // ---- views ----

    /// Every tunnel that should be up and is not, by connection and child.
    pub fn down(&self, now: Instant) -> Vec<Down> {
        self.tunnels.down(now, |conn, child| self.protocol.progress(conn, child))
    }

    /// True when a tunnel of this connection should be up and is not.
    pub fn is_down(&self, conn: &str) -> bool {
        self.tunnels.is_down(conn)
    }

    /// Since when a tunnel is up, and what was before, as [`Tunnels::up`] says.
    pub fn up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Up> {
        self.tunnels.up(now, conn, child)
    }

    /// The time that a tunnel was up before, as [`Tunnels::was_up`] says.
    pub fn was_up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Before> {
        self.tunnels.was_up(now, conn, child)
    }

    /// What stands between now and this child (or with `None`, the IKE_SA) of one of these
    /// connections being up: how far the attempt under way is, or else why the last one ended.
    /// `None` when nothing is known.
    pub fn obstacle(
        &self,
        mut conns: impl Iterator<Item = impl AsRef<str>>,
        child: Option<&str>,
    ) -> Option<String> {
        conns.find_map(|conn| {
            let conn = conn.as_ref();
            let why_down = || self.tunnels.why_down(conn, child).map(ToString::to_string);
            self.protocol.under_way(conn).or_else(why_down)
        })
    }

    /// True when a child's trap or shunt is installed.
    pub fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.tunnels.has_trap(conn, child)
    }

    /// True when a child's trap or shunt is installed, or will be once an address is known.
    pub fn wants_trap(&self, conn: &str, child: &str) -> bool {
        self.tunnels.wants_trap(conn, child)
    }

    /// Number of entries in every table that a peer, a command or time may fill, by name, for
    /// whoever looks for something that is never taken out. What is loaded is not in it.
    pub fn tables(&self) -> Vec<(&'static str, usize)> {
        let mut tables = self.protocol.tables();
        tables.extend(self.tunnels.tables());
        tables
    }
}
