//! Tasks and messages of one IKE_SA: tasks that wait, our request in flight, and the peer's request
//! that is being answered.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Icmp;
use ironswan_keying::limits::{BYTES_WAITING, DATAGRAMS_WAITING};
use ironswan_wire::iana::ExchangeType;

use crate::task::Task;
use crate::window::{Inbound, Sealed, Window};

/// A datagram that waits until the IKE_SA has an answer from outside.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub bytes: Vec<u8>,
}

/// Our request in flight.
pub(crate) struct Active {
    pub task: Task,
    pub mid: u32,
    pub exchange: ExchangeType,
    /// The message as sent: "a retransmission MUST be bitwise identical" (RFC 7296 section 2.1).
    pub bytes: Sealed,
    /// Retransmissions so far.
    pub tries: u32,
    /// When it was sent last.
    pub sent_at: Instant,
    /// Reason why the operating system has not sent the last one.
    pub unsent: Option<Diagnosis>,
    /// The ICMP error that was kept of those about it.
    pub icmp: Option<Icmp>,
}

impl Active {
    /// A request that is sent now for the first time.
    pub(crate) fn new(task: Task, mid: u32, exchange: ExchangeType, bytes: Sealed, now: Instant) -> Self {
        Self { task, mid, exchange, bytes, tries: 0, sent_at: now, unsent: None, icmp: None }
    }

    /// The request is sent once more. Returns the number of retransmissions.
    pub(crate) fn again(&mut self, now: Instant) -> u32 {
        (self.tries, self.sent_at, self.unsent) = (self.tries + 1, now, None);
        self.tries
    }

    /// The request is sent on another way, where its retransmissions are counted from the
    /// beginning.
    pub(crate) fn elsewhere(&mut self, now: Instant) {
        (self.tries, self.sent_at, self.unsent, self.icmp) = (0, now, None, None);
    }
}

/// The peer's request that is being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answering {
    pub mid: u32,
    pub exchange: ExchangeType,
    pub digest: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Tasks and messages of one IKE_SA.
#[derive(Default)]
pub(crate) struct Work {
    window: Window,
    queue: VecDeque<Task>,
    /// In a box: of many IKE_SAs, few have a request in flight.
    active: Option<Box<Active>>,
    answering: Option<Answering>,
    backlog: VecDeque<Datagram>,
}

impl Work {
    // ---- the queue ----

    /// Queues a task behind all others.
    pub(crate) fn push(&mut self, task: Task) {
        self.queue.push_back(task);
    }

    /// Queues a task before all others.
    pub(crate) fn push_first(&mut self, task: Task) {
        self.queue.push_front(task);
    }

    /// Takes the next task.
    pub(crate) fn pop(&mut self) -> Option<Task> {
        self.queue.pop_front()
    }

    /// The tasks that wait.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &Task> {
        self.queue.iter()
    }

    /// The tasks that wait, to be changed.
    pub(crate) fn queued_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.queue.iter_mut()
    }

    /// The task in flight and then those that wait, to be changed.
    pub(crate) fn tasks_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.active.as_mut().map(|active| &mut active.task).into_iter().chain(&mut self.queue)
    }

    /// Takes all tasks that wait.
    pub(crate) fn take_queue(&mut self) -> VecDeque<Task> {
        std::mem::take(&mut self.queue)
    }

    /// Takes the first task that fits.
    pub(crate) fn take_first(&mut self, fits: impl Fn(&Task) -> bool) -> Option<Task> {
        let at = self.queue.iter().position(fits)?;
        self.queue.remove(at)
    }

    // ---- our request in flight ----

    /// Our request in flight.
    pub(crate) fn active(&self) -> Option<&Active> {
        self.active.as_deref()
    }

    /// Our request in flight, to be changed.
    pub(crate) fn active_mut(&mut self) -> Option<&mut Active> {
        self.active.as_deref_mut()
    }

    /// The request is in flight.
    pub(crate) fn sent(&mut self, active: Active) {
        self.active = Some(Box::new(active));
    }

    /// The request is not in flight any more. Its message ID is used again.
    pub(crate) fn take_active(&mut self) -> Option<Active> {
        self.active.take().map(|active| *active)
    }

    /// The request has been answered, or counts as answered: the next one has the next message ID.
    pub(crate) fn answered(&mut self) -> Option<Active> {
        self.window.response_seen();
        self.take_active()
    }

    /// The message ID of our next request; `None` when they are used up.
    pub(crate) fn next_mid(&self) -> Option<u32> {
        self.window.next_out()
    }

    // ---- the peer's request ----

    /// The peer's request that is being answered.
    pub(crate) fn answering(&self) -> Option<Answering> {
        self.answering
    }

    /// Begins to answer a request of the peer.
    pub(crate) fn begin_answer(&mut self, answering: Answering) {
        self.answering = Some(answering);
    }

    /// Takes the request that is to be answered now.
    pub(crate) fn take_answering(&mut self) -> Option<Answering> {
        self.answering.take()
    }

    /// The peer's request with this digest has been answered by these bytes.
    pub(crate) fn responded(&mut self, digest: u64, bytes: Sealed) {
        self.window.answered(digest, bytes);
    }

    /// Judges the peer's request by its message ID.
    pub(crate) fn judge(&self, mid: u32) -> Inbound {
        self.window.judge(mid)
    }

    /// The stored response to this request.
    pub(crate) fn stored(&self, request: &[u8]) -> Option<&[Vec<u8>]> {
        self.window.stored(request)
    }

    /// Message IDs and stored responses.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    // ---- datagrams that wait ----

    /// Keeps a datagram for later, when few enough wait. False when it is not kept.
    pub(crate) fn keep(&mut self, datagram: Datagram) -> bool {
        let bytes: usize = self.backlog.iter().chain([&datagram]).map(|d| d.bytes.len()).sum();
        let room = self.backlog.len() < DATAGRAMS_WAITING && bytes <= BYTES_WAITING;
        if room {
            self.backlog.push_back(datagram);
        }
        room
    }

    /// Keeps the datagram at hand for later, before all others.
    pub(crate) fn keep_first(&mut self, datagram: Datagram) {
        self.backlog.push_front(datagram);
    }

    /// Takes the next datagram that waits. An empty backlog keeps no memory.
    pub(crate) fn next_datagram(&mut self) -> Option<Datagram> {
        let next = self.backlog.pop_front();
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
        next
    }

    /// Begins anew, as if no message had been sent: tasks stay.
    pub(crate) fn start_over(&mut self) {
        *self = Self { queue: self.take_queue(), ..Self::default() };
    }
}
