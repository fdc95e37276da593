//! Writes the files of a run's folder that are made from its record: a picture of each plot, the
//! page, and last of all the record itself, so that a run that was cut short never looks whole.

use super::page::page;
use super::plot;
use super::{RunFolder, stored::Stored};
use crate::error::LabError;
use crate::record::{Record, View};

/// Writes everything that is made from `record`, then the record itself as `run.json`.
pub(crate) fn publish(record: &Record, folder: &RunFolder) -> Result<(), LabError> {
    let json = serde_json::to_vec_pretty(record)
        .map_err(|e| LabError::Measurement(format!("the run cannot be written as JSON: {e}")))?;
    rendered(record)?.into_iter().try_for_each(|(name, text)| folder.put(&name, text.as_bytes()))?;
    folder.put("run.json", &json)
}

/// Publishes a record with more files, which are there before it.
pub(crate) fn publish_with(
    record: &Record,
    folder: &RunFolder,
    files: &[(&str, String)],
) -> Result<(), LabError> {
    files.iter().try_for_each(|(name, text)| folder.put(name, text.as_bytes()))?;
    publish(record, folder)
}

/// Writes plots and page of a stored run again; returns the page's path.
pub(crate) fn republish(stored: &Stored) -> Result<std::path::PathBuf, LabError> {
    let folder = RunFolder::existing(stored.folder());
    let files = rendered(stored.record())?;
    files.into_iter().try_for_each(|(name, text)| folder.put(&name, text.as_bytes()))?;
    Ok(folder.path().join("index.html"))
}

/// The files that are made from a record: name and contents, the page last.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn rendered(record: &Record) -> Result<Vec<(String, String)>, LabError> {
    let plots = record.views.iter().filter_map(|view| match view {
        View::Plot(plot) => Some(plot::draw(record, plot)),
        View::Table(_) | View::Derived { .. } => None,
    });
    let plots = plots.collect::<Result<Vec<_>, _>>()?;
    let page = ("index.html".to_string(), page(record, &plots));
    Ok(plots.iter().map(|plot| (plot.file_name(), plot.file())).chain([page]).collect())
}
