//! Asks everything that is to be asked about a packet, for the control socket.

use std::collections::BTreeMap;

use ironswan_io::Error as IoError;
use ironswan_ipsec::DropReason;
use ironswan_keying::Diagnosis;

use super::live::{self, Followed};
use super::view::View;
use super::world::{Ask, KernelWorld};
use super::{Direction, Passage, Question, inbound, outbound};
use crate::diagnosis::of_kernel;
use crate::driver::Driver;

/// The answer about one packet.
pub(crate) struct Answer {
    /// The stations of each direction that is meant.
    pub(crate) passages: Vec<Passage>,
    /// Lines about what may have to do with it.
    pub(crate) hints: Vec<String>,
}

impl Answer {
    /// The packet passes, in one direction at least.
    pub(crate) fn passes(&self) -> bool {
        self.passages.iter().any(|p| p.obstacle.is_none())
    }
}

/// Looks once.
///
/// # Errors
/// The kernel gives no answer.
pub(crate) fn once(driver: &Driver, question: &Question) -> Result<Answer, Diagnosis> {
    let view = View::read(driver, question);
    let walked = walk(&view).map_err(|e| of_kernel(&e))?;
    let passages = walked.into_iter().map(|(passage, _)| passage).collect();
    Ok(Answer { passages, hints: hints(driver) })
}

/// Looks, and follows the flow for some seconds.
///
/// # Errors
/// The kernel or `nft` gives no answer.
pub(crate) async fn live(driver: &Driver, question: &Question) -> Result<Answer, Diagnosis> {
    let before = drops(driver);
    let followed = live::follow(driver, question).await?;
    let after = drops(driver);
    let view = View::read(driver, question);
    let walked = walk(&view).map_err(|e| of_kernel(&e))?;
    let passages = walked.into_iter().map(|(mut passage, world)| {
        add(&followed, &mut passage, &world);
        passage
    });
    let mut hints = hints(driver);
    hints.extend(counted(&before, &after));
    Ok(Answer { passages: passages.collect(), hints })
}

/// The reports are of one direction; of two that both fit, each gets them.
fn add(followed: &Followed, passage: &mut Passage, world: &KernelWorld) {
    followed.tell(passage, &|index| world.name_of(index));
}

fn walk(view: &View) -> Result<Vec<(Passage, KernelWorld)>, IoError> {
    let directions = view.directions().into_iter();
    let walked = directions.map(|direction| {
        let mut world = KernelWorld::read()?;
        let passage = match direction {
            Direction::Outbound => outbound::walk(view, &mut world),
            Direction::Inbound => inbound::walk(view, &mut world),
        }?;
        Ok((passage, world))
    });
    walked.collect()
}

/// What is wrong with the guard.
fn hints(driver: &Driver) -> Vec<String> {
    let of_guard = driver.guard(|g| {
        let problem =
            g.problem().map(|why| format!("the kernel does not steer and guard as it should: {why}"));
        let ingress = g.ingress().1.map(ToString::to_string);
        [problem, ingress]
    });
    of_guard.into_iter().flatten().map(|line| super::shown(&line)).collect()
}

/// Drop reasons with their counts.
fn drops(driver: &Driver) -> BTreeMap<&'static str, u64> {
    driver.plane(|plane| plane.report()).drops.into_iter().collect()
}

/// The reasons for which the engine has dropped packets meanwhile.
fn counted(before: &BTreeMap<&'static str, u64>, after: &BTreeMap<&'static str, u64>) -> Vec<String> {
    let grown = after.iter().filter_map(|(name, now)| {
        let more = now.saturating_sub(before.get(name).copied().unwrap_or(0));
        (more > 0).then_some((*name, more))
    });
    grown
        .map(|(name, more)| {
            let reason = DropReason::ALL.iter().find(|r| r.name() == name);
            let sentence = reason.map(|r| r.sentence().trim_end_matches('.')).unwrap_or_default();
            format!("meanwhile the engine dropped {more} packets, of whichever flows ({name}): {sentence}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_that_counted_up_meanwhile_are_hints() {
        let before = BTreeMap::from([("OutNoPolicy", 3), ("InStateMismatch", 5)]);
        let after = BTreeMap::from([("OutNoPolicy", 5), ("InStateMismatch", 5)]);
        let [hint] = &counted(&before, &after)[..] else { panic!() };
        assert!(
            hint.contains("dropped 2 packets") && hint.contains("(OutNoPolicy): No policy covers"),
            "{hint}"
        );
    }
}
