//! `version`, `stats`, and our own `ironswan-counters`.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironswan_io::clock;
use ironswan_wire::vici::Section;

use super::counters::since_start;
use super::plane::{counters, properties, stages};
use super::{Control, replays, text};

impl Control {
    /// `version`. A method, so that no files import each other in a larger circle.
    pub(super) fn version(&self) -> Section {
        let name = rustix::system::uname();
        let show = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        Section::new()
            .with("daemon", "ironswan")
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("sysname", show(name.sysname()))
            .with("release", show(name.release()))
            .with("machine", show(name.machine()))
    }

    /// `stats`. The numbers of threads and jobs are ours as far as there is such a thing: nothing
    /// is queued.
    pub(super) async fn stats(&self) -> Section {
        let up = clock::now().saturating_duration_since(self.started);
        let (total, half_open) =
            self.driver.view(|e, _| (e.protocol().ike_sa_count() as u64, e.protocol().counters().half_open));
        let guard = self.guard_counters().await;
        let plane = self.driver.plane(|plane| plane.report());
        // The data threads and the control thread; none of them has work waiting that is not in
        // `ironswan-counters`.
        let working = plane.workers as u64 + 1;
        let four =
            || Section::new().with("critical", "0").with("high", "0").with("medium", "0").with("low", "0");
        Section::new()
            .with("uptime", Section::new().with("running", running(up)).with("since", date(self.started_at)))
            .with(
                "workers",
                Section::new()
                    .with("total", working)
                    .with("idle", "0")
                    .with("active", four().with_first("critical", &working.to_string())),
            )
            .with("queues", four())
            .with("scheduled", "0")
            .with("ikesas", Section::new().with("total", total).with("half-open", half_open))
            .with("plugins", ["ironswan", "vici", plane.name])
            .with("guard", guard.unwrap_or_default())
            .with("data-plane", properties(&plane))
            .with("threads", threads())
            .with("stages", stages(&plane))
    }

    /// Everything that is counted: IKE, the endpoint's own, and the packet engine with its reasons
    /// for dropping.
    /// `ike`: of the windows only those of this connection.
    pub(super) async fn all_counters(&self, message: &Section) -> Section {
        let ike = self.driver.view(|e, _| {
            let c = e.protocol().counters();
            let mut ike = since_start(c);
            for (name, n) in [
                ("out-of-order", c.out_of_order),
                ("invalid-version", c.invalid_version),
                ("retransmits-in", c.retransmits_in),
                ("retransmits-out", c.retransmits_out),
                ("timeouts", c.timeouts),
                ("cookies-sent", c.cookies_sent),
                ("cookies-invalid", c.cookies_invalid),
                ("half-open", c.half_open),
                ("half-open-refused", c.half_open_refused),
                ("half-open-displaced", c.half_open_displaced),
                ("half-open-expired", c.half_open_expired),
                ("kex-generated", c.kex_generated),
                ("kex-agreed", c.kex_agreed),
                ("kex-put-off", c.kex_put_off),
                ("icmp-noted", c.icmp_noted),
                ("auth-failed", c.auth_failed),
                ("qcd-sent", c.qcd_sent),
                ("qcd-held-back", c.qcd_held_back),
                ("qcd-taken", c.qcd_taken),
                ("qcd-mismatched", c.qcd_mismatched),
                ("reflected", c.reflected),
                ("id-refused", c.id_refused),
                ("no-proposal", c.no_proposal),
                ("compared", c.compared),
                ("ts-unacceptable", c.ts_unacceptable),
            ] {
                ike.put(name, n);
            }
            ike
        });
        let plane = self.driver.plane(|plane| plane.report());
        let mut all = Section::new()
            .with("ike", ike)
            .with("packets", counters(&plane.packets))
            .with("drops", counters(&plane.drops))
            .with("plane", counters(&plane.counters));
        if let Some(drops) = &plane.replays {
            all.put("replays", replays::drops(drops));
        }
        let windows = self.replay_windows(text(message, "ike"));
        if !windows.is_empty() {
            all.put("replay-windows", windows);
        }
        let all = all.with("stages", stages(&plane));
        match self.guard_counters().await {
            Some(guard) => all.with("guard", guard),
            None => all,
        }
    }
}

/// Builds a section with one value changed; the order stays.
trait WithFirst {
    fn with_first(self, name: &str, value: &str) -> Self;
}

impl WithFirst for Section {
    fn with_first(self, name: &str, value: &str) -> Self {
        self.iter().map(|(n, v)| (n.to_owned(), if n == name { value.into() } else { v.clone() })).collect()
    }
}

/// Nanoseconds of processor time of the control thread (`control`) and of the threads that move
/// packets (`ipsec-data-0` and so on), since each began. Empty where the kernel does not tell.
fn threads_in(folder: &Path) -> Section {
    let tasks = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    let time = |task: &DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).ok();
        let name = match read("comm")?.trim() {
            _ if task.file_name().to_str() == Some(own.as_str()) => "control".to_owned(),
            name if name.starts_with("ipsec-data-") => name.to_owned(),
            _ => return None,
        };
        let spent: u64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((name, spent))
    };
    let all: BTreeMap<String, u64> = tasks.filter_map(|task| time(&task)).collect();
    all.into_iter().collect()
}

fn threads() -> Section {
    threads_in(Path::new("/proc/self/task"))
}

/// `4 seconds`, `3 minutes`, `2 hours`, `5 days`: charon's time deltas.
fn running(up: Duration) -> String {
    let s = up.as_secs();
    let (n, unit) = match s {
        0..=120 => (s, "second"),
        121..=7_200 => (s / 60, "minute"),
        7_201..=172_800 => (s / 3_600, "hour"),
        _ => (s / 86_400, "day"),
    };
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

/// `Nov 21 21:25:27 2026`, in UTC.
fn date(at: SystemTime) -> String {
    let secs = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, s) = (secs / 86_400, secs % 86_400);
    // Days to a date by 400-year cycles that begin on a 1 March.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let name = MONTHS[(month as usize - 1).min(11)];
    format!("{name} {day:02} {:02}:{:02}:{:02} {year}", s / 3_600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_main_thread_and_of_workers_is_told() {
        let spin = std::thread::Builder::new().name("ipsec-data-7".into()).spawn(|| {
            (0..2_000_000u64).fold(0u64, |sum, n| std::hint::black_box(sum.wrapping_add(n)));
            threads()
        });
        let told = spin.expect("a thread").join().expect("it ends");
        let time = |name: &str| told.get_str(name).and_then(|n| n.parse::<u64>().ok());
        assert!(time("ipsec-data-7").is_some_and(|ns| ns > 0) && time("control").is_some(), "{told:?}");
        assert!(threads_in(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn times_read_as_charon_writes_them() {
        let at = |s| date(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "Jan 01 00:00:00 1970");
        assert_eq!(at(1_795_296_327), "Nov 21 21:25:27 2026");
        assert_eq!(at(951_782_400), "Feb 29 00:00:00 2000");
        assert_eq!(running(Duration::from_secs(4)), "4 seconds");
        assert_eq!(running(Duration::from_secs(7_200)), "120 minutes");
    }
}
