//! Searches the throughput of systems side by side. Trials of the search go round among the
//! systems. When all searches are over, so do later trials at the rates that were found
//! ([`mlr::Confirm`](crate::measure::mlr::Confirm)), which confirm or lower them. Trials that were
//! made for another purpose, below a throughput or at it, count with the later ones.

use std::time::Duration;

use super::campaign::Campaign;
use super::judge::{self, Judge};
use super::passed::Passed;
use super::throughput::{Care, Carrier, percent};
use super::trials::{self, Purpose, Trials};
use crate::error::LabError;
use crate::load::frame::Shape;
use crate::load::{Direction, Offer};
use crate::measure::mlr::{Bounds, Confirm, Found, Held, Later, Limits, Plan, Search};
use crate::report::{Warning, confirmed};

/// A load under which all systems are searched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub shape: Shape,
    pub direction: Direction,
    /// Name of the load in messages.
    pub cell: &'a str,
}

/// Throughputs of one system, with the trials that they follow from.
pub(super) struct Searched {
    /// By goal: what the search found, less what later trials contradicted.
    pub found: Vec<Found>,
    /// By goal: the full trials at the lower bound, bad ones that are forgiven included.
    pub at: Vec<Vec<Passed>>,
    /// The trial with as much offered as the generator sends.
    pub flood: Passed,
    /// Full trials in which the tester itself lost more than may be lost: the generator did not
    /// keep the rate however often it tried, or the receiver had no room.
    pub tester_limited: usize,
    /// By goal: the tester, and not the system, set the upper bound, or there is none since all
    /// that the generator sends was carried.
    pub limited: Vec<bool>,
    /// Trials that were repeated because the generator had not kept the rate.
    pub repeated: u32,
    /// The flood and all trials of the search, and later ones.
    pub trials: Trials,
    /// By goal, what the search found, and what was carried there in its own trials, packets a
    /// second.
    before: Vec<(Found, Option<f64>)>,
    /// Trials that counted, and later ones.
    tried: Vec<Tried>,
    judge: Judge,
    confirm: Confirm,
}

/// A trial that counted.
struct Tried {
    /// Packets a second that were offered each way.
    load: f64,
    /// Whether it was as long as those that decide about a load.
    full: bool,
    passed: Passed,
}

/// A pause of the machine that may cost a trial what was due meanwhile, seconds: the generator's
/// own patience.
const PAUSE: f64 = 0.01;

impl Searched {
    /// Warnings about the result.
    pub(super) fn doubts(&self, dut: &str, cell: &str) -> Vec<Warning> {
        let mut doubts = found_doubts(&self.found, self.tester_limited, dut, cell);
        let held = self.confirm.held().iter().zip(&self.found).zip(&self.before);
        let later = held.filter_map(|((held, found), (_, before))| {
            later_doubt(held, &self.confirm, [*before, found.conditional_throughput], dut, cell)
        });
        doubts.extend(later);
        doubts
    }

    /// The same where nothing is measured beside it: takes its doubts down and keeps its trials, as
    /// the file that `words` name.
    pub(super) fn keep(
        &self,
        c: &mut Campaign,
        (dut, cell): (&str, &str),
        words: &[&str],
        repeat: u32,
    ) -> Result<Vec<String>, LabError> {
        let doubts = self.doubts(dut, cell).into_iter().chain(self.trials.impossible(dut, cell));
        doubts.for_each(|d| c.doubt(d));
        Ok(vec![c.keep(&trials::file(words, repeat), self.trials.csv().as_bytes())?])
    }

    /// What later trials say of the throughput for the goal `nth`, as measures.
    pub(super) fn confirmed(&self, nth: usize) -> Vec<(&'static str, f64)> {
        let (Some(held), Some((_, Some(before)))) = (self.confirm.held().get(nth), self.before.get(nth))
        else {
            return vec![];
        };
        let before = before * self.flood.ways.len() as f64 / 1e3;
        let values = [before, held.confirmed as f64, held.of as f64];
        confirmed::NAMES.into_iter().zip(values).collect()
    }

