//! `connections.<conn>.children.<child>`.

use std::time::Duration;

use ironswan_keying::diagnosis::{Configuration, Conflict, Unwise, ValueFault};
use ironswan_keying::{ChildAction, ChildConfig, ChildKind, TsSpec};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::{Dscp, Lifetime, Mode, SaOptions, Tfc};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::super::algorithms;
use super::super::diag::Diagnostics;
use super::super::proposal;
use super::super::tree::Section;
use ironswan_keying::limits::{SELECTORS_PER_SIDE, SMALL_BLOCK_BYTES};

use super::super::value;
use super::Reader;
use super::keys::child as k;
use super::keys::{self, Key};

/// RFC 4303 section 3.4.3: "A minimum window size of 32 packets MUST be supported".
const REPLAY_WINDOW_MIN: u32 = 32;
/// Lowest hard limit in packets. One frame of the kernel may become almost as many packets: 64 KB
/// of TCP are 1,365 segments when the MSS is 48 bytes, the least that Linux takes.
const LEAST_PACKETS: u64 = 1_500;
/// Lowest hard limit in bytes, for the same frame: each of its segments has headers of its own.
const LEAST_BYTES: u64 = 1 << 18;

/// Understands one child; `None` when there was an error. `reauth_time`: that of its connection,
/// after which the child is made anew.
pub(super) fn child(
    name: &str,
    section: &Section,
    path: &str,
    reauth_time: Duration,
    diags: &mut Diagnostics,
) -> Option<ChildConfig> {
    let before = diags.errors();
    keys::check(section, path, k::CHILD_TABLE, diags, |_, _, _| false, &[]);
    let mut r = Reader { section, path, diags };

    let proposals = proposals(&mut r);
    let local_ts = selectors(&mut r, &k::LOCAL_TS);
    let remote_ts = selectors(&mut r, &k::REMOTE_TS);
    if !families_meet(&local_ts, &remote_ts) {
        r.conflict(&k::REMOTE_TS, Conflict::Families);
    }

    let (kind, mode) = r.read(&k::MODE);
    let ipcomp = r.read(&k::IPCOMP);
    let options = options(&mut r, mode, &proposals);
    let policies = r.read(&k::POLICIES);
    if mode == Mode::Transport {
        host_to_host(&mut r, &k::LOCAL_TS, &local_ts);
        host_to_host(&mut r, &k::REMOTE_TS, &remote_ts);
    }

    let rekey_time = r.read(&k::REKEY_TIME);
    let life_time = r.written(&k::LIFE_TIME).unwrap_or(rekey_time + rekey_time / 10);
    let rand_time = r.written(&k::RAND_TIME).unwrap_or(life_time.saturating_sub(rekey_time));
    if !life_time.is_zero() && !rekey_time.is_zero() && life_time <= rekey_time {
        r.doubt(&k::LIFE_TIME, Unwise::LifeBelowRekey);
    }
    let (soft_bytes, hard_bytes) = limits(&mut r, &k::REKEY_BYTES, &k::LIFE_BYTES, LEAST_BYTES);
    let (soft_packets, hard_packets) = limits(&mut r, &k::REKEY_PACKETS, &k::LIFE_PACKETS, LEAST_PACKETS);
    let triple_des = |p: &Proposal| p.transforms.contains(&Transform::Encr(EncrId::DES3, None));
    let (limit, key) =
        if soft_bytes != 0 { (soft_bytes, k::REKEY_BYTES) } else { (hard_bytes, k::LIFE_BYTES) };
    // Two equal blocks of 8 bytes are expected after 2^32 of them, and they tell something of the
    // text (Sweet32).
    if limit > SMALL_BLOCK_BYTES && proposals.iter().any(triple_des) {
        r.doubt(&key, Unwise::SmallBlocks);
    }
    let replay_window = r.read(&k::REPLAY_WINDOW) as u32;
    if replay_window == 0 {
        r.doubt(&k::REPLAY_WINDOW, Unwise::NoReplayCheck);
    } else if replay_window < REPLAY_WINDOW_MIN {
        r.doubt(&k::REPLAY_WINDOW, Unwise::SmallReplayWindow { packets: replay_window });
    }
    let inactivity = r.read(&k::INACTIVITY);
    let start_action = r.read(&k::START_ACTION);
    let close_action = r.read(&k::CLOSE_ACTION);
    let dpd_action = r.read(&k::DPD_ACTION);
    doubt_inactivity(&mut r, inactivity, [rekey_time, life_time, reauth_time], options.dummies, start_action);
    if !policies {
        if [start_action, close_action, dpd_action].into_iter().any(ChildAction::traps) {
            r.conflict(&k::POLICIES, Conflict::TrapWithoutPolicies);
        } else if kind == ChildKind::Protect {
            r.doubt(&k::POLICIES, Unwise::NoPolicies);
        }
    }
    let reqid = r.read(&k::REQID) as u32;
    let guard = r.read(&k::GUARD);
    let priority = r.read(&k::PRIORITY) as u32;

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
        inactivity,
        replay_window,
        start_action,
        close_action,
        dpd_action,
        reqid,
        priority,
        guard,
    })
}

