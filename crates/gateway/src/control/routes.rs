//! `install` and `uninstall`: traps and shunts by command. `redirect`, which is not built.

use std::collections::HashSet;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::vici::Section;

use super::run::say;
use super::{Control, failure, success, text};

impl Control {
    /// `install`: the trap or shunt of the child `child`, of the connection `ike` where it is
    /// named. Answered once the kernel steers and guards it.
    pub(super) async fn install(&self, message: &Section) -> Section {
        let Some(child) = text(message, "child") else { return failure("missing configuration name") };
        let name = child.escape_debug().to_string();
        say(&self.connections_with(text(message, "ike"), Some(child)), &format!("vici install '{name}'"));
        let routed = self.driver.act(|e, now| e.route(now, text(message, "ike"), child));
        let conn = match routed {
            Ok(conn) => conn,
            Err(Diagnosis::KeyExchange(KeyExchange::NotDone { why })) if why.is_unknown_name() => {
                return failure("configuration name not found");
            }
            Err(why) => return failure(format!("installing policy '{name}' failed: {why}")),
        };
        // The routing table may have answered in between that there is no way to the peer.
        if !self.driver.view(|e, _| e.wants_trap(&conn, child)) {
            return failure(format!("installing policy '{name}' failed: there is no route to the peer"));
        }
        self.driver.guarded_soon().await;
        success()
    }

    /// `uninstall`. With several of this name it is a shunt before a trap.
    pub(super) async fn uninstall(&self, message: &Section) -> Section {
        let Some(child) = text(message, "child") else { return failure("missing configuration name") };
        let name = child.escape_debug().to_string();
        let conns: HashSet<String> = self.connections_with(text(message, "ike"), Some(child));
        say(&conns, &format!("vici uninstall '{name}'"));
        if !self.driver.act(|e, now| e.unroute(now, text(message, "ike"), child)) {
            return failure(format!("policy '{name}' not found"));
        }
        self.driver.guarded_soon().await;
        success()
    }

    /// `redirect` (RFC 5685): refused, after the same look at the message as in charon.
    pub(super) fn redirect(&self, message: &Section) -> Section {
        if text(message, "gateway").is_none() {
            return failure("missing target gateway");
        }
        if !["ike", "ike-id", "peer-ip", "peer-id"].iter().any(|key| text(message, key).is_some()) {
            return failure("missing redirect selector");
        }
        failure("redirecting IKE_SAs (RFC 5685) is not built yet").with("matches", "0")
    }
}
