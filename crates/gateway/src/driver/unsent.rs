//! Datagrams that could not be sent: lines for the log, and commands that wait for such a peer.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_ike::Endpoint;
use ironswan_ike::event::{Cut, Event, IkeState, Level, Transmit};
use ironswan_io::clock;
use ironswan_keying::diagnosis::{Path, SendFault};
use ironswan_keying::{Diagnosis, Joined};
use rustix::io::Errno;
use tokio::sync::Notify;

use super::Driver;
use crate::observe::log::RepeatedBy;

/// Sends that failed.
#[derive(Default)]
pub(super) struct Unsent {
    /// Limits the lines about each peer: retransmissions to many peers that cannot be reached would
    /// be many lines.
    peer_lines: RefCell<RepeatedBy<IpAddr>>,
    /// Limits the lines about answers to all strangers together: a stranger chooses the address
    /// that is answered, and there are as many as there are addresses.
    stranger_lines: RefCell<RepeatedBy<()>>,
    /// The peer of the last failure, and the reason. `None` after a send that worked.
    last: RefCell<Option<(IpAddr, Diagnosis)>>,
    /// Number of failures.
    count: Cell<u64>,
    /// Woken by each failure.
    failed: Notify,
}

impl Driver {
    /// Sends a datagram.
    pub(super) fn transmit(&self, t: &Transmit) {
        let sent = self.0.state.borrow_mut().plane.send_ike((t.local, t.remote), t.dscp, &t.payload, t.cut);
        let unsent = &self.0.unsent;
        let Err(e) = sent else {
            unsent.last.replace(None);
            return;
        };
        if t.cut == Cut::Forbidden && Errno::from_io_error(&e) == Some(Errno::MSGSIZE) {
            // The link has become narrower. The message comes again in a form that passes.
            return;
        }
        let (remote, now, why) = (t.remote.ip(), clock::now(), describe(t, &e));
        // Nobody waits for a stranger.
        let text = match t.ike {
            None => {
                unsent.stranger_lines.borrow_mut().admit((), now).map(|numbered| numbered(why.to_string()))
            }
            Some(ike) => {
                self.0.state.borrow_mut().endpoint.call(now, |e| e.not_sent(ike, why.clone()));
                unsent.last.replace(Some((remote, why.clone())));
                unsent.count.set(unsent.count.get() + 1);
                unsent.failed.notify_waiters();
                unsent.peer_lines.borrow_mut().admit(remote, now).map(|numbered| numbered(why.to_string()))
            }
        };
        if let Some(text) = text {
            let sa = t.ike.and_then(|ike| self.view(|e, now| e.protocol().ike_sa(now, ike)));
            let (conn, ike) = sa.map_or((None, None), |sa| (Some(sa.conn), Some(sa.id)));
            let (level, why) = (Level::Warn, Some(Arc::new(why)));
            self.apply(&Event::Log { level, conn, ike, text, why, stranger: None });
        }
    }

    /// Number of sends that failed so far: [`Self::unreachable`] begins to look there.
    pub fn send_errors(&self) -> u64 {
        self.0.unsent.count.get()
    }

    /// Waits until something cannot be sent to a peer with which one of these connections is
    /// connecting, and says why. Failures up to number `seen` are old.
    pub async fn unreachable(&self, conns: &HashSet<String>, mut seen: u64) -> Diagnosis {
        loop {
            let failed = self.0.unsent.failed.notified();
            if self.0.unsent.count.get() != seen {
                seen = self.0.unsent.count.get();
                let error = self.0.unsent.last.borrow().clone();
                // A snapshot of all IKE_SAs costs something: take it only for a peer of these
                // connections.
                if let Some((remote, why)) = error
                    && self.view(|e, _| conns.iter().any(|c| may_be_at(e, c, remote)))
                    && self.view(|e, now| e.protocol().ike_sas(now)).iter().any(|sa| {
                        let begins = matches!(sa.state, IkeState::Created | IkeState::Connecting);
                        begins && sa.remote.ip() == remote && conns.contains(&sa.conn)
                    })
                {
                    return why;
                }
            }
            failed.await;
        }
    }
}

/// The entry for a datagram that could not be sent.
fn describe(t: &Transmit, e: &io::Error) -> Diagnosis {
    let why = match e.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            SendFault::NoRoute(e.to_string())
        }
        io::ErrorKind::AddrNotAvailable => SendFault::NotOurs(e.to_string()),
        io::ErrorKind::PermissionDenied => SendFault::Forbidden(e.to_string()),
        _ => SendFault::Other(e.to_string()),
    };
    Path::NotSent { local: t.local, remote: t.remote, why }.into()
}

/// True when the peer of this connection may have that address.
fn may_be_at(endpoint: &Joined<Endpoint>, conn: &str, remote: IpAddr) -> bool {
    endpoint.connection(conn).is_some_and(|c| c.remote_addrs.iter().any(|a| a.matches(remote)))
}
