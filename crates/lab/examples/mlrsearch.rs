//! A search for throughput that is driven over standard input and output, one JSON document a line:
//! first the plan comes in; then each trial to be made goes out
//! (`{"ask": {"load": .., "duration": ..}}`) and the share that was lost comes in
//! (`{"loss": ..}`); at last the results go out
//! (`{"found": [..], "trials": ..}`).

use std::io::{BufRead, Write};

use ironswan_lab::measure::mlr::{Plan, Search};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = std::io::stdin().lock().lines();
    let mut out = std::io::stdout().lock();
    let plan: Plan = serde_json::from_str(&lines.next().ok_or("no plan came")??)?;
    let mut search = Search::new(plan)?;
    while let Some(ask) = search.ask() {
        writeln!(out, "{}", json!({ "ask": ask }))?;
        out.flush()?;
        let answer: Value = serde_json::from_str(&lines.next().ok_or("no loss came")??)?;
        let loss = answer.get("loss").and_then(Value::as_f64).ok_or("a loss is a number")?;
        search.tell(ask, loss);
    }
    writeln!(out, "{}", json!({ "found": search.found(), "trials": search.trials().len() }))?;
    Ok(())
}
