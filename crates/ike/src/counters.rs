//! Counters of an endpoint. Unauthenticated junk is counted here and hardly ever logged.

use std::collections::BTreeMap;

use ironswan_wire::iana::ExchangeType;

use crate::event::Request;

/// Messages of one exchange type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exchange {
    /// Requests received.
    pub in_req: u64,
    /// Responses received.
    pub in_rsp: u64,
    /// Requests sent.
    pub out_req: u64,
    /// Responses sent.
    pub out_rsp: u64,
}

/// Counters of a whole endpoint since it was made. The first group has VICI's names
/// (`get-counters`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// IKE_SA_INIT, valid headers only.
    pub ike_init: Exchange,
    /// IKE_AUTH.
    pub ike_auth: Exchange,
    /// CREATE_CHILD_SA.
    pub create_child: Exchange,
    /// INFORMATIONAL.
    pub info: Exchange,
    /// IKE_SAs rekeyed by us.
    pub ike_rekey_init: u64,
    /// IKE_SAs rekeyed by the peer.
    pub ike_rekey_resp: u64,
    /// CHILD_SAs rekeyed, by either.
    pub child_rekey: u64,
    /// Datagrams that are no valid IKE message, or not authentic.
    pub invalid: u64,
    /// Messages for an IKE_SA that does not exist.
    pub invalid_spi: u64,

    /// Messages that are valid but not the next step of their exchange (message ID, state,
    /// direction).
    pub out_of_order: u64,
    /// Another major version of IKE.
    pub invalid_version: u64,
    /// Requests that came again and got the stored response.
    pub retransmits_in: u64,
    /// Requests sent again.
    pub retransmits_out: u64,
    /// Exchanges given up after the last retransmission.
    pub timeouts: u64,
    /// IKE_SA_INIT requests answered with COOKIE, without state.
    pub cookies_sent: u64,
    /// IKE_SA_INIT requests with a cookie that is not ours or too old.
    pub cookies_invalid: u64,
    /// IKE_SA_INIT requests dropped at a limit.
    pub half_open_refused: u64,
    /// Half-open IKE_SAs that gave way to one from a network with fewer.
    pub half_open_displaced: u64,
    /// Half-open IKE_SAs that died of age.
    pub half_open_expired: u64,
    /// Half-open IKE_SAs at this moment (a gauge).
    pub half_open: u64,
    /// Key pairs asked for.
    pub kex_generated: u64,
    /// Shared secrets asked for.
    pub kex_agreed: u64,
    /// Key exchanges of authenticated peers that were answered with TEMPORARY_FAILURE, as many of
    /// the same identity waited.
    pub kex_put_off: u64,
    /// ICMP errors that were noted about a request of ours.
    pub icmp_noted: u64,
    /// AUTH payloads that did not verify.
    pub auth_failed: u64,
    /// Requests of IKE_SAs that this process does not have, answered with a QCD token (RFC 6290).
    pub qcd_sent: u64,
    /// Such requests that were not answered, because there were too many.
    pub qcd_held_back: u64,
    /// IKE_SAs that have ended by the peer's QCD token.
    pub qcd_taken: u64,
    /// Messages with QCD tokens of which none fitted the IKE_SA.
    pub qcd_mismatched: u64,
    /// IKE_SA_INIT messages with an SPI, nonce or public value of our own: they are ours, sent
    /// back.
    pub reflected: u64,
    /// Authenticated peers that got no IKE_SA besides those that their identity had.
    pub id_refused: u64,
    /// No proposal in common.
    pub no_proposal: u64,
    /// Pairs of proposals compared because of IKE_SA_INIT requests.
    pub compared: u64,
    /// No traffic selector in common.
    pub ts_unacceptable: u64,
}

/// The counters that VICI has names for: of a whole endpoint, or of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IkeCounters {
    /// IKE_SA_INIT.
    pub ike_init: Exchange,
    /// IKE_AUTH.
    pub ike_auth: Exchange,
    /// CREATE_CHILD_SA.
    pub create_child: Exchange,
    /// INFORMATIONAL.
    pub info: Exchange,
    /// IKE_SAs rekeyed by us.
    pub ike_rekey_init: u64,
    /// IKE_SAs rekeyed by the peer.
    pub ike_rekey_resp: u64,
    /// CHILD_SAs rekeyed, by either.
    pub child_rekey: u64,
    /// Datagrams that are no valid IKE message, or not authentic.
    pub invalid: u64,
    /// Messages for an IKE_SA that does not exist. Always 0 of a connection.
    pub invalid_spi: u64,
}

impl Exchange {
    fn since(self, before: Self) -> Self {
        Self {
            in_req: self.in_req.saturating_sub(before.in_req),
            in_rsp: self.in_rsp.saturating_sub(before.in_rsp),
            out_req: self.out_req.saturating_sub(before.out_req),
            out_rsp: self.out_rsp.saturating_sub(before.out_rsp),
        }
    }
}

