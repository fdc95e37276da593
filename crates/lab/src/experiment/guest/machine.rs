//! The QEMU process, and the lines that the guest writes to its serial ports.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::kernel::Kernel;
use super::orders::Message;
use crate::clock;
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::measure::account_of;
use crate::process::{self, Journal, Process};

const QEMU: &str = "qemu-system-x86_64";
/// The guest's processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processor {
    /// QEMU's name of the model.
    pub model: &'static str,
    /// An instruction takes 2^shift nanoseconds of the guest's clock.
    pub shift: u32,
}

impl Processor {
    /// Everything that QEMU emulates, an instruction a nanosecond.
    pub(super) const USUAL: Self = Self { model: "max", shift: 0 };
    /// 64 bits without instructions for AES, 31 million instructions a second.
    pub(super) const LIKE_486: Self = Self { model: "Nehalem", shift: 5 };
    /// The same with 62 million.
    pub(super) const LIKE_PENTIUM: Self = Self { shift: 4, ..Self::LIKE_486 };

    /// 10^6 instructions a second.
    pub(super) fn millions(self) -> f64 {
        1e3 / f64::from(1 << self.shift)
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, shift } = self;
        write!(f, "one, emulated (QEMU's TCG, -cpu {model}), an instruction in {} ns", 1 << shift)
    }
}

/// From the start until the guest's first message.
const BOOT: Duration = Duration::from_secs(300);
/// From one message to the next.
const SILENCE: Duration = Duration::from_secs(600);
/// A guest that other programs keep from the processors has so many times as long.
const KEPT_WAITING: u32 = 3;
/// It is not kept from them when it has had at least this share of the time.
const SHARE: f64 = 0.25;
const LOOK: Duration = Duration::from_millis(100);
/// Lines of the console that a failure shows.
const TAIL: usize = 8;

/// What this machine lacks to run a guest.
pub(super) fn lacks() -> Vec<Remedy> {
    let lack = |(program, package): &(&str, &str)| {
        process::find(program).is_none().then(|| {
            Remedy::new(format!("`{program}` is not installed"), format!("apt-get install {package}"))
        })
    };
    [(QEMU, "qemu-system-x86"), ("setpriv", "util-linux"), ("modprobe", "kmod")]
        .iter()
        .filter_map(lack)
        .collect()
}

/// Version of QEMU.
pub(super) fn version() -> Option<String> {
    let done = process::run_regardless(&[QEMU, "--version"], Duration::from_secs(20)).ok()?;
    done.stdout.lines().next().map(|l| l.trim().trim_start_matches("QEMU emulator version ").to_string())
}

/// A guest at work; dropping it ends it.
pub(super) struct Guest {
    process: Process,
    journal: Journal,
    console: PathBuf,
    lines: Lines,
    /// When it last spoke, and the processor time that QEMU had used by then.
    spoke: (Instant, Duration),
    has_booted: bool,
}

impl Guest {
    /// Boots it. `dir` has the orders, and gets what the guest writes.
    pub(super) fn boot(
        processor: Processor,
        kernel: &Kernel,
        archive: &Path,
        dir: &Path,
    ) -> Result<Self, LabError> {
        let script = dir.join("inside");
        fs::write(&script, self::script()?).map_err(LabError::io(format!("writing {}", script.display())))?;
        let (console, output) = (dir.join("console"), dir.join("output"));
        // Of the guest before.
        for file in [&console, &output] {
            let _ = fs::remove_file(file);
        }
        let journal = Journal::default();
        let argv = command(processor, kernel, archive, dir, [&console, &output]);
        let process = Process::start(&journal, "the guest", &argv, &dir.join("qemu.log"))?;
        let spoke = (clock::now(), Duration::ZERO);
        Ok(Self { process, journal, console, lines: Lines::of(output), spoke, has_booted: false })
    }

