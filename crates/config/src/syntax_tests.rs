//! Tests of the reader, bad inputs first of all.

use super::*;

fn read(text: impl AsRef<[u8]>) -> (Section, Diagnostics) {
    let file: Arc<str> = "t.conf".into();
    let mut root = Section::new(Origin { file: file.clone(), line: 0 });
    let mut diags = Diagnostics::default();
    parse(&file, text.as_ref(), &mut root, &mut Vec::new(), &mut NoIncludes, &mut diags);
    (root, diags)
}

fn good(text: &str) -> Section {
    let (root, diags) = read(text);
    assert!(diags.is_empty(), "{diags:?}");
    root
}

fn bad(text: impl AsRef<[u8]>) -> String {
    let (_, diags) = read(text);
    assert_eq!(diags.errors(), 1, "{diags:?}");
    diags.error_lines().remove(0)
}

fn text(s: &Section, path: &[&str]) -> String {
    let (key, sections) = path.split_last().unwrap();
    let s = sections.iter().fold(s, |s, n| s.section(n).unwrap_or_else(|| panic!("no section {n}")));
    s.value(key).unwrap_or_else(|| panic!("no key {key}")).as_text().to_string()
}

#[test]
fn sections_and_values_on_one_line_or_many() {
    let s = good("a { b = 1 2\n c { d=x } e = \"}#\" }\n\nf\n{\n g = \n}\n");
    assert_eq!(text(&s, &["a", "b"]), "1 2");
    assert_eq!(text(&s, &["a", "c", "d"]), "x");
    assert_eq!(text(&s, &["a", "e"]), "}#");
    assert!(s.section("f").unwrap().value("g").is_none());
    assert_eq!(s.section("a").unwrap().section("c").unwrap().origin.line, 2);
}

#[test]
fn the_last_of_two_equal_keys_holds_with_a_warning_and_equal_sections_merge() {
    let (s, diags) = read("a { b = 1 }\na { b = 2\n c = 3 }");
    let found: Vec<String> = diags.iter().map(ToString::to_string).collect();
    let want = "t.conf:2: warning: a.b: is written twice, first at line 1: the last one holds; remove one";
    assert_eq!(found, [want]);
    assert_eq!(text(&s, &["a", "b"]), "2");
    assert_eq!(text(&s, &["a", "c"]), "3");
    assert_eq!(s.section("a").unwrap().value("b").unwrap().origin.line, 2);
}

#[test]
fn quotes_know_escapes_and_line_ends() {
    let s = good("a = \"q\\\"\\\\\\n\\t\\x\"\nb = \"one\\\ntwo\"\nc = \"one\ntwo\"\nd = \"\" # nothing\n");
    assert_eq!(text(&s, &["a"]), "q\"\\\n\tx");
    assert_eq!(text(&s, &["b"]), "onetwo");
    assert_eq!(text(&s, &["c"]), "one\ntwo");
    assert!(s.value("d").is_none());
}

#[test]
fn a_value_is_words_and_quoted_texts_with_one_blank_between_them() {
    for (written, want) in [
        ("two  blanks", "two blanks"),
        ("\ta\t \tb\rc \t", "a b c"),
        ("\"two\" \"parts\"", "two parts"),
        ("\"two\"\"parts\"", "two parts"),
        ("x\"y\"z", "x y z"),
        ("\"  a  \"  \"\" b # c", "  a    b"),
        ("\"My \"home\" is my \"castle\"!\"", "My  home  is my  castle !"),
        ("a{b { c", "a{b { c"),
        ("= b = \"c\"", "= b = c"),
        ("a\\nb 'c d' \\", "a\\nb 'c d' \\"),
        ("\"a\rb\\\r\nc\r\r\nd\"", "abc\nd"),
        ("\"\\#\\x\\b\"", "#xb"),
        ("häuser 1", "häuser 1"),
    ] {
        let (s, diags) = read(format!("s {{ k = {written}\n z = 1 }}"));
        assert_eq!(diags.errors(), 0, "{written:?}: {diags:?}");
        assert_eq!(
            (text(&s, &["s", "k"]).as_str(), text(&s, &["s", "z"]).as_str()),
            (want, "1"),
            "{written:?}"
        );
    }
    let s = good("a =\nb = \"\" # nothing\nc\n\n# d\n= 1\ne\n:\nf ,\n g.h\n{ }");
    let value = |k: &str| if let Some(Node::Value(v)) = s.get(k) { v.is_unset() } else { panic!("{k}") };
    assert!(value("a") && !value("b") && !value("c"));
    let refs: Vec<&str> = s.section("e").unwrap().refs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(refs, ["f", "g.h"]);
}

