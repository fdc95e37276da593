//! Notify payload (RFC 7296 section 3.10): `| protocol | SPI size | type | SPI | data |`.

use crate::iana::{NotifyType, ProtocolId};
use crate::ike::error::Fault;
use crate::read::{EmitError, Reader, Writer};

/// An error or a status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notify {
    /// Protocol of the SA it speaks of. "For notifications that do not concern an existing SA, this
    /// field MUST be sent as zero and MUST be ignored on receipt."
    pub protocol: ProtocolId,
    /// SPI of that SA; empty when it speaks of the IKE_SA or of none.
    pub spi: Vec<u8>,
    /// Type of the notification.
    pub kind: NotifyType,
    /// Data of the notification.
    pub data: Vec<u8>,
}

impl Notify {
    /// A notification about this message or this IKE_SA.
    pub fn new(kind: NotifyType, data: impl Into<Vec<u8>>) -> Self {
        Self { protocol: ProtocolId::NONE, spi: Vec::new(), kind, data: data.into() }
    }

    /// A notification about the CHILD_SA with this SPI.
    pub fn about(kind: NotifyType, protocol: ProtocolId, spi: u32) -> Self {
        Self { protocol, spi: spi.to_be_bytes().to_vec(), kind, data: Vec::new() }
    }

    /// The SPI of a CHILD_SA: 4 bytes, host order.
    pub fn child_spi(&self) -> Option<u32> {
        <[u8; 4]>::try_from(self.spi.as_slice()).ok().map(u32::from_be_bytes)
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let protocol = ProtocolId(r.u8("protocol")?);
        let spi_size = r.u8("SPI size")?;
        let kind = NotifyType(r.u16("notify type")?);
        let spi = r.bytes(spi_size.into(), "SPI")?.to_vec();
        Ok(Self { protocol, spi, kind, data: r.rest().to_vec() })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.u8(self.protocol.0);
        w.count8(self.spi.len(), "SPI")?;
        w.u16(self.kind.0);
        w.bytes(&self.spi);
        w.bytes(&self.data);
        Ok(())
    }
}