    /// The guest's next message.
    pub(super) fn next(&mut self) -> Result<Message, LabError> {
        loop {
            // Asked before the last look at what it has written.
            let ended = self.process.ended();
            while let Some(line) = self.lines.next()? {
                if let Some(message) = Message::parse(&line) {
                    self.spoke = (clock::now(), self.used());
                    self.has_booted = true;
                    return Ok(message);
                }
            }
            if let Some(status) = ended {
                return Err(self.failed(&format!("it ended before it had measured ({status})")));
            }
            let silent = clock::now() - self.spoke.0;
            let limit = if self.has_booted { SILENCE } else { BOOT };
            if is_too_late(silent, self.used().saturating_sub(self.spoke.1), limit) {
                let silent = silent.as_secs();
                let why = if self.has_booted {
                    format!("it said nothing for {silent} s")
                } else {
                    format!(
                        "it did not boot within {silent} s; run it again on a machine with less to do, or remove the kernel's folder \
                         in the cache so that a newer one is fetched"
                    )
                };
                return Err(self.failed(&why));
            }
            interrupt::pause(LOOK)?;
        }
    }

    /// Processor time of QEMU.
    fn used(&self) -> Duration {
        Duration::from_nanos(account_of(self.process.id()).unwrap_or_default().ns)
    }

    /// The commands that started it.
    pub(super) fn commands(&self) -> Vec<String> {
        self.journal.lines()
    }

    /// The error of this guest, with the end of what it and QEMU wrote.
    pub(super) fn failed(&self, why: &str) -> LabError {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<String> = text.lines().map(|l| l.trim_end().to_string()).collect();
        let console =
            LogTail { of: "its console".into(), lines: lines[lines.len().saturating_sub(TAIL)..].to_vec() };
        let qemu = LogTail { of: "QEMU".into(), ..self.process.tail(TAIL) };
        let logs = [console, qemu].into_iter().filter(|l| !l.lines.is_empty()).collect();
        LabError::Dut { dut: "the guest".into(), why: why.into(), logs }
    }
}

/// Whether a guest that has been silent for so long, in which it `used` so much processor time, has
/// to be given up.
fn is_too_late(silent: Duration, used: Duration, limit: Duration) -> bool {
    let was_at_work = used.as_secs_f64() >= SHARE * limit.as_secs_f64();
    silent > limit * KEPT_WAITING || silent > limit && was_at_work
}

/// What the guest's `init` starts.
fn script() -> Result<String, LabError> {
    let own = std::env::current_exe().map_err(LabError::io("looking for this program"))?;
    let own = fs::canonicalize(&own).unwrap_or(own);
    // Root's tools, and what the user's own PATH has besides.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("/usr/sbin:/usr/bin:/sbin:/bin:{path}");
    let [own, path] = [own.to_string_lossy().into_owned(), path].map(|w| process::quoted(&[w]));
    // What fits the processor, such as the kernel's AES by instructions, is loaded by udev
    // elsewhere.
    Ok(format!(
        "export PATH={path} HOME=/root\ncd /\nmodprobe \"$(cat /sys/devices/system/cpu/modalias)\"\nmodprobe -a tun veth xfrm_user esp4 wireguard\n\
         {own} inside /run/job >/dev/ttyS1\necho o >/proc/sysrq-trigger\nsleep 60\n"
    ))
}

