//! Searches in systems with known answers.

use super::simulated::{Bimodal, Bufferbloated, Degrading, HardLimit, Leaky, Noisy, Random, System};
use super::{Ask, Class, Found, Goal, Plan, Search, Trial};

/// As for continuous integration of packet processors: half of the seconds may be bad.
fn goal(loss_ratio: f64) -> Goal {
    Goal {
        loss_ratio,
        exceed_ratio: 0.5,
        width: 0.01,
        initial_trial: 0.1,
        final_trial: 1.0,
        duration_sum: 11.0,
    }
}

fn plan(goals: &[Goal]) -> Plan {
    Plan { goals: goals.to_vec(), min_load: 1e3, max_load: 1e6, coarse_stages: 2, most_trials: 400 }
}

fn search(plan: Plan, system: &mut dyn System) -> (Vec<Found>, Vec<Trial>) {
    let (min, max) = (plan.min_load, plan.max_load);
    let mut search = Search::new(plan).expect("a sound plan");
    while let Some(Ask { load, duration }) = search.ask() {
        assert!(load >= min * 0.999_999 && load <= max * 1.000_001, "{load}");
        search.tell(Ask { load, duration }, system.lose(load, duration));
    }
    (search.found(), search.trials().to_vec())
}

#[track_caller]
fn assert_near(found: &Found, truth: f64, tolerance: f64) {
    let (lower, upper) =
        (found.bounds.lower.expect("a lower bound"), found.bounds.upper.expect("an upper one"));
    assert!(
        found.complete && upper > lower && (upper - lower) / upper <= found.goal.width * 1.000_001,
        "{found:?}"
    );
    assert!(
        lower <= truth * (1.0 + tolerance) && upper >= truth * (1.0 - tolerance),
        "{found:?} for {truth}"
    );
    let throughput = found.conditional_throughput.expect("a throughput");
    assert!(throughput <= lower && throughput >= lower * (1.0 - found.goal.loss_ratio - 1e-9), "{found:?}");
}

#[test]
fn a_hard_limit_lies_between_the_bounds_of_every_goal() {
    for limit in [1.3e3, 77_777.0, 4e5, 9.9e5] {
        let goals = [goal(0.0), goal(0.00001), goal(0.001), goal(0.05)];
        let (found, trials) = search(plan(&goals), &mut HardLimit(limit));
        for f in &found {
            // A goal that allows some loss may offer more than the limit.
            let truth = limit / (1.0 - f.goal.loss_ratio);
            if truth < 1e6 {
                assert_near(f, truth, 1e-9);
            } else {
                assert_eq!((f.bounds.lower, f.bounds.upper, f.complete), (Some(1e6), None, true));
            }
        }
        assert!(trials.len() < 130, "{} trials", trials.len());
    }
}

#[test]
fn several_goals_at_once_take_fewer_seconds_than_one_after_the_other() {
    let seconds = |trials: &[Trial]| trials.iter().map(|t| t.duration).sum::<f64>();
    let goals = [goal(0.0), goal(0.00001), goal(0.001)];
    let together = seconds(&search(plan(&goals), &mut HardLimit(3.3e5)).1);
    let apart: f64 = goals.iter().map(|g| seconds(&search(plan(&[*g]), &mut HardLimit(3.3e5)).1)).sum();
    assert!(together < 0.8 * apart, "{together} s against {apart} s");
}

