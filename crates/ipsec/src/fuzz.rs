//! Bodies of fuzz targets: [`esp_inbound`].
pub fn esp_inbound(_data: &[u8]) {}