fn command(
    processor: Processor,
    kernel: &Kernel,
    archive: &Path,
    dir: &Path,
    ports: [&Path; 2],
) -> Vec<String> {
    let text = |p: &Path| p.to_string_lossy().into_owned();
    // QEMU reads a comma in a path as the end of it, unless it is doubled.
    let value = |p: &Path| text(p).replace(',', ",,");
    let mut argv: Vec<String> = [
        // Ended with the laboratory, even if that is killed.
        "setpriv --pdeathsig KILL",
        QEMU,
        "-nodefaults -no-user-config -display none -no-reboot -machine pc -smp 1 -m 1024 -accel tcg",
    ]
    .iter()
    .flat_map(|words| words.split(' '))
    .map(String::from)
    .collect();
    // While the guest waits for a file of this machine its clock goes on as this machine's does:
    // with `sleep=off` it would jump to the next timer, and time limits would pass in no time.
    argv.extend(["-cpu".into(), processor.model.into()]);
    argv.extend(["-icount".into(), format!("shift={},sleep=on", processor.shift)]);
    argv.extend(["-kernel".into(), text(&kernel.image), "-initrd".into(), text(archive)]);
    argv.extend(["-append".into(), "console=ttyS0 tsc=reliable quiet panic=-1".into()]);
    for port in ports {
        argv.extend(["-serial".into(), format!("file:{}", text(port))]);
    }
    for (tag, folder) in [("root", Path::new("/")), ("kernel", &kernel.root), ("job", dir)] {
        let share =
            format!("local,id={tag},path={},readonly=on,security_model=none,multidevs=remap", value(folder));
        argv.extend(["-fsdev".into(), share]);
        argv.extend(["-device".into(), format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
    }
    argv
}

/// The whole lines of a file that grows.
struct Lines {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

/// The most that is kept of a line that does not end.
const LONGEST: usize = 4 << 20;

impl Lines {
    fn of(path: PathBuf) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// The next line, once all of it is there.
    fn next(&mut self) -> Result<Option<String>, LabError> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(None) };
        if !self.rest.contains(&b'\n') && self.rest.len() < LONGEST {
            file.read_to_end(&mut self.rest)
                .map_err(LabError::io(format!("reading {}", self.path.display())))?;
        }
        let Some(end) = self.rest.iter().position(|b| *b == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.rest.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line).trim().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_guest_that_others_keep_from_the_processors_is_given_more_time() {
        let seconds = Duration::from_secs;
        let late = |silent, used| is_too_late(seconds(silent), seconds(used), seconds(300));
        assert!(!late(300, 290) && late(301, 290) && late(301, 75));
        assert!(!late(301, 20) && !late(900, 74) && late(901, 0));
    }

    #[test]
    fn an_instruction_of_the_slow_processors_takes_as_long_as_they_are_named_for() {
        let all = [Processor::USUAL, Processor::LIKE_486, Processor::LIKE_PENTIUM];
        assert_eq!(all.map(Processor::millions), [1000.0, 31.25, 62.5]);
        assert!(Processor::LIKE_486.to_string().ends_with("-cpu Nehalem), an instruction in 32 ns"));
    }

    #[test]
    fn a_line_is_read_once_it_is_whole() {
        let path = std::env::temp_dir().join(format!("ironlab-lines-{}", std::process::id()));
        let mut lines = Lines::of(path.clone());
        assert_eq!(lines.next().expect("no file yet"), None);
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"one\r\ntw").expect("written");
        assert_eq!(lines.next().expect("one").as_deref(), Some("one"));
        assert_eq!(lines.next().expect("a part"), None);
        file.write_all(b"o\nthree\n").expect("written");
        let rest: Vec<_> = std::iter::from_fn(|| lines.next().expect("read")).collect();
        assert_eq!(rest, ["two", "three"]);
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn qemu_ends_with_the_laboratory_and_writes_none_of_this_machines_files() {
        let kernel = Kernel {
            root: "/cache/linux-6.1".into(),
            version: "6.1".into(),
            image: "/cache/linux-6.1/boot/vmlinuz-6.1".into(),
            busybox: "/cache/linux-6.1/bin/busybox".into(),
        };
        let [archive, dir, console, output] = ["/t/a", "/t,t", "/t/c", "/t/o"].map(Path::new);
        let argv = command(Processor::LIKE_PENTIUM, &kernel, archive, dir, [console, output]);
        assert_eq!(argv[..3], ["setpriv", "--pdeathsig", "KILL"]);
        let shares: Vec<&String> = argv.iter().filter(|a| a.starts_with("local,")).collect();
        assert!(shares.len() == 3 && shares.iter().all(|s| s.contains("readonly=on")), "{shares:?}");
        assert!(shares[2].contains("path=/t,,t,"), "{}", shares[2]);
        let line = argv.join(" ");
        assert!(line.contains("-cpu Nehalem -icount shift=4,sleep=on"), "{line}");
    }
}
