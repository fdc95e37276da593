//! Whether a certificate of the peer's chain was revoked: by lists from files, by lists and
//! responses that are kept, and by those that are fetched for this attempt.
//!
//! ```text
//! judge ─▶ Chained ─▶ (AUTH is verified) ─▶ status ─┬─▶ Proven
//!                                            ▲      ├─▶ refused
//!                                            │      └─▶ Inquiry: places to ask, in rounds
//!                                            └── answers ◀── (the driver fetches)
//! ```
//! A round asks one place for each certificate of unknown status: responders of OCSP before lists,
//! and places of the configuration before those of the certificate. It ends when all have answered,
//! or when its time is over. Only a peer that holds the key of a certificate below a trusted CA
//! makes us ask, and only places that the certificates of its chain or the configuration name. Not
//! here: the rules for lists and responses (`ironswan_pki::revocation`), and which places may be
//! asked (`ironswan_pki::fetch`).

use std::time::Duration;

use ironswan_pki::fetch::{Fetch, wanted};
use ironswan_pki::ocsp::{MAX_NONCE, Response};
use ironswan_pki::revocation::{self, Evidence, Policy};
use ironswan_pki::{Certificate, Chain, ChainFault, Rule, Rules, Time, key_file};
use ironswan_wire::fetched::FetchFault;
use ironswan_wire::id::Identity;

use crate::certificates::{Certificates, subjects};
use crate::diagnosis::{Authentication, Untrusted};
use crate::keys::PublicKey;
use crate::limits::{STATUS_PLACES, STATUS_TIME, STATUS_TIME_EACH, STATUS_WITHOUT_END};
use crate::statuses::Statuses;

/// Answer of a place: its body, or the reason why there is none.
pub type Fetched = Result<Vec<u8>, FetchFault>;

/// The peer's certificate after all of its rules have been obeyed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proven {
    /// Public key of the certificate.
    pub key: PublicKey,
    /// The chain, for the log: subjects from the peer's own on.
    pub chain: String,
    /// Lines for the log about certificates whose status stays unknown, which is allowed.
    pub doubts: Vec<String>,
}

/// A certificate of the peer that leads to a trusted CA, or that the configuration names.
#[derive(Clone, Debug)]
pub struct Chained {
    key: PublicKey,
    shown: String,
    /// `None`: the configuration names the certificate itself, so nobody is asked about it.
    link: Option<Link>,
}

/// A valid chain, and what it was found by.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) chain: Chain,
    /// Certificates that may have signed lists.
    pub(crate) others: Vec<Certificate>,
    pub(crate) roots: Vec<Certificate>,
    pub(crate) rules: Rules,
    /// Lines about the certificates of the chain.
    pub(crate) walked: Vec<String>,
}

/// What is asked for the status of one chain, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inquiry {
    /// Nonce of the requests of OCSP in this attempt.
    nonce: [u8; MAX_NONCE],
    /// Time that is left for further places.
    left: Duration,
    /// Everything that was asked.
    asked: Vec<Fetch>,
    /// The current round: positions in the chain, and things to fetch.
    round: Vec<(usize, Fetch)>,
    /// Time for the current round.
    limit: Duration,
    /// Answers of the current round, in its order.
    answers: Vec<Fetched>,
    /// Lines about places that were of no use.
    troubles: Vec<String>,
}

/// Why a chain is not proven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unproven {
    /// The peer is refused.
    Refused(Authentication),
    /// Places have to be asked first.
    Asks(Box<Inquiry>),
}

