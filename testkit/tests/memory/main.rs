//! Memory that an established IKE_SA with one CHILD_SA takes at a gateway, counted by an allocator
//! that is this test program's own: heap bytes of the endpoint, without the packet engine.
#![allow(unsafe_code, reason = "an allocator is unsafe by nature; this is a test program of its own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ironswan_testkit::Clock;
use ironswan_testkit::direct::{self, Way};

thread_local! {
    /// Bytes that this thread has taken and not given back.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    LIVE.with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// IKE_SAs at the hub when the count begins, and when it ends. Both are right after powers of two,
/// so that the spare room of growing tables is counted at its largest.
const FIRST: u32 = 260;
const LAST: u32 = 2_100;

/// Most bytes that the IKE part of a tunnel may take.
const MOST: i64 = 6 * 1024;

/// Heap bytes of a hub for each IKE_SA with one CHILD_SA.
fn bytes_for_each(way: Way) -> i64 {
    let clock = Clock::new();
    let mut hub = direct::hub(clock.now(), 1, way);
    let set_up = |hub: &mut direct::End, n: u32| {
        let mut peer = direct::peer(clock.now(), n, way);
        direct::set_up(clock.now(), "gw", [&mut peer, hub]);
        // Causes that were told. A daemon has them in records of a bounded size, apart from the
        // endpoint.
        hub.failures = Vec::new();
    };
    (0..FIRST).for_each(|n| set_up(&mut hub, n));
    let before = LIVE.with(Cell::get);
    (FIRST..LAST).for_each(|n| set_up(&mut hub, n));
    let grown = LIVE.with(Cell::get) - before;
    grown / i64::from(LAST - FIRST)
}

#[test]
fn a_tunnel_takes_at_most_6_kib_with_a_pre_shared_key() {
    let each = bytes_for_each(Way { ecdsa: false, additional: &[] });
    println!("an IKE_SA with its child, PSK: {each} bytes");
    assert!((1_000..=MOST).contains(&each), "{each} bytes");
}

#[test]
fn a_tunnel_takes_at_most_6_kib_with_chains_of_three_certificates() {
    let each = bytes_for_each(Way { ecdsa: true, additional: &[] });
    println!("an IKE_SA with its child, ECDSA and chains of three: {each} bytes");
    assert!((1_000..=MOST).contains(&each), "{each} bytes");
}
