//! Network namespaces of a test's own. They belong to the thread, so nothing is left behind when it ends.

use std::process::Command;

/// Runs `f` on a thread with a fresh network namespace, loopback up. Fails, with the reason, where that is not allowed.
pub fn in_namespace<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        s.spawn(|| {
            ironswan_io::namespace::unshare()
                .expect("these tests need root: they make network namespaces and TUN devices");
            ip("link set lo up");
            f()
        })
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `ip` in the namespace of this thread.
pub fn ip(args: &str) -> String {
    let out = Command::new("ip").args(args.split_whitespace()).output().expect("iproute2 is needed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
