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
use super::count::{Count, Kernel};
use super::ftp;
use super::orders::{Load, Message, OVERHEAD, Orders, Place};
use crate::clock;
use crate::dut::{self, Dut, DutOptions, Encap, Running, Suite};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::load::{Ttcp, TtcpLoad};
use crate::topology::{self, HostToHost, Line, LineSpec, Mode, Owner, Topology};

/// For a packet, of the guest's time. Nothing but a lost one lets the processor wait so long.
const LOST: Duration = Duration::from_secs(2);
/// Packets that may be lost until the tunnel carries the first.
const TRIES: u32 = 10;
/// Packets and bytes that pass before any are counted.
const WARM_PACKETS: u32 = 128;
const WARM_BYTES: u64 = 1 << 20;
/// How often the bytes of a connection are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Least length of what is counted of it.
const LOOKS: u32 = 10;
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
    // A command of a second takes half a minute with 31 million instructions a second. Time also
    // passes while QEMU waits for a file of a busy machine.
    clock::be_patient(((1 << orders.shift) / 2).max(4));
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
        tell(&Message::System { name: name(orders, dut.as_ref()), version: dut.version() })?;
        for &place in &orders.places {
            for mode in [Mode::Wire, Mode::Offload] {
                let loads: Vec<Load> = orders.loads.iter().filter(|l| l.mode() == mode).copied().collect();
                if !loads.is_empty() {
                    measured(orders, dut.as_ref(), place, mode, &loads)?;
                }
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

/// Name of a system in the record.
fn name(orders: &Orders, dut: &dyn Dut) -> String {
    let name = dut.name();
    match dut.ipsec().filter(|_| orders.suite_in_name) {
        Some((Suite { esp, .. }, _)) => {
            // All but the first have it already, in short.
            let short = format!("-{}", esp.trim_end_matches("poly1305"));
            format!("{} {esp}", name.strip_suffix(&short).unwrap_or(&name))
        }
        None => name,
    }
}

/// Counts the loads of one system in one place, whose links have one form.
fn measured(
    orders: &Orders,
    dut: &dyn Dut,
    place: Place,
    mode: Mode,
    loads: &[Load],
) -> Result<(), LabError> {
    let name = name(orders, dut);
    tell(&Message::Says(format!("{name}, starting")))?;
    let owner = Owner::claim()?;
    let topology = built(orders, place, mode, &owner)?;
    let mut running = dut.start(&topology.sites(), owner.dir())?;
    for load in loads {
        tell(&Message::Says(format!("{name}, {} {load}", load.kind())))?;
        let count = match *load {
            Load::Udp { size, burst, packets } => udp(topology.as_ref(), size, burst, packets),
            Load::Tcp { bytes, .. } => tcp(topology.as_ref(), bytes, running.as_mut()),
            Load::Ftp { bytes } => ftp::fetch(topology.as_ref(), owner.dir(), bytes),
        };
        let count = count.map_err(|e| running.failed(&name, e))?;
        running.alive()?;
        tell(&Message::Counted(count.told(&name, place, *load, orders.shift)))?;
    }
    let processes = running.stop();
    if !processes.is_empty() {
        tell(&Message::Killed { name, processes })?;
    }
    tell(&Message::Ran(topology.journal().lines()))
}

fn built(orders: &Orders, place: Place, mode: Mode, owner: &Owner) -> Result<Box<dyn Topology>, LabError> {
    let inner_mtu = orders.inner_mtu;
    Ok(match place {
        Place::Line => Box::new(Line::build(owner, LineSpec { mode, inner_mtu })?),
        Place::HostToHost => {
            let pair = HostToHost::build(owner, inner_mtu, None)?;
            if mode == Mode::Wire {
                pair.separate_packets()?;
            }
            Box::new(pair)
        }
    })
}

/// Sends packets in bursts, each after all of the one before have arrived: the processor is never
/// idle.
fn udp(topology: &dyn Topology, size: u32, burst: u32, packets: u32) -> Result<Count, LabError> {
    let paths = topology.paths();
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
    let before = Kernel::look()?;
    let start = clock::now();
    (0..bursts).try_for_each(|_| pass(burst)).map_err(lost)?;
    before.count(clock::now() - start, u64::from(bursts) * u64::from(burst))
}

/// Counts a part of a connection that carries as much as it can.
fn tcp(topology: &dyn Topology, bytes: u64, running: &mut dyn Running) -> Result<Count, LabError> {
    let load = TtcpLoad { connections: 1, write: WRITE, nodelay: false, rate: None };
    let ttcp = Ttcp::start(&topology.paths(), load)?;
    let (too_long, look) = (clock::patiently(TOO_LONG), clock::patiently(LOOK));
    let late = clock::now() + too_long;
    let mut reach = |least: u64| {
        while ttcp.received() < least {
            running.alive()?;
            if clock::now() > late {
                return Err(LabError::Measurement(format!(
                    "{} of {least} bytes arrived in {} s of the guest's time",
                    ttcp.received(),
                    too_long.as_secs()
                )));
            }
            thread::sleep(look);
        }
        Ok((clock::now(), ttcp.received()))
    };
    reach(WARM_BYTES.min(bytes / 4))?;
    let kernel = Kernel::look()?;
    let (start, before) = reach(0)?;
    // However fast the line is, ticks of the kernel's clock are a small part of what is counted.
    thread::sleep(look * LOOKS);
    let (end, after) = reach(before + bytes)?;
    let count = kernel.count(end - start, after - before)?;
    ttcp.finish()?;
    Ok(count)
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
    fn every_system_with_a_suite_is_named_after_it_where_that_is_wanted() {
        let options = DutOptions {
            suites: Suite::list("3des-sha1,chacha20poly1305").expect("suites"),
            ..DutOptions::default()
        };
        let duts = ["plain", "ironswan"].map(|name| dut::by_name(name, &[Encap::Raw], &options));
        let duts: Vec<Box<dyn Dut>> = duts.into_iter().flat_map(|duts| duts.expect("systems")).collect();
        let names = |suite_in_name| {
            let orders = Orders { suite_in_name, ..Orders::default() };
            duts.iter().map(|dut| name(&orders, dut.as_ref())).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["plain", "ironswan-raw", "ironswan-raw-chacha20"]);
        assert_eq!(names(true), ["plain", "ironswan-raw 3des-sha1", "ironswan-raw chacha20poly1305"]);
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
