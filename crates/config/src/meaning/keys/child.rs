//! Keys of `connections.<conn>.children.<child>`, and their readers.

use std::time::Duration;

use ironswan_keying::diagnosis::{Configuration, ValueFault};
use ironswan_keying::{ChildAction, ChildKind, MAX_REQID, TsSpec};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Mode, Tfc};

use super::Preset::{Depends, Is};
use super::conn::XFRM;
use super::{Entry, Key, Kind, NO, Table, UNSET, Unused, ZERO};
use super::{each, keys, list, no_effect, only, text, time, word, yes_no};
use crate::value::{self, Wrong, wrong};
use crate::{proposal, ts};

/// Largest replay window. It takes a bit per packet and SA: this is 8 KiB.
const REPLAY_WINDOW_MAX: u64 = 65_536;
/// Shortest and longest time between dummy packets: a shorter one is a flood, a longer one hides
/// nothing.
const DUMMIES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

const MARKS: &str = "marks are not built yet; remove this key";
const LABELS: &str = "security labels are not built yet; remove this key";

keys! {
    /// Keys of `connections.<conn>.children.<child>`.
    CHILD;
    AH_PROPOSALS: Vec<Proposal> = list("ah_proposals", Kind::Proposals, Depends(""), |v| proposal::list(v.items(), ProtocolId::AH),
        "AH algorithms: integrity without encryption, of the outer header too. Alone, there is no ESP; beside `esp_proposals` they are alternatives, preferred in the order in which the two keys are written. Not with `encap = yes`, and never through a NAT ([AH](#ah))");
    ESP_PROPOSALS: Vec<Proposal> = list("esp_proposals", Kind::Proposals, Is("default"), |v| proposal::list(v.items(), ProtocolId::ESP),
        "ESP algorithms, see [below](#proposals)");
    LOCAL_TS: Vec<TsSpec> = list("local_ts", Kind::Selectors, Is("dynamic"), |v| each(v, ts::selector),
        "our traffic selectors: `10.1.0.0/16`, `10.0.0.1-10.0.0.9`, `dynamic` (the outer address), each with an optional `[protocol/port]`: `[tcp]`, `[tcp/80]`, `[udp/1024-2048]`, `[icmp/8]`; a port needs a protocol");
    REMOTE_TS: Vec<TsSpec> = list("remote_ts", Kind::Selectors, Is("dynamic"), |v| each(v, ts::selector),
        "the peer's traffic selectors, written as those of `local_ts`");
    REKEY_TIME: Duration = time("rekey_time", Is("1h"),
        "rekey the CHILD_SA after this; 0: never");
    LIFE_TIME: Duration = time("life_time", Depends("10 % more than `rekey_time`"),
        "close the CHILD_SA after this; 0: never");
    RAND_TIME: Duration = time("rand_time", Depends("`life_time` less `rekey_time`"),
        "a random part of this is taken off `rekey_time`");
    REKEY_BYTES: u64 = text("rekey_bytes", Kind::Bytes, Is("0"), value::bytes,
        "rekey the CHILD_SA after so many bytes in either direction; 0: never. A random part of the difference to `life_bytes` is taken off. With `3des` the default is 1 GiB");
    LIFE_BYTES: u64 = text("life_bytes", Kind::Bytes, Depends("10 % more than `rekey_bytes`"), value::bytes,
        "close the CHILD_SA after so many bytes in either direction, at least 262,144; 0: never. With `3des` the default is 2 GiB");
    REKEY_PACKETS: u64 = text("rekey_packets", Kind::Number, Is("0"), value::bytes,
        "rekey the CHILD_SA after so many packets in either direction; 0: never. A random part of the difference to `life_packets` is taken off");
    LIFE_PACKETS: u64 = text("life_packets", Kind::Number, Depends("10 % more than `rekey_packets`"), value::bytes,
        "close the CHILD_SA after so many packets in either direction; 0: never. Nothing leaves or is delivered beyond `life_packets`, or leaves beyond `life_bytes`: a frame of the kernel that would become more packets than are left is dropped, and the CHILD_SA ends. `life_packets` is at least 1,500 and `life_bytes` at least 262,144, which one such frame may take. What arrives may go beyond `life_bytes` by one packet. Every authentic packet counts, also one that selectors or policy refuse, and a dummy");
    MODE: (ChildKind, Mode) = text("mode", Kind::Word, Is("tunnel"), mode,
        "`tunnel`: whole packets inside, between networks; `transport`: what the two gateways send each other themselves, without a second IP header ([transport mode](#transport-mode)); `pass` and `drop` are policies without an SA: let through in clear, or drop");
    POLICIES: bool = yes_no("policies", "yes",
        "`no`: no policy is installed, so nothing is sent by the child's SA; what the peer sends by it is taken, unless another child covers it ([overlapping children](#overlapping-children))");
    DPD_ACTION: ChildAction = text("dpd_action", Kind::Word, Is("clear"), action,
        "when the peer is dead: `clear`, `trap`, `restart`, or `trap` and `restart` joined by a vertical bar as in `start_action`");
    INACTIVITY: Duration = time("inactivity", Is("0"),
        "close the CHILD_SA when no packet has passed in either direction for this long; 0: never. The time begins anew with each rekeying, so it should be shorter than `rekey_time`; dummies of `tfc_dummies` count as packets. `close_action` does not bring the child up again, a packet does with a trap");
    IPCOMP: bool = yes_no("ipcomp", "no",
        "offer and accept IPComp (deflate) inside of the SA; it is used when the peer agrees, and for packets that get shorter by it ([IPComp](#ipcomp))");
    REQID: u64 = text("reqid", Kind::Number, Is("0"), |t| value::number(t, u64::from(MAX_REQID)),
        "fixed number for the policy, 1 to 2,147,483,647; 0: a larger one is chosen. To the packet engine children with one number are one peer's ([overlapping children](#overlapping-children))");
    PRIORITY: u64 = text("priority", Kind::Number, Is("0"), |t| value::number(t, u64::from(u32::MAX)),
        "among overlapping policies, the lower number wins; 0: the more specific wins");
    GUARD: bool = yes_no("guard", "yes",
        "what the selectors mean is kept from leaving or entering in clear from load to unload, also while the SA or the daemon is down ([operations](operations.md#the-guard)); `no`: steered only while the child is up or trapped. Of two children with the same selectors, `yes` of one is enough. A changed value holds for what is up, too");
    TFC_PADDING: Tfc = text("tfc_padding", Kind::Number, Is("0"), tfc,
        "tunnel mode ESP: inner packets are padded to at least this many bytes, or with `mtu` to the longest that fits the path ([hiding lengths](#hiding-lengths))");
    TFC_DUMMIES: Option<Duration> = text("tfc_dummies", Kind::Duration, Is("0"), dummies,
        "ours, tunnel mode ESP: while nothing else leaves, a dummy packet does, this often (`20ms`, `1s`; 1ms to 1d)");
    REPLAY_WINDOW: u64 = text("replay_window", Kind::Number, Is("4096"), |t| value::number(t, REPLAY_WINDOW_MAX),
        "anti-replay window in packets, 32 to 65,536; fewer are taken with a warning, and 0 turns the check off. strongSwan's default of 32 loses packets when a network reorders more than that");
    COPY_DF: bool = yes_no("copy_df", "yes",
        "tunnel mode: inner packets are made to fit the path (fragmented inside when their DF bit allows it, answered with \"fragmentation needed\" or \"packet too big\" else), and the outer packet is never fragmented. `no`: they are sealed whole (those with DF up to 1,500 bytes or the path MTU), and an outer packet that is longer than the path MTU leaves in fragments without DF; one that fits still has DF");
    COPY_ECN: bool = yes_no("copy_ecn", "yes",
        "tunnel mode: congestion marks pass through the tunnel both ways (RFC 6040). `no`: the outer header says Not-ECT, and what it says on arrival is ignored");
    COPY_DSCP: (bool, bool) = text("copy_dscp", Kind::Word, Is("out"), copy_dscp,
        "tunnel mode: DSCP is copied from the inner to the outer header (`out`), the other way round on arrival (`in`), both (`yes`), or not at all (`no`: the outer one is 0). `in` and `yes` let the network between change the priority of packets here");
    DSCP: u8 = text("dscp", Kind::Word, Depends(""), dscp,
        "ours: a fixed DSCP for the outer header, 0 to 63 or a name (`ef`, `va`, `le`, `cs0` to `cs7`, `af11` to `af43`), so that the network between cannot tell kinds of traffic apart; with `copy_dscp = in` or `no`, or without it");
    START_ACTION: ChildAction = text("start_action", Kind::Word, Is("none"), action,
        "at load: `none`, `trap` (initiate when traffic comes), `start`, or `trap` and `start` joined by a vertical bar, for both: what has been started at once comes up again when traffic comes, whatever has ended it");
    CLOSE_ACTION: ChildAction = text("close_action", Kind::Word, Is("none"), action,
        "when the peer closes it: the same words");
}

