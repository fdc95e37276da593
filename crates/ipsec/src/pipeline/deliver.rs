//! The second half of the way in, in the order of arrival: replay commit, what is inside
//! ([`super::decapsulate`]), merge (RFC 4303 section 3.4, RFC 4302 section 3.4, RFC 4301 section
//! 5.2). Nothing about a packet is believed, and nothing of the SA changes, before its ICV was
//! right.

use super::audit::sample_of;
use super::context::InboundContext;
use super::decapsulate;
use super::open::replay_reason;
use super::tapped;
use crate::batch::{Checksum, Datagram, InboundJobs, OtherSource, RxBatch};
use crate::counters::{DropReason, Traffic};
use crate::engine::Engine;
use crate::late::{Refused, SUSPICIOUS};
use crate::sa::{InSa, LimitsReached};
use crate::scratch::{Delivered, InboundScratch};
use crate::stages::{BatchTimer, NoTimer, Stage, StageTimer};
use crate::tap::Fate;
use crate::worker::Worker;

impl Delivered {
    /// Adds the packets to the usage of their SA, and reports limits that they reach.
    #[inline]
    fn count(&mut self, engine: &Engine, sa: &InSa, now: u64) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets != 0 {
            report_limits(engine, sa, sa.state.usage.add(&sa.state.parameters.lifetime, packets, bytes, now));
        }
    }
}

/// Counts an authentic packet with `bytes` inside that is not delivered: a dummy, or a packet that
/// selectors or policy refuse. The peer has counted it too.
#[cold]
#[inline(never)]
fn count_unused(engine: &Engine, sa: &InSa, bytes: u64) {
    report_limits(engine, sa, sa.state.usage.add_unused(&sa.state.parameters.lifetime, 1, bytes));
}

/// Reports limits of an SA that have just been reached to the key daemon.
fn report_limits(engine: &Engine, sa: &InSa, reached: LimitsReached) {
    if reached.any() {
        engine.reached(sa.name(), reached);
    }
}

impl Worker {
    /// Opens the packets of these datagrams and appends the writes that deliver them to `rx`. The
    /// packets stay in `buf`. Every packet is counted, as delivered, merged or absorbed, or under
    /// one [`DropReason`].
    ///
    /// `datagrams` are ESP and AH only: see [`crate::demux`].
    pub fn inbound(&mut self, buf: &mut [u8], datagrams: &[Datagram], rx: &mut RxBatch) {
        rx.open(&self.engine, self.now, buf, datagrams);
        self.deliver(buf, rx);
    }

    /// Chooses the protocols whose packets are merged for the device; both in the beginning. Merged
    /// UDP needs a kernel that knows `VIRTIO_NET_HDR_GSO_UDP_L4` (Linux 6.2): an older one refuses
    /// the write.
    pub fn set_merging(&mut self, tcp: bool, udp: bool) {
        (self.inbound.merger.tcp, self.inbound.merger.udp) = (tcp, udp);
    }

    /// The second half of [`Self::inbound`], all that has an order: moves the windows, strips,
    /// checks against policy, merges. Batches are delivered by one worker, in the order in which
    /// their datagrams arrived.
    pub fn deliver(&mut self, buf: &mut [u8], rx: &mut RxBatch) {
        self.tally.take(&mut rx.inbound.tally);
        if !rx.inbound.refused.is_empty() {
            self.audit.take(self.now, &self.engine.up, &mut rx.inbound.refused);
        }
        if !rx.inbound.late.is_empty() {
            self.settle_late(&mut rx.inbound);
        }
        self.commit(&mut rx.inbound);
        if rx.inbound.tap.is_some() {
            rx.inbound.copy_opened(buf);
        }
        rx.lap(Stage::Sequence);
        match rx.inbound.timer.take() {
            None => self.deliver_all(buf, rx, &mut NoTimer),
            Some(timer) => self.deliver_measured(buf, rx, timer),
        }
        // No key outlives its batch.
        rx.inbound.clear();
        self.flush();
    }

    #[cold]
    #[inline(never)]
    fn deliver_measured(&mut self, buf: &mut [u8], rx: &mut RxBatch, mut timer: BatchTimer) {
        let Traffic { in_writes, in_merged, in_bytes, .. } = self.tally.traffic;
        self.deliver_all(buf, rx, &mut timer);
        let now = &self.tally.traffic;
        timer.times.packets += now.in_writes + now.in_merged - in_writes - in_merged;
        timer.times.bytes += now.in_bytes - in_bytes;
        timer.lap(Stage::Encapsulation);
        rx.inbound.timer = Some(timer);
    }

