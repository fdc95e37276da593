//! The guard at the daemon's start and end.
//!
//! ```text
//! start:  adopt what stands ─▶ plan of the configuration ─▶ kernel ─▶ VICI, connections
//! failed: nothing stood before: all of it goes; else it stays
//! end:    device routes go, dynamic policies go; what the configuration protects stays guarded
//! no guard: `guard = no`, or no guarded child: the guard of an earlier start goes, and is logged
//! ```

use std::sync::Arc;

use ironswan_ike::event::Level;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Guard;

use crate::diagnosis::{Diagnosed, no_thread};
use crate::driver::Driver;
use crate::guard::apply::Replace;
use crate::guard::ingress::Keeper;
use crate::guard::ingress::thread::KeeperThread;
use crate::guard::keep::Watcher;
use crate::guard::plan::from_config::{self, Configured};
use crate::guard::table::Table;
use crate::guard::{NAME, Nft, delete_table, delete_trace_table};
use crate::observe::log;
use ironswan_config::Config;

/// Installs the guard when a daemon starts, and at the daemon's end leaves it standing or removes
/// it.
pub(crate) struct DaemonGuard {
    pub(crate) driver: Driver,
    /// `None`: `guard = no`.
    pub(crate) table: Option<Arc<Table>>,
    /// A guard stood before this start, or the kernel did not tell.
    pub(crate) stood: bool,
    /// Parts of that guard which this start has found.
    pub(crate) former: Former,
    /// The netlink address from which programs at the ingress are set.
    pub(crate) port: u32,
}

/// Parts of a guard that an earlier daemon, or `ironswan guard --install`, left in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Former {
    /// The nft table stood.
    pub(crate) table: bool,
    /// Rules.
    pub(crate) rules: usize,
    /// Routes of table 220 that stand without a device.
    pub(crate) routes: usize,
    /// Interfaces at whose ingress the program stood.
    pub(crate) interfaces: usize,
}

