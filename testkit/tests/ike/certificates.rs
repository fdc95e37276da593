//! Authentication by X.509 certificates (RFC 7296 sections 2.15, 3.6 and 3.7): chains, CERTREQ, and
//! everything for which a peer's certificates are refused, in both roles.

use std::time::Duration;

use ironswan_ike::event::{CertificateClaim, Completion, Doubt, Request, Time};
use ironswan_keying::diagnosis::{AuthenticationEntry as E, Entry};
use ironswan_keying::{Auth, Certificates, Connection, SendCert, Trust};
use ironswan_pki::Certificate;
use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, root, year};
use ironswan_testkit::{WALL, World};
use ironswan_wire::id::{IdPattern, Identity};

const S: Duration = Duration::from_secs(1);

/// Certificates of one gateway for a story.
#[derive(Clone)]
struct Side {
    own: Certificate,
    /// Certificates that are loaded, each with true for those of trusted CAs.
    loaded: Vec<(Certificate, bool)>,
    trust: Trust,
}

/// Gateway `n`: its own certificate, the link below the root, and the root.
fn side(n: u8) -> Side {
    Side { own: end(n).make(), loaded: vec![(link(), false), (root(), true)], trust: Trust::default() }
}

/// Two gateways with these certificates and their private keys, without a shared key.
fn pair(sides: [Side; 2], tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(77, |c| {
        for (c, side) in c.iter_mut().zip(&sides) {
            let certificates = vec![side.own.clone()];
            c.local_auth = Auth::certificate(Trust { certificates, ..Trust::default() });
            c.remote_auth = Auth::certificate(side.trust.clone());
        }
        tweak(c);
    });
    for ((node, side), n) in w.nodes.iter_mut().zip(sides).zip([1, 2]) {
        node.endpoint.unload_shared("ike-gw");
        node.endpoint.load_private(key(n));
        node.endpoint.change_certificates(|all| {
            side.loaded.into_iter().for_each(|(c, trusted)| all.insert(c, trusted));
        });
    }
    w
}

fn both() -> [Side; 2] {
    [side(1), side(2)]
}

fn has(w: &World, node: usize, entry: E) -> bool {
    w.nodes[node].failures.iter().any(|why| why.entry() == Entry::Authentication(entry))
}

/// Node `judge` refuses the other one's certificates with this entry, whoever initiates.
fn refused(sides: &[Side; 2], judge: usize, entry: E, tweak: impl Fn(&mut [Connection; 2])) {
    for from in [0, 1] {
        let mut w = pair(sides.clone(), &tweak);
        assert!(w.establish(from).is_err(), "node {from} initiates, {entry:?}");
        assert!(has(&w, judge, entry), "node {from} initiates, {entry:?}: {:?}", w.nodes[judge].failures);
        let said = w.nodes[judge].failures.iter().find(|why| why.entry() == Entry::Authentication(entry));
        assert!(said.is_some_and(|why| !why.remedy().is_empty()), "{said:?}");
        w.run(60 * S);
        w.assert_empty();
    }
}

/// Connection `n` names the certificate of its peer, which needs no chain then.
fn named(c: &mut [Connection; 2], n: usize) {
    let certificates = vec![end(2 - n as u8).make()];
    c[n].remote_auth = Auth::certificate(Trust { certificates, ..Trust::default() });
}

#[test]
fn both_sides_authenticate_by_a_chain_of_three_whoever_begins() {
    for from in [0, 1] {
        let mut sides = both();
        // The link travels in a CERT payload: the one who judges has the root alone.
        sides[1 - from].loaded.remove(0);
        let mut w = pair(sides, |_| {});
        w.establish(from).unwrap();
        w.assert_one();
        for node in &w.nodes {
            assert_eq!(node.signatures, 2, "one made and one judged");
            assert!(node.logged("with ED25519 successful"));
        }
        assert!(w.nodes[1 - from].logged("\" < \"CN=link\" < \"CN=root\""), "the chain is written");
        w.terminate(from, false);
        w.run(S);
        w.assert_empty();
    }
}

#[test]
fn a_chain_without_its_link_is_refused_and_a_link_of_the_configuration_helps() {
    let mut sides = both();
    // Nobody has the link, so node 1 cannot send it.
    sides.iter_mut().for_each(|side| _ = side.loaded.remove(0));
    refused(&sides, 0, E::UnknownIssuer, |c| named(c, 1));
    sides[0].loaded.push((link(), true));
    sides[1].loaded.push((link(), true));
    pair(sides, |_| {}).establish(0).unwrap();
}

