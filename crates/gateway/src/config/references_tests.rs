//! Tests of references.

use std::sync::Arc;

use super::super::syntax::{NoIncludes, parse};
use super::*;

fn one(text: &str) -> (Section, Diagnostics) {
    let file: Arc<str> = "t.conf".into();
    let (mut root, mut diags) = (Section::new(Origin::source("t.conf")), Diagnostics::default());
    parse(&file, text.as_bytes(), &mut root, &mut Vec::new(), &mut NoIncludes, &mut diags);
    resolve(&mut root, &mut diags);
    (root, diags)
}

#[test]
fn what_is_written_wins_over_what_is_inherited_and_the_first_base_over_the_second() {
    let (s, d) = one("base { a = 1\n b = 1\n sub { x = 1 } }\nmore : base { b = 2\n c = 2 }\n\
        t : more, other.in { d = 4\n sub { y = 2 } }\nother { in { d = 5\n e = 5\n c = 5 } }");
    assert!(d.is_empty(), "{d:?}");
    let t = s.section("t").unwrap();
    let get = |k: &str| t.value(k).unwrap().as_text().to_string();
    assert_eq!([get("a"), get("b"), get("c"), get("d"), get("e")], ["1", "2", "2", "4", "5"]);
    let sub = t.section("sub").unwrap();
    assert!(sub.value("x").is_some() && sub.value("y").is_some());
}

#[test]
fn references_in_circles_and_to_nothing_are_errors() {
    let (_, d) = one("a : b { }\nb : a { }\nc : bse { }\nbase { }\nd : d { }\ne { f : e { } }");
    let e = d.error_lines();
    assert!(e.iter().any(|l| l.contains(":2: b: inherits from `a`")), "{e:?}");
    assert!(e.iter().any(|l| l.contains(":3: c: inherits from `bse`") && l.contains("`base`")), "{e:?}");
    assert!(e.iter().any(|l| l.contains(":5: d: inherits from `d`")), "{e:?}");
    assert!(e.iter().any(|l| l.contains(":6: e.f: inherits from `e`")), "{e:?}");
}

#[test]
fn references_that_double_each_time_are_cut_off() {
    use std::fmt::Write as _;
    let mut t = String::from("s0 { a = 1\n b = 2 }\n");
    for i in 1..40 {
        writeln!(t, "s{i} {{ x : s{} {{ }}\n y : s{} {{ }} }}", i - 1, i - 1).unwrap();
    }
    let (_, d) = one(&t);
    assert!(d.error_lines()[0].contains("makes too many entries"), "{:?}", d.error_lines().first());
}

#[test]
fn references_are_followed_at_every_level_of_a_path() {
    // `t.s` is itself, then `u` by its own reference, then `v.s` by that of `t`.
    let (s, d) =
        one("c : t.s { }\nt : v { s : u { a = 1 } }\nu { a = 2\n b = 2 }\nv { s { b = 3\n d = 3 } }");
    assert!(d.is_empty(), "{d:?}");
    let get = |k: &str| s.section("c").unwrap().value(k).unwrap().as_text().to_string();
    assert_eq!([get("a"), get("b"), get("d")], ["1", "2", "3"]);
    // What `all` has only by inheritance can be inherited again.
    let (s, d) = one("x { c { a = 1 } }\nall : x { d : all.c { } }");
    assert!(d.is_empty(), "{d:?}");
    assert!(s.section("all").unwrap().section("d").unwrap().value("a").is_some());
    // A key without a value hides what would be inherited.
    let (s, d) = one("x { a = 1 }\nb : x { a = }\nc : b { }");
    assert!(d.is_empty() && s.section("c").unwrap().value("a").is_none(), "{d:?}");
}

#[test]
fn sections_that_contain_themselves_are_errors() {
    for (text, why) in [
        ("a : a.b { b { } }", "is a part of this section"),
        ("e { f : g { } }\ng : e { }", "makes too many entries"),
        ("a : b.x { }\nb : a { x { } }", "makes too many entries"),
        ("a : b { k = 1 }\nb { k { } }", "`k` is a key already where this is inherited, t.conf:1"),
        ("a : b { k { } }\nb { k = 1 }", "`k` is a section already where this is inherited, t.conf:1"),
    ] {
        let (s, d) = one(text);
        assert!(d.errors() > 0 && d.error_lines()[0].contains(why), "{text}: {d:?}");
        // What is left has no references, whole or not.
        let mut again = Diagnostics::default();
        let (size, mut s) = (s.size(), s);
        resolve(&mut s, &mut again);
        assert!(again.is_empty() && s.size() == size, "{text}");
    }
}

#[test]
fn two_to_the_sixty_ways_to_one_section_end_soon() {
    use std::fmt::Write as _;
    let mut t = String::from("connections : s0 { x { } }\n");
    for i in 0..60 {
        writeln!(t, "s{i} : s{}, r{} {{ }}\nr{i} : s{}, r{} {{ }}", i + 1, i + 1, i + 1, i + 1).unwrap();
    }
    t.push_str("s60 { x { a = 1 } }\nr60 { x { b = 1 } }\n");
    let (_, d) = one(&t);
    assert!(d.error_lines().iter().any(|l| l.contains("makes too many entries")), "{d:?}");
}
