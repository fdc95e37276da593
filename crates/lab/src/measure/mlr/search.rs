//! Which load to try next, and for how long.
//!
//! Each goal goes through stages: a wide interval by short trials first, then half as wide by
//! longer ones, one trial a load; the goal itself last. A stage takes over the interval of the one
//! before: it tries the middle, then the end that the middle points to; where the longer trials do
//! not confirm an end, it steps outwards in growing steps until there are two ends again, and
//! bisects. Among the goals the shortest trial comes first, then the lowest load. All trials count
//! for all goals.
//!
//! The last third of the trials is for deciding: no goal has short trials any more, and those of
//! which no load is known that is carried come first, in turns: at the load that their short trials
//! speak for, and further down each time that it is not carried. A goal for which nothing was
//! decided has no result.

use serde::{Deserialize, Serialize};

use super::bounds::{Bounds, Class, Goal, Trial};

/// Goals and limits of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Goals of the search; the results have their order.
    pub goals: Vec<Goal>,
    /// The lowest load worth trying, packets a second.
    pub min_load: f64,
    /// The highest that can be offered.
    pub max_load: f64,
    /// Coarser stages before each goal's own.
    pub coarse_stages: u32,
    /// The search ends after so many trials, whether it has found everything or not. The last third
    /// decides.
    pub most_trials: u32,
}

/// A trial to be made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Packets a second.
    pub load: f64,
    /// Seconds.
    pub duration: f64,
}

/// Result for one goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The goal.
    pub goal: Goal,
    /// The bounds that matter.
    pub bounds: Bounds,
    /// Packets a second that arrived at the lower bound; absent when not even the lowest load was
    /// carried.
    pub conditional_throughput: Option<f64>,
    /// The bounds are as close as the goal wants, or an end of the search's limits was reached.
    pub complete: bool,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    plan: Plan,
    ladder: Ladder,
    hunts: Vec<Hunt>,
    trials: Vec<Trial>,
    /// Rungs of the trials.
    rungs: Vec<u32>,
    /// Trials made, those that said nothing included.
    made: u32,
    /// The goal whose turn it is in the last third, and the rung that is being decided about for
    /// it.
    deciding: Option<(usize, u32)>,
    /// The first trials, which the stages begin with: the highest load, then what came through it,
    /// and so on.
    opening: Option<u32>,
    opened: u32,
}

/// The loads that are tried: rungs a fraction of the narrowest width apart, so that goals share
/// trials. Rung 0 is the lowest.
#[derive(Debug, Clone, Copy)]
struct Ladder {
    max_load: f64,
    step: f64,
    top: u32,
}

impl Ladder {
    /// Rungs in the narrowest width.
    const FINE: f64 = 4.0;

    fn new(plan: &Plan) -> Self {
        let narrowest = plan.goals.iter().map(|g| g.width).fold(f64::INFINITY, f64::min);
        let step = -(1.0 - narrowest).ln() / Self::FINE;
        let top = ((plan.max_load / plan.min_load).ln() / step).floor().clamp(1.0, 1e9) as u32;
        Self { max_load: plan.max_load, step, top }
    }

    fn load(&self, rung: u32) -> f64 {
        self.max_load * (-f64::from(self.top - rung.min(self.top)) * self.step).exp()
    }

    /// The highest rung not above `load`.
    fn below(&self, load: f64) -> u32 {
        if load <= 0.0 {
            return 0;
        }
        let down = ((self.max_load / load).ln() / self.step - 1e-9).ceil().max(0.0);
        self.top - (down.min(f64::from(self.top)) as u32)
    }

    /// Rungs in a width.
    fn rungs(&self, width: f64) -> u32 {
        ((-(1.0 - width).ln() / self.step + 1e-9).floor() as u32).max(1)
    }
}

