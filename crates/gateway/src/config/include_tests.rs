//! Tests of files, globs and references.

use std::fs;

use super::*;
use crate::scratch::Scratch;

fn read(dir: &Scratch, name: &str) -> (Section, Diagnostics) {
    let mut diags = Diagnostics::default();
    let mut reader = Reader::default();
    reader.read(&dir.path().join(name), &mut diags);
    let (root, _) = reader.finish(&mut diags);
    (root, diags)
}

fn one(text: &str) -> (Section, Diagnostics) {
    let dir = Scratch::new();
    dir.write("t.conf", text);
    read(&dir, "t.conf")
}

#[test]
fn a_glob_includes_in_order_and_one_that_matches_nothing_is_fine() {
    let dir = Scratch::new();
    dir.write("t.conf", "include conf.d/*.conf\na { include sub/[xy].inc }\ninclude none/*.conf\n");
    dir.write("conf.d/2.conf", "k = 2");
    dir.write("conf.d/1.conf", "k = 1");
    dir.write("conf.d/.hidden.conf", "k = 3");
    dir.write("conf.d/note.txt", "k = 4");
    dir.write("sub/x.inc", "b = 1");
    let (s, d) = read(&dir, "t.conf");
    assert!(d.is_empty(), "{d:?}");
    assert_eq!(*s.value("k").unwrap().as_text(), "2");
    assert!(s.value("k").unwrap().origin.file.ends_with("conf.d/2.conf"));
    assert!(s.section("a").unwrap().value("b").is_some());
}

#[test]
fn a_loop_and_a_missing_file_are_errors_where_the_include_stands() {
    let dir = Scratch::new();
    dir.write("t.conf", "\ninclude u.conf\n");
    dir.write("u.conf", "include t.conf\ninclude missing.conf\n");
    let (_, d) = read(&dir, "t.conf");
    let e = d.error_lines();
    assert_eq!(e.len(), 2, "{e:?}");
    assert!(e[0].contains("u.conf:1: ") && e[0].contains("includes itself"), "{e:?}");
    assert!(e[1].contains("u.conf:2: cannot read"), "{e:?}");
}

#[test]
fn too_deep_too_long_and_not_a_file_are_errors() {
    let dir = Scratch::new();
    for i in 0..20 {
        dir.write(&format!("{i}.conf"), &format!("include {}.conf\n", i + 1));
    }
    let (_, d) = read(&dir, "0.conf");
    assert!(d.error_lines()[0].contains("9.conf:1") && d.error_lines()[0].contains("inside each other"));
    let file = fs::File::create(dir.path().join("big.conf")).unwrap();
    file.set_len(MAX_FILE + 1).unwrap();
    assert!(read(&dir, "big.conf").1.error_lines()[0].contains("10000001 bytes"));
    fs::create_dir(dir.path().join("d.conf")).unwrap();
    assert!(read(&dir, "d.conf").1.error_lines()[0].contains("not a regular file"));
}

#[test]
fn wildcards_match_as_in_a_shell() {
    for (p, n, want) in [
        ("*.conf", "a.conf", true),
        ("*.conf", "a.conf~", false),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("?[0-9a]x", "z7x", true),
        ("?[!0-9]x", "z7x", false),
        ("[", "[", true),
        ("*", "", true),
        ("**********x", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ] {
        assert_eq!(wild(p.as_bytes(), n.as_bytes()), want, "{p} {n}");
    }
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
