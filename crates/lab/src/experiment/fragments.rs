//! Experiment E6's case of its own, `lab fragments`: packets that do not fit the link between the
//! gateways once they are in a tunnel. Every system is measured twice at the same time: over a link
//! that carries the largest packet whole, and over one that does not. What a system does with such
//! a packet (it cuts what it sends, or what it is given, or refuses) is found out first.

use std::fmt;
use std::time::Duration;

use super::bench::{Bench, Ready, ready};
use super::budget;
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::placement::{Placement, Spread};
use super::rig::Rig;
use super::runner::{self, Method, Schedule};
use super::searched::{self, Load};
use super::throughput::{self, Care, FRAMING, FrameSize, LARGEST, percent};
use crate::error::LabError;
use crate::load::frame::Shape;
use crate::load::{Direction, Offer};
use crate::measure::outer::OuterWatch;
use crate::process;
use crate::record::{Better, Columns, Factors, Historical, Record, Table, View, Which, factors};
use crate::topology::{Mode, Node, Owner};

/// Options of the experiment.
#[derive(Debug, Clone, Default)]
pub struct FragmentsOptions {
    /// Options that all experiments have; `duration` is the length of a full trial.
    pub common: Common,
    /// Frame sizes; the largest when empty.
    pub sizes: Vec<FrameSize>,
    /// MTU of the link that cuts, bytes; 1400 when absent.
    pub outer_mtu: Option<u32>,
}

const ABOUT: About = About {
    name: "fragments",
    number: "E6",
    question: "What does each gateway do with packets that do not fit the link in front of it, and what does that cost?",
    measures: &[
        ("kpps", "kpps", "1000 packets/s", "packets that arrived whole", Better::More),
        ("inner_gbps", "inner Gb/s", "Gb/s", "the IP packets inside the tunnel", Better::More),
        (
            "outer_gbps",
            "outer Gb/s",
            "Gb/s",
            "frames on the link between the gateways with their FCS",
            Better::Neither,
        ),
        (
            "crossing",
            "crossing",
            "1",
            "packets on the link between the gateways for each that arrived",
            Better::Neither,
        ),
        ("loss", "loss", "share", "of the intended packets", Better::Less),
        ("busy", "busy", "share", "of the machine's capacity", Better::Less),
        (
            "machine_ns",
            "machine ns/p",
            "ns",
            "non-idle time of the machine for each packet that arrived",
            Better::Less,
        ),
        (
            "gateways_ns",
            "gateways ns/p",
            "ns",
            "time of both gateways' processes for each packet",
            Better::Less,
        ),
    ],
    baseline: Some(("link", WHOLE)),
};

/// The link that carries everything whole.
const WHOLE: &str = "whole";
const OUTER_MTU: u32 = 1400;
const FLOWS: u32 = 64;
/// The largest loss at a throughput.
const LOSS: f64 = 0.001;
/// Packets by which a system shows what it does, so slowly that none is lost for another reason.
const TRIED: Offer = Offer { rate: Some(200.0), packets: 40, at_most: Duration::from_secs(1) };

/// Makes the experiment.
pub fn fragments(options: FragmentsOptions) -> Result<Report, LabError> {
    let common = &options.common;
    let names = match common.duts.as_slice() {
        [] => vec!["plain".into(), "ironswan".into()],
        names => names.to_vec(),
    };
    let outer_mtu = options.outer_mtu.unwrap_or(OUTER_MTU);
    if !(576..=INNER_MTU).contains(&outer_mtu) {
        return Err(LabError::Usage(format!("the outer MTU must be between 576 and {INNER_MTU} bytes")));
    }
    let sizes =
        if options.sizes.is_empty() { vec![FrameSize::Bytes(LARGEST)] } else { options.sizes.clone() };
    let shape = |size: &FrameSize| {
        let fits = || LabError::Usage(format!("frames of {size} bytes do not fit"));
        Ok((*size, size.shape(INNER_MTU, FLOWS).ok_or_else(fits)?))
    };
    let cells: Vec<(FrameSize, Shape)> = sizes.iter().map(shape).collect::<Result<_, LabError>>()?;
    let ready = ready(&names, common)?;
    let repeats = common.repeats.unwrap_or(common.by_care(3, 1, 1));
    let searches = 2 * ready.duts.len() as u32 * cells.len() as u32 * repeats;
    let care = Care::of(common, vec![LOSS]);
    // Each system is started twice, tried out twice, and flooded with each size on both links.
    let flood = budget::trials(&[Duration::from_secs_f64(care.last)]) * 2 * cells.len() as u32 * repeats;
    let others = Duration::from_millis(1800) + budget::trials(&[Duration::from_millis(200); 2]) + flood;
    let care = budget::least(common, &care, others * ready.duts.len() as u32, searches);
    let schedule = Schedule {
        about: ABOUT,
        common,
        cells,
        repeats,
        samples: searches as usize,
        guess: care.guess() + Duration::from_secs(1),
    };
    runner::run(schedule, &Work { ready, outer_mtu, narrow: format!("MTU {outer_mtu}"), care })
}

