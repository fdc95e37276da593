//! Fits: a line by least squares, and several unknown costs, none of them negative, by least
//! squares. Pure.

/// A straight line through measured points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Slope: the increase of y for one more unit of x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Root mean square of what the line misses a point by, in the unit of y.
    pub residual: f64,
}

/// The line with the least sum of squares; `None` for fewer than two different x, or for what is
/// not a number.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sxx: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    if points.len() < 2 || !(sxx.is_normal() && sxy.is_finite()) {
        return None;
    }
    let slope = sxy / sxx;
    let intercept = y - slope * x;
    let missed: f64 = points.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
    Some(Line { slope, intercept, residual: (missed / n).sqrt() })
}

/// Relative errors up to this count by their squares, larger ones by their size.
const LARGE: f64 = 0.1;
/// Fits with weights from the one before; they settle long before.
const ROUNDS: usize = 20;

/// As [`non_negative`], but a cell that is far off counts by how far, and not by the square of it
/// (Huber 1964): where one load in ten was disturbed, or is of another kind, the costs are those of
/// the others.
pub fn robust(rows: &[Vec<f64>], y: &[f64]) -> Option<Vec<f64>> {
    let mut costs = non_negative(rows, y)?;
    for _ in 0..ROUNDS {
        costs = weighted(rows, y, &weights(rows, y, &costs))?;
    }
    Some(costs)
}

/// Weights of the cells, by how far these costs miss each.
fn weights(rows: &[Vec<f64>], y: &[f64], costs: &[f64]) -> Vec<f64> {
    let off = rows.iter().zip(y).map(|(r, y)| (dot(r, costs) / y - 1.0).abs());
    off.map(|off| (LARGE / off.max(LARGE)).sqrt()).collect()
}

/// Two standard errors of each of the `costs` that [`robust`] has found, by leaving out each cell
/// in turn with the weights that the others have (jackknife, Tukey 1958); `None` for one of which a
/// single cell says anything.
pub fn errors(rows: &[Vec<f64>], y: &[f64], costs: &[f64]) -> Vec<Option<f64>> {
    let weights = weights(rows, y, costs);
    let without = |left_out: usize| {
        let kept = |n: &usize| *n != left_out;
        let of = |values: &[f64]| (0..y.len()).filter(kept).map(|n| values[n]).collect::<Vec<f64>>();
        let rows: Vec<Vec<f64>> = (0..rows.len()).filter(kept).map(|n| rows[n].clone()).collect();
        weighted(&rows, &of(y), &of(&weights))
    };
    let found: Vec<Vec<f64>> = (0..rows.len()).filter_map(without).collect();
    let n = found.len() as f64;
    let of = |column: usize| {
        let says = rows.iter().filter(|r| r[column] != 0.0).count();
        let mean = found.iter().map(|x| x[column]).sum::<f64>() / n;
        let squares = found.iter().map(|x| (x[column] - mean).powi(2)).sum::<f64>();
        (says > 1 && found.len() > 1).then(|| 2.0 * (squares * (n - 1.0) / n).sqrt())
    };
    (0..costs.len()).map(of).collect()
}

/// The costs `x`, none negative, for which `rows . x` comes nearest to `y` in the sense of least
/// squares of the *relative* error: a cell that costs ten times as much counts no more. Active set
/// method (Lawson and Hanson 1974): costs enter one by one, the most promising first, and leave
/// when they would become negative.
///
/// `None` when there are no rows, the rows differ in length, a measured value is not positive, or
/// anything is not finite.
pub fn non_negative(rows: &[Vec<f64>], y: &[f64]) -> Option<Vec<f64>> {
    weighted(rows, y, &vec![1.0; y.len()])
}

