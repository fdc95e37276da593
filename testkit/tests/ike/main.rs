//! Two endpoints, one clock and a simulated network: the stories of IKEv2, one module for each
//! subject.
//!
//! All stories are one program, because each program holds a whole copy of the protocol. The
//! stories of one module: `cargo test -p ironswan-testkit --test ike roam::`.

mod additional;
mod bad_inputs;
mod basic;
mod caps;
mod certificates;
mod collision;
mod computing;
mod contact;
mod crash;
mod down;
mod errors;
mod floods;
mod forged;
mod fragments;
mod hostile;
mod ipcomp;
mod keyed;
mod life;
mod limits;
mod loss;
mod many;
mod misbehaving;
mod mobike;
mod months;
mod names;
mod nat;
mod old_suites;
mod options;
mod oracle;
mod overlap;
mod ppk;
mod ppk_int;
mod race;
mod reauth;
mod reload;
mod retire;
mod revocation;
mod rfc7296_auth;
mod rfc7296_exchanges;
mod rfc7296_states;
mod roam;
mod rounds;
mod series;
mod setup;
mod signature;
mod suites;
mod transport;
mod trouble;
mod turns;
mod under_way;
mod weather;
mod wide;
