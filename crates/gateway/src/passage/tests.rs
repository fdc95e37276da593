//! Every obstacle, on a machine that answers as a kernel would: a LAN, a WAN, a tunnel between
//! 10.1.0.0/24 and 10.2.0.0/24. And what is no obstacle.

use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_io::nft::{Step, StepKind, Traced};
use ironswan_io::route::{Address, Link, NextHop, RouteAnswer, RouteQuery};
use ironswan_io::sysctl::ReversePath;
use ironswan_ipsec::{Decision, DropReason, SaInfo};
use ironswan_keying::diagnosis::{Packet, PacketEntry};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Direction as SaDirection, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaOptions, SaRef, SaStats, Spi,
};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::live::Followed;
use super::story::Story;
use super::view::{Down, Planned, Side, View};
use super::world::World;
use super::*;
use crate::guard::nft::TRACE_NAME;
use crate::guard::plan::{Policy, Settings, Verdict};

const LAN: u32 = 2;
const WAN: u32 = 3;
const DEVICE: u32 = 9;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ts(text: &str) -> TrafficSelector {
    let (ip, len) = text.split_once('/').unwrap();
    TrafficSelector::addresses(AddrRange::prefix(ip.parse().unwrap(), len.parse().unwrap()).unwrap())
}

/// A kernel that has what the figure at the head of this file says, but for what is changed.
struct Machine {
    links: Vec<Link>,
    addresses: Vec<Address>,
    forwards: bool,
    check: ReversePath,
    /// Answers for these destinations instead, to packets that came by an interface alone, or to
    /// all.
    instead: Vec<(IpAddr, bool, RouteAnswer)>,
    foreign: Vec<String>,
}

fn machine() -> Machine {
    let link = |index, name: &str| Link {
        index,
        name: name.to_owned(),
        mtu: 1500,
        up: true,
        carrier: true,
        ..Link::default()
    };
    Machine {
        links: vec![link(LAN, "lan0"), link(WAN, "wan0"), link(DEVICE, "ipsec0")],
        addresses: vec![Address::new(LAN, ip("10.1.0.1"), 24), Address::new(WAN, ip("192.0.2.1"), 24)],
        forwards: true,
        check: ReversePath::Off,
        instead: Vec::new(),
        foreign: Vec::new(),
    }
}

fn to(link: u32, table: u32) -> RouteAnswer {
    let local = table == 255;
    let mtu = if link == DEVICE { 1422 } else { 0 };
    let gateway = (link == WAN).then(|| ip("192.0.2.254"));
    RouteAnswer::Way { hop: NextHop { link, gateway, source: None, mtu, expires: None, local }, table }
}

impl World for Machine {
    fn way(&mut self, packet: &RouteQuery) -> Result<RouteAnswer, IoError> {
        let instead = self
            .instead
            .iter()
            .find(|(to, forwarded, _)| *to == packet.to && (!forwarded || packet.came_by.is_some()));
        if let Some((.., answer)) = instead {
            return Ok(*answer);
        }
        if self.addresses.iter().any(|a| a.ip == packet.to) {
            return Ok(to(1, 255));
        }
        let inside = |net: &str| ts(net).range.contains(packet.to);
        Ok(match packet.mark {
            _ if inside("10.1.0.0/24") => to(LAN, 254),
            0 | 0x1000_0000 if inside("10.2.0.0/24") => to(DEVICE, 220),
            _ => to(WAN, 254),
        })
    }
    fn links(&self) -> &[Link] {
        &self.links
    }
    fn addresses(&self) -> &[Address] {
        &self.addresses
    }
    fn forwards_from(&self, _: bool, _: &str) -> bool {
        self.forwards
    }
    fn forwards(&self, _: bool) -> bool {
        self.forwards
    }
    fn reverse_path(&self, _: &str) -> ReversePath {
        self.check
    }
    fn foreign(&mut self, _: &Settings) -> Vec<String> {
        self.foreign.clone()
    }
}

