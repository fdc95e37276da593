//! Connections for stories: gateways `g1.example` at 192.0.2.1 and `g2.example` at 192.0.2.2 (or
//! 2001:db8::1 and ::2), with the networks 10.1.0.0/24 and 10.2.0.0/24 behind them.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::{
    AddrSpec, Auth, ChildAction, ChildConfig, ChildKind, Childless, Connection, Fragmentation, Ppk, SendCert,
    SharedKey, TsSpec, Unique,
};
use ironswan_wire::iana::{EncrId, EsnId, IntegId, KeId, PrfId, ProtocolId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::sadb::{Lifetime, Mode, SaOptions};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

/// An address written in a test.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// All traffic of a prefix.
pub fn net(text: &str) -> TsSpec {
    let (addr, len) = text.split_once('/').expect("a prefix");
    let range = AddrRange::prefix(ip(addr), len.parse().expect("a length")).expect("a prefix");
    TsSpec::Fixed(TrafficSelector::addresses(range))
}

/// An IKE proposal: AES-GCM-128, PRF-HMAC-SHA2-256 and these methods.
pub fn ike_proposal(ke: &[KeId]) -> Proposal {
    let mut transforms =
        vec![Transform::Encr(EncrId::AES_GCM_16, Some(128)), Transform::Prf(PrfId::HMAC_SHA2_256)];
    transforms.extend(ke.iter().map(|k| Transform::Ke(*k)));
    Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
}

/// An IKE proposal with AES-CBC-128 and HMAC-SHA2-256.
pub fn ike_proposal_cbc(ke: &[KeId]) -> Proposal {
    let mut transforms = vec![
        Transform::Encr(EncrId::AES_CBC, Some(128)),
        Transform::Integ(IntegId::HMAC_SHA2_256_128),
        Transform::Prf(PrfId::HMAC_SHA2_256),
    ];
    transforms.extend(ke.iter().map(|k| Transform::Ke(*k)));
    Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }
}

/// An ESP proposal: AES-GCM-128, these methods, no ESN.
pub fn esp_proposal(ke: &[KeId]) -> Proposal {
    let mut transforms = vec![Transform::Encr(EncrId::AES_GCM_16, Some(128))];
    transforms.extend(ke.iter().map(|k| Transform::Ke(*k)));
    transforms.push(Transform::Esn(EsnId::NO_ESN));
    Proposal { number: 1, protocol: ProtocolId::ESP, spi: Vec::new(), transforms }
}

/// The same ESP proposal with additional key exchanges (RFC 9370): number and method.
pub fn esp_proposal_with(ke: &[KeId], additional: &[(u8, KeId)]) -> Proposal {
    let mut proposal = esp_proposal(ke);
    proposal.transforms.extend(additional.iter().map(|(n, id)| Transform::AddKe(*n, *id)));
    proposal
}

/// A child without timers.
pub fn child(name: &str, local: &str, remote: &str) -> ChildConfig {
    ChildConfig {
        name: name.to_owned(),
        proposals: vec![esp_proposal(&[])],
        local_ts: vec![net(local)],
        remote_ts: vec![net(remote)],
        mode: Mode::Tunnel,
        ipcomp: false,
        options: SaOptions::default(),
        policies: true,
        kind: ChildKind::Protect,
        rekey_time: Duration::ZERO,
        life_time: Duration::ZERO,
        rand_time: Duration::ZERO,
        inactivity: Duration::ZERO,
        lifetime: Lifetime::default(),
        replay_window: 4096,
        start_action: ChildAction::None,
        close_action: ChildAction::None,
        dpd_action: ChildAction::None,
        reqid: 0,
        priority: 0,
        guard: true,
    }
}

/// A connection without timers, with one child `net`.
pub fn connection(local: IpAddr, remote: IpAddr, ids: (&str, &str), nets: (&str, &str)) -> Connection {
    Connection {
        name: "gw".to_owned(),
        local_addrs: vec![AddrSpec::Host(local)],
        remote_addrs: vec![AddrSpec::Host(remote)],
        local_port: None,
        remote_port: 500,
        proposals: vec![ike_proposal(&[KeId::CURVE_25519])],
        local_auth: Auth::Psk,
        remote_auth: Auth::Psk,
        local_rounds: Vec::new(),
        remote_rounds: Vec::new(),
        local_id: Identity::parse(ids.0),
        remote_id: IdPattern::parse(ids.1).expect("an identity"),
        encap: false,
        mobike: false,
        dscp: 0,
        dpd_delay: Duration::ZERO,
        path_probe: false,
        keyingtries: 1,
        unique: Unique::No,
        childless: Childless::Allow,
        fragmentation: Fragmentation::Yes,
        ppk_id: None,
        ppk_required: false,
        ppk_intermediate: true,
        send_cert: SendCert::IfAsked,
        send_certreq: true,
        rekey_time: Duration::ZERO,
        reauth_time: Duration::ZERO,
        over_time: Duration::ZERO,
        rand_time: Duration::ZERO,
        children: vec![child("net", nets.0, nets.1)],
    }
}

/// Both sides' connections: node 0 is g1, node 1 is g2.
pub fn pair(a: IpAddr, b: IpAddr) -> [Connection; 2] {
    [
        connection(a, b, ("g1.example", "g2.example"), ("10.1.0.0/24", "10.2.0.0/24")),
        connection(b, a, ("g2.example", "g1.example"), ("10.2.0.0/24", "10.1.0.0/24")),
    ]
}

/// A pre-shared key.
pub fn psk(name: &str, secret: &str, owners: &[&str]) -> SharedKey {
    SharedKey {
        name: name.to_owned(),
        secret: Secret::from(secret.as_bytes()),
        owners: owners.iter().map(|o| IdPattern::parse(o).expect("an identity")).collect(),
    }
}

/// A post-quantum preshared key of this identifier, which is 32 bytes of one value.
pub fn ppk(id: &str, byte: u8) -> Ppk {
    Ppk {
        name: format!("ppk-{id}"),
        secret: Secret::new(vec![byte; 32]),
        ids: vec![Identity::parse(id).expect("an identity")],
    }
}

/// `dynamic`: the outer address of that end, for one protocol and port (0: any).
pub fn dynamic(protocol: u8, port: u16) -> TsSpec {
    let (start_port, end_port) = if port == 0 { (0, 65_535) } else { (port, port) };
    TsSpec::Dynamic { protocol, start_port, end_port }
}

/// Makes `net` of a connection a transport-mode child between the two gateways themselves.
pub fn transport(conn: &mut Connection) {
    let child = &mut conn.children[0];
    (child.mode, child.local_ts, child.remote_ts) =
        (Mode::Transport, vec![dynamic(0, 0)], vec![dynamic(0, 0)]);
}

/// An AH proposal: HMAC-SHA2-256-128, these methods, no ESN.
pub fn ah_proposal(ke: &[KeId]) -> Proposal {
    let mut transforms = vec![Transform::Integ(IntegId::HMAC_SHA2_256_128)];
    transforms.extend(ke.iter().map(|k| Transform::Ke(*k)));
    transforms.push(Transform::Esn(EsnId::NO_ESN));
    Proposal { number: 1, protocol: ProtocolId::AH, spi: Vec::new(), transforms }
}

/// The same IKE proposal with additional key exchanges (RFC 9370): number and method.
pub fn ike_proposal_with(ke: &[KeId], additional: &[(u8, KeId)]) -> Proposal {
    let mut proposal = ike_proposal(ke);
    proposal.transforms.extend(additional.iter().map(|(n, id)| Transform::AddKe(*n, *id)));
    proposal
}
