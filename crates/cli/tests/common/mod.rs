//! Helpers for tests that run the program `ironswan`.

use std::process::Output;

pub use ironswan_testkit::scratch::Scratch;

pub const IRONSWAN: &str = env!("CARGO_BIN_EXE_ironswan");

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
