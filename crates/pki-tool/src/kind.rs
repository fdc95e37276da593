//! What a file holds, found by its bytes: strongSwan's `pki` has to be told.
//!
//! ```text
//! [SEQUENCE SEQUENCE BIT-STRING]   something signed:  certificate, list (has times), request
//! [SEQUENCE BIT-STRING]            public key
//! [INTEGER ...]                    private key; PKCS#12 when the number is 3
//! [SEQUENCE OCTET-STRING]          private key under a passphrase
//! ```

use der::{Reader, SliceReader};
use ironswan_crypto::sign::{PrivateKey, PublicKey};
use ironswan_pki::key_file::MAX_FILE;
use ironswan_pki::pem::{self, Block};
use ironswan_pki::{Certificate, Crl};

use crate::failure::Failure;
use crate::files::Source;
use crate::request::Request;
use crate::signed::SHOW_ALL;

/// One thing in a file.
pub(crate) enum Item {
    /// A certificate.
    Certificate(Certificate),
    /// A revocation list.
    List(Crl),
    /// A certificate request.
    Request(Box<Request>),
    /// A public key.
    Public(Box<PublicKey>),
    /// A private key.
    Private(PrivateKey),
    /// A private key under a passphrase.
    Locked,
    /// PKCS#12, which is always under a passphrase.
    Container,
}

impl Item {
    /// What it is, in a sentence.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Certificate(_) => "a certificate",
            Self::List(_) => "a revocation list",
            Self::Request(_) => "a certificate request",
            Self::Public(_) => "a public key",
            Self::Private(_) | Self::Locked => "a private key",
            Self::Container => "PKCS#12",
        }
    }
}

/// Everything in a file: one thing in DER, or blocks of PEM. There is one at least.
///
/// # Errors
/// The file holds something that is unknown or damaged: which, and why.
pub(crate) fn items(source: &Source) -> Result<Vec<Item>, Failure> {
    let blocks = pem::blocks(&source.bytes).map_err(|fault| source.unusable(&fault))?;
    let several = blocks.len() > 1;
    let mut items = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        // OpenSSL writes the curve of a key into a block of its own before it.
        if block.label == "EC PARAMETERS" {
            continue;
        }
        let place = if several { format!("{}, block {}", source.name, n + 1) } else { source.name.clone() };
        items.push(item(&place, block)?);
    }
    if items.is_empty() {
        return Err(Failure::usage(format!("{} holds nothing but the name of a curve", source.name)));
    }
    Ok(items)
}

