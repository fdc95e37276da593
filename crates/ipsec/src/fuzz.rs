//! Bodies of fuzz targets: [`esp_inbound`], what arrives; [`engine_pair`], two engines that face each other, with a reference
//! beside them. In the crate, so that they are compiled and run with the tests.

mod arriving;
mod pair;
mod reference;

pub use arriving::esp_inbound;
pub use pair::{Defect, engine_pair, engine_pair_with};
