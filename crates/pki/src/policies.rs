//! Certificate policies along a chain: the graph of RFC 9618, which replaces the tree of RFC 5280
//! section 6.1. A tree grows with the power of the depth; a graph has one node for each policy and
//! depth.
//!
//! ```text
//! depth 0        any
//! depth 1     any   gold          a node: a policy that is valid at this depth, and the policies
//! depth 2     any   gold  silver  that the next certificate may call it by (`expected`)
//! ```
//! A level without nodes ends the graph: all levels above lose their children with it.

use crate::certificate::Certificate;
use crate::der::{OID, Reader, SEQUENCE};
use crate::extensions::mapping;
use crate::fault::Rule;
use crate::oid;
use crate::rules;

/// One policy at one depth.
struct Node<'a> {
    policy: &'a [u8],
    /// Policies of the next certificate that continue this one.
    expected: Vec<&'a [u8]>,
    /// Indices of the nodes one depth above that this one continues.
    parents: Vec<usize>,
}

/// State of the policies while a chain is walked from its CA down.
pub(crate) struct Policies<'a> {
    wanted: &'a rules::Policies,
    levels: Vec<Vec<Node<'a>>>,
    /// Certificates that may follow until a policy has to be valid.
    explicit: usize,
    /// Certificates that may follow until mappings are inhibited.
    mapping: usize,
    /// Certificates that may follow until anyPolicy is inhibited.
    any: usize,
}

impl<'a> Policies<'a> {
    /// Starts above a chain of `len` certificates (section 6.1.2).
    pub(crate) fn new(wanted: &'a rules::Policies, len: usize) -> Self {
        let count = |now| if now { 0 } else { len + 1 };
        let root = Node { policy: oid::ANY_POLICY, expected: vec![oid::ANY_POLICY], parents: Vec::new() };
        Self {
            levels: vec![vec![root]],
            explicit: count(wanted.required),
            mapping: count(wanted.inhibit_mapping),
            any: count(wanted.inhibit_any),
            wanted,
        }
    }

    /// Takes one certificate (section 6.1.3, (d) to (f)).
    pub(crate) fn process(&mut self, certificate: &'a Certificate, last: bool) -> Result<(), Rule> {
        let above = self.levels.last().map(Vec::as_slice).unwrap_or_default();
        let mut level: Vec<Node<'a>> = Vec::new();
        if let Some(list) = certificate.part(certificate.extensions().policies) {
            let any_above = above.iter().position(|node| node.policy == oid::ANY_POLICY);
            let mut has_any = false;
            for policy in names(list) {
                if policy == oid::ANY_POLICY {
                    has_any = true;
                    continue;
                }
                let mut parents = parents(above, policy);
                if parents.is_empty() {
                    parents.extend(any_above);
                }
                if !parents.is_empty() {
                    level.push(Node { policy, expected: vec![policy], parents });
                }
            }
            if has_any && (self.any > 0 || (!last && certificate.is_self_issued())) {
                let expected: Vec<&[u8]> =
                    above.iter().flat_map(|node| node.expected.iter().copied()).collect();
                for policy in expected {
                    if !level.iter().any(|node| node.policy == policy) {
                        let parents = parents(above, policy);
                        level.push(Node { policy, expected: vec![policy], parents });
                    }
                }
            }
        }
        self.levels.push(level);
        if self.explicit == 0 && self.is_empty() { Err(Rule::NoPolicy) } else { Ok(()) }
    }

    /// Prepares for the certificate below a CA (section 6.1.4, (a), (b), and (h) to (j)).
    pub(crate) fn prepare(&mut self, certificate: &'a Certificate) -> Result<(), Rule> {
        let extensions = certificate.extensions();
        if let Some(list) = certificate.part(extensions.mappings) {
            self.map(list)?;
        }
        if !certificate.is_self_issued() {
            for count in [&mut self.explicit, &mut self.mapping, &mut self.any] {
                *count = count.saturating_sub(1);
            }
        }
        let least =
            |count: &mut usize, said: Option<u32>| *count = (*count).min(said.map_or(*count, |n| n as usize));
        least(&mut self.explicit, extensions.require_policy);
        least(&mut self.mapping, extensions.inhibit_mapping);
        least(&mut self.any, extensions.inhibit_any);
        Ok(())
    }

