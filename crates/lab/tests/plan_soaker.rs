//! `ironswan plan` beside a CPU soaker. Needs root, a TUN device, ethtool and iperf3.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironswan-lab"))
        .arg("plan")
        .args(arguments)
        .output()
        .expect("ironswan-lab")
}

#[test]
fn a_soaker_beside_the_loads_is_in_no_cost() {
    let file = std::env::temp_dir().join(format!("ironswan-test-plan-soaker-{}.json", std::process::id()));
    let model = file.to_str().expect("a name");
    let asked = ["--smoke", "--soaker", "--json", "--suite", "null-sha256", "--model", model];
    let done = plan(&[&["--calibrate"], &asked[..]].concat());
    assert!(done.status.success(), "{done:?}");
    let made: Value = serde_json::from_slice(&fs::read(&file).expect("a model")).expect("JSON");
    let cpus = made["machine"]["cpus"].as_f64().expect("processors");
    let cells = made["cells"].as_array().expect("cells");
    let seen = cells.iter().flat_map(|c| c["seen"].as_array().expect("repeats"));
    // Beside a soaker no processor is ever idle: were its time work, no load would leave any.
    let busy = seen.map(|s| {
        let of = |name: &str| s[name].as_f64().expect("a number");
        of("machine_ns") * of("packets") / of("seconds") / cpus / 1e9
    });
    let busy: Vec<f64> = busy.collect();
    assert!(busy.iter().any(|share| *share < 0.9), "{busy:?}");
    let said = made["warnings"].as_array().expect("warnings").iter();
    let accounting = said.filter(|w| w["kind"] == "accounting");
    assert!(accounting.into_iter().all(|w| w["text"].as_str().is_some_and(|t| t.contains("by the soaker"))));
    let verified = plan(&[&["--verify"], &asked[..]].concat());
    let v: Value = serde_json::from_slice(&verified.stdout).unwrap_or_else(|e| panic!("{e}: {verified:?}"));
    assert_eq!(verified.status.code(), Some(if v["verdict"] == "met" { 0 } else { 1 }));
    fs::remove_file(&file).expect("removed");
}

#[test]
fn a_soaker_beside_nothing_is_refused_and_so_is_a_model_of_it_for_this_machine() {
    for (asked, remedy) in [("--links", "--calibrate or --verify"), ("--calibrate", "with --model")] {
        let done = plan(&[asked, "--soaker"]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(remedy), "{asked}: {said}");
    }
}
