//! Follows the packets of a flow through nft for some seconds: lets the kernel report them, and
//! reads the reports.
//!
//! The table that marks the packets is removed in any case: by the thread that reads, which also
//! ends when whoever asked has gone; at the end of a daemon; and by the next start, for a daemon
//! that was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironswan_io::clock;
use ironswan_io::nft::Trace;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Guard, Packet};

use super::story::{self, Dropped, End, Path, Story, Turn};
use super::{Direction, Passage, Question, Station};
use crate::diagnosis::Diagnosed;
use crate::driver::Driver;
use crate::driver::pool::Turn as PoolTurn;
use crate::guard::{Nft, delete_trace_table};

/// How long a flow is followed.
pub(crate) const TIME: Duration = Duration::from_secs(10);
/// How long after the first packet that a rule has ended: a moment for the other direction.
const AFTER_END: Duration = Duration::from_millis(500);
/// A wait for reports looks this often whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Limits the datagrams of reports that are read after the table has gone.
const MAX_REST: usize = 10_000;

/// A flow as it was followed.
pub(super) struct Followed {
    story: Story,
    /// The texts of the rules that dropped packets there and back; `None` where they are no longer
    /// there.
    rules: [Option<String>; 2],
    /// Time for which it was followed.
    time: Duration,
}

/// Ends the thread that follows, when whoever asked goes.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Follows the flow of a packet.
///
/// # Errors
/// The kernel or `nft` refuses, or another flow is being followed.
pub(super) async fn follow(driver: &Driver, question: &Question) -> Result<Followed, Diagnosis> {
    let stop = Stop(Arc::default());
    let (stopped, question) = (stop.0.clone(), question.clone());
    let broken = |why: &dyn std::fmt::Display| {
        Diagnosis::from(Guard::NftBroken { program: "nft".to_owned(), why: why.to_string() })
    };
    let work = move || read(&question, &stopped);
    // One at a time: there is one table.
    let followed = driver.pools().live.run(PoolTurn::Later(0), 1, work);
    let followed = followed.map_err(|why| broken(&format!("another flow is being followed ({why})")))?;
    let result = followed.await.map_err(|_| broken(&"the thread that follows a flow has failed"))?;
    drop(stop);
    result
}

/// Follows the flow; blocks.
fn read(question: &Question, stopped: &AtomicBool) -> Result<Followed, Diagnosis> {
    // The reports of the first packet must find a listener.
    let trace = Trace::open().diagnosed()?;
    let nft = Nft::find()?;
    if stopped.load(Ordering::Relaxed) {
        return Err(Guard::Ended.into());
    }
    let mut story = Story::default();
    let began = clock::now();
    nft.script("make the table that follows a flow", &story::table(question))?;
    let heard = listen(&trace, &mut story, began, stopped);
    let gone = delete_trace_table().diagnosed();
    heard?;
    gone?;
    rest(&trace, &mut story)?;
    let rules = [Turn::There, Turn::Back].map(|turn| match &story.of(turn).end {
        Some(End::Dropped(Dropped { table, handle: Some(handle), ours: false, .. })) => {
            Some((table, *handle))
        }
        _ => None,
    });
    let listing = if rules.iter().any(Option::is_some) { nft.handles()? } else { String::new() };
    let rules = rules.map(|rule| rule.and_then(|(table, handle)| story::rule_text(&listing, table, handle)));
    Ok(Followed { rules, story, time: TIME })
}

/// Reads reports until the time is over, or they say enough.
fn listen(trace: &Trace, story: &mut Story, began: Instant, stopped: &AtomicBool) -> Result<(), Diagnosis> {
    let mut until = began + TIME;
    let mut told = false;
    loop {
        let now = clock::now();
        if now >= until || stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        take(trace, story, LOOK.min(until - now))?;
        if !told && story.is_told() {
            told = true;
            until = until.min(clock::now() + AFTER_END);
        }
    }
}

/// Reads the reports that wait still. False when there were none.
fn take(trace: &Trace, story: &mut Story, patience: Duration) -> Result<bool, Diagnosis> {
    match trace.next(patience).diagnosed()? {
        None => {
            story.lost = true;
            Ok(true)
        }
        Some(reports) => {
            reports.iter().for_each(|report| story.take(report));
            Ok(!reports.is_empty())
        }
    }
}

