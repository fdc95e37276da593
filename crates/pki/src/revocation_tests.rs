use super::*;
use crate::der::{
    ENUMERATED, GENERALIZED_TIME, INTEGER, NULL, OCTET_STRING, OID, SEQUENCE, UTC_TIME, emit, explicit,
    implicit,
};
use crate::fetch::{Fetch, Place, Places, Refused, wanted};
use crate::ocsp::{self, ResponseFault};
use crate::oid;
use crate::status::Reason;
use crate::testing::{Make, NOW, extension, key, name, signed};
use crate::validate;

fn root() -> Make {
    Make::root("CN=Root", 1)
}

/// The peer's certificate, which names a list and a responder.
fn own() -> Make {
    let uri = |text: &str| emit(0x86, &[text.as_bytes()]);
    let point = emit(SEQUENCE, &[&emit(explicit(0), &[&emit(0xa0, &[&uri("http://ca.example/a.crl")])])]);
    let access = emit(SEQUENCE, &[&emit(OID, &[oid::ACCESS_OCSP]), &uri("http://ca.example/ocsp")]);
    let local = emit(SEQUENCE, &[&emit(OID, &[oid::ACCESS_OCSP]), &uri("http://127.0.0.1/ocsp")]);
    let mut own = Make::own("CN=gw", 3, "CN=Root", 1).with(31, false, &emit(SEQUENCE, &[&point]));
    own.extensions.push(extension(oid::AUTHORITY_INFO, false, &emit(SEQUENCE, &[&local, &access])));
    own
}

fn chain(own: &Make) -> Chain {
    validate(&own.make(), &[], &[root().make()], NOW, &Rules::default()).unwrap()
}

/// A list of the root, by this key, that names these serial numbers.
fn list(by: u8, updates: (&str, &str), serials: &[u8]) -> Crl {
    list_of_key(by, updates, serials, &[])
}

/// The same with extensions.
fn list_of_key(by: u8, updates: (&str, &str), serials: &[u8], extensions: &[Vec<u8>]) -> Crl {
    list_with(by, updates, serials, 1, extensions)
}

/// A list of the root that names the peer's certificate for this reason.
fn list_with_reason(reason: u8) -> Crl {
    list_with(1, FRESH, &[3], reason, &[])
}

fn list_with(by: u8, updates: (&str, &str), serials: &[u8], reason: u8, extensions: &[Vec<u8>]) -> Crl {
    let time = |text: &str| emit(UTC_TIME, &[text.as_bytes()]);
    let reason = extension(&[0x55, 0x1d, 21], false, &emit(ENUMERATED, &[&[reason]]));
    let entry = |serial: &u8| {
        let at = time("191201000000Z");
        emit(SEQUENCE, &[&emit(INTEGER, &[&[*serial]]), &at, &emit(SEQUENCE, &[&reason])])
    };
    let entries: Vec<u8> = serials.iter().flat_map(entry).collect();
    let entries = if entries.is_empty() { entries } else { emit(SEQUENCE, &[&entries]) };
    let algorithm = ironswan_crypto::sign::Scheme::Ed25519.to_der().unwrap();
    let fields =
        [emit(INTEGER, &[&[1]]), algorithm, name("CN=Root"), time(updates.0), time(updates.1), entries];
    let more = match extensions.concat() {
        list if list.is_empty() => list,
        list => emit(explicit(0), &[&emit(SEQUENCE, &[&list])]),
    };
    let body = emit(SEQUENCE, &[&fields.concat(), &more]);
    Crl::from_der(&signed(&body, &key(by), &[])).unwrap()
}

/// Times of a list or response that is valid now.
const FRESH: (&str, &str) = ("191231000000Z", "200201000000Z");

fn judge(
    own: &Make,
    lists: &[Crl],
    responses: &[(Response, Option<Vec<u8>>)],
    policy: Policy,
) -> Result<Standing, Rule> {
    judge_chain(&chain(own), lists, responses, policy)
}

fn judge_chain(
    chain: &Chain,
    lists: &[Crl],
    responses: &[(Response, Option<Vec<u8>>)],
    policy: Policy,
) -> Result<Standing, Rule> {
    let evidence = Evidence { lists, responses, certificates: &[], anchors: &[] };
    check(chain, &evidence, policy, NOW, &Rules::default()).map_err(|fault| fault.rule)
}

fn revoked() -> Rule {
    Rule::Revoked { at: Time(1_575_158_400), reason: Reason(1) }
}

