//! Which loads a calibration measures, and which it keeps back for the verification. Named here,
//! before anything is measured. Pure.

use std::time::Duration;

use crate::dut::DutOptions;
use crate::plan::mix::{LARGEST, Mix};
use crate::plan::model::{FLOWS, Path, Way};

/// Suites that the paths are fitted with: one that costs little beside the path, and one that costs
/// much.
pub(super) const FITTED: [&str; 2] = ["aes128gcm16", "aes128-sha256"];
/// The suite that is kept back.
pub(super) const KEPT_SUITE: &str = "chacha20poly1305";
/// MTU of the hosts' routes.
pub(super) const MTU: u32 = 1400;

/// Sizes that are kept back.
const KEPT_FRAMES: [u32; 2] = [390, 1280];
/// Rates that are kept back, packets a second.
const KEPT_RATES: [f64; 2] = [15_000.0, 40_000.0];
/// Frames that the paths are fitted with.
const FRAMES: [u32; 4] = [64, 256, 768, LARGEST];
/// Three sizes in a row, as a frame.
const ROWS: u32 = 0;
/// Packets a second that the paths are fitted with, and the frames at each: from a gateway that is
/// woken for every packet on.
const LOADS: [(f64, &[u32]); 5] = [
    (2_000.0, &[256]),
    (8_000.0, &[64, LARGEST]),
    (18_000.0, &[256]),
    (25_000.0, &[64, LARGEST]),
    (60_000.0, &[64, 256, LARGEST, ROWS]),
];
/// At the highest rates.
const HIGHEST: [u32; 3] = [64, LARGEST, ROWS];
/// TCP, 10^6 bits per second.
const STREAMS: [u32; 2] = [100, 500];
/// Of the calibration, measured again with the verification.
const AGAIN: [(f64, u32); 2] = [(8_000.0, LARGEST), (25_000.0, 64)];
/// Packets a second without a tunnel: one of those above.
const PLAIN_RATE: f64 = 60_000.0;
/// Packets a second that come in bursts: without these hardly any would share a call.
const BURST_RATE: f64 = 4_000.0;
/// So few that a debug build on a busy machine carries them.
const SMOKE_RATE: f64 = 1_000.0;
/// Around a load of packets: until the way is quiet, and the daemons have told their counters.
const AROUND: Duration = Duration::from_millis(300);
/// TCP's start, and for how long it goes on after what is measured.
const TCP_START: Duration = Duration::from_millis(700);
const TCP_AFTER: Duration = Duration::from_millis(500);

/// Kind of a load.
#[derive(Debug, Clone)]
pub(super) enum Load {
    /// Packets of a mix over a line of two gateways, so many a second.
    Packets(Mix, f64),
    /// Packets of a mix one way through one gateway alone, at the highest rate that it carries.
    Highest(Mix, Way),
    /// TCP, 10^6 bits per second.
    Tcp(u32),
    /// A load for one suite and path alone, in so many flows, with so many packets at once.
    Only { suite: &'static str, path: Path, flows: u32, burst: u32, load: Box<Load> },
}

impl Load {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Packets(mix, pps) => format!("{} at {pps:.0} packets/s", mix.name),
            Self::Highest(mix, way) => format!("{} {} at the highest rate", mix.name, way.name()),
            Self::Tcp(mbps) => format!("TCP at {mbps} Mb/s"),
            Self::Only { flows, burst, load, .. } => {
                format!("{}, {flows} flows, {burst} at once", load.name())
            }
        }
    }

    /// Packets of the load.
    pub(super) fn mix(&self) -> Mix {
        match self {
            Self::Packets(mix, _) | Self::Highest(mix, _) => mix.clone(),
            Self::Tcp(_) => Mix::tcp(),
            Self::Only { load, .. } => load.mix(),
        }
    }

    /// Whether it is measured several times: TCP takes long, and a longer load says as much.
    pub(super) fn is_repeated(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// The way that it goes through one gateway alone; absent where it goes over a line of two.
    pub(super) fn alone(&self) -> Option<Way> {
        match self {
            Self::Highest(_, way) => Some(*way),
            Self::Packets(..) | Self::Tcp(_) => None,
            Self::Only { load, .. } => load.alone(),
        }
    }

    /// Flows, where they are not those of every other load.
    pub(super) fn flows(&self) -> Option<u32> {
        match self {
            Self::Only { flows, .. } => Some(*flows).filter(|n| *n != FLOWS),
            Self::Packets(..) | Self::Highest(..) | Self::Tcp(_) => None,
        }
    }

    /// Packets that come at once, where they are not evenly spaced.
    pub(super) fn burst(&self) -> Option<u32> {
        match self {
            Self::Only { burst, .. } => Some(*burst).filter(|n| *n > 1),
            Self::Packets(..) | Self::Highest(..) | Self::Tcp(_) => None,
        }
    }

    /// Suite and path that it is for alone.
    pub(super) fn only(&self) -> Option<(&'static str, Path)> {
        match self {
            Self::Only { suite, path, .. } => Some((suite, *path)),
            Self::Packets(..) | Self::Highest(..) | Self::Tcp(_) => None,
        }
    }

    /// Packets a second that are offered; absent where it is the highest rate.
    pub(super) fn offered(&self) -> Option<f64> {
        match self {
            Self::Packets(_, pps) => Some(*pps),
            Self::Highest(..) => None,
            Self::Tcp(mbps) => Some(f64::from(*mbps) * 1e6 / 8.0 / Mix::tcp().bytes()),
            Self::Only { load, .. } => load.offered(),
        }
    }

    /// Whether it is measured with that suite on that path: what takes long is not with all. What
    /// raw ESP costs beside crypto follows from frames of one size with one suite, and what TCP
    /// costs from one suite.
    pub(super) fn is_for(&self, suite: &str, path: Path) -> bool {
        match self {
            Self::Packets(..) => true,
            Self::Highest(mix, _) => path == Path::Udp || (suite != FITTED[1] && mix.parts.len() == 1),
            Self::Tcp(_) => suite == FITTED[0],
            Self::Only { suite: own, path: of, .. } => *own == suite && *of == path,
        }
    }
}

