//! Chains with several ways up: cross-signed CAs, renewed keys, loops, certificates without use,
//! and CAs of the configuration below a root.

use ironswan_wire::der::{OCTET_STRING, SEQUENCE, emit, implicit};

use crate::made::{Case, Chain, HIGH, LOW, Made, in_test, key, utc};

/// Several ways, one of which is good at most.
pub const WAYS: &[Case] = &[
    ("ways: in the opposite order", |c| c.sent.reverse()),
    ("ways: the peer sends the root too", |c| c.sent.push(c.trusted[0].clone())),
    ("ways: the peer sends its own certificate twice", |c| c.sent.push(c.own.clone())),
    ("ways: the peer sends each CA twice", |c| c.sent.extend_from_within(..)),
    ("ways: a stranger's certificate among them", |c| {
        c.sent.insert(0, Made::ca(in_test("Stranger"), 20, in_test("Nobody"), 21));
    }),
    ("ways: the lower CA is missing", |c| drop(c.sent.remove(LOW))),
    ("ways: the upper CA is missing", |c| drop(c.sent.remove(HIGH))),
    ("ways: no CA is trusted", |c| c.trusted = vec![Made::root(in_test("Elsewhere"), 30)]),
    ("ways: a root of the same name and another key", |c| c.trusted = vec![Made::root(in_test("Root"), 30)]),
    ("ways: the peer sends a root that is not trusted", |c| {
        c.sent.push(c.trusted[0].clone());
        c.trusted = vec![Made::root(in_test("Elsewhere"), 30)];
    }),
    ("ways: the upper CA is trusted, and the root is not", |c| c.trusted = vec![c.sent[HIGH].clone()]),
    ("ways: the lower CA is trusted, and nothing is sent", |c| {
        c.trusted = vec![c.sent[LOW].clone()];
        c.sent.clear();
    }),
    ("ways: the upper CA is trusted and has expired, and the root is not there", |c| {
        c.high().validity[1] = utc("191231000000Z");
        c.trusted = vec![c.sent[HIGH].clone()];
    }),
    ("ways: the gateway's own certificate is trusted, without its CA", |c| {
        c.trusted = vec![c.own.clone()];
        c.sent.clear();
    }),
    ("ways: a gateway that has issued its own certificate", |c| {
        c.own = Made::end(in_test("gw"), 4, in_test("gw"), 4);
    }),
    ("ways: a gateway that has issued its own certificate, which is trusted", |c| {
        c.own = Made::end(in_test("gw"), 4, in_test("gw"), 4);
        c.trusted = vec![c.own.clone()];
    }),
    ("ways: the root itself is the peer's certificate", |c| c.own = c.trusted[0].clone()),
    ("ways: signed by the root at once", |c| {
        c.own = Made::end(in_test("gw"), 4, in_test("Root"), 1);
        c.sent.clear();
    }),
];

