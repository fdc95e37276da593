//! The daemon: configuration, driver, workers, VICI.

pub mod config;
#[cfg(test)]
mod scratch;
