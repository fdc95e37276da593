//! Connections and their children as the configuration means them. Plain data: the reader of
//! configurations has understood everything textual, and no protocol has been spoken yet.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Lifetime, Mode, SaOptions};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use crate::certificates::Trust;
use crate::keys::PublicKey;
use crate::signatures::Signatures;

/// Where one end of a connection may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddrSpec {
    /// `%any`, `0.0.0.0/0`, `::/0`.
    Any,
    /// One address; an initiator needs at least one of these for the remote end.
    Host(IpAddr),
    /// A subnet or range: matches as responder, cannot be initiated to.
    Range(AddrRange),
    /// A DNS name, resolved anew for every attempt.
    Name(String),
}

impl AddrSpec {
    /// True when `addr` is one of these addresses. A name matches none: it has to be resolved
    /// first.
    pub fn matches(&self, addr: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Host(a) => *a == addr,
            Self::Range(r) => r.contains(addr),
            Self::Name(_) => false,
        }
    }
}

impl fmt::Display for AddrSpec {
    /// The text that `local_addrs` and `remote_addrs` take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("%any"),
            Self::Host(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Range(range) => match range.prefix_len() {
                Some(len) => write!(f, "{}/{len}", range.start()),
                None => write!(f, "{}-{}", range.start(), range.end()),
            },
        }
    }
}

/// A traffic selector as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TsSpec {
    /// `dynamic[proto/port]`: the outer address of that end.
    Dynamic {
        /// IP protocol, 0 for any.
        protocol: u8,
        /// First port.
        start_port: u16,
        /// Last port.
        end_port: u16,
    },
    /// Written out.
    Fixed(TrafficSelector),
}

/// What to do at an event (`start_action`, `close_action`, `dpd_action`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChildAction {
    /// Nothing (`none`, `clear`).
    #[default]
    None,
    /// Initiate (`start`, `restart`).
    Start,
    /// Install the policy and initiate on traffic (`trap`, `route`).
    Trap,
    /// Install the policy and initiate at once (`trap|start`). The policy outlives the child.
    TrapAndStart,
}

impl ChildAction {
    /// True when the action initiates the child.
    pub fn starts(self) -> bool {
        matches!(self, Self::Start | Self::TrapAndStart)
    }

    /// True when the action installs the policy.
    pub fn traps(self) -> bool {
        matches!(self, Self::Trap | Self::TrapAndStart)
    }
}

/// What the child's policy does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChildKind {
    /// Negotiated and protected.
    #[default]
    Protect,
    /// `mode = pass`: a shunt in clear; nothing is negotiated.
    Pass,
    /// `mode = drop`: a shunt that drops; nothing is negotiated.
    Drop,
}

/// `unique`: what happens when the same pair of identities authenticates again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unique {
    /// Keep both, ignore INITIAL_CONTACT.
    Never,
    /// Keep both, unless the peer says INITIAL_CONTACT.
    #[default]
    No,
    /// Refuse the new one.
    Keep,
    /// Close the old one.
    Replace,
}

/// `childless`: IKE_SAs that are made without a CHILD_SA (RFC 6023).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Childless {
    /// Neither offered nor asked for nor accepted.
    Never,
    /// Offered and accepted; asked for when an IKE_SA alone is to be made.
    #[default]
    Allow,
    /// Offered and accepted, and asked for whenever the responder offers it.
    Prefer,
    /// The only way that is asked for or accepted.
    Force,
}

/// `fragmentation`: IKE messages in fragments (RFC 7383).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragmentation {
    /// Neither announced, nor sent, nor taken.
    No,
    /// Announced and taken, never sent.
    Accept,
    /// Announced and taken; long messages are sent so to a peer that announces it too.
    #[default]
    Yes,
}

/// The largest reqid that can be configured: the endpoint chooses from those above.
pub const MAX_REQID: u32 = 0x7fff_ffff;