/// A goal on its way through the stages.
#[derive(Debug, Clone)]
struct Hunt {
    /// The goal itself is the last.
    stages: Vec<Stage>,
    at: usize,
    /// The ends of the stage before.
    hint: (Option<u32>, Option<u32>),
    /// How far the next step outwards goes, and from where the last one went.
    reach: u32,
    reached: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Stage {
    goal: Goal,
    width: u32,
}

impl Hunt {
    fn new(goal: Goal, coarse: u32, ladder: &Ladder) -> Self {
        let mut stages = Vec::new();
        for nth in 0..coarse {
            // The last of them has trials of full length already: what only those show must not
            // cost whole sums to find.
            let share = f64::from(nth) / f64::from((coarse - 1).max(1));
            let duration = goal.initial_trial * (goal.final_trial / goal.initial_trial).powf(share);
            // One trial decides.
            let coarse_goal = Goal { final_trial: duration, duration_sum: duration, ..goal };
            let width = ladder.rungs(goal.width).saturating_mul(1 << (coarse - nth).min(16));
            stages.push(Stage { goal: coarse_goal, width });
        }
        stages.push(Stage { goal, width: ladder.rungs(goal.width) });
        let reach = stages[0].width;
        Self { stages, at: 0, hint: (None, None), reach, reached: None }
    }

    /// The rung and length of the next trial for this goal; `None` when it has been reached.
    fn next(&mut self, search: &Trials<'_>) -> Option<(u32, f64)> {
        loop {
            let stage = self.stages[self.at];
            let (lower, upper) = search.bounds(&stage.goal);
            if let Some(rung) = self.candidate(stage, lower, upper, search.top) {
                return Some((rung, stage.goal.final_trial));
            }
            if self.at + 1 == self.stages.len() {
                return None;
            }
            self.at += 1;
            self.hint = (lower, upper);
            (self.reach, self.reached) = (self.stages[self.at].width, None);
        }
    }

    /// From now on full trials only.
    fn hurry(&mut self, search: &Trials<'_>) {
        let last = self.stages.len() - 1;
        if self.at < last {
            self.hint = search.bounds(&self.stages[self.at].goal);
            self.at = last;
            (self.reach, self.reached) = (self.stages[last].width, None);
        }
    }

    /// The goal itself, which comes after the coarser ones.
    fn goal(&self) -> &Goal {
        &self.stages[self.stages.len() - 1].goal
    }

    /// The rung most worth full trials where nothing is known to be carried; `None` where something
    /// is, or nothing is left to try.
    fn decisive(&mut self, search: &Trials<'_>, ladder: &Ladder) -> Option<u32> {
        let (lower, upper) = search.bounds(self.goal());
        if lower.is_some() {
            return None;
        }
        // More trials might still speak for a load that failed in the first; a lower one needs
        // fewer.
        let failed = search.failed(self.goal()).into_iter().chain(upper).min();
        let known: Vec<_> = self.stages.iter().rev().map(|stage| search.bounds(&stage.goal)).collect();
        let good = known.iter().find_map(|(lower, _)| lower.filter(|l| failed.is_none_or(|f| *l < f)));
        if good.is_some() {
            return good;
        }
        let from = known.iter().filter_map(|(_, upper)| *upper).chain(failed).min()?;
        let through = ladder.below(ladder.load(from) * (1.0 - search.lost(from, self.goal())).max(1.0 / 3.0));
        (from > 0).then(|| from.saturating_sub(self.stride(from)).min(through))
    }

    fn candidate(&mut self, stage: Stage, lower: Option<u32>, upper: Option<u32>, top: u32) -> Option<u32> {
        let narrow = match (lower, upper) {
            (Some(lower), Some(upper)) => upper - lower <= stage.width,
            (Some(lower), None) => lower == top,
            (None, Some(upper)) => upper == 0,
            (None, None) => false,
        };
        if narrow {
            return None;
        }
        // Strictly between what is known.
        let open = |rung: &u32| lower.is_none_or(|l| *rung > l) && upper.is_none_or(|u| *rung < u);
        let middle = match self.hint {
            (Some(l), Some(u)) if u > l && u - l > stage.width && u - l <= 2 * stage.width => {
                Some(l + (u - l) / 2)
            }
            _ => None,
        };
        if let Some(rung) = [middle, self.hint.0, self.hint.1].into_iter().flatten().find(open) {
            return Some(rung);
        }
        match (lower, upper) {
            (Some(lower), Some(upper)) => Some(lower + (upper - lower) / 2),
            (Some(lower), None) => Some(lower.saturating_add(self.stride(lower)).min(top)),
            (None, Some(upper)) => Some(upper.saturating_sub(self.stride(upper))),
            (None, None) => Some(top),
        }
    }

