//! Plain forwarding: two routes and the kernel. What every other system is compared with.

use std::path::Path;

use super::{Dut, Running};
use crate::error::{LabError, Remedy};
use crate::topology::{Line, Node, address};

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

    fn start(&self, line: &Line, _dir: &Path) -> Result<Box<dyn Running>, LabError> {
        line.ip(Node::G1, &["route", "add", address::NET_B, "via", address::G2])?;
        line.ip(Node::G2, &["route", "add", address::NET_A, "via", address::G1])?;
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
