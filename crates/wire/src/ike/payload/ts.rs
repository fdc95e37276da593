//! Traffic selector payloads (RFC 7296 section 3.13).
//!
//! ```text
//! | number | RESERVED | then each:
//! | type | protocol | length | start port | end port | start address | end address |
//! ```

use std::net::IpAddr;

use crate::iana::TsType;
use crate::ike::error::Fault;
use crate::read::{EmitError, Reader, Writer};
use crate::selector::{AddrRange, TrafficSelector};

/// Reads the selectors. One of a type that is not known (Fibre Channel, security labels) is left
/// out, which narrows the payload to what is understood; the result may be empty then, and nothing
/// is agreed on it.
pub(super) fn parse(r: &mut Reader<'_>) -> Result<Vec<TrafficSelector>, Fault> {
    let count = r.u8("number of selectors")?;
    r.bytes(3, "RESERVED")?;
    if count == 0 {
        return Err(Fault::Invalid("no traffic selector"));
    }
    let mut selectors = Vec::new();
    for _ in 0..count {
        let kind = TsType(r.u8("TS type")?);
        let protocol = r.u8("IP protocol")?;
        let length = usize::from(r.u16("selector length")?);
        let body = length.checked_sub(4).ok_or(Fault::Invalid("selector length below 4"))?;
        let mut r = r.sub(body, "selector")?;
        let (start_port, end_port, range) = match (kind, length) {
            (TsType::IPV4_ADDR_RANGE, 16) => {
                let ports = (r.u16("start port")?, r.u16("end port")?);
                let start = IpAddr::from(r.array::<4>("start address")?);
                (ports.0, ports.1, AddrRange::new(start, r.array::<4>("end address")?.into()))
            }
            (TsType::IPV6_ADDR_RANGE, 40) => {
                let ports = (r.u16("start port")?, r.u16("end port")?);
                let start = IpAddr::from(r.array::<16>("start address")?);
                (ports.0, ports.1, AddrRange::new(start, r.array::<16>("end address")?.into()))
            }
            (TsType::IPV4_ADDR_RANGE | TsType::IPV6_ADDR_RANGE, _) => {
                return Err(Fault::Invalid("selector length is not its type's"));
            }
            _ => continue,
        };
        let range = range.ok_or(Fault::Invalid("start address behind end address"))?;
        let selector = TrafficSelector { range, protocol, start_port, end_port };
        if start_port > end_port && !selector.opaque_port() {
            return Err(Fault::Invalid("start port behind end port"));
        }
        selectors.push(selector);
    }
    Ok(selectors)
}

pub(super) fn emit(selectors: &[TrafficSelector], w: &mut Writer<'_>) -> Result<(), EmitError> {
    if selectors.is_empty() {
        return Err(EmitError { what: "TS payload without a selector" });
    }
    w.count8(selectors.len(), "number of selectors")?;
    w.zeros(3);
    for ts in selectors {
        let (kind, length) = match ts.range.is_ipv6() {
            false => (TsType::IPV4_ADDR_RANGE, 16),
            true => (TsType::IPV6_ADDR_RANGE, 40),
        };
        w.u8(kind.0);
        w.u8(ts.protocol);
        w.u16(length);
        w.u16(ts.start_port);
        w.u16(ts.end_port);
        for addr in [ts.range.start(), ts.range.end()] {
            match addr {
                IpAddr::V4(a) => w.bytes(&a.octets()),
                IpAddr::V6(a) => w.bytes(&a.octets()),
            }
        }
    }
    Ok(())
}
