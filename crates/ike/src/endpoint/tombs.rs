//! The last answers of IKE_SAs that are gone, for a peer that did not get them: the answer to its
//! DELETE, or the error that ended IKE_AUTH.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::window::{Sealed, Window, digest};
use ironswan_keying::limits::{LAST_ANSWER_KEPT, LAST_ANSWERS};

/// The answers, by our SPI. The table is never iterated.
#[derive(Default)]
pub(crate) struct Tombs {
    /// Digest of the request, and the response.
    by_spi: HashMap<u64, (u64, Sealed)>,
    /// When each is forgotten, in order.
    order: VecDeque<(Instant, u64)>,
}

impl Tombs {
    /// True when an answer is kept under this SPI.
    pub(crate) fn knows(&self, spi: u64) -> bool {
        self.by_spi.contains_key(&spi)
    }

    /// Keeps the last answer of an IKE_SA that ends.
    pub(crate) fn bury(&mut self, now: Instant, spi: u64, window: &Window) {
        let Some((request, response)) = window.last() else { return };
        if self.order.len() == LAST_ANSWERS
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.by_spi.remove(&oldest);
        }
        self.by_spi.insert(spi, (request, response.to_vec()));
        self.order.push_back((now + LAST_ANSWER_KEPT, spi));
    }

    /// The answer to this request, if it is the last one that had an answer under this SPI.
    pub(crate) fn answer(&self, spi: u64, request: &[u8]) -> Option<&[Vec<u8>]> {
        self.by_spi.get(&spi).filter(|(d, _)| *d == digest(request)).map(|(_, response)| response.as_slice())
    }

    /// Forgets answers whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, spi)) = self.order.front()
            && at <= now
        {
            self.order.pop_front();
            self.by_spi.remove(&spi);
        }
    }

    /// When the next answer is forgotten.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(at, _)| *at)
    }
}
