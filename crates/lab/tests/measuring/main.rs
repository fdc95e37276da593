//! Experiments that judge a rate, or measure how much time of the machine is left beside the load.
//! `scripts/test` runs them when nothing else works.

mod applications;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod cores;
mod driver;
mod generators;
mod iperf3;
mod line;
mod profile;
mod topologies;
mod tunnels;
