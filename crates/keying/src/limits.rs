//! Every limit and time of keying. [`Limits`] holds those that whoever runs the gateway may set.
//! The constants below are fixed; each is named by what it bounds.

use std::time::Duration;

// ---- Starts, retries and other addresses of a peer ----

/// Starts that happen by themselves and are under way at once; further ones wait. Enough for
/// thousands a second, whatever the round-trip time usually is.
pub const STARTS_AT_ONCE: usize = 128;
/// A start counts towards [`STARTS_AT_ONCE`] for this time at most, so that a dead peer keeps
/// nobody waiting for long.
pub const START_COUNTED: Duration = Duration::from_millis(250);
/// Pause before the next attempt when nothing speaks for waiting: our address has changed, or
/// another address is next.
pub const RETRY_SOON: Duration = Duration::from_millis(500);
/// Attempts that had no route are made within this time after routes have changed, each at a random
/// moment.
pub const RETRY_ROUTED: Duration = Duration::from_secs(1);
/// Pause before a child or a rekeying is asked for again that found the peer busy
/// (TEMPORARY_FAILURE): 5 to 15 s.
pub const BUSY_PAUSE: Duration = Duration::from_secs(5);
/// Random part that is added to [`BUSY_PAUSE`].
pub const BUSY_PAUSE_SPREAD: Duration = Duration::from_secs(10);
/// Without an IKE_SA after this time the next address of the peer is asked as well, also when the
/// peer has answered and is not done. Up to a tenth less where nobody waits: the peers of a gateway
/// that is slow because all of them come at once do not ask it again all at once.
pub const NEXT_ADDRESS: Duration = Duration::from_secs(2);
/// Addresses of one peer that are asked at once.
pub const ADDRESSES_AT_ONCE: usize = 8;

// ---- DNS names ----

/// Time between two look-ups of a name that is known, less a random fifth: a peer that has moved
/// may be unknown to us for so long.
pub const NAME_PERIOD: Duration = Duration::from_secs(60);
/// With many names the period is this much for each name, which makes about ten look-ups a second
/// in all.
pub const NAME_PERIOD_EACH: Duration = Duration::from_millis(100);
/// First pause after a look-up that failed; doubled each time up to [`NAME_RETRY_MAX`].
pub const NAME_RETRY: Duration = Duration::from_secs(5);
/// Longest pause after a look-up that failed.
pub const NAME_RETRY_MAX: Duration = Duration::from_secs(300);
/// Addresses of one name that are used; further ones are ignored.
pub const ADDRESSES_PER_NAME: usize = 16;

// ---- Our addresses and routes change ----

/// A peer that has been heard within this time is not asked for a sign of life because addresses or
/// routes have changed.
pub const ROAM_SILENCE: Duration = Duration::from_secs(30);
/// Other peers are asked within this time, each at a random moment.
pub const ROAM_PROBE_SPREAD: Duration = Duration::from_secs(2);
/// While there is no way to some peer, the routing table is asked this often even if nobody tells
/// of changes.
pub const ROUTE_POLL: Duration = Duration::from_secs(30);
/// ESP that arrived within this time answers a liveness check which a change of addresses or routes
/// has caused.
pub const PROBE_ANSWER: Duration = Duration::from_secs(2);

// ---- Size of the path to a peer ----

