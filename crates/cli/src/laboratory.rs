//! `lab`, `demo` and `plan`: the laboratory is a program of its own, `ironswan-lab`, which takes
//! the place of this process.
//!
//! The laboratory is looked for beside this program, then on PATH. The variable `IRONSWAN` tells it
//! which gateway to measure by default: this one.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Laboratory;
use crate::failure::Failure;

/// Name of the laboratory's program.
const PROGRAM: &str = "ironswan-lab";
/// Variable with the path of the gateway that `ironswan-lab` measures by default.
const GATEWAY: &str = "IRONSWAN";

/// Becomes the laboratory, with `command` (none for `lab`, whose arguments begin with the name of
/// an experiment) and the arguments that follow it. Returns only when that fails.
pub(crate) fn start(command: Option<&str>, a: &Laboratory) -> Failure {
    let own = match std::env::current_exe() {
        Ok(path) => path,
        Err(e) => return Failure::usage(format!("cannot find the path of this program: {e}")),
    };
    let beside = own.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(program) = find(beside.into_iter().chain(std::env::split_paths(&path))) else {
        return Failure::usage(format!(
            "the laboratory is the program {PROGRAM}, which is neither beside {} nor on PATH; install it there (`make build` \
             makes both)",
            own.display()
        ));
    };
    let failed =
        Command::new(&program).args(command.map(OsStr::new)).args(&a.arguments).env(GATEWAY, &own).exec();
    Failure::usage(format!("cannot start {}: {failed}", program.display()))
}

/// The laboratory's program in the first of the folders that has it.
fn find(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    folders.find_map(|folder| Some(folder.join(PROGRAM)).filter(runs))
}
