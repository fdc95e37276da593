//! Key material on disk for those who debug their own tunnels: the tables that Wireshark and tshark read
//! (`ikev2_decryption_table`, `esp_sa`), in the format of strongSwan's save-keys plugin, and `ike_sk` with every SK_*.
//!
//! Off unless `keylog = DIR` is set, and said loudly in the log when it is on. The files are the owner's only.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use ironswan_ike::event::KeyLog;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::secret::Secret;
use zeroize::Zeroizing;

/// The two tables, open for appending.
#[derive(Debug)]
pub struct KeyLogger {
    ike: File,
    esp: File,
    sk: File,
}

impl KeyLogger {
    /// Opens or makes the tables in `dir`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(dir: &Path) -> io::Result<Self> {
        if !dir.is_dir() {
            DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
        }
        let open = |name: &str| OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(name));
        Ok(Self { ike: open("ikev2_decryption_table")?, esp: open("esp_sa")?, sk: open("ike_sk")? })
    }

    /// Appends one line.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, entry: &KeyLog) -> io::Result<()> {
        let line = line(entry);
        match entry {
            KeyLog::Ike { spi_i, spi_r, keys, .. } => {
                self.ike.write_all(line.as_bytes())?;
                self.sk.write_all(all_sk(*spi_i, *spi_r, keys).as_bytes())
            }
            KeyLog::Child { .. } => self.esp.write_all(line.as_bytes()),
        }
    }
}

fn line(entry: &KeyLog) -> Zeroizing<String> {
    // A name that Wireshark does not know would make it refuse the whole table; the line is there for people.
    let comment = match entry {
        KeyLog::Ike { suite, .. } if ike_cipher(suite.encr, suite.key_bits).is_none() => "# ",
        // AH encrypts nothing, and Wireshark has no table for it.
        KeyLog::Child { protocol: ProtocolId::AH, .. } => "# AH ",
        KeyLog::Child { suite, .. } if esp_cipher(suite.encr).is_none() => "# ",
        _ => "",
    };
    Zeroizing::new(match entry {
        KeyLog::Ike { spi_i, spi_r, suite, keys } => {
            let [_, ai, ar, ei, er, _, _] = &**keys;
            format!(
                "{comment}{spi_i:016x},{spi_r:016x},{},{},\"{}\",{},{},\"{}\"\n",
                *hex(ei),
                *hex(er),
                ike_cipher(suite.encr, suite.key_bits).unwrap_or_else(|| suite.encr.to_string()),
                *hex(ai),
                *hex(ar),
                ike_integrity(suite.integ),
            )
        }
        KeyLog::Child { spi, src, dst, suite, encr_key, integ_key, .. } => format!(
            "{comment}\"{}\",\"{}\",\"{}\",\"0x{spi}\",\"{}\",\"0x{}\",\"{}\",\"{}\"\n",
            if src.is_ipv6() { "IPv6" } else { "IPv4" },
            src.ip(),
            dst.ip(),
            esp_cipher(suite.encr).map_or_else(|| suite.encr.to_string(), str::to_owned),
            *hex(encr_key),
            esp_integrity(suite.integ),
            if integ_key.is_empty() {
                Zeroizing::new(String::new())
            } else {
                Zeroizing::new(format!("0x{}", *hex(integ_key)))
            }
            .as_str(),
        ),
    })
}

/// Both SPIs, then SK_d, SK_ai, SK_ar, SK_ei, SK_er, SK_pi, SK_pr: what Wireshark's table leaves out, for comparing key
/// derivations with another implementation's.
fn all_sk(spi_i: u64, spi_r: u64, keys: &[Secret; 7]) -> Zeroizing<String> {
    let mut out = Zeroizing::new(format!("{spi_i:016x},{spi_r:016x}"));
    for key in keys {
        out.push(',');
        out.push_str(&hex(key));
    }
    out.push('\n');
    out
}