/// The path is measured for the first time this long after an IKE_SA is established or has moved:
/// what is set up together with it has been sent by then.
pub const PATH_PROBE_FIRST: Duration = Duration::from_secs(1);
/// First measurements that begin in a second, of all IKE_SAs together. Each is an exchange or a few
/// that the peer has to answer.
pub const PATH_PROBES_PER_SECOND: u32 = 100;
/// Time from one measurement to the next, less a random part.
pub const PATH_PROBE_PERIOD: Duration = Duration::from_secs(75 * 60);
/// Random part of [`PATH_PROBE_PERIOD`]: an hour on average.
pub const PATH_PROBE_SPREAD: Duration = Duration::from_secs(30 * 60);
/// Time from the beginning of one measurement to that of the next, when the peer moves meanwhile.
pub const PATH_PROBE_AGAIN: Duration = Duration::from_secs(10);
/// Pause before a probe is tried again that found the IKE_SA busy.
pub const PATH_PROBE_BUSY: Duration = Duration::from_secs(1);
/// A probe that has no answer after this time is sent again without DF. So long does everything
/// else wait that the IKE_SA has to do.
pub const PATH_PROBE_WAIT: Duration = Duration::from_secs(1);
/// A path counts as narrow only if the probes that pass are answered within this time: where
/// answers take longer, the others may only have been late.
pub const PATH_PROBE_PROMPT: Duration = Duration::from_millis(500);
/// Probes of one measurement.
pub const PATH_PROBES: u32 = 20;
/// Probes without an answer in time after which a size counts as too large. The first size, which
/// is what we believe of the path, needs one more: a packet may be lost for other reasons.
pub const PATH_PROBE_FAILURES: u32 = 2;
/// Bytes of the largest probe: a peer need not take longer messages than [`MESSAGE_BYTES`].
pub const PATH_PROBE_MAX: u32 = 9_000;
/// Peers that are remembered because they refuse probes. The oldest is forgotten first.
pub const PATH_PROBE_REFUSERS: usize = 16_384;

// ---- Choice of the connection for a stranger's proposals ----

/// Lists of proposals that a stranger's request is compared with at most.
pub const LISTS_PER_REQUEST: usize = 64;
/// With this many lists or fewer, all are compared before any connection is looked for.
pub const LISTS_COMPARED_FIRST: usize = 16;
/// Connections that are looked at, by address and by identity each, to explain why another one was
/// chosen for a peer.
pub const CHOICES_EXPLAINED: usize = 64;

// ---- Peers with the same identity ----

/// Time that a peer has for deleting the IKE_SA of its own that is one too many, because both sides
/// have initiated at once.
pub const TWIN_DELETE: Duration = Duration::from_secs(20);
/// At the limit for its identity, an IKE_SA of which nothing has been heard for this time is asked
/// whether its peer lives.
pub const FULL_SILENCE: Duration = Duration::from_secs(30);
/// IKE_SAs that are asked so for each peer that is refused: those at its address, and then the ones
/// that have been silent longest.
pub const FULL_PROBES: usize = 8;
/// An identity has this many more IKE_SAs that are on their way out than its limit is: beyond that
/// the oldest ends at once.
pub const ENDING_PER_ID: usize = 32;
/// An IKE_SA at the newcomer's address is dead when it has let this many retransmissions go
/// unanswered, 11 s by default.
pub const UNANSWERED_DEAD: u32 = 2;
/// Key exchanges that one identity has asked for and that wait or are computed at a time. Each of
/// its IKE_SAs can ask for one, at no cost to the peer; with the slowest group, this many take some
/// 100 ms.
pub const KEX_PER_ID: usize = 32;
/// Public keys that the signature of one peer is compared with, unless the peer's identity is the
/// fingerprint of one of them. The peer has proved nothing by then, and each key costs a
/// verification, or two when the peer's IKE_SA_INIT request has come in two forms.
pub const KEYS_TRIED: usize = 8;
/// Certificates that a peer may send. Chains have two to four; the peer has proved nothing by then.
pub const CERTIFICATES_PER_PEER: usize = 10;
/// Keys of CAs that CERTREQ names: the first ones. Keys of CAs that are read of the peer's.
pub const AUTHORITIES_ASKED: usize = 100;
/// Certificates of a chain, from the peer's own to that of the root.
pub const CHAIN_LENGTH: usize = 10;
/// Signatures that are verified in search of a chain, each once.
pub const CHAIN_SIGNATURES: usize = 16;
/// Time that one attempt waits for lists and responses of OCSP, all together.
pub const STATUS_TIME: Duration = Duration::from_secs(5);
/// Time that one place has to answer while there are others to ask.
pub const STATUS_TIME_EACH: Duration = Duration::from_secs(2);
/// Places that one attempt asks.
pub const STATUS_PLACES: usize = 16;
/// Lists and responses that are kept until the next one is due.
pub const STATUSES_KEPT: usize = 4_096;
/// Bytes of the lists and responses that are kept.
pub const STATUS_BYTES_KEPT: usize = 16 << 20;
/// Seconds for which a response of OCSP without `nextUpdate` is kept: for the rest of the attempt.
pub const STATUS_WITHOUT_END: i64 = 10;
/// Pairs of selectors, each of which is a policy, into which a peer may cut what is configured: for
/// all children of one identity, beside the pairs that are configured.
pub const PIECES_PER_ID: usize = 16_384;
/// Pairs of selectors of one child, unless the configuration itself makes more of it. Each pair is
/// a policy, and a peer may cut what is configured into as many pieces as fit into a message.
pub const PAIRS_PER_CHILD: usize = 1_024;
/// Selectors on one side of a child, configured or negotiated: RFC 7296 section 3.13 counts them in
/// one byte.
pub const SELECTORS_PER_SIDE: usize = 255;
/// Random CPIs that are tried before IPComp is given up. With half of all CPIs in use, all of these
/// fail once in 10^19 times.
pub const CPI_DRAWS: usize = 64;

