//! Policies from both sources, the loaded configuration and the engine, and the input of the
//! planner made of them.
//!
//! ```text
//! configuration ─▶ loaded ─┐
//!                          ├─▶ one policy for each key ─▶ planned: cut into lists
//! engine (negotiated) ─────┘                          └▶ narrowed: planned by destination alone
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ironswan_wire::sadb::{Action, PolicyAdd};
use ironswan_wire::selector::TrafficSelector;

use crate::guard::plan::from_config::Configured;
use crate::guard::plan::{Narrowing, Policy, Verdict};

/// Identifies a policy by what it does to packets. Two children with the same selectors have the
/// same key: the name and the guard are left out. The derived order is the order of policies in the
/// plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PolicyKey {
    verdict: Verdict,
    local: TrafficSelector,
    remote: TrafficSelector,
    priority: u32,
    /// [`Policy::open`] of a narrowed policy; 0 for all others.
    open: u32,
}

impl PolicyKey {
    pub(super) fn of(p: &Policy) -> Self {
        // A policy whose selectors are open in their own bits alone was not narrowed. The
        // configuration writes 0 there, the engine these bits: both mean the same policy.
        let narrowed = p.open > p.local.open_bits() + p.remote.open_bits();
        let open = if narrowed { p.open } else { 0 };
        Self { verdict: p.verdict, local: p.local, remote: p.remote, priority: p.priority, open }
    }

    fn policy(self, name: &str, guard: bool) -> Policy {
        let Self { verdict, local, remote, priority, open } = self;
        Policy { name: name.to_owned(), verdict, local, remote, priority, open, guard }
    }
}

/// One child's policy in the engine.
#[derive(Clone, Copy, Debug)]
struct EnginePolicy {
    /// Additions less removals: several CHILD_SAs of one child add the same policy.
    count: usize,
    /// The child is guarded. Kept after the child was unloaded, for as long as the policy stays in
    /// the engine.
    guard: bool,
}

/// Policies of the configuration and of the engine.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Policies of the engine by key and child (`connection.child`).
    engine: BTreeMap<(PolicyKey, String), EnginePolicy>,
    /// Policies of the configuration as of the last plan, and whether they are guarded.
    loaded: BTreeMap<PolicyKey, bool>,
    /// Loaded children as of the last plan, and whether they are guarded.
    guards: HashMap<String, bool>,
}

/// Everything that [`crate::guard::plan::plan_with`] takes.
#[derive(Debug, Default)]
pub(super) struct PlanInput {
    /// Policies to cut, by key.
    pub(super) policies: Vec<Policy>,
    /// For each of `policies`: true when only the engine has it.
    pub(super) negotiated: Vec<bool>,
    /// Policies that a loaded one of the same child closes entirely: only their destinations are
    /// planned.
    pub(super) narrowed: Vec<Policy>,
    /// For each of `narrowed`: the key of that loaded one.
    pub(super) narrowed_from: Vec<PolicyKey>,
}

impl Policies {
    /// The engine has added or removed a policy. Returns whether the plan must be made again.
    pub(super) fn engine(&mut self, policy: &PolicyAdd, add: bool) -> bool {
        let verdict = match policy.action {
            Action::Protect(_) => Verdict::Protect,
            Action::Bypass => Verdict::Bypass,
            Action::Discard => Verdict::Discard,
        };
        let (local, remote, priority, open) =
            (policy.local, policy.remote, policy.priority, policy.entry.open);
        let name = policy.name.clone();
        let key = PolicyKey::of(&Policy {
            name: String::new(),
            verdict,
            local,
            remote,
            priority,
            open,
            guard: false,
        });
        // A guess until the next plan: the configuration may have changed since the last one.
        let guard = self.guards.get(&name).copied().unwrap_or(true);
        match (self.engine.entry((key, name)), add) {
            (Entry::Vacant(at), true) => {
                at.insert(EnginePolicy { count: 1, guard });
            }
            (Entry::Occupied(mut at), true) => {
                at.get_mut().count += 1;
                return false;
            }
            (Entry::Occupied(mut at), false) if at.get().count > 1 => {
                at.get_mut().count -= 1;
                return false;
            }
            (Entry::Occupied(at), false) => {
                at.remove();
            }
            (Entry::Vacant(_), false) => return false,
        }
        // The plan has a guarded policy of the configuration anyway.
        self.loaded.get(&key) != Some(&true)
    }

    /// True when the engine has a policy with this key.
    pub(super) fn engine_has(&self, p: &Policy) -> bool {
        let key = PolicyKey::of(p);
        let first = (key, String::new());
        self.engine.range(first..).next().is_some_and(|((found, _), _)| *found == key)
    }

    /// True when the last plan has this policy from the configuration.
    pub(super) fn is_loaded(&self, p: &Policy) -> bool {
        self.loaded.contains_key(&PolicyKey::of(p))
    }

    /// Takes over the configuration and returns the input of the next plan. A policy of the engine
    /// is guarded as its child is in this configuration; a policy whose child was unloaded stays as
    /// it was.
    pub(super) fn plan_input(&mut self, loaded: Configured) -> PlanInput {
        let configured = loaded.policies.clone();
        let all = self.merge(loaded);
        let narrowing = Narrowing::new(&configured, &all);
        let mut input = PlanInput::default();
        for p in all {
            let is_loaded = self.is_loaded(&p);
            match if is_loaded { None } else { narrowing.outer(&p) } {
                Some(outer) => {
                    input.narrowed_from.push(PolicyKey::of(outer));
                    input.narrowed.push(p);
                }
                None => {
                    input.negotiated.push(!is_loaded);
                    input.policies.push(p);
                }
            }
        }
        input
    }

    /// All policies by key. One that several children have is guarded when one of them is.
    fn merge(&mut self, loaded: Configured) -> Vec<Policy> {
        let mut all: BTreeMap<PolicyKey, Policy> = BTreeMap::new();
        for p in loaded.policies {
            let guard = p.guard;
            all.entry(PolicyKey::of(&p)).or_insert(p).guard |= guard;
        }
        self.loaded = all.iter().map(|(key, p)| (*key, p.guard)).collect();
        self.guards = loaded.guards;
        for ((key, name), held) in &mut self.engine {
            held.guard = self.guards.get(name).copied().unwrap_or(held.guard);
            all.entry(*key).or_insert_with(|| key.policy(name, held.guard)).guard |= held.guard;
        }
        all.into_values().collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.engine.is_empty() && self.guards.is_empty()
    }
}
