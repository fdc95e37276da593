//! Answers from outside: who gets each.

use std::net::IpAddr;
use std::time::Instant;

use super::{Endpoint, Pending};
use crate::event::{Completion, RequestId};
use crate::task::{liveness, path_probe};
use ironswan_keying::Report;
use ironswan_keying::diagnosis::Unresolved;

impl Endpoint {
    /// The answer to a request. One that is not expected any more is dropped.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: Completion) {
        match self.shared.outbox.answered(id) {
            Some(Pending::Sa(ike)) => self.with_sa(now, ike, |ep, sa| ep.resume(now, sa, id, completion)),
            Some(Pending::Usage(ike)) => {
                if let Completion::Usage { last_use } = completion {
                    self.work_on(now, ike, |cx, sa| liveness::judge(cx, sa, last_use));
                }
            }
            Some(Pending::Keepalive(ike)) => {
                if let Completion::Usage { last_use } = completion {
                    self.work_on(now, ike, |cx, sa| liveness::keepalive(cx, sa, last_use));
                }
            }
            Some(Pending::Flow { ike, children }) => {
                if let Completion::Packets(packets) = completion {
                    self.work_on(now, ike, |cx, sa| cx.judge_flow(sa, &children, &packets));
                }
            }
            Some(Pending::Probe(ike)) => {
                let known = if let Completion::PathMtu(known) = completion { known } else { None };
                self.work_on(now, ike, |cx, sa| path_probe::known(cx, sa, known));
            }
            Some(Pending::Inactivity(child)) => {
                if let Completion::Usage { last_use } = completion {
                    self.with_child(now, child, |cx, sa| cx.close_inactive(sa, child, last_use));
                }
            }
            Some(Pending::Path { remote, sas }) => {
                if let Completion::Route { local } = completion {
                    self.path_known(now, remote, &sas, local);
                }
            }
            Some(Pending::Name(name)) => {
                self.report(Report::Resolved { name, addrs: addresses(completion), ike: None });
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

/// At least one address, or the reason why there is none.
pub(crate) fn addresses(completion: Completion) -> Result<Vec<IpAddr>, Unresolved> {
    match completion {
        Completion::Addresses(Ok(addrs)) if addrs.is_empty() => Err(Unresolved::NoAddress),
        Completion::Addresses(answer) => answer,
        Completion::Failed { why } => Err(Unresolved::NotAsked(why.sentence())),
        _ => Err(Unresolved::NoAddress),
    }
}
