//! `connections.<conn>.children.<child>`.

use std::time::Duration;

use ironswan_ike::config::{ChildAction, ChildConfig, ChildKind, TsSpec};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::sadb::{Lifetime, Mode, SaOptions};
use ironswan_wire::selector::AddrRange;

use super::super::diag::Diagnostics;
use super::super::proposal;
use super::super::tree::Section;
use super::super::ts;
use super::super::value;
use super::Reader;
use super::keys;

/// swanctl's default: 1 hour.
const REKEY_TIME: Duration = Duration::from_secs(3600);
/// Ours; swanctl's is 32.
const REPLAY_WINDOW: u32 = 4096;
/// A window takes a bit per packet and SA: this is 8 KiB.
const REPLAY_WINDOW_MAX: u64 = 65_536;
/// No more selectors than this on one side (RFC 7296 section 3.13: their number is one byte).
const MAX_SELECTORS: usize = 255;

/// Understands one child; `None` when there was an error.
pub(super) fn child(
    name: &str,
    section: &Section,
    path: &str,
    diags: &mut Diagnostics,
) -> Option<ChildConfig> {
    let before = diags.errors();
    keys::check(section, path, keys::CHILD, diags, |_, _, _| false, &[]);
    let mut r = Reader { section, path, diags };

    let proposals = match section.value("esp_proposals") {
        None => proposal::default_list(ProtocolId::ESP),
        Some(v) => proposal::list(v.items(), ProtocolId::ESP).unwrap_or_else(|errors| {
            errors.into_iter().for_each(|e| r.error("esp_proposals", e));
            Vec::new()
        }),
    };
    let local_ts = selectors(&mut r, "local_ts");
    let remote_ts = selectors(&mut r, "remote_ts");
    if !families_meet(&local_ts, &remote_ts) {
        r.error(
            "remote_ts",
            "has no IPv4 or IPv6 selector in common with local_ts; both sides need one of the same family",
        );
    }

    let kind = r
        .get("mode", |t| match t.trim().to_ascii_lowercase().as_str() {
            "tunnel" => Ok(ChildKind::Protect),
            "pass" => Ok(ChildKind::Pass),
            "drop" => Ok(ChildKind::Drop),
            m @ ("transport" | "transport_proxy" | "beet" | "iptfs") => {
                Err(format!("{m} is not built yet; set mode = tunnel"))
            }
            m => Err(format!("`{}` is no mode; set mode = tunnel, pass or drop", value::show(m))),
        })
        .unwrap_or_default();

    let rekey_time = r.get("rekey_time", value::time).unwrap_or(REKEY_TIME);
    let life_time = r.get("life_time", value::time).unwrap_or(rekey_time + rekey_time / 10);
    let rand_time = r.get("rand_time", value::time).unwrap_or(life_time.saturating_sub(rekey_time));
    if !life_time.is_zero() && !rekey_time.is_zero() && life_time <= rekey_time {
        r.warn("life_time", "is not longer than rekey_time: the CHILD_SA is closed before it is rekeyed");
    }
    let (soft_bytes, hard_bytes) = limits(&mut r, "rekey_bytes", "life_bytes");
    let (soft_packets, hard_packets) = limits(&mut r, "rekey_packets", "life_packets");

    let replay_window =
        r.get("replay_window", |t| value::number(t, REPLAY_WINDOW_MAX)).map_or(REPLAY_WINDOW, |n| n as u32);
    if replay_window == 0 {
        r.warn(
            "replay_window",
            "0 turns the replay check off: packets can be played back by anyone who saw them",
        );
    }
    let start_action = action(&mut r, "start_action");
    let close_action = action(&mut r, "close_action");
    let dpd_action = action(&mut r, "dpd_action");
    let reqid = r.get("reqid", |t| value::number(t, u64::from(u32::MAX))).unwrap_or(0) as u32;
    let guard = r.get("guard", value::boolean).unwrap_or(true);
    let priority = r.get("priority", |t| value::number(t, u64::from(u32::MAX))).unwrap_or(0) as u32;

    if diags.errors() > before {
        return None;
    }
    Some(ChildConfig {
        name: name.to_owned(),
        proposals,
        local_ts,
        remote_ts,
        mode: Mode::Tunnel,
        ipcomp: false,
        options: SaOptions::default(),
        policies: true,
        kind,
        rekey_time,
        life_time,
        rand_time: rand_time.min(rekey_time),
        lifetime: Lifetime { soft_bytes, hard_bytes, soft_packets, hard_packets },
        replay_window,
        start_action,
        close_action,
        dpd_action,
        reqid,
        priority,
        guard,
    })
}

/// Soft and hard limit; the hard one is 10 % more unless written.
fn limits(r: &mut Reader<'_>, soft: &str, hard: &str) -> (u64, u64) {
    let s = r.get(soft, value::bytes).unwrap_or(0);
    let h = r.get(hard, value::bytes).unwrap_or(s.saturating_add(s / 10));
    if s != 0 && h != 0 && h <= s {
        r.warn(hard, format!("is not more than {soft}: the CHILD_SA is closed before it is rekeyed"));
    }
    (s, h)
}

fn selectors(r: &mut Reader<'_>, key: &str) -> Vec<TsSpec> {
    let dynamic = || vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }];
    let list = r.list(key, ts::selector).unwrap_or_else(dynamic);
    if list.len() > MAX_SELECTORS {
        r.error(key, format!("more than {MAX_SELECTORS} selectors"));
    }
    list
}

/// False when both sides are written out and share no address family.
fn families_meet(local: &[TsSpec], remote: &[TsSpec]) -> bool {
    let has = |list: &[TsSpec], v6: bool| {
        list.iter().any(|t| match t {
            TsSpec::Dynamic { .. } => true,
            TsSpec::Fixed(ts) => AddrRange::is_ipv6(&ts.range) == v6,
        })
    };
    // An empty list comes from errors that have been reported.
    local.is_empty()
        || remote.is_empty()
        || [false, true].iter().any(|v6| has(local, *v6) && has(remote, *v6))
}

fn action(r: &mut Reader<'_>, key: &str) -> ChildAction {
    r.get(key, |t| {
        let t = t.trim().to_ascii_lowercase();
        match t.as_str() {
            "none" | "clear" | "no" => Ok(ChildAction::None),
            "start" | "restart" => Ok(ChildAction::Start),
            "trap" | "route" | "hold" => Ok(ChildAction::Trap),
            _ if t.contains('|') => {
                Err(format!("`{}`: combined actions are not built yet; write start or trap", value::show(&t)))
            }
            _ => Err(format!("`{}` is none of none, trap, start", value::show(&t))),
        }
    })
    .unwrap_or_default()
}
