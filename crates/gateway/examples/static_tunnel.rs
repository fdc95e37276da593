//! SAs with keys from the command line instead of IKE: to measure the data plane alone, and to face
//! a Linux kernel with `ip xfrm`. Never use it for traffic that matters: the keys never change.
//!
//! ```text
//! static_tunnel --side 0 --local 192.0.2.1 --remote 192.0.2.2 \
//!     --local-ts 10.1.0.0/24 --remote-ts 10.2.0.0/24
//! static_tunnel --side 1 --local 192.0.2.2 --remote 192.0.2.1 \
//!     --local-ts 10.2.0.0/24 --remote-ts 10.1.0.0/24
//! ```
//!
//! | option | |
//! |---|---|
//! | `--side 0\|1` | which end this is; not needed with `--out` and `--in` |
//! | `--seed N` | what the keys are derived from, the same on both sides (1) |
//! | `--out`, `--in SPI:ENCR:INTEG` | hexadecimal; the salt follows the key; a key may be empty |
//! | `--suite WORDS` | of ESP, in swanctl's words: `aes128gcm16` (the default), `null-sha1` |
//! | `--ah WORD` | AH instead: `sha256`, `md5`, `aes128gmac` |
//! | `--mode tunnel\|transport` | transport mode wants selectors of one address |
//! | `--ipcomp IN:OUT` | IPComp, with our CPI and the peer's, hexadecimal |
//! | `--esn yes\|no` | extended sequence numbers (yes) |
//! | `--window N` | anti-replay window in packets, 0 for none (4096) |
//! | `--raw` | ESP without UDP |
//! | `--path-mtu N` | to the peer, outer header included: inner packets are made to fit |
//! | `--copy-df`, `--copy-ecn yes\|no` | as in swanctl.conf (yes) |
//! | `--dscp-out copy\|N`, `--dscp-in yes\|no` | DSCP of the outer header; to the inner one (no) |
//! | `--tfc N\|mtu` | padding |
//! | `--dummies MS` | a dummy packet after this long without others |
//! | `--original LOCAL,REMOTE` | transport mode through a NAT: addresses as the peer knows them |
//! | `--device NAME`, `--mtu N` | the TUN device (`ipsec0`, 1400) |
//! | `--stats SECONDS` | counters this often (`0.2` will do) |
//!
//! Runs until killed; the device and its route go with it, the rule stays.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use ironswan_crypto::batch::keymat_lens;
use ironswan_crypto::rng::{Rng, Seeded, System};
use ironswan_gateway::dataplane::userspace::{Workers, WorkersConfig};
use ironswan_io::clock;
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE};
use ironswan_io::tun::TunConfig;
use ironswan_ipsec::mtu::Encapsulation;
use ironswan_ipsec::{Config, Engine};
use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Entry, Lifetime, Mode, OriginalAddresses, PolicyAdd, ReqId, SaAdd,
    SaOptions, SaRef, Spi, Tfc,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

/// The options that take a value.
const VALUES: &[&str] = &[
    "--side",
    "--seed",
    "--out",
    "--in",
    "--suite",
    "--ah",
    "--mode",
    "--ipcomp",
    "--esn",
    "--window",
    "--path-mtu",
    "--copy-df",
    "--copy-ecn",
    "--dscp-out",
    "--dscp-in",
    "--tfc",
    "--dummies",
    "--original",
    "--device",
    "--mtu",
    "--stats",
    "--local",
    "--remote",
    "--local-ts",
    "--remote-ts",
];
/// Those that take none.
const FLAGS: &[&str] = &["--raw"];

type Result<T> = std::result::Result<T, String>;

/// SPI, encryption key and integrity key of one direction.
struct Keys {
    spi: u32,
    encr: Vec<u8>,
    integ: Vec<u8>,
}

/// The command line.
struct Args {
    device: String,
    local: IpAddr,
    remote: IpAddr,
    local_ts: (IpAddr, u8),
    remote_ts: (IpAddr, u8),
    protocol: ProtocolId,
    suite: EspSuite,
    mode: Mode,
    inbound: Keys,
    outbound: Keys,
    /// Our CPI and the peer's.
    ipcomp: Option<(u16, u16)>,
    options: SaOptions,
    window: u32,
    raw: bool,
    path_mtu: Option<u32>,
    mtu: u32,
    stats: f64,
}