fn hex(secret: &Secret) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(secret.len() * 2));
    for b in secret.expose() {
        for nibble in [b >> 4, b & 15] {
            out.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
        }
    }
    out
}

// The names are those of Wireshark's menus (packet-isakmp.c, packet-ipsec.c), which its tables are matched by.

/// `None` for what it does not know, or knows in a way that does not decrypt.
fn ike_cipher(encr: EncrId, bits: u16) -> Option<String> {
    let (mode, icv) = match encr {
        EncrId::DES3 => return Some("3DES [RFC2451]".to_owned()),
        EncrId::NULL => return Some("NULL [RFC2410]".to_owned()),
        EncrId::AES_CBC => return Some(format!("AES-CBC-{bits} [RFC3602]")),
        EncrId::AES_GCM_8 => ("GCM", 8),
        EncrId::AES_GCM_12 => ("GCM", 12),
        EncrId::AES_GCM_16 => ("GCM", 16),
        EncrId::AES_CCM_8 => ("CCM", 8),
        EncrId::AES_CCM_12 => ("CCM", 12),
        EncrId::AES_CCM_16 => ("CCM", 16),
        _ => return None,
    };
    Some(format!("AES-{mode}-{bits} with {icv} octet ICV [RFC5282]"))
}

fn ike_integrity(integ: Option<IntegId>) -> &'static str {
    match integ {
        None => "NONE [RFC4306]",
        Some(IntegId::HMAC_MD5_96) => "HMAC_MD5_96 [RFC2403]",
        Some(IntegId::HMAC_SHA1_96) => "HMAC_SHA1_96 [RFC2404]",
        Some(IntegId::HMAC_SHA2_256_128) => "HMAC_SHA2_256_128 [RFC4868]",
        Some(IntegId::HMAC_SHA2_384_192) => "HMAC_SHA2_384_192 [RFC4868]",
        Some(IntegId::HMAC_SHA2_512_256) => "HMAC_SHA2_512_256 [RFC4868]",
        // AES-XCBC and AES-CMAC, which it cannot check but must step over.
        Some(_) => "ANY 96-bits of Authentication [No Checking]",
    }
}

/// `None` for what it does not know: packets with an IV that it does not see would come out shifted.
fn esp_cipher(encr: EncrId) -> Option<&'static str> {
    Some(match encr {
        EncrId::NULL => "NULL",
        EncrId::DES3 => "TripleDES-CBC [RFC2451]",
        EncrId::AES_CBC => "AES-CBC [RFC3602]",
        EncrId::AES_CTR => "AES-CTR [RFC3686]",
        EncrId::AES_GCM_8 => "AES-GCM with 8 octet ICV [RFC4106]",
        EncrId::AES_GCM_12 => "AES-GCM with 12 octet ICV [RFC4106]",
        EncrId::AES_GCM_16 => "AES-GCM with 16 octet ICV [RFC4106]",
        _ => return None,
    })
}

fn esp_integrity(integ: Option<IntegId>) -> &'static str {
    match integ {
        None | Some(IntegId::NONE) => "NULL",
        Some(IntegId::HMAC_MD5_96) => "HMAC-MD5-96 [RFC2403]",
        Some(IntegId::HMAC_SHA1_96) => "HMAC-SHA-1-96 [RFC2404]",
        Some(IntegId::HMAC_SHA2_256_128) => "HMAC-SHA-256-128 [RFC4868]",
        Some(IntegId::HMAC_SHA2_384_192) => "HMAC-SHA-384-192 [RFC4868]",
        Some(IntegId::HMAC_SHA2_512_256) => "HMAC-SHA-512-256 [RFC4868]",
        Some(IntegId::AES_128_GMAC | IntegId::AES_192_GMAC | IntegId::AES_256_GMAC) => {
            "ANY 128 bit authentication [no checking]"
        }
        // AES-XCBC and AES-CMAC.
        Some(_) => "ANY 96 bit authentication [no checking]",
    }
}

#[cfg(test)]
#[path = "keylog_tests.rs"]
mod tests;
