//! A calibration of another system than IronSwan: the same loads over a line of two of its
//! gateways, and over the same line without a tunnel, in turns. A kernel's work is in no process,
//! so a packet costs what the machine took for it beyond plain forwarding, half of it at each end.
//! What crypto is of that, and how packets gather, nobody counts: both are in the base and in its
//! bytes.

use std::time::Duration;

use super::bench::FIRST;
use super::doubts::{calm, haste, lost};
use super::loads::{CalibrateOptions, Load, MTU};
use super::{forward, general_doubts, rig, suite};
use crate::clock::{self, Utc};
use crate::dut::{self, Dut, DutOptions, Encap};
use crate::error::LabError;
use crate::experiment::driver;
use crate::experiment::placement::{Placement, Spread};
use crate::experiment::rig::Rig;
use crate::interrupt;
use crate::load::Iperf3;
use crate::machine::{self, Fingerprint};
use crate::measure::{Watch, cost};
use crate::plan::model::{
    ALONE, Cell, Forwarding, Handshake, MODEL_SCHEMA, ManySas, Model, Path, Seen, Side, System, TunnelCost,
    Way,
};
use crate::plan::paths::path_cost;
use crate::plan::suite::{BURSTS, Burst, Linear, SuiteCost};
use crate::report::{Progress, Warning};
use crate::topology::{Line, Mode, Owner};

/// Measurements of another system.
pub(super) struct Measured {
    pub(super) system: System,
    pub(super) suite: SuiteCost,
    pub(super) forwarding: Forwarding,
    pub(super) cells: Vec<Cell>,
    /// Ways to carry packets that it has.
    pub(super) paths: Vec<Path>,
}

/// The system of that name, once for each way to carry packets, with the suite that it is measured
/// with.
fn chosen(name: &str, o: &CalibrateOptions) -> Result<(Vec<Box<dyn Dut>>, SuiteCost), LabError> {
    if ["ironswan", "plain"].contains(&name) {
        return Err(LabError::Usage(format!(
            "--dut {name}: IronSwan is calibrated without --dut, and plain forwarding is a part of every calibration; name another \
             system"
        )));
    }
    let named = o.suites.first().map(String::as_str);
    let own = own_suite(name);
    let suite = match (own, named, o.suites.len()) {
        (Some(_), Some(_), _) => {
            return Err(LabError::Usage(format!(
                "--suite: {name} has a suite of its own; leave the option out"
            )));
        }
        (_, _, 2..) => {
            return Err(LabError::Usage(format!("--suite: {name} is calibrated with one suite at a time")));
        }
        (Some((suite, fixed_bytes, block)), ..) => without_crypto(suite, fixed_bytes, block),
        (None, ..) => {
            let esp = named.unwrap_or("aes128gcm16");
            let (fixed_bytes, block) = driver::work::layout(&suite::by_name(esp)?)?;
            without_crypto(esp, fixed_bytes, block)
        }
    };
    let esp = if own.is_some() { "aes128gcm16" } else { &suite.suite };
    let suites = vec![esp.parse().map_err(LabError::Usage)?];
    let options = DutOptions { suites, ..o.gateway() };
    Ok((dut::by_name(name, &[Encap::Udp, Encap::Raw], &options)?, suite))
}

/// Suite of a system that has but one: its name, bytes beside the text, and the block.
fn own_suite(system: &str) -> Option<(&'static str, u32, u32)> {
    match system {
        // Type, receiver, counter, tag.
        "kernel-wireguard" | "wireguard-go" | "wireguard-go-tailscale" => Some(("chacha20poly1305", 32, 16)),
        // Opcode with peer, packet id, tag.
        "openvpn" => Some(("aes128gcm16", 24, 1)),
        _ => None,
    }
}

/// A suite whose time is in the path's.
fn without_crypto(name: &str, fixed_bytes: u32, block: u32) -> SuiteCost {
    let nothing = Linear { per_packet: 0.0, per_byte: 0.0, residual: 0.0 };
    SuiteCost {
        suite: name.into(),
        engines: "its own".into(),
        bursts: BURSTS.map(|packets| Burst { packets, seal: nothing, open: nothing }),
        fixed_bytes,
        block,
    }
}