/// What was written, by option.
struct Written(BTreeMap<String, String>);

impl Written {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut all = BTreeMap::new();
        while let Some(word) = words.next() {
            let value = match word.as_str() {
                w if FLAGS.contains(&w) => String::new(),
                w if VALUES.contains(&w) => words.next().ok_or(format!("{word} takes a value"))?,
                _ => {
                    return Err(format!("{word} is no option; the options stand at the top of this program"));
                }
            };
            if all.insert(word.clone(), value).is_some() {
                return Err(format!("{word} is there twice"));
            }
        }
        Ok(Self(all))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        let parse = |text: &str| text.parse().map_err(|e| format!("{name} {text}: {e}"));
        self.get(name).map(parse).transpose()
    }

    fn needed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T> {
        self.parsed(name)?.ok_or(format!("{name} is missing"))
    }

    fn yes(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(other) => Err(format!("{name} {other}: write yes or no")),
        }
    }

    /// The two halves of a value.
    fn pair(&self, name: &str, by: char) -> Result<Option<(&str, &str)>> {
        let split = |text: &'_ str| text.find(by).ok_or(format!("{name} {text}: there is no `{by}` in it"));
        let Some(text) = self.get(name) else { return Ok(None) };
        let at = split(text)?;
        Ok(Some((&text[..at], &text[at + 1..])))
    }

    fn prefix(&self, name: &str) -> Result<(IpAddr, u8)> {
        let (ip, len) = self.pair(name, '/')?.ok_or(format!("{name} is missing"))?;
        let bad = || format!("{name} {ip}/{len} is not ADDRESS/LENGTH");
        let prefix: (IpAddr, u8) = (ip.parse().map_err(|_| bad())?, len.parse().map_err(|_| bad())?);
        AddrRange::prefix(prefix.0, prefix.1).map(|_| prefix).ok_or_else(bad)
    }

    fn options(&self) -> Result<SaOptions> {
        let default = SaOptions::default();
        Ok(SaOptions {
            ipcomp: None,
            copy_df: self.yes("--copy-df", default.copy_df)?,
            copy_ecn: self.yes("--copy-ecn", default.copy_ecn)?,
            dscp_out: match self.get("--dscp-out") {
                None | Some("copy") => Dscp::Copy,
                Some(_) => match self.needed("--dscp-out")? {
                    value @ 0..64 => Dscp::Set(value),
                    value => return Err(format!("--dscp-out {value} is more than 63")),
                },
            },
            dscp_in: self.yes("--dscp-in", default.dscp_in)?,
            tfc: match self.get("--tfc") {
                None => Tfc::None,
                Some("mtu") => Tfc::Mtu,
                Some(_) => Tfc::To(self.needed("--tfc")?),
            },
            dummies: self.parsed("--dummies")?.map(Duration::from_millis),
            original: match self.pair("--original", ',')? {
                None => None,
                Some((local, remote)) => {
                    let ip = |text: &str| text.parse().map_err(|e| format!("--original {text}: {e}"));
                    Some(OriginalAddresses { local: ip(local)?, remote: ip(remote)? })
                }
            },
        })
    }

    fn suite(&self, protocol: ProtocolId) -> Result<EspSuite> {
        let esn = self.yes("--esn", true)?;
        let mut suite = EspSuite { encr: EncrId::NULL, key_bits: 0, integ: None, ke: None, esn };
        if protocol == ProtocolId::AH {
            let word = self.needed::<String>("--ah")?;
            suite.integ = Some(integ(&word).ok_or(format!("--ah {word}: no such integrity algorithm"))?);
            return Ok(suite);
        }
        let words = self.get("--suite").unwrap_or("aes128gcm16");
        let mut ciphers = 0;
        for word in words.split('-') {
            // `aes128gmac` is a cipher (ENCR_NULL_AUTH_AES_GMAC) in ESP.
            match (encr(word), integ(word)) {
                (Some((id, bits)), _) => (suite.encr, suite.key_bits, ciphers) = (id, bits, ciphers + 1),
                (None, Some(id)) if suite.integ.is_none() => suite.integ = Some(id),
                _ => return Err(format!("--suite {words}: what is `{word}`?")),
            }
        }
        match keymat_lens(&suite) {
            Some(_) if ciphers == 1 => Ok(suite),
            _ => Err(format!(
                "--suite {words}: one cipher, and sha256 or the like beside it unless it is an AEAD"
            )),
        }
    }

    /// `--out` or `--in`, or what follows from the seed.
    fn keys(&self, name: &str, protocol: ProtocolId, suite: &EspSuite) -> Result<Keys> {
        let (encr_len, integ_len) = match protocol {
            ProtocolId::AH => (0, suite.integ.and_then(algorithm::integ).map_or(0, |s| s.key_len)),
            _ => keymat_lens(suite).ok_or("the suite has no keys")?,
        };
        let Some(text) = self.get(name) else {
            let side = match self.needed("--side")? {
                side @ (0 | 1) => side,
                side => return Err(format!("--side {side}: write 0 or 1")),
            };
            let from: u32 = if name == "--out" { side } else { 1 - side };
            let seed = self.parsed::<u64>("--seed")?.unwrap_or(1);
            let mut encr = vec![0; encr_len + integ_len];
            Seeded::new(seed.wrapping_mul(2).wrapping_add(from.into())).fill(&mut encr);
            let integ = encr.split_off(encr_len);
            return Ok(Keys { spi: 0x1000 + from, encr, integ });
        };
        let parts: Vec<&str> = text.split(':').collect();
        let [spi, encr, integ] = parts[..] else {
            return Err(format!(
                "{name} {text}: write SPI:ENCRYPTION-KEY:INTEGRITY-KEY, the keys may be empty"
            ));
        };
        let keys = Keys { spi: number(name, spi)?, encr: hex(name, encr)?, integ: hex(name, integ)? };
        if keys.spi < 256 {
            return Err(format!("{name}: SPIs below 0x100 are reserved"));
        }
        if (keys.encr.len(), keys.integ.len()) != (encr_len, integ_len) {
            return Err(format!(
                "{name}: {suite} takes {encr_len} bytes for encryption (salt included) and {integ_len} for integrity, these \
                 are {} and {}",
                keys.encr.len(),
                keys.integ.len()
            ));
        }
        Ok(keys)
    }

    fn args(&self) -> Result<Args> {
        let protocol = if self.get("--ah").is_some() { ProtocolId::AH } else { ProtocolId::ESP };
        if protocol == ProtocolId::AH && self.get("--suite").is_some() {
            return Err("--ah and --suite exclude each other".into());
        }
        let suite = self.suite(protocol)?;
        let args = Args {
            device: self.parsed("--device")?.unwrap_or("ipsec0".into()),
            local: self.needed("--local")?,
            remote: self.needed("--remote")?,
            local_ts: self.prefix("--local-ts")?,
            remote_ts: self.prefix("--remote-ts")?,
            protocol,
            suite,
            mode: match self.get("--mode") {
                None | Some("tunnel") => Mode::Tunnel,
                Some("transport") => Mode::Transport,
                Some(other) => return Err(format!("--mode {other}: write tunnel or transport")),
            },
            inbound: self.keys("--in", protocol, &suite)?,
            outbound: self.keys("--out", protocol, &suite)?,
            ipcomp: match self.pair("--ipcomp", ':')? {
                None => None,
                Some((ours, theirs)) => {
                    let cpi =
                        |text| u16::try_from(number("--ipcomp", text)?).map_err(|e| format!("--ipcomp: {e}"));
                    Some((cpi(ours)?, cpi(theirs)?))
                }
            },
            options: self.options()?,
            window: self.parsed("--window")?.unwrap_or(4096),
            raw: self.get("--raw").is_some(),
            path_mtu: self.parsed("--path-mtu")?,
            mtu: self.parsed("--mtu")?.unwrap_or(1400),
            stats: self.parsed("--stats")?.unwrap_or(0.0),
        };
        args.sensible().map(|()| args)
    }
}

