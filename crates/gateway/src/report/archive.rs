//! A tar archive of the kind `ustar` (POSIX.1-1988), compressed with gzip, and the file that it is
//! written to: all of it or nothing.
//!
//! ```text
//! header 512: name 100, mode 8, uid 8, gid 8, size 12, mtime 12, checksum 8, type 1, link 100,
//!             "ustar" NUL "00", names 64, device 16, prefix 155, padding 12
//! then:       bytes, padding to 512
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use libdeflater::{CompressionLvl, Compressor};

use super::Entry;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Longest name, and longest prefix of one, in bytes.
const NAME: usize = 100;
const PREFIX: usize = 155;
/// Level of compression: text becomes a tenth, and more effort gains little.
const LEVEL: i32 = 6;

/// Packs entries below one folder. Names that are too long are numbered.
///
/// # Errors
/// The library does not compress.
pub fn pack(folder: &str, entries: &[Entry], now: SystemTime) -> Result<Vec<u8>, String> {
    let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut tar = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        let path = format!("{folder}/{}", safe(&entry.name));
        let header = header(&path, entry.text.len(), time)
            .or_else(|| header(&format!("{folder}/long-names/{n}"), entry.text.len(), time));
        tar.extend(header.ok_or("the name of the archive is too long")?);
        tar.extend_from_slice(&entry.text);
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    let level = CompressionLvl::new(LEVEL).unwrap_or_default();
    let mut compressor = Compressor::new(level);
    let mut out = vec![0; compressor.gzip_compress_bound(tar.len())];
    let len =
        compressor.gzip_compress(&tar, &mut out).map_err(|e| format!("it cannot be compressed: {e}"))?;
    out.truncate(len);
    Ok(out)
}

/// A path that stays below its folder, in characters that every tar knows.
fn safe(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+@#[]".contains(c);
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let parts = name.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    parts.collect::<Vec<_>>().join("/")
}

/// `None`: the path is too long.
fn header(path: &str, size: usize, time: u64) -> Option<[u8; BLOCK]> {
    let (prefix, name) = if path.len() <= NAME {
        ("", path)
    } else {
        let at = path.match_indices('/').map(|(at, _)| at).find(|at| path.len() - at - 1 <= NAME)?;
        (&path[..at], &path[at + 1..])
    };
    if prefix.len() > PREFIX {
        return None;
    }
    let mut h = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| h[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{time:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    put(345, prefix.as_bytes());
    let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
    h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(h)
}

/// Writes a file that only its owner may read, and that is not there before it is whole. A regular
/// file of that name is replaced.
///
/// # Errors
/// A sentence with what to do. Nothing is left behind then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() => {
            return Err(format!("{shown} is there and is no regular file; name another one with -o"));
        }
        Ok(_) | Err(_) => {}
    }
    let mut name =
        path.file_name().ok_or_else(|| format!("{shown} names no file; write one with -o"))?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let done = write_part(&part, bytes).and_then(|()| fs::rename(&part, path));
    done.map_err(|e| {
        let _ = fs::remove_file(&part);
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let remedy = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!(
                    "the disk is full: make room (`df -h {}`), or name a file elsewhere with -o",
                    folder.display()
                )
            }
            io::ErrorKind::NotFound => {
                format!("there is no folder {}: make it, or name a file elsewhere with -o", folder.display())
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                format!("files cannot be made in {} ({e}): name a file elsewhere with -o", folder.display())
            }
            _ => format!("{e}; name a file elsewhere with -o"),
        };
        format!("{shown} was not written: {remedy}")
    })
}

fn write_part(part: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use ironswan_testkit::scratch::Scratch;

    use super::*;

    #[test]
    fn tar_reads_what_was_packed() {
        let dir = Scratch::new();
        let long = format!("config/{}/{}.conf", "d".repeat(90), "f".repeat(80));
        let endless = "x".repeat(400);
        let entries = [
            Entry::new("a.txt", "hello\n"),
            Entry::new("../../etc/pass wd", vec![7; 513]),
            Entry::new(long.clone(), ""),
            Entry::new(endless, "last"),
        ];
        let bytes = pack("report", &entries, UNIX_EPOCH).expect("an archive");
        let file = dir.path().join("r.tar.gz");
        write(&file, &bytes).expect("a file");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
        let run = |args: &[&str]| {
            let output = Command::new("tar").args(args).current_dir(dir.path()).output().expect("tar");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let names = run(&["-tzf", "r.tar.gz"]);
        let want = format!("report/a.txt\nreport/etc/pass_wd\nreport/{long}\nreport/long-names/3\n");
        assert_eq!(names, want);
        run(&["-xzf", "r.tar.gz"]);
        assert_eq!(fs::read(dir.path().join("report/etc/pass_wd")).expect("it is there"), vec![7; 513]);
        assert_eq!(fs::read_to_string(dir.path().join("report/long-names/3")).expect("it is there"), "last");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_and_says_what_to_do() {
        let dir = Scratch::new();
        let said = |path: &Path| write(path, b"x").expect_err("it cannot be written");
        assert!(said(&dir.path().join("no/such")).contains("there is no folder"));
        assert!(said(dir.path()).contains("no regular file"));
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert!(said(&pipe).contains("no regular file; name another one with -o"));
        assert!(said(Path::new("/dev/full")).contains("no regular file"));
        let left: Vec<_> =
            fs::read_dir(dir.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["pipe"]);
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_as_it_was() {
        let dir = Scratch::new();
        let body = || {
            ironswan_io::namespace::unshare_with_mounts().expect("these tests need root: they mount");
            let mount =
                |args: &[&str]| assert!(Command::new("mount").args(args).status().expect("mount").success());
            mount(&["--make-rprivate", "/"]);
            mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs", dir.path().to_str().expect("a path")]);
            let file = dir.path().join("r");
            write(&file, b"old").expect("it fits");
            let why = write(&file, &vec![1; 1 << 20]).expect_err("it does not fit");
            assert!(why.contains("the disk is full") && why.contains("df -h"), "{why}");
            assert_eq!(fs::read(&file).expect("it is there"), b"old");
            assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
        };
        std::thread::scope(|s| s.spawn(body).join()).expect("the test's thread");
    }
}
