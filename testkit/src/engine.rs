//! A model of the packet engine: a SAD and an SPD that apply `sadb` commands and refuse what no
//! engine could do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ironswan_crypto::batch::EspKey;
use ironswan_crypto::icv::IcvKey;
use ironswan_crypto::rng::Seeded;
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::sadb::{
    Action, Command, Direction, Dscp, Mode, OriginalAddresses, PolicyAdd, SaAdd, SaOptions, SaRef, Spi, Tfc,
    Up,
};

/// Every packet of the simulation has this many bytes.
pub const PACKET: u64 = 1_000;

/// Refuses an SA that no engine could install.
fn check(sa: &SaAdd) {
    assert!(sa.spi.0 > 255, "SPI {} is reserved", sa.spi);
    assert!(!sa.local_ts.is_empty() && !sa.remote_ts.is_empty(), "an SA without selectors");
    let (encr, integ) = (sa.encr_key.expose(), sa.integ_key.expose());
    match sa.protocol {
        ProtocolId::AH => {
            assert!(!sa.udp_encap, "AH in UDP");
            assert!(sa.suite.encr == EncrId::NULL && encr.is_empty(), "AH that encrypts: {:?}", sa.suite);
            let key = IcvKey::new(sa.suite.integ.expect("an algorithm"), integ, sa.suite.esn);
            assert!(key.is_some(), "a key of {} bytes for AH with {:?}", integ.len(), sa.suite);
        }
        ProtocolId::ESP => {
            let key = EspKey::new(&sa.suite, encr, integ, &mut Seeded::new(1));
            assert!(key.is_some(), "keys of {} and {} bytes for {}", encr.len(), integ.len(), sa.suite);
        }
        other => panic!("an SA of {other}"),
    }
    let o = &sa.options;
    let tunnel_esp = sa.mode == Mode::Tunnel && sa.protocol == ProtocolId::ESP;
    assert!(tunnel_esp || (o.tfc, o.dummies) == (Tfc::None, None), "padding in {:?}", sa.mode);
    assert!(o.ipcomp.is_none_or(|cpi| (256..=61_439).contains(&cpi)), "CPI {:?}", o.ipcomp);
    if sa.mode == Mode::Transport {
        for (ts, end) in [(&sa.local_ts, sa.local), (&sa.remote_ts, sa.remote)] {
            let host = |addr| ts.iter().all(|t| (t.range.start(), t.range.end()) == (addr, addr));
            assert!(host(end.ip()), "transport mode at {end} for {ts:?}");
        }
    }
    // What does not concern a direction has its default.
    let ours = match sa.direction {
        Direction::In => SaOptions { ipcomp: None, original: None, dscp_in: false, copy_ecn: true, ..*o },
        Direction::Out => SaOptions {
            ipcomp: None,
            copy_df: true,
            copy_ecn: true,
            dscp_out: Dscp::Copy,
            tfc: Tfc::None,
            dummies: None,
            ..*o
        },
    };
    assert_eq!(ours, SaOptions::default(), "{:?}", sa.direction);
}

/// What of a packet of the simulation the other end can judge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// ESP or AH.
    pub protocol: ProtocolId,
    /// How it is carried.
    pub mode: Mode,
    /// IPComp, and under which CPI.
    pub cpi: Option<u16>,
    /// All keys it was sealed with: with others it does not open.
    pub key: Vec<u8>,
    /// Source and destination as the sender has them: what checksums are made with, and AH
    /// protects.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
}

impl Sealed {
    /// By this outbound SA.
    pub fn by(sa: &SaAdd) -> Self {
        Self {
            protocol: sa.protocol,
            mode: sa.mode,
            cpi: sa.options.ipcomp,
            key: [sa.encr_key.expose(), sa.integ_key.expose()].concat(),
            src: sa.local.ip(),
            dst: sa.remote.ip(),
        }
    }

    /// Whether this inbound SA takes it, when it comes with these outer addresses.
    pub fn opens(&self, sa: &SaAdd, from: IpAddr, to: IpAddr) -> Result<(), &'static str> {
        let key = [sa.encr_key.expose(), sa.integ_key.expose()].concat();
        if (sa.protocol, &key) != (self.protocol, &self.key) {
            return Err("another key or protocol");
        }
        if self.protocol == ProtocolId::AH && (from, to) != (self.src, self.dst) {
            return Err("AH was translated");
        }
        if self.mode != sa.mode {
            return Err("another mode");
        }
        if self.cpi != sa.options.ipcomp {
            return Err("another CPI");
        }
        if self.mode == Mode::Transport {
            let within = |ts: &[ironswan_wire::selector::TrafficSelector], addr| {
                ts.iter().any(|t| t.range.contains(addr))
            };
            if !within(&sa.remote_ts, from) || !within(&sa.local_ts, to) {
                return Err("outside of the selectors");
            }
            // The checksum is repaired from the addresses that it was made with to those that the
            // packet has now.
            let made = OriginalAddresses { local: self.dst, remote: self.src };
            let taken = sa.options.original.unwrap_or(OriginalAddresses { local: to, remote: from });
            if made != taken {
                return Err("a wrong checksum");
            }
        }
        Ok(())
    }
}

fn is(out: &SaAdd, name: &SaRef) -> bool {
    (out.spi, out.reqid, out.remote.ip()) == (name.spi, name.reqid, name.remote)
}

