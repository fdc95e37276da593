//! ESP and AH to TUN: SPI, replay check, open, replay commit, what is inside
//! ([`super::decapsulate`]), merge (RFC 4303 section 3.4, RFC 4302 section 3.4, RFC 4301 section
//! 5.2). Nothing about a packet is believed, and nothing of the SA changes, before its ICV was
//! right.
//!
//! A batch may mix ESP and AH. Every packet has a [`Job`], in the order of arrival, so that the
//! order of a flow is kept; that of an AH packet is empty, for its ICV is verified beside the ESP
//! jobs, in [`Headers`].

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_wire::esp::{self, MIN_SPI, TRAILER};

use super::burst::foresee_inbound;
use super::decapsulate::{self, Asked, Carried};
use super::merge::Merger;
use crate::ah::{self, Ah};
use crate::audit::{Refused, Sample, refuse};
use crate::batch::{Carrier, Datagram, RxBatch, recycle, strides};
use crate::counters::{DropReason, Tally, Traffic};
use crate::engine::Engine;
use crate::ipcomp::Compressor;
use crate::replay::{Replay, ReplayError};
use crate::sa::{InSa, InState, Reached, SaKey};
use crate::snapshot::Snapshot;
use crate::stages::{Laps, Stage, Unwatched, Watch};
use crate::worker::Worker;

/// A batch between [`RxBatch::open`] and [`Worker::deliver`].
#[derive(Default)]
pub(crate) struct Opening {
    jobs: Vec<Job>,
    /// TOS of the outer header, of each job.
    tos: Vec<u8>,
    /// What is known of the inner checksum of each job; empty when it was not looked at.
    sums: Vec<Sum>,
    /// The SAs of this batch: `Job::key` is an index into it. One may be there more than once.
    sas: Vec<Arc<InSa>>,
    /// The jobs whose packet came from elsewhere than their SA says, in their order. Nearly always
    /// none.
    elsewhere: Vec<Elsewhere>,
    /// The jobs whose SA is not plain, in their order.
    carried: Vec<Carried>,
    headers: Headers,
    keys: Vec<&'static EspKey>,
    icv_keys: Vec<&'static IcvKey>,
    /// What was counted and refused, until a worker takes it.
    tally: Tally,
    refused: Vec<Refused>,
    /// Inner checksums are looked at when packets are opened.
    pub(crate) sum_ahead: bool,
    /// This batch is measured.
    pub(crate) laps: Option<Laps>,
}

/// What is known of the TCP or UDP checksum of an inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sum {
    Unknown,
    Right,
    Wrong,
}

/// What delivers one batch after the other: scratch memory and the merger.
#[derive(Default)]
pub(crate) struct Inbound {
    /// What each SA of the batch has delivered.
    used: Vec<Used>,
    compressor: Compressor,
    merger: Merger,
}

/// What an SA has delivered and was not yet counted.
#[derive(Clone, Copy, Default)]
struct Used {
    packets: u64,
    bytes: u64,
}

impl Used {
    #[inline]
    fn count(&mut self, engine: &Engine, sa: &InSa, now: u64) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets != 0 {
            report(engine, sa, sa.state.usage.add(&sa.state.lifetime, packets, bytes, now));
        }
    }
}

/// Counts an authentic packet with `bytes` inside that nobody used the SA for: a dummy, or what
/// selectors or policy refuse. The peer has counted it too.
#[cold]
#[inline(never)]
fn unused(engine: &Engine, sa: &InSa, bytes: u64) {
    report(engine, sa, sa.state.usage.add_unused(&sa.state.lifetime, 1, bytes));
}

fn report(engine: &Engine, sa: &InSa, reached: Reached) {
    if reached.any() {
        engine.reached(sa.name(), reached);
    }
}

/// What AH's ICVs are verified with.
#[derive(Default)]
struct Headers {
    /// One for each of `carried` that is AH, in their order.
    jobs: Vec<IcvJob>,
    /// The headers in front of AH, mutable fields zeroed.
    bytes: Vec<u8>,
}

