//! Auditable events (RFC 4301 section 9, RFC 4303 section 4): what was dropped on its way in is told to the key daemon, with
//! the SPI, sequence number and addresses of one such packet. Of each reason one in a while, with how many there were:
//! whoever can make packets be dropped cannot fill a log.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_wire::sadb::{Rejected, Spi};

use crate::counters::DropReason;
use crate::up::UpQueue;

/// Between two events of one reason.
const INTERVAL: Duration = Duration::from_secs(10);

/// The packet that is named.
pub(crate) struct Sample {
    pub(crate) spi: u32,
    pub(crate) sequence: u64,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

/// One worker's rate limits.
#[derive(Default)]
pub(crate) struct Audit {
    /// Of each reason that has occurred: since when it may be told again, and how many were not told.
    seen: Vec<(DropReason, Duration, u64)>,
}

impl Audit {
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
            Some((_, next, untold)) if now < *next => {
                *untold += 1;
                return;
            }
            Some((_, next, untold)) => {
                *next = now + INTERVAL;
                std::mem::take(untold) + 1
            }
            None => {
                self.seen.push((reason, now + INTERVAL, 0));
                1
            }
        };
        let Sample { spi, sequence, local, remote } = sample();
        let (name, sentence) = (reason.name(), reason.sentence());
        up.rejected(Rejected { reason: name, sentence, count, spi: Spi(spi), sequence, local, remote });
    }
}
