//! Secrets of this machine that a report must not hold, and the configuration without them.
//!
//! Shared keys and passphrases come from `swanctl.conf`, `ipsec.secrets` and what these include;
//! private keys from the folders of keys, decoded; then the secret of quick crash detection and the
//! tables of the key log. Files of strongSwan's own folder are read too, because a client of VICI
//! loads from there. The daemon knows others, which it looks for itself (`ironswan-scrub`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ironswan_config::Daemon;
use ironswan_config::files::{Files, Task};
use ironswan_config::redact::{self, Copied};
use ironswan_config::scrub::Scrubber;
use ironswan_io::clock;
use zeroize::Zeroizing;

use super::Entry;

/// Folders of private keys below that of a configuration.
const PRIVATE_FOLDERS: [&str; 5] = ["private", "rsa", "ecdsa", "pkcs8", "pkcs12"];
/// Folders that may hold private keys by mistake, or whose names are worth knowing.
const OTHER_FOLDERS: [&str; 8] =
    ["x509", "x509ca", "x509crl", "x509ac", "x509aa", "x509ocsp", "pubkey", "conf.d"];
/// Where strongSwan has its files.
const STRONGSWAN: &str = "/etc/swanctl";
/// Limits how many files of private keys are looked at. With more, no text of files is in a report.
pub const MAX_KEY_FILES: usize = 500;
/// Longest file of a private key or of a key log's table that is read, in bytes.
const MAX_KEY_FILE: u64 = 1 << 20;
const MAX_TABLE: u64 = 16 << 20;
/// Limits how many names of files are listed.
const MAX_LISTED: usize = 5_000;
/// Hexadecimal digits of the shortest key in a table.
const LEAST_KEY: usize = 32;

/// Secrets, and the files of the configuration without them.
#[derive(Debug)]
pub struct Known {
    /// The secrets.
    pub scrubber: Scrubber,
    /// Files as they may be shown, and a list of all names.
    pub entries: Vec<Entry>,
    /// Files that were left out, and why.
    pub left_out: Vec<String>,
}

/// Reads the configuration in `folder`, on a thread that may hang.
///
/// # Errors
/// A file system that does not answer: then nobody knows what is secret.
pub fn gather(folder: &Path, settings: &Daemon, key: &[u8; 32]) -> Result<Known, String> {
    let (folder, settings, key) = (folder.to_owned(), settings.clone(), Zeroizing::new(*key));
    let task = Task::start(clock::now, move |files| read(files, &folder, &settings, &key));
    task.and_then(Task::wait).map_err(|e| e.to_string())
}

fn read(files: &Files, folder: &Path, settings: &Daemon, key: &[u8; 32]) -> Known {
    let mut known = Known { scrubber: Scrubber::new(key), entries: Vec::new(), left_out: Vec::new() };
    let copies = redact::folder(files, folder, &mut known.scrubber);
    let other = Path::new(STRONGSWAN);
    if folder != other && other.is_dir() {
        // Only for their secrets.
        redact::folder(files, other, &mut known.scrubber);
    }
    let mut keys = 0;
    for folder in [folder, other] {
        for kind in PRIVATE_FOLDERS.iter().chain(&OTHER_FOLDERS[..]) {
            private_files(files, &folder.join(kind), &mut keys, &mut known.scrubber);
        }
    }
    if let Some(bytes) = bytes_of(files, &settings.qcd_secret, MAX_KEY_FILE) {
        known.scrubber.add(&bytes);
    }
    if let Some(tables) = &settings.keylog {
        key_log(files, tables, &mut known.scrubber);
    }
    if keys > MAX_KEY_FILES {
        let why = format!(
            "there are more than {MAX_KEY_FILES} private keys, which would have to be looked for in it"
        );
        known.left_out.extend(copies.iter().map(|c| format!("{}: {why}", c.path.display())));
    } else {
        known.copy(folder, copies);
    }
    known.entries.push(Entry::new("config/files.txt", names(files, folder)));
    known
}

