//! What policies, SAs and tunnels say about a packet, read from the driver at one moment.

use std::sync::Arc;

use ironswan_ipsec::Decision;
use ironswan_keying::diagnosis::NearPolicy;
use ironswan_keying::{ChildConfig, Connection};
use ironswan_wire::selector::{PacketSelector, TrafficSelector};

use super::near::{covers, nearest};
use super::{Direction, Question};
use crate::driver::Driver;
use crate::guard::plan::{Policy, Settings, Verdict, first_covering};

/// What is known of a packet without the kernel.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The packet.
    pub(super) question: Question,
    /// Device, marks, ports.
    pub(super) settings: Settings,
    /// Index of the device of the data plane.
    pub(super) device: Option<u32>,
    /// From our side to the peer's.
    pub(super) outbound: Side,
    /// From the peer's side to ours.
    pub(super) inbound: Side,
    /// A policy's remote side holds the destination: nft marks packets that no policy covers there,
    /// so that they skip table 220.
    pub(super) skips: bool,
    /// The policy that comes nearest, when none covers the packet.
    pub(super) nearest: Option<(Direction, NearPolicy)>,
}

/// What is known of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// The policy that the guard's plan has first.
    pub(super) planned: Option<Planned>,
    /// The decision of the data plane; `None` where it tells none.
    pub(super) decision: Option<Decision>,
    /// The tunnel of that policy, when it is down.
    pub(super) down: Option<Down>,
    /// Selectors of that tunnel's SA, when it is up and the engine has no policy for the packet:
    /// the peer has narrowed them.
    pub(super) narrowed: Option<String>,
}

/// A policy of the plan.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) policy: Policy,
    /// The chains of nft that recognize its packets.
    pub(super) chains: Vec<String>,
}

/// Why a tunnel is down.
#[derive(Clone, Debug, Default)]
pub(super) struct Down {
    /// In words; empty where nobody has asked for it.
    pub(super) why: String,
    /// What to do about it.
    pub(super) remedy: String,
    /// The policy stands as a trap, and the next packet asks for the SA.
    pub(super) trap: bool,
}

impl View {
    /// Reads it.
    pub(super) fn read(driver: &Driver, question: &Question) -> Self {
        let packet = question.selector();
        let (settings, planned, skips, near) = driver.guard(|g| {
            let closes = |p: &Policy| p.verdict != Verdict::Bypass && p.remote.range.contains(packet.dst);
            let planned = [Direction::Outbound, Direction::Inbound].map(|direction| {
                let all = g.served().filter(|(p, _)| covers(p, &packet, direction));
                first_covering(all)
                    .map(|(p, serving)| Planned { policy: p.clone(), chains: serving.chains.clone() })
            });
            let none = planned.iter().all(Option::is_none);
            let near = none.then(|| nearest(g.served().map(|(p, _)| p), &packet)).flatten();
            (g.settings().clone(), planned, g.policies().iter().any(closes), near)
        });
        let (device, decisions) = driver
            .plane(|plane| (plane.device(), [false, true].map(|arrives| plane.decide(&packet, arrives))));
        let [outbound, inbound] = planned;
        let [out, into] = decisions;
        let side = |planned: Option<Planned>, decision: Option<Decision>| {
            let name = planned.as_ref().map(|p| p.policy.name.as_str());
            let unknown = decision.as_ref().is_some_and(|d| d.policy.is_none() && d.sa.is_none());
            let narrowed = name.filter(|_| unknown).and_then(|name| agreed(driver, name));
            Side { down: name.and_then(|name| down(driver, name)), narrowed, planned, decision }
        };
        Self {
            question: question.clone(),
            settings,
            device,
            outbound: side(outbound, out),
            inbound: side(inbound, into),
            skips,
            nearest: near,
        }
    }

    /// The packet's selectors.
    pub(super) fn packet(&self) -> PacketSelector {
        self.question.selector()
    }

