//! Settings of the data plane. The defaults need no tuning; `docs/performance.md` says what each
//! gave.

use std::time::Duration;

/// Settings of the data plane (`data { .. }` of `ironswan.conf`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Threads that move packets; 0 chooses by the number of processors.
    pub workers: usize,
    /// Processors that the workers are bound to, in turns; empty binds none.
    pub pin: Vec<usize>,
    /// Nice value of the workers, -20 to 19; 0 leaves them as the daemon is. The default puts them
    /// before other programs: a worker that has a backlog never sleeps, so the scheduler leaves it
    /// where it is, beside another busy thread, even while a processor idles.
    pub nice: i8,
    /// Bytes of the batch that is sealed at once.
    pub batch_bytes: usize,
    /// Bytes of buffer of each socket, each way.
    pub socket_buffer: u32,
    /// Let the kernel cut what is sent in UDP (`UDP_SEGMENT`).
    pub gso: bool,
    /// Let the kernel merge what is received in UDP (`UDP_GRO`).
    pub gro: bool,
    /// Take and give super-packets at the TUN device.
    pub tun_offload: bool,
    /// Packets that may wait in the TUN device. They last as long as a worker may have to wait for
    /// a processor: some milliseconds of small packets.
    pub tun_queue: u32,
    /// How long a worker polls its sockets before it sleeps (`SO_BUSY_POLL`); zero does not.
    pub busy_poll: Duration,
    /// Interfaces on which ESP is received through `AF_XDP`.
    pub xdp: Vec<String>,
    /// Interfaces that kernel threads poll, not softirqs; the data plane itself has no part in it
    /// (`crate::napi`).
    pub threaded_napi: ThreadedNapi,
}

/// Interfaces that kernel threads poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThreadedNapi {
    /// All that can be, where the daemon may use one processor only: what arrives takes it there
    /// from what carries. Else none.
    Auto,
    /// These.
    Named(Vec<String>),
}

impl ThreadedNapi {
    /// True when kernel threads are to poll this interface, if they can.
    pub fn names(&self, interface: &str) -> bool {
        match self {
            Self::Auto => true,
            Self::Named(names) => names.iter().any(|name| name == interface),
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            workers: 0,
            pin: Vec::new(),
            nice: -10,
            batch_bytes: 256 * 1024,
            socket_buffer: 8 << 20,
            gso: true,
            gro: true,
            tun_offload: true,
            tun_queue: 4_000,
            busy_poll: Duration::ZERO,
            xdp: Vec::new(),
            threaded_napi: ThreadedNapi::Auto,
        }
    }
}
