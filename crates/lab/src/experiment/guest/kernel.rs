//! Debian's kernel for the guest: its package is fetched once into a cache and unpacked there, not
//! installed. The shell of the guest's first moments comes the same way.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;

use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};

/// The package that names the newest kernel. Not the cloud flavour, which lacks 9p.
const NEWEST: &str = "linux-image-amd64";
const SHELL: &str = "busybox-static";
/// Folders of modules that are kept.
const KEPT: [&str; 5] = ["arch", "crypto", "lib", "net", "fs"];
const KEPT_DRIVERS: [&str; 4] = ["net", "virtio", "char", "crypto"];
/// Modules that the guest needs before it has any others.
const FIRST: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];
/// Bytes that the packages take while they are unpacked.
const ROOM: u64 = 700 << 20;
const FETCH: Duration = Duration::from_secs(600);
const UNPACK: Duration = Duration::from_secs(300);

/// A kernel in the cache.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its folder: `boot` and `lib/modules`.
    pub root: PathBuf,
    pub version: String,
    pub image: PathBuf,
    pub busybox: PathBuf,
}

impl Kernel {
    /// The one in the cache, fetched when there is none.
    pub(super) fn fetched() -> Result<Self, LabError> {
        let cache = cache()?;
        let mut cached = Self::cached(&cache);
        if cached.is_none() {
            fetch(&cache)?;
            cached = Self::cached(&cache);
        }
        cached.ok_or_else(|| lacks(format!("{} has no kernel after it was fetched", cache.display()), &cache))
    }

    /// The newest that is whole.
    fn cached(cache: &Path) -> Option<Self> {
        let folders = fs::read_dir(cache).ok()?.flatten();
        let mut found: Vec<PathBuf> = folders
            .filter(|f| f.file_name().to_string_lossy().starts_with("linux-"))
            .map(|f| f.path())
            .collect();
        found.sort_by_key(|root| numbers(&root.to_string_lossy()));
        found.into_iter().rev().find_map(|root| {
            let version = root.file_name()?.to_str()?.strip_prefix("linux-")?.to_string();
            let kernel = Self {
                image: root.join("boot").join(format!("vmlinuz-{version}")),
                busybox: root.join("bin/busybox"),
                version,
                root,
            };
            let index = kernel.root.join("lib/modules").join(&kernel.version).join("modules.dep");
            [&kernel.image, &kernel.busybox, &index].iter().all(|f| f.is_file()).then_some(kernel)
        })
    }

    /// The modules that the guest begins with, each after those that it needs.
    pub(super) fn modules(&self) -> Result<Vec<PathBuf>, LabError> {
        let folder = self.root.join("lib/modules").join(&self.version);
        let index = folder.join("modules.dep");
        let text =
            fs::read_to_string(&index).map_err(LabError::io(format!("reading {}", index.display())))?;
        let all = FIRST.iter().try_fold(Vec::new(), |mut all: Vec<PathBuf>, name| {
            for module in chain(&text, name)? {
                let path = folder.join(module);
                if !all.contains(&path) {
                    all.push(path);
                }
            }
            Some(all)
        });
        all.ok_or_else(|| {
            lacks(
                format!("the kernel in {} lacks one of {}", self.root.display(), FIRST.join(", ")),
                &self.root,
            )
        })
    }
}

/// The numbers in a version, in their order: 6.1.0-9 comes before 6.1.0-10.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// A module's file by its name in `modules.dep`, after all that it needs; `None` when it is not
/// there.
fn chain<'a>(index: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let of = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split('.').next().unwrap_or_default().replace('-', "_")
    };
    let (own, needs) = index.lines().filter_map(|l| l.split_once(':')).find(|(path, _)| of(path) == name)?;
    // depmod writes the one that is needed last first.
    Some(needs.split_whitespace().rev().chain([own]).collect())
}

/// The cache: of the machine for root, else of the user. Never a folder where somebody else could
/// put a kernel first.
fn cache() -> Result<PathBuf, LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/cache/ironswan-lab".into());
    }
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    base.map(|base| base.join("ironswan-lab")).ok_or_else(|| {
        let lack =
            "neither XDG_CACHE_HOME nor HOME names a folder, so there is no place for the guest's kernel";
        LabError::Unfit(vec![Remedy::new(lack, "set HOME")])
    })
}

