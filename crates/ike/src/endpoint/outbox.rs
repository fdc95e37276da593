//! Everything that leaves the endpoint: reports, events, requests and datagrams; and who waits for
//! the answer to each request.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use ironswan_keying::Report;

use crate::event::{ChildId, Cut, Event, IkeId, Request, RequestId, Transmit};

/// Who asked.
pub(crate) enum Pending {
    /// An IKE_SA that waits for the answer.
    Sa(IkeId),
    /// A liveness check. Its IKE_SA goes on meanwhile.
    Usage(IkeId),
    /// When ESP of an IKE_SA went to the peer last.
    Keepalive(IkeId),
    /// How many packets these children of an IKE_SA have carried.
    Flow {
        /// The IKE_SA.
        ike: IkeId,
        /// Its children.
        children: Vec<ChildId>,
    },
    /// What is known of the path of an IKE_SA that is to be measured, or has been.
    Probe(IkeId),
    /// When a child was used last.
    Inactivity(ChildId),
    /// The route to a peer, for these IKE_SAs.
    Path {
        /// The peer.
        remote: IpAddr,
        /// IKE_SAs whose peer was there when the request was made.
        sas: Vec<IkeId>,
    },
    /// A DNS name that policy keeps fresh.
    Name(String),
    /// A trap whose local address has to be known.
    Trap {
        /// Connection.
        conn: String,
        /// Child.
        child: String,
    },
}

/// Queues of what the driver takes next.
#[derive(Default)]
pub(crate) struct Outbox {
    events: VecDeque<Event>,
    requests: VecDeque<(RequestId, Request)>,
    transmits: VecDeque<Transmit>,
    reports: VecDeque<Report>,
    /// Requests without an answer.
    pending: BTreeMap<RequestId, Pending>,
    last_request: u64,
}

impl Outbox {
    /// Queues an event.
    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Queues events.
    pub(crate) fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
    }

    /// Queues a report to policy.
    pub(crate) fn report(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    /// Queues a message of IKE; from port `natt`, which is the one for NAT traversal, with the
    /// non-ESP marker (RFC 3948 section 2.2). `ike` sends it to where its peer is.
    pub(crate) fn send(
        &mut self,
        ike: Option<IkeId>,
        dscp: u8,
        (local, remote): (SocketAddr, SocketAddr),
        natt: u16,
        message: &[u8],
        cut: Cut,
    ) {
        let mut payload = Vec::with_capacity(4 + message.len());
        if local.port() == natt {
            payload.extend([0; 4]);
        }
        payload.extend_from_slice(message);
        self.transmit(Transmit { local, remote, payload, dscp, cut, ike });
    }

    /// Queues a datagram.
    pub(crate) fn transmit(&mut self, transmit: Transmit) {
        self.transmits.push_back(transmit);
    }

    /// Queues a request, and remembers who asked.
    pub(crate) fn ask(&mut self, who: Pending, request: Request) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.pending.insert(id, who);
        self.requests.push_back((id, request));
        id
    }

    /// Nobody waits for the answer to this request any more.
    pub(crate) fn forget(&mut self, id: RequestId) {
        if self.pending.remove(&id).is_none() {
            return;
        }
        match self.requests.iter().rposition(|(of, _)| *of == id) {
            // The driver has not taken it yet.
            Some(at) => _ = self.requests.remove(at),
            None => self.emit(Event::Unwanted(id)),
        }
    }

    /// Who asked.
    pub(crate) fn pending(&self, id: RequestId) -> Option<&Pending> {
        self.pending.get(&id)
    }

    /// The answer to a request has come: who asked.
    pub(crate) fn answered(&mut self, id: RequestId) -> Option<Pending> {
        self.pending.remove(&id)
    }

    /// Number of requests without an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Number of reports that nobody has taken.
    pub(crate) fn reports(&self) -> usize {
        self.reports.len()
    }

    /// The next report.
    pub(crate) fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next request.
    pub(crate) fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop_front()
    }

    /// The next datagram.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }
}
