//! MOBIKE (RFC 4555): INFORMATIONAL exchanges by which a standing IKE_SA and its children move.
//!
//! ```text
//! HDR, SK {N(UPDATE_SA_ADDRESSES), N(NATD)*2, N(COOKIE2), N(ADDITIONAL_*)*}  -->
//!                      <--  HDR, SK {N(NATD)*2, N(COOKIE2)}
//!                      <--  HDR, SK {N(UNACCEPTABLE_ADDRESSES), N(NATD)*2, N(COOKIE2)}
//!                      <--  HDR, SK {N(COOKIE2)}          is the initiator where it says?
//! HDR, SK {N(COOKIE2)}  -->
//! ```
//! The original initiator alone moves the IKE_SA. Either end tells its further addresses. When to
//! move stands in `context::mobike`.

use std::net::{IpAddr, SocketAddr};

use ironswan_keying::Close;
use ironswan_keying::diagnosis::Path;
use ironswan_keying::limits::ADDITIONAL_ADDRESSES;
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify, notifies};

use super::path_probe;
use super::state::{Mobike, Task};
use crate::context::Context;
use crate::event::Level;
use crate::natd;
use crate::sa::{Answering, Datagram, IkeSa, NatState};

/// Length of a COOKIE2 of ours: "between 8 and 64 octets" (RFC 4555 section 4.2.5).
const COOKIE_LEN: usize = 16;
/// Longest COOKIE2 that we return.
const COOKIE_MAX: usize = 64;

fn notify(kind: NotifyType, data: impl Into<Vec<u8>>) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

/// Further addresses, as notifications; at least one notification.
fn list(addresses: &[IpAddr]) -> Vec<Payload> {
    let one = |addr: &IpAddr| match addr {
        IpAddr::V4(a) => notify(NotifyType::ADDITIONAL_IP4_ADDRESS, a.octets()),
        IpAddr::V6(a) => notify(NotifyType::ADDITIONAL_IP6_ADDRESS, a.octets()),
    };
    match addresses.is_empty() {
        true => vec![notify(NotifyType::NO_ADDITIONAL_ADDRESSES, [])],
        false => addresses.iter().map(one).collect(),
    }
}

/// The peer's further addresses; `None` when the message says nothing about them.
fn read_list(payloads: &[Payload]) -> Option<Vec<IpAddr>> {
    let mut found = find_notify(payloads, NotifyType::NO_ADDITIONAL_ADDRESSES).map(|_| Vec::new());
    for n in notifies(payloads) {
        let addr = match n.kind {
            NotifyType::ADDITIONAL_IP4_ADDRESS => {
                <[u8; 4]>::try_from(n.data.as_slice()).ok().map(IpAddr::from)
            }
            NotifyType::ADDITIONAL_IP6_ADDRESS => {
                <[u8; 16]>::try_from(n.data.as_slice()).ok().map(IpAddr::from)
            }
            _ => continue,
        };
        let list = found.get_or_insert_default();
        let new = |addr: &IpAddr| !list.contains(addr) && is_usable(*addr);
        if let Some(addr) = addr.filter(new)
            && list.len() < ADDITIONAL_ADDRESSES
        {
            list.push(addr);
        }
    }
    found
}

/// An address to which a host can be sent something.
fn is_usable(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(a) if a.is_broadcast());
    !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast() && !broadcast
}

fn nat_detection(sa: &IkeSa, (local, remote): (SocketAddr, SocketAddr)) -> [Payload; 2] {
    natd::payloads(sa.spi_i(), sa.spi_r(), local, remote, sa.conn().encap)
}

// ---- IKE_AUTH ----

/// Our part of IKE_AUTH: "the initiator includes MOBIKE_SUPPORTED", and so does a responder to such
/// a one.
pub(crate) fn offer(cx: &Context<'_>, sa: &mut IkeSa) -> Vec<Payload> {
    if !sa.conn().mobike {
        return Vec::new();
    }
    let further = cx.further_addresses(sa);
    let mut payloads = vec![notify(NotifyType::MOBIKE_SUPPORTED, [])];
    if !further.is_empty() {
        payloads.extend(list(&further));
    }
    sa.path().mobility_mut().told = further;
    payloads
}

/// The peer's part of IKE_AUTH.
pub(crate) fn agree(sa: &mut IkeSa, payloads: &[Payload]) {
    let agreed = sa.conn().mobike && find_notify(payloads, NotifyType::MOBIKE_SUPPORTED).is_some();
    let mobility = sa.path().mobility_mut();
    mobility.agreed = agreed;
    mobility.peer = read_list(payloads).filter(|_| agreed).unwrap_or_default();
}

// ---- our requests ----

pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa, task: Mobike) {
    if !sa.stands() || !sa.mobility().agreed {
        return;
    }
    let further = cx.further_addresses(sa);
    let (task, payloads) = match task {
        Mobike::Update { .. } => {
            let (cookie, ends) = (cx.random(COOKIE_LEN), (sa.local(), sa.remote()));
            let mut payloads = vec![notify(NotifyType::UPDATE_SA_ADDRESSES, [])];
            payloads.extend(nat_detection(sa, ends));
            payloads.push(notify(NotifyType::COOKIE2, cookie.clone()));
            payloads.extend(list(&further));
            (Mobike::Update { ends: Some(ends), cookie }, payloads)
        }
        Mobike::Routable { .. } => {
            let cookie = cx.random(COOKIE_LEN);
            let payloads = vec![notify(NotifyType::COOKIE2, cookie.clone())];
            (Mobike::Routable { cookie }, payloads)
        }
        Mobike::Addresses => (Mobike::Addresses, list(&further)),
    };
    if !matches!(task, Mobike::Routable { .. }) {
        sa.path().mobility_mut().told = further;
    }
    cx.send_request(sa, ExchangeType::INFORMATIONAL, Task::Mobike(task), &payloads);
}

/// The peer's answer, which has come by this datagram, to a request that was sent again so often.
pub(crate) fn process(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    (task, tries): (Mobike, u32),
    payloads: &[Payload],
    d: &Datagram,
) {
    let (Mobike::Update { cookie, .. } | Mobike::Routable { cookie }) = &task else {
        return cx.follow_answer(sa, d, tries);
    };
    let error = notifies(payloads).map(|n| n.kind).find(|kind| kind.is_error());
    // "the IKE_SA MUST be closed" when the response has another cookie (RFC 4555 section 3.7). Some
    // peers leave it out of a refusal to move. A test of the way back cannot be refused: who is not
    // at that address could do so.
    let refused = error.is_some() && matches!(task, Mobike::Update { .. });
    let returned = find_notify(payloads, NotifyType::COOKIE2).map(|n| n.data == *cookie);
    if !returned.unwrap_or(refused) {
        let why = Path::NotRoutable { remote: d.remote };
        cx.log_why(Level::Error, sa, "", &why.clone().into());
        cx.say_deleted(sa);
        return cx.close(sa, Close::Lost(why.into()));
    }
    cx.follow_answer(sa, d, tries);
    let Mobike::Update { ends, .. } = task else { return };
    if ends != Some((sa.local(), sa.remote())) || update_waits(sa) {
        // Our address has changed once more, perhaps back to this one: "no MOBIKE processing is
        // done for the reply message" (RFC 4555 section 3.5).
        return cx.queue_update(sa);
    }
    if let Some(kind) = error {
        let why = Path::AddressesRefused { local: sa.local(), remote: sa.remote(), kind };
        cx.log_why(Level::Warn, sa, "", &why.into());
        return cx.renew(sa, "the peer does not follow");
    }
    see_nat(cx, sa, payloads, d);
}

/// Another update is to be sent.
pub(crate) fn update_waits(sa: &IkeSa) -> bool {
    sa.work().queued().any(|t| matches!(t, Task::Mobike(Mobike::Update { .. })))
}

/// Compares NAT detection in a message of the peer with what is known, and has the children follow.
/// True when something has changed.
fn see_nat(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload], d: &Datagram) -> bool {
    let nat = natd::detect(payloads, sa.spi_i(), sa.spi_r(), d.local, d.remote);
    if !nat.supported {
        return false;
    }
    let now = NatState { local: nat.local, remote: nat.remote, fake: sa.nat().fake };
    let changed = now != sa.nat();
    let mapping = find_notify(payloads, NotifyType::NAT_DETECTION_DESTINATION_IP)
        .and_then(|n| <[u8; 20]>::try_from(n.data.as_slice()).ok())
        .filter(|_| now.local);
    // Another value than in the answer before says that the NAT has another mapping (RFC 4555
    // section 3.8). Before the first value it may have changed as well, since IKE_AUTH. The value
    // covers the SPIs of the IKE_SA: after a rekeying it is another one, and one update says so.
    let remapped = mapping.is_some() && sa.mobility().mapping != mapping;
    sa.path().mobility_mut().mapping = mapping;
    if changed {
        let says = |there: bool, who: &str| {
            if there { format!("{who} is behind NAT") } else { format!("{who} is not behind NAT") }
        };
        let line = format!("{}, {}", says(now.local, "local host"), says(now.remote, "remote host"));
        cx.log(Level::Info, sa, line);
        sa.path().set_nat(now);
        cx.move_children(sa, sa.remote().ip());
        cx.rearm_path(sa);
        path_probe::begin(cx, sa);
    }
    changed || remapped
}

/// NAT detection in an answer to a request that moves nothing: a NAT that has appeared, or that has
/// another mapping, is told to the peer.
pub(crate) fn watch_nat(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload], d: &Datagram) {
    if sa.moves() && see_nat(cx, sa, payloads, d) {
        cx.queue_update(sa);
    }
}

