//! Reads settings of routing from `/proc/sys/net`, in the network namespace of the calling thread.
//! Only the TUN device's own settings are written; what is global is the operator's.

use std::io;
use std::time::Duration;

use ironswan_wire::helper::{DeviceSetting, Request};

use crate::error::Error;
use crate::helper::client;

/// Treatment of a packet whose way back would be another interface (`rp_filter`, RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ReversePath {
    /// Lets it in.
    #[default]
    Off,
    /// Lets it in when there is any way back (2).
    Loose,
    /// Drops it (1).
    Strict,
}

fn read(path: &str) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `rp_filter` of IPv4 as it stands for `all` (and for every interface whose own is lower), or as
/// `device` itself has it.
/// `Off` where the kernel does not tell.
pub fn reverse_path(device: &str) -> ReversePath {
    match path("ipv4", device, "rp_filter").and_then(|p| read(&p)) {
        Some(1) => ReversePath::Strict,
        Some(2) => ReversePath::Loose,
        _ => ReversePath::Off,
    }
}

/// The setting in force for a device: the greater of its own and of `all`. 2 (loose) wins over 1
/// (strict).
pub fn effective_reverse_path(device: &str) -> ReversePath {
    match (reverse_path("all"), reverse_path(device)) {
        (ReversePath::Loose, _) | (_, ReversePath::Loose) => ReversePath::Loose,
        (a, b) => a.max(b),
    }
}

/// How long a path MTU that came from ICMP is believed (`route.mtu_expires`): 10 minutes where the
/// kernel does not say.
pub fn path_mtu_expires(ipv6: bool) -> Duration {
    let family = if ipv6 { "ipv6" } else { "ipv4" };
    let seconds = read(&format!("/proc/sys/net/{family}/route/mtu_expires"));
    Duration::from_secs(seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(600))
}

/// The smallest path MTU that is believed: `net.ipv4.route.min_pmtu` (552 where the kernel does not
/// say), and for IPv6 1280 (RFC 8201 section 4).
pub fn least_path_mtu(ipv6: bool) -> u32 {
    if ipv6 {
        return 1280;
    }
    read("/proc/sys/net/ipv4/route/min_pmtu").and_then(|v| u32::try_from(v).ok()).unwrap_or(552)
}

/// Packets for others are passed on.
pub fn forwarding(ipv6: bool) -> bool {
    let path = if ipv6 { "/proc/sys/net/ipv6/conf/all/forwarding" } else { "/proc/sys/net/ipv4/ip_forward" };
    read(path).is_some_and(|v| v != 0)
}

/// Whether packets that arrive at this interface are passed on. `None` where the kernel does not
/// tell.
pub fn forwards(ipv6: bool, device: &str) -> Option<bool> {
    let path = path(if ipv6 { "ipv6" } else { "ipv4" }, device, "forwarding")?;
    read(&path).map(|v| v != 0)
}

/// One setting as the kernel writes it, by its path below `/proc/sys` (`net/core/rmem_max`). `None`
/// where the kernel has no such setting, or does not tell it.
pub fn setting(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.trim().to_owned())
}

/// Packets for others that come by this interface are passed on. IPv6 has one setting for all
/// interfaces.
pub fn forwards_from(ipv6: bool, device: &str) -> bool {
    let own = if ipv6 { None } else { forwards(false, device) };
    own.unwrap_or_else(|| forwarding(ipv6))
}

/// Makes a TUN device take what the engine delivers: no check of the way back, and if `all` asks
/// for one, made with the packet's mark. What is right already is not written: `/proc/sys` is often
/// read-only in a container.
///
/// # Errors
/// The first setting that was refused, with the kernel's answer.
pub fn prepare_device(device: &str) -> Result<(), Error> {
    for setting in [DeviceSetting::ReversePath, DeviceSetting::ValidMark] {
        let (key, value) = written(setting);
        if path("ipv4", device, key).and_then(|p| read(&p)).is_some_and(|v| v.to_string() == value) {
            continue;
        }
        let set = match client::get() {
            Some(helper) => helper.order(&Request::SetDevice { name: device.into(), setting }),
            None => set_device(device, setting),
        };
        set.map_err(|source| Error::Netlink {
            what: format!("set net.ipv4.conf.{device}.{key} = {value}"),
            source,
        })?;
    }
    Ok(())
}

/// The name of a setting, and its value.
fn written(setting: DeviceSetting) -> (&'static str, &'static str) {
    match setting {
        DeviceSetting::ReversePath => ("rp_filter", "0"),
        DeviceSetting::ValidMark => ("src_valid_mark", "1"),
    }
}

/// Writes a setting of a TUN device, in this process.
///
/// # Errors
/// The kernel's answer, or that no interface could have this name.
pub fn set_device(device: &str, setting: DeviceSetting) -> io::Result<()> {
    let (key, value) = written(setting);
    let path = path("ipv4", device, key).ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::write(path, value)
}

/// The file of one setting. Names that the kernel would not give an interface are not looked for.
fn path(family: &str, device: &str, key: &str) -> Option<String> {
    let plain =
        !device.is_empty() && device.len() <= 15 && !device.contains('/') && !device.starts_with("..");
    plain.then(|| format!("/proc/sys/net/{family}/conf/{device}/{key}"))
}
