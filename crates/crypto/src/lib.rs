//! Algorithms behind traits, and the engines (libraries) that provide them. Knows no packets.
//!
//! `unsafe` lives in `engine` only, in files named after the library.
