//! The fuzzer finds what is planted, and every target has all its parts.

use std::path::Path;
use std::process::Command;
use std::{fs, str};

use ironswan_fuzz::{TARGETS, corpus};

fn short(args: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_short")).args(args).output().unwrap();
    (out.status.code().unwrap(), str::from_utf8(&out.stdout).unwrap().to_owned())
}

#[test]
fn a_planted_panic_is_found_and_comes_again() {
    let (status, text) = short(&["--expect-crash", "planted_panic"]);
    assert!(status == 0 && text.contains("panic: the planted defect"), "{text}");
}

#[test]
fn a_planted_endless_loop_is_found_and_comes_again() {
    let (status, text) = short(&["--expect-crash", "planted_hang"]);
    assert!(status == 0 && text.contains("too slow"), "{text}");
}

#[test]
fn a_planted_allocation_is_found_and_comes_again() {
    let (status, text) = short(&["--expect-crash", "planted_memory"]);
    assert!(status == 0 && text.contains("too much memory"), "{text}");
}

#[test]
fn planted_defects_of_the_packet_engine_are_found_and_come_again() {
    for (name, says) in [
        ("planted_lost", "packets of"),
        ("planted_changed", "packet "),
        ("planted_reordered", "packet "),
        ("planted_leaked", "left by"),
        ("planted_impersonated", "panic: "),
    ] {
        let (status, text) = short(&["--expect-crash", name]);
        assert!(status == 0 && text.contains("panic: ") && text.contains(says), "{text}");
    }
}

#[test]
fn a_target_without_a_defect_is_not_called_defective() {
    let (status, text) = short(&["--seconds", "1", "--expect-crash", "vici"]);
    assert!(status == 1 && text.contains("was missed"), "{text}");
}

#[test]
fn every_target_has_seeds_that_pass_and_a_libfuzzer_binary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for target in TARGETS.iter().filter(|t| !t.hidden) {
        let name = target.name;
        let seeds = corpus::seeds(target).unwrap_or_else(|e| panic!("seeds/{name}: {e}"));
        assert!(!seeds.is_empty(), "seeds/{name} is empty");
        for seed in seeds {
            assert!(seed.len() <= target.max_len, "a seed of {name} is longer than its inputs may be");
            (target.run)(&seed);
        }
        let source = fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("targets::{name}::run(data)")), "fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "[[bin]] of {name}");
    }
}

#[test]
fn hexadecimal_comes_back() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(corpus::from_hex(&corpus::to_hex(&all)), Some(all));
    assert_eq!(corpus::from_hex("0"), None);
    assert_eq!(corpus::from_hex("0g"), None);
}
