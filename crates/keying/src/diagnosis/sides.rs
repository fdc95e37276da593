//! Values of both sides beside each other, and the keys of the configuration that a diagnosis is
//! about.

use std::fmt::Display;

use ironswan_crypto::sign::Hash;
use ironswan_wire::iana::{NotifyType, ProtocolId, TransformType};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::selector::TrafficSelector;

use super::negotiation::{Nearest, list_selectors};
use super::shown::{cut, shorten};
use super::{Authentication, Diagnosis, KeyExchange, Pair, ProofFault, Selectors};

/// One thing that both sides have, and the value of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Side {
    /// The thing: `proposals: ENCR`, `remote.id`.
    pub what: String,
    /// Our value, as configured.
    pub ours: String,
    /// The peer's value, as received.
    pub theirs: String,
    /// The two do not fit each other.
    pub differs: bool,
}

impl Side {
    fn differing(what: &str, ours: impl Display, theirs: impl Display) -> Self {
        Self { what: what.to_owned(), ours: cut(ours), theirs: cut(theirs), differs: true }
    }
}

impl Diagnosis {
    /// The values of both sides beside each other, where a diagnosis is about such: what fits and
    /// what does not.
    pub fn sides(&self) -> Vec<Side> {
        match self {
            Self::KeyExchange(KeyExchange::NoProposal { received, configured, nearest, .. }) => match nearest
            {
                Some(nearest) => transforms(nearest),
                None => vec![Side::differing("proposals", list(configured), list(received))],
            },
            Self::KeyExchange(KeyExchange::OtherMethod { received: Some(received), wanted }) => {
                vec![Side::differing("key exchange", wanted, received)]
            }
            Self::KeyExchange(KeyExchange::PeerError { proposed, selectors, .. }) => {
                let ours = |what: &str, ours: String| Side {
                    what: what.to_owned(),
                    ours,
                    theirs: "not told".to_owned(),
                    differs: false,
                };
                let proposals = (!proposed.is_empty()).then(|| ours("proposals", list(proposed)));
                let selectors = selectors.as_ref().map(|pair| ours("selectors", cut(pair)));
                proposals.into_iter().chain(selectors).collect()
            }
            Self::Selectors(Selectors::Unacceptable { asked, configured }) => {
                configured.iter().flat_map(|(child, ours)| selectors(Some(child), ours, asked)).collect()
            }
            Self::Selectors(Selectors::Narrows { asked, child, in_use }) => {
                selectors(Some(child), in_use, asked)
            }
            Self::Selectors(Selectors::BadAnswer { answered, asked, .. }) => selectors(None, asked, answered),
            Self::Authentication(of) => authentication(of),
            _ => Vec::new(),
        }
    }
}

