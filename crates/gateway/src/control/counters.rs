//! `get-counters` and `reset-counters`: charon's 21 counters, of the whole daemon or of one
//! connection.
//!
//! A reset changes no counter of the endpoint: it remembers their values, and later answers have
//! the difference. So `ironswan-counters` counts from the start of the daemon whatever a client
//! resets.

use ironswan_ike::counters::{Counters, IkeCounters};
use ironswan_wire::vici::Section;

use super::{Control, failure, flag, success, text};

impl Control {
    /// `get-counters`: with `name` those of a connection, with `all` those of every connection,
    /// without either those of the daemon.
    pub(super) fn get_counters(&self, message: &Section) -> Section {
        let every = match flag(message, "all") {
            Ok(every) => every,
            Err(e) => return failure(e.to_string()),
        };
        let found: Vec<(String, Section)> = self.driver.view(|e, _| {
            let endpoint = e.protocol();
            let mut resets = self.resets.by_connection.borrow_mut();
            // The counters of a connection that was unloaded have begun anew.
            resets.retain(|name, before| endpoint.counters_of(name).is_some_and(|c| c.is_since(*before)));
            let since = |name: &str, c: IkeCounters| {
                let before = resets.get(name).copied().unwrap_or_default();
                (name.to_owned(), section(&c.since(before)))
            };
            match (every, text(message, "name")) {
                (true, _) => endpoint.counters_by_connection().map(|(name, c)| since(name, c)).collect(),
                (false, Some(name)) => {
                    endpoint.counters_of(name).into_iter().map(|c| since(name, c)).collect()
                }
                (false, None) => {
                    let before = *self.resets.all.borrow();
                    vec![(String::new(), section(&endpoint.counters().ike().since(before)))]
                }
            }
        });
        let nothing = found.is_empty() && !every;
        let counters = Section::new().with("counters", found.into_iter().collect::<Section>());
        match nothing {
            true => counters.with("success", false).with("errmsg", "no counters found for this connection"),
            false => counters.with("success", true),
        }
    }

    /// `reset-counters`, with the same words. As in charon, `all` means every connection and the
    /// daemon, and a connection without counters is no failure.
    pub(super) fn reset_counters(&self, message: &Section) -> Section {
        let every = match flag(message, "all") {
            Ok(every) => every,
            Err(e) => return failure(e.to_string()),
        };
        self.driver.view(|e, _| {
            let endpoint = e.protocol();
            let mut by_connection = self.resets.by_connection.borrow_mut();
            // What was unloaded has no counters any more.
            by_connection.retain(|name, _| endpoint.counters_of(name).is_some());
            let name = text(message, "name");
            if every || name.is_none() {
                *self.resets.all.borrow_mut() = endpoint.counters().ike();
            }
            let mut reset = |name: &str, c: IkeCounters| {
                by_connection.insert(name.to_owned(), c);
            };
            match name {
                _ if every => endpoint.counters_by_connection().for_each(|(name, c)| reset(name, c)),
                Some(name) => endpoint.counters_of(name).into_iter().for_each(|c| reset(name, c)),
                None => {}
            }
        });
        success()
    }
}

/// The counters of the daemon since its start.
pub(super) fn since_start(counters: &Counters) -> Section {
    section(&counters.ike())
}

/// Counters by charon's names, in charon's order.
fn section(c: &IkeCounters) -> Section {
    let mut s = Section::new()
        .with("ike-rekey-init", c.ike_rekey_init)
        .with("ike-rekey-resp", c.ike_rekey_resp)
        .with("child-rekey", c.child_rekey)
        .with("invalid", c.invalid)
        .with("invalid-spi", c.invalid_spi);
    let exchanges = [
        ("ike-init", c.ike_init),
        ("ike-auth", c.ike_auth),
        ("create-child", c.create_child),
        ("info", c.info),
    ];
    for (name, x) in exchanges {
        s.put(format!("{name}-in-req"), x.in_req);
        s.put(format!("{name}-in-resp"), x.in_rsp);
        s.put(format!("{name}-out-req"), x.out_req);
        s.put(format!("{name}-out-resp"), x.out_rsp);
    }
    s
}
