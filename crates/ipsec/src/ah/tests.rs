//! Tests of the Authentication Header.