    /// How far to step outwards from there: twice as far each time that the end has moved.
    fn stride(&mut self, from: u32) -> u32 {
        if self.reached.is_some_and(|r| r != from) {
            self.reach = self.reach.saturating_mul(2);
        }
        self.reached = Some(from);
        self.reach
    }
}

/// All trials so far.
struct Trials<'a> {
    trials: &'a [Trial],
    rungs: &'a [u32],
    top: u32,
}

impl Trials<'_> {
    fn bounds(&self, goal: &Goal) -> (Option<u32>, Option<u32>) {
        let bounds = goal.bounds(self.trials);
        let rung = |load: Option<f64>| {
            let at = self.trials.iter().position(|t| Some(t.load) == load)?;
            self.rungs.get(at).copied()
        };
        (rung(bounds.lower), rung(bounds.upper))
    }

    /// The lowest rung with full trials of which none passed.
    fn failed(&self, goal: &Goal) -> Option<u32> {
        let full = |rung: u32| self.at(rung).filter(|t| goal.is_full(t)).map(|t| t.loss);
        let failed = |rung: &u32| full(*rung).fold(f64::INFINITY, f64::min) > goal.loss_ratio;
        self.rungs.iter().copied().filter(|rung| full(*rung).next().is_some() && failed(rung)).min()
    }

    /// The share lost in the best trial at a rung that did not pass.
    fn lost(&self, rung: u32, goal: &Goal) -> f64 {
        self.at(rung).map(|t| t.loss).filter(|loss| *loss > goal.loss_ratio).fold(1.0, f64::min)
    }

    fn at(&self, rung: u32) -> impl Iterator<Item = &Trial> {
        self.trials.iter().zip(self.rungs).filter(move |(_, r)| **r == rung).map(|(trial, _)| trial)
    }
}

impl Search {
    /// Begins one.
    ///
    /// # Errors
    /// Contradictions in the plan.
    pub fn new(plan: Plan) -> Result<Self, String> {
        if plan.goals.is_empty() {
            return Err("a search needs a goal".into());
        }
        plan.goals.iter().try_for_each(Goal::check)?;
        if !(plan.min_load > 0.0 && plan.min_load < plan.max_load && plan.max_load.is_finite()) {
            return Err(format!("loads from {} to {} make no sense", plan.min_load, plan.max_load));
        }
        let ladder = Ladder::new(&plan);
        let hunts = plan.goals.iter().map(|g| Hunt::new(*g, plan.coarse_stages, &ladder)).collect();
        let opening = Some(ladder.top);
        Ok(Self {
            plan,
            ladder,
            hunts,
            trials: Vec::new(),
            rungs: Vec::new(),
            made: 0,
            deciding: None,
            opening,
            opened: 0,
        })
    }

    /// The trial to make now; `None` when the search is over.
    pub fn ask(&mut self) -> Option<Ask> {
        if self.made >= self.plan.most_trials {
            return None;
        }
        let of = |(rung, duration): (u32, f64), ladder: &Ladder| Ask { load: ladder.load(rung), duration };
        if u64::from(self.made) * 3 >= u64::from(self.plan.most_trials) * 2 {
            self.opening = None;
            if let Some(next) = self.decide() {
                return Some(of(next, &self.ladder));
            }
        }
        if let Some(rung) = self.opening {
            // Long enough for the first stage of every goal.
            let longest = self.hunts.iter().map(|h| h.stages[0].goal.final_trial).fold(0.0, f64::max);
            return Some(of((rung, longest), &self.ladder));
        }
        let trials = Trials { trials: &self.trials, rungs: &self.rungs, top: self.ladder.top };
        let candidates = self.hunts.iter_mut().filter_map(|h| h.next(&trials));
        let first = candidates.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        first.map(|next| of(next, &self.ladder))
    }