/// The model.
#[derive(Default, Debug)]
pub struct Engine {
    /// Inbound SAs by SPI.
    pub inbound: BTreeMap<Spi, SaAdd>,
    /// Inbound SPIs whose SA will come, and the address from which packets may wait for it.
    pub reserved: BTreeMap<Spi, IpAddr>,
    /// Outbound SAs, the newest last.
    pub outbound: Vec<SaAdd>,
    /// Installed policies.
    pub policies: Vec<PolicyAdd>,
    /// Inbound SPIs that have raised FirstUse.
    pub used: Vec<Spi>,
    /// The highest sequence number that has been opened, by inbound SPI.
    pub newest: BTreeMap<Spi, u64>,
    /// Sources that have been told of, until an SA is moved.
    pub told: BTreeSet<(Spi, SocketAddr)>,
    /// Path MTUs that have been told, in bytes, by outbound SPI.
    pub path_mtu: BTreeMap<Spi, u32>,
    /// Packets carried by each SA, in each direction.
    pub counts: BTreeMap<(bool, Spi), u64>,
    /// How often something was added.
    pub added: usize,
}

impl Engine {
    /// Applies a command.
    ///
    /// # Panics
    /// When it adds what is there or removes what is not: an endpoint that does so has lost count.
    pub fn apply(&mut self, command: &Command) {
        match command {
            Command::SaAdd(sa) => {
                self.added += 1;
                check(sa);
                match sa.direction {
                    Direction::In => {
                        let cpi = sa.options.ipcomp;
                        let same = |o: &SaAdd| cpi.is_some() && o.options.ipcomp == cpi;
                        assert!(!self.inbound.values().any(same), "CPI {cpi:?} twice");
                        self.reserved.remove(&sa.spi);
                        let old = self.inbound.insert(sa.spi, (**sa).clone());
                        assert!(old.is_none(), "inbound SPI {} twice", sa.spi);
                    }
                    Direction::Out => {
                        let name = |o: &SaAdd| (o.spi, o.reqid, o.remote.ip());
                        let twice = |o: &SaAdd| name(o) == name(sa);
                        assert!(!self.outbound.iter().any(twice), "outbound SPI {} twice", sa.spi);
                        self.outbound.push((**sa).clone());
                    }
                }
            }
            Command::SpiReserve { spi, remote } => {
                assert!(!self.inbound.contains_key(spi), "SPI {spi} is reserved and has an SA");
                self.reserved.insert(*spi, *remote);
            }
            Command::SpiFree(spi) => _ = self.reserved.remove(spi),
            Command::SaUpdate { sa, local, remote, udp_encap } => {
                let found = match sa.direction {
                    Direction::In => self.inbound.get_mut(&sa.spi),
                    Direction::Out => self.outbound.iter_mut().find(|o| is(o, sa)),
                };
                let found = found.expect("an update of an SA that is there");
                self.told.retain(|(spi, _)| *spi != sa.spi);
                (found.local, found.remote, found.udp_encap) = (*local, *remote, *udp_encap);
            }
            Command::SaPathMtu { sa, mtu } => {
                assert!(
                    self.outbound.iter().any(|o| is(o, sa)),
                    "a path MTU of an outbound SA that is there"
                );
                self.path_mtu.insert(sa.spi, *mtu);
            }
            Command::SaDelete(sa) => match sa.direction {
                Direction::In => {
                    self.inbound.remove(&sa.spi).expect("a delete of an inbound SA that is there");
                }
                Direction::Out => {
                    let at = self
                        .outbound
                        .iter()
                        .position(|o| is(o, sa))
                        .expect("a delete of an outbound SA that is there");
                    self.outbound.remove(at);
                }
            },
            Command::PolicyAdd(p) => {
                // First what differs most, as there may be many.
                let first = p.remote.range.start();
                let same = |q: &PolicyAdd| {
                    q.remote.range.start() == first
                        && (q.remote, q.local, q.action, q.entry) == (p.remote, p.local, p.action, p.entry)
                        && q.name == p.name
                };
                assert!(!self.policies.iter().any(same), "policy {p:?} twice");
                self.policies.push(p.clone());
            }
            Command::PolicyDelete(p) => {
                let at =
                    self.policies.iter().position(|q| q == p).expect("a delete of a policy that is there");
                self.policies.remove(at);
            }
        }
    }

    /// Counts a packet against the limits of its SA: what the key daemon is told, and whether the
    /// packet is carried.
    pub fn count(&mut self, sa: &SaAdd) -> (Option<Up>, bool) {
        let count = self.counts.entry((sa.direction == Direction::In, sa.spi)).or_default();
        let before = *count;
        *count += 1;
        let (packets, bytes) = (*count, *count * PACKET);
        let reached = |of_packets: u64, of_bytes: u64| {
            (of_packets > 0 && packets >= of_packets) || (of_bytes > 0 && bytes >= of_bytes)
        };
        let was = |of_packets: u64, of_bytes: u64| {
            (of_packets > 0 && before >= of_packets) || (of_bytes > 0 && before * PACKET >= of_bytes)
        };
        let l = &sa.lifetime;
        let name = SaRef { direction: sa.direction, spi: sa.spi, reqid: sa.reqid, remote: sa.remote.ip() };
        let told = if reached(l.hard_packets, l.hard_bytes) && !was(l.hard_packets, l.hard_bytes) {
            Some(Up::Expire { sa: name, hard: true })
        } else if reached(l.soft_packets, l.soft_bytes) && !was(l.soft_packets, l.soft_bytes) {
            Some(Up::Expire { sa: name, hard: false })
        } else {
            None
        };
        (told, !reached(l.hard_packets, l.hard_bytes))
    }

    /// The SA that traffic of the first protecting policy leaves through.
    pub fn sending(&self) -> Option<&SaAdd> {
        let reqid = self.policies.iter().find_map(|p| match p.action {
            Action::Protect(r) => Some(r),
            _ => None,
        })?;
        self.outbound.iter().rev().find(|o| o.reqid == reqid)
    }
}