#[test]
fn a_list_says_who_was_revoked_and_until_when_the_others_are_good() {
    let good = list(1, FRESH, &[9, 8]);
    let standing = judge(&own(), &[good], &[], Policy::Strict).unwrap();
    assert_eq!(standing.until.unwrap().to_string(), "2020-02-01 00:00:00 UTC");
    assert_eq!(standing.unknown, []);
    for policy in [Policy::Strict, Policy::IfUri, Policy::Relaxed] {
        assert_eq!(judge(&own(), &[list(1, FRESH, &[9, 3])], &[], policy), Err(revoked()));
    }
    // The newest list counts.
    let lists = [list(1, ("191230000000Z", "200201000000Z"), &[]), list(1, FRESH, &[3])];
    assert_eq!(judge(&own(), &lists, &[], Policy::Relaxed), Err(revoked()));
}

#[test]
fn an_unknown_status_refuses_by_policy() {
    let silent = Make::own("CN=gw", 3, "CN=Root", 1);
    let unknown = Err(Rule::NoStatus(NoStatus::Nothing));
    assert_eq!(judge(&own(), &[], &[], Policy::Strict), unknown);
    assert_eq!(judge(&own(), &[], &[], Policy::IfUri), unknown);
    assert_eq!(judge(&silent, &[], &[], Policy::Strict), unknown);
    for (own, policy) in
        [(own(), Policy::Relaxed), (silent.clone(), Policy::Relaxed), (silent, Policy::IfUri)]
    {
        let standing = judge(&own, &[], &[], policy).unwrap();
        assert_eq!(standing.until, None);
        assert_eq!(standing.unknown[0].1, NoStatus::Nothing);
    }
}

#[test]
fn a_list_that_is_old_new_or_of_somebody_else_says_nothing() {
    let why = |crl: Crl| match judge(&own(), &[crl], &[], Policy::Strict) {
        Err(Rule::NoStatus(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let old = list(1, ("191201000000Z", "191231000000Z"), &[3]);
    assert_eq!(why(old), "the answer is too old: the next one was due by 2019-12-31 00:00:00 UTC");
    let new = list(1, ("200102000000Z", "200201000000Z"), &[3]);
    assert_eq!(why(new), "the answer is not valid before 2020-01-02 00:00:00 UTC");
    assert_eq!(why(list(2, FRESH, &[3])), "the signature of the answer is wrong or not accepted");
}

#[test]
fn no_bit_of_a_list_can_be_changed() {
    let der = list(1, FRESH, &[9]).der().to_vec();
    let chain = chain(&own());
    for bit in 0..der.len() * 8 {
        let mut changed = der.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(crl) = Crl::from_der(&changed) {
            assert!(judge_chain(&chain, &[crl], &[], Policy::Strict).is_err(), "bit {bit}");
        }
    }
}

/// Parts of a response that a test may want otherwise.
struct Answer<'a> {
    serial: u8,
    status: Vec<u8>,
    updates: (&'a str, &'a str),
    nonce: Option<&'a [u8]>,
    /// The certificate of a responder, by whose key the response is.
    responder: Option<Make>,
    /// Another status of the same certificate behind the first one.
    also: Option<Vec<u8>>,
}

fn answer() -> Answer<'static> {
    let updates = ("20191231000000Z", "20200201000000Z");
    Answer { serial: 3, status: emit(implicit(0), &[]), updates, nonce: None, responder: None, also: None }
}

impl Answer<'_> {
    fn der(&self) -> Vec<u8> {
        let time = |text: &str| emit(GENERALIZED_TIME, &[text.as_bytes()]);
        let root = root().make();
        let octets = |bytes: &[u8]| emit(OCTET_STRING, &[bytes]);
        let sha1 = emit(SEQUENCE, &[&emit(OID, &[oid::SHA1]), &emit(NULL, &[])]);
        let issuer = octets(&ironswan_crypto::hash::sha1(root.subject().der()));
        let id =
            emit(SEQUENCE, &[&sha1, &issuer, &octets(&root.key_id()), &emit(INTEGER, &[&[self.serial]])]);
        let next = emit(explicit(0), &[&time(self.updates.1)]);
        let single = |status: &Vec<u8>| emit(SEQUENCE, &[&id, status, &time(self.updates.0), &next]);
        let all: Vec<u8> = [&self.status].into_iter().chain(&self.also).flat_map(single).collect();
        let nonce = self.nonce.map(|nonce| {
            let list = emit(SEQUENCE, &[&extension(oid::OCSP_NONCE, false, &octets(nonce))]);
            emit(explicit(1), &[&list])
        });
        let (signer, certificates) = match &self.responder {
            Some(responder) => (responder.keys.0, emit(explicit(0), &[&emit(SEQUENCE, &[&responder.der()])])),
            None => (1, Vec::new()),
        };
        let bits = ironswan_crypto::hash::sha1(key(signer).public().key_bits());
        let by = emit(explicit(2), &[&octets(&bits)]);
        let singles = emit(SEQUENCE, &[&all]);
        let data = emit(SEQUENCE, &[&by, &time("20191231000000Z"), &singles, &nonce.unwrap_or_default()]);
        let basic = octets(&signed(&data, &key(signer), &certificates));
        let bytes = emit(SEQUENCE, &[&emit(OID, &[oid::OCSP_BASIC]), &basic]);
        emit(SEQUENCE, &[&emit(ENUMERATED, &[&[0]]), &emit(explicit(0), &[&bytes])])
    }

    fn judge(&self, nonce: Option<&[u8]>) -> Result<Standing, Rule> {
        let response = Response::from_der(&self.der()).unwrap();
        judge(&own(), &[], &[(response, nonce.map(<[u8]>::to_vec))], Policy::Strict)
    }
}

