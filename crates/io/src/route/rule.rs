//! Routing rules.

use std::fmt;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::link::family;
use super::netlink::Netlink;
use super::{MARKED_PRIORITY, PRIORITY, PROTOCOL, TABLE, VRF_PRIORITY};
use crate::error::Error;

/// A rule of the kinds that are used here: `[not] from all fwmark MARK/MASK lookup TABLE
/// [suppress_prefixlength N]`, and
/// `from all lookup [l3mdev-table]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// IPv6 or IPv4.
    pub ipv6: bool,
    /// Lower is asked first.
    pub priority: u32,
    /// Which packets: those whose mark has this value in the bits of `mask`; `None` for all.
    pub mark: Option<u32>,
    /// The bits of the mark that count; all of them without `mark`.
    pub mask: u32,
    /// All packets but those.
    pub not: bool,
    /// Number of the routing table to look in.
    pub table: u32,
    /// Of packets in a VRF, and where to look is its table; then `table` is 0.
    pub l3mdev: bool,
    /// A route found there whose prefix is not longer than this does not count, and the next rule
    /// is asked.
    pub suppress_prefixlength: Option<u32>,
    /// Who made it.
    pub protocol: u8,
}

impl fmt::Display for Rule {
    /// As `ip rule` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.priority)?;
        if self.not {
            f.write_str("not ")?;
        }
        f.write_str("from all")?;
        match (self.mark, self.mask) {
            (Some(mark), u32::MAX) => write!(f, " fwmark {mark:#x}")?,
            (Some(mark), mask) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
            (None, _) => {}
        }
        match self.table {
            _ if self.l3mdev => f.write_str(" lookup [l3mdev-table]")?,
            255 => f.write_str(" lookup local")?,
            254 => f.write_str(" lookup main")?,
            253 => f.write_str(" lookup default")?,
            table => write!(f, " lookup {table}")?,
        }
        match self.suppress_prefixlength {
            Some(len) => write!(f, " suppress_prefixlength {len}"),
            None => Ok(()),
        }
    }
}

/// A rule of any kind, as far as it can be in the way of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedRule {
    /// Priority, mark, table; the table is 0 when it leads to none.
    pub rule: Rule,
    /// Leads to a table; false for `unreachable`, `goto` and their like.
    pub lookup: bool,
    /// Has conditions besides the mark: addresses, interfaces, ports, users.
    pub conditions: bool,
}

impl Rule {
    /// The rule that sends packets with the bits of `steer_mark` to table 220, whatever prefix
    /// matches there.
    pub fn marked(ipv6: bool, steer_mark: u32) -> Self {
        Self {
            ipv6,
            priority: MARKED_PRIORITY,
            mark: Some(steer_mark),
            mask: steer_mark,
            not: false,
            table: TABLE,
            l3mdev: false,
            suppress_prefixlength: None,
            protocol: PROTOCOL,
        }
    }

    /// The rule that sends packets of a VRF to the VRF's own table, before all other rules.
    pub fn vrf(ipv6: bool) -> Self {
        Self {
            ipv6,
            priority: VRF_PRIORITY,
            mark: None,
            mask: u32::MAX,
            not: false,
            table: 0,
            l3mdev: true,
            suppress_prefixlength: None,
            protocol: PROTOCOL,
        }
    }

    /// Everything but what carries the bits of `outer_mark` looks in table 220; with `suppress` a
    /// default route there does not count.
    pub fn fallback(ipv6: bool, outer_mark: u32, suppress: bool) -> Self {
        Self {
            ipv6,
            priority: PRIORITY,
            mark: Some(outer_mark),
            mask: outer_mark,
            not: true,
            table: TABLE,
            l3mdev: false,
            suppress_prefixlength: suppress.then_some(0),
            protocol: PROTOCOL,
        }
    }

