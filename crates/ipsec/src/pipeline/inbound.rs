//! ESP to TUN: SPI, replay check, open, replay commit, trailer, inner header, selectors, ECN, merge (RFC 4303 section 3.4,
//! RFC 4301 section 5.2). Nothing about a packet is believed, and nothing of the SA changes, before its ICV was right.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, MutexGuard};

use ironswan_crypto::batch::{self, Job};
use ironswan_wire::esp::{self, MIN_SPI, TRAILER};
use ironswan_wire::ip::{self, IpInfo, protocol, v4};
use ironswan_wire::sadb::Action;

use super::merge::Merger;
use crate::batch::{Carrier, Datagram, RxBatch, strides};
use crate::counters::DropReason;
use crate::ecn;
use crate::engine::{Snapshot, in_ref};
use crate::flow::{Accepted, FlowKey};
use crate::replay::{Replay, ReplayError};
use crate::sa::InSa;
use crate::worker::Worker;

/// Scratch memory between [`Worker::inbound_open`] and [`Worker::inbound_deliver`].
#[derive(Default)]
pub(crate) struct Inbound {
    jobs: Vec<Job>,
    /// TOS of the outer header, of each job.
    tos: Vec<u8>,
    /// The SAs of this batch: `Job::key` is an index into it. One may be there more than once.
    sas: Vec<Arc<InSa>>,
    /// Packets and bytes delivered, of each of `sas`.
    used: Vec<(u64, u64)>,
    /// The jobs whose packet came from elsewhere than their SA says, in their order. Nearly always none.
    elsewhere: Vec<Elsewhere>,
    merger: Merger,
}

/// A packet in UDP whose source is not its SA's.
struct Elsewhere {
    /// Which job.
    job: usize,
    remote: SocketAddr,
    /// It was authentic, and newer than all before it.
    newest: bool,
}

impl Worker {
    /// Opens what arrived and appends what is to be written to `rx`; the packets stay in `buf`. Every packet is counted, as
    /// delivered, merged or absorbed, or under one [`DropReason`].
    ///
    /// `datagrams` are ESP only: see [`crate::demux`].
    pub fn inbound(&mut self, buf: &mut [u8], datagrams: &[Datagram], rx: &mut RxBatch) {
        self.inbound_open(buf, datagrams);
        self.inbound_deliver(buf, rx);
    }

    /// Which protocols are merged for the device; both in the beginning. UDP takes a kernel that knows
    /// `VIRTIO_NET_HDR_GSO_UDP_L4` (Linux 6.2): an older one refuses the write.
    pub fn merge(&mut self, tcp: bool, udp: bool) {
        (self.inbound.merger.tcp, self.inbound.merger.udp) = (tcp, udp);
    }

