//! The first half of the way in: SPI, replay check, open (RFC 4303 section 3.4, RFC 4302 section
//! 3.4). Threads do it at the same time, each with its own batch. No window moves here.
//!
//! A batch may mix ESP and AH. Every packet has a [`Job`], in the order of arrival, so that the
//! order of a flow is kept; that of an AH packet is empty, for its ICV is verified beside the ESP
//! jobs, in [`AhJobs`].

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ironswan_crypto::batch::{self, Job};
use ironswan_crypto::icv::{self, IcvJob};
use ironswan_wire::esp::{self, MIN_SPI, TRAILER};
use ironswan_wire::sadb::Spi;

use super::audit::{header, sample_of_unopened};
use super::burst::prefetch_inbound;
use super::{decapsulate, tapped};
use crate::ah::{self, Ah};
use crate::audit::count_refused;
use crate::batch::{
    AhJobs, Carrier, Checksum, Datagram, InboundJobs, OtherSource, OuterHeader, RxBatch, recycle, strides,
};
use crate::counters::{DropReason, Tally};
use crate::engine::Engine;
use crate::late::LateJobs;
use crate::replay::{Replay, ReplayError};
use crate::sa::{InSa, InState, SaKey};
use crate::snapshot::Snapshot;
use crate::stages::{NoTimer, Stage, StageTimer};

impl RxBatch {
    /// The first half of [`Worker::inbound`](crate::Worker::inbound), which threads may do at the
    /// same time, each with its own batch: finds the SAs, checks the windows without moving them,
    /// and opens. [`Worker::deliver`](crate::Worker::deliver) must follow, with the same buffer.
    /// `now` is the driver's monotonic time.
    pub fn open(&mut self, engine: &Engine, now: Duration, buf: &mut [u8], datagrams: &[Datagram]) {
        // A peer may use an SA as soon as it knows of it: after the SA was installed, and perhaps
        // within this round. So the packets are looked up in the present SAD, not in the worker's
        // snapshot.
        let snap = engine.now();
        prefetch_inbound(&snap, buf, datagrams);
        let inbound = &mut self.inbound;
        inbound.clear();
        match inbound.timer.take() {
            None => inbound.check(engine, now, &snap, buf, datagrams, &mut NoTimer),
            Some(mut timer) => {
                inbound.check(engine, now, &snap, buf, datagrams, &mut timer);
                inbound.timer = Some(timer);
            }
        }
        drop(snap);
        if inbound.tap.is_some() {
            inbound.copy_arrived(buf, datagrams);
        }
        if inbound.late.suspicion != 0 {
            inbound.suspect(buf);
        }
        inbound.open(buf);
        self.lap(Stage::Crypto);
        if self.inbound.verify_checksums {
            self.inbound.verify_checksums(buf);
            self.lap(Stage::Encapsulation);
        }
    }

    /// As [`Self::open`], for packets of [`Engine::take_early`]: they were counted when they
    /// arrived.
    pub fn open_early(&mut self, engine: &Engine, now: Duration, buf: &mut [u8], datagrams: &[Datagram]) {
        self.open(engine, now, buf, datagrams);
        let tally = &mut self.inbound.tally;
        tally.traffic.in_packets -= datagrams.len() as u64;
        tally.in_held -= datagrams.len() as i64;
    }

    /// Chooses who verifies inner checksums: [`Self::open`] (true), or
    /// [`Worker::deliver`](crate::Worker::deliver) (false), which verifies packets that may be
    /// merged and no others. Threads deliver one after the other, so verifying in [`Self::open`]
    /// leaves them less to do.
    pub fn verify_checksums(&mut self, ahead: bool) {
        self.inbound.verify_checksums = ahead;
    }
}

