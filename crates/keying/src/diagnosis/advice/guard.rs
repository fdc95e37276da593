//! Advice on entries of the area guard.

use super::entry::advice;
use crate::diagnosis::GuardEntry;

advice! {
    GuardEntry;

    NftMissing [Start]
        "install the package nftables, or run without the nft table: `guard = no` in `ironswan.conf`";
    NftTooOld [Start]
        "upgrade the package nftables";
    NftBroken [Start]
        "run `nft --version` as the daemon's user, and repair the package";
    NftRefused [Start, Clear]
        "without CAP_NET_ADMIN: give it. Else load the modules nf_tables and nft_fib_inet";
    StepRefused [NoTraffic, Clear]
        "remove the reason that the line quotes. Packets of that part go nowhere until then; none leaves in \
         clear";
    IngressIncomplete [Clear]
        "give the daemon CAP_BPF; a kernel without BPF filters keeps the nft table alone";
    IngressStricter [SomeTraffic, Clear]
        "let children have fewer selectors that overlap";
    IngressStays [Clear]
        "run it as root, or `tc qdisc del dev NAME clsact`";
    Unseen [Clear, Machine]
        "look at the answer that is quoted; the look is repeated each half second";
    WayUnknown [NoTraffic, Clear]
        "look at the answer that is quoted, and at `ip route get ADDRESS`";
    Ended [Clear]
        "nothing";
    Disturbed [Clear]
        "find the program that the line names, and let it leave the table `inet ironswan` and table 220 \
         alone";
    FormerRemoved [Clear]
        "nothing, if that is meant; else remove `guard = no`";
    OtherGateway [Start]
        "stop the other one, or run this one in a namespace of its own";
    NameHeld [Clear, Machine]
        "`ss -xlp` names the process. A second gateway is not noticed meanwhile";
}
