//! Programs of their own that take the place of this process, so that `ironswan` itself stays
//! small: `lab`, `demo` and `plan` are the laboratory, `pki` makes keys and certificates.
//!
//! Each is looked for beside this program, then on PATH. The variable `IRONSWAN` tells the
//! laboratory which gateway to measure by default: this one.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Passed;
use crate::failure::Failure;

/// A program that carries out commands of `ironswan`.
pub(crate) struct Companion {
    /// Its file.
    program: &'static str,
    /// Its name in a sentence.
    name: &'static str,
}

/// The laboratory.
pub(crate) const LABORATORY: Companion = Companion { program: "ironswan-lab", name: "the laboratory" };
/// Keys and certificates.
pub(crate) const PKI: Companion =
    Companion { program: "ironswan-pki", name: "the tool for keys and certificates" };

/// Variable with the path of the gateway that `ironswan-lab` measures by default.
const GATEWAY: &str = "IRONSWAN";

impl Companion {
    /// Becomes the program, with `command` (none when the first argument names it) and the
    /// arguments that follow it. Returns only when that fails.
    pub(crate) fn start(&self, command: Option<&str>, a: &Passed) -> Failure {
        let own = match std::env::current_exe() {
            Ok(path) => path,
            Err(e) => return Failure::usage(format!("cannot find the path of this program: {e}")),
        };
        let beside = own.parent().map(Path::to_path_buf);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(program) = self.find(beside.into_iter().chain(std::env::split_paths(&path))) else {
            return Failure::usage(format!(
                "{} is the program {}, which is neither beside {} nor on PATH; install it there (`make build` makes both)",
                self.name,
                self.program,
                own.display()
            ));
        };
        let failed =
            Command::new(&program).args(command.map(OsStr::new)).args(&a.arguments).env(GATEWAY, &own).exec();
        Failure::usage(format!("cannot start {}: {failed}", program.display()))
    }

    /// The program in the first of the folders that has it.
    fn find(&self, mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
        let runs = |path: &PathBuf| {
            path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        folders.find_map(|folder| Some(folder.join(self.program)).filter(runs))
    }
}
