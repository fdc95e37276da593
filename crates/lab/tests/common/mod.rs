//! What the tests of the laboratory share.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod commands;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ironswan_lab::Common;
use ironswan_lab::record::{Factors, Record, Sample, Which};
use ironswan_lab::report;
use ironswan_lab::topology::Owner;
use ironswan_testkit::outdated::newer_source;

/// Fails, with the reason, where no namespaces can be made.
pub fn assert_root() {
    assert!(rustix::process::geteuid().is_root(), "this test builds network namespaces and must run as root");
}

/// A name for the namespaces of a test.
pub fn owner() -> Owner {
    assert_root();
    Owner::claim().expect("a name")
}

/// Tests may read the clock.
#[allow(clippy::disallowed_methods, reason = "tests measure and wait")]
pub fn now() -> Instant {
    Instant::now()
}

/// The program, in the folder where cargo puts it or in that of release builds; absent when only
/// this package was built, which may not be where everything is tested.
///
/// # Panics
/// Those that are there are all older than their source.
pub fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test's own path");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let folders = [folder, &folder.with_file_name("release")];
    let mut programs: Vec<_> =
        folders.map(|f| f.join("ironswan")).into_iter().filter(|p| p.exists()).collect();
    programs.dedup();
    if programs.is_empty() {
        assert!(
            std::env::var_os("CI").is_none(),
            "ironswan is not built: cargo build --release --bin ironswan"
        );
        eprintln!("ironswan is not built: left out");
        return None;
    }
    let source = source_of_program();
    let mut outdated = Vec::new();
    for program in programs {
        match newer_source(&program, &source) {
            None => return Some(program),
            Some(file) => outdated.push(format!("{} is older than {}", program.display(), file.display())),
        }
    }
    panic!("{}: cargo build --release --bin ironswan", outdated.join(", and "));
}

/// The source of everything that the program consists of: all packages but those of the other
/// programs.
fn source_of_program() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all packages");
    let entries = fs::read_dir(crates).expect("the packages").map(|e| e.expect("a package"));
    let others = ["lab", "pki-tool"];
    let of_program = entries.filter(|e| others.iter().all(|other| e.file_name() != *other));
    of_program.map(|e| e.path().join("src")).collect()
}

/// A folder for a run, of this process and of that name; where nobody else cleans up.
pub fn out(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(folder).expect("a folder for tests");
    folder.join(format!("ironlab-test-{name}-{}", std::process::id()))
}

/// The folder of published runs: `docs/results`.
pub fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

/// The published runs, unpacked into a folder that is removed at the end.
pub struct Published(PathBuf);

impl Published {
    /// Unpacks all archives.
    pub fn unpacked(name: &str) -> Self {
        let folder = out(name);
        fs::create_dir_all(&folder).expect("a folder");
        for archive in fs::read_dir(results()).expect("docs/results").map(|f| f.expect("a file").path()) {
            if archive.extension().is_some_and(|e| e == "xz") {
                let status = Command::new("tar")
                    .arg("-xJf")
                    .arg(&archive)
                    .arg("-C")
                    .arg(&folder)
                    .status()
                    .expect("tar");
                assert!(status.success(), "{}: tar ended with {status}", archive.display());
            }
        }
        Self(folder)
    }

