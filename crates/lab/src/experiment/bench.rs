//! Systems side by side, each at work on a line of its own, for experiments with packets of our own
//! generator.

use super::alone::Alone;
use super::campaign::{Campaign, Common};
use super::line::{choose_duts, once};
use super::rig::Rig;
use super::traffic::Manner;
use crate::dut::Dut;
use crate::error::LabError;
use crate::machine;
use crate::measure::outer::{Crossed, OuterWatch};
use crate::report::Warning;
use crate::topology::{Line, Mode, Owner};

/// Systems that can start, and doubts about those that cannot.
pub(super) struct Ready {
    pub duts: Vec<Box<dyn Dut>>,
    pub doubts: Vec<Warning>,
}

/// The systems of those names, when the machine has all that they and the line need.
pub(super) fn ready(names: &[String], common: &Common) -> Result<Ready, LabError> {
    let mut lacks = machine::lacks_privilege();
    lacks.extend(Line::lacks(Mode::Wire));
    lacks.extend(OuterWatch::lacks());
    let (duts, missing, doubts) = choose_duts(names, &common.encaps, &common.dut_options)?;
    lacks.extend(missing);
    if !lacks.is_empty() {
        once(&mut lacks);
        return Err(LabError::Unfit(lacks));
    }
    if duts.is_empty() {
        return Err(LabError::Usage("nothing to measure: name a system".into()));
    }
    Ok(Ready { duts, doubts })
}

impl Ready {
    /// Raises the doubts, and notes the settings and the systems' versions.
    pub(super) fn introduce(
        &self,
        c: &mut Campaign,
        settings: impl IntoIterator<Item = (&'static str, String)>,
    ) {
        self.doubts.iter().for_each(|d| c.doubt(d.clone()));
        c.settings.extend(settings.into_iter().map(|(name, value)| (name.to_string(), value)));
        c.versions.extend(self.duts.iter().filter_map(|d| Some((d.name(), d.version()?))));
    }
}

/// The systems at work. Dropping it ends them and removes their lines.
pub(super) struct Bench {
    pub rigs: Vec<Rig>,
    /// The tester on a link of its own, where it is measured beside them.
    pub alone: Option<Alone>,
    watches: Vec<OuterWatch>,
    pub owner: Owner,
}

impl Bench {
    /// No system yet, under the name of `owner`.
    pub(super) fn new(owner: Owner) -> Self {
        Self { rigs: Vec::new(), alone: None, watches: Vec::new(), owner }
    }

    /// Adds a system and counts from now on what crosses its outer link.
    pub(super) fn add(&mut self, c: &Campaign, mut rig: Rig) -> Result<(), LabError> {
        rig.soak = c.soak().cloned();
        self.watches.push(rig.watch()?);
        self.rigs.push(rig);
        Ok(())
    }

    /// From now on packets of trials are sent and received so, those of the tester alone too.
    pub(super) fn send_so(&mut self, manner: Manner) {
        self.alone.iter_mut().for_each(|alone| alone.manner = manner);
        self.rigs.iter_mut().for_each(|rig| rig.manner = manner);
    }

    /// The last system that was added, with the counters of its outer link.
    pub(super) fn last(&mut self) -> Result<(&mut Rig, &OuterWatch), LabError> {
        let last = self.rigs.last_mut().zip(self.watches.last());
        last.ok_or_else(|| LabError::Measurement("no system is at work".into()))
    }

    /// Ends the systems and says what crossed the outer link that should not have.
    pub(super) fn stop(self, c: &mut Campaign) -> Result<(), LabError> {
        self.stop_over(c, |_| None)
    }

    /// The same where some links cut what does not fit: `cut` names the link of a system by its
    /// number, if the link is one of these. Pieces on it are no doubt.
    pub(super) fn stop_over<'a>(
        self,
        c: &mut Campaign,
        cut: impl Fn(usize) -> Option<&'a str>,
    ) -> Result<(), LabError> {
        self.alone.iter().for_each(|alone| c.ran(alone.commands()));
        for (nth, (rig, watch)) in self.rigs.into_iter().zip(self.watches).enumerate() {
            let (mut crossed, dut) = (rig.crossed(&watch)?, rig.name().to_string());
            let named = cut(nth).map_or_else(|| dut.clone(), |link| format!("{dut}, {link}"));
            c.settings.insert(format!("crossed, {named}"), crossed.to_string());
            if cut(nth).is_some() {
                crossed.fragments = 0;
            }
            doubts(&dut, &crossed).into_iter().for_each(|doubt| c.doubt(doubt));
            if let Some(behaved) = rig.behaved() {
                c.settings.insert(format!("came out, {dut}"), behaved.to_string());
                behaved.doubt(&dut).into_iter().for_each(|doubt| c.doubt(doubt));
            }
            let (killed, commands) = rig.stop();
            c.ran(commands);
            if !killed.is_empty() {
                c.doubt(Warning::Killed { dut, processes: killed });
            }
        }
        Ok(())
    }
}

/// Warnings about packets that a system let cross the outer link.
fn doubts(dut: &str, crossed: &Crossed) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if let Some(packets) = crossed.unprotected(dut).filter(|n| *n > 0) {
        doubts.push(Warning::Unprotected { dut: dut.into(), packets });
    }
    if crossed.fragments > 0 {
        doubts.push(Warning::Fragments { dut: dut.into(), packets: crossed.fragments });
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_outside_of_a_systems_protocol_or_in_pieces_is_a_doubt() {
        let kinds = |dut: &str, crossed: Crossed| -> Vec<&str> {
            doubts(dut, &crossed).iter().map(Warning::kind).collect()
        };
        let clean = Crossed { ipsec: 9, neighbours: 2, ..Crossed::default() };
        assert!(kinds("ironswan", clean).is_empty());
        assert_eq!(kinds("ironswan", Crossed { other: 1, ..clean }), ["unprotected"]);
        assert_eq!(kinds("openvpn", clean), ["unprotected"]);
        assert_eq!(kinds("plain", Crossed { other: 7, fragments: 1, ..clean }), ["fragments"]);
    }
}
