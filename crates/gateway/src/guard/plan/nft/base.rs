//! The base chains: the kernel enters them, and they jump to `out` or `in`.

use std::fmt::Write;

use super::words::number;
use crate::guard::plan::Settings;

/// ESP and AH, which the engine gets without UDP. The engine refuses packets without the right ICV.
const OUTER: &str = "{ 50, 51 }";
/// A later fragment of AH over IPv6, of which the kernel knows no upper protocol: AH is an
/// extension header to it.
const AH_FRAGMENT: &str = "ip6 nexthdr 44 frag nexthdr 51";

/// Conditions that several chains share.
struct Conditions {
    /// Packets with the mark of outer packets.
    outer: String,
    /// The UDP ports of IKE and of encapsulated ESP.
    udp: String,
    /// Accepts packets that come from a VRF; empty without VRFs.
    from_vrf: &'static str,
    /// Accepts packets that go to a VRF; empty without VRFs.
    to_vrf: &'static str,
}

/// All base chains. `own`: whether the family has a set of own destinations.
pub(super) fn chains(t: &mut String, settings: &Settings, own: [bool; 2], guards_out: bool, guards_in: bool) {
    let Settings { mark, ports: [ike, natt], .. } = settings;
    // A packet that a VRF receives comes from the VRF, once its own interface has been left; a
    // packet that a VRF sends goes to the VRF first.
    let vrf = |rule: &'static str| if settings.vrf { rule } else { "" };
    let conditions = Conditions {
        outer: format!("meta mark & {mark:#x} == {mark:#x}"),
        udp: format!("{{ {ike}, {natt} }}"),
        from_vrf: vrf("\t\tmeta iifkind \"vrf\" accept\n"),
        to_vrf: vrf("\t\tmeta oifkind \"vrf\" accept\n"),
    };
    marking(t, settings, &conditions, own);
    if guards_out {
        guarding_out(t, settings, &conditions);
    }
    if guards_in {
        guarding_in(t, settings, &conditions);
    }
}

/// The chains that set marks before packets are routed.
fn marking(t: &mut String, settings: &Settings, conditions: &Conditions, own: [bool; 2]) {
    let Settings { device, steer_mark, .. } = settings;
    let Conditions { outer, udp, from_vrf, to_vrf } = conditions;
    let _ = write!(
        t,
        "\tchain prerouting {{\n\t\ttype filter hook prerouting priority -90; policy accept;\n\
         \t\tiif \"lo\" accept\n\
         \t\tmeta mark & {steer_mark:#x} != 0 meta mark set meta mark & {:#x}\n{from_vrf}",
        !steer_mark
    );
    for (has, ipv6) in own.into_iter().zip([false, true]) {
        if has {
            // A default route to the device is reached by this mark only: the look-up of the way
            // back to the source needs it.
            let ip = if ipv6 { "ip6" } else { "ip" };
            let _ = writeln!(t, "\t\tiifname \"{device}\" {ip} daddr @own{} goto steer", number(ipv6));
        }
    }
    let _ = write!(
        t,
        "\t\tjump out\n\t\tgoto steer\n\t}}\n\
         \tchain output {{\n\t\ttype route hook output priority -90; policy accept;\n\
         \t\t{outer} meta l4proto {OUTER} accept\n\
         \t\t{outer} {AH_FRAGMENT} accept\n\
         \t\t{outer} udp sport {udp} accept\n\
         {to_vrf}\
         \t\toif \"lo\" accept\n\
         \t\tmeta mark & {steer_mark:#x} != 0 meta mark set meta mark & {:#x}\n\
         \t\tjump out\n\t\tgoto steer\n\t}}\n",
        !steer_mark
    );
}

/// The chains that drop protected packets which would leave in clear.
fn guarding_out(t: &mut String, settings: &Settings, conditions: &Conditions) {
    let device = &settings.device;
    let Conditions { outer, udp, from_vrf, .. } = conditions;
    let _ = write!(
        t,
        "\tchain outer {{\n\t\tmeta iif != 0 return\n\t\tmeta l4proto {OUTER} accept\n\
         \t\t{AH_FRAGMENT} accept\n\
         \t\tudp sport {udp} accept\n\t}}\n"
    );
    // The most frequent packets are asked first: packets for the device, then outer ones. Outer
    // packets come from no interface; the same mark on a forwarded packet is another program's, and
    // excuses nothing. The two chains stand before and after source NAT, so neither the old address
    // nor the new one is a way around.
    for (name, priority) in [("guard_out", 0), ("guard_out_nat", 300)] {
        let _ = write!(
            t,
            "\tchain {name} {{\n\t\ttype filter hook postrouting priority {priority}; policy accept;\n\
             \t\toifname \"{device}\" accept\n\
             {from_vrf}\
             \t\t{outer} jump outer\n\
             \t\toif \"lo\" accept\n\
             \t\tjump out\n\t\tcounter name \"out_clear\" drop\n\t}}\n"
        );
    }
}

/// The chains that drop clear packets which should have come protected.
fn guarding_in(t: &mut String, settings: &Settings, conditions: &Conditions) {
    let device = &settings.device;
    let Conditions { udp, from_vrf, .. } = conditions;
    let _ = write!(
        t,
        "\tchain guard_input {{\n\t\ttype filter hook input priority 0; policy accept;\n\
         \t\tmeta l4proto {OUTER} accept\n\
         \t\t{AH_FRAGMENT} accept\n\
         \t\tudp dport {udp} accept\n\
         {from_vrf}\
         \t\tiif \"lo\" accept\n\t\tiifname \"{device}\" accept\n\
         \t\tip6 nexthdr 44 frag nexthdr 17 frag frag-off != 0 accept\n"
    );
    // IPv6 puts fragments together behind this hook, IPv4 before it. Large IKE messages come in
    // fragments; later ones say nothing without the first, which is asked for its port. ICMP errors
    // about our own outer packets (the path MTU!) come from any router: what they quote is ESP, AH,
    // or UDP from our ports, 8 bytes behind the ICMP header's begin.
    for (errors, protocol, sport) in
        [("icmp type { 3, 11, 12 }", 136, 224), ("icmpv6 type { 1, 2, 3, 4 }", 112, 384)]
    {
        let _ = write!(
            t,
            "\t\t{errors} @th,{protocol},8 {OUTER} accept\n\
             \t\t{errors} @th,{protocol},8 17 @th,{sport},16 {udp} accept\n"
        );
    }
    let _ = write!(
        t,
        "\t\tjump in\n\t\tcounter name \"in_clear\" drop\n\t}}\n\
         \tchain guard_forward {{\n\t\ttype filter hook forward priority 0; policy accept;\n\
         \t\tiifname \"{device}\" accept\n{from_vrf}\t\tjump in\n\
         \t\tiif \"lo\" accept\n\t\tcounter name \"in_clear\" drop\n\t}}\n"
    );
}
