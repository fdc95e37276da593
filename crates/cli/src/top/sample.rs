//! One reading of the daemon's counters, and the rates between two.

use std::collections::BTreeMap;
use std::time::Instant;

use ironswan_wire::vici::Section;

use crate::doctor::monotonic;
use crate::failure::Failure;
use crate::vici::Client;
use crate::view::get;

/// Number of the latest diagnoses that are asked for.
const LATEST: &str = "32";

/// Bytes and packets of one CHILD_SA, in and out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes: [u64; 2],
    pub(super) packets: [u64; 2],
    /// Seconds since it was installed.
    pub(super) age: u64,
}

/// A diagnosis that was told about a connection or a stranger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    /// Name of the connection, or address of the stranger.
    pub(super) about: String,
    /// Seconds since it was told last.
    pub(super) ago: u64,
    pub(super) count: u64,
    /// Its name in the list of diagnoses.
    pub(super) name: String,
    pub(super) why: String,
}

/// One reading of the daemon's counters.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) version: String,
    /// Time since the daemon was started, in words.
    pub(super) up: String,
    /// By tunnel (`CONNECTION/CHILD`) and CHILD_SA.
    pub(super) tunnels: BTreeMap<String, BTreeMap<String, Traffic>>,
    /// Packets by the reason why they were dropped.
    pub(super) drops: BTreeMap<String, u64>,
    /// Nanoseconds of processor time by thread.
    pub(super) threads: BTreeMap<String, u64>,
    /// Number of tunnels by state.
    pub(super) states: BTreeMap<String, usize>,
    /// Tunnels that are wanted and not up: name and reason.
    pub(super) down: Vec<(String, String)>,
    /// The latest diagnoses, the latest first.
    pub(super) latest: Vec<Told>,
}

impl Sample {
    /// Asks the daemon.
    pub(super) fn take(client: &mut Client) -> Result<Self, Failure> {
        let version = client.request("version", Section::new())?;
        let stats = client.request("stats", Section::new())?;
        let counters = client.request("ironswan-counters", Section::new())?;
        let at = monotonic();
        let sas = client.traffic()?;
        let list = client.tunnels(None)?;
        let latest = client.request("ironswan-explain", Section::new().with("latest", LATEST))?;
        let (states, down) = states(&list);
        Ok(Self {
            at,
            version: get(&version, "version").to_owned(),
            up: stats.section("uptime").map(|s| get(s, "running").to_owned()).unwrap_or_default(),
            tunnels: tunnels(&sas),
            drops: numbers(&counters, "drops"),
            threads: numbers(&stats, "threads"),
            states,
            down,
            latest: told(&latest),
        })
    }
}

fn number(s: &Section, key: &str) -> u64 {
    get(s, key).parse().unwrap_or(0)
}

/// The numbers of a section within another.
fn numbers(of: &Section, name: &str) -> BTreeMap<String, u64> {
    let Some(section) = of.section(name) else { return BTreeMap::new() };
    section
        .iter()
        .filter_map(|(key, _)| Some((key.to_owned(), section.get_str(key)?.parse().ok()?)))
        .collect()
}

fn tunnels(sas: &[(String, Section)]) -> BTreeMap<String, BTreeMap<String, Traffic>> {
    let mut out: BTreeMap<String, BTreeMap<String, Traffic>> = BTreeMap::new();
    for (conn, sa) in sas {
        for (id, child) in sa.section("child-sas").into_iter().flat_map(Section::sections) {
            let both = |what: &str| ["in", "out"].map(|way| number(child, &format!("{what}-{way}")));
            let traffic = Traffic {
                bytes: both("bytes"),
                packets: both("packets"),
                age: number(child, "install-time"),
            };
            let tunnel = format!("{conn}/{}", get(child, "name"));
            out.entry(tunnel).or_default().insert(format!("{}/{id}", get(sa, "uniqueid")), traffic);
        }
    }
    out
}

type States = (BTreeMap<String, usize>, Vec<(String, String)>);

