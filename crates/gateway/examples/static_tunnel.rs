//! A tunnel with keys from the command line instead of IKE, to measure the data plane alone. Never use it for traffic
//! that matters: the keys are derived from a number, and never change.
//!
//! ```text
//! static_tunnel --side 0 --local 192.0.2.1 --remote 192.0.2.2 --local-ts 10.1.0.0/24 --remote-ts 10.2.0.0/24
//! static_tunnel --side 1 --local 192.0.2.2 --remote 192.0.2.1 --local-ts 10.2.0.0/24 --remote-ts 10.1.0.0/24
//! ```
//!
//! Options: `--device ipsec0`, `--suite aes128gcm16|aes256gcm16|chacha20poly1305|aes128-sha256`, `--raw` (ESP without UDP),
//! `--mtu 1400`, `--seed N` (the same on both sides), `--stats SECONDS`. Runs until killed; the device and its route go with it, the rule stays.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_crypto::rng::{Rng, Seeded, System};
use ironswan_gateway::worker::{DataPlane, DataPlaneConfig};
use ironswan_io::clock;
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE};
use ironswan_io::tun::TunConfig;
use ironswan_ipsec::{Config, Engine};
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, Spi,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

/// The command line.
struct Args {
    side: u32,
    device: String,
    local: IpAddr,
    remote: IpAddr,
    local_ts: (IpAddr, u8),
    remote_ts: (IpAddr, u8),
    suite: String,
    raw: bool,
    mtu: u32,
    seed: u64,
    stats: u64,
}

fn args() -> Result<Args, Box<dyn Error>> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1)).cloned();
    let need = |name: &str| value(name).ok_or(format!("{name} is missing"));
    let prefix = |text: String| -> Result<(IpAddr, u8), Box<dyn Error>> {
        let (ip, len) = text.split_once('/').ok_or("a prefix is ADDRESS/LENGTH")?;
        Ok((ip.parse()?, len.parse()?))
    };
    Ok(Args {
        side: need("--side")?.parse()?,
        device: value("--device").unwrap_or("ipsec0".into()),
        local: need("--local")?.parse()?,
        remote: need("--remote")?.parse()?,
        local_ts: prefix(need("--local-ts")?)?,
        remote_ts: prefix(need("--remote-ts")?)?,
        suite: value("--suite").unwrap_or("aes128gcm16".into()),
        raw: all.iter().any(|a| a == "--raw"),
        mtu: value("--mtu").unwrap_or("1400".into()).parse()?,
        seed: value("--seed").unwrap_or("1".into()).parse()?,
        stats: value("--stats").unwrap_or("0".into()).parse()?,
    })
}

/// Suite, and bytes of encryption and integrity key.
fn suite(name: &str) -> Result<(EspSuite, usize, usize), Box<dyn Error>> {
    let make = |encr, key_bits, integ| EspSuite { encr, key_bits, integ, ke: None, esn: true };
    Ok(match name {
        "aes128gcm16" => (make(EncrId::AES_GCM_16, 128, None), 16 + 4, 0),
        "aes256gcm16" => (make(EncrId::AES_GCM_16, 256, None), 32 + 4, 0),
        "chacha20poly1305" => (make(EncrId::CHACHA20_POLY1305, 256, None), 32 + 4, 0),
        "aes128-sha256" => (make(EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128)), 16, 32),
        _ => return Err(format!("{name}: no such suite").into()),
    })
}

/// The SA whose sender is `from`.
fn sa(args: &Args, from: u32) -> Result<Command, Box<dyn Error>> {
    let (suite, encr_len, integ_len) = suite(&args.suite)?;
    let mut keys = vec![0; encr_len + integ_len];
    Seeded::new(args.seed.wrapping_mul(2).wrapping_add(from.into())).fill(&mut keys);
    let integ_key = Secret::new(keys.split_off(encr_len));
    let selector =
        |(ip, len)| AddrRange::prefix(ip, len).map(TrafficSelector::addresses).ok_or("a bad prefix");
    let direction = if from == args.side { Direction::Out } else { Direction::In };
    Ok(Command::SaAdd(Box::new(SaAdd {
        direction,
        protocol: ProtocolId::ESP,
        spi: Spi(0x1000 + from),
        reqid: ReqId(1),
        local: SocketAddr::new(args.local, 4500),
        remote: SocketAddr::new(args.remote, 4500),
        udp_encap: !args.raw,
        mode: Mode::Tunnel,
        suite,
        options: SaOptions::default(),
        encr_key: Secret::new(keys),
        integ_key,
        replay_window: if direction == Direction::In { 4096 } else { 0 },
        local_ts: vec![selector(args.local_ts)?],
        remote_ts: vec![selector(args.remote_ts)?],
        lifetime: Lifetime::default(),
        notify_first_use: false,
    })))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = args()?;
    let engine = Engine::new(Box::new(System), Config::default());
    let config = DataPlaneConfig {
        device: TunConfig { name: args.device.clone(), mtu: args.mtu, ..TunConfig::default() },
        ..DataPlaneConfig::default()
    };
    let now = || clock::now().saturating_duration_since(config.epoch);
    engine.apply(now(), &sa(&args, 0)?)?;
    engine.apply(now(), &sa(&args, 1)?)?;
    let selector =
        |(ip, len)| AddrRange::prefix(ip, len).map(TrafficSelector::addresses).ok_or("a bad prefix");
    let policy = PolicyAdd {
        name: "static".into(),
        action: Action::Protect(ReqId(1)),
        local: selector(args.local_ts)?,
        remote: selector(args.remote_ts)?,
        priority: 0,
    };
    engine.apply(now(), &Command::PolicyAdd(policy))?;

    let plane = DataPlane::start(
        &config,
        engine.clone(),
        |ike| {
            eprintln!("IKE message of {} bytes from {} ignored", ike.payload.len(), ike.remote);
            true
        },
        |notice| eprintln!("{notice:?}"),
    )?;
    let mut netlink = Netlink::open()?;
    let rule = Rule::steering(args.remote_ts.0.is_ipv6(), config.mark);
    netlink.add_rule(&rule)?;
    netlink.set_route(&Route {
        table: TABLE,
        destination: Destination { ip: args.remote_ts.0, prefix_len: args.remote_ts.1 },
        kind: RouteKind::Device(plane.device_index()),
        metric: 0,
        source: None,
        mtu: 0,
        protocol: PROTOCOL,
    })?;
    eprintln!("ready: segments of one send {}", plane.max_segments());

    let mut rounds = 0u64;
    loop {
        std::thread::sleep(Duration::from_secs(if args.stats == 0 { 3600 } else { args.stats }));
        rounds += 1;
        eprintln!(
            "{rounds}: {:?}\n{:?}\nsocket drops {}",
            plane.stats(),
            engine.counters(),
            plane.socket_drops()
        );
        if !plane.is_running() {
            return Err("the data plane has ended".into());
        }
    }
}