/// Refuses a system that cannot be measured here, with everything that it lacks.
pub(super) fn fit_to_measure(name: &str, o: &CalibrateOptions) -> Result<(), LabError> {
    let (duts, _) = chosen(name, o)?;
    let mut lacks = machine::lacks_privilege();
    lacks.extend(Line::lacks(Mode::Wire));
    lacks.extend(Iperf3::lacks());
    lacks.extend(duts.iter().flat_map(|dut| dut.lacks()));
    crate::experiment::line::once(&mut lacks);
    if lacks.is_empty() { Ok(()) } else { Err(LabError::Unfit(lacks)) }
}

/// Measures and fits another system than IronSwan.
pub(super) fn calibrate(o: &CalibrateOptions, name: &str) -> Result<Model, LabError> {
    fit_to_measure(name, o)?;
    interrupt::install()?;
    interrupt::check()?;
    let owner = Owner::claim()?;
    let (machine, began, ticks) = (Fingerprint::take(), clock::now(), rig::cpu()?);
    let mut watch = Watch::begin(&machine);
    let made = Utc::from_epoch(clock::since_epoch()).rfc3339();
    let mut progress = Progress::new(steps(o), Duration::from_millis(1_500));
    let measured = measure(name, &owner, o, &mut watch, &mut progress)?;
    drop(progress);
    let Measured { system, suite, forwarding, cells, paths } = measured;
    let suites = vec![suite];
    let ways = paths.iter().flat_map(|path| Way::BOTH.map(|way| (*path, way)));
    let paths = ways.map(|(path, way)| path_cost(path, way, &cells, &suites)).collect::<Result<_, _>>()?;
    let nothing =
        TunnelCost { tunnels: [0, 0], kib: 0.0, base_kib: 0.0, setup_us: 0.0, setup_within_us: None };
    let what = "not measured".into();
    let mut warnings: Vec<Warning> = haste(o).into_iter().collect();
    warnings.extend(general_doubts::machine(&machine, &watch.finish()));
    warnings.extend(lost(&cells));
    warnings.extend(short(&cells));
    Ok(Model {
        schema: MODEL_SCHEMA.into(),
        program: crate::record::Program::own(),
        made,
        seconds: (clock::now() - began).as_secs_f64(),
        machine,
        system: Some(system),
        suites,
        paths,
        forwarding,
        handshake: Handshake { what, setup_us: 0.0, rekey_us: 0.0, rekey_within_us: None, samples: 0 },
        tunnel: nothing,
        many_sas: vec![ManySas { sas: 1, added: 0.0, within: None }],
        flows: vec![],
        bursts: vec![],
        workers: vec![],
        calm: Some(calm(&rig::cpu()?.since(&ticks), &cells)),
        agreement: None,
        cells,
        held_back: vec![],
        warnings: warnings.iter().map(Warning::record).collect(),
    })
}

/// Loads of such a calibration: those of a line, and its highest rates.
fn loads(o: &CalibrateOptions) -> Vec<Load> {
    let highest = o.highest().into_iter().filter(|l| l.alone() == Some(Way::Out));
    o.loads().into_iter().chain(highest).collect()
}

/// How many measurements that is, at most.
pub(super) fn steps(o: &CalibrateOptions) -> usize {
    loads(o).len() * o.repeats() as usize * 2
}

