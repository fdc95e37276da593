//! The doubts of a record, kind by kind, and as text for a terminal. Pure.

use super::text::wrap;
use crate::record::WarningRecord;

/// Warnings of one kind that are shown at once: a noisy machine makes one for every cell.
const AT_ONCE: usize = 3;

/// Warnings kind by kind, in the order in which the kinds appear first: those shown at once, and
/// the rest of that kind.
pub(crate) fn by_kind(warnings: &[WarningRecord]) -> Vec<(Vec<&WarningRecord>, Vec<&WarningRecord>)> {
    let mut kinds: Vec<(Vec<&WarningRecord>, Vec<&WarningRecord>)> = Vec::new();
    for w in warnings {
        match kinds.iter_mut().find(|(shown, _)| shown[0].kind == w.kind) {
            Some((shown, _)) if shown.len() < AT_ONCE => shown.push(w),
            Some((_, rest)) => rest.push(w),
            None => kinds.push((vec![w], vec![])),
        }
    }
    kinds
}

/// The list of doubts, if there are any.
pub(super) fn warnings_text(warnings: &[WarningRecord], width: usize) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut list = String::new();
    for (shown, rest) in by_kind(warnings) {
        shown.iter().for_each(|w| list.push_str(&wrap(&w.text, width, " - ", "   ")));
        if !rest.is_empty() {
            let more =
                format!("{} more of the kind {}, all in run.json and on the page", rest.len(), rest[0].kind);
            list.push_str(&wrap(&more, width, " - ", "   "));
        }
    }
    format!("\nWarnings\n{list}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_are_shown_and_none_is_lost() {
        let noisy = |n: usize| WarningRecord { kind: "noisy-repeats".into(), text: n.to_string() };
        let mut all: Vec<WarningRecord> = (0..5).map(noisy).collect();
        all.insert(2, WarningRecord { kind: "stolen-time".into(), text: "x".into() });
        let kinds = by_kind(&all);
        let texts = |list: &[&WarningRecord]| list.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
        assert_eq!(kinds.len(), 2);
        assert_eq!(
            (texts(&kinds[0].0).join(" "), texts(&kinds[0].1).join(" ")),
            ("0 1 2".into(), "3 4".into())
        );
        assert_eq!((texts(&kinds[1].0), kinds[1].1.len()), (vec!["x".to_string()], 0));
        assert!(by_kind(&[]).is_empty());
    }
}