fn sa(direction: SaDirection) -> SaInfo {
    let (local, remote) = ("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4500".parse().unwrap());
    SaInfo {
        sa: SaRef { direction, spi: Spi(0xc001_0203), reqid: ReqId(1), remote: ip("192.0.2.2") },
        reqid: ReqId(1),
        local,
        remote,
        udp_encap: true,
        protocol: ProtocolId::ESP,
        mode: Mode::Tunnel,
        suite: EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false },
        options: SaOptions::default(),
        path_mtu: 1500,
        sequence: 7,
        replay_window: 0,
        lifetime: Lifetime::default(),
        local_ts: vec![ts("10.1.0.0/24")],
        remote_ts: vec![ts("10.2.0.0/24")],
        stats: SaStats { packets: 7, bytes: 700, last_use: 3 },
    }
}

fn policy(verdict: Verdict) -> Policy {
    Policy {
        name: "site.net".to_owned(),
        verdict,
        local: ts("10.1.0.0/24"),
        remote: ts("10.2.0.0/24"),
        priority: 0,
        open: 0,
        guard: true,
    }
}

fn installed(action: Action) -> Option<PolicyAdd> {
    let (local, remote, name) = (ts("10.1.0.0/24"), ts("10.2.0.0/24"), "site.net".to_owned());
    Some(PolicyAdd { name, action, local, remote, priority: 0, entry: Entry::default() })
}

fn side(decision: Decision) -> Side {
    let planned = Planned { policy: policy(Verdict::Protect), chains: vec!["o4_0".to_owned()] };
    Side { planned: Some(planned), decision: Some(decision), down: Some(Down::default()), narrowed: None }
}

/// A view of this packet, which no policy covers.
fn bare(packet: &str) -> View {
    let settings = Settings {
        device: "ipsec0".into(),
        mark: 0x220,
        steer_mark: 0x1000_0000,
        ports: [500, 4500],
        vrf: false,
        nft: true,
    };
    View {
        question: Question::read(packet).unwrap(),
        settings,
        device: Some(DEVICE),
        outbound: Side::default(),
        inbound: Side::default(),
        skips: false,
        nearest: None,
    }
}

/// From our side to the peer's, by an SA that stands.
fn leaving() -> View {
    let decision = Decision {
        policy: installed(Action::Protect(ReqId(1))),
        sa: Some(sa(SaDirection::Out)),
        inner_max: Some(1422),
        ..Decision::default()
    };
    View { outbound: side(decision), ..bare("10.1.0.9 > 10.2.0.5 tcp 443") }
}

/// From the peer's side to ours, by an SA that stands.
fn arriving() -> View {
    let decision = Decision {
        policy: installed(Action::Protect(ReqId(1))),
        sa: Some(sa(SaDirection::In)),
        ..Decision::default()
    };
    View { inbound: side(decision), ..bare("10.2.0.5 > 10.1.0.9 tcp 443") }
}

fn decided(view: View, change: impl FnOnce(&mut Decision)) -> View {
    let mut view = view;
    for side in [&mut view.outbound, &mut view.inbound] {
        if let Some(decision) = side.decision.as_mut() {
            change(decision);
            break;
        }
    }
    view
}

fn walk(view: &View, machine: &mut Machine) -> Passage {
    let [direction] = view.directions()[..] else { panic!("{:?}", view.directions()) };
    match direction {
        Direction::Outbound => outbound::walk(view, machine),
        Direction::Inbound => inbound::walk(view, machine),
    }
    .unwrap()
}

fn obstacle(view: &View, machine: &mut Machine) -> Packet {
    let passage = walk(view, machine);
    match passage.obstacle {
        Some((_, Diagnosis::Packet(why))) => why,
        other => panic!("{other:?}: {:#?}", passage.stops),
    }
}

/// A flow of which these reports came; the rule that dropped it.
fn followed(reports: &[(&str, &str, StepKind, Step)], rule: Option<&str>) -> Passage {
    let mut story = Story::default();
    for (table, chain, kind, step) in reports {
        story.take(&Traced {
            packet: 1,
            family: "inet",
            table: (*table).to_owned(),
            chain: (*chain).to_owned(),
            kind: *kind,
            step: *step,
            came_by: Some(LAN),
            leaves_by: Some(DEVICE),
        });
    }
    let mut passage = walk(&leaving(), &mut machine());
    assert_eq!(passage.obstacle, None);
    Followed::of(story, [rule.map(str::to_owned), None]).tell(&mut passage, &|index| format!("#{index}"));
    passage
}

fn seen(passage: Passage) -> Packet {
    match passage.obstacle {
        Some((Station::Rules, Diagnosis::Packet(why))) => why,
        other => panic!("{other:?}"),
    }
}

