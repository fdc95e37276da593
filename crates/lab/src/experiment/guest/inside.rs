//! The part that runs in the guest: the line, a system on it, and loads whose instructions are
//! counted.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ironswan_crypto::engines::Engines;

use super::super::driver::suite;
use super::OVERHEAD;
use super::orders::{Counted, Load, Message, Orders};
use crate::clock;
use crate::dut::{self, Dut, DutOptions, Encap, Running, Suite};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::load::{Ttcp, TtcpLoad};
use crate::topology::{self, Line, LineSpec, Mode, Owner, Topology};

/// For a packet, of the guest's time. Nothing but a lost one lets the processor wait so long.
const LOST: Duration = Duration::from_secs(2);
/// Packets that may be lost until the tunnel carries the first.
const TRIES: u32 = 10;
/// Packets and bytes that pass before any are counted.
const WARM_PACKETS: u32 = 128;
const WARM_BYTES: u64 = 1 << 20;
/// How often the bytes of a connection are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// For a connection to carry what is wanted of it.
const TOO_LONG: Duration = Duration::from_secs(120);
const WRITE: usize = 65_536;

/// Does what the orders in `dir` say, with messages on standard output; the exit status.
pub fn inside(dir: &Path) -> i32 {
    let ended = interrupt::install().and_then(|()| Orders::read(dir)).and_then(|orders| obey(&orders));
    let (message, status) = match ended {
        Ok(()) => (Message::Done, 0),
        Err(e) => (Message::Failed(e.to_string()), 1),
    };
    let told = tell(&message);
    if told.is_ok() { status } else { 1 }
}

fn tell(message: &Message) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    out.write_all(message.line().as_bytes())
        .and_then(|()| out.flush())
        .map_err(LabError::io("telling the laboratory"))
}

fn obey(orders: &Orders) -> Result<(), LabError> {
    tell(&Message::Says("the guest has booted".into()))?;
    let suites: Vec<Suite> =
        orders.suites.iter().map(|s| s.parse()).collect::<Result<_, String>>().map_err(LabError::Usage)?;
    let engines = engines(&suites);
    let options = DutOptions {
        suites,
        ironswan: orders.program.clone(),
        wireguard_go: orders.wireguard_go.clone(),
        wireguard_go_tailscale: orders.wireguard_go_tailscale.clone(),
        ..DutOptions::default()
    };
    for dut in chosen(orders, &options)? {
        let name = dut.name();
        tell(&Message::System { name, version: dut.version() })?;
        for mode in [Mode::Wire, Mode::Offload] {
            let loads: Vec<Load> = orders.loads.iter().filter(|l| l.mode() == mode).copied().collect();
            if !loads.is_empty() {
                measured(orders, dut.as_ref(), mode, &loads)?;
            }
        }
    }
    // When all have been used: a kernel makes an algorithm of its parts at first use.
    let crypto = fs::read_to_string("/proc/crypto").unwrap_or_default();
    for (suite, ours) in engines {
        let kernel = kernel_engine(&crypto, &suite).unwrap_or_else(|| "not used".into());
        tell(&Message::Engine { suite, ours, kernel })?;
    }
    Ok(())
}

/// The systems that are there.
fn chosen(orders: &Orders, options: &DutOptions) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let wished = [(orders.udp, Encap::Udp), (orders.raw, Encap::Raw)];
    let encaps: Vec<Encap> = wished.into_iter().filter_map(|(wish, e)| wish.then_some(e)).collect();
    let dut::There { duts, absent } = dut::there(&orders.systems, &encaps, options)?;
    if orders.named && !absent.is_empty() {
        return Err(LabError::Unfit(absent.into_iter().map(|(_, lack)| lack).collect()));
    }
    for (name, Remedy { lack, action }) in absent {
        tell(&Message::LeftOut { name, lack, action })?;
    }
    Ok(duts)
}

