//! The two UDP ports of this gateway, and whether a connection can be initiated from them.

use crate::Connection;
use crate::diagnosis::{Configuration, Diagnosis};

/// UDP ports that this gateway sends from and listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// Port for plain IKE (`port_ike`, 500).
    pub ike: u16,
    /// Port where IKE carries the non-ESP marker and ESP is UDP-encapsulated (`port_natt`, 4500).
    pub natt: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { ike: 500, natt: 4500 }
    }
}

impl Ports {
    /// The port that the first message of a connection is sent from.
    pub fn of(&self, conn: &Connection) -> u16 {
        conn.local_port.unwrap_or(self.ike)
    }

    /// Reason why nothing can be initiated on a connection: it names a port that is neither of
    /// ours. `None` when it can.
    pub fn foreign(&self, conn: &Connection) -> Option<Diagnosis> {
        let port = conn.local_port.filter(|port| ![self.ike, self.natt].contains(port))?;
        Some(Configuration::ForeignPort { port, ike: self.ike, natt: self.natt }.into())
    }
}