const MARK: (&str, &str, StepKind, Step) = (TRACE_NAME, "there_pre", StepKind::Rule(1), Step::Goes);

/// Makes an entry of the area packet happen.
pub(crate) fn happens(entry: PacketEntry) -> Packet {
    let refused = |to: &str, errno| (ip(to), false, RouteAnswer::Refused(errno));
    match entry {
        PacketEntry::LinkDown => {
            let mut down = machine();
            down.links[0].up = false;
            obstacle(&leaving(), &mut down)
        }
        PacketEntry::NotForwarded => obstacle(&leaving(), &mut Machine { forwards: false, ..machine() }),
        PacketEntry::ReversePath => {
            let instead =
                vec![(ip("10.2.0.5"), true, RouteAnswer::Refused(22)), (ip("10.1.0.9"), false, to(WAN, 254))];
            let view = View { question: question("10.1.0.9 > 10.2.0.5 tcp 443 in lan0"), ..leaving() };
            obstacle(&view, &mut Machine { check: ReversePath::Strict, instead, ..machine() })
        }
        PacketEntry::NoRoute => {
            obstacle(&leaving(), &mut Machine { instead: vec![refused("10.2.0.5", 113)], ..machine() })
        }
        PacketEntry::Elsewhere => {
            let instead = vec![(ip("10.2.0.5"), false, to(WAN, 100))];
            obstacle(&leaving(), &mut Machine { instead, ..machine() })
        }
        PacketEntry::ForeignRule => {
            let drop = ("filter", "forward", StepKind::Rule(7), Step::Drop);
            seen(followed(&[MARK, drop], Some("tcp dport 443 drop")))
        }
        PacketEntry::Guarded => {
            let question = question("10.2.0.5 > 10.1.0.9 tcp 443 in wan0");
            obstacle(&View { question, ..arriving() }, &mut machine())
        }
        PacketEntry::Vanished => seen(followed(&[MARK], None)),
        PacketEntry::Unseen => seen(followed(&[], None)),
        PacketEntry::NoPolicy => obstacle(&bare("10.1.0.9 > 10.3.0.5"), &mut machine()),
        PacketEntry::Discarded => {
            let view = decided(leaving(), |d| {
                *d = Decision { policy: installed(Action::Discard), ..Decision::default() };
            });
            obstacle(&view, &mut machine())
        }
        PacketEntry::OtherPolicy => {
            obstacle(&decided(arriving(), |d| d.drop = Some(DropReason::InTmplMismatch)), &mut machine())
        }
        PacketEntry::NoSa => obstacle(&down("retransmits exhausted", false), &mut machine()),
        PacketEntry::OutsideSa => {
            let view = decided(leaving(), |d| {
                d.others = d.sa.take().into_iter().collect();
                d.drop = Some(DropReason::OutStateMismatch);
            });
            obstacle(&view, &mut machine())
        }
        PacketEntry::Spent => {
            obstacle(&decided(leaving(), |d| d.drop = Some(DropReason::OutStateSeqError)), &mut machine())
        }
        PacketEntry::NotBetweenEnds => {
            obstacle(&decided(leaving(), |d| d.drop = Some(DropReason::OutTransport)), &mut machine())
        }
        PacketEntry::TooBig => {
            let view = View { question: question("10.1.0.9 > 10.2.0.5 udp 53 len 1423 df"), ..leaving() };
            obstacle(&view, &mut machine())
        }
        PacketEntry::NoWayToPeer => {
            obstacle(&leaving(), &mut Machine { instead: vec![refused("192.0.2.2", 101)], ..machine() })
        }
        PacketEntry::AddressGone => {
            let mut gone = machine();
            gone.addresses.pop();
            obstacle(&leaving(), &mut gone)
        }
    }
}

fn question(text: &str) -> Question {
    Question::read(text).unwrap()
}

/// A tunnel that is down.
fn down(why: &str, trap: bool) -> View {
    let mut view = decided(leaving(), |d| {
        d.sa = None;
        if !trap {
            *d = Decision { drop: Some(DropReason::OutNoPolicy), ..Decision::default() };
        }
    });
    view.outbound.down = Some(Down { why: why.to_owned(), remedy: "look at the peer".to_owned(), trap });
    view
}

