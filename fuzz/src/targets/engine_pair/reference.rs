//! Models that the engine is compared with: an SPD that is a list, and the cutting of
//! super-packets, both written the plain way.

use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::{Fragment, IpInfo, parse, protocol, tcp, v4};
use ironswan_wire::offload::{Gso, Offload};
use ironswan_wire::sadb::{Action, PolicyAdd};
use ironswan_wire::selector::{PacketSelector, Precedence};

/// The SPD by definition: the first policy that covers the packet. Policies are in the order of the
/// entries that they were narrowed from; of one entry the more specific comes first, then the
/// older.
#[derive(Default)]
pub(super) struct Policies(Vec<PolicyAdd>);

impl Policies {
    pub(super) fn add(&mut self, policy: PolicyAdd) {
        self.0.push(policy);
        // Stable: of equals the older is first.
        self.0.sort_by_key(|p| {
            let protect = matches!(p.action, Action::Protect(_));
            let order = Precedence::new(&p.local, &p.remote, p.priority, p.entry.open, protect);
            (order, p.entry.age, p.local.open_bits() + p.remote.open_bits())
        });
    }

    pub(super) fn outbound(&self, p: &PacketSelector) -> Option<Action> {
        let covers = |policy: &&PolicyAdd| {
            policy.local.matches(p.src, p.protocol, p.src_port)
                && policy.remote.matches(p.dst, p.protocol, p.dst_port)
        };
        self.0.iter().find(covers).map(|policy| policy.action)
    }

    /// The actions of all policies that may cover the whole packet which this later fragment is a
    /// part of.
    pub(super) fn of_fragment(&self, p: &PacketSelector) -> Vec<Action> {
        let covers = |policy: &&PolicyAdd| {
            let side = |ts: &ironswan_wire::selector::TrafficSelector, addr| {
                ts.range.contains(addr) && (ts.protocol == 0 || ts.protocol == p.protocol)
            };
            side(&policy.local, p.src) && side(&policy.remote, p.dst)
        };
        self.0.iter().filter(covers).map(|policy| policy.action).collect()
    }
}

/// The finished packets that a device makes of a frame. `None` for one whose offload header
/// contradicts it.
pub(super) fn cut(frame: &[u8], offload: &Offload) -> Option<Vec<Vec<u8>>> {
    let info = parse(frame).ok()?;
    let frame = &frame[..info.total_len];
    if offload.gso == Gso::None {
        let mut packet = frame.to_vec();
        if let Some((start, offset)) = offload.csum {
            let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
            let value = match !fold(sum(packet.get(start..)?)) {
                0 => 0xffff,
                value => value,
            };
            packet.get_mut(field..field + 2)?.copy_from_slice(&value.to_ne_bytes());
        }
        return Some(vec![packet]);
    }
    let upper = &frame[info.upper..];
    let is_tcp = offload.gso != Gso::UdpL4;
    let header = info.upper + if is_tcp { tcp::header_len(upper)? } else { 8 };
    let (head, body) = frame.split_at_checked(header)?;
    let size = usize::from(offload.segment_size).max(1);
    let count = body.len().div_ceil(size).max(1);
    (0..count)
        .map(|i| {
            let part = &body[(i * size).min(body.len())..((i + 1) * size).min(body.len())];
            segment(head, part, &info, i, size, i + 1 == count)
        })
        .collect()
}

/// The `i`-th segment.
fn segment(head: &[u8], part: &[u8], info: &IpInfo, i: usize, size: usize, last: bool) -> Option<Vec<u8>> {
    let mut p = [head, part].concat();
    let total = p.len();
    let addresses = if info.ipv6 {
        p[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        p[8..40].to_vec()
    } else {
        let id = u16::from_be_bytes([p[4], p[5]]).wrapping_add(i as u16);
        p[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        p[4..6].copy_from_slice(&id.to_be_bytes());
        v4::set_checksum(&mut p[..info.upper]);
        p[12..20].to_vec()
    };
    let u = p.get_mut(info.upper..)?;
    let field = if info.protocol == protocol::TCP {
        let seq = u32::from_be_bytes([u[4], u[5], u[6], u[7]]).wrapping_add((i * size) as u32);
        u[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            u[13] &= !(tcp::FIN | tcp::PSH);
        }
        if i != 0 {
            u[13] &= !tcp::CWR;
        }
        16
    } else {
        let len = (u.len() as u16).to_be_bytes();
        u[4..6].copy_from_slice(&len);
        6
    };
    u[field..field + 2].fill(0);
    let value = match !fold(pseudo(&addresses, info.protocol) + be16(u.len() as u16) + sum(u)) {
        0 if info.protocol == protocol::UDP => 0xffff,
        value => value,
    };
    u[field..field + 2].copy_from_slice(&value.to_ne_bytes());
    Some(p)
}

/// The bytes of a packet that must be the same at both ends. `whole` is for tunnel mode: all bytes
/// but those that the SA may change, DSCP unless `dscp`. In transport mode the header belongs to
/// the path, so addresses, protocol and payload count.
pub(super) fn canonical(packet: &[u8], whole: bool, dscp: bool) -> Option<Vec<u8>> {
    let info = parse(packet).ok()?;
    let mut p = packet[..info.total_len].to_vec();
    let from = if info.ipv6 { 8..40 } else { 12..20 };
    if !whole {
        return Some([&p[from], &[info.protocol], &p[info.upper..]].concat());
    }
    if !dscp {
        if info.ipv6 {
            p[0] &= 0xf0;
            p[1] &= 0x3f;
        } else {
            p[1] &= 3;
        }
    }
    if !info.ipv6 {
        p[10..12].fill(0);
        // With DF the identification says nothing, and merging does not keep it (RFC 6864 section
        // 4.1).
        if p[6] & 0x40 != 0 && info.fragment == Fragment::No {
            p[4..6].fill(0);
        }
    }
    Some(p)
}

/// The flow of a packet, and whether it is a fragment. Packets of one flow keep their order.
pub(super) fn flow(packet: &[u8]) -> Option<(PacketSelector, bool)> {
    let info = parse(packet).ok()?;
    Some((info.selector(packet)?, info.fragment != Fragment::No))
}