/// Status of a certificate whose key was compromised.
fn said_revoked() -> Vec<u8> {
    let at = emit(GENERALIZED_TIME, &[b"20191201000000Z"]);
    emit(explicit(1), &[&at, &emit(explicit(0), &[&emit(ENUMERATED, &[&[1]])])])
}

/// A certificate by which the root lets somebody answer.
fn responder() -> Make {
    let purpose = emit(SEQUENCE, &[&emit(OID, &[oid::OCSP_SIGNING])]);
    Make::own("CN=Responder", 5, "CN=Root", 1).with(37, false, &purpose)
}

#[test]
fn a_response_of_the_ca_or_of_its_responder_is_believed() {
    let until = answer().judge(None).unwrap().until.unwrap();
    assert_eq!(until.to_string(), "2020-02-01 00:00:00 UTC");
    assert!(Answer { responder: Some(responder()), ..answer() }.judge(None).is_ok());
    assert_eq!(Answer { status: said_revoked(), ..answer() }.judge(None), Err(revoked()));
}

#[test]
fn a_response_that_says_good_and_revoked_says_revoked() {
    let (good, unknown) = (emit(implicit(0), &[]), emit(implicit(2), &[]));
    for first in [good.clone(), unknown.clone()] {
        let answer = Answer { status: first, also: Some(said_revoked()), ..answer() };
        assert_eq!(answer.judge(None), Err(revoked()));
    }
    for other in [good.clone(), unknown] {
        let answer = Answer { status: said_revoked(), also: Some(other), ..answer() };
        assert_eq!(answer.judge(None), Err(revoked()));
    }
    assert!(Answer { also: Some(good), ..answer() }.judge(None).is_ok());
}

#[test]
fn a_response_that_says_good_does_not_hide_a_revocation_by_list() {
    let good = || vec![(Response::from_der(&answer().der()).unwrap(), None)];
    for policy in [Policy::Strict, Policy::IfUri, Policy::Relaxed] {
        assert_eq!(judge(&own(), &[list(1, FRESH, &[3])], &good(), policy), Err(revoked()));
    }
    // But a response may end a hold.
    let hold = list_with_reason(6);
    assert!(matches!(
        judge(&own(), std::slice::from_ref(&hold), &[], Policy::Relaxed),
        Err(Rule::Revoked { .. })
    ));
    assert!(judge(&own(), &[hold], &good(), Policy::Strict).is_ok());
    // A list that is of no use, or does not name the certificate, takes nothing away.
    let old = list(1, ("191201000000Z", "191231000000Z"), &[3]);
    for list in [old, list(2, FRESH, &[3]), list(1, FRESH, &[9])] {
        assert!(judge(&own(), &[list], &good(), Policy::Strict).is_ok());
    }
}

#[test]
fn certificates_with_the_name_of_a_signer_do_not_hide_it() {
    // A newer key of the CA has signed the newer list.
    let newer =
        Make::own("CN=Root", 7, "CN=Root", 1).with(14, false, &emit(OCTET_STRING, &[b"newer"])).make();
    let decoy = |n: u8| {
        let id = emit(OCTET_STRING, &[&[n]]);
        Make::own("CN=Root", n, "CN=Root", n).with(14, false, &id).make()
    };
    let decoys: Vec<Certificate> = (20..30).map(decoy).collect();
    let key_id = emit(SEQUENCE, &[&emit(0x80, &[b"newer"])]);
    let lists = [
        list_of_key(7, FRESH, &[3], &[extension(&[0x55, 0x1d, 35], false, &key_id)]),
        list(1, ("191230000000Z", "200201000000Z"), &[]),
    ];
    let chain = chain(&own());
    for certificates in [vec![newer.clone()], [&decoys[..], &[newer]].concat()] {
        let evidence = Evidence { lists: &lists, responses: &[], certificates: &certificates, anchors: &[] };
        let result = check(&chain, &evidence, Policy::Strict, NOW, &Rules::default());
        assert_eq!(result.map_err(|fault| fault.rule), Err(revoked()), "{} certificates", certificates.len());
    }
}