/// One `connections.<name>.children.<name>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildConfig {
    /// Name, unique within the connection.
    pub name: String,
    /// ESP or AH proposals in order of preference. KE transforms in them are used by
    /// CREATE_CHILD_SA only.
    pub proposals: Vec<Proposal>,
    /// Our side's selectors.
    pub local_ts: Vec<TsSpec>,
    /// The peer's side's selectors.
    pub remote_ts: Vec<TsSpec>,
    /// Tunnel or transport. Transport is asked for, and tunnel taken when the peer does not agree.
    pub mode: Mode,
    /// IPComp is offered and accepted (RFC 7296 section 1.2, IPCOMP_SUPPORTED).
    pub ipcomp: bool,
    /// How packets are carried; `ipcomp` and `original` are filled in by what is negotiated.
    pub options: SaOptions,
    /// Policies are installed with the SAs. Without them nothing is sent by the outbound SA.
    pub policies: bool,
    /// Protect, pass or drop.
    pub kind: ChildKind,
    /// Rekey after this; zero: never.
    pub rekey_time: Duration,
    /// Close after this; zero: never.
    pub life_time: Duration,
    /// Taken off `rekey_time`: a random part of this.
    pub rand_time: Duration,
    /// Close when no packet has passed for this long; zero: never.
    pub inactivity: Duration,
    /// Limits that the engine counts (soft = rekey).
    pub lifetime: Lifetime,
    /// Anti-replay window in packets, 0: off.
    pub replay_window: u32,
    /// At load.
    pub start_action: ChildAction,
    /// When the peer closes it.
    pub close_action: ChildAction,
    /// When the peer is dead.
    pub dpd_action: ChildAction,
    /// Fixed reqid, at most [`MAX_REQID`]; 0: chosen by the endpoint.
    pub reqid: u32,
    /// Policy priority, 0: by specificity.
    pub priority: u32,
    /// As long as the connection is loaded, packets of these selectors must neither leave nor enter
    /// in clear (`guard = no` opts out). The gateway's guard uses it, not the protocol.
    pub guard: bool,
}

/// `send_cert`: when our certificate goes to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendCert {
    /// When the peer has sent CERTREQ.
    #[default]
    IfAsked,
    /// In any case.
    Always,
    /// The peer has it already.
    Never,
}

/// How an end proves who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Auth {
    /// Pre-shared key.
    #[default]
    Psk,
    /// Signatures by one of these keys. Ours may be empty: then our identity names the key.
    Pubkey {
        /// Public keys of this end.
        keys: Vec<PublicKey>,
        /// Signatures that are allowed.
        rules: Signatures,
    },
    /// Signatures by the key of a certificate.
    Certificate {
        /// Certificates of this end, and what the peer's chain must have.
        trust: Box<Trust>,
        /// Signatures that are allowed.
        rules: Signatures,
    },
}

impl Auth {
    /// Signatures by one of these keys, by any algorithm that needs not be named.
    pub fn pubkey(keys: Vec<PublicKey>) -> Self {
        Self::Pubkey { keys, rules: Signatures::default() }
    }

    /// Signatures by the key of a certificate, by any algorithm that needs not be named.
    pub fn certificate(trust: Trust) -> Self {
        Self::Certificate { trust: Box::new(trust), rules: Signatures::default() }
    }

    /// What the peer's chain must have, when the peer authenticates by a certificate.
    pub fn trust(&self) -> Option<&Trust> {
        match self {
            Self::Certificate { trust, .. } => Some(trust),
            Self::Psk | Self::Pubkey { .. } => None,
        }
    }
}

/// How we prove who we are in one more round of IKE_AUTH (RFC 4739).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalRound {
    /// Our method.
    pub auth: Auth,
    /// Our identity; `None`: our outer address.
    pub id: Option<Identity>,
}

/// How the peer proves who it is in one more round of IKE_AUTH (RFC 4739).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteRound {
    /// The peer's method.
    pub auth: Auth,
    /// What we accept as the peer's identity.
    pub id: IdPattern,
}

