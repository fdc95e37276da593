//! Experiment E8, `lab tunnels`: many tunnels between two gateways, after the FreeS/WAN
//! measurements of 2000 (200 tunnels took minutes at each restart) and Bellovin's question of key
//! agility.
//!
//! For each number of tunnels: bring-up as after a reboot (`start_action = start`), the cost of
//! each tenth, memory, packets over random SAs, a restart, and what peers cost that are gone. Then
//! a gateway for more peers than a second one would leave room for, which are simulated
//! ([`crate::peer`]).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `plan` | options, and the systems and numbers of tunnels that are measured |
//! | `config` | addresses and files of thousands of tunnels |
//! | `credentials` | certificates of the gateways, and the cost of their signatures alone |
//! | `gateways` | two gateways, started and watched as processes |
//! | `growth` | cost of each tenth of the tunnels |
//! | `traffic` | packets over tunnels chosen at random |
//! | `trace` | SAs of the packets in a capture, for the cache of keys |
//! | `cache` | worth of a cache of keys |
//! | `restart` | the initiating gateway is restarted |
//! | `dead` | cost of peers that are gone |
//! | `simulated` | one gateway, and simulated peers |
//! | `one_more` | costs of one more tunnel and of a rekeying, for the planner |
//! | `conclude` | figures and views, made of the samples |

mod cache;
mod conclude;
mod config;
mod credentials;
mod dead;
mod gateways;
mod growth;
mod one_more;
mod plan;
mod restart;
mod simulated;
mod trace;
mod traffic;

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use super::beside::Beside;
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::runner::{self, Method, Schedule};
use crate::clock;
use crate::dut::{self, Encap};
use crate::error::LabError;
use crate::interrupt;
use crate::load::{self, Receiver};
use crate::process::{Journal, Process};
use crate::record::{Better, Factors, Record, factors};
use crate::report::Warning;
use crate::topology::{Node, Owner};
use cache::Trace;
use config::Config;
use credentials::{Credentials, Signatures};
use gateways::{Gateway, Ground, Seen, System, watch};
use growth::{all_up, growth, tenths};
use trace::Recorded;
use traffic::{Offer, PORT};

use plan::{Cell, Plan};

pub use credentials::TunnelAuth;
pub(super) use one_more::{one_more, rekeyed};
pub use plan::TunnelsOptions;

const ABOUT: About = About {
    name: "tunnels",
    number: "E8",
    question: "What do many tunnels cost: to bring up, to keep, to use, to bring back, and when their peers are gone?",
    measures: &[
        (
            "up_s",
            "all up s",
            "s",
            "from the initiating gateway's start until all tunnels are up at both ends",
            Better::Less,
        ),
        (
            "ready_s",
            "ready s",
            "s",
            "of this, until the initiating gateway said that it was ready",
            Better::Less,
        ),
        ("setups_per_s", "set-ups/s", "1/s", "tunnels over the time until all are up", Better::More),
        (
            "cpu_us",
            "us/tunnel",
            "us",
            "processor time of the gateways for a tunnel, start included",
            Better::Less,
        ),
        ("sign_us", "sign us", "us", "processor time of a signature alone", Better::Less),
        ("verify_us", "verify us", "us", "processor time of its verification alone", Better::Less),
        (
            "signatures_us",
            "us/tunnel",
            "us",
            "processor time of the signatures of a tunnel alone: two, and four verifications",
            Better::Less,
        ),
        ("growth", "growth", "1", "cost of a tunnel of the last tenth over one of the second", Better::Less),
        (
            "tenth_us",
            "us/tunnel",
            "us",
            "processor time of the gateways for a tunnel of this tenth",
            Better::Less,
        ),
        (
            "kib_loaded",
            "loaded KiB",
            "KiB",
            "resident size of the waiting gateway, configuration loaded",
            Better::Less,
        ),
        (
            "kib_per_tunnel",
            "KiB/tunnel",
            "KiB",
            "what its resident size has grown by since, for a tunnel",
            Better::Less,
        ),
        (
            "restart_s",
            "restart s",
            "s",
            "from SIGTERM to the initiating gateway until all are up again",
            Better::Less,
        ),
        ("stop_s", "of this stop s", "s", "until it had said goodbye to its peers and ended", Better::Less),
        (
            "ns_per_packet",
            "ns/packet",
            "ns",
            "processor time of both gateways for a packet at a fixed rate",
            Better::Less,
        ),
        (
            "cycles_per_packet",
            "cycles/packet",
            "cycles",
            "the same in cycles of the clock that the kernel shows",
            Better::Less,
        ),
        ("offered", "offered/s", "packets/s", "packets a second that left the generator", Better::Neither),
        (
            "carried",
            "carried/s",
            "packets/s",
            "packets a second that arrived, each over a random tunnel",
            Better::More,
        ),
        ("loss", "loss", "share", "share of the packets that left and did not arrive", Better::Less),
        ("dead_us", "us/peer/s", "us", "processor time a second for a peer that is gone", Better::Less),
        (
            "dead_packets",
            "packets/peer/s",
            "1/s",
            "packets a second sent to a peer that is gone",
            Better::Less,
        ),
        ("hit_rate", "hit rate", "share", "share of packets whose key is in the cache", Better::More),
    ],
    baseline: None,
};