    /// The folder of a run.
    pub fn run(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of all runs, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the runs").map(|e| e.expect("a run").file_name());
        let mut names: Vec<String> = entries.map(|n| n.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a second program says of the run in a folder, and its exit status: 0 when it comes to the
/// same figures.
pub fn recompute(folder: &Path) -> (Option<i32>, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/laboratory/recompute.py");
    let done = Command::new("python3").arg(program).arg(folder).output().expect("python3");
    let said = [done.stdout, done.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    (done.status.code(), said)
}

/// A second program comes to the same figures of the run in a folder, which is removed; what it
/// said.
pub fn recomputed(folder: &Path) -> String {
    let (status, said) = recompute(folder);
    assert_eq!(status, Some(0), "{}: {said}", folder.display());
    fs::remove_dir_all(folder).expect("the folder of a run");
    said
}

/// Options of the shortest run of these systems.
pub fn common(name: &str, duts: &[&str]) -> Common {
    assert_root();
    let duts = duts.iter().map(ToString::to_string).collect();
    Common { duts, smoke: true, out: Some(out(name)), ..Common::default() }
}

/// The same of plain forwarding and, when the program is built, of ironswan.
pub fn common_with_program(name: &str) -> Common {
    let mut common = common(name, &["plain"]);
    common.dut_options.ironswan = program();
    common.duts.extend(common.dut_options.ironswan.iter().map(|_| "ironswan".to_string()));
    common
}

/// A cost of a sample; 0 where there were too few clock ticks for one, which the sample then says.
pub fn cost(sample: &Sample, name: &str) -> f64 {
    let too_short = sample.absent.contains_key(name);
    assert_ne!(sample.measures.contains_key(name), too_short, "{name}: {sample:?}");
    sample.measures.get(name).copied().unwrap_or(0.0)
}

/// What holds for every record of such a run with packets.
pub fn sound(record: &Record) {
    assert_eq!(record.faults(), [""; 0]);
    for sample in &record.samples {
        for (name, value) in &sample.measures {
            assert!(value.is_finite() && *value >= 0.0, "{name} of {sample:?}");
        }
        for share in ["loss", "busy", "of_peak"] {
            assert!(sample.measures.get(share).is_none_or(|v| *v <= 1.0), "{share} of {sample:?}");
        }
    }
    assert!(record.warnings.iter().any(|w| w.kind == "smoke"));
    assert!(
        !record
            .warnings
            .iter()
            .any(|w| ["unprotected", "fragments", "wrong-packets"].contains(&w.kind.as_str())),
        "{:?}",
        record.warnings
    );
}

/// A soaker was at work in such a run: its share stands beside that of accounting in every figure
/// with these factors, and where the two disagree a warning says so.
pub fn soaked(record: &Record, of: &[Factors]) {
    assert!(record.settings["soaker"].contains("units/s"), "{:?}", record.settings);
    let mut apart = 0;
    for of in of {
        let figure = record.figures_with(of).next().unwrap_or_else(|| panic!("no figure of {of:?}"));
        let number =
            |name: &str| figure.number(name, Which::Median).unwrap_or_else(|| panic!("no {name} of {of:?}"));
        let [kernel, soaker, explained] = ["busy_kernel", "busy_soaker", "busy_apart"].map(number);
        assert!([kernel, soaker, explained].iter().all(|share| (0.0..=1.0).contains(share)), "{figure:?}");
        apart += usize::from((kernel - soaker).abs() > explained);
    }
    let warned = record.warnings.iter().filter(|w| w.kind == "accounting").count();
    assert!(warned >= apart, "{apart} disagree: {:?}", record.warnings);
    let text = report::record_text(record, 120);
    assert!(text.contains("Busy processors, by accounting and by a soaker"), "{text}");
}

/// Names under which the run that made these commands did so: those of owners of this process,
/// without the topology's number and the box. Tests of one process run side by side, and what the
/// others have at the moment is not left over.
fn owners(commands: &[String]) -> BTreeSet<String> {
    let prefix = format!("ironlab-{}-", std::process::id());
    let words = commands.iter().flat_map(|c| c.split(|c: char| c.is_whitespace() || "/'\"".contains(c)));
    // ironlab, process, start time, eight digits.
    let name = |word: &str| word.splitn(5, '-').take(4).collect::<Vec<_>>().join("-");
    words.filter(|w| w.starts_with(&prefix)).map(name).collect()
}

/// Namespaces, control groups and files under a name that begins so.
pub fn made_by(name: &str) -> Vec<String> {
    let places = ["/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/dev/shm"].map(PathBuf::from);
    let in_place = |place: &Path| -> Vec<String> {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok());
        names.filter(|n| n.starts_with(name)).map(|n| place.join(n).display().to_string()).collect()
    };
    places.iter().chain([&std::env::temp_dir()]).flat_map(|place| in_place(place)).collect()
}

/// What is left of the run that made these commands.
pub fn left(commands: &[String]) -> Vec<String> {
    let owners = owners(commands);
    assert!(!owners.is_empty(), "no command names what the run made: {commands:?}");
    owners.iter().flat_map(|owner| made_by(owner)).collect()
}

/// Processes whose command lines name what the run made that made these commands.
pub fn processes_with(commands: &[String]) -> Vec<String> {
    let owners = owners(commands);
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| owners.iter().any(|owner| line.contains(owner))).collect()
}
