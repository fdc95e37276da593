//! `list-sas`, and the sections of IKE_SAs and CHILD_SAs that the events share with it. Names and
//! their order are charon's: tests and exporters match whole lines. With `traffic = yes`, which is
//! ours, `list-sas` tells only what `ironswan top` asks for every two seconds.

use ironswan_ike::event::{ChildSaInfo, IkeSaInfo, IkeState};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::proposal::Additional;
use ironswan_wire::sadb::{Mode, SaStats};
use ironswan_wire::selector::TrafficSelector;
use ironswan_wire::vici::Section;

use super::client::Client;
use super::{Control, failure, flag, number, text};

impl Control {
    /// `list-sas`.
    pub(super) async fn list_sas(&self, client: &Client, message: &Section) -> Section {
        let (conn, child) = (text(message, "ike"), text(message, "child"));
        let numbers =
            number::<u64>(message, "ike-id").and_then(|i| Ok((i, number::<u64>(message, "child-id")?)));
        let (ike_id, child_id, brief) = match numbers.and_then(|(i, c)| Ok((i, c, flag(message, "traffic")?)))
        {
            Ok(asked) => asked,
            Err(e) => return failure(e.to_string()),
        };
        let (sas, now) = self.driver.ike_sas_of(conn);
        for mut sa in sas {
            if conn.is_some_and(|n| sa.conn != n) || ike_id.is_some_and(|id| sa.id.0 != id) {
                continue;
            }
            if child.is_some() || child_id.is_some() {
                sa.children
                    .retain(|c| child.is_none_or(|n| c.name == n) && child_id.is_none_or(|id| c.id.0 == id));
                if sa.children.is_empty() {
                    continue;
                }
            }
            let (head, of_children) = if brief {
                (Section::new().with("uniqueid", sa.id.0), children(&sa, traffic))
            } else {
                (ike(&sa), whole_children(&sa, now))
            };
            if !client.stream_parts("list-sa", &name(&sa), head, ("child-sas", of_children)).await {
                break;
            }
        }
        Section::new()
    }
}

/// Name of an IKE_SA: its connection, or charon's word for a half-open one.
pub(super) fn name(sa: &IkeSaInfo) -> String {
    if sa.conn.is_empty() { "(unnamed)".to_owned() } else { sa.conn.clone() }
}

/// An IKE_SA with its children. `now`: seconds on the engine's clock.
pub(super) fn ike_with_children(sa: &IkeSaInfo, now: u64) -> Section {
    ike(sa).with("child-sas", whole_children(sa, now).into_iter().collect::<Section>())
}

fn whole_children(sa: &IkeSaInfo, now: u64) -> Vec<(String, Section)> {
    children(sa, |c| child(c, now))
}

fn children(sa: &IkeSaInfo, section: impl Fn(&ChildSaInfo) -> Section) -> Vec<(String, Section)> {
    sa.children.iter().map(|c| (format!("{}-{}", c.name, c.id.0), section(c))).collect()
}

/// An IKE_SA without its children.
pub(super) fn ike(sa: &IkeSaInfo) -> Section {
    let id =
        |id: &Option<ironswan_wire::id::Identity>| id.as_ref().map_or("%any".to_owned(), ToString::to_string);
    let mut s = Section::new()
        .with("uniqueid", sa.id.0)
        .with("version", "2")
        .with("state", sa.state.to_string())
        .with("local-host", sa.local.ip().to_string())
        .with("local-port", sa.local.port())
        .with("local-id", id(&sa.local_id))
        .with("remote-host", sa.remote.ip().to_string())
        .with("remote-port", sa.remote.port())
        .with("remote-id", id(&sa.remote_id));
    if sa.initiator {
        s.put("initiator", true);
    }
    s.put("initiator-spi", format!("{:016x}", sa.spi_i)).put("responder-spi", format!("{:016x}", sa.spi_r));
    let nat = [("nat-local", sa.nat_local), ("nat-remote", sa.nat_remote), ("nat-fake", sa.nat_fake)];
    for (key, _) in nat.iter().filter(|(_, yes)| *yes) {
        s.put(*key, true);
    }
    if nat.iter().any(|(_, yes)| *yes) {
        s.put("nat-any", true);
    }
    if let Some(suite) = &sa.suite {
        s.put("encr-alg", suite.encr.to_string());
        if suite.encr.has_key_length() {
            s.put("encr-keysize", suite.key_bits);
        }
        if let Some(integ) = suite.integ {
            s.put("integ-alg", integ.to_string());
        }
        s.put("prf-alg", suite.prf.to_string()).put("dh-group", suite.ke.to_string());
        put_additional(&mut s, &suite.additional);
    }
    if sa.ppk {
        s.put("ppk", true);
    }
    if matches!(sa.state, IkeState::Established | IkeState::Rekeying) {
        if let Some(age) = sa.established {
            s.put("established", age.as_secs());
        }
        if let Some(rekey) = sa.rekey_in {
            s.put("rekey-time", rekey.as_secs());
        }
    }
    let tasks = [
        ("tasks-queued", &sa.tasks_queued),
        ("tasks-active", &sa.tasks_active),
        ("tasks-passive", &sa.tasks_passive),
    ];
    for (key, list) in tasks {
        if !list.is_empty() {
            s.put(key, &list[..]);
        }
    }
    s
}