fn findings(text: &str) -> Vec<String> {
    read(text).1.iter().map(ToString::to_string).collect()
}

#[test]
fn a_missing_or_superfluous_brace_is_one_finding_that_names_its_place() {
    let text = "connections {\n  a {\n    local {\n      auth = psk\n    }\n    remote {\n      auth = psk\n    }\n  }\n  \
                b {\n    version = 2\n  }\n}\nsecrets {\n  ike-1 {\n    secret = x\n  }\n}\n";
    let lines: Vec<&str> = text.lines().collect();
    // Lines that open sections, and the lines that close them.
    for (name, opened, closed) in [
        ("local", 3, 5),
        ("remote", 6, 8),
        ("a", 2, 9),
        ("b", 10, 12),
        ("connections", 1, 13),
        ("ike-1", 15, 17),
        ("secrets", 14, 18),
    ] {
        let without: Vec<&str> =
            lines.iter().enumerate().filter(|(i, _)| i + 1 != closed).map(|(_, l)| *l).collect();
        let found = findings(&without.join("\n"));
        let want = format!("t.conf:{opened}: section `{name}` is never closed");
        assert!(found.len() == 1 && found[0].starts_with(&want), "without line {closed}: {found:?}");
        if closed < 18 {
            let place = format!("its `}}` is missing before line {closed}");
            assert!(found[0].contains(&place), "without line {closed}: {found:?}");
        }
        let mut twice = lines.clone();
        twice.insert(closed, lines[closed - 1]);
        let found = findings(&twice.join("\n"));
        assert!(
            found.len() == 1 && found[0].contains("a `}` that closes nothing"),
            "line {closed} twice: {found:?}"
        );
        if lines[closed - 1].starts_with(' ') {
            let place = format!("the one of line {} is too many", closed + 1);
            assert!(found[0].contains(&place), "line {closed} twice: {found:?}");
        }
    }
    // Without indentation there is nothing to go by.
    let flat = "a {\nb {\nc = 1\n}\nd {\n}\n";
    assert_eq!(findings(flat), ["t.conf:1: section `a` is never closed; add a `}`"]);
}

#[test]
fn crlf_tabs_and_a_byte_order_mark_are_harmless() {
    let s = good("\u{feff}a\t{\r\n\tb\t=\t1\t2\t\r\n\tc = \"x\r\ny\"\r\n}\r\n");
    assert_eq!(text(&s, &["a", "b"]), "1 2");
    assert_eq!(text(&s, &["a", "c"]), "x\ny");
}

#[test]
fn a_comment_in_the_middle_of_a_word_is_warned_about() {
    let (s, diags) = read("secret = pass#word\nb = c # fine\n");
    assert_eq!(text(&s, &["secret"]), "pass");
    assert_eq!(diags.iter().count(), 1);
    assert_eq!(diags.errors(), 0);
}