#[test]
fn a_certificate_of_another_ca_is_refused() {
    let mut sides = both();
    let other = Make::ca("CN=root", 99, "CN=root", 99).make();
    sides[0].loaded = vec![(link(), false), (other, true)];
    // The same name and another key.
    refused(&sides, 0, E::CertificateUnusable, |_| {});
    let other = Make::ca("CN=other", 99, "CN=other", 99).make();
    sides[0].loaded = vec![(link(), false), (other, true)];
    refused(&sides, 0, E::UnknownIssuer, |_| {});
}

#[test]
fn certificates_are_valid_between_their_two_times_alone() {
    for (from, to, entry) in [(2020, 2025, E::CertificateExpired), (2027, 2040, E::CertificateNotYetValid)] {
        for judge in [0, 1] {
            let mut sides = both();
            sides[1 - judge].own = end(2 - judge as u8).years(from, to).make();
            refused(&sides, judge, entry, |_| {});
            // The same of the CA between.
            let mut sides = both();
            let link = Make::ca("CN=link", LINK, "CN=root", ROOT).years(from, to).make();
            sides.iter_mut().for_each(|side| side.loaded[0] = (link.clone(), false));
            refused(&sides, judge, entry, |c| named(c, 1 - judge));
        }
    }
    let mut w = pair(both(), |_| {});
    w.nodes.iter_mut().for_each(|node| node.wall = year(2041));
    assert!(w.establish(0).is_err() && has(&w, 1, E::CertificateExpired));
}

#[test]
fn a_certificate_speaks_for_its_own_names_alone() {
    let mut sides = both();
    sides[1].own = Make::end("CN=g2.example", 2, "CN=link", LINK).names(&["g3.example"]).make();
    refused(&sides, 0, E::CertificateOfOther, |_| {});
    // A name that stands for many is the name of nobody.
    let sides = both();
    refused(&sides, 0, E::CertificateOfOther, |c| {
        c[0].remote_id = IdPattern::Any;
        c[1].local_id = Identity::parse("CN=*");
    });
    // The subject is a name, too; and a pattern with `*` fits it.
    let mut w = pair(both(), |c| {
        c[0].remote_id = IdPattern::parse("CN=*").unwrap();
        c[1].local_id = Identity::parse("cn=G2.example");
    });
    w.establish(1).unwrap();
    w.assert_one();
    assert!(w.nodes[0].logged("authentication of 'CN=G2.example'"));
}

#[test]
fn our_certificate_needs_its_private_key() {
    for from in [0, 1] {
        let mut w = pair(both(), |_| {});
        assert!(w.nodes[1].endpoint.unload_private(&key(2).public().id()));
        assert!(w.establish(from).is_err());
        assert!(w.nodes[1].logged("no private key found for 'g2.example'"));
        w.run(60 * S);
        w.assert_empty();
    }
}

#[test]
fn a_certificate_that_is_not_named_is_chosen_by_our_identity_and_by_what_the_peer_asks_for() {
    // Node 1 has two certificates for one key, and names none.
    let other_root = Make::ca("CN=other", 99, "CN=other", 99).make();
    let of_other = Make::end("CN=second", 2, "CN=other", 99).names(&["g2.example"]).make();
    for (wanted, subject) in [(root(), "CN=g2.example"), (other_root.clone(), "CN=second")] {
        let mut sides = both();
        sides[0].loaded = vec![(link(), false), (root(), true), (other_root.clone(), true)];
        sides[0].trust = Trust { authorities: vec![wanted], ..Trust::default() };
        sides[1].loaded = vec![
            (link(), false),
            (root(), true),
            (other_root.clone(), true),
            (sides[1].own.clone(), false),
            (of_other.clone(), false),
        ];
        let mut w = pair(sides, |c| c[1].local_auth = Auth::certificate(Trust::default()));
        w.establish(0).unwrap();
        assert!(w.nodes[0].logged(&format!("using certificate chain \"{subject}\"")));
    }
}

