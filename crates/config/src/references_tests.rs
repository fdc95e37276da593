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
    // Keys that `all` has only by inheritance can be inherited again.
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
        ("e { f : g { } }\ng : e { }", "more than 64 references in a row"),
        ("a : b.x { }\nb : a { x { } }", "more than 64 references in a row"),
        ("a : b { }\nb : a { }\nc : a.x { }", "contains or inherits from this section"),
        ("c : a.x { }\na : b { }\nb : a { }", "more than 64 references in a row"),
        ("a : b { k = 1 }\nb { k { } }", "`k` is a key already where this is inherited, t.conf:1"),
        ("a : b { k { } }\nb { k = 1 }", "`k` is a section already where this is inherited, t.conf:1"),
    ] {
        let (s, d) = one(text);
        assert!(d.errors() > 0 && d.error_lines()[0].contains(why), "{text}: {d:?}");
        // The result has no references, whole or not.
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

/// The thread of [`super::super::files`] has a stack of 8 MiB. Gives the findings, and the seconds
/// that it took.
fn on_a_small_stack(text: String) -> (Vec<String>, f64) {
    let run = move || {
        let began = ironswan_testkit::clock::now();
        let (_, d) = one(&text);
        (d.error_lines(), ironswan_testkit::clock::now().saturating_duration_since(began).as_secs_f64())
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(run).unwrap().join().unwrap()
}

#[test]
fn a_chain_of_references_is_at_most_so_long() {
    use std::fmt::Write as _;
    let chain = |n: usize| {
        let mut t = String::new();
        (0..n).for_each(|i| writeln!(t, "s{i} : s{} {{ }}", i + 1).unwrap());
        writeln!(t, "s{n} {{ a = 1 }}").unwrap();
        t
    };
    let (lines, _) = on_a_small_stack(chain(MAX_CHAIN));
    assert!(lines.is_empty(), "{lines:?}");
    for n in [MAX_CHAIN + 1, 100_000] {
        let (lines, took) = on_a_small_stack(chain(n));
        println!("{n} links: {took:.2} s, {lines:?}");
        assert!(
            lines.len() == 1 && lines[0].starts_with("t.conf:1: s0: more than 64 references in a row"),
            "{lines:?}"
        );
    }
    // The longest path, over the longest chain.
    let parts = vec!["x"; MAX_PATH - 1].join(".");
    let deep = format!("{}c : s0.{parts} {{ }}\n", chain(MAX_CHAIN - 1));
    let (lines, _) = on_a_small_stack(deep);
    assert!(lines.len() == 1 && lines[0].contains("which is no section"), "{lines:?}");
}

#[test]
fn so_many_sections_inherited_by_one_take_bounded_time() {
    use std::fmt::Write as _;
    let mut all = String::new();
    (0..20_000).for_each(|i| writeln!(all, "s{i} {{ }}").unwrap());
    let names = |from: usize, n: usize, what: &str| {
        (from..from + n).map(|i| format!("{what}{i}")).collect::<Vec<_>>().join(",")
    };
    // By opening one section again and again.
    let mut again = all.clone();
    (0..200).for_each(|i| writeln!(again, "x : {} {{ }}", names(i * 100, 100, "s")).unwrap());
    let (lines, took) = on_a_small_stack(again);
    println!("one section opened again: {took:.2} s, {lines:?}");
    assert!(lines.len() == 1 && lines[0].contains("section `x`: more than 100 references"), "{lines:?}");
    // By sections in between; all of them are there, so this is what was written.
    let mut tree = all.clone();
    (0..200).for_each(|i| writeln!(tree, "t{i} : {} {{ }}", names(i * 100, 100, "s")).unwrap());
    (0..10).for_each(|i| writeln!(tree, "u{i} : {} {{ }}", names(i * 20, 20, "t")).unwrap());
    writeln!(tree, "x : {} {{ }}", names(0, 10, "u")).unwrap();
    let (lines, took) = on_a_small_stack(tree.clone());
    println!("one that inherits from 20,000: {took:.2} s, {lines:?}");
    assert!(lines.is_empty(), "{lines:?}");
    // A thousand of that kind are too much work.
    (0..1_000).for_each(|i| writeln!(tree, "y{i} : x {{ }}").unwrap());
    let (lines, took) = on_a_small_stack(tree);
    println!("a thousand of them: {took:.2} s, {lines:?}");
    assert!(lines.len() == 1 && lines[0].contains("makes too many entries"), "{lines:?}");
    // Names that are none are compared with others a few times only.
    let mut wrong = all;
    (0..20_000).for_each(|i| writeln!(wrong, "w{i} : s{i}x {{ }}").unwrap());
    let (lines, took) = on_a_small_stack(wrong);
    let hints = lines.iter().filter(|l| l.contains("did you mean")).count();
    println!("20,000 that are no sections: {took:.2} s, {hints} hints");
    assert!(hints == MAX_HINTS && lines[0].contains("did you mean `s0`"), "{lines:?}");
}

#[test]
fn what_is_inherited_is_bounded_in_all_and_a_long_text_counts_as_many_entries() {
    use std::fmt::Write as _;
    // The many road warriors of one template.
    let template = |keys: usize, conns: usize| {
        let mut t = String::from("base {\n");
        (0..keys).for_each(|i| writeln!(t, "k{i} = 1").unwrap());
        t.push_str("}\n");
        (0..conns).for_each(|i| writeln!(t, "s{i} : base {{ }}").unwrap());
        t
    };
    let (lines, took) = on_a_small_stack(template(30, 34_000));
    println!("1,020,000 entries: {took:.2} s");
    assert!(lines.is_empty(), "{lines:?}");
    // The bound itself, at a hundredth of its value.
    for (conns, refused) in [(999, false), (1_001, true)] {
        let (mut root, mut d) = (Section::new(Origin::source("t.conf")), Diagnostics::default());
        let (file, text): (Arc<str>, _) = ("t.conf".into(), template(50, conns));
        parse(&file, text.as_bytes(), &mut root, &mut Vec::new(), &mut NoIncludes, &mut d);
        resolve_within(MAX_ADDED_ENTRIES / 100, &mut root, &mut d);
        let lines = d.error_lines();
        let said = lines.first().is_some_and(|l| l.contains("makes too many entries, more than 50000;"));
        assert_eq!((lines.len(), said), (usize::from(refused), refused), "{conns}: {lines:?}");
    }
    let mut t = format!("base {{ k = {} }}\n", "x".repeat(1_000_000));
    (0..1_000).for_each(|i| writeln!(t, "s{i} : base {{ }}").unwrap());
    let (lines, took) = on_a_small_stack(t);
    println!("1 GB of text: {took:.2} s");
    assert!(lines.len() == 1 && lines[0].contains("makes too many entries"), "{lines:?}");
}

#[test]
fn a_second_pass_finds_nothing_more_to_resolve() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/swanctl_conf");
    let mut inherits = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let (mut root, _) = one(&text);
        let size = root.size();
        resolve(&mut root, &mut Diagnostics::default());
        assert_eq!(root.size(), size, "{text}");
        inherits += usize::from(text.contains(" : "));
    }
    assert!(inherits >= 2, "{inherits} seeds have sections that inherit");
}
