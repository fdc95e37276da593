//! `GeneralName` (RFC 5280 section 4.2.1.6): a name in one of nine forms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::der::{Malformed, Read, Reader};
use crate::name::{Name, push_shown};

/// A name of one of nine forms. Text is as it stands: no character set was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeneralName<'a> {
    /// Address of electronic mail.
    Email(&'a [u8]),
    /// Name of the DNS.
    Dns(&'a [u8]),
    /// Distinguished name.
    Directory(Name<'a>),
    /// URI.
    Uri(&'a [u8]),
    /// IP address, of 4 or 16 bytes; in a constraint with its mask, twice as long.
    Ip(&'a [u8]),
    /// One of the other forms: its number.
    Other(u8),
}

impl<'a> GeneralName<'a> {
    /// Reads the next name.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Read<Self> {
        let element = reader.element()?;
        Ok(match element.tag {
            0x81 => Self::Email(element.value),
            0x82 => Self::Dns(element.value),
            // A CHOICE inside cannot be implicit, so the name stands in an element of its own.
            0xa4 => Self::Directory(Name::check(element.value)?),
            0x86 => Self::Uri(element.value),
            0x87 => Self::Ip(element.value),
            0xa0 | 0xa3 | 0xa5 | 0x88 => Self::Other(element.tag & 0x1f),
            _ => return Err(Malformed),
        })
    }

    /// Checks a list of names: the inside of `GeneralNames`.
    pub(crate) fn check_list(list: &'a [u8]) -> Read<()> {
        let mut reader = Reader::new(list);
        while !reader.is_empty() {
            Self::read(&mut reader)?;
        }
        Ok(())
    }

    /// The names of a list that was checked.
    pub(crate) fn list(list: &'a [u8]) -> impl Iterator<Item = Self> {
        let mut reader = Reader::new(list);
        std::iter::from_fn(move || Self::read(&mut reader).ok())
    }

    /// Number of the form, as in ASN.1.
    pub(crate) fn form(&self) -> u8 {
        match self {
            Self::Email(_) => 1,
            Self::Dns(_) => 2,
            Self::Directory(_) => 4,
            Self::Uri(_) => 6,
            Self::Ip(_) => 7,
            Self::Other(form) => *form,
        }
    }

    /// The address, when this is one.
    pub fn ip(&self) -> Option<IpAddr> {
        let Self::Ip(bytes) = self else { return None };
        if let Ok(v4) = <[u8; 4]>::try_from(*bytes) {
            return Some(Ipv4Addr::from(v4).into());
        }
        <[u8; 16]>::try_from(*bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
    }
}

impl std::fmt::Display for GeneralName<'_> {
    /// Escaped, and of limited length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Email(text) | Self::Dns(text) | Self::Uri(text) => {
                let mut out = String::new();
                push_shown(&mut out, &String::from_utf8_lossy(&text[..text.len().min(256)]));
                f.write_str(&out)
            }
            Self::Directory(name) => write!(f, "{name}"),
            Self::Ip(bytes) => match self.ip() {
                Some(addr) => write!(f, "{addr}"),
                None => write!(f, "an address of {} bytes", bytes.len()),
            },
            Self::Other(form) => write!(f, "a name of form {form}"),
        }
    }
}
