//! The secret from which QCD tokens are made (RFC 6290), as the daemon gets it from its helper.
//! "The QCD_SECRET MUST be protected from access by other parties" (section 9.1), and no two
//! gateways may have it at once (section 9.2), so a file that does not promise both is not used.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ironswan_config::Daemon;
use ironswan_ike::QCD_SECRET_LEN;
use ironswan_io::helper::client;
use ironswan_keying::diagnosis::{Machine, QcdSecretFault};
use ironswan_wire::helper::Request;
use ironswan_wire::secret::Secret;
use rustix::fs::{FlockOperation, flock};

/// The secret. Its file is locked for as long as this process lives.
pub(crate) struct QcdSecret {
    bytes: Secret,
    locked: File,
}

impl QcdSecret {
    /// Asks the helper for the secret; `None` when no token is to be made.
    ///
    /// # Errors
    /// The file cannot be used. The daemon runs without it.
    pub(crate) fn obtain(settings: &Daemon) -> Option<Result<Self, Machine>> {
        let path = &settings.qcd_secret;
        let helper = client::get().filter(|_| settings.quick_crash_detection)?;
        let opened = helper.descriptor(&Request::QcdSecret(client::bytes(path)), &[]);
        Some(match opened {
            Ok(fd) => Self::of(path, fd.into()),
            Err(e) => Err(fault(path, QcdSecretFault::System(e.to_string()))),
        })
    }

    /// Checks, locks and reads the file, which was opened under this path.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn of(path: &Path, file: File) -> Result<Self, Machine> {
        Self::checked(file).map_err(|why| fault(path, why))
    }

    fn checked(mut file: File) -> Result<Self, QcdSecretFault> {
        let system = |e: std::io::Error| QcdSecretFault::System(e.to_string());
        let about = file.metadata().map_err(system)?;
        if !about.is_file() {
            return Err(QcdSecretFault::NotRegular);
        }
        if about.uid() != 0 && about.uid() != rustix::process::getuid().as_raw() {
            return Err(QcdSecretFault::Foreign { user: about.uid() });
        }
        if about.mode() & 0o077 != 0 {
            return Err(QcdSecretFault::Open { mode: about.mode() & 0o777 });
        }
        let wanted = QCD_SECRET_LEN as u64;
        if about.len() != wanted {
            return Err(QcdSecretFault::Length { bytes: about.len(), wanted });
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => QcdSecretFault::InUse,
            e => system(e.into()),
        })?;
        let mut read = Ok(());
        let bytes = Secret::filled(QCD_SECRET_LEN, |bytes| read = file.read_exact(bytes));
        read.map_err(system)?;
        let first = bytes.expose().first();
        if bytes.expose().iter().all(|byte| Some(byte) == first) {
            return Err(QcdSecretFault::NotRandom);
        }
        Ok(Self { bytes, locked: file })
    }

    /// Gives the secret, and the file that has to stay open.
    pub(crate) fn into_parts(self) -> (Secret, File) {
        (self.bytes, self.locked)
    }
}

fn fault(path: &Path, why: QcdSecretFault) -> Machine {
    Machine::QcdSecret { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use ironswan_testkit::scratch::Scratch;

    use super::*;

    /// Opens a file of this content and mode.
    fn file(dir: &Scratch, content: &[u8], mode: u32) -> File {
        let path = dir.path().join("secret");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        File::open(path).unwrap()
    }

    fn why(file: File) -> QcdSecretFault {
        QcdSecret::checked(file).err().expect("a reason")
    }

    #[test]
    fn a_secret_of_one_gateway_alone_is_taken_and_its_lock_ends_with_it() {
        let dir = Scratch::new();
        let content: Vec<u8> = (0..32).collect();
        let (secret, locked) = QcdSecret::checked(file(&dir, &content, 0o600)).unwrap().into_parts();
        assert_eq!(secret.expose(), content);
        let again = || File::open(dir.path().join("secret")).unwrap();
        assert_eq!(why(again()), QcdSecretFault::InUse);
        drop(locked);
        assert!(QcdSecret::checked(again()).is_ok());
    }

    #[test]
    fn a_damaged_or_exposed_secret_is_refused_with_its_reason() {
        let dir = Scratch::new();
        let content: Vec<u8> = (0..32).collect();
        for len in [0u8, 31, 33] {
            let content: Vec<u8> = (0..len).collect();
            let bytes = len.into();
            assert_eq!(why(file(&dir, &content, 0o600)), QcdSecretFault::Length { bytes, wanted: 32 });
        }
        assert_eq!(why(file(&dir, &[0; 32], 0o600)), QcdSecretFault::NotRandom);
        for mode in [0o640, 0o604, 0o666, 0o610] {
            assert_eq!(why(file(&dir, &content, mode)), QcdSecretFault::Open { mode });
        }
        assert_eq!(why(File::open(dir.path()).unwrap()), QcdSecretFault::NotRegular);
        assert_eq!(why(File::open("/dev/null").unwrap()), QcdSecretFault::NotRegular);
        let said = fault(Path::new("/x"), QcdSecretFault::Open { mode: 0o644 }).to_string();
        assert!(
            said.contains("peers get no QCD tokens: others may read or write the secret /x (mode 644)"),
            "{said}"
        );
    }
}
