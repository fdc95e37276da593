//! IKE_AUTH by RFC 7296, with a peer that is played by hand: errors beside AUTH and alone,
//! malformed requests, and notifications that count there only.

use ironswan_wire::iana::{ExchangeType, NotifyType, PayloadType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Notify;

use crate::rfc7296_exchanges::*;

#[test]
fn an_ike_auth_response_with_an_error_beside_auth_gives_an_ike_sa_without_child() {
    for kind in [NotifyType::NO_PROPOSAL_CHOSEN.0, NotifyType::TS_UNACCEPTABLE.0, 34, 36, 37, 8_191] {
        let (mut w, mut f, mut answer) = at_ike_auth(6, 1);
        answer.push(notify(kind));
        w.inject(b(), a(), f.message(false, ExchangeType::IKE_AUTH, true, 1, &answer));
        w.run(100 * MS);
        let sas = w.up(0);
        assert_eq!((sas.len(), sas[0].children.len()), (1, 0), "{kind}");
        assert!(w.nodes[0].engine.inbound.is_empty());
    }
}

#[test]
fn three_errors_alone_mean_that_ike_auth_has_made_nothing_and_auth_beside_them_does_not_help() {
    for kind in [
        NotifyType::AUTHENTICATION_FAILED,
        NotifyType::INVALID_SYNTAX,
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
    ] {
        for whole in [false, true] {
            let (mut w, mut f, mut answer) = at_ike_auth(7, 1);
            if !whole {
                answer.clear();
            }
            answer.push(notify(kind.0));
            w.inject(b(), a(), f.message(false, ExchangeType::IKE_AUTH, true, 1, &answer));
            w.run(100 * MS);
            assert!(w.nodes[0].sas(w.now()).is_empty(), "{kind}, with AUTH: {whole}");
        }
    }
}

#[test]
fn an_ike_auth_request_that_is_malformed_is_rejected_whole() {
    let sent = |without: Option<PayloadType>, extra: Option<Payload>| {
        let (mut w, mut f, mut request) = at_ike_auth(8, 0);
        request.retain(|p| Some(p.kind()) != without);
        request.extend(extra);
        let bytes = f.message(true, ExchangeType::IKE_AUTH, false, 1, &request);
        let answer = answer_to(&mut w, &f, 1, bytes).expect("an answer");
        (answer, w.nodes[1].sas(w.now()).len(), w.nodes[1].engine.inbound.len())
    };
    for missing in [PayloadType::IDI, PayloadType::SA, PayloadType::TSI, PayloadType::TSR] {
        let (answer, ike_sas, children) = sent(Some(missing), None);
        assert_eq!(answer, [notify(NotifyType::INVALID_SYNTAX.0)], "without {missing}");
        assert_eq!((ike_sas, children), (0, 0), "without {missing}");
    }
    let critical = Payload::Other { kind: PayloadType(200), critical: true, body: Vec::new() };
    let (answer, ike_sas, children) = sent(None, Some(critical));
    let unsupported = Notify::new(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, [200]);
    assert_eq!(answer, [Payload::Notify(unsupported)]);
    assert_eq!((ike_sas, children), (0, 0), "no IKE_SA is made");
    // And as it was, it would have been good.
    let (answer, ike_sas, children) = sent(None, None);
    assert_eq!((kinds(&answer), ike_sas, children), (Vec::new(), 1, 1));
}

#[test]
fn what_the_initiator_says_right_after_ike_auth_may_undo_it() {
    let unsupported = notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD.0);
    let (mut w, mut f) = up(9);
    assert_eq!(ask(&mut w, &mut f, INFO, 2, std::slice::from_ref(&unsupported)).unwrap(), []);
    assert!(w.nodes[1].sas(w.now()).is_empty());
    // Later it is an error that a request reports, which says nothing.
    let (mut w, mut f) = up(10);
    assert_eq!(ask(&mut w, &mut f, INFO, 2, &[]).unwrap(), []);
    assert_eq!(ask(&mut w, &mut f, INFO, 3, &[unsupported]).unwrap(), []);
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn initial_contact_counts_in_ike_auth_only() {
    let (mut w, mut f) = up(11);
    // A second IKE_SA between the same two, which INITIAL_CONTACT on the first would destroy.
    let now = w.now();
    let sent = ask(&mut w, &mut f, INFO, 2, &[notify(NotifyType::INITIAL_CONTACT.0)]);
    assert_eq!(sent.unwrap(), []);
    let request = [vec![notify(NotifyType::INITIAL_CONTACT.0)], agreement(&w, 0xc111_1111)].concat();
    assert!(ask(&mut w, &mut f, CREATE, 3, &request).is_some());
    assert_eq!(w.nodes[1].sas(now).len(), 1);
    assert_eq!(w.up(1)[0].children.len(), 2, "the first child stays");
}
