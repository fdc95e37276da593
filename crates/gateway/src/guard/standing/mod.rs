//! What stands in the kernel so that nothing protected travels in clear: rules, the unreachable and throw routes of table 220,
//! the nft table. Holds the engine's policies, makes the [`Plan`] of them and of those loaded, and carries out the
//! difference to what stands.
//!
//! ```text
//! in:   filters at the ingress, rules, throw, unreachable ─▶ nft table ─▶ (device routes: `install`)
//! out:  (device routes) ─▶ nft table ─▶ unreachable, rules
//! ```
//! So at any moment a protected packet finds the device, or nowhere to go. A step that fails is said once and tried again;
//! what depends on it waits, closed. The nft table is replaced by a program, which takes time: [`Steering::table`] gives its
//! text, whoever runs it comes back with [`Steering::table_replaced`] (`apply`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Destination, PROTOCOL, Route, RouteKind, Rule, TABLE, UNREACHABLE_METRIC};
use ironswan_wire::sadb::{Action, PolicyAdd};
use ironswan_wire::selector::TrafficSelector;

use crate::guard::ingress::thread::Keeping;
use crate::guard::offline::without_ingress;
use crate::guard::plan::from_config::Configured;
use crate::guard::plan::{self, Brought, Narrowing, Plan, Policy, Serving, Settings, Verdict, Way};
use crate::guard::{Count, has_vrf, no_such_family, renewing, standing_route};
use crate::install::Kernel;

/// What the name of a policy does not change.
type Key = (Verdict, TrafficSelector, TrafficSelector, u32, u32);

fn key(p: &Policy) -> Key {
    // What was not narrowed is the same with and without its own bits.
    let narrowed = p.open > p.local.open_bits() + p.remote.open_bits();
    (p.verdict, p.local, p.remote, p.priority, if narrowed { p.open } else { 0 })
}

/// How often the engine has a child's policy, and whether that child is guarded.
#[derive(Clone, Copy, Debug)]
struct Held {
    count: usize,
    guard: bool,
}

/// The kernel's side of all policies.
#[derive(Debug)]
pub struct Steering {
    settings: Settings,
    /// The engine's policies, by child (`connection.child`): several may have the same one.
    engine: BTreeMap<(Key, String), Held>,
    /// Those of the loaded configuration, as of the last plan, and whether they are guarded.
    loaded: BTreeMap<Key, bool>,
    /// Which loaded children are guarded, as of the last plan.
    guards: HashMap<String, bool>,
    /// All of them, in the order of the plan.
    policies: Vec<Policy>,
    /// Policies of the engine of which the plan has only the destinations, as loaded ones of their children close all that they
    /// do.
    narrowed: Vec<Policy>,
    plan: Plan,
    /// The filters at the ingress, why they do not stand, and where they drop more than they should.
    ingress: Option<Keeping>,
    without_ingress: Option<String>,
    stricter: Option<String>,
    ways: BTreeMap<Destination, Way>,
    /// Routes and rules of ours that the kernel has, as far as is known.
    routes: BTreeSet<(Destination, Way)>,
    rules: Vec<Rule>,
    /// Those of them that were set for policies which came after the plan: the next one decides on them.
    early: BTreeSet<(Destination, Way)>,
    early_rules: Vec<Rule>,
    /// IPv6 routes have come since sockets were last made to look theirs up again.
    renew: bool,
    /// The text of the nft table that the kernel has.
    table: Option<String>,
    /// Somebody touched the table since its replacement began.
    touched: bool,
    /// Counts the changes of what is wanted; and up to which of them everything stands.
    wanted: u64,
    stands: u64,
    /// Something of ours was there before this process.
    adopted: bool,
    /// What could not be done, and why; and what of that was said before the last plan.
    problems: BTreeMap<String, String>,
    said: BTreeMap<String, String>,
    /// Lines for the log.
    log: Vec<String>,
}