impl InboundJobs {
    /// Makes a job of each packet, and counts those that are refused.
    #[inline(always)]
    fn check<T: StageTimer>(
        &mut self,
        engine: &Engine,
        now: Duration,
        snap: &Snapshot,
        buf: &[u8],
        datagrams: &[Datagram],
        timer: &mut T,
    ) {
        let Self { jobs, tos, sas, other_sources, outer, ah: ah_jobs, tally, refused, late, tap, .. } = self;
        // From here on, offsets in `RxBatch::iov` mean the batch's own memory.
        let end = buf.len().min(RxBatch::EXTRA as usize);
        let mut at: Option<(&InSa, MutexGuard<'_, Replay>)> = None;
        for datagram in datagrams {
            if datagram.offset as usize + datagram.len as usize > end {
                tally.traffic.in_packets += 1;
                tally.drop(DropReason::InBufferError);
                continue;
            }
            // The source is compared once for each datagram and SA in it, not for each of the
            // packets that were merged.
            let (mut compared, mut left) = (0, false);
            for range in strides(datagram) {
                tally.traffic.in_packets += 1;
                let start = range.start as u32;
                let packet = buf.get(range);
                let mut ah = None;
                let found = if datagram.carrier == Carrier::Ip {
                    check_ah(snap, packet, sas, &mut at, ah_jobs, start, &mut ah)
                } else {
                    check_esp(snap, packet, sas, &mut at, timer)
                };
                match found {
                    Ok((len, seq)) => {
                        if compared != sas.len() {
                            compared = sas.len();
                            left = datagram.carrier == Carrier::Udp
                                && at
                                    .as_ref()
                                    .is_some_and(|(sa, _)| sa.path.has_other_source(datagram.remote));
                        }
                        if left {
                            note_other_source(other_sources, jobs.len(), datagram.remote);
                        }
                        if at.as_ref().is_none_or(|(sa, _)| !sa.state.plain) {
                            let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
                            outer.push(OuterHeader { job: jobs.len(), local, remote, ah });
                        }
                        jobs.push(Job { start, len, seq, key: (sas.len() - 1) as u16, ok: false });
                        tos.push(datagram.tos);
                    }
                    Err(DropReason::InNoStates) if hold(engine, now, datagram, packet, tally) => {}
                    Err(reason) => {
                        tally.drop(reason);
                        count_refused(refused, reason, || sample_of_unopened(buf, datagram, start));
                        let packet = packet.unwrap_or_default();
                        if matches!(reason, DropReason::InStateSeqOld | DropReason::InStateSeqDuplicate) {
                            note_late(late, at.as_ref(), sas.len(), datagram.carrier, packet);
                        }
                        if let Some(tap) = tap {
                            tapped::refused(tap, at.as_ref().map(|(sa, _)| *sa), datagram, packet, reason);
                        }
                    }
                }
                timer.lap(Stage::Sequence);
            }
        }
    }

    /// Opens the jobs.
    fn open(&mut self, buf: &mut [u8]) {
        let mut keys = recycle(std::mem::take(&mut self.keys));
        keys_by_sa(&self.sas, SaKey::esp, &mut keys);
        batch::open(buf, &mut self.jobs, &keys);
        if !self.late.jobs.is_empty() {
            batch::open(&mut self.late.copies, &mut self.late.jobs, &keys);
        }
        self.keys = recycle(keys);
        if !self.ah.jobs.is_empty() {
            self.verify(buf);
        }
    }

    /// Has packets whose extended sequence numbers are far ahead opened a second time, with the
    /// numbers that they have if they are late.
    #[cold]
    fn suspect(&mut self, buf: &[u8]) {
        self.late.suspicion -= 1;
        for run in self.jobs.chunk_by(|a, b| a.key == b.key) {
            let Some(sa) = self.sas.get(usize::from(run[0].key)).filter(|sa| sa.state.esp) else { continue };
            let window = sa.state.window();
            for job in run {
                let Some(seq) = window.as_late(job.seq) else { continue };
                if !self.late.has_room() {
                    return;
                }
                let range = job.start as usize..(job.start + job.len) as usize;
                let packet = buf.get(range).unwrap_or_default();
                self.late.push(&window, seq, job.key.into(), packet, true);
            }
        }
    }

    /// Verifies the AH packets of the batch, and enters the results into their jobs.
    #[cold]
    fn verify(&mut self, buf: &[u8]) {
        let mut keys = recycle(std::mem::take(&mut self.icv_keys));
        keys_by_sa(&self.sas, SaKey::ah, &mut keys);
        icv::verify(&self.ah.heads, buf, &mut self.ah.jobs, &keys);
        for (outer, result) in self.outer.iter().filter(|c| c.ah.is_some()).zip(&self.ah.jobs) {
            if let Some(job) = self.jobs.get_mut(outer.job) {
                job.ok = result.ok;
            }
        }
        self.icv_keys = recycle(keys);
    }

    /// Verifies the inner checksums of packets of plain SAs.
    fn verify_checksums(&mut self, buf: &[u8]) {
        let Self { jobs, checksums, sas, .. } = self;
        checksums.extend(jobs.iter().map(|job| match sas.get(usize::from(job.key)) {
            Some(sa) if job.ok && sa.state.plain => decapsulate::checksum(buf, job, &sa.state),
            _ => Checksum::Unknown,
        }));
    }
}

/// Keeps a packet that found no SA, if it may wait for one.
#[cold]
fn hold(
    engine: &Engine,
    now: Duration,
    datagram: &Datagram,
    packet: Option<&[u8]>,
    tally: &mut Tally,
) -> bool {
    let named = packet.and_then(|packet| Some((packet, header(datagram.carrier, packet)?.0)));
    named.is_some_and(|(packet, spi)| {
        let installed = || engine.now().inbound.get(spi).is_some();
        engine.early.hold(now, Spi(spi), datagram, packet, installed, tally)
    })
}

#[cold]
fn note_other_source(other_sources: &mut Vec<OtherSource>, job: usize, remote: SocketAddr) {
    other_sources.push(OtherSource { job, remote, newest: false });
}

/// Notes a packet that the window of the SA `at`, the last of `sas` in the batch, has refused.
#[cold]
fn note_late(
    late: &mut LateJobs,
    at: Option<&(&InSa, MutexGuard<'_, Replay>)>,
    sas: usize,
    carrier: Carrier,
    packet: &[u8],
) {
    let (Some((_, window)), Some((_, low)), Some(sa)) = (at, header(carrier, packet), sas.checked_sub(1))
    else {
        return;
    };
    let seq = window.refused(low).unwrap_or(0);
    late.push(window, seq, sa, packet, carrier != Carrier::Ip);
}

pub(super) fn replay_reason(e: ReplayError) -> DropReason {
    match e {
        ReplayError::Old => DropReason::InStateSeqOld,
        ReplayError::Duplicate => DropReason::InStateSeqDuplicate,
    }
}

/// The keys of one protocol, by the index of their SA in the batch. In the place of another
/// protocol's SA stands some key of this one, which no job names.
#[inline]
fn keys_by_sa<'a, K>(sas: &'a [Arc<InSa>], of: impl Fn(&'a SaKey) -> Option<&'a K>, keys: &mut Vec<&'a K>) {
    if let Some(any) = sas.iter().find_map(|sa| of(&sa.state.key)) {
        keys.extend(sas.iter().map(|sa| of(&sa.state.key).unwrap_or(any)));
    }
}

/// Checks an ESP packet, and returns its length and its 64-bit sequence number.
#[inline(always)]
fn check_esp<'a, T: StageTimer>(
    snap: &'a Snapshot,
    packet: Option<&[u8]>,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
    timer: &mut T,
) -> Result<(u32, u64), DropReason> {
    let packet = packet.ok_or(DropReason::InBufferError)?;
    let (spi, low) = esp::header(packet).ok_or(DropReason::InHdrError)?;
    timer.lap(Stage::Parse);
    let seq = check(snap, spi, low, sas, at, |state| {
        timer.lap(Stage::Policy);
        if !state.esp {
            return Err(DropReason::InStateProtocol);
        }
        if packet.len() < esp::HEADER + state.iv_len() + TRAILER + state.icv_len() {
            return Err(DropReason::InHdrError);
        }
        Ok(())
    })?;
    Ok((packet.len() as u32, seq))
}

/// Checks an AH packet, which begins at `start` with its outer header, and makes the job that
/// verifies its ICV. Returns its 64-bit sequence number, with length 0 for the empty ESP job.
#[cold]
#[inline(never)]
fn check_ah<'a>(
    snap: &'a Snapshot,
    packet: Option<&[u8]>,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
    ah_jobs: &mut AhJobs,
    start: u32,
    found: &mut Option<Ah>,
) -> Result<(u32, u64), DropReason> {
    let packet = packet.ok_or(DropReason::InBufferError)?;
    let ah = ah::find(packet)?;
    let seq = check(snap, ah.spi, ah.seq, sas, at, |state| {
        let key = state.key.ah().ok_or(DropReason::InStateProtocol)?;
        if ah.has_field_len(key.field_len()) { Ok(()) } else { Err(DropReason::InHdrError) }
    })?;
    let head = ah_jobs.heads.len();
    ah::immutable(packet.get(..ah.at).ok_or(DropReason::InHdrError)?, &mut ah_jobs.heads)?;
    ah_jobs.jobs.push(IcvJob {
        head: head as u32,
        head_len: (ah_jobs.heads.len() - head) as u32,
        start: start + ah.at as u32,
        len: (ah.end - ah.at) as u32,
        field: start + (ah.at + ah::FIXED) as u32,
        seq,
        key: (sas.len() - 1) as u16,
        ok: false,
    });
    *found = Some(ah);
    Ok((0, seq))
}

/// Looks up the SA by SPI, applies the protocol's own checks (`fitting`), and returns the 64-bit
/// sequence number. `at` keeps the SA's window locked for the next packet.
#[inline(always)]
fn check<'a>(
    snap: &'a Snapshot,
    spi: u32,
    low: u32,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
    fitting: impl FnOnce(&InState) -> Result<(), DropReason>,
) -> Result<u64, DropReason> {
    if at.as_ref().is_none_or(|(sa, _)| sa.state.spi.0 != spi) {
        if spi < MIN_SPI {
            return Err(DropReason::InReservedSpi);
        }
        let sa = snap.inbound.get(spi).ok_or(DropReason::InNoStates)?;
        if sas.len() > usize::from(u16::MAX) {
            return Err(DropReason::InBufferError);
        }
        // Let go of one window before taking the next: two threads may meet in the opposite order.
        *at = None;
        sas.push(sa.clone());
        *at = Some((sa, sa.state.window()));
    }
    let Some((sa, window)) = at else { return Err(DropReason::InNoStates) };
    let state = &*sa.state;
    fitting(state)?;
    if state.usage.hard_limit_reached(&state.parameters.lifetime) {
        return Err(DropReason::InStateExpired);
    }
    window.check(low).map_err(replay_reason)
}
