//! `list-policies` (charon's: traps and shunts), and our own `ironswan-policies`: every policy with
//! what of the kernel serves it.

use std::collections::HashMap;
use std::time::Duration;

use ironswan_config::selector_text;
use ironswan_io::route::{Destination, Route, Rule};
use ironswan_keying::{ChildConfig, ChildKind, Connection};
use ironswan_wire::sadb::Mode;
use ironswan_wire::vici::Section;

use super::client::Client;
use super::{Control, failure, flag, text};
use crate::guard::plan::{Policy, Verdict, Way};

/// How long an answer waits for the kernel, when a change is on its way there.
const SETTLE: Duration = Duration::from_secs(5);

impl Control {
    /// `list-policies`.
    pub(super) async fn list_policies(&self, client: &Client, message: &Section) -> Section {
        let wish = |key| flag(message, key);
        let (trap, pass, drop) = match (wish("trap"), wish("pass"), wish("drop")) {
            (Ok(trap), Ok(pass), Ok(drop)) => (trap, pass, drop),
            (Err(e), ..) | (_, Err(e), _) | (.., Err(e)) => return failure(e.to_string()),
        };
        let all = !trap && !pass && !drop;
        let (ike, child) = (text(message, "ike"), text(message, "child"));
        let mut items = Vec::new();
        self.driver.view(|e, _| {
            for conn in e.connections().iter().filter(|c| ike.is_none_or(|n| c.name == n)) {
                for c in conn.children.iter().filter(|c| child.is_none_or(|n| c.name == n)) {
                    let wanted = match c.kind {
                        ChildKind::Protect => trap,
                        ChildKind::Pass => pass,
                        ChildKind::Drop => drop,
                    };
                    if (all || wanted) && e.has_trap(&conn.name, &c.name) {
                        items.push((format!("{}/{}", conn.name, c.name), shunt(conn, c)));
                    }
                }
            }
        });
        for (name, item) in items {
            if !client.stream("list-policy", Section::new().with(name, item)).await {
                break;
            }
        }
        Section::new()
    }

    /// `ironswan-policies`: one `list-policy` event a policy; the answer has what the guard
    /// dropped, and what is wrong.
    pub(super) async fn policies(&self, client: &Client, message: &Section) -> Section {
        let only = text(message, "ike");
        // Wait first: the answer should show rules and routes that stand.
        let stands = tokio::time::timeout(SETTLE, self.driver.guarded()).await;
        let problem = match stands {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why.to_string()),
            Err(_) => Some("the kernel is not done yet".to_owned()),
        };
        let routes = self.driver.plane(|plane| plane.routes());
        let routes: HashMap<Destination, &Route> = routes.iter().map(|r| (r.destination, r)).collect();
        let items = self.driver.guard(|s| {
            let device = &s.settings().device;
            let mut out = Vec::new();
            for (p, serving) in s.served() {
                if only.is_some_and(|n| p.name != n && !p.name.starts_with(&format!("{n}."))) {
                    continue;
                }
                let mut shown = Vec::new();
                for (to, way) in &serving.routes {
                    match (way, routes.get(to)) {
                        (Way::Throw, _) => shown.push(format!("throw {to}")),
                        (Way::Tunnel, Some(route)) => shown.push(show(route, device)),
                        (Way::Tunnel, None) => shown.push(format!("unreachable {to}")),
                    }
                }
                // Without a destination in table 220 no rule leads there.
                let ours = |r: &&Rule| r.ipv6 == p.remote.range.is_ipv6() && !serving.routes.is_empty();
                let rules: Vec<String> = s.plan().rules.iter().filter(ours).map(Rule::to_string).collect();
                let section = policy(p, s.engine_has(p))
                    .with("routes", shown)
                    .with("rules", rules)
                    .with("chains", serving.chains.clone());
                out.push((p.name.clone(), section));
            }
            out.sort_by(|a, b| a.0.cmp(&b.0));
            out
        });
        for (name, item) in items {
            if !client.stream("list-policy", Section::new().with(name, item)).await {
                break;
            }
        }
        let mut answer = Section::new();
        if let Some(counters) = self.guard_counters().await {
            let (at, problem) = self.driver.guard(|g| {
                let (at, problem) = g.ingress();
                (at, problem.map(ToString::to_string))
            });
            answer.put("guard", counters);
            answer.put("ingress", at);
            if let Some(problem) = problem {
                answer.put("ingress-problem", problem);
            }
        }
        if let Some(problem) = problem {
            answer.put("problem", problem);
        }
        answer
    }

    /// Clear packets that the guard dropped; `None` without a guard.
    pub(super) async fn guard_counters(&self) -> Option<Section> {
        let c = self.driver.guard_counters().await?;
        Some(
            Section::new()
                .with("out_clear", c.out_clear.packets)
                .with("out_clear-bytes", c.out_clear.bytes)
                .with("in_clear", c.in_clear.packets)
                .with("in_clear-bytes", c.in_clear.bytes),
        )
    }
}

/// A trap or shunt as charon tells of it.
fn shunt(conn: &Connection, c: &ChildConfig) -> Section {
    let mode = match (c.kind, c.mode) {
        (ChildKind::Pass, _) => "PASS",
        (ChildKind::Drop, _) => "DROP",
        (ChildKind::Protect, Mode::Tunnel) => "TUNNEL",
        (ChildKind::Protect, Mode::Transport) => "TRANSPORT",
    };
    let selectors =
        |list: &[ironswan_keying::TsSpec]| -> Vec<String> { list.iter().map(selector_text).collect() };
    Section::new()
        .with("child", c.name.as_str())
        .with("ike", conn.name.as_str())
        .with("mode", mode)
        .with("local-ts", selectors(&c.local_ts))
        .with("remote-ts", selectors(&c.remote_ts))
}

fn policy(p: &Policy, installed: bool) -> Section {
    Section::new()
        .with(
            "verdict",
            match p.verdict {
                Verdict::Protect => "protect",
                Verdict::Discard => "discard",
                Verdict::Bypass => "bypass",
            },
        )
        .with("local-ts", p.local.to_string())
        .with("remote-ts", p.remote.to_string())
        .with("priority", p.priority)
        .with("guard", p.guard)
        .with("state", if installed { "installed" } else { "loaded" })
}

fn show(route: &Route, device: &str) -> String {
    let mut out = format!("{} dev {device}", route.destination);
    if let Some(source) = route.source {
        out += &format!(" src {source}");
    }
    out + &format!(" mtu {}", route.mtu)
}
