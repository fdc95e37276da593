//! Tests of answers: known machines, whose answers follow from the formula.

use super::answer::*;
use super::ask::{Ask, Demand};
use super::cost::Cost;
use super::mix::{LARGEST, Mix};
use super::model::{Model, Path};
use super::sample;
use crate::error::LabError;

fn ask(mix: Mix) -> Ask {
    Ask { share: 1.0, safety: 1.0, ..Ask::of("aes128gcm16", Path::Udp, mix) }
}

fn full(model: &Model, ask: &Ask, bits: f64) -> Need {
    need(model, ask, Demand::full(bits)).expect("an answer")
}

#[test]
fn a_link_needs_what_its_packets_cost_at_saturation_and_is_busy_by_what_they_cost_at_its_rate() {
    let model = sample::model();
    let n = full(&model, &ask(Mix::frames(LARGEST)), 1e9);
    // 1,400 bytes and a trailer of 2, in whole words: 1,404; SPI to ICV 32, IP 20, UDP 8;
    // Ethernet 18 and 20.
    assert!((n.outer_bytes - (1_404.0 + 32.0 + 28.0 + 38.0)).abs() < 1e-9, "{n:?}");
    let pps = 1e9 / 8.0 / n.outer_bytes;
    let cores = |base: f64| pps * 2.0 * (base + 350.0 + 40.0 + 140.4 + 700.0) / 1e9 + 100e-6 / 3_600.0;
    // The end of the curve.
    let needed = cores(900.0 + 600.0);
    assert!((n.cores / needed - 1.0).abs() < 1e-9 && n.bare_cores == n.cores, "{n:?}");
    assert!((n.headroom / (2.0 / needed) - 1.0).abs() < 1e-9, "{n:?}");
    assert!((n.mhz_per_mbps.expect("a clock") - needed * 2_000.0 / 1_000.0).abs() < 1e-9);
    // Between two points of the curve.
    let (low, high) = (900.0f64 + 3_000.0, 900.0 + 600.0);
    let busy = cores(low * (high / low).powf((pps / 10_000.0).ln() / 9.0f64.ln()));
    assert!((n.busy_cores / busy - 1.0).abs() < 1e-9 && n.busy_cores > n.bare_cores, "{n:?}");
}

#[test]
fn a_slow_link_needs_no_more_than_its_share_of_what_a_fast_one_needs() {
    // A lone packet pays for its waking, and a machine that has little to do may be woken.
    let (model, a) = (sample::model(), ask(Mix::imix()));
    let of = |bits| full(&model, &Ask { rekey: 1e9, ..a.clone() }, bits).cores;
    assert!((of(1e9) / of(1e7) - 100.0).abs() < 1e-3);
}

#[test]
fn safety_and_share_multiply_the_load() {
    let model = sample::model();
    let careful = Ask { share: 0.5, safety: 1.5, ..ask(Mix::imix()) };
    let careful = full(&model, &Ask { rekey: 1e12, ..careful }, 1e9);
    let plain = full(&model, &Ask { rekey: 1e12, ..ask(Mix::imix()) }, 3e9);
    assert!((careful.cores / plain.cores - 1.0).abs() < 1e-9, "{careful:?}");
    assert_eq!(careful.busy_cores, full(&model, &Ask { rekey: 1e12, ..ask(Mix::imix()) }, 1e9).busy_cores);
}

#[test]
fn printed_parts_add_up_to_the_answer() {
    let model = sample::model();
    let a = Ask { tunnels: 1_000, keepalive: Some(20.0), storm: Some(10.0), ..ask(Mix::imix()) };
    let n = need(&model, &a, Demand { out: 2e8, into: 7e8 }).expect("an answer");
    let each = |c: &Cost, pps: f64| c.parts().iter().map(|(_, ns)| ns * pps / 1e9).sum::<f64>();
    let packets = each(&n.packet.out, n.pps) + each(&n.packet.into, n.back_pps);
    let forwarding = n.packet.forwarding_ns * (n.pps + n.back_pps) / 1e9;
    let k = &n.keys;
    let all = packets + forwarding + k.rekey_cores + k.storm_cores + k.keepalive_cores;
    assert!((all / n.bare_cores - 1.0).abs() < 1e-9 && (n.back_pps / n.pps - 3.5).abs() < 1e-9, "{n:?}");
    // 50 a second, 1,500 ns for the way and 700 for forwarding.
    assert!((k.keepalive_cores - 50.0 * 2_200.0 / 1e9).abs() < 1e-12, "{k:?}");
    let wide = full(&model, &Ask { ipv6: true, ..ask(Mix::frames(64)) }, 1e9);
    assert_eq!(wide.outer_bytes - full(&model, &ask(Mix::frames(64)), 1e9).outer_bytes, 20.0);
}

