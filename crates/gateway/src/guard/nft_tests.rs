use super::*;
use ironswan_testkit::scratch::Scratch;

/// A folder with a program `nft` that is this script.
fn fake(script: &str) -> (Scratch, OsString) {
    use std::os::unix::fs::PermissionsExt;
    let dir = Scratch::new();
    let path = dir.write("nft", &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let folder = dir.path().as_os_str().to_owned();
    (dir, folder)
}

const RIGHT: &str = r#"if [ "$1" = --version ]; then echo 'nftables v1.0.6 (Lester Gooch #5)'; exit; fi"#;

#[test]
fn versions_are_read_and_compared_by_number() {
    assert_eq!(version("nftables v1.0.6 (Lester Gooch #5)"), Some(Version(1, 0, 6)));
    assert_eq!(version("nftables v1.1 (x)\n"), Some(Version(1, 1, 0)));
    assert_eq!(version("nftables v0.9.8-rc1 (x)"), Some(Version(0, 9, 8)));
    assert!(Version(0, 10, 0) > Version(0, 9, 3) && Version(0, 8, 2) < NEEDED);
    for bad in ["", "nftables", "v", "vx.y", "v1"] {
        assert_eq!(version(bad), None, "{bad}");
    }
}

#[test]
fn one_that_is_too_old_or_broken_is_named_with_the_remedy() {
    let (_dir, path) = fake("echo 'nftables v0.8.2 (Joe Btfsplk)'");
    let text = Nft::find_in(Some(path)).unwrap_err().to_string();
    for word in ["0.8.2", "0.9.3", "nftables", "guard = no", "/nft"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (_dir, path) = fake("echo 'error while loading shared libraries: libnftables.so.1' >&2; exit 127");
    let text = Nft::find_in(Some(path)).unwrap_err().to_string();
    assert!(text.contains("libnftables.so.1") && text.contains("guard = no"), "{text}");
    assert!(missing().to_string().contains("install the package nftables"));
    assert!(missing().to_string().contains("guard = no"));
}

#[test]
fn what_it_complains_about_is_quoted_on_one_line() {
    let (_dir, path) = fake(&format!(
        "{RIGHT}\nif [ \"$1\" = list ]; then echo 'Error: No such file or directory' >&2; exit 1; fi\ncat >/dev/null\n\
         printf '/dev/stdin:1:1-5: Error: syntax error, unexpected string\\ntabel\\n^^^^^\\n' >&2; exit 1"
    ));
    let nft = Nft::find_in(Some(path)).unwrap();
    assert_eq!(nft.counters_listed(), Ok(None), "no table, no counters");
    let text = nft.apply("tabel").unwrap_err().to_string();
    assert_eq!(
        text,
        "nft refused to install the guard: /dev/stdin:1:1-5: Error: syntax error, unexpected string; tabel"
    );
}

#[test]
fn a_long_plan_and_a_long_complaint_do_not_stop_each_other() {
    let (_dir, path) = fake(&format!(
        "{RIGHT}\nif [ \"$1\" = list ]; then exit 0; fi\nseq 100000 >&2; seq 100000; cat >/dev/null; exit 1"
    ));
    let nft = Nft::find_in(Some(path)).unwrap();
    let error = nft.apply(&"#\n".repeat(1_000_000)).unwrap_err();
    assert_eq!(error, Guard::NftRefused { request: "install the guard", why: "1; 2; 3; 4".into() });
    assert!(nft.remove().is_err());
}

#[test]
fn a_relative_entry_of_path_is_not_looked_at() {
    let (_dir, path) = fake("echo 'nftables v0.8.2 (x)'");
    let relative = OsString::from(".:");
    let mut both = relative.clone();
    both.push(path);
    assert!(matches!(Nft::find_in(Some(both)), Err(Guard::NftTooOld { .. })), "the absolute one is found");
}

#[test]
fn counters_are_read_from_a_listing_and_written_into_a_plan() {
    let listing = "table inet ironswan {\n\tcounter out_clear {\n\t\tpackets 3 bytes 252\n\t}\n\n\tcounter in_clear \
                   {\n\t\tpackets 18446744073709551615 bytes 7\n\t}\n}\n";
    let got = counters(listing);
    let want = Counters {
        out_clear: Count { packets: 3, bytes: 252 },
        in_clear: Count { packets: u64::MAX, bytes: 7 },
    };
    assert_eq!(got, want);
    for plan in [
        "counter out_clear { packets 0 bytes 0 }\ncounter in_clear { packets 0 bytes 0 }\nchain c { }",
        "counter out_clear {}\ncounter in_clear {\n}\nchain c { }",
    ] {
        let text = with_counters(plan, &want);
        assert_eq!(counters(&text), want, "{text}");
        assert!(text.ends_with("chain c { }"));
    }
    assert_eq!(with_counters("table inet x {}", &want), "table inet x {}");
    assert_eq!(counters("counter out_clear { packets"), Counters::default());
}
