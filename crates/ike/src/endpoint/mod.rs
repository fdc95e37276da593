//! All IKE_SAs of one gateway.
#![allow(dead_code, unused_variables)]

use std::net::SocketAddr;
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_wire::sadb::Up;

use crate::config::{Connection, Limits, SharedKey};
use crate::counters::Counters;
use crate::event::{Completion, Event, IkeSaInfo, Request, RequestId, Ticket, Transmit};

/// What an endpoint is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Emit [`Event::KeyLog`].
    pub keylog: bool,
    /// The local port that speaks plain IKE (500).
    pub port: u16,
    /// The local port where IKE carries the non-ESP marker (4500).
    pub natt_port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { keylog: false, port: 500, natt_port: 4500 }
    }
}

/// Which SAs a command is about: everything that is given must match. All `None` matches nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Connection's name.
    pub ike: Option<String>,
    /// Child's name.
    pub child: Option<String>,
    /// IKE_SA's unique id.
    pub ike_id: Option<u64>,
    /// CHILD_SA's unique id.
    pub child_id: Option<u64>,
}

/// Why a command was not even begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// Nothing of that name or id.
    NotFound(String),
    /// The connection cannot be initiated (no address to initiate to, a shunt, a limit); the text says why.
    Refused(String),
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound(what) => write!(f, "{what} not found"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CommandError {}

/// All IKE_SAs of one gateway.
pub struct Endpoint {
    counters: Counters,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(limits: Limits, rng: Box<dyn Rng>, options: Options) -> Self {
        Self { counters: Counters::default() }
    }
    /// Loads a connection.
    pub fn load_connection(&mut self, now: Instant, conn: Connection) {}
    /// Unloads a connection.
    pub fn unload_connection(&mut self, now: Instant, name: &str) -> bool {
        false
    }
    /// The connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        std::iter::empty()
    }
    /// Loads a shared key.
    pub fn load_shared(&mut self, key: SharedKey) {}
    /// Unloads a shared key.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        false
    }
    /// Names of the shared keys.
    pub fn shared_names(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
    /// Initiates.
    pub fn initiate(
        &mut self,
        now: Instant,
        ike: Option<&str>,
        child: Option<&str>,
    ) -> Result<Ticket, CommandError> {
        Err(CommandError::NotFound(String::new()))
    }
    /// Terminates.
    pub fn terminate(
        &mut self,
        now: Instant,
        target: &Target,
        force: bool,
    ) -> Result<(usize, Ticket), CommandError> {
        Err(CommandError::NotFound(String::new()))
    }
    /// Rekeys.
    pub fn rekey(
        &mut self,
        now: Instant,
        target: &Target,
        reauth: bool,
    ) -> Result<(usize, Ticket), CommandError> {
        Err(CommandError::NotFound(String::new()))
    }
    /// Deletes everything.
    pub fn shutdown(&mut self, now: Instant) {}
    /// A datagram, without non-ESP marker.
    pub fn handle_datagram(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {}
    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {}
    /// From the packet engine.
    pub fn handle_engine(&mut self, now: Instant, up: Up) {}
    /// Answers a request.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: Completion) {}
    /// Next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    /// Next request.
    pub fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        None
    }
    /// Next datagram.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }
    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Snapshots.
    pub fn ike_sas(&self, now: Instant) -> Vec<IkeSaInfo> {
        Vec::new()
    }
    /// Counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
