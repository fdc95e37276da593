//! Network namespaces of a test's own. They belong to the thread, so nothing is left behind when it
//! ends.

use std::process::Command;

/// Runs `f` on a thread with a fresh network namespace, loopback up. Fails, with the reason, where
/// that is not allowed.
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

/// Gives `device` an address, and waits until the kernel is ready to use it, which takes IPv6 a
/// moment.
pub fn address(address: &str, prefix_len: u8, device: &str) {
    ip(&format!(
        "addr add {address}/{prefix_len} dev {device}{}",
        if address.contains(':') { " nodad" } else { "" }
    ));
    let mut netlink = ironswan_io::route::Netlink::open().unwrap();
    for _ in 0..500 {
        if netlink.lookup(address.parse().unwrap(), None, 0).unwrap().is_some_and(|hop| hop.local) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{address} does not become usable");
}

/// Runs `ip` in the namespace of this thread.
pub fn ip(args: &str) -> String {
    let out = Command::new("ip").args(args.split_whitespace()).output().expect("iproute2 is needed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
