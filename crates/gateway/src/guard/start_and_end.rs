//! The guard at the daemon's start and end.
//!
//! ```text
//! start:  adopt what stands ─▶ plan of the configuration ─▶ kernel ─▶ VICI, connections
//! failed: nothing stood before: all of it goes; else it stays
//! end:    device routes go, dynamic policies go; what the configuration protects stays guarded
//! ```

use std::rc::Rc;
use std::sync::Arc;

use ironswan_ike::event::Level;
use ironswan_io::tun::TunConfig;

use crate::config::Config;
use crate::driver::Driver;
use crate::guard::Nft;
use crate::guard::apply::{Replace, Table};
use crate::guard::ingress::Keeper;
use crate::guard::ingress::thread::Keeping;
use crate::guard::keep::Watcher;
use crate::guard::plan::from_config::{self, Configured};
use crate::log;
use crate::worker::DataPlane;

/// What stands between start and end.
pub(crate) struct Gate {
    pub(crate) driver: Driver,
    /// `None`: `guard = no`.
    pub(crate) table: Option<Arc<Table>>,
    /// The table of a predecessor stood, or its filter at an ingress, or that could not be told.
    pub(crate) stood: bool,
    /// The netlink address from which filters at the ingress are set.
    pub(crate) port: u32,
}

impl Gate {
    /// With the program `nft`, or without the guard.
    ///
    /// # Errors
    /// `nft` is missing or too old; the message has the remedy.
    pub(crate) fn new(driver: Driver, guard: bool) -> Result<Self, String> {
        let nft = match guard {
            true => Some(Nft::find().map_err(|e| e.to_string())?),
            // What cannot be used cannot have left a table either.
            false => Nft::find().ok(),
        };
        let mut stood = nft.as_ref().is_some_and(|n| n.present().unwrap_or(guard));
        if let (false, true, Some(nft)) = (guard, stood, &nft) {
            // A table of before would go on dropping what is no longer steered by it.
            nft.remove().map_err(|e| e.to_string())?;
        }
        // Without the guard it takes away what a predecessor left there.
        let device = driver.installed(|i| i.steering().settings().device.clone());
        let mut keeper = Keeper::open(&device).map_err(|e| e.to_string())?;
        stood |= keeper.found();
        let port = keeper.port().map_err(|e| e.to_string())?;
        let keeping = Keeping::start(keeper).map_err(|e| format!("starting a thread: {e}"))?;
        driver.install(|i| i.steering_mut().guards_ingress(keeping));
        let table = nft.filter(|_| guard).map(Table::new);
        table.iter().for_each(|t| driver.guard_is(t.clone()));
        Ok(Self { driver, table, stood, port })
    }

    /// How the table is replaced.
    pub(crate) fn replace(&self) -> Replace {
        match self.table.clone() {
            Some(table) => Arc::new(move |text| table.replace(text)),
            // Without the guard there is no text.
            None => Arc::new(|_| Ok(())),
        }
    }

    /// Puts the configuration's plan in place of whatever stands.
    ///
    /// # Errors
    /// What the kernel refuses; what was set here has been removed then.
    pub(crate) fn close(&self, config: &Config) -> Result<(), String> {
        self.driver
            .install(|i| i.adopt())
            .map_err(|e| e.to_string())
            .and_then(|()| {
                self.driver.enforce_now(&self.replace(), from_config::configured(&config.connections))
            })
            .inspect_err(|_| self.undo())
    }

    /// Begins to watch; `installer`: the netlink address of the driver's own socket.
    pub(crate) fn watch(
        &self,
        plane: &Rc<DataPlane>,
        device: &TunConfig,
        installer: u32,
    ) -> Result<Watcher, String> {
        let plane = Rc::downgrade(plane);
        Watcher::new(self.driver.clone(), plane, device.clone(), self.table.clone(), [installer, self.port])
    }

    /// The start has failed. A guard that stood before stands on, with this configuration's plan.
    pub(crate) fn undo(&self) {
        if !self.stood && !self.driver.installed(|i| i.steering().adopted()) {
            self.clear();
        }
    }

    /// The end, after [`Driver::enforce`] was dropped: what the configuration protects stays guarded, unless it says that
    /// nothing is.
    pub(crate) fn leave(&self, loaded: Configured) {
        self.driver.enforces_no_more();
        let Some(table) = self.table.clone() else { return self.clear() };
        // What waits for a thread has an older plan, and would come after this one.
        table.end();
        self.driver.install(|i| i.clear());
        let last: Replace = Arc::new(move |text| table.replace_last(text));
        if let Err(e) = self.driver.enforce_now(&last, loaded) {
            log::line(Level::Error, None, &e);
        }
    }

    fn clear(&self) {
        self.driver.install(|i| i.clear_all());
        if let Some(Err(e)) = self.table.as_ref().map(|t| t.remove()) {
            log::line(Level::Error, None, &e);
        }
    }
}