#[test]
fn send_cert_says_when_our_certificate_travels() {
    for (send, asks, comes) in [
        (SendCert::IfAsked, true, true),
        (SendCert::IfAsked, false, false),
        (SendCert::Always, false, true),
        (SendCert::Never, true, false),
    ] {
        for from in [0, 1] {
            let tweak = |c: &mut [Connection; 2]| {
                c[1].send_cert = send;
                c[0].send_certreq = asks;
            };
            let mut w = pair(both(), tweak);
            assert_eq!(w.establish(from).is_ok(), comes, "{send:?}, asked: {asks}, node {from} initiates");
            assert_eq!(has(&w, 0, E::NoCertificate), !comes);
            // Whoever has the certificate already needs none.
            let mut sides = both();
            sides[0].trust.certificates = vec![end(2).make()];
            pair(sides, tweak).establish(from).unwrap();
        }
    }
}

#[test]
fn a_certificate_that_the_connection_names_needs_no_chain_and_no_other_will_do() {
    let mut sides = both();
    sides[0].loaded.clear();
    sides[0].trust.certificates = vec![end(2).make()];
    pair(sides.clone(), |_| {}).establish(0).unwrap();
    // Another certificate, although its chain is good.
    sides[0].loaded = vec![(root(), true)];
    sides[0].trust.certificates = vec![end(2).years(2021, 2040).make()];
    refused(&sides, 0, E::CertificateNotNamed, |_| {});
    // Named, and expired.
    sides[1].own = end(2).years(2020, 2025).make();
    sides[0].trust.certificates = vec![sides[1].own.clone()];
    refused(&sides, 0, E::CertificateExpired, |_| {});
}

#[test]
fn a_chain_has_the_ca_and_the_policies_that_the_connection_asks_for() {
    let other = Make::ca("CN=other", 99, "CN=other", 99).make();
    let policy = ironswan_pki::Oid::parse("1.3.6.1.4.1.99999.1").unwrap();
    let with = |trust: Trust| {
        let mut sides = both();
        sides[0].loaded.push((other.clone(), true));
        sides[0].trust = trust;
        sides
    };
    for authorities in [vec![root()], vec![link()], vec![other.clone(), root()]] {
        let trust = Trust { authorities, ..Trust::default() };
        pair(with(trust), |_| {}).establish(1).unwrap();
    }
    for ca_id in ["CN=link", "CN=root", "CN=*"] {
        let trust = Trust { ca_id: IdPattern::parse(ca_id).unwrap(), ..Trust::default() };
        pair(with(trust), |_| {}).establish(1).unwrap();
    }
    for (trust, entry) in [
        (Trust { authorities: vec![other.clone()], ..Trust::default() }, E::UnknownIssuer),
        (Trust { ca_id: IdPattern::parse("CN=g2.example").unwrap(), ..Trust::default() }, E::OtherAuthority),
        (Trust { policies: vec![policy.clone()], ..Trust::default() }, E::CertificateNotAllowed),
    ] {
        refused(&with(trust), 0, entry, |_| {});
    }
    // A link of another CA, so the chain is good and has it not.
    let strange = Make::ca("CN=strange", 98, "CN=root", ROOT).make();
    refused(&with(Trust { authorities: vec![strange], ..Trust::default() }), 0, E::OtherAuthority, |_| {});
    // The policy stands in all certificates below the root.
    let oid = [0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 1];
    let mut sides = with(Trust { policies: vec![policy], ..Trust::default() });
    sides[1].own = end(2).policy(&oid).make();
    let link = Make::ca("CN=link", LINK, "CN=root", ROOT).policy(&oid).make();
    sides.iter_mut().for_each(|side| side.loaded[0] = (link.clone(), false));
    pair(sides, |_| {}).establish(0).unwrap();
}

#[test]
fn an_end_that_issues_certificates_is_refused() {
    let mut sides = both();
    // The certificate of g3 has signed that of g2, and g3 is no CA.
    let middle = end(3).make();
    sides[1].own = Make::end("CN=g2.example", 2, "CN=g3.example", 3).names(&["g2.example"]).make();
    let claim = judged(&sides[0], &[sides[1].own.der(), middle.der(), link().der()]);
    assert_eq!(claim, Some(E::CertificateNotAllowed));
}

/// The entry with which a gateway refuses these certificates of `g2.example`.
fn judged(side: &Side, sent: &[&[u8]]) -> Option<E> {
    let mut all = Certificates::default();
    side.loaded.iter().for_each(|(c, trusted)| all.insert(c.clone(), *trusted));
    let sent: Vec<Vec<u8>> = sent.iter().map(|der| der.to_vec()).collect();
    let peer = Identity::parse("g2.example").unwrap();
    let legacy = ironswan_crypto::sign::Legacy::default();
    all.judge(&side.trust, &sent, &peer, legacy, WALL).err().map(|why| why.entry())
}

