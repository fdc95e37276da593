//! `connections.<conn>.children.<child>`.

use std::time::Duration;

use ironswan_ike::config::{ChildAction, ChildConfig, ChildKind, MAX_REQID, TsSpec};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::{Dscp, Lifetime, Mode, SaOptions, Tfc};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::super::algorithms;
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
/// RFC 4303 section 3.4.3: "A minimum window size of 32 packets MUST be supported".
const REPLAY_WINDOW_MIN: u32 = 32;
/// 3DES has blocks of 8 bytes: two equal ones show text, and come after 2^32 blocks (Sweet32). Without a limit the endpoint
/// rekeys after this many bytes; more than this must not be asked for unnoticed.
const SMALL_BLOCK_BYTES: u64 = 1 << 30;
/// A hard limit is not lower than what one frame of the kernel may become: 64 KB of TCP are 1,365 segments where the MSS is 48 bytes,
/// the least that Linux takes, and each of them has its own headers.
const LEAST_PACKETS: u64 = 1_500;
const LEAST_BYTES: u64 = 1 << 18;
/// A dummy packet more often than this is a flood, and none in so long hides nothing.
const DUMMIES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

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

    let proposals = proposals(&mut r);
    let local_ts = selectors(&mut r, "local_ts");
    let remote_ts = selectors(&mut r, "remote_ts");
    if !families_meet(&local_ts, &remote_ts) {
        r.error(
            "remote_ts",
            "has no IPv4 or IPv6 selector in common with local_ts; both sides need one of the same family",
        );
    }

    let (kind, mode) = r.get("mode", mode).unwrap_or_default();
    let ipcomp = r.get("ipcomp", value::boolean).unwrap_or(false);
    let options = options(&mut r, mode, &proposals);
    let policies = r.get("policies", value::boolean).unwrap_or(true);
    if mode == Mode::Transport {
        host_to_host(&mut r, "local_ts", &local_ts);
        host_to_host(&mut r, "remote_ts", &remote_ts);
    }

    let rekey_time = r.get("rekey_time", value::time).unwrap_or(REKEY_TIME);
    let life_time = r.get("life_time", value::time).unwrap_or(rekey_time + rekey_time / 10);
    let rand_time = r.get("rand_time", value::time).unwrap_or(life_time.saturating_sub(rekey_time));
    if !life_time.is_zero() && !rekey_time.is_zero() && life_time <= rekey_time {
        r.warn("life_time", "is not longer than rekey_time: the CHILD_SA is closed before it is rekeyed");
    }
    let (soft_bytes, hard_bytes) = limits(&mut r, "rekey_bytes", "life_bytes", LEAST_BYTES);
    let (soft_packets, hard_packets) = limits(&mut r, "rekey_packets", "life_packets", LEAST_PACKETS);
    let triple_des = |p: &Proposal| p.transforms.contains(&Transform::Encr(EncrId::DES3, None));
    let (limit, key) = if soft_bytes != 0 { (soft_bytes, "rekey_bytes") } else { (hard_bytes, "life_bytes") };
    if limit > SMALL_BLOCK_BYTES && proposals.iter().any(triple_des) {
        r.warn(
            key,
            "is more than 3des should encrypt with one key, since equal blocks of 8 bytes show text (Sweet32); set \
             rekey_bytes = 1g, which is also what leaving it out means",
        );
    }
    let replay_window =
        r.get("replay_window", |t| value::number(t, REPLAY_WINDOW_MAX)).map_or(REPLAY_WINDOW, |n| n as u32);
    if replay_window == 0 {
        r.warn(
            "replay_window",
            "0 turns the replay check off: packets can be played back by anyone who saw them",
        );
    } else if replay_window < REPLAY_WINDOW_MIN {
        r.warn(
            "replay_window",
            format!(
                "{replay_window} loses packets that arrive out of order; leave the key out, or set at least 32"
            ),
        );
    }
    let start_action = action(&mut r, "start_action");
    let close_action = action(&mut r, "close_action");
    let dpd_action = action(&mut r, "dpd_action");
    if !policies {
        if [start_action, close_action, dpd_action].contains(&ChildAction::Trap) {
            r.error("policies", "a trap is a policy; set policies = yes, or no action to trap");
        } else if kind == ChildKind::Protect {
            r.warn(
                "policies",
                "without policies nothing is sent through this child, only what arrives is taken",
            );
        }
    }
    let reqid = r.get("reqid", |t| value::number(t, u64::from(MAX_REQID))).unwrap_or(0) as u32;
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
        mode,
        ipcomp,
        options,
        policies,
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