impl Former {
    /// Lists the parts in words; `None` when there are none.
    fn in_words(&self) -> Option<String> {
        let several = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let parts = [
            self.table.then(|| format!("the nft table inet {NAME}")),
            several(self.rules, "rule", "rules"),
            several(self.routes, "route of table 220", "routes of table 220"),
            several(
                self.interfaces,
                "program at the ingress of an interface",
                "programs at the ingress of interfaces",
            ),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl DaemonGuard {
    /// Looks for the program `nft` and for the guard of an earlier start. With `guard = no` the nft
    /// table of that start is deleted here: it would go on dropping packets that nothing leads into
    /// a tunnel.
    ///
    /// # Errors
    /// `nft` is missing or too old, and the message has the remedy; or the kernel refuses.
    pub(crate) fn new(driver: Driver, guard: bool) -> Result<Self, Diagnosis> {
        let nft = if guard { Some(Nft::find()?) } else { None };
        let table_stood = match &nft {
            Some(nft) => nft.present().ok(),
            None => Some(delete_table().diagnosed()?),
        };
        // A daemon that was killed while it followed a flow has left its table.
        let _ = delete_trace_table();
        let device = driver.guard(|g| g.settings().device.clone());
        let mut keeper = Keeper::open(&device).diagnosed()?;
        let interfaces = keeper.found();
        let port = keeper.port().diagnosed()?;
        // The thread runs without the guard as well: it removes the programs of an earlier start.
        let thread = KeeperThread::start(keeper).map_err(no_thread("keeps the program at the ingress"))?;
        driver.change_guard(|g, _| g.set_keeper_thread(thread));
        let table = nft.map(Table::new);
        table.iter().for_each(|t| driver.set_guard_table(t.clone()));
        // An answer that the kernel does not give counts as a guard that stands.
        let stood = table_stood.unwrap_or(true) || interfaces.is_none_or(|n| n > 0);
        let (found, interfaces) = (table_stood.unwrap_or(false), interfaces.unwrap_or(0));
        let former = Former { table: found, interfaces, ..Former::default() };
        Ok(Self { driver, table, stood, former, port })
    }

    /// How the table is replaced.
    pub(crate) fn replace(&self) -> Replace {
        match self.table.clone() {
            Some(table) => Arc::new(move |text| table.replace(text)),
            // Without the guard there is no text.
            None => Arc::new(|_| Ok(())),
        }
    }

    /// Puts the configuration's plan in place of whatever stands. Says so when that takes away the
    /// guard of an earlier start.
    ///
    /// # Errors
    /// The kernel refuses a part. Then all that was set here has been removed, unless a guard stood
    /// before.
    pub(crate) fn install(&self, config: &Config) -> Result<(), Diagnosis> {
        let removed = self.adopt_and_apply(config).inspect_err(|_| self.undo_start())?;
        removed.iter().for_each(|removed| log::diagnosis(Level::Warn, None, removed));
        Ok(())
    }

    /// Returns an entry about the guard of an earlier start when that was removed.
    pub(crate) fn adopt_and_apply(&self, config: &Config) -> Result<Option<Guard>, Diagnosis> {
        self.driver.change_guard(|guard, kernel| guard.adopt(kernel)).diagnosed()?;
        let (rules, routes) = self.driver.guard(|g| g.in_kernel());
        self.driver.guard_pass_now(&self.replace(), from_config::configured(&config.connections))?;
        if !self.driver.guard(|g| g.plan().ingress.is_empty()) {
            return Ok(None);
        }
        let (rules_now, routes_now) = self.driver.guard(|g| g.in_kernel());
        let rules = rules.iter().filter(|rule| !rules_now.contains(rule)).count();
        let routes = routes.difference(&routes_now).count();
        let parts = (Former { rules, routes, ..self.former }).in_words();
        Ok(parts.map(|parts| Guard::FormerRemoved { switched_off: self.table.is_none(), parts }))
    }

    /// Begins to watch. `routing`: the netlink address from which our rules and routes are set.
    pub(crate) fn watch(&self, routing: u32) -> Result<Watcher, Diagnosis> {
        Watcher::new(self.driver.clone(), self.table.clone(), [routing, self.port])
    }

    /// The start has failed. A guard that stood before stands on, with this configuration's plan.
    pub(crate) fn undo_start(&self) {
        if !self.stood && !self.driver.guard(|g| g.adopted()) {
            self.remove();
        }
    }

    /// The end, after [`Driver::run_guard_passes`] was dropped: what the configuration protects
    /// stays guarded, unless it says that nothing is.
    pub(crate) fn end(&self, loaded: Configured) {
        self.driver.guard_passes_ended();
        // Nobody follows a flow any more.
        let _ = delete_trace_table();
        let Some(table) = self.table.clone() else { return self.remove() };
        // Replacements that wait for a thread have an older plan, and would come after this one.
        table.end();
        self.driver.change_plane(|plane| plane.remove_routes());
        let last: Replace = Arc::new(move |text| table.replace_last(text));
        if let Err(e) = self.driver.guard_pass_now(&last, loaded) {
            log::diagnosis(Level::Error, None, &e);
        }
    }

    fn remove(&self) {
        self.driver.change_plane(|plane| plane.remove_routes());
        self.driver.change_guard(|guard, kernel| guard.clear(kernel));
        if let Some(Err(e)) = self.table.as_ref().map(|t| t.remove()) {
            log::diagnosis(Level::Error, None, &e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_former_guard_are_said_in_words_and_nothing_where_there_was_none() {
        assert_eq!(Former::default().in_words(), None);
        let all = Former { table: true, rules: 4, routes: 1, interfaces: 2 };
        assert_eq!(
            all.in_words().unwrap(),
            "the nft table inet ironswan, 4 rules, 1 route of table 220, 2 programs at the ingress of interfaces"
        );
        let filter = Former { interfaces: 1, ..Former::default() };
        assert_eq!(filter.in_words().unwrap(), "1 program at the ingress of an interface");
    }
}
