//! Chains with one peculiarity: names that do or do not chain, and name constraints of each form.

use ironswan_wire::der::{
    BMP_STRING, IA5_STRING, PRINTABLE_STRING, SEQUENCE, SET, UTF8_STRING, emit, explicit,
};

use crate::made::{Case, Chain, Made, in_test, name, oid, sequence};

/// Names that chain, or do not.
pub const CHAINING: &[Case] = &[
    ("an issuer that nobody is", |c| c.own.issuer = in_test("Nobody")),
    ("a CA whose issuer nobody is", |c| c.low().issuer = in_test("Nobody")),
    ("an issuer in other letters", |c| c.own.issuer = name("O=TEST, CN=low")),
    ("an issuer with other spaces", |c| {
        c.low().subject = spelled(PRINTABLE_STRING, "Low  CA");
        c.own.issuer = spelled(PRINTABLE_STRING, " low ca ");
    }),
    ("an issuer in another character set", |c| {
        c.low().subject = spelled(PRINTABLE_STRING, "Low CA");
        c.own.issuer = spelled(UTF8_STRING, "Low CA");
    }),
    ("an issuer in two bytes a character", |c| {
        c.low().subject = spelled(UTF8_STRING, "Low");
        c.own.issuer = spelled(BMP_STRING, "\0L\0o\0w");
    }),
    ("an issuer with its parts in another order", |c| c.own.issuer = name("CN=Low, O=Test")),
    ("an issuer with a part less", |c| c.own.issuer = name("CN=Low")),
    ("an issuer with two attributes in one part, in another order", |c| {
        let (a, b) = (attribute(3, UTF8_STRING, "Low"), attribute(10, UTF8_STRING, "Test"));
        c.low().subject = emit(SEQUENCE, &[&emit(SET, &[&a, &b])]);
        c.own.issuer = emit(SEQUENCE, &[&emit(SET, &[&b, &a])]);
    }),
    ("a gateway without a subject", |c| {
        c.own.subject = emit(SEQUENCE, &[]);
        c.own.set(17, true, &sequence(&[dns("gw.example")]));
    }),
    ("a gateway without a subject, and names that are not critical", |c| {
        c.own.subject = emit(SEQUENCE, &[]);
        c.own.alt_names(&[dns("gw.example")]);
    }),
    ("a gateway without any name", |c| c.own.subject = emit(SEQUENCE, &[])),
    ("a CA without a name", |c| {
        c.low().subject = emit(SEQUENCE, &[]);
        c.own.issuer = emit(SEQUENCE, &[]);
    }),
    ("a gateway with the name of its issuer", |c| c.own.subject = in_test("Low")),
    ("no other name in a list of names", |c| c.own.alt_names(&[])),
];