/// A packet in UDP whose source is not its SA's.
struct Elsewhere {
    /// Which job.
    job: usize,
    remote: SocketAddr,
    /// It was authentic, and newer than all before it.
    newest: bool,
}

impl RxBatch {
    /// The first half of [`Worker::inbound`], which threads may do at the same time, each with its
    /// own batch: finds the SAs, checks the windows without moving them, and opens.
    /// [`Worker::deliver`] must follow, with the same buffer.
    pub fn open(&mut self, engine: &Engine, buf: &mut [u8], datagrams: &[Datagram]) {
        // A peer may use an SA as soon as it has been told of it, which is after it was installed
        // and may be within this round: what arrives is looked up in what there is now.
        let snap = engine.now();
        foresee_inbound(&snap, buf, datagrams);
        let opening = &mut self.opening;
        opening.clear();
        match opening.laps.take() {
            None => opening.check(&snap, buf, datagrams, &mut Unwatched),
            Some(mut laps) => {
                opening.check(&snap, buf, datagrams, &mut laps);
                opening.laps = Some(laps);
            }
        }
        drop(snap);
        opening.open(buf);
        self.lap(Stage::Crypto);
        if self.opening.sum_ahead {
            self.opening.sum(buf);
            self.lap(Stage::Encapsulation);
        }
    }

    /// Whether inner checksums are looked at by [`Self::open`], and not by [`Worker::deliver`] for
    /// those packets that may be merged only: less is left for what threads do one after the other.
    pub fn sum_ahead(&mut self, ahead: bool) {
        self.opening.sum_ahead = ahead;
    }
}

impl Opening {
    fn clear(&mut self) {
        self.jobs.clear();
        self.tos.clear();
        self.sums.clear();
        self.sas.clear();
        self.elsewhere.clear();
        self.carried.clear();
        self.headers.jobs.clear();
        self.headers.bytes.clear();
    }

    /// Enters the packets into the jobs, those that are refused into the books.
    #[inline(always)]
    fn check<W: Watch>(&mut self, snap: &Snapshot, buf: &[u8], datagrams: &[Datagram], watch: &mut W) {
        let Self { jobs, tos, sas, elsewhere, carried, headers, tally, refused, .. } = self;
        // Beyond are the offsets that mean something else in `RxBatch::iov`.
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
                    check_ah(snap, packet, sas, &mut at, headers, start, &mut ah)
                } else {
                    check_esp(snap, packet, sas, &mut at, watch)
                };
                match found {
                    Ok((len, seq)) => {
                        if compared != sas.len() {
                            compared = sas.len();
                            left = datagram.carrier == Carrier::Udp
                                && at.as_ref().is_some_and(|(sa, _)| sa.path.is_left_by(datagram.remote));
                        }
                        if left {
                            note_elsewhere(elsewhere, jobs.len(), datagram.remote);
                        }
                        if at.as_ref().is_none_or(|(sa, _)| !sa.state.plain) {
                            let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
                            carried.push(Carried { job: jobs.len(), local, remote, ah });
                        }
                        jobs.push(Job { start, len, seq, key: (sas.len() - 1) as u16, ok: false });
                        tos.push(datagram.tos);
                    }
                    Err(reason) => {
                        tally.drop(reason);
                        refuse(refused, reason, || unopened(buf, datagram, start));
                    }
                }
                watch.lap(Stage::Sequence);
            }
        }
    }

    /// Opens the jobs.
    fn open(&mut self, buf: &mut [u8]) {
        let mut keys = recycle(std::mem::take(&mut self.keys));
        keys_by_sa(&self.sas, SaKey::esp, &mut keys);
        batch::open(buf, &mut self.jobs, &keys);
        self.keys = recycle(keys);
        if !self.headers.jobs.is_empty() {
            self.verify(buf);
        }
    }

    /// Verifies the AH packets of the batch, and enters the results into their jobs.
    #[cold]
    fn verify(&mut self, buf: &[u8]) {
        let mut keys = recycle(std::mem::take(&mut self.icv_keys));
        keys_by_sa(&self.sas, SaKey::ah, &mut keys);
        icv::verify(&self.headers.bytes, buf, &mut self.headers.jobs, &keys);
        for (carried, result) in self.carried.iter().filter(|c| c.ah.is_some()).zip(&self.headers.jobs) {
            if let Some(job) = self.jobs.get_mut(carried.job) {
                job.ok = result.ok;
            }
        }
        self.icv_keys = recycle(keys);
    }

    /// Looks at the inner checksums of what plain SAs carried.
    fn sum(&mut self, buf: &[u8]) {
        let Self { jobs, sums, sas, .. } = self;
        sums.extend(jobs.iter().map(|job| match sas.get(usize::from(job.key)) {
            Some(sa) if job.ok && sa.state.plain => decapsulate::sum(buf, job, &sa.state),
            _ => Sum::Unknown,
        }));
    }
}