/// Packets a second at which the cost of one is measured: every machine carries them.
const FIXED: f64 = 20_000.0;
/// More than any machine carries.
const FLOOD: f64 = 2_000_000.0;
/// Sizes of the key cache.
const CACHES: [usize; 8] = [1, 4, 16, 64, 256, 1024, 4096, 16_384];

/// Makes the experiment.
pub fn tunnels(options: TunnelsOptions) -> Result<Report, LabError> {
    let o = &options.common;
    let mut doubts = Vec::new();
    let plan = Plan::new(&options, &mut doubts)?;
    // A trace that cannot be read is reported before anything is measured.
    interrupt::install()?;
    let recorded = options.trace.as_deref().map(|file| Ok((file, trace::read(file, &CACHES)?)));
    let recorded: Option<(&Path, Recorded)> = recorded.transpose()?;
    let cells = plan.cells();
    let schedule = Schedule {
        about: ABOUT,
        common: o,
        samples: cells.len() * plan.repeats as usize * 3 + usize::from(plan.simulated > 0),
        guess: Duration::from_secs(3),
        repeats: plan.repeats,
        cells,
    };
    runner::run(schedule, &Work { common: o, plan: &plan, doubts, recorded })
}

/// The experiment under way.
struct Work<'a> {
    common: &'a Common,
    plan: &'a Plan,
    /// Doubts that are known before anything is measured.
    doubts: Vec<Warning>,
    /// The capture whose SPIs go through the caches of keys.
    recorded: Option<(&'a Path, Recorded)>,
}

/// The name of all boxes, and the tunnels of IronSwan's packets in their order, with the number of
/// tunnels: those measured last.
struct Measured {
    owner: Owner,
    /// Certificates of each authentication that has any.
    credentials: Vec<Credentials>,
    trace: Option<(u32, Trace)>,
}

