//! The revocation status of a peer's certificates by lists of the web (RFC 5280 section 6.3), in
//! both roles: who is asked, when, and what each answer means by `revocation`.

use std::time::Duration;

use ironswan_crypto::sign::Legacy;
use ironswan_ike::event::{Doubt, Request};
use ironswan_keying::diagnosis::{AuthenticationEntry as E, Entry, ProofFault};
use ironswan_keying::{Auth, Certificates, Inquiry, Kept, Statuses, Trust, Unproven};
use ironswan_pki::Certificate;
use ironswan_pki::fetch::{Place, Places};
use ironswan_pki::revocation::Policy;
use ironswan_testkit::certificates::{LINK, Make, ROOT, end, key, link, list, root};
use ironswan_testkit::{WALL, World};
use ironswan_wire::der::{SEQUENCE, emit, explicit};
use ironswan_wire::fetched::FetchFault;
use ironswan_wire::id::Identity;

const S: Duration = Duration::from_secs(1);
const URI: &str = "http://ca.example/link.crl";

/// Adds `cRLDistributionPoints` with these URIs.
fn listed(make: Make, uris: &[&str]) -> Make {
    let names: Vec<u8> = uris.iter().flat_map(|uri| emit(0x86, &[uri.as_bytes()])).collect();
    let point = emit(SEQUENCE, &[&emit(explicit(0), &[&emit(0xa0, &[&names])])]);
    make.with(31, &emit(SEQUENCE, &[&point]))
}

/// Two gateways with certificates. That of node 1 names these places, and node 0 asks with this
/// policy. Node 0 has a list of the root from a file, so that the CA between is known to be good.
fn pair(uris: &[&str], policy: Policy) -> World {
    let own = [end(1).make(), listed(end(2), uris).make()];
    world(&own, policy)
}

fn world(own: &[Certificate; 2], policy: Policy) -> World {
    let mut w = World::pair(78, |c| {
        for (c, own) in c.iter_mut().zip(own) {
            let certificates = vec![own.clone()];
            c.local_auth = Auth::certificate(Trust { certificates, ..Trust::default() });
            c.remote_auth = Auth::certificate(Trust::default());
        }
        c[0].remote_auth = Auth::certificate(Trust { revocation: policy, ..Trust::default() });
    });
    for (node, n) in w.nodes.iter_mut().zip([1, 2]) {
        node.endpoint.unload_shared("ike-gw");
        node.endpoint.load_private(key(n));
        node.endpoint.change_certificates(|all| {
            all.insert(link(), false);
            all.insert(root(), true);
            all.insert_list(list("CN=root", ROOT, &[]));
        });
    }
    w
}

fn answers(w: &mut World, uri: &str, serials: &[u8]) {
    let body = list("CN=link", LINK, serials).der().to_vec();
    w.nodes[0].web.insert(uri.to_owned(), Ok(body));
}

fn has(w: &World, entry: E) -> bool {
    w.nodes[0].failures.iter().any(|why| why.entry() == Entry::Authentication(entry))
}

#[test]
fn a_list_is_fetched_once_and_kept_for_the_next_attempt() {
    for from in [0, 1] {
        let mut w = pair(&[URI], Policy::Strict);
        answers(&mut w, URI, &[9]);
        w.establish(from).unwrap();
        assert_eq!(w.nodes[0].fetched.len(), 1);
        assert!(w.nodes[1].fetched.is_empty(), "the certificate of node 0 names no place");
        w.terminate(from, false);
        w.run(S);
        w.establish(from).unwrap();
        assert_eq!(w.nodes[0].fetched.len(), 1, "the list is kept");
        // Without the list it is fetched again.
        let kept = w.nodes[0].endpoint.statuses();
        assert!(matches!(kept.all()[..], [Kept::List(_)]));
        kept.flush(true, true);
        w.terminate(from, false);
        w.run(S);
        w.establish(from).unwrap();
        assert_eq!(w.nodes[0].fetched.len(), 2);
    }
}

