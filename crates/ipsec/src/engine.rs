//! The engine that all workers share: applies [`Command`]s to snapshots of SAD and SPD, answers
//! questions, and holds the messages for the key daemon.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use ironswan_crypto::batch::EspKey;
use ironswan_crypto::engines::Engines;
use ironswan_crypto::icv::IcvKey;
use ironswan_crypto::rng::Rng;
use ironswan_wire::esp::MIN_SPI;
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Command, Direction, Dscp, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, SaRef, SaStats, Tfc, Up,
};
use ironswan_wire::selector::TrafficSelector;

use crate::batch::Datagram;
use crate::counters::{Counters, Tally, Totals};
use crate::early::EarlyQueue;
use crate::late::{LateJobs, Refused, ReplayDrops, WindowNeeds};
use crate::replay::Replay;
use crate::sa::{
    InSa, InState, LimitsReached, OutSa, OutState, Path, ReportedSources, SaKey, SaParameters, Usage,
};
use crate::snapshot::Snapshot;
use crate::up::UpQueue;

/// Limits the policies whose dropped replays are remembered after their SAs have gone: 200 bytes
/// each.
const MAX_KEPT_REPLAYS: usize = 4_096;

/// Settings of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// A reqid without SA raises [`Up::Acquire`] at most once in this time, which is at least a
    /// millisecond.
    pub acquire_interval: Duration,
    /// Which engine protects the packets of which suite.
    pub engines: Engines,
}

impl Default for Config {
    fn default() -> Self {
        Self { acquire_interval: Duration::from_secs(1), engines: Engines::portable() }
    }
}

/// Why a [`Command`] was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplyError {
    /// Neither ESP nor AH.
    Protocol,
    /// AH in UDP.
    Encap,
    /// Padding or dummy packets where there is no tunnel mode ESP, dummy packets without an
    /// interval, or a DSCP of more than six bits.
    Options,
    /// An SPI from 0 to 255 (RFC 4303 section 2.1).
    ReservedSpi,
    /// There is an SA with this SPI already (and for outbound ones, with this reqid and peer).
    Exists,
    /// There is no such SA, or no such policy.
    NotFound,
    /// The suite is not supported, or a key is not of its length.
    Key,
    /// No selectors on one of the sides.
    Selectors,
    /// Local and remote outer addresses are of different families.
    Family,
    /// The replay window is larger than [`Replay::MAX_WINDOW`].
    Window,
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Protocol => "an SA is ESP or AH",
            Self::Encap => "AH cannot be carried in UDP",
            Self::Options => {
                "padding and dummies need tunnel mode ESP, dummies an interval, and a DSCP has six bits"
            }
            Self::ReservedSpi => "SPIs 0 to 255 are reserved",
            Self::Exists => "an SA with this SPI exists",
            Self::NotFound => "no such SA or policy",
            Self::Key => "the suite is not supported or a key has the wrong length",
            Self::Selectors => "an SA needs selectors on both sides",
            Self::Family => "outer addresses of different families",
            Self::Window => "the replay window is larger than 1048576 packets",
        })
    }
}

impl std::error::Error for ApplyError {}

/// The state that [`Engine::apply`] alone needs. Its lock makes commands follow one another.
struct Control {
    rng: Box<dyn Rng>,
    engines: Engines,
    serial: u64,
    /// Places of outbound SAs that are gone.
    free_places: Vec<u32>,
    /// What the replay checks of SAs that are gone have dropped, by reqid.
    replays: HashMap<u32, WindowNeeds>,
}

/// The packet engine. Shared by all workers.
pub struct Engine {
    control: Mutex<Control>,
    snapshot: ArcSwap<Snapshot>,
    generation: AtomicU64,
    pub(crate) totals: Totals,
    pub(crate) up: UpQueue,
    pub(crate) early: EarlyQueue,
    replays: Mutex<ReplayDrops>,
}

/// One SA for people and for export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaInfo {
    /// The name by which the key daemon knows it.
    pub sa: SaRef,
    /// The policy it serves.
    pub reqid: ReqId,
    /// Our outer address.
    pub local: SocketAddr,
    /// The peer's outer address.
    pub remote: SocketAddr,
    /// UDP encapsulation on output.
    pub udp_encap: bool,
    /// ESP or AH.
    pub protocol: ProtocolId,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Algorithms.
    pub suite: EspSuite,
    /// How packets are carried.
    pub options: SaOptions,
    /// Bytes of the path to the peer; 0 when it is not known, and of an inbound SA.
    pub path_mtu: u32,
    /// The last sequence number used, or the highest received.
    pub sequence: u64,
    /// Replay window in packets; 0 for an outbound SA.
    pub replay_window: u32,
    /// Limits.
    pub lifetime: Lifetime,
    /// Our side's selectors.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side's selectors.
    pub remote_ts: Vec<TrafficSelector>,
    /// Counters.
    pub stats: SaStats,
}