#[test]
fn packets_that_come_at_once_make_the_machine_less_busy_and_no_smaller() {
    let (model, a) = (sample::model(), ask(Mix::frames(LARGEST)));
    let of = |burst, flows| full(&model, &Ask { burst, flows, ..a.clone() }, 1e7);
    let (even, bursts) = (of(1, None), of(8, None));
    assert!(bursts.busy_cores < even.busy_cores * 0.7 && bursts.cores == even.cores, "{bursts:?}");
    assert!(bursts.at_load.calls[0] < even.at_load.calls[0] && (bursts.at_load.burst[0] - 8.0).abs() < 1e-9);
    // 10 ns less for one flow, 100 more for very many.
    let both = |n: &Need| n.packet.both();
    assert!((both(&of(1, Some(1))) - both(&even) + 20.0).abs() < 1e-9);
    assert!((both(&of(1, Some(4_096))) - both(&even) - 200.0).abs() < 1e-9);
}

#[test]
fn a_second_worker_that_adds_less_makes_larger_machines_dearer_and_changes_nothing_at_the_measured_one() {
    let (linear, a) = (sample::model(), ask(Mix::imix()));
    let mut model = linear.clone();
    // A quarter dearer with two: 1.6 times one.
    model.workers[1].ns = [2_500.0; 2];
    // All of both processors.
    let limit = 1e9 * full(&linear, &a, 1e9).headroom;
    let of = |m: &Model, times: f64| full(m, &Ask { rekey: 1e12, ..a.clone() }, limit * times);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    assert!(near(of(&model, 1.0).cores, 2.0) && near(of(&model, 1.6).cores, 4.0));
    assert!(near(of(&linear, 1.6).cores, 3.2) && near(of(&model, 1.6).scaled_cores, 3.2));
    assert!(near(of(&model, 1.0 / 1.6).cores, 1.0));
    let four = Ask { cores: Some(4.0), ..a.clone() };
    let carried = |m: &Model| carries(m, &four).expect("an answer").whole.pps;
    assert!(near(carried(&model) / carried(&linear), 0.8));
    assert!(near(full(&model, &four, 1e9).headroom / full(&linear, &four, 1e9).headroom, 0.8));
    assert!(of(&model, 1.0).gain.is_some_and(|g| near(g.times, 1.6)));
    let unmeasured = Model { workers: vec![], ..linear };
    assert!(full(&unmeasured, &a, 1e9).gain.is_none());
}

#[test]
fn an_answer_is_no_surer_than_its_terms() {
    let (mut model, a) = (sample::model(), ask(Mix::frames(LARGEST)));
    model.paths.iter_mut().for_each(|p| p.per_byte_within = Some(0.4));
    let n = full(&model, &a, 1e9);
    // 560 ns of bytes, 100 of forwarding, 16 of the base, 1 of crypto, by 2,730.
    assert!((n.unsure / 0.208 - 1.0).abs() < 0.01, "{n:?}");
    // An older model knows no intervals.
    model.paths.iter_mut().flat_map(|p| &mut p.packets).for_each(|p| p.within = None);
    assert!((full(&model, &a, 1e9).unsure / SUREST - 1.0).abs() < 1e-9);
}

#[test]
fn keys_and_processors_that_were_not_measured_make_an_answer_less_sure() {
    let (mut model, a) = (sample::model(), ask(Mix::frames(LARGEST)));
    let sure = full(&model, &a, 1e9).unsure;
    // What two workers gain is known to 1 %: each doubling from two processors adds one.
    let many = full(&model, &Ask { cores: Some(64.0), ..a.clone() }, 1e9).unsure;
    let gain = full(&model, &a, 1e9).gain.expect("a gain");
    let added = 5.0 * gain.within / gain.times;
    assert!(added > 0.0 && (many - sure.hypot(added)).abs() < 1e-9, "{sure} {many} {gain:?}");
    // Rekeyings that take all of the answer, and may take half as much more.
    model.handshake.rekey_within_us = Some(model.handshake.rekey_us / 2.0);
    let idle = Ask { tunnels: 1_000_000, ..a };
    let keys = full(&model, &idle, 1.0).unsure;
    assert!((keys - sure.hypot(0.5)).abs() < 0.01, "{keys}");
}

#[test]
fn near_the_limit_it_cannot_tell_and_memory_may_run_out_first() {
    let (model, a) = (sample::model(), ask(Mix::imix()));
    // All that it carries.
    let n = full(&model, &a, 1e9);
    let limit = 1e9 * n.headroom;
    let of = |share: f64| full(&model, &a, limit * share).verdict;
    assert_eq!([0.9, 1.0, 1.1].map(of), [Verdict::Enough, Verdict::CannotTell, Verdict::NotEnough]);
    assert!((n.unsure / SUREST - 1.0).abs() < 1e-9 && n.first == Limit::Processors, "{n:?}");
    let many = full(&model, &Ask { tunnels: 1_000_000, ..a }, 1e6);
    assert_eq!((many.verdict, many.first), (Verdict::NotEnough, Limit::Memory), "{many:?}");
}

