//! Tests of files and globs.

use std::fs;

use super::*;
use ironswan_testkit::clock::now;
use ironswan_testkit::scratch::Scratch;

fn read(dir: &Scratch, name: &str) -> (Section, Diagnostics) {
    let mut diags = Diagnostics::default();
    let mut reader = Reader::new(&Files::new(now));
    reader.read(&dir.path().join(name), &mut diags);
    let (root, _) = reader.finish(&mut diags);
    (root, diags)
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
    let found: Vec<String> = d.iter().map(ToString::to_string).collect();
    assert!(
        found.len() == 1 && found[0].contains("2.conf:1: warning: k: is written twice, first at"),
        "{d:?}"
    );
    assert_eq!(*s.value("k").unwrap().as_text(), "2");
    assert!(s.value("k").unwrap().origin.file.ends_with("conf.d/2.conf"));
    assert!(s.section("a").unwrap().value("b").is_some());
}

#[test]
fn a_glob_in_a_folder_that_cannot_be_seen_is_an_error_and_files_among_its_folders_are_not() {
    let dir = Scratch::new();
    dir.write("t.conf", "include */x.inc\ninclude */*.inc\n");
    dir.write("sub/x.inc", "k = 1");
    let (s, d) = read(&dir, "t.conf");
    assert_eq!((d.errors(), &**s.value("k").unwrap().as_text()), (0, "1"), "{d:?}");
    for (target, pattern) in [
        ("loop", "loop/*.inc"),
        ("nowhere", "loop/*.inc"),
        ("nowhere", "loop/deeper/*.inc"),
        ("loop", "*.inc"),
    ] {
        let link = dir.path().join(if pattern == "*.inc" { "loop.inc" } else { "loop" });
        let target = if pattern == "*.inc" { "loop.inc" } else { target };
        std::os::unix::fs::symlink(target, &link).unwrap();
        dir.write("t.conf", &format!("include {pattern}\n"));
        let (_, d) = read(&dir, "t.conf");
        assert!(
            d.error_lines().iter().any(|l| l.contains("t.conf:1: include ")),
            "{pattern} {target}: {d:?}"
        );
        fs::remove_file(link).unwrap();
    }
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
