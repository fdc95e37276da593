//! Makes every entry of this crate's areas happen: data plane, guard and this machine. The match
//! from entry to case is exhaustive, so that an entry without a case does not compile. The cases
//! need root, as the other tests that make network namespaces do.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `guard` | nft, rules, routes, programs at the ingress, the claim of a namespace |
//! | `machine` | kernel objects, capabilities, threads, sockets |

mod guard;
mod machine;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{ConfigurationEntry, Entry};

use crate::dataplane::userspace::diagnosis_tests;
use crate::passage;
use crate::start::reload;
pub(crate) use machine::guard_over;

/// Runs `f` on a thread of its own, in a fresh network namespace with mounts of its own.
pub(crate) fn in_namespace<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| {
        let run = || {
            ironswan_io::namespace::unshare_with_mounts().expect("these tests need root");
            // What is mounted here is nobody else's.
            command("mount --make-rprivate /");
            f()
        };
        s.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a program in the namespaces of this thread.
fn command(line: &str) {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let done = std::process::Command::new(program).args(words).output().expect("the program runs");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Takes all capabilities from this thread.
pub(crate) fn without_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).expect("a thread may give up what it has");
}

fn happens(entry: Entry) -> Option<Diagnosis> {
    match entry {
        Entry::DataPlane(entry) => Some(diagnosis_tests::happens(entry)),
        Entry::Guard(entry) => Some(guard::happens(entry)),
        Entry::Machine(entry) => Some(machine::happens(entry)),
        Entry::Packet(entry) => Some(passage::tests::happens(entry).into()),
        Entry::Configuration(ConfigurationEntry::HalfWritten) => Some(reload::tests::half_written()),
        _ => None,
    }
}

#[test]
fn every_entry_of_this_crate_happens_and_its_sentence_is_one_line() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for entry in Entry::all() {
        let Some(found) = happens(entry) else { continue };
        let text = found.to_string();
        println!("{:24} {text}", entry.name());
        if found.entry() != entry {
            wrong.push(format!("{}: {found:?}", entry.name()));
        }
        assert!(!text.contains('\n') && !found.sentence().is_empty(), "{}: {text}", entry.name());
        assert!(!found.sentence().ends_with('.') && !text.contains("; ;"), "{text}");
        assert_eq!(found.notify(), None, "no peer is told of {}", entry.name());
        seen += 1;
    }
    assert!(seen > 40, "{seen} entries");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
