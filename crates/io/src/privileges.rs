//! Privileges that a process, or one of its threads, gives up. None of this can be undone.
//!
//! User, groups and capabilities belong to a thread in Linux, and new threads inherit them. A
//! process that is to have few of them gives them up before it starts other threads.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use rustix::thread::{Gid, Uid};

/// The list of users. The daemon's user is one of this machine: no directory service is asked.
const USERS: &str = "/etc/passwd";
/// The list of groups.
const GROUPS: &str = "/etc/group";

/// A user, by numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// The user's own group.
    pub gid: u32,
}

/// The user that has no files (`nobody`, on every machine).
pub const NOBODY: Account = Account { uid: 65_534, gid: 65_534 };

/// Finds a user of this machine by name; `None` when there is none.
///
/// # Errors
/// The list of users cannot be read.
pub fn find_account(name: &str) -> io::Result<Option<Account>> {
    Ok(find_in(&std::fs::read(USERS)?, name))
}

fn find_in(users: &[u8], name: &str) -> Option<Account> {
    users.split(|b| *b == b'\n').find_map(|line| account(std::str::from_utf8(line).ok()?, name))
}

/// Reads a line such as `ironswan:x:995:994::/nonexistent:/usr/sbin/nologin`.
fn account(line: &str, name: &str) -> Option<Account> {
    let mut fields = line.split(':');
    if fields.next()? != name {
        return None;
    }
    Some(Account { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

/// Finds a group of this machine by name; `None` when there is none.
///
/// # Errors
/// The list of groups cannot be read.
pub fn find_group(name: &str) -> io::Result<Option<u32>> {
    let groups = std::fs::read(GROUPS)?;
    Ok(groups.split(|b| *b == b'\n').find_map(|line| group(std::str::from_utf8(line).ok()?, name)))
}

/// Reads a line such as `monitoring:x:992:prometheus,nagios`.
fn group(line: &str, name: &str) -> Option<u32> {
    let mut fields = line.split(':');
    (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
}

/// Runs `work` with this group as the one of new files. Only this thread has it, and only
/// meanwhile. Needs CAP_SETGID, or a group of the thread's own.
///
/// # Errors
/// The kernel refuses the group.
pub fn with_group<R>(group: u32, work: impl FnOnce() -> R) -> io::Result<R> {
    let before = rustix::process::getegid();
    set_thread_res_gid(None, Gid::from_raw(group), None)?;
    let done = work();
    set_thread_res_gid(None, before, None)?;
    Ok(done)
}

/// True when this process is root, and so may become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The number of threads of this process.
///
/// # Errors
/// `/proc` is not there.
pub fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// True when this thread may become this user. In a user namespace (an unprivileged container, for
/// example) a thread may have every capability and yet not: the namespace knows only the users and
/// groups that it maps (user_namespaces(7)), and it may forbid to change a thread's groups.
pub fn may_become(account: Account) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let mapped = |map: &str, id| std::fs::read_to_string(map).map_or(true, |text| maps(&text, id));
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
        && mapped("/proc/self/uid_map", account.uid)
        && mapped("/proc/self/gid_map", account.gid)
        && std::fs::read_to_string("/proc/self/setgroups").map_or(true, |word| word.trim() != "deny")
}

/// True when lines such as `0 100000 65536` (first inside, first outside, how many) map this
/// number.
fn maps(text: &str, id: u32) -> bool {
    text.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let (first, count) = (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0));
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// No core of this process is ever dumped.
///
/// # Errors
/// The kernel refuses.
pub fn dump_no_core() -> io::Result<()> {
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// Takes away the limit of locked memory. False when the kernel refuses.
pub fn unlimit_locked_memory() -> bool {
    setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok()
}

/// Makes the only thread of this process the daemon: of this user, without new privileges by
/// programs, and closed to other processes of the same user. The daemon keeps CAP_NET_ADMIN (for
/// routes, rules, marks, traffic control) and CAP_NET_RAW (for raw packets), as far as the thread
/// has them, and with `locks_memory` CAP_IPC_LOCK too. Without an account it stays who it is.
///
/// # Errors
/// The kernel refuses a step, which leaves the thread with less than it had.
pub fn become_daemon(account: Option<Account>, locks_memory: bool) -> io::Result<()> {
    let mut kept = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    kept.set(CapabilitySet::IPC_LOCK, locks_memory);
    become_user(account, kept)
}

/// The same for a process that keeps no capability.
///
/// # Errors
/// As [`become_daemon`].
pub fn become_nobody(account: Option<Account>) -> io::Result<()> {
    become_user(account, CapabilitySet::empty())
}

fn become_user(account: Option<Account>, kept: CapabilitySet) -> io::Result<()> {
    let _ = clear_ambient_capability_set();
    bound(kept);
    if let Some(Account { uid, gid }) = account {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    keep(kept, CapabilitySet::empty())?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Leaves this thread, and the programs that it starts, CAP_NET_ADMIN alone.
///
/// # Errors
/// The kernel refuses.
pub fn keep_net_admin() -> io::Result<()> {
    bound(CapabilitySet::NET_ADMIN);
    keep(CapabilitySet::NET_ADMIN, CapabilitySet::NET_ADMIN)?;
    // Where the user is not root, a program gets only what is in this set; and where the thread
    // has not got the capability, the program says that it needs it.
    let _ = configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true);
    Ok(())
}

/// Lowers the most that programs may get, as far as this thread may do so (CAP_SETPCAP).
fn bound(kept: CapabilitySet) {
    for capability in CapabilitySet::all().difference(kept).iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Leaves this thread those of `kept` that it has.
fn keep(kept: CapabilitySet, inheritable: CapabilitySet) -> io::Result<()> {
    let has = capabilities(None)?.permitted.intersection(kept);
    set_capabilities(
        None,
        CapabilitySets { effective: has, permitted: has, inheritable: has.intersection(inheritable) },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            b"root:x:0:0:root:/root:/bin/bash\nironswan-x:x:7:8::/:/bin/false\nbroken:x\n\xff:x:1:1::/:/\n\
            ironswan:x:995:994::/nonexistent:/usr/sbin/nologin\nironswan:x:1:1::/:/\n";
        let find = |name| find_in(users, name);
        assert_eq!(find("ironswan"), Some(Account { uid: 995, gid: 994 }));
        assert_eq!(find("root"), Some(Account { uid: 0, gid: 0 }));
        for name in ["iron", "", "x", "broken", "nobody"] {
            assert_eq!(find(name), None, "{name}");
        }
    }

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        for (line, found) in [
            ("monitoring:x:992:prometheus,nagios", Some(992)),
            ("monitoring:x:992:", Some(992)),
            ("monitoring", None),
            ("monitoring:x", None),
            ("monitoring:x:many:", None),
            ("monitoring2:x:5:", None),
            ("", None),
        ] {
            assert_eq!(group(line, "monitoring"), found, "{line}");
        }
        assert_eq!(find_group("root").unwrap(), Some(0));
        assert_eq!(find_group("no such group").unwrap(), None);
    }

    #[test]
    fn a_user_namespace_knows_only_what_it_maps() {
        for id in [0, 65_534, u32::MAX - 1] {
            assert!(maps("         0          0 4294967295\n", id), "{id}");
        }
        assert!(maps("0 1000 1\n1 100000 65535\n", 65_534));
        for (text, id) in
            [("0 1000 1\n", 1), ("5 0 10\n", 4), ("5 0 10\n", 15), ("", 0), ("x\n", 0), ("0 0\n", 0)]
        {
            assert!(!maps(text, id), "{text:?} {id}");
        }
    }

    /// What the kernel says of this thread.
    fn status(key: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        text.lines().find_map(|l| l.strip_prefix(key)).unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_gives_up_what_it_does_not_need_and_other_threads_keep_theirs() {
        if !is_root() {
            eprintln!("skipped: this needs root");
            return;
        }
        let before = status("CapEff:");
        let after = std::thread::spawn(|| {
            // Whether the process may be dumped belongs to all of its threads.
            become_daemon(Some(NOBODY), false).unwrap();
            let shown =
                ["Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapAmb:", "NoNewPrivs:"]
                    .map(status);
            assert!(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err());
            shown
        });
        let both = format!("{:016x}", (CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW).bits());
        let none = "0".repeat(16);
        let nobody = "65534\t65534\t65534\t65534";
        assert_eq!(after.join().unwrap(), [nobody, nobody, "", &none, &both, &both, &none, "1"]);
        assert_eq!(status("CapEff:"), before);
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }

    #[test]
    fn a_program_of_a_thread_that_keeps_one_capability_has_no_other() {
        if !is_root() {
            eprintln!("skipped: this needs root");
            return;
        }
        let run = || std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        let text = std::thread::spawn(move || {
            keep_net_admin().unwrap();
            String::from_utf8(run().stdout).unwrap()
        });
        let text = text.join().unwrap();
        assert!(text.contains(&format!("CapEff:\t{:016x}", CapabilitySet::NET_ADMIN.bits())), "{text}");
    }
}
