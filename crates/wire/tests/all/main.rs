//! Parsing and emitting through the public interface: recorded messages, bad input, and round
//! trips.

mod common;
mod ike_bad_inputs;
mod ike_bad_payloads;
mod ike_recorded;
mod ike_round_trip;
mod vici_recorded;