impl Method for Work<'_> {
    type Cell = Cell;
    type Bench = Measured;

    fn prepare(&self, c: &mut Campaign) -> Result<Measured, LabError> {
        let o = self.common;
        self.doubts.iter().for_each(|d| c.doubt(d.clone()));
        c.trials_last(self.plan.window);
        for (name, value) in [
            ("suite", format!("{}, {}", o.dut_options.ike(), o.dut_options.esp())),
            ("packets", format!("{} B of UDP payload", traffic::PAYLOAD)),
            ("fixed rate", format!("{FIXED} packets/s for {} s", self.plan.window.as_secs_f64())),
            (
                "window of dead peers",
                format!("{} s, from when all have been tried once", self.plan.dead.as_secs_f64()),
            ),
        ] {
            c.settings.insert(name.into(), value);
        }
        for system in &self.plan.systems {
            for dut in dut::by_name(system.name(), &[Encap::Udp], &o.dut_options)?.iter().take(1) {
                c.versions.insert(system.name().into(), dut.version().unwrap_or_default());
            }
        }
        let owner = Owner::claim()?;
        let credentials = self.certify(c, &owner)?;
        Ok(Measured { owner, credentials, trace: None })
    }

    fn trial(
        &self,
        c: &mut Campaign,
        measured: &mut Measured,
        cell: &Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        let credentials = measured.credentials.iter().find(|all| all.auth == cell.auth);
        if let Some(alone) = Signatures::measure(cell.auth)? {
            let measures = [
                ("sign_us", alone.sign_us),
                ("verify_us", alone.verify_us),
                ("signatures_us", alone.of_a_tunnel()),
            ];
            let began = c.elapsed();
            c.sample(
                factors([("what", "signatures"), ("auth", &cell.auth.to_string())]),
                repeat,
                began,
                &measures,
                vec![],
            );
        }
        let own = one(c, &measured.owner, self.common, self.plan, cell, credentials, repeat)?;
        if let (Some(own), System::IronSwan(_)) = (own, &cell.system) {
            measured.trace = Some((cell.tunnels, own));
        }
        Ok(())
    }

    /// Lets the packets go through caches of keys, and measures a gateway with simulated peers.
    fn end(&self, c: &mut Campaign, Measured { owner, trace, .. }: Measured) -> Result<(), LabError> {
        if let Some((n, own)) = trace {
            key_caches(c, n, &own);
        }
        if let Some((file, recorded)) = &self.recorded {
            recorded_caches(c, file, recorded);
        }
        let mut systems = self.plan.systems.iter();
        match systems.find(|s| **s != System::StrongSwan) {
            Some(System::IronSwan(program)) if self.plan.simulated > 0 => {
                simulated::simulated(c, &owner, self.common, self.plan, program)
            }
            _ => Ok(()),
        }
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

impl Work<'_> {
    /// Makes the certificates of all ways to authenticate that have any.
    fn certify(&self, c: &mut Campaign, owner: &Owner) -> Result<Vec<Credentials>, LabError> {
        let program = self.common.dut_options.gateway().unwrap_or_default();
        let most = |auth: TunnelAuth| {
            self.plan.cells().iter().filter(|cell| cell.auth == auth).map(|cell| cell.tunnels).max()
        };
        let mut all = Vec::new();
        for auth in self.plan.auths.iter().filter(|auth| **auth != TunnelAuth::Psk) {
            let Some(tunnels) = most(*auth) else { continue };
            c.says(&format!("certificates: {auth}, {tunnels} tunnels"))?;
            let folder = owner.dir().join(format!("pki-{auth}"));
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&folder)
                .map_err(LabError::io(format!("creating {}", folder.display())))?;
            let peers = (0..tunnels).map(|tunnel| config::identity(1, tunnel));
            let made =
                Credentials::make(&Journal::default(), &program.to_string_lossy(), &folder, *auth, peers);
            // The files hold keys.
            let removed = std::fs::remove_dir_all(&folder);
            all.push(made?);
            removed.map_err(LabError::io(format!("removing {}", folder.display())))?;
        }
        Ok(all)
    }
}

fn of(what: &str, system: &str, n: u32) -> Factors {
    factors([("what", what), ("dut", system), ("tunnels", &n.to_string())])
}

