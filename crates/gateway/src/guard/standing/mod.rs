//! The record of what of the plan stands in the kernel: rules, the unreachable and throw routes of
//! table 220, the nft table. Makes the [`Plan`] from the policies of the configuration and of the
//! engine, and carries out the difference.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `policies` | the policies of both sources, and the planner's input |
//! | `kernel` | single rules and routes: adopted, set, compared, removed |
//! | `ingress` | the state of the programs at the ingress, as their thread tells it |
//! | `problems` | refused steps, and lines for the log |
//!
//! ```text
//! in:   programs at the ingress, rules, throw, unreachable ─▶ nft table ─▶ device routes
//! out:  device routes ─▶ nft table ─▶ unreachable, rules
//! ```
//! `dataplane::userspace::install` sets the device routes. In this order a protected packet finds
//! the device, or nowhere to go, at any moment. A step that the kernel refuses is logged once and
//! tried again; steps that depend on it wait, and the way stays closed. The program `nft` takes
//! time to replace the table: [`StandingGuard::table`] gives the text to `apply`, which runs the
//! program and comes back with [`StandingGuard::table_replaced`].

mod ingress;
mod kernel;
mod policies;
mod problems;

use std::collections::{BTreeMap, BTreeSet};

use ironswan_io::Error as IoError;
use ironswan_io::route::{Destination, Rule};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Guard;
use ironswan_wire::sadb::PolicyAdd;

use crate::diagnosis::of_kernel;
use crate::guard::ingress::thread::KeeperThread;
use crate::guard::plan::from_config::Configured;
use crate::guard::plan::{self, Negotiated, Plan, Policy, Serving, Settings, Way};
use crate::network::Kernel;
pub(crate) use kernel::default_metric;
use policies::{PlanInput, Policies, PolicyKey};
pub use problems::LogLine;
use problems::Problems;

/// The record of rules, routes and nft table in the kernel, beside the plan that they should
/// follow.
#[derive(Debug)]
pub struct StandingGuard {
    settings: Settings,
    /// Policies of the configuration and of the engine.
    known: Policies,
    /// Policies that the last plan has cut, in its order.
    policies: Vec<Policy>,
    /// Policies of the engine of which the plan has only the destinations: a loaded policy of the
    /// same child closes everything that they close.
    narrowed: Vec<Policy>,
    plan: Plan,
    /// Routes of the plan by destination.
    ways: BTreeMap<Destination, Way>,
    /// The thread that keeps the programs at the ingress.
    ingress: Option<KeeperThread>,
    /// The reason why a program does not stand at every interface.
    without_ingress: Option<Guard>,
    /// The interfaces and addresses for which the program drops more than the policies say.
    stricter: Option<Guard>,
    /// Routes of ours that the kernel has, as far as is known.
    routes: BTreeSet<(Destination, Way)>,
    /// Rules of ours that the kernel has, as far as is known.
    rules: Vec<Rule>,
    /// Routes that were set for policies newer than the plan. The next plan decides whether they
    /// stay.
    early: BTreeSet<(Destination, Way)>,
    /// Rules that were set for policies newer than the plan.
    early_rules: Vec<Rule>,
    /// An IPv6 route was set since IPv6 sockets last had to look up their routes again.
    renew: bool,
    /// The text of the nft table that the kernel has; `None` when that is not known.
    table: Option<String>,
    /// Another program touched the table since its replacement began.
    touched: bool,
    /// The number of changes so far: policies that came or went, parts that were lost or refused.
    wanted: u64,
    /// The number of the change up to which everything stands in the kernel.
    stands: u64,
    /// Rules or routes of ours were in the kernel before this process.
    adopted: bool,
    problems: Problems,
}