    /// Begins to count trials that are made for another purpose.
    pub(super) fn begin(&mut self) {
        self.confirm.begin();
    }

    /// Takes in a trial that was made for another purpose, at so many packets a second.
    pub(super) fn hear(&mut self, rate: f64, at_most: Duration, passed: &Passed) {
        let shares = passed.shares();
        if self.judge.kept(shares) {
            let seconds = at_most.as_secs_f64();
            let (lost, by_system) = (shares.lost, passed.lost_by_the_system());
            let slack = PAUSE / seconds.max(PAUSE);
            self.confirm.hear(Later { load: rate, seconds, lost, by_system, slack });
            self.tried.push(Tried { load: rate, full: true, passed: passed.clone() });
        }
    }

    /// Makes the results anew of what the search found and later trials left of it.
    fn refresh(&mut self) {
        let at = |load: Option<f64>| -> Vec<Passed> {
            let at = self.tried.iter().filter(|t| t.full && Some(t.load) == load);
            at.map(|t| t.passed.clone()).collect()
        };
        let (mut all, mut found) = (Vec::new(), Vec::new());
        for (held, (before, _)) in self.confirm.held().iter().zip(&self.before) {
            let at = at(held.load);
            let mut now = left(held, before, &at);
            now.conditional_throughput =
                now.conditional_throughput.map(|pps| judge::carried(pps, at.iter().map(Passed::shares)));
            all.push(at);
            found.push(now);
        }
        self.limited = found.iter().map(|f| limited(f, &self.tried, &self.judge)).collect();
        (self.found, self.at) = (found, all);
    }
}

/// The result of a search that later trials left, from the trials at its load.
fn left(held: &Held, before: &Found, at: &[Passed]) -> Found {
    if held.load == held.found {
        return *before;
    }
    let lost = at.iter().map(|p| p.shares().lost).filter(|lost| *lost <= held.goal.loss_ratio);
    let worst = lost.fold(0.0, f64::max);
    Found {
        goal: held.goal,
        bounds: Bounds { lower: held.load, upper: held.contradicted },
        conditional_throughput: held.load.map(|load| load * (1.0 - worst)),
        complete: true,
    }
}

/// Warnings about the results of a search in which the tester lost too much in `limited` trials.
fn found_doubts(found: &[Found], limited: usize, dut: &str, cell: &str) -> Vec<Warning> {
    let (dut, cell) = (dut.to_string(), cell.to_string());
    let without = found.iter().filter(|f| f.conditional_throughput.is_none() || !f.complete);
    let mut doubts: Vec<Warning> = without
        .map(|f| Warning::NoThroughput {
            dut: dut.clone(),
            cell: cell.clone(),
            goal: f.goal.loss_ratio,
            least: f.conditional_throughput,
        })
        .collect();
    // Nothing that was offered was too much: the system may carry more than the generator sends.
    let all_carried = found.iter().any(|f| f.bounds.lower.is_some() && f.bounds.upper.is_none());
    if limited > 0 || all_carried {
        doubts.push(Warning::TesterLimited { dut, cell, trials: limited });
    }
    doubts
}

/// Whether the tester set the upper bound that was found: at least half of the trials there that
/// failed did so because it had not kept the rate or its receiver had no room. Without an upper
/// bound nothing that the generator sends was too much.
fn limited(found: &Found, tried: &[Tried], judge: &Judge) -> bool {
    let Some(lower) = found.bounds.lower else { return false };
    let Some(upper) = found.bounds.upper else { return lower > 0.0 };
    let goal = found.goal.loss_ratio;
    let lost = |p: &&Passed| !judge.kept(p.shares()) || p.shares().lost > goal;
    let at = tried.iter().filter(|t| t.load == upper).map(|t| &t.passed);
    let bad: Vec<&Passed> = at.filter(lost).collect();
    let by_tester = |p: &&&Passed| !judge.kept(p.shares()) || p.receiver_loss() > goal;
    !bad.is_empty() && bad.iter().filter(by_tester).count() * 2 >= bad.len()
}