/// Constraints on names of the DNS.
pub const DNS: &[Case] = &[
    ("dns: the name itself is permitted", |c| permitted(c, &[dns("gw.example")], &dns("gw.example"))),
    ("dns: below what is permitted", |c| permitted(c, &[dns("example")], &dns("gw.example"))),
    ("dns: far below what is permitted", |c| permitted(c, &[dns("example")], &dns("a.b.c.example"))),
    ("dns: in capitals", |c| permitted(c, &[dns("Example")], &dns("GW.EXAMPLE"))),
    ("dns: beside what is permitted", |c| permitted(c, &[dns("example")], &dns("gw.example.org"))),
    ("dns: ends like what is permitted", |c| permitted(c, &[dns("example")], &dns("notexample"))),
    ("dns: above what is permitted", |c| permitted(c, &[dns("gw.example")], &dns("example"))),
    ("dns: one of two is permitted", |c| {
        permitted(c, &[dns("a.example"), dns("b.example")], &dns("x.b.example"))
    }),
    ("dns: two names, one of them not permitted", |c| {
        c.own.alt_names(&[dns("gw.example"), dns("gw.other")]);
        constrain(c.low(), 0, &[dns("example")]);
    }),
    ("dns: permitted from a dot on, and below", |c| permitted(c, &[dns(".example")], &dns("gw.example"))),
    ("dns: permitted from a dot on, and the name itself", |c| {
        permitted(c, &[dns(".example")], &dns("example"))
    }),
    ("dns: everything is permitted", |c| permitted(c, &[dns("")], &dns("gw.example"))),
    ("dns: a wild card below what is permitted", |c| permitted(c, &[dns("example")], &dns("*.example"))),
    ("dns: a dot at the end of the name", |c| permitted(c, &[dns("example")], &dns("gw.example."))),
    ("dns: an empty name", |c| permitted(c, &[dns("example")], &dns(""))),
    ("dns: no name of the form that is constrained", |c| {
        c.own.alt_names(&[email("a@b.example")]);
        constrain(c.low(), 0, &[dns("example")]);
    }),
    ("dns: a common name that looks like one", |c| {
        c.own.subject = in_test("gw.other");
        constrain(c.low(), 0, &[dns("example")]);
    }),
    ("dns: a common name that looks like one, beside a name that is permitted", |c| {
        c.own.subject = in_test("gw.other");
        permitted(c, &[dns("example")], &dns("gw.example"));
    }),
    ("dns: the name itself is excluded", |c| excluded(c, &[dns("gw.example")], &dns("gw.example"))),
    ("dns: below what is excluded", |c| excluded(c, &[dns("example")], &dns("gw.example"))),
    ("dns: beside what is excluded", |c| excluded(c, &[dns("other")], &dns("gw.example"))),
    ("dns: everything is excluded", |c| excluded(c, &[dns("")], &dns("gw.example"))),
    ("dns: excluded from a dot on, and the name itself", |c| {
        excluded(c, &[dns(".example")], &dns("example"))
    }),
    ("dns: permitted and excluded", |c| {
        c.own.alt_names(&[dns("gw.example")]);
        let both = [list(0, &[dns("example")]), list(1, &[dns("gw.example")])].concat();
        c.low().set(30, true, &emit(SEQUENCE, &[&both]));
    }),
    ("dns: the upper CA permits less than the lower one", |c| {
        constrain(c.high(), 0, &[dns("a.example")]);
        permitted(c, &[dns("example")], &dns("b.example"));
    }),
    ("dns: two CAs permit what has nothing in common", |c| {
        constrain(c.high(), 0, &[dns("other")]);
        permitted(c, &[dns("example")], &dns("gw.example"));
    }),
    ("dns: the root permits other names", |c| {
        c.own.alt_names(&[dns("gw.example")]);
        constrain(c.root(), 0, &[dns("other")]);
    }),
    ("dns: a CA has a name that is not permitted", |c| {
        c.low().alt_names(&[dns("ca.other")]);
        constrain(c.high(), 0, &[dns("example")]);
    }),
    ("dns: the gateway constrains itself", |c| {
        c.own.alt_names(&[dns("gw.example")]);
        constrain(&mut c.own, 0, &[dns("other")]);
    }),
    ("dns: constraints that are not critical", |c| {
        c.own.alt_names(&[dns("gw.other")]);
        c.low().set(30, false, &emit(SEQUENCE, &[&list(0, &[dns("example")])]));
    }),
];

