//! The TUN device as it should be: its own sysctls, and what other programs change of it.

use ironswan_ike::event::Level;
use ironswan_io::Error as IoError;
use ironswan_io::route::Netlink;
use ironswan_io::sysctl;
use ironswan_io::tun::TunConfig;

use crate::dataplane::Restored;
use crate::observe::log;

/// Sets the device's own sysctls. Where that fails, the log says what will be wrong.
pub(super) fn prepare(name: &str) {
    if let Err(e) = sysctl::prepare_device(name) {
        log::line(
            Level::Warn,
            None,
            &format!("{e}; if net.ipv4.conf.all.rp_filter is 1, what comes out of the tunnel may be dropped"),
        );
    }
}

/// State of a device in the kernel.
pub(super) enum Device {
    /// There is none of this index under its name.
    Gone,
    /// The device is there: as it was made, mended, or not to be mended.
    There(Restored),
}

/// Looks at the device of this index, and sets it up and its MTU again where somebody changed that.
pub(super) fn look(netlink: &mut Netlink, config: &TunConfig, index: u32) -> Device {
    let name = &config.name;
    let link = match netlink.link(name) {
        Ok(link) if link.index == index => link,
        Ok(_) | Err(IoError::NoDevice { .. }) => return Device::Gone,
        // The kernel does not tell whether the device is there.
        Err(e) => return Device::There(Restored::Failed(e.to_string())),
    };
    if link.up && link.mtu == config.mtu {
        return Device::There(Restored::Nothing);
    }
    Device::There(match netlink.set_link(index, config.mtu, config.queue_len, true) {
        Ok(()) if !link.up => Restored::Done(format!("somebody set {name} down; it is up again")),
        Ok(()) => Restored::Done(format!("somebody changed the MTU of {name}; restored")),
        Err(e) => Restored::Failed(e.to_string()),
    })
}