impl Diagnosis {
    /// The keys of the configuration that this is about, or that may be the cause, as one writes
    /// them in a connection: `remote_addrs`, `remote.id`. Those of a child begin with `children.`.
    pub fn keys(&self) -> &'static [&'static str] {
        use super::Path as P;
        use KeyExchange as K;
        match self {
            Self::KeyExchange(K::NoProposal { configured, .. }) => {
                match configured.first().map(|p| p.protocol) {
                    Some(ProtocolId::ESP) => &["children.esp_proposals"],
                    Some(ProtocolId::AH) => &["children.ah_proposals"],
                    _ => &["proposals"],
                }
            }
            Self::KeyExchange(K::PeerError { kind, proposed, .. }) => {
                match (*kind, proposed.first().map(|p| p.protocol)) {
                    (NotifyType::NO_PROPOSAL_CHOSEN, Some(ProtocolId::ESP)) => &["children.esp_proposals"],
                    (NotifyType::NO_PROPOSAL_CHOSEN, Some(ProtocolId::AH)) => &["children.ah_proposals"],
                    (NotifyType::NO_PROPOSAL_CHOSEN, _) => &["proposals"],
                    (NotifyType::TS_UNACCEPTABLE, _) => &["children.local_ts", "children.remote_ts"],
                    _ => &[],
                }
            }
            Self::KeyExchange(K::AhThroughNat) => &["children.ah_proposals"],
            Self::Selectors(of) => match of {
                Selectors::NoTransport { .. } => &["children.mode"],
                Selectors::NoTrap { .. } => &["children.start_action"],
                _ => &["children.local_ts", "children.remote_ts"],
            },
            Self::Authentication(of) => match of {
                Authentication::OtherPeer { .. }
                | Authentication::NoPeer { .. }
                | Authentication::CertificateOfOther { .. }
                | Authentication::OurIdentity { .. } => &["remote.id"],
                Authentication::NoConnection { .. } => &["remote_addrs"],
                Authentication::Rejected { .. } => &["local.id", "local.auth"],
                Authentication::CannotSign { .. } | Authentication::NotVerified { .. } => &["local.auth"],
                Authentication::OtherPpk { .. }
                | Authentication::WrongPpk { .. }
                | Authentication::PpkDemanded { .. } => &["ppk_id"],
                Authentication::PeerLacksPpk { .. } => &["ppk_required"],
                _ if of.is_unproved() => &["remote.auth"],
                _ => &[],
            },
            Self::Path(P::NoLocalAddress { .. } | P::AddressGone { .. }) => &["local_addrs"],
            Self::Path(_) => &["remote_addrs"],
            _ => &[],
        }
    }
}

fn authentication(of: &Authentication) -> Vec<Side> {
    match of {
        Authentication::OtherPeer { peer, required } => vec![Side::differing("remote.id", required, peer)],
        Authentication::NoPeer { asked, peer, candidates, .. } => candidates
            .iter()
            .flat_map(|candidate| {
                use super::Misfit;
                let fits = |misfit| candidate.misfit != misfit;
                let name = &candidate.name;
                let theirs = Side {
                    differs: !fits(Misfit::Peer),
                    ..Side::differing(&format!("{name}: remote.id"), &candidate.peer, peer)
                };
                let ours = asked.as_ref().map(|asked| Side {
                    differs: !fits(Misfit::Ours),
                    ..Side::differing(&format!("{name}: local.id"), &candidate.ours, asked)
                });
                std::iter::once(theirs).chain(ours)
            })
            .collect(),
        Authentication::NoProof { peer, ours, method, fault, .. } => {
            let mut all = vec![Side { differs: false, ..Side::differing("identities", ours, peer) }];
            if let ProofFault::Method(configured) = &**fault {
                all.push(Side::differing("remote.auth", configured, method));
            }
            all
        }
        Authentication::OtherRounds { theirs, configured, .. } => {
            vec![Side::differing("rounds", configured, theirs)]
        }
        Authentication::OtherPpk { theirs, ours } => {
            let ours = ours.as_ref().map_or("-".to_owned(), cut);
            vec![Side::differing("ppk_id", ours, theirs)]
        }
        Authentication::NotVerified { ours, peer, .. } => {
            let names =
                |hashes: &[Hash]| hashes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let theirs = peer.as_deref().map_or("none announced".to_owned(), names);
            vec![Side::differing("hashes of signatures", names(ours), theirs)]
        }
        _ => Vec::new(),
    }
}

fn list(proposals: &[Proposal]) -> String {
    shorten(super::list_proposals(proposals))
}

/// Both sides' selectors, the peer's seen from here.
fn selectors(child: Option<&String>, ours: &Pair, theirs: &Pair) -> Vec<Side> {
    let side = |key: &str, ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
        let what = child.map_or(key.to_owned(), |child| format!("{child}: {key}"));
        let differs = ours != theirs;
        let (ours, theirs) = (shorten(list_selectors(ours)), shorten(list_selectors(theirs)));
        Side { what, ours, theirs, differs }
    };
    vec![side("local_ts", &ours.local, &theirs.local), side("remote_ts", &ours.remote, &theirs.remote)]
}

