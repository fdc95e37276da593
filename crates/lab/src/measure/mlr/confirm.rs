//! Trials that are made later than a search, about the throughputs that it found. A search chooses
//! the highest load that seemed to be carried, so chance and a machine that was fast for a while
//! make its result too high. Later trials at the same load are chosen by nobody.
//!
//! ```text
//! found ──> later trials at that load ──> carried: the load stays
//!                    │                    lost: a lower load, and so on downwards, then upwards
//!                    │                          again until the two ends are the width apart
//!                    └── trials made for another purpose count as well
//! ```
//! The rule is the search's own ([`Goal::classify`]), but of later trials alone: so many seconds
//! decide, and a share of bad ones is forgiven. A trial that carried its load speaks for every load
//! that is no higher (by more than a fourth of the width); one that lost too much speaks against
//! every load that is no lower. No trial counts for more than a full one, so that none of several
//! decides alone. The number of trials is limited; where they end before any load is confirmed,
//! nothing is left of a throughput that was contradicted. Pure.

use super::bounds::{Class, Goal};
use super::search::{Ask, Found};

/// Of the width, by how much a load may be higher than that of a trial that speaks for it.
const NEAR: f64 = 0.25;
/// The most by which a load goes down in one step.
const FARTHEST: f64 = 0.75;

/// A trial that was made after the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Later {
    /// Offered load, packets a second.
    pub load: f64,
    /// How long, seconds.
    pub seconds: f64,
    /// Share of the packets sent that did not arrive.
    pub lost: f64,
    /// The part of `lost` that the system has lost, and not the receiver behind it.
    pub by_system: f64,
    /// Share that may be lost beyond a goal without speaking against the load.
    pub slack: f64,
}

/// A throughput, and what later trials left of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The goal.
    pub goal: Goal,
    /// The load that the search found, packets a second; `None` where it found none.
    pub found: Option<f64>,
    /// The load that is left: 0 when later trials carried none.
    pub load: Option<f64>,
    /// The lowest load that was contradicted.
    pub contradicted: Option<f64>,
    /// Whether there were trials enough to decide about `load`.
    pub decided: bool,
    /// Later trials that carried `load`.
    pub confirmed: usize,
    /// Later trials that said anything about `load`.
    pub of: usize,
}

/// The reason why a throughput was lowered: later trials at or below what the search had found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contradiction {
    /// Trials that lost too much.
    pub trials: usize,
    /// Trials that said anything about what was found.
    pub of: usize,
    /// The worst of them: its load, packets a second, and the share that it lost.
    pub load: f64,
    /// Share that the system lost.
    pub lost: f64,
}

/// Limits of the later trials of one system under one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The lowest load worth trying, packets a second.
    pub least: f64,
    /// Length of a trial, seconds.
    pub full: f64,
    /// The most trials.
    pub most: u32,
}

/// Later trials of one system under one load, under way.
#[derive(Debug, Clone)]
pub struct Confirm {
    limits: Limits,
    held: Vec<Held>,
    /// The later trials, and whether each was asked for here.
    heard: Vec<(Later, bool)>,
    /// Number of trials before this stage.
    before: usize,
    /// Whether this is the first stage, in which every throughput needs trials that confirm it.
    first: bool,
    made: u32,
}

/// What a trial says of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Carried,
    Lost,
}

/// Later trials for and against a load: seconds, and how many.
#[derive(Debug, Clone, Copy, Default)]
struct Votes {
    good: f64,
    bad: f64,
    carried: usize,
    lost: usize,
}

impl Later {
    /// What the trial says of a load; `None` when it carried too little for one and lost too little
    /// for the other.
    fn word(&self, goal: &Goal, load: f64) -> Option<Word> {
        if self.lost <= goal.loss_ratio {
            (self.load >= load * (1.0 - goal.width * NEAR)).then_some(Word::Carried)
        } else if self.by_system > goal.loss_ratio + self.slack {
            (self.load <= load * (1.0 + 1e-9)).then_some(Word::Lost)
        } else {
            None
        }
    }
}

impl Votes {
    fn of(trials: &[(Later, bool)], goal: &Goal, load: f64, full: f64) -> Self {
        let mut votes = Self::default();
        for (trial, _) in trials {
            let seconds = trial.seconds.min(full);
            match trial.word(goal, load) {
                Some(Word::Carried) => {
                    (votes.good, votes.carried) = (votes.good + seconds, votes.carried + 1)
                }
                Some(Word::Lost) => (votes.bad, votes.lost) = (votes.bad + seconds, votes.lost + 1),
                None => {}
            }
        }
        votes
    }

