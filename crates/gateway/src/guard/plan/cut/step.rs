//! Lists and their steps. A step is a policy without its remote addresses; a packet is compared
//! with one after the other.

use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::super::{Policy, Verdict};

pub(in super::super) use ironswan_io::ingress::{MOBILITY, WITH_PORTS, WITH_TYPES};

/// The fate of a packet that a step covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(in super::super) enum Outcome {
    /// Into the tunnel; elsewhere it is dropped.
    Guarded,
    /// Into the tunnel; in clear where nothing leads it there, as the guard leaves it alone.
    Steered,
    /// As if there were no policy.
    Passed,
}

/// A policy without its remote addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(in super::super) struct Step {
    pub(in super::super) local: AddrRange,
    /// 0 for any.
    pub(in super::super) protocol: u8,
    pub(in super::super) local_ports: Ports,
    pub(in super::super) remote_ports: Ports,
    pub(in super::super) outcome: Outcome,
}

/// A list of steps, first asked first, and whether table 220 takes what they leave over.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in super::super) struct List {
    /// Unmarked packets to these destinations are led to the device by table 220: what passes must
    /// be marked.
    pub(in super::super) routed: bool,
    pub(in super::super) steps: Vec<Step>,
}

/// Ports of one side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(in super::super) enum Ports {
    Any,
    /// Only packets that show no ports (OPAQUE).
    Opaque,
    /// First and last.
    Range(u16, u16),
}

/// True when packets of this protocol show something to compare with port ranges.
pub(in super::super) fn shows_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol) || WITH_TYPES.contains(&protocol) || protocol == MOBILITY
}

impl Ports {
    fn of(t: &TrafficSelector) -> Self {
        if t.any_port() {
            Self::Any
        } else if t.start_port > t.end_port {
            // 65535-0 is OPAQUE; any other inverted range matches nothing that shows ports either.
            Self::Opaque
        } else {
            Self::Range(t.start_port, t.end_port)
        }
    }
}

impl Step {
    /// `None` when no packet can be covered.
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        let (l, r) = (&policy.local, &policy.remote);
        if l.range.is_ipv6() != r.range.is_ipv6() {
            return None;
        }
        let protocol = match (l.protocol, r.protocol) {
            (0, p) | (p, 0) => p,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (local_ports, remote_ports) = (Ports::of(l), Ports::of(r));
        let ranges = [local_ports, remote_ports].iter().any(|p| matches!(p, Ports::Range(..)));
        let opaque = [local_ports, remote_ports].contains(&Ports::Opaque);
        if ranges && (opaque || protocol != 0 && !shows_ports(protocol)) {
            return None;
        }
        let outcome = match policy.verdict {
            Verdict::Bypass => Outcome::Passed,
            Verdict::Protect | Verdict::Discard if policy.guard => Outcome::Guarded,
            Verdict::Protect | Verdict::Discard => Outcome::Steered,
        };
        Some(Self { local: l.range, protocol, local_ports, remote_ports, outcome })
    }

    /// Passes everything from or to these local addresses.
    pub(super) fn passing(local: AddrRange) -> Self {
        let (local_ports, remote_ports) = (Ports::Any, Ports::Any);
        Self { local, protocol: 0, local_ports, remote_ports, outcome: Outcome::Passed }
    }

    /// True when ports are asked for.
    pub(in super::super) fn asks_ports(&self) -> bool {
        self.local_ports != Ports::Any || self.remote_ports != Ports::Any
    }

    /// True when nothing but the local address is asked for.
    pub(in super::super) fn addresses_only(&self) -> bool {
        self.protocol == 0 && !self.asks_ports()
    }
}