/// Everything about one system with one number of tunnels; the tunnels of its packets, in their
/// order.
fn one(
    c: &mut Campaign,
    owner: &Owner,
    o: &Common,
    plan: &Plan,
    cell: &Cell,
    credentials: Option<&Credentials>,
    repeat: u32,
) -> Result<Option<Trace>, LabError> {
    let (system, n, dut) = (&cell.system, cell.tunnels, &*cell.dut());
    let suite = &o.dut_options.suites[0];
    // strongSwan's ESP in user space knows UDP only; both get the same.
    // With MOBIKE charon tells its peer of all its addresses, of every tunnel, on every IKE_SA.
    let more = if *system == System::StrongSwan { "    mobike = no\n" } else { "" };
    let config = Config {
        tunnels: n,
        suite,
        key: &plan.key,
        credentials,
        initiator: 0,
        encap: true,
        hub: false,
        more,
        rekey: None,
    };
    let at_most = Duration::from_secs(30) + Duration::from_millis(10) * n;
    c.says(&format!("{dut}, {n} tunnels: coming up"))?;
    let began = c.elapsed();
    let mut ground = Ground::new(owner, system, &config)?;
    let mut g2 = ground.start_responder(1)?;
    let loaded = g2.kib();
    let (mut g1, loading) = ground.start(0)?;
    let own: Vec<u32> = loading.iter().map(Process::id).collect();
    let beside = Beside::start(c, &ground.line, &own)?;
    let both = |said: &[gateways::Said]| Ok(said.iter().map(|s| s.established).min().unwrap_or(0));
    let seen = watch(&mut [&mut g1, &mut g2], n.into(), at_most, both)?;
    let kib = (g2.kib() - loaded) / f64::from(n);
    let mut more = vec![("kib_loaded", loaded), ("kib_per_tunnel", kib)];
    more.extend(beside.stop(&ground.line)?);
    if !bring_up(c, &seen, of("bring-up", dut, n), n, repeat, began, &more) {
        let reached = seen.moments.last().map_or(0, |m| m.up);
        for (side, gateway) in [&g1, &g2].into_iter().enumerate() {
            c.keep(&format!("{dut}-{n}-{repeat}-g{}.log", side + 1), gateway.tail().as_bytes())?;
        }
        c.doubt(Warning::NotAllUp {
            dut: dut.into(),
            tunnels: n.into(),
            up: reached,
            seconds: at_most.as_secs_f64(),
        });
        return Ok(None);
    }
    c.says(&format!("{dut}, {n} tunnels: packets"))?;
    let trace = packets(c, &ground, [&mut g1, &mut g2], plan, of("traffic", dut, n), n, repeat)?;
    c.says(&format!("{dut}, {n} tunnels: restart"))?;
    restart::restart(c, &mut ground, [g1, g2], of("restart", dut, n), (n, at_most), repeat)?;
    if plan.most().contains(&n) {
        c.says(&format!("{dut}, {n} peers that are gone"))?;
        dead::dead(c, &mut ground, plan, of("dead", dut, n), n, repeat)?;
    }
    c.ran(ground.line.journal().lines().into_iter().filter(|l| !l.contains("/proc")).take(40));
    Ok(Some(trace))
}

/// Takes a bring-up down; false when not all came up.
fn bring_up(
    c: &mut Campaign,
    seen: &Seen,
    what: Factors,
    n: u32,
    repeat: u32,
    began: f64,
    more: &[(&str, f64)],
) -> bool {
    let (tunnels, cpu) = (f64::from(n), seen.moments.last().map_or(f64::NAN, |m| m.cpu_ns));
    let Some(seconds) = all_up(&seen.moments, n.into()) else { return false };
    let tenths = tenths(&seen.moments, n.into());
    let mut measures = vec![
        ("up_s", seconds),
        ("ready_s", seen.ready.unwrap_or(f64::NAN)),
        ("setups_per_s", tunnels / seconds),
        ("cpu_us", cpu / tunnels / 1e3),
        ("growth", tenths.as_ref().map_or(f64::NAN, growth)),
    ];
    measures.extend_from_slice(more);
    let dut = what.get("dut").cloned().unwrap_or_default();
    let name = format!("{}-{dut}-{n}-{repeat}.csv", what.get("what").map_or("", String::as_str));
    let rows = seen.moments.iter().map(|m| format!("{:.4},{},{:.0}\n", m.seconds, m.up, m.cpu_ns));
    let text = format!("seconds,up,cpu_ns\n{}", rows.collect::<String>());
    let files: Vec<String> = c.keep(&name, text.as_bytes()).into_iter().collect();
    for (tenth, ns) in tenths.iter().flatten().enumerate() {
        let mut factors = what.clone();
        factors.insert("what".into(), format!("{} by tenths", what["what"]));
        factors.insert("tenth".into(), (tenth + 1).to_string());
        c.sample(factors, repeat, began, &[("tenth_us", ns / 1e3)], vec![]);
    }
    grows(&dut, n, tenths.as_ref()).into_iter().for_each(|d| c.doubt(d));
    c.sample(what, repeat, began, &measures, files);
    true
}

