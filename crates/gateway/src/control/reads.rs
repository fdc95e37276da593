//! The closed list of commands for clients of the socket that only reads: they change nothing, and
//! what they tell holds no secret and no name of one. A new command is not in it until somebody
//! writes it here.
//!
//! Every event may be registered for: each tells what happens.

use std::time::Duration;

use ironswan_wire::vici::Section;

/// Answer to every other command, also to one that is not known.
pub(super) const REFUSED: &str =
    "this socket is read-only; commands that change something go to vici.listen, as root";

/// Commands that only read.
const READS: &[&str] = &[
    "version",
    "stats",
    "get-counters",
    "get-algorithms",
    "get-conns",
    "get-authorities",
    "get-pools",
    "list-conns",
    "list-sas",
    "list-policies",
    "list-certs",
    "list-authorities",
    "ironswan-counters",
    "ironswan-engines",
    "ironswan-explain",
    "ironswan-log",
    "ironswan-policies",
    "ironswan-status",
    "ironswan-troubles",
];

/// Clients that only read have so many commands carried out at a time; the others wait.
pub(super) const AT_A_TIME: usize = 4;

/// The longest time that a command of a client that only reads may take. One that takes the answer
/// too slowly is cut off, so that others have their turn and what is told does not stay in memory.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// The longest pause after a command of a client that only reads. It waits as long as the command
/// took, so that the control thread has half of its time for everybody else.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// True for a command that lasts as long as its client likes, and holds little.
pub(super) fn lasts(command: &str) -> bool {
    command == "ironswan-log"
}

/// True when a client that only reads may have this command carried out.
pub(super) fn allowed(command: &str, message: &Section) -> bool {
    // To raise a level fills the log.
    READS.contains(&command) && (command != "ironswan-log" || message.get("level").is_none())
}
