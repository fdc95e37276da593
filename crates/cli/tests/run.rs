//! `ironswan run` as a process. Needs root and a TUN device.

mod common;

use std::fs;
use std::process::Command;

use common::{IRONSWAN, Scratch, stderr, stdout};

/// In a container nobody leads the session of its first process.
#[test]
fn the_daemon_runs_in_a_pid_namespace_whose_session_is_outside() {
    let scratch = Scratch::new();
    let [config, socket] = ["config", "ironswan.vici"].map(|name| scratch.path().join(name));
    fs::create_dir(&config).expect("a folder");
    fs::write(config.join("swanctl.conf"), "connections { }\n").expect("a configuration");
    let script = r#"
        "$1" run --config "$2" --vici "unix://$3" & daemon=$!
        until test -S "$3"; do
            kill -0 $daemon || break
            sleep 0.05
        done
        cut -d ' ' -f 6 < /proc/$daemon/stat
        kill $daemon
        wait $daemon
    "#;
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]);
    let output = command.arg(IRONSWAN).args([&config, &socket]).output().expect("unshare");
    assert_eq!(output.status.code(), Some(0), "{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(stdout(&output).trim(), "0", "the session is outside: {}", stderr(&output));
}