#[test]
fn a_response_that_does_not_answer_is_not_believed() {
    let why = |answer: Answer<'_>, nonce: Option<&[u8]>| match answer.judge(nonce) {
        Err(Rule::NoStatus(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(Answer { serial: 4, ..answer() }, None), NoStatus::Nothing);
    assert_eq!(why(Answer { status: emit(implicit(2), &[]), ..answer() }, None), NoStatus::SaidUnknown);
    let old = Answer { updates: ("20191201000000Z", "20191202000000Z"), ..answer() };
    assert!(matches!(why(old, None), NoStatus::Old { .. }));
    let new = Answer { updates: ("20200102000000Z", "20200201000000Z"), ..answer() };
    assert!(matches!(why(new, None), NoStatus::NotYetValid { .. }));
    assert_eq!(why(Answer { nonce: Some(b"other"), ..answer() }, Some(b"nonce")), NoStatus::OtherNonce);
    assert!(Answer { nonce: Some(b"nonce"), ..answer() }.judge(Some(b"nonce")).is_ok());
    assert!(answer().judge(Some(b"nonce")).is_ok());
    // Certificates of the CA that are not for OCSP, of somebody else, and an expired one.
    for responder in [
        Make::own("CN=Responder", 5, "CN=Root", 1),
        Make { keys: (5, 6), ..responder() },
        Make { validity: ("190101000000Z", "191231000000Z"), ..responder() },
        Make::root("CN=Responder", 5),
    ] {
        let why = why(Answer { responder: Some(responder), ..answer() }, None);
        assert!(matches!(why, NoStatus::Signer(_)), "{why}");
    }
}

#[test]
fn no_bit_of_a_response_can_be_changed() {
    let der = Answer { responder: Some(responder()), ..answer() }.der();
    let (mut read, chain) = (0, chain(&own()));
    for bit in 0..der.len() * 8 {
        let mut changed = der.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(response) = Response::from_der(&changed) {
            read += 1;
            let result = judge_chain(&chain, &[], &[(response, None)], Policy::Strict);
            assert!(result.is_err(), "bit {bit}");
        }
    }
    assert!(read > 1000, "{read} of them could be read");
}

#[test]
fn a_refusal_of_a_responder_says_so() {
    let refused = |status: u8| Response::from_der(&emit(SEQUENCE, &[&emit(ENUMERATED, &[&[status]])]));
    assert_eq!(refused(3).unwrap_err().to_string(), "says to try again later");
    assert_eq!(refused(0).unwrap_err(), ResponseFault::Malformed);
    assert_eq!(Response::from_der(&[0; 70_000]).unwrap_err(), ResponseFault::TooLong(70_000));
}

#[test]
fn what_is_asked_and_where_comes_from_the_certificate() {
    let (own, root) = (own().make(), root().make());
    let nonce = Some(&b"0123456789abcdef"[..]);
    let (list, refused) = wanted(&own, &root, &Places::default(), nonce);
    let [Fetch { place, request: Some(request) }, Fetch { place: list, request: None }] = &list[..] else {
        panic!("{list:?}")
    };
    assert_eq!((place.uri(), list.uri()), ("http://ca.example/ocsp", "http://ca.example/a.crl"));
    // The responder on this machine is left out.
    assert_eq!(refused, [("http://127.0.0.1/ocsp".to_owned(), Refused::Host)]);
    assert_eq!(*request, ocsp::request(&own, &root, nonce));
    // Places of the configuration come first, each place once.
    let of = |uri: &str| Place::of_configuration(uri.as_bytes()).unwrap();
    let ours = Places {
        lists: vec![of("http://127.0.0.1/b.crl"), of("http://ca.example/a.crl")],
        ..Places::default()
    };
    let (more, _) = wanted(&own, &root, &ours, nonce);
    let uris: Vec<&str> = more.iter().map(|fetch| fetch.place.uri()).collect();
    assert_eq!(uris, ["http://ca.example/ocsp", "http://127.0.0.1/b.crl", "http://ca.example/a.crl"]);
    // `openssl ocsp -req_text` shows one CertID with its four fields, and the nonce.
    let digits: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        digits,
        "30673065303e303c303a300906052b0e03021a05000414bb14fa9683082119dc1c1fbe0d6d312ad95a7d6504149ad19e\
         0f16eef714cb90c6f195dbce66e94580f9020103a2233021301f06092b06010505073001020412041030313233343536\
         373839616263646566"
    );
    assert!(ocsp::request(&own, &root, None).len() < request.len());
}