// ---- Half-open IKE_SAs ----

/// From one address, cookies are asked for from this many half-open IKE_SAs on (charon's
/// `cookie_threshold_ip`).
pub const COOKIE_THRESHOLD_PER_ADDR: usize = 3;
/// Age by which an honest peer has authenticated itself, unless it or the way to it is very slow.
/// Younger entries give way to nobody but for [`CROWDED_FACTOR`].
pub const HALF_OPEN_SETTLED: Duration = Duration::from_secs(2);
/// A site or network this many times as full as the newcomer's gives way whatever the age of its
/// entries.
pub const CROWDED_FACTOR: usize = 4;
/// With more than half of the table in use, an entry gets this part of `half_open_timeout`.
pub const HALF_OPEN_LOADED_PART: u32 = 3;
/// A secret makes cookies for this long, and its cookies are honoured for as long again.
pub const COOKIE_SECRET_PERIOD: Duration = Duration::from_secs(60);
/// Bytes of the shortest IKE_SA_INIT request that is read: header, one proposal, the smallest
/// public value and nonce are 124 bytes.
pub const INIT_REQUEST_BYTES: usize = 100;
/// The same response is sent to the same request once in this time: anybody can repeat a request in
/// the name of another host.
pub const INIT_RESPONSE_REPEAT: Duration = Duration::from_secs(1);

/// Key pairs for strangers of one site that may wait for a thread. For more, half-open IKE_SAs end
/// before they are answered. With the slowest group this is a second's work.
pub const KEY_PAIRS_WAITING_PER_SITE: usize = 256;

// ---- Senders that nobody has authenticated ----

/// Requests refused in a second from which on each request must bring a cookie. Refusing one costs
/// a comparison with what is configured; an honest peer that is refused asks again after seconds.
pub const REFUSALS_PER_SECOND: u32 = 30;
/// Answers that say no, in a second to one network. An honest peer needs one; there may be several
/// behind one NAT.
pub const ANSWERS_PER_NET: u8 = 5;
/// Requests with a cookie that are refused in a second, of one network; further ones are dropped
/// before they are read. A real address may repeat a request with the same cookie for two minutes,
/// and learns nothing beyond the answers that it gets.
pub const PROVED_REFUSALS_PER_NET: u8 = ANSWERS_PER_NET;
/// Requests of unknown IKE_SAs that are answered with a QCD token in a second, to all networks
/// together (RFC 6290 section 9.3). A peer that gets no answer asks again.
pub const TOKENS_PER_SECOND: u32 = 500;
/// The same, to one network: the other ends of many IKE_SAs may be behind one NAT.
pub const TOKENS_PER_NET: u8 = 50;
/// Messages in a second of one network whose QCD tokens are compared (RFC 6290 section 8.1). Many
/// IKE_SAs may end by one crash.
pub const TOKENS_VERIFIED_PER_NET: u8 = 200;
/// Events of strangers that are written about in a second. Each is up to four lines of up to 1,000
/// bytes.
pub const STRANGER_LINES: u32 = 1;
/// Time in which one event of a network is written about: half of [`STRANGER_LINES`] is left for
/// others.
pub const STRANGER_LINE_OF_NET: Duration = Duration::from_secs(2);
/// Events of strangers that are written about at once, after a time in which there were few.
pub const STRANGER_LINES_BURST: u32 = 10;
/// Time between two lines that say how many events of strangers were not written about.
pub const STRANGER_SUMMARY: Duration = Duration::from_secs(10);
/// Counters that the networks of strangers share, a power of two.
pub const STRANGER_BUCKETS: usize = 1_024;

