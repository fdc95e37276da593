//! A data plane for tests of the control plane: it moves no packet, remembers all that it was told,
//! has an SAD and an SPD to refuse from, and raises whatever notices a test gives it.
//!
//! Commands are applied at once, or, as by a plane in the kernel, when the test says so
//! ([`Record::answer_later`], [`Record::answer`]).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ironswan_config::tuning::Tuning;
use ironswan_ike::event::{Cut, KnownPath};
use ironswan_io::clock;
use ironswan_io::route::Route;
use ironswan_ipsec::{ApplyError, Wanted, WindowNeeds};
use ironswan_wire::sadb::{Command, Direction, PolicyAdd, ReqId, SaAdd, SaRef, SaStats, Spi};

use super::{Applied, DataPlane, IkeDatagram, Notice, Refused, Report, Restored};

/// Sends an IKE message.
pub(crate) type SendIke = Box<dyn FnMut(IkeDatagram) -> io::Result<()>>;

/// The data plane, which goes to the driver.
pub(crate) struct Recording {
    record: Record,
    send: SendIke,
    epoch: Instant,
}

/// The record, which stays with the test.
#[derive(Clone, Default)]
pub(crate) struct Record(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    sas: Vec<SaAdd>,
    /// With the number of times that each was added.
    policies: Vec<(PolicyAdd, usize)>,
    /// Every call of `apply`.
    batches: Vec<Vec<Command>>,
    /// Calls of the other methods that change something, by name.
    calls: Vec<String>,
    stats: BTreeMap<(bool, Spi), SaStats>,
    needs: Vec<(ReqId, WindowNeeds)>,
    captured: Option<Arc<Wanted>>,
    /// Commands are not applied before the test says so.
    later: bool,
    under_way: Option<Vec<Command>>,
    notices: VecDeque<Notice>,
    waker: Option<Waker>,
}

impl Recording {
    /// A data plane that sends so, and its record.
    pub(crate) fn sending(send: SendIke) -> (Box<dyn DataPlane>, Record) {
        let record = Record::default();
        (Box::new(Self { record: record.clone(), send, epoch: clock::now() }), record)
    }

    fn call(&self, name: &str) {
        self.record.0.borrow_mut().calls.push(name.to_owned());
    }
}

impl Record {
    /// The SAs that stand, the oldest first.
    pub(crate) fn sas(&self) -> Vec<SaAdd> {
        self.0.borrow().sas.clone()
    }

    /// The policies that stand.
    pub(crate) fn policies(&self) -> Vec<PolicyAdd> {
        self.0.borrow().policies.iter().map(|(p, _)| p.clone()).collect()
    }

    /// Takes the commands of every `apply` since the last call, in short.
    pub(crate) fn batches(&self) -> Vec<String> {
        let batches = std::mem::take(&mut self.0.borrow_mut().batches);
        batches.iter().map(|b| b.iter().map(short).collect::<Vec<_>>().join(", ")).collect()
    }

    /// Takes the names of the other methods that were called since the last call.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().calls)
    }

    /// From now on [`Self::sas`] with this SPI have these counters.
    pub(crate) fn count(&self, direction: Direction, spi: Spi, stats: SaStats) {
        self.0.borrow_mut().stats.insert((direction == Direction::In, spi), stats);
    }

    /// From now on the replay check of this policy's SAs has dropped these.
    pub(crate) fn replayed(&self, reqid: ReqId, needs: WindowNeeds) {
        self.0.borrow_mut().needs.push((reqid, needs));
    }

    /// What captures want.
    pub(crate) fn captured(&self) -> Option<Arc<Wanted>> {
        self.0.borrow().captured.clone()
    }

    /// Raises a notice.
    pub(crate) fn raise(&self, notice: Notice) {
        let state = &mut *self.0.borrow_mut();
        state.notices.push_back(notice);
        state.waker.take().into_iter().for_each(Waker::wake);
    }

    /// From now on commands are applied by [`Self::answer`] alone.
    pub(crate) fn answer_later(&self) {
        self.0.borrow_mut().later = true;
    }

    /// Applies the commands under way. False when there are none.
    pub(crate) fn answer(&self) -> bool {
        let Some(commands) = self.0.borrow_mut().under_way.take() else { return false };
        let refused = self.0.borrow_mut().carry_out(&commands);
        self.raise(Notice::Applied(refused));
        true
    }
}

impl State {
    fn carry_out(&mut self, commands: &[Command]) -> Vec<Refused> {
        let mut refused = Vec::new();
        for (at, command) in commands.iter().enumerate() {
            if let Err(why) = self.apply(command) {
                refused.push(Refused { at, why: super::refused(command, why) });
            }
        }
        refused
    }

