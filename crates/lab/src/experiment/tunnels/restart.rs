//! The initiating gateway is stopped and started again: how long until all tunnels are up once
//! more.

use std::time::Duration;

use super::gateways::{Gateway, Ground, Said, watch};
use super::growth::all_up;
use crate::clock;
use crate::error::LabError;
use crate::experiment::campaign::Campaign;
use crate::record::Factors;
use crate::report::Warning;

/// Restarts `g1`; both gateways have ended afterwards.
pub(super) fn restart(
    c: &mut Campaign,
    ground: &mut Ground,
    [g1, mut g2]: [Gateway; 2],
    what: Factors,
    (n, at_most): (u32, Duration),
    repeat: u32,
) -> Result<(), LabError> {
    let dut = what.get("dut").cloned().unwrap_or_default();
    let (began, start) = (c.elapsed(), clock::now());
    let before = g2.said()?.established;
    if !g1.end() {
        c.doubt(Warning::Killed { dut: dut.clone(), processes: vec!["g1".into()] });
    }
    let stop = (clock::now() - start).as_secs_f64();
    let (mut g1, _loading) = ground.start(0)?;
    // A bring-up's time begins when a daemon that answers is told of its connections; here its own
    // start counts, too.
    let started = (g1.began() - start).as_secs_f64();
    let again = |said: &[Said]| Ok(said[0].established.min(said[1].established.saturating_sub(before)));
    let seen = watch(&mut [&mut g1, &mut g2], n.into(), at_most, again)?;
    match all_up(&seen.moments, n.into()) {
        Some(seconds) => {
            let measures = [("restart_s", started + seconds), ("stop_s", stop)];
            c.sample(what, repeat, began, &measures, vec![]);
        }
        None => c.doubt(Warning::NotAllUp {
            dut: format!("{dut} after a restart"),
            tunnels: n.into(),
            up: seen.moments.last().map_or(0, |m| m.up),
            seconds: at_most.as_secs_f64(),
        }),
    }
    g1.end();
    g2.end();
    Ok(())
}
