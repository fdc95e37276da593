//! The engine through its public interface.

mod bad_input;
mod common;
mod in_ah;
mod in_common;
mod in_ipcomp;
mod in_options;
mod in_transport;
mod lifecycle;
mod moved;
mod mtu;
mod oracle;
mod out_common;
mod out_dummies;
mod out_kinds;
mod out_matrix;
mod out_mss;
mod out_options;
mod out_rekey;
mod out_sequence;
mod out_stream;
mod replay;
mod roundtrip;
mod spd_fragments;
mod spd_held;
mod split_merge;
mod vectors;