// ---- Messages ----

/// Bytes of the longest message that is looked at (charon's `max_packet`); bounds what a half-open
/// IKE_SA keeps.
pub const MESSAGE_BYTES: usize = 10_000;
/// Fragments of the longest message that is put together (RFC 7383). Their contents are
/// [`MESSAGE_BYTES`] at most.
pub const FRAGMENTS_PER_MESSAGE: u16 = 512;
/// Fragments of a message are kept for this time after the first of them; then the peer has to send
/// all of them again.
pub const FRAGMENTS_KEPT: Duration = Duration::from_secs(30);
/// Datagrams that wait for an IKE_SA which waits for a key. With a window of one, an honest peer
/// has two messages, the fragments of each of which may be as many as [`MESSAGE_BYTES`] need with
/// IP packets of 576 bytes.
pub const DATAGRAMS_WAITING: usize = 48;
/// Bytes of all of these datagrams: two messages, with the headers of their fragments.
pub const BYTES_WAITING: usize = 25_000;
/// A peer that has answered nothing but TEMPORARY_FAILURE for this long is out of step with us: its
/// IKE_SA is closed.
pub const BUSY_PEER: Duration = Duration::from_secs(300);
/// A TEMPORARY_FAILURE that came this long before the next one has nothing to do with that:
/// requests that meet a busy peer are repeated after 5 to 15 s, and a lost response delays one by
/// up to 165 s.
pub const BUSY_PEER_FORGOTTEN: Duration = Duration::from_secs(200);
/// Series of additional key exchanges that one peer may have under way on one IKE_SA at a time.
/// Each holds some kilobytes; a peer that does one thing after the other has one.
pub const SERIES_KEPT: usize = 8;
/// After this many series in a row that the peer has forgotten (STATE_NOT_FOUND) we delete the
/// IKE_SA (RFC 9370 section 2.2.4: "after several retries").
pub const SERIES_FORGOTTEN: u32 = 4;
/// The last answer of an IKE_SA that is gone is kept for this time: as long as a peer with the
/// usual schedule retransmits.
pub const LAST_ANSWER_KEPT: Duration = Duration::from_secs(60);
/// Last answers that are kept; the oldest goes first.
pub const LAST_ANSWERS: usize = 1_024;
/// Source hashes of NAT detection that are compared in one message; further ones are ignored.
pub const NATD_HASHES: usize = 16;
/// Hashes per second by which configured addresses are compared with what refused strangers say of
/// their own. One stranger costs one hash for each address at most.
pub const GUESSES_PER_SECOND: u32 = 4_096;
/// Offers of IPComp that are read in one message; further ones are ignored.
pub const IPCOMP_OFFERS: usize = 16;

/// Addresses at which peers were reached by NAT traversal, which are remembered.
pub const REACHED_KEPT: usize = 4_096;

// ---- Exchanges that have to begin again ----

/// COOKIE and INVALID_KE_PAYLOAD that one IKE_SA_INIT obeys before the attempt is over.
pub const INIT_ROUNDS: u32 = 6;
/// INVALID_KE_PAYLOAD that one CREATE_CHILD_SA obeys before it is over.
pub const KE_ROUNDS: u32 = 3;
/// Attempts that begin again with a new SPI because a response to IKE_SA_INIT may be forged.
pub const RESTARTS: u32 = 3;
/// Time in which an honest peer has answered IKE_SA_INIT, unless something was lost: a request
/// whose response may be forged is repeated after it.
pub const FORGED_REPEAT: Duration = Duration::from_secs(1);
/// Somebody who waits for the result learns of an unauthenticated error after this time. Three
/// requests have gone out by then, and been answered if one in three got through.
pub const FORGED_VERDICT: Duration = Duration::from_secs(3);

