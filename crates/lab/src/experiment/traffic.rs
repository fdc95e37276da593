//! Traffic that experiments with packets of our own generator are asked for beside frame sizes:
//! somebody's own capture, IPv6, bursts, several threads, and the sockets by which frames leave.
//! From options to loads, and what is said of them in a record.

use std::path::{Path, PathBuf};

use super::own_traffic::{self, OwnTraffic};
use super::throughput::{FrameSize, smallest};
use crate::error::{LabError, Remedy};
use crate::load::SendBy;
use crate::load::capture::Pace;
use crate::load::frame::{Family, Shape};
use crate::topology::queues;

/// Options of the traffic.
#[derive(Debug, Clone, Default)]
pub struct TrafficOptions {
    /// A capture whose sizes, gaps and flows are sent.
    pub mix: Option<PathBuf>,
    /// IPv6 instead of IPv4 inside.
    pub ipv6: bool,
    /// Packets that are sent at once; evenly spaced when absent.
    pub burst: Option<u32>,
    /// Threads that send, and as many that receive, each way; one when absent.
    pub threads: Option<u32>,
    /// The sockets by which frames leave.
    pub generator: SendBy,
}

/// The frames that an experiment sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Sizes that were asked for.
    pub sizes: &'a [FrameSize],
    /// Those where none are, unless there is a capture.
    pub usual: &'a [&'a str],
    /// Flows that were asked for.
    pub flows: Option<u32>,
}

/// How packets of trials are sent and received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Manner {
    /// How they follow one another.
    pub pace: Pace,
    /// Threads that send, and as many that receive, each way.
    pub threads: u32,
    /// The sockets by which they leave.
    pub by: SendBy,
}

impl Default for Manner {
    /// Evenly spaced, by one thread and a packet socket.
    fn default() -> Self {
        Self { pace: Pace::Even, threads: 1, by: SendBy::Packet }
    }
}

/// The loads of a run.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub family: Family,
    /// The largest packet of the hosts, bytes.
    pub inner_mtu: u32,
    /// Flows of packets that are not of a capture.
    pub flows: u32,
    /// Sizes of frames, and the packets in them; that of a capture last.
    pub sizes: Vec<(FrameSize, Shape)>,
    own: Option<OwnTraffic>,
    manner: Manner,
}

/// Most packets of a burst: more than queues on the way have room for.
const MOST_AT_ONCE: u32 = 10_000;

/// Most threads that send one way.
const MOST_THREADS: u32 = 64;

/// Flows where no number was asked for.
const FLOWS: u32 = 64;

impl Traffic {
    /// Of these options; `inner_mtu` says how large packets may be, from the largest frame that
    /// was asked for.
    pub(super) fn of(
        o: &TrafficOptions,
        wanted: Wanted<'_>,
        inner_mtu: impl FnOnce(u32) -> u32,
    ) -> Result<Self, LabError> {
        o.check(wanted)?;
        let family = if o.ipv6 { Family::V6 } else { Family::V4 };
        let mut sizes: Vec<FrameSize> = match (wanted.sizes, &o.mix) {
            ([], Some(_)) => vec![],
            ([], None) => {
                let usual = wanted.usual.iter().map(|s| s.parse().map(|size| at_least(size, family)));
                usual.collect::<Result<_, String>>().map_err(LabError::Usage)?
            }
            (asked, _) => asked.to_vec(),
        };
        // Each thread has flows of its own, as many as any other.
        let threads = o.threads.unwrap_or(1);
        let flows = wanted.flows.unwrap_or(FLOWS).next_multiple_of(threads.max(1));
        if !(1..=1_000_000).contains(&flows) {
            return Err(LabError::Usage("the number of flows must be between 1 and 1,000,000".into()));
        }
        let bytes = |size: &FrameSize| if let FrameSize::Bytes(n) = size { Some(*n) } else { None };
        let inner_mtu = inner_mtu(sizes.iter().filter_map(bytes).max().unwrap_or(0));
        let own = o.mix.as_ref().map(|path| own_traffic::read(path, family, inner_mtu)).transpose()?;
        sizes.extend(own.as_ref().map(|own| own.size));
        let shape = |size: FrameSize| {
            let shape = size.shape_of(family, inner_mtu, flows);
            shape.map(|shape| (size, shape)).ok_or_else(|| size.misfit(family, inner_mtu))
        };
        let sizes = sizes.into_iter().map(shape).collect::<Result<_, LabError>>()?;
        let pace = o.burst.map_or(Pace::Even, Pace::Bursts);
        let manner = Manner { pace, threads, by: o.generator };
        Ok(Self { family, inner_mtu, flows, sizes, own, manner })
    }

    /// How packets of that size are sent; those of a capture follow one another as in it.
    pub(super) fn manner(&self, size: FrameSize) -> Manner {
        match (size, &self.own) {
            (FrameSize::Captured(_), Some(own)) => Manner { pace: own.pace, ..self.manner },
            _ => self.manner,
        }
    }