/// Counts the loads of one system on a line of one form.
fn measured(orders: &Orders, dut: &dyn Dut, mode: Mode, loads: &[Load]) -> Result<(), LabError> {
    let name = dut.name();
    tell(&Message::Says(format!("{name}, starting")))?;
    let owner = Owner::claim()?;
    let line = Line::build(&owner, LineSpec { mode, inner_mtu: orders.inner_mtu })?;
    let mut running = dut.start(&line.sites(), owner.dir())?;
    for load in loads {
        tell(&Message::Says(format!("{name}, {} {load}", load.kind())))?;
        let count = match *load {
            Load::Udp { size, burst, packets } => udp(&line, size, burst, packets),
            Load::Tcp { bytes, .. } => tcp(&line, bytes, running.as_mut()),
        };
        let count = count.map_err(|e| running.failed(&name, e))?;
        running.alive()?;
        tell(&Message::Counted(count.told(&name, *load, orders.shift)))?;
    }
    let processes = running.stop();
    if !processes.is_empty() {
        tell(&Message::Killed { name, processes })?;
    }
    tell(&Message::Ran(line.journal().lines()))
}

/// What a load took.
#[derive(Debug, Clone, Copy)]
struct Count {
    took: Duration,
    idle: Duration,
    units: u64,
}

impl Count {
    fn told(&self, system: &str, load: Load, shift: u32) -> Counted {
        let busy = self.took.saturating_sub(self.idle);
        let nanos = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let idle = self.idle.as_secs_f64() / self.took.as_secs_f64().max(1e-9);
        Counted { system: system.into(), load, instructions: nanos >> shift, units: self.units, idle }
    }
}

/// Sends packets in bursts, each after all of the one before have arrived: the processor is never
/// idle.
fn udp(line: &Line, size: u32, burst: u32, packets: u32) -> Result<Count, LabError> {
    let paths = line.paths();
    let failed = |what: &'static str| move |e: io::Error| LabError::Measurement(format!("{what}: {e}"));
    let path = paths.first().ok_or_else(|| LabError::Usage("a load needs a path".into()))?;
    let bind = |host: &topology::Host<'_>| {
        host.netns.inside(|| UdpSocket::bind((host.address, 0)))?.map_err(failed("a socket"))
    };
    let (out, inn) = (bind(&path.from)?, bind(&path.to)?);
    let to = inn.local_addr().map_err(failed("a socket"))?;
    out.connect(to).map_err(failed("a socket"))?;
    inn.set_read_timeout(Some(LOST)).map_err(failed("a socket"))?;
    let payload = vec![0x5a; size.saturating_sub(OVERHEAD) as usize];
    let mut room = vec![0; payload.len() + 1];
    let mut pass = |burst: u32| {
        for _ in 0..burst {
            out.send(&payload)?;
        }
        (0..burst).try_for_each(|_| {
            let got = inn.recv(&mut room)?;
            if got == payload.len() { Ok(()) } else { Err(io::Error::other("a packet of another size")) }
        })
    };
    // A tunnel may begin with the first packet.
    let first = (0..TRIES).map(|_| pass(1)).find(Result::is_ok);
    if first.is_none() {
        return Err(LabError::Measurement(format!("none of {TRIES} packets arrived")));
    }
    let lost = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LabError::Measurement(format!(
            "a packet of {size} B in a burst of {burst} was lost; choose smaller --bursts"
        )),
        _ => LabError::Measurement(format!("packets of {size} B: {e}")),
    };
    (0..WARM_PACKETS.div_ceil(burst)).try_for_each(|_| pass(burst)).map_err(lost)?;
    let bursts = packets.div_ceil(burst);
    let idle = idle_time()?;
    let start = clock::now();
    (0..bursts).try_for_each(|_| pass(burst)).map_err(lost)?;
    let took = clock::now() - start;
    Ok(Count { took, idle: idle_time()?.saturating_sub(idle), units: u64::from(bursts) * u64::from(burst) })
}

/// Counts a part of a connection that carries as much as it can.
fn tcp(line: &Line, bytes: u64, running: &mut dyn Running) -> Result<Count, LabError> {
    let load = TtcpLoad { connections: 1, write: WRITE, nodelay: false, rate: None };
    let ttcp = Ttcp::start(&line.paths(), load)?;
    let late = clock::now() + TOO_LONG;
    let mut reach = |least: u64| {
        while ttcp.received() < least {
            running.alive()?;
            if clock::now() > late {
                return Err(LabError::Measurement(format!(
                    "{} of {least} bytes arrived in {} s of the guest's time",
                    ttcp.received(),
                    TOO_LONG.as_secs()
                )));
            }
            thread::sleep(LOOK);
        }
        Ok((clock::now(), ttcp.received()))
    };
    reach(WARM_BYTES)?;
    let idle = idle_time()?;
    let (start, before) = reach(0)?;
    let (end, after) = reach(before + bytes)?;
    let idle = idle_time()?.saturating_sub(idle);
    ttcp.finish()?;
    Ok(Count { took: end - start, idle, units: after - before })
}