// ---- Rekeying ----

/// A redundant SA that the peer has not deleted after this time is ended from here.
pub const REDUNDANT_DELETE: Duration = Duration::from_secs(10);
/// Predecessors of one SA that a peer may leave undeleted and rekey again all the same. No limit
/// stands in the way of a rekeying, so one peer could have SAs without end.
pub const PREDECESSORS: usize = 3;

/// Further addresses of one end that are told to the other, and that are kept of the other
/// (RFC 4555).
pub const ADDITIONAL_ADDRESSES: usize = 32;
/// Retransmissions to the peer's address before its further addresses are asked as well.
pub const PATH_TEST_AFTER: u32 = 2;
/// Further addresses of the peer to which a request is sent as well.
pub const PATH_TESTS: usize = 4;
/// Shortest lifetime of an authentication that we believe (RFC 4478): a responder that names a
/// shorter one makes us begin anew no more often than this.
pub const AUTH_LIFETIME_MIN: Duration = Duration::from_secs(10);
/// Longest time for which the responder sends on the CHILD_SA of the old IKE_SA, when it does not
/// see that the initiator has the one of the new IKE_SA.
pub const HANDOVER: Duration = Duration::from_secs(1);
/// An IKE_SA from which another one has taken over is deleted after this time: after [`HANDOVER`],
/// and one second more for packets that are under way on its CHILD_SAs. A peer may drop these with
/// the DELETE.
pub const RETIRED_DELETE: Duration = Duration::from_secs(2);
/// When the peer deletes an IKE_SA, the answer comes no sooner than this time after we have begun
/// to send on the CHILD_SA that takes over: the peer may drop its SAs with the answer, and packets
/// are under way. Shorter than the first retransmission of any peer.
pub const HANDED_OVER_ANSWER: Duration = Duration::from_millis(200);
/// With a block of 64 bits, an SA is rekeyed after this many bytes when no limit in bytes is
/// configured, and closed after twice as many. Two equal ciphertext blocks, which give plaintext
/// away, are expected after 2^32 blocks of 8 bytes, 32 GiB (Sweet32; the reason why 3DES is SHOULD
/// NOT in RFC 8221 section 5). After 1 GiB, 2^27 blocks, there is one with a probability of 2^-11,
/// and 3DES at its fastest still has seconds for the rekeying before the SA is closed.
pub const SMALL_BLOCK_BYTES: u64 = 1 << 30;

// ---- Packets that do not come back ----

/// Time between two looks at the counters of CHILD_SAs that carry packets, up to a tenth less.
pub const FLOW_LOOK: Duration = Duration::from_secs(60);
/// The same for CHILD_SAs that carry none.
pub const FLOW_LOOK_IDLE: Duration = Duration::from_secs(300);
/// Packets that have to go out, without one that comes in, before that is said.
pub const ONE_WAY_PACKETS: u64 = 10;
/// Time without a packet before that is said of a CHILD_SA on which none has ever come in. Less
/// than [`FLOW_LOOK`], so that the first look may say it.
pub const ONE_WAY_NEVER: Duration = Duration::from_secs(45);
/// Time without a packet before that is said of a CHILD_SA on which some have come in.
pub const ONE_WAY_SILENCE: Duration = Duration::from_secs(300);

// ---- Limits that can be set ----

