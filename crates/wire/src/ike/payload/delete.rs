//! Delete payload (RFC 7296 section 3.11): `| protocol | SPI size | number of SPIs | SPIs |`.

use crate::iana::ProtocolId;
use crate::ike::error::Fault;
use crate::read::{EmitError, Reader, Writer};
use crate::sadb::Spi;

/// SAs that the sender has closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delete {
    /// IKE: this IKE_SA. ESP, AH: the SAs of `spis`.
    pub protocol: ProtocolId,
    /// The sender's inbound SPIs: 4 bytes each for ESP and AH; none for IKE.
    pub spis: Vec<Vec<u8>>,
}

impl Delete {
    /// Closes the IKE_SA that carries the message.
    pub fn ike_sa() -> Self {
        Self { protocol: ProtocolId::IKE, spis: Vec::new() }
    }

    /// Closes CHILD_SAs, by our inbound SPIs.
    pub fn children(protocol: ProtocolId, spis: impl IntoIterator<Item = Spi>) -> Self {
        Self { protocol, spis: spis.into_iter().map(|spi| spi.0.to_be_bytes().to_vec()).collect() }
    }

    /// The SPIs of CHILD_SAs, host order.
    pub fn child_spis(&self) -> impl Iterator<Item = Spi> {
        self.spis
            .iter()
            .filter_map(|s| <[u8; 4]>::try_from(s.as_slice()).ok().map(|b| Spi(u32::from_be_bytes(b))))
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let protocol = ProtocolId(r.u8("protocol")?);
        let size = usize::from(r.u8("SPI size")?);
        let count = usize::from(r.u16("number of SPIs")?);
        // "It MUST be zero for IKE (SPI is in message header) or four for AH and ESP."
        match (protocol, size) {
            (ProtocolId::IKE, 0) | (ProtocolId::AH | ProtocolId::ESP, 4) => {}
            (ProtocolId::IKE | ProtocolId::AH | ProtocolId::ESP, _) => {
                return Err(Fault::Invalid("SPI size is not the protocol's"));
            }
            _ => {}
        }
        if size * count != r.left() {
            return Err(Fault::Invalid("SPI size and number of SPIs do not match the length"));
        }
        let spis = match size {
            0 => Vec::new(),
            _ => r.rest().chunks_exact(size).map(<[u8]>::to_vec).collect(),
        };
        Ok(Self { protocol, spis })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        let size = self.spis.first().map_or(if self.protocol == ProtocolId::IKE { 0 } else { 4 }, Vec::len);
        if self.spis.iter().any(|spi| spi.len() != size) {
            return Err(EmitError { what: "SPI of another size" });
        }
        w.u8(self.protocol.0);
        w.count8(size, "SPI")?;
        w.count16(self.spis.len(), "number of SPIs")?;
        for spi in &self.spis {
            w.bytes(spi);
        }
        Ok(())
    }
}
