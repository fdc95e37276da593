//! From a record of how many tunnels were up when, and what the processes had used by then, to the
//! cost of each tenth. Pure.

/// Measurements at one moment while tunnels come up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Moment {
    /// Since the beginning, seconds.
    pub seconds: f64,
    /// Tunnels that were up.
    pub up: u64,
    /// Processor time that both gateways had used, nanoseconds.
    pub cpu_ns: f64,
}

/// Processor time per tunnel in each tenth of `tunnels`, nanoseconds; `None` when there are too few
/// to tell.
pub(super) fn tenths(seen: &[Moment], tunnels: u64) -> Option<[f64; 10]> {
    if tunnels < 100 {
        return None;
    }
    let mut ends = [0.0; 11];
    for (tenth, end) in ends.iter_mut().enumerate() {
        *end = cpu_at(seen, tunnels as f64 * tenth as f64 / 10.0)?;
    }
    let each = tunnels as f64 / 10.0;
    Some(std::array::from_fn(|n| (ends[n + 1] - ends[n]) / each))
}

/// Processor time when so many tunnels were up, between two moments in proportion.
fn cpu_at(seen: &[Moment], up: f64) -> Option<f64> {
    let after = seen.iter().position(|m| m.up as f64 >= up)?;
    let b = seen.get(after)?;
    // Of several moments with as many, the last: what came before the first tunnel is not its cost.
    if b.up as f64 == up {
        let same = seen.iter().skip(after).take_while(|m| m.up == b.up);
        return if up == 0.0 { same.last().map(|m| m.cpu_ns) } else { Some(b.cpu_ns) };
    }
    let a = seen.get(after.checked_sub(1)?)?;
    let share = (up - a.up as f64) / (b.up - a.up) as f64;
    Some(a.cpu_ns + share * (b.cpu_ns - a.cpu_ns))
}

/// The last tenth's cost over the second's: 1 when the cost of a tunnel does not depend on how many
/// there are. The first tenth is left out, since it contains what happens once.
pub(super) fn growth(tenths: &[f64; 10]) -> f64 {
    tenths[9] / tenths[1]
}

/// When the last tunnel came up, seconds; `None` when not all did.
pub(super) fn all_up(seen: &[Moment], tunnels: u64) -> Option<f64> {
    seen.iter().find(|m| m.up >= tunnels).map(|m| m.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tunnels: u64, step: u64, cost: impl Fn(f64) -> f64) -> Vec<Moment> {
        // Ten moments in which nothing is up yet, and which cost.
        let before =
            (0..10).map(|n| Moment { seconds: f64::from(n) / 10.0, up: 0, cpu_ns: f64::from(n) * 1e6 });
        let later = (step..=tunnels).step_by(step as usize).map(|up| Moment {
            seconds: 1.0 + up as f64 / 1e3,
            up,
            cpu_ns: 9e6 + cost(up as f64),
        });
        before.chain(later).collect()
    }

    #[test]
    fn a_constant_cost_is_the_same_in_each_tenth_and_does_not_grow() {
        for step in [1, 7, 10] {
            let tunnels = 700;
            let tenths = tenths(&run(tunnels, step, |n| n * 5e5), tunnels).expect("enough");
            assert!(tenths.iter().all(|t| (t - 5e5).abs() < 1e-3), "{tenths:?}");
            assert!((growth(&tenths) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_quadratic_cost_grows_from_tenth_to_tenth() {
        let tenths = tenths(
            &run(1000, 3, |n| n * n * 1e3)
                .into_iter()
                .chain([Moment { seconds: 3.0, up: 1000, cpu_ns: 9e6 + 1e9 }])
                .collect::<Vec<_>>(),
            1000,
        )
        .expect("enough");
        // Of n^2 the tenths are as 1, 3, 5 .. 19.
        assert!((growth(&tenths) - 19.0 / 3.0).abs() < 0.1, "{tenths:?}");
    }

    #[test]
    fn what_did_not_come_up_has_no_time_and_no_tenths() {
        let seen = run(500, 10, |n| n);
        assert_eq!((all_up(&seen, 1000), tenths(&seen, 1000)), (None, None));
        assert!((all_up(&seen, 500).expect("all") - 1.5).abs() < 1e-9);
        assert_eq!(tenths(&seen, 20), None);
    }
}
