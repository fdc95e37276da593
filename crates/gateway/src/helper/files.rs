//! Files of the configuration, opened by the helper where there is one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ironswan_config::file_system::{Access, FileSystem};
use ironswan_config::files::system;
use ironswan_io::clock;
use ironswan_io::helper::client::{self, Helper};
use ironswan_keying::diagnosis::FileFault;
use ironswan_wire::helper::{Reply, Request};

/// Opens files by the helper of this process.
struct ByHelper;

impl ByHelper {
    fn helper() -> io::Result<&'static Helper> {
        client::get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl FileSystem for ByHelper {
    fn open(&self, path: &Path) -> Result<File, FileFault> {
        let (reply, mut descriptors) = {
            let helper = Self::helper().map_err(system)?;
            helper.ask(&Request::Open(client::bytes(path)), &[]).map_err(system)?
        };
        match (reply, descriptors.pop()) {
            (Reply::Done { .. }, Some(fd)) => Ok(fd.into()),
            (Reply::NotRegular, None) => Err(FileFault::NotRegular),
            _ => Err(system(io::Error::from(io::ErrorKind::InvalidData))),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Self::helper()?.path(&Request::Canonical(client::bytes(path)))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Self::helper()?.exists(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        Self::helper()?.list(folder)
    }
}

/// How this process reads the files of its configuration.
pub(crate) fn access() -> Access {
    match client::get() {
        Some(_) => Access::through(clock::now, &ByHelper),
        None => Access::direct(clock::now),
    }
}