    #[inline(always)]
    fn deliver_all<T: StageTimer>(&mut self, buf: &mut [u8], rx: &mut RxBatch, timer: &mut T) {
        let RxBatch { writes, iov, extra, inbound } = rx;
        let InboundJobs { jobs, tos, checksums, sas, outer, tap, .. } = inbound;
        let InboundScratch { delivered, compressor, merger } = &mut self.inbound;
        let mut outer = outer.iter();
        let mut context = InboundContext {
            snap: &self.snap,
            engine: &self.engine,
            accepted: &mut self.accepted,
            fragments: &mut self.fragments_in,
            now: self.now,
            timer,
        };
        delivered.clear();
        delivered.resize(sas.len(), Delivered::default());
        for (i, (job, tos)) in jobs.iter().zip(tos.iter()).enumerate() {
            if !job.ok {
                continue;
            }
            let key = usize::from(job.key);
            let sa = &*sas[key];
            let delivered = &mut delivered[key];
            // The packets before this one in the batch count already.
            let limited = sa.state.usage.is_limited();
            if limited && sa.state.usage.hard_limit_reached(&sa.state.parameters.lifetime) {
                let reason = DropReason::InStateExpired;
                self.tally.drop(reason);
                self.audit.note(self.now, &self.engine.up, reason, || sample_of(sa, job.seq));
                tapped::fate(tap, i, Fate::Dropped(reason));
                continue;
            }
            let (opened, other) = if sa.state.plain {
                (decapsulate::plain(&mut context, buf, job, sa, *tos), None)
            } else {
                let Some(outer) = outer.find(|c| c.job == i) else { continue };
                let opened =
                    decapsulate::general(&mut context, compressor, (buf, extra), (job, outer), sa, *tos);
                if let (Some(tap), Ok(Some(opened))) = (&mut *tap, &opened) {
                    tapped::delivered(tap, (buf, extra), opened, sa, (i, job.seq));
                }
                (opened, Some(outer))
            };
            match opened {
                Ok(Some(opened)) => {
                    let bytes = opened.info.total_len as u64;
                    delivered.packets += 1;
                    delivered.bytes += bytes;
                    self.tally.traffic.in_bytes += bytes;
                    let sum = checksums.get(i).copied().unwrap_or(Checksum::Unknown);
                    // Packets merge within one SA only.
                    let merged = merger.push((buf, extra), &opened, sa.state.spi.0, sum);
                    self.tally.traffic.in_merged += u64::from(merged);
                }
                Ok(None) => {
                    count_unused(&self.engine, sa, decapsulate::text_len(job, other, &sa.state));
                    self.tally.traffic.in_dummies += 1;
                    tapped::fate(tap, i, Fate::Dummy);
                }
                Err(reason) => {
                    count_unused(&self.engine, sa, decapsulate::text_len(job, other, &sa.state));
                    self.tally.drop(reason);
                    self.audit.note(self.now, &self.engine.up, reason, || sample_of(sa, job.seq));
                    tapped::fate(tap, i, Fate::Dropped(reason));
                }
            }
            if limited {
                delivered.count(&self.engine, sa, self.now.as_secs());
            }
            context.timer.lap(Stage::Encapsulation);
        }
        self.tally.traffic.in_writes += merger.finish(buf, extra, iov, writes);
        for (sa, delivered) in sas.iter().zip(delivered) {
            delivered.count(&self.engine, sa, self.now.as_secs());
        }
    }

    /// Drops packets that are not authentic, and moves the windows for all others. The lock is held
    /// for a run of one SA's packets.
    fn commit(&mut self, inbound: &mut InboundJobs) {
        let InboundJobs { jobs, sas, other_sources, late, tap, .. } = inbound;
        let any_other_source = !other_sources.is_empty();
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
                    self.audit.note(self.now, &self.engine.up, reason, || sample_of(sa, job.seq));
                    tapped::fate(tap, base + i, Fate::Dropped(reason));
                    if window.as_late(job.seq).is_some() {
                        late.suspicion = SUSPICIOUS;
                    }
                    continue;
                }
                authentic = true;
                let newest = any_other_source && job.seq > window.top();
                match window.commit(job.seq) {
                    Ok(()) if newest => note_newest(other_sources, base + i),
                    Ok(()) => {}
                    Err(e) => {
                        job.ok = false;
                        let reason = replay_reason(e);
                        self.tally.drop(reason);
                        self.audit.note(self.now, &self.engine.up, reason, || sample_of(sa, job.seq));
                        tapped::fate(tap, base + i, Fate::Dropped(reason));
                        if let Some(refused) = Refused::of(&window, job.seq) {
                            self.engine.count_refused(&sa.state, window.window(), refused);
                        }
                    }
                }
            }
            drop(window);
            if authentic && state.notify_first_use.load(std::sync::atomic::Ordering::Relaxed) {
                report_first_use(&self.engine, sa);
            }
        }
        if any_other_source {
            self.report_moved(inbound);
        }
    }

    /// Counts the packets that the replay check has refused before they were opened: authentic ones
    /// by how late they were.
    #[cold]
    fn settle_late(&mut self, inbound: &mut InboundJobs) {
        let InboundJobs { sas, late, .. } = inbound;
        self.engine.count_unverified(late);
        for (job, refused) in late.opened() {
            let Some(sa) = sas.get(usize::from(job.key)) else { continue };
            match job.ok {
                true => self.engine.count_refused(&sa.state, sa.state.window().window(), refused),
                false => self.engine.count_forged(),
            }
        }
    }

    /// Tells the key daemon of the SAs whose newest packet came from another source. The window is
    /// asked for the newest packet when the whole batch has been committed, so that only the last
    /// source of a batch counts.
    #[cold]
    fn report_moved(&mut self, inbound: &mut InboundJobs) {
        let InboundJobs { jobs, sas, other_sources, .. } = inbound;
        for e in other_sources.drain(..).filter(|e| e.newest) {
            let Some(job) = jobs.get(e.job) else { continue };
            let Some(sa) = sas.get(usize::from(job.key)) else { continue };
            if sa.state.window().top() == job.seq && sa.sources.should_report(self.now, e.remote) {
                self.engine.up.moved(sa.state.spi, e.remote);
            }
        }
    }
}

/// Notes that the packet of this job was authentic and newer than all before it.
#[cold]
fn note_newest(other_sources: &mut [OtherSource], job: usize) {
    if let Ok(at) = other_sources.binary_search_by_key(&job, |e| e.job) {
        other_sources[at].newest = true;
    }
}

/// Reports the first authentic packet of an SA to the key daemon, if the SA was added with
/// `notify_first_use`.
#[cold]
fn report_first_use(engine: &crate::Engine, sa: &InSa) {
    if sa.state.notify_first_use.swap(false, std::sync::atomic::Ordering::Relaxed) {
        engine.up.first_use(sa.state.spi);
    }
}
