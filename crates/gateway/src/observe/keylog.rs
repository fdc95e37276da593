//! Key material on disk for those who debug their own tunnels: the tables that Wireshark and tshark
//! read (`ikev2_decryption_table`, `esp_sa`), in the format of strongSwan's save-keys plugin, and
//! `ike_sk` with every SK_*.
//!
//! Off unless `keylog = DIR` is set, and said loudly in the log when it is on. The files are the
//! daemon's user's only, those that are there already, too, and nobody else may put a file into
//! their folder: both are looked at when they are open, so that nothing can take their place in
//! between. A thread writes them, so that a file system that is slow or hangs holds up no key
//! exchange: then the key log ends.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::secret::Secret;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

/// Limits the lines that wait for the file system.
const MAX_WAITING: usize = 4_096;
/// How long the end of the daemon waits for lines that have not been written yet.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// More bytes than a line has without its keys: SPIs, addresses, names of algorithms.
const LINE_WITHOUT_KEYS: usize = 400;

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
    /// Errors of the file system; disconnected when the thread has ended.
    refused: Receiver<io::Error>,
}

/// The files of the tables, open for appending: whoever has them needs no right to the folder.
#[derive(Debug)]
pub struct Tables([File; 3]);

impl Tables {
    /// Opens or makes the tables in `dir`.
    ///
    /// # Errors
    /// The file system's error, or that others could read the file; both with the remedy.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let folder = private_folder(dir)?;
        let open = |name: &str| private_file(&folder, name);
        Ok(Self([open("ikev2_decryption_table")?, open("ike_sk")?, open("esp_sa")?]))
    }
}

impl KeyLogger {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start(Tables(mut tables): Tables) -> io::Result<Self> {
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
    /// The file system's error for an earlier entry, or that too many lines wait.
    pub fn write(&mut self, entry: &KeyLog) -> io::Result<()> {
        match entry {
            KeyLog::Ike { spi_i, spi_r, keys, .. } => {
                self.put(Table::Ike, line(entry))?;
                self.put(Table::Sk, all_sk(entry, *spi_i, *spi_r, keys))
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
        // The thread drops its end when it has written all; nothing else comes but an error, which
        // nobody asks for any more.
        let _ = self.refused.recv_timeout(FLUSH_LIMIT);
    }
}

/// Opens a folder, or makes it, that nobody else can put files into.
fn private_folder(dir: &Path) -> io::Result<File> {
    if let Err(e) = DirBuilder::new().mode(0o700).recursive(true).create(dir) {
        return Err(io::Error::new(e.kind(), format!("{e}; name a folder that can be made")));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(dir, flags, Mode::empty())?);
    let meta = folder.metadata()?;
    if !(is_ours(&meta) || meta.uid() == 0) || meta.mode() & 0o022 != 0 {
        let why = "the folder belongs to another user, or others may write to it; name a folder of the daemon's user (mode 700)";
        return Err(io::Error::other(why));
    }
    Ok(folder)
}

/// Opens a regular file for appending, or makes it, that nobody else can read. A named pipe is not
/// waited for.
fn private_file(folder: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let refused = |why: &str| io::Error::other(format!("{name} {why}"));
    let file = match rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::LOOP) => return Err(refused("is a link; remove it")),
        Err(e) => return Err(refused(&format!("cannot be opened: {e}"))),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refused("is not a regular file; remove it"));
    }
    if !is_ours(&meta) || meta.mode() & 0o077 != 0 || meta.nlink() != 1 {
        return Err(refused(
            "is there already, and belongs to another user, may be read by others or has a second name; remove it",
        ));
    }
    Ok(file)
}

fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw()
}