/// Constraints on addresses of mail, and on URIs.
pub const MAIL_AND_URI: &[Case] = &[
    ("mail: the mailbox is permitted", |c| {
        permitted(c, &[email("joe@gw.example")], &email("joe@gw.example"))
    }),
    ("mail: another mailbox is permitted", |c| {
        permitted(c, &[email("ann@gw.example")], &email("joe@gw.example"))
    }),
    ("mail: a mailbox in other letters", |c| {
        permitted(c, &[email("Joe@gw.example")], &email("joe@gw.example"))
    }),
    ("mail: its host in other letters", |c| {
        permitted(c, &[email("joe@GW.example")], &email("joe@gw.example"))
    }),
    ("mail: the host is permitted", |c| permitted(c, &[email("gw.example")], &email("joe@gw.example"))),
    ("mail: a host above is permitted", |c| permitted(c, &[email("example")], &email("joe@gw.example"))),
    ("mail: a domain is permitted", |c| permitted(c, &[email(".example")], &email("joe@gw.example"))),
    ("mail: a domain is permitted, and the host is the domain", |c| {
        permitted(c, &[email(".example")], &email("joe@example"));
    }),
    ("mail: the host is excluded", |c| excluded(c, &[email("gw.example")], &email("joe@gw.example"))),
    ("mail: another host is excluded", |c| excluded(c, &[email("other")], &email("joe@gw.example"))),
    ("mail: an address without a host", |c| permitted(c, &[email("example")], &email("joe"))),
    ("mail: an address in the subject is not permitted", |c| {
        c.own.subject = with_mail("joe@other.example");
        constrain(c.low(), 0, &[email("gw.example")]);
    }),
    ("mail: an address in the subject is permitted", |c| {
        c.own.subject = with_mail("joe@gw.example");
        constrain(c.low(), 0, &[email("gw.example")]);
    }),
    ("mail: an address in the subject is excluded", |c| {
        c.own.subject = with_mail("joe@gw.example");
        constrain(c.low(), 1, &[email("gw.example")]);
    }),
    ("uri: the host is permitted", |c| permitted(c, &[uri("gw.example")], &uri("http://gw.example/x"))),
    ("uri: a host above is permitted", |c| permitted(c, &[uri("example")], &uri("http://gw.example/x"))),
    ("uri: a domain is permitted", |c| permitted(c, &[uri(".example")], &uri("http://gw.example:80/x"))),
    ("uri: a domain is permitted, and the host is the domain", |c| {
        permitted(c, &[uri(".example")], &uri("http://example/"));
    }),
    ("uri: a user in front of the host", |c| {
        permitted(c, &[uri("gw.example")], &uri("ftp://me:pw@gw.example/"))
    }),
    ("uri: the host behind a user who looks like it", |c| {
        permitted(c, &[uri("gw.example")], &uri("http://gw.example@other.example/"));
    }),
    ("uri: the host is excluded", |c| excluded(c, &[uri("gw.example")], &uri("http://gw.example/x"))),
    ("uri: another host is excluded", |c| excluded(c, &[uri("other")], &uri("http://gw.example/x"))),
    ("uri: an address in the place of a host, permitted", |c| {
        permitted(c, &[uri("192.0.2.1")], &uri("http://192.0.2.1/"));
    }),
    ("uri: an address in the place of a host, excluded", |c| {
        excluded(c, &[uri(".example")], &uri("http://192.0.2.1/"));
    }),
    ("uri: an IPv6 address in the place of a host", |c| {
        permitted(c, &[uri(".example")], &uri("http://[2001:db8::1]/"));
    }),
    ("uri: no host", |c| permitted(c, &[uri("example")], &uri("urn:example:a"))),
];

