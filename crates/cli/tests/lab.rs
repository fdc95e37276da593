//! The experiments as a user runs them. Needs root and iperf3.

mod common;

use std::process::Command;

use common::{IRONSWAN, Scratch, stderr, stdout};

/// Options with a number that is in the range of its option, but of no use in this experiment: refused with the option, its value and
/// the range, before anything is made.
#[test]
fn what_is_of_no_use_in_an_experiment_is_refused_before_anything_is_made() {
    let scratch = Scratch::new("refused");
    for (line, said) in [
        ("line --duration 0.3", "--duration 0.3: in this experiment it is a number from 0.5 to 3600"),
        ("background --duration 0.09", "--duration 0.09: in this experiment it is a number from 0.1 to 600"),
        ("background --duration 601", "--duration 601: in this experiment it is a number from 0.1 to 600"),
        ("profile --duration 601", "--duration 601: in this experiment it is a number from 0.2 to 600"),
        ("topologies --duration 0.05", "--duration 0.05: in this experiment it is a number from 0.1 to 3600"),
        ("tunnels --duration 61", "--duration 61: in this experiment it is a number from 0.05 to 60"),
        ("compression --rates 1000000,512 --duration 3600", "--duration 3600: it takes 450000 MB of memory"),
        ("compression --rates 63", "63: a rate is 0 (no limit) or 64 to 1,000,000 kbit/s"),
        ("driver --sizes 20", "a size of 20 bytes cannot be measured"),
        ("rfc2544 --sizes 1519", "`1519` is not a frame size; write 64 to 1518"),
    ] {
        let out = scratch.path("run");
        let done = Command::new(IRONSWAN)
            .arg("lab")
            .args(line.split(' '))
            .arg("--out")
            .arg(&out)
            .output()
            .expect(line);
        let text = stderr(&done);
        assert!(text.contains(said) && done.status.code() == Some(2), "{line}: {} {text}", done.status);
        assert!(stdout(&done).is_empty() && !out.exists(), "{line}");
    }
}
