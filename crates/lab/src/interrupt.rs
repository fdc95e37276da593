//! Ctrl-C, SIGTERM and SIGHUP. A thread waits for them and raises one flag; every wait of the
//! laboratory goes through [`pause`], so an experiment ends at its next wait with
//! [`LabError::Interrupted`] and its guards (see `topology`) remove what was built while the error
//! travels up. The children are in process groups of their own: a Ctrl-C at the terminal reaches
//! the laboratory alone, which then ends them in order.
//!
//! A signal is an affair of the whole process, hence a static.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::clock;
use crate::error::LabError;

static RAISED: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();
static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();

fn flag() -> MutexGuard<'static, bool> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to listen for signals; called at the start of every experiment, does its work once.
pub(crate) fn install() -> Result<(), LabError> {
    INSTALLED
        .get_or_init(|| listen().map_err(|e| e.to_string()))
        .clone()
        .map_err(|e| LabError::Measurement(format!("cannot handle signals: {e}")))
}

fn listen() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _in_runtime = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    thread::Builder::new().name("lab-signals".into()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    Some(()) = interrupt.recv() => {}
                    Some(()) = terminate.recv() => {}
                    Some(()) = hangup.recv() => {}
                    else => return,
                }
                *flag() = true;
                CHANGED.notify_all();
            }
        });
    })?;
    Ok(())
}

/// An error once a signal has come.
pub(crate) fn check() -> Result<(), LabError> {
    if *flag() { Err(LabError::Interrupted) } else { Ok(()) }
}

/// Sleeps for `duration`; cut short with an error by a signal.
pub(crate) fn pause(duration: Duration) -> Result<(), LabError> {
    let (raised, _) = CHANGED
        .wait_timeout_while(flag(), duration, |raised| !*raised)
        .unwrap_or_else(PoisonError::into_inner);
    if *raised { Err(LabError::Interrupted) } else { Ok(()) }
}

/// Asks `condition` every few milliseconds until it holds (true) or `timeout` has passed (false).
pub(crate) fn wait_until(
    timeout: Duration,
    mut condition: impl FnMut() -> Result<bool, LabError>,
) -> Result<bool, LabError> {
    let end = clock::now() + clock::patiently(timeout);
    loop {
        if condition()? {
            return Ok(true);
        }
        if clock::now() >= end {
            return Ok(false);
        }
        pause(clock::patiently(Duration::from_millis(5)))?;
    }
}
