//! Stateless cookies (RFC 7296 section 2.6).
//!
//! `Cookie = VersionIDofSecret | HMAC(secret, Ni | IPi | SPIi)`, 17 bytes, so that a request to
//! return one is always smaller than the request that it answers. The secret changes by time; the
//! one before it is good for one more period. Nothing is stored for who asks.

use std::net::IpAddr;
use std::time::Instant;

use ironswan_crypto::prf;
use ironswan_crypto::rng::Rng;
use ironswan_keying::limits::COOKIE_SECRET_PERIOD;
use ironswan_wire::iana::PrfId;
use ironswan_wire::secret::{Secret, ct_eq};

/// Bytes of the HMAC that are sent: a guess is right once in 2^128.
const MAC_LEN: usize = 16;

struct Generation {
    version: u8,
    secret: Secret,
    since: Instant,
}

/// The secrets.
#[derive(Default)]
pub(crate) struct Cookies {
    current: Option<Generation>,
    previous: Option<Generation>,
}

impl Cookies {
    /// The cookie that the sender of this request must bring.
    pub(crate) fn make(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        ni: &[u8],
        addr: IpAddr,
        spi_i: u64,
    ) -> Vec<u8> {
        self.turn(now);
        let generation = self.current.get_or_insert_with(|| {
            let mut secret = vec![0; 32];
            rng.fill(&mut secret);
            let version = self.previous.as_ref().map_or(0, |p| p.version.wrapping_add(1));
            Generation { version, secret: Secret::new(secret), since: now }
        });
        compute(generation, ni, addr, spi_i)
    }

    /// True for a cookie that we made for this request.
    pub(crate) fn check(&mut self, now: Instant, cookie: &[u8], ni: &[u8], addr: IpAddr, spi_i: u64) -> bool {
        self.turn(now);
        let known = [&self.current, &self.previous].into_iter().flatten();
        let generation = known.into_iter().find(|g| cookie.first() == Some(&g.version));
        generation.is_some_and(|g| ct_eq(&compute(g, ni, addr, spi_i), cookie))
    }

    fn turn(&mut self, now: Instant) {
        if self
            .current
            .as_ref()
            .is_some_and(|g| now.saturating_duration_since(g.since) >= COOKIE_SECRET_PERIOD)
        {
            self.previous = self.current.take();
        }
        if self
            .previous
            .as_ref()
            .is_some_and(|g| now.saturating_duration_since(g.since) >= 2 * COOKIE_SECRET_PERIOD)
        {
            self.previous = None;
        }
    }
}

fn compute(generation: &Generation, ni: &[u8], addr: IpAddr, spi_i: u64) -> Vec<u8> {
    // Lengths are bound in, so that no two (nonce, address) pairs run into each other.
    let mut tail = vec![u8::try_from(ni.len().saturating_sub(1)).unwrap_or(u8::MAX)];
    match addr {
        IpAddr::V4(a) => tail.extend(a.octets()),
        IpAddr::V6(a) => tail.extend(a.octets()),
    }
    tail.extend(spi_i.to_be_bytes());
    let prf = prf::get(PrfId::HMAC_SHA2_256).expect("HMAC-SHA2-256 is built in");
    let mac = prf.mac(generation.secret.expose(), &[ni, &tail]);
    let mut cookie = vec![generation.version];
    cookie.extend_from_slice(&mac.expose()[..MAC_LEN]);
    cookie
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use ironswan_crypto::rng::Seeded;

    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_sender_and_for_two_periods_at_most() {
        let t0 = Instant::now();
        let mut rng = Seeded::new(1);
        let mut c = Cookies::default();
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let cookie = c.make(t0, &mut rng, &[1; 32], a, 7);
        assert_eq!(cookie.len(), 1 + MAC_LEN, "1 to 64 (RFC 7296 section 2.6)");
        assert!(c.check(t0, &cookie, &[1; 32], a, 7));
        assert!(!c.check(t0, &cookie, &[1; 32], b, 7));
        assert!(!c.check(t0, &cookie, &[2; 32], a, 7));
        assert!(!c.check(t0, &cookie, &[1; 32], a, 8));
        assert!(!c.check(t0, &[], &[1; 32], a, 7));
        let later = c.make(t0 + COOKIE_SECRET_PERIOD, &mut rng, &[1; 32], a, 7);
        assert_ne!(later, cookie);
        assert!(c.check(t0 + COOKIE_SECRET_PERIOD, &cookie, &[1; 32], a, 7), "the previous secret");
        assert!(!c.check(t0 + 2 * COOKIE_SECRET_PERIOD, &cookie, &[1; 32], a, 7));
        assert!(c.check(t0 + 2 * COOKIE_SECRET_PERIOD, &later, &[1; 32], a, 7));
    }
}
