//! Post-quantum preshared keys (RFC 8784): both roles, required or optional, known, unknown or
//! wrong; each message lost and doubled; signatures; what follows from the keys; and peers that do
//! what they may not.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_keying::{Auth, Connection, Ppk, PrivateKey};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::id::Identity;
use ironswan_wire::ike::payload::{Notify, find_notify};
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::secret::Secret;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits and any retry waits.
const REST: Duration = Duration::from_secs(1_000);
const ID: &str = "office.ppk";

/// What one side has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// No PPK at all.
    Nothing,
    /// The same PPK as `Same` of the other side.
    Same,
    /// A PPK of the same identifier and another value.
    Wrong,
    /// A PPK of another identifier, which the connection names.
    Other,
    /// The same PPK, and the connection names none.
    Unnamed,
}

impl Side {
    fn key(self) -> Option<Ppk> {
        match self {
            Self::Nothing => None,
            Self::Same | Self::Unnamed => Some(config::ppk(ID, 1)),
            Self::Wrong => Some(config::ppk(ID, 2)),
            Self::Other => Some(config::ppk("other.ppk", 3)),
        }
    }

    fn id(self) -> Option<Identity> {
        match self {
            Self::Nothing | Self::Unnamed => None,
            Self::Same | Self::Wrong => Identity::parse(ID),
            Self::Other => Identity::parse("other.ppk"),
        }
    }
}

/// Two gateways with these PPKs, of which each may require one.
fn world(
    seed: u64,
    sides: [Side; 2],
    required: [bool; 2],
    tweak: impl FnOnce(&mut [Connection; 2]),
) -> World {
    let mut w = World::pair(seed, |c| {
        for (n, c) in c.iter_mut().enumerate() {
            (c.ppk_id, c.ppk_required) = (sides[n].id(), required[n]);
            // `ppk_int` has stories of the other way.
            c.ppk_intermediate = false;
        }
        tweak(c);
    });
    for (node, side) in w.nodes.iter_mut().zip(sides) {
        side.key().into_iter().for_each(|key| node.endpoint.load_ppk(key));
    }
    w
}

fn same(seed: u64) -> World {
    world(seed, [Side::Same; 2], [false; 2], |_| {})
}

/// Whether the keys of each side have a PPK.
fn ppks(w: &World) -> [bool; 2] {
    [w.up(0)[0].ppk, w.up(1)[0].ppk]
}

/// Rows of the key log of an IKE_SA.
fn rows(w: &World, node: usize) -> Vec<KeyLog> {
    w.nodes[node].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).cloned().collect()
}

/// Payloads of the first IKE_SA_INIT message of a node.
fn init_message(w: &World, node: usize) -> Vec<Payload> {
    let (_, packet) = w.net.log.iter().find(|(s, _)| s.node == node).unwrap();
    Message::parse(&packet.payload).unwrap().payloads
}

/// Payloads of the first IKE_AUTH message of a node.
fn auth_message(w: &World, node: usize) -> Vec<Payload> {
    let of = |s: &ironswan_testkit::Seen| s.node == node && s.exchange == ExchangeType::IKE_AUTH;
    let (_, packet) = w.net.log.iter().find(|(s, _)| of(s)).unwrap();
    Forger::newest(&w.nodes[0]).open(&packet.payload).unwrap().1
}

