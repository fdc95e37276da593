//! Answers from outside: who gets each.

use std::net::IpAddr;
use std::time::Instant;

use super::{Endpoint, Pending};
use crate::event::{Completion, RequestId};
use crate::task::liveness;
use ironswan_keying::Report;

impl Endpoint {
    /// The answer to a request. One that is not expected any more is dropped.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: Completion) {
        match self.outbox.answered(id) {
            Some(Pending::Sa(ike)) => self.with_sa(now, ike, |ep, sa| ep.resume(now, sa, id, completion)),
            Some(Pending::Usage(ike)) => {
                if let Completion::Usage { last_inbound } = completion {
                    self.work_on(now, ike, |cx, sa| liveness::judge(cx, sa, last_inbound));
                }
            }
            Some(Pending::Path { remote, sas }) => {
                if let Completion::Route { local } = completion {
                    self.path_known(now, remote, &sas, local);
                }
            }
            Some(Pending::Name(name)) => {
                let (addrs, error) = addresses(completion);
                self.report(Report::Resolved { name, addrs, error, ike: None });
            }
            Some(Pending::Trap { conn, child }) => {
                let local = if let Completion::Route { local } = completion { local } else { None };
                self.report(Report::TrapRouted { conn, child, local });
            }
            None => {}
        }
        self.run_todo(now);
    }
}

/// The addresses or the error in an answer of the resolver; neither in any other answer.
pub(crate) fn addresses(completion: Completion) -> (Vec<IpAddr>, Option<String>) {
    match completion {
        Completion::Addresses { addrs, error } => (addrs, error),
        Completion::Failed { error } => (Vec::new(), Some(error)),
        _ => (Vec::new(), None),
    }
}