/// How thoroughly.
#[derive(Debug, Clone)]
pub struct CalibrateOptions {
    /// Suites to measure besides those that the paths are fitted with; the usual ones when empty.
    pub suites: Vec<String>,
    /// The `ironswan` program; looked for when absent ([`DutOptions::gateway`]).
    pub program: Option<std::path::PathBuf>,
    /// Another system to calibrate than IronSwan.
    pub dut: Option<String>,
    /// Repeats of each load.
    pub repeats: u32,
    /// Length of a load.
    pub load: Duration,
    /// About a minute: one repeat of shorter loads, TCP at one rate, fewer tunnels, less time for
    /// what is measured alone.
    pub quick: bool,
    /// Some seconds: shows that everything works, its figures mean nothing.
    pub smoke: bool,
    /// A CPU soaker runs beside the loads on lines with tunnels.
    pub soaker: bool,
    /// A model of a machine that was disturbed is kept, too.
    pub anyway: bool,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        let load = Duration::from_millis(240);
        Self {
            suites: vec![],
            program: None,
            dut: None,
            repeats: 2,
            load,
            quick: false,
            smoke: false,
            soaker: false,
            anyway: false,
        }
    }
}

impl CalibrateOptions {
    /// Options of the systems under test that name the gateway to measure.
    pub(super) fn gateway(&self) -> DutOptions {
        DutOptions { ironswan: self.program.clone(), ..DutOptions::default() }
    }

    /// One of three by how thorough it is.
    pub(super) fn by_care<T>(&self, full: T, quick: T, smoke: T) -> T {
        match (self.smoke, self.quick) {
            (true, _) => smoke,
            (false, true) => quick,
            (false, false) => full,
        }
    }

    pub(super) fn repeats(&self) -> u32 {
        self.by_care(self.repeats.max(1), 1, 1)
    }

