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
    // A name that Wireshark does not know would make it refuse the whole table.
    let comment = match entry {
        KeyLog::Ike { suite, .. } if suite.encr == EncrId::CHACHA20_POLY1305 => "# ",
        // AH encrypts nothing, and Wireshark has no table for it.
        KeyLog::Child { protocol: ProtocolId::AH, .. } => "# AH ",
        KeyLog::Child { suite, .. } if suite.encr == EncrId::CHACHA20_POLY1305 => "# ",
        _ => "",
    };
    Zeroizing::new(match entry {
        KeyLog::Ike { spi_i, spi_r, suite, keys } => {
            let [_, ai, ar, ei, er, _, _] = &**keys;
            format!(
                "{comment}{spi_i:016x},{spi_r:016x},{},{},\"{}\",{},{},\"{}\"\n",
                *hex(ei),
                *hex(er),
                ike_cipher(suite.encr, suite.key_bits),
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
            esp_cipher(suite.encr),
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

fn ike_cipher(encr: EncrId, bits: u16) -> String {
    match encr {
        EncrId::AES_CBC => format!("AES-CBC-{bits} [RFC3602]"),
        EncrId::AES_GCM_16 => format!("AES-GCM-{bits} with 16 octet ICV [RFC5282]"),
        EncrId::CHACHA20_POLY1305 => "CHACHA20-POLY1305 [RFC7634]".to_owned(),
        other => other.to_string(),
    }
}

fn ike_integrity(integ: Option<IntegId>) -> String {
    match integ {
        None => "NONE [RFC4306]".to_owned(),
        Some(id @ (IntegId::HMAC_SHA2_256_128 | IntegId::HMAC_SHA2_384_192 | IntegId::HMAC_SHA2_512_256)) => {
            format!("{id} [RFC4868]")
        }
        Some(other) => other.to_string(),
    }
}

fn esp_cipher(encr: EncrId) -> &'static str {
    match encr {
        EncrId::NULL => "NULL",
        EncrId::AES_CBC => "AES-CBC [RFC3602]",
        EncrId::AES_GCM_16 => "AES-GCM with 16 octet ICV [RFC4106]",
        EncrId::CHACHA20_POLY1305 => "ChaCha20 with Poly1305 [RFC7634]",
        _ => "unknown",
    }
}

fn esp_integrity(integ: Option<IntegId>) -> &'static str {
    match integ {
        None => "NULL",
        Some(IntegId::HMAC_SHA2_256_128) => "HMAC-SHA-256-128 [RFC4868]",
        Some(IntegId::HMAC_SHA2_384_192) => "HMAC-SHA-384-192 [RFC4868]",
        Some(IntegId::HMAC_SHA2_512_256) => "HMAC-SHA-512-256 [RFC4868]",
        Some(_) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use ironswan_wire::iana::{KeId, PrfId};
    use ironswan_wire::proposal::{EspSuite, IkeSuite};
    use ironswan_wire::sadb::Spi;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn lines_are_what_wireshark_reads_and_the_files_are_private() {
        let secret = |b: u8, n: usize| Secret::new(vec![b; n]);
        let ike = KeyLog::Ike {
            spi_i: 1,
            spi_r: 0xabcd,
            suite: IkeSuite {
                encr: EncrId::AES_CBC,
                key_bits: 128,
                integ: Some(IntegId::HMAC_SHA2_256_128),
                prf: PrfId::HMAC_SHA2_256,
                ke: KeId::CURVE_25519,
            },
            keys: Box::new([0, 1, 2, 3, 4, 5, 6].map(|b| secret(b, 2))),
        };
        let esp = KeyLog::Child {
            protocol: ProtocolId::ESP,
            spi: Spi(0xc0ffee01),
            src: "192.0.2.1:4500".parse().unwrap(),
            dst: "192.0.2.2:4500".parse().unwrap(),
            suite: EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false },
            encr_key: secret(0xab, 3),
            integ_key: Secret::default(),
        };
        let dir = Scratch::new();
        let keys = dir.path().join("keys");
        let mut log = KeyLogger::open(&keys).unwrap();
        log.write(&ike).unwrap();
        log.write(&esp).unwrap();
        let read = |n: &str| std::fs::read_to_string(keys.join(n)).unwrap();
        assert_eq!(
            read("ikev2_decryption_table"),
            "0000000000000001,000000000000abcd,0303,0404,\"AES-CBC-128 [RFC3602]\",0101,0202,\"HMAC_SHA2_256_128 [RFC4868]\"\n"
        );
        assert_eq!(
            read("esp_sa"),
            "\"IPv4\",\"192.0.2.1\",\"192.0.2.2\",\"0xc0ffee01\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0xababab\",\"NULL\",\"\"\n"
        );
        assert_eq!(read("ike_sk"), "0000000000000001,000000000000abcd,0000,0101,0202,0303,0404,0505,0606\n");
        for f in ["ikev2_decryption_table", "esp_sa", "ike_sk"] {
            assert_eq!(std::fs::metadata(keys.join(f)).unwrap().mode() & 0o777, 0o600);
        }
    }
}