/// Measures it.
pub(super) fn measure(
    name: &str,
    owner: &Owner,
    o: &CalibrateOptions,
    watch: &mut Watch,
    progress: &mut Progress,
) -> Result<Measured, LabError> {
    let (duts, suite) = chosen(name, o)?;
    let version = duts.first().and_then(|dut| dut.version()).unwrap_or_else(|| "unknown".into());
    progress.says("plain forwarding");
    let forwarding = forward::measure(owner, o.plain(), o.plain_rate(), o.plain_load(), o.plain_repeats())?;
    let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
    let plains = dut::by_name("plain", &[Encap::Udp], &o.gateway())?;
    let start = |dut: &dyn Dut| Rig::start(owner, dut, Mode::Wire, MTU, &placement);
    let mut plain = plains.iter().map(|dut| start(dut.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let (mut cells, mut paths) = (Vec::new(), Vec::new());
    for (dut, path) in duts.iter().zip(Path::BOTH) {
        let mut rig = start(dut.as_ref())?;
        paths.push(path);
        let mut seen: Vec<Vec<Seen>> = loads(o).iter().map(|_| Vec::new()).collect();
        for repeat in 0..o.repeats() {
            for (load, seen) in loads(o).iter().zip(&mut seen) {
                interrupt::check()?;
                if repeat > 0 && !load.is_repeated() {
                    continue;
                }
                progress.says(&format!("{}, {}", rig.name(), load.name()));
                let own = once(&mut rig, load, o)?;
                let low = plain.iter_mut().map(|plain| beside(plain, load, &own, o));
                let without = low.collect::<Result<Vec<_>, _>>()?;
                seen.extend(without.first().map(|without| beyond(&own, without)));
                watch.look();
                progress.step();
            }
        }
        cells.extend(loads(o).iter().zip(seen).map(|(load, seen)| Cell {
            suite: suite.suite.clone(),
            path,
            mix: load.mix(),
            flows: None,
            burst: None,
            offered: load.offered(),
            alone: None,
            seen,
        }));
        let unfinished = rig.stop().0;
        if !unfinished.is_empty() {
            return Err(LabError::Measurement(format!("{} did not end: {}", name, unfinished.join(", "))));
        }
    }
    Ok(Measured { system: System { name: name.into(), version }, suite, forwarding, cells, paths })
}

/// Warns of loads that took the machine too few clock ticks: what they cost is known by them alone.
fn short(cells: &[Cell]) -> Option<Warning> {
    let short = |cell: &&Cell| {
        let busy = |seen: &Seen| seen.machine_ns * seen.packets / 1e9;
        cell.seen.iter().any(|seen| cost::seconds(busy(seen)) == cost::TOO_SHORT)
    };
    let first = cells.iter().find(short)?;
    let (figures, of) = (cells.iter().filter(short).count(), cells.len());
    Some(Warning::FewTicks { figures, of, first: first.mix.name.clone() })
}

/// One load on the line of the system.
fn once(rig: &mut Rig, load: &Load, o: &CalibrateOptions) -> Result<Seen, LabError> {
    match load {
        Load::Packets(mix, pps) => rig.packets(mix, *pps, o.load()),
        Load::Highest(mix, _) => rig.highest_of_line(mix, FIRST / 4.0, o.load(), o.trials()),
        Load::Tcp(mbps) => rig.stream(*mbps, f64::from(MTU), o.load() * 2),
        Load::Only { load, .. } => once(rig, load, o),
    }
}

/// The same load without a tunnel; at the rate that the system carried where that was the highest.
fn beside(plain: &mut Rig, load: &Load, own: &Seen, o: &CalibrateOptions) -> Result<Seen, LabError> {
    match load {
        Load::Highest(mix, _) => plain.packets(mix, (own.packets / own.seconds).max(1.0), o.load()),
        _ => once(plain, load, o),
    }
}

/// Cost of the system's two gateways: what the machine took for a packet beyond plain forwarding.
fn beyond(own: &Seen, plain: &Seen) -> Seen {
    let ns = (own.machine_ns - plain.machine_ns).max(0.0) / 2.0;
    let pps = own.packets * (1.0 - own.loss.clamp(0.0, 1.0)) / own.seconds.max(1e-9);
    // As nobody counts its calls, each packet is by itself.
    let side = Side { pps, ns, calls: ALONE, burst: 1.0 };
    Seen { out: side, into: side, other_share: own.other_share.max(plain.other_share), ..*own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sample;

    #[test]
    fn loads_of_few_clock_ticks_are_a_doubt() {
        let cell = sample::model().cells.remove(0);
        let mut cells = vec![cell.clone(), cell];
        // Ten thousand packets of 30 us are 30 ticks, and of 5 us are 5.
        let of = |machine_ns| vec![Seen { packets: 10_000.0, machine_ns, ..sample::EMPTY }];
        cells.iter_mut().for_each(|cell| cell.seen = of(30_000.0));
        assert_eq!(short(&cells), None);
        cells[1].seen = of(5_000.0);
        let warning = short(&cells).expect("a doubt");
        assert_eq!(warning.kind(), "few-ticks");
        let of = cells.len();
        assert!(warning.text().starts_with(&format!("1 of {of} loads")), "{}", warning.text());
    }

    #[test]
    fn a_packet_costs_each_gateway_half_of_what_the_machine_took_beyond_plain_forwarding() {
        let of =
            |machine_ns, loss| Seen { seconds: 0.5, packets: 10_000.0, machine_ns, loss, ..sample::EMPTY };
        let seen = beyond(&of(30_000.0, 0.1), &of(12_000.0, 0.0));
        assert_eq!((seen.out.ns, seen.into.ns, seen.out.pps), (9_000.0, 9_000.0, 18_000.0));
        assert_eq!((seen.machine_ns, seen.out.calls, seen.out.burst), (30_000.0, ALONE, 1.0));
        // Noise: a tunnel costs no less than none.
        assert_eq!(beyond(&of(11_000.0, 0.0), &of(12_000.0, 0.0)).out.ns, 0.0);
    }

    #[test]
    fn its_loads_are_fitted_in_the_same_way_and_nothing_is_told_that_nobody_counts() {
        let (o, suite) = (CalibrateOptions::default(), without_crypto("aes128gcm16", 32, 4));
        // 4 us, 2 ns a byte, and 20 us for a waking at low rates.
        let cell = |load: &Load| {
            let pps = load.offered().unwrap_or(90_000.0);
            let ns = 4_000.0 + 2.0 * load.mix().of_bytes() + 20_000.0 / (1.0 + pps / 10_000.0);
            let side = Side { pps, ns, calls: ALONE, burst: 1.0 };
            let seen = vec![Seen { out: side, into: side, ..sample::EMPTY }];
            let (suite, path) = (suite.suite.clone(), Path::Udp);
            Cell {
                suite,
                path,
                mix: load.mix(),
                flows: None,
                burst: None,
                offered: load.offered(),
                alone: None,
                seen,
            }
        };
        let cells: Vec<Cell> = loads(&o).iter().map(cell).collect();
        let cost = path_cost(Path::Udp, Way::In, &cells, std::slice::from_ref(&suite)).expect("a fit");
        assert!((cost.per_byte - 2.0).abs() < 0.01 && cost.residual < 1e-3, "{cost:?}");
        assert_eq!((cost.per_change, cost.waking, cost.gathering), (0.0, None, None));
        let ends = [cost.packets.first(), cost.packets.last()].map(|p| p.expect("a point").ns);
        assert!((ends[0] - 20_666.7).abs() < 1.0 && (ends[1] - 6_000.0).abs() < 1.0, "{ends:?}");
    }

    #[test]
    fn what_cannot_be_calibrated_is_refused_with_what_to_write() {
        let of = |name: &str, suites: &[&str]| {
            let suites = suites.iter().map(ToString::to_string).collect();
            let refused = chosen(name, &CalibrateOptions { suites, ..CalibrateOptions::default() }).err();
            refused.map(|e| e.to_string()).unwrap_or_default()
        };
        for (name, suites, part) in [
            ("ironswan", &[][..], "without --dut"),
            ("plain", &[], "a part of every calibration"),
            ("opensvan", &[], "strongswan-kernel"),
            ("kernel-wireguard", &["aes128gcm16"], "a suite of its own"),
            ("strongswan-libipsec", &["aes128gcm16", "3des-sha1"], "one suite at a time"),
            ("strongswan-libipsec", &["rot13"], "not a suite"),
        ] {
            let why = of(name, suites);
            assert!(why.contains(part), "{name}: {why}");
        }
        for name in [
            "strongswan-kernel",
            "libreswan",
            "strongswan-libipsec",
            "kernel-wireguard",
            "wireguard-go",
            "openvpn",
        ] {
            assert_eq!(of(name, &[]), "", "{name}");
        }
        let paths = |name| chosen(name, &CalibrateOptions::default()).expect(name).0.len();
        assert_eq!((paths("strongswan-kernel"), paths("kernel-wireguard")), (2, 1));
    }
}
