//! Advice on entries of the area selectors.

use super::entry::advice;
use crate::diagnosis::SelectorsEntry;

advice! {
    SelectorsEntry;

    Unacceptable [NoChild]
        "compare `local_ts` here with `remote_ts` there, and the other way round; the log has both lists";
    Narrows [SomeTraffic, Ends]
        "after a change of the peer's selectors terminate the CHILD_SA and initiate it again";
    SameHost [NoChild]
        "[transport mode](troubleshooting.md#transport-mode): ports of their own, or tunnel mode with \
         addresses of their own";
    Narrowed [SomeTraffic, NotAsMeant]
        "nothing, if that is meant, as with road warriors. Else let `local_ts` of each side be `remote_ts` \
         of the other";
    BadAnswer [NoChild]
        "a defect of the peer: report it there";
    TooManyPieces [NoChild, SomeTraffic]
        "let the peer ask for networks instead of many addresses; it asks again by itself and gets fewer \
         pieces";
    NoTrap [NoChild, Ends]
        "name the peer in `remote_addrs`, or take `policies = no` out; else add a route to the peer";
    NoTransport [NotAsMeant]
        "the same mode on both sides, and selectors that are `dynamic` or the addresses of the gateways \
         ([transport mode](troubleshooting.md#transport-mode))";
}