/// Inner MTU: the largest frame has an inner packet of this size.
const INNER_MTU: u32 = LARGEST - FRAMING;

/// The experiment under way. Each system is there twice: with an even number over the link that
/// carries all whole, with an odd one over the link that does not.
struct Work {
    ready: Ready,
    outer_mtu: u32,
    /// Name of the link that does not carry all whole.
    narrow: String,
    care: Care,
}

impl Method for Work {
    type Cell = (FrameSize, Shape);
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        let (outer_mtu, width) = (self.outer_mtu, self.care.width * 100.0);
        let settings = [
            ("frames", format!("with FCS; the inner packet is {FRAMING} bytes smaller")),
            ("links", format!("MTU {outer_mtu}, and one that carries every packet whole; {}", Mode::Wire)),
            (
                "packets",
                format!(
                    "may be cut on the way (DF cleared where they enter the first gateway); {FLOWS} flows"
                ),
            ),
            ("throughput", format!("a loss of at most {}, to within {width} %", percent(LOSS))),
        ];
        self.ready.introduce(c, settings);
        self.care.describe(c);
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut bench = Bench::new(Owner::claim()?);
        for (dut, narrow) in self.ready.duts.iter().flat_map(|dut| [(dut, false), (dut, true)]) {
            c.says(&format!("starting {}", dut.name()))?;
            let rig = Rig::start(&bench.owner, dut.as_ref(), Mode::Wire, INNER_MTU, &placement)?;
            bench.add(c, rig)?;
            let (rig, watch) = bench.last()?;
            if narrow {
                self.narrow(c, rig, watch)?;
            } else {
                may_be_cut(rig)?;
            }
        }
        Ok(bench)
    }

    fn trial(
        &self,
        c: &mut Campaign,
        bench: &mut Bench,
        (size, shape): &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        let (began, cell) = (c.elapsed(), format!("{size} B"));
        let load = Load { shape: *shape, direction: Direction::Forward, cell: &cell };
        let searched = searched::search(c, &mut bench.rigs, load, &self.care)?;
        for (nth, (rig, s)) in bench.rigs.iter().zip(searched).enumerate() {
            let link = self.link(nth);
            let words = [&*size.to_string(), link, rig.name()];
            let files = s.keep(c, (rig.name(), &format!("{cell}, {link}")), &words, repeat)?;
            let all: Vec<_> =
                s.at.iter()
                    .flatten()
                    .map(|p| {
                        let mut measures = throughput::measures(shape, p);
                        measures.push(("crossing", p.outer.1 as f64 / p.received().max(1) as f64));
                        measures
                    })
                    .collect();
            let mut measures = throughput::medians(&all);
            measures.extend(s.confirmed(0));
            if let Some(pps) = s.found.first().and_then(|f| f.conditional_throughput) {
                measures.retain(|(name, _)| !["kpps", "inner_gbps"].contains(name));
                measures.extend([("kpps", pps / 1e3), ("inner_gbps", throughput::inner_gbps(shape, pps))]);
            }
            let f = factors([("size", &size.to_string()), ("link", link), ("dut", rig.name())]);
            c.sample(f, repeat, began, &measures, files);
        }
        Ok(())
    }

    /// Ends all systems. Pieces are a doubt only where all packets should have crossed whole.
    fn end(&self, c: &mut Campaign, bench: Bench) -> Result<(), LabError> {
        bench.stop_over(c, |nth| Some(self.link(nth)).filter(|link| *link != WHOLE))
    }

    fn judge(record: &Record) -> Conclusion {
        conclude(record)
    }
}