fn lacks(lack: String, remove: &Path) -> LabError {
    let action = format!("remove {} and run it again: it will be fetched anew", remove.display());
    LabError::Unfit(vec![Remedy::new(lack, action)])
}

/// What the folder of an unfinished fetch begins with; the process that fetches follows.
const UNFINISHED: &str = "unfinished-";

/// A folder that is removed unless it has become something else.
struct Unfinished(PathBuf);

/// Removes what fetches have left that were killed.
fn remove_abandoned(cache: &Path) {
    for folder in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED)?.parse::<u32>().ok());
        if process.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Fetches the packages and unpacks what is needed of them.
fn fetch(cache: &Path) -> Result<(), LabError> {
    let tools = [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod")];
    let missing: Vec<Remedy> = tools
        .iter()
        .filter(|(tool, _)| process::find(tool).is_none())
        .map(|(tool, package)| {
            Remedy::new(
                format!("`{tool}` is not installed: Debian's kernel cannot be fetched or unpacked"),
                format!("apt-get install {package}, or use a Debian machine"),
            )
        })
        .collect();
    if !missing.is_empty() {
        return Err(LabError::Unfit(missing));
    }
    remove_abandoned(cache);
    let work = Unfinished(cache.join(format!("{UNFINISHED}{}", std::process::id())));
    let folder = work.0.join("packages");
    fs::create_dir_all(&folder).map_err(LabError::io(format!("creating {}", folder.display())))?;
    has_room(&folder)?;
    let package = newest()?;
    let journal = Journal::default();
    let script = format!(
        "cd {} && exec env LC_ALL=C apt-get download {}",
        process::quoted(&[folder.to_string_lossy()]),
        process::quoted(&[package.as_str(), SHELL])
    );
    process::run(&journal, &["sh", "-c", &script], FETCH).map_err(|e| match e {
        LabError::Interrupted => e,
        e => LabError::Unfit(vec![Remedy::new(
            format!("Debian's packages {package} and {SHELL} cannot be had: {e}"),
            "run `apt-get update`, and look whether this machine reaches its package mirror",
        )]),
    })?;
    let version = package.trim_start_matches("linux-image-").to_string();
    let root = work.0.join("root");
    let packages = fs::read_dir(&folder).map_err(LabError::io(format!("listing {}", folder.display())))?;
    for package in packages.flatten().map(|p| p.path()) {
        let argv = ["dpkg-deb", "-x", &package.to_string_lossy(), &root.to_string_lossy()];
        process::run(&journal, &argv, UNPACK)?;
        // Room for the next.
        let _ = fs::remove_file(&package);
    }
    prune(&root, &version);
    process::run(&journal, &["depmod", "-b", &root.to_string_lossy(), &version], UNPACK)?;
    let place = cache.join(format!("linux-{version}"));
    match fs::rename(&root, &place) {
        // Another run was faster.
        Err(_) if place.is_dir() => Ok(()),
        done => done.map_err(LabError::io(format!("putting the kernel into {}", place.display()))),
    }
}

/// An error unless the packages can be unpacked in `folder`.
fn has_room(folder: &Path) -> Result<(), LabError> {
    let Ok(disk) = statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= ROOM {
        return Ok(());
    }
    Err(LabError::Unfit(vec![Remedy::new(
        format!(
            "{} has room for {} MB, and a kernel takes {} to unpack",
            folder.display(),
            free >> 20,
            ROOM >> 20
        ),
        "free some, or mount a larger disk there",
    )]))
}

/// The package of the newest kernel.
fn newest() -> Result<String, LabError> {
    // In other languages its words are translated.
    let argv = ["env", "LC_ALL=C", "apt-cache", "depends", NEWEST];
    let text = match process::run(&Journal::default(), &argv, Duration::from_secs(60)) {
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        text => text.ok(),
    };
    text.and_then(|t| first_dependency(&t)).ok_or_else(|| {
        LabError::Unfit(vec![Remedy::new(
            format!("apt knows no package {NEWEST}"),
            "run `apt-get update` on a Debian machine with an amd64 processor",
        )])
    })
}

/// The first package that `apt-cache depends` names, if it is a kernel's.
fn first_dependency(text: &str) -> Option<String> {
    let name = text.lines().find_map(|l| l.trim().strip_prefix("Depends: "))?;
    let is_of_names = |b: u8| b.is_ascii_alphanumeric() || b"+-.~".contains(&b);
    (name.starts_with("linux-image-") && name.bytes().all(is_of_names)).then(|| name.to_string())
}

/// Removes the modules that no guest of ours loads: most of the package.
fn prune(root: &Path, version: &str) {
    let modules = root.join("lib/modules").join(version).join("kernel");
    let all_but = |folder: &Path, kept: &[&str]| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !kept.iter().any(|k| entry.file_name() == *k) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    };
    all_but(&modules.join("drivers"), &KEPT_DRIVERS);
    all_but(&modules.join("drivers/net"), &["wireguard"]);
    let kept: Vec<&str> = KEPT.into_iter().chain(["drivers"]).collect();
    all_but(&modules, &kept);
    // `tun` and `veth` are files there.
    let _ = fs::remove_dir_all(root.join("usr/share"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_one_of_the_largest_numbers() {
        let mut all = ["linux-6.1.0-9-amd64", "linux-6.12.1-1-amd64", "linux-6.1.0-10-amd64"];
        all.sort_by_key(|version| numbers(version));
        assert_eq!(all, ["linux-6.1.0-9-amd64", "linux-6.1.0-10-amd64", "linux-6.12.1-1-amd64"]);
    }

    #[test]
    fn what_a_killed_fetch_has_left_is_removed_and_what_is_being_fetched_stays() {
        let cache = std::env::temp_dir().join(format!("ironswan-guest-cache-{}", std::process::id()));
        // No process has the largest number.
        let names = [format!("{UNFINISHED}{}", std::process::id()), format!("{UNFINISHED}{}", u32::MAX)];
        let [own, left] = names.map(|name| cache.join(name));
        let kernel = cache.join("linux-6.1.0-9-amd64");
        for folder in [&own, &left, &kernel] {
            fs::create_dir_all(folder.join("root")).expect("a folder");
        }
        remove_abandoned(&cache);
        assert_eq!([&own, &left, &kernel].map(|folder| folder.exists()), [true, false, true]);
        fs::remove_dir_all(&cache).expect("removed");
    }

    const INDEX: &str = "kernel/fs/9p/9p.ko: kernel/fs/fscache/fscache.ko kernel/fs/netfs/netfs.ko kernel/net/9p/9pnet.ko\n\
                         kernel/net/9p/9pnet.ko:\n\
                         kernel/drivers/virtio/virtio-ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz\n";

    #[test]
    fn a_module_comes_after_those_that_it_needs() {
        let wanted = [
            "kernel/net/9p/9pnet.ko",
            "kernel/fs/netfs/netfs.ko",
            "kernel/fs/fscache/fscache.ko",
            "kernel/fs/9p/9p.ko",
        ];
        assert_eq!(chain(INDEX, "9p").expect("9p"), wanted);
        assert_eq!(chain(INDEX, "9pnet").expect("9pnet"), ["kernel/net/9p/9pnet.ko"]);
        assert_eq!(chain(INDEX, "virtio_ring").expect("compressed").len(), 2);
        assert_eq!(chain(INDEX, "overlay"), None);
    }

    #[test]
    fn the_newest_kernel_is_the_one_that_the_package_depends_on() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Recommends: x\n";
        assert_eq!(first_dependency(text).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(first_dependency("linux-image-amd64\n  Depends: ; rm -rf /\n"), None);
        assert_eq!(first_dependency("linux-image-amd64\n  Depends: linux-image-6.1; rm -rf /\n"), None);
        assert_eq!(first_dependency(""), None);
    }

    #[test]
    fn a_kernel_that_is_not_whole_is_none() {
        let cache = std::env::temp_dir().join(format!("ironlab-kernels-{}", std::process::id()));
        let make = |file: &str| {
            let path = cache.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
            fs::write(path, "").expect("file");
        };
        assert!(Kernel::cached(&cache).is_none());
        make("linux-6.1/boot/vmlinuz-6.1");
        make("linux-6.1/bin/busybox");
        assert!(Kernel::cached(&cache).is_none());
        make("linux-6.1/lib/modules/6.1/modules.dep");
        let kernel = Kernel::cached(&cache).expect("whole");
        assert_eq!(kernel.version, "6.1");
        assert!(kernel.modules().expect_err("no modules").to_string().contains("lacks one of"));
        fs::remove_dir_all(&cache).expect("removed");
    }
}
