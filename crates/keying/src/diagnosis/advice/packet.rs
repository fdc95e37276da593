//! Advice on entries of the area packet.

use super::entry::advice;
use crate::diagnosis::PacketEntry;

advice! {
    PacketEntry;

    LinkDown [NoTraffic]
        "`ip link set NAME up`; without a carrier look at the cable or at the other end";
    NotForwarded [NoTraffic]
        "the `sysctl` that the message names, and a file in `/etc/sysctl.d` for good";
    ReversePath [NoTraffic]
        "correct the route to the source, or `sysctl -w net.ipv4.conf.all.rp_filter=2`";
    NoRoute [NoTraffic]
        "`ip rule` and `ip route show table all`; rules and routes of other programs are named below the \
         sentence";
    Elsewhere [NoTraffic]
        "rules of other programs belong behind priority 220; those that are asked before are named below \
         the sentence";
    ForeignRule [NoTraffic, SomeTraffic]
        "the rule is quoted: remove it, or let a rule before it accept the flow";
    Guarded [NoTraffic, Clear]
        "let the peer send it through the tunnel, or find out what leads it past the tunnel. `guard = no` \
         in the child lets it pass";
    Vanished [NoTraffic]
        "`nstat -az` and `ip -s link` count what the kernel drops; look also at programs of tc";
    Unseen [NoTraffic]
        "look at the sender: its route, its firewall. A filter in front of nft (tc, XDP, the family netdev) \
         is not seen either";
    NoPolicy [NoTraffic, SomeTraffic]
        "widen `local_ts` or `remote_ts` of the child that the message names as the nearest, on both \
         gateways";
    Discarded [SomeTraffic]
        "remove that child, or narrow its selectors";
    OtherPolicy [SomeTraffic]
        "make the selectors of the two children disjoint, or set `priority`";
    NoSa [NoTraffic]
        "the message says why the tunnel is down; `ironswan up NAME` where nobody has asked for it";
    OutsideSa [SomeTraffic]
        "widen the selectors of the peer's child";
    Spent [NoTraffic]
        "`ironswan rekey NAME`; then a lower `rekey_bytes`, `rekey_packets` or `rekey_time`";
    NotBetweenEnds [SomeTraffic]
        "`mode = tunnel` for networks behind the gateways";
    TooBig [SmallOnly]
        "let the sender heed ICMP ([MTU](troubleshooting.md#mtu-mss-fragments)); or `copy_df = no`";
    NoWayToPeer [NoTraffic]
        "`ip route get PEER`";
    AddressGone [NoTraffic]
        "give the address back, or bring the tunnel up anew";
}