/// `connections.<conn>.children.<child>`.
pub(in crate::meaning) const CHILD_TABLE: Table = Table { read: CHILD, unused: CHILD_UNUSED };

const CHILD_UNUSED: &[Unused] = &[
    only("sha256_96", NO, "the wrong truncation of old peers is not built; set sha256_96 = no"),
    no_effect("rand_bytes", "at random up to the difference of life_bytes and rekey_bytes is taken off"),
    no_effect(
        "rand_packets",
        "at random up to the difference of life_packets and rekey_packets is taken off",
    ),
    only("updown", UNSET, "updown scripts are not built yet; remove this key"),
    no_effect("hostaccess", "only an updown script would see it"),
    only("policies_fwd_out", NO, "the engine has no forward policies; set policies_fwd_out = no"),
    only("interface", UNSET, "interfaces of one's own are not built yet; remove this key"),
    only("mark_in", ZERO, MARKS),
    only("mark_in_sa", NO, MARKS),
    only("mark_out", ZERO, MARKS),
    only("set_mark_in", ZERO, MARKS),
    only("set_mark_out", ZERO, MARKS),
    only("if_id_in", ZERO, XFRM),
    only("if_id_out", ZERO, XFRM),
    only("label", UNSET, LABELS),
    only("label_mode", &["system"], LABELS),
    only("per_cpu_sas", NO, "SAs per CPU (RFC 9611) are not built yet; set per_cpu_sas = no"),
    only("hw_offload", &["no", "auto"], "hardware offload is not built; set hw_offload = no"),
    only("icmp", NO, "forwarding of ICMP errors is not built yet; set icmp = no"),
];