    fn apply(&mut self, command: &Command) -> Result<(), ApplyError> {
        match command {
            Command::SaAdd(sa) => {
                if self.sas.iter().any(|known| named(known) == named(sa)) {
                    return Err(ApplyError::Exists);
                }
                self.sas.push((**sa).clone());
            }
            Command::SaUpdate { sa, local, remote, udp_encap } => {
                let known = self.sa(sa)?;
                let known = &mut self.sas[known];
                (known.local, known.remote, known.udp_encap) = (*local, *remote, *udp_encap);
            }
            Command::SaPathMtu { sa, .. } => {
                self.sa(sa)?;
            }
            Command::SpiReserve { .. } | Command::SpiFree(_) => {}
            Command::SaDelete(sa) => {
                let at = self.sa(sa)?;
                self.sas.remove(at);
            }
            Command::PolicyAdd(policy) => match self.policies.iter_mut().find(|(p, _)| p == policy) {
                Some((_, count)) => *count += 1,
                None => self.policies.push((policy.clone(), 1)),
            },
            Command::PolicyDelete(policy) => {
                let at = self.policies.iter().position(|(p, _)| p == policy).ok_or(ApplyError::NotFound)?;
                self.policies[at].1 -= 1;
                if self.policies[at].1 == 0 {
                    self.policies.remove(at);
                }
            }
        }
        Ok(())
    }

    /// The place of an SA.
    fn sa(&self, sa: &SaRef) -> Result<usize, ApplyError> {
        let is = |known: &SaAdd| match sa.direction {
            Direction::In => known.direction == Direction::In && known.spi == sa.spi,
            Direction::Out => named(known) == *sa,
        };
        self.sas.iter().position(is).ok_or(ApplyError::NotFound)
    }
}

/// The name of an SA.
fn named(sa: &SaAdd) -> SaRef {
    SaRef { direction: sa.direction, spi: sa.spi, reqid: sa.reqid, remote: sa.remote.ip() }
}

fn short(command: &Command) -> String {
    match command {
        Command::SaAdd(sa) => format!("add {:?} SA", sa.direction),
        Command::SaUpdate { sa, .. } => format!("update {:?} SA", sa.direction),
        Command::SpiReserve { spi, .. } => format!("reserve SPI {spi}"),
        Command::SpiFree(spi) => format!("free SPI {spi}"),
        Command::SaPathMtu { mtu, .. } => format!("path MTU {mtu}"),
        Command::SaDelete(sa) => format!("delete {:?} SA", sa.direction),
        Command::PolicyAdd(p) => format!("add policy {} === {}", p.local, p.remote),
        Command::PolicyDelete(p) => format!("delete policy {} === {}", p.local, p.remote),
    }
}

impl DataPlane for Recording {
    fn apply(&mut self, commands: &[Command]) -> Applied {
        let state = &mut *self.record.0.borrow_mut();
        assert!(state.under_way.is_none(), "commands while others are under way");
        state.batches.push(commands.to_vec());
        if state.later {
            state.under_way = Some(commands.to_vec());
            return Applied::UnderWay;
        }
        Applied::Done(state.carry_out(commands))
    }

    fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        let state = &mut *self.record.0.borrow_mut();
        match state.notices.pop_front() {
            Some(notice) => Poll::Ready(notice),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn send_ike(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        _dscp: u8,
        message: &[u8],
        _cut: Cut,
    ) -> io::Result<()> {
        (self.send)(IkeDatagram { local, remote, payload: message.to_vec() })
    }

    fn known_path(&mut self, _: IpAddr, _: IpAddr) -> Option<KnownPath> {
        Some(KnownPath { mtu: 1500, told: None })
    }

    fn path_measured(&mut self, remote: IpAddr, mtu: Option<u32>) {
        self.call(&format!("path_measured {remote} {mtu:?}"));
    }

    fn sa_stats(&self, sas: &[SaRef]) -> Vec<Option<SaStats>> {
        let state = self.record.0.borrow();
        let of = |sa: &SaRef| {
            let counted = state.stats.get(&(sa.direction == Direction::In, sa.spi)).copied();
            state.sa(sa).ok().map(|_| counted.unwrap_or_default())
        };
        sas.iter().map(of).collect()
    }

    fn window_needs(&self) -> Vec<(ReqId, WindowNeeds)> {
        self.record.0.borrow().needs.clone()
    }

    fn epoch(&self) -> Instant {
        self.epoch
    }

    fn report(&self) -> Report {
        let state = self.record.0.borrow();
        let counters = vec![("sas", state.sas.len() as u64), ("policies", state.policies.len() as u64)];
        Report { name: "recording", workers: 1, counters, ..Report::default() }
    }

    fn capture(&mut self, wanted: Option<Arc<Wanted>>) -> bool {
        self.record.0.borrow_mut().captured = wanted;
        true
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.call(&format!("tune threaded_napi {:?}", tuning.threaded_napi));
    }

    fn restore_device(&mut self) -> Restored {
        self.call("restore_device");
        Restored::Nothing
    }

    fn restore_routes(&mut self, _: &[Route]) -> Vec<String> {
        self.call("restore_routes");
        Vec::new()
    }

    fn guard_changed(&mut self) {
        self.call("guard_changed");
    }

    fn links_changed(&mut self) {
        self.call("links_changed");
    }

    fn network_changed(&mut self) {
        self.call("network_changed");
    }

    fn remove_routes(&mut self) {
        self.call("remove_routes");
    }

    fn stop(&mut self) {
        self.call("stop");
        self.record.raise(Notice::Ended);
    }
}