#[test]
fn who_stands_in_the_list_is_refused_by_every_policy() {
    for policy in [Policy::Strict, Policy::IfUri, Policy::Relaxed] {
        for from in [0, 1] {
            let mut w = pair(&[URI], policy);
            answers(&mut w, URI, &[2]);
            assert!(w.establish(from).is_err());
            assert!(has(&w, E::CertificateRevoked), "{policy:?}: {:?}", w.nodes[0].failures);
        }
    }
}

#[test]
fn a_silent_server_costs_five_seconds_and_then_the_policy_decides() {
    for (policy, up) in [(Policy::Strict, false), (Policy::IfUri, false), (Policy::Relaxed, true)] {
        for from in [0, 1] {
            let mut w = pair(&[URI], policy);
            let start = w.now();
            assert_eq!(w.establish(from).is_ok(), up, "{policy:?}, node {from} initiates");
            if up {
                assert!((5 * S..6 * S).contains(&(w.now() - start)), "{:?}", w.now() - start);
                let line = format!("unknown: certificate 0: {URI}: no complete answer within 5.0 s");
                assert!(w.nodes[0].logged(&line), "{:?}", w.nodes[0].log);
                continue;
            }
            let why =
                w.nodes[0].failures.iter().find(|why| why.entry() == Entry::Authentication(E::NoStatus));
            let why = why.unwrap_or_else(|| panic!("{:?}", w.nodes[0].failures));
            assert!(!why.remedy().is_empty());
            assert!(why.details().iter().any(|line| line.contains(URI)), "{:?}", why.details());
        }
    }
}

#[test]
fn without_a_place_only_the_strict_policy_refuses() {
    for (policy, up) in [(Policy::Strict, false), (Policy::IfUri, true), (Policy::Relaxed, true)] {
        let mut w = world(&[end(1).make(), end(2).make()], policy);
        assert_eq!(w.establish(0).is_ok(), up, "{policy:?}");
        assert!(w.nodes[0].fetched.is_empty());
    }
}

#[test]
fn the_next_place_is_asked_when_one_is_of_no_use() {
    let others = ["http://a.example/x", "http://b.example/x", URI];
    let forged = list("CN=link", 99, &[]).der().to_vec();
    for answer in [
        Ok(b"<html>".to_vec()),
        Ok(Vec::new()),
        Ok(forged),
        Ok(list("CN=root", ROOT, &[]).der().to_vec()),
        Err(FetchFault::Status(302)),
        Err(FetchFault::TooLong),
    ] {
        let mut w = pair(&others, Policy::Strict);
        w.nodes[0].web.insert(others[0].to_owned(), answer.clone());
        w.nodes[0].web.insert(others[1].to_owned(), answer);
        answers(&mut w, URI, &[]);
        w.establish(0).unwrap();
        assert_eq!(w.nodes[0].fetched.len(), 3);
    }
    // Two silent servers, two seconds each.
    let mut w = pair(&others, Policy::Strict);
    answers(&mut w, URI, &[]);
    let start = w.now();
    w.establish(0).unwrap();
    assert!((4 * S..6 * S).contains(&(w.now() - start)));
}

#[test]
fn nothing_is_fetched_for_a_chain_that_is_not_trusted_or_a_signature_that_is_wrong() {
    // The link of another CA of the same name.
    let stranger = listed(Make::end("CN=g2.example", 2, "CN=strange", 99).names(&["g2.example"]), &[URI]);
    let mut w = world(&[end(1).make(), stranger.make()], Policy::Relaxed);
    assert!(w.establish(1).is_err());
    assert!(w.nodes[0].fetched.is_empty());
    // A signature that is none by the key of the certificate.
    let mut w = pair(&[URI], Policy::Relaxed);
    w.nodes[0].held = Some(Vec::new());
    w.initiate(1);
    let mut claim = None;
    for _ in 0..8 {
        w.run_until(S, |w| w.nodes[0].held.as_ref().is_some_and(|held| !held.is_empty()));
        let held = w.nodes[0].held.as_ref().unwrap();
        claim = held.iter().find_map(|(_, request)| match request {
            Request::Certify(claim) => Some(claim.clone()),
            _ => None,
        });
        if claim.is_some() {
            break;
        }
        let now = w.now();
        w.nodes[0].release(now);
        w.nodes[0].held = Some(Vec::new());
    }
    let claim = claim.expect("a claim");
    assert!(matches!(claim.judge(WALL), Err(Doubt::Status(_))));
    assert_eq!(claim.with_signature(vec![0; 64]).judge(WALL), Err(Doubt::Proof(ProofFault::Certified)));
}

