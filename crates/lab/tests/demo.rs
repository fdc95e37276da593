//! `ironswan-lab demo`, the real thing: it works, also beside another, says what is wrong with a
//! machine, and leaves nothing behind however it ends. Needs root, a TUN device and iperf3.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::commands::{LAB, Scratch, alone, remains, stderr, stdout};

fn demo(out: &Path) -> Command {
    let mut c = Command::new(LAB);
    c.arg("demo").arg("--out").arg(out).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// Processes of the gateways: `ironswan run` with a folder of that run.
fn gateways(pid: u32) -> usize {
    remains(pid).iter().filter(|r| r.contains(" run --config ") && !r.starts_with("ip netns")).count()
}

/// Waits until both gateways of the demo `child` run, or says how it ended instead.
fn wait_for_gateways(child: &mut Child) {
    for _ in 0..6000 {
        if gateways(child.id()) >= 2 {
            return;
        }
        assert_eq!(child.try_wait().expect("wait"), None, "the demo ended early");
        sleep(Duration::from_millis(10));
    }
    panic!("no gateways within a minute; the run has {:?}", remains(child.id()));
}

fn send(signal: &str, child: &Child) {
    let done = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(done.success());
}

/// The four figures of the last line, whose form scripts rely on.
fn figures(line: &str) -> [f64; 4] {
    let words: Vec<&str> = line.split(' ').collect();
    let [
        "demo:",
        "tunnel",
        tunnel,
        "Gb/s,",
        "plain",
        plain,
        "Gb/s,",
        "ratio",
        ratio,
        "added",
        added,
        "ns/byte",
    ] = words[..]
    else {
        panic!("not the promised last line: {line:?}");
    };
    [tunnel, plain, ratio.trim_end_matches(','), added].map(|w| w.parse().expect("a number"))
}

#[test]
fn two_demos_side_by_side_both_work_and_leave_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    let children = ["one", "other"]
        .map(|n| (scratch.path().join(n), demo(&scratch.path().join(n)).spawn().expect("a demo")));
    for (folder, child) in children {
        let pid = child.id();
        let output = child.wait_with_output().expect("its end");
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
        let [tunnel, plain, ratio, _] = figures(text.lines().last().expect("a last line"));
        assert!(tunnel > 0.0 && plain > 0.0, "{text}");
        // All three are rounded to hundredths, which is much of a low rate.
        let rounding = 0.006 + 0.006 * (1.0 + ratio) / plain;
        assert!((ratio - tunnel / plain).abs() < rounding, "{text}");
        // The tunnel that it shows is one, and the folder that it names is there.
        assert!(text.contains("ESTABLISHED") && text.contains("10.1.0.0/24 === 10.2.0.0/24"), "{text}");
        assert!(text.contains(&folder.display().to_string()), "{text}");
        let json = fs::read_to_string(folder.join("run.json")).expect("run.json");
        let run: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        // Its record can be shown to others.
        let kept: Vec<_> =
            fs::read_dir(folder.join("raw")).expect("raw").map(|e| e.expect("an entry").path()).collect();
        let conf =
            kept.iter().find(|p| p.to_string_lossy().ends_with(".swanctl.conf")).expect("a configuration");
        assert!(fs::read_to_string(conf).expect("text").contains("secret = (left out)"));
        assert_eq!((&run["schema"], &run["experiment"]), (&"ironswan.lab/1".into(), &"demo".into()));
        let killed = run["warnings"].as_array().expect("warnings").iter().any(|w| w["kind"] == "killed");
        assert!(!killed, "a gateway did not end by itself: {}", run["warnings"]);
        assert_eq!(remains(pid), Vec::<String>::new());
    }
}

#[test]
fn ctrl_c_while_gateways_run_leaves_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    let mut child = demo(&scratch.path().join("run")).spawn().expect("a demo");
    wait_for_gateways(&mut child);
    let pid = child.id();
    send("-INT", &child);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
    assert_eq!(remains(pid), Vec::<String>::new());
    assert!(!scratch.path().join("run").exists(), "the folder of a run without a record");
}

#[test]
fn the_next_run_removes_what_a_killed_demo_left() {
    let _alone = alone();
    let scratch = Scratch::new();
    let mut child = demo(&scratch.path().join("run")).spawn().expect("a demo");
    wait_for_gateways(&mut child);
    let pid = child.id();
    send("-KILL", &child);
    child.wait().expect("reap");
    let next = Command::new(LAB)
        .args(["line", "--smoke", "--dut", "plain", "--congestion", "reno", "--out"])
        .arg(scratch.path().join("next"))
        .output()
        .expect("the next run");
    assert!(next.status.success(), "{}", stderr(&next));
    assert_eq!(remains(pid), Vec::<String>::new());
}

/// Runs the demo through `wrapper`, which takes something away from it; expects one message and
/// exit status 2.
fn refused(wrapper: &[&str], program: &str) -> String {
    let output =
        Command::new(wrapper[0]).args(&wrapper[1..]).args([program, "demo"]).output().expect(wrapper[0]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(stdout(&output), "", "nothing is begun that cannot be finished");
    assert_eq!(text.matches("ironswan demo:").count(), 1, "one message: {text}");
    text
}

#[test]
fn what_the_machine_lacks_is_said_with_the_remedy() {
    let _alone = alone();
    let scratch = Scratch::new();
    // Where another user can reach it.
    let copy = scratch.path().join("ironswan-lab");
    fs::copy(LAB, &copy).expect("copy");
    let text = refused(
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
        copy.to_str().expect("a plain path"),
    );
    assert!(text.contains("root") && text.contains("sudo"), "{text}");

    let text =
        refused(&["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /dev/net && exec \"$0\" \"$@\""], LAB);
    assert!(text.contains("/dev/net/tun") && text.contains("modprobe tun"), "{text}");

    // A PATH with `ip` and nothing else.
    let ip = std::env::split_paths(&std::env::var_os("PATH").expect("PATH"))
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|d| d.join("ip"))
        .find(|p| p.exists())
        .expect("iproute2");
    let tools = scratch.path().join("tools");
    fs::create_dir(&tools).expect("a folder");
    std::os::unix::fs::symlink(ip, tools.join("ip")).expect("a link");
    let text = refused(&["env", &format!("PATH={}", tools.display())], LAB);
    assert!(text.contains("iperf3") && text.contains("apt-get install iperf3"), "{text}");
}
