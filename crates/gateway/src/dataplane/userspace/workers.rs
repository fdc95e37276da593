//! The worker threads: started, told of a new device, counted, ended.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ironswan_config::tuning::Tuning;
use ironswan_ike::event::Level;
use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::raw::RawSocket;
use ironswan_io::tun::{Offloads as TunOffloads, Tun, TunConfig};
use ironswan_io::udp::UdpSocket;
use ironswan_io::xdp::XdpStats;
use ironswan_ipsec::{Engine, Stopwatch};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Sources;

use super::config::WorkersConfig;
use super::lanes::{Lanes, LanesConfig};
use super::notice::WorkerNotice;
use super::offloads::Offloads;
use super::paths::Paths;
use super::sockets::{IkeSender, Sockets, sources, token};
use super::stats::WorkerStats;
use super::{crew, icmp, scheduling, xdp};
use crate::dataplane::IkeDatagram;
use crate::dataplane::captured::Rings;
use crate::diagnosis::{Diagnosed, cannot_wait, no_thread};
use crate::observe::log;

/// The running data plane. Stops when dropped; the TUN device vanishes with it.
pub struct Workers {
    device_index: AtomicU32,
    /// Offloads of the TUN device, and whether idle workers poll.
    tun_offloads: TunOffloads,
    busy_poll: bool,
    sockets: Arc<Sockets>,
    stop: Arc<Stop>,
    lanes: Arc<Lanes<Arc<Sockets>>>,
    threads: Vec<JoinHandle<()>>,
    /// Outbound SAs and their paths, and who hears of narrow ones.
    paths: Arc<Paths>,
    errors: Option<icmp::Listener>,
    /// Looks after what stands at the interfaces of `xdp`.
    attendant: Option<xdp::Attendant>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({} workers)", self.threads.len())
    }
}

/// How the first worker is told to end, or to go on with another device.
#[derive(Debug)]
struct Stop {
    flag: AtomicBool,
    waker: Waker,
    /// A device that is to take the place of the one that is gone.
    device: Mutex<Option<Tun>>,
}

/// Tells the control plane when a worker ends that was not asked to, by a panic: the order of
/// batches waits for its for ever.
struct End {
    lanes: Arc<Lanes<Arc<Sockets>>>,
    stop: Arc<Stop>,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.stop.flag.load(Ordering::Acquire) {
            self.lanes.notice(WorkerNotice::Ended);
        }
    }
}

impl Workers {
    /// Makes device and sockets, and starts the threads.
    ///
    /// `ike_sink` gets every IKE message and returns false when it has no room for it;
    /// `notice_sink` gets the rest. Both are called on the data threads, by one at a time, and must
    /// not block.
    ///
    /// # Errors
    /// Whatever is missing, with the remedy. Nothing is left behind then.
    pub fn start(
        config: &WorkersConfig,
        engine: Arc<Engine>,
        ike_sink: impl FnMut(IkeDatagram) -> bool + Send + 'static,
        notice_sink: impl FnMut(WorkerNotice) + Send + 'static,
    ) -> Result<Self, Diagnosis> {
        let sockets = Arc::new(Sockets::open(config).diagnosed()?);
        let tun = Arc::new(Tun::create(&config.device).diagnosed()?);
        let device_index = AtomicU32::new(tun.index());
        let stop = Arc::new(Stop {
            flag: AtomicBool::new(false),
            waker: Waker::new().diagnosed()?,
            device: Mutex::new(None),
        });
        let tun_offloads = tun.offloads();
        let poller = Poller::new().diagnosed()?;
        let busy_poll = poller.busy_poll(config.tuning.busy_poll);
        for (source, token) in sources(&tun, &sockets, &stop.waker) {
            poller.add(source, token).diagnosed()?;
        }
        sockets.xdp.each_source(|source, n| poller.add(source, token::XDP + n)).diagnosed()?;
        let tuning = &config.tuning;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = crew::workers(tuning, processors);
        let paths = Arc::new(Paths::default());
        let lanes_config = LanesConfig {
            workers,
            batch_bytes: tuning.batch_bytes,
            stopwatch: Stopwatch { read: clock::nanoseconds, cost: clock::reading_cost() },
            known: paths.known().clone(),
        };
        let (ike_sink, notice_sink) = (Box::new(ike_sink), Box::new(notice_sink));
        let lanes = Lanes::new(sockets.clone(), tun.clone(), engine, &lanes_config, ike_sink, notice_sink);
        let lanes = Arc::new(lanes);
        let natt = [false, true].map(|ipv6| sockets.natt.get(ipv6).map(UdpSocket::port));
        let told = lanes.clone();
        let judges = icmp::Judges { paths: paths.clone(), natt, sent: sockets.clone() };
        let errors = Some(icmp::Listener::start(judges, move |notice| told.notice(notice))?);
        let (threads, attendant) = (Vec::new(), xdp::Attendant::start(&sockets.xdp)?);
        let mut plane = Self {
            device_index,
            tun_offloads,
            busy_poll,
            sockets,
            stop,
            lanes,
            threads,
            paths,
            errors,
            attendant,
        };
        plane.spawn_all(config, workers, poller, tun)?;
        Ok(plane)
    }

