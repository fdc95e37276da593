//! How packets are carried, from the configuration to the engine: which options reach which SA,
//! what TFC padding needs of the peer, children without policies, and what of it makes a loaded
//! child another one.

use std::time::Duration;

use ironswan_keying::{ChildAction, ChildConfig};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Nonce, Notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Dscp, SaOptions, Tfc};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

type Change = fn(&mut ChildConfig);

/// Every option is something else than its default.
fn all() -> SaOptions {
    SaOptions {
        ipcomp: None,
        copy_df: false,
        copy_ecn: false,
        dscp_out: Dscp::Set(46),
        dscp_in: true,
        tfc: Tfc::To(1_000),
        dummies: Some(Duration::from_millis(500)),
        original: None,
    }
}

/// The options of the inbound and of the outbound SA of node 0 with what `tweak` makes of the
/// connections.
fn installed(tweak: impl Fn(&mut ironswan_keying::Connection)) -> [SaOptions; 2] {
    let mut w = World::pair(1, |c| {
        for conn in c {
            tweak(conn);
            conn.children[0].options = all();
        }
    });
    w.establish(0).unwrap();
    w.rekey_child(1);
    w.run(10 * S);
    w.assert_one();
    let e = &w.nodes[0].engine;
    [e.inbound.values().next().unwrap().options, e.outbound[0].options]
}

#[test]
fn options_reach_the_sa_that_they_concern() {
    let plain = SaOptions::default();
    // Tunnel mode ESP.
    let [inbound, outbound] = installed(|_| {});
    assert_eq!(inbound, SaOptions { copy_ecn: false, dscp_in: true, ..plain });
    assert_eq!(outbound, SaOptions { dscp_in: false, ..all() });
    // AH hides nothing.
    let [inbound, outbound] = installed(|c| c.children[0].proposals = vec![config::ah_proposal(&[])]);
    assert_eq!(inbound, SaOptions { copy_ecn: false, dscp_in: true, ..plain });
    assert_eq!(outbound, SaOptions { dscp_in: false, tfc: Tfc::None, dummies: None, ..all() });
    // In transport mode there is one IP header, and nothing to copy.
    let [inbound, outbound] = installed(config::transport);
    assert_eq!(inbound, plain);
    assert_eq!(outbound, SaOptions { copy_df: false, ..plain });
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, []))
}

const LINE: &str = "received ESP_TFC_PADDING_NOT_SUPPORTED, not using ESPv3 TFC padding";

/// A world in which both ends pad, and the payloads of a child that the forger makes.
fn padding(seed: u64) -> (World, Forger, Vec<Payload>) {
    let mut w = World::pair(seed, |c| c.iter_mut().for_each(|c| c.children[0].options = all()));
    w.establish(0).unwrap();
    let (child, f) = (w.child(0), Forger::newest(&w.nodes[0]));
    let rest = vec![
        Payload::Sa(vec![Proposal { spi: vec![0xc6, 6, 6, 6], ..config::esp_proposal(&[]) }]),
        Payload::Nonce(Nonce(vec![6; 32])),
        Payload::TsI(child.local_ts),
        Payload::TsR(child.remote_ts),
    ];
    (w, f, rest)
}

fn outbound(w: &World, node: usize) -> SaOptions {
    w.nodes[node].engine.outbound.iter().find(|sa| sa.spi.0 == 0xc606_0606).expect("the child").options
}

#[test]
fn a_peer_that_takes_no_padding_gets_none() {
    let (a, b) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
    for refuses in [true, false] {
        let say = refuses.then(|| notify(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED));
        // In a request.
        let (mut w, mut f, rest) = padding(2);
        let request: Vec<Payload> = say.clone().into_iter().chain(rest).collect();
        w.inject(a, b, f.message(true, ExchangeType::CREATE_CHILD_SA, false, 2, &request));
        w.run(S);
        let tfc = if refuses { Tfc::None } else { Tfc::To(1_000) };
        // Dummy packets are another thing: every receiver discards them.
        assert_eq!(outbound(&w, 1), SaOptions { tfc, dscp_in: false, ..all() });
        assert_eq!(w.nodes[1].logged(LINE), refuses);
        // In a response.
        let (mut w, mut f, rest) = padding(3);
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        w.rekey_child(0);
        w.run(10 * MS);
        let answer: Vec<Payload> = say.into_iter().chain(rest).collect();
        w.inject(b, a, f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &answer));
        w.run(10 * MS);
        assert_eq!(outbound(&w, 0), SaOptions { tfc, dscp_in: false, ..all() });
        assert_eq!(w.nodes[0].logged(LINE), refuses);
    }
}

#[test]
fn we_take_padding_and_say_nothing_against_it() {
    let mut w = World::pair(4, |_| {});
    w.establish(0).unwrap();
    w.rekey_child(0);
    w.run(S);
    let f = Forger::newest(&w.nodes[0]);
    let mut said = w.net.log.iter().filter_map(|(_, p)| f.open(&p.payload)).flat_map(|(_, p)| p).peekable();
    assert!(said.peek().is_some());
    assert!(
        !said.any(|p| matches!(p, Payload::Notify(n) if n.kind == NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED))
    );
}

#[test]
fn a_child_without_policies_has_sas_and_nothing_else() {
    let mut w = World::pair(5, |c| c.iter_mut().for_each(|c| c.children[0].policies = false));
    w.policies = false;
    w.establish(0).unwrap();
    w.assert_one();
    w.rekey_child(0);
    w.run(10 * S);
    w.rekey_ike(1);
    w.run(10 * S);
    w.assert_one();
    let now = w.now();
    w.nodes[0].endpoint.install_trap(now, "gw", "net");
    assert!(!w.nodes[0].endpoint.has_trap("gw", "net"));
    let mut other = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
    other.name = "other".to_owned();
    (other.children[0].policies, other.children[0].start_action) = (false, ChildAction::Trap);
    w.nodes[0].endpoint.load_connection(now, other);
    w.run(S);
    assert!(w.nodes[0].engine.policies.is_empty());
    assert!(w.nodes[0].logged("no trap for net: it is configured without policies (policies = no)"));
    w.audit();
}

#[test]
fn another_option_makes_another_child() {
    let changes: [(&str, bool, Change); 9] = [
        ("ipcomp", true, |c| c.ipcomp = true),
        ("options", true, |c| c.options.dscp_out = Dscp::Set(8)),
        ("tfc", true, |c| c.options.tfc = Tfc::Mtu),
        ("mode", true, |c| c.mode = ironswan_wire::sadb::Mode::Transport),
        ("policies", true, |c| c.policies = false),
        ("proposals", true, |c| c.proposals.push(config::ah_proposal(&[]))),
        ("lifetime", false, |c| c.lifetime.hard_packets = 1 << 40),
        ("rekey_time", false, |c| c.rekey_time = Duration::from_secs(9_999)),
        ("guard", false, |c| c.guard = false),
    ];
    for (what, anew, change) in changes {
        let mut w = World::pair(6, |c| c[0].children[0].start_action = ChildAction::Start);
        w.run(5 * S);
        w.assert_one();
        let before = w.child(0).spi_in;
        let mut conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
        conn.children[0].start_action = ChildAction::Start;
        change(&mut conn.children[0]);
        let now = w.now();
        w.nodes[0].endpoint.load_connection(now, conn);
        w.run(5 * S);
        assert_eq!(w.child(0).spi_in != before, anew, "{what}");
        assert_eq!(w.nodes[0].engine.policies.len(), usize::from(what != "policies"));
        w.audit();
    }
}
