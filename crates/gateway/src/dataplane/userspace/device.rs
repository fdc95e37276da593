//! The TUN device as it should be: its own sysctls, and what other programs change of it.

use std::fmt;

use ironswan_io::Error as IoError;
use ironswan_io::route::Netlink;
use ironswan_io::sysctl;
use ironswan_io::tun::TunConfig;
use ironswan_keying::diagnosis::{DataPlane, DeviceChange};

use crate::dataplane::Restored;

/// Sets the device's own sysctls.
///
/// # Errors
/// The first setting that cannot be written.
pub(super) fn prepare(name: &str) -> Result<(), DataPlane> {
    sysctl::prepare_device(name).map_err(|e| DataPlane::DeviceUnprepared { why: e.to_string() })
}

/// The entry for a device that cannot be restored.
pub(super) fn lost(name: &str, e: &impl fmt::Display) -> DataPlane {
    DataPlane::DeviceLost { name: name.to_owned(), why: e.to_string() }
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
    let disturbed = |what| Restored::Done(DataPlane::DeviceDisturbed { name: name.clone(), what });
    let link = match netlink.link(name) {
        Ok(link) if link.index == index => link,
        Ok(_) | Err(IoError::NoDevice { .. }) => return Device::Gone,
        // The kernel does not tell whether the device is there.
        Err(e) => return Device::There(Restored::Failed(lost(name, &e))),
    };
    if link.up && link.mtu == config.mtu {
        return Device::There(Restored::Nothing);
    }
    Device::There(match netlink.set_link(index, config.mtu, config.queue_len, true) {
        Ok(()) if !link.up => disturbed(DeviceChange::Down),
        Ok(()) => disturbed(DeviceChange::Mtu),
        Err(e) => Restored::Failed(lost(name, &e)),
    })
}
