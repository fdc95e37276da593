//! Advice on entries of the area this machine.

use super::entry::advice;
use crate::diagnosis::MachineEntry;

advice! {
    MachineEntry;

    NoTun [Start]
        "`modprobe tun`; in a container `--device /dev/net/tun` and CAP_NET_ADMIN";
    NoPrivilege [Start]
        "run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE";
    DeviceBusy [Start]
        "stop the other daemon, or name another `device` in `ironswan.conf`";
    DeviceName [Start]
        "give `device` a name of 1 to 15 characters without blank, slash, colon and percent sign";
    PortInUse [Start]
        "stop the other IKE daemon, or set `port_ike` and `port_natt`";
    NoFamily [Start]
        "name addresses of the other family";
    NoInterface [Start]
        "`ip link` lists those that exist";
    KernelRefused [Machine]
        "the line has the request and the kernel's answer. Most often CAP_NET_ADMIN is missing";
    AnswerUnknown [Machine]
        "update IronSwan";
    AnswerIncomplete [Machine]
        "update IronSwan";
    SystemCall [Machine]
        "the line has the action and the kernel's answer";
    NoThread [Start, Machine]
        "look at `ulimit -u`, and at TasksMax of the service";
    ViciSocket [Start, Command]
        "the line says what is in the way: another daemon, a file, a folder that is missing";
    QcdSecret [Machine]
        "the line has the reason and the remedy: [after a crash](operations.md#after-a-crash)";
}
