//! Cases of the area key exchange.

use ironswan_ike::Options;
use ironswan_keying::diagnosis::KeyExchangeEntry as E;
use ironswan_keying::{Childless, Diagnosis, Limits};
use ironswan_testkit::{World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, PrfId, ProtocolId};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify};
use ironswan_wire::ike::{Flags, Header, Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::secret::Secret;

use crate::story::{MS, Pair, S, a, b, failures, ike_with, tried};

/// CREATE_CHILD_SA with this KE payload, where the children have X25519.
fn with_ke(ke: Option<Ke>) -> Vec<Diagnosis> {
    let x25519 = config::esp_proposal(&[KeId::CURVE_25519]);
    let mut pair = Pair::up(|c| c.iter_mut().for_each(|c| c.children[0].proposals = vec![x25519.clone()]));
    pair.ask_child(|p| {
        p[0] = Payload::Sa(vec![Proposal { spi: vec![0xc1, 1, 1, 1], ..x25519 }]);
        p.splice(2..2, ke.map(Payload::Ke));
    })
}

/// Makes the entry happen, and returns every failure.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    match entry {
        E::NoProposal => tried(|c| ike_with(&mut c[0], KeId::ECP_384)),
        E::AhThroughNat => tried(|c| {
            c[0].encap = true;
            c.iter_mut().for_each(|c| c.children[0].proposals = vec![config::ah_proposal(&[])]);
        }),
        E::OtherMethod => tried(|c| {
            c[0].proposals = vec![config::ike_proposal(&[KeId::ECP_256, KeId::CURVE_25519])];
        }),
        // The point of order 1: its shared secret is zero (RFC 8031 section 2).
        E::BadValue => with_ke(Some(Ke { group: KeId::CURVE_25519, data: vec![0; 32] })),
        E::ShortNonce => {
            let sha512 = Transform::Prf(PrfId::HMAC_SHA2_512);
            let mut pair = Pair::up(|c| c.iter_mut().for_each(|c| c.proposals[0].transforms[1] = sha512));
            pair.ask_child(|p| p[1] = Payload::Nonce(Nonce(vec![1; 16])))
        }
        E::MissingPayload => Pair::up(|_| {}).ask_child(|p| p.truncate(3)),
        E::NeverOffered => {
            let mut pair = Pair::up(|_| {});
            let mut answer = pair.child(0xc222_2222);
            answer[0] = Payload::Sa(vec![Proposal { spi: vec![0xc2, 2, 2, 2], ..config::ah_proposal(&[]) }]);
            pair.answer(ExchangeType::CREATE_CHILD_SA, |w| _ = w.rekey_child(0), &answer)
        }
        E::BadSpi => {
            let mut pair = Pair::up(|_| {});
            let in_use = pair.w.child(0).spi_in;
            pair.ask_child(|p| {
                let spi = in_use.0.to_be_bytes().to_vec();
                p[0] = Payload::Sa(vec![Proposal { spi, ..config::esp_proposal(&[]) }]);
            })
        }
        E::Unreadable => {
            let mut pair = Pair::up(|_| {});
            let (exchange, junk) = (ExchangeType::INFORMATIONAL, [0, 0, 0, 3]);
            let bytes = pair.f.raw(true, exchange, false, 2, PayloadType::NONCE, &junk);
            pair.w.inject(a(), b(), bytes);
            pair.w.run(10 * MS);
            failures(&pair.w)
        }
        E::Forged => {
            let mut w = World::pair(1, |_| {});
            w.initiate(0);
            let spi_i = w.nodes[0].sas(w.now())[0].spi_i;
            let payloads = vec![
                Payload::Sa(vec![config::ike_proposal(&[KeId::CURVE_25519])]),
                Payload::Ke(Ke { group: KeId::CURVE_25519, data: vec![0; 32] }),
                Payload::Nonce(Nonce(vec![6; 32])),
            ];
            let header = Header::new(spi_i, 7, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0);
            w.inject(b(), a(), Message { header, payloads }.emit().expect("a message"));
            w.run(S);
            failures(&w)
        }
        E::BadVersion => {
            let mut pair = Pair::up(|_| {});
            let mut bytes = pair.w.net.log[0].1.payload.clone();
            bytes[17] = 0x10;
            pair.w.inject(a(), b(), bytes);
            pair.w.run(S);
            failures(&pair.w)
        }
        E::NoSuchChild => Pair::up(|_| {}).ask_child(|p| {
            p.insert(0, Payload::Notify(Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, 0xdead_beef)));
        }),
        E::OutOfPlace => Pair::up(|_| {}).ask(ExchangeType::IKE_AUTH, &[]),
        E::PeerError => {
            let mut pair = Pair::up(|_| {});
            let refusal = [Payload::Notify(Notify::new(NotifyType::NO_ADDITIONAL_SAS, []))];
            pair.answer(ExchangeType::CREATE_CHILD_SA, |w| _ = w.rekey_child(0), &refusal)
        }
        E::RekeyRefused => {
            // PFS at one side alone: the first CHILD_SA is made without.
            let mut pair = Pair::up(|c| {
                c[0].children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
                c[1].children[0].proposals = vec![config::esp_proposal(&[KeId::ECP_384])];
            });
            pair.w.rekey_child(0);
            pair.w.run(S);
            failures(&pair.w)
        }
        E::PeerCannotRead => {
            let error = [Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, []))];
            let mut pair = Pair::up(|_| {});
            pair.answer(ExchangeType::CREATE_CHILD_SA, |w| _ = w.rekey_child(0), &error)
        }
        E::MessageTooLong => {
            let mut pair = Pair::up(|_| {});
            for n in 1..=11 {
                let (exchange, first) = (ExchangeType::INFORMATIONAL, PayloadType::NOTIFY);
                let bytes = pair.f.fragment(true, exchange, pair.mid, (n, 11), first, &[0; 1_000]);
                pair.w.inject(a(), b(), bytes);
            }
            pair.w.run(100 * MS);
            failures(&pair.w)
        }
        E::PeerBusy => {
            let busy = [Payload::Notify(Notify::new(NotifyType::TEMPORARY_FAILURE, []))];
            let mut pair = Pair::up(|_| {});
            pair.answer(ExchangeType::CREATE_CHILD_SA, |w| _ = w.rekey_child(0), &busy);
            // Node 0 asks again by itself, until it has had enough.
            let asked = |w: &World| {
                let requests = w.net.log.iter().filter(|(s, _)| s.node == 0 && !s.response);
                requests.map(|(s, _)| s.mid).max().unwrap_or_default()
            };
            while pair.w.run_until(20 * S, |w| asked(w) > pair.mid) {
                pair.mid = asked(&pair.w);
                let bytes = pair.f.message(false, ExchangeType::CREATE_CHILD_SA, true, pair.mid, &busy);
                pair.w.inject(b(), a(), bytes);
            }
            failures(&pair.w)
        }
        E::CannotSend => tried(|c| {
            let transforms = (0..255).map(|n| Transform::Ke(KeId(1_000 + n)));
            let long: Vec<_> = config::ike_proposal(&[KeId::CURVE_25519])
                .transforms
                .into_iter()
                .chain(transforms.take(250))
                .collect();
            // Of 255 proposals each has another PRF first, so that none is like another.
            c[0].proposals = (1..=255)
                .map(|n| {
                    let mut transforms = long.clone();
                    transforms[1] = Transform::Prf(PrfId(2_000 + u16::from(n)));
                    Proposal { number: n, transforms, ..config::ike_proposal(&[]) }
                })
                .collect();
        }),
        E::NotComputed => {
            let mut w = World::pair(1, |_| {});
            w.nodes[0].no_keys = true;
            let _ = w.establish(0);
            failures(&w)
        }
        E::PeerDeleted => {
            let mut pair = Pair::up(|_| {});
            pair.w.terminate(1, false);
            pair.w.run(S);
            failures(&pair.w)
        }
        E::PeerRestarted => {
            let mut pair = Pair::up(|c| c[1].childless = Childless::Allow);
            let conn = pair.w.nodes[0].connection("gw");
            pair.w.restart(0, 77, conn);
            // It comes back without the child, which stays down at node 1.
            let now = pair.w.now();
            pair.w.nodes[0].endpoint.initiate(now, Some("gw"), None).expect("an attempt");
            pair.w.run(S);
            failures(&pair.w)
        }
        E::PeerCrashed => {
            let options = Options { take_qcd_tokens: true, ..Options::default() };
            let ends = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
            let mut w = World::pair_with(1, ends, Limits::default(), options, |_| {});
            let token = |w: &mut World| {
                let now = w.now();
                w.nodes[1].endpoint.call(now, |e| e.make_qcd_tokens(Secret::new(vec![7; 32])));
            };
            token(&mut w);
            w.establish(0).expect("an IKE_SA");
            let conn = w.nodes[1].connection("gw");
            w.restart(1, 77, conn);
            token(&mut w);
            w.rekey_child(0);
            w.run(S);
            failures(&w)
        }
        E::LifetimeOver => {
            let mut pair = Pair::up(|c| c[0].children[0].life_time = 60 * S);
            pair.w.run(70 * S);
            failures(&pair.w)
        }
        E::ShortAuthLifetime => {
            let mut pair = Pair::up(|_| {});
            let notify = Payload::Notify(Notify::new(NotifyType::AUTH_LIFETIME, [0, 0, 0, 1]));
            let bytes = pair.f.message(false, ExchangeType::INFORMATIONAL, false, 0, &[notify]);
            pair.w.inject(b(), a(), bytes);
            pair.w.run(S);
            failures(&pair.w)
        }
        E::NotDone => {
            let mut w = World::pair(1, |_| {});
            w.net.mute.insert(1);
            w.initiate(0);
            w.run(S);
            w.terminate(0, false);
            w.run(S);
            failures(&w)
        }
        E::ChildLimit => {
            let limits = Limits { child_sa_max: 1, ..Limits::default() };
            Pair::limited(limits, |_| {}).ask_child(|_| {})
        }
    }
}

#[test]
fn a_method_that_is_missing_is_asked_for() {
    let found = with_ke(None);
    assert!(found.iter().any(|d| d.sentence() == "key exchange method CURVE_25519 is required"), "{found:?}");
}