/// One line for each type of transform that one of the two proposals has.
fn transforms(nearest: &Nearest) -> Vec<Side> {
    let Nearest { received, configured, differ } = nearest;
    let mut kinds: Vec<TransformType> = Vec::new();
    for transform in configured.transforms.iter().chain(&received.transforms) {
        if !kinds.contains(&transform.kind()) {
            kinds.push(transform.kind());
        }
    }
    let of = |proposal: &Proposal, kind| {
        let names: Vec<String> = proposal.of_type(kind).map(Transform::to_string).collect();
        if names.is_empty() { "-".to_owned() } else { shorten(names.join("|")) }
    };
    kinds
        .into_iter()
        .map(|kind| Side {
            what: format!("{}: {kind}", configured.protocol),
            ours: of(configured, kind),
            theirs: of(received, kind),
            differs: differ.iter().any(|difference| difference.kind == kind),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ironswan_wire::iana::{EncrId, KeId, PrfId};

    use super::*;
    use crate::diagnosis::{Difference, Path};

    fn proposal(encr: u16, ke: KeId) -> Proposal {
        let transforms = vec![
            Transform::Encr(EncrId::AES_GCM_16, Some(encr)),
            Transform::Prf(PrfId::HMAC_SHA2_256),
            Transform::Ke(ke),
        ];
        Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
    }

    #[test]
    fn values_have_the_names_of_the_fields_and_absent_ones_are_left_out() {
        let why = Diagnosis::from(Path::NoRoute { remote: [192, 0, 2, 1].into() });
        assert_eq!(why.values(), [("remote", "192.0.2.1".to_owned())]);
        let why = Diagnosis::from(Path::NoName { names: vec!["a".into(), "b".into()], why: None });
        assert_eq!(why.values(), [("names", "a, b".to_owned())]);
        let why = Diagnosis::from(Authentication::KeptOther);
        assert_eq!(why.values(), []);
    }

    #[test]
    fn the_nearest_proposals_stand_beside_each_other_transform_by_transform() {
        let (ours, theirs) = (proposal(256, KeId::CURVE_25519), proposal(128, KeId::CURVE_25519));
        let difference = Difference {
            kind: TransformType::ENCR,
            received: vec![theirs.transforms[0]],
            configured: vec![ours.transforms[0]],
        };
        let nearest =
            Nearest { received: theirs.clone(), configured: ours.clone(), differ: vec![difference] };
        let why = Diagnosis::from(KeyExchange::NoProposal {
            received: vec![theirs],
            configured: vec![ours],
            nearest: Some(Box::new(nearest)),
            unsupported: None,
        });
        let sides = why.sides();
        assert_eq!(sides.len(), 3);
        assert_eq!(
            sides[0],
            Side {
                what: format!("IKE: {}", TransformType::ENCR),
                ours: "AES_GCM_16_256".into(),
                theirs: "AES_GCM_16_128".into(),
                differs: true
            }
        );
        assert!(sides[1..].iter().all(|side| !side.differs && side.ours == side.theirs), "{sides:?}");
    }

    #[test]
    fn selectors_of_both_sides_stand_beside_each_other() {
        let net = |n: u8| {
            let range = ironswan_wire::selector::AddrRange::prefix([10, n, 0, 0].into(), 16).unwrap();
            vec![TrafficSelector::addresses(range)]
        };
        let pair = |local, remote| Pair { local: net(local), remote: net(remote) };
        let why = Diagnosis::from(Selectors::Unacceptable {
            asked: pair(1, 3),
            configured: vec![("net".into(), pair(1, 2))],
        });
        let sides = why.sides();
        assert_eq!((sides[0].what.as_str(), sides[0].differs), ("net: local_ts", false));
        assert_eq!((sides[1].what.as_str(), sides[1].differs), ("net: remote_ts", true));
        assert_eq!((sides[1].ours.as_str(), sides[1].theirs.as_str()), ("10.2.0.0/16", "10.3.0.0/16"));
    }
}