/// Constraints on addresses, distinguished names and forms that are not built.
pub const OTHER_FORMS: &[Case] = &[
    ("address: in the network that is permitted", |c| {
        permitted(c, &[ip(&[192, 0, 2, 0, 255, 255, 255, 0])], &ip(&[192, 0, 2, 9]));
    }),
    ("address: in another network", |c| {
        permitted(c, &[ip(&[192, 0, 2, 0, 255, 255, 255, 0])], &ip(&[192, 0, 3, 9]));
    }),
    ("address: in the network that is excluded", |c| {
        excluded(c, &[ip(&[192, 0, 2, 0, 255, 255, 255, 0])], &ip(&[192, 0, 2, 9]));
    }),
    ("address: beside the network that is excluded", |c| {
        excluded(c, &[ip(&[192, 0, 2, 0, 255, 255, 255, 0])], &ip(&[192, 0, 3, 9]));
    }),
    ("address: all are permitted", |c| permitted(c, &[ip(&[0; 8])], &ip(&[192, 0, 2, 9]))),
    ("address: all of IPv4 are excluded", |c| excluded(c, &[ip(&[0; 8])], &ip(&[192, 0, 2, 9]))),
    ("address: all of IPv4 are permitted, and the address is of IPv6", |c| {
        permitted(c, &[ip(&[0; 8])], &ip(&[0x20; 16]));
    }),
    ("address: all of IPv4 are excluded, and the address is of IPv6", |c| {
        excluded(c, &[ip(&[0; 8])], &ip(&[0x20; 16]));
    }),
    ("address: in the network of IPv6", |c| permitted(c, &[ip(&network_v6())], &ip(&[0x20; 16]))),
    ("address: in another network of IPv6", |c| permitted(c, &[ip(&network_v6())], &ip(&[0x30; 16]))),
    ("address: a mask with a hole", |c| {
        permitted(c, &[ip(&[192, 0, 0, 9, 255, 255, 0, 255])], &ip(&[192, 0, 7, 9]))
    }),
    ("address: a network with bits behind its mask", |c| {
        permitted(c, &[ip(&[192, 0, 2, 9, 255, 255, 255, 0])], &ip(&[192, 0, 2, 7]));
    }),
    ("address: a constraint of seven bytes, permitted", |c| {
        permitted(c, &[ip(&[1; 7])], &ip(&[192, 0, 2, 9]))
    }),
    ("address: a constraint of seven bytes, excluded", |c| excluded(c, &[ip(&[1; 7])], &ip(&[192, 0, 2, 9]))),
    ("address: an address of five bytes", |c| permitted(c, &[ip(&[0; 8])], &ip(&[1; 5]))),
    ("name: below what is permitted", |c| constrain(c.low(), 0, &[directory("O=Test")])),
    ("name: beside what is permitted", |c| constrain(c.low(), 0, &[directory("O=Other")])),
    ("name: in other letters", |c| constrain(c.low(), 0, &[directory("O=TEST")])),
    ("name: the whole is permitted", |c| constrain(c.low(), 0, &[directory("O=Test, CN=gw")])),
    ("name: longer than the name of the gateway", |c| {
        constrain(c.low(), 0, &[directory("O=Test, CN=gw, OU=x")]);
    }),
    ("name: begins like what is permitted", |c| constrain(c.low(), 0, &[directory("O=Tes")])),
    ("name: excluded", |c| constrain(c.low(), 1, &[directory("O=Test")])),
    ("name: another one is excluded", |c| constrain(c.low(), 1, &[directory("O=Other")])),
    ("name: the upper CA permits the lower one alone", |c| {
        constrain(c.high(), 0, &[directory("O=Test, CN=Low")]);
    }),
    ("name: a second name of the gateway is not permitted", |c| {
        c.own.alt_names(&[directory("O=Other, CN=gw")]);
        constrain(c.low(), 0, &[directory("O=Test")]);
    }),
    ("name: everything is permitted", |c| {
        constrain(c.low(), 0, &[emit(explicit(4), &[&emit(SEQUENCE, &[])])]);
    }),
    ("other form: permitted, and the gateway has one", |c| permitted(c, &[other()], &other())),
    ("other form: excluded, and the gateway has one", |c| excluded(c, &[other()], &other())),
    ("other form: permitted, and the gateway has none", |c| permitted(c, &[other()], &dns("gw.example"))),
    ("other form: excluded, and the gateway has none", |c| excluded(c, &[other()], &dns("gw.example"))),
    ("registered number: permitted, and the gateway has one", |c| {
        permitted(c, &[emit(0x88, &[&[0x2a, 3]])], &emit(0x88, &[&[0x2a, 3]]));
    }),
    ("a subtree with a minimum", |c| with_bounds(c, &emit(0x80, &[&[1]]))),
    ("a subtree with a minimum of 0", |c| with_bounds(c, &emit(0x80, &[&[0]]))),
    ("a subtree with a maximum", |c| with_bounds(c, &emit(0x81, &[&[5]]))),
    ("constraints that say nothing", |c| c.low().set(30, true, &emit(SEQUENCE, &[]))),
    ("permitted subtrees, none", |c| c.low().set(30, true, &emit(SEQUENCE, &[&emit(explicit(0), &[])]))),
    ("malformed constraints", |c| c.low().set(30, true, &[0x30, 3, 0xa0, 1, 0x30])),
];