impl Work {
    /// Name of the link of a system.
    fn link(&self, nth: usize) -> &str {
        if nth.is_multiple_of(2) { WHOLE } else { &self.narrow }
    }

    /// Narrows the link of a system, and notes what the system does with packets that do not fit.
    fn narrow(&self, c: &mut Campaign, rig: &mut Rig, watch: &OuterWatch) -> Result<(), LabError> {
        let mtu = self.outer_mtu.to_string();
        for gateway in [Node::G1, Node::G2] {
            rig.line.ip(gateway, &["link", "set", "wan", "mtu", &mtu])?;
        }
        // The largest of all, where several sizes are measured.
        let largest = FrameSize::Bytes(LARGEST).shape(INNER_MTU, 1);
        let shape = largest.ok_or_else(|| LabError::Usage("the largest frame does not fit".into()))?;
        c.says(&format!("what {} does with what does not fit", rig.name()))?;
        let refusing = tried_out(rig, watch, shape)?;
        may_be_cut(rig)?;
        let cutting = tried_out(rig, watch, shape)?;
        let text = format!("DF set: {refusing}; DF clear: {cutting}");
        c.settings.insert(format!("{INNER_MTU} bytes over {}, {}", self.narrow, rig.name()), text);
        Ok(())
    }
}

/// Lets what enters a first gateway be cut: the generator's packets say that they must not be.
fn may_be_cut(rig: &Rig) -> Result<(), LabError> {
    let rules = "table netdev ironlab_df {\nchain enters {\ntype filter hook ingress device \"lan\" priority 0; policy accept;\n\
                 ip version 4 ip frag-off set 0\n}\n}\n";
    let argv = rig.line.node(Node::G1).exec(&["nft", "-f", "/dev/stdin"]);
    process::run_with(rig.line.journal(), &argv, rules, Duration::from_secs(5)).map(|_| ())
}

/// Fate of packets that do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Became {
    sent: u64,
    arrived: u64,
    /// Packets that crossed the outer link, pieces included, and how many of them were later
    /// pieces.
    crossed: u64,
    pieces: u64,
    /// ICMP errors (destination unreachable, which "too big" is one of) that the sender heard.
    told: u64,
}

impl fmt::Display for Became {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, arrived, crossed, pieces, told } = *self;
        // Of each that was sent: what crossed tells, also where the receiver did not get it in
        // time.
        let each = crossed as f64 / sent.max(1) as f64;
        if pieces > told && pieces * 2 >= arrived {
            write!(f, "cut on the way out: {each:.1} pieces cross for each")
        } else if arrived == 0 && told > 0 {
            return write!(f, "refused, with {told} ICMP errors for {sent} packets");
        // ARP and whatever a system keeps alive cross too.
        } else if each >= 1.5 {
            write!(f, "cut before it was sealed: {each:.1} packets cross for each, none in pieces")
        } else if arrived == 0 {
            return f.write_str("dropped without a word");
        } else {
            f.write_str("carried whole")
        }?;
        if arrived < sent { write!(f, " ({arrived} of {sent} arrived)") } else { Ok(()) }
    }
}

/// Offers a few packets to a system and sees what becomes of them.
fn tried_out(rig: &mut Rig, watch: &OuterWatch, shape: Shape) -> Result<Became, LabError> {
    let told = |rig: &Rig| -> Result<u64, LabError> {
        Ok(unreachable(&rig.line.node(Node::A).read("/proc/thread-self/net/snmp")?))
    };
    let (before, pieces) = (told(rig)?, rig.crossed(watch)?.fragments);
    let passed = rig.pass(shape, TRIED, Direction::Forward)?;
    Ok(Became {
        sent: passed.ways.iter().map(|(sent, _)| sent.sent).sum(),
        arrived: passed.received(),
        crossed: passed.outer.1,
        pieces: rig.crossed(watch)?.fragments - pieces,
        told: told(rig)? - before,
    })
}