impl Inquiry {
    /// Begins with nothing asked. The nonce is random.
    pub fn new(nonce: [u8; MAX_NONCE]) -> Self {
        Self {
            nonce,
            left: STATUS_TIME,
            asked: Vec::new(),
            round: Vec::new(),
            limit: Duration::ZERO,
            answers: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Things to fetch in this round.
    pub fn wanted(&self) -> Vec<Fetch> {
        self.round.iter().map(|(_, fetch)| fetch.clone()).collect()
    }

    /// Time that the fetches of this round may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The answers of this round, in its order, and the time that they took.
    pub fn answered(&mut self, answers: Vec<Fetched>, took: Duration) {
        self.answers = answers;
        self.left = self.left.saturating_sub(took);
    }

    fn trouble(&mut self, position: usize, place: &str, why: &str) {
        let line = format!("certificate {position}: {place}: {why}");
        if !self.troubles.contains(&line) {
            self.troubles.push(line);
        }
    }

    /// Takes the answers of the round that has ended, and keeps those that are good.
    fn take(&mut self, link: &Link, evidence: &Evidence<'_>, kept: &Statuses, now: Time) {
        let round = std::mem::take(&mut self.round);
        let mut answers = std::mem::take(&mut self.answers).into_iter();
        for (position, fetch) in round {
            let answer = answers.next().unwrap_or_else(|| Err(FetchFault::NotAsked(String::new())));
            let taken = answer.map_err(|fault| fault.to_string()).and_then(|body| match &fetch.request {
                Some(_) => self.take_response(&body, position, link, kept, now),
                None => {
                    let list = key_file::list(&body).map_err(|fault| format!("the answer {fault}"))?;
                    let until = revocation::usable_list(&link.chain, &list, evidence, now, &link.rules);
                    let until = until.map_err(|why| why.to_string())?;
                    kept.keep_list(fetch.place.uri(), list, until, now);
                    Ok(())
                }
            });
            if let Err(why) = taken {
                self.trouble(position, fetch.place.uri(), &why);
            }
            self.asked.push(fetch);
        }
    }

    fn take_response(
        &self,
        body: &[u8],
        position: usize,
        link: &Link,
        kept: &Statuses,
        now: Time,
    ) -> Result<(), String> {
        let response = Response::from_der(body).map_err(|fault| format!("the answer {fault}"))?;
        let [own, issuer] = pair(&link.chain, position);
        response.status(own, issuer, Some(&self.nonce), now, &link.rules).map_err(|why| why.to_string())?;
        let until = response.next_update(own, issuer).unwrap_or_else(|| now.plus(STATUS_WITHOUT_END));
        kept.keep_response(own, response, until, now);
        Ok(())
    }

    /// Begins a round for the certificates at these positions; false when there is nobody to ask,
    /// or no time.
    fn next_round(&mut self, loaded: &Certificates, link: &Link, positions: &[usize]) -> bool {
        let mut more = false;
        for position in positions.iter().copied() {
            let [own, issuer] = pair(&link.chain, position);
            let (places, refused) = wanted(own, issuer, &loaded.places_of(issuer), Some(&self.nonce));
            for (uri, why) in refused {
                self.trouble(position, &uri, &format!("it {why}"));
            }
            let left = places.into_iter().filter(|fetch| !self.asked.contains(fetch));
            let left: Vec<Fetch> = left.take(2).collect();
            more |= left.len() > 1;
            let Some(fetch) = left.into_iter().next() else { continue };
            if self.round.iter().any(|(_, other)| *other == fetch) {
                // Another certificate of the chain asks for the same.
            } else if self.asked.len() + self.round.len() < STATUS_PLACES {
                self.round.push((position, fetch));
            } else {
                self.trouble(position, fetch.place.uri(), "too many places are named");
            }
        }
        if self.left.is_zero() {
            for (position, fetch) in std::mem::take(&mut self.round) {
                self.trouble(position, fetch.place.uri(), "no time was left to ask it");
            }
        }
        self.limit = if more { self.left.min(STATUS_TIME_EACH) } else { self.left };
        !self.round.is_empty()
    }
}

/// The certificate at a position that is not the last one, and that of its issuer.
fn pair(chain: &Chain, position: usize) -> [&Certificate; 2] {
    let at = position.min(chain.certificates().len() - 2);
    [&chain.certificates()[at], &chain.certificates()[at + 1]]
}

impl Chained {
    /// A certificate that the configuration names.
    pub(crate) fn alone(key: PublicKey, own: &Certificate) -> Self {
        Self { key, shown: format!("\"{}\"", own.subject()), link: None }
    }

    /// A certificate with a chain.
    pub(crate) fn with_chain(key: PublicKey, link: Link) -> Self {
        Self { key, shown: subjects(&link.chain), link: Some(link) }
    }

    /// Public key of the peer's certificate.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Judges the status of the chain at `now`. Call this after the peer has proved that the key is
    /// its own. `inquiry` has the answers so far; those that are good go to `kept`.
    ///
    /// # Errors
    /// A certificate was revoked, or its status is unknown and has to be known; or places have to
    /// be asked.
    pub fn status(
        &self,
        peer: &Identity,
        loaded: &Certificates,
        kept: &Statuses,
        policy: Policy,
        inquiry: &Inquiry,
        now: Time,
    ) -> Result<Proven, Unproven> {
        let proven = |doubts| Proven { key: self.key.clone(), chain: self.shown.clone(), doubts };
        let Some(link) = &self.link else { return Ok(proven(Vec::new())) };
        let refused = |fault: ChainFault, troubles: &[String]| {
            let lines = link.walked.iter().chain(troubles).cloned().collect();
            Unproven::Refused(Untrusted::entry(peer, fault, lines))
        };
        let Link { chain, others, roots, rules, .. } = link;
        let mut inquiry = inquiry.clone();
        let files = loaded.lists();
        let evidence = Evidence { lists: files, responses: &[], certificates: others, anchors: roots };
        inquiry.take(link, &evidence, kept, now);
        let certificates = chain.certificates();
        let above_root = &certificates[..certificates.len() - 1];
        let responses: Vec<_> =
            above_root.iter().filter_map(|own| kept.response(own, now)).map(|r| (r, None)).collect();
        let lists: Vec<_> = files.iter().cloned().chain(kept.lists(now)).collect();
        let evidence = Evidence { lists: &lists, responses: &responses, ..evidence };
        let standing = revocation::standing(chain, &evidence, now, rules)
            .map_err(|fault| refused(fault, &inquiry.troubles))?;
        let positions: Vec<usize> = standing.unknown.iter().map(|(at, _)| at.position).collect();
        if inquiry.next_round(loaded, link, &positions) {
            return Err(Unproven::Asks(Box::new(inquiry)));
        }
        let says_where = |position: usize| {
            let [own, issuer] = pair(chain, position);
            revocation::says_where(own) || loaded.places_of(issuer) != Default::default()
        };
        match standing.judged(policy, says_where) {
            None => Ok(proven(inquiry.troubles)),
            Some((at, why)) => {
                let fault = ChainFault { at: Some(at.clone()), rule: Rule::NoStatus(why.clone()) };
                Err(refused(fault, &inquiry.troubles))
            }
        }
    }
}