#[test]
fn each_pair_of_sides_does_what_the_table_of_the_rfc_says() {
    use Side::{Nothing, Other, Same, Unnamed, Wrong};
    // Of initiator and responder; what they require; `Some`: up, with or without a PPK.
    let no = [false, false];
    for (sides, required, up) in [
        ([Same, Same], no, Some(true)),
        ([Same, Same], [true, false], Some(true)),
        ([Same, Same], [false, true], Some(true)),
        ([Same, Same], [true, true], Some(true)),
        // A responder without ppk_id takes any that is loaded; an initiator offers none.
        ([Same, Unnamed], no, Some(true)),
        ([Same, Unnamed], [true, true], Some(true)),
        ([Unnamed, Same], no, Some(false)),
        ([Unnamed, Same], [false, true], None),
        ([Unnamed, Same], [true, false], None),
        ([Nothing, Nothing], no, Some(false)),
        ([Nothing, Nothing], [true, false], None),
        ([Nothing, Nothing], [false, true], None),
        ([Same, Nothing], no, Some(false)),
        ([Same, Nothing], [true, false], None),
        ([Same, Nothing], [false, true], None),
        ([Nothing, Same], no, Some(false)),
        ([Nothing, Same], [true, false], None),
        ([Nothing, Same], [false, true], None),
        ([Same, Other], no, Some(false)),
        ([Same, Other], [true, false], None),
        ([Same, Other], [false, true], None),
        // Nobody can tell a wrong PPK from a wrong proof.
        ([Same, Wrong], no, None),
        ([Same, Wrong], [true, false], None),
        ([Same, Wrong], [false, true], None),
    ] {
        let mut w = world(1, sides, required, |_| {});
        let result = w.establish(0);
        assert_eq!(result.is_ok(), up.is_some(), "{sides:?} {required:?}: {result:?}");
        let Some(up) = up else {
            w.run(REST);
            w.assert_empty();
            continue;
        };
        w.assert_one();
        assert_eq!(ppks(&w), [up; 2], "{sides:?} {required:?}");
        assert_eq!(rows(&w, 0), rows(&w, 1), "{sides:?} {required:?}");
        // One row of the key exchange, and one with the PPK.
        assert_eq!(rows(&w, 0).len(), 1 + usize::from(up));
        assert_eq!(
            w.nodes.iter().filter(|n| n.logged("using PPK for PPK_ID 'office.ppk'")).count(),
            2 * usize::from(up)
        );
        // Traffic goes by the keys of both sides.
        w.traffic = Some(100 * MS);
        w.run(5 * S);
        w.nodes.iter().for_each(|n| assert!(n.esp.0 > 10 && n.esp.1 == 0));
    }
}

#[test]
fn each_refusal_says_what_is_wrong() {
    use Side::{Nothing, Other, Same, Unnamed, Wrong};
    for (sides, required, node, line) in [
        ([Nothing, Same], [true, false], 0, "ppk_required = yes without ppk_id: this side cannot initiate"),
        ([Same, Nothing], [true, false], 0, "the two sides have not both announced PPKs"),
        ([Nothing, Same], [false, true], 1, "the two sides have not both announced PPKs"),
        ([Unnamed, Same], [false, true], 1, "the two sides have not both announced PPKs"),
        (
            [Same, Other],
            [true, false],
            1,
            "the peer requires a PPK that is not here: it names 'office.ppk', here ppk_id = other.ppk",
        ),
        (
            [Same, Other],
            [false, true],
            1,
            "the peer has another PPK: it names 'office.ppk', here ppk_id = other.ppk",
        ),
        ([Same, Wrong], [false, false], 1, "with PPK 'office.ppk', whose secret may differ as well"),
        ([Same, Wrong], [false, false], 0, "with shared key 'ike-gw', with PPK 'office.ppk'"),
        ([Same, Other], [false, false], 0, "going on without PPK 'office.ppk', which one side does not have"),
        ([Same, Other], [false, false], 1, "going on without PPK 'office.ppk', which one side does not have"),
    ] {
        let mut w = world(2, sides, required, |_| {});
        let _ = w.establish(0);
        assert!(w.nodes[node].logged(line), "{sides:?} {required:?}: {:#?}", w.nodes[node].log);
    }
}

#[test]
fn a_key_that_is_not_loaded_is_said_and_needed_only_where_it_is_required() {
    for (required, up) in [(false, true), (true, false)] {
        let mut w = world(3, [Side::Same; 2], [required, false], |_| {});
        assert!(w.nodes[0].endpoint.unload_shared("ppk-office.ppk"));
        let result = w.establish(0);
        assert_eq!(result.is_ok(), up, "{result:?}");
        assert!(w.nodes[0].logged("no PPK found for 'office.ppk'"));
        if up {
            assert_eq!(ppks(&w), [false; 2]);
        } else {
            // Nothing has been sent.
            assert_eq!(w.net.count, 0);
            w.assert_empty();
            // The next try finds it.
            w.nodes[0].endpoint.load_ppk(config::ppk(ID, 1));
            w.establish(0).unwrap();
            assert_eq!(ppks(&w), [true; 2]);
        }
    }
}