    fn class(&self, goal: &Goal) -> Class {
        let whole = (self.good + self.bad).max(goal.duration_sum);
        // Durations are added up in whatever order: a billionth is no difference.
        let allowed = whole * goal.exceed_ratio + whole * 1e-9;
        if self.bad > allowed {
            Class::Upper
        } else if whole - self.good <= allowed {
            Class::Lower
        } else {
            Class::Undecided
        }
    }
}

impl Confirm {
    /// Begins with the results of a search.
    pub fn new(found: &[Found], limits: Limits) -> Self {
        let held = |f: &Found| Held {
            goal: f.goal,
            found: f.bounds.lower,
            load: f.bounds.lower,
            contradicted: None,
            decided: false,
            confirmed: 0,
            of: 0,
        };
        let held = found.iter().map(held).collect();
        Self { limits, held, heard: Vec::new(), before: 0, first: true, made: 0 }
    }

    /// The trial to make now; `None` when this stage has all that it needs, or no trials are left.
    pub fn ask(&self) -> Option<Ask> {
        if self.made >= self.limits.most {
            return None;
        }
        let next = self.held.iter().filter_map(|h| self.next(h)).min_by(f64::total_cmp)?;
        Some(Ask { load: next, duration: self.limits.full })
    }

    /// Takes in the trial that was asked for: shares of the packets sent that did not arrive, and
    /// that the system lost.
    pub fn answer(&mut self, ask: Ask, lost: f64, by_system: f64) {
        self.made += 1;
        let later = Later { load: ask.load, seconds: ask.duration, lost, by_system, slack: 0.0 };
        self.heard.push((later, true));
    }

    /// Takes in that the trial that was asked for says nothing: it is one of those that there may
    /// be.
    pub fn void(&mut self) {
        self.made += 1;
    }

    /// Takes in a trial that was made for another purpose.
    pub fn hear(&mut self, trial: Later) {
        self.heard.push((trial, false));
    }

    /// Begins another stage, whose trials decide by themselves: a throughput that nothing in the
    /// stage speaks against needs no further trials.
    pub fn begin(&mut self) {
        (self.before, self.first) = (self.heard.len(), false);
    }

    /// Ends the stage: lowers what its trials contradict. Returns whether anything was lowered.
    pub fn settle(&mut self) -> bool {
        let mut lowered = false;
        let settled: Vec<Held> = self.held.iter().map(|h| self.settled(h)).collect();
        for (held, settled) in self.held.iter_mut().zip(settled) {
            lowered |= held.load != settled.load;
            *held = settled;
        }
        lowered
    }

    /// The throughputs, goal by goal.
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// The reason why a throughput was lowered; `None` when it was not.
    pub fn contradiction(&self, held: &Held) -> Option<Contradiction> {
        let found = held.found.filter(|found| held.load.is_some_and(|load| load < *found))?;
        let lost = |(trial, _): &&(Later, bool)| trial.word(&held.goal, found) == Some(Word::Lost);
        let worst = self.heard.iter().filter(lost).max_by(|a, b| a.0.by_system.total_cmp(&b.0.by_system))?;
        let votes = Votes::of(&self.heard, &held.goal, found, self.limits.full);
        let (trials, of) = (votes.lost, votes.carried + votes.lost);
        Some(Contradiction { trials, of, load: worst.0.load, lost: worst.0.by_system })
    }

    fn stage(&self) -> &[(Later, bool)] {
        &self.heard[self.before..]
    }

    fn votes(&self, goal: &Goal, load: f64) -> Votes {
        Votes::of(self.stage(), goal, load, self.limits.full)
    }

    /// Loads up to `start` that this stage knows anything of, the highest first.
    fn known(&self, start: f64) -> Vec<f64> {
        let mut loads: Vec<f64> = self.stage().iter().map(|(trial, _)| trial.load).collect();
        loads.retain(|load| *load < start);
        loads.push(start);
        loads.sort_by(|a, b| b.total_cmp(a));
        loads.dedup();
        loads
    }

    fn settled(&self, held: &Held) -> Held {
        let mut held = *held;
        let Some(start) = held.load.filter(|load| *load > 0.0) else { return held };
        let goal = &held.goal;
        let class = |load: f64| self.votes(goal, load).class(goal);
        match class(start) {
            // Nothing that came after it was confirmed speaks against it.
            Class::Undecided if !self.first && self.votes(goal, start).lost == 0 => {}
            Class::Undecided => held.decided = false,
            Class::Lower => held.decided = true,
            Class::Upper => {
                let known = self.known(start);
                let left = known.iter().copied().find(|l| class(*l) == Class::Lower).unwrap_or(0.0);
                let above = known.iter().copied().filter(|l| *l > left && class(*l) == Class::Upper);
                held.contradicted = above.reduce(f64::min);
                (held.load, held.decided) = (Some(left), true);
            }
        }
        let left = held.load.unwrap_or(start);
        // Of a throughput of which nothing is left: all that spoke against what it was.
        let about = if left > 0.0 { left } else { held.found.unwrap_or(start) };
        let votes = Votes::of(&self.heard, goal, about, self.limits.full);
        held.confirmed = if left > 0.0 { votes.carried } else { 0 };
        held.of = held.confirmed + votes.lost;
        held
    }

