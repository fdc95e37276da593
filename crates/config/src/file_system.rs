//! Who asks the kernel for files: this process, or another one with more privileges on its behalf.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ironswan_keying::diagnosis::FileFault;
use rustix::fs::OFlags;

use super::files::{Clock, system};

/// Opens and lists files.
pub trait FileSystem: Sync {
    /// Opens a regular file, or a link to one, for reading.
    ///
    /// # Errors
    /// The kernel's answer, or that it is no regular file.
    fn open(&self, path: &Path) -> Result<File, FileFault>;

    /// The path without links.
    ///
    /// # Errors
    /// The kernel's answer.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// True when there is something.
    ///
    /// # Errors
    /// Nobody can say, or a link leads to what is not there.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Lists a folder, in no order. `None`: there is no folder of that name.
    ///
    /// # Errors
    /// The folder, or one entry of it, cannot be read.
    fn list(&self, folder: &Path) -> io::Result<Option<Vec<PathBuf>>>;
}

/// This process asks the kernel itself.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl FileSystem for Direct {
    fn open(&self, path: &Path) -> Result<File, FileFault> {
        let regular = |meta: Metadata| if meta.is_file() { Ok(()) } else { Err(FileFault::NotRegular) };
        // Looked at before it is opened; and opened so that what has taken its place meanwhile does
        // not hang either.
        regular(std::fs::metadata(path).map_err(system)?)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(system)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        exists(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        if !exists(folder)? {
            return Ok(None);
        }
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map(Some)
    }
}

/// The clock and the file system of a program.
#[derive(Clone, Copy)]
pub struct Access {
    now: Clock,
    system: &'static dyn FileSystem,
}

impl Access {
    /// Files are opened by `system`.
    pub fn through(now: Clock, system: &'static dyn FileSystem) -> Self {
        Self { now, system }
    }

    /// This process opens the files.
    pub fn direct(now: Clock) -> Self {
        Self { now, system: &Direct }
    }

    pub(super) fn now(&self) -> Instant {
        (self.now)()
    }

    pub(super) fn system(&self) -> &'static dyn FileSystem {
        self.system
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// False only when the name itself, or a folder on the way to it, is not there.
fn exists(path: &Path) -> io::Result<bool> {
    let missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        match std::fs::symlink_metadata(part) {
            Err(e) if missing(&e) => {}
            Err(e) => return Err(e),
            Ok(_) => {
                return match std::fs::metadata(part) {
                    Ok(_) => Ok(part == path),
                    Err(e) if missing(&e) => Err(io::Error::new(
                        e.kind(),
                        format!("{} is a link to what is not there", part.display()),
                    )),
                    Err(e) => Err(e),
                };
            }
        }
    }
    Ok(false)
}
