//! Search for the largest packet that a path carries, in few steps. Pure: it names the next size to
//! try, and is told what came of it.
//!
//! ```text
//! believed ── passes ──▶ wide
//!    └ fails ─▶ the size of the search before ── passes ─▶ the next larger one fails: as before
//!               └ none, or fails ─▶ believed once more ─▶ least ── fails ─▶ unknown
//!                                                          └ passes ─▶ halves what is between
//! ```
//! A probe fails when its answer does not come in time: the path is too narrow for it, or a packet
//! was lost. So a size counts as too large only after several probes. And where not even the least
//! size passes, the path is slow or lossy, and nothing follows.

use ironswan_keying::limits::{PATH_PROBE_FAILURES, PATH_PROBES};

/// Bytes of IP packets that are common on links: Ethernet; PPPoE; a tunnel of 20 bytes, of GRE and
/// of VXLAN on it; and smaller ones. 576 is the least that every host takes over IPv4.
const LADDER_V4: &[u32] =
    &[1_500, 1_492, 1_480, 1_472, 1_454, 1_440, 1_420, 1_400, 1_350, 1_300, 1_280, 1_200, 1_006, 576];
/// The same for IPv6, of which every link carries 1,280 bytes (RFC 8200 section 5).
const LADDER_V6: &[u32] =
    &[1_500, 1_492, 1_480, 1_472, 1_454, 1_440, 1_420, 1_400, 1_380, 1_350, 1_320, 1_300, 1_280];

/// The next step of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A probe of this many bytes.
    Probe(u32),
    /// The path carries what we believed, and that was a probe of this many bytes.
    Wide(u32),
    /// The path carries packets of this many bytes, and none of the size that we believed.
    Narrow(u32),
    /// Nothing can be said.
    Unknown,
}

/// One size, in bytes of an IP packet.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u32,
    /// Probes that had no answer in time.
    failures: u32,
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    /// What we believed of the path, in bytes.
    pub believed: u32,
    /// Sizes that may be tried, each once, the largest first.
    sizes: Vec<Size>,
    /// Place of the size that the search before has found.
    before: Option<usize>,
    /// Place of the largest size that has passed.
    passed: Option<usize>,
    /// An answer took so long that others may come too late.
    slow: bool,
    probes: u32,
}

impl Search {
    /// A search on a path that we believe to carry `believed` bytes, and of which the search before
    /// has found `before`. `fit` gives the largest probe that is no larger than a size: the cipher
    /// may leave steps.
    pub(crate) fn new(
        believed: u32,
        ipv6: bool,
        before: Option<u32>,
        fit: impl Fn(u32) -> Option<u32>,
    ) -> Self {
        let ladder = if ipv6 { LADDER_V6 } else { LADDER_V4 };
        let smaller = ladder.iter().chain(&before).copied().filter(|size| *size < believed);
        let mut sizes: Vec<u32> = smaller.chain([believed]).filter_map(fit).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        let sizes: Vec<Size> = sizes.into_iter().map(|bytes| Size { bytes, failures: 0 }).collect();
        // The first place is what we believe, which is tried first anyway.
        let before = before.and_then(|b| sizes.iter().position(|s| s.bytes == b)).filter(|at| *at > 0);
        Self { believed, sizes, before, passed: None, slow: false, probes: 0 }
    }

    /// Failures after which the size at this place counts as too large.
    fn enough(at: usize) -> u32 {
        PATH_PROBE_FAILURES + u32::from(at == 0)
    }

    fn failures(&self, at: usize) -> u32 {
        self.sizes.get(at).map_or(0, |s| s.failures)
    }

    /// The next step.
    pub(crate) fn next(&self) -> Step {
        let Some(last) = self.sizes.len().checked_sub(1) else { return Step::Unknown };
        let place = match self.passed {
            Some(0) => return Step::Wide(self.sizes[0].bytes),
            Some(passed) => match self.above(passed) {
                Ok(place) => place,
                Err(step) => return step,
            },
            None => self.below(last),
        };
        match place {
            Some(at) if self.probes < PATH_PROBES => Step::Probe(self.sizes[at].bytes),
            _ => Step::Unknown,
        }
    }