impl Worker {
    /// Opens what arrived and appends what is to be written to `rx`; the packets stay in `buf`.
    /// Every packet is counted, as delivered, merged or absorbed, or under one [`DropReason`].
    ///
    /// `datagrams` are ESP and AH only: see [`crate::demux`].
    pub fn inbound(&mut self, buf: &mut [u8], datagrams: &[Datagram], rx: &mut RxBatch) {
        rx.open(&self.engine, buf, datagrams);
        self.deliver(buf, rx);
    }

    /// Which protocols are merged for the device; both in the beginning. UDP takes a kernel that
    /// knows `VIRTIO_NET_HDR_GSO_UDP_L4` (Linux 6.2): an older one refuses the write.
    pub fn merge(&mut self, tcp: bool, udp: bool) {
        (self.inbound.merger.tcp, self.inbound.merger.udp) = (tcp, udp);
    }

    /// The second half of [`Self::inbound`], all that has an order: moves the windows, strips,
    /// checks against policy, merges. Batches are delivered by one worker, in the order in which
    /// their datagrams arrived.
    pub fn deliver(&mut self, buf: &mut [u8], rx: &mut RxBatch) {
        self.tally.take(&mut rx.opening.tally);
        if !rx.opening.refused.is_empty() {
            self.audit.take(self.now, &self.engine.up, &mut rx.opening.refused);
        }
        self.commit(&mut rx.opening);
        rx.lap(Stage::Sequence);
        match rx.opening.laps.take() {
            None => self.deliver_all(buf, rx, &mut Unwatched),
            Some(laps) => self.deliver_measured(buf, rx, laps),
        }
        // No key outlives its batch.
        rx.opening.clear();
        self.flush();
    }

    #[cold]
    #[inline(never)]
    fn deliver_measured(&mut self, buf: &mut [u8], rx: &mut RxBatch, mut laps: Laps) {
        let Traffic { in_writes, in_merged, in_bytes, .. } = self.tally.traffic;
        self.deliver_all(buf, rx, &mut laps);
        let now = &self.tally.traffic;
        laps.times.packets += now.in_writes + now.in_merged - in_writes - in_merged;
        laps.times.bytes += now.in_bytes - in_bytes;
        laps.lap(Stage::Encapsulation);
        rx.opening.laps = Some(laps);
    }