impl Steering {
    /// Nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            engine: BTreeMap::new(),
            loaded: BTreeMap::new(),
            guards: HashMap::new(),
            policies: Vec::new(),
            narrowed: Vec::new(),
            plan: Plan::default(),
            ingress: None,
            without_ingress: None,
            stricter: None,
            ways: BTreeMap::new(),
            routes: BTreeSet::new(),
            rules: Vec::new(),
            early: BTreeSet::new(),
            early_rules: Vec::new(),
            renew: false,
            table: None,
            touched: false,
            wanted: 0,
            stands: 0,
            adopted: false,
            problems: BTreeMap::new(),
            said: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// What steering depends on besides policies.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The plan as of the last [`Self::replan`].
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The policies of the plan, in the order of [`Plan::serving`].
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// All policies with what serves each, also those that were narrowed from one of the plan.
    pub fn served(&self) -> impl Iterator<Item = (&Policy, &Serving)> {
        self.policies.iter().chain(&self.narrowed).zip(&self.plan.serving)
    }

    /// What the plan says about a destination.
    pub fn way(&self, to: &Destination) -> Option<Way> {
        self.ways.get(to).copied()
    }

    /// How often what is wanted has changed, and up to which change it stands in the kernel.
    pub fn progress(&self) -> (u64, u64) {
        (self.wanted, self.stands)
    }

    /// Why it does not stand: the first of what could not be done.
    pub fn problem(&self) -> Option<&str> {
        self.problems.values().next().map(String::as_str)
    }

    /// True when something is to be done.
    pub fn is_due(&self) -> bool {
        self.wanted != self.stands
    }

    /// Lines for the log since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// A line for the log.
    pub(crate) fn say(&mut self, line: String) {
        self.log.push(line);
    }

    /// Has the plan's filter kept at the ingress of interfaces, from the next plan on.
    pub fn guards_ingress(&mut self, keeping: Keeping) {
        self.ingress = Some(keeping);
    }

    /// Who keeps it.
    pub fn keeping(&self) -> Option<&Keeping> {
        self.ingress.as_ref()
    }

    /// Interfaces at whose ingress the filter stands, and why it does not stand at all of them.
    pub fn ingress(&self) -> (Vec<String>, Option<&str>) {
        (self.ingress.as_ref().map(Keeping::stands).unwrap_or_default(), self.without_ingress.as_deref())
    }

    /// What was dropped there.
    pub fn dropped_at_ingress(&self) -> Count {
        self.ingress.as_ref().map(Keeping::counted).unwrap_or_default()
    }

    /// What has become of the filter at the ingress: says what is new, and returns the interfaces at which somebody had taken it
    /// away.
    pub fn ingress_kept(&mut self) -> Vec<String> {
        let Some(keeping) = &self.ingress else { return Vec::new() };
        let kept = keeping.take();
        self.log.extend(kept.said.into_iter().map(|line| line + " (said once)"));
        if kept.problem != self.without_ingress {
            match &kept.problem {
                Some(why) => self.log.push(without_ingress(why)),
                // It stands nowhere, where nothing is to be dropped.
                None if self.plan.ingress.is_empty() => {}
                None => self.log.push("the program at the ingress stands at all interfaces".to_owned()),
            }
            self.without_ingress = kept.problem;
        }
        if kept.stricter != self.stricter {
            self.log.extend(kept.stricter.clone());
            self.stricter = kept.stricter;
        }
        kept.restored
    }

