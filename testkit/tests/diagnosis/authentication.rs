//! Cases of the area authentication.

use ironswan_config::keyfiles;
use ironswan_keying::diagnosis::AuthenticationEntry as E;
use ironswan_keying::{
    AddrSpec, Auth, Childless, Connection, Diagnosis, Limits, LocalRound, PrivateKey, RemoteRound,
    Signatures, Unique,
};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Id;
use ironswan_wire::secret::Secret;

use crate::story::{MS, Pair, S, a, b, failures, third, tried};

/// Node 0 initiates with these connections. Both have a shared key for anybody.
fn with_any_key(tweak: impl FnOnce(&mut [Connection; 2])) -> Vec<Diagnosis> {
    let mut w = World::pair(1, tweak);
    for node in &mut w.nodes {
        node.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
    }
    let _ = w.establish(0);
    failures(&w)
}

/// Node 0 has another secret.
fn with_another_secret() -> Vec<Diagnosis> {
    let mut w = World::pair(1, |_| {});
    let key = config::psk("ike-gw", "another secret", &["g1.example", "g2.example"]);
    w.nodes[0].endpoint.load_shared(key);
    let _ = w.establish(0);
    failures(&w)
}

/// Two gateways of which node 0 has sent IKE_AUTH, which was lost.
fn half_open() -> World {
    let mut w = World::pair(1, |_| {});
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_AUTH {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(100 * MS);
    w
}

fn key() -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![1; 32])).expect("a key")
}

/// Node 1 signs by these rules, with this private key.
fn signed_by(key: PrivateKey, rules: &str, tweak: impl FnOnce(&mut [Connection; 2])) -> Vec<Diagnosis> {
    let mut w = World::pair(1, |c| {
        let rules = Signatures::parse(rules).expect("rules");
        let auth = Auth::Pubkey { keys: vec![key.public().clone()], rules };
        (c[1].local_auth, c[0].remote_auth) = (auth.clone(), auth);
        tweak(c);
    });
    w.nodes[1].endpoint.load_private(key);
    let _ = w.establish(0);
    failures(&w)
}

/// Both gateways name these PPKs and have them, by identifier and number; one of them requires it.
fn with_ppks(
    keys: [Option<(&str, u8)>; 2],
    requires: usize,
    tweak: impl FnOnce(&mut [Connection; 2]),
) -> Vec<Diagnosis> {
    let mut w = World::pair(1, |c| {
        for (c, key) in c.iter_mut().zip(keys) {
            c.ppk_id = key.and_then(|(id, _)| Identity::parse(id));
        }
        c[requires].ppk_required = true;
        tweak(c);
    });
    for (node, key) in w.nodes.iter_mut().zip(keys) {
        key.into_iter().for_each(|(id, byte)| node.endpoint.load_ppk(config::ppk(id, byte)));
    }
    let _ = w.establish(0);
    failures(&w)
}

/// Another gateway with the identity of node 0 initiates beside it.
fn beside(limits: Limits, unique: Unique) -> Vec<Diagnosis> {
    let mut pair = Pair::limited(limits, |c| {
        c[1].remote_addrs = vec![AddrSpec::Any];
        // Without INITIAL_CONTACT, which would end the other one.
        (c[0].unique, c[1].unique) = (Unique::Never, unique);
    });
    third(&mut pair.w, "198.51.100.7", "g1.example");
    let _ = pair.w.establish(2);
    failures(&pair.w)
}