    /// Starts this many workers. The first one waits for packets, the others help it.
    fn spawn_all(
        &mut self,
        config: &WorkersConfig,
        workers: usize,
        poller: Poller,
        tun: Arc<Tun>,
    ) -> Result<(), Diagnosis> {
        let (epoch, tuning) = (config.epoch, &config.tuning);
        let (lanes, stop) = (self.lanes.clone(), self.stop.clone());
        self.spawn(tuning, move || run(&poller, &lanes, tun, epoch, &stop))?;
        for _ in 1..workers {
            let lanes = self.lanes.clone();
            let stop = self.stop.clone();
            self.spawn(tuning, move || {
                lanes.assist(|| clock::now().saturating_duration_since(epoch), || stop.waker.wake());
            })?;
        }
        Ok(())
    }

    /// Starts the next worker.
    fn spawn(&mut self, tuning: &Tuning, work: impl FnOnce() + Send + 'static) -> Result<(), Diagnosis> {
        let n = self.threads.len();
        let cpu = (!tuning.pin.is_empty()).then(|| tuning.pin[n % tuning.pin.len()]);
        let nice = tuning.nice;
        let end = End { lanes: self.lanes.clone(), stop: self.stop.clone() };
        let bound = move || {
            let _end = end;
            scheduling::schedule(cpu, nice);
            work();
        };
        let thread = std::thread::Builder::new().name(format!("ipsec-data-{n}")).spawn(bound);
        self.threads.push(thread.map_err(no_thread("moves packets"))?);
        Ok(())
    }