/// NAT detection for a request that asks whether the peer lives.
pub(crate) fn probe(sa: &IkeSa) -> Vec<Payload> {
    let ends = (sa.local(), sa.remote());
    if sa.moves() { nat_detection(sa, ends).to_vec() } else { Vec::new() }
}

// ---- the peer's requests ----

/// What an INFORMATIONAL request says of addresses. Gives our part of the response.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) -> Vec<Payload> {
    let Some(Answering { local, remote, .. }) = sa.work().answering() else { return Vec::new() };
    if !sa.mobility().agreed {
        return Vec::new();
    }
    let mut response = Vec::new();
    let detects = find_notify(payloads, NotifyType::NAT_DETECTION_SOURCE_IP).is_some();
    let updates = find_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES).is_some();
    // "the responder ... if it was the original initiator, it ignores" an update: it alone moves.
    let mut done = allows_way(payloads, local, remote);
    if done.is_ok() && updates && !sa.moves() {
        done = update(cx, sa, payloads, (local, remote));
    }
    match (done, read_list(payloads)) {
        // Nothing is taken of a message that is refused: neither the addresses of its header nor
        // those that it names.
        (Err(why), _) => {
            let why = why.into();
            cx.log_why(Level::Warn, sa, "", &why);
            response.extend(why.notify().map(Payload::Notify));
        }
        (Ok(()), Some(peer)) => {
            sa.path().mobility_mut().peer = peer;
            cx.peer_addresses_changed(sa, (local, remote));
        }
        (Ok(()), None) => {}
    }
    if detects {
        response.extend(nat_detection(sa, (local, remote)));
    }
    // It is copied to every response, also to a refusal (RFC 4555 section 4.2.5).
    if let Some(cookie) = find_notify(payloads, NotifyType::COOKIE2).filter(|n| n.data.len() <= COOKIE_MAX) {
        response.push(notify(NotifyType::COOKIE2, cookie.data.clone()));
    }
    response
}

/// The peer has moved the IKE_SA to where its request comes from.
fn update(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    payloads: &[Payload],
    (local, remote): (SocketAddr, SocketAddr),
) -> Result<(), Path> {
    let nat = natd::detect(payloads, sa.spi_i(), sa.spi_r(), local, remote);
    let moved = remote.ip() != sa.remote().ip();
    if !is_usable(remote.ip()) || (moved && cx.is_known_ours(remote.ip())) || cx.move_clashes(sa, remote.ip())
    {
        return Err(Path::BadAddresses { local, remote, nat: false });
    }
    let old = (sa.local(), sa.remote());
    sa.path().set_ends(local, remote);
    if nat.supported {
        let fake = sa.nat().fake;
        sa.path().set_nat(NatState { local: nat.local, remote: nat.remote, fake });
    }
    if old != (local, remote) {
        let line = format!("the peer moves the IKE_SA from {}...{} to {local}...{remote}", old.0, old.1);
        cx.log(Level::Info, sa, line);
        path_probe::begin(cx, sa);
    }
    sa.path().unblock();
    cx.move_children(sa, old.1.ip());
    cx.rearm_path(sa);
    // The peer may have been followed there already, by a packet through its NAT.
    let queued = |t: &Task| matches!(t, Task::Mobike(Mobike::Routable { .. }));
    if !sa.work().queued().any(queued) {
        sa.work_mut().push(Task::Mobike(Mobike::Routable { cookie: Vec::new() }));
    }
    Ok(())
}

/// Whether a message that has come by this way may have come by it: its sender allows no NAT when
/// it says NO_NATS_ALLOWED, whose contents the receiver "MUST verify" (RFC 4555 section 3.9).
fn allows_way(payloads: &[Payload], local: SocketAddr, remote: SocketAddr) -> Result<(), Path> {
    match find_notify(payloads, NotifyType::NO_NATS_ALLOWED) {
        Some(n) if n.data != addresses(remote, local) => Err(Path::BadAddresses { local, remote, nat: true }),
        _ => Ok(()),
    }
}

/// Whether the initiator of this IKE_AUTH allows the way by which it has come. To an end without
/// MOBIKE the notification says nothing.
pub(crate) fn admits_way(sa: &IkeSa, payloads: &[Payload]) -> Result<(), Path> {
    let known = sa.conn().mobike && find_notify(payloads, NotifyType::MOBIKE_SUPPORTED).is_some();
    if known { allows_way(payloads, sa.local(), sa.remote()) } else { Ok(()) }
}

/// Data of NO_NATS_ALLOWED: "the source and destination addresses and ports" (RFC 4555 section
/// 4.2.6), both addresses before both ports.
fn addresses(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut data = Vec::with_capacity(36);
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(a) => data.extend(a.octets()),
            IpAddr::V6(a) => data.extend(a.octets()),
        }
    }
    for end in [source, destination] {
        data.extend(end.port().to_be_bytes());
    }
    data
}
