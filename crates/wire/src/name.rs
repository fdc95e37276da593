//! Distinguished names: how they compare (RFC 5280 section 7.1) and how they are shown.
//!
//! ```text
//! Name = SEQUENCE of RDN;  RDN = SET of attributes;  attribute = type, string
//! C=CH  ,  O=example  ,  OU=a + CN=b
//! ```
//! Not here: names that people write (`name_text`).

use std::fmt::Write as _;

use crate::der::{
    BMP_STRING, IA5_STRING, Malformed, OID, PRINTABLE_STRING, Read, Reader, SEQUENCE, SET, TELETEX_STRING,
    UNIVERSAL_STRING, UTF8_STRING, only,
};
use crate::oid;
use crate::printable::hides;

/// Longest name in bytes. Names of a path are compared with each other, so their length is work.
pub const MAX_NAME: usize = 8 << 10;
/// Most attributes of one RDN. Their order says nothing, so each is compared with each.
const MAX_ATTRIBUTES: usize = 16;
/// Characters of one name that are shown.
const SHOWN: usize = 256;

/// Types of attributes with the abbreviations of strongSwan and OpenSSL. Of two with one type the
/// first is shown.
pub const ABBREVIATIONS: &[(&str, &[u8])] = &[
    ("C", &[0x55, 4, 6]),
    ("ST", &[0x55, 4, 8]),
    ("L", &[0x55, 4, 7]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("CN", &[0x55, 4, 3]),
    ("SN", &[0x55, 4, 5]),
    ("serialNumber", &[0x55, 4, 5]),
    ("S", &[0x55, 4, 4]),
    ("G", &[0x55, 4, 42]),
    ("I", &[0x55, 4, 43]),
    ("T", &[0x55, 4, 12]),
    ("D", &[0x55, 4, 13]),
    ("N", &[0x55, 4, 41]),
    ("dnQualifier", &[0x55, 4, 46]),
    ("pseudonym", &[0x55, 4, 65]),
    ("generationQualifier", &[0x55, 4, 44]),
    ("street", &[0x55, 4, 9]),
    ("STREET", &[0x55, 4, 9]),
    ("postalCode", &[0x55, 4, 17]),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25]),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1]),
    ("E", EMAIL),
    ("Email", EMAIL),
    ("emailAddress", EMAIL),
    ("unstructuredName", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2]),
];

/// Type of the attribute that holds an address of RFC 822.
pub const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// A distinguished name whose structure was checked.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// The SEQUENCE with its tag and length.
    der: &'a [u8],
}

/// One attribute of an RDN.
#[derive(Clone, Copy)]
pub struct Attribute<'a> {
    /// Type, an object identifier.
    pub kind: &'a [u8],
    /// Tag of the value.
    pub tag: u8,
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Name<'a> {
    /// Checks the structure of a `Name` in DER. `None` when the bytes are something else, or longer
    /// than 8 KiB.
    pub fn from_der(der: &'a [u8]) -> Option<Self> {
        Self::check(der).ok()
    }

    /// Checks the structure of a name.
    pub fn check(der: &'a [u8]) -> Read<Self> {
        if der.len() > MAX_NAME {
            return Err(Malformed);
        }
        let mut rdns = Reader::new(only(der, SEQUENCE)?);
        while !rdns.is_empty() {
            let mut rdn = rdns.inside(SET)?;
            let mut count = 0;
            while !rdn.is_empty() {
                attribute(&mut rdn)?;
                count += 1;
            }
            if count == 0 || count > MAX_ATTRIBUTES {
                return Err(Malformed);
            }
        }
        Ok(Self { der })
    }

    /// A name whose structure was checked when its certificate was read.
    pub fn checked(der: &'a [u8]) -> Self {
        Self { der }
    }

    /// The name in DER, as in an identity of type ID_DER_ASN1_DN.
    pub fn der(&self) -> &'a [u8] {
        self.der
    }

    /// True for the name without any RDN.
    pub fn is_empty(&self) -> bool {
        self.rdns().next().is_none()
    }

    /// The RDNs, each with its attributes.
    fn rdns(&self) -> impl Iterator<Item = impl Iterator<Item = Attribute<'a>> + Clone> {
        let mut reader = Reader::new(only(self.der, SEQUENCE).unwrap_or_default());
        std::iter::from_fn(move || {
            let mut rdn = reader.inside(SET).ok()?;
            Some(std::iter::from_fn(move || attribute(&mut rdn).ok()))
        })
    }

    /// All attributes, without regard to the RDN in which they stand.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> {
        self.rdns().flatten()
    }

    /// The form that equal names have in common: strings in lower case, with single spaces between
    /// words, whatever their encoding; attributes of one RDN in order.
    pub fn folded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.der.len());
        for rdn in self.rdns() {
            let mut attributes: Vec<Vec<u8>> = rdn.map(|attribute| attribute.folded()).collect();
            attributes.sort_unstable();
            out.push(attributes.len() as u8);
            out.extend(attributes.into_iter().flatten());
        }
        out
    }

    /// True when all RDNs of `self` stand at the beginning of `name`: the test of a constraint on
    /// directory names (RFC 5280 section 4.2.1.10).
    pub fn is_prefix_of(&self, name: &Self) -> bool {
        name.folded().starts_with(&self.folded())
    }

    /// True when `self` fits a name in which a value `*` stands for any value. Both have the same
    /// number of RDNs, of the same types, as strongSwan compares by default.
    pub fn fits(&self, pattern: &Name<'_>) -> bool {
        let (mut ours, mut wanted) = (self.rdns(), pattern.rdns());
        loop {
            match (ours.next(), wanted.next()) {
                (None, None) => return true,
                (Some(ours), Some(wanted)) => {
                    let one_fits = |want: Attribute<'_>| {
                        ours.clone().any(|attribute| {
                            attribute.kind == want.kind
                                && (want.value == b"*" || attribute.folded() == want.folded())
                        })
                    };
                    if ours.clone().count() != wanted.clone().count() || !wanted.clone().all(one_fits) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der || self.folded() == other.folded()
    }
}

impl Eq for Name<'_> {}

impl std::fmt::Display for Name<'_> {
    /// `C=CH, O=example, CN=gateway`. Control and format characters are escaped, and at most 256
    /// characters shown, so that no name can split or flood a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        for (n, rdn) in self.rdns().enumerate() {
            for (m, attribute) in rdn.enumerate() {
                out.push_str(match (n, m) {
                    (0, 0) => "",
                    (_, 0) => ", ",
                    _ => " + ",
                });
                let known = ABBREVIATIONS.iter().find(|(_, kind)| *kind == attribute.kind);
                match known {
                    Some((short, _)) => out.push_str(short),
                    None => out.push_str(&oid::dotted(attribute.kind)),
                }
                out.push('=');
                match attribute.text() {
                    Some(text) => push_shown(&mut out, &text),
                    None => {
                        for byte in attribute.value.iter().take(32) {
                            write!(out, "{byte:02x}")?;
                        }
                    }
                }
                if out.len() > SHOWN {
                    let cut = (0..=SHOWN).rev().find(|&at| out.is_char_boundary(at)).unwrap_or(0);
                    return write!(f, "{}...", &out[..cut]);
                }
            }
        }
        f.write_str(&out)
    }
}