    #[inline(always)]
    fn deliver_all<W: Watch>(&mut self, buf: &mut [u8], rx: &mut RxBatch, watch: &mut W) {
        let RxBatch { writes, iov, extra, opening } = rx;
        let Opening { jobs, tos, sums, sas, carried, .. } = opening;
        let Inbound { used, compressor, merger } = &mut self.inbound;
        let mut carried = carried.iter();
        let mut asked = Asked {
            snap: &self.snap,
            engine: &self.engine,
            accepted: &mut self.accepted,
            fragments: &mut self.fragments_in,
            now: self.now,
            watch,
        };
        used.clear();
        used.resize(sas.len(), Used::default());
        for (i, (job, tos)) in jobs.iter().zip(tos.iter()).enumerate() {
            if !job.ok {
                continue;
            }
            let key = usize::from(job.key);
            let sa = &*sas[key];
            let used = &mut used[key];
            // What came before in this batch counts already.
            let limited = sa.state.usage.is_limited();
            if limited && sa.state.usage.spent(&sa.state.lifetime) {
                let reason = DropReason::InStateExpired;
                self.tally.drop(reason);
                self.audit.note(self.now, &self.engine.up, reason, || named(sa, job.seq));
                continue;
            }
            let (opened, other) = if sa.state.plain {
                (decapsulate::plain(&mut asked, buf, job, sa, *tos), None)
            } else {
                let Some(carried) = carried.find(|c| c.job == i) else { continue };
                let opened =
                    decapsulate::carried(&mut asked, compressor, (buf, extra), (job, carried), sa, *tos);
                (opened, Some(carried))
            };
            match opened {
                Ok(Some(opened)) => {
                    let bytes = opened.info.total_len as u64;
                    used.packets += 1;
                    used.bytes += bytes;
                    self.tally.traffic.in_bytes += bytes;
                    let sum = sums.get(i).copied().unwrap_or(Sum::Unknown);
                    // Packets merge within one SA only.
                    let merged = merger.push((buf, extra), &opened, sa.state.spi.0, sum);
                    self.tally.traffic.in_merged += u64::from(merged);
                }
                Ok(None) => {
                    unused(&self.engine, sa, decapsulate::text_len(job, other, &sa.state));
                    self.tally.traffic.in_dummies += 1;
                }
                Err(reason) => {
                    unused(&self.engine, sa, decapsulate::text_len(job, other, &sa.state));
                    self.tally.drop(reason);
                    self.audit.note(self.now, &self.engine.up, reason, || named(sa, job.seq));
                }
            }
            if limited {
                used.count(&self.engine, sa, self.now.as_secs());
            }
            asked.watch.lap(Stage::Encapsulation);
        }
        self.tally.traffic.in_writes += merger.finish(buf, extra, iov, writes);
        for (sa, used) in sas.iter().zip(used) {
            used.count(&self.engine, sa, self.now.as_secs());
        }
    }

    /// Drops what is not authentic, and moves the windows for what is. The lock is held for a run
    /// of one SA's packets.
    fn commit(&mut self, opening: &mut Opening) {
        let Opening { jobs, sas, elsewhere, .. } = opening;
        let watched = !elsewhere.is_empty();
        let mut first = 0;
        for run in jobs.chunk_by_mut(|a, b| a.key == b.key) {
            let base = first;
            first += run.len();
            let Some(sa) = run.first().and_then(|job| sas.get(usize::from(job.key))) else { continue };
            let state = &*sa.state;
            let mut window = state.window();
            let mut authentic = false;
            for (i, job) in run.iter_mut().enumerate() {
                if !job.ok {
                    let reason = DropReason::InStateProtoError;
                    self.tally.drop(reason);
                    self.audit.note(self.now, &self.engine.up, reason, || named(sa, job.seq));
                    continue;
                }
                authentic = true;
                let newest = watched && job.seq > window.top();
                match window.commit(job.seq) {
                    Ok(()) if newest => note_newest(elsewhere, base + i),
                    Ok(()) => {}
                    Err(e) => {
                        job.ok = false;
                        let reason = replay_reason(e);
                        self.tally.drop(reason);
                        self.audit.note(self.now, &self.engine.up, reason, || named(sa, job.seq));
                    }
                }
            }
            drop(window);
            if authentic && state.notify_first_use.load(std::sync::atomic::Ordering::Relaxed) {
                first_use(&self.engine, sa);
            }
        }
        if watched {
            self.moved(opening);
        }
    }

