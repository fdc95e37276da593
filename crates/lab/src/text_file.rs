//! Reads a file that somebody names or has sent, which may be anything: nothing is waited for, and
//! no more is read than it may have.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// A regular file, opened without waiting for anything.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(crate) fn open(path: &Path) -> Result<File> {
    // What is no regular file may do something when it is opened.
    regular(std::fs::metadata(path)?.is_file())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// It cannot be read, is no regular file, is no text in UTF-8, or has more bytes
/// ([`ErrorKind::FileTooLarge`]).
pub(crate) fn read(path: &Path, most: u64) -> Result<String> {
    let file = open(path)?;
    let mut text = String::new();
    // The length that a file says it has may not be true, as in /proc.
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(text)
}

fn regular(is_file: bool) -> Result<()> {
    if is_file { Ok(()) } else { Err(Error::new(ErrorKind::InvalidInput, "it is no regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_too_long_is_refused_at_once() {
        let own = std::env::temp_dir().join(format!("ironswan-text-file-{}", std::process::id()));
        std::fs::write(&own, "12345").expect("written");
        assert_eq!(read(&own, 5).expect("text"), "12345");
        assert_eq!(read(&own, 4).expect_err("too long").kind(), ErrorKind::FileTooLarge);
        for (path, kind) in [
            ("/dev/zero", ErrorKind::InvalidInput),
            ("/proc", ErrorKind::InvalidInput),
            ("/nowhere/at-all", ErrorKind::NotFound),
        ] {
            assert_eq!(read(Path::new(path), 100).expect_err(path).kind(), kind);
        }
        // Its length is 0 as it says, and it has more.
        assert_eq!(read(Path::new("/proc/self/maps"), 10).expect_err("long").kind(), ErrorKind::FileTooLarge);
        std::fs::remove_file(&own).expect("removed");
    }
}
