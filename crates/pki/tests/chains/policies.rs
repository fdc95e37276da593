//! Chains with one peculiarity: certificate policies (RFC 5280 sections 4.2.1.4, 4.2.1.5, 4.2.1.11
//! and 4.2.1.14). Policies are named by a number below 1.2.3.

use ironswan_pki::Oid;
use ironswan_wire::der::{IA5_STRING, SEQUENCE, emit, implicit};

use crate::made::{Case, Chain, Made, oid, sequence};

const ANY: &str = "2.5.29.32.0";
const ONE: &str = "1.2.3.1";
const TWO: &str = "1.2.3.2";
const THREE: &str = "1.2.3.3";

/// A policy is required.
pub const REQUIRED: &[Case] = &[
    ("policy: one is required and all have it", |c| {
        everywhere(c, &[ONE]);
        require(c, &[ONE]);
    }),
    ("policy: one is required and nobody has any", |c| require(c, &[ONE])),
    ("policy: any is required and nobody has one", |c| c.policies.required = true),
    ("policy: any is required and all have the same", |c| {
        everywhere(c, &[ONE]);
        c.policies.required = true;
    }),
    ("policy: one is acceptable, none is required, and nobody has any", |c| {
        c.policies.acceptable = vec![Oid::parse(ONE).expect("an identifier")];
    }),
    ("policy: one is acceptable, none is required, and all have another", |c| {
        everywhere(c, &[TWO]);
        c.policies.acceptable = vec![Oid::parse(ONE).expect("an identifier")];
    }),
    ("policy: another is required", |c| {
        everywhere(c, &[ONE]);
        require(c, &[TWO]);
    }),
    ("policy: two are acceptable and all have one", |c| {
        everywhere(c, &[TWO]);
        require(c, &[ONE, TWO]);
    }),
    ("policy: the gateway has another one than its CAs", |c| {
        everywhere(c, &[ONE]);
        set(&mut c.own, &[TWO]);
        require(c, &[ONE]);
    }),
    ("policy: the gateway has none", |c| {
        everywhere(c, &[ONE]);
        c.own.remove(32);
        require(c, &[ONE]);
    }),
    ("policy: the lower CA has none", |c| {
        everywhere(c, &[ONE]);
        c.low().remove(32);
        require(c, &[ONE]);
    }),
    ("policy: the root alone has none", |c| {
        everywhere(c, &[ONE]);
        c.root().remove(32);
        require(c, &[ONE]);
    }),
    ("policy: the root has another", |c| {
        everywhere(c, &[ONE]);
        set(c.root(), &[TWO]);
        require(c, &[ONE]);
    }),
    ("policy: several, with one in common", |c| {
        set(c.high(), &[ONE, TWO]);
        set(c.low(), &[TWO, THREE]);
        set(&mut c.own, &[ONE, TWO, THREE]);
        require(c, &[TWO]);
    }),
    ("policy: several, without one in common", |c| {
        set(c.high(), &[ONE, TWO]);
        set(c.low(), &[TWO, THREE]);
        set(&mut c.own, &[ONE, THREE]);
        c.policies.required = true;
    }),
    ("policy: CAs have any, the gateway has one", |c| {
        everywhere(c, &[ANY]);
        set(&mut c.own, &[ONE]);
        require(c, &[ONE]);
    }),
    ("policy: the upper CA has any, the lower one has one, the gateway has any", |c| {
        everywhere(c, &[ANY]);
        set(c.low(), &[ONE]);
        require(c, &[ONE]);
    }),
    ("policy: the same, and another one is required", |c| {
        everywhere(c, &[ANY]);
        set(c.low(), &[ONE]);
        require(c, &[TWO]);
    }),
    ("policy: all have any, and one is required", |c| {
        everywhere(c, &[ANY]);
        require(c, &[ONE]);
    }),
    ("policy: a policy that is there twice", |c| set(&mut c.own, &[ONE, ONE])),
    ("policy: a list without a policy", |c| set(&mut c.own, &[])),
    ("policy: malformed", |c| c.own.set(32, false, &[5, 0])),
    ("policy: critical", |c| {
        everywhere(c, &[ONE]);
        c.own.set(32, true, &sequence(&[sequence(&[oid(ONE)])]));
    }),
    ("policy: with a qualifier that is known", |c| {
        everywhere(c, &[ONE]);
        let place = sequence(&[oid("1.3.6.1.5.5.7.2.1"), emit(IA5_STRING, &[b"http://cps.example/"])]);
        c.own.set(32, true, &sequence(&[sequence(&[oid(ONE), sequence(&[place])])]));
        require(c, &[ONE]);
    }),
    ("policy: with a qualifier that nobody knows", |c| {
        everywhere(c, &[ONE]);
        let what = sequence(&[oid("1.2.3.9"), emit(IA5_STRING, &[b"x"])]);
        c.own.set(32, false, &sequence(&[sequence(&[oid(ONE), sequence(&[what])])]));
        require(c, &[ONE]);
    }),
];