/// The warning that a throughput was lowered, from `before` to `now`, or that there were too few
/// later trials to confirm it.
fn later_doubt(
    held: &Held,
    confirm: &Confirm,
    [before, now]: [Option<f64>; 2],
    dut: &str,
    cell: &str,
) -> Option<Warning> {
    let (dut, cell, goal) = (dut.to_string(), cell.to_string(), percent(held.goal.loss_ratio));
    let (before, pps, confirmed) = (before?, now?, held.confirmed);
    if let Some(why) = confirm.contradiction(held) {
        return Some(Warning::Lowered { dut, cell, goal, before, pps, why, confirmed, of: held.of });
    }
    (!held.decided).then_some(Warning::Unconfirmed { dut, cell, goal, pps, confirmed, of: held.of })
}

/// A search under way.
struct Going {
    /// None where the flood is all.
    search: Option<Search>,
    /// The lowest load worth trying, packets a second.
    least: f64,
    flood: Passed,
    judge: Judge,
    tried: Vec<Tried>,
    trials: Trials,
    /// Most later trials.
    later: u32,
}

impl Going {
    fn begin<C: Carrier>(c: &Campaign, rig: &mut C, load: Load<'_>, care: &Care) -> Result<Self, LabError> {
        c.says(&format!("{}: {}, flood", load.cell, rig.name()))?;
        let at_most = Duration::from_secs_f64(care.last);
        let (began, offer) = (c.elapsed(), Offer { rate: None, packets: u64::MAX, at_most });
        let flood = rig.pass(load.shape, offer, load.direction)?;
        let mut trials = Trials::new(load.direction);
        trials.add((Purpose::Flood, "flood"), began, offer, &flood);
        let each = |s: &crate::load::Sent| s.sent as f64 / s.seconds.max(1e-9);
        // The slower of two generators: each direction gets the same.
        let most = flood.ways.iter().map(|(s, _)| each(s)).fold(f64::INFINITY, f64::min).max(1000.0);
        let plan = Plan {
            goals: care.goals(),
            min_load: most / 2000.0,
            max_load: most,
            coarse_stages: care.coarse,
            most_trials: care.trials.min(rig.most_trials()),
        };
        let (least, wanted) = (plan.min_load, plan.most_trials > 0);
        let search = wanted.then(|| Search::new(plan).map_err(LabError::Usage)).transpose()?;
        let (judge, later) = (Judge::new(care.width), care.later.min(rig.most_later()));
        Ok(Self { search, least, flood, judge, tried: Vec::new(), trials, later })
    }

    /// Makes the next trial; `false` when the search is over.
    fn step<C: Carrier>(
        &mut self,
        c: &Campaign,
        rig: &mut C,
        load: Load<'_>,
        care: &Care,
    ) -> Result<bool, LabError> {
        let Some((search, ask)) = self.search.as_mut().and_then(|s| s.ask().map(|ask| (s, ask))) else {
            return Ok(false);
        };
        let nth = self.judge.made() + 1;
        c.says(&format!("{}: {}, trial {nth}, {:.0} kpps", load.cell, rig.name(), ask.load / 1e3))?;
        let at_most = Duration::from_secs_f64(ask.duration);
        let offer = Offer { rate: Some(ask.load), packets: u64::MAX, at_most };
        let began = c.elapsed();
        let passed = rig.pass(load.shape, offer, load.direction)?;
        let told = self.judge.loss(passed.shares());
        self.trials.asked(Purpose::Search, began, ask, told, &passed);
        let Some(loss) = told else {
            search.void();
            return Ok(true);
        };
        search.tell(ask, loss);
        let full = ask.duration >= care.last * 0.999;
        self.tried.push(Tried { load: ask.load, full, passed });
        Ok(true)
    }

