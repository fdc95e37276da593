//! A packet in a capture: the block of pcapng, with its comment.

use std::time::Duration;

use ironswan_ike::event::IkeId;
use ironswan_ipsec::{Carrier, Fate, Layer, Tap, TapPacket};
use ironswan_wire::ip::protocol;
use ironswan_wire::pcap::{PacketDirection, PcapNg, Record, Statistics};
use ironswan_wire::read::EmitError;
use ironswan_wire::sadb::Direction;

use super::around;
use crate::dataplane::captured::IkeCopy;

/// The names of the interfaces, in the order of [`Layer`].
const INTERFACES: [&str; 2] = ["inner", "outer"];

/// Whose a packet is: connection and child, as far as they are known.
#[derive(Clone, Copy, Default)]
pub(super) struct Whose<'a> {
    pub(super) conn: Option<&'a str>,
    pub(super) child: Option<&'a str>,
}

/// The blocks before the first packet.
pub(super) fn begin(snaplen: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let snaplen = u32::try_from(snaplen).unwrap_or(u32::MAX);
    let written =
        PcapNg::begin(&mut out, concat!("ironswan ", env!("CARGO_PKG_VERSION"))).and_then(|mut file| {
            INTERFACES.iter().try_for_each(|name| file.interface(&mut out, name, snaplen).map(|_| ()))
        });
    written.expect("constants fit");
    out
}

/// The blocks behind the last packet.
pub(super) fn end(time: u64, recorded: [u64; 2], missed: [u64; 2], shared: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let file = PcapNg::resume(INTERFACES.len() as u32);
    for ((interface, recorded), missed) in file.interfaces().zip(recorded).zip(missed) {
        let mut comment = format!("{missed} packets were missed");
        if shared && missed != 0 {
            comment += "; some of them may be of other captures";
        }
        let received = recorded + missed;
        let time = Duration::from_nanos(time);
        let counts = Statistics { interface, time, received, dropped: missed, comment: &comment };
        file.statistics(&mut out, &counts).expect("the interface is there");
    }
    out
}

/// Adds a copy of the data plane.
pub(super) fn packet(
    out: &mut Vec<u8>,
    (tap, packet): (&Tap, &TapPacket),
    whose: Whose<'_>,
    snaplen: usize,
) -> Result<(), EmitError> {
    let copy = tap.bytes(packet);
    let mut bytes = Vec::with_capacity(copy.len() + 48);
    if let Some(outer) = &packet.outer {
        let next = match outer.carrier {
            Carrier::Udp => Some(protocol::UDP),
            Carrier::Esp => Some(protocol::ESP),
            Carrier::Ip => None,
        };
        if let Some(next) = next {
            let ends = match packet.direction {
                Direction::Out => (outer.local, outer.remote),
                Direction::In => (outer.remote, outer.local),
            };
            bytes = around::headers(ends, (next, outer.tos), copy, packet.original_len);
        }
    }
    let original_len = bytes.len() + packet.original_len;
    bytes.extend_from_slice(copy);
    bytes.truncate(snaplen);
    let mut comment = ours(whose);
    if packet.spi.0 != 0 {
        comment += &format!(", SPI {}, packet {}", packet.spi, packet.sequence);
    }
    comment += match packet.direction {
        Direction::Out => ", out",
        Direction::In => ", in",
    };
    comment += &match packet.fate {
        Fate::Passed => ", passed".to_owned(),
        Fate::Dummy => ", dummy packet".to_owned(),
        Fate::Dropped(why) => format!(", dropped: {}: {}", why.name(), why.sentence()),
    };
    add(out, packet.layer, (packet.time, packet.direction), (&bytes, original_len), &comment)
}

/// Adds an IKE message.
pub(super) fn ike(
    out: &mut Vec<u8>,
    copy: &IkeCopy,
    whose: Whose<'_>,
    snaplen: usize,
) -> Result<(), EmitError> {
    let ends = match copy.direction {
        Direction::Out => (copy.local, copy.remote),
        Direction::In => (copy.remote, copy.local),
    };
    let mut bytes = around::headers(ends, (protocol::UDP, 0), &copy.payload, copy.payload.len());
    bytes.extend_from_slice(&copy.payload);
    let original_len = bytes.len();
    bytes.truncate(snaplen);
    let mut comment = ours(whose);
    if let Some(IkeId(id)) = copy.ike {
        comment += &format!(", IKE_SA {id}");
    }
    comment += match copy.direction {
        Direction::Out => ", out, passed",
        Direction::In => ", in, passed",
    };
    add(out, Layer::Outer, (copy.time, copy.direction), (&bytes, original_len), &comment)
}

/// `connection net, child net`; names as they can be shown.
fn ours(whose: Whose<'_>) -> String {
    let Some(conn) = whose.conn else { return "no connection".to_owned() };
    let mut comment = format!("connection {}", conn.escape_debug());
    if let Some(child) = whose.child {
        comment += &format!(", child {}", child.escape_debug());
    }
    comment
}

fn add(
    out: &mut Vec<u8>,
    layer: Layer,
    (time, direction): (u64, Direction),
    (bytes, original_len): (&[u8], usize),
    comment: &str,
) -> Result<(), EmitError> {
    let file = PcapNg::resume(INTERFACES.len() as u32);
    let at = match layer {
        Layer::Inner => 0,
        Layer::Outer => 1,
    };
    let interface = file.interfaces().nth(at).ok_or(EmitError { what: "interface number" })?;
    let way = match direction {
        Direction::In => PacketDirection::In,
        Direction::Out => PacketDirection::Out,
    };
    let time = Duration::from_nanos(time);
    file.packet(out, &Record { interface, time, way, bytes, original_len, comment })
}
