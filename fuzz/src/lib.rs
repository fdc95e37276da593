//! Fuzz targets, and a small mutation fuzzer that runs them on stable Rust.
//!
//! A target is a function over bytes that must return: no panic, no endless loop, no giant allocation, and whatever it
//! asserts (what parses can be emitted and parses to the same). The same functions run two ways:
//!
//! - `cargo run --release --bin short`: seeded mutation of the corpora under `seeds/`, some seconds each, on stable;
//! - `cargo +nightly fuzz run TARGET --features libfuzzer -- seeds/TARGET`: libFuzzer, for long.
//!
//! To add a target: a file in `src/targets/` with `run` and `DICTIONARY`, a line in [`TARGETS`], a `fuzz_targets/NAME.rs`
//! with its `[[bin]]` in `Cargo.toml`, and seeds in `seeds/NAME/`. `cargo test` says which of these is missing.

pub mod corpus;
pub mod mutate;
pub mod targets;

use targets::{esp_inbound, ike_message, ike_payloads, planted, swanctl_conf, vici};

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name: of its file, its seeds and its libFuzzer binary.
    pub name: &'static str,
    /// Runs one input. The result tells how far it came: an input with a result not seen before is kept and mutated
    /// further, which takes the place of coverage.
    pub run: fn(&[u8]) -> u64,
    /// Byte strings that mean something in this format.
    pub dictionary: &'static [&'static [u8]],
    /// Longest input to make.
    pub max_len: usize,
    /// Most bytes that one input may have allocated at one time.
    pub max_memory: usize,
    /// Planted defects, which show that the fuzzer finds what it should: not run unless named.
    pub hidden: bool,
}

const fn target(name: &'static str, run: fn(&[u8]) -> u64, dictionary: &'static [&'static [u8]]) -> Target {
    Target { name, run, dictionary, max_len: 2048, max_memory: 256 * 1024, hidden: false }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    // An engine with its flow tables for each input.
    Target { max_memory: 1 << 20, ..target("esp_inbound", esp_inbound::run, esp_inbound::DICTIONARY) },
    target("ike_message", ike_message::run, ike_message::DICTIONARY),
    target("ike_payloads", ike_payloads::run, ike_message::DICTIONARY),
    // Sections that inherit make more of a file than is written: bounded, and not by its length alone.
    Target { max_memory: 32 << 20, ..target("swanctl_conf", swanctl_conf::run, swanctl_conf::DICTIONARY) },
    target("vici", vici::run, vici::DICTIONARY),
    Target { hidden: true, ..target("planted_panic", planted::panic, &[]) },
    Target { hidden: true, ..target("planted_hang", planted::hang, &[]) },
    Target { hidden: true, ..target("planted_memory", planted::memory, &[]) },
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