#[test]
fn each_side_announces_and_names_the_ppk_as_the_rfc_writes_it() {
    let has = |payloads: &[Payload], kind| find_notify(payloads, kind).map(|n| n.data.clone());
    for (required, without) in [(false, true), (true, false)] {
        let mut w = world(4, [Side::Same; 2], [required, false], |_| {});
        w.establish(0).unwrap();
        for node in 0..2 {
            assert_eq!(has(&init_message(&w, node), NotifyType::USE_PPK), Some(Vec::new()));
        }
        let request = auth_message(&w, 0);
        assert_eq!(has(&request, NotifyType::PPK_IDENTITY), Some(b"\x02office.ppk".to_vec()));
        let no_ppk_auth = has(&request, NotifyType::NO_PPK_AUTH);
        assert_eq!(no_ppk_auth.is_some(), without, "only who can go without sends it");
        assert_ne!(
            no_ppk_auth,
            request.iter().find_map(|p| if let Payload::Auth(a) = p { Some(a.data.clone()) } else { None })
        );
        let response = auth_message(&w, 1);
        assert_eq!(has(&response, NotifyType::PPK_IDENTITY), Some(Vec::new()));
    }
    // Nobody speaks of PPKs who has none.
    let mut w = world(4, [Side::Nothing, Side::Same], [false; 2], |_| {});
    w.establish(0).unwrap();
    assert!((0..2).all(|node| has(&init_message(&w, node), NotifyType::USE_PPK).is_none()));
    // A responder without any ignores the announcement.
    let mut w = world(4, [Side::Same, Side::Nothing], [false; 2], |_| {});
    w.establish(0).unwrap();
    assert!(has(&init_message(&w, 1), NotifyType::USE_PPK).is_none());
    assert!(has(&auth_message(&w, 0), NotifyType::PPK_IDENTITY).is_none());
}

#[test]
fn rekeyings_of_both_kinds_keep_the_ppk_and_mix_in_no_other() {
    for from in 0..2 {
        let mut w = same(5);
        w.establish(0).unwrap();
        // The PPK has gone meanwhile: it is needed only to set up.
        w.nodes.iter_mut().for_each(|n| assert!(n.endpoint.unload_shared("ppk-office.ppk")));
        w.traffic = Some(100 * MS);
        for round in 0..2 {
            w.rekey_child(from);
            w.run(20 * S);
            w.rekey_ike(from);
            w.run(20 * S);
            w.assert_one();
            assert_eq!(ppks(&w), [true; 2]);
            // Two rows of the set-up, one of each rekeying; the two sides agree on all of them.
            assert_eq!(rows(&w, 0).len(), 3 + round);
            assert_eq!(rows(&w, 0), rows(&w, 1));
        }
        w.nodes.iter().for_each(|n| assert_eq!(n.esp.1, 0));
        w.audit();
    }
}

#[test]
fn the_ppk_is_mixed_into_the_keys_of_the_last_additional_key_exchange() {
    let add: &[(u8, KeId)] = &[(1, KeId::ML_KEM_768), (2, KeId::ECP_256)];
    let mut w = world(6, [Side::Same; 2], [true; 2], |c| {
        c.iter_mut().for_each(|c| c.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], add)]);
    });
    w.establish(1).unwrap();
    w.assert_one();
    assert_eq!(ppks(&w), [true; 2]);
    assert_eq!((rows(&w, 0).len(), rows(&w, 0)), (4, rows(&w, 1)));
}

fn key(n: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
}

#[test]
fn an_initiator_that_signs_makes_two_signatures_when_the_ppk_is_optional() {
    for (sides, required, signatures, up) in [
        ([Side::Same, Side::Same], [false, false], [3, 2], Some(true)),
        ([Side::Same, Side::Same], [true, false], [2, 2], Some(true)),
        ([Side::Same, Side::Other], [false, false], [3, 2], Some(false)),
        ([Side::Same, Side::Wrong], [false, false], [2, 1], None),
    ] {
        let mut w = world(7, sides, required, |c| {
            let by = |n: u8| Auth::pubkey(vec![key(n).public().clone()]);
            (c[0].local_auth, c[0].remote_auth) = (by(1), by(2));
            (c[1].local_auth, c[1].remote_auth) = (by(2), by(1));
        });
        for (node, n) in w.nodes.iter_mut().zip([1, 2]) {
            node.endpoint.load_private(key(n));
            // Retransmissions arrive while signatures are made.
            node.work = 3 * S;
        }
        let result = w.establish(0);
        assert_eq!(result.is_ok(), up.is_some(), "{sides:?}: {result:?}");
        assert_eq!([w.nodes[0].signatures, w.nodes[1].signatures], signatures, "{sides:?} {required:?}");
        match up {
            Some(up) => assert_eq!(ppks(&w), [up; 2]),
            None => {
                w.run(REST);
                w.assert_empty();
            }
        }
    }
}

