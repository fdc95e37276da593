//! What a sample of a processor was doing, by the names of the kernel's functions. They are the
//! names of Linux 5.10 to 6.18; what a kernel calls otherwise is counted as other work. Pure.

use crate::measure::stacks::Stack;

/// Whose work it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// A process of a gateway, or interrupts that came while it ran.
    Gateways,
    /// The programs that send and receive the load, likewise.
    Hosts,
    /// Threads of the kernel, and interrupts that came while nothing or another program ran.
    Kernel,
}

impl Who {
    pub(super) const ALL: [Self; 3] = [Self::Gateways, Self::Hosts, Self::Kernel];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gateways => "gateways' processes",
            Self::Hosts => "hosts",
            Self::Kernel => "kernel threads",
        }
    }
}

/// What a process does in its own code, as an area.
pub(super) const PROGRAM: &str = "the program itself";
/// What no rule names.
const OTHER: &str = "other work of the kernel";

/// Areas of the kernel's work, each with how names of its functions begin. The innermost function
/// that has an area decides: what locks, copies a few bytes or computes a hash belongs to its
/// caller.
const AREAS: [(&str, &[&str]); 20] = [
    (
        "copies between kernel and program",
        &[
            "_copy_from_",
            "_copy_to_",
            "copy_from_user",
            "copy_to_user",
            "copy_user_",
            "rep_movs",
            "copyin",
            "copyout",
            "__check_object_size",
            "__check_heap_object",
            "check_heap_object",
            "simple_copy_to_iter",
            "skb_copy_",
            "__skb_datagram_iter",
            "copy_page_",
        ],
    ),
    (
        "buffers of packets",
        &[
            "__alloc_skb",
            "alloc_skb",
            "build_skb",
            "__build_skb",
            "kmem_cache_",
            "kmalloc",
            "__kmalloc",
            "kfree",
            "__slab_",
            "___slab_",
            "slab_",
            "skb_release_",
            "consume_skb",
            "napi_consume_skb",
            "__kfree_skb",
            "skb_free_",
            "skb_attempt_defer_free",
            "skb_defer_free",
            "sock_wfree",
            "sock_rfree",
            "sock_alloc_send",
            "skb_set_owner",
            "skb_page_frag",
            "sk_page_frag",
            "page_frag",
            "__page_frag",
            "get_page_from_freelist",
            "__rmqueue",
            "rmqueue",
            "alloc_pages",
            "__alloc_pages",
            "__alloc_frozen",
            "__free_",
            "free_frozen",
            "free_unref",
            "put_page",
            "napi_alloc",
            "__netdev_alloc",
            "__napi_alloc",
            "memcg_",
            "__memcg_",
            "obj_cgroup_",
            "mod_memcg",
            "__mod_memcg",
            "__sk_mem_",
        ],
    ),
    ("checksums", &["csum_", "__skb_checksum", "skb_checksum", "do_csum", "ip_compute_csum", "__csum"]),
    (
        "cutting and merging (GSO, GRO)",
        &[
            "skb_segment",
            "__skb_gso",
            "skb_gso",
            "skb_mac_gso",
            "inet_gso",
            "ipv6_gso",
            "tcp_gso",
            "tcp4_gso",
            "tcp6_gso",
            "__udp_gso",
            "udp4_ufo",
            "udp_gro",
            "udp4_gro",
            "tcp_gro",
            "tcp4_gro",
            "inet_gro",
            "dev_gro",
            "napi_gro",
            "skb_gro",
            "gro_",
        ],
    ),
    ("firewall (nftables)", &["nf_", "nft_"]),
    ("packet programs (BPF, tc)", &["bpf_", "cls_bpf", "tcf_", "__tcf_", "tc_run", "sch_handle_"]),
    (
        "routing",
        &[
            "fib_",
            "fib4_",
            "fib6_",
            "__fib_",
            "ip_route_",
            "ip6_route_",
            "ip6_pol_",
            "__ip_route",
            "rt_",
            "dst_",
            "ipv4_dst",
            "inet_addr_",
            "l3mdev_",
        ],
    ),
    ("WireGuard", &["wg_"]),
    (
        "ciphers and hashes",
        &[
            "aesni",
            "aes_",
            "crypto_",
            "chacha",
            "poly1305",
            "sha1_",
            "sha256_",
            "sha512_",
            "gcm_",
            "ghash",
            "simd_",
            "cryptd_",
            "blake2",
            "curve25519",
            "scatterwalk_",
        ],
    ),
    ("IPsec of the kernel", &["xfrm", "__xfrm", "esp_", "esp4_", "esp6_", "ah_"]),
    ("TUN device", &["tun_"]),
    ("packet sockets", &["packet_", "tpacket_", "prb_", "__packet_"]),
    (
        "UDP",
        &[
            "udp_",
            "udp6_",
            "udpv6_",
            "__udp",
            "skb_consume_udp",
            "__skb_recv_udp",
            "ip_make_skb",
            "__ip_append_data",
            "ip_append_",
            "ip_generic_getfrag",
            "ip_cmsg_",
            "put_cmsg",
            "ip_setup_cork",
        ],
    ),
    ("raw sockets", &["raw_", "rawv6_"]),
    ("TCP", &["tcp_", "__tcp_", "bictcp_", "cubictcp_", "inet_csk_"]),
    ("IP", &["ip_", "ip6_", "__ip_", "__ip6_", "ipv6_", "inet_", "inet6_", "neigh_"]),
    (
        "links and queues",
        &[
            "veth_",
            "dev_",
            "__dev_",
            "netif_",
            "__netif_",
            "net_rx_action",
            "net_tx_action",
            "process_backlog",
            "napi_",
            "__napi_",
            "sch_",
            "qdisc_",
            "__qdisc_",
            "fq_",
            "pfifo_",
            "validate_xmit",
            "enqueue_to_backlog",
            "netdev_",
            "eth_",
            "get_rps_cpu",
            "rps_",
            "dql_",
            "br_",
        ],
    ),
    (
        "waiting and waking",
        &[
            "schedule",
            "__schedule",
            "finish_task_switch",
            "try_to_wake_up",
            "ttwu_",
            "__wake_up",
            "wake_up",
            "ep_",
            "do_epoll",
            "__x64_sys_epoll",
            "sock_def_",
            "sock_poll",
            "futex_",
            "do_futex",
            "select_",
            "do_select",
            "core_sys_select",
            "do_pselect",
            "do_sys_poll",
            "do_poll",
            "hrtimer_",
            "__hrtimer",
            "pick_next",
            "enqueue_task",
            "dequeue_task",
            "sched_",
            "psi_",
            "queue_work",
            "__queue_work",
            "insert_work",
            "worker_",
            "process_one_work",
        ],
    ),
    (
        "interrupts and timers",
        &[
            "handle_softirqs",
            "__do_softirq",
            "do_softirq",
            "__local_bh_enable",
            "run_ksoftirqd",
            "asm_sysvec_",
            "sysvec_",
            "asm_common_interrupt",
            "common_interrupt",
            "irq_",
            "__irq_",
            "irqentry_",
            "tick_",
            "run_timer",
            "rcu_core",
        ],
    ),
    (
        "system calls by themselves",
        &[
            "do_syscall_64",
            "entry_SYSCALL",
            "x64_sys_call",
            "__x64_sys_",
            "__sys_",
            "___sys_",
            "____sys_",
            "ksys_",
            "vfs_",
            "do_writev",
            "do_readv",
            "do_iter_",
            "import_iovec",
            "__import_iovec",
            "iovec_",
            "copy_iovec",
            "copy_msghdr",
            "move_addr",
            "fdget",
            "fput",
            "sockfd_",
            "sock_",
            "security_",
            "rw_verify",
            "__seccomp",
            "seccomp_",
            "syscall_",
            "exit_to_user",
            "do_recvmmsg",
            "__put_user",
            "__get_user",
            "el0_",
            "invoke_syscall",
        ],
    ),
];