/// Warns when each further tunnel costs more than those before, as the tenths of the tunnels show.
fn grows(dut: &str, n: u32, tenths: Option<&[f64; 10]>) -> Option<Warning> {
    // With fewer tunnels a tenth is over in some tens of milliseconds, in which anything can
    // happen.
    let growth = tenths.map(growth).filter(|g| *g > 1.2 && n >= 5_000)?;
    Some(Warning::CostGrows { dut: dut.into(), tunnels: n.into(), growth })
}

/// Packets over random tunnels: at a fixed rate, for their cost, and as many as go.
fn packets(
    c: &mut Campaign,
    ground: &Ground,
    mut gateways: [&mut Gateway; 2],
    plan: &Plan,
    what: Factors,
    n: u32,
    repeat: u32,
) -> Result<Trace, LabError> {
    let brief = ground.line.ip(Node::G1, &["-br", "link", "show", "dev", "lan"])?;
    let next_hop = load::parse_ethernet(&brief)
        .ok_or_else(|| LabError::Measurement("the link of g1 has no Ethernet address".into()))?;
    let mut run = |rate: f64, duration: Duration, tag: u32| {
        let (offer, epoch) = (Offer { tunnels: n, rate, duration, tag }, clock::now());
        let receiver = Receiver::start(ground.line.node(Node::B), PORT, offer.shape(), epoch, None)?;
        let cpu = |gateways: &[&mut Gateway; 2]| gateways.iter().map(|g| g.cpu_ns()).sum::<u64>();
        let (before, start) = (cpu(&gateways), clock::now());
        let trace = traffic::send(ground.line.node(Node::A), next_hop, offer, epoch)?;
        let seconds = (clock::now() - start).as_secs_f64();
        let (received, used) = (receiver.finish().received.unique, cpu(&gateways).saturating_sub(before));
        // The CPU time of a gateway that has ended is not known any more, so the trial fails.
        gateways.iter_mut().try_for_each(|g| g.said().map(drop))?;
        Ok::<_, LabError>((trace, received as f64, used as f64, seconds))
    };
    let tag = ground.line.number() << 16 | repeat << 2;
    // Neighbours, routes and paths are looked up before it counts.
    run(FIXED, Duration::from_millis(200), tag)?;
    let (began, beside) = (c.elapsed(), Beside::start(c, &ground.line, &[])?);
    let (trace, received, ns, _) = run(FIXED, plan.window, tag + 1)?;
    let at_fixed = beside.stop(&ground.line)?;
    let (flood, carried, _, seconds) = run(FLOOD, plan.window, tag + 2)?;
    if received == 0.0 {
        let (why, logs) = (format!("{n} tunnels are up and carry nothing"), gateways.map(|g| g.last_lines()));
        let dut = what.get("dut").cloned().unwrap_or_default();
        return Err(LabError::Dut { dut, why, logs: logs.into() });
    }
    let dut = what.get("dut").map_or("", String::as_str);
    beyond(dut, n, &[(trace.len(), received), (flood.len(), carried)]).into_iter().for_each(|d| c.doubt(d));
    let loss = 1.0 - received / trace.len().max(1) as f64;
    let mut measures = vec![
        ("ns_per_packet", ns / received),
        // Not finite, so left out, where the clock is not known.
        ("cycles_per_packet", c.machine().mhz.map_or(f64::NAN, |mhz| ns / received * mhz / 1e3)),
        // Less than nothing is not lost; where more came than was sent, that is said.
        ("loss", loss.max(0.0)),
        ("offered", flood.len() as f64 / seconds),
        ("carried", carried / seconds),
    ];
    measures.extend(at_fixed);
    c.sample(what, repeat, began, &measures, vec![]);
    Ok(trace)
}