impl StandingGuard {
    /// An empty record with an empty plan.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            known: Policies::default(),
            policies: Vec::new(),
            narrowed: Vec::new(),
            plan: Plan::default(),
            ways: BTreeMap::new(),
            ingress: None,
            without_ingress: None,
            stricter: None,
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
            problems: Problems::default(),
        }
    }

    /// Device, marks and ports: the part of the plan's input that is not policies.
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

    /// The way of a destination in the plan; `None` when the plan has no route for it.
    pub fn way(&self, to: &Destination) -> Option<Way> {
        self.ways.get(to).copied()
    }

    /// How often what is wanted has changed, and up to which change it stands in the kernel.
    pub fn progress(&self) -> (u64, u64) {
        (self.wanted, self.stands)
    }

    /// Why it does not stand: the first of what could not be done.
    pub fn problem(&self) -> Option<&Diagnosis> {
        self.problems.first()
    }

    /// True when something is to be done.
    pub fn is_due(&self) -> bool {
        self.wanted != self.stands
    }

    /// Lines for the log since the last call.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        self.problems.take_log()
    }

    /// Adds a line to the log.
    pub(crate) fn say(&mut self, line: impl Into<LogLine>) {
        self.problems.say(line);
    }

    /// The engine has added or removed a policy.
    pub fn engine(&mut self, policy: &PolicyAdd, add: bool) {
        if self.known.engine(policy, add) {
            self.wanted += 1;
        }
    }

    /// True when the engine has a policy with these selectors.
    pub fn engine_has(&self, p: &Policy) -> bool {
        self.known.engine_has(p)
    }

    /// These policies are about to be loaded: closes the way for them at once, before the plan of
    /// all of them is made. A single policy's plan costs little, however many there are.
    pub fn loading(&mut self, kernel: &mut dyn Kernel, policies: &[Policy]) {
        if policies.iter().all(|p| self.known.is_loaded(p)) {
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
                    self.set_route(kernel, to, way);
                }
            }
        }
    }

    /// The set of what is loaded has changed without a policy to close the way for.
    pub fn unloaded(&mut self) {
        self.wanted += 1;
    }

    /// Makes the plan again from the loaded configuration and the engine's policies, and sets
    /// everything that closes: rules, throw and unreachable routes. Returns the number of the
    /// change up to which the plan goes; [`Self::open`] takes it.
    ///
    /// A policy of the engine is guarded as its child is in this configuration; when its child was
    /// unloaded, as it was before.
    pub fn replan(&mut self, kernel: &mut dyn Kernel, loaded: Configured) -> u64 {
        let generation = self.wanted;
        self.early.clear();
        self.early_rules.clear();
        self.problems.begin_plan();
        let input = self.known.plan_input(loaded);
        let plan = plan_of(&self.settings, &input);
        for warning in &plan.warnings {
            if !self.plan.warnings.contains(warning) {
                self.problems.say(LogLine::Text(warning.clone()));
            }
        }
        self.ways = plan.routes.iter().copied().collect();
        self.plan = plan;
        self.policies = input.policies;
        self.narrowed = input.narrowed;
        if let Some(thread) = &self.ingress {
            thread.want(&self.plan.ingress);
        }
        self.close(kernel);
        generation
    }

    /// Sets what closes: rules, holes and unreachable routes that are missing; and fills holes that
    /// are none any more.
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
            self.set_route(kernel, to, way);
        }
        let holes: Vec<_> = self.stale_routes().filter(|(_, way)| *way == Way::Throw).collect();
        holes.into_iter().for_each(|(to, way)| self.remove_route(kernel, to, way));
    }

    /// A route to the device is about to be set. The unreachable route for the same destination is
    /// set first: it has a lower preference, and holds the destination when the device vanishes. A
    /// destination that the plan exempts gets none.
    pub fn set_unreachable_below(&mut self, kernel: &mut dyn Kernel, to: Destination) {
        match self.ways.get(&to) {
            Some(Way::Throw) => return,
            Some(Way::Tunnel) => {}
            None => {
                self.early.insert((to, Way::Tunnel));
            }
        }
        self.set_route(kernel, to, Way::Tunnel);
    }

    /// The text of the nft table that is to replace the one that stands; `None` when that is as it
    /// should be.
    pub fn table(&self) -> Option<&str> {
        self.plan.nft.as_deref().filter(|text| self.table.as_deref() != Some(text))
    }

    /// The replacement begins; returns the text, as [`Self::table`] does.
    pub fn begin_table(&mut self) -> Option<String> {
        self.touched = false;
        self.table().map(str::to_owned)
    }

    /// The table of this text stands now, or why it does not.
    pub fn table_replaced(&mut self, text: &str, result: Result<(), Guard>) {
        match result {
            Ok(()) => {
                // Who touched it meanwhile may have come before or after.
                self.table = (!self.touched).then(|| text.to_owned());
                self.problems.solved("nft table");
            }
            Err(e) => {
                // Replaced as a whole or not at all; but which one stands is not certain when the
                // program was killed.
                self.table = None;
                self.failed("nft table".to_owned(), e.into());
            }
        }
    }

    /// Somebody has touched the table: it is to be replaced.
    pub fn table_lost(&mut self) {
        self.table = None;
        self.touched = true;
        self.wanted += 1;
    }

    /// Takes away what is no longer wanted, unless the table does not stand yet. `generation`: what
    /// [`Self::replan`] gave.
    pub fn open(&mut self, kernel: &mut dyn Kernel, generation: u64) {
        if self.table().is_some() {
            return;
        }
        let stale: Vec<_> = self.stale_routes().collect();
        for (to, way) in stale {
            self.remove_route(kernel, to, way);
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
        if self.problems.settle() {
            self.stands = self.stands.max(generation);
        }
    }

    /// Routes that stand and that neither the plan nor what came after it wants.
    fn stale_routes(&self) -> impl Iterator<Item = (Destination, Way)> {
        let stale = |r: &&(Destination, Way)| self.ways.get(&r.0) != Some(&r.1) && !self.early.contains(*r);
        self.routes.iter().filter(stale).copied()
    }

    /// Records how a step ended. Returns whether it succeeded.
    pub(crate) fn tried(&mut self, step: String, result: Result<(), IoError>) -> bool {
        match result {
            Ok(()) => {
                self.problems.solved(&step);
                true
            }
            Err(e) => {
                self.failed(step, of_kernel(&e));
                false
            }
        }
    }

    /// Records that a step was refused. A new refusal is a change of its own, so that the step is
    /// tried again.
    fn failed(&mut self, step: String, why: Diagnosis) {
        if self.problems.failed(step, why) {
            self.wanted += 1;
        }
    }
}

/// Makes the plan. Chains of a narrowed policy are those of the loaded policy from which it was
/// narrowed.
fn plan_of(settings: &Settings, input: &PlanInput) -> Plan {
    let from_peers = Negotiated { by_index: &input.negotiated, narrowed: &input.narrowed };
    let mut plan = plan::plan_with(settings, &input.policies, &from_peers);
    for (i, from) in input.narrowed_from.iter().enumerate() {
        let at = input.policies.binary_search_by_key(from, PolicyKey::of);
        let outer = at.ok().and_then(|at| plan.serving.get(at));
        let chains = outer.map(|outer| outer.chains.clone()).unwrap_or_default();
        if let Some(serving) = plan.serving.get_mut(input.policies.len() + i) {
            serving.chains = chains;
        }
    }
    plan
}

#[cfg(test)]
mod tests;