/// Where in a process it happens: in which kind of system call.
const CALLS: [(&str, &[&str]); 3] = [
    ("receive", &["read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg"]),
    ("send", &["write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg"]),
    (
        "wait",
        &[
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "poll",
            "ppoll",
            "select",
            "pselect6",
            "futex",
            "nanosleep",
            "clock_nanosleep",
        ],
    ),
];
/// Other calls, and what is before and after any.
const OTHER_CALLS: &str = "entry, other calls";
/// Interrupts that came while the process itself ran, and page faults.
const INTERRUPTS: &str = "interrupts";
/// The process's own code.
const OWN: &str = "own code";

/// Columns of a process's work, in the order of the table.
pub(super) const WITHIN: [&str; 6] = [CALLS[0].0, CALLS[1].0, CALLS[2].0, OTHER_CALLS, INTERRUPTS, OWN];

/// Processes of a measurement.
pub(super) struct Parties {
    pub gateways: Vec<u32>,
    /// The laboratory itself, which generates and receives packets.
    pub laboratory: u32,
}

impl Parties {
    /// Whose work a sample is; `None` where the processor was idle, or was another program's.
    pub(super) fn who(&self, stack: &Stack) -> Option<Who> {
        let interrupted = || stack.calls.iter().any(|call| is_interrupt(call));
        if self.gateways.contains(&stack.pid) {
            Some(Who::Gateways)
        } else if stack.pid == self.laboratory || stack.name == "iperf3" {
            Some(Who::Hosts)
        } else if is_thread_of_the_kernel(stack) || interrupted() {
            Some(Who::Kernel)
        } else {
            None
        }
    }
}

/// Packets are handled in software interrupts.
fn is_interrupt(call: &str) -> bool {
    ["handle_softirqs", "__do_softirq", "net_rx_action"].contains(&call)
}

fn is_thread_of_the_kernel(stack: &Stack) -> bool {
    stack.pid != 0 && ["ksoftirqd/", "kworker/", "napi/"].iter().any(|name| stack.name.starts_with(name))
}

