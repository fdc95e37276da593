//! `list-conns`: every connection as it was understood.

use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Connection, Fingerprint, TsSpec, Unique,
};
use ironswan_wire::id::IdPattern;
use ironswan_wire::sadb::Mode;
use ironswan_wire::selector::{AddrRange, TrafficSelector};
use ironswan_wire::vici::Section;

use super::client::Client;
use super::{Control, text};

impl Control {
    /// `list-conns`.
    pub(super) async fn list_conns(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "ike");
        let names: Vec<String> = self.driver.view(|e, _| {
            e.connections()
                .iter()
                .filter(|c| only.is_none_or(|n| c.name == n))
                .map(|c| c.name.clone())
                .collect()
        });
        for name in names {
            // One at a time: a client may take its time, and the connection may go meanwhile.
            let found = self.driver.view(|e, _| e.connection(&name).map(|c| (section(&c), children(&c))));
            if let Some((head, children)) = found
                && !client.stream_parts("list-conn", &name, head, ("children", children)).await
            {
                break;
            }
        }
        Section::new()
    }
}

fn children(c: &Connection) -> Vec<(String, Section)> {
    c.children.iter().map(|k| (k.name.clone(), child(k))).collect()
}

/// A connection without its children.
fn section(c: &Connection) -> Section {
    let addrs = |list: &[AddrSpec]| -> Vec<String> { list.iter().map(addr).collect() };
    let mut s = Section::new()
        .with("local_addrs", addrs(&c.local_addrs))
        .with("remote_addrs", addrs(&c.remote_addrs))
        .with("version", "IKEv2")
        .with("reauth_time", "0")
        .with("rekey_time", c.rekey_time.as_secs())
        .with(
            "unique",
            match c.unique {
                Unique::Never => "UNIQUE_NEVER",
                Unique::No => "UNIQUE_NO",
                Unique::Keep => "UNIQUE_KEEP",
                Unique::Replace => "UNIQUE_REPLACE",
            },
        );
    if !c.dpd_delay.is_zero() {
        s.put("dpd_delay", c.dpd_delay.as_secs());
    }
    s.put("local-1", round(c.local_id.as_ref().map(ToString::to_string), &c.local_auth));
    let remote = if c.remote_id == IdPattern::Any { None } else { Some(c.remote_id.to_string()) };
    s.with("remote-1", round(remote, &c.remote_auth))
}

fn round(id: Option<String>, auth: &Auth) -> Section {
    let mut s = Section::new();
    if let Some(id) = id {
        s.put("id", id);
    }
    // strongSwan's words.
    s.put(
        "class",
        match auth {
            Auth::Psk => "pre-shared key",
            Auth::Pubkey(_) => "public key",
        },
    );
    for empty in ["groups", "cert_policy"] {
        s.put(empty, Vec::<String>::new());
    }
    // charon names a raw public key among the certificates, by its fingerprint.
    let keys = if let Auth::Pubkey(keys) = auth { keys.as_slice() } else { &[] };
    s.put("certs", keys.iter().map(|key| fingerprint(&key.info())).collect::<Vec<_>>());
    s.with("cacerts", Vec::<String>::new())
}

/// `15:56:5d:...`.
fn fingerprint(sha1: &Fingerprint) -> String {
    sha1.map(|byte| format!("{byte:02x}")).join(":")
}

fn child(c: &ChildConfig) -> Section {
    let mode = match (c.kind, c.mode) {
        (ChildKind::Pass, _) => "PASS",
        (ChildKind::Drop, _) => "DROP",
        (ChildKind::Protect, Mode::Tunnel) => "TUNNEL",
        (ChildKind::Protect, Mode::Transport) => "TRANSPORT",
    };
    let selectors = |list: &[TsSpec]| -> Vec<String> { list.iter().map(selector).collect() };
    let mut s = Section::new()
        .with("mode", mode)
        .with("rekey_time", c.rekey_time.as_secs())
        .with("rekey_bytes", c.lifetime.soft_bytes)
        .with("rekey_packets", c.lifetime.soft_packets)
        .with("dpd_action", action(c.dpd_action))
        .with("close_action", action(c.close_action));
    if c.priority != 0 {
        s.put("priority", c.priority);
    }
    s.put("local-ts", selectors(&c.local_ts)).put("remote-ts", selectors(&c.remote_ts));
    if c.kind == ChildKind::Protect {
        // Behind what charon tells: ours.
        let mut protocols: Vec<String> = c.proposals.iter().map(|p| p.protocol.to_string()).collect();
        protocols.dedup();
        s.put("protocols", protocols);
        if c.ipcomp {
            s.put("ipcomp", true);
        }
    }
    s
}

fn action(a: ChildAction) -> &'static str {
    match a {
        ChildAction::None => "none",
        ChildAction::Start => "start",
        ChildAction::Trap => "trap",
    }
}

fn addr(a: &AddrSpec) -> String {
    match a {
        AddrSpec::Any => "%any".to_owned(),
        AddrSpec::Host(ip) => ip.to_string(),
        AddrSpec::Name(name) => name.clone(),
        AddrSpec::Range(r) => match r.prefix_len() {
            Some(len) => format!("{}/{len}", r.start()),
            None => format!("{}-{}", r.start(), r.end()),
        },
    }
}

pub(super) fn selector(ts: &TsSpec) -> String {
    match ts {
        TsSpec::Fixed(ts) => ts.to_string(),
        TsSpec::Dynamic { protocol, start_port, end_port } => {
            // Written like any selector, with `dynamic` where the address is.
            let range = AddrRange::any(false);
            let text =
                TrafficSelector { range, protocol: *protocol, start_port: *start_port, end_port: *end_port }
                    .to_string();
            text.replacen(&range.to_string(), "dynamic", 1)
        }
    }
}
