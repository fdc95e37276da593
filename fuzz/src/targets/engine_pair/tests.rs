//! Tests of the target itself: engines agree on random inputs, and every planted defect is found.

use std::panic::catch_unwind;

use ironswan_crypto::rng::{Rng, Seeded};

use super::*;

fn inputs(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|seed| {
        let mut data = vec![0; 40 + seed as usize % 400];
        Seeded::new(seed).fill(&mut data);
        data
    })
}

#[test]
fn two_engines_agree_with_each_other_and_with_the_reference() {
    let mut results = std::collections::HashSet::new();
    for data in inputs(1_500) {
        results.insert(run(&data));
    }
    assert!(results.len() > 200, "inputs that do different things: {}", results.len());
}

#[test]
fn every_planted_defect_is_found() {
    std::panic::set_hook(Box::new(|_| ()));
    for defect in [Defect::Lost, Defect::Changed, Defect::Reordered, Defect::Leaked, Defect::Impersonated] {
        let found = inputs(3_000).any(|data| catch_unwind(|| run_with(&data, defect)).is_err());
        assert!(found, "{defect:?}");
    }
}
