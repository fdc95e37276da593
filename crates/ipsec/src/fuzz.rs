//! Bodies of fuzz targets: [`esp_inbound`], what arrives; [`engine_pair`], two engines that face
//! each other, with a reference beside them. In the crate, so that they are compiled and run with
//! the tests.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `arriving` | packets of every kind, for an engine with SAs of every kind |
//! | `pair` | two engines that face each other |
//! | `reference` | a linear SPD, and other models to compare with |

mod arriving;
mod pair;
mod reference;

pub use arriving::esp_inbound;
pub use pair::{Defect, engine_pair, engine_pair_with};