fn item(place: &str, block: &Block) -> Result<Item, Failure> {
    let der = &*block.der;
    let bad = |why: String| {
        Failure::usage(format!("{place} {why}; the file is damaged or cut off: copy or make it again"))
    };
    match guess(der) {
        Some(Guess::Certificate) => {
            Certificate::from_der(der).map(Item::Certificate).map_err(|e| bad(e.to_string()))
        }
        Some(Guess::List) => Crl::from_der(der).map(Item::List).map_err(|e| bad(e.to_string())),
        Some(Guess::Request) => Request::from_der(der)
            .map(|request| Item::Request(Box::new(request)))
            .map_err(|e| bad(format!("is no certificate request: {e}"))),
        Some(Guess::Public) => PublicKey::from_spki(der, SHOW_ALL)
            .map(|key| Item::Public(Box::new(key)))
            .map_err(|e| Failure::usage(format!("{place} holds a public key that cannot be used: {e}"))),
        Some(Guess::Private) => PrivateKey::from_der(der, SHOW_ALL)
            .map(Item::Private)
            .map_err(|e| Failure::usage(format!("{place} holds a private key that cannot be used: {e}"))),
        Some(Guess::Locked) => Ok(Item::Locked),
        Some(Guess::Container) => Ok(Item::Container),
        None => {
            let label = match block.label.as_str() {
                "" => String::new(),
                label => format!(" (its label says {:?})", label.chars().take(40).collect::<String>()),
            };
            Err(Failure::usage(format!(
                "{place} is no certificate, request, revocation list, key or PKCS#12, or it is cut off{label}"
            )))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guess {
    Certificate,
    List,
    Request,
    Public,
    Private,
    Locked,
    Container,
}

/// Elements of the outer SEQUENCE that are looked at: a list has its times among the first six.
const LOOK: usize = 8;
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const TIMES: [u8; 2] = [0x17, 0x18];

fn guess(der: &[u8]) -> Option<Guess> {
    let parts = parts(der)?;
    let tags: Vec<u8> = parts.iter().map(|part| part[0]).collect();
    Some(match tags.as_slice() {
        [SEQUENCE, SEQUENCE, BIT_STRING] => {
            let body: Vec<u8> = self::parts(parts[0])?.iter().map(|part| part[0]).collect();
            match body.as_slice() {
                body if body.iter().any(|tag| TIMES.contains(tag)) => Guess::List,
                [INTEGER, SEQUENCE, SEQUENCE] | [INTEGER, SEQUENCE, SEQUENCE, 0xa0] => Guess::Request,
                _ => Guess::Certificate,
            }
        }
        [SEQUENCE, BIT_STRING] => Guess::Public,
        [SEQUENCE, OCTET_STRING] => Guess::Locked,
        [INTEGER, ..] if parts[0] == [INTEGER, 1, 3] => Guess::Container,
        [INTEGER, ..] => Guess::Private,
        _ => return None,
    })
}

/// The first elements inside a SEQUENCE, each with its tag and length. `None` when the bytes are
/// something else, or do not end where it ends.
fn parts(der: &[u8]) -> Option<Vec<&[u8]>> {
    // Every kind but a list has a lower limit of its own. No reader is needed for a longer file.
    if der.first() != Some(&SEQUENCE) || der.len() > MAX_FILE.max(ironswan_pki::crl::MAX_CRL) {
        return None;
    }
    let mut outer = SliceReader::new(der).ok()?;
    let header = <der::Header as der::Decode>::decode(&mut outer).ok()?;
    if header.length() != outer.remaining_len() {
        return None;
    }
    let mut parts = Vec::new();
    while !outer.is_finished() && parts.len() < LOOK {
        let part = outer.tlv_bytes().ok().filter(|part| !part.is_empty())?;
        parts.push(part);
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_crypto::sign::{Curve, KeyKind};
    use zeroize::Zeroizing;

    #[test]
    fn keys_are_known_by_their_bytes() {
        let key = PrivateKey::generate(KeyKind::Ecdsa(Curve::P256)).unwrap();
        assert_eq!(guess(key.public().spki()), Some(Guess::Public));
        assert_eq!(guess(key.to_pkcs8().unwrap().expose()), Some(Guess::Private));
        for bytes in [&b""[..], b"0", b"hello", &[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff], &[SEQUENCE, 0]] {
            assert_eq!(guess(bytes), None);
        }
    }

    #[test]
    fn no_cut_or_changed_file_makes_more_than_a_message() {
        let key = PrivateKey::generate(KeyKind::Ed25519).unwrap();
        let der = key.public().spki().to_vec();
        let read = |bytes: &[u8]| {
            items(&Source { name: "x".into(), bytes: Zeroizing::new(bytes.to_vec()) })
                .map(|items| items.len())
        };
        assert_eq!(read(&der).unwrap(), 1);
        for cut in 1..der.len() {
            let failure = read(&der[..cut]).unwrap_err();
            assert!(failure.status == 2 && failure.lines[0].starts_with("x "), "{failure:?}");
        }
        for at in 0..der.len() {
            for bit in 0..8 {
                let mut bytes = der.clone();
                bytes[at] ^= 1 << bit;
                // Another public key may come out; a panic may not.
                let _ = read(&bytes);
            }
        }
    }
}