/// Makes the entry happen, and returns every failure.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    match entry {
        E::NoConnection => tried(|c| c[1].remote_addrs = vec![AddrSpec::Host(config::ip("192.0.2.77"))]),
        E::NoPeer => tried(|c| c[1].remote_id = IdPattern::parse("g9.example").expect("an identity")),
        E::Chosen => {
            // Its address means `gw`, and its identity `other`.
            let mut w = World::pair(1, |c| c[0].local_id = Identity::parse("g9.example"));
            let (now, mut other) = (w.now(), w.nodes[1].connection("gw"));
            other.name = "other".to_owned();
            other.remote_addrs = vec![AddrSpec::Any];
            other.remote_id = IdPattern::parse("g9.example").expect("an identity");
            w.nodes[1].endpoint.load_connection(now, other);
            for node in &mut w.nodes {
                node.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
            }
            w.establish(0).expect("an IKE_SA");
            failures(&w)
        }
        // The initiator sends no IDr, which would settle it.
        E::OtherPeer => {
            with_any_key(|c| c[0].remote_id = IdPattern::parse("*.elsewhere").expect("an identity"))
        }
        E::OurIdentity => with_any_key(|c| {
            c[1].local_id = Identity::parse("g1.example");
            c.iter_mut().for_each(|c| c.remote_id = IdPattern::Any);
        }),
        E::NoProof | E::Rejected => with_another_secret(),
        E::Eap => {
            let mut w = half_open();
            let mut f = Forger::newest(&w.nodes[0]);
            let id = Id::new(Identity::parse("g1.example").expect("an identity"));
            let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 1, &[Payload::IdI(id)]);
            w.inject(a(), b(), bytes);
            w.run(100 * MS);
            failures(&w)
        }
        E::CannotSign => {
            // Hash and salt of 64 bytes each do not fit into 1,024 bits (RFC 8017 section 9.1.1).
            let short = keyfiles::private_key(include_bytes!("short_rsa.pem")).expect("a key");
            signed_by(short, "rsa/pss-1024-sha512", |_| {})
        }
        // The initiator does not ask for signatures, and so announces no hash algorithm.
        E::NotVerified => signed_by(key(), "pubkey", |c| c[0].remote_auth = Auth::Psk),
        E::PeerLacksRounds => tried(|c| c[0].local_rounds = vec![LocalRound { auth: Auth::Psk, id: None }]),
        E::OtherRounds => tried(|c| {
            let id = IdPattern::Any;
            c[0].local_rounds = vec![LocalRound { auth: Auth::Psk, id: None }];
            c[1].local_rounds = vec![LocalRound { auth: Auth::Psk, id: None }];
            c[0].remote_rounds = vec![RemoteRound { auth: Auth::Psk, id }];
        }),
        E::PeerLacksPpk => with_ppks([Some(("one", 1)), None], 0, |_| {}),
        E::OtherPpk => with_ppks([Some(("one", 1)), Some(("two", 1))], 1, |_| {}),
        E::WrongPpk => with_ppks([Some(("one", 1)), Some(("one", 2))], 1, |_| {}),
        E::PpkDemanded => {
            with_ppks([Some(("one", 1)), Some(("two", 1))], 0, |c| c[0].ppk_intermediate = false)
        }
        E::NotInTime => {
            let mut w = half_open();
            w.run(40 * S);
            failures(&w)
        }
        E::Childless => tried(|c| c[1].childless = Childless::Force),
        E::ChildNeeded => {
            let mut w = World::pair(1, |c| c[0].childless = Childless::Never);
            let now = w.now();
            w.nodes[0].endpoint.initiate(now, Some("gw"), None).expect("an attempt");
            w.run(S);
            failures(&w)
        }
        E::KeptOther => beside(Limits::default(), Unique::Keep),
        E::TooManyCertificates
        | E::NoCertificate
        | E::CertificateOfOther
        | E::CertificateNotNamed
        | E::UnknownIssuer
        | E::OtherAuthority
        | E::CertificateExpired
        | E::CertificateNotYetValid
        | E::CertificateRevoked
        | E::NoStatus
        | E::CertificateNotAllowed
        | E::CertificateUnusable
        | E::ChainLimit => crate::certificates::happens(entry),
        E::IkeLimit => beside(Limits { ike_sa_max_per_id: 1, ..Limits::default() }, Unique::Never),
    }
}

#[test]
fn connections_that_a_peer_could_have_belonged_to_are_named_with_the_reason() {
    let found = tried(|c| c[1].local_id = Identity::parse("g7.example"));
    let why = found.iter().map(Diagnosis::sentence).find(|s| s.contains("configured for these addresses"));
    let why = why.expect("a sentence");
    assert!(why.ends_with("gw: g7.example...g1.example (another identity of ours)"), "{why}");
}

#[test]
fn a_peer_that_belongs_to_another_connection_than_its_address_means_is_told_with_the_reason() {
    let found = happens(E::Chosen);
    let told = found.iter().find(|d| d.entry().name() == "connection-chosen").expect("an explanation");
    let why = "'g9.example' belongs to other, and not to gw: g2.example...g1.example (another peer)";
    assert_eq!(told.sentence(), why);
    // A peer that belongs where its address points has none.
    assert!(tried(|_| {}).iter().all(|d| d.entry().name() != "connection-chosen"));
}
