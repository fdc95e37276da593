//! Measures how fast the tester's own cryptography is on one core, in memory, without a socket.
//! Above that rate it would measure itself.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::batch;
use ironswan_crypto::rng::{Rng, System};
use ironswan_wire::offload::VNET_HDR_LEN;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::secret::Secret;

use super::{Association, Inner, Opener, Outer, Sealed};
use crate::clock;
use crate::error::LabError;
use crate::load::frame::{Burst, Route, Shape};
use crate::load::generator::BATCH;
use crate::peer::SaKeys;

/// Packets in a second of this thread's processor time: what other programs take of the machine is
/// no limit of the tester's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Made and sealed.
    pub seal_pps: f64,
    /// Opened, checked and counted.
    pub open_pps: f64,
}

/// Seals packets of `shape` for about `time` of this thread and opens every one of them, with keys
/// of their own. An error when one does not come out as it went in: such a tester measures nothing.
pub fn limits(suite: &EspSuite, shape: Shape, time: Duration) -> Result<Limits, LabError> {
    let unknown = || LabError::Measurement(format!("the tester has no {suite}"));
    let (encr, integ) = batch::keymat_lens(suite).ok_or_else(unknown)?;
    let random = |len| {
        let mut bytes = vec![0; len];
        System.fill(&mut bytes);
        Secret::new(bytes)
    };
    let keys = SaKeys { spi: 0x1000, encr: random(encr), integ: random(integ) };
    let (left, right) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let (left, right) = (SocketAddrV4::new(left, 4500), SocketAddrV4::new(right, 4500));
    let there = Outer { local: left, remote: right, udp: false };
    let here = Outer { local: right, remote: left, udp: false };
    let destination = Ipv4Addr::new(10, 1, 0, 2);
    let route = Route { next_hop: [2; 6], destination, port: 7, sources: [10, 2, 0] };
    let mut sealed = Sealed::new(Arc::new(Association::new(suite, &keys, there)?), shape, route, BATCH);
    let opens = Arc::new(Association::new(suite, &keys, here)?);
    let mut opener = Opener::new(Some(opens), Inner { destination, port: route.port }, shape);
    let (mut sealing, mut opening, mut made) = (Duration::ZERO, Duration::ZERO, 0u32);
    let start = clock::of_this_thread();
    while made == 0 || clock::of_this_thread() - start < time {
        let began = clock::of_this_thread();
        sealed.make(made, BATCH, 0)?;
        let between = clock::of_this_thread();
        let mut frames = sealed.bytes().to_vec();
        let (mut places, mut at) = (Vec::with_capacity(BATCH), 0);
        while at < BATCH {
            let row = sealed.row(made, BATCH, at);
            let starts = (0..row.messages).map(|n| row.start + n * row.stride);
            places.extend(starts.map(|start| (start + VNET_HDR_LEN..start + row.len, 0)));
            at += row.messages.max(1);
        }
        let copied = clock::of_this_thread();
        opener.take(&mut frames, places.into_iter(), false);
        opening += clock::of_this_thread() - copied;
        sealing += between - began;
        made += BATCH as u32;
    }
    let (received, _) = opener.finish();
    if received.unique != u64::from(made) {
        let why =
            format!("the tester opened {} of {made} packets that it had sealed ({suite})", received.unique);
        return Err(LabError::Measurement(why));
    }
    let per_second = |spent: Duration| f64::from(made) / spent.as_secs_f64().max(1e-9);
    Ok(Limits { seal_pps: per_second(sealing), open_pps: per_second(opening) })
}