impl Args {
    fn sensible(&self) -> Result<()> {
        let families = |a: IpAddr, b: IpAddr| a.is_ipv6() == b.is_ipv6();
        if !families(self.local, self.remote) || !families(self.local_ts.0, self.remote_ts.0) {
            return Err("an address of IPv4 and one of IPv6 do not make a pair".into());
        }
        let host = |(ip, len): (IpAddr, u8)| len == if ip.is_ipv6() { 128 } else { 32 };
        if self.mode == Mode::Transport && !(host(self.local_ts) && host(self.remote_ts)) {
            return Err("in transport mode both selectors are one address: ADDRESS/32, or /128".into());
        }
        if self.mode == Mode::Transport && !families(self.local, self.local_ts.0) {
            return Err(
                "transport mode has one IP header, so outer and inner addresses are of one family".into()
            );
        }
        if self.options.original.is_some() && self.mode == Mode::Tunnel {
            return Err("--original is for transport mode".into());
        }
        Ok(())
    }

    fn selector(prefix: (IpAddr, u8)) -> Result<TrafficSelector> {
        AddrRange::prefix(prefix.0, prefix.1).map(TrafficSelector::addresses).ok_or("a bad prefix".into())
    }

    /// One of the two SAs.
    fn sa(&self, direction: Direction) -> Result<SaAdd> {
        let out = direction == Direction::Out;
        let keys = if out { &self.outbound } else { &self.inbound };
        let cpi = self.ipcomp.map(|(ours, theirs)| if out { theirs } else { ours });
        // What the other direction has no use for it does not get.
        let mut options = SaOptions { ipcomp: cpi, ..self.options };
        if out {
            options.original = None;
        } else {
            options.dummies = None;
        }
        Ok(SaAdd {
            direction,
            protocol: self.protocol,
            spi: Spi(keys.spi),
            reqid: ReqId(1),
            local: SocketAddr::new(self.local, 4500),
            remote: SocketAddr::new(self.remote, 4500),
            // AH has no encapsulation in UDP: no NAT can be let change what it covers.
            udp_encap: !self.raw && self.protocol == ProtocolId::ESP,
            mode: self.mode,
            suite: self.suite,
            options,
            encr_key: Secret::new(keys.encr.clone()),
            integ_key: Secret::new(keys.integ.clone()),
            replay_window: if out { 0 } else { self.window },
            local_ts: vec![Self::selector(self.local_ts)?],
            remote_ts: vec![Self::selector(self.remote_ts)?],
            lifetime: Lifetime::default(),
            notify_first_use: false,
        })
    }