    /// The first half of [`Self::inbound`], which threads may do at the same time: finds the SAs, checks the windows without
    /// moving them, and opens. The second half must follow, with the same buffer.
    pub fn inbound_open(&mut self, buf: &mut [u8], datagrams: &[Datagram]) {
        let snap = self.snap.clone();
        let Inbound { jobs, tos, sas, elsewhere, .. } = &mut self.inbound;
        jobs.clear();
        tos.clear();
        sas.clear();
        elsewhere.clear();
        let mut at: Option<(&InSa, MutexGuard<'_, Replay>)> = None;
        for datagram in datagrams {
            if datagram.offset as usize + datagram.len as usize > buf.len() {
                self.tally.traffic.in_packets += 1;
                self.tally.drop(DropReason::InBufferError);
                continue;
            }
            // The source is compared once for each datagram and SA in it, not for each of the packets that were merged.
            let (mut compared, mut left) = (0, false);
            for range in strides(datagram) {
                self.tally.traffic.in_packets += 1;
                let start = range.start as u32;
                match check(&snap, buf.get(range), sas, &mut at) {
                    Ok((len, seq)) => {
                        if compared != sas.len() {
                            compared = sas.len();
                            left = datagram.carrier == Carrier::Udp
                                && at.as_ref().is_some_and(|(sa, _)| sa.path.is_left_by(datagram.remote));
                        }
                        if left {
                            note_elsewhere(elsewhere, jobs.len(), datagram.remote);
                        }
                        jobs.push(Job { start, len, seq, key: (sas.len() - 1) as u16, ok: false });
                        tos.push(datagram.tos);
                    }
                    Err(reason) => self.tally.drop(reason),
                }
            }
        }
        drop(at);
        let mut keys = self.take_keys();
        let Inbound { jobs, sas, .. } = &mut self.inbound;
        let owned = std::mem::take(sas);
        keys.extend(owned.iter().filter_map(|sa| sa.state.key.esp()));
        batch::open(buf, jobs, &keys);
        self.give_keys(keys);
        self.inbound.sas = owned;
    }

    /// The second half of [`Self::inbound`]: moves the windows, strips, checks against policy, merges. Threads that share
    /// an SA call it in the order in which the datagrams arrived.
    pub fn inbound_deliver(&mut self, buf: &mut [u8], rx: &mut RxBatch) {
        self.commit();
        let Inbound { jobs, tos, sas, used, merger, .. } = &mut self.inbound;
        used.clear();
        used.resize(sas.len(), (0, 0));
        for (job, tos) in jobs.iter().zip(tos.iter()) {
            if !job.ok {
                continue;
            }
            let key = usize::from(job.key);
            let sa = &*sas[key];
            match strip(&self.snap, &mut self.accepted, buf, job, sa, *tos) {
                Ok(Some((start, info, flow))) => {
                    used[key].0 += 1;
                    used[key].1 += info.total_len as u64;
                    self.tally.traffic.in_bytes += info.total_len as u64;
                    // Packets merge within one SA only.
                    let merged = merger.push(buf, start, &info, &flow, sa.state.spi.0);
                    self.tally.traffic.in_merged += u64::from(merged);
                }
                Ok(None) => self.tally.traffic.in_dummies += 1,
                Err(reason) => self.tally.drop(reason),
            }
        }
        self.tally.traffic.in_writes += merger.finish(buf, rx);
        for (sa, (packets, bytes)) in sas.iter().zip(used.iter()) {
            if *packets == 0 {
                continue;
            }
            let reached = sa.state.usage.add(&sa.state.lifetime, *packets, *bytes, self.now.as_secs());
            if reached.any() {
                self.engine.reached(in_ref(sa), reached);
            }
        }
        jobs.clear();
        sas.clear();
        self.flush();
    }

    /// Drops what is not authentic, and moves the windows for what is. The lock is held for a run of one SA's packets.
    fn commit(&mut self) {
        let Inbound { jobs, sas, elsewhere, .. } = &mut self.inbound;
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
                    self.tally.drop(DropReason::InStateProtoError);
                    continue;
                }
                authentic = true;
                let newest = watched && job.seq > window.top();
                match window.commit(job.seq) {
                    Ok(()) if newest => note_newest(elsewhere, base + i),
                    Ok(()) => {}
                    Err(e) => {
                        job.ok = false;
                        self.tally.drop(replay_reason(e));
                    }
                }
            }
            drop(window);
            if authentic && state.notify_first_use.load(std::sync::atomic::Ordering::Relaxed) {
                first_use(&self.engine, sa);
            }
        }
        if watched {
            self.moved();
        }
    }

    /// Tells of the SAs whose newest packet came from elsewhere. "Newest" is asked of the window when the whole batch has
    /// been committed, so that of a source that changes within a batch only the last one counts.
    #[cold]
    fn moved(&mut self) {
        let Inbound { jobs, sas, elsewhere, .. } = &mut self.inbound;
        for e in elsewhere.drain(..).filter(|e| e.newest) {
            let Some(job) = jobs.get(e.job) else { continue };
            let Some(sa) = sas.get(usize::from(job.key)) else { continue };
            if sa.state.window().top() == job.seq && sa.sources.is_news(self.now, e.remote) {
                self.engine.up.moved(sa.state.spi, e.remote);
            }
        }
    }
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

