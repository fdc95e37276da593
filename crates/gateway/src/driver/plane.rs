//! The driver and the data plane: commands go in, notices and counters come out.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use ironswan_ike::event::{IkeSaInfo, Level};
use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_keying::diagnosis::DataPlane as DataPlaneFault;
use ironswan_wire::sadb::{Command, Direction, SaRef, SaStats, Up};

use super::Driver;
use crate::dataplane::{Applied, DataPlane, IkeDatagram, Notice, Refused};
use crate::observe::log;

impl Driver {
    /// Looks at the data plane.
    pub fn plane<R>(&self, f: impl FnOnce(&dyn DataPlane) -> R) -> R {
        f(&*self.0.state.borrow().plane)
    }

    /// Changes something at the data plane, and sees to what follows at the guard.
    pub fn change_plane<R>(&self, f: impl FnOnce(&mut dyn DataPlane) -> R) -> R {
        let result = f(&mut *self.0.state.borrow_mut().plane);
        self.steered();
        result
    }

    /// Serves the data plane until it ends, which is a defect.
    pub async fn serve_plane(&self) {
        loop {
            match poll_fn(|cx| self.change_plane(|plane| plane.poll_notice(cx))).await {
                Notice::Ike(datagram) => self.receive(&datagram),
                Notice::Undelivered(errors) => self.act(|e, now| {
                    errors.iter().for_each(|error| e.call(now, |e| e.handle_icmp(now, error)));
                }),
                Notice::Up(list) => {
                    self.act(|e, now| {
                        list.into_iter().for_each(|up| e.call(now, |e| e.handle_engine(now, up)))
                    });
                }
                Notice::Applied(refused) => {
                    let commands = std::mem::take(&mut self.0.state.borrow_mut().under_way);
                    self.applied(&commands, refused);
                    self.pump(clock::now());
                }
                Notice::DeviceGone => self.0.device_gone.notify_one(),
                Notice::Ended => return,
            }
        }
    }

    /// Takes an IKE message that has arrived, without the non-ESP marker.
    pub(super) fn receive(&self, datagram: &IkeDatagram) {
        self.arrives(datagram);
        let IkeDatagram { local, remote, payload } = datagram;
        self.act(|e, now| e.call(now, |e| e.handle_datagram(now, *local, *remote, payload)));
    }

    /// Waits until somebody deletes the device of the data plane.
    pub async fn device_gone(&self) {
        self.0.device_gone.notified().await;
    }

    /// True while the data plane applies commands.
    pub(super) fn is_applying(&self) -> bool {
        !self.0.state.borrow().under_way.is_empty()
    }

    /// Gives commands to the data plane.
    pub(crate) fn submit(&self, commands: Vec<Command>) {
        let applied = self.0.state.borrow_mut().plane.apply(&commands);
        match applied {
            Applied::Done(refused) => self.applied(&commands, refused),
            Applied::UnderWay => self.0.state.borrow_mut().under_way = commands,
        }
    }

    /// The commands have been applied, but for the refused ones.
    fn applied(&self, commands: &[Command], refused: Vec<Refused>) {
        let mut refused = refused.into_iter().peekable();
        for (at, command) in commands.iter().enumerate() {
            if let Some(refused) = refused.next_if(|refused| refused.at == at) {
                self.refused(command, &refused.why);
                continue;
            }
            self.0.guard.change(|guard, _| match command {
                Command::PolicyAdd(policy) => guard.engine(policy, true),
                Command::PolicyDelete(policy) => guard.engine(policy, false),
                _ => {}
            });
        }
    }

    fn refused(&self, command: &Command, why: &DataPlaneFault) {
        log::diagnosis(Level::Error, None, why);
        // A CHILD_SA without one of its SAs carries nothing: to its owner, that SA has come to its
        // end.
        if let Command::SaAdd(sa) = command {
            let (direction, spi, reqid, remote) = (sa.direction, sa.spi, sa.reqid, sa.remote.ip());
            let up = Up::Expire { sa: SaRef { direction, spi, reqid, remote }, hard: true };
            let now = clock::now();
            self.0.state.borrow_mut().endpoint.call(now, |e| e.handle_engine(now, up));
        }
    }

    /// Every IKE_SA with the counters of its children filled in, and the time on the data plane's
    /// clock in seconds.
    pub fn ike_sas(&self) -> (Vec<IkeSaInfo>, u64) {
        self.ike_sas_of(None)
    }

    /// The same of one connection.
    pub fn ike_sas_of(&self, conn: Option<&str>) -> (Vec<IkeSaInfo>, u64) {
        let mut list = self.uncounted(conn);
        self.fill(&mut list);
        (list, self.plane_now().as_secs())
    }

    /// Every IKE_SA, or those of a connection, without counters.
    pub fn uncounted(&self, conn: Option<&str>) -> Vec<IkeSaInfo> {
        self.view(|e, now| match conn {
            Some(conn) => e.protocol().ike_sas_of(now, conn),
            None => e.protocol().ike_sas(now),
        })
    }

    /// Fills in the counters of the children of these IKE_SAs.
    pub fn fill(&self, list: &mut [IkeSaInfo]) {
        let mut sas = Vec::new();
        for sa in &*list {
            let remote = sa.remote.ip();
            for child in &sa.children {
                let reqid = child.reqid;
                sas.push(SaRef { direction: Direction::In, spi: child.spi_in, reqid, remote });
                sas.push(SaRef { direction: Direction::Out, spi: child.spi_out, reqid, remote });
            }
        }
        let stats = self.plane(|plane| plane.sa_stats(&sas));
        let children = list.iter_mut().flat_map(|sa| &mut sa.children);
        for (child, both) in children.zip(stats.chunks_exact(2)) {
            if both.iter().any(Option::is_some) {
                child.stats = Some((both[0].unwrap_or_default(), both[1].unwrap_or_default()));
            }
        }
    }

    /// The time of the last packet of these SAs; `None` when there was none.
    pub(super) fn last_use(&self, sas: &[SaRef]) -> Option<Instant> {
        self.plane(|plane| {
            let used = |s: &SaStats| s.packets > 0;
            let last = plane.sa_stats(sas).into_iter().flatten().filter(used).map(|s| s.last_use).max();
            last.map(|secs| plane.epoch() + Duration::from_secs(secs))
        })
    }

    /// Packets that each of these SAs has carried; 0 of one that is not there.
    pub(super) fn packets(&self, sas: &[SaRef]) -> Vec<u64> {
        let stats = self.plane(|plane| plane.sa_stats(sas));
        stats.into_iter().map(|stats| stats.map_or(0, |stats| stats.packets)).collect()
    }

    /// The data plane's clock.
    pub fn plane_now(&self) -> Duration {
        clock::now().saturating_duration_since(self.plane(|plane| plane.epoch()))
    }

    /// Addresses of this machine from which something may be sent to other machines.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn addresses(&self) -> Result<Vec<std::net::IpAddr>, IoError> {
        self.0.guard.addresses(self.plane(|plane| plane.device()))
    }
}
