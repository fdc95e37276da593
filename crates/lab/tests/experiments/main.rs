//! Experiments, topologies and reports whose tests judge no rate.

#[path = "../common/mod.rs"]
mod common;
mod congestion;
mod fragments;
mod lowend;
mod outer;
mod plan;
mod relay;
mod report;
mod rfc2544;
mod sender;
mod trials;
mod warnings;
