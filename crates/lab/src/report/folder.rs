//! The folder of a run: `run.json`, plots and page, and `raw/` with the files of each trial.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::clock::{self, Utc};
use crate::error::LabError;

/// Default folder of runs: it outlives a reboot and belongs to nobody's home.
const DEFAULT: &str = "/var/tmp/ironswan";

/// The folder of a run.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Files that were put into the folder, beside `raw/`.
    put: Mutex<Vec<PathBuf>>,
}

impl RunFolder {
    /// Makes `out`, which must be empty if it exists, or a new dated folder of this `experiment`.
    pub fn create(out: Option<&Path>, experiment: &str) -> Result<Self, LabError> {
        let path = match out {
            Some(path) => {
                let used = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
                if used || path.is_file() {
                    return Err(LabError::Usage(format!(
                        "{} exists already; name a new folder: a run is never written over another",
                        path.display()
                    )));
                }
                path.to_path_buf()
            }
            None => unused(Path::new(DEFAULT), experiment),
        };
        fs::create_dir_all(path.join("raw")).map_err(LabError::io(format!("creating {}", path.display())))?;
        // Absolute, so that it can be printed for use elsewhere.
        let path = path.canonicalize().map_err(LabError::io(format!("finding {}", path.display())))?;
        Ok(Self::existing(&path))
    }

    /// One that holds a run already.
    pub(super) fn existing(path: &Path) -> Self {
        Self { path: path.to_path_buf(), put: Mutex::default() }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of a raw file relative to the folder.
    pub(crate) fn raw(name: &str) -> String {
        format!("raw/{name}")
    }

    /// Keeps a raw file; returns its name relative to the folder.
    pub fn keep(&self, name: &str, contents: &[u8]) -> Result<String, LabError> {
        let relative = Self::raw(name);
        let path = self.path.join(&relative);
        fs::write(&path, contents).map_err(LabError::io(format!("writing {}", path.display())))?;
        Ok(relative)
    }

    /// Writes a file, which is there whole or not at all.
    pub(super) fn put(&self, name: &str, contents: &[u8]) -> Result<(), LabError> {
        let path = self.path.join(name);
        let part = self.path.join(format!("{name}.part"));
        self.put.lock().unwrap_or_else(PoisonError::into_inner).extend([part.clone(), path.clone()]);
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(contents)?;
            file.sync_all()?;
            fs::rename(&part, &path)
        };
        write().map_err(|e| {
            // Of no use to anybody; where the disk is full it is in the way.
            let _ = fs::remove_file(&part);
            LabError::io(format!("writing {}", path.display()))(e)
        })
    }

    /// Removes what a run that failed has kept so far: without its record it says nothing.
    pub fn discard(&self) {
        for path in self.put.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = fs::remove_file(path);
        }
        // The folder itself may have been there before; it was empty then, and goes only if it is
        // empty now.
        let _ = fs::remove_dir_all(self.path.join("raw")).and_then(|()| fs::remove_dir(&self.path));
    }
}

fn unused(base: &Path, experiment: &str) -> PathBuf {
    let stamp = Utc::from_epoch(clock::since_epoch()).compact();
    let pid = std::process::id();
    let first = base.join(format!("{experiment}-{stamp}-{pid}"));
    let mut path = first.clone();
    let mut n = 1;
    while path.exists() {
        n += 1;
        path = first.with_file_name(format!("{experiment}-{stamp}-{pid}-{n}"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_never_written_over_another() {
        let path = std::env::temp_dir().join(format!("ironlab-folder-{}", std::process::id()));
        let folder = RunFolder::create(Some(&path), "line").expect("a new folder");
        assert_eq!(folder.keep("00.txt", b"x").expect("keep"), "raw/00.txt");
        let e = RunFolder::create(Some(&path), "line").expect_err("used");
        assert_eq!(e.exit_code(), 2);
        assert!(path.join("raw/00.txt").exists());
        folder.put("run.json", b"{}").expect("put");
        assert!(!path.join("run.json.part").exists());
        folder.discard();
        assert!(!path.exists());
    }
}
