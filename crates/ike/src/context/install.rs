//! Telling the packet engine about CHILD_SAs: the order of commands, and what else hangs on a child
//! (policies, reqid, SPIs, timers).
//!
//! A new child: SaAdd in, SaAdd out, policies. The responder of a rekeying: SaAdd in only; SaAdd
//! out on the first packet or on the DELETE of the old one. A rekeyed child: SaDelete out at once,
//! SaDelete in some seconds later.

use ironswan_keying::diagnosis::{Entry, KeyExchangeEntry, NotDone};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::algorithm;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, SaRef, Spi, Tfc,
};
use ironswan_wire::selector::AddrRange;

use super::{Context, Effect};
use crate::child::{Agreed, Child, NewPair};
use crate::endpoint::old_inbound::OldInbound;
use crate::endpoint::spd::{Narrowed, Spd};
use crate::endpoint::todo::Todo;
use crate::endpoint::view;
use crate::event::{ChildId, ChildState, Event, IkeId, KeyLog, Level};
use crate::keymat::{ChildKeys, SaKeys};
use crate::sa::IkeSa;
use crate::task::Task;
use crate::timer::Timer;
use crate::{narrow, transport};
use ironswan_keying::limits::{HANDED_OVER_ANSWER, HANDOVER, SMALL_BLOCK_BYTES};
use ironswan_keying::{ChildConfig, Report, jitter};

/// Everything about a pair of SAs to install.
pub(crate) struct NewSas {
    pub id: ChildId,
    pub config: Arc<ChildConfig>,
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub agreed: Agreed,
    pub keys: ChildKeys,
    /// We are the initiator of the exchange that made it.
    pub initiator: bool,
    /// The old child's, when rekeying.
    pub reqid: Option<ReqId>,
    /// Keep the outbound SA back.
    pub hold_out: bool,
}

/// The limits that the engine counts for an SA of this suite.
fn limits(configured: Lifetime, suite: &EspSuite) -> Lifetime {
    let small = algorithm::encr(suite.encr).is_some_and(|shape| shape.block_len == 8);
    match configured {
        Lifetime { soft_bytes: 0, hard_bytes: 0, .. } if small => {
            Lifetime { soft_bytes: SMALL_BLOCK_BYTES, hard_bytes: 2 * SMALL_BLOCK_BYTES, ..configured }
        }
        _ => configured,
    }
}

/// How the packets of one direction are carried. What does not concern a direction, protocol or
/// mode has its default: the engine need not look at it.
fn options(direction: Direction, agreed: &Agreed, configured: &SaOptions) -> SaOptions {
    let tunnel = agreed.mode == Mode::Tunnel;
    let copy_ecn = configured.copy_ecn || !tunnel;
    match direction {
        Direction::In => SaOptions {
            ipcomp: agreed.cpi_in,
            copy_ecn,
            dscp_in: configured.dscp_in && tunnel,
            original: agreed.original,
            ..SaOptions::default()
        },
        Direction::Out => {
            let hides = tunnel && agreed.protocol == ProtocolId::ESP;
            SaOptions {
                ipcomp: agreed.cpi_out,
                copy_ecn,
                copy_df: configured.copy_df,
                dscp_out: if tunnel { configured.dscp_out } else { Dscp::Copy },
                tfc: if hides && agreed.tfc { configured.tfc } else { Tfc::None },
                dummies: configured.dummies.filter(|_| hides),
                ..SaOptions::default()
            }
        }
    }
}

/// charon's line for a CHILD_SA that stands; `direction` when only one of its SAs does.
fn established(direction: &str, child: &Child) -> String {
    format!("{direction}CHILD_SA {} established with {}", child.name(), child.spis_and_selectors())
}

/// The policies of a child of this connection: protect each pair of selectors. None, when it is
/// configured to have none.
pub(crate) fn policies(
    spd: &Spd,
    conn: &str,
    config: &ChildConfig,
    action: Action,
    selectors: &Narrowed,
) -> Vec<PolicyAdd> {
    let mut out = Vec::new();
    let (local, remote) = &selectors.agreed;
    let entries = spd.entries(action, selectors);
    for (i, l) in local.iter().enumerate().filter(|_| config.policies) {
        for (j, r) in remote.iter().enumerate() {
            // Selectors of two families never meet in one packet.
            if l.range.is_ipv6() == r.range.is_ipv6() {
                let (name, priority) = (format!("{conn}.{}", config.name), config.priority);
                let entry = entries.of(i, j);
                out.push(PolicyAdd { name, action, local: *l, remote: *r, priority, entry });
            }
        }
    }
    out
}