/// Sets up, rekeys both kinds from both sides, and ends.
fn life(w: &mut World, from: usize) {
    let _ = w.establish(from);
    w.run(REST);
    for node in 0..2 {
        w.rekey_child(node);
        w.run(REST);
        w.rekey_ike(node);
        w.run(REST);
    }
}

#[test]
fn each_message_may_be_lost_doubled_or_late() {
    for (sides, up) in [([Side::Same; 2], true), ([Side::Same, Side::Other], false)] {
        let whole = {
            let mut w = world(8, sides, [false; 2], |_| {});
            life(&mut w, 0);
            w.net.count
        };
        for verdict in [Verdict::Drop, Verdict::Delay(7 * S)] {
            for index in 0..whole {
                let mut w = world(8, sides, [false; 2], |_| {});
                w.net.rules.push(Box::new(move |s| if s.index == index { verdict } else { Verdict::Pass }));
                life(&mut w, 0);
                w.assert_one();
                assert_eq!(ppks(&w), [up; 2], "message {index}");
                assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 0, "message {index}");
            }
        }
        for seed in 0..10 {
            let mut w = world(seed, sides, [false; 2], |_| {});
            w.net.duplicate = 1_000;
            life(&mut w, 0);
            w.assert_one();
            assert_eq!(ppks(&w), [up; 2], "seed {seed}");
        }
    }
}

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

/// Node 0 has sent IKE_AUTH, which was lost: the payloads of that request, and a forger of others.
fn asked(w: &mut World) -> (Vec<Payload>, Forger) {
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_AUTH {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(100 * MS);
    (auth_message(w, 0), Forger::newest(&w.nodes[0]))
}

#[test]
fn requests_that_name_no_ppk_or_a_strange_one_are_refused_or_go_without() {
    let identity = |data: &[u8]| Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY, data.to_vec()));
    let long = [&[2][..], &[b'x'; 4_000]].concat();
    // PPK_IDENTITY of the request, whether NO_PPK_AUTH stays, and whether an IKE_SA comes of it.
    for (data, without, up) in [
        (Some(&b"\x02office.ppk"[..]), true, Some(true)),
        // An opaque identifier of the same bytes names the same PPK.
        (Some(b"\x01office.ppk"), true, Some(true)),
        (Some(b"\x02office.ppk"), false, Some(true)),
        // "If no PPK_IDENTITY notification is found ... MUST send back an AUTHENTICATION_FAILED".
        (None, true, None),
        (None, false, None),
        (Some(b""), true, Some(false)),
        (Some(b""), false, None),
        (Some(b"\x02"), true, Some(false)),
        (Some(b"\x00office.ppk"), true, Some(false)),
        (Some(b"\x03office.ppk"), true, Some(false)),
        (Some(b"\xffoffice.ppk"), false, None),
        (Some(b"\x02\x00\n\xff"), true, Some(false)),
        (Some(b"\x02OFFICE.PPK"), true, Some(false)),
        (Some(&long), true, Some(false)),
        (Some(&long), false, None),
    ] {
        let mut w = world(9, [Side::Same, Side::Unnamed], [false; 2], |_| {});
        let (mut payloads, mut f) = asked(&mut w);
        let is = |p: &Payload, kind| matches!(p, Payload::Notify(n) if n.kind == kind);
        payloads.retain(|p| !is(p, NotifyType::PPK_IDENTITY) && (without || !is(p, NotifyType::NO_PPK_AUTH)));
        payloads.extend(data.map(identity));
        let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 1, &payloads);
        w.inject(a(), b(), bytes);
        w.run(100 * MS);
        let shown = data.map(|d| d.iter().take(20).map(|b| format!("{b:02x}")).collect::<String>());
        assert_eq!(w.up(1).first().map(|sa| sa.ppk), up, "{shown:?} {without}");
        let refused = w.nodes[1].endpoint.protocol().counters().auth_failed;
        assert_eq!(refused, u64::from(up.is_none()), "{shown:?} {without}");
    }
}