    /// The outbound SAs, which whoever applies commands to the engine keeps, and what is known of
    /// their paths.
    pub fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }

    /// Copies of packets for captures.
    pub(super) fn copies(&self) -> &Rings {
        &self.lanes.copies
    }

    /// Index of the TUN device.
    pub fn device_index(&self) -> u32 {
        self.device_index.load(Ordering::Relaxed)
    }

    /// Makes a new TUN device in place of one that was deleted, and gives it to the worker, which
    /// goes on as if nothing had happened: SAs, sequence numbers and sockets are not touched.
    /// Returns the new index.
    ///
    /// # Errors
    /// The device cannot be made; the worker goes on without one.
    pub fn replace_device(&self, config: &TunConfig) -> Result<u32, IoError> {
        let tun = Tun::create(config)?;
        let index = tun.index();
        self.device_index.store(index, Ordering::Relaxed);
        *self.stop.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(tun);
        self.stop.waker.wake();
        Ok(index)
    }

    /// For the control plane.
    pub fn ike_sender(&self) -> IkeSender {
        IkeSender { sockets: self.sockets.clone() }
    }

    /// Counters of all workers together.
    pub fn stats(&self) -> WorkerStats {
        self.lanes.stats()
    }

    /// ICMP errors about IKE that were passed on to the control thread, and that were not.
    pub fn icmp_counters(&self) -> [(&'static str, u64); 2] {
        self.sockets.asked.counters()
    }

    /// IKE messages that were dropped since the send buffer was full.
    pub fn ike_dropped_full(&self) -> u64 {
        self.sockets.ike_full.load(Ordering::Relaxed)
    }

    /// Packets that the kernel dropped since our receive buffers were full.
    pub fn socket_drops(&self) -> u64 {
        let s = &self.sockets;
        let udp = s.natt.iter().chain(s.ike.iter()).map(UdpSocket::drops);
        udp.sum::<u64>() + s.raw.iter().chain(s.ah.iter()).map(RawSocket::drops).sum::<u64>()
    }

    /// Packets that came through `AF_XDP`, and those that were dropped there.
    pub fn xdp_stats(&self) -> XdpStats {
        self.sockets.xdp.stats()
    }

    /// Most datagrams that one send is cut into by the kernel.
    pub fn max_segments(&self) -> usize {
        self.sockets.natt.iter().map(UdpSocket::max_segments).min().unwrap_or(1)
    }

    /// Threads that move packets.
    pub fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Offloads that the kernel granted.
    pub fn offloads(&self) -> Offloads {
        let s = &self.sockets;
        let buffers = s.natt.iter().map(UdpSocket::buffers).chain(s.raw.iter().map(RawSocket::buffers));
        Offloads {
            tun: self.tun_offloads,
            segments: self.max_segments(),
            gro: s.natt.iter().all(UdpSocket::is_merging),
            buffers: buffers.reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]).unwrap_or_default(),
            busy_poll: self.busy_poll,
            xdp: s.xdp.names(),
        }
    }

    /// False when a worker has ended without being asked to: a bug, after which nothing is carried.
    pub fn is_running(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(|t| !t.is_finished())
    }

    /// Makes the worker look at the engine now, so that it lets go of what has been deleted and
    /// sends what waits for a new SA. A busy worker does so by itself; call it when an SA has come
    /// or gone.
    pub fn refresh(&self) {
        self.stop.waker.wake();
    }

    /// [`Self::refresh`] for whoever outlives a borrow.
    pub fn refresher(&self) -> impl Fn() + use<> {
        let stop = self.stop.clone();
        move || stop.waker.wake()
    }

    /// Ends the threads and removes the device. Packets in flight are lost; nothing leaves in
    /// clear.
    pub(super) fn halt(&mut self) {
        self.stop.flag.store(true, Ordering::Release);
        self.stop.waker.wake();
        self.lanes.crew.end();
        (self.errors, self.attendant) = (None, None);
        for thread in self.threads.drain(..) {
            // A panic of a worker has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The first worker's loop.
fn run(poller: &Poller, lanes: &Lanes<Arc<Sockets>>, mut tun: Arc<Tun>, epoch: Instant, stop: &Stop) {
    let mut ready = Ready::with_capacity(16);
    let (mut due, mut seen) = (None, 0);
    while !stop.flag.load(Ordering::Acquire) {
        if let Err(e) = poller.wait(&mut ready, due) {
            log::diagnosis(Level::Error, None, &cannot_wait(Sources::Packets, &e));
            return;
        }
        let now = clock::now().saturating_duration_since(epoch);
        for &t in ready.tokens() {
            match t {
                token::STOP => {
                    stop.waker.clear();
                    lanes.turn_early(now);
                    let device = stop.device.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(new) = device.map(Arc::new) {
                        // The old descriptor may still be there, if its device is not known to be
                        // gone yet.
                        poller.remove(&*tun);
                        if let Err(e) = poller.add(new.as_fd(), token::TUN) {
                            log::diagnosis(Level::Error, None, &cannot_wait(Sources::NewDevice, &e));
                        }
                        lanes.replace_device(new.clone());
                        tun = new;
                    }
                }
                token::TUN => {
                    if !lanes.turn_out(now) {
                        poller.remove(&*tun);
                    }
                }
                _ => lanes.turn_in(t, now),
            }
        }
        due = lanes.end_round(now, &mut seen);
    }
}
