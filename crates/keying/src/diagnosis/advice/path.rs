//! Advice on entries of the area path.

use super::entry::advice;
use crate::diagnosis::PathEntry;

advice! {
    PathEntry;

    NoAnswer [Silent]
        "the sentence has addresses and ports: let UDP 500 and 4500 through, and see by `tcpdump` on both \
         sides how far the request comes";
    PortClosed [Silent]
        "start IKE at the peer, or correct `remote_addrs` or `remote_port`. When another box than the peer \
         says so, look there";
    PeerUnreachable [Silent]
        "see whether the peer runs, and the routes of the box that the sentence names; this machine itself \
         says so when the peer does not answer ARP";
    Filtered [Silent]
        "let UDP 500 and 4500 pass at the box that the sentence names, in both directions";
    SilenceOnNatt [Silent]
        "let UDP 4500 through in both directions, on all firewalls between";
    SilenceOnIke [Silent]
        "let UDP 500 through in both directions, on all firewalls between";
    PeerDead [Ends]
        "see whether the peer runs, and what has changed on the way to it. `dpd_action = restart` brings \
         the tunnel back";
    OneWay [NoTraffic]
        "let IP protocol 50 through, or UDP 4500 as the sentence says; `encap = yes` puts ESP into UDP. See \
         also whether the hosts behind the peer answer";
    NotSent [Silent]
        "the sentence has the reason: add a route, correct `local_addrs` or `remote_addrs`, or let a packet \
         filter of this machine pass UDP 500 and 4500";
    NoLocalAddress [Silent]
        "correct `local_addrs`, or give this machine the address; `local_addrs = %any` follows the routing \
         table";
    NoRoute [Silent, Ends]
        "add a route, or correct `remote_addrs`";
    NoWay [Ends]
        "it goes on by itself when there is a way: `ip route get PEER`, and an address of this machine in \
         `local_addrs`";
    RouteUnknown [Silent]
        "`ip route get PEER`";
    NoName [Silent, Ends]
        "`getent ahosts NAME`; correct the name or the resolver";
    AddressChanged [Silent]
        "nothing: the attempt begins again from the new address";
    AddressGone [Ends]
        "let the peer take the new address: its `remote_addrs`, and `unique = replace` there";
    AddressesRefused [Ends]
        "nothing: a new IKE_SA is made. The peer's log says why";
    BadAddresses [Ends]
        "see what address the peer sends from, and whether it allows the NAT between";
    NotRoutable [Ends]
        "look for who can answer in the peer's name. The IKE_SA ends, and `dpd_action` brings it up again";
    Narrow [SmallOnly, Slow]
        "nothing: routes and MSS follow ([path MTU](operations.md#path-mtu)). ICMP \"fragmentation needed\" \
         that is let through says so at once";
    ProbeRefused [SmallOnly, Ends]
        "nothing: it gets none any more until the daemon starts again. `path_probe = no` keeps them from a \
         peer that is known to refuse";
}