    /// Suites that the paths are fitted with.
    pub(super) fn fitted(&self) -> &'static [&'static str] {
        if self.smoke { &FITTED[..1] } else { &FITTED }
    }

    /// Frames that are forwarded without a tunnel.
    pub(super) fn plain(&self) -> &'static [u32] {
        if self.smoke { &FRAMES[..1] } else { &[64, LARGEST] }
    }

    /// Lengths of a load without a tunnel: the usual one, and the longest, which makes enough clock
    /// ticks for a cost. A run that shows that everything works has no time for that.
    pub(super) fn plain_load(&self) -> (Duration, Duration) {
        (self.load(), if self.smoke { self.load() } else { self.load() * 8 })
    }

    /// Packets a second without a tunnel.
    pub(super) fn plain_rate(&self) -> f64 {
        if self.smoke { SMOKE_RATE } else { PLAIN_RATE }
    }

    /// Packets a second in bursts.
    pub(super) fn burst_rate(&self) -> f64 {
        if self.smoke { SMOKE_RATE } else { BURST_RATE }
    }

    /// Repeats without a tunnel: what is looked for is a small difference.
    pub(super) fn plain_repeats(&self) -> u32 {
        if self.smoke { 1 } else { self.repeats() * 2 }
    }

    /// Numbers of tunnels that are brought up.
    pub(super) fn tunnels(&self) -> [u32; 2] {
        self.by_care([100, 1_000], [50, 300], [3, 50])
    }

    /// Rounds in which tunnels are rekeyed, once a second.
    pub(super) fn rounds(&self) -> u32 {
        self.by_care(4, 3, 2)
    }

    /// Loads that the paths are fitted with.
    pub(super) fn loads(&self) -> Vec<Load> {
        let smoke: [(f64, &[u32]); 1] = [(SMOKE_RATE, &[64])];
        let all: &[(f64, &[u32])] = if self.smoke { &smoke } else { &LOADS };
        let streams = self.by_care(&STREAMS[..], &STREAMS[..1], &STREAMS[..1]);
        let packets = all.iter().flat_map(|(rate, frames)| frames.iter().map(|f| (mix(*f), *rate)));
        let packets = packets.map(|(mix, rate)| Load::Packets(mix, rate));
        packets.chain(streams.iter().map(|mbps| Load::Tcp(*mbps))).collect()
    }

    /// The highest rates of one gateway that they are fitted with, each searched for once.
    pub(super) fn highest(&self) -> Vec<Load> {
        both_ways(self.by_care(&HIGHEST[..], &HIGHEST[..2], &HIGHEST[2..]).iter().map(|f| mix(*f)))
    }

    /// Trials of a search for one of these at most.
    pub(super) fn trials(&self) -> u32 {
        self.by_care(18, 10, 3)
    }

    /// About how long a search takes, before its last trial.
    fn search(&self) -> Duration {
        Duration::from_millis(self.by_care(900, 700, 250))
    }

    /// How many measurements that is.
    pub(super) fn steps(&self) -> usize {
        let (again, once): (Vec<Load>, Vec<Load>) = self.loads().into_iter().partition(Load::is_repeated);
        let of = |loads: &[Load]| measurements(loads, self.fitted());
        of(&again) * self.repeats() as usize + of(&once) + of(&self.highest())
    }

    /// The rates that are kept back.
    fn kept_rates(&self) -> &'static [f64] {
        if self.smoke { &[SMOKE_RATE] } else { &KEPT_RATES }
    }

    /// Sizes that are kept back, at the rates that are, and at the highest.
    pub(super) fn kept_sizes(&self) -> Vec<Load> {
        self.kept(|| KEPT_FRAMES.map(Mix::frames).into_iter().chain([Mix::imix()]))
    }

    /// Loads of the suite that is kept back.
    pub(super) fn kept_suite(&self) -> Vec<Load> {
        let frames = if self.smoke { &FRAMES[..1] } else { &FRAMES };
        self.kept(|| frames.iter().map(|f| Mix::frames(*f)))
    }

    fn kept<M: Iterator<Item = Mix>>(&self, mixes: impl Fn() -> M) -> Vec<Load> {
        let at = |rate: &f64| {
            let rate = *rate;
            mixes().map(move |m| Load::Packets(m, rate))
        };
        let highest = if self.smoke { Vec::new() } else { both_ways(mixes()) };
        self.kept_rates().iter().flat_map(at).chain(highest).collect()
    }

    /// Loads of the calibration that are measured again.
    pub(super) fn again(&self) -> Vec<Load> {
        let all = if self.smoke { &[(SMOKE_RATE, 64)] } else { &AGAIN[..] };
        all.iter().map(|(pps, frame)| Load::Packets(Mix::frames(*frame), *pps)).collect()
    }

    /// About how long a calibration takes, with starting the gateways.
    pub(super) fn guess(&self) -> Duration {
        let one = |load: &Load| match load {
            Load::Packets(..) => self.load() + AROUND,
            Load::Highest(..) => self.load() + self.search(),
            // iperf3 counts in whole seconds.
            Load::Tcp(_) => {
                let (_, whole) = around(self.load() * 2);
                Duration::from_secs(whole.as_millis().div_ceil(1_000) as u64) + AROUND
            }
            // Of no calibration.
            Load::Only { .. } => Duration::ZERO,
        };
        let rigs = || self.fitted().iter().flat_map(|suite| Path::BOTH.map(|path| (suite, path)));
        let all = |loads: Vec<Load>| -> Duration {
            let own = |(suite, path): (&&str, Path)| -> Duration {
                loads.iter().filter(|l| l.is_for(suite, path)).map(one).sum()
            };
            rigs().map(own).sum()
        };
        let (again, once): (Vec<Load>, Vec<Load>) = self.loads().into_iter().partition(Load::is_repeated);
        let loads = all(again) * self.repeats() + all(once) + all(self.highest());
        let plain = (self.load() + AROUND) * (self.plain().len() as u32 * self.plain_repeats() * 2);
        let counts = super::flows::COUNTS.len() + super::flows::LENGTHS.len();
        let flows = (self.load() + AROUND) * (counts as u32 * self.repeats());
        // Two gateways, two ways.
        let workers =
            (self.load() + self.search()) * (4 * self.by_care(2, 1, 1)) + Duration::from_millis(1_600);
        let alone = Duration::from_secs(self.by_care(14, 6, 1) + u64::from(self.rounds()));
        // Lines, and gateways alone.
        let highest = self.highest();
        let single = rigs().filter(|(suite, path)| highest.iter().any(|l| l.is_for(suite, *path)));
        let started = rigs().count() + single.count();
        loads + plain + flows + workers + Duration::from_millis(800) * started as u32 + alone
    }

    pub(super) fn load(&self) -> Duration {
        self.by_care(self.load, Duration::from_millis(150), Duration::from_millis(60))
    }
}

