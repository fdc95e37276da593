//! A verification in its folder, computed again by a second program, which names whatever was
//! falsified.

use std::fs;
use std::path::{Path as File, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::mix::Mix;
use super::model::{Cell, Model, Path, Seen, Side, Way};
use super::rates::{Rate, own};
use super::record::{self, Told};
use super::sample;
use super::suite::{BURSTS, Burst, Linear};
use super::verified::{Taken, Verification};
use crate::report::{RunFolder, pretty, publish_with};
use crate::schema::breaches;

/// The sample's model with a suite that works side by side, and a cost for changes of size.
fn model() -> Model {
    let mut model = sample::model();
    for (n, suite) in model.suites.iter_mut().enumerate() {
        let line =
            |share: f64| Linear { per_packet: 90.0 + 900.0 * share, per_byte: 0.3 + share, residual: 0.0 };
        let burst = |packets: u32| {
            let share = if packets < 8 { 1.0 } else { 1.0 / f64::from(packets) };
            Burst { packets, seal: line(share), open: line(share / (n + 2) as f64) }
        };
        suite.bursts = BURSTS.map(burst);
    }
    model.paths.iter_mut().for_each(|p| p.per_change = 150.0);
    // A gateway alone that is full when seven eighths of the processors are busy.
    let seen = Seen { seconds: 0.25, packets: 1e5, machine_ns: 4_375.0, ..sample::EMPTY };
    let full = alone(Way::Out, Cell { seen: vec![seen], ..model.cells[0].clone() });
    model.cells.push(full);
    // Loads that the verification measures again.
    model.cells[0].seen[0].out.ns = 4_000.0;
    model.cells[0].seen[0].into.ns = 4_100.0;
    model
}

/// A load of three repeats.
fn load(suite: &str, path: Path, mix: Mix, offered: Option<f64>, ns: f64) -> Cell {
    let seen = |n: f64| {
        let side = |more: f64| Side {
            pps: offered.unwrap_or(88_000.0) - n,
            ns: ns + more * n,
            calls: 0.9,
            burst: 3.0,
        };
        let (out, into) = (side(70.0), side(-50.0));
        Seen { seconds: 0.3, packets: 1e4, out, into, machine_ns: 9_000.0, ..sample::EMPTY }
    };
    Cell {
        suite: suite.into(),
        path,
        mix,
        flows: None,
        burst: None,
        offered,
        alone: None,
        seen: [2.0, 0.0, 1.0].map(seen).into(),
    }
}

/// The highest rate of one gateway, one way.
fn alone(way: Way, load: Cell) -> Cell {
    Cell { alone: Some(way), offered: None, ..load }
}

fn verification(model: &Model) -> Verification {
    let measured = vec![
        load("aes128gcm16", Path::Udp, Mix::frames(390), Some(15_000.0), 3_500.0),
        load("3des-sha1", Path::Raw, Mix::imix(), Some(40_000.0), 5_000.0),
        alone(Way::Out, load("aes128gcm16", Path::Udp, Mix::imix(), None, 2_600.0)),
        load("3des-sha1", Path::Udp, Mix::tcp(), None, 2_700.0),
        load("aes128gcm16", Path::Udp, Mix::frames(64), Some(1e4), 4_050.0),
        Cell {
            flows: Some(4_096),
            burst: Some(8),
            ..load("aes128gcm16", Path::Raw, Mix::frames(700), Some(2e4), 4_300.0)
        },
    ];
    let cost = |pps| {
        let suite = model.suite("aes128gcm16").expect("a suite");
        model.cost(suite, Path::Udp, Way::Out, (&Mix::frames(64), pps), 1.0).expect("a cost").total()
    };
    // Past the curve's end, where a packet costs the same at all rates.
    let (ns, beside) = (cost(500_000.0), 2_500.0);
    let predicted_pps = 2e9 * 0.875 / (ns + beside);
    let rate = Rate {
        busy_at_most: 0.875,
        predicted_pps,
        predicted_ns: ns,
        ns_error: ns / 1_500.0 - 1.0,
        error: predicted_pps / 500_000.0 - 1.0,
        ..sample::rate()
    };
    let against = Some("2026-11-22T10:30:00Z".to_string());
    // Rates of a run come first, as a verification has them.
    let rates = [vec![rate], own(model, &measured, "0.5%").expect("rates")].concat();
    let taken = Taken { measured, against, rates, ..sample::taken() };
    Verification::made(model, taken).expect("predictions").expect("loads")
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ironswan-plan-recomputed-{name}-{}", std::process::id()))
}

fn recompute(folder: &File) -> (Option<i32>, String) {
    let program = File::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/laboratory/recompute.py");
    let done = Command::new("python3").arg("-B").arg(program).arg(folder).output().expect("python3");
    let said = [done.stdout, done.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    (done.status.code(), said)
}

#[test]
fn a_second_program_predicts_the_same_and_finds_what_was_falsified() {
    let (model, out) = (model(), folder("whole"));
    let v = verification(&model);
    assert_eq!((v.cells.len(), v.again.loads), (9, 2));
    let (stored, verify) = (pretty(&model).expect("JSON"), pretty(&v).expect("JSON"));
    let good: Value = serde_json::from_str(&verify).expect("JSON");
    assert_eq!(breaches(&good), [""; 0]);
    let told = Told { command_line: vec!["ironswan".into()], started: v.taken.made.clone(), seconds: 1.0 };
    let run = RunFolder::create(Some(&out), "plan").expect("a folder");
    let files = [("plan.json", stored.clone()), ("verify.json", verify)];
    publish_with(&record::verified(&model, &v, told), &run, &files).expect("published");
    let (status, said) = recompute(&out);
    let (median, worst) = (v.median_error * 100.0, v.worst_error * 100.0);
    let expected =
        format!("11 predictions follow from the model: median error {median:.1} %, worst {worst:.1} %");
    assert!(status == Some(0) && said.contains(&expected), "{expected:?} is not in {said}");
    for (pointer, value, expected) in [
        ("/cells/0/predicted_ns", json!(3_000.0), "predicted_ns is 3000.0"),
        ("/cells/1/measured_ns", json!(3_000.0), "measured_ns is 3000.0"),
        ("/cells/2/error", json!(0.0), "error is 0.0"),
        ("/cells/3/spread", json!(0.0), "spread is 0.0"),
        ("/cells/4/pps", json!(1.0), "pps is 1.0"),
        ("/cells/5/mix", json!("64"), "is not among the cells"),
        ("/measured/1/seen/0/out/ns", json!(9_000.0), "3des-sha1, raw, out, imix, 40000.0"),
        ("/measured/4/seen/2/into/ns", json!(9_000.0), "measured again: shift"),
        ("/measured/5/flows", json!(1), "aes128gcm16, raw, out, 700, 20000.0: predicted_ns"),
        ("/measured/5/burst", json!(null), "aes128gcm16, raw, out, 700, 20000.0: predicted_ns"),
        ("/rates/0/error", json!(0.0), "error is 0.0"),
        ("/rates/0/predicted_pps", json!(500_000.0), "and there are 1.75"),
        ("/rates/0/beside_ns", json!(9.0), "beside_ns is 9.0"),
        ("/rates/1/measured_pps", json!(88_000.0), "measured_pps is 88000.0"),
        ("/rates/1/spread", json!(0.5), "spread is 0.5"),
        ("/median_error", json!(0.01), "all: median_error is 0.01"),
        ("/worst_error", json!(0.01), "all: worst_error is 0.01"),
        ("/within", json!(0.01), "all: within is 0.01"),
        ("/verdict", json!("met"), "all: the verdict is met"),
        ("/model_made", json!("2026-11-22T10:00:01Z"), "of one made 2026-11-22T10:00:01Z"),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        fs::write(out.join("verify.json"), bad.to_string()).expect("written");
        let (status, said) = recompute(&out);
        assert_eq!(status, Some(1), "{pointer}: {said}");
        assert!(said.contains(expected), "{pointer}: {expected:?} is not in {said}");
    }
    // A model that says something else.
    fs::write(out.join("verify.json"), good.to_string()).expect("written");
    fs::write(out.join("plan.json"), stored.replacen("\"per_change\": 150.0", "\"per_change\": 151.0", 1))
        .expect("written");
    let (status, said) = recompute(&out);
    assert!(status == Some(1) && said.contains("predicted_ns"), "{said}");
    fs::write(out.join("verify.json"), "{").expect("written");
    assert_eq!(recompute(&out).0, Some(2));
    fs::remove_dir_all(&out).expect("removed");
}