/// One policy for people and for export, in the order of matching.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyInfo {
    /// As it was added.
    pub policy: PolicyAdd,
    /// How many times.
    pub count: u32,
}

impl Engine {
    /// An engine without SAs and policies: it drops everything.
    pub fn new(rng: Box<dyn Rng>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            control: Mutex::new(Control {
                rng,
                engines: config.engines,
                serial: 0,
                free_places: Vec::new(),
                replays: HashMap::new(),
            }),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            generation: AtomicU64::new(0),
            totals: Totals::default(),
            up: UpQueue::new(config.acquire_interval.max(Duration::from_millis(1))),
            early: EarlyQueue::default(),
            replays: Mutex::default(),
        })
    }

    fn control(&self) -> std::sync::MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Applies one command, wholly or not at all. Workers see it from their next
    /// [`crate::Worker::begin`] on. `now` is the driver's monotonic time.
    pub fn apply(&self, now: Duration, command: &Command) -> Result<(), ApplyError> {
        let mut control = self.control();
        let mut next = Snapshot::clone(&self.snapshot.load());
        match command {
            Command::SaAdd(sa) => match sa.direction {
                Direction::Out => add_outbound(&mut control, &mut next, sa, now)?,
                Direction::In => add_inbound(&mut control, &mut next, sa)?,
            },
            Command::SaUpdate { sa, local, remote, udp_encap } => {
                let path = Path { local: *local, remote: *remote, udp_encap: *udp_encap };
                update(&mut next, sa, path)?;
            }
            Command::SaPathMtu { sa, mtu } => {
                // No snapshot changes: it is a property of the path that packets look up.
                next.outbound_sa(sa).ok_or(ApplyError::NotFound)?.state.set_path_mtu(*mtu);
                return Ok(());
            }
            Command::SaDelete(sa) => {
                if sa.direction == Direction::In {
                    // The SPI stays reserved when the engine has refused its SA.
                    self.count(|tally| self.early.free(sa.spi, tally));
                }
                delete(&mut control, &mut next, sa)?;
            }
            Command::PolicyAdd(policy) => {
                if policy.local.range.is_ipv6() != policy.remote.range.is_ipv6() {
                    return Err(ApplyError::Family);
                }
                control.serial += 1;
                next.spd.add(policy, control.serial);
            }
            Command::PolicyDelete(policy) => {
                if !next.spd.remove(policy) {
                    return Err(ApplyError::NotFound);
                }
            }
            Command::SpiReserve { spi, remote } => {
                self.early.reserve(*spi, *remote);
                return Ok(());
            }
            Command::SpiFree(spi) => {
                self.count(|tally| self.early.free(*spi, tally));
                return Ok(());
            }
        }
        next.generation += 1;
        let generation = next.generation;
        self.snapshot.store(Arc::new(next));
        self.generation.store(generation, Release);
        if let Command::SaAdd(sa) = command
            && sa.direction == Direction::In
        {
            self.count(|tally| self.early.installed(sa.spi, now, tally));
        }
        Ok(())
    }

    /// Adds to the totals.
    fn count(&self, counting: impl FnOnce(&mut Tally)) {
        let mut tally = Tally::default();
        counting(&mut tally);
        self.totals.add(&mut tally);
    }

    /// The number of commands that were applied.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// The present snapshot for a moment: cheaper than one to keep.
    pub(crate) fn now(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Counters of one SA.
    pub fn sa_stats(&self, sa: SaRef) -> Option<SaStats> {
        let snap = self.snapshot.load();
        match sa.direction {
            Direction::In => Some(snap.inbound.get(sa.spi.0)?.state.usage.stats()),
            Direction::Out => Some(snap.outbound_sa(&sa)?.state.usage.stats()),
        }
    }

    /// All counters.
    pub fn counters(&self) -> Counters {
        self.totals.snapshot()
    }

    /// Drops of the replay check, since the start.
    pub fn replay_drops(&self) -> ReplayDrops {
        *self.replays()
    }

    /// Authentic packets that the replay check has dropped, by policy: of the SAs that are there,
    /// and of those that they have replaced.
    pub fn window_needs(&self) -> Vec<(ReqId, WindowNeeds)> {
        let mut all: BTreeMap<u32, WindowNeeds> =
            self.control().replays.iter().map(|(reqid, needs)| (*reqid, *needs)).collect();
        let snap = self.snapshot.load();
        for sa in snap.inbound.values() {
            if let Some(needs) = sa.state.window_needs() {
                all.entry(sa.state.reqid.0).or_default().merge(&needs);
            }
        }
        // The window that stands, not that of an SA which has dropped a packet and is gone.
        let mut now: BTreeMap<u32, u32> = BTreeMap::new();
        for sa in snap.inbound.values().filter(|sa| all.contains_key(&sa.state.reqid.0)) {
            let widest = now.entry(sa.state.reqid.0).or_default();
            *widest = (*widest).max(sa.state.window().window());
        }
        now.into_iter().for_each(|(reqid, window)| all.entry(reqid).or_default().window = window);
        all.into_iter().map(|(reqid, needs)| (ReqId(reqid), needs)).collect()
    }

    fn replays(&self) -> std::sync::MutexGuard<'_, ReplayDrops> {
        self.replays.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Counts an authentic packet that the replay check has dropped.
    #[cold]
    pub(crate) fn count_refused(&self, sa: &InState, window: u32, refused: Refused) {
        sa.count_refused(window, refused);
        let mut drops = self.replays();
        match refused {
            Refused::Late { behind, .. } => drops.late.add(behind),
            Refused::Duplicate => drops.duplicates += 1,
        }
    }

    /// Counts a packet that the replay check has dropped and whose ICV is wrong.
    #[cold]
    pub(crate) fn count_forged(&self) {
        self.replays().forged += 1;
    }

    /// Counts the packets that the replay check has dropped and that nobody has opened.
    #[cold]
    pub(crate) fn count_unverified(&self, late: &mut LateJobs) {
        late.take_unverified(&mut self.replays());
    }

    /// All SAs.
    pub fn sas(&self) -> Vec<SaInfo> {
        let snap = self.snapshot.load();
        let inbound = snap.inbound.values().map(|s| Self::in_info(s));
        let outbound = snap.outbound.values().flat_map(|l| l.iter()).map(|s| Self::out_info(s));
        inbound.chain(outbound).collect()
    }

    /// One outbound SA.
    pub(crate) fn out_info(s: &OutSa) -> SaInfo {
        let state = &s.state;
        let info = sa_info(s.name(), state.reqid, &s.path, &state.key, &state.parameters, &state.usage);
        SaInfo { path_mtu: state.path_mtu().unwrap_or(0), sequence: state.sequence(), ..info }
    }

    /// One inbound SA.
    pub(crate) fn in_info(s: &InSa) -> SaInfo {
        let window = s.state.window();
        let (sequence, replay_window) = (window.top(), window.window());
        let state = &s.state;
        let info = sa_info(s.name(), state.reqid, &s.path, &state.key, &state.parameters, &state.usage);
        SaInfo { sequence, replay_window, ..info }
    }

    /// All policies in the order of matching, IPv4 before IPv6.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        let all = self.snapshot.load().spd.all();
        all.into_iter().map(|p| PolicyInfo { policy: p.policy.clone(), count: p.count }).collect()
    }

    /// Takes the messages for the key daemon out of the queue. Cheap when there are none.
    pub fn take_up(&self) -> Vec<Up> {
        self.up.take()
    }

    /// Whether packets that arrived before their SA can be opened now.
    #[inline]
    pub fn has_early(&self) -> bool {
        self.early.is_ready()
    }

    /// Copies packets that arrived before their SA into a buffer, as many as fit, and appends a
    /// datagram for each: for [`crate::RxBatch::open_early`]. Call it before newer packets are
    /// received.
    pub fn take_early(&self, buf: &mut [u8], datagrams: &mut Vec<Datagram>) {
        self.early.take(buf, datagrams);
    }

    /// Calls `waker` from the worker's thread whenever [`Self::take_up`] will have something new.
    /// The function must not block.
    pub fn set_waker(&self, waker: impl Fn() + std::marker::Send + Sync + 'static) {
        self.up.set_waker(Box::new(waker));
    }

    /// Moves an SA's sequence number forward: the last one used (outbound), or the top of the
    /// window (inbound). Never back. For taking over another gateway's SAs (RFC 6311 section 5).
    pub fn advance_sequence(&self, sa: SaRef, to: u64) -> Result<(), ApplyError> {
        let snap = self.snapshot.load();
        match sa.direction {
            Direction::In => {
                snap.inbound.get(sa.spi.0).ok_or(ApplyError::NotFound)?.state.window().advance(to);
            }
            Direction::Out => {
                snap.outbound_sa(&sa).ok_or(ApplyError::NotFound)?.state.advance(to);
            }
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn reached(&self, sa: SaRef, reached: LimitsReached) {
        if reached.soft {
            self.up.expire(sa, false);
        }
        if reached.hard {
            self.up.expire(sa, true);
        }
    }

    pub(crate) fn suppressed_acquire(&self) {
        self.totals.acquires_suppressed.fetch_add(1, Relaxed);
    }
}

/// The part of an [`SaInfo`] that both directions have.
fn sa_info(
    sa: SaRef,
    reqid: ReqId,
    path: &Path,
    key: &SaKey,
    parameters: &SaParameters,
    usage: &Usage,
) -> SaInfo {
    SaInfo {
        sa,
        reqid,
        local: path.local,
        remote: path.remote,
        udp_encap: path.udp_encap,
        protocol: key.protocol(),
        mode: parameters.mode,
        suite: parameters.suite,
        options: parameters.options,
        path_mtu: 0,
        sequence: 0,
        replay_window: 0,
        lifetime: parameters.lifetime,
        local_ts: parameters.selectors.local.to_vec(),
        remote_ts: parameters.selectors.remote.to_vec(),
        stats: usage.stats(),
    }
}

/// Checks an SA for all that is the same in both directions.
fn validate(sa: &SaAdd) -> Result<(), ApplyError> {
    match sa.protocol {
        ProtocolId::ESP | ProtocolId::AH => in_udp(sa.protocol, sa.udp_encap)?,
        _ => return Err(ApplyError::Protocol),
    }
    let options = &sa.options;
    let tunnel_esp = sa.mode == Mode::Tunnel && sa.protocol == ProtocolId::ESP;
    if !tunnel_esp && (options.tfc != Tfc::None || options.dummies.is_some())
        || options.dummies.is_some_and(|interval| interval.is_zero())
        || matches!(options.dscp_out, Dscp::Set(dscp) if dscp > 63)
    {
        return Err(ApplyError::Options);
    }
    if sa.spi.0 < MIN_SPI {
        return Err(ApplyError::ReservedSpi);
    }
    if sa.local_ts.is_empty() || sa.remote_ts.is_empty() {
        return Err(ApplyError::Selectors);
    }
    if sa.local.is_ipv4() != sa.remote.is_ipv4() {
        return Err(ApplyError::Family);
    }
    if sa.replay_window > Replay::MAX_WINDOW {
        return Err(ApplyError::Window);
    }
    Ok(())
}

/// Only ESP is carried in UDP (RFC 3948 section 1): a NAT would break the ICV of AH.
fn in_udp(protocol: ProtocolId, udp_encap: bool) -> Result<(), ApplyError> {
    if udp_encap && protocol == ProtocolId::AH { Err(ApplyError::Encap) } else { Ok(()) }
}

/// The key of an SA, still without its bytes: [`set_key`] writes them when the key no longer moves.
fn unset_key(sa: &SaAdd) -> Result<SaKey, ApplyError> {
    let key = match (sa.protocol, sa.suite.encr, sa.suite.integ) {
        (ProtocolId::ESP, ..) => EspKey::unset(&sa.suite).map(SaKey::Esp),
        (_, EncrId::NULL, Some(id)) => IcvKey::unset(id, sa.suite.esn).map(SaKey::Ah),
        _ => None,
    };
    key.ok_or(ApplyError::Key)
}

fn set_key(control: &mut Control, sa: &SaAdd, key: Option<&mut SaKey>) -> Result<(), ApplyError> {
    let (encr, integ) = (sa.encr_key.expose(), sa.integ_key.expose());
    let done = match (key, sa.suite.integ) {
        (Some(SaKey::Esp(key)), _) => key.set(&sa.suite, encr, integ, &mut *control.rng, &control.engines),
        (Some(SaKey::Ah(key)), Some(id)) => key.set(id, integ),
        _ => None,
    };
    done.ok_or(ApplyError::Key)
}

fn path(sa: &SaAdd) -> Path {
    Path { local: sa.local, remote: sa.remote, udp_encap: sa.udp_encap }
}

fn add_inbound(control: &mut Control, next: &mut Snapshot, sa: &SaAdd) -> Result<(), ApplyError> {
    validate(sa)?;
    if next.inbound.get(sa.spi.0).is_some() {
        return Err(ApplyError::Exists);
    }
    let mut state = Arc::new(InState::new(sa, unset_key(sa)?));
    set_key(control, sa, Arc::get_mut(&mut state).map(|state| &mut state.key))?;
    next.inbound
        .insert(sa.spi.0, Arc::new(InSa { path: path(sa), sources: ReportedSources::default(), state }));
    Ok(())
}

fn add_outbound(
    control: &mut Control,
    next: &mut Snapshot,
    sa: &SaAdd,
    now: Duration,
) -> Result<(), ApplyError> {
    validate(sa)?;
    let name = SaRef { direction: Direction::Out, spi: sa.spi, reqid: sa.reqid, remote: sa.remote.ip() };
    let mut list = next.outbound.get(sa.reqid.0).map(|l| l.to_vec()).unwrap_or_default();
    if list.iter().any(|s| s.has_name(&name)) {
        return Err(ApplyError::Exists);
    }
    let mut state = Arc::new(OutState::new(sa, unset_key(sa)?));
    set_key(control, sa, Arc::get_mut(&mut state).map(|state| &mut state.key))?;
    state.set_sent_at(now);
    next.dummies += usize::from(state.parameters.options.dummies.is_some());
    let place = control.free_places.pop().unwrap_or(next.places.len());
    let out = Arc::new(OutSa { path: path(sa), place, state });
    next.places.set(place, Some(out.clone()));
    list.push(out);
    next.outbound.insert(sa.reqid.0, Arc::new(list));
    Ok(())
}

fn update(next: &mut Snapshot, sa: &SaRef, path: Path) -> Result<(), ApplyError> {
    if path.local.is_ipv4() != path.remote.is_ipv4() {
        return Err(ApplyError::Family);
    }
    match sa.direction {
        Direction::In => {
            let state = next.inbound.get(sa.spi.0).ok_or(ApplyError::NotFound)?.state.clone();
            in_udp(state.key.protocol(), path.udp_encap)?;
            next.inbound
                .insert(sa.spi.0, Arc::new(InSa { path, sources: ReportedSources::default(), state }));
        }
        Direction::Out => {
            let mut list = next.outbound.get(sa.reqid.0).ok_or(ApplyError::NotFound)?.to_vec();
            let at = list.iter().position(|s| s.has_name(sa)).ok_or(ApplyError::NotFound)?;
            in_udp(list[at].state.key.protocol(), path.udp_encap)?;
            let new = SaRef { remote: path.remote.ip(), ..*sa };
            if new != *sa && list.iter().any(|s| s.has_name(&new)) {
                return Err(ApplyError::Exists);
            }
            let place = list[at].place;
            list[at] = Arc::new(OutSa { path, place, state: list[at].state.clone() });
            next.places.set(place, Some(list[at].clone()));
            next.outbound.insert(sa.reqid.0, Arc::new(list));
        }
    }
    Ok(())
}

/// Keeps what the replay check of an SA has dropped, for its policy.
fn keep_replays(control: &mut Control, gone: &InState) {
    let Some(needs) = gone.window_needs() else { return };
    let room = control.replays.len() < MAX_KEPT_REPLAYS || control.replays.contains_key(&gone.reqid.0);
    if room {
        control.replays.entry(gone.reqid.0).or_default().merge(&needs);
    }
}

fn delete(control: &mut Control, next: &mut Snapshot, sa: &SaRef) -> Result<(), ApplyError> {
    match sa.direction {
        Direction::In => {
            let gone = next.inbound.remove(sa.spi.0).ok_or(ApplyError::NotFound)?;
            keep_replays(control, &gone.state);
        }
        Direction::Out => {
            let mut list = next.outbound.get(sa.reqid.0).ok_or(ApplyError::NotFound)?.to_vec();
            let at = list.iter().position(|s| s.has_name(sa)).ok_or(ApplyError::NotFound)?;
            let gone = list.remove(at);
            next.places.set(gone.place, None);
            control.free_places.push(gone.place);
            next.dummies -= usize::from(gone.state.parameters.options.dummies.is_some());
            if list.is_empty() {
                next.outbound.remove(sa.reqid.0);
            } else {
                next.outbound.insert(sa.reqid.0, Arc::new(list));
            }
        }
    }
    Ok(())
}
