//! Binds workers to processors, and sets their priority.

use std::sync::Once;

use ironswan_ike::event::Level;
use ironswan_io::helper::client;
use ironswan_keying::diagnosis::DataPlane;
use ironswan_wire::helper::Request;
use rustix::io::Errno;

use crate::observe::log;

/// Binds this thread to a processor.
///
/// # Errors
/// The kernel refuses; the thread runs on any processor.
pub(super) fn bind(processor: usize) -> Result<(), DataPlane> {
    let mut set = rustix::thread::CpuSet::new();
    if processor < rustix::thread::CpuSet::MAX_CPU {
        set.set(processor);
    }
    let bound = rustix::thread::sched_setaffinity(None, &set);
    bound.map_err(|e| DataPlane::WorkerUnbound { processor, why: e.to_string() })
}

/// Gives this thread a nice value; 0 leaves it as the daemon is.
///
/// # Errors
/// The kernel refuses; the thread keeps the daemon's priority.
pub(super) fn prefer(nice: i8) -> Result<(), DataPlane> {
    if nice == 0 {
        return Ok(());
    }
    let set = rustix::process::setpriority_process(None, nice.into());
    let set = match (set, client::get()) {
        (Err(Errno::ACCESS | Errno::PERM), Some(helper)) => {
            let thread = rustix::thread::gettid().as_raw_pid().unsigned_abs();
            helper.order(&Request::SetNice { thread, nice })
        }
        (set, _) => set.map_err(Into::into),
    };
    set.map_err(|e| DataPlane::WorkerPriority { nice, why: e.to_string() })
}

/// Binds and prefers this worker, and logs what the kernel refuses. All workers are refused a nice
/// value, or none: the log has that once.
pub(super) fn schedule(processor: Option<usize>, nice: i8) {
    static SAID: Once = Once::new();
    if let Some(Err(e)) = processor.map(bind) {
        log::diagnosis(Level::Warn, None, &e);
    }
    if let Err(e) = prefer(nice) {
        SAID.call_once(|| log::diagnosis(Level::Warn, None, &e));
    }
}

/// Gives the session of the daemon this nice value. Where the kernel groups processes by session
/// (`kernel.sched_autogroup_enabled`), nice values count only within a session, and each service
/// has a session of its own. A daemon that leads its session sets the value of the whole session;
/// one that was started from a shell leaves the session alone. A process that may not do this may
/// not set its own priority either, and [`prefer`] reports that.
pub(crate) fn prefer_session(nice: i8) {
    if nice == 0 || !std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| leads_session(&stat)) {
        return;
    }
    if let Err(e) = std::fs::write("/proc/self/autogroup", nice.to_string()) {
        tracing::debug!("the session keeps its priority: {e}");
    }
}

/// Whether the process of this `/proc/PID/stat` (proc_pid_stat(5)) leads its session. That is 0
/// where the leader is outside of this container, which is why `getsid` is not asked: its caller
/// takes the answer for the number of a process.
fn leads_session(stat: &str) -> bool {
    // The name in parentheses is any text, which may look like the rest.
    let (Some((pid, _)), Some((_, rest))) = (stat.split_once(' '), stat.rsplit_once(") ")) else {
        return false;
    };
    rest.split(' ').nth(3).is_some_and(|session| session == pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_led_by_the_process_of_its_number() {
        let own = std::fs::read_to_string("/proc/self/stat").expect("of this process");
        assert!(own.rsplit_once(") ").is_some(), "{own}");
        for (stat, leads) in [
            ("812 (ironswan) S 1 812 812 0 -1 4194560 0", true),
            ("812 (ironswan) S 640 812 640 34816 812 4194560 0", false),
            // The leader is outside of the container.
            ("7 (ironswan) S 1 7 0 0 -1 4194560 0", false),
            ("812 (a) S 1 812 812 (b) S 1 812 640 0 -1", false),
            ("812 (a) S 1 812 640 (b) S 1 812 812 0 -1", true),
            ("812 (ironswan) S 1", false),
            ("", false),
        ] {
            assert_eq!(leads_session(stat), leads, "{stat}");
        }
    }
}
