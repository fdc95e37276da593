//! What the replay check has dropped, in `ironswan-counters`.
//!
//! ```text
//! replays { duplicates = 3  forged = 0  late-unverified = 0  duplicates-unverified = 0
//!           late { 1 = 0  2 = 7  4 = 21  ..  1048576 = 0  more = 0 } }
//! replay-windows { CONNECTION { CHILD { window = 32  late = 120  duplicates = 3
//!                                       advised = 256  kept = 118  needed { 64 = 3  .. } } } }
//! ```
//! `late` counts packets by how far left of the window they were, in buckets up to powers of two;
//! `needed` by the window that would have kept them, without empty buckets. Both have authentic
//! packets only: those with a wrong ICV are `forged`, those that nobody has opened are
//! `-unverified`, and neither has a place in a histogram ([`ironswan_ipsec::ReplayDrops`]).
//! `advised` is the least `replay_window` that would have kept nearly all that any would have kept,
//! `kept` how many of `late` that are; both are missing where no window would have kept half.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ironswan_ipsec::{Histogram, ReplayDrops, WindowNeeds};
use ironswan_wire::vici::Section;

use super::Control;

/// The largest `replay_window` of a configuration.
const MAX_WINDOW: u32 = 65_536;
/// Limits the children that one answer tells of: those with most late packets.
const MAX_TOLD: usize = 256;

/// `replays`.
pub(super) fn drops(drops: &ReplayDrops) -> Section {
    Section::new()
        .with("duplicates", drops.duplicates)
        .with("forged", drops.forged)
        .with("late-unverified", drops.late_unverified)
        .with("duplicates-unverified", drops.duplicates_unverified)
        .with("late", buckets(&drops.late, true))
}

/// A histogram. `empty`: with its empty buckets.
fn buckets(histogram: &Histogram, empty: bool) -> Section {
    let name = |bound: Option<u64>| bound.map_or_else(|| "more".to_owned(), |bound| bound.to_string());
    histogram.buckets().filter(|(_, n)| empty || *n != 0).map(|(bound, n)| (name(bound), n)).collect()
}

/// The section of a child.
fn window(needs: &WindowNeeds) -> Section {
    let mut s = Section::new()
        .with("window", needs.window)
        .with("late", needs.needed.total())
        .with("duplicates", needs.duplicates);
    if let Some(advised) = needs.advice(MAX_WINDOW) {
        s.put("advised", advised).put("kept", needs.kept_by(advised).0);
    }
    s.with("needed", buckets(&needs.needed, false))
}

impl Control {
    /// `replay-windows`, of one connection or of all.
    pub(super) fn replay_windows(&self, only: Option<&str>) -> Section {
        let mut needs = self.driver.plane(|plane| plane.window_needs());
        if needs.is_empty() {
            return Section::new();
        }
        let names = self.driver.view(|e, _| e.protocol().reqids(only));
        needs.retain(|(reqid, _)| only.is_none() || names.contains_key(reqid));
        needs.sort_by_key(|(_, needs)| Reverse((needs.needed.total(), needs.duplicates)));
        needs.truncate(MAX_TOLD);
        let mut conns: BTreeMap<String, Section> = BTreeMap::new();
        for (reqid, needs) in &needs {
            // Its SAs have gone, and it has no trap.
            let gone = || ("-".to_owned(), format!("reqid {}", reqid.0));
            let (conn, child) = names.get(reqid).cloned().unwrap_or_else(gone);
            conns.entry(conn).or_default().put(child, window(needs));
        }
        conns.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_and_windows_are_told_by_buckets() {
        let mut all = ReplayDrops { duplicates: 3, forged: 2, late_unverified: 1, ..ReplayDrops::default() };
        [2, 3, 4, 1 << 30].into_iter().for_each(|n| all.late.add(n));
        let s = drops(&all);
        let late = s.section("late").unwrap();
        assert_eq!(late.iter().count(), 22);
        let told = ["1", "2", "4", "8", "1048576", "more"].map(|name| late.get_str(name).unwrap());
        assert_eq!(told, ["0", "1", "2", "0", "0", "1"]);
        assert_eq!((s.get_str("duplicates"), s.get_str("forged")), (Some("3"), Some("2")));
        let mut needs = WindowNeeds { window: 32, duplicates: 1, ..WindowNeeds::default() };
        [100, 120, 250].into_iter().for_each(|n| needs.needed.add(n));
        let s = window(&needs);
        let told = ["window", "late", "duplicates", "advised", "kept"].map(|name| s.get_str(name).unwrap());
        assert_eq!(told, ["32", "3", "1", "256", "3"]);
        assert_eq!(s.section("needed").unwrap().iter().count(), 2);
        // What was recorded long ago and is sent again needs no window.
        (0..9).for_each(|_| needs.needed.add(1 << 30));
        assert_eq!(window(&needs).get_str("advised"), None);
    }
}