fn mode(text: &str) -> Result<(ChildKind, Mode), String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "tunnel" => Ok((ChildKind::Protect, Mode::Tunnel)),
        "transport" => Ok((ChildKind::Protect, Mode::Transport)),
        "pass" => Ok((ChildKind::Pass, Mode::Tunnel)),
        "drop" => Ok((ChildKind::Drop, Mode::Tunnel)),
        "beet" => Err("BEET mode is not built; set mode = transport, or tunnel".to_owned()),
        "transport_proxy" => {
            Err("transport_proxy is for Mobile IPv6, and not built; set mode = transport".to_owned())
        }
        "iptfs" => {
            Err("IP-TFS (RFC 9347) is not built; set mode = tunnel, and tfc_padding = mtu to hide lengths"
                .to_owned())
        }
        m => Err(format!("`{}` is no mode; set mode = tunnel, transport, pass or drop", value::show(m))),
    }
}

/// ESP and AH proposals, those first whose key was written first, as charon takes them. Without either key: ESP's default.
fn proposals(r: &mut Reader<'_>) -> Vec<Proposal> {
    let mut keys = [("esp_proposals", ProtocolId::ESP), ("ah_proposals", ProtocolId::AH)];
    let section = r.section;
    let at = |key: &str| section.entries().position(|(name, _)| name == key);
    keys.sort_by_key(|(key, _)| at(key));
    let mut lists = Vec::new();
    let mut written = false;
    for (key, protocol) in keys {
        let Some(v) = section.value(key) else { continue };
        written = true;
        match proposal::list(v.items(), protocol) {
            Ok(list) => {
                algorithms::advice(&list).into_iter().for_each(|w| r.warn(key, w));
                lists.push(list);
            }
            Err(errors) => errors.into_iter().for_each(|e| r.error(key, e)),
        }
    }
    if !written {
        return proposal::default_list(ProtocolId::ESP);
    }
    let all = proposal::join(lists).unwrap_or_else(|why| {
        r.error("ah_proposals", why);
        Vec::new()
    });
    if all.iter().any(algorithms::is_readable) && all.iter().any(algorithms::is_secret) {
        let key = if section.value("ah_proposals").is_some() { "ah_proposals" } else { "esp_proposals" };
        r.warn(
            key,
            "encryption is offered beside none (AH, null, GMAC): the peer may choose what everybody can read; keep one kind",
        );
    }
    all
}

/// Names of RFCs 2474, 2597, 3246, 5865 and 8622.
const DSCP_NAMES: &[(&str, u8)] = &[
    ("df", 0),
    ("be", 0),
    ("le", 1),
    ("va", 44),
    ("ef", 46),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
];

fn dscp(text: &str) -> Result<u8, String> {
    let t = text.trim().to_ascii_lowercase();
    if let Some((_, n)) = DSCP_NAMES.iter().find(|(name, _)| *name == t) {
        return Ok(*n);
    }
    value::number(&t, 63).map(|n| n as u8).map_err(|_| {
        format!("`{}` is not a DSCP; write 0 to 63, or a name such as ef, cs6, af41", value::show(text))
    })
}

fn tfc(text: &str) -> Result<Tfc, String> {
    let t = text.trim().to_ascii_lowercase();
    if t == "mtu" {
        return Ok(Tfc::Mtu);
    }
    match value::number(&t, 65_535) {
        Ok(0) => Ok(Tfc::None),
        Ok(n) => Ok(Tfc::To(n as u16)),
        Err(_) => Err(format!("`{}` is not a length; write bytes up to 65535, or mtu", value::show(text))),
    }
}

fn dummies(text: &str) -> Result<Option<Duration>, String> {
    match value::fine_time(text)? {
        Duration::ZERO => Ok(None),
        every if DUMMIES.contains(&every) => Ok(Some(every)),
        _ => Err(format!("`{}` is not between 1ms and 1d", value::show(text))),
    }
}