/// One `connections.<name>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Name, unique.
    pub name: String,
    /// Our addresses.
    pub local_addrs: Vec<AddrSpec>,
    /// The peer's addresses.
    pub remote_addrs: Vec<AddrSpec>,
    /// UDP port to send from: one of the endpoint's two, the one with the non-ESP marker to start
    /// encapsulated. `None`: the one for plain IKE.
    pub local_port: Option<u16>,
    /// UDP port to send to.
    pub remote_port: u16,
    /// IKE proposals in order of preference.
    pub proposals: Vec<Proposal>,
    /// Our method.
    pub local_auth: Auth,
    /// The peer's method.
    pub remote_auth: Auth,
    /// Our identity; `None`: our outer address.
    pub local_id: Option<Identity>,
    /// What we accept as the peer's identity; an exact one is also sent as IDr.
    pub remote_id: IdPattern,
    /// Further rounds in which we prove who we are, after the one with `local_auth`.
    pub local_rounds: Vec<LocalRound>,
    /// Further rounds in which the peer does, after the one with `remote_auth`.
    pub remote_rounds: Vec<RemoteRound>,
    /// Pretend to be behind NAT, so that ESP is UDP-encapsulated.
    pub encap: bool,
    /// Addresses of a standing IKE_SA may change (MOBIKE, RFC 4555), if the peer agrees.
    pub mobike: bool,
    /// DSCP of IKE packets, 0 to 63.
    pub dscp: u8,
    /// Liveness check after this much silence; zero: off.
    pub dpd_delay: Duration,
    /// The size of packets that the path to the peer carries is measured.
    pub path_probe: bool,
    /// Attempts to bring it up before giving up, 0: for ever.
    pub keyingtries: u32,
    /// When our certificate is sent.
    pub send_cert: SendCert,
    /// CERTREQ asks the peer for its certificate.
    pub send_certreq: bool,
    /// Same peer again.
    pub unique: Unique,
    /// IKE_SAs without CHILD_SA.
    pub childless: Childless,
    /// IKE messages in fragments.
    pub fragmentation: Fragmentation,
    /// Identifier of the post-quantum preshared key (RFC 8784). As initiator we use none without
    /// it; as responder we take any that is loaded then.
    pub ppk_id: Option<Identity>,
    /// An IKE_SA without a post-quantum preshared key is refused.
    pub ppk_required: bool,
    /// Post-quantum preshared keys are offered and taken in IKE_INTERMEDIATE (RFC 9867), so that
    /// they protect the first IKE_SA as well; else in IKE_AUTH alone.
    pub ppk_intermediate: bool,
    /// Rekey the IKE_SA after this; zero: never.
    pub rekey_time: Duration,
    /// Make the IKE_SA anew with IKE_AUTH after this; zero: never.
    pub reauth_time: Duration,
    /// Close the IKE_SA this long after `rekey_time` if it has not been rekeyed, and this long
    /// after `reauth_time` if it has not been made anew.
    pub over_time: Duration,
    /// Taken off `rekey_time` and `reauth_time`: a random part of this.
    pub rand_time: Duration,
    /// Children.
    pub children: Vec<ChildConfig>,
}

impl Connection {
    /// True when one side proves itself by signatures.
    pub fn has_signatures(&self) -> bool {
        let local = self.local_sides().map(|(auth, _)| auth);
        local.chain(self.remote_sides().map(|(auth, _)| auth)).any(|auth| *auth != Auth::Psk)
    }

    /// True when a side proves itself in more than one round (RFC 4739).
    pub fn has_rounds(&self) -> bool {
        !self.local_rounds.is_empty() || !self.remote_rounds.is_empty()
    }