#[test]
fn every_syntax_error_names_its_line() {
    for (input, want) in [
        ("a {\n b = 1\n", "t.conf:1: section `a` is never closed"),
        ("a = 1\n}\n", "t.conf:2: a `}` that closes nothing"),
        ("\n\na b = 1", "t.conf:3: `a` is followed by neither"),
        ("a = \"x\n\n", "t.conf:1: a quoted text that is never closed"),
        ("a = x { b = 1 }", "t.conf:1: a `}` that closes nothing"),
        ("a = x\n{ b = 1 }", "t.conf:2: `{` where a name is expected"),
        ("a\u{a0}b = 1", "t.conf:1: a blank that is not ASCII"),
        ("a = 1 # b\rc = 2\n", "t.conf:1: a carriage return in the middle of a comment"),
        ("include  = 1", "t.conf:1: include names no file"),
        ("include \n= 1", "t.conf:1: include names no file"),
        ("a.b = 1", "t.conf:1: a name must not contain `.`"),
        ("= 1", "t.conf:1: `=` where a name is expected"),
        ("a { }\na = 1", "t.conf:2: `a` is a section already"),
        ("a = 1\na { }", "t.conf:2: `a` is a key already"),
        ("a : { }", "t.conf:1: the name of a section is expected"),
        ("include\n", "t.conf:1: include names no file"),
        ("a = 1\n\nb = \u{7}x", "t.conf:3: a control character"),
    ] {
        let got = bad(input);
        assert!(got.starts_with(want), "{input:?} gave {got:?}");
    }
}

#[test]
fn nul_and_bytes_that_are_not_utf8_name_their_line() {
    assert!(bad(b"a = 1\nb = x\0y\n").starts_with("t.conf:2: a NUL byte"));
    assert!(bad(b"a = 1\n\nb = \xff\n").starts_with("t.conf:3: bytes that are not UTF-8"));
}

#[test]
fn nesting_ten_thousand_deep_is_refused_and_does_not_overflow() {
    let deep = "a {\n".repeat(10_000);
    assert!(bad(&deep).contains("more than 32 sections inside each other"));
}

#[test]
fn ten_megabytes_are_read() {
    use std::fmt::Write as _;
    let mut t = String::from("connections {\n");
    let mut n = 0;
    while t.len() < 10_000_000 {
        writeln!(t, " c{n} {{ local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n }}").unwrap();
        n += 1;
    }
    t.push('}');
    let s = good(&t);
    assert_eq!(s.section("connections").unwrap().len(), n);
}

#[test]
fn names_of_any_length_and_kind_end_in_an_error_or_a_tree() {
    assert!(bad("a".repeat(300) + " = 1").contains("longer than 255"));
    let s = good("häuser-1_x@y = 1");
    assert_eq!(text(&s, &["häuser-1_x@y"]), "1");
}

#[test]
fn no_finding_quotes_what_may_be_the_rest_of_a_secret() {
    for rest in [
        "}swordfish",
        "}swordfish\n}",
        "} swordfish\n}",
        "}swordfish=}\n}",
        "} swordfish = }\n}",
        "}swordfish {",
        "}}swordfish",
        "}} swordfish",
        "} }swordfish.x",
        "}swordfish.x",
        "} swordfish.x",
        "}swordfish\"x",
        "} swordfish\"x\"",
        "} swordfish,",
        "}swordfish\u{a0}",
        "\nswordfish\n}}",
        "\n swordfish.x = 1\n}}",
        "\n swordfish\" = 1\n}}",
    ] {
        for text in
            [format!("secrets {{ ike-1 {{ secret = abc{rest}"), format!("s {{ t {{ secret = abc{rest}")]
        {
            let found = findings(&text);
            assert!(found.len() == 1 && found[0].starts_with("t.conf:"), "{text:?}: {found:?}");
            assert!(!found[0].contains("sword"), "{text:?}: {found:?}");
            assert!(found[0].contains("quote"), "{text:?}: {found:?}");
        }
    }
    // Sections on one line are no rest of a secret.
    let s = good("secrets { ike-1 { secret = abc } ike-2 { secret = def }}\nt { secret = ghi }\nu { a = 1 }");
    assert_eq!(text(&s, &["secrets", "ike-2", "secret"]), "def");
    let close = bad("secrets { ike-1 { secret = abc }}connections { a = 1 }");
    assert!(close.contains("; put a blank behind the `}`, or quote the secret"), "{close}");
    let s = good("secrets { ike-1 { secret = abc }} connections { a = 1 }");
    assert_eq!(text(&s, &["connections", "a"]), "1");
    let long = bad(format!("{}\"", "a".repeat(200)));
    assert!(long.len() < 120, "{long}");
}
