//! Routing rules.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::link::family;
use super::netlink::Netlink;
use super::{PRIORITY, PROTOCOL, TABLE};
use crate::error::Error;

/// A rule of the one kind that is used here: `[not] from all fwmark MARK lookup TABLE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// IPv6 or IPv4.
    pub ipv6: bool,
    /// Lower is asked first.
    pub priority: u32,
    /// Which packets; `None` for all.
    pub mark: Option<u32>,
    /// All packets but those.
    pub not: bool,
    /// Where to look.
    pub table: u32,
    /// Who made it.
    pub protocol: u8,
}

impl Rule {
    /// Everything but what carries `mark` looks in table 220.
    pub fn steering(ipv6: bool, mark: u32) -> Self {
        Self { ipv6, priority: PRIORITY, mark: Some(mark), not: true, table: TABLE, protocol: PROTOCOL }
    }

    fn message(&self) -> RuleMessage {
        let mut m = RuleMessage::default();
        m.header.family = family(self.ipv6);
        m.header.action = RuleAction::ToTable;
        m.header.table = u8::try_from(self.table).unwrap_or(0);
        if self.not {
            m.header.flags = RuleFlags::Invert;
        }
        m.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Table(self.table),
            RuleAttribute::Protocol(self.protocol.into()),
        ];
        if let Some(mark) = self.mark {
            m.attributes.push(RuleAttribute::FwMark(mark));
            m.attributes.push(RuleAttribute::FwMask(u32::MAX));
        }
        m
    }

    /// `None` for a rule with a condition that is never used here.
    fn from_message(m: &RuleMessage) -> Option<Self> {
        if m.header.action != RuleAction::ToTable || m.header.dst_len != 0 || m.header.src_len != 0 {
            return None;
        }
        let mut rule = Self {
            ipv6: m.header.family == family(true),
            priority: 0,
            mark: None,
            not: m.header.flags.contains(RuleFlags::Invert),
            table: m.header.table.into(),
            protocol: 0,
        };
        for a in &m.attributes {
            match a {
                RuleAttribute::Priority(p) => rule.priority = *p,
                RuleAttribute::Table(t) => rule.table = *t,
                RuleAttribute::FwMark(v) => rule.mark = Some(*v),
                RuleAttribute::FwMask(u32::MAX) => {}
                RuleAttribute::Protocol(p) => rule.protocol = (*p).into(),
                // "not set" is sent too.
                RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
                RuleAttribute::Other(_) => {}
                _ => return None,
            }
        }
        Some(rule)
    }
}

impl Netlink {
    /// Adds the rule, once: it may be there already.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        // NLM_F_EXCL makes the kernel compare; without it every call adds another copy.
        let message = RouteNetlinkMessage::NewRule(rule.message());
        match self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add the rule {rule:?}")) {
            Err(e) if e.errno() == Some(libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes the rule and every copy of it; returns how many there were.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<usize, Error> {
        let mut n = 0;
        while n < 1000 {
            let message = RouteNetlinkMessage::DelRule(rule.message());
            match self.change(message, 0, || format!("remove the rule {rule:?}")) {
                Ok(()) => n += 1,
                Err(e) if matches!(e.errno(), Some(libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(n)
    }

    /// The rules of this kind, both families.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            let mut m = RuleMessage::default();
            m.header.family = family(ipv6);
            let all = match self.dump(RouteNetlinkMessage::GetRule(m), || "list rules".into()) {
                Err(e) if matches!(e.errno(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => continue,
                other => other?,
            };
            rules.extend(all.iter().filter_map(|m| match m {
                RouteNetlinkMessage::NewRule(m) => Rule::from_message(m),
                _ => None,
            }));
        }
        Ok(rules)
    }
}