/// For how long the processor has been idle.
fn idle_time() -> Result<Duration, LabError> {
    // The figures of /proc/stat have steps of a hundredth of a second, ten million instructions.
    let text = fs::read_to_string("/proc/timer_list").map_err(LabError::io("reading /proc/timer_list"))?;
    parse_idle(&text)
        .ok_or_else(|| LabError::Measurement("/proc/timer_list does not say how long it was idle".into()))
}

fn parse_idle(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix(".idle_sleeptime"))?;
    let nanos = line.trim_start_matches([' ', ':']).split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// The engine of each suite, of this machine or of the guest, by what the self-test says.
pub(super) fn engines(suites: &[Suite]) -> BTreeMap<String, String> {
    let began = clock::now();
    let mut stopwatch = || u64::try_from((clock::now() - began).as_nanos()).unwrap_or(u64::MAX);
    let engines = Engines::select(&mut stopwatch, None).engines;
    let name = |esp: &str| {
        let suite = suite::by_name(esp).ok()?;
        let [small, large] = [64, 1400].map(|len| engines.engine(&suite, len).name());
        Some(if small == large { small.into() } else { format!("{large} ({small} for small packets)") })
    };
    suites.iter().map(|s| (s.esp.clone(), name(&s.esp).unwrap_or_else(|| "none".into()))).collect()
}

/// The driver that the kernel uses for a suite, by /proc/crypto: of those with the algorithm's
/// name, the one of the highest priority.
fn kernel_engine(crypto: &str, esp: &str) -> Option<String> {
    let name = match esp {
        s if s.contains("gcm") => "rfc4106(gcm(aes))",
        s if s.contains("ccm") => "rfc4309(ccm(aes))",
        s if s.contains("chacha20") => "rfc7539esp(chacha20,poly1305)",
        s if s.starts_with("3des") => "cbc(des3_ede)",
        s if s.starts_with("aes") && s.contains("ctr") => "rfc3686(ctr(aes))",
        s if s.starts_with("aes") => "cbc(aes)",
        _ => return None,
    };
    let field = |entry: &str, key: &str| {
        let line = entry.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    crypto
        .split("\n\n")
        .filter(|e| {
            field(e, "name").as_deref() == Some(name) && field(e, "internal").as_deref() == Some("no")
        })
        .max_by_key(|e| field(e, "priority").and_then(|p| p.parse::<i64>().ok()))
        .and_then(|e| field(e, "driver"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_is_read_to_the_nanosecond() {
        let text = "cpu: 0\n  .nohz_mode      : 2\n  .idle_entrytime : 5 nsecs\n  .idle_sleeptime : 1234567891 nsecs\n";
        assert_eq!(parse_idle(text), Some(Duration::from_nanos(1_234_567_891)));
        assert_eq!(parse_idle("  .idle_sleeptime\n"), None);
        assert_eq!(parse_idle(""), None);
    }

    #[test]
    fn instructions_are_busy_time_by_the_length_of_one() {
        let count = Count { took: Duration::from_nanos(6400), idle: Duration::from_nanos(3200), units: 4 };
        let load = Load::Udp { size: 64, burst: 1, packets: 4 };
        let fast = count.told("plain", load, 0);
        assert_eq!((fast.instructions, fast.units, fast.idle), (3200, 4, 0.5));
        assert_eq!(count.told("plain", load, 5).instructions, 100);
    }

    #[test]
    fn the_kernels_engine_is_the_one_of_the_highest_priority_that_is_not_internal() {
        let crypto = "name         : rfc4106(gcm(aes))\ndriver       : generic\npriority     : 100\ninternal     : no\n\n\
                      name         : rfc4106(gcm(aes))\ndriver       : rfc4106-gcm-aesni\npriority     : 400\ninternal     : no\n\n\
                      name         : rfc4106(gcm(aes))\ndriver       : __rfc4106\npriority     : 500\ninternal     : yes\n";
        assert_eq!(kernel_engine(crypto, "aes128gcm16").as_deref(), Some("rfc4106-gcm-aesni"));
        assert_eq!(kernel_engine(crypto, "chacha20poly1305"), None);
        assert_eq!(kernel_engine("", "aes128-sha256"), None);
    }
}
