//! The steps that need CAP_BPF, done by the helper where this process has one, and here where it
//! has none. The helper gets a filter, never instructions: it makes the program itself.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use ironswan_wire::helper::Request;

use super::program::{COUNTER, COUNTER_SIZE, ProgramImage};
use super::{Filter, IngressError, coded, refused};
use crate::bpf::{self, SingleValueMap};
use crate::helper::client;

/// Limits the bytes of a filter that the helper reads.
const MAX_FILTER: u64 = 64 << 20;

/// Makes a counter.
pub(super) fn make_counter() -> io::Result<SingleValueMap> {
    match client::get() {
        Some(helper) => {
            let map = helper.descriptor(&Request::MakeCounter, &[])?;
            Ok(SingleValueMap::trusted(map, COUNTER_SIZE))
        }
        None => SingleValueMap::new(COUNTER_SIZE, COUNTER),
    }
}

/// Packets and bytes of a counter; `None` when the kernel does not say.
pub(super) fn read(counter: &SingleValueMap) -> Option<(u64, u64)> {
    match client::get() {
        Some(helper) => helper.count(&Request::ReadCounter, &[counter.as_fd()]).ok(),
        None => numbers(counter).ok(),
    }
}

fn numbers(counter: &SingleValueMap) -> io::Result<(u64, u64)> {
    let bytes = counter.get()?;
    let number = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_ne_bytes(*b));
    number(0).zip(number(8)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The counter of the program with this number in the kernel.
pub(super) fn counter_of(program: u32) -> io::Result<SingleValueMap> {
    if let Some(helper) = client::get() {
        let map = helper.descriptor(&Request::CounterOf(program), &[])?;
        return Ok(SingleValueMap::trusted(map, COUNTER_SIZE));
    }
    let program = bpf::program_by_id(program)?;
    let found = SingleValueMap::of_program(program.as_fd(), COUNTER_SIZE, COUNTER)?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Loads the program of a filter.
pub(super) fn load(filter: &Filter, image: &ProgramImage, counter: &SingleValueMap) -> io::Result<OwnedFd> {
    let Some(helper) = client::get() else { return image.load(counter) };
    let file = client::memory_file(&coded::encode(filter))?;
    helper.descriptor(&Request::LoadIngress, &[file.as_fd(), counter.as_fd()])
}

/// The number of programs in front of tc at an interface.
pub(super) fn count_tcx(interface: u32) -> io::Result<u32> {
    match client::get() {
        Some(helper) => {
            let (count, _) = helper.count(&Request::CountTcx(interface), &[])?;
            Ok(u32::try_from(count).unwrap_or(u32::MAX))
        }
        None => bpf::tcx_at(interface),
    }
}

/// For the helper: makes a counter, as the descriptor of its map.
///
/// # Errors
/// The kernel refuses.
pub fn serve_counter() -> io::Result<OwnedFd> {
    make_counter().map(SingleValueMap::into_descriptor)
}

/// For the helper: reads a counter.
///
/// # Errors
/// The kernel refuses, or the descriptor is of anything else.
pub fn serve_count(counter: OwnedFd) -> io::Result<(u64, u64)> {
    numbers(&SingleValueMap::adopt(counter, COUNTER_SIZE)?)
}

/// For the helper: the counter of the program with this number.
///
/// # Errors
/// The kernel refuses, or the program is none of ours.
pub fn serve_counter_of(program: u32) -> io::Result<OwnedFd> {
    counter_of(program).map(SingleValueMap::into_descriptor)
}

/// For the helper: loads the program of the filter that is in this file.
///
/// # Errors
/// The kernel refuses, the file holds no filter, or the map is no counter.
pub fn serve_load(filter: OwnedFd, counter: OwnedFd) -> Result<OwnedFd, IngressError> {
    let step = "load a program";
    let counter = SingleValueMap::adopt(counter, COUNTER_SIZE).map_err(refused(step))?;
    let file = File::from(filter);
    // What is read is checked, so nothing is lost when the daemon changes the file meanwhile.
    let mut bytes = Vec::new();
    let read = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
        .map_err(io::Error::from)
        .and_then(|_| (&file).take(MAX_FILTER).read_to_end(&mut bytes));
    read.map_err(refused(step))?;
    let filter = coded::decode(&bytes).map_err(|e| refused(step)(io::Error::other(e)))?;
    let image = ProgramImage::new(&filter).map_err(IngressError::TooMany)?;
    image.load(&counter).map_err(refused(step))
}

/// For the helper: whether the kernel takes programs with loops from this thread.
pub fn serve_may_loop() -> bool {
    super::program::this_thread_may_loop()
}

/// For the helper: the number of programs in front of tc at an interface.
///
/// # Errors
/// The kernel has no such programs, or refuses.
pub fn serve_tcx(interface: u32) -> io::Result<u32> {
    count_tcx(interface)
}