fn states(passage: &Passage) -> Vec<(&'static str, &'static str)> {
    passage.stops.iter().map(|s| (s.station.name(), s.state.name())).collect()
}

#[test]
fn every_entry_of_the_area_happens_as_itself() {
    for entry in PacketEntry::ALL {
        let found = happens(*entry);
        assert_eq!(found.entry(), *entry, "{found}");
    }
}

#[test]
fn a_healthy_packet_passes_every_station_in_either_direction() {
    let out = walk(&leaving(), &mut machine());
    assert_eq!(out.obstacle, None);
    let names = ["link", "forward", "policy", "route", "guard", "sa", "size", "outer"];
    assert_eq!(states(&out), names.map(|name| (name, "passes")));
    let text = |station| &out.stops.iter().find(|s| s.station == station).unwrap().text;
    assert!(text(Station::Sa).contains("SPI c0010203") && text(Station::Sa).contains("7 packets"));
    assert!(text(Station::Size).contains("up to 1422 bytes"), "{}", text(Station::Size));
    assert!(text(Station::Outer).contains("192.0.2.2 UDP port 4500, dev wan0 via 192.0.2.254"));
    let into = walk(&arriving(), &mut machine());
    assert_eq!(into.obstacle, None);
    let names = ["outer", "sa", "policy", "guard", "forward", "route", "link"];
    assert_eq!(states(&into), names.map(|name| (name, "passes")));
}

#[test]
fn host_to_host_and_packets_for_this_machine_need_no_forwarding() {
    let mut host = Machine { forwards: false, ..machine() };
    let own = View { question: question("10.1.0.1 > 10.2.0.5 tcp 443"), ..leaving() };
    assert_eq!(walk(&own, &mut host).obstacle, None);
    let own = View { question: question("10.2.0.5 > 10.1.0.1 tcp 443"), ..arriving() };
    assert_eq!(walk(&own, &mut host).obstacle, None);
    // A packet for a host behind it needs it.
    assert_eq!(obstacle(&arriving(), &mut host).entry(), PacketEntry::NotForwarded);
}

#[test]
fn a_trap_is_no_obstacle_until_the_tunnel_has_failed() {
    let passage = walk(&down("", true), &mut machine());
    assert_eq!(passage.obstacle, None, "{:#?}", passage.stops);
    let why = obstacle(&down("peer not responding", true), &mut machine());
    let Packet::NoSa { child, why, write } = why else { panic!("{why:?}") };
    assert_eq!((child.as_str(), why.as_str()), ("site.net", "peer not responding"));
    assert_eq!(write, "look at the peer");
}

#[test]
fn a_tunnel_that_is_down_is_the_reason_and_not_the_route_that_leads_nowhere() {
    let instead = vec![(ip("10.2.0.5"), false, RouteAnswer::Refused(113))];
    let why = obstacle(&down("", false), &mut Machine { instead, ..machine() });
    assert_eq!(why.entry(), PacketEntry::NoSa);
}

#[test]
fn an_sa_that_the_peer_has_narrowed_is_the_reason_where_its_policies_are_narrow_as_well() {
    let unknown = |d: &mut Decision| {
        *d = Decision { drop: Some(DropReason::OutNoPolicy), ..Decision::default() };
    };
    let mut view = decided(leaving(), unknown);
    view.outbound.narrowed = Some("10.1.0.0/24 === 10.2.0.0/30".to_owned());
    let (at, why) = walk(&view, &mut machine()).obstacle.expect("an obstacle");
    assert_eq!((at, why.entry().name()), (Station::Sa, "packet-outside-sa"));
    assert!(why.sentence().contains("10.2.0.0/30"), "{}", why.sentence());
}

#[test]
fn a_child_that_passes_lets_the_packet_leave_in_clear() {
    let mut view = decided(leaving(), |d| {
        *d = Decision { policy: installed(Action::Bypass), ..Decision::default() };
    });
    view.outbound.planned.as_mut().unwrap().policy.verdict = Verdict::Bypass;
    view.skips = true;
    let passage = walk(&view, &mut machine());
    assert_eq!(passage.obstacle, None, "{:#?}", passage.stops);
    assert!(passage.stops.iter().any(|s| s.text.contains("dev wan0") && s.text.contains("in clear")));
}

