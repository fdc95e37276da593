//! Packets: what one frame says.

use super::{Error, MAX_FRAME, Section};
use crate::read::{EmitError, Reader, Writer};

/// One packet. Commands go from client to daemon; a client has one in flight, and events may come
/// in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A command and its arguments.
    CmdRequest {
        /// Command.
        name: String,
        /// Arguments.
        message: Section,
    },
    /// The answer to a command.
    CmdResponse(Section),
    /// There is no such command.
    CmdUnknown,
    /// Asks for events of this name.
    EventRegister(String),
    /// Asks for no more events of this name.
    EventUnregister(String),
    /// Done, for the two above.
    EventConfirm,
    /// There is no such event.
    EventUnknown,
    /// An event.
    Event {
        /// Event.
        name: String,
        /// Contents of the packet.
        message: Section,
    },
}

impl Packet {
    /// Reads a frame, without its length field.
    pub fn parse(frame: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(frame);
        let kind = r.u8("packet type")?;
        let name = match kind {
            0 | 3 | 4 | 7 => parse_name(&mut r)?,
            _ => String::new(),
        };
        let packet = match kind {
            0 => Self::CmdRequest { name, message: Section::parse(r.rest())? },
            1 => Self::CmdResponse(Section::parse(r.rest())?),
            2 => Self::CmdUnknown,
            3 => Self::EventRegister(name),
            4 => Self::EventUnregister(name),
            5 => Self::EventConfirm,
            6 => Self::EventUnknown,
            7 => Self::Event { name, message: Section::parse(r.rest())? },
            _ => return Err(Error::PacketType(kind)),
        };
        if r.any_left() { Err(Error::Trailing(r.left())) } else { Ok(packet) }
    }

    /// The frame, length field included.
    pub fn emit(&self) -> Result<Vec<u8>, EmitError> {
        let mut out = Vec::with_capacity(256);
        let mut w = Writer::new(&mut out);
        let length = w.reserve32();
        let (kind, name, message) = match self {
            Self::CmdRequest { name, message } => (0, Some(name), Some(message)),
            Self::CmdResponse(message) => (1, None, Some(message)),
            Self::CmdUnknown => (2, None, None),
            Self::EventRegister(name) => (3, Some(name), None),
            Self::EventUnregister(name) => (4, Some(name), None),
            Self::EventConfirm => (5, None, None),
            Self::EventUnknown => (6, None, None),
            Self::Event { name, message } => (7, Some(name), Some(message)),
        };
        w.u8(kind);
        if let Some(name) = name {
            emit_name(name, &mut w)?;
        }
        if let Some(message) = message {
            message.emit_onto(&mut w)?;
        }
        if w.len() - 4 > MAX_FRAME {
            return Err(EmitError { what: "VICI message" });
        }
        w.patch32(length, 4, "VICI message")?;
        Ok(out)
    }
}

pub(super) fn parse_name(r: &mut Reader<'_>) -> Result<String, Error> {
    let length = r.u8("name length")?;
    let name = r.bytes(length.into(), "name")?;
    std::str::from_utf8(name).map(str::to_owned).map_err(|_| Error::Name)
}

pub(super) fn emit_name(name: &str, w: &mut Writer<'_>) -> Result<(), EmitError> {
    w.count8(name.len(), "VICI name")?;
    w.bytes(name.as_bytes());
    Ok(())
}