/// The same, each cell's error times its weight.
fn weighted(rows: &[Vec<f64>], y: &[f64], weights: &[f64]) -> Option<Vec<f64>> {
    let columns = rows.first()?.len();
    let sound = rows.len() == y.len()
        && y.iter().all(|v| v.is_finite() && *v > 0.0)
        && rows.iter().all(|r| r.len() == columns && r.iter().all(|v| v.is_finite()));
    if !sound {
        return None;
    }
    // Each row by its measured value and weight, each column by its size: numbers near one.
    let by: Vec<f64> = y.iter().zip(weights).map(|(y, w)| w / y).collect();
    let scale: Vec<f64> = (0..columns)
        .map(|c| rows.iter().zip(&by).map(|(r, by)| (r[c] * by).powi(2)).sum::<f64>().sqrt())
        .map(|s| if s > 0.0 { s } else { 1.0 })
        .collect();
    let scaled = |(r, by): (&Vec<f64>, &f64)| r.iter().zip(&scale).map(|(v, s)| v * by / s).collect();
    let a: Vec<Vec<f64>> = rows.iter().zip(&by).map(scaled).collect();
    let mut x = vec![0.0; columns];
    let mut active = vec![false; columns];
    // Each round adds a column; the method ends by itself, the bound is against rounding.
    for _ in 0..3 * columns {
        let left: Vec<f64> = a.iter().zip(weights).map(|(r, w)| w - dot(r, &x)).collect();
        let gain = |c: usize| a.iter().zip(&left).map(|(r, l)| r[c] * l).sum::<f64>();
        let best = (0..columns)
            .filter(|c| !active[*c])
            .map(|c| (c, gain(c)))
            .filter(|(_, g)| *g > 1e-9)
            .max_by(|p, q| p.1.total_cmp(&q.1));
        let Some((enters, _)) = best else { break };
        active[enters] = true;
        while let Some(z) = solve(&a, weights, &active) {
            // How far towards z before a cost becomes negative.
            let step = (0..columns)
                .filter(|c| active[*c] && z[*c] <= 0.0)
                .map(|c| (c, x[c] / (x[c] - z[c])))
                .min_by(|p, q| p.1.total_cmp(&q.1));
            let Some((leaves, step)) = step else {
                x = z;
                break;
            };
            x.iter_mut().zip(&z).for_each(|(x, z)| *x += step * (z - *x));
            x[leaves] = 0.0;
            active[leaves] = false;
        }
    }
    Some(x.iter().zip(&scale).map(|(x, s)| x / s).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Least squares for `a . x = b` over the active columns (normal equations, Gauss with pivots); the
/// others are 0. `None` without an active column.
fn solve(a: &[Vec<f64>], b: &[f64], active: &[bool]) -> Option<Vec<f64>> {
    let on: Vec<usize> = (0..active.len()).filter(|c| active[*c]).collect();
    let n = on.len();
    if n == 0 {
        return None;
    }
    let mut m: Vec<Vec<f64>> = on
        .iter()
        .map(|p| {
            let products = on.iter().map(|q| a.iter().map(|r| r[*p] * r[*q]).sum());
            products.chain([a.iter().zip(b).map(|(r, b)| r[*p] * b).sum()]).collect()
        })
        .collect();
    for c in 0..n {
        let pivot = (c..n).max_by(|p, q| m[*p][c].abs().total_cmp(&m[*q][c].abs()))?;
        m.swap(c, pivot);
        // A column that says nothing beyond the others gets nothing.
        if m[c][c].abs() < 1e-12 {
            m[c] = vec![0.0; n + 1];
            m[c][c] = 1.0;
        }
        let row = m[c].clone();
        for other in m.iter_mut().skip(c + 1) {
            let factor = other[c] / row[c];
            other.iter_mut().zip(&row).for_each(|(o, r)| *o -= factor * r);
        }
    }
    let mut x = vec![0.0; active.len()];
    for c in (0..n).rev() {
        let known: f64 = (c + 1..n).map(|k| m[c][k] * x[on[k]]).sum();
        x[on[c]] = (m[c][n] - known) / m[c][c];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn points_on_a_line_give_that_line_and_nothing_is_missed() {
        let l = line(&[(64.0, 50.0 + 6.4), (1400.0, 50.0 + 140.0), (8192.0, 50.0 + 819.2)]).expect("a line");
        assert!(near(l.slope, 0.1) && near(l.intercept, 50.0) && l.residual < 1e-9, "{l:?}");
    }

    #[test]
    fn what_the_line_misses_is_said() {
        // The best line through (0,0) (1,0) (2,3): slope 1.5, intercept -0.5; it misses by 0.5, 1,
        // 0.5.
        let l = line(&[(0.0, 0.0), (1.0, 0.0), (2.0, 3.0)]).expect("a line");
        assert!(near(l.slope, 1.5) && near(l.intercept, -0.5), "{l:?}");
        assert!(near(l.residual, 0.5f64.sqrt()), "{l:?}");
    }

    #[test]
    fn one_size_is_no_line() {
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[(64.0, 1.0)]), None);
        assert_eq!(line(&[(64.0, 1.0), (64.0, 2.0)]), None);
        assert_eq!(line(&[(64.0, f64::NAN), (65.0, 2.0)]), None);
    }

    #[test]
    fn known_costs_are_found_again() {
        let costs = [400.0, 0.3, 900.0];
        let rows: Vec<Vec<f64>> =
            [(64.0, 1.0), (390.0, 0.5), (1400.0, 0.1), (1400.0, 0.9)].map(|(b, g)| vec![1.0, b, g]).into();
        let y: Vec<f64> = rows.iter().map(|r| dot(r, &costs)).collect();
        let found = non_negative(&rows, &y).expect("costs");
        assert!(found.iter().zip(costs).all(|(f, c)| near(*f, c)), "{found:?}");
    }

    #[test]
    fn no_cost_is_negative_and_what_is_left_is_the_best_without_it() {
        // Falls with x: the best line without a negative slope is flat. Relative errors: 1/y
        // weights.
        let rows: Vec<Vec<f64>> = [1.0, 2.0, 3.0].map(|x| vec![1.0, x]).into();
        let found = non_negative(&rows, &[30.0, 20.0, 10.0]).expect("costs");
        assert_eq!(found[1], 0.0);
        // Minimum of sum (1 - c/y)^2: c = sum(1/y) / sum(1/y^2).
        let best = (1.0 / 30.0 + 1.0 / 20.0 + 0.1) / (1.0 / 900.0 + 1.0 / 400.0 + 0.01);
        assert!(near(found[0], best), "{found:?}");
    }

    #[test]
    fn one_cell_that_is_far_off_does_not_carry_the_others_away() {
        let rows: Vec<Vec<f64>> = (0..9).map(|n| vec![1.0, 100.0 * f64::from(n)]).collect();
        let mut y: Vec<f64> = rows.iter().map(|r| dot(r, &[1_000.0, 0.5])).collect();
        let of = |costs: Option<Vec<f64>>| dot(&rows[4], &costs.expect("costs"));
        assert!(near(of(robust(&rows, &y)), 1_200.0));
        y[4] /= 2.5;
        let (squares, robust) = (of(non_negative(&rows, &y)), of(robust(&rows, &y)));
        assert!(squares < 1_020.0 && (robust - 1_200.0).abs() < 60.0, "{squares} {robust}");
        assert_eq!(super::robust(&[vec![1.0]], &[0.0]), None);
    }

    #[test]
    fn an_error_is_what_the_costs_move_by_when_a_cell_is_left_out() {
        // A mean of n values: the jackknife's error is the usual one, s / sqrt(n).
        let (rows, y) = (vec![vec![1.0]; 4], [99.0, 101.0, 98.0, 102.0]);
        let [Some(found)] = errors(&rows, &y, &[100.0])[..] else { panic!("an error") };
        let usual = 2.0 * (10.0f64 / 3.0 / 4.0).sqrt();
        assert!((found / usual - 1.0).abs() < 0.05, "{found} {usual}");
        // Exact measurements have none, and of one cell nobody knows.
        let rows: Vec<Vec<f64>> = (0..4).map(|n| vec![1.0, f64::from(n), f64::from(n / 3)]).collect();
        let y: Vec<f64> = rows.iter().map(|r| 100.0 + r[1] * 7.0).collect();
        let found = errors(&rows, &y, &[100.0, 7.0, 0.0]);
        assert!(found[0].is_some_and(|e| e < 1e-6) && found[1].is_some_and(|e| e < 1e-6), "{found:?}");
        assert_eq!(found[2], None);
        assert_eq!(errors(&[], &[], &[1.0]), [None]);
    }

    #[test]
    fn columns_that_say_the_same_share_or_one_has_it_all() {
        let rows: Vec<Vec<f64>> = [1.0, 2.0].map(|x| vec![x, x]).into();
        let found = non_negative(&rows, &[5.0, 10.0]).expect("costs");
        assert!(near(found[0] + found[1], 5.0) && found.iter().all(|f| *f >= 0.0), "{found:?}");
    }

    #[test]
    fn nonsense_has_no_fit() {
        assert_eq!(non_negative(&[], &[]), None);
        assert_eq!(non_negative(&[vec![1.0]], &[0.0]), None);
        assert_eq!(non_negative(&[vec![1.0]], &[1.0, 2.0]), None);
        assert_eq!(non_negative(&[vec![1.0], vec![1.0, 2.0]], &[1.0, 2.0]), None);
        assert_eq!(non_negative(&[vec![f64::INFINITY]], &[1.0]), None);
    }
}