#[test]
fn certificates_that_lie_are_refused_wherever_they_are_cut_or_changed() {
    let side = side(1);
    let (own, link) = (end(2).make(), link());
    assert_eq!(judged(&side, &[own.der(), link.der()]), None);
    for len in 0..own.der().len() {
        assert!(judged(&side, &[&own.der()[..len], link.der()]).is_some(), "{len}");
    }
    for at in 0..own.der().len() {
        let mut changed = own.der().to_vec();
        changed[at] ^= 0x01;
        assert!(judged(&side, &[&changed, link.der()]).is_some(), "byte {at}");
    }
    // Bytes beside the chain do no harm.
    assert_eq!(judged(&side, &[own.der(), b"rubbish", link.der()]), None);
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    for from in [0, 1] {
        let mut sides = both();
        // A chain of thirteen.
        let name = |n: u8| if n == 0 { "CN=root".to_owned() } else { format!("CN=link {n}") };
        for n in 1..13 {
            let link = Make::ca(&name(n), LINK + n, &name(n - 1), if n == 1 { ROOT } else { LINK + n - 1 });
            sides[1].loaded.push((link.make(), false));
        }
        sides[1].own = Make::end("CN=g2.example", 2, &name(12), LINK + 12).names(&["g2.example"]).make();
        let mut w = pair(sides, |_| {});
        assert!(w.establish(from).is_err());
        assert!(has(&w, 0, E::ChainLimit), "the peer sends ten: {:?}", w.nodes[0].failures);
    }
}

#[test]
fn a_ca_that_is_unloaded_while_a_chain_is_judged_lets_nobody_in() {
    for from in [0, 1] {
        let mut w = pair(both(), |_| {});
        let judges = |w: &World| {
            let held = w.nodes[1].held.as_ref();
            held.is_some_and(|held| held.iter().any(|(_, request)| matches!(request, Request::Certify(_))))
        };
        w.nodes[1].held = Some(Vec::new());
        w.initiate(from);
        for _ in 0..8 {
            w.run_until(S, |w| w.nodes[1].held.as_ref().is_some_and(|held| !held.is_empty()));
            if judges(&w) {
                break;
            }
            let now = w.now();
            w.nodes[1].release(now);
            w.nodes[1].held = Some(Vec::new());
        }
        assert!(judges(&w), "node {from} initiates");
        w.nodes[1].endpoint.change_certificates(|all| assert!(all.remove(&root())));
        let now = w.now();
        w.nodes[1].release(now);
        w.run(60 * S);
        assert!(has(&w, 1, E::UnknownIssuer), "{:?}", w.nodes[1].failures);
        w.assert_empty();
    }
}

#[test]
fn a_signature_by_another_key_than_the_certificates_is_refused() {
    let mut w = pair(both(), |_| {});
    w.nodes[1].held = Some(Vec::new());
    w.initiate(0);
    let mut claim: Option<CertificateClaim> = None;
    for _ in 0..8 {
        w.run_until(S, |w| w.nodes[1].held.as_ref().is_some_and(|held| !held.is_empty()));
        let held = w.nodes[1].held.as_ref().unwrap();
        claim = held.iter().find_map(|(_, request)| match request {
            Request::Certify(claim) => Some((**claim).clone()),
            _ => None,
        });
        if claim.is_some() {
            break;
        }
        let now = w.now();
        w.nodes[1].release(now);
        w.nodes[1].held = Some(Vec::new());
    }
    let claim = claim.expect("a claim");
    assert!(claim.judge(WALL).is_ok());
    assert!(matches!(claim.judge(Time(0)), Err(Doubt::Certificate(_))));
    let id = w.nodes[1].held.as_ref().unwrap()[0].0;
    w.nodes[1].held = None;
    let now = w.now();
    let doubt = Doubt::Proof(ironswan_keying::diagnosis::ProofFault::Certified);
    w.nodes[1].endpoint.call(now, |e| e.complete(now, id, Completion::Certified(Err(doubt))));
    w.run(60 * S);
    assert!(has(&w, 1, E::NoProof));
}
