//! Plain forwarding: two routes and the kernel. What every other system is compared with.

use std::path::Path;

use super::{Dut, Running};
use crate::error::{LabError, Remedy};
use crate::topology::{Sites, ipv6_text};

/// The system under test that is none.
pub(super) struct Plain;

impl Dut for Plain {
    fn name(&self) -> String {
        "plain".into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        Vec::new()
    }

    fn version(&self) -> Option<String> {
        None
    }

    fn start(&self, sites: &Sites<'_>, _dir: &Path) -> Result<Box<dyn Running>, LabError> {
        for end in (0..sites.sites.len()).flat_map(|site| sites.ends(site)) {
            for network in &end.there.networks {
                // To a network of IPv6 by the next gateway's address of IPv6.
                let v6 = ipv6_text(&end.there.address).filter(|_| network.contains(':'));
                let via = v6.as_ref().unwrap_or(&end.there.address);
                sites.ip(end.here, &["route", "add", network, "via", via])?;
            }
        }
        Ok(Box::new(Routes))
    }
}

struct Routes;

impl Running for Routes {
    fn tunnel_device(&self) -> Option<String> {
        None
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok("no tunnel: routes between the gateways".into())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        Vec::new()
    }
}
