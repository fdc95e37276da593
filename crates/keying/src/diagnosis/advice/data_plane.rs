//! Advice on entries of the area data plane.

use super::entry::advice;
use crate::diagnosis::DataPlaneEntry;

advice! {
    DataPlaneEntry;

    CommandRefused [NoChild, NoTraffic]
        "the CHILD_SA is closed. Please report the line: the daemon should not ask for that";
    Ended [NoTraffic, Ends]
        "restart the daemon (systemd does), and report the lines before this one. The guard stands \
         meanwhile";
    EngineUnused [NotAsMeant, Slow]
        "remove `engine` from `data`, or install the library that it names";
    DeviceDisturbed [NoTraffic, Machine]
        "let the other program leave the device alone";
    DeviceLost [NoTraffic, Machine]
        "look at the answer that is quoted; protected packets go nowhere until the device is there";
    DeviceUnprepared [NoTraffic, Machine]
        "mount `/proc/sys` writable, or set `net.ipv4.conf.all.rp_filter` to 0 or 2";
    OffloadMissing [Slow]
        "a newer kernel; or switch the key off that the line names";
    SmallBuffers [Slow]
        "give CAP_NET_ADMIN, or raise `net.core.rmem_max` and `net.core.wmem_max`";
    SendsNotCut [Slow]
        "`ethtool -K DEVICE tx on` on the outer device; no packet is lost";
    MergesRefused [Slow]
        "update the kernel; no packet is lost";
    XdpUnused [Slow]
        "the line has the reason and the remedy; ESP is received through sockets";
    XdpLost [Slow]
        "restart the daemon once the interface is back; ESP is received through sockets meanwhile";
    PollingUnchanged [Slow]
        "the line has the reason and the remedy, or remove the interface from `threaded_napi`";
    WorkerUnbound [Slow]
        "name processors of this machine in `pin`";
    WorkerPriority [Slow]
        "give CAP_SYS_NICE, or a unit with `LimitNICE`";
    CannotWait [Slow, Machine]
        "restart the daemon; the line says what is not noticed until then";
}