/// The area of a sample.
pub(super) fn area(stack: &Stack) -> &'static str {
    if stack.calls.is_empty() {
        return PROGRAM;
    }
    let named = |call: &String| {
        let begins = |names: &&[&str]| names.iter().any(|name| call.starts_with(name));
        AREAS.iter().find(|(_, names)| begins(names)).map(|(area, _)| *area)
    };
    stack.calls.iter().find_map(named).unwrap_or(OTHER)
}

/// Where in its process a sample was taken.
pub(super) fn within(stack: &Stack) -> &'static str {
    if stack.calls.is_empty() {
        return OWN;
    }
    // The outermost functions are the entry, and the system call below it.
    let call = |name: &String| {
        let name = ["__x64_sys_", "__ia32_sys_", "__arm64_sys_", "ksys_"]
            .iter()
            .find_map(|p| name.strip_prefix(p))?;
        let kind = CALLS.iter().find(|(_, calls)| calls.contains(&name)).map(|(kind, _)| *kind);
        Some(kind.unwrap_or(OTHER_CALLS))
    };
    if let Some(kind) = stack.calls.iter().rev().find_map(call) {
        return kind;
    }
    // A kernel may have the call in line with its entry.
    let inline = |name: &String| {
        let name = name.strip_prefix("do_")?;
        CALLS.iter().find(|(_, calls)| calls.contains(&name)).map(|(kind, _)| *kind)
    };
    let is_call = stack.calls.iter().any(|name| ["do_syscall_64", "el0_svc"].contains(&name.as_str()));
    if is_call { stack.calls.iter().rev().find_map(inline).unwrap_or(OTHER_CALLS) } else { INTERRUPTS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(name: &str, pid: u32, calls: &str) -> Stack {
        let calls = calls.split(" < ").filter(|c| !c.is_empty()).map(str::to_string).collect();
        Stack { name: name.into(), pid, calls }
    }

    #[test]
    fn the_innermost_function_that_has_an_area_decides() {
        let cases = [
            ("", PROGRAM, OWN),
            (
                "_copy_from_iter < ip_generic_getfrag < __ip_append_data < udp_sendmsg < ____sys_sendmsg < __x64_sys_sendmmsg \
                 < do_syscall_64",
                "copies between kernel and program",
                "send",
            ),
            (
                "__pi_memcpy < nft_lookup_eval < nft_do_chain < nf_hook_slow < ip_rcv < tun_get_user < vfs_writev < do_writev < \
                 do_syscall_64",
                "firewall (nftables)",
                "send",
            ),
            (
                "tun_do_read < tun_chr_read_iter < vfs_read < ksys_read < do_syscall_64",
                "TUN device",
                "receive",
            ),
            (
                "_raw_spin_unlock_irqrestore < sock_def_readable < udp_queue_rcv_one_skb < handle_softirqs < asm_sysvec_x",
                "waiting and waking",
                "interrupts",
            ),
            ("fib_table_lookup < ip_route_input_slow < ip_rcv", "routing", "interrupts"),
            (
                "mutex_lock < ep_send_events < do_epoll_wait < __x64_sys_epoll_pwait < do_syscall_64",
                "waiting and waking",
                "wait",
            ),
            ("xyz < __x64_sys_mmap < do_syscall_64", "system calls by themselves", "entry, other calls"),
            (
                "do_syscall_64 < entry_SYSCALL_64_after_hwframe",
                "system calls by themselves",
                "entry, other calls",
            ),
            ("xyz < zyx", OTHER, "interrupts"),
            (
                "import_iovec < vfs_writev < do_writev < do_syscall_64 < entry_SYSCALL_64_after_hwframe",
                "system calls by themselves",
                "send",
            ),
        ];
        for (calls, of, place) in cases {
            let stack = stack("x", 7, calls);
            assert_eq!((area(&stack), within(&stack)), (of, place), "{calls}");
            assert!(WITHIN.contains(&within(&stack)));
        }
    }

    #[test]
    fn idle_processors_and_other_programs_are_nobody_s_work_but_packets_handled_there_are() {
        let parties = Parties { gateways: vec![5, 6], laboratory: 9 };
        let who = |name, pid, calls| parties.who(&stack(name, pid, calls));
        assert_eq!(who("ipsec-data-0", 6, ""), Some(Who::Gateways));
        assert_eq!((who("lab", 9, ""), who("iperf3", 77, "")), (Some(Who::Hosts), Some(Who::Hosts)));
        assert_eq!(who("swapper", 0, "pv_native_safe_halt < do_idle"), None);
        assert_eq!(who("swapper", 0, "veth_xmit < net_rx_action < handle_softirqs"), Some(Who::Kernel));
        assert_eq!(who("kworker/1:1-wg-crypt", 33, "chacha_block"), Some(Who::Kernel));
        assert_eq!(
            (who("rustc", 40, ""), who("rustc", 40, "tcp_ack < net_rx_action")),
            (None, Some(Who::Kernel))
        );
    }
}
