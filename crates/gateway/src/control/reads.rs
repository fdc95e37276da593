//! The closed list of commands for clients of the socket that only reads: they change nothing, and
//! what they tell holds no secret and no name of one. A new command is not in it until somebody
//! writes it here.
//!
//! Every event may be registered for: each tells what happens.

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

/// True when a client that only reads may have this command carried out.
pub(super) fn allowed(command: &str, message: &Section) -> bool {
    // To raise a level fills the log.
    READS.contains(&command) && (command != "ironswan-log" || message.get("level").is_none())
}