#[test]
fn files_and_this_machine_are_never_asked() {
    let local = ["file:///etc/passwd", "http://127.0.0.1/a.crl", "ldap://ca.example/"];
    let mut w = pair(&local, Policy::IfUri);
    assert!(w.establish(0).is_err());
    assert!(w.nodes[0].fetched.is_empty());
    let why =
        w.nodes[0].failures.iter().find(|why| why.entry() == Entry::Authentication(E::NoStatus)).unwrap();
    for uri in local {
        assert!(why.details().iter().any(|line| line.contains(uri)), "{uri}: {:?}", why.details());
    }
}

#[test]
fn places_of_the_configuration_are_asked_first_and_count_for_ifuri() {
    let ours = "http://127.0.0.1/link.crl";
    let places = || {
        let place = Place::of_configuration(ours.as_bytes()).unwrap();
        Places { lists: vec![place], ..Places::default() }
    };
    let load = |w: &mut World| {
        w.nodes[0].endpoint.change_certificates(|all| all.insert_places(&link(), places()));
    };
    let asked = |w: &World| -> Vec<String> {
        w.nodes[0].fetched.iter().map(|fetch| fetch.place.uri().to_owned()).collect()
    };
    let mut w = pair(&[URI], Policy::Strict);
    load(&mut w);
    answers(&mut w, URI, &[]);
    w.nodes[0].web.insert(ours.to_owned(), Err(FetchFault::Status(404)));
    w.establish(0).unwrap();
    assert_eq!(asked(&w), [ours, URI]);
    // The certificate names no place, and the configuration names one.
    let mut w = world(&[end(1).make(), end(2).make()], Policy::IfUri);
    load(&mut w);
    w.nodes[0].web.insert(ours.to_owned(), Err(FetchFault::Status(404)));
    assert!(w.establish(0).is_err());
    assert!(has(&w, E::NoStatus));
    answers(&mut w, ours, &[]);
    w.run(60 * S);
    w.establish(0).unwrap();
    w.nodes[0].endpoint.change_certificates(|all| all.remove_places(&link(), &places()));
    w.nodes[0].endpoint.statuses().flush(true, true);
    w.terminate(0, false);
    w.run(S);
    let before = asked(&w).len();
    w.establish(0).unwrap();
    assert_eq!(asked(&w).len(), before, "the place is unloaded");
}

#[test]
fn certificates_that_a_peer_sends_do_not_hide_the_signer_of_a_list() {
    let mut loaded = Certificates::default();
    loaded.insert(link(), false);
    loaded.insert(root(), true);
    // A newer key of the link has signed the list that revokes the peer's certificate; the older
    // key has signed one that names nobody.
    loaded.insert(Make::ca("CN=link", 102, "CN=root", ROOT).make(), false);
    for list in [list("CN=link", 102, &[2]), list("CN=link", LINK, &[]), list("CN=root", ROOT, &[])] {
        loaded.insert_list(list);
    }
    let decoy = |n: u8| Make::ca("CN=link", n, "CN=root", n).make().der().to_vec();
    let decoys: Vec<Vec<u8>> = (110..120).map(decoy).collect();
    let peer = Identity::parse("g2.example").unwrap();
    for decoys in [&[][..], &decoys] {
        let sent = [&[end(2).make().der().to_vec()], decoys].concat();
        let trust = Trust::default();
        let chained = loaded.judge(&trust, &sent, &peer, Legacy::default(), WALL).unwrap();
        let inquiry = Inquiry::new([0; 32]);
        let kept = Statuses::default();
        let status = chained.status(&peer, &loaded, &kept, Policy::Strict, &inquiry, WALL);
        let Err(Unproven::Refused(why)) = status else { panic!("{} decoys: {status:?}", decoys.len()) };
        assert_eq!(why.entry(), E::CertificateRevoked, "{} decoys", decoys.len());
    }
}