/// ICMP errors "destination unreachable" received, from /proc/net/snmp.
fn unreachable(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|l| l.strip_prefix("Icmp: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "InDestUnreachs").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

fn conclude(record: &Record) -> Conclusion {
    use Which::{Median, Ratio};
    let columns = [
        ("kpps", Median),
        ("kpps", Ratio),
        ("inner_gbps", Median),
        ("outer_gbps", Median),
        ("crossing", Median),
        ("machine_ns", Median),
        ("machine_ns", Ratio),
        ("gateways_ns", Median),
    ];
    let views = vec![View::Table(Table {
        title: "Throughput and cost over a link that carries packets whole, and over one that does not"
            .into(),
        only: Factors::new(),
        rows: ["size", "dut", "link"].map(ToString::to_string).to_vec(),
        columns: Columns::Measures(columns.map(|(n, w)| (n.to_string(), w)).to_vec()),
    })];
    let mut ratios: Vec<String> = record
        .figures
        .iter()
        .filter(|f| f.factors.get("link").is_some_and(|l| l != WHOLE))
        .map(|f| {
            let ratio = f.number("kpps", Ratio).map_or("nothing".into(), |r| format!("{r:.2}"));
            format!("{}, {} bytes: {ratio}", f.factors["dut"], f.factors["size"])
        })
        .collect();
    ratios.dedup();
    let history = vec![Historical {
        source: "Freescale, IPsec on the MPC8548E, gateway to gateway (RFC 2544 figure 3)".into(),
        then: "1,057 Mbit/s with frames of 1456 bytes, which fit an ordinary link with the headers of their tunnel".into(),
        now: format!("throughput of what has to be cut, over that of the same whole: {}", ratios.join("; ")),
        caveat: "A system that cuts packets before the tunnel seals each part; one that cuts outside seals once, and the other \
                 gateway has to put the pieces together."
            .into(),
    }];
    Conclusion { views, history, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_packets_is_said_in_words() {
        let whole = Became { sent: 100, arrived: 100, crossed: 102, pieces: 0, told: 0 };
        for (became, text) in [
            (whole, "carried whole"),
            (Became { crossed: 201, pieces: 100, ..whole }, "cut on the way out: 2.0 pieces cross for each"),
            (
                Became { crossed: 200, ..whole },
                "cut before it was sealed: 2.0 packets cross for each, none in pieces",
            ),
            (
                Became { arrived: 0, told: 7, crossed: 2, ..whole },
                "refused, with 7 ICMP errors for 100 packets",
            ),
            (Became { arrived: 0, crossed: 2, ..whole }, "dropped without a word"),
            // A packet that crossed the link was seen, whatever became of it behind.
            (
                Became { arrived: 0, crossed: 201, pieces: 100, ..whole },
                "cut on the way out: 2.0 pieces cross for each (0 of 100 arrived)",
            ),
            (
                Became { arrived: 30, crossed: 80, pieces: 40, ..whole },
                "cut on the way out: 0.8 pieces cross for each (30 of 100 arrived)",
            ),
            (
                Became { arrived: 0, crossed: 200, ..whole },
                "cut before it was sealed: 2.0 packets cross for each, none in pieces (0 of 100 arrived)",
            ),
            (Became { arrived: 20, ..whole }, "carried whole (20 of 100 arrived)"),
            (Became { sent: 0, arrived: 0, crossed: 0, ..whole }, "dropped without a word"),
            (Became { arrived: 90, crossed: 91, ..whole }, "carried whole (90 of 100 arrived)"),
        ] {
            assert_eq!(became.to_string(), text);
        }
    }

    #[test]
    fn icmp_errors_are_counted() {
        let snmp = "Ip: A B\nIp: 1 2\nIcmp: InMsgs InErrors InCsumErrors InDestUnreachs InX\nIcmp: 9 8 7 6 5\nIcmpMsg: InType3\nIcmpMsg: 6\n";
        assert_eq!((unreachable(snmp), unreachable("")), (6, 0));
    }
}