/// TCP that is measured for so long: its start, which is left out, and how long it goes on in all.
/// The start is half as long again as what is measured, and no longer than it takes.
pub(super) fn around(measured: Duration) -> (Duration, Duration) {
    let start = TCP_START.min(measured * 3 / 2);
    (start, start + measured + TCP_AFTER)
}

/// Frames of a calibration.
fn mix(frame: u32) -> Mix {
    match frame {
        ROWS => Mix::rows("rows", [64, 256, 768]),
        frame => Mix::frames(frame),
    }
}

/// Each through one gateway alone, encrypting and decrypting.
fn both_ways(mixes: impl Iterator<Item = Mix>) -> Vec<Load> {
    mixes.flat_map(|mix| Way::BOTH.map(|way| Load::Highest(mix.clone(), way))).collect()
}

/// How many there are of these loads with these suites.
pub(super) fn measurements(loads: &[Load], suites: &[&str]) -> usize {
    let on = |path| suites.iter().map(move |suite| (suite, path));
    let rigs = Path::BOTH.into_iter().flat_map(on);
    rigs.map(|(suite, path)| loads.iter().filter(|l| l.is_for(suite, path)).count()).sum()
}

/// Loads that are kept out of the fit, as text.
pub(super) fn held_back() -> Vec<String> {
    let frames = KEPT_FRAMES.map(|f| format!("frames of {f} B")).into_iter();
    let rates = KEPT_RATES.map(|r| format!("{r:.0} packets/s")).into_iter();
    let more = ["imix".to_string(), format!("all of {KEPT_SUITE} but its crypto alone")];
    frames.chain(rates).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_is_in_no_load_of_the_calibration() {
        assert!(!FITTED.contains(&KEPT_SUITE));
        assert!(KEPT_FRAMES.iter().all(|f| !FRAMES.contains(f)));
        assert!(LOADS.iter().all(|(_, frames)| frames.iter().all(|f| *f == ROWS || FRAMES.contains(f))));
        assert!(LOADS.iter().all(|(rate, _)| KEPT_RATES.iter().all(|kept| rate != kept)));
        assert!(HIGHEST.iter().all(|f| *f == ROWS || FRAMES.contains(f)));
        assert!(held_back().iter().any(|h| h.contains("390")) && held_back().contains(&"imix".to_string()));
    }

    #[test]
    fn what_is_measured_again_or_added_up_is_in_the_calibration() {
        let has = |pps: f64, frame| LOADS.iter().any(|(rate, f)| *rate == pps && f.contains(&frame));
        assert!(AGAIN.iter().all(|(pps, frame)| has(*pps, *frame)));
        assert!(has(PLAIN_RATE, 64) && has(PLAIN_RATE, LARGEST));
        for smoke in [false, true] {
            let o = CalibrateOptions { smoke, ..CalibrateOptions::default() };
            let own = |load: &Load| o.loads().iter().any(|l| l.name() == load.name());
            assert!(o.again().iter().all(own) && !o.kept_sizes().iter().any(own));
            // Ten loads with two suites on two paths, twice; TCP with one on both, once; what is
            // the highest two ways: three sizes on two rigs and two on one.
            let full = 10 * 2 * 2 * 2 + 2 * 2 + (3 * 2 + 2) * 2;
            assert_eq!(o.steps(), if smoke { 2 + 2 + 2 } else { full });
        }
    }

    #[test]
    fn a_calibration_takes_two_to_three_minutes_a_quick_one_about_one_and_its_smoke_some_seconds() {
        let quick = CalibrateOptions { quick: true, ..CalibrateOptions::default() };
        assert!(quick.guess() < Duration::from_secs(65), "{:?}", quick.guess());
        let guess = |smoke| CalibrateOptions { smoke, ..CalibrateOptions::default() }.guess();
        assert!(guess(false) < Duration::from_secs(150), "{:?}", guess(false));
        assert!(guess(true) < Duration::from_secs(20), "{:?}", guess(true));
    }
}