    /// The rounds of both sides, each as a connection of its own with one round: for looking at
    /// what each takes. A side that has fewer rounds than the other proves nothing in the last
    /// ones.
    pub fn apart(&self) -> Vec<Cow<'_, Self>> {
        if !self.has_rounds() {
            return vec![Cow::Borrowed(self)];
        }
        let (local, remote): (Vec<_>, Vec<_>) = (self.local_sides().collect(), self.remote_sides().collect());
        // By the method of the other side no key of this side is looked for.
        let silent = |other: Option<&Auth>| match other {
            Some(Auth::Psk) => Auth::Psk,
            _ => Auth::pubkey(Vec::new()),
        };
        let (ours, theirs) = (self.local_id.as_ref(), &self.remote_id);
        let one = |n: usize| {
            let (us, them) = (local.get(n), remote.get(n));
            let local_auth = us.map_or_else(|| silent(them.map(|t| t.0)), |us| us.0.clone());
            let remote_auth = them.map_or_else(|| silent(us.map(|u| u.0)), |them| them.0.clone());
            Cow::Owned(Self {
                local_auth,
                remote_auth,
                local_id: us.map_or(ours, |us| us.1).cloned(),
                remote_id: them.map_or(theirs, |them| them.1).clone(),
                local_rounds: Vec::new(),
                remote_rounds: Vec::new(),
                ..self.clone()
            })
        };
        (0..local.len().max(remote.len())).map(one).collect()
    }

    /// Our method and identity in each round. Without an identity, our outer address is meant.
    pub fn local_sides(&self) -> impl Iterator<Item = (&Auth, Option<&Identity>)> {
        let more = self.local_rounds.iter().map(|round| (&round.auth, round.id.as_ref()));
        std::iter::once((&self.local_auth, self.local_id.as_ref())).chain(more)
    }

    /// The peer's method and identity in each round.
    pub fn remote_sides(&self) -> impl Iterator<Item = (&Auth, &IdPattern)> {
        let more = self.remote_rounds.iter().map(|round| (&round.auth, &round.id));
        std::iter::once((&self.remote_auth, &self.remote_id)).chain(more)
    }

    /// True when every child is a policy without an SA (`mode = pass`, `drop`): nothing is
    /// negotiated, with nobody.
    pub fn only_shunts(&self) -> bool {
        !self.children.is_empty() && self.children.iter().all(|c| c.kind != ChildKind::Protect)
    }

    /// Our identity on this connection, when we are at `local`.
    pub fn local_identity(&self, local: IpAddr) -> Identity {
        self.local_id.clone().unwrap_or_else(|| Identity::from_addr(local))
    }

    /// The child of this name.
    pub fn child(&self, name: &str) -> Option<&ChildConfig> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The DNS names among the addresses of both ends.
    pub fn dns_names(&self) -> BTreeSet<String> {
        names(self.local_addrs.iter().chain(&self.remote_addrs)).collect()
    }

    /// The DNS names to look up before the connection can be initiated.
    pub fn names_to_initiate(&self) -> Vec<String> {
        names(self.remote_addrs.iter()).collect()
    }

    /// True when some address of the peer is known or can be looked up, so that we can initiate.
    pub fn has_reachable_peer(&self) -> bool {
        self.remote_addrs.iter().any(|s| matches!(s, AddrSpec::Host(_) | AddrSpec::Name(_)))
    }

    /// True when the peer is one host, though perhaps with several addresses.
    pub fn is_for_one_peer(&self) -> bool {
        let one = |spec: &AddrSpec| matches!(spec, AddrSpec::Host(_) | AddrSpec::Name(_));
        !self.remote_addrs.is_empty() && self.remote_addrs.iter().all(one)
    }

    /// True when each side has to prove the same identity by the same method and keys.
    pub fn authenticates_like(&self, other: &Self) -> bool {
        self.local_sides().eq(other.local_sides()) && self.remote_sides().eq(other.remote_sides())
    }

    /// True when both are the same to the peer: they differ at most in what concerns this end only,
    /// and in children.
    pub fn is_same_to_peer(&self, other: &Self) -> bool {
        let of = |c: &Self| Self {
            dscp: other.dscp,
            dpd_delay: other.dpd_delay,
            path_probe: other.path_probe,
            keyingtries: other.keyingtries,
            unique: other.unique,
            rekey_time: other.rekey_time,
            reauth_time: other.reauth_time,
            over_time: other.over_time,
            rand_time: other.rand_time,
            children: Vec::new(),
            ..c.clone()
        };
        of(self) == of(other)
    }
}

impl ChildConfig {
    /// True when both are the same to the peer and to the data plane.
    pub fn is_same_to_peer(&self, other: &Self) -> bool {
        let of = |c: &Self| Self {
            rekey_time: other.rekey_time,
            life_time: other.life_time,
            rand_time: other.rand_time,
            inactivity: other.inactivity,
            lifetime: other.lifetime,
            start_action: other.start_action,
            close_action: other.close_action,
            dpd_action: other.dpd_action,
            guard: other.guard,
            ..c.clone()
        };
        of(self) == of(other)
    }
}

fn names<'a>(specs: impl Iterator<Item = &'a AddrSpec>) -> impl Iterator<Item = String> {
    specs.filter_map(|s| if let AddrSpec::Name(n) = s { Some(n.clone()) } else { None })
}