#[test]
fn the_median_of_a_noisy_system_is_found_with_half_of_the_trials_forgiven_and_its_worst_with_none() {
    for seed in 1..=10 {
        let mut system = Noisy { middle: 2e5, spread: 0.05, random: Random::new(seed) };
        let (found, _) = search(plan(&[goal(0.0)]), &mut system);
        assert_near(&found[0], 2e5, 0.04);
        let strict = Goal { exceed_ratio: 0.0, ..goal(0.0) };
        let mut system = Noisy { middle: 2e5, spread: 0.05, random: Random::new(seed) };
        let (found, _) = search(plan(&[strict]), &mut system);
        let lower = found[0].bounds.lower.expect("a lower bound");
        assert!((1.85e5..1.98e5).contains(&lower), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_buffer_fools_short_trials_but_not_the_result() {
    // A tenth of a second of packets: a trial of 0.1 s loses nothing at twice the limit.
    let mut system = Bufferbloated { limit: 1e5, buffer: 1e4 };
    assert_eq!(system.lose(1.9e5, 0.1), 0.0);
    let (found, _) = search(plan(&[goal(0.0), goal(0.001)]), &mut system);
    // In one second the buffer hides a tenth of the limit.
    assert_near(&found[0], 1.1e5, 1e-9);
    let long = Goal { final_trial: 60.0, duration_sum: 60.0, ..goal(0.0) };
    let (found, _) = search(plan(&[long]), &mut system);
    assert_near(&found[0], 1e5 * (1.0 + 0.1 / 60.0), 1e-9);
}

#[test]
fn a_peak_is_found_though_the_flood_shows_much_less() {
    let mut system = Degrading { peak: 1.5e5 };
    assert!(1e6 * (1.0 - system.lose(1e6, 1.0)) < 0.7e5);
    let (found, trials) = search(plan(&[goal(0.0), goal(0.001)]), &mut system);
    found.iter().for_each(|f| assert_near(f, 1.5e5, 0.002));
    assert!(trials.len() < 120, "{}", trials.len());
}

#[test]
fn of_two_modes_the_one_that_the_exceed_ratio_asks_for_is_found() {
    for seed in 1..=10 {
        // Slow in one trial of five: half of them forgiven, that is no matter.
        let system = |share| Bimodal { slow: 1e5, fast: 3e5, share, random: Random::new(seed) };
        let (found, _) = search(plan(&[goal(0.0)]), &mut system(0.2));
        assert_near(&found[0], 3e5, 0.011);
        let strict = Goal { exceed_ratio: 0.0, ..goal(0.0) };
        // Nothing forgiven, the slow mode is what counts, as soon as eleven trials are sure to meet
        // it.
        let (found, _) = search(plan(&[strict]), &mut system(0.5));
        let lower = found[0].bounds.lower.expect("a lower bound");
        assert!(lower < 1.01e5, "seed {seed}: {found:?}");
    }
}

#[test]
fn rfc_2544_is_one_setting_and_ends_at_once_when_the_limit_passes() {
    let rfc = Goal::rfc2544(60.0, 0.005);
    let (found, trials) = search(Plan { coarse_stages: 0, ..plan(&[rfc]) }, &mut HardLimit(2.5e5));
    assert_near(&found[0], 2.5e5, 1e-9);
    assert!(trials.iter().all(|t| t.duration == 60.0) && trials.len() <= 16, "{trials:?}");
    let (found, trials) = search(Plan { coarse_stages: 0, ..plan(&[rfc]) }, &mut HardLimit(1e9));
    assert_eq!((found[0].bounds.lower, found[0].bounds.upper, trials.len()), (Some(1e6), None, 1));
    assert!(found[0].complete);
}

#[test]
fn a_system_that_carries_nothing_has_no_throughput_and_the_search_ends() {
    let (found, trials) = search(plan(&[goal(0.0)]), &mut HardLimit(10.0));
    assert_eq!((found[0].bounds.lower, found[0].conditional_throughput), (None, None));
    assert!(found[0].complete && trials.len() < 40, "{}", trials.len());
}

#[test]
fn the_number_of_trials_is_bounded_and_an_unfinished_search_says_so() {
    let mut random = Random::new(7);
    struct Coin<'a>(&'a mut Random);
    impl System for Coin<'_> {
        fn lose(&mut self, _: f64, _: f64) -> f64 {
            if self.0.next() < 0.5 { 0.0 } else { 0.3 }
        }
    }
    let (_, trials) = search(Plan { most_trials: 25, ..plan(&[goal(0.0)]) }, &mut Coin(&mut random));
    assert!(trials.len() <= 25);
    let (found, trials) = search(Plan { most_trials: 5, ..plan(&[goal(0.0)]) }, &mut HardLimit(3e5));
    assert_eq!(trials.len(), 5);
    assert!(!found[0].complete);
}

/// Three losses at once, as in a quick run and as in a usual one.
fn quick(most_trials: u32) -> Plan {
    let goal = |loss_ratio| Goal {
        width: 0.05,
        initial_trial: 0.075,
        final_trial: 0.25,
        duration_sum: 0.5,
        ..goal(loss_ratio)
    };
    let goals = [0.0, 0.00001, 0.001].map(goal);
    Plan { min_load: 500.0, coarse_stages: 1, most_trials, ..plan(&goals) }
}

fn usual(most_trials: u32) -> Plan {
    let goals = [0.0, 0.00001, 0.001].map(|loss| Goal { width: 0.02, duration_sum: 5.0, ..goal(loss) });
    Plan { min_load: 500.0, most_trials, ..plan(&goals) }
}

/// Of 50 searches for each loss, in how many no load was found that is carried, or one outside of
/// `truth`.
fn undecided(
    plan: &Plan,
    system: &dyn Fn(u64) -> Box<dyn System>,
    truth: std::ops::RangeInclusive<f64>,
) -> [usize; 3] {
    let mut undecided = [0; 3];
    for seed in 1..=50 {
        let (found, trials) = search(plan.clone(), system(seed).as_mut());
        assert!(trials.len() <= plan.most_trials as usize);
        for (count, found) in undecided.iter_mut().zip(found) {
            *count += usize::from(!found.bounds.lower.is_some_and(|load| truth.contains(&load)));
        }
    }
    undecided
}

#[test]
fn however_few_trials_there_are_some_decide_about_every_loss() {
    let hard = |_| Box::new(HardLimit(2e5)) as Box<dyn System>;
    let noisy =
        |seed| Box::new(Noisy { middle: 2e5, spread: 0.05, random: Random::new(seed) }) as Box<dyn System>;
    let degrading = |_| Box::new(Degrading { peak: 2e5 }) as Box<dyn System>;
    let bimodal = |seed| {
        Box::new(Bimodal { slow: 1e5, fast: 3e5, share: 0.2, random: Random::new(seed) }) as Box<dyn System>
    };
    // A quick run has 22, of which the generator may spoil two of three.
    for most in [7, 8, 22] {
        for (system, truth, at_most) in [
            (&hard as &dyn Fn(u64) -> Box<dyn System>, 1.8e5..=2e5, 0),
            (&noisy, 1.5e5..=2.1e5, 1),
            (&degrading, 1e5..=2e5, 0),
            (&bimodal, 0.9e5..=3e5, 1),
        ] {
            let undecided = undecided(&quick(most), system, truth);
            assert!(undecided.iter().all(|n| *n <= at_most), "{most} trials: {undecided:?}");
        }
    }
    // Goals in which three full trials of five decide.
    assert_eq!(undecided(&usual(9), &hard, 1.8e5..=2e5), [0; 3]);
    assert_eq!(undecided(&usual(9), &degrading, 1e5..=2e5), [0; 3]);
    assert!(undecided(&usual(15), &bimodal, 0.9e5..=3e5).iter().all(|n| *n <= 1));
}

#[test]
fn a_loss_that_is_never_kept_leaves_trials_to_the_others() {
    let leaky =
        |seed| Box::new(Leaky { limit: 2e5, share: 0.9, random: Random::new(seed) }) as Box<dyn System>;
    for most in [7, 8] {
        assert_eq!(undecided(&quick(most), &leaky, 1.5e5..=2.1e5)[2], 0, "{most} trials");
    }
}

#[test]
fn a_trial_that_said_nothing_is_one_of_those_that_there_may_be() {
    let mut search = Search::new(quick(7)).expect("a sound plan");
    let mut made = 0;
    while let Some(ask) = search.ask() {
        assert_eq!(search.ask(), Some(ask), "it is asked for again");
        made += 1;
        if made % 2 == 0 { search.void() } else { search.tell(ask, HardLimit(2e5).lose(ask.load, 1.0)) }
    }
    assert_eq!((made, search.trials().len()), (7, 4));
}

#[test]
fn what_a_load_is_follows_the_definitions() {
    let g = Goal { duration_sum: 10.0, ..goal(0.0) };
    let trial = |duration: f64, loss: f64| Trial { load: 1.0, duration, loss };
    let long = |good: usize, bad: usize| [vec![trial(1.0, 0.0); good], vec![trial(1.0, 0.1); bad]].concat();
    let class = |trials: &[Trial]| g.classify(trials);
    assert_eq!(class(&[]), Class::Undecided);
    // Half of ten seconds good is enough; more than half bad is too much.
    assert_eq!(class(&long(4, 5)), Class::Undecided);
    assert_eq!(class(&long(5, 0)), Class::Lower);
    assert_eq!(class(&long(0, 5)), Class::Undecided);
    assert_eq!(class(&long(0, 6)), Class::Upper);
    assert_eq!(class(&long(6, 6)), Class::Lower);
    // Short trials never speak for a load, and against it only past the allowance.
    assert_eq!(class(&vec![trial(0.5, 0.0); 100]), Class::Undecided);
    assert_eq!(class(&vec![trial(0.5, 0.1); 11]), Class::Upper);
    let balanced = [vec![trial(0.5, 0.1); 11], vec![trial(0.5, 0.0); 11]].concat();
    assert_eq!(class(&balanced), Class::Undecided);
    // Nothing is forgiven.
    let strict = Goal { exceed_ratio: 0.0, ..g };
    assert_eq!(strict.classify(&long(9, 0)), Class::Undecided);
    assert_eq!(strict.classify(&long(10, 0)), Class::Lower);
    assert_eq!(strict.classify(&long(0, 1)), Class::Upper);
}

#[test]
fn a_carried_load_above_one_that_is_not_says_nothing() {
    let g = Goal::rfc2544(1.0, 0.01);
    let t = |load: f64, loss: f64| Trial { load, duration: 1.0, loss };
    let b = g.bounds(&[t(1.0, 0.0), t(3.0, 0.0), t(2.0, 0.5), t(4.0, 0.1)]);
    assert_eq!((b.lower, b.upper), (Some(1.0), Some(2.0)));
}

#[test]
fn the_conditional_throughput_is_that_of_the_worst_trial_not_forgiven() {
    let g = Goal { loss_ratio: 0.5, exceed_ratio: 0.5, duration_sum: 4.0, ..goal(0.0) };
    let t = |loss: f64| Trial { load: 100.0, duration: 1.0, loss };
    // Two of four seconds count: the second best.
    assert_eq!(g.conditional_throughput(&[t(0.4), t(0.1), t(0.2), t(0.9)]), Some(80.0));
    let strict = Goal { exceed_ratio: 0.0, ..g };
    assert_eq!(strict.conditional_throughput(&[t(0.4), t(0.1), t(0.2), t(0.3)]), Some(60.0));
    assert_eq!(strict.conditional_throughput(&[t(0.9)]), None);
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let good = goal(0.0);
    for bad in [
        Goal { loss_ratio: 1.0, ..good },
        Goal { loss_ratio: -0.1, ..good },
        Goal { exceed_ratio: 1.0, ..good },
        Goal { width: 0.0, ..good },
        Goal { initial_trial: 2.0, ..good },
        Goal { duration_sum: 0.5, ..good },
        Goal { width: f64::NAN, ..good },
    ] {
        assert!(Search::new(plan(&[bad])).is_err(), "{bad:?}");
    }
    assert!(Search::new(plan(&[])).is_err());
    assert!(Search::new(Plan { min_load: 1e7, ..plan(&[good]) }).is_err());
    assert!(Search::new(Plan { min_load: 0.0, ..plan(&[good]) }).is_err());
}
