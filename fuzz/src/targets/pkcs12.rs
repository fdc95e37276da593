//! A file of PKCS#12, of a key under a passphrase, or of certificates.

use ironswan_crypto::sign::Legacy;
use ironswan_pki::key_file::{self, FileFault};
use ironswan_wire::secret::Secret;

use super::signature;

/// Rounds for the passphrase of one input: more would be honest work, and too slow for a fuzzer.
const MAX_ROUNDS: u64 = 10_000;

/// Elements of DER, object identifiers of PKCS#5 and PKCS#12, and lines of PEM.
pub const DICTIONARY: &[&[u8]] = &[
    b"\x30\x82\x01\x00",
    b"\x30\x80",
    b"\x24\x80",
    b"\xa0\x82\x01\x00",
    b"\x02\x01\x03",
    b"\x02\x02\x08\x00",
    b"\x04\x08",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x06",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d",
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c",
    b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x02",
    b"\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01\x03",
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
    b"-----END ENCRYPTED PRIVATE KEY-----\n",
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----END CERTIFICATE-----\n",
    b"Proc-Type: 4,ENCRYPTED\n",
];

/// Reads the bytes in each way. What they hold is text of limited length, or a key that signs.
pub fn run(data: &[u8]) -> u64 {
    if key_file::rounds(data).is_ok_and(|rounds| rounds > MAX_ROUNDS) {
        return 2;
    }
    let passphrase = Secret::from(&b"secret"[..]);
    let key = key_file::private_key(data, Some(&passphrase), Legacy::default());
    let contents = key_file::pkcs12(data, &passphrase, Legacy::default());
    let certificates = key_file::certificates(data).map(|list| list.len());
    assert!(key.is_err() || contents.is_err(), "both a key and a file of PKCS#12");
    let said = |fault: Option<FileFault>| fault.map(|fault| fault.to_string());
    let count = contents.as_ref().map_or(0, |contents| contents.certificates.len());
    signature((said(key.err()), said(contents.err()), said(certificates.err()), count))
}