/// Warns when more packets arrived than were sent. Each packet has a number, and no number counts
/// twice.
fn beyond(dut: &str, tunnels: u32, loads: &[(usize, f64)]) -> Option<Warning> {
    let wrong: Vec<_> = loads.iter().filter(|(sent, received)| *received > *sent as f64).collect();
    let (sent, received) = wrong.first()?;
    Some(Warning::Impossible {
        dut: dut.into(),
        cell: format!("{tunnels} tunnels"),
        what: format!("{received} packets arrived of {sent} that were sent"),
        more: wrong.len() - 1,
    })
}

/// Records the hit rates of key caches for the packets of the run, and for traces in which a few
/// SAs are popular.
fn key_caches(c: &mut Campaign, n: u32, own: &Trace) {
    let packets = own.len().clamp(10_000, 200_000);
    let traces = [
        ("uniform, as sent in this run", own.clone()),
        ("Zipf, generated", cache::zipf(n, packets, 1, 11)),
        ("Zipf in trains of 8, generated", cache::zipf(n, packets, 8, 12)),
    ];
    for (name, trace) in &traces {
        for entries in CACHES.into_iter().filter(|e| *e < 4 * n as usize) {
            key_cache(c, name, n as usize, entries, cache::hit_rate(trace, entries));
        }
    }
}

/// Records the hit rates of key caches for a trace from a file.
fn recorded_caches(c: &mut Campaign, file: &Path, found: &Recorded) {
    let Recorded { packets, esp, sas, cut, hit_rates } = found;
    let end = if *cut { "; it ends within a packet" } else { "" };
    c.settings.insert(
        "trace".into(),
        format!("{}: {esp} of {packets} packets are ESP, of {sas} SAs{end}", file.display())
            .replace(char::is_control, " "),
    );
    for (entries, rate) in hit_rates.iter().filter(|(entries, _)| *entries < 4 * sas) {
        key_cache(c, "recorded", *sas, *entries, *rate);
    }
}

fn key_cache(c: &mut Campaign, trace: &str, sas: usize, entries: usize, rate: f64) {
    let of = [("trace", trace), ("tunnels", &sas.to_string()), ("entries", &entries.to_string())];
    let factors = factors::<4>([("what", "key cache"), of[0], of[1], of[2]]);
    let began = c.elapsed();
    c.sample(factors, 0, began, &[("hit_rate", rate)], vec![]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_grows_with_the_square_of_the_tunnels_is_said_and_one_in_proportion_is_not() {
        let said = |n: u32, cost: fn(f64) -> f64| {
            let moment = |up| growth::Moment { seconds: 1.0, up, cpu_ns: cost(up as f64) };
            let seen: Vec<_> = (0..=u64::from(n)).step_by(10).map(moment).collect();
            grows("x", n, tenths(&seen, n.into()).as_ref())
        };
        assert_eq!(said(10_000, |n| n * 5e5), None);
        let grown = said(10_000, |n| n * n * 1e3).expect("a doubt");
        assert_eq!(grown.kind(), "cost-grows");
        assert!(
            grown.text().starts_with("x: of 10000 tunnels one of the last tenth cost 6.33 times"),
            "{}",
            grown.text()
        );
        // A tenth of few tunnels is too short to tell, and of none there are no tenths.
        assert_eq!((said(1_000, |n| n * n * 1e3), said(50, |n| n * n * 1e3)), (None, None));
    }

    #[test]
    fn more_packets_than_were_sent_are_impossible() {
        assert_eq!(beyond("x", 3, &[(10, 10.0), (0, 0.0)]), None);
        let text = beyond("x", 3, &[(10, 9.0), (10, 11.0), (5, 6.0)]).expect("a doubt").text();
        assert!(
            text.starts_with("x, 3 tunnels: 11 packets arrived of 10 that were sent (and 1 more):"),
            "{text}"
        );
    }
}
