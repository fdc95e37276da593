//! The program `ironswan-lab`; `ironswan lab`, `demo` and `plan` start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ironswan_lab::command::main()
}