    /// The size to try while none has passed; `None`: there is none left.
    fn below(&self, last: usize) -> Option<usize> {
        if self.failures(0) == 0 {
            return Some(0);
        }
        if let Some(before) = self.before.filter(|at| self.failures(*at) == 0) {
            return Some(before);
        }
        if self.failures(0) < PATH_PROBE_FAILURES {
            return Some(0);
        }
        (self.failures(last) < Self::enough(last)).then_some(last)
    }

    /// The size to try above the largest one that has passed, or the end.
    fn above(&self, passed: usize) -> Result<Option<usize>, Step> {
        let found = Step::Narrow(self.sizes[passed].bytes);
        let found = if self.slow { Step::Unknown } else { found };
        // The smallest one above that has failed. The first one has been tried before any other.
        let failed = (0..passed).rev().find(|at| self.failures(*at) > 0).unwrap_or(0);
        if self.before == Some(passed) {
            // As before, unless the next larger one passes now.
            let next = passed - 1;
            return if self.failures(next) == 0 { Ok(Some(next)) } else { Err(found) };
        }
        match failed + 1 == passed {
            false => Ok(Some(failed.midpoint(passed))),
            true if self.failures(failed) < Self::enough(failed) => Ok(Some(failed)),
            true => Err(found),
        }
    }

    fn place(&self, bytes: u32) -> Option<usize> {
        self.sizes.iter().position(|s| s.bytes == bytes)
    }

    /// A probe of this size was answered in time. `prompt`: so early that a later answer would have
    /// come in time, too.
    pub(crate) fn answered(&mut self, bytes: u32, prompt: bool) {
        self.probes += 1;
        self.slow |= !prompt;
        let at = self.place(bytes);
        self.passed = self.passed.into_iter().chain(at).min();
    }

