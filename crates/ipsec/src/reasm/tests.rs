//! Tests of reassembly.