/// Two certificates of one CA.
pub const CROSSED: &[Case] = &[
    ("crossed: a second certificate by a root that is not trusted", |c| {
        let other = cross(c, "Elsewhere", 30);
        c.sent.push(other);
    }),
    ("crossed: the same, and it comes first", |c| {
        let other = cross(c, "Elsewhere", 30);
        c.sent.insert(0, other);
    }),
    ("crossed: by a root that is trusted, and the first way has none", |c| {
        let other = cross(c, "Elsewhere", 30);
        c.sent.push(other);
        c.trusted = vec![Made::root(in_test("Elsewhere"), 30)];
    }),
    ("crossed: both roots are trusted", |c| {
        let other = cross(c, "Elsewhere", 30);
        c.sent.push(other);
        c.trusted.push(Made::root(in_test("Elsewhere"), 30));
    }),
    ("crossed: the way that comes first has expired", |c| {
        let mut old = c.high().clone();
        old.validity[1] = utc("191231000000Z");
        c.sent.insert(0, old);
    }),
    ("crossed: the way that comes last has expired", |c| {
        let mut old = c.high().clone();
        old.validity[1] = utc("191231000000Z");
        c.sent.push(old);
    }),
    ("crossed: the root of the way that comes first has expired", |c| {
        let other = cross(c, "Elsewhere", 30);
        c.sent.insert(0, other);
        let mut old = Made::root(in_test("Elsewhere"), 30);
        old.validity[1] = utc("191231000000Z");
        c.trusted.insert(0, old);
    }),
    ("crossed: a root that was renewed, the old one first", |c| {
        let mut old = c.root().clone();
        old.validity[1] = utc("191231000000Z");
        c.trusted.insert(0, old);
    }),
    ("crossed: the way that comes first allows no CA below", |c| {
        let mut short = c.high().clone();
        short.basic(true, Some(&[0]));
        c.sent.insert(0, short);
    }),
    ("crossed: the way that comes first may not sign certificates", |c| {
        let mut weak = c.high().clone();
        weak.usage(2);
        c.sent.insert(0, weak);
    }),
    ("crossed: the way that comes first has a wrong signature", |c| {
        let mut wrong = c.high().clone();
        wrong.by = key(77);
        c.sent.insert(0, wrong);
    }),
    ("crossed: the name of the lower CA with another key, first, and key identifiers", |c| {
        let mut other = Made::ca(in_test("Low"), 40, in_test("High"), 2);
        other.set(14, false, &emit(OCTET_STRING, &[&[40; 20]]));
        c.sent.insert(0, other);
    }),
    ("crossed: the name of the lower CA with another key, first, without key identifiers", |c| {
        let mut other = Made::ca(in_test("Low"), 40, in_test("High"), 2);
        other.remove(14);
        c.low().remove(14);
        c.own.remove(35);
        c.sent.insert(0, other);
    }),
    ("crossed: the name of the lower CA with another key, and the identifier of the right one", |c| {
        let mut other = Made::ca(in_test("Low"), 40, in_test("High"), 2);
        other.set(14, false, &emit(OCTET_STRING, &[&[3; 20]]));
        c.sent.insert(0, other);
    }),
    ("crossed: two roots of one name, the wrong one first", |c| {
        c.trusted.insert(0, Made::root(in_test("Root"), 30));
    }),
];

/// Certificates that issue each other, and chains that are long.
pub const LOOPS: &[Case] = &[
    ("loop: two CAs issue each other, and none is trusted", |c| {
        c.high().issuer = in_test("Low");
        c.high().by = key(3);
        c.high().set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[3; 20]])]));
    }),
    ("loop: two CAs issue each other, and there is a way out", |c| {
        let mut back = Made::ca(in_test("High"), 2, in_test("Low"), 3);
        back.serial = vec![50];
        c.sent.insert(0, back);
    }),
    ("loop: three CAs in a ring, and there is a way out", |c| {
        c.sent.insert(0, Made::ca(in_test("High"), 2, in_test("Third"), 60));
        c.sent.insert(0, Made::ca(in_test("Third"), 60, in_test("Low"), 3));
    }),
    ("loop: the root was issued by the lower CA too", |c| {
        c.sent.insert(0, Made::ca(in_test("Root"), 1, in_test("Low"), 3));
    }),
    ("loop: a CA that has issued its own certificate, in the middle", |c| {
        c.sent.insert(0, Made::root(in_test("High"), 2));
    }),
    ("long: seven CAs between", |c| long(c, 7)),
    ("long: eight CAs between", |c| long(c, 8)),
    ("long: nine CAs between", |c| long(c, 9)),
];

/// The upper CA, as another root has issued it.
fn cross(chain: &Chain, root: &str, by: u8) -> Made {
    let mut other = chain.sent[HIGH].clone();
    (other.issuer, other.by, other.serial) = (in_test(root), key(by), vec![by]);
    other.set(35, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[by; 20]])]));
    other
}

/// A chain with so many CAs between the root and the gateway.
fn long(chain: &mut Chain, cas: u8) {
    let named = |n: u8| if n == 0 { in_test("Root") } else { in_test(&format!("CA {n}")) };
    let of = |n: u8| if n == 0 { 1 } else { 100 + n };
    chain.sent = (1..=cas).map(|n| Made::ca(named(n), of(n), named(n - 1), of(n - 1))).collect();
    chain.own = Made::end(in_test("gw"), 4, named(cas), of(cas));
}