    /// The directions that are meant: those in which a policy covers the packet, or else the one of
    /// the nearest policy. A packet that comes by the device comes from the peer's side.
    pub(super) fn directions(&self) -> Vec<Direction> {
        if self.question.device.as_deref() == Some(&self.settings.device) {
            return vec![Direction::Inbound];
        }
        let mut out = Vec::new();
        for (direction, side) in [(Direction::Outbound, &self.outbound), (Direction::Inbound, &self.inbound)]
        {
            let decided = side.decision.as_ref().is_some_and(|d| d.policy.is_some());
            if side.planned.is_some() || decided {
                out.push(direction);
            }
        }
        if out.is_empty() {
            out.push(self.nearest.as_ref().map_or(Direction::Outbound, |(direction, _)| *direction));
        }
        out
    }
}

impl Side {
    /// Name of the child whose policy covers the packet.
    pub(super) fn child(&self) -> String {
        let decided = self.decision.as_ref().and_then(|d| d.policy.as_ref()).map(|p| &p.name);
        let name = decided.or(self.planned.as_ref().map(|p| &p.policy.name));
        name.map(|name| super::shown(name)).unwrap_or_default()
    }

    /// The engine has a policy for the packet.
    pub(super) fn is_installed(&self) -> bool {
        self.decision.as_ref().is_some_and(|d| d.policy.is_some())
    }

    /// The guard drops the packet in clear.
    pub(super) fn is_guarded(&self) -> bool {
        self.planned.as_ref().is_some_and(|p| p.policy.guard && p.policy.verdict != Verdict::Bypass)
    }

    /// How the kernel is to treat the packet; `None` without a policy.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        use ironswan_wire::sadb::Action;
        let decided = self.decision.as_ref().and_then(|d| d.policy.as_ref()).map(|p| match p.action {
            Action::Protect(_) => Verdict::Protect,
            Action::Bypass => Verdict::Bypass,
            Action::Discard => Verdict::Discard,
        });
        decided.or(self.planned.as_ref().map(|p| p.policy.verdict))
    }
}

/// What to do about a tunnel that is down, and where both sides' values are.
fn remedy(text: &str, conn: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("{}; `ironswan explain {}` says more", super::shown(text), super::shown(conn)),
    }
}

/// Selectors of an SA, our side first; of many the first four.
pub(super) fn selectors(local: &[TrafficSelector], remote: &[TrafficSelector]) -> String {
    let list = |all: &[TrafficSelector]| {
        let shown: Vec<String> = all.iter().take(4).map(ToString::to_string).collect();
        shown.join(" ") + if all.len() > 4 { " ..." } else { "" }
    };
    format!("{} === {}", list(local), list(remote))
}

/// The connection and the child that `connection.child` names. Either name may have dots.
fn child_of<'a>(conns: &'a [Arc<Connection>], name: &str) -> Option<(&'a Connection, &'a ChildConfig)> {
    let mut all = conns.iter().flat_map(|conn| conn.children.iter().map(move |child| (&**conn, child)));
    all.find(|(conn, child)| {
        name.strip_prefix(conn.name.as_str()).and_then(|rest| rest.strip_prefix('.')) == Some(&child.name)
    })
}

/// Selectors of the newest SA of a child `connection.child`, if it is up.
fn agreed(driver: &Driver, name: &str) -> Option<String> {
    driver.view(|e, now| {
        let conns = e.connections();
        let (conn, child) = child_of(&conns, name)?;
        let sas = e.protocol().ike_sas_of(now, &conn.name);
        let of_child = sas.iter().flat_map(|sa| &sa.children).filter(|sa| sa.name == child.name);
        of_child.min_by_key(|sa| sa.installed).map(|sa| selectors(&sa.local_ts, &sa.remote_ts))
    })
}

/// The tunnel of a child `connection.child`, if it is down.
fn down(driver: &Driver, name: &str) -> Option<Down> {
    driver.view(|e, now| {
        let conns = e.connections();
        let (conn, child) = child_of(&conns, name)?;
        let trap = e.has_trap(&conn.name, &child.name);
        let all = e.down(now);
        let own = |d: &&ironswan_keying::Down| {
            d.conn == conn.name && d.child.as_ref().is_none_or(|c| *c == child.name)
        };
        Some(match all.iter().find(own) {
            Some(d) => Down {
                why: super::shown(&d.reason()),
                remedy: d.why.as_ref().map(|why| remedy(&why.remedy(), &conn.name)).unwrap_or_default(),
                trap,
            },
            None => Down { trap, ..Down::default() },
        })
    })
}
