//! `ironswan plan`: calibrates this machine in its shortest form, answers from that model, verifies
//! it, and leaves nothing behind. Needs root, a TUN device, ethtool and iperf3. What a debug build
//! measures on a busy machine means nothing, but it must be consistent.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ironswan_lab::record::{Which, factors};
use ironswan_lab::report::Stored;
use ironswan_lab::schema::breaches;
use serde_json::Value;

/// Sound by its schema.
fn sound(document: Value) -> Value {
    assert_eq!(breaches(&document), [""; 0]);
    document
}

/// A second program comes to the same figures.
fn recomputed(folder: &Path) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/laboratory/recompute.py");
    let done = Command::new("python3").arg("-B").arg(program).arg(folder).output().expect("python3");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{said}");
    said
}

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ironswan-lab"))
        .arg("plan")
        .args(arguments)
        .output()
        .expect("ironswan-lab")
}

fn document(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stdout);
    let read = serde_json::from_str(&text);
    sound(read.unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&out.stderr))))
}

/// Refuses these arguments, with a sentence that contains `part`.
fn refused(arguments: &[&str], part: &str) {
    let out = plan(arguments);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && said.contains(part), "{arguments:?}: {said}");
}

fn namespaces() -> Vec<String> {
    let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// How often a machine is calibrated that refuses because others disturb it.
const TRIES: usize = 4;

/// Calibrates a system in the shortest form. Beside other programs its loads may contradict each
/// other. Then there is no model, with the reason in one line, and it is calibrated anew; `None`:
/// it was refused each time.
fn calibrated(model: &Path, run: &Path, arguments: &[&str]) -> Option<Value> {
    for _ in 0..TRIES {
        let calibrate = Command::new(env!("CARGO_BIN_EXE_ironswan-lab"))
            .args(["plan", "--calibrate", "--smoke", "--json"])
            .args(arguments)
            .args([Path::new("--model"), model, Path::new("--out"), run])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ironswan-lab");
        let prefix = format!("ironlab-{}-", calibrate.id());
        let done = calibrate.wait_with_output().expect("it ends");
        assert!(!namespaces().iter().any(|n| n.starts_with(&prefix)), "namespaces were left");
        if done.status.success() {
            return Some(document(&done));
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let refusal = said.lines().last().unwrap_or_default();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(refusal.starts_with("ironswan plan: path "), "{said}");
        assert!(
            refusal.ends_with(": the loads have no fit; measure again when the machine is quiet"),
            "{said}"
        );
        assert_eq!((done.stdout.len(), model.exists()), (0, false), "a refused calibration leaves a model");
        if run.exists() {
            fs::remove_dir_all(run).expect("removed");
        }
    }
    None
}

#[test]
fn a_machine_is_calibrated_asked_and_verified() {
    let file = std::env::temp_dir().join(format!("ironswan-test-plan-{}.json", std::process::id()));
    let model = file.to_str().expect("a name");
    let out = |name: &str| {
        let name = format!("ironswan-test-plan-{name}-{}", std::process::id());
        std::env::temp_dir().join(name).to_str().expect("a name").to_string()
    };
    let [calibration, single, verified_in] = ["calibrate", "single", "verify"].map(out);
    calibrated(&file, Path::new(&calibration), &["--suite", "null-sha256"])
        .expect("one calibration of several");
    let made: Value = serde_json::from_slice(&fs::read(&file).expect("a model")).expect("JSON");
    let made = sound(made);
    assert_eq!(made["schema"], "ironswan.plan-model/4");
    assert!(made["warnings"].as_array().is_some_and(|all| all.iter().any(|w| w["kind"] == "smoke")));
    assert!(recomputed(Path::new(&calibration)).contains("no verification"));
    let stored = Stored::read(Path::new(&calibration)).expect("a run");
    let record = stored.record();
    for file in ["plan.json", "report.txt", "index.html", "aes128gcm16-udp-out.svg"] {
        assert!(Path::new(&calibration).join(file).exists(), "{file} of {:?}", record.views);
    }
    for suite in made["suites"].as_array().expect("suites") {
        let bursts: Vec<&Value> =
            suite["bursts"].as_array().expect("bursts").iter().map(|b| &b["packets"]).collect();
        assert_eq!(bursts, [1, 7, 8, 16, 64], "{suite}");
    }
    let paths = made["paths"].as_array().expect("paths");
    assert_eq!(paths.len(), 4);
    assert!(paths.iter().all(|p| p["per_byte"].as_f64().is_some_and(|c| c >= 0.0)), "{paths:?}");
    for curve in ["packets", "merged"] {
        for path in paths {
            let points = path[curve].as_array().expect("points");
            let of = |p: &Value, name: &str| p[name].as_f64().expect("a number");
            assert!(!points.is_empty() && points.iter().all(|p| of(p, "pps") > 0.0), "{path}");
            assert!(points.windows(2).all(|w| of(&w[1], "pps") >= of(&w[0], "pps")), "{path}");
        }
    }
    assert!(made["forwarding"]["ns"].as_f64().is_some_and(|v| v >= 0.0), "{}", made["forwarding"]);
    for figure in ["kib", "setup_us"] {
        assert!(made["tunnel"][figure].as_f64().is_some_and(|v| v > 0.0), "{}", made["tunnel"]);
    }
    let cpus = made["machine"]["cpus"].as_f64().expect("processors");
    let counts = |of: &str, what: &str| -> Vec<f64> {
        let all = made[of].as_array().expect(of).iter();
        all.map(|one| one[what].as_f64().expect(what)).collect()
    };
    assert_eq!(counts("flows", "flows"), [1.0, 64.0, 4_096.0]);
    assert_eq!(counts("bursts", "at_once"), [4.0, 16.0, 64.0]);
    assert_eq!(counts("workers", "workers"), if cpus > 1.0 { vec![1.0, 2.0] } else { vec![1.0] });
    assert!(made["handshake"]["rekey_us"].as_f64().is_some_and(|us| us > 1.0), "{}", made["handshake"]);
    assert!(made["calm"]["others"].as_f64().is_some_and(|share| share <= 1.0), "{}", made["calm"]);
    // Whether each gateway was seen at work.
    let mut worked = [("out", false), ("into", false)];
    for cell in made["cells"].as_array().expect("cells") {
        let name = cell["mix"]["name"].as_str().expect("a mix");
        assert!(!["390", "1280", "imix"].contains(&name), "{name} was to be kept back");
        for seen in cell["seen"].as_array().expect("repeats") {
            let of = |name: &str| seen[name].as_f64().expect("a number");
            let side = |way: &str, name: &str| seen[way][name].as_f64().expect("a number");
            assert!((0.0..=1.0).contains(&of("loss")) && of("packets") > 0.0, "{seen}");
            // No more than the machine has, however it was disturbed; a running thread's time is
            // known to a tick.
            assert!(side("out", "burst") >= 1.0 && side("into", "burst") >= 1.0, "{seen}");
            let busy = |way| side(way, "ns") * side(way, "pps");
            assert!(busy("out") + busy("into") < 3.0 * cpus * 1e9, "{seen}");
            worked.iter_mut().for_each(|(way, did)| *did |= busy(way) > 0.0);
        }
    }
    assert!(worked.iter().all(|(_, did)| *did), "a gateway without work: {worked:?}");

    let carried = document(&plan(&["--this-machine", "--json", "--model", model]));
    assert_eq!(carried["schema"], "ironswan.plan/5");
    for c in carried["carries"].as_array().expect("answers") {
        let of = |who: &str, name: &str| c[who][name].as_f64().expect("a number");
        assert!(of("shared", "mbps") > 0.0 && of("whole", "mbps") > of("shared", "mbps"), "{c}");
        assert!(of("shared", "tunnels") > 1.0 && of("whole", "tunnels") > of("shared", "tunnels"), "{c}");
    }
    let slow = document(&plan(&["--link", "T1", "--json", "--model", model]));
    let fast = document(&plan(&["--link", "400G", "--json", "--tunnels", "500", "--model", model]));
    let cores = |d: &Value| d["needs"][0]["need"]["cores"].as_f64().expect("processors");
    assert!(cores(&fast) > cores(&slow));
    assert!(fast["extrapolation"].as_array().is_some_and(|e| !e.is_empty()), "{fast}");
    let text = plan(&[
        "--link",
        "1G",
        "--mix",
        "imix",
        "--tunnels",
        "500",
        "--setup-storm",
        "10s",
        "--why",
        "--model",
        model,
    ]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("setup storm: 500 tunnels") && text.contains("what dominates"), "{text}");

    // One gateway alone, for its highest rates.
    let lab = Command::new(env!("CARGO_BIN_EXE_ironswan-lab"))
        .args(["rfc2544", "--topology", "single", "--smoke", "--out", &single])
        .output()
        .expect("ironswan-lab");
    assert!(lab.status.success(), "{lab:?}");
    // On a busy machine a short search may find no rate.
    let stored = Stored::read(Path::new(&single)).expect("a run");
    let run = stored.record();
    let carried = |direction| {
        let only = factors([("part", "throughput"), ("direction", direction)]);
        run.figures_with(&only).any(|f| f.number("kpps", Which::Median).is_some_and(|kpps| kpps > 0.0))
    };
    let expected = [("out", carried("encrypting")), ("in", carried("decrypting"))];
    let any = expected.iter().any(|(_, found)| *found);
    let mut verify = vec!["--verify", "--smoke", "--json", "--model", model, "--out", &verified_in];
    if any {
        verify.extend(["--against", &single]);
    }
    let verified = plan(&verify);
    let v = document(&verified);
    assert_eq!(v["schema"], "ironswan.plan-verify/5");
    let rates = v["rates"].as_array().expect("rates");
    for (way, found) in expected {
        assert_eq!(rates.iter().any(|r| r["way"] == way), found, "{way}: {rates:?}");
    }
    for rate in v["rates"].as_array().expect("rates") {
        let of = |name: &str| rate[name].as_f64().expect("a number");
        assert!((of("predicted_pps") / of("measured_pps") - 1.0 - of("error")).abs() < 1e-9, "{rate}");
    }
    assert!(recomputed(Path::new(&verified_in)).contains("predictions follow from the model"));
    let text = fs::read_to_string(Path::new(&verified_in).join("report.txt")).expect("a report");
    assert_eq!(text.contains("highest rates of one gateway"), any, "{text}");
    let again = plan(&verify);
    assert_eq!(again.status.code(), Some(2), "never over another: {again:?}");
    let drawn_in = out("drawn");
    let drawn = plan(&[
        "--verify", "--draw", "3", "--seed", "11", "--smoke", "--json", "--model", model, "--out", &drawn_in,
    ]);
    let d = document(&drawn);
    assert_eq!((&d["drawn"]["seed"], &d["drawn"]["loads"]), (&11.into(), &3.into()));
    assert_eq!(d["cells"].as_array().map(Vec::len), Some(6), "each load both ways: {d}");
    assert!(recomputed(Path::new(&drawn_in)).contains("predictions follow from the model"));
    let text = fs::read_to_string(Path::new(&drawn_in).join("report.txt")).expect("a report");
    assert!(text.contains("from seed 11"), "{text}");
    fs::remove_dir_all(&drawn_in).expect("removed");
    for folder in [calibration, single, verified_in] {
        fs::remove_dir_all(folder).expect("removed");
    }
    let cells = v["cells"].as_array().expect("cells");
    assert!(
        cells.iter().any(|c| c["mix"] == "imix") && cells.iter().any(|c| c["suite"] == "chacha20poly1305")
    );
    assert_eq!(verified.status.code(), Some(if v["verdict"] == "met" { 0 } else { 1 }));
    fs::remove_file(&file).expect("removed");
}

#[test]
fn another_system_is_calibrated_and_asked_or_refused_with_what_it_lacks() {
    let file = std::env::temp_dir().join(format!("ironswan-test-plan-system-{}.json", std::process::id()));
    let model = file.to_str().expect("a name");
    for (arguments, part) in [
        (&["--calibrate", "--dut", "plain"][..], "a part of every calibration"),
        (&["--calibrate", "--dut", "nosuchswan"], "kernel-wireguard"),
        (&["--calibrate", "--dut", "strongswan"], "write strongswan-libipsec"),
    ] {
        refused(arguments, part);
    }
    let run = std::env::temp_dir().join(format!("ironswan-test-plan-other-{}", std::process::id()));
    // A machine that was never quiet enough has no model to ask.
    let Some(made) = calibrated(&file, &run, &["--dut", "strongswan-libipsec"]) else { return };
    assert_eq!(
        (&made["system"]["name"], made["paths"].as_array().map(Vec::len)),
        (&"strongswan-libipsec".into(), Some(2))
    );
    let asked = plan(&["--link", "1M", "--why", "--machine", model]);
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    // On a busy machine it cannot tell.
    assert!(
        text.lines().next().is_some_and(|l| l.contains(" with strongswan-libipsec: ")),
        "{text} {asked:?}"
    );
    assert!(text.contains("rekeying: not measured of strongswan-libipsec"), "{text}");
    for (arguments, part) in [
        (&["--verify", "--model", model][..], "ask it with --link"),
        (&["--link", "1M", "--encap", "no", "--model", model], "--encap yes"),
        (
            &["--link", "1M", "--suite", "3des-sha1", "--model", model],
            "--dut strongswan-libipsec --suite 3des-sha1",
        ),
    ] {
        refused(arguments, part);
    }
    fs::remove_file(&file).expect("removed");
    fs::remove_dir_all(&run).expect("removed");
}

#[test]
fn a_place_where_no_model_can_be_is_refused_before_anything_is_measured() {
    let here =
        |name: &str| std::env::temp_dir().join(format!("ironswan-test-plan-{name}-{}", std::process::id()));
    let (file, out) = (here("old"), here("none"));
    fs::write(&file, "old").expect("a file");
    let below = file.join("plan.json");
    let [below, out_name] = [&below, &out].map(|path| path.to_str().expect("a name"));
    let done = plan(&["--calibrate", "--smoke", "--model", below, "--out", out_name]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains(below) && said.contains("name another file with --model"), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("what was there"), "old");
    assert!(!out.exists(), "{said}");
    fs::remove_file(&file).expect("removed");
}

#[test]
fn without_a_model_or_with_nonsense_it_says_what_to_do() {
    for (arguments, part) in [
        (["--this-machine", "--model", "/nonexistent/plan.json"], "/nonexistent/plan.json"),
        (["--link", "soon", "--json"], "155.52M"),
        (["--link", "1G", "--share=0"], "--share"),
        (["--users=1000000000000", "--up=1M", "--down=1M"], "several gateways"),
        (["--link", "1G", "--machine=no-such-machine"], "plan --export NAME"),
    ] {
        let out = plan(&arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(part), "{arguments:?}: {said}");
    }
}