/// Limits and times that whoever runs the gateway may set. Defaults are charon's, where there is
/// one.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// First retransmission (4 s).
    pub retransmit_timeout: Duration,
    /// Factor from one retransmission to the next (1.8).
    pub retransmit_base: f64,
    /// Retransmissions before the peer is given up (5).
    pub retransmit_tries: u32,
    /// Half-open IKE_SAs (as responder) die after this (30 s), after a third of it while there are
    /// more than half of `half_open_max`.
    pub half_open_timeout: Duration,
    /// Cookies are asked for from this many half-open IKE_SAs on (30), of one address from three
    /// on, and while many requests are refused; `usize::MAX`: never because of any of these. A
    /// response that would be larger than its request by more than a fifth takes a cookie in any
    /// case.
    pub cookie_threshold: usize,
    /// No more half-open IKE_SAs than this at all (1,000).
    pub half_open_max: usize,
    /// No more half-open IKE_SAs than this from one network, a /24 or /64; 0: a quarter of
    /// `half_open_max`, at least `half_open_per_addr`.
    pub half_open_per_net: usize,
    /// No more half-open IKE_SAs than this from one address (200: many peers may be behind one
    /// NAT). From the fourth on, each must have brought a cookie back, so that no address can be
    /// made to use up its share by others.
    pub half_open_per_addr: usize,
    /// A NAT-keepalive is sent through a NAT in front of us when no other packet has gone to the
    /// peer for this long (20 s, RFC 3948 section 4); 0: none is sent.
    pub keep_alive: Duration,
    /// The old inbound CHILD_SA is kept this long after a rekey (5 s).
    pub delete_rekeyed_delay: Duration,
    /// Bytes of the largest IP packet with a fragment of an IKE message that we send (1,280);
    /// charon's `fragment_size`. 0: 576 over IPv4, 1,280 over IPv6.
    pub fragment_size: usize,
    /// First pause between two attempts of `keyingtries` (5 s), doubled each time with jitter.
    pub retry_initial: Duration,
    /// Longest pause (300 s).
    pub retry_max: Duration,
    /// No more IKE_SAs than this (100,000).
    pub ike_sa_max: usize,
    /// No more IKE_SAs with one authenticated identity than this (1,000), 0: as many as there may
    /// be at all. Many devices may share an identity, and one that authenticates anew has two for a
    /// moment.
    pub ike_sa_max_per_id: usize,
    /// No more CHILD_SAs per IKE_SA than this (1,000); then NO_ADDITIONAL_SAS. No limit refuses a
    /// rekeying.
    pub child_sa_max: usize,
    /// No more CHILD_SAs than this on all IKE_SAs with one authenticated identity (10,000), 0: no
    /// limit.
    pub child_sa_max_per_id: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retransmit_timeout: Duration::from_secs(4),
            retransmit_base: 1.8,
            retransmit_tries: 5,
            half_open_timeout: Duration::from_secs(30),
            cookie_threshold: 30,
            half_open_max: 1_000,
            half_open_per_net: 0,
            half_open_per_addr: 200,
            keep_alive: Duration::from_secs(20),
            delete_rekeyed_delay: Duration::from_secs(5),
            fragment_size: 1_280,
            retry_initial: Duration::from_secs(5),
            retry_max: Duration::from_secs(300),
            ike_sa_max: 100_000,
            ike_sa_max_per_id: 1_000,
            child_sa_max: 1_000,
            child_sa_max_per_id: 10_000,
        }
    }
}

impl Limits {
    /// Time to wait for an answer to the `n`th retransmission (0: the first transmission).
    pub fn retransmit_delay(&self, n: u32) -> Duration {
        let longest = Duration::from_secs(3_600);
        let factor = self.retransmit_base.max(1.0).powi(i32::try_from(n).unwrap_or(i32::MAX));
        let delay = Duration::try_from_secs_f64(self.retransmit_timeout.as_secs_f64() * factor);
        delay.unwrap_or(longest).min(longest)
    }

    /// No more half-open IKE_SAs than this from one network.
    pub fn per_net(&self) -> usize {
        match self.half_open_per_net {
            0 => (self.half_open_max / 4).max(self.half_open_per_addr),
            n => n,
        }
    }

    /// No more half-open IKE_SAs than this from one site: half of all, or more if one network may
    /// have more.
    pub fn per_site(&self) -> usize {
        (self.half_open_max / 2).max(self.per_net())
    }
}
