//! ESP and AH packets of the simulation, between the model engines of the nodes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ironswan_wire::sadb::{Action, SaAdd, Spi, Up};
use ironswan_wire::selector::PacketSelector;

use super::World;
use crate::engine::Sealed;

/// An ESP or AH packet of the simulation.
#[derive(Clone, Debug)]
pub struct Esp {
    /// When it arrives.
    pub at: Instant,
    /// From where, as the receiver will see it.
    pub from: SocketAddr,
    /// To where.
    pub to: SocketAddr,
    /// SPI.
    pub spi: Spi,
    /// What the receiver can judge.
    pub sealed: Sealed,
    /// Sequence number.
    pub seq: u64,
}

impl World {
    /// ESP and AH in the model: it leaves through the newest outbound SA, and must meet an inbound
    /// SA with the same SPI and key.
    pub(super) fn carry_esp(&mut self, now: Instant) {
        if let Some(every) = self.traffic
            && self.next_traffic <= now
        {
            self.next_traffic = now + every;
            let quiet = self.quiet.clone();
            for i in (0..self.nodes.len()).filter(|i| !quiet.contains(i)) {
                let Some(sa) = self.nodes[i].engine.sending() else {
                    self.acquire(now, i);
                    continue;
                };
                let sa = sa.clone();
                self.seq += 1;
                let (spi, sealed, seq) = (sa.spi, Sealed::by(&sa), self.seq);
                let (from, to) = (sa.local, sa.remote);
                if !self.count(now, i, &sa) {
                    continue;
                }
                self.nodes[i].last_esp_out = Some(now);
                let there = self.nodes[i].addrs.contains(&from.ip()) && !self.net.mute.contains(&i);
                let Some((from, to)) = self.net.translate(from, to).filter(|_| there) else { continue };
                let at = now + self.net.delay + self.esp_late;
                let esp = Esp { at, from, to, spi, sealed, seq };
                self.last_esp.insert(i, esp.clone());
                self.esp.push(esp);
            }
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.esp).into_iter().partition(|e| e.at <= now);
        self.esp = later;
        // Packets that have waited are opened before newer ones.
        for e in std::mem::take(&mut self.early).into_iter().chain(due) {
            self.open_esp(now, &e);
            self.settle_outputs();
        }
    }

    fn open_esp(&mut self, now: Instant, e: &Esp) {
        let Some(i) = self.nodes.iter().position(|n| n.addrs.contains(&e.to.ip())) else { return };
        let engine = &self.nodes[i].engine;
        let taken =
            engine.inbound.get(&e.spi).filter(|sa| e.sealed.opens(sa, e.from.ip(), e.to.ip()).is_ok());
        // Not a replay, and within the limits of the SA.
        let new = engine.newest.get(&e.spi).is_none_or(|newest| e.seq > *newest);
        let Some(sa) = taken.filter(|_| new).cloned() else {
            if engine.reserved.get(&e.spi) == Some(&e.from.ip()) {
                self.early.push(e.clone());
                return;
            }
            self.nodes[i].esp.1 += 1;
            return;
        };
        if !self.count(now, i, &sa) {
            return;
        }
        let node = &mut self.nodes[i];
        node.engine.newest.insert(e.spi, e.seq);
        node.esp.0 += 1;
        node.last_esp = Some(now);
        if sa.udp_encap && sa.remote != e.from && node.engine.told.insert((e.spi, e.from)) {
            node.endpoint.call(now, |ep| ep.handle_engine(now, Up::Moved { spi: e.spi, remote: e.from }));
        }
        if sa.notify_first_use && !node.engine.used.contains(&e.spi) {
            node.engine.used.push(e.spi);
            node.endpoint.call(now, |ep| ep.handle_engine(now, Up::FirstUse { spi: e.spi }));
        }
    }

    /// Counts a packet, and tells the endpoint when a limit is reached. Whether the packet is
    /// carried.
    fn count(&mut self, now: Instant, node: usize, sa: &SaAdd) -> bool {
        let (told, carried) = self.nodes[node].engine.count(sa);
        if let Some(up) = told {
            self.nodes[node].endpoint.call(now, |e| e.handle_engine(now, up));
            self.settle_outputs();
        }
        carried
    }

    /// A packet has met a policy without an SA.
    fn acquire(&mut self, now: Instant, node: usize) {
        let protect = self.nodes[node].engine.policies.iter().find_map(|p| match p.action {
            Action::Protect(r) => Some((r, p.local.range.start(), p.remote.range.start())),
            _ => None,
        });
        let Some((reqid, src, dst)) = protect else { return };
        let due = self.acquired.get(&(node, reqid)).is_none_or(|t| now - *t >= Duration::from_secs(1));
        if due {
            self.acquired.insert((node, reqid), now);
            let packet = PacketSelector { src, dst, protocol: 1, src_port: None, dst_port: None };
            self.nodes[node].calls += 1;
            self.nodes[node].endpoint.call(now, |e| e.handle_engine(now, Up::Acquire { reqid, packet }));
        }
    }

    /// Sends an ESP packet that no engine has sent now.
    pub fn inject_esp(&mut self, esp: Esp) {
        self.esp.push(esp);
    }
}
