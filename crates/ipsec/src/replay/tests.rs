use super::*;

const WINDOWS: [u32; 6] = [32, 33, 64, 128, 1024, 4096];

/// What a window is by definition: the set of numbers received, and the highest.
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
}

proptest::proptest! {
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
        r.commit(10_000).unwrap();
        assert_eq!(r.check(10_000 - w + 1), Ok(u64::from(10_000 - w + 1)));
        assert_eq!(r.check(10_000 - w), Err(ReplayError::Old));
    }
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
