//! Settings of an endpoint.

use ironswan_keying::Ports;

/// Settings of an endpoint that do not change while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Emit [`Event::KeyLog`](crate::event::Event::KeyLog).
    pub keylog: bool,
    /// Our UDP ports.
    pub ports: Ports,
    /// Keep the peers' QCD tokens, and end an IKE_SA by its token (RFC 6290).
    pub take_qcd_tokens: bool,
}