/// Number of tunnels by state, and those that are wanted and not up.
fn states(list: &[(String, Section)]) -> States {
    let (mut states, mut down) = (BTreeMap::new(), Vec::new());
    for (conn, s) in list {
        *states.entry(get(s, "state").to_owned()).or_default() += 1;
        if get(s, "wanted") == "yes" && get(s, "state") != "up" {
            let name = s.get_str("child").map_or_else(|| conn.clone(), |child| format!("{conn}/{child}"));
            let why = s.section("trouble").map_or("not up yet", |t| get(t, "why"));
            down.push((name, why.to_owned()));
        }
    }
    (states, down)
}

fn told(answer: &Section) -> Vec<Told> {
    let notes = answer.section("latest").into_iter().flat_map(Section::sections);
    let about = |s: &Section| s.get_str("conn").or(s.get_str("from")).unwrap_or_default().to_owned();
    notes
        .map(|(_, s)| Told {
            about: about(s),
            ago: number(s, "last"),
            count: number(s, "count"),
            name: get(s, "name").to_owned(),
            why: get(s, "why").to_owned(),
        })
        .collect()
}

/// Numbers of the time between two readings, a second.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rates {
    /// By tunnel, the busiest first: bits in and out, packets in and out.
    pub(super) tunnels: Vec<(String, [f64; 4])>,
    /// By reason, the most frequent first: packets a second, packets in all.
    pub(super) drops: Vec<(String, f64, u64)>,
    /// Part of one processor that each thread has used, by its name.
    pub(super) threads: Vec<(String, f64)>,
    /// Sums over all tunnels.
    pub(super) sum: [f64; 4],
    /// Packets dropped a second.
    pub(super) lost: f64,
}