    /// Carries out policy mappings.
    fn map(&mut self, list: &'a [u8]) -> Result<(), Rule> {
        let mut pairs = Vec::new();
        let mut reader = Reader::new(list);
        while let Ok((issuer, subject)) = mapping(&mut reader) {
            // "Policies MUST NOT be mapped either to or from the special value anyPolicy".
            if issuer == oid::ANY_POLICY || subject == oid::ANY_POLICY {
                return Err(Rule::MappedAnyPolicy);
            }
            pairs.push((issuer, subject));
        }
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if self.mapping == 0 {
            level.retain(|node| !pairs.iter().any(|(issuer, _)| *issuer == node.policy));
            return Ok(());
        }
        let any = level.iter().find(|node| node.policy == oid::ANY_POLICY).map(|node| node.parents.clone());
        let mut done: Vec<&[u8]> = Vec::new();
        for &(issuer, _) in &pairs {
            if done.contains(&issuer) {
                continue;
            }
            done.push(issuer);
            let equal = pairs.iter().filter(|(i, _)| *i == issuer).map(|(_, subject)| *subject).collect();
            if let Some(node) = level.iter_mut().find(|node| node.policy == issuer) {
                node.expected = equal;
            } else if let Some(parents) = &any {
                level.push(Node { policy: issuer, expected: equal, parents: parents.clone() });
            }
        }
        Ok(())
    }

    /// Ends with the last certificate (section 6.1.5, (a), (b) and (g)).
    pub(crate) fn finish(mut self, certificate: &Certificate) -> Result<(), Rule> {
        self.explicit = self.explicit.saturating_sub(1);
        if certificate.extensions().require_policy == Some(0) {
            self.explicit = 0;
        }
        if self.explicit > 0 || self.has_acceptable() { Ok(()) } else { Err(Rule::NoPolicy) }
    }

    /// True when no policy is valid.
    fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(Vec::is_empty)
    }

    /// True when one of the acceptable policies is valid along the whole chain. Policies are named
    /// as the CA above all mappings names them: these nodes stand directly below anyPolicy.
    fn has_acceptable(&self) -> bool {
        let Some(last) = self.levels.last() else { return false };
        if self.wanted.acceptable.is_empty() {
            return !last.is_empty();
        }
        let mut alive: Vec<usize> = (0..last.len()).collect();
        for depth in (1..self.levels.len()).rev() {
            let (level, above) = (&self.levels[depth], &self.levels[depth - 1]);
            for node in alive.iter().filter_map(|&n| level.get(n)) {
                let from_any =
                    node.parents.iter().any(|&p| above.get(p).is_some_and(|p| p.policy == oid::ANY_POLICY));
                let last_any = depth == self.levels.len() - 1 && node.policy == oid::ANY_POLICY;
                let acceptable = self.wanted.acceptable.iter().any(|policy| policy.value() == node.policy);
                if last_any || (from_any && acceptable) {
                    return true;
                }
            }
            let mut parents: Vec<usize> = alive
                .iter()
                .filter_map(|&n| level.get(n))
                .flat_map(|node| node.parents.iter().copied())
                .collect();
            parents.sort_unstable();
            parents.dedup();
            alive = parents;
        }
        false
    }
}

/// Nodes that expect this policy.
fn parents(level: &[Node<'_>], policy: &[u8]) -> Vec<usize> {
    let expecting = level.iter().enumerate().filter(|(_, node)| node.expected.contains(&policy));
    expecting.map(|(n, _)| n).collect()
}

/// Names of the policies in the inside of `certificatePolicies`.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(list);
    std::iter::from_fn(move || reader.inside(SEQUENCE).ok()?.read(OID).ok())
}