impl Known {
    fn copy(&mut self, folder: &Path, copies: Vec<Copied>) {
        for Copied { path, text } in copies {
            let name = match path.strip_prefix(folder) {
                Ok(below) => format!("config/{}", below.display()),
                Err(_) => format!("config/elsewhere/{}", path.display()),
            };
            match text {
                Ok(text) => self.entries.push(Entry::new(name, text)),
                Err(why) => self.left_out.push(format!("{}: {why}", path.display())),
            }
        }
    }
}

/// A regular file's bytes. `None`: there is none, or it is too long.
fn bytes_of(files: &Files, path: &Path, max: u64) -> Option<Zeroizing<Vec<u8>>> {
    let read = || {
        let meta = fs::metadata(path)?;
        let fits = meta.is_file() && meta.len() <= max;
        Ok(if fits { Some(Zeroizing::new(fs::read(path)?)) } else { None })
    };
    files.ask(path, read).ok().flatten()
}

/// Adds every private key of a folder.
fn private_files(files: &Files, folder: &Path, keys: &mut usize, scrubber: &mut Scrubber) {
    for path in list(files, folder) {
        let Some(bytes) = bytes_of(files, &path, MAX_KEY_FILE) else { continue };
        let of_keys = PRIVATE_FOLDERS.iter().any(|kind| folder.ends_with(kind));
        let blocks = pem_blocks(&bytes);
        if blocks.is_empty() && of_keys {
            *keys += 1;
            if *keys <= MAX_KEY_FILES {
                scrubber.add_key(&bytes);
            }
        }
        for (label, der) in blocks {
            // A file of certificates may have a private key behind them.
            if (of_keys || label.contains("PRIVATE KEY")) && !label.contains("CERTIFICATE") {
                *keys += 1;
                if *keys <= MAX_KEY_FILES {
                    scrubber.add_key(&der);
                }
            }
        }
    }
}

/// Blocks of PEM: label and bytes. Lines that are no base64 (headers of old encryption) are passed
/// over.
fn pem_blocks(bytes: &[u8]) -> Vec<(String, Zeroizing<Vec<u8>>)> {
    let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
    let (mut out, mut inside) = (Vec::new(), None::<(String, Zeroizing<String>)>);
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ") {
            inside = Some((
                label.trim_end_matches('-').to_owned(),
                Zeroizing::new(String::with_capacity(bytes.len())),
            ));
        } else if line.starts_with("-----END ") {
            if let Some((label, body)) = inside.take()
                && let Ok(der) = BASE64_STANDARD.decode(body.as_bytes())
            {
                out.push((label, Zeroizing::new(der)));
            }
        } else if let Some((_, body)) = &mut inside
            && !line.contains(':')
        {
            body.push_str(line);
        }
    }
    out
}

/// Adds the keys in the tables of a key log.
fn key_log(files: &Files, folder: &Path, scrubber: &mut Scrubber) {
    for path in list(files, folder) {
        let Some(bytes) = bytes_of(files, &path, MAX_TABLE) else { continue };
        for word in bytes.split(|b| !b.is_ascii_hexdigit() && *b != b'x') {
            let digits = word.strip_prefix(b"0x").unwrap_or(word);
            let whole = digits.len() >= LEAST_KEY && digits.len().is_multiple_of(2);
            if let Some(key) = whole.then(|| from_hex(digits)).flatten() {
                scrubber.add(&key);
            }
        }
    }
}

fn from_hex(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |b: u8| (b as char).to_digit(16);
    let mut out = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        out.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    }
    Some(out)
}

fn list(files: &Files, folder: &Path) -> Vec<PathBuf> {
    let read = || {
        let entries = fs::read_dir(folder)?;
        entries.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()
    };
    let mut all = files.ask(folder, read).unwrap_or_default();
    all.sort();
    all
}