impl Rates {
    pub(super) fn between(old: &Sample, new: &Sample) -> Self {
        let seconds = new.at.saturating_duration_since(old.at).as_secs_f64().max(0.001);
        let per_second = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        let mut rates = Self::default();
        for (name, sas) in &new.tunnels {
            let mut row = [0.0; 4];
            for (id, now) in sas {
                // All of a CHILD_SA that was made in between counts, and nothing of one whose past
                // is not known.
                let young = now.age as f64 <= seconds;
                let before = old.tunnels.get(name).and_then(|sas| sas.get(id)).copied();
                let before = before.unwrap_or(if young { Traffic::default() } else { *now });
                let bits = |n: usize| 8.0 * per_second(before.bytes[n], now.bytes[n]);
                let packets = |n: usize| per_second(before.packets[n], now.packets[n]);
                let of_sa = [bits(0), bits(1), packets(0), packets(1)];
                row.iter_mut().zip(of_sa).for_each(|(sum, x)| *sum += x);
            }
            rates.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            rates.tunnels.push((name.clone(), row));
        }
        rates.tunnels.sort_by(|a, b| (b.1[0] + b.1[1]).total_cmp(&(a.1[0] + a.1[1])));
        for (name, now) in new.drops.iter().filter(|(_, n)| **n > 0) {
            let rate = per_second(old.drops.get(name).copied().unwrap_or(0), *now);
            rates.lost += rate;
            rates.drops.push((name.clone(), rate, *now));
        }
        rates.drops.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.2.cmp(&a.2)));
        for (name, now) in &new.threads {
            let spent = per_second(old.threads.get(name).copied().unwrap_or(*now), *now);
            rates.threads.push((name.clone(), spent / 1e9));
        }
        rates
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    fn traffic(n: u64, age: u64) -> Traffic {
        Traffic { bytes: [n, 2 * n], packets: [n / 100, n / 50], age }
    }

    fn sample(at: Instant, bytes: u64) -> Sample {
        let one = |n: u64| BTreeMap::from([("1/net-1".to_owned(), traffic(n, 500))]);
        let told = Told {
            about: "branch".into(),
            ago: 12,
            count: 3,
            name: "no-answer".into(),
            why: "peer not responding".into(),
        };
        Sample {
            at,
            version: "0.1.0".into(),
            up: "3 hours".into(),
            tunnels: [("net/a".to_owned(), one(bytes)), ("net/b".to_owned(), one(10 * bytes))].into(),
            drops: [("InReplay".to_owned(), bytes / 1000), ("OutNoSa".to_owned(), 0)].into(),
            threads: [("ipsec-data-0".to_owned(), bytes * 1000)].into(),
            states: [("down".to_owned(), 1), ("up".to_owned(), 2)].into(),
            down: vec![("branch/lan".into(), "peer not responding".into())],
            latest: vec![told],
        }
    }

    /// Two readings, two seconds apart.
    pub(in super::super) fn pair() -> (Sample, Sample) {
        let begun = monotonic();
        (sample(begun, 100_000), sample(begun + Duration::from_secs(2), 600_000))
    }

    #[test]
    fn rates_are_differences_by_time_and_the_busiest_comes_first() {
        let (old, new) = pair();
        let rates = Rates::between(&old, &new);
        assert_eq!(rates.tunnels[0], ("net/b".to_owned(), [20_000_000.0, 40_000_000.0, 25_000.0, 50_000.0]));
        assert_eq!(rates.tunnels[1].1, [2_000_000.0, 4_000_000.0, 2_500.0, 5_000.0]);
        assert_eq!(rates.drops, [("InReplay".to_owned(), 250.0, 600)]);
        assert_eq!(rates.threads, [("ipsec-data-0".to_owned(), 0.25)]);
    }

    #[test]
    fn a_rekeying_and_a_tunnel_that_came_up_make_no_peak() {
        let (mut old, mut new) = pair();
        // A child was rekeyed: the old SA is gone, and the new one has carried 1,000 bytes.
        new.tunnels.insert("net/a".into(), [("1/net-2".to_owned(), traffic(1_000, 1))].into());
        // One whose past nobody has seen.
        new.tunnels.insert("net/c".into(), [("3/net-9".to_owned(), traffic(u64::MAX / 16, 100))].into());
        old.threads.clear();
        let rates = Rates::between(&old, &new);
        let of = |name: &str| rates.tunnels.iter().find(|(n, _)| n == name).expect("a tunnel").1;
        assert_eq!(of("net/a"), [4_000.0, 8_000.0, 5.0, 10.0]);
        assert_eq!(of("net/c"), [0.0; 4]);
        assert_eq!(rates.threads[0].1, 0.0);
    }

    #[test]
    fn a_daemon_s_answers_are_read() {
        let child = Section::new()
            .with("name", "lan")
            .with("install-time", "7")
            .with("bytes-in", "10")
            .with("bytes-out", "20")
            .with("packets-in", "1")
            .with("packets-out", "2");
        let sa = Section::new()
            .with("uniqueid", "5")
            .with("child-sas", Section::new().with("lan-1", child.clone()).with("lan-2", child));
        let found = tunnels(&[("branch".into(), sa)]);
        assert_eq!(found["branch/lan"].len(), 2);
        let want = Traffic { bytes: [10, 20], packets: [1, 2], age: 7 };
        assert_eq!(found["branch/lan"]["5/lan-1"], want);
        let trouble = Section::new().with("why", "no way");
        let down = Section::new().with("child", "lan").with("state", "down").with("wanted", "yes");
        let waits = Section::new().with("state", "waiting").with("wanted", "no");
        let list = [("a".to_owned(), down.with("trouble", trouble)), ("b".to_owned(), waits)];
        let (states, down) = states(&list);
        assert_eq!((states["down"], states["waiting"]), (1, 1));
        assert_eq!(down, [("a/lan".to_owned(), "no way".to_owned())]);
        let note =
            |key: &str, about: &str| Section::new().with(key, about).with("last", "4").with("count", "2");
        let notes = Section::new().with("1", note("conn", "a")).with("2", note("from", "192.0.2.9"));
        let told = told(&Section::new().with("latest", notes));
        assert_eq!((told[0].about.as_str(), told[0].ago, told[0].count), ("a", 4, 2));
        assert_eq!(told[1].about, "192.0.2.9");
    }
}
