//! The world at rest: exactly one IKE_SA and one CHILD_SA, or nothing.

use ironswan_ike::event::{ChildState, IkeState};

use super::World;

impl World {
    /// Why the world is not at rest with exactly one IKE_SA and one CHILD_SA, the same on both
    /// sides.
    pub fn fault(&self) -> Option<String> {
        let all: Vec<_> = (0..2).map(|i| self.nodes[i].sas(self.now())).collect();
        for (i, sas) in all.iter().enumerate() {
            let [sa] = sas.as_slice() else {
                let list: Vec<_> = sas
                    .iter()
                    .map(|s| format!("{:016x} {} {:?}", s.spi_i, s.state, s.tasks_active))
                    .collect();
                return Some(format!("node {i} has {} IKE_SAs: {list:?}", sas.len()));
            };
            if sa.state != IkeState::Established || !sa.tasks_active.is_empty() || !sa.tasks_queued.is_empty()
            {
                return Some(format!("node {i}: IKE_SA is {} with {:?}", sa.state, sa.tasks_active));
            }
            let [child] = sa.children.as_slice() else {
                let list: Vec<_> =
                    sa.children.iter().map(|c| format!("{} {}/{}", c.state, c.spi_in, c.spi_out)).collect();
                return Some(format!("node {i} has {} CHILD_SAs: {list:?}", sa.children.len()));
            };
            if child.state != ChildState::Installed {
                return Some(format!("node {i}: CHILD_SA is {}", child.state));
            }
            let e = &self.nodes[i].engine;
            if !e.reserved.is_empty() {
                return Some(format!("node {i}: SPIs are still reserved: {:?}", e.reserved));
            }
            let wanted = usize::from(self.policies);
            if e.inbound.len() != 1 || e.outbound.len() != 1 || e.policies.len() != wanted {
                return Some(format!(
                    "node {i}: engine has {} in, {} out, {} policies",
                    e.inbound.len(),
                    e.outbound.len(),
                    e.policies.len()
                ));
            }
            if !e.inbound.contains_key(&child.spi_in) || e.outbound[0].spi != child.spi_out {
                return Some(format!("node {i}: the engine has other SPIs"));
            }
        }
        let (a, b) = (&all[0][0], &all[1][0]);
        if (a.spi_i, a.spi_r) != (b.spi_i, b.spi_r) || a.initiator == b.initiator {
            return Some("two different IKE_SAs".to_owned());
        }
        let (ca, cb) = (&a.children[0], &b.children[0]);
        if (ca.spi_in, ca.spi_out) != (cb.spi_out, cb.spi_in)
            || (self.net.whole() && (&ca.local_ts, &ca.remote_ts) != (&cb.remote_ts, &cb.local_ts))
            || ca.suite != cb.suite
            || (ca.protocol, ca.mode) != (cb.protocol, cb.mode)
            || (ca.cpi_in, ca.cpi_out) != (cb.cpi_out, cb.cpi_in)
            || ca.cpi_in.is_some() != ca.cpi_out.is_some()
        {
            return Some("two different CHILD_SAs".to_owned());
        }
        let (ea, eb) = (&self.nodes[0].engine, &self.nodes[1].engine);
        let keys = |out: &crate::Engine, inb: &crate::Engine| {
            let sent = &out.outbound[0];
            let opened = &inb.inbound[&sent.spi];
            sent.encr_key == opened.encr_key && sent.integ_key == opened.integ_key
        };
        if !keys(ea, eb) || !keys(eb, ea) {
            return Some("the keys differ".to_owned());
        }
        None
    }

    /// Asserts that there is exactly one IKE_SA and one CHILD_SA.
    pub fn assert_one(&self) {
        if let Some(fault) = self.fault() {
            self.dump();
            panic!("{fault}");
        }
    }

    /// Why the world is not empty: no SA anywhere, no policy but those of traps.
    pub fn remains(&self) -> Option<String> {
        for (i, node) in self.nodes.iter().enumerate() {
            let sas = node.sas(self.now());
            if !sas.is_empty() {
                return Some(format!("node {i} has {} IKE_SAs", sas.len()));
            }
            let e = &node.engine;
            let sas = !e.inbound.is_empty() || !e.outbound.is_empty() || !e.reserved.is_empty();
            if sas || !e.policies.is_empty() {
                return Some(format!("node {i}: the engine is not empty: {e:?}"));
            }
        }
        None
    }

    /// Asserts that nothing is left.
    pub fn assert_empty(&self) {
        if let Some(fault) = self.remains() {
            self.dump();
            panic!("{fault}");
        }
    }

    /// Prints what was sent and logged.
    pub fn dump(&self) {
        for (seen, packet) in self.net.log.iter().rev().take(40).rev() {
            eprintln!(
                "#{} node {} {}->{} {} {} mid {}",
                seen.index,
                seen.node,
                packet.from,
                packet.to,
                seen.exchange,
                if seen.response { "rsp" } else { "req" },
                seen.mid
            );
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for (level, line) in node.log.iter().rev().take(60).rev() {
                eprintln!("node {i} {level:?} {line}");
            }
        }
    }
}
