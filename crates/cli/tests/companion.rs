//! `ironswan lab`, `demo` and `plan` start the program `ironswan-lab`, and `pki` starts
//! `ironswan-pki`. Needs no root: a shell script stands for them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{IRONSWAN, Scratch, stderr, stdout};

/// Puts both programs into a folder. They print their name, the gateway to measure and their
/// arguments.
fn install(folder: &Path, name: &str) {
    for program in ["ironswan-lab", "ironswan-pki"] {
        let path = folder.join(program);
        fs::write(&path, format!("#!/bin/sh\necho {name} ${{0##*/}} \"$IRONSWAN\" \"$@\"\nexit 7\n"))
            .expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    }
}

/// Runs a copy of `ironswan` that is alone in a folder, with that folder's neighbour `path` as
/// PATH.
fn run(scratch: &Scratch, arguments: &str) -> Output {
    let [alone, path] = ["alone", "path"].map(|name| scratch.path().join(name));
    [&alone, &path].iter().for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
    let program = alone.join("ironswan");
    if !program.exists() {
        fs::copy(IRONSWAN, &program).expect("a copy");
    }
    let path = format!("{}:/usr/bin:/bin", path.display());
    Command::new(program).args(arguments.split(' ')).env("PATH", path).output().expect("ironswan")
}

#[test]
fn a_companion_is_found_beside_the_program_or_on_the_path_and_takes_over() {
    let scratch = Scratch::new();
    let absent = run(&scratch, "lab line");
    let said = stderr(&absent);
    assert_eq!((absent.status.code(), stdout(&absent)), (Some(2), String::new()), "{said}");
    assert!(said.starts_with("ironswan lab: error: the laboratory is the program ironswan-lab"), "{said}");
    assert!(said.contains("PATH") && said.contains("install") && said.lines().count() == 1, "{said}");
    let said = stderr(&run(&scratch, "pki psk"));
    assert!(said.contains("the program ironswan-pki, which is neither beside"), "{said}");

    let own = scratch.path().join("alone").join("ironswan");
    let own = own.to_str().expect("a plain path");
    let lines = [
        ("lab line --quick --out x", "ironswan-lab", "line --quick --out x"),
        ("lab --help", "ironswan-lab", "--help"),
        ("lab flood -- --json", "ironswan-lab", "flood -- --json"),
        ("demo --encap no", "ironswan-lab", "demo --encap no"),
        ("demo --help", "ironswan-lab", "demo --help"),
        ("plan --links", "ironswan-lab", "plan --links"),
        ("pki --gen --type rsa", "ironswan-pki", "--gen --type rsa"),
        ("pki --help", "ironswan-pki", "--help"),
        ("pki print gw.crt --json", "ironswan-pki", "print gw.crt --json"),
    ];
    for name in ["on-the-path", "beside"] {
        install(&scratch.path().join(if name == "beside" { "alone" } else { "path" }), name);
        for (typed, program, given) in lines {
            let done = run(&scratch, typed);
            assert_eq!(
                stdout(&done).trim_end(),
                format!("{name} {program} {own} {given}"),
                "{}",
                stderr(&done)
            );
            assert_eq!(done.status.code(), Some(7), "its exit status is ours");
        }
    }

    // A file that nobody may execute is no program.
    let beside = scratch.path().join("alone").join("ironswan-lab");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).expect("its mode");
    assert!(stdout(&run(&scratch, "plan --links")).starts_with("on-the-path "));
    // A program that cannot be started is named.
    fs::write(&beside, "#!/no/such/shell\n").expect("a script");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).expect("its mode");
    let broken = run(&scratch, "demo");
    assert!(
        stderr(&broken).starts_with(&format!("ironswan demo: error: cannot start {}: ", beside.display()))
    );
    assert_eq!(broken.status.code(), Some(2));
}