/// Warns of an `inactivity` that closes no child, or closes one for good that is to be up.
fn doubt_inactivity(
    r: &mut Reader<'_>,
    inactivity: Duration,
    [rekey_time, life_time, reauth_time]: [Duration; 3],
    dummies: Option<Duration>,
    start_action: ChildAction,
) {
    let renewed = [(rekey_time, k::REKEY_TIME.name()), (life_time, k::LIFE_TIME.name())];
    let renewed = renewed.into_iter().find(|(time, _)| !time.is_zero());
    // A rekeyed IKE_SA keeps its children, one that is made anew makes them anew, too.
    let reauthenticated = (!reauth_time.is_zero()).then_some((reauth_time, "the connection's reauth_time"));
    let mut renewed = renewed.into_iter().chain(reauthenticated);
    if inactivity.is_zero() {
        // Closes nothing, and is not to.
    } else if let Some((_, key)) = renewed.find(|(time, _)| inactivity >= *time) {
        r.doubt(&k::INACTIVITY, Unwise::NeverInactive { key });
    } else if dummies.is_some_and(|every| every <= inactivity) {
        r.doubt(&k::INACTIVITY, Unwise::InactivityOfDummies);
    } else if start_action == ChildAction::Start {
        r.doubt(&k::INACTIVITY, Unwise::InactiveForGood);
    }
}

/// Reads ESP and AH proposals. The proposals of the key that was written first come first, as in
/// charon. When neither key was written, the result is the default of ESP.
fn proposals(r: &mut Reader<'_>) -> Vec<Proposal> {
    let mut keys = [&k::ESP_PROPOSALS, &k::AH_PROPOSALS];
    let section = r.section;
    keys.sort_by_key(|key| section.entries().position(|(name, _)| name == key.name()));
    if !keys.iter().any(|key| r.has(key)) {
        return k::ESP_PROPOSALS.default();
    }
    let mut lists = Vec::new();
    for key in keys {
        let Some(list) = r.written(key) else { continue };
        algorithms::advice(&list).into_iter().for_each(|w| r.doubt(key, w));
        lists.push(list);
    }
    let all = proposal::join(lists).unwrap_or_else(|why| {
        r.error(&k::AH_PROPOSALS, why);
        Vec::new()
    });
    if all.iter().any(algorithms::is_readable) && all.iter().any(algorithms::is_secret) {
        let key = if r.has(&k::AH_PROPOSALS) { &k::AH_PROPOSALS } else { &k::ESP_PROPOSALS };
        r.doubt(key, Unwise::ReadableOffered);
    }
    all
}

