//! The ways of a trial with packets of our own generator: for each direction the frames and sockets
//! of the threads that send, and the receiver at the other end.

use std::thread;
use std::time::Instant;

use crate::error::LabError;
use crate::load::capture::Pace;
use crate::load::frame::{Burst, Frames, Lane, Route, Shape};
use crate::load::{self, BATCH, Offer, Outlet, Receiver, SendBy, Sender, Sent};
use crate::topology::{Cpus, Netns};

/// One direction of a trial: the source of its packets, and the receiver at the other end.
pub(super) struct Way<'a> {
    from: &'a Netns,
    /// Of each thread that sends.
    lanes: Vec<(Sender, Box<dyn Burst>)>,
    pub(super) receiver: Receiver,
}

impl<'a> Way<'a> {
    /// Of packets that leave a host through an interface, for each of `frames` by a socket of its
    /// own, which is opened here: what that takes is no part of a trial.
    pub(super) fn open(
        (from, interface): (&'a Netns, &str),
        frames: Vec<Box<dyn Burst>>,
        by: SendBy,
        receiver: Receiver,
    ) -> Result<Self, LabError> {
        let lane = |(queue, frames): (u32, Box<dyn Burst>)| {
            let outlet = Outlet { interface, by, queue };
            Ok((Sender::open(from, outlet, frames.as_ref())?, frames))
        };
        let lanes = (0..).zip(frames).map(lane).collect::<Result<_, LabError>>()?;
        Ok(Self { from, lanes, receiver })
    }
}

/// Frames of packets of `shape` along `route`, for each of so many threads.
pub(super) fn lanes(shape: Shape, route: Route, threads: u32) -> Vec<Box<dyn Burst>> {
    let one = |lane| Box::new(Frames::of_lane(shape, route, BATCH, lane)) as Box<dyn Burst>;
    Lane::all(threads.max(1)).map(one).collect()
}

/// Sends `offer` in each direction at once, in each by all threads together.
pub(super) fn send(
    ways: &mut [Way<'_>],
    (offer, pace): (Offer, Pace),
    epoch: Instant,
    cpus: Option<&Cpus>,
) -> Result<Vec<Sent>, LabError> {
    thread::scope(|scope| {
        let way = |way| {
            let Way { from, lanes, .. }: &mut Way<'_> = way;
            let (from, count) = (*from, lanes.len() as u32);
            let one = |((sender, frames), lane): (&mut (Sender, Box<dyn Burst>), Lane)| {
                let offer = offer.of_lane(lane);
                load::generate_paced(from, (sender, frames.as_mut()), (offer, pace), epoch, cpus)
            };
            let threads = lanes.iter_mut().zip(Lane::all(count));
            threads.map(|thread| scope.spawn(move || one(thread))).collect::<Vec<_>>()
        };
        let all: Vec<Vec<_>> = ways.iter_mut().map(way).collect();
        let join = |t: thread::ScopedJoinHandle<'_, _>| match t.join() {
            Ok(sent) => sent,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let together = |threads: Vec<_>| {
            let sent = threads.into_iter().map(join).collect::<Result<Vec<Sent>, LabError>>()?;
            Ok(Sent::together(&sent))
        };
        all.into_iter().map(together).collect()
    })
}
