//! The types of the device where DPDK is not built in: nobody can have a value of them.

use std::convert::Infallible;
use std::marker::PhantomData;

use crate::{Answer, Direction, Fault, Key};

/// Says that the device is not built in, and how to build it in.
///
/// # Errors
/// Always.
pub fn start(_device: &str) -> Result<(), Fault> {
    let lack = "not built in".to_string();
    let remedy = if cfg!(target_arch = "x86_64") {
        "build the laboratory with it: `scripts/setup dpdk` as root, then `cargo build --release --package ironswan-lab \
         --features cryptodev`"
    } else {
        "it is for x86-64 alone"
    };
    Err(Fault { lack, remedy: remedy.into() })
}

/// Packets of one length with one key and one direction.
#[derive(Debug)]
pub struct Packets(Infallible);

/// The half that hands over.
#[derive(Debug)]
pub struct Requests<'a>(Infallible, PhantomData<&'a ()>);

/// The half that asks for what has come back.
#[derive(Debug)]
pub struct Answers<'a>(Infallible, PhantomData<&'a ()>);

impl Packets {
    /// Makes a packet in every slot.
    ///
    /// # Errors
    /// Always.
    pub fn open(
        _key: Key<'_>,
        _direction: Direction,
        _slots: u32,
        _packet_len: usize,
    ) -> Result<Self, Fault> {
        Err(start("").err().unwrap_or(Fault { lack: String::new(), remedy: String::new() }))
    }

    /// Reads the bytes of a packet, from SPI to ICV.
    pub fn read(&mut self, _slot: u32, _into: &mut [u8]) {
        match self.0 {}
    }

    /// The two ends of the queue.
    pub fn ends(&mut self) -> (Requests<'_>, Answers<'_>) {
        match self.0 {}
    }
}

impl Requests<'_> {
    /// Writes the bytes of a packet, from SPI to ICV.
    pub fn write(&mut self, _slot: u32, _packet: &[u8]) {
        match self.0 {}
    }

    /// Hands packets over. Returns how many were taken.
    pub fn submit(&mut self, _first: u32, _count: u32, _seq: u64) -> u32 {
        match self.0 {}
    }
}

impl Answers<'_> {
    /// What has come back. Returns how many answers there are.
    pub fn poll(&mut self, _into: &mut [Answer]) -> usize {
        match self.0 {}
    }
}
