//! Measures the cost of peers that are gone: the gateway starts, and nobody answers.

use super::config::OUTER;
use super::gateways::{self, Ground};
use super::plan::Plan;
use crate::clock;
use crate::error::LabError;
use crate::experiment::beside::Beside;
use crate::experiment::campaign::Campaign;
use crate::interrupt;
use crate::measure::counters::parse_links;
use crate::record::Factors;
use crate::topology::Node;

/// Starts g1 with `n` peers of which there is none. Both gateways have to have ended.
pub(super) fn dead(
    c: &mut Campaign,
    ground: &mut Ground,
    plan: &Plan,
    what: Factors,
    n: u32,
    repeat: u32,
) -> Result<(), LabError> {
    // Not even an ICMP error comes back.
    ground.line.ip(Node::G2, &["addr", "flush", "dev", "wan", "to", OUTER[1]])?;
    ground.line.ip(Node::G2, &["route", "add", "blackhole", OUTER[1]])?;
    let (mut g1, _loading) = ground.start(0)?;
    gateways::wait(&mut g1, |said| said.begun >= n.into())?;
    let sent = || -> Result<u64, LabError> {
        let links = parse_links(&ground.netns(0).read("/proc/thread-self/net/dev")?);
        let wan = links.iter().find(|(name, _)| name == "wan").map(|(_, counters)| counters.tx_buffers);
        wan.ok_or_else(|| LabError::Measurement("g1 has no link wan".into()))
    };
    let (began, beside) = (c.elapsed(), Beside::start(c, &ground.line, &[])?);
    let (cpu, before, start) = (g1.cpu_ns(), sent()?, clock::now());
    interrupt::pause(plan.dead)?;
    let seconds = (clock::now() - start).as_secs_f64();
    let each = seconds * f64::from(n);
    let mut measures = vec![
        ("dead_us", g1.cpu_ns().saturating_sub(cpu) as f64 / 1e3 / each),
        // Requests for IKE_SAs are one packet each.
        ("dead_packets", sent()?.saturating_sub(before) as f64 / each),
    ];
    measures.extend(beside.stop(&ground.line)?);
    g1.said()?;
    c.sample(what, repeat, began, &measures, vec![]);
    g1.end();
    Ok(())
}