    /// A probe of this size had no answer in time.
    pub(crate) fn failed(&mut self, bytes: u32) {
        self.probes += 1;
        if let Some(at) = self.place(bytes) {
            self.sizes[at].failures += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_crypto::rng::{Rng, Seeded};

    /// Searches on a path that carries `width` bytes and loses packets as `lost` says. The end, and
    /// the probes.
    fn run(
        believed: u32,
        before: Option<u32>,
        ipv6: bool,
        width: u32,
        mut lost: impl FnMut() -> bool,
    ) -> (Step, Vec<u32>) {
        let mut search = Search::new(believed, ipv6, before, Some);
        let mut probes = Vec::new();
        loop {
            match search.next() {
                Step::Probe(bytes) => {
                    probes.push(bytes);
                    assert!(probes.len() <= PATH_PROBES as usize, "{probes:?}");
                    if bytes <= width && !lost() {
                        search.answered(bytes, true);
                    } else {
                        search.failed(bytes);
                    }
                }
                end => return (end, probes),
            }
        }
    }

    #[test]
    fn a_wide_path_takes_one_probe() {
        for (believed, ipv6) in [(1_500, false), (9_000, false), (1_400, true), (1_280, true), (576, false)] {
            assert_eq!(run(believed, None, ipv6, believed, || false), (Step::Wide(believed), vec![believed]));
        }
    }

    #[test]
    fn every_width_is_found_as_exactly_as_the_ladder_has_it() {
        for ipv6 in [false, true] {
            let ladder = if ipv6 { LADDER_V6 } else { LADDER_V4 };
            let least = *ladder.last().unwrap();
            for believed in [1_280, 1_450, 1_500, 4_000, 9_000] {
                for width in least - 80..believed {
                    let (end, probes) = run(believed, None, ipv6, width, || false);
                    let exact = ladder.iter().copied().find(|size| *size <= width && *size < believed);
                    match exact {
                        Some(exact) => {
                            assert_eq!(end, Step::Narrow(exact), "{width} of {believed}: {probes:?}")
                        }
                        None => assert_eq!(end, Step::Unknown, "{width} of {believed}: {probes:?}"),
                    }
                    let failed = probes.iter().filter(|size| **size > width).count();
                    assert!(probes.len() <= 11 && failed <= 8, "{width} of {believed}: {probes:?}");
                }
            }
        }
    }

    #[test]
    fn a_path_that_is_as_narrow_as_before_takes_three_probes() {
        let (end, probes) = run(1_500, Some(1_300), false, 1_310, || false);
        assert_eq!((end, probes), (Step::Narrow(1_300), vec![1_500, 1_300, 1_350]));
        // A size that the ladder does not have, as a cipher has left it.
        let (end, probes) = run(1_500, Some(1_291), false, 1_299, || false);
        assert_eq!((end, probes), (Step::Narrow(1_291), vec![1_500, 1_291, 1_300]));
    }

    #[test]
    fn a_path_that_is_wider_or_narrower_than_before_is_measured_anew() {
        let ladder = |width: u32| LADDER_V4.iter().copied().find(|size| *size <= width).unwrap();
        for before in [576, 1_006, 1_300, 1_472, 1_492] {
            for width in 576..1_500 {
                let (end, probes) = run(1_500, Some(before), false, width, || false);
                let same = before <= width && ladder(width) == before;
                let found = if same { before } else { ladder(width) };
                assert_eq!(end, Step::Narrow(found), "{before}, then {width}: {probes:?}");
            }
            assert_eq!(run(1_500, Some(before), false, 1_500, || false), (Step::Wide(1_500), vec![1_500]));
        }
    }

    #[test]
    fn losses_never_widen_a_path_and_seldom_narrow_it() {
        let mut rng = Seeded::new(7);
        let (mut narrowed, rounds) = (0, 2_000);
        for round in 0..rounds {
            let width = [1_500, 1_492, 1_420, 1_300][round % 4];
            let (end, probes) = run(1_500, None, false, width, || rng.u32() % 100 < 10);
            match end {
                Step::Narrow(found) => {
                    assert!(found <= width, "{width}: {probes:?}");
                    narrowed += usize::from(width == 1_500);
                }
                Step::Wide(found) => assert_eq!((found, width), (1_500, 1_500), "{probes:?}"),
                Step::Unknown => {}
                Step::Probe(_) => unreachable!("it has ended"),
            }
        }
        // One in ten probes is lost, and 500 of the paths are wide.
        assert!(narrowed <= 5, "{narrowed} of {rounds}");
    }

    #[test]
    fn where_answers_are_slow_nothing_is_called_narrow() {
        let mut search = Search::new(1_500, false, None, Some);
        loop {
            match search.next() {
                Step::Probe(bytes) if bytes <= 1_400 => search.answered(bytes, false),
                Step::Probe(bytes) => search.failed(bytes),
                end => {
                    assert_eq!(end, Step::Unknown);
                    break;
                }
            }
        }
    }

    #[test]
    fn sizes_that_a_cipher_cannot_make_are_rounded_down_and_tried_once() {
        // As AES-CBC with HMAC-SHA2-256-128 behind the non-ESP marker.
        let fit = |size: u32| size.checked_sub(96).map(|rest| 96 + rest / 16 * 16);
        let search = Search::new(1_500, false, None, fit);
        let sizes: Vec<u32> = search.sizes.iter().map(|s| s.bytes).collect();
        let fitting = [1_488, 1_472, 1_440, 1_408, 1_392, 1_344, 1_296, 1_280, 1_200, 992, 576];
        assert_eq!(sizes, fitting);
        assert_eq!(search.next(), Step::Probe(1_488));
    }

    #[test]
    fn without_a_size_that_fits_nothing_is_tried() {
        assert_eq!(Search::new(1_500, false, None, |_| None).next(), Step::Unknown);
    }
}
