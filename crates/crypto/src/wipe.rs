//! Overwrites the part of the stack that a call has used: libraries in C leave key schedules,
//! chaining values and scratch of big numbers there, and so may compilers with what they had no
//! register for.

use std::hint::black_box;

use crate::engine::registers;

/// How much of the stack is overwritten after keys were expanded: AWS-LC and libipsec-mb take less.
pub(crate) const KEY_SETUP_STACK: usize = 16 * 1024;
/// Bytes of the stack that are overwritten after a batch whose engine left parts of keys there. The
/// frames of the engines are shorter than this. Overwriting costs once a batch, however many
/// packets the batch has.
pub(crate) const PACKET_STACK: usize = 4096;
/// Runs `work`, and overwrites `DEPTH` bytes of the stack below the caller's frame, in which `work`
/// had its own. The result goes past it: it must hold no secret but behind a pointer.
#[inline]
pub(crate) fn after<const DEPTH: usize, R>(work: impl FnOnce() -> R) -> R {
    let result = below(work);
    overwrite::<DEPTH>();
    result
}

/// Has frames of its own, which begin where those of [`overwrite`] do.
#[inline(never)]
fn below<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Overwrites the stack below the caller's frame, and registers that a call may change.
#[inline(never)]
pub(crate) fn overwrite<const DEPTH: usize>() {
    let mut dead = [0u8; DEPTH];
    // The compiler has to believe that somebody reads it.
    black_box(&mut dead);
    registers::clear();
}
