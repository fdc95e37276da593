//! Time of a packet by stage and direction, in nanoseconds, from batches that are picked out and
//! measured. The engine reads no clock: a worker that is to measure is lent one.

/// A stage of the packet path, in the order of the path. Not every stage has the same work in both
/// directions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Taking packets from the device (out) or the sockets (in).
    Receive,
    /// The inner header (out), the ESP or AH header (in).
    Parse,
    /// SPD and SAD (out); SAD, and the inner packet against the SA's selectors and the SPD (in).
    Policy,
    /// Sequence numbers (out), the replay window, checked and committed (in).
    Sequence,
    /// Segments, checksums, headers and trailer (out); trailer off, checksums, merging (in).
    Encapsulation,
    /// Sealing (out), opening (in).
    Crypto,
    /// Giving packets to the sockets (out) or the device (in).
    Send,
}

impl Stage {
    /// All, in their order.
    pub const ALL: [Self; 7] = [
        Self::Receive,
        Self::Parse,
        Self::Policy,
        Self::Sequence,
        Self::Encapsulation,
        Self::Crypto,
        Self::Send,
    ];

    /// The name, as `ironswan status`, VICI and the laboratory show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Policy => "policy",
            Self::Sequence => "sequence",
            Self::Encapsulation => "encapsulation",
            Self::Crypto => "crypto",
            Self::Send => "send",
        }
    }
}

/// A clock that is lent to the engine for the batches that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// Nanoseconds since any moment.
    pub read: fn() -> u64,
    /// Nanoseconds that one reading takes, which are not the stage's.
    pub cost: u64,
}

/// Is told of the end of each stage. Code that measures and code that does not are compiled
/// separately, so that the packets of all other batches pay nothing.
pub(crate) trait StageTimer {
    fn lap(&mut self, stage: Stage);
}

/// Measures nothing.
pub(crate) struct NoTimer;

impl StageTimer for NoTimer {
    #[inline(always)]
    fn lap(&mut self, _: Stage) {}
}

/// The measurement of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchTimer {
    stopwatch: Stopwatch,
    last: u64,
    pub(crate) times: StageTimes,
}

impl BatchTimer {
    pub(crate) fn start(stopwatch: Stopwatch) -> Self {
        Self { stopwatch, last: (stopwatch.read)(), times: StageTimes::default() }
    }

    /// Leaves out the time since the last stage: the batch has waited for others.
    pub(crate) fn resume(&mut self) {
        self.last = (self.stopwatch.read)();
    }
}

impl StageTimer for BatchTimer {
    fn lap(&mut self, stage: Stage) {
        let now = (self.stopwatch.read)();
        self.times.add(stage, now.saturating_sub(self.last).saturating_sub(self.stopwatch.cost));
        self.last = now;
    }
}

/// Time that the measured batches of one direction took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StageTimes {
    /// Nanoseconds of each of [`Stage::ALL`].
    pub ns: [u64; 7],
    /// Packets in these batches: ESP or AH packets.
    pub packets: u64,
    /// Their inner bytes.
    pub bytes: u64,
}

impl StageTimes {
    /// Nanoseconds of one stage.
    pub fn of(&self, stage: Stage) -> u64 {
        self.ns[stage as usize]
    }

    /// Enters the time of one stage.
    pub fn add(&mut self, stage: Stage, ns: u64) {
        self.ns[stage as usize] = self.ns[stage as usize].saturating_add(ns);
    }

    /// Adds what another worker measured.
    pub fn merge(&mut self, other: &Self) {
        self.ns.iter_mut().zip(other.ns).for_each(|(a, b)| *a += b);
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    /// Device to network.
    pub outbound: StageTimes,
    /// Network to device.
    pub inbound: StageTimes,
}

impl Stages {
    /// Adds what another worker measured.
    pub fn merge(&mut self, other: &Self) {
        self.outbound.merge(&other.outbound);
        self.inbound.merge(&other.inbound);
    }
}
