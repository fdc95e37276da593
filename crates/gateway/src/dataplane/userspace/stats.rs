//! Counters of the workers.

use ironswan_io::send::SendStats;
use ironswan_ipsec::Stages;

/// Counters of all workers, since their start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerStats {
    /// Times the first worker woke.
    pub rounds: u64,
    /// Times the first worker had something to do and no batch for it, since others had them all.
    /// Nothing is lost by that here.
    pub exhausted: u64,
    /// Reads of the TUN device that gave a frame.
    pub tun_reads: u64,
    /// Frames that did not fit the buffer, or had no header that makes sense. Dropped.
    pub tun_read_errors: u64,
    /// Bytes read from the TUN device.
    pub tun_read_bytes: u64,
    /// Writes to the TUN device.
    pub tun_writes: u64,
    /// Bytes written to the TUN device.
    pub tun_write_bytes: u64,
    /// Writes that the device refused. Dropped.
    pub tun_write_errors: u64,
    /// Merged writes that the device refused; their packets were written one by one.
    pub tun_write_unmerged: u64,
    /// Batches sealed.
    pub seals: u64,
    /// `recvmmsg` calls that gave something.
    pub receives: u64,
    /// Buffers received, each one or more datagrams.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Received datagrams that were cut, or raw packets without a header that makes sense. Dropped.
    pub receive_errors: u64,
    /// IKE messages passed to the control plane.
    pub ike: u64,
    /// IKE messages dropped since the control plane did not keep up.
    pub ike_dropped: u64,
    /// NAT keepalives (RFC 3948 section 2.3), absorbed.
    pub keepalives: u64,
    /// Datagrams on the encapsulation port that are neither ESP, nor IKE, nor a keepalive. Dropped.
    pub malformed: u64,
    /// Counters of sending.
    pub send: SendStats,
    /// Time of each stage.
    pub stages: Stages,
}

impl WorkerStats {
    /// Adds what is counted elsewhere.
    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.rounds, other.rounds),
            (&mut self.exhausted, other.exhausted),
            (&mut self.tun_reads, other.tun_reads),
            (&mut self.tun_read_errors, other.tun_read_errors),
            (&mut self.tun_read_bytes, other.tun_read_bytes),
            (&mut self.tun_writes, other.tun_writes),
            (&mut self.tun_write_bytes, other.tun_write_bytes),
            (&mut self.tun_write_errors, other.tun_write_errors),
            (&mut self.tun_write_unmerged, other.tun_write_unmerged),
            (&mut self.seals, other.seals),
            (&mut self.receives, other.receives),
            (&mut self.received, other.received),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.receive_errors, other.receive_errors),
            (&mut self.ike, other.ike),
            (&mut self.ike_dropped, other.ike_dropped),
            (&mut self.keepalives, other.keepalives),
            (&mut self.malformed, other.malformed),
        ];
        pairs.into_iter().for_each(|(sum, n)| *sum += n);
        // One place sends.
        if other.seals != 0 {
            self.send = other.send;
        }
        self.stages.merge(&other.stages);
    }
}