impl IkeCounters {
    /// What has been counted since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            ike_init: self.ike_init.since(before.ike_init),
            ike_auth: self.ike_auth.since(before.ike_auth),
            create_child: self.create_child.since(before.create_child),
            info: self.info.since(before.info),
            ike_rekey_init: self.ike_rekey_init.saturating_sub(before.ike_rekey_init),
            ike_rekey_resp: self.ike_rekey_resp.saturating_sub(before.ike_rekey_resp),
            child_rekey: self.child_rekey.saturating_sub(before.child_rekey),
            invalid: self.invalid.saturating_sub(before.invalid),
            invalid_spi: self.invalid_spi.saturating_sub(before.invalid_spi),
        }
    }

    /// True unless a counter is lower than at an earlier reading, so that they have begun anew
    /// meanwhile.
    pub fn is_since(self, before: Self) -> bool {
        before.since(self) == Self::default()
    }

    fn exchange(&mut self, exchange: ExchangeType) -> Option<&mut Exchange> {
        Some(match exchange {
            ExchangeType::IKE_SA_INIT => &mut self.ike_init,
            ExchangeType::IKE_AUTH => &mut self.ike_auth,
            ExchangeType::CREATE_CHILD_SA => &mut self.create_child,
            ExchangeType::INFORMATIONAL => &mut self.info,
            _ => return None,
        })
    }
}

/// Counters of each connection, since it was loaded. A message counts for a connection as soon as
/// its IKE_SA belongs to one: not the IKE_SA_INIT of a peer that we have not chosen a connection
/// for. As in charon.
#[derive(Default)]
pub(crate) struct ByConnection(BTreeMap<String, IkeCounters>);

impl ByConnection {
    /// Counts something for the connection of this name; nothing when the name is empty.
    pub(crate) fn count(&mut self, conn: &str, add: impl FnOnce(&mut IkeCounters)) {
        if conn.is_empty() {
            return;
        }
        match self.0.get_mut(conn) {
            Some(counters) => add(counters),
            None => add(self.0.entry(conn.to_owned()).or_default()),
        }
    }

    /// Counts a message of this exchange.
    pub(crate) fn count_message(
        &mut self,
        conn: &str,
        exchange: ExchangeType,
        add: impl FnOnce(&mut Exchange),
    ) {
        self.count(conn, |c| {
            if let Some(x) = c.exchange(exchange) {
                add(x);
            }
        });
    }

    /// Forgets a connection.
    pub(crate) fn forget(&mut self, conn: &str) {
        self.0.remove(conn);
    }

    /// The counters of the connection of this name, if anything has been counted for it.
    pub(crate) fn of(&self, conn: &str) -> Option<IkeCounters> {
        self.0.get(conn).copied()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, IkeCounters)> {
        self.0.iter().map(|(conn, counters)| (conn.as_str(), *counters))
    }
}

impl Counters {
    /// The counters that VICI has names for.
    pub fn ike(&self) -> IkeCounters {
        IkeCounters {
            ike_init: self.ike_init,
            ike_auth: self.ike_auth,
            create_child: self.create_child,
            info: self.info,
            ike_rekey_init: self.ike_rekey_init,
            ike_rekey_resp: self.ike_rekey_resp,
            child_rekey: self.child_rekey,
            invalid: self.invalid,
            invalid_spi: self.invalid_spi,
        }
    }

    /// The counters of this exchange type; `None` for a type that nobody counts.
    pub(crate) fn exchange(&mut self, exchange: ExchangeType) -> Option<&mut Exchange> {
        Some(match exchange {
            ExchangeType::IKE_SA_INIT => &mut self.ike_init,
            ExchangeType::IKE_AUTH => &mut self.ike_auth,
            ExchangeType::CREATE_CHILD_SA => &mut self.create_child,
            ExchangeType::INFORMATIONAL => &mut self.info,
            _ => return None,
        })
    }

    /// Counts a request to the driver.
    pub(crate) fn count_request(&mut self, request: &Request) {
        match request {
            Request::GenerateKey { .. } => self.kex_generated += 1,
            Request::Agree { .. } => self.kex_agreed += 1,
            Request::Respond { .. } => {
                self.kex_generated += 1;
                self.kex_agreed += 1;
            }
            Request::Sign { .. }
            | Request::Verify { .. }
            | Request::Certify(_)
            | Request::Usage { .. }
            | Request::Packets { .. }
            | Request::Route { .. }
            | Request::PathMtu { .. }
            | Request::Fetch { .. }
            | Request::Resolve { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_its_own_messages_and_is_forgotten_whole() {
        let mut all = ByConnection::default();
        all.count_message("", ExchangeType::IKE_SA_INIT, |x| x.in_req += 1);
        assert_eq!(all.all().count(), 0);
        all.count_message("net", ExchangeType::IKE_AUTH, |x| x.out_req += 1);
        all.count_message("net", ExchangeType::IKE_AUTH, |x| x.in_rsp += 1);
        all.count("net", |c| c.child_rekey += 1);
        // An exchange that nobody counts.
        all.count_message("net", ExchangeType(99), |x| x.in_req += 1);
        all.count("other", |c| c.invalid += 1);
        let net = all.of("net").unwrap();
        assert_eq!((net.ike_auth.out_req, net.ike_auth.in_rsp, net.child_rekey), (1, 1, 1));
        assert_eq!(net.since(net), IkeCounters::default());
        let before = IkeCounters { child_rekey: 5, ..IkeCounters::default() };
        assert_eq!(net.since(before).child_rekey, 0);
        all.forget("net");
        assert_eq!((all.of("net"), all.all().count()), (None, 1));
    }
}