    /// Tells of the SAs whose newest packet came from elsewhere. "Newest" is asked of the window
    /// when the whole batch has been committed, so that of a source that changes within a batch
    /// only the last one counts.
    #[cold]
    fn moved(&mut self, opening: &mut Opening) {
        let Opening { jobs, sas, elsewhere, .. } = opening;
        for e in elsewhere.drain(..).filter(|e| e.newest) {
            let Some(job) = jobs.get(e.job) else { continue };
            let Some(sa) = sas.get(usize::from(job.key)) else { continue };
            if sa.state.window().top() == job.seq && sa.sources.is_news(self.now, e.remote) {
                self.engine.up.moved(sa.state.spi, e.remote);
            }
        }
    }
}

/// A packet of an SA, for the audit.
fn named(sa: &InSa, sequence: u64) -> Sample {
    let (local, remote) = (sa.path.local.ip(), sa.path.remote.ip());
    Sample { spi: sa.state.spi.0, sequence, local, remote }
}

/// A packet that was dropped before its SA mattered, for the audit.
fn unopened(buf: &[u8], datagram: &Datagram, start: u32) -> Sample {
    let packet = buf.get(start as usize..).unwrap_or_default();
    let header = match datagram.carrier {
        Carrier::Ip => ah::find(packet).ok().map(|ah| (ah.spi, ah.seq)),
        _ => esp::header(packet),
    };
    let (spi, sequence) = header.unwrap_or_default();
    let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
    Sample { spi, sequence: sequence.into(), local, remote }
}

#[cold]
fn note_elsewhere(elsewhere: &mut Vec<Elsewhere>, job: usize, remote: SocketAddr) {
    elsewhere.push(Elsewhere { job, remote, newest: false });
}

/// The packet of this job was authentic and newer than all before.
#[cold]
fn note_newest(elsewhere: &mut [Elsewhere], job: usize) {
    if let Ok(at) = elsewhere.binary_search_by_key(&job, |e| e.job) {
        elsewhere[at].newest = true;
    }
}

#[cold]
fn first_use(engine: &crate::Engine, sa: &InSa) {
    if sa.state.notify_first_use.swap(false, std::sync::atomic::Ordering::Relaxed) {
        engine.up.first_use(sa.state.spi);
    }
}

fn replay_reason(e: ReplayError) -> DropReason {
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

/// An ESP packet's length and its whole sequence number.
#[inline(always)]
fn check_esp<'a, W: Watch>(
    snap: &'a Snapshot,
    packet: Option<&[u8]>,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
    watch: &mut W,
) -> Result<(u32, u64), DropReason> {
    let packet = packet.ok_or(DropReason::InBufferError)?;
    let (spi, low) = esp::header(packet).ok_or(DropReason::InHdrError)?;
    watch.lap(Stage::Parse);
    let seq = check(snap, spi, low, sas, at, |state| {
        watch.lap(Stage::Policy);
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

/// AH and its whole sequence number, with no bytes for the ESP job. Enters the packet, which begins
/// at `start` with its outer header, into the ICVs to verify.
#[cold]
#[inline(never)]
fn check_ah<'a>(
    snap: &'a Snapshot,
    packet: Option<&[u8]>,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
    headers: &mut Headers,
    start: u32,
    found: &mut Option<Ah>,
) -> Result<(u32, u64), DropReason> {
    let packet = packet.ok_or(DropReason::InBufferError)?;
    let ah = ah::find(packet)?;
    let seq = check(snap, ah.spi, ah.seq, sas, at, |state| {
        let key = state.key.ah().ok_or(DropReason::InStateProtocol)?;
        if ah.carries(key.field_len()) { Ok(()) } else { Err(DropReason::InHdrError) }
    })?;
    let head = headers.bytes.len();
    ah::immutable(packet.get(..ah.at).ok_or(DropReason::InHdrError)?, &mut headers.bytes)?;
    headers.jobs.push(IcvJob {
        head: head as u32,
        head_len: (headers.bytes.len() - head) as u32,
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

/// Finds a packet's SA, which has to find it `fitting`, and its whole sequence number. `at` keeps
/// the SA's window locked for the next packet.
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
    if state.usage.spent(&state.lifetime) {
        return Err(DropReason::InStateExpired);
    }
    window.check(low).map_err(replay_reason)
}
