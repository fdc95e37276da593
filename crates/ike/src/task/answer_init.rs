//! IKE_SA_INIT as responder: the exchange of a request that has been taken. How a request of anyone
//! is judged stands in `endpoint::init_requests`, the initiator's part in `sa_init`.

use std::net::SocketAddr;

use ironswan_wire::iana::{KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, Notify};

use super::exchange::Exchange;
use super::sa_init::derive;
use super::state::Task;
use crate::auth::{ppk, signature};
use crate::context::Context;
use crate::endpoint::Close;
use crate::event::{Completion, KeyPair, Level, Request};
use crate::natd;
use crate::negotiate;
use crate::sa::{IkeSa, Init};

/// IKE_SA_INIT of a responder, while something is computed for it. The rest of its state is in
/// `init::Init`.
enum AnswerInit {
    /// The response needs a key pair.
    NeedsKeyPair,
    /// The first IKE_AUTH request is here, and nobody can open it yet.
    NeedsSharedSecret,
}

impl Exchange for AnswerInit {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair => have_key(cx, sa, completion.key_pair()),
            Self::NeedsSharedSecret => have_shared(cx, sa, completion),
        }
    }

    fn name(&self) -> &'static str {
        Task::Init.name()
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// Begins to answer: asks for a key pair of the method that the peer has chosen.
pub(crate) fn begin(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId) {
    cx.wait_for_key(sa, ke, AnswerInit::NeedsKeyPair);
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, pair: KeyPair) {
    let (private, public) = match pair {
        Ok(pair) => pair,
        Err(why) => return cx.close(sa, Close::Failed(why)),
    };
    let Some(init) = sa.init_mut() else { return };
    (init.private, init.public) = (Some(private), public);
    init.answered = Some(cx.now());
    cx.own(init, false);
    let Some(init) = sa.init() else { return };
    let payloads = response(init, sa.spi_i(), sa.spi_r(), (sa.local(), sa.remote()), sa.nat().fake);
    cx.respond(sa, &payloads);
}

/// The payloads of the response.
pub(crate) fn response(
    init: &Init,
    spi_i: u64,
    spi_r: u64,
    (local, remote): (SocketAddr, SocketAddr),
    fake_nat: bool,
) -> Vec<Payload> {
    let mut payloads = vec![
        Payload::Sa(init.proposals.clone()),
        Payload::Ke(Ke { group: init.ke, data: init.public.clone() }),
        Payload::Nonce(Nonce(init.nr.clone())),
    ];
    payloads.extend(init.our_certreq.clone());
    // For an initiator that detects NATs itself (RFC 7296 section 2.23). Nobody else has a use for
    // them.
    if init.natd {
        payloads.extend(natd::payloads(spi_i, spi_r, local, remote, fake_nat));
    }
    if init.childless {
        payloads.push(Payload::Notify(Notify::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED, [])));
    }
    if init.auth.responder {
        payloads.push(Payload::Notify(Notify::new(NotifyType::MULTIPLE_AUTH_SUPPORTED, [])));
    }
    if init.fragments {
        payloads.push(Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, [])));
    }
    if negotiate::has_additional(&init.proposals) || init.ppk.way == ppk::Way::Intermediate {
        payloads.push(Payload::Notify(Notify::new(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, [])));
    }
    payloads.extend(ppk::answer(init.ppk.way));
    // For an initiator that has announced its own hashes: whoever does not know RFC 7427 has no use
    // for ours.
    if init.peer_hashes.is_some() {
        payloads.push(signature::announcement(&init.our_hashes));
    }
    payloads
}

/// Asks for the shared secret, when IKE_AUTH comes. False when it has been asked for before: then
/// it was no good.
pub(crate) fn agree(cx: &mut Context<'_>, sa: &mut IkeSa) -> bool {
    let Some(init) = sa.init_mut() else { return false };
    let Some(private) = init.private.take() else { return false };
    let (ke, peer_public) = (init.ke, init.peer_public.clone());
    cx.wait_for(sa, Request::Agree { ke, private, peer_public }, AnswerInit::NeedsSharedSecret);
    true
}

fn have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
    if let Err(why) = derive(cx, sa, completion) {
        cx.log_why(Level::Debug, sa, "deleting half open IKE_SA", &why);
        cx.close(sa, Close::Failed(why));
    }
}