/// Finds a packet's SA and its whole sequence number. `at` keeps the SA's window locked for the next packet.
#[inline]
fn check<'a>(
    snap: &'a Snapshot,
    packet: Option<&[u8]>,
    sas: &mut Vec<Arc<InSa>>,
    at: &mut Option<(&'a InSa, MutexGuard<'a, Replay>)>,
) -> Result<(u32, u64), DropReason> {
    let packet = packet.ok_or(DropReason::InBufferError)?;
    let (spi, low) = esp::header(packet).ok_or(DropReason::InHdrError)?;
    if at.as_ref().is_none_or(|(sa, _)| sa.state.spi.0 != spi) {
        if spi < MIN_SPI {
            return Err(DropReason::InReservedSpi);
        }
        let sa = snap.inbound.get(&spi).ok_or(DropReason::InNoStates)?;
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
    if state.key.esp().is_none() {
        return Err(DropReason::InStateProtocol);
    }
    if packet.len() < esp::HEADER + state.iv_len + TRAILER + state.icv_len {
        return Err(DropReason::InHdrError);
    }
    if state.usage.spent(&state.lifetime) {
        return Err(DropReason::InStateExpired);
    }
    let seq = window.check(low).map_err(replay_reason)?;
    Ok((packet.len() as u32, seq))
}

/// From a decrypted ESP packet to the inner packet: where it begins, its header and its flow. `None` for a dummy.
#[inline]
fn strip(
    snap: &Snapshot,
    accepted: &mut Accepted,
    buf: &mut [u8],
    job: &Job,
    sa: &InSa,
    outer_tos: u8,
) -> Result<Option<(usize, IpInfo, FlowKey)>, DropReason> {
    let state = &*sa.state;
    let start = job.start as usize + esp::HEADER + state.iv_len;
    let end = (job.start + job.len) as usize - state.icv_len;
    let text = buf.get_mut(start..end).ok_or(DropReason::InHdrError)?;
    let (len, next_header) = esp::parse_trailer(text).map_err(|_| DropReason::InTrailerError)?;
    let ipv6 = match next_header {
        protocol::IPV4 => false,
        protocol::IPV6 => true,
        // "the receiver MUST be prepared to discard such packets without indicating an error" (RFC 4303 section 2.6).
        protocol::NONE => return Ok(None),
        _ => return Err(DropReason::InStateModeError),
    };
    let packet = &mut text[..len];
    match packet.first().map(|b| b >> 4) {
        Some(4) if !ipv6 => {}
        Some(6) if ipv6 => {}
        _ => return Err(DropReason::InInnerVersion),
    }
    // The header's own length counts: what follows is traffic flow confidentiality padding (RFC 4303 section 2.7).
    let info = ip::parse(packet).map_err(|_| DropReason::InInnerHdrError)?;
    let packet = &mut packet[..info.total_len];
    if !ipv6 && !v4::checksum_ok(&packet[..info.upper]) {
        return Err(DropReason::InInnerChecksum);
    }
    let flow = FlowKey::new(&info, packet).ok_or(DropReason::InInnerHdrError)?;
    if !accepted.has(&flow, state.spi.0) {
        acceptable(snap, packet, &info, sa)?;
        accepted.insert(&flow, state.spi.0);
    }
    if !ecn::apply(packet, ipv6, info.tos, outer_tos) {
        return Err(DropReason::InEcnError);
    }
    Ok(Some((start, info, flow)))
}

/// What is asked of the first packet of a flow.
fn acceptable(snap: &Snapshot, packet: &[u8], info: &IpInfo, sa: &InSa) -> Result<(), DropReason> {
    if martian(packet, info.ipv6) {
        return Err(DropReason::InInnerMartian);
    }
    let selector = info.selector(packet).ok_or(DropReason::InInnerHdrError)?;
    // "Match the packet against the inbound selectors identified by the SAD entry" (RFC 4301 section 5.2, step 4).
    if !sa.state.selectors.covers_in(&selector) {
        return Err(DropReason::InStateMismatch);
    }
    if snap.spd.has_discards()
        && snap.spd.lookup_in(&selector).is_some_and(|p| p.policy.action == Action::Discard)
    {
        return Err(DropReason::InPolBlock);
    }
    Ok(())
}

/// Addresses that no packet on a wire has, whatever the selectors say (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5):
/// loopback on either side, an unspecified destination, multicast or broadcast as source.
#[inline]
fn martian(packet: &[u8], ipv6: bool) -> bool {
    if ipv6 {
        let Some(h) = packet.first_chunk::<40>() else { return true };
        let loopback = |a: &[u8]| a[..15].iter().all(|b| *b == 0) && a[15] <= 1;
        // Unspecified is a legal source (duplicate address detection), loopback is not.
        h[8] == 0xff
            || (h[24] == 0 && loopback(&h[24..40]))
            || (h[8] == 0 && loopback(&h[8..24]) && h[23] == 1)
    } else {
        let Some(h) = packet.first_chunk::<20>() else { return true };
        let src = Ipv4Addr::new(h[12], h[13], h[14], h[15]);
        h[12] == 127 || h[16] == 127 || h[12] & 0xf0 == 0xe0 || h[16] == 0 || src.is_broadcast()
    }
}