impl std::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name({self})")
    }
}

impl<'a> Attribute<'a> {
    /// The characters of a string. `None` when the value is no string, or not well encoded.
    pub fn text(&self) -> Option<std::borrow::Cow<'a, str>> {
        match self.tag {
            UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
                std::str::from_utf8(self.value).ok().map(Into::into)
            }
            // The character sets of T.61 that are in use agree with Latin 1.
            TELETEX_STRING => Some(self.value.iter().map(|&b| char::from(b)).collect::<String>().into()),
            BMP_STRING => wide(self.value, 2),
            UNIVERSAL_STRING => wide(self.value, 4),
            _ => None,
        }
    }

    /// The form that equal attributes have in common.
    fn folded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.kind.len() + self.value.len() + 6);
        out.push(self.kind.len() as u8);
        out.extend_from_slice(self.kind);
        let Some(text) = self.text() else {
            out.push(self.tag);
            out.extend_from_slice(&(self.value.len() as u32).to_be_bytes());
            out.extend_from_slice(self.value);
            return out;
        };
        let at = out.len();
        out.extend_from_slice(&[UTF8_STRING, 0, 0, 0, 0]);
        let mut buffer = [0; 4];
        for (n, word) in text.split_whitespace().enumerate() {
            if n > 0 {
                out.push(b' ');
            }
            for c in word.chars().flat_map(char::to_lowercase) {
                out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
        }
        let len = (out.len() - at - 5) as u32;
        out[at + 1..at + 5].copy_from_slice(&len.to_be_bytes());
        out
    }
}

/// Characters of two or four bytes each.
fn wide<'a>(value: &[u8], size: usize) -> Option<std::borrow::Cow<'a, str>> {
    if !value.len().is_multiple_of(size) {
        return None;
    }
    let code = |bytes: &[u8]| bytes.iter().fold(0u32, |code, &byte| code << 8 | u32::from(byte));
    value
        .chunks_exact(size)
        .map(|bytes| char::from_u32(code(bytes)))
        .collect::<Option<String>>()
        .map(Into::into)
}

/// Adds text of somebody else to a message. Of a long text the beginning is added.
pub fn push_shown(out: &mut String, text: &str) {
    for c in text.chars().take(SHOWN) {
        // Characters that change the direction of text could make a name look like another one.
        if hides(c) || c == '\\' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
}

fn attribute<'a>(rdn: &mut Reader<'a>) -> Read<Attribute<'a>> {
    let mut reader = rdn.inside(SEQUENCE)?;
    let kind = reader.read(OID)?;
    let element = reader.element()?;
    reader.end()?;
    if kind.is_empty() || kind.len() > 64 {
        return Err(Malformed);
    }
    Ok(Attribute { kind, tag: element.tag, value: element.value })
}
