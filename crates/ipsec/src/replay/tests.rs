use super::*;

const WINDOWS: [u32; 11] = [32, 33, 64, 128, 1024, 4096, 65_535, 65_536, 65_537, 131_072, Replay::MAX_WINDOW];

/// A window by its definition: the set of numbers received, and the highest.
#[derive(Default)]
struct Reference {
    seen: std::collections::BTreeSet<u64>,
    top: u64,
}

impl Reference {
    fn accept(&mut self, seq: u64, window: u64) -> Result<(), ReplayError> {
        if seq == 0 || (seq <= self.top && self.top - seq >= window) {
            return Err(ReplayError::Old);
        }
        if !self.seen.insert(seq) {
            return Err(ReplayError::Duplicate);
        }
        self.top = self.top.max(seq);
        Ok(())
    }

    /// The answer that [`Self::accept`] would give.
    fn would_accept(&self, seq: u64, window: u64) -> Result<(), ReplayError> {
        match seq {
            0 => Err(ReplayError::Old),
            _ if seq <= self.top && self.top - seq >= window => Err(ReplayError::Old),
            _ if self.seen.contains(&seq) => Err(ReplayError::Duplicate),
            _ => Ok(()),
        }
    }
}

/// The extended number that a low half stands for, by definition: the only one of the 2^32 from the
/// window's left edge on (RFC 4303 appendix A2.1, in numbers that neither wrap nor end).
fn extended(low: u32, top: u64, window: u32) -> Option<u64> {
    let bottom = i128::from(top) - i128::from(window) + 1;
    u64::try_from(bottom + (i128::from(low) - bottom).rem_euclid(1 << 32)).ok()
}

proptest::proptest! {
    /// Loss, reordering, replays and forgeries around the places where a subspace ends, for windows
    /// of all sizes.
    #[test]
    fn extended_numbers_with_loss_and_forgeries_equal_the_model(
        window in proptest::prop_oneof![1u32..300, 60_000u32..140_000],
        start in proptest::prop_oneof![0u64..2, 0x7fff_ff00u64..0x8000_0100, 0xfffe_0000u64..0x1_0002_0000, 0x4_ffff_ff00u64..0x5_0000_0100],
        steps in proptest::collection::vec((0u32..12, 0u64..70_000, proptest::bool::weighted(0.8)), 1..300),
    ) {
        let (mut ring, mut model) = (Replay::new(window, true), Reference::default());
        ring.advance(start);
        // Numbers up to the start count as lost, not as seen.
        model.top = start;
        for (kind, n, authentic) in steps {
            let sent = match kind {
                0 => model.top + n * 997,
                1..6 => model.top + 1 + n % 7,
                6..9 => model.top.saturating_sub(n % 400),
                _ => model.top.saturating_sub(n),
            };
            let inferred = extended(sent as u32, model.top, window);
            let checked = ring.check(sent as u32);
            proptest::prop_assert_eq!(checked.is_err() && inferred.is_none(), inferred.is_none());
            if let Some(seq) = inferred {
                proptest::prop_assert_eq!(checked.is_ok(), model.would_accept(seq, u64::from(window)).is_ok());
                if let Ok(found) = checked {
                    proptest::prop_assert_eq!(found, seq);
                }
            }
            // A wrong ICV: a forgery, or a number that was taken for another. Nothing is committed,
            // so nothing moves.
            if let (true, Ok(seq)) = (authentic && inferred == Some(sent), checked) {
                proptest::prop_assert_eq!(ring.commit(seq), model.accept(seq, u64::from(window)));
            }
            proptest::prop_assert_eq!(ring.top(), model.top);
        }
    }

    #[test]
    fn the_ring_equals_the_set_of_numbers_received(
        window in 1u32..300,
        steps in proptest::collection::vec((0u32..10, 0u64..400), 1..400),
    ) {
        let (mut ring, mut reference) = (Replay::new(window, false), Reference::default());
        for (kind, n) in steps {
            // Mostly around the top, now and then a jump.
            let seq = match kind {
                0 => reference.top + n * 20,
                1..5 => reference.top + n % 5,
                _ => reference.top.saturating_sub(n),
            };
            proptest::prop_assume!(seq <= u64::from(u32::MAX));
            let want = reference.accept(seq, u64::from(window));
            let got = ring.check(seq as u32).and_then(|s| ring.commit(s));
            proptest::prop_assert_eq!(got, want, "seq {} top {}", seq, reference.top);
        }
    }

    #[test]
    fn the_extended_number_is_found_again_near_the_top(
        window in 1u32..5000,
        top in 0u64..(1 << 40),
        back in 0u64..5000,
        ahead in 0u64..1_000_000,
    ) {
        let mut ring = Replay::new(window, true);
        ring.advance(top);
        let inside = top.saturating_sub(back % u64::from(window));
        if inside != 0 {
            proptest::prop_assert_eq!(ring.infer(inside as u32), Some(inside));
        }
        proptest::prop_assert_eq!(ring.infer((top + ahead) as u32), Some(top + ahead));
    }
}

