//! Auditable events (RFC 4301 section 9, RFC 4303 section 4): drops of packets that arrive are
//! reported to the key daemon, with the SPI, sequence number and addresses of one such packet. Each
//! reason is reported at most once per interval, with the number of drops, so that nobody can fill
//! a log.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_wire::sadb::{RejectedPackets, Spi};

use crate::counters::DropReason;
use crate::up::UpQueue;

/// Least time between two events of one reason.
const INTERVAL: Duration = Duration::from_secs(10);

/// The packet that an event names.
pub(crate) struct Sample {
    pub(crate) spi: u32,
    pub(crate) sequence: u64,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

/// Packets of one batch that were refused for one reason: how many, and the first of them.
pub(crate) struct RefusedCount {
    reason: DropReason,
    count: u64,
    sample: Sample,
}

/// Enters a refusal into the list of a batch, until somebody with an [`Audit`] takes it.
#[cold]
pub(crate) fn count_refused(
    list: &mut Vec<RefusedCount>,
    reason: DropReason,
    sample: impl FnOnce() -> Sample,
) {
    match list.iter_mut().find(|r| r.reason == reason) {
        Some(refused) => refused.count += 1,
        None => list.push(RefusedCount { reason, count: 1, sample: sample() }),
    }
}

/// One worker's rate limits.
#[derive(Default)]
pub(crate) struct Audit {
    /// For each reason that has occurred: the time from which it may be reported again, and the
    /// drops that were not reported.
    seen: Vec<(DropReason, Duration, u64)>,
}

impl Audit {
    /// Takes what was refused of a batch.
    #[cold]
    pub(crate) fn take(&mut self, now: Duration, up: &UpQueue, list: &mut Vec<RefusedCount>) {
        for RefusedCount { reason, count, sample } in list.drain(..) {
            self.note(now, up, reason, || sample);
            if let Some((.., unreported)) = self.seen.iter_mut().find(|(r, ..)| *r == reason) {
                *unreported += count - 1;
            }
        }
    }

    #[cold]
    pub(crate) fn note(
        &mut self,
        now: Duration,
        up: &UpQueue,
        reason: DropReason,
        sample: impl FnOnce() -> Sample,
    ) {
        let found = self.seen.iter_mut().find(|(r, ..)| *r == reason);
        let count = match found {
            Some((_, next, unreported)) if now < *next => {
                *unreported += 1;
                return;
            }
            Some((_, next, unreported)) => {
                *next = now + INTERVAL;
                std::mem::take(unreported) + 1
            }
            None => {
                self.seen.push((reason, now + INTERVAL, 0));
                1
            }
        };
        let Sample { spi, sequence, local, remote } = sample();
        let (name, sentence) = (reason.name(), reason.sentence());
        up.rejected(RejectedPackets {
            reason: name,
            sentence,
            count,
            spi: Spi(spi),
            sequence,
            local,
            remote,
        });
    }
}
