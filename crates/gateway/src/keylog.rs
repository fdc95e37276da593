//! Key material on disk for those who debug their own tunnels: the tables that Wireshark and tshark read
//! (`ikev2_decryption_table`, `esp_sa`), in the format of strongSwan's save-keys plugin, and `ike_sk` with every SK_*.
//!
//! Off unless `keylog = DIR` is set, and said loudly in the log when it is on. The files are the owner's only. A thread writes
//! them, so that a file system that is slow or hangs holds up no key exchange: then the key log ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::secret::Secret;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// So many lines may wait for the file system.
const MAX_WAITING: usize = 4_096;
/// How long the end of the daemon waits for lines that have not been written yet.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// A line, and the table it belongs to.
type Entry = (Table, Zeroizing<String>);

#[derive(Clone, Copy, Debug)]
enum Table {
    Ike,
    Sk,
    Esp,
}

/// The tables, and the thread that appends to them.
#[derive(Debug)]
pub struct KeyLogger {
    /// `None` only while it is dropped.
    lines: Option<SyncSender<Entry>>,
    /// What the file system refused; disconnected when the thread has ended.
    refused: Receiver<io::Error>,
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
        let open = |name: &str| regular(&dir.join(name));
        let mut tables = [open("ikev2_decryption_table")?, open("ike_sk")?, open("esp_sa")?];
        let (tx, waiting) = sync_channel::<Entry>(MAX_WAITING);
        let (refuse, refused) = channel();
        let write = move || {
            for (table, line) in waiting {
                let [ike, sk, esp] = &mut tables;
                let file = match table {
                    Table::Ike => ike,
                    Table::Sk => sk,
                    Table::Esp => esp,
                };
                if let Err(e) = file.write_all(line.as_bytes()) {
                    // The logger may have gone.
                    let _ = refuse.send(e);
                    return;
                }
            }
        };
        std::thread::Builder::new().name("ipsec-keylog".into()).stack_size(256 * 1024).spawn(write)?;
        Ok(Self { lines: Some(tx), refused })
    }

    /// Appends the lines of an entry soon. Never blocks.
    ///
    /// # Errors
    /// What the file system said of an earlier entry, or that too many wait for it.
    pub fn write(&mut self, entry: &KeyLog) -> io::Result<()> {
        match entry {
            KeyLog::Ike { spi_i, spi_r, keys, .. } => {
                self.put(Table::Ike, line(entry))?;
                self.put(Table::Sk, all_sk(*spi_i, *spi_r, keys))
            }
            KeyLog::Child { .. } => self.put(Table::Esp, line(entry)),
        }
    }

    fn put(&self, table: Table, line: Zeroizing<String>) -> io::Result<()> {
        match self.lines.as_ref().map(|lines| lines.try_send((table, line))) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => {
                Err(io::Error::other(format!("{MAX_WAITING} lines wait for the file system")))
            }
            Some(Err(TrySendError::Disconnected(_))) | None => {
                Err(self.refused.try_recv().unwrap_or_else(|_| io::Error::other("its thread has ended")))
            }
        }
    }
}

impl Drop for KeyLogger {
    /// Waits until everything is written, but not for a file system that hangs.
    fn drop(&mut self) {
        self.lines = None;
        // The thread drops its end when it has written all; nothing else comes but an error, which nobody asks for any more.
        let _ = self.refused.recv_timeout(FLUSH_LIMIT);
    }
}

/// Opens a regular file for appending, or makes it. A named pipe is not waited for.
fn regular(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(nonblocking).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other(format!("{} is not a regular file", path.display())))
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