#[test]
fn zero_is_never_accepted_and_one_is_first() {
    for w in WINDOWS {
        for esn in [false, true] {
            let mut r = Replay::new(w, esn);
            assert!(r.check(0).is_err());
            assert_eq!(r.check(1), Ok(1));
            assert_eq!(r.commit(1), Ok(()));
            assert_eq!(r.check(1), Err(ReplayError::Duplicate));
        }
    }
}

#[test]
fn the_left_edge_is_exactly_the_window_size() {
    for w in WINDOWS {
        let mut r = Replay::new(w, false);
        r.commit(5_000_000).unwrap();
        assert_eq!(r.check(5_000_000 - w + 1), Ok(u64::from(5_000_000 - w + 1)));
        assert_eq!(r.check(5_000_000 - w), Err(ReplayError::Old));
    }
}

#[test]
fn the_top_is_never_moved_back() {
    let mut r = Replay::new(100, false);
    r.advance(5_000);
    r.advance(4_999);
    assert_eq!((r.top(), r.window()), (5_000, 100));
    assert_eq!((r.check(4_901), r.check(4_900)), (Ok(4_901), Err(ReplayError::Old)));
}

#[test]
fn without_a_window_everything_is_accepted() {
    let mut r = Replay::new(0, false);
    for seq in [5, 5, 1, 0, u32::MAX, 5] {
        assert_eq!(r.check(seq).and_then(|s| r.commit(s)), Ok(()));
    }
}

#[test]
fn a_check_does_not_move_the_window() {
    let mut r = Replay::new(64, false);
    r.commit(100).unwrap();
    for _ in 0..20 {
        assert_eq!(r.check(5_000), Ok(5_000));
    }
    assert_eq!(r.commit(60), Ok(()));
    assert_eq!(r.top(), 100);
}

#[test]
fn there_is_no_subspace_before_the_first() {
    let r = Replay::new(64, true);
    assert_eq!(r.infer(u32::MAX), None);
    let mut r = Replay::new(64, true);
    r.advance(u64::MAX - 5);
    assert_eq!(r.infer(0), None);
}

#[test]
fn every_number_of_a_window_that_spans_two_subspaces_is_accepted_once() {
    for w in WINDOWS {
        let top = 0x3_0000_0000 + u64::from(w) / 2;
        let mut r = Replay::new(w, true);
        r.advance(top);
        for seq in (top + 1 - u64::from(w)..=top).rev() {
            assert_eq!(r.check(seq as u32), Ok(seq), "{w} {seq:#x}");
            assert_eq!(r.commit(seq), Ok(()));
            assert_eq!(r.check(seq as u32), Err(ReplayError::Duplicate));
        }
        assert_eq!(r.top(), top);
    }
}

#[test]
fn loss_of_almost_a_subspace_is_survived_and_of_more_is_not() {
    for w in WINDOWS {
        let mut r = Replay::new(w, true);
        r.advance(0x1_0000_0010);
        // The farthest number that its low half still says: 2^32 beyond the left edge, less one.
        let far = 0x1_0000_0010 + (1 << 32) - u64::from(w);
        assert_eq!(r.check(far as u32), Ok(far));
        assert_ne!(r.check((far + 1) as u32), Ok(far + 1));
    }
}
