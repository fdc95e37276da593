//! System calls that the daemon may make (seccomp): no programs, no files for writing, no other
//! processes, no programs of the kernel (`bpf`), no mounts, no other users.
//!
//! The kernel refuses every other call with EPERM, and writes a line into its own log
//! (`type=1326 ... syscall=NUMBER`). So a call that is refused by mistake costs one feature, not
//! the daemon. Two filters stand, because one has two answers; the kernel asks both and obeys the
//! stricter one.
//!
//! | filter | calls | answer |
//! |---|---|---|
//! | first | `clone3`, `openat2`: their arguments are where no filter can look | ENOSYS, on which the C library makes the older call |
//! | second | in the lists below | as usual |
//! | second | all others | EPERM |

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

/// Calls that are made with any arguments.
const ANY: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_memfd_create,
    // Threads, and what they wait for.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_membarrier,
    libc::SYS_getcpu,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals to this process.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // Descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Names of files, and files that are open.
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_fadvise64,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    // What this machine and this process are.
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_times,
];

/// Older calls of the same kinds, which only this processor has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_time,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Calls whose arguments no filter can see.
const UNSEEN: &[c_long] = &[libc::SYS_clone3, libc::SYS_openat2];

/// Flags of `open` by which a file is written, made or cut.
const WRITES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | TMPFILE) as u64;
/// The bit of O_TMPFILE that is its own.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Installs both filters for this thread and the threads that it starts from now on. The thread
/// must have no way to new privileges ([`crate::privileges::become_daemon`]).
///
/// # Errors
/// The kernel has no seccomp, or refuses.
pub fn enter() -> io::Result<()> {
    let refused = |e: seccompiler::BackendError| io::Error::other(e.to_string());
    let unseen = UNSEEN.iter().map(|call| (*call, Vec::new())).collect();
    let enosys = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    // Every start of a thread is refused so once, which nobody wants to read.
    install(&filter(unseen, SeccompAction::Allow, enosys).map_err(refused)?, 0)?;
    let calls = allowed(std::process::id()).map_err(refused)?;
    let eperm = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = filter(calls, eperm, SeccompAction::Allow).map_err(refused)?;
    install(&filter, libc::SECCOMP_FILTER_FLAG_LOG)
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn filter(
    rules: Rules,
    others: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, others, matching, arch)?.try_into()
}

/// The calls of the first filter, for the process of this number.
fn allowed(process: u32) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = ANY.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    let one = |argument, length, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
    };
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![one(0, Qword, MaskedEq(thread), thread)?]);
    rules.insert(libc::SYS_openat, vec![one(2, Dword, MaskedEq(WRITES), 0)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![one(1, Dword, MaskedEq(WRITES), 0)?]);
    // Memory is written or run, never both.
    let both = (libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let may = [0, libc::PROT_WRITE as u64, libc::PROT_EXEC as u64];
        let may: Result<_, _> = may.into_iter().map(|bits| one(2, Dword, MaskedEq(both), bits)).collect();
        rules.insert(call, may?);
    }
    // A process aborts by a signal to itself.
    rules.insert(libc::SYS_tgkill, vec![one(0, Dword, Eq, process.into())?]);
    rules.insert(libc::SYS_prctl, vec![one(0, Dword, Eq, libc::PR_SET_NAME as u64)?]);
    // Limits are read only.
    rules.insert(libc::SYS_prlimit64, vec![one(2, Qword, Eq, 0)?]);
    Ok(rules)
}

/// Installs one filter.
fn install(program: &BpfProgram, flags: libc::c_ulong) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel reads a live structure and the live instructions that it points to, which
    // are laid out as `struct sock_filter`; it keeps neither.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    /// Runs something on a thread in the sandbox.
    fn inside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            enter().unwrap();
            work()
        });
        thread.join().unwrap()
    }

    #[test]
    fn files_are_read_and_none_is_written_made_or_removed() {
        let path = std::env::temp_dir().join(format!("ironswan-sandbox-{}", std::process::id()));
        std::fs::write(&path, "as it was").unwrap();
        let file = path.clone();
        let errors = inside(move || {
            assert_eq!(std::fs::read(&file).unwrap(), b"as it was");
            let open = |options: &mut OpenOptions| options.open(&file).map(drop);
            [
                open(OpenOptions::new().write(true)),
                open(OpenOptions::new().read(true).write(true)),
                open(OpenOptions::new().append(true)),
                File::create(file.with_extension("new")).map(drop),
                std::fs::remove_file(&file),
                std::fs::rename(&file, file.with_extension("new")),
                std::fs::create_dir(file.with_extension("dir")),
                std::os::unix::fs::symlink(&file, file.with_extension("link")),
                rustix::fs::chmod(&file, rustix::fs::Mode::RUSR).map_err(Into::into),
            ]
            .map(|done| done.unwrap_err().raw_os_error())
        });
        assert_eq!(errors, [Some(libc::EPERM); 9]);
        assert_eq!(std::fs::read(&path).unwrap(), b"as it was");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn threads_start_and_programs_do_not() {
        let (answer, error) = inside(|| {
            let answer = std::thread::spawn(|| 6 * 7).join().unwrap();
            (answer, std::process::Command::new("/bin/true").status().unwrap_err())
        });
        assert_eq!((answer, error.raw_os_error()), (42, Some(libc::EPERM)));
    }

    #[test]
    fn privileges_other_processes_and_programs_of_the_kernel_are_out_of_reach() {
        let errors = inside(|| {
            let pid = rustix::process::Pid::from_raw(1).unwrap();
            let map = crate::bpf::Map::<4, 4>::new(crate::bpf::MapKind::Array, 1, "test");
            [
                rustix::process::kill_process(pid, rustix::process::Signal::CONT).map_err(io::Error::from),
                crate::namespace::unshare().map_err(|_| io::Error::from_raw_os_error(libc::EPERM)),
                map.map(drop),
                rustix::process::setrlimit(
                    rustix::process::Resource::Core,
                    rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
                )
                .map_err(Into::into),
                // SAFETY: a new mapping of nothing that any other code has.
                match unsafe {
                    let both = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    libc::mmap(std::ptr::null_mut(), 4096, both, flags, -1, 0)
                } {
                    libc::MAP_FAILED => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                },
            ]
            .map(|done| done.unwrap_err().raw_os_error())
        });
        assert_eq!(errors, [Some(libc::EPERM); 5]);
    }
}