#[test]
fn a_proof_without_ppk_does_not_stand_in_for_the_one_with_it() {
    // The data of NO_PPK_AUTH in AUTH, and the other way round.
    for (responder, up) in [(Side::Same, false), (Side::Other, false)] {
        let mut w = world(10, [Side::Same, responder], [false; 2], |_| {});
        let (mut payloads, mut f) = asked(&mut w);
        let without = find_notify(&payloads, NotifyType::NO_PPK_AUTH).unwrap().data.clone();
        for p in &mut payloads {
            let with = match p {
                Payload::Auth(auth) => std::mem::replace(&mut auth.data, without.clone()),
                _ => continue,
            };
            payloads.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::NO_PPK_AUTH));
            payloads.push(Payload::Notify(Notify::new(NotifyType::NO_PPK_AUTH, with)));
            break;
        }
        let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 1, &payloads);
        w.inject(a(), b(), bytes);
        w.run(100 * MS);
        assert_eq!(!w.up(1).is_empty(), up, "{responder:?}");
        assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 1);
    }
}

/// The node that sends this IKE_SA_INIT message, when node 0 initiates. `None`: another message.
fn init_of(bytes: &[u8]) -> Option<usize> {
    let message = Message::parse(bytes).ok()?;
    let is_init = message.header.exchange == ExchangeType::IKE_SA_INIT;
    is_init.then(|| usize::from(message.header.flags.response()))
}

/// Takes USE_PPK out of an IKE_SA_INIT message.
fn strip(bytes: &mut Vec<u8>) {
    let mut message = Message::parse(bytes).unwrap();
    message.payloads.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == NotifyType::USE_PPK));
    *bytes = message.emit().unwrap();
}

#[test]
fn an_announcement_that_somebody_takes_away_is_noticed_by_auth() {
    // The responder hears of no PPK, or the initiator does not: the IKE_SA_INIT messages differ.
    for node in 0..2 {
        let mut w = same(11);
        w.net.tamper = Some(Box::new(move |bytes| {
            if init_of(bytes) == Some(node) {
                strip(bytes);
            }
        }));
        assert!(w.establish(0).is_err());
        w.run(REST);
        w.assert_empty();
    }
}

#[test]
fn a_response_without_announcement_is_not_taken_and_a_later_one_is() {
    // Somebody answers before the peer does, without USE_PPK.
    let mut w = world(12, [Side::Same; 2], [true; 2], |_| {});
    let mut first = true;
    w.net.tamper = Some(Box::new(move |bytes| {
        if init_of(bytes) == Some(1) && std::mem::take(&mut first) {
            strip(bytes);
        }
    }));
    w.establish(0).unwrap();
    w.assert_one();
    assert_eq!(ppks(&w), [true; 2]);
    assert!(w.nodes[0].logged("the two sides have not both announced PPKs"));
}

#[test]
fn a_key_or_rule_that_changes_during_the_set_up_counts() {
    // The PPK is unloaded between IKE_SA_INIT and IKE_AUTH: at the responder, then at the
    // initiator.
    for node in [1, 0] {
        let mut w = same(13);
        w.nodes.iter_mut().for_each(|n| n.work = S);
        w.initiate(0);
        w.run_until(10 * S, |w| w.net.log.iter().any(|(s, _)| s.node == 1));
        w.nodes[node].endpoint.unload_shared("ppk-office.ppk");
        w.run(60 * S);
        if node == 1 {
            // The initiator can go without.
            w.assert_one();
            assert_eq!(ppks(&w), [false; 2]);
        } else {
            // Both sides have announced PPKs, so the responder would refuse a request without one.
            assert!(w.nodes[0].logged("no PPK found for 'office.ppk'"));
            w.assert_empty();
        }
    }
}

#[test]
fn no_log_shows_a_ppk() {
    let mut w = world(14, [Side::Same, Side::Wrong], [false; 2], |_| {});
    let _ = w.establish(0);
    for node in &w.nodes {
        for (_, line) in &node.log {
            assert!(
                !line.contains("0101") && !line.contains("1, 1, 1") && !line.contains("2, 2, 2"),
                "{line}"
            );
        }
    }
}