/// A CA requires or inhibits.
pub const CONSTRAINTS: &[Case] = &[
    ("constraint: the upper CA requires one at once, and nobody has any", |c| {
        constraints(c.high(), Some(0), None);
    }),
    ("constraint: the upper CA requires one at once, and all have it", |c| {
        everywhere(c, &[ONE]);
        constraints(c.high(), Some(0), None);
    }),
    ("constraint: the upper CA requires one after 1, and nobody has any", |c| {
        constraints(c.high(), Some(1), None);
    }),
    ("constraint: the upper CA requires one after 2, and nobody has any", |c| {
        constraints(c.high(), Some(2), None);
    }),
    ("constraint: the upper CA requires one after 3, and nobody has any", |c| {
        constraints(c.high(), Some(3), None);
    }),
    ("constraint: the lower CA requires one after 1, and nobody has any", |c| {
        constraints(c.low(), Some(1), None);
    }),
    ("constraint: the gateway requires one at once, and nobody has any", |c| {
        constraints(&mut c.own, Some(0), None);
    }),
    ("constraint: the gateway requires one after 1, and nobody has any", |c| {
        constraints(&mut c.own, Some(1), None);
    }),
    ("constraint: the root requires one, and nobody has any", |c| constraints(c.root(), Some(0), None)),
    ("constraint: the lower CA takes back what the upper one requires", |c| {
        constraints(c.high(), Some(0), None);
        constraints(c.low(), Some(9), None);
    }),
    ("constraint: neither field is there", |c| constraints(c.high(), None, None)),
    ("constraint: not critical", |c| {
        c.high().set(36, false, &emit(SEQUENCE, &[&emit(implicit(0), &[&[0]])]));
    }),
    ("constraint: a negative number", |c| {
        c.high().set(36, true, &emit(SEQUENCE, &[&emit(implicit(0), &[&[0xff]])]));
    }),
    ("constraint: malformed", |c| c.high().set(36, true, &[5, 0])),
    ("constraint: any policy is inhibited at once", |c| {
        everywhere(c, &[ANY]);
        inhibit_any(c.high(), 0);
        c.policies.required = true;
    }),
    ("constraint: any policy is inhibited after 1", |c| {
        everywhere(c, &[ANY]);
        inhibit_any(c.high(), 1);
        c.policies.required = true;
    }),
    ("constraint: any policy is inhibited after 2", |c| {
        everywhere(c, &[ANY]);
        inhibit_any(c.high(), 2);
        c.policies.required = true;
    }),
    ("constraint: any policy is inhibited, and all have one by name", |c| {
        everywhere(c, &[ONE]);
        inhibit_any(c.high(), 0);
        require(c, &[ONE]);
    }),
    ("constraint: any policy is inhibited by the question", |c| {
        everywhere(c, &[ANY]);
        c.policies.required = true;
        c.policies.inhibit_any = true;
    }),
    ("constraint: any policy is inhibited by an extension that is malformed", |c| {
        c.high().set(54, true, &[5, 0]);
    }),
];