    /// The trial of the last third that comes first, when a goal needs one.
    fn decide(&mut self) -> Option<(u32, f64)> {
        let trials = Trials { trials: &self.trials, rungs: &self.rungs, top: self.ladder.top };
        self.hunts.iter_mut().for_each(|h| h.hurry(&trials));
        let open = |(nth, rung): &(usize, u32)| {
            let goal = self.hunts[*nth].goal();
            let failed = trials.failed(goal).is_some_and(|f| *rung >= f);
            !failed && goal.classify(trials.at(*rung)) == Class::Undecided
        };
        if self.deciding.filter(open).is_none() {
            // The largest loss, which callers name last, comes first: it is kept where the others
            // are not, and a trial that loses nothing is one for them, too.
            let (goals, last) = (self.hunts.len(), self.deciding.map_or(0, |(nth, _)| nth));
            let turns = (1..=goals).map(|n| (last + goals - n) % goals);
            self.deciding =
                turns.filter_map(|nth| Some((nth, self.hunts[nth].decisive(&trials, &self.ladder)?))).next();
        }
        self.deciding.map(|(nth, rung)| (rung, self.hunts[nth].goal().final_trial))
    }

    /// Takes in that the trial that was asked for was made and says nothing: it is one of those
    /// that there may be.
    pub fn void(&mut self) {
        self.made += 1;
    }

    /// Takes in the trial that was asked for: `loss` is the share of the intended packets that did
    /// not arrive.
    pub fn tell(&mut self, ask: Ask, loss: f64) {
        let loss = loss.clamp(0.0, 1.0);
        let rung = self.ladder.below(ask.load * (1.0 + 1e-12));
        self.made += 1;
        self.trials.push(Trial { load: ask.load, duration: ask.duration, loss });
        self.rungs.push(rung);
        self.opening = self.opening.and_then(|_| self.open(rung, loss));
    }

    /// The next of the first trials: what came through the last one, then a little above or below
    /// that.
    fn open(&mut self, rung: u32, loss: f64) -> Option<u32> {
        self.opened += 1;
        let strictest = self.plan.goals.iter().map(|g| g.loss_ratio).fold(f64::INFINITY, f64::min);
        let wide = self.hunts.iter().map(|h| h.stages[0].width).max().unwrap_or(1);
        let next = if loss <= strictest {
            // The highest load passes: there is nothing above it.
            rung.saturating_add(wide).min(self.ladder.top)
        } else {
            let through = self.ladder.below(self.ladder.load(rung) * (1.0 - loss) / (1.0 - strictest));
            through.min(rung.saturating_sub(if self.opened > 1 { wide } else { 1 }))
        };
        (self.opened < 3 && next != rung && !self.rungs.contains(&next)).then_some(next)
    }

    /// All trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The results so far, goal by goal.
    pub fn found(&self) -> Vec<Found> {
        let trials = Trials { trials: &self.trials, rungs: &self.rungs, top: self.ladder.top };
        let found = |goal: &Goal| {
            let (lower, upper) = trials.bounds(goal);
            let complete = match (lower, upper) {
                (Some(lower), Some(upper)) => upper - lower <= self.ladder.rungs(goal.width),
                (Some(lower), None) => lower == self.ladder.top,
                (None, upper) => upper == Some(0),
            };
            Found {
                goal: *goal,
                bounds: goal.bounds(&self.trials),
                conditional_throughput: goal.conditional_throughput(&self.trials),
                complete,
            }
        };
        self.plan.goals.iter().map(found).collect()
    }
}