/// The line of the table that Wireshark and tshark read.
pub(crate) fn line(entry: &KeyLog) -> Zeroizing<String> {
    // A name that Wireshark does not know would make it refuse the whole table; the line is there
    // for people.
    let comment = match entry {
        KeyLog::Ike { suite, .. } if ike_cipher(suite.encr, suite.key_bits).is_none() => "# ",
        // AH encrypts nothing, and Wireshark has no table for it.
        KeyLog::Child { protocol: ProtocolId::AH, .. } => "# AH ",
        KeyLog::Child { suite, .. } if esp_cipher(suite.encr).is_none() => "# ",
        _ => "",
    };
    // Written where it stays: what grows leaves copies of its keys behind.
    let mut out = Zeroizing::new(String::with_capacity(room(entry)));
    // A string takes everything.
    let _ = match entry {
        KeyLog::Ike { spi_i, spi_r, suite, keys, .. } => {
            let [_, ai, ar, ei, er, _, _] = &**keys;
            // Wireshark refuses a table with keys of an algorithm that it does not check.
            let none = Secret::default();
            let (ai, ar) = if ike_integrity(suite.integ) == UNCHECKED { (&none, &none) } else { (ai, ar) };
            writeln!(
                out,
                "{comment}{spi_i:016x},{spi_r:016x},{},{},\"{}\",{},{},\"{}\"",
                Hex(ei),
                Hex(er),
                ike_cipher(suite.encr, suite.key_bits).unwrap_or_else(|| suite.encr.to_string()),
                Hex(ai),
                Hex(ar),
                ike_integrity(suite.integ),
            )
        }
        KeyLog::Child { spi, src, dst, suite, encr_key, integ_key, .. } => writeln!(
            out,
            "{comment}\"{}\",\"{}\",\"{}\",\"0x{spi}\",\"{}\",\"0x{}\",\"{}\",\"{}{}\"",
            if src.is_ipv6() { "IPv6" } else { "IPv4" },
            src.ip(),
            dst.ip(),
            esp_cipher(suite.encr).map_or_else(|| suite.encr.to_string(), str::to_owned),
            Hex(encr_key),
            esp_integrity(suite.integ),
            if integ_key.is_empty() { "" } else { "0x" },
            Hex(integ_key),
        ),
    };
    out
}

/// More bytes than the line of an entry has.
fn room(entry: &KeyLog) -> usize {
    let keys = match entry {
        KeyLog::Ike { keys, .. } => keys.iter().map(Secret::len).sum(),
        KeyLog::Child { encr_key, integ_key, .. } => encr_key.len() + integ_key.len(),
    };
    2 * keys + LINE_WITHOUT_KEYS
}

/// Both SPIs, then SK_d, SK_ai, SK_ar, SK_ei, SK_er, SK_pi, SK_pr: what Wireshark's table leaves
/// out, for comparing key derivations with another implementation's.
fn all_sk(entry: &KeyLog, spi_i: u64, spi_r: u64, keys: &[Secret; 7]) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(room(entry)));
    // A string takes everything.
    let _ = write!(out, "{spi_i:016x},{spi_r:016x}");
    for key in keys {
        let _ = write!(out, ",{}", Hex(key));
    }
    out.push('\n');
    out
}

/// Writes a key as hexadecimal digits, without a copy in between.
struct Hex<'a>(&'a Secret);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for b in self.0.expose() {
            for nibble in [b >> 4, b & 15] {
                f.write_char(char::from_digit(nibble.into(), 16).unwrap_or('0'))?;
            }
        }
        Ok(())
    }
}

// The names are those of Wireshark's menus (packet-isakmp.c, packet-ipsec.c), which its tables are
// matched by.

/// `None` for what it does not know, or knows in a way that does not decrypt.
fn ike_cipher(encr: EncrId, bits: u16) -> Option<String> {
    let (mode, icv) = match encr {
        EncrId::DES3 => return Some("3DES [RFC2451]".to_owned()),
        EncrId::NULL => return Some("NULL [RFC2410]".to_owned()),
        EncrId::AES_CBC => return Some(format!("AES-CBC-{bits} [RFC3602]")),
        EncrId::AES_CTR => return Some(format!("AES-CTR-{bits} [RFC5930]")),
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

/// Name of every integrity algorithm of the IKE_SA that Wireshark cannot check but must step over.
const UNCHECKED: &str = "ANY 96-bits of Authentication [No Checking]";

fn ike_integrity(integ: Option<IntegId>) -> &'static str {
    match integ {
        None => "NONE [RFC4306]",
        Some(IntegId::HMAC_MD5_96) => "HMAC_MD5_96 [RFC2403]",
        Some(IntegId::HMAC_SHA1_96) => "HMAC_SHA1_96 [RFC2404]",
        Some(IntegId::HMAC_SHA2_256_128) => "HMAC_SHA2_256_128 [RFC4868]",
        Some(IntegId::HMAC_SHA2_384_192) => "HMAC_SHA2_384_192 [RFC4868]",
        Some(IntegId::HMAC_SHA2_512_256) => "HMAC_SHA2_512_256 [RFC4868]",
        // AES-XCBC and AES-CMAC.
        Some(_) => UNCHECKED,
    }
}

/// `None` for what it does not know: packets with an IV that it does not see would come out
/// shifted.
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