/// Names, modes, owners, sizes and times of all files, whatever is in them.
fn names(files: &Files, folder: &Path) -> String {
    let folders = [""].into_iter().chain(PRIVATE_FOLDERS).chain(OTHER_FOLDERS);
    let mut out = String::new();
    let mut lines = 0;
    for path in folders.flat_map(|kind| list(files, &folder.join(kind))) {
        let Ok(meta) = files.ask(&path, || path.symlink_metadata()) else { continue };
        let written =
            meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        lines += 1;
        if lines > MAX_LISTED {
            return out + "and more\n";
        }
        out += &format!(
            "{:06o} {:>5} {:>5} {:>9} {} {}\n",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.len(),
            written.as_secs(),
            path.display().to_string().escape_debug()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use ironswan_testkit::scratch::Scratch;

    use super::*;

    #[test]
    fn secrets_of_every_kind_of_file_are_known() {
        let dir = Scratch::new();
        dir.write(
            "swanctl.conf",
            "secrets { ike-1 { secret = swordfish\n } ppk-1 { secret = 0x00112233445566778899\n } }\n",
        );
        dir.write("ipsec.secrets", "a b : PSK \"marlin and tuna\"\n");
        let der: Vec<u8> = (0..200u32).map(|i| (i * 151 + 3) as u8).collect();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(&der)
        );
        dir.write("private/gw.pem", &pem);
        let beside: Vec<u8> = der.iter().map(|b| b ^ 0x5a).collect();
        let pem = format!(
            "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(&beside)
        );
        dir.write("x509/bundle.pem", &pem);
        let p12: Vec<u8> = der.iter().map(|b| b ^ 0x33).collect();
        dir.write("pkcs12/x", "");
        fs::write(dir.path().join("pkcs12/x"), &p12).expect("a file");
        dir.write("qcd", "0123456789abcdefGHIJKLMNOPQRSTUV");
        dir.write("keys/esp_sa", "\"IPv4\",\"192.0.2.1\",\"0x000102030405060708090a0b0c0d0e0f\"\n");
        let settings = Daemon {
            qcd_secret: dir.path().join("qcd"),
            keylog: Some(dir.path().join("keys")),
            ..Daemon::default()
        };
        let known = gather(dir.path(), &settings, &[5; 32]).expect("files answer");
        let finds = |secret: &[u8]| !known.scrubber.find(secret).is_empty();
        for secret in [&b"swordfish"[..], b"marlin and tuna", b"0x00112233445566778899", &der, &beside, &p12]
        {
            assert!(finds(secret), "{}", secret.escape_ascii());
        }
        assert!(finds(b"0123456789abcdefGHIJKLMNOPQRSTUV") && finds(b"000102030405060708090A0B0C0D0E0F"));
        assert!(finds(BASE64_STANDARD.encode(&der).as_bytes()) && !finds(b"nothing of it"));
        let names: Vec<&str> = known.entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["config/ipsec.secrets", "config/swanctl.conf", "config/files.txt"]);
        for e in &known.entries {
            assert!(known.scrubber.find(&e.text).is_empty(), "{}", String::from_utf8_lossy(&e.text));
        }
        let files = String::from_utf8_lossy(&known.entries[2].text).into_owned();
        assert!(files.contains("private/gw.pem") && files.contains("100600"), "{files}");
    }

    #[test]
    fn a_pipe_in_the_folder_is_left_out_and_said() {
        let dir = Scratch::new();
        dir.write("swanctl.conf", "connections { }\n");
        for name in ["ironswan.conf", "private"] {
            let made = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status();
            assert!(made.expect("mkfifo").success());
        }
        let known = gather(dir.path(), &Daemon::default(), &[5; 32]).expect("files answer");
        assert_eq!(known.left_out.len(), 1, "{:?}", known.left_out);
        assert!(known.left_out[0].contains("ironswan.conf: "), "{:?}", known.left_out);
    }
}