/// How packets are carried.
fn options(r: &mut Reader<'_>, mode: Mode, proposals: &[Proposal]) -> SaOptions {
    let copy_df = r.get("copy_df", value::boolean).unwrap_or(true);
    let copy_ecn = r.get("copy_ecn", value::boolean).unwrap_or(true);
    let copy = r.word(
        "copy_dscp",
        &[("out", (true, false)), ("in", (false, true)), ("yes", (true, true)), ("no", (false, false))],
    );
    let (copy_out, dscp_in) = copy.unwrap_or((true, false));
    let fixed = r.get("dscp", dscp);
    if fixed.is_some() && copy.is_some() && copy_out {
        r.error(
            "dscp",
            "and copy_dscp both say what the outer header has; set copy_dscp = no (or in), or remove dscp",
        );
    }
    let dscp_out = match fixed {
        Some(n) => Dscp::Set(n),
        None if copy_out => Dscp::Copy,
        None => Dscp::Set(0),
    };
    let tfc = r.get("tfc_padding", tfc).unwrap_or_default();
    let dummies = r.get("tfc_dummies", dummies).flatten();
    let ah = !proposals.is_empty() && proposals.iter().all(|p| p.protocol == ProtocolId::AH);
    for (key, used) in [("tfc_padding", tfc != Tfc::None), ("tfc_dummies", dummies.is_some())] {
        if used && mode == Mode::Transport {
            // RFC 4303 section 2.7: only where the length of what is inside can be told from it.
            r.error(key, "is for tunnel mode (RFC 4303 section 2.7); set mode = tunnel, or remove this key");
        } else if used && ah {
            r.error(key, "is for ESP, and AH hides nothing; write esp_proposals, or remove this key");
        }
    }
    if dummies.is_some() && tfc == Tfc::None && mode == Mode::Tunnel && !ah {
        r.warn(
            "tfc_dummies",
            "dummies are told from packets by their length unless both are padded; set tfc_padding = mtu",
        );
    }
    if fixed.is_some() && mode == Mode::Transport {
        r.warn("dscp", "has no effect in transport mode, which keeps the packet's own header; remove it");
    }
    SaOptions { copy_df, copy_ecn, dscp_out, dscp_in, tfc, dummies, ..SaOptions::default() }
}

/// Transport mode is between two addresses (RFC 7296 section 2.23.1): with more, tunnel mode is asked for, as by charon.
fn host_to_host(r: &mut Reader<'_>, key: &str, list: &[TsSpec]) {
    let mut ranges =
        list.iter().filter_map(|ts| if let TsSpec::Fixed(ts) = ts { Some(ts.range) } else { None });
    let Some(first) = ranges.next() else { return };
    let more = if first.start() == first.end() { ranges.find(|r| *r != first) } else { Some(first) };
    if let Some(range) = more {
        let ts = TrafficSelector { range, protocol: 0, start_port: 0, end_port: 65_535 };
        r.warn(
            key,
            format!(
                "with {ts} this is more than one address, and transport mode is between two: tunnel mode is asked for; \
                 write dynamic, or set mode = tunnel"
            ),
        );
    }
}

/// A soft and a hard limit. Unless it is written, the hard one is 10 % more and at least `least`; it has to let a whole frame through: what would go beyond it is dropped and ends the SA,
/// so that every such frame would cost a key exchange and none would pass.
fn limits(r: &mut Reader<'_>, soft: &str, hard: &str, least: u64) -> (u64, u64) {
    let s = r.get(soft, value::bytes).unwrap_or(0);
    let h = r.get(hard, value::bytes).unwrap_or(if s == 0 { 0 } else { s.saturating_add(s / 10).max(least) });
    if h != 0 && h < least {
        r.error(
            hard,
            format!(
                "{h} is less than the kernel may hand over at once, which would end the CHILD_SA before it carries \
                 anything; set at least {least}, or {soft} alone"
            ),
        );
    }
    if s != 0 && h != 0 && h <= s {
        r.warn(hard, format!("is not more than {soft}: the CHILD_SA is closed before it is rekeyed"));
    }
    (s, h)
}

fn selectors(r: &mut Reader<'_>, key: &str) -> Vec<TsSpec> {
    let dynamic = || vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }];
    let list = r.list(key, ts::selector).unwrap_or_else(dynamic);
    let items: Vec<String> =
        r.section.value(key).map(|v| v.items().map(str::to_owned).collect()).unwrap_or_default();
    for (item, meant) in items.iter().filter_map(|item| Some((item, value::host_bits(item)?))) {
        let message =
            format!("`{}` has bits set behind its prefix, and means {meant}; write that", value::show(item));
        r.warn(key, message);
    }
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
    // An empty list comes from items that are wrong, or from none, which has been reported.
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
