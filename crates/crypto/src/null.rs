//! An engine that protects nothing: it writes zeros for an ICV and finds every packet authentic.
//! With it the instructions of the packet path around sealing and opening can be counted on any
//! machine (`scripts/budget`): valgrind does not know the newest instructions that ciphers use, and
//! how many a cipher takes is not the path's business.
//!
//! The engine exists only in builds with the feature `null-engine`, for which no shipped program
//! asks, and there only for keys that the same thread made after [`choose`].

use std::cell::Cell;

thread_local! {
    static CHOSEN: Cell<bool> = const { Cell::new(false) };
}

/// From now on every ESP and AH key that this thread makes is one of this engine. Returns words to
/// print, by which a program that can do so is recognised.
pub fn choose() -> &'static str {
    CHOSEN.set(true);
    "THE NULL ENGINE IS IN THIS PROGRAM: PACKETS ARE NEITHER ENCRYPTED NOR AUTHENTICATED"
}

/// Whether [`choose`] was called.
pub(crate) fn chosen() -> bool {
    CHOSEN.get()
}

#[cfg(test)]
mod tests {
    use ironswan_wire::iana::{EncrId, IntegId};
    use ironswan_wire::proposal::EspSuite;

    use super::*;
    use crate::batch::{self, EspKey, Job};
    use crate::icv::{self, IcvJob, IcvKey};
    use crate::rng::Seeded;

    const GCM: EspSuite =
        EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false };

    fn key() -> Box<EspKey> {
        EspKey::new(&GCM, &[7; 20], &[], &mut Seeded::new(1)).unwrap()
    }

    #[test]
    fn only_keys_that_are_made_after_it_was_chosen_protect_nothing() {
        let (real, mut packet) = (key(), [1; 64]);
        assert!(choose().contains("NULL ENGINE"));
        let null = key();
        let mut job = [Job { start: 0, len: 64, seq: 1, key: 0, ok: false }];
        batch::seal(&mut packet, &mut job, &[&null]);
        assert!(job[0].ok && packet[..48] == [1; 48] && packet[48..] == [0; 16], "{packet:?}");
        batch::open(&mut packet, &mut job, &[&null]);
        assert!(job[0].ok && packet[..48] == [1; 48]);
        batch::open(&mut packet, &mut job, &[&real]);
        assert!(!job[0].ok, "a real key sees that it is forged");
        assert_eq!(
            (null.iv_len(), null.icv_len(), null.block_len()),
            (real.iv_len(), real.icv_len(), real.block_len())
        );
        // Keys of other threads are not touched.
        let other = std::thread::spawn(key).join().unwrap();
        batch::seal(&mut packet, &mut job, &[&other]);
        assert!(job[0].ok && packet[48..] != [0; 16]);
    }

    #[test]
    fn icvs_of_ah_are_zeros() {
        choose();
        let key = IcvKey::new(IntegId::HMAC_SHA2_256_128, &[7; 32], false).unwrap();
        let mut packet = [1; 64];
        let mut job = [IcvJob { start: 0, len: 64, field: 12, seq: 1, ..IcvJob::default() }];
        icv::sign(&[], &mut packet, &mut job, &[&key]);
        assert!(job[0].ok && packet[12..28] == [0; 16] && packet[28..] == [1; 36]);
        icv::verify(&[], &packet, &mut job, &[&key]);
        assert!(job[0].ok);
    }
}