    fn message(&self) -> RuleMessage {
        let mut m = RuleMessage::default();
        m.header.family = family(self.ipv6);
        m.header.action = RuleAction::ToTable;
        m.header.table = u8::try_from(self.table).unwrap_or(0);
        if self.not {
            m.header.flags = RuleFlags::Invert;
        }
        m.attributes =
            vec![RuleAttribute::Priority(self.priority), RuleAttribute::Protocol(self.protocol.into())];
        // The kernel takes one or the other.
        m.attributes.push(match self.l3mdev {
            true => RuleAttribute::L3MDev(true),
            false => RuleAttribute::Table(self.table),
        });
        if let Some(mark) = self.mark {
            m.attributes.push(RuleAttribute::FwMark(mark));
            m.attributes.push(RuleAttribute::FwMask(self.mask));
        }
        if let Some(len) = self.suppress_prefixlength {
            m.attributes.push(RuleAttribute::SuppressPrefixLen(len));
        }
        m
    }
}

impl ListedRule {
    fn from_message(m: &RuleMessage) -> Self {
        let lookup = m.header.action == RuleAction::ToTable;
        let mut conditions = m.header.dst_len != 0 || m.header.src_len != 0 || m.header.tos != 0;
        let mut rule = Rule {
            ipv6: m.header.family == family(true),
            priority: 0,
            mark: None,
            mask: u32::MAX,
            not: m.header.flags.contains(RuleFlags::Invert),
            table: m.header.table.into(),
            l3mdev: false,
            suppress_prefixlength: None,
            protocol: 0,
        };
        for a in &m.attributes {
            match a {
                RuleAttribute::Priority(p) => rule.priority = *p,
                RuleAttribute::Table(t) => rule.table = *t,
                RuleAttribute::FwMark(v) => rule.mark = Some(*v),
                RuleAttribute::FwMask(mask) => rule.mask = *mask,
                RuleAttribute::L3MDev(on) => rule.l3mdev = *on,
                RuleAttribute::Protocol(p) => rule.protocol = (*p).into(),
                // "not set" is sent too.
                RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
                RuleAttribute::SuppressPrefixLen(len) => rule.suppress_prefixlength = Some(*len),
                RuleAttribute::Other(_) => {}
                _ => conditions = true,
            }
        }
        // A mask of less than all bits without a mark asks for those bits to be 0.
        if rule.mask != u32::MAX {
            rule.mark = rule.mark.or(Some(0));
        }
        if rule.l3mdev {
            rule.table = 0;
        }
        Self { rule, lookup, conditions }
    }
}

impl Netlink {
    /// Adds the rule, once: it may be there already.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        // NLM_F_EXCL makes the kernel compare; without it every call adds another copy.
        let message = RouteNetlinkMessage::NewRule(rule.message());
        match self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add the rule {rule}")) {
            Err(e) if e.errno() == Some(libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes the rule and every copy of it; returns how many there were.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<usize, Error> {
        let mut n = 0;
        while n < 1000 {
            let message = RouteNetlinkMessage::DelRule(rule.message());
            match self.change(message, 0, || format!("remove the rule {rule}")) {
                Ok(()) => n += 1,
                Err(e) if matches!(e.errno(), Some(libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(n)
    }

    /// The rules of the kind that is used here, both families.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        Ok(self.all_rules()?.into_iter().filter(|l| l.lookup && !l.conditions).map(|l| l.rule).collect())
    }

    /// Every rule, both families, in the order in which they are asked.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn all_rules(&mut self) -> Result<Vec<ListedRule>, Error> {
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            let mut m = RuleMessage::default();
            m.header.family = family(ipv6);
            let all = match self.dump(RouteNetlinkMessage::GetRule(m), || "list rules".into()) {
                Err(e) if matches!(e.errno(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => continue,
                other => other?,
            };
            rules.extend(all.iter().filter_map(|m| match m {
                RouteNetlinkMessage::NewRule(m) => Some(ListedRule::from_message(m)),
                _ => None,
            }));
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for rule in [Rule::vrf(false), Rule::marked(true, 0x10), Rule::fallback(false, 0x220, true)] {
            let l = ListedRule::from_message(&rule.message());
            assert_eq!((l.rule, l.lookup, l.conditions), (rule, true, false));
        }
        assert_eq!(Rule::vrf(false).to_string(), "218: from all lookup [l3mdev-table]");
    }
}