fn rest(trace: &Trace, story: &mut Story) -> Result<(), Diagnosis> {
    for _ in 0..MAX_REST {
        if !take(trace, story, Duration::ZERO)? {
            break;
        }
    }
    Ok(())
}

impl Followed {
    /// A flow of which this is told.
    #[cfg(test)]
    pub(super) fn of(story: Story, rules: [Option<String>; 2]) -> Self {
        Self { story, rules, time: TIME }
    }

    /// Adds what was seen to the stations.
    pub(super) fn tell(&self, passage: &mut Passage, name_of: &dyn Fn(u32) -> String) {
        let child = passage.stops.iter().flat_map(|s| &s.values).find(|(name, _)| *name == "child");
        let child = child.map(|(_, child)| child.clone()).unwrap_or_default();
        for (turn, rule) in [Turn::There, Turn::Back].into_iter().zip(&self.rules) {
            let path = self.story.of(turn);
            match obstacle(path, turn, rule.as_ref(), &child, passage.direction) {
                Some(why @ Packet::ForeignRule { .. }) => {
                    // It was seen: whatever else may be in the way comes later, or is in the way of
                    // the next packet.
                    passage.obstacle = None;
                    passage.stops(Station::Rules, why);
                }
                Some(why) => {
                    passage.stops(Station::Rules, why);
                }
                None if turn == Turn::There && path.packets == 0 => {
                    passage.stops(Station::Rules, Packet::Unseen { seconds: self.time.as_secs() });
                }
                None => {
                    passage.passes(Station::Rules, in_words(path, turn, name_of));
                }
            }
            let there = turn == Turn::There;
            passage.with(if there { "packets" } else { "answers" }, path.packets);
            if let Some(last) = path.last {
                passage.with(if there { "last-seen" } else { "last-answer-seen" }, last.words());
            }
        }
        if self.story.lost {
            passage.unknown(Station::Rules, "some reports of the kernel were lost: there were too many");
        }
    }
}

/// The obstacle that was seen.
fn obstacle(
    path: &Path,
    turn: Turn,
    rule: Option<&String>,
    child: &str,
    direction: Direction,
) -> Option<Packet> {
    match &path.end {
        Some(End::Dropped(Dropped { ours: true, .. })) => {
            let arrives = (direction == Direction::Inbound) == (turn == Turn::There);
            Some(Packet::Guarded { child: child.to_owned(), arrives })
        }
        Some(End::Dropped(Dropped { table, chain, handle, .. })) => {
            let gone = || "a rule that is no longer there".to_owned();
            let rule = handle.map(|_| rule.cloned().unwrap_or_else(gone)).unwrap_or_default();
            Some(Packet::ForeignRule { table: table.clone(), chain: chain.clone(), rule })
        }
        Some(End::Queued(..) | End::Taken(..)) => None,
        None if path.packets > 0 && !path.is_through() => {
            let after = path.last.map_or("", story::Place::words);
            Some(Packet::Vanished { after })
        }
        None => None,
    }
}

/// What was seen, where nothing is in the way.
fn in_words(path: &Path, turn: Turn, name_of: &dyn Fn(u32) -> String) -> String {
    let what = match (turn, path.packets) {
        (Turn::Back, 0) => return "no answer was seen".to_owned(),
        (Turn::There, 1) => "1 packet was seen".to_owned(),
        (Turn::There, n) => format!("{n} packets were seen"),
        (Turn::Back, 1) => "1 answer was seen".to_owned(),
        (Turn::Back, n) => format!("{n} answers were seen"),
    };
    let last = match &path.end {
        Some(End::Queued(table, chain)) => {
            format!("a rule of the table {table}, chain {chain}, hands them to a program")
        }
        Some(End::Taken(table, chain)) => {
            format!("the kernel took one over after the table {table}, chain {chain}")
        }
        _ => {
            let by = path.leaves_by.map(|index| format!(" by {}", name_of(index))).unwrap_or_default();
            format!("the last one {}{by}", path.last.map_or("", story::Place::words))
        }
    };
    format!("{what}, {last}")
}
