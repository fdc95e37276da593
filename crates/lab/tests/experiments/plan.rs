//! The published documents of the planner obey their schemas, and a second program comes to the
//! same errors. Needs no root.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Published, recompute};
use serde_json::Value;

/// All JSON files in a folder and below.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|p| p.is_dir());
    let own = files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "json"));
    own.chain(folders.iter().flat_map(|f| documents(f))).collect()
}

#[test]
fn the_published_errors_follow_from_the_published_model() {
    let (status, said) = recompute(&Published::unpacked("plan-errors").run("plan"));
    assert!(status == Some(0) && said.contains("predictions follow from the model: median error"), "{said}");
}

/// A verification of which only what was printed is kept; one with its measurements is falsified
/// beside the code that writes it.
#[test]
fn a_printed_verification_that_was_falsified_is_refused() {
    let folder = std::env::temp_dir().join(format!("ironlab-plan-printed-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let published = Published::unpacked("plan-model");
    fs::copy(published.run("plan").join("plan.json"), folder.join("plan.json")).expect("a model");
    let row = |predicted: &str, error: &str| {
        format!(" aes128gcm16  udp  out  390  all  200,000  {predicted}  1,000  6 %  {error} %\n")
    };
    let whole = |predicted, error, worst: f64| {
        let median = "median error MEDIAN % (goal 12.7 %: a tenth), worst WORST % (goal 25 %): met\n";
        row(predicted, error) + &median.replace("MEDIAN", "0.0").replace("WORST", &format!("{worst:.1}"))
    };
    let check = |text: String| {
        fs::write(folder.join("verify.txt"), text).expect("written");
        recompute(&folder)
    };
    let (status, said) = check(whole("1", "+0", 0.0));
    let by_model =
        said.split("predicted is ").nth(1).and_then(|s| s.split(' ').next()).expect("a prediction");
    let ns: f64 = by_model.parse().expect("a number");
    assert!(status == Some(1) && ns > 100.0, "{said}");
    let error = (ns / 10.0 - 100.0, format!("{:+.0}", ns / 10.0 - 100.0));
    let good =
        whole(by_model, &error.1, error.0.abs()).replace("error 0.0", &format!("error {:.1}", error.0.abs()));
    assert_eq!(check(good.clone()).0, Some(0), "{good}");
    for (from, to, expected) in [
        (by_model, "2,345", "by the model"),
        ("  1,000  ", "  1,100  ", "the error is"),
        ("median error ", "median error 9", "verify.txt says"),
        ("udp", "tcp", "has no predictions"),
    ] {
        let (status, said) = check(good.replacen(from, to, 1));
        assert!(status == Some(1) && said.contains(expected), "{from}: {said}");
    }
    assert_eq!(check(good.replacen("1,000", "many", 1)).0, Some(2));
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_is_published_of_the_planner_obeys_its_schemas() {
    let published = Published::unpacked("plan-schemas");
    let all = documents(&published.run("plan"));
    assert!(all.iter().any(|f| f.ends_with("plan.json")), "{all:?}");
    for file in all {
        let json: Value = serde_json::from_str(&fs::read_to_string(&file).expect("text")).expect("JSON");
        assert_eq!(ironswan_lab::schema::breaches(&json), [""; 0], "{}", file.display());
    }
}
