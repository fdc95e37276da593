//! The archive that the guest begins with: a shell, the modules that it needs to reach this
//! machine's files, and an `init` that puts a layer of memory over them.

use std::fs;
use std::path::{Path, PathBuf};

use super::kernel::Kernel;
use crate::error::LabError;

/// Folders that `init` mounts on.
const FOLDERS: [&str; 9] = ["bin", "modules", "proc", "sys", "dev", "host", "kernel", "memory", "root"];

/// Mounts this machine's files read only below a layer of memory, the kernel's modules and the
/// orders beside them, and starts the script `inside` there.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b ln -s /proc/self/fd /dev/fd
for n in 0:stdin 1:stdout 2:stderr; do $b ln -s fd/${n%:*} /dev/${n#*:}; done
$b mkdir -p /dev/shm /dev/pts && $b mount -t tmpfs shm /dev/shm && $b mount -t devpts pts /dev/pts
for m in /modules/*; do $b insmod "$m"; done
o=trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro
$b mount -t 9p -o $o root /host || exit 1
$b mount -t tmpfs memory /memory && $b mkdir /memory/upper /memory/work || exit 1
$b mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root || exit 1
$b mount -t tmpfs run /root/run && $b mkdir /root/run/job || exit 1
$b mount -t 9p -o $o job /root/run/job || exit 1
$b mount -t 9p -o $o kernel /kernel || exit 1
$b mkdir -p /root/lib/modules
$b mount --bind /kernel/lib/modules /root/lib/modules || exit 1
for d in proc sys dev; do $b mount --move /$d /root/$d; done
exec $b switch_root /root /bin/sh /run/job/inside
"#;

/// Writes the archive into `dir`; its path.
pub(super) fn write(kernel: &Kernel, dir: &Path) -> Result<PathBuf, LabError> {
    let read = |path: &Path| fs::read(path).map_err(LabError::io(format!("reading {}", path.display())));
    let mut archive = Archive::default();
    FOLDERS.iter().for_each(|folder| archive.folder(folder));
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", &read(&kernel.busybox)?);
    for (n, module) in kernel.modules()?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        // In the order in which they are loaded.
        archive.file(&format!("modules/{n:02}-{name}"), &read(module)?);
    }
    let path = dir.join("initramfs");
    fs::write(&path, archive.end()).map_err(LabError::io(format!("writing {}", path.display())))?;
    Ok(path)
}

/// A cpio archive of the format `newc`, as the kernel reads it (its documentation:
/// driver-api/early-userspace/buffer-format).
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    fn file(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, 0o100_755, contents);
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // Inode, mode, user, group, links, time, size, two numbers of each of two devices, size of
        // the name, no sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|f| self.bytes.extend(format!("{f:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_each_entry_at_a_multiple_of_four_and_ends_with_the_trailer() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/x", b"hello");
        let bytes = archive.end();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).expect("only letters here");
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(starts.len() == 3 && starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        let file = &text[starts[1]..starts[2]];
        assert_eq!(&file[14..22], "000081ed");
        assert_eq!((&file[54..62], &file[94..102]), ("00000005", "00000006"));
        // The name ends where the contents may begin.
        assert_eq!(&file[110..], "bin/x\0hello\0\0\0");
        assert!(text[starts[2]..].contains("TRAILER!!!"));
    }

    #[test]
    fn every_folder_of_init_is_in_the_archive() {
        for line in INIT.lines().filter(|l| l.contains("mount -t")) {
            let target = line.split(" || ").next().and_then(|l| l.split(" && ").next()).unwrap_or_default();
            let target = target.rsplit(' ').next().unwrap_or_default().trim_start_matches('/');
            let first = target.split('/').next().unwrap_or_default();
            assert!(FOLDERS.contains(&first), "{line}");
        }
    }
}
