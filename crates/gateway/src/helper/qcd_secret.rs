//! The helper's side of the QCD secret (RFC 6290 section 5.1): "At installation or immediately
//! after the first boot of the token maker, 32 random octets are generated ... stored in
//! non-volatile storage on the machine, and kept indefinitely".
//!
//! A file that is there is never written: a damaged one is the operator's to remove (the daemon
//! says so, `start::qcd_secret`). A new one gets its name when it is complete and on the disk, and
//! nobody has it before the name is on the disk, too.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ironswan_crypto::rng::{Rng, System};
use ironswan_ike::QCD_SECRET_LEN;
use ironswan_wire::secret::Secret;
use rustix::fs::OFlags;

/// Opens the file for reading. Makes it, and its folder, where there is none.
///
/// # Errors
/// The kernel's own.
pub(super) fn open_or_make(path: &Path) -> io::Result<File> {
    match open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make(path, &mut settle)?;
            open(path)
        }
        opened => opened,
    }
}

/// Does not wait for the other end of a pipe, and follows no link at the end of the path.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// `settle` brings the names in a folder to the disk.
fn make(path: &Path, settle: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent();
    if let Some(folder) = folder {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Err(_) => {}
            Ok(()) => folder.parent().map_or(Ok(()), &mut *settle)?,
        }
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let done = write(&new).and_then(|()| match fs::hard_link(&new, path) {
        // Another gateway has just made it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // A name that is left over does no harm: nobody reads it.
    let _ = fs::remove_file(&new);
    done?;
    folder.map_or(Ok(()), settle)
}

/// A file system that cannot do so with a folder does not make the secret worthless.
fn settle(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match File::open(folder)?.sync_all() {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn write(path: &Path) -> io::Result<()> {
    let secret = Secret::filled(QCD_SECRET_LEN, |bytes| System.fill(bytes));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.expose())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use ironswan_testkit::scratch::Scratch;

    use super::*;

    #[test]
    fn a_secret_is_made_once_for_its_owner_alone() {
        let dir = Scratch::new();
        let path = dir.path().join("state/qcd-secret");
        open_or_make(&path).unwrap();
        let first = fs::read(&path).unwrap();
        assert_eq!(first.len(), QCD_SECRET_LEN);
        assert!(first.iter().any(|b| *b != first[0]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        open_or_make(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first, "the next start has the same");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        fs::remove_file(&path).unwrap();
        open_or_make(&path).unwrap();
        assert_ne!(fs::read(&path).unwrap(), first);
    }

    /// A name that only the memory of the kernel has is gone after a power failure, and peers have
    /// tokens of the secret then.
    #[test]
    fn the_name_of_a_new_secret_is_on_the_disk_before_it_is_used() {
        let dir = Scratch::new();
        let path = dir.path().join("state/qcd-secret");
        let mut settled = Vec::new();
        make(&path, &mut |folder| {
            settled.push((
                folder.to_owned(),
                folder.join("state").exists(),
                folder.join("qcd-secret").exists(),
            ));
            settle(folder)
        })
        .unwrap();
        let state = dir.path().join("state");
        assert_eq!(settled, [(dir.path().to_owned(), true, false), (state, false, true)]);
        fs::remove_file(&path).unwrap();
        let refused = make(&path, &mut |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        settle(Path::new("")).unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_not_written_and_no_link_is_followed() {
        let dir = Scratch::new();
        dir.write("short", "abc");
        let path = |name: &str| dir.path().join(name);
        open_or_make(&path("short")).unwrap();
        assert_eq!(fs::read(path("short")).unwrap(), b"abc");
        symlink(path("short"), path("link")).unwrap();
        assert!(open_or_make(&path("link")).is_err());
        symlink(path("nowhere"), path("dangling")).unwrap();
        assert!(open_or_make(&path("dangling")).is_err());
        assert!(!path("nowhere").exists());
        assert!(open_or_make(&path("short/secret")).is_err());
        assert!(open_or_make(&path("a/b/secret")).is_err(), "one folder is made, not several");
    }
}