    /// Takes over what a predecessor left: its rules and routes stay until the first plan says otherwise, except routes to
    /// devices, which are gone with it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn adopt(&mut self, kernel: &mut dyn Kernel) -> Result<(), IoError> {
        // What cannot be looked at may stand.
        self.adopted = true;
        let rules = kernel.rules()?;
        self.settings.vrf = has_vrf(&rules);
        for rule in rules {
            if rule.protocol == PROTOCOL && (rule.table == TABLE || rule.l3mdev) {
                self.rules.push(rule);
            }
        }
        for route in kernel.routes()?.into_iter().filter(|r| r.protocol == PROTOCOL) {
            match standing(&route) {
                Some(known) => {
                    self.routes.insert(known);
                }
                None if route.kind != RouteKind::Other => kernel.delete_route(&route)?,
                None => {}
            }
        }
        self.adopted = !self.rules.is_empty() || !self.routes.is_empty();
        self.wanted += 1;
        Ok(())
    }

    /// The engine has a policy, or has it no longer.
    pub fn engine(&mut self, policy: &PolicyAdd, add: bool) {
        let verdict = match policy.action {
            Action::Protect(_) => Verdict::Protect,
            Action::Bypass => Verdict::Bypass,
            Action::Discard => Verdict::Discard,
        };
        let (local, remote, priority, open) =
            (policy.local, policy.remote, policy.priority, policy.entry.open);
        let name = policy.name.clone();
        let key = key(&Policy { name: String::new(), verdict, local, remote, priority, open, guard: false });
        // The next plan knows better, when the configuration has changed since the last one.
        let guard = self.guards.get(&name).copied().unwrap_or(true);
        match (self.engine.entry((key, name)), add) {
            (Entry::Vacant(at), true) => {
                at.insert(Held { count: 1, guard });
            }
            (Entry::Occupied(mut at), true) => {
                at.get_mut().count += 1;
                return;
            }
            (Entry::Occupied(mut at), false) if at.get().count > 1 => {
                at.get_mut().count -= 1;
                return;
            }
            (Entry::Occupied(at), false) => {
                at.remove();
            }
            (Entry::Vacant(_), false) => return,
        }
        // What the configuration says anyway is in the plan already.
        if self.loaded.get(&key) != Some(&true) {
            self.wanted += 1;
        }
    }

    /// True when the engine has a policy with these selectors.
    pub fn engine_has(&self, p: &Policy) -> bool {
        let first = (key(p), String::new());
        self.engine.range(first..).next().is_some_and(|((found, _), _)| *found == key(p))
    }

    /// These policies are about to be loaded: closes the way for them at once, before the plan of all of them is made. A
    /// single policy's plan costs little, however many there are.
    pub fn loading(&mut self, kernel: &mut dyn Kernel, policies: &[Policy]) {
        if policies.iter().all(|p| self.loaded.contains_key(&key(p))) {
            return;
        }
        self.wanted += 1;
        for p in policies {
            let plan = plan::plan(&self.settings, std::slice::from_ref(p));
            for rule in plan.rules {
                if !self.early_rules.contains(&rule) {
                    self.early_rules.push(rule);
                }
                self.add_rule(kernel, rule);
            }
            let mut routes = plan.routes;
            // The holes first, so that nobody is cut off from his own network.
            routes.sort_by_key(|(_, way)| *way == Way::Tunnel);
            for (to, way) in routes {
                if !self.ways.contains_key(&to) {
                    self.early.insert((to, way));
                    self.add(kernel, to, way);
                }
            }
        }
    }

    /// The set of what is loaded has changed without a policy to close the way for.
    pub fn unloaded(&mut self) {
        self.wanted += 1;
    }

    /// Makes the plan anew from what is loaded and from what the engine has, and carries out what closes: rules, throw and
    /// unreachable routes. Returns the change up to which the plan goes.
    ///
    /// What runs is guarded as its child is now; what runs on after its child was unloaded, as that was last.
    pub fn replan(&mut self, kernel: &mut dyn Kernel, loaded: Configured) -> u64 {
        let generation = self.wanted;
        self.early.clear();
        self.early_rules.clear();
        // What is still wanted is tried again; what is not is no problem any more.
        self.said = std::mem::take(&mut self.problems);
        let mut all: BTreeMap<Key, Policy> = BTreeMap::new();
        let configured = loaded.policies.clone();
        // A policy that two children have is guarded when one of them is.
        for p in loaded.policies {
            match all.entry(key(&p)) {
                Entry::Vacant(at) => {
                    at.insert(p);
                }
                Entry::Occupied(mut at) => at.get_mut().guard |= p.guard,
            }
        }
        self.loaded = all.iter().map(|(key, p)| (*key, p.guard)).collect();
        self.guards = loaded.guards;
        for ((key, name), held) in &mut self.engine {
            held.guard = self.guards.get(name).copied().unwrap_or(held.guard);
            let guard = held.guard;
            match all.entry(*key) {
                Entry::Vacant(at) => {
                    let (verdict, local, remote, priority, open) = *key;
                    let p = Policy { name: name.clone(), verdict, local, remote, priority, open, guard };
                    at.insert(p);
                }
                Entry::Occupied(mut at) => at.get_mut().guard |= guard,
            }
        }
        let mut policies: Vec<Policy> = all.into_values().collect();
        let narrowing = Narrowing::new(&configured, &policies);
        // Of what was narrowed from these only the destinations are planned.
        let (mut narrowed, mut outer) = (Vec::new(), Vec::new());
        policies.retain(|p| {
            let found = if self.loaded.contains_key(&key(p)) { None } else { narrowing.outer(p) };
            if let Some(found) = found {
                narrowed.push(p.clone());
                outer.push(key(found));
            }
            found.is_none()
        });
        let negotiated: Vec<bool> = policies.iter().map(|p| !self.loaded.contains_key(&key(p))).collect();
        let brought = Brought { negotiated: &negotiated, narrowed: &narrowed };
        let mut plan = plan::plan_with(&self.settings, &policies, &brought);
        for (i, outer) in outer.iter().enumerate() {
            let chains = policies.binary_search_by_key(outer, key).ok().and_then(|at| plan.serving.get(at));
            let chains = chains.map(|outer| outer.chains.clone()).unwrap_or_default();
            if let Some(serving) = plan.serving.get_mut(policies.len() + i) {
                serving.chains = chains;
            }
        }
        for warning in &plan.warnings {
            if !self.plan.warnings.contains(warning) {
                self.log.push(warning.clone());
            }
        }
        self.ways = plan.routes.iter().copied().collect();
        self.plan = plan;
        self.policies = policies;
        self.narrowed = narrowed;
        if let Some(keeping) = &self.ingress {
            keeping.want(&self.plan.ingress);
        }
        self.close(kernel);
        generation
    }

    /// Sets what closes: rules, holes and unreachable routes that are missing; and fills holes that are none any more.
    pub fn close(&mut self, kernel: &mut dyn Kernel) {
        for rule in self.plan.rules.clone() {
            self.add_rule(kernel, rule);
        }
        let missing = |way: Way| {
            let routes = &self.routes;
            let all = self.ways.iter().filter(move |(_, w)| **w == way).map(|(d, w)| (*d, *w));
            all.filter(|r| !routes.contains(r)).collect::<Vec<_>>()
        };
        for (to, way) in missing(Way::Throw).into_iter().chain(missing(Way::Tunnel)) {
            self.add(kernel, to, way);
        }
        let holes: Vec<_> = self.stale_routes().filter(|(_, way)| *way == Way::Throw).collect();
        holes.into_iter().for_each(|(to, way)| self.remove(kernel, to, way));
    }

    /// A route to the device is about to be set: nowhere is to stand below it.
    pub fn below(&mut self, kernel: &mut dyn Kernel, to: Destination) {
        match self.ways.get(&to) {
            Some(Way::Throw) => return,
            Some(Way::Tunnel) => {}
            None => {
                self.early.insert((to, Way::Tunnel));
            }
        }
        self.add(kernel, to, Way::Tunnel);
    }

    /// The text of the nft table that is to replace the one that stands; `None` when that is as it should be.
    pub fn table(&self) -> Option<&str> {
        self.plan.nft.as_deref().filter(|text| self.table.as_deref() != Some(text))
    }

    /// The replacement begins; returns the text, as [`Self::table`] does.
    pub fn begin_table(&mut self) -> Option<String> {
        self.touched = false;
        self.table().map(str::to_owned)
    }

    /// The table of this text stands now, or why it does not.
    pub fn table_replaced(&mut self, text: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                // Who touched it meanwhile may have come before or after.
                self.table = (!self.touched).then(|| text.to_owned());
                self.solved("nft table");
            }
            Err(e) => {
                // Replaced as a whole or not at all; but which one stands is not certain when the program was killed.
                self.table = None;
                self.failed("nft table".to_owned(), e);
            }
        }
    }

    /// Somebody has touched the table: it is to be replaced.
    pub fn table_lost(&mut self) {
        self.table = None;
        self.touched = true;
        self.wanted += 1;
    }

    /// Takes away what is no longer wanted, unless the table does not stand yet. `generation`: what [`Self::replan`] gave.
    pub fn open(&mut self, kernel: &mut dyn Kernel, generation: u64) {
        if self.table().is_some() {
            return;
        }
        let stale: Vec<_> = self.stale_routes().collect();
        for (to, way) in stale {
            self.remove(kernel, to, way);
        }
        let is_stale = |r: &&Rule| !self.plan.rules.contains(*r) && !self.early_rules.contains(*r);
        let stale: Vec<Rule> = self.rules.iter().filter(is_stale).copied().collect();
        for rule in stale {
            let gone = kernel.delete_rule(&rule).map(|_| ());
            if self.tried(format!("rule {rule}"), gone) {
                self.rules.retain(|r| *r != rule);
            }
        }
        if self.renew {
            self.renew_ipv6(kernel);
        }
        if self.problems.is_empty() {
            self.said.clear();
            self.stands = self.stands.max(generation);
        }
    }

    /// Compares with what the kernel has, and forgets what is no longer there, so that [`Self::close`] restores it. Says what
    /// was missing.
    pub fn compare(&mut self, rules: &[Rule], routes: &[Route]) -> Vec<String> {
        let vrf = has_vrf(rules);
        if vrf != self.settings.vrf {
            self.settings.vrf = vrf;
            self.wanted += 1;
        }
        let mut missing = Vec::new();
        // Rules of a family that the kernel does not have were never there.
        let seen = |ipv6: bool| rules.iter().any(|r| r.ipv6 == ipv6);
        self.rules.retain(|rule| {
            let there = rules.contains(rule) || !seen(rule.ipv6) && rule.ipv6;
            if !there {
                missing.push(format!("rule {rule}"));
            }
            there
        });
        let actual: BTreeSet<(Destination, Way)> = routes.iter().filter_map(standing).collect();
        self.routes.retain(|known| {
            let there = actual.contains(known);
            if !there {
                missing.push(standing_route(known.0, known.1).to_string());
            }
            there
        });
        // A hole that we did not make, under our name.
        for extra in actual.difference(&self.routes.clone()) {
            if self.ways.get(&extra.0) != Some(&extra.1) {
                self.routes.insert(*extra);
                missing.push(format!("no route {}", standing_route(extra.0, extra.1)));
            }
        }
        if !missing.is_empty() {
            self.wanted += 1;
        }
        missing
    }

    /// Takes away every rule and route. For `guard = no`, and for a start that failed where nothing stood before.
    pub fn clear(&mut self, kernel: &mut dyn Kernel) {
        for rule in std::mem::take(&mut self.rules) {
            if let Err(e) = kernel.delete_rule(&rule) {
                self.log.push(e.to_string());
            }
        }
        for (to, way) in std::mem::take(&mut self.routes) {
            if let Err(e) = kernel.delete_route(&standing_route(to, way)) {
                self.log.push(e.to_string());
            }
        }
        self.plan.ingress = Arc::default();
        if let Some(keeping) = &self.ingress {
            keeping.want(&self.plan.ingress);
            keeping.settle();
        }
        self.ingress_kept();
    }

    /// Rules and routes of ours that the kernel has, as far as is known.
    pub(crate) fn in_kernel(&self) -> (Vec<Rule>, BTreeSet<(Destination, Way)>) {
        (self.rules.clone(), self.routes.clone())
    }

    /// Something of ours was there before this process.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Routes that stand and that neither the plan nor what came after it wants.
    fn stale_routes(&self) -> impl Iterator<Item = (Destination, Way)> {
        let stale = |r: &&(Destination, Way)| self.ways.get(&r.0) != Some(&r.1) && !self.early.contains(*r);
        self.routes.iter().filter(stale).copied()
    }

    fn add_rule(&mut self, kernel: &mut dyn Kernel, rule: Rule) {
        if self.rules.contains(&rule) {
            return;
        }
        let set = match kernel.add_rule(&rule) {
            // A kernel without IPv6 has no rules for it, and nothing to steer.
            Err(e) if rule.ipv6 && no_such_family(&e) => Ok(()),
            other => other,
        };
        if self.tried(format!("rule {rule}"), set) {
            self.rules.push(rule);
        }
    }

    fn add(&mut self, kernel: &mut dyn Kernel, to: Destination, way: Way) {
        if self.routes.contains(&(to, way)) {
            return;
        }
        let route = standing_route(to, way);
        let set = match kernel.set_route(&route) {
            Err(e) if to.ip.is_ipv6() && no_such_family(&e) => Ok(()),
            other => other,
        };
        if self.tried(route.to_string(), set) {
            self.routes.insert((to, way));
            self.renew |= to.ip.is_ipv6();
        }
    }

    /// Makes every IPv6 socket look its route up again.
    fn renew_ipv6(&mut self, kernel: &mut dyn Kernel) {
        let Some(rule) = renewing(&self.plan.rules) else { return };
        let renewed = match kernel.add_rule(&rule).and_then(|()| kernel.delete_rule(&rule)) {
            Err(e) if no_such_family(&e) => Ok(()),
            other => other.map(|_| ()),
        };
        if self.tried("renewing the routes of IPv6 sockets".to_owned(), renewed) {
            self.renew = false;
        } else {
            // Should it stand, it is none of the plan's, and goes with the next pass.
            self.rules.push(rule);
        }
    }

    fn remove(&mut self, kernel: &mut dyn Kernel, to: Destination, way: Way) {
        let route = standing_route(to, way);
        let gone = kernel.delete_route(&route);
        if self.tried(route.to_string(), gone) {
            self.routes.remove(&(to, way));
        }
    }

    /// Notes how a step ended; true when it succeeded.
    pub(crate) fn tried(&mut self, what: String, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => {
                self.solved(&what);
                true
            }
            Err(e) => {
                self.failed(what, e.to_string());
                false
            }
        }
    }

    fn solved(&mut self, what: &str) {
        if self.problems.remove(what).or(self.said.remove(what)).is_some() {
            self.log.push(format!("{what}: done at last"));
        }
    }

    fn failed(&mut self, what: String, why: String) {
        let before = self.problems.get(&what).or(self.said.get(&what)).cloned();
        if before.as_ref() != Some(&why) {
            self.log.push(format!("{what}: {why}; what it protects goes nowhere until it succeeds"));
        }
        // To be tried again, whatever else changes or does not.
        if before.is_none() {
            self.wanted += 1;
        }
        self.problems.insert(what, why);
    }
}

/// The way for which a route that was found stands. `None`: it is none of these.
fn standing(route: &Route) -> Option<(Destination, Way)> {
    if route.protocol != PROTOCOL || route.table != TABLE {
        return None;
    }
    match (route.kind, route.metric) {
        (RouteKind::Unreachable, UNREACHABLE_METRIC) => Some((route.destination, Way::Tunnel)),
        (RouteKind::Throw, metric) if metric == default_metric(route.destination.ip) => {
            Some((route.destination, Way::Throw))
        }
        _ => None,
    }
}

/// What the kernel makes of metric 0.
pub(crate) fn default_metric(ip: IpAddr) -> u32 {
    if ip.is_ipv6() { 1024 } else { 0 }
}

#[cfg(test)]
mod tests;