#[test]
fn more_never_needs_less() {
    let model = sample::model();
    let cores = |a: &Ask, bits: f64| full(&model, a, bits).cores;
    for mix in [Mix::frames(64), Mix::imix().shuffled(), Mix::frames(LARGEST), Mix::tcp()] {
        let base = ask(mix);
        let mut before = 0.0;
        for bits in (0..80).map(|i| 1e4 * 1.3f64.powi(i)) {
            let now = cores(&base, bits);
            assert!(now > before, "{bits}: {now} after {before}");
            before = now;
        }
        let more = |change: fn(&mut Ask)| {
            let mut a = base.clone();
            change(&mut a);
            cores(&a, 1e9) > cores(&base, 1e9)
        };
        assert!(more(|a| a.tunnels = 5_000) && more(|a| a.rekey = 60.0) && more(|a| a.storm = Some(0.1)));
        assert!(more(|a| a.ghz = Some(1.0)) && more(|a| a.suite = "3des-sha1".into()));
        assert!(more(|a| a.keepalive = Some(20.0)));
    }
    // Smaller packets: more of them on the same link.
    assert!(cores(&ask(Mix::frames(64)), 1e9) > cores(&ask(Mix::frames(LARGEST)), 1e9));
}

#[test]
fn what_a_machine_carries_fills_it() {
    let model = sample::model();
    for mix in [Mix::frames(64), Mix::imix(), Mix::tcp()] {
        let a = Ask { share: 0.5, safety: 1.5, ..ask(mix) };
        let Carried { whole, shared: c, .. } = carries(&model, &a).expect("an answer");
        let used = whole.pps * whole.packet.both() / 1e9;
        assert!((used / (2.0 / 1.5) - 1.0).abs() < 1e-3 && whole.share == 1.0, "{used}");
        let used = c.pps * c.packet.both() / 1e9;
        assert!((used / (2.0 * 0.5 / 1.5) - 1.0).abs() < 1e-3, "{used}");
        // One way carries more than that, and no more than twice as much as the cheaper half
        // would allow.
        assert!(c.one_way_pps.iter().all(|p| *p > c.pps), "{c:?}");
        // 24 GB: half of it, less 10 MB, by 25 KiB.
        let kib = 12_000_000.0 - 10_000.0;
        assert_eq!(c.tunnels_of_memory, Some(kib / 25.0));
        let twice = Ask { cores: Some(4.0), ..a };
        assert!(carries(&model, &twice).expect("an answer").shared.pps > c.pps * 1.9);
    }
}

#[test]
fn tunnels_are_as_many_as_whatever_is_short_first_allows() {
    let model = sample::model();
    // A tenth of 2 processors / 1.5 by 100 us; 24 GB less 10 MB by 25 KiB. The share halves the
    // first, and about the second.
    let of = |rekey, share| tunnels(&model, &Ask { rekey, share, safety: 1.5, ..ask(Mix::imix()) });
    let (hour, minute) = (of(3_600.0, 1.0), of(60.0, 1.0));
    assert_eq!((hour.of_processors, hour.of_memory), (4_800_000.0, Some(959_600.0)));
    assert_eq!((hour.most, hour.limit), (959_600.0, Limit::Memory));
    assert_eq!((minute.most, minute.limit), (80_000.0, Limit::Processors));
    let half = of(3_600.0, 0.5);
    assert_eq!((half.most, half.limit, half.of_processors), (479_600.0, Limit::Memory, 2_400_000.0));
    let mut unknown = model.clone();
    unknown.machine.memory_kib = None;
    let found = tunnels(&unknown, &Ask { safety: 1.5, ..ask(Mix::imix()) });
    assert_eq!((found.most, found.limit, found.of_memory), (4_800_000.0, Limit::Processors, None));
}

#[test]
fn questions_without_sense_are_refused() {
    let model = sample::model();
    for change in [
        |a: &mut Ask| a.share = 0.0,
        |a: &mut Ask| a.share = 1.1,
        |a: &mut Ask| a.safety = 0.5,
        |a: &mut Ask| a.safety = f64::NAN,
        |a: &mut Ask| a.tunnels = 0,
        |a: &mut Ask| a.burst = 0,
        |a: &mut Ask| a.burst = 100_000,
        |a: &mut Ask| a.flows = Some(0),
        |a: &mut Ask| a.rekey = 0.0,
        |a: &mut Ask| a.storm = Some(0.0),
        |a: &mut Ask| a.cores = Some(0.0),
        |a: &mut Ask| a.ghz = Some(1000.0),
        |a: &mut Ask| a.keepalive = Some(0.0),
        |a: &mut Ask| (a.keepalive, a.path) = (Some(20.0), Path::Raw),
        |a: &mut Ask| a.suite = "rot13".into(),
    ] {
        let mut a = ask(Mix::imix());
        change(&mut a);
        assert!(matches!(need(&model, &a, Demand::full(1e9)), Err(LabError::Usage(_))), "{a:?}");
        assert!(matches!(carries(&model, &a), Err(LabError::Usage(_))), "{a:?}");
    }
    // Rekeyings take all of the processors.
    let a = Ask { tunnels: 1_000_000, rekey: 1.0, ..ask(Mix::imix()) };
    assert!(carries(&model, &a).is_err_and(|e| e.to_string().contains("rekey less often")));
}