    /// What this machine lacks for it.
    pub(super) fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = Vec::new();
        if self.family == Family::V6 && !Path::new("/proc/sys/net/ipv6").exists() {
            let action = "start it without ipv6.disable=1, or measure without --ipv6";
            lacks.push(Remedy::new("this kernel has no IPv6", action));
        }
        // An Ethernet header around the largest packet.
        lacks.extend(self.manner.by.lacks(self.inner_mtu as usize + 14));
        lacks
    }

    /// What it is, as settings of a run.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("IP inside", if self.family == Family::V6 { "IPv6" } else { "IPv4" }.to_string()),
            ("flows", self.sizes.first().map_or(self.flows, |(_, shape)| shape.flows).to_string()),
            ("generator", self.manner.by.to_string()),
        ];
        if let Pace::Bursts(packets) = self.manner.pace {
            all.push(("bursts", format!("{packets} packets at once, evenly spaced")));
        }
        if self.manner.threads > 1 {
            let threads = format!(
                "{0} that send and {0} that receive each way, each with flows of its own",
                self.manner.threads
            );
            all.push(("threads", threads));
        }
        all.extend(self.own.as_ref().map(|own| ("mix", own.said.clone())));
        all
    }
}

/// A usual size, or the smallest over that version of IP where that is larger.
fn at_least(size: FrameSize, family: Family) -> FrameSize {
    match size {
        FrameSize::Bytes(n) => FrameSize::Bytes(n.max(smallest(family))),
        other => other,
    }
}

impl TrafficOptions {
    /// Options that make no sense together, or are out of range.
    fn check(&self, wanted: Wanted<'_>) -> Result<(), LabError> {
        let wrong = |why: String| Err(LabError::Usage(why));
        let together = |why: &str| wrong(format!("{why}; leave one of them out"));
        if self.mix.is_some() && self.burst.is_some() {
            return together("--burst: packets of --mix come as they were captured");
        }
        let threads = self.threads.unwrap_or(1);
        if threads > 1 && self.mix.is_some() {
            return together(
                "--threads: packets of --mix have the order of the capture, which one thread keeps",
            );
        }
        if !(1..=MOST_THREADS).contains(&threads) {
            return wrong(format!("--threads: it is a number from 1 to {MOST_THREADS}"));
        }
        if self.generator == SendBy::Xdp && threads as usize > queues() {
            return wrong(format!(
                "--threads: with --generator af_xdp each has a queue of the link to itself, and links have {} here; ask for no \
                 more threads, or send by af_packet",
                queues()
            ));
        }
        if self.mix.is_some() && wanted.flows.is_some() && wanted.sizes.is_empty() {
            return wrong("--flows: packets of --mix have the flows of the capture; leave it out".into());
        }
        if self.burst.is_some_and(|n| !(1..=MOST_AT_ONCE).contains(&n)) {
            return wrong(format!("--burst: it is a number from 1 to {MOST_AT_ONCE}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'_> = Wanted { sizes: &[], usual: &["64", "1418"], flows: None };

    #[test]
    fn usual_sizes_have_room_for_the_marks_and_sizes_that_do_not_fit_are_refused_with_what_does() {
        let of = |o: &TrafficOptions, sizes: &[FrameSize]| {
            Traffic::of(o, Wanted { sizes, ..WANTED }, |largest| largest.max(1418) - 18)
        };
        let ipv6 = TrafficOptions { ipv6: true, threads: Some(3), ..TrafficOptions::default() };
        let traffic = of(&ipv6, &[]).expect("traffic");
        let sizes: Vec<String> = traffic.sizes.iter().map(|(size, _)| size.to_string()).collect();
        assert_eq!((sizes.join(" "), traffic.inner_mtu, traffic.flows), ("84 1418".into(), 1400, 66));
        assert!(traffic.sizes.iter().all(|(_, s)| s.family == Family::V6 && s.flows == 66));
        let refused = of(&ipv6, &[FrameSize::Bytes(64)]).expect_err("too small").to_string();
        assert!(refused.contains("frames of 64 bytes do not fit: write 84 or more"), "{refused}");
        let fixed = Traffic::of(&ipv6, Wanted { sizes: &[FrameSize::Bytes(1419)], ..WANTED }, |_| 1400);
        let refused = fixed.expect_err("too large").to_string();
        assert!(refused.contains("frames of 1419 bytes do not fit: write 1418 or less"), "{refused}");
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_and_what_is_sent_is_in_the_settings() {
        let refused = |change: fn(&mut TrafficOptions), word: &str| {
            let mut o = TrafficOptions::default();
            change(&mut o);
            let said = o.check(WANTED).expect_err(word).to_string();
            assert!(said.contains(word), "{said}");
        };
        refused(|o| (o.mix, o.burst) = (Some("x".into()), Some(2)), "--burst: packets of --mix");
        refused(|o| (o.mix, o.threads) = (Some("x".into()), Some(2)), "--threads: packets of --mix");
        refused(|o| o.threads = Some(65), "a number from 1 to 64");
        refused(|o| o.burst = Some(10_001), "a number from 1 to 10000");
        refused(|o| (o.threads, o.generator) = (Some(64), SendBy::Xdp), "a queue of the link to itself");
        let options = TrafficOptions {
            burst: Some(32),
            threads: Some(2),
            generator: SendBy::Xdp,
            ..TrafficOptions::default()
        };
        let traffic = Traffic::of(&options, WANTED, |_| 1400).expect("traffic");
        let said: Vec<String> = traffic.settings().into_iter().map(|(k, v)| format!("{k}: {v}")).collect();
        assert_eq!(said[..3], ["IP inside: IPv4", "flows: 64", "generator: af_xdp"]);
        assert!(
            said[3].starts_with("bursts: 32 packets at once") && said[4].starts_with("threads: 2 that send")
        );
        let manner = traffic.manner(FrameSize::Imix);
        assert_eq!(manner, Manner { pace: Pace::Bursts(32), threads: 2, by: SendBy::Xdp });
    }
}
