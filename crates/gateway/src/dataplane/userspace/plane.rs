//! The user-space data plane as the control plane sees it: engine, worker threads, routes and
//! device behind [`DataPlane`]. Commands are applied at once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ironswan_config::Daemon;
use ironswan_config::tuning::Tuning;
use ironswan_crypto::engines::{EngineSelection, Engines};
use ironswan_crypto::rng::System;
use ironswan_ike::event::{Cut, KnownPath, Level};
use ironswan_io::clock;
use ironswan_io::route::{Netlink, Route};
use ironswan_io::tun::TunConfig;
use ironswan_ipsec::{Decision, Engine, Wanted, WindowNeeds};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{DataPlane as DataPlaneFault, DeviceChange};
use ironswan_wire::sadb::{Command, ReqId, SaRef, SaStats};
use ironswan_wire::selector::PacketSelector;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::config::WorkersConfig;
use super::device::{self, Device};
use super::ike_queue::{IkeQueue, ike_queue};
use super::install::Installer;
use super::napi::Threaded;
use super::notice::WorkerNotice;
use super::report;
use super::sockets::IkeSender;
use super::workers::Workers;
use crate::dataplane::captured::Captured;
use crate::dataplane::{Applied, DataPlane, Notice, Refused, Report, Restored};
use crate::diagnosis::Diagnosed;
use crate::guard::shared::SharedGuard;
use crate::observe::log;

/// Pause between two looks for path MTUs that are to be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);
/// Memory of messages that have waited is given back to the kernel this long after much has waited,
/// so once in this time at most.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// Links are left alone for this long after a change, before we ask who polls them.
const LINKS_QUIET: Duration = Duration::from_millis(100);
/// `status` shows at most this many degradations.
const MAX_SLOWER: usize = 16;

/// The user-space data plane. Ends when dropped.
pub struct UserSpace {
    engine: Arc<Engine>,
    workers: Workers,
    installer: Installer,
    sender: IkeSender,
    /// Zero of the engine's clock.
    epoch: Instant,
    device: TunConfig,
    netlink: Netlink,
    notices: mpsc::UnboundedReceiver<WorkerNotice>,
    datagrams: IkeQueue,
    /// When the memory of messages that waited is given back.
    give_back_at: Option<Pin<Box<Sleep>>>,
    selection: EngineSelection,
    /// Interfaces that kernel threads poll, and when to look at them again.
    threaded: Threaded,
    threaded_at: Option<Pin<Box<Sleep>>>,
    forget: Interval,
    /// Degradations that the workers have reported, in short.
    slower: Vec<String>,
    /// Wakes whoever polls for notices.
    waker: Option<Waker>,
}

impl UserSpace {
    /// Chooses the engines, makes device and sockets, and starts the threads. The routes are set
    /// through `guard`.
    ///
    /// # Errors
    /// Whatever is missing, with the remedy. Nothing is left behind then.
    pub fn start(daemon: &Daemon, guard: SharedGuard) -> Result<Self, Diagnosis> {
        let epoch = clock::now();
        let nanos = || {
            let since = clock::now().saturating_duration_since(epoch);
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        };
        let selection = Engines::select(&mut || nanos(), daemon.engine);
        engine_doubts(&selection).iter().for_each(|doubt| log::diagnosis(Level::Warn, None, doubt));
        let engines = selection.engines;
        let config = ironswan_ipsec::Config { engines, ..ironswan_ipsec::Config::default() };
        let engine = Engine::new(Box::new(System), config);
        let (ike_sink, datagrams) = ike_queue();
        let (notice_tx, notices) = mpsc::unbounded_channel();
        let netlink = Netlink::open().diagnosed()?;
        let config = workers_config(daemon, epoch);
        let workers = Workers::start(&config, engine.clone(), ike_sink, move |notice| {
            // The receiver is gone only when the daemon ends.
            let _ = notice_tx.send(notice);
        })?;
        let unprepared = device::prepare(&config.device.name).err();
        let missing = workers.offloads().shortfalls(&daemon.tuning);
        let doubts = unprepared.into_iter().chain(missing);
        doubts.for_each(|doubt| log::diagnosis(Level::Warn, None, &doubt));
        let installer = Installer::new(engine.clone(), guard, workers.device_index())
            .waking(workers.refresher())
            .over(workers.paths().clone());
        let mut forget = interval_at((epoch + FORGET_INTERVAL).into(), FORGET_INTERVAL);
        forget.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            sender: workers.ike_sender(),
            device: config.device,
            threaded: Threaded::default(),
            threaded_at: None,
            slower: Vec::new(),
            waker: None,
            engine,
            workers,
            installer,
            epoch,
            netlink,
            notices,
            datagrams,
            give_back_at: None,
            selection,
            forget,
        })
    }

    /// Takes notices of the workers, and acts on those that are for this data plane alone.
    fn poll_workers(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        loop {
            let notice = match self.notices.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(notice) => notice,
            };
            match notice {
                Some(WorkerNotice::Up(list)) => return Poll::Ready(Notice::Up(list)),
                Some(WorkerNotice::DeviceGone) => return Poll::Ready(Notice::DeviceGone),
                Some(WorkerNotice::Ended) | None => return Poll::Ready(Notice::Ended),
                Some(WorkerNotice::NarrowPath(peers)) => self.installer.narrowed(&peers),
                Some(WorkerNotice::Undelivered(errors)) => return Poll::Ready(Notice::Undelivered(errors)),
                Some(WorkerNotice::Slower(what)) => {
                    log::diagnosis(Level::Warn, None, &what.diagnosis());
                    if self.slower.len() < MAX_SLOWER {
                        self.slower.push(what.name());
                    }
                }
            }
        }
    }

    /// Interfaces that kernel threads poll.
    #[cfg(test)]
    pub(super) fn threaded(&self) -> &Threaded {
        &self.threaded
    }

    fn now(&self) -> Duration {
        clock::now().saturating_duration_since(self.epoch)
    }
}