#[test]
fn a_packet_that_no_policy_covers_is_said_to_go_on_in_clear_where_it_does() {
    let clear = |machine: &mut Machine| match obstacle(&bare("10.1.0.9 > 198.51.100.5"), machine) {
        Packet::NoPolicy { clear, .. } => clear,
        other => panic!("{other:?}"),
    };
    assert!(clear(&mut Machine { instead: vec![(ip("198.51.100.5"), false, to(WAN, 254))], ..machine() }));
    assert!(!clear(&mut Machine {
        instead: vec![(ip("198.51.100.5"), false, to(DEVICE, 254))],
        ..machine()
    }));
    assert!(!clear(&mut Machine {
        instead: vec![(ip("198.51.100.5"), false, RouteAnswer::Refused(101))],
        ..machine()
    }));
}

#[test]
fn a_packet_that_may_be_fragmented_is_no_obstacle_and_no_more_is_one_without_df_limits() {
    let long = |options: &str| View { question: question(options), ..leaving() };
    assert_eq!(walk(&long("10.1.0.9 > 10.2.0.5 udp 53 len 1423"), &mut machine()).obstacle, None);
    assert_eq!(walk(&long("10.1.0.9 > 10.2.0.5 udp 53 len 1422 df"), &mut machine()).obstacle, None);
}

#[test]
fn the_nearest_policy_is_named_with_what_of_it_does_not_fit() {
    let https = TrafficSelector { protocol: 6, start_port: 443, end_port: 443, ..ts("10.2.0.0/24") };
    let named = |name: &str, remote| Policy { name: name.to_owned(), remote, ..policy(Verdict::Protect) };
    let drops =
        Policy { name: "no.net".to_owned(), verdict: Verdict::Discard, ..named("", ts("10.2.0.0/24")) };
    let all = [drops, named("far.net", ts("10.9.0.0/24")), named("site.web", https)];
    let of = |text: &str| near::nearest(all.iter(), &question(text).selector());
    let (direction, found) = of("10.1.0.9 > 10.2.0.5 tcp 80").unwrap();
    assert_eq!((direction, found.child.as_str()), (Direction::Outbound, "site.web"));
    assert_eq!(found.misses, ["its destination port is 80, and remote_ts has 443"]);
    let (direction, found) = of("10.9.0.5 > 10.7.0.9 tcp 80").unwrap();
    assert_eq!((direction, found.child.as_str()), (Direction::Inbound, "far.net"));
    assert_eq!(found.misses, ["its destination 10.7.0.9 is not in local_ts 10.1.0.0/24"]);
    let (_, found) = of("10.1.0.9 > 10.2.0.5 udp 443").unwrap();
    assert_eq!(found.misses, ["it is of protocol 17, and remote_ts has 6"]);
    assert_eq!(of("172.16.0.1 > 172.17.0.1 tcp 80"), None, "nothing is near");
}

#[test]
fn a_flow_that_was_seen_to_the_end_passes_and_a_rule_that_was_seen_to_drop_comes_first() {
    let end = (TRACE_NAME, "post_end", StepKind::Policy, Step::Accept);
    let passage = followed(&[MARK, end], None);
    assert_eq!(passage.obstacle, None);
    let rules: Vec<&Stop> = passage.stops.iter().filter(|s| s.station == Station::Rules).collect();
    assert!(rules[0].text.contains("1 packet was seen, the last one as it left by #9"), "{}", rules[0].text);
    assert_eq!(rules[1].text, "no answer was seen");
    let ours = followed(&[MARK, (crate::guard::NAME, "guard_out", StepKind::Rule(3), Step::Drop)], None);
    assert!(matches!(seen(ours), Packet::Guarded { arrives: false, .. }));
    let policy = followed(&[MARK, ("filter", "forward", StepKind::Policy, Step::Drop)], None);
    let Packet::ForeignRule { table, rule, .. } = seen(policy) else { panic!() };
    assert_eq!((table.as_str(), rule.as_str()), ("inet filter", ""));
}

#[test]
fn texts_of_others_are_shown_without_escape_sequences_and_cut() {
    assert_eq!(shown("a\x1b[31m \u{202e}b\" \u{fc}"), "a\\u{1b}[31m \\u{202e}b\" \u{fc}");
    assert!(shown(&"x".repeat(5000)).len() < 400);
}
