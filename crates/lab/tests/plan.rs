//! The published documents of the planner obey their schemas. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};

use ironswan_lab::report;
use serde_json::Value;

/// All JSON files in a folder and below.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|p| p.is_dir());
    let own = files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "json"));
    own.chain(folders.iter().flat_map(|f| documents(f))).collect()
}

#[test]
fn what_is_published_of_the_planner_obeys_its_schemas() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/plan");
    let all = documents(&folder);
    assert!(all.iter().any(|f| f.ends_with("plan.json")), "{all:?}");
    for file in all {
        let json: Value = serde_json::from_str(&fs::read_to_string(&file).expect("text")).expect("JSON");
        assert_eq!(report::breaches(&json), [""; 0], "{}", file.display());
    }
}