    /// What the engine is told.
    fn commands(&self) -> Result<Vec<Command>> {
        let (outbound, inbound) = (self.sa(Direction::Out)?, self.sa(Direction::In)?);
        let sa = SaRef {
            direction: Direction::Out,
            spi: outbound.spi,
            reqid: outbound.reqid,
            remote: outbound.remote.ip(),
        };
        let mut commands = vec![Command::SaAdd(Box::new(inbound)), Command::SaAdd(Box::new(outbound))];
        commands.extend(self.path_mtu.map(|mtu| Command::SaPathMtu { sa, mtu }));
        commands.push(Command::PolicyAdd(PolicyAdd {
            name: "static".into(),
            action: Action::Protect(ReqId(1)),
            local: Self::selector(self.local_ts)?,
            remote: Self::selector(self.remote_ts)?,
            priority: 0,
            entry: Entry::default(),
        }));
        Ok(commands)
    }

    /// What leads into the device.
    fn route(&self, device: u32) -> Result<Route> {
        // Without copy_df the inner packets stay whole and the outer ones may be fragmented.
        let fits = self.path_mtu.filter(|_| self.options.copy_df);
        let fits = fits.map(|mtu| self.sa(Direction::Out).map(|sa| Encapsulation::of(&sa).inner_max(mtu)));
        Ok(Route {
            table: TABLE,
            destination: Destination { ip: self.remote_ts.0, prefix_len: self.remote_ts.1 },
            kind: RouteKind::Device(device),
            metric: 0,
            // The kernel would take another address of its own.
            source: (self.mode == Mode::Transport).then_some(self.local_ts.0),
            mtu: fits.transpose()?.unwrap_or(0),
            protocol: PROTOCOL,
        })
    }
}

