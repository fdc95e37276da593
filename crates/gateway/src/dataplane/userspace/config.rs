//! Settings of the worker threads, of their device and of their sockets.

use std::time::Instant;

use ironswan_config::tuning::Tuning;
use ironswan_io::clock;
use ironswan_io::tun::TunConfig;

/// Device, sockets and threads to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkersConfig {
    /// The TUN device.
    pub device: TunConfig,
    /// Mark on the outer packets, by which rules keep them off table 220; 0 for none.
    pub mark: u32,
    /// Port of IKE without encapsulation.
    pub ike_port: u16,
    /// Port of IKE and ESP with UDP encapsulation.
    pub natt_port: u16,
    /// Also send and receive ESP without UDP, and AH.
    pub raw_esp: bool,
    /// Further settings.
    pub tuning: Tuning,
    /// When the clock of the engine was 0. Whoever applies commands to the engine counts from here
    /// too.
    pub epoch: Instant,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self {
            device: TunConfig::default(),
            mark: 0x220,
            ike_port: 500,
            natt_port: 4500,
            raw_esp: true,
            tuning: Tuning::default(),
            epoch: clock::now(),
        }
    }
}
