//! Two engines that face each other. The other engine opens what one has sealed to the same
//! packets, unless it has a policy of its own that covers them before that of the SA. A packet
//! leaves only by an SA of the policy that a linear list of policies finds for it. The books of
//! both balance.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `input` | bytes to SAs, selectors and frames |
//! | `world` | both engines, what was sent, and what must arrive |
//! | `reference` | a linear SPD, and other models to compare with |

mod input;
mod reference;
#[cfg(test)]
mod tests;
mod world;

use ironswan_wire::offload::Offload;

use input::{Choice, frame};
use world::World;

/// Bytes that choose: SAs of AH and ESP, policies, frames of one and of many packets, any frames.
pub const DICTIONARY: &[&[u8]] = &[
    &[0],
    &[1, 0],
    &[2, 0],
    &[0x20, 0x40, 0, 0x42],
    &[0x80, 0, 0, 0x80],
    &[0xff, 0xf1, 0, 2, 0x40],
    &[0x21, 0, 1],
    &[0x03, 0xc0],
    &[0x10],
    &[5, 1, 0, 54, 0, 0x78, 5, 20, 0, 16, 0],
    &[0x45, 0, 0, 40],
    &[0x60, 0, 0, 0],
];

/// A fault planted between the engine and the checks, to see that the checks find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
    /// Nothing.
    None,
    /// The last packet of a merged write gets lost.
    Lost,
    /// A packet of transport mode is delivered with one bit changed.
    Changed,
    /// Two packets of one flow come in the wrong order.
    Reordered,
    /// A packet that a policy says to discard leaves.
    Leaked,
    /// A packet that another policy covers before that of its SA is delivered.
    Impersonated,
}

/// Reads SAs, policies, and then frames: our own, which must arrive unchanged, or any bytes under
/// any offload header, which must do no harm. Panics when one of them does not, when a packet
/// leaves that the list of policies forbids, or when the books do not balance. The result tells how
/// far the input came.
pub fn run(data: &[u8]) -> u64 {
    run_with(data, Defect::None)
}

/// With a packet lost on purpose.
pub fn lost(data: &[u8]) -> u64 {
    run_with(data, Defect::Lost)
}

/// With a packet of transport mode changed on purpose.
pub fn changed(data: &[u8]) -> u64 {
    run_with(data, Defect::Changed)
}

/// With two packets exchanged on purpose.
pub fn reordered(data: &[u8]) -> u64 {
    run_with(data, Defect::Reordered)
}

/// With a packet that is to be discarded let out on purpose.
pub fn leaked(data: &[u8]) -> u64 {
    run_with(data, Defect::Leaked)
}

/// With a packet delivered on purpose that another policy covers before that of its SA.
pub fn impersonated(data: &[u8]) -> u64 {
    run_with(data, Defect::Impersonated)
}

/// [`run`] with a planted defect, which must make it panic.
fn run_with(data: &[u8], defect: Defect) -> u64 {
    let mut choice = Choice(data);
    let mut world = World::new(&mut choice, defect);
    while !choice.0.is_empty() {
        match choice.byte() {
            0..=15 => {
                // Any bytes travel alone: nothing is known of their effect on the order of others.
                world.deliver(true);
                let header: Vec<u8> = (0..10).map(|_| choice.byte()).collect();
                let len = usize::from(choice.word()).min(choice.0.len());
                let (bytes, rest) = choice.0.split_at(len);
                choice.0 = rest;
                if let Ok(offload) = Offload::parse(&header) {
                    world.send(bytes, &offload, false);
                    world.deliver(false);
                }
            }
            16..=31 => world.deliver(true),
            _ => {
                let (frame, offload) = frame(&mut choice);
                world.send(&frame, &offload, true);
            }
        }
    }
    world.deliver(true);
    world.signature()
}