/// The selectors of a new child, as configured and as agreed on.
fn selectors(sa: &IkeSa, new: &NewSas) -> Narrowed {
    let configured = (
        narrow::resolve(&new.config.local_ts, sa.local().ip()),
        narrow::resolve(&new.config.remote_ts, sa.remote().ip()),
    );
    Narrowed { configured, agreed: (new.agreed.local_ts.clone(), new.agreed.remote_ts.clone()) }
}

impl Context<'_> {
    pub(crate) fn sadb(&mut self, command: Command) {
        self.emit(Event::Sadb(command));
    }

    /// Installs a child into the engine and into its IKE_SA. Nothing is announced yet.
    pub(crate) fn install(&mut self, sa: &mut IkeSa, mut new: NewSas) {
        let selectors = selectors(sa, &new);
        let reqid = self.choose_reqid(sa, &new, &selectors);
        self.take_over_child(sa, &mut new, reqid);
        let [inbound, outbound] = self.make_pair(sa, &new, reqid);
        if self.settings.options.keylog {
            self.log_child_keys(sa.id(), &inbound, &outbound);
        }
        let (udp_encap, outbound) = (inbound.udp_encap, Box::new(outbound));
        self.sadb(Command::SaAdd(Box::new(inbound)));
        let mut child = Child::new(NewPair {
            id: new.id,
            config: new.config,
            reqid,
            agreed: new.agreed,
            configured: selectors.configured.clone(),
            spi_in: new.spi_in,
            spi_out: new.spi_out,
            udp_encap,
            at: self.now,
            begun_by_us: new.reqid.is_none().then_some(new.initiator),
        });
        let name = child.sa_ref(Direction::Out, sa.remote().ip());
        self.take_outbound(&name);
        if new.hold_out {
            child.hold_back(outbound);
        } else {
            self.sadb(Command::SaAdd(outbound));
            child.begin_sending();
            self.watch_flow(sa);
        }
        for p in
            policies(&self.shared.spd, &sa.conn().name, child.config(), Action::Protect(reqid), &selectors)
        {
            if let Some(command) = self.shared.spd.add(p) {
                self.sadb(command);
            }
        }
        self.shared.spis.install(child.id(), sa.id(), child.spi_in(), name);
        self.count_child(sa, &child, true);
        let direction = if new.hold_out { "inbound " } else { "" };
        let line = established(direction, &child);
        self.log(Level::Info, sa, line);
        self.set_child_timers(&child);
        sa.add_child(child);
    }

    /// The reqid of a child: that of the old one or of its trap, else one that its selectors have.
    fn choose_reqid(&mut self, sa: &IkeSa, new: &NewSas, selectors: &Narrowed) -> ReqId {
        match new.reqid.or_else(|| self.shared.spd.trap_reqid(&sa.conn().name, &new.config.name)) {
            Some(reqid) => {
                self.shared.spd.share(selectors, reqid);
                reqid
            }
            None => self.shared.spd.reqid(selectors, new.config.reqid),
        }
    }

    /// A child of the same tunnel may stand on an older IKE_SA of the peer: the new one takes over
    /// from it, and waits with sending while the peer may not have it yet.
    fn take_over_child(&mut self, sa: &IkeSa, new: &mut NewSas, reqid: ReqId) {
        if new.reqid.is_some() {
            return;
        }
        let has_heir = |child| self.shared.handovers.heir(child).is_some();
        let Some(older) = self.others.older(sa, (reqid, &new.agreed), &has_heir) else { return };
        // One that waits with sending itself stands for the one that carries meanwhile.
        let carries = older.same_path && (older.sends || self.has_timer(Timer::TakeUp(older.child)));
        self.shared.handovers.insert(older.child, new.id, carries, new.initiator);
        if carries && !new.initiator && older.spi_out != new.spi_out {
            new.hold_out = true;
            self.shared.timers.set(Timer::TakeUp(new.id), self.now + HANDOVER);
        } else {
            self.begin_sending(new.id);
        }
    }

    /// We send on this child now, and on none any more from which it takes over.
    fn begin_sending(&mut self, heir: ChildId) {
        for before in self.shared.handovers.begin(heir, self.now) {
            self.shared.timers.cancel(Timer::TakeUp(before));
        }
    }

    /// The inbound and the outbound SA.
    fn make_pair(&mut self, sa: &IkeSa, new: &NewSas, reqid: ReqId) -> [SaAdd; 2] {
        let agreed = &new.agreed;
        let (ours, theirs) = match new.initiator {
            true => (&new.keys.initiator, &new.keys.responder),
            false => (&new.keys.responder, &new.keys.initiator),
        };
        let configured = limits(new.config.lifetime, &agreed.suite);
        // The engine counts each direction; the soft limits of both lead to the same rekeying.
        let lifetimes = [self.less_random(configured), self.less_random(configured)];
        let add = |direction, spi, keys: &SaKeys, lifetime| SaAdd {
            direction,
            protocol: agreed.protocol,
            spi,
            reqid,
            local: sa.local(),
            remote: sa.remote(),
            udp_encap: sa.nat().encap(),
            mode: agreed.mode,
            suite: agreed.suite,
            options: options(direction, agreed, &new.config.options),
            encr_key: keys.encr.clone(),
            integ_key: keys.integ.clone(),
            replay_window: if direction == Direction::In { new.config.replay_window } else { 0 },
            local_ts: agreed.local_ts.clone(),
            remote_ts: agreed.remote_ts.clone(),
            lifetime,
            notify_first_use: direction == Direction::In && new.hold_out,
        };
        [
            add(Direction::In, new.spi_in, theirs, lifetimes[0]),
            add(Direction::Out, new.spi_out, ours, lifetimes[1]),
        ]
    }

    /// Gives the keys of both SAs to the key log.
    fn log_child_keys(&mut self, ike: IkeId, inbound: &SaAdd, outbound: &SaAdd) {
        for (add, src, dst) in
            [(inbound, inbound.remote, inbound.local), (outbound, outbound.local, outbound.remote)]
        {
            self.emit(Event::KeyLog(KeyLog::Child {
                ike,
                protocol: add.protocol,
                spi: add.spi,
                src,
                dst,
                suite: add.suite,
                encr_key: add.encr_key.clone(),
                integ_key: add.integ_key.clone(),
            }));
        }
    }

    fn set_child_timers(&mut self, child: &Child) {
        let c = child.config();
        if !c.rekey_time.is_zero() {
            let at = self.now + self.less_jitter(c.rekey_time, c.rand_time);
            self.shared.timers.set(Timer::RekeyChild(child.id()), at);
        }
        if !c.life_time.is_zero() {
            self.shared.timers.set(Timer::LifeChild(child.id()), self.now + c.life_time);
        }
        self.watch_inactivity(child, self.now);
    }

    /// The soft limits less a random part of what is between them and the hard ones, and never
    /// below half: both ends count the same packets, and with the same limits would begin to rekey
    /// at the same moment each time.
    fn less_random(&mut self, l: Lifetime) -> Lifetime {
        let mut less = |soft: u64, hard: u64| {
            let room = hard.saturating_sub(soft).min(soft / 2);
            soft - jitter::below(&mut self.shared.rng, room.saturating_add(1))
        };
        let soft_bytes = less(l.soft_bytes, l.hard_bytes);
        Lifetime { soft_bytes, soft_packets: less(l.soft_packets, l.hard_packets), ..l }
    }

    /// Sends on this child from now on, if its outbound SA was kept back.
    pub(crate) fn activate(&mut self, sa: &mut IkeSa, id: ChildId) {
        // The peer is to delete that one, whatever it sends on it until then.
        let (local, remote, udp_encap) = (sa.local(), sa.remote(), sa.nat().encap());
        // Where a third one has taken over from it meanwhile, traffic does not come back to it.
        let over = self.shared.handovers.is_over(id);
        let wanted = |c: &&mut Child| c.redundant_to().is_none() && !over;
        let Some(child) = sa.child_mut(id).filter(wanted) else { return };
        let Some(mut out) = child.release_outbound() else { return };
        self.shared.timers.cancel(Timer::TakeUp(id));
        self.begin_sending(id);
        let Some(child) = sa.child_mut(id) else { return };
        // The peer may have moved since.
        (out.local, out.remote, out.udp_encap) = (local, remote, udp_encap);
        if out.mode == Mode::Transport {
            out.local_ts = transport::at(&out.local_ts, out.local.ip());
            out.remote_ts = transport::at(&out.remote_ts, out.remote.ip());
        }
        let to_close = child.take_closes();
        let line = established("outbound ", child);
        to_close.into_iter().for_each(|close| sa.work_mut().push(Task::DeleteChild(close)));
        self.sadb(Command::SaAdd(out));
        self.watch_flow(sa);
        self.log(Level::Info, sa, line);
    }

    /// An end deletes this IKE_SA: has the children on other IKE_SAs send that take over from its
    /// children. Returns the time at which all packets that left before have arrived; `None`: they
    /// have.
    pub(crate) fn take_up_heirs(&mut self, sa: &IkeSa) -> Option<Instant> {
        let mut last = None;
        for child in sa.children() {
            let heir = self.shared.handovers.heir(child.id());
            let at = match heir.filter(|heir| self.has_timer(Timer::TakeUp(*heir))) {
                Some(heir) => {
                    self.put_off(Todo::TakeUp(heir));
                    Some(self.now)
                }
                None => self.shared.handovers.last_sent(child.id(), self.now),
            };
            last = last.max(at);
        }
        last.map(|at| at + HANDED_OVER_ANSWER).filter(|at| *at > self.now)
    }

    /// Tells that a child is up.
    pub(crate) fn announce_child(&mut self, sa: &mut IkeSa, id: ChildId) {
        let conn = sa.conn().clone();
        if let Some(child) = sa.child_mut(id) {
            child.announce();
            self.count_up(&conn.name, child);
            self.emit(Event::ChildUp { ike: sa.id(), child: id });
            self.shared.todo.push_back(Todo::Collapse(sa.id()));
        }
        // The configuration of the child may have changed meanwhile.
        self.catch_up(sa, id);
    }

    /// Reports to policy that a child carries its tunnel.
    fn count_up(&mut self, conn: &str, child: &mut Child) {
        if child.count() {
            let child = Some(child.config().name.clone());
            self.report(Report::Up { conn: conn.to_owned(), child });
        }
    }

    /// Reports to policy that a child carries its tunnel no more.
    pub(crate) fn count_gone(&mut self, conn: &str, child: &mut Child) {
        if child.uncount() {
            let child = Some(child.config().name.clone());
            self.report(Report::Gone { conn: conn.to_owned(), child });
        }
    }

    /// `new` takes over from `old`: the old one is not rekeyed any more, and its outbound SA goes
    /// when the new one's is there.
    pub(crate) fn replace_child(&mut self, sa: &mut IkeSa, old: ChildId, new: ChildId) {
        let snapshot =
            sa.child(old).map(|c| Box::new(view::child_snapshot(&self.shared.timers, self.now, c)));
        let out_stands = sa.child(new).is_some_and(Child::sends);
        self.shared.timers.cancel(Timer::Redundant(new));
        let conn = sa.conn().clone();
        if let Some(child) = sa.child_mut(new) {
            child.keep();
            if snapshot.is_some() {
                child.announce();
                self.count_up(&conn.name, child);
            }
        }
        if !sa.has_child(old) {
            // The old child has expired meanwhile.
            self.activate(sa, new);
            return self.announce_child(sa, new);
        }
        // Whoever wants the old one closed means what it carries.
        for task in sa.work_mut().queued_mut() {
            if let Task::DeleteChild(close) = task
                && close.ids.contains(&old)
                && !close.ids.contains(&new)
            {
                close.ids.push(new);
            }
        }
        let Some(child) = sa.child_mut(old) else { return };
        child.replace_by(new);
        let (watch, refused) = (*child.watch(), child.take_refused());
        self.count_gone(&conn.name, child);
        self.shared.handovers.inherit(old, new);
        if out_stands && child.sends() {
            self.remove_outbound(sa, old);
        }
        if let Some(child) = sa.child_mut(new) {
            child.watch().take_over(watch);
        }
        if refused {
            self.over(sa, Entry::KeyExchange(KeyExchangeEntry::RekeyRefused));
        }
        self.shared.timers.cancel(Timer::RekeyChild(old));
        self.shared.counters.child_rekey += 1;
        self.shared.by_connection.count(&conn.name, |c| c.child_rekey += 1);
        if let Some(old) = snapshot {
            self.emit(Event::ChildRekeyed { ike: sa.id(), old, new });
        }
        self.catch_up(sa, new);
    }

    /// The child for whose sake the inbound SA of one that goes is kept a while.
    fn heir_of_child(&mut self, sa: &IkeSa, child: &Child) -> Option<ChildId> {
        let elsewhere = self.shared.handovers.heir(child.id());
        self.shared.todo.extend(elsewhere.map(Todo::TakeUp));
        let successor = child.replaced_by().filter(|new| sa.has_child(*new));
        for before in self.shared.handovers.forget(child.id(), elsewhere.or(successor)) {
            if self.shared.handovers.is_heir(before) {
                // It has waited with sending, for one that has gone now.
                self.shared.todo.push_back(Todo::TakeUp(before));
            }
        }
        let here = child.replaced_by().filter(|_| !sa.is_dead());
        let heir = here.or(elsewhere)?;
        // A successor that has been rekeyed itself has one of its own; one that was closed leaves
        // nothing to wait for.
        let stands = sa.has_child(heir) || elsewhere == Some(heir);
        self.shared.old_inbound.heir(heir).or(stands.then_some(heir))
    }

    /// Takes a child out of its IKE_SA and of the engine. One that was rekeyed keeps its inbound SA
    /// for packets that are still under way, and whoever is to take over from it sends from now on.
    pub(crate) fn remove_child(&mut self, sa: &mut IkeSa, id: ChildId) -> Option<Child> {
        let mut child = sa.take_child(id)?;
        for close in child.take_closes().into_iter().map(Task::DeleteChild) {
            match sa.is_dead() {
                true => self.fail_task(close, &NotDone::ChildGone.into()),
                false => sa.work_mut().push(close),
            }
        }
        self.count_child(sa, &child, false);
        self.count_gone(&sa.conn().name, &mut child);
        if let Some(heir) = child.replaced_by().or_else(|| sa.collision_over(id)).filter(|_| !sa.is_dead()) {
            self.activate(sa, heir);
        }
        let heir = self.heir_of_child(sa, &child);
        for timer in Timer::of_child(id) {
            self.shared.timers.cancel(timer);
        }
        let remote = sa.remote().ip();
        let (inbound, outbound) = (child.sa_ref(Direction::In, remote), child.sa_ref(Direction::Out, remote));
        if let Some(heir) = heir {
            self.shared.old_inbound.pass_on(id, heir);
            self.shared.old_inbound.insert(id, OldInbound { sa: inbound, heir, cpi: child.agreed().cpi_in });
            self.shared.timers.set(Timer::OldInbound(id), self.now + self.limits().delete_rekeyed_delay);
        } else {
            for before in self.shared.old_inbound.of(id) {
                self.shared.timers.cancel(Timer::OldInbound(before));
                self.drop_old_inbound(before);
            }
            self.shared.spis.free_inbound(child.spi_in());
            self.free_cpi(id, child.agreed().cpi_in);
            self.sadb(Command::SaDelete(inbound));
        }
        if child.sends() {
            self.sadb(Command::SaDelete(outbound));
        }
        self.shared.spis.remove(id, &outbound);
        let (selectors, action) = (child.selectors(), Action::Protect(child.reqid()));
        for p in policies(&self.shared.spd, &sa.conn().name, child.config(), action, &selectors) {
            if let Some(command) = self.shared.spd.remove(&p) {
                self.sadb(command);
            }
        }
        self.shared.spd.release(&selectors, child.reqid());
        if child.is_announced() && child.replaced_by().is_none() {
            let mut info = view::snapshot_without_children(&self.shared.timers, self.now, sa);
            let mut gone = view::child_snapshot(&self.shared.timers, self.now, &child);
            gone.state = ChildState::Deleting;
            info.children.push(gone);
            self.emit(Event::ChildDown { ike: Box::new(info) });
        }
        Some(child)
    }

    /// Sends on this child no more. It is taken out of its IKE_SA later, by [`Self::remove_child`].
    pub(crate) fn remove_outbound(&mut self, sa: &mut IkeSa, id: ChildId) {
        let remote = sa.remote().ip();
        let Some(child) = sa.child_mut(id) else { return };
        if child.stop_sending() {
            let outbound = child.sa_ref(Direction::Out, remote);
            self.sadb(Command::SaDelete(outbound));
        }
    }

    /// The peer has given this SPI of its own to another child, on another IKE_SA: it has begun
    /// anew and does not know the old one any more, which sends no more. An SA is known by its
    /// name, so that the end of one would be that of the other.
    fn take_outbound(&mut self, name: &SaRef) {
        let Some(child) = self.shared.spis.outbound(name) else { return };
        let Some(ike) = self.shared.spis.home(child) else { return };
        let Some((conn, installed)) = self.others.sender(ike, child) else { return };
        let text = format!("the peer uses SPI {} again, not sending on the CHILD_SA that had it", name.spi);
        self.emit(Event::Log {
            level: Level::Warn,
            conn: Some(conn),
            ike: Some(ike),
            text,
            why: None,
            stranger: None,
        });
        if installed {
            self.sadb(Command::SaDelete(*name));
        }
        self.effect(Effect::Silenced { ike, child });
    }

    /// The inbound SA of a rekeyed child has been kept long enough.
    pub(crate) fn drop_old_inbound(&mut self, id: ChildId) {
        if let Some(OldInbound { sa, cpi, .. }) = self.shared.old_inbound.remove(id) {
            self.shared.spis.free_inbound(sa.spi);
            self.free_cpi(id, cpi);
            self.sadb(Command::SaDelete(sa));
        }
    }

    /// True when the peer's children cannot go to this address because of another peer's.
    pub(crate) fn move_clashes(&self, sa: &IkeSa, to: IpAddr) -> bool {
        let other = |c: &Child| {
            self.shared.spis.outbound(&c.sa_ref(Direction::Out, to)).is_some_and(|id| id != c.id())
        };
        sa.children().any(other)
    }

    /// The peer (or we) moved: its children's SAs follow.
    pub(crate) fn move_children(&mut self, sa: &mut IkeSa, old_remote: IpAddr) {
        let udp_encap = sa.nat().encap();
        let (local, remote) = (sa.local(), sa.remote());
        let mut strayed = Vec::new();
        for child in sa.children_mut() {
            child.set_udp_encap(udp_encap);
            let mut refs = vec![child.sa_ref(Direction::In, old_remote)];
            if child.sends() {
                refs.push(child.sa_ref(Direction::Out, old_remote));
            }
            for sa in refs {
                self.shared.outbox.emit(Event::Sadb(Command::SaUpdate { sa, local, remote, udp_encap }));
            }
            if old_remote != remote.ip() {
                // Unless another child has its name by now.
                let before = child.sa_ref(Direction::Out, old_remote);
                let after = child.sa_ref(Direction::Out, remote.ip());
                self.shared.spis.rename_outbound(child.id(), &before, after);
                if child.agreed().mode == Mode::Transport {
                    strayed.push(child.id());
                }
            }
        }
        for id in strayed {
            self.follow_selectors(sa, id, old_remote);
        }
    }

    /// In transport mode the peer's selectors are its address, which is another now: policies
    /// follow, and a rekeying makes SAs for the new one.
    fn follow_selectors(&mut self, sa: &mut IkeSa, id: ChildId, old_remote: IpAddr) {
        let (from, to) = (AddrRange::host(old_remote), AddrRange::host(sa.remote().ip()));
        let Some(child) = sa.child_mut(id) else { return };
        let before = child.selectors();
        if !before.agreed.1.iter().any(|ts| ts.range == from) {
            return;
        }
        child.move_selectors(from, to);
        let after = child.selectors();
        let (config, reqid) = (child.config().clone(), child.reqid());
        let policies =
            |spd: &Spd, of: &_| policies(spd, &sa.conn().name, &config, Action::Protect(reqid), of);
        let removed = policies(&self.shared.spd, &before);
        self.shared.spd.share(&after, reqid);
        self.shared.spd.release(&before, reqid);
        let commands: Vec<_> = removed.iter().filter_map(|p| self.shared.spd.remove(p)).collect();
        let added = policies(&self.shared.spd, &after);
        let commands = commands.into_iter().chain(added.into_iter().filter_map(|p| self.shared.spd.add(p)));
        for command in commands.collect::<Vec<_>>() {
            self.sadb(command);
        }
        self.rekey_child(sa, id);
    }
}