    /// The load that a throughput needs a trial at.
    fn next(&self, held: &Held) -> Option<f64> {
        let start = held.load.filter(|load| *load > 0.0)?;
        let votes = self.votes(&held.goal, start);
        if !self.first && votes.lost == 0 {
            return None;
        }
        match votes.class(&held.goal) {
            Class::Lower => None,
            Class::Undecided => Some(start),
            Class::Upper if self.may_be_outvoted(&held.goal, start, votes) => Some(start),
            Class::Upper => self.below(&held.goal, start),
        }
    }

    /// Whether only trials that were made for another purpose speak against a load, and so few that
    /// trials of its own may still outweigh them.
    fn may_be_outvoted(&self, goal: &Goal, load: f64, votes: Votes) -> bool {
        let own = |(trial, own): &(Later, bool)| *own && trial.word(goal, load) == Some(Word::Lost);
        let needed = votes.bad * (1.0 - goal.exceed_ratio) - votes.good * goal.exceed_ratio;
        let left = f64::from(self.limits.most.saturating_sub(self.made)) * self.limits.full;
        !self.stage().iter().any(own) && needed <= left * goal.exceed_ratio
    }

    /// The next load below a contradicted one: downwards until one is carried, then upwards until
    /// the two ends are a width apart.
    fn below(&self, goal: &Goal, start: f64) -> Option<f64> {
        let class = |load: f64| self.votes(goal, load).class(goal);
        let known: Vec<(f64, Class)> = self.known(start).into_iter().map(|l| (l, class(l))).collect();
        let lower = known.iter().find(|(_, class)| *class == Class::Lower).map(|(load, _)| *load);
        let above = known.iter().take_while(|(load, _)| lower.is_none_or(|l| *load > l));
        let upper = above.filter(|(_, class)| *class == Class::Upper).last().map_or(start, |(load, _)| *load);
        let mut open = known.iter().filter(|(load, class)| {
            *class == Class::Undecided && *load < upper && lower.is_none_or(|l| *load > l)
        });
        // One that was begun is brought to its end.
        if let Some((load, _)) = open.clone().find(|(load, _)| self.is_own(*load)) {
            return Some(*load);
        }
        let Some(lower) = lower else {
            let lost = known.iter().filter(|(_, class)| *class == Class::Upper).count();
            let next = self.down(goal, upper, lost as i32);
            // A load that a trial of another purpose has carried is as good as any near it.
            let near = open.find(|(load, _)| *load <= next && *load >= next * (1.0 - FARTHEST));
            let next = near.map_or(next, |(load, _)| *load);
            return (upper > self.limits.least * (1.0 + 1e-9)).then_some(next);
        };
        if upper * (1.0 - goal.width) <= lower * (1.0 + 1e-9) {
            return None;
        }
        let carried =
            known.iter().filter(|(load, class)| *class == Class::Lower && self.is_own(*load)).count();
        let stride = (goal.width * 2f64.powi((carried as i32 - 1).clamp(0, 30))).min(FARTHEST);
        Some((lower / (1.0 - stride)).min((lower * upper).sqrt()))
    }

    fn is_own(&self, load: f64) -> bool {
        self.stage().iter().any(|(trial, own)| *own && trial.load == load)
    }

    /// A step downwards from a load that was contradicted, as one of `nth`: to what came through
    /// there, but twice as far each time, and never far enough to miss much.
    fn down(&self, goal: &Goal, from: f64, nth: i32) -> f64 {
        let here = self.stage().iter().filter(|(trial, own)| *own && trial.load == from);
        let lost = here.map(|(trial, _)| trial.by_system).filter(|lost| *lost > goal.loss_ratio);
        let least = lost.reduce(f64::min).unwrap_or(0.0);
        let through = from * (1.0 - least);
        let stride = (goal.width * 2f64.powi((nth - 1).clamp(0, 30))).min(FARTHEST);
        (from * (1.0 - stride)).min(through).max(from * (1.0 - FARTHEST)).max(self.limits.least)
    }
}
