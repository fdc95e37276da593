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
mod tests {
    use std::os::unix::fs::MetadataExt;

    use ironswan_wire::algorithm;
    use ironswan_wire::iana::{KeId, PrfId};
    use ironswan_wire::proposal::{EspSuite, IkeSuite};
    use ironswan_wire::sadb::Spi;

    use super::*;
    use crate::scratch::Scratch;

    fn child(protocol: ProtocolId, encr: EncrId, integ: Option<IntegId>) -> KeyLog {
        let shape = algorithm::encr(encr).unwrap();
        KeyLog::Child {
            protocol,
            spi: Spi(0xc0ffee01),
            src: "192.0.2.1:4500".parse().unwrap(),
            dst: "192.0.2.2:4500".parse().unwrap(),
            suite: EspSuite { encr, key_bits: shape.key_bits[0], integ, ke: None, esn: false },
            encr_key: Secret::new(vec![0xab; 4]),
            integ_key: integ.map_or(Secret::default(), |_| Secret::new(vec![0xcd; 2])),
        }
    }

    /// What Wireshark 4.0 has in its menus; other names make it refuse the table.
    const KNOWN: &[&str] = &[
        "NULL",
        "TripleDES-CBC [RFC2451]",
        "AES-CBC [RFC3602]",
        "AES-CTR [RFC3686]",
        "AES-GCM with 8 octet ICV [RFC4106]",
        "AES-GCM with 12 octet ICV [RFC4106]",
        "AES-GCM with 16 octet ICV [RFC4106]",
        "HMAC-MD5-96 [RFC2403]",
        "HMAC-SHA-1-96 [RFC2404]",
        "HMAC-SHA-256-128 [RFC4868]",
        "HMAC-SHA-384-192 [RFC4868]",
        "HMAC-SHA-512-256 [RFC4868]",
        "ANY 96 bit authentication [no checking]",
        "ANY 128 bit authentication [no checking]",
    ];

    #[test]
    fn every_suite_is_named_as_wireshark_names_it_or_is_a_comment() {
        for encr in EncrId::ALL {
            let integs = IntegId::ALL.iter().copied().map(Some).chain([None]);
            for integ in integs.filter(|i| encr.is_aead() == i.is_none()) {
                let text = line(&child(ProtocolId::ESP, *encr, integ)).to_string();
                let fields: Vec<&str> = text.trim_end().split(',').map(|f| f.trim_matches('"')).collect();
                assert_eq!(fields.len(), 8, "{text}");
                let known = KNOWN.contains(&fields[4]) && KNOWN.contains(&fields[6]);
                assert!(known || text.starts_with("# "), "{text}");
            }
        }
        let ah = line(&child(ProtocolId::AH, EncrId::NULL, Some(IntegId::HMAC_SHA2_256_128)));
        assert!(
            ah.starts_with("# AH \"IPv4\",") && ah.contains("\"HMAC-SHA-256-128 [RFC4868]\",\"0xcdcd\""),
            "{}",
            *ah
        );
        for (encr, icv) in
            [(EncrId::AES_CTR, 4), (EncrId::CHACHA20_POLY1305, 16), (EncrId::AES_GCM_16_IIV, 16)]
        {
            let text = line(&child(ProtocolId::ESP, encr, None)).to_string();
            assert_eq!(text.starts_with("# "), icv == 16, "{text}");
        }
    }

    /// Some names are in tables of a library that is not always here; where it is, they must be.
    #[test]
    fn tshark_takes_the_table() {
        let dir = Scratch::new();
        let mut text = String::new();
        for encr in EncrId::ALL {
            let integ = (!encr.is_aead()).then_some(IntegId::HMAC_SHA2_256_128);
            text.push_str(&line(&child(ProtocolId::ESP, *encr, integ)));
        }
        for integ in IntegId::ALL {
            text.push_str(&line(&child(ProtocolId::ESP, EncrId::AES_CBC, Some(*integ))));
            text.push_str(&line(&child(ProtocolId::AH, EncrId::NULL, Some(*integ))));
        }
        // Empty, but a capture.
        let pcap =
            [[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0].as_slice(), &[0; 8], &[0, 0, 4, 0, 101, 0, 0, 0]].concat();
        std::fs::write(dir.path().join("empty.pcap"), pcap).unwrap();
        let run = |table: &str| {
            let home = dir.path().join(".config/wireshark");
            std::fs::create_dir_all(&home).unwrap();
            std::fs::write(home.join("esp_sa"), table).unwrap();
            std::process::Command::new("tshark")
                .args(["-r", "empty.pcap"])
                .current_dir(dir.path())
                .env("HOME", dir.path())
                .env_remove("XDG_CONFIG_HOME")
                .output()
                .map(|out| String::from_utf8_lossy(&out.stderr).contains("esp_sa"))
        };
        let Ok(complains) = run("\"IPv4\",\"a\",\"b\",\"0x1\",\"no such cipher\",\"0x00\",\"NULL\",\"\"\n")
        else {
            return;
        };
        assert!(complains, "a table that it refuses is said to be");
        assert!(!run(&text).unwrap(), "{text}");
    }

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
        let esp = child(ProtocolId::ESP, EncrId::AES_GCM_16, None);
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
            "\"IPv4\",\"192.0.2.1\",\"192.0.2.2\",\"0xc0ffee01\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0xabababab\",\"NULL\",\"\"\n"
        );
        assert_eq!(read("ike_sk"), "0000000000000001,000000000000abcd,0000,0101,0202,0303,0404,0505,0606\n");
        for f in ["ikev2_decryption_table", "esp_sa", "ike_sk"] {
            assert_eq!(std::fs::metadata(keys.join(f)).unwrap().mode() & 0o777, 0o600);
        }
    }
}