    fn end(self, care: &Care) -> Searched {
        let found = self.search.map(|s| s.found()).unwrap_or_default();
        let strictest = care.losses.iter().copied().fold(f64::INFINITY, f64::min);
        let by_tester = |p: &Passed| !self.judge.kept(p.shares()) || p.receiver_loss() > strictest;
        let limited = self
            .tried
            .iter()
            .filter(|t| t.full && by_tester(&t.passed) && t.passed.loss() > strictest)
            .count();
        let limits = Limits { least: self.least, full: care.last, most: self.later };
        let confirm = Confirm::new(&found, limits);
        let repeated = self.judge.repeated();
        let Self { flood, judge, tried, trials, .. } = self;
        let before = found.iter().map(|f| (*f, None)).collect();
        let (found, at) = (Vec::new(), Vec::new());
        let mut ended = Searched {
            found,
            at,
            flood,
            tester_limited: limited,
            limited: Vec::new(),
            repeated,
            trials,
            before,
            tried,
            judge,
            confirm,
        };
        ended.refresh();
        for ((_, before), found) in ended.before.iter_mut().zip(&ended.found) {
            *before = found.conditional_throughput;
        }
        ended
    }
}

/// Searches the throughput of all systems under a load, each at its own pace, trials going round;
/// then confirms what was found.
pub(super) fn search<C: Carrier>(
    c: &Campaign,
    rigs: &mut [C],
    load: Load<'_>,
    care: &Care,
) -> Result<Vec<Searched>, LabError> {
    let begin = |rig: &mut C| Going::begin(c, rig, load, care);
    let mut going = rigs.iter_mut().map(begin).collect::<Result<Vec<_>, _>>()?;
    loop {
        let mut asked = false;
        for (rig, g) in rigs.iter_mut().zip(&mut going) {
            asked |= g.step(c, rig, load, care)?;
        }
        if !asked {
            break;
        }
    }
    let mut searched: Vec<Searched> = going.into_iter().map(|g| g.end(care)).collect();
    confirm(c, rigs, load, &mut searched)?;
    Ok(searched)
}

/// Makes the later trials that the throughputs of all systems need, trials going round, and lowers
/// what they contradict. Returns for each system whether anything was lowered.
pub(super) fn confirm<C: Carrier>(
    c: &Campaign,
    rigs: &mut [C],
    load: Load<'_>,
    searched: &mut [Searched],
) -> Result<Vec<bool>, LabError> {
    loop {
        let mut asked = false;
        for (rig, s) in rigs.iter_mut().zip(searched.iter_mut()) {
            let Some(ask) = s.confirm.ask() else { continue };
            asked = true;
            c.says(&format!("{}: {}, again, {:.0} kpps", load.cell, rig.name(), ask.load / 1e3))?;
            let at_most = Duration::from_secs_f64(ask.duration);
            let offer = Offer { rate: Some(ask.load), packets: u64::MAX, at_most };
            let began = c.elapsed();
            let passed = rig.pass(load.shape, offer, load.direction)?;
            let shares = passed.shares();
            let told = s.judge.kept(shares).then_some(shares.lost);
            s.trials.asked(Purpose::Confirm, began, ask, told, &passed);
            if let Some(lost) = told {
                s.confirm.answer(ask, lost, passed.lost_by_the_system());
                s.tried.push(Tried { load: ask.load, full: true, passed });
            } else {
                s.confirm.void();
            }
        }
        if !asked {
            break;
        }
    }
    let settle = |s: &mut Searched| {
        let lowered = s.confirm.settle();
        s.refresh();
        lowered
    };
    Ok(searched.iter_mut().map(settle).collect())
}

