//! Advice on entries of the area key exchange.

use super::entry::advice;
use crate::diagnosis::KeyExchangeEntry;

advice! {
    KeyExchangeEntry;

    NoProposal [Disagree, NoChild]
        "the log has both lists, the nearest pair, and the type of transform that differs: configure one of \
         the peer's algorithms of that type, in `proposals` or `esp_proposals`";
    AhThroughNat [Disagree, NoChild]
        "`esp_proposals` instead; [AH and NAT](troubleshooting.md#ah-and-nat)";
    OtherMethod [Disagree, NotAsMeant]
        "nothing: the peer is asked for the method and begins again. To save the round trip let both sides \
         put one method first";
    BadValue [Disagree]
        "look for a defect of the peer, or for somebody who changes its messages";
    ShortNonce [Disagree]
        "a defect of the peer: report it there";
    MissingPayload [Disagree]
        "a defect of the peer: report it there";
    NeverOffered [Disagree]
        "a defect of the peer: report it there";
    BadSpi [Disagree]
        "a defect of the peer: report it there";
    Forged [Silent, Disagree, Strangers]
        "look for who can see and send on the way between the gateways. The attempt begins again up to \
         three times";
    BadVersion [Disagree, Strangers]
        "let the peer use IKEv2 (`version = 2`)";
    NoSuchChild [Ends]
        "nothing: the peer makes a new one";
    Unreadable [Disagree, Strangers]
        "the log names payload and offset. Record the exchange and report it to whoever made the peer, or \
         to us";
    MessageTooLong [Disagree, Strangers]
        "let the peer send fewer or smaller certificates; with `send_cert = never` there, and its \
         certificate named by `certs` of `remote` here, it sends none";
    OutOfPlace [Disagree, Strangers]
        "a defect of the peer: report it there";
    PeerError [Disagree, NoChild]
        "the log has what we proposed; the peer's log says why it refuses";
    RekeyRefused [Ends]
        "compare the key exchange (PFS) in `esp_proposals` of both sides, which the first CHILD_SA does not \
         use; of the IKE_SA, `proposals`";
    PeerCannotRead [Disagree]
        "record the exchange and report it to whoever made the peer, or to us";
    PeerBusy [Ends]
        "nothing: the IKE_SA is ended, and made anew if it should be up. If it comes back, look at the \
         peer's load";
    CannotSend [Silent, Ends]
        "configure fewer proposals, or fewer selectors for one child";
    NotComputed [Silent, Disagree]
        "nothing while a flood of requests goes on; else report it";
    PeerDeleted [Ends]
        "if it should stand, `close_action = start` here, or let the peer say why in its log";
    PeerRestarted [Ends]
        "nothing: the peer brings up what it needs; `close_action` does not apply";
    PeerCrashed [Ends]
        "nothing if it was restarted: `dpd_action` says whether the children come up again. If not, look at \
         the peer's log for why it ended";
    LifetimeOver [Ends]
        "look above it in the log for the reason why a rekeying or reauthentication failed; make \
         `over_time` longer";
    NotDone [Ends, Command]
        "nothing, or ask again";
    ShortAuthLifetime [Ends, NotAsMeant]
        "let the peer name a longer time (its `reauth_time`)";
    ChildLimit [NoChild]
        "raise `child_sa_max` or `child_sa_max_per_id`, if the peer needs so many";
}