/// Additional key exchanges, as strongSwan 6 names them.
fn put_additional(s: &mut Section, additional: &Additional) {
    for (n, method) in additional.iter() {
        s.put(format!("ake{n}"), method.to_string());
    }
}

/// Name, age and counters of a CHILD_SA.
fn traffic(c: &ChildSaInfo) -> Section {
    let mut s = Section::new().with("name", c.name.as_str()).with("install-time", c.installed.as_secs());
    let (i, o) = c.stats.unwrap_or_default();
    for (direction, stats) in [("in", i), ("out", o)] {
        s.put(format!("bytes-{direction}"), stats.bytes).put(format!("packets-{direction}"), stats.packets);
    }
    s
}

/// A CHILD_SA.
pub(super) fn child(c: &ChildSaInfo, now: u64) -> Section {
    let mut s = Section::new()
        .with("name", c.name.as_str())
        .with("uniqueid", c.id.0)
        .with("reqid", c.reqid.0)
        .with("state", c.state.to_string())
        .with("mode", if c.mode == Mode::Tunnel { "TUNNEL" } else { "TRANSPORT" })
        .with("protocol", c.protocol.to_string());
    if c.udp_encap {
        s.put("encap", true);
    }
    s.put("spi-in", c.spi_in.to_string()).put("spi-out", c.spi_out.to_string());
    if let (Some(cpi_in), Some(cpi_out)) = (c.cpi_in, c.cpi_out) {
        s.put("cpi-in", format!("{cpi_in:04x}")).put("cpi-out", format!("{cpi_out:04x}"));
    }
    if c.protocol != ProtocolId::AH {
        s.put("encr-alg", c.suite.encr.to_string());
        if c.suite.encr.has_key_length() {
            s.put("encr-keysize", c.suite.key_bits);
        }
    }
    if let Some(integ) = c.suite.integ {
        s.put("integ-alg", integ.to_string());
    }
    if let Some(ke) = c.suite.ke {
        s.put("dh-group", ke.to_string());
    }
    put_additional(&mut s, &c.additional);
    if c.suite.esn {
        s.put("esn", "1");
    }
    let (i, o) = c.stats.unwrap_or_default();
    for (direction, stats) in [("in", i), ("out", o)] {
        let SaStats { packets, bytes, last_use } = stats;
        s.put(format!("bytes-{direction}"), bytes).put(format!("packets-{direction}"), packets);
        if packets > 0 {
            s.put(format!("use-{direction}"), now.saturating_sub(last_use));
        }
    }
    if let Some(rekey) = c.rekey_in {
        s.put("rekey-time", rekey.as_secs());
    }
    if let Some(life) = c.life_in {
        s.put("life-time", life.as_secs());
    }
    s.put("install-time", c.installed.as_secs());
    let selectors =
        |list: &[TrafficSelector]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    s.with("local-ts", selectors(&c.local_ts)).with("remote-ts", selectors(&c.remote_ts))
}

#[cfg(test)]
#[path = "sas_tests.rs"]
mod tests;