/// Gives the gateway a name, and lets the lower CA permit these.
fn permitted(chain: &mut Chain, bases: &[Vec<u8>], own: &[u8]) {
    chain.own.alt_names(&[own.to_vec()]);
    constrain(chain.low(), 0, bases);
}

/// Gives the gateway a name, and lets the lower CA exclude these.
fn excluded(chain: &mut Chain, bases: &[Vec<u8>], own: &[u8]) {
    chain.own.alt_names(&[own.to_vec()]);
    constrain(chain.low(), 1, bases);
}

/// Writes nameConstraints: `which` is 0 for permitted and 1 for excluded subtrees.
fn constrain(ca: &mut Made, which: u8, bases: &[Vec<u8>]) {
    ca.set(30, true, &emit(SEQUENCE, &[&list(which, bases)]));
}

fn list(which: u8, bases: &[Vec<u8>]) -> Vec<u8> {
    let subtrees: Vec<_> = bases.iter().map(|base| emit(SEQUENCE, &[base])).collect();
    emit(explicit(which), &[&subtrees.concat()])
}

/// Permits `example`, with the bounds of the subtree written.
fn with_bounds(chain: &mut Chain, bounds: &[u8]) {
    chain.own.alt_names(&[dns("gw.example")]);
    let subtree = emit(SEQUENCE, &[&dns("example"), bounds]);
    chain.low().set(30, true, &emit(SEQUENCE, &[&emit(explicit(0), &[&subtree])]));
}

fn dns(text: &str) -> Vec<u8> {
    emit(0x82, &[text.as_bytes()])
}

fn email(text: &str) -> Vec<u8> {
    emit(0x81, &[text.as_bytes()])
}

fn uri(text: &str) -> Vec<u8> {
    emit(0x86, &[text.as_bytes()])
}

fn ip(bytes: &[u8]) -> Vec<u8> {
    emit(0x87, &[bytes])
}

/// The network 2000::/8.
fn network_v6() -> [u8; 32] {
    let mut network = [0; 32];
    (network[0], network[16]) = (0x20, 0xff);
    network
}

fn directory(text: &str) -> Vec<u8> {
    emit(explicit(4), &[&name(text)])
}

/// An otherName.
fn other() -> Vec<u8> {
    emit(explicit(0), &[&oid("1.2.3.4"), &emit(explicit(0), &[&emit(UTF8_STRING, &[b"x"])])])
}

/// `O=Test, CN=`text, with the common name in this character set.
fn spelled(tag: u8, text: &str) -> Vec<u8> {
    let part = |attribute: Vec<u8>| emit(SET, &[&attribute]);
    sequence(&[part(attribute(10, UTF8_STRING, "Test")), part(attribute(3, tag, text))])
}

/// One attribute of X.520.
fn attribute(number: u8, tag: u8, text: &str) -> Vec<u8> {
    sequence(&[emit(6, &[&[0x55, 4, number]]), emit(tag, &[text.as_bytes()])])
}

/// `O=Test`, with an address of mail.
fn with_mail(address: &str) -> Vec<u8> {
    let mail = sequence(&[oid("1.2.840.113549.1.9.1"), emit(IA5_STRING, &[address.as_bytes()])]);
    let part = |attribute: Vec<u8>| emit(SET, &[&attribute]);
    sequence(&[part(attribute(10, UTF8_STRING, "Test")), part(mail)])
}