/// A cipher by swanctl's word: its number and key bits.
fn encr(word: &str) -> Option<(EncrId, u16)> {
    Some(match word {
        "null" => (EncrId::NULL, 0),
        "3des" => (EncrId::DES3, 0),
        "chacha20poly1305" => (EncrId::CHACHA20_POLY1305, 256),
        "chacha20poly1305iiv" => (EncrId::CHACHA20_POLY1305_IIV, 256),
        _ => {
            let (bits, kind) = word.strip_prefix("aes")?.split_at_checked(3)?;
            let bits = bits.parse().ok().filter(|bits| [128, 192, 256].contains(bits))?;
            let id = match kind {
                "" => EncrId::AES_CBC,
                "ctr" => EncrId::AES_CTR,
                "gmac" => EncrId::NULL_AES_GMAC,
                "gcm8" => EncrId::AES_GCM_8,
                "gcm12" => EncrId::AES_GCM_12,
                "gcm16" => EncrId::AES_GCM_16,
                "gcm16iiv" => EncrId::AES_GCM_16_IIV,
                "ccm8" => EncrId::AES_CCM_8,
                "ccm12" => EncrId::AES_CCM_12,
                "ccm16" => EncrId::AES_CCM_16,
                "ccm8iiv" => EncrId::AES_CCM_8_IIV,
                _ => return None,
            };
            (id, bits)
        }
    })
}

/// An integrity algorithm by swanctl's word.
fn integ(word: &str) -> Option<IntegId> {
    Some(match word {
        "md5" => IntegId::HMAC_MD5_96,
        "sha1" => IntegId::HMAC_SHA1_96,
        "sha256" => IntegId::HMAC_SHA2_256_128,
        "sha384" => IntegId::HMAC_SHA2_384_192,
        "sha512" => IntegId::HMAC_SHA2_512_256,
        "aesxcbc" => IntegId::AES_XCBC_96,
        "aescmac" => IntegId::AES_CMAC_96,
        "aes128gmac" => IntegId::AES_128_GMAC,
        "aes192gmac" => IntegId::AES_192_GMAC,
        "aes256gmac" => IntegId::AES_256_GMAC,
        _ => return None,
    })
}

/// A hexadecimal number, with or without `0x`.
fn number(name: &str, text: &str) -> Result<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|e| format!("{name} {text}: {e}"))
}

/// Hexadecimal bytes, with or without `0x`.
fn hex(name: &str, text: &str) -> Result<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|v| v as u8);
    let byte = |pair: &[u8]| Some(value(pair[0])? << 4 | value(*pair.get(1)?)?);
    digits
        .chunks(2)
        .map(byte)
        .collect::<Option<_>>()
        .ok_or(format!("{name}: {text} is not hexadecimal bytes"))
}

fn run() -> Result<()> {
    let args = Written::read(std::env::args().skip(1))?.args()?;
    let engine = Engine::new(Box::new(System), Config::default());
    let config = WorkersConfig {
        device: TunConfig { name: args.device.clone(), mtu: args.mtu, ..TunConfig::default() },
        ..WorkersConfig::default()
    };
    for command in args.commands()? {
        let now = clock::now().saturating_duration_since(config.epoch);
        engine.apply(now, &command).map_err(|e| e.to_string())?;
    }
    let plane = Workers::start(
        &config,
        engine.clone(),
        |ike| {
            eprintln!("IKE message of {} bytes from {} ignored", ike.payload.len(), ike.remote);
            true
        },
        |notice| eprintln!("{notice:?}"),
    )
    .map_err(|e| e.to_string())?;
    let mut netlink = Netlink::open().map_err(|e| e.to_string())?;
    let rule = Rule::fallback(args.remote_ts.0.is_ipv6(), config.mark, false);
    netlink.add_rule(&rule).map_err(|e| e.to_string())?;
    netlink.set_route(&args.route(plane.device_index())?).map_err(|e| e.to_string())?;
    eprintln!("ready: segments of one send {}", plane.max_segments());

    let mut rounds = 0u64;
    loop {
        std::thread::sleep(if args.stats > 0.0 {
            Duration::from_secs_f64(args.stats)
        } else {
            Duration::MAX
        });
        rounds += 1;
        let (stats, counters) = (plane.stats(), engine.counters());
        let drops = counters.drops().filter(|(_, n)| *n > 0).map(|(why, n)| format!(" {why}={n}"));
        let drops: String = drops.collect();
        eprintln!("{rounds}: {stats:?}\n{counters:?}\nsocket drops {}\ndrops:{drops}", plane.socket_drops());
        if !plane.is_running() {
            return Err("the data plane has ended".into());
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("static_tunnel: {e}");
            ExitCode::FAILURE
        }
    }
}