#[cfg(test)]
impl Searched {
    /// The result of a search both ways, of which nothing but this is known.
    pub(super) fn sample(found: Vec<Found>, limited: Vec<bool>) -> Self {
        use super::passed::{Cost, Time};
        let way = (crate::load::Sent::default(), crate::load::Counted::default());
        let flood = Passed {
            ways: vec![way; 2],
            account: None,
            engines: vec![],
            cost: Cost::default(),
            busy_seconds: 0.0,
            time: Time::default(),
            stopped: 0.0,
            outer: (0, 0),
        };
        let confirm = Confirm::new(&found, Limits { least: 1.0, full: 1.0, most: 0 });
        let before = found.iter().map(|f| (*f, f.conditional_throughput)).collect();
        Self {
            found,
            at: vec![],
            flood,
            tester_limited: 0,
            limited,
            repeated: 0,
            trials: Trials::new(Direction::Both),
            before,
            tried: vec![],
            judge: Judge::new(0.05),
            confirm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::mlr::Goal;

    const GOAL: Goal = Goal {
        loss_ratio: 0.001,
        exceed_ratio: 0.5,
        width: 0.1,
        initial_trial: 0.1,
        final_trial: 0.1,
        duration_sum: 0.1,
    };

    fn found(lower: Option<f64>, upper: Option<f64>, complete: bool) -> Found {
        Found { goal: GOAL, bounds: Bounds { lower, upper }, conditional_throughput: lower, complete }
    }

    #[test]
    fn a_search_that_the_generator_ended_or_that_was_not_finished_is_doubted() {
        let kinds = |f: Found, limited| -> Vec<&str> {
            found_doubts(&[f], limited, "x", "64 B").iter().map(Warning::kind).collect()
        };
        assert!(kinds(found(Some(9.0), Some(10.0), true), 0).is_empty());
        assert_eq!(kinds(found(Some(9.0), Some(10.0), true), 2), ["tester-limited"]);
        assert_eq!(kinds(found(Some(10.0), None, true), 0), ["tester-limited"]);
        assert_eq!(kinds(found(Some(5.0), Some(10.0), false), 0), ["no-throughput"]);
        assert_eq!(kinds(found(None, Some(1.0), true), 0), ["no-throughput"]);
        let unfinished = found_doubts(&[found(Some(5e3), Some(1e4), false)], 0, "x", "64 B")[0].text();
        assert!(
            unfinished.contains("ended before it was done") && unfinished.contains("5.0 kpps"),
            "{unfinished}"
        );
        let text = found_doubts(&[found(Some(10.0), None, true)], 0, "x", "64 B")[0].text();
        assert!(text.starts_with("x, 64 B: it carried as much as the generator sends"), "{text}");
    }

    /// The warning when each of the later trials that are asked for loses that share.
    fn doubted(most: u32, lost: impl Fn(f64) -> f64) -> Option<(Held, Warning)> {
        let f = found(Some(1e5), Some(1.1e5), true);
        let mut confirm = Confirm::new(&[f], Limits { least: 50.0, full: 0.1, most });
        while let Some(ask) = confirm.ask() {
            confirm.answer(ask, lost(ask.load), lost(ask.load));
        }
        confirm.settle();
        let held = confirm.held()[0];
        let now = left(&held, &f, &[]).conditional_throughput;
        Some((held, later_doubt(&held, &confirm, [Some(1e5), now], "x", "64 B")?))
    }

    #[test]
    fn what_was_lowered_and_what_was_not_confirmed_is_said_with_the_reason() {
        assert_eq!(doubted(9, |_| 0.0), None);
        let (held, warning) = doubted(30, |load| (1.0 - 5e4 / load).max(0.0)).expect("a doubt");
        assert_eq!((held.load, warning.kind()), (Some(5e4), "lowered"));
        let text = warning.text();
        assert!(
            text.starts_with(
                "x, 64 B: the search found 100.0 kpps for a loss of 0.1%, but 2 of 2 later trials at or below that lost more, most \
                 of all 50.0 % at 100.0 kpps: lowered to 50.0 kpps, which 1 of 1 later trials carried"
            ),
            "{text}"
        );
        let (held, warning) = doubted(30, |_| 0.9).expect("a doubt");
        assert_eq!((held.load, warning.kind()), (Some(0.0), "lowered"));
        assert!(
            warning.text().ends_with("lowered to 0: later trials carried no rate at all"),
            "{}",
            warning.text()
        );
        let (held, warning) = doubted(0, |_| 0.0).expect("a doubt");
        assert_eq!((held.load, warning.kind()), (Some(1e5), "unconfirmed"));
        assert!(warning.text().contains("0 of 0 later trials carried it"), "{}", warning.text());
    }
}
