//! Fuzz targets, and a small mutation fuzzer that runs them on stable Rust.
//!
//! A target is a function over bytes that must return: no panic, no endless loop, no giant
//! allocation, and whatever it asserts (what parses can be emitted and parses to the same). The
//! same functions run two ways:
//!
//! - `cargo run --release --bin short`: seeded mutation of the corpora under `seeds/`, some seconds
//!   each, on stable;
//! - `cargo +nightly fuzz run TARGET --features libfuzzer -- seeds/TARGET`: libFuzzer, for long.
//!
//! To add a target: a file in `src/targets/` with `run` and `DICTIONARY`, a line in [`TARGETS`], a
//! `fuzz_targets/NAME.rs` with its `[[bin]]` in `Cargo.toml`, and seeds in `seeds/NAME/`.
//! `cargo test` says which of these is missing.

pub mod corpus;
pub mod mutate;
pub mod targets;

use targets::{
    certificate, chain, crl, engine_pair, esp_inbound, helper, ike_message, ike_payloads, key_file, ocsp, pkcs12,
    planted, public_key, swanctl_conf, vici,
};

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name: of its file, its seeds and its libFuzzer binary.
    pub name: &'static str,
    /// Runs one input. The result tells how far it came: an input with a result not seen before is
    /// kept and mutated further, which takes the place of coverage.
    pub run: fn(&[u8]) -> u64,
    /// Byte strings that mean something in this format.
    pub dictionary: &'static [&'static [u8]],
    /// Longest input to make.
    pub max_len: usize,
    /// Most bytes that one input may have allocated at one time.
    pub max_memory: usize,
    /// Planted defects, which show that the fuzzer finds what it should: not run unless named.
    pub hidden: bool,
    /// Whose seeds it starts from.
    pub seeds: &'static str,
}

const fn target(name: &'static str, run: fn(&[u8]) -> u64, dictionary: &'static [&'static [u8]]) -> Target {
    Target { name, run, dictionary, max_len: 2048, max_memory: 256 * 1024, hidden: false, seeds: name }
}

const fn planted(name: &'static str, run: fn(&[u8]) -> u64) -> Target {
    Target { hidden: true, seeds: "ike_message", ..target(name, run, &[]) }
}

/// Two engines, with their tables and batches, for each input.
const fn engines(name: &'static str, run: fn(&[u8]) -> u64) -> Target {
    let target = target(name, run, engine_pair::DICTIONARY);
    Target { max_memory: 16 << 20, max_len: 512, seeds: "engine_pair", ..target }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("certificate", certificate::run, certificate::DICTIONARY),
    // A hundred certificates, and the names by which they are sought.
    Target { max_len: 24 << 10, max_memory: 2 << 20, ..target("chain", chain::run, chain::DICTIONARY) },
    target("crl", crl::run, crl::DICTIONARY),
    engines("engine_pair", engine_pair::run),
    // An engine with its flow tables, and what IPComp inflates to, for each input.
    Target { max_memory: 24 << 20, ..target("esp_inbound", esp_inbound::run, esp_inbound::DICTIONARY) },
    target("helper", helper::run, helper::DICTIONARY),
    target("ike_message", ike_message::run, ike_message::DICTIONARY),
    target("ike_payloads", ike_payloads::run, ike_message::DICTIONARY),
    target("key_file", key_file::run, key_file::DICTIONARY),
    target("ocsp", ocsp::run, ocsp::DICTIONARY),
    target("pkcs12", pkcs12::run, pkcs12::DICTIONARY),
    // Big numbers of 16,384 bits, with tables of their powers.
    Target { max_memory: 1 << 20, ..target("public_key", public_key::run, public_key::DICTIONARY) },
    // Sections that inherit make more of a file than is written: bounded, and not by its length
    // alone.
    Target { max_memory: 32 << 20, ..target("swanctl_conf", swanctl_conf::run, swanctl_conf::DICTIONARY) },
    target("vici", vici::run, vici::DICTIONARY),
    planted("planted_panic", planted::panic),
    planted("planted_hang", planted::hang),
    planted("planted_memory", planted::memory),
    Target { hidden: true, ..engines("planted_lost", engine_pair::lost) },
    Target { hidden: true, ..engines("planted_changed", engine_pair::changed) },
    Target { hidden: true, ..engines("planted_reordered", engine_pair::reordered) },
    Target { hidden: true, ..engines("planted_leaked", engine_pair::leaked) },
    Target { hidden: true, ..engines("planted_impersonated", engine_pair::impersonated) },
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
