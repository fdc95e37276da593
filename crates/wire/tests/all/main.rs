//! Parsing and emitting through the public interface: recorded messages, bad input, and round trips.

mod ike_bad_inputs;
mod ike_recorded;
mod ike_round_trip;
mod vici_recorded;