/// Engines that are not used although they should be.
pub(super) fn engine_doubts(selection: &EngineSelection) -> Vec<DataPlaneFault> {
    selection.warnings.iter().map(|why| DataPlaneFault::EngineUnused { why: why.clone() }).collect()
}

fn workers_config(daemon: &Daemon, epoch: Instant) -> WorkersConfig {
    WorkersConfig {
        device: TunConfig {
            name: daemon.device.clone(),
            queue_len: daemon.tuning.tun_queue,
            offload: daemon.tuning.tun_offload,
            ..TunConfig::default()
        },
        mark: daemon.mark,
        ike_port: daemon.port_ike,
        natt_port: daemon.port_natt,
        raw_esp: true,
        tuning: daemon.tuning.clone(),
        epoch,
    }
}

impl DataPlane for UserSpace {
    fn apply(&mut self, commands: &[Command]) -> Applied {
        let now = self.now();
        let mut refused = Vec::new();
        for (at, command) in commands.iter().enumerate() {
            if let Err(why) = self.installer.apply(now, command) {
                refused.push(Refused { at, why: super::super::refused(command, why) });
            }
        }
        self.installer.wake();
        Applied::Done(refused)
    }

    fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        self.waker = Some(cx.waker().clone());
        if let Poll::Ready(notice) = self.poll_workers(cx) {
            return Poll::Ready(notice);
        }
        while self.forget.poll_tick(cx).is_ready() {
            self.installer.forgotten(clock::now());
        }
        if self.threaded_at.as_mut().is_some_and(|at| at.as_mut().poll(cx).is_ready()) {
            self.threaded_at = None;
            self.threaded.look();
        }
        let datagram = self.datagrams.poll(cx);
        if datagram.is_pending() && self.datagrams.take_held_much() {
            self.give_back_at.get_or_insert_with(|| Box::pin(sleep(GIVE_BACK_AFTER)));
        }
        if self.give_back_at.as_mut().is_some_and(|at| at.as_mut().poll(cx).is_ready()) {
            self.give_back_at = None;
            ironswan_io::malloc::trim();
        }
        datagram.map(|datagram| datagram.map_or(Notice::Ended, Notice::Ike))
    }

    fn send_ike(
        &mut self,
        ends: (SocketAddr, SocketAddr),
        dscp: u8,
        message: &[u8],
        cut: Cut,
    ) -> io::Result<()> {
        self.sender.send(ends, dscp, message, cut)
    }

    fn known_path(&mut self, local: IpAddr, remote: IpAddr) -> Option<KnownPath> {
        self.installer.known_path(local, remote)
    }

    fn path_measured(&mut self, remote: IpAddr, mtu: Option<u32>) {
        self.installer.measured(remote, mtu);
    }

    fn sa_stats(&self, sas: &[SaRef]) -> Vec<Option<SaStats>> {
        sas.iter().map(|sa| self.engine.sa_stats(*sa)).collect()
    }

    fn decide(&self, packet: &PacketSelector, arrives: bool) -> Option<Decision> {
        Some(if arrives { self.engine.decide_in(packet) } else { self.engine.decide_out(packet) })
    }

    fn epoch(&self) -> Instant {
        self.epoch
    }

    fn report(&self) -> Report {
        report::of(&self.workers, &self.engine, &self.selection, self.threaded.names(), &self.slower)
    }

    fn window_needs(&self) -> Vec<(ReqId, WindowNeeds)> {
        self.engine.window_needs()
    }

    fn engines(&self) -> Option<&EngineSelection> {
        Some(&self.selection)
    }

    fn capture(&mut self, wanted: Option<Arc<Wanted>>) -> bool {
        self.workers.copies().want(wanted);
        true
    }

    fn take_captured(&mut self) -> Captured {
        self.workers.copies().take()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.threaded.want(&tuning.threaded_napi);
    }

    fn device(&self) -> Option<u32> {
        Some(self.workers.device_index())
    }

    fn routes(&self) -> Vec<Route> {
        self.installer.device_routes().cloned().collect()
    }

    fn restore_device(&mut self) -> Restored {
        let name = &self.device.name;
        match device::look(&mut self.netlink, &self.device, self.workers.device_index()) {
            Device::There(restored) => restored,
            Device::Gone => match self.workers.replace_device(&self.device) {
                Ok(index) => {
                    let unprepared = device::prepare(name).err();
                    unprepared.into_iter().for_each(|doubt| log::diagnosis(Level::Warn, None, &doubt));
                    self.installer.replace_device(index);
                    Restored::Done(DataPlaneFault::DeviceDisturbed {
                        name: name.clone(),
                        what: DeviceChange::Deleted,
                    })
                }
                Err(e) => Restored::Failed(device::lost(name, &e)),
            },
        }
    }

    fn restore_routes(&mut self, found: &[Route]) -> Vec<String> {
        self.installer.restore(found)
    }

    fn guard_changed(&mut self) {
        self.installer.guard_changed();
    }

    fn links_changed(&mut self) {
        self.installer.addresses_changed();
        if self.threaded_at.is_none() {
            self.threaded_at = Some(Box::pin(sleep(LINKS_QUIET)));
            self.waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    fn network_changed(&mut self) {
        self.installer.refresh_all();
    }

    fn remove_routes(&mut self) {
        self.installer.clear();
    }

    fn stop(&mut self) {
        self.threaded.release();
        self.workers.halt();
    }
}