/// Reads how packets are carried: the bits of the header that are copied, DSCP and TFC padding.
fn options(r: &mut Reader<'_>, mode: Mode, proposals: &[Proposal]) -> SaOptions {
    let copy_df = r.read(&k::COPY_DF);
    let copy_ecn = r.read(&k::COPY_ECN);
    let (copy_out, dscp_in) = r.read(&k::COPY_DSCP);
    let fixed = r.written(&k::DSCP);
    if fixed.is_some() && copy_out && r.has(&k::COPY_DSCP) {
        r.conflict(&k::DSCP, Conflict::Dscp);
    }
    let dscp_out = match fixed {
        Some(n) => Dscp::Set(n),
        None if copy_out => Dscp::Copy,
        None => Dscp::Set(0),
    };
    let tfc = r.read(&k::TFC_PADDING);
    let dummies = r.read(&k::TFC_DUMMIES);
    let ah = !proposals.is_empty() && proposals.iter().all(|p| p.protocol == ProtocolId::AH);
    if tfc != Tfc::None {
        hides_lengths(r, &k::TFC_PADDING, mode, ah);
    }
    if dummies.is_some() {
        hides_lengths(r, &k::TFC_DUMMIES, mode, ah);
    }
    if dummies.is_some() && tfc == Tfc::None && mode == Mode::Tunnel && !ah {
        r.doubt(&k::TFC_DUMMIES, Unwise::DummiesUnpadded);
    }
    if fixed.is_some() && mode == Mode::Transport {
        r.doubt(&k::DSCP, Unwise::DscpInTransport);
    }
    SaOptions { copy_df, copy_ecn, dscp_out, dscp_in, tfc, dummies, ..SaOptions::default() }
}

/// Reports a key for traffic flow confidentiality (TFC) in transport mode and with AH, which cannot
/// have it.
fn hides_lengths<T>(r: &mut Reader<'_>, key: &Key<T>, mode: Mode, ah: bool) {
    if mode == Mode::Transport {
        // RFC 4303 section 2.7: TFC padding needs a length in the payload data. An inner IP header
        // always has one; in transport mode only some protocols have.
        r.conflict(key, Conflict::TfcInTransport);
    } else if ah {
        r.conflict(key, Conflict::TfcOfAh);
    }
}

/// Warns when one side of a child in transport mode has more than one address. Transport mode is
/// between two addresses (RFC 7296 section 2.23.1): with more, tunnel mode is asked for, as by
/// charon.
fn host_to_host(r: &mut Reader<'_>, key: &Key<Vec<TsSpec>>, list: &[TsSpec]) {
    let mut ranges =
        list.iter().filter_map(|ts| if let TsSpec::Fixed(ts) = ts { Some(ts.range) } else { None });
    let Some(first) = ranges.next() else { return };
    let more = if first.start() == first.end() { ranges.find(|r| *r != first) } else { Some(first) };
    if let Some(range) = more {
        let ts = TrafficSelector { range, protocol: 0, start_port: 0, end_port: 65_535 };
        r.doubt(key, Unwise::TransportOfNetwork { selector: ts.to_string() });
    }
}

/// Reads a soft and a hard limit. A hard limit that is not written is 10 % more than the soft
/// one, and at least `least`. A hard limit has to let a whole frame of the kernel through: a
/// frame that goes beyond it is dropped and ends the SA, so that every such frame would cost a
/// key exchange and none would pass.
fn limits(r: &mut Reader<'_>, soft: &Key<u64>, hard: &Key<u64>, least: u64) -> (u64, u64) {
    let s = r.read(soft);
    let h = r.written(hard).unwrap_or(if s == 0 { 0 } else { s.saturating_add(s / 10).max(least) });
    let soft = soft.name();
    if h != 0 && h < least {
        r.error(hard, value::wrong(&h.to_string(), ValueFault::BelowFrame { least, soft }, ""));
    }
    if s != 0 && h != 0 && h <= s {
        r.doubt(hard, Unwise::HardBelowSoft { soft });
    }
    (s, h)
}

/// Reads the traffic selectors of one side. Warns of an address with bits behind its prefix, and
/// reports more than [`SELECTORS_PER_SIDE`].
fn selectors(r: &mut Reader<'_>, key: &Key<Vec<TsSpec>>) -> Vec<TsSpec> {
    let list = r.read(key);
    let items: Vec<String> =
        r.section.value(key.name()).map(|v| v.items().map(str::to_owned).collect()).unwrap_or_default();
    for (item, meant) in items.iter().filter_map(|item| Some((item, value::host_bits(item)?))) {
        let written = value::show(item);
        r.doubt(key, Unwise::HostBits { written, meant: meant.to_string() });
    }
    if list.len() > SELECTORS_PER_SIDE {
        r.error(key, Configuration::TooMany { max: SELECTORS_PER_SIDE, of: "selectors", write: "" });
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