fn unbuilt<T>(what: &str, write: &'static str) -> Result<T, Wrong> {
    Err(Configuration::NotBuilt { what: what.to_owned(), write })
}

fn mode(text: &str) -> Result<(ChildKind, Mode), Wrong> {
    match text.trim().to_ascii_lowercase().as_str() {
        "tunnel" => Ok((ChildKind::Protect, Mode::Tunnel)),
        "transport" => Ok((ChildKind::Protect, Mode::Transport)),
        "pass" => Ok((ChildKind::Pass, Mode::Tunnel)),
        "drop" => Ok((ChildKind::Drop, Mode::Tunnel)),
        "beet" => unbuilt("BEET mode is not built", "set mode = transport, or tunnel"),
        "transport_proxy" => {
            unbuilt("transport_proxy is for Mobile IPv6, and not built", "set mode = transport")
        }
        "iptfs" => unbuilt(
            "IP-TFS (RFC 9347) is not built",
            "set mode = tunnel, and tfc_padding = mtu to hide lengths",
        ),
        m => Err(wrong(m, ValueFault::NotMode, "")),
    }
}

/// Whether DSCP is copied to the outer header, and from it on arrival.
fn copy_dscp(text: &str) -> Result<(bool, bool), Wrong> {
    let words =
        [("out", (true, false)), ("in", (false, true)), ("yes", (true, true)), ("no", (false, false))];
    word(text, &words)
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

fn dscp(text: &str) -> Result<u8, Wrong> {
    let t = text.trim().to_ascii_lowercase();
    if let Some((_, n)) = DSCP_NAMES.iter().find(|(name, _)| *name == t) {
        return Ok(*n);
    }
    let write = "write 0 to 63, or a name such as ef, cs6, af41";
    value::number(&t, 63).map(|n| n as u8).map_err(|_| wrong(text, ValueFault::Not("a DSCP"), write))
}

fn tfc(text: &str) -> Result<Tfc, Wrong> {
    let t = text.trim().to_ascii_lowercase();
    if t == "mtu" {
        return Ok(Tfc::Mtu);
    }
    match value::number(&t, 65_535) {
        Ok(0) => Ok(Tfc::None),
        Ok(n) => Ok(Tfc::To(n as u16)),
        Err(_) => Err(wrong(text, ValueFault::Not("a length"), "write bytes up to 65535, or mtu")),
    }
}

fn dummies(text: &str) -> Result<Option<Duration>, Wrong> {
    match value::fine_time(text)? {
        Duration::ZERO => Ok(None),
        every if DUMMIES.contains(&every) => Ok(Some(every)),
        _ => Err(wrong(text, ValueFault::Outside("1ms", "1d"), "")),
    }
}

fn action(text: &str) -> Result<ChildAction, Wrong> {
    let t = text.trim().to_ascii_lowercase();
    match t.as_str() {
        "none" | "clear" | "no" => Ok(ChildAction::None),
        "start" | "restart" => Ok(ChildAction::Start),
        "trap" | "route" | "hold" => Ok(ChildAction::Trap),
        _ => match t.split_once('|').map(|(first, second)| (action(first), action(second))) {
            Some((Ok(ChildAction::Trap), Ok(ChildAction::Start)))
            | Some((Ok(ChildAction::Start), Ok(ChildAction::Trap))) => Ok(ChildAction::TrapAndStart),
            _ => Err(wrong(&t, ValueFault::NoneOf("none, trap, start, trap|start".to_owned()), "")),
        },
    }
}