/// A CA maps policies of its own to those of another one.
pub const MAPPINGS: &[Case] = &[
    ("mapping: one to two, and the gateway has two", |c| {
        mapped(c);
        require(c, &[ONE]);
    }),
    ("mapping: one to two, and two is required", |c| {
        mapped(c);
        require(c, &[TWO]);
    }),
    ("mapping: one to two, and the gateway has one", |c| {
        mapped(c);
        set(&mut c.own, &[ONE]);
        require(c, &[ONE]);
    }),
    ("mapping: inhibited by the question", |c| {
        mapped(c);
        require(c, &[ONE]);
        c.policies.inhibit_mapping = true;
    }),
    ("mapping: inhibited at once by the upper CA", |c| {
        mapped(c);
        constraints(c.high(), None, Some(0));
        require(c, &[ONE]);
    }),
    ("mapping: inhibited after 1 by the upper CA", |c| {
        mapped(c);
        constraints(c.high(), None, Some(1));
        require(c, &[ONE]);
    }),
    ("mapping: inhibited, and no policy is required", |c| {
        mapped(c);
        c.policies.inhibit_mapping = true;
    }),
    ("mapping: to any policy", |c| {
        everywhere(c, &[ONE]);
        map(c.low(), &[(ONE, ANY)]);
    }),
    ("mapping: from any policy", |c| {
        everywhere(c, &[ONE]);
        map(c.low(), &[(ANY, ONE)]);
    }),
    ("mapping: one to two and three", |c| {
        mapped(c);
        map(c.low(), &[(ONE, TWO), (ONE, THREE)]);
        set(&mut c.own, &[THREE]);
        require(c, &[ONE]);
    }),
    ("mapping: one and three to two", |c| {
        mapped(c);
        set(c.high(), &[ONE, THREE]);
        set(c.low(), &[ONE, THREE]);
        map(c.low(), &[(ONE, TWO), (THREE, TWO)]);
        require(c, &[THREE]);
    }),
    ("mapping: at the upper CA and back at the lower one", |c| {
        set(c.high(), &[ONE]);
        map(c.high(), &[(ONE, TWO)]);
        set(c.low(), &[TWO]);
        map(c.low(), &[(TWO, ONE)]);
        set(&mut c.own, &[ONE]);
        require(c, &[ONE]);
    }),
    ("mapping: of a policy that the CA has as any", |c| {
        mapped(c);
        set(c.low(), &[ANY]);
        set(c.high(), &[ANY]);
        require(c, &[ONE]);
    }),
    ("mapping: of a policy that the CA has not", |c| {
        mapped(c);
        set(c.low(), &[THREE]);
        require(c, &[ONE]);
    }),
    ("mapping: swaps two policies", |c| {
        everywhere(c, &[ONE, TWO]);
        map(c.low(), &[(ONE, TWO), (TWO, ONE)]);
        set(&mut c.own, &[TWO]);
        require(c, &[ONE]);
    }),
    ("mapping: a list without a mapping", |c| map(c.low(), &[])),
    ("mapping: malformed", |c| c.low().set(33, true, &[5, 0])),
    ("mapping: at the gateway", |c| {
        everywhere(c, &[ONE]);
        map(&mut c.own, &[(ONE, TWO)]);
        require(c, &[ONE]);
    }),
    ("mapping: at the root", |c| {
        everywhere(c, &[ONE]);
        map(c.root(), &[(ONE, TWO)]);
        require(c, &[ONE]);
    }),
    ("mapping: 60 policies, each to eight others", |c| {
        let id = |n: usize| format!("1.2.4.{n}");
        let names: Vec<String> = (0..60).map(id).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        everywhere(c, &names);
        let pairs: Vec<(&str, &str)> = (0..60).map(|n| (names[n / 8], names[n])).collect();
        map(c.high(), &pairs);
        map(c.low(), &pairs);
        c.policies.required = true;
    }),
];

/// Gives all certificates below the root these policies.
fn everywhere(chain: &mut Chain, policies: &[&str]) {
    set(chain.high(), policies);
    set(chain.low(), policies);
    set(&mut chain.own, policies);
}

/// The lower CA maps policy one to policy two, which the gateway has.
fn mapped(chain: &mut Chain) {
    everywhere(chain, &[ONE]);
    map(chain.low(), &[(ONE, TWO)]);
    set(&mut chain.own, &[TWO]);
}

fn require(chain: &mut Chain, policies: &[&str]) {
    chain.policies.required = true;
    chain.policies.acceptable = policies.iter().filter_map(|policy| Oid::parse(policy)).collect();
}

fn set(made: &mut Made, policies: &[&str]) {
    let list: Vec<_> = policies.iter().map(|policy| sequence(&[oid(policy)])).collect();
    made.set(32, false, &sequence(&list));
}

fn map(made: &mut Made, pairs: &[(&str, &str)]) {
    let list: Vec<_> = pairs.iter().map(|(from, to)| sequence(&[oid(from), oid(to)])).collect();
    made.set(33, true, &sequence(&list));
}

fn constraints(made: &mut Made, require: Option<u8>, inhibit: Option<u8>) {
    let field = |number, value: Option<u8>| value.map(|n| emit(implicit(number), &[&[n]]));
    let fields = [field(0, require), field(1, inhibit)];
    made.set(36, true, &sequence(&fields.map(Option::unwrap_or_default)));
}

fn inhibit_any(made: &mut Made, skip: u8) {
    made.set(54, true, &emit(2, &[&[skip]]));
}
