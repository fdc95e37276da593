//! Differences where one gateway is measured alone (RFC 2544 figure 2): names, systems that can be
//! measured so, limits of the tester.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{ABOUT, MEASURES};
use crate::dut::Dut;
use crate::error::LabError;
use crate::experiment::campaign::{About, Campaign};
use crate::experiment::passed::Passed;
use crate::experiment::tester;
use crate::experiment::throughput::{self, FrameSize};
use crate::load::Direction;
use crate::load::esp;
use crate::load::frame::Shape;
use crate::record::{Better, Factors, factors};
use crate::report::Warning;

/// The gateways that are measured, and the box that measures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setup {
    /// Two gateways with a tunnel between them, the tester on both outsides (RFC 2544 figure 3).
    #[default]
    Line,
    /// One gateway, with a tester that speaks IKE and ESP itself (figure 2).
    Single,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "gateway to gateway",
            Self::Single => SINGLE_GATEWAY,
        })
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "line" => Ok(Self::Line),
            "single" => Ok(Self::Single),
            _ => Err(format!("`{s}` is not a topology; the topologies are line and single")),
        }
    }
}

/// The factor `topology` of figures of one gateway.
pub(super) const SINGLE_GATEWAY: &str = "single gateway";

/// The factor `part` of figures of the tester without a gateway.
pub(super) const ALONE: &str = "alone";

/// Measures beside those of a line.
type Declared = (&'static str, &'static str, &'static str, &'static str, Better);
const MORE: [Declared; 4] = [
    (
        "missing",
        "missing",
        "share",
        "of the packets sent: numbers of ESP packets that never came",
        Better::Less,
    ),
    (
        "unopened",
        "unopened",
        "share",
        "of the ESP packets that came: counted, but not opened by the tester",
        Better::Less,
    ),
    ("seal_kpps", "seals kpps", "1000 packets/s", "the tester alone, one core, in memory", Better::Neither),
    ("open_kpps", "opens kpps", "1000 packets/s", "the tester alone, one core, in memory", Better::Neither),
];
static ALL: [Declared; MEASURES.len() + MORE.len()] = {
    let mut all = [MORE[0]; MEASURES.len() + MORE.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < MEASURES.len() { MEASURES[at] } else { MORE[at - MEASURES.len()] };
        at += 1;
    }
    all
};

pub(super) const SINGLE: About = About {
    question: "How many packets of each size does one gateway encrypt, and how many does it decrypt, without loss, or with \
               little, and what happens below and above that?",
    measures: &ALL,
    ..ABOUT
};

impl Setup {
    /// How a direction is called in figures and headings.
    pub(super) fn direction(self, direction: Direction) -> String {
        match (self, direction) {
            (Self::Line, d) => d.to_string(),
            (Self::Single, Direction::Forward) => "encrypting".into(),
            (Self::Single, Direction::Reverse) => "decrypting".into(),
            (Self::Single, Direction::Both) => "both at once".into(),
        }
    }

    /// The factors that all figures of it have.
    pub(super) fn factors(self) -> Factors {
        match self {
            Self::Line => Factors::new(),
            Self::Single => factors([("topology", SINGLE_GATEWAY)]),
        }
    }

    /// The measures of a trial.
    pub(super) fn measures(self, shape: &Shape, passed: &Passed) -> Vec<(&'static str, f64)> {
        let mut measures = throughput::measures(shape, passed);
        if self == Self::Single {
            measures.push(("sent_kpps", passed.sent_pps() / 1e3));
            // Only what the gateway has sealed has numbers for the tester to see.
            let sealed = passed.ways.iter().find_map(|(sent, counted)| Some((sent, counted, counted.esp?)));
            measures.extend(sealed.into_iter().flat_map(|(sent, counted, esp)| {
                let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
                [
                    // Packets that the tester's own socket had no room for are not the gateway's
                    // loss.
                    ("missing", share(esp.missing.saturating_sub(counted.socket_drops), sent.sent)),
                    ("unopened", share(esp.unopened, counted.arrived())),
                ]
            }));
        }
        measures
    }

    /// Splits the systems: those that the tester can measure, and warnings about the others.
    pub(super) fn able(self, duts: Vec<Box<dyn Dut>>) -> (Vec<Box<dyn Dut>>, Vec<Warning>) {
        let (mut able, mut doubts) = (Vec::new(), Vec::new());
        for dut in duts {
            match tester::cannot(dut.as_ref()).filter(|_| self == Self::Single) {
                None => able.push(dut),
                Some(why) => doubts.push(Warning::LeftOut { what: format!("{}: {why}", dut.name()) }),
            }
        }
        (able, doubts)
    }
}

/// Takes down what the tester itself can do with packets of that shape for each system.
pub(super) fn own_limits(
    c: &mut Campaign,
    duts: &[Box<dyn Dut>],
    size: FrameSize,
    shape: Shape,
    time: Duration,
) -> Result<(), LabError> {
    for dut in duts {
        let Some(suite) = tester::algorithms(dut.as_ref())? else { continue };
        c.says(&format!("{size} B: the tester's own limit for {}", dut.name()))?;
        let began = c.elapsed();
        let own = esp::limits(&suite, shape, time)?;
        let mut of = Setup::Single.factors();
        of.extend(factors([("part", "tester"), ("size", &size.to_string()), ("dut", &dut.name())]));
        let measures = [("seal_kpps", own.seal_pps / 1e3), ("open_kpps", own.open_pps / 1e3)];
        c.sample(of, 0, began, &measures, vec![]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut::{DutOptions, Encap, LIBIPSEC, Suite, by_name};

    #[test]
    fn the_tester_measures_what_speaks_its_ike_and_its_esp_and_says_why_not_the_others() {
        let suites = Suite::list("aes128gcm16,rot13,aes128gcm16/aes256-sha256-ecp256").expect("suites");
        let options = DutOptions { suites, ..DutOptions::default() };
        let duts = || -> Vec<_> {
            let all = ["plain", "ironswan", "openvpn", "libreswan", LIBIPSEC];
            all.iter().flat_map(|n| by_name(n, &[Encap::Udp], &options).expect("systems")).collect()
        };
        let (able, left_out) = Setup::Single.able(duts());
        let names: Vec<String> = able.iter().map(|d| d.name()).collect();
        assert_eq!(names, ["plain", "ironswan", LIBIPSEC]);
        let said: Vec<String> = left_out.iter().map(Warning::text).collect();
        assert_eq!(
            (said.len(), said.iter().filter(|t| t.contains("the tester has no rot13")).count()),
            (8, 2)
        );
        assert_eq!(said.iter().filter(|t| t.contains("it is not set up for the tester")).count(), 3);
        assert_eq!(said.iter().filter(|t| t.contains("openvpn: it does not speak IKEv2")).count(), 1);
        assert_eq!(Setup::Line.able(duts()).0.len(), 11);
    }
}
