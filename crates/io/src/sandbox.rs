//! System calls that the daemon may make (seccomp): no programs, no files for writing, no other
//! processes, no programs of the kernel (`bpf`), no mounts, no other users.
//!
//! The kernel refuses every other call with an error, and writes a line into its own log
//! (`type=1326 ... syscall=NUMBER`). So a call that is refused by mistake costs one feature, not
//! the daemon. Two filters stand, because the refusals of one of them are not logged. The kernel
//! asks both, and a refusal of either counts.
//!
//! | filter | calls | answer | logged |
//! |---|---|---|---|
//! | first | `clone3`, `openat2`, whose arguments are out of sight | ENOSYS | no |
//! | second | in the lists below | as usual | |
//! | second | newer than Linux 5.0 | ENOSYS | yes |
//! | second | all others | EPERM | yes |
//!
//! ENOSYS is the answer of a kernel that has no such call: a C library makes an older call then.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// Calls that are made with any arguments.
const ANY: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
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
    libc::SYS_sched_getattr,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals to this process.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending,
    libc::SYS_signalfd4,
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
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
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
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_times,
];

/// Calls that only this processor has: older ones of the same kinds, and those that the kernel puts
/// into a process whose functions somebody watches (`bpftrace`).
#[cfg(target_arch = "x86_64")]
const OF_PROCESSOR: &[c_long] = &[
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
    URETPROBE,
    UPROBE,
];
#[cfg(target_arch = "x86_64")]
const URETPROBE: c_long = 335;
#[cfg(target_arch = "x86_64")]
const UPROBE: c_long = 336;
#[cfg(not(target_arch = "x86_64"))]
const OF_PROCESSOR: &[c_long] = &[];

/// Number of the first call that is newer than Linux 5.0. From here on a call has the same number
/// on every processor.
const FIRST_NEWER: u32 = 424;

/// Requests of `prctl` that are allowed: names of a thread and of its memory.
const OWN_NAMES: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

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
    let mut program = refuse_newer();
    program.extend(filter(calls, eperm, SeccompAction::Allow).map_err(refused)?);
    install(&program, libc::SECCOMP_FILTER_FLAG_LOG)
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

/// The beginning of the second filter: ENOSYS for newer calls that are in no list. For all other
/// calls the program goes on behind these instructions.
fn refuse_newer() -> BpfProgram {
    let jump = |operator: u32, call, jt, jf| sock_filter {
        code: (libc::BPF_JMP | operator | libc::BPF_K) as u16,
        jt,
        jf,
        k: call,
    };
    let listed = ANY.iter().filter_map(|call| u32::try_from(*call).ok()).filter(|call| *call >= FIRST_NEWER);
    let listed: Vec<u32> = listed.collect();
    let end = listed.len() as u8 + 1;
    // The number of the call is the first field of `struct seccomp_data`.
    let load = sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 };
    let mut program = vec![load, jump(libc::BPF_JGE, FIRST_NEWER, 0, end)];
    program.extend((1..end).zip(&listed).map(|(i, call)| jump(libc::BPF_JEQ, *call, end - i, 0)));
    let answer = u32::from(SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));
    program.push(sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: answer });
    program
}

/// The calls of the second filter, for the process of this number.
fn allowed(process: u32) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = ANY.iter().chain(OF_PROCESSOR).map(|call| (*call, Vec::new())).collect();
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
    let names = OWN_NAMES.iter().map(|name| one(0, Dword, Eq, *name as u64));
    rules.insert(libc::SYS_prctl, names.collect::<Result<_, _>>()?);
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
    fn newer_calls_are_answered_as_by_a_kernel_without_them() {
        let (refused, listed) = inside(|| {
            let file = File::open("/proc/self/status").unwrap();
            let refused =
                [libc::SYS_pidfd_open, libc::SYS_io_uring_setup, libc::SYS_fsopen, 999_999].map(|call| {
                    // SAFETY: the kernel takes null pointers and wrong descriptors as errors.
                    let answer = unsafe { libc::syscall(call, 0, 0, 0, 0) };
                    (answer, io::Error::last_os_error().raw_os_error())
                });
            let flags = rustix::fs::AtFlags::EACCESS;
            (refused, rustix::fs::accessat(&file, "/", rustix::fs::Access::READ_OK, flags))
        });
        assert_eq!(refused, [(-1, Some(libc::ENOSYS)); 4]);
        // `faccessat2`, which is as new.
        assert_eq!(listed, Ok(()));
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
