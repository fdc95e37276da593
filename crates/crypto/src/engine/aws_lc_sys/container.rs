//! Key files under a passphrase: encrypted PKCS#8 (RFC 5958 section 3) and PKCS#12 (RFC 7292).
//!
//! The library reads and writes the files, derives keys, and gives the private key out as PKCS#8.
//! Not here: how much work a file may ask for (`ironswan_pki::key_file`), and what a key is good
//! for.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use aws_lc_sys as sys;
use ironswan_wire::secret::Secret;
use zeroize::Zeroizing;

/// Rounds by which we hash the passphrase of PKCS#8: HMAC-SHA-1 is all that the library has here.
const PKCS8_ROUNDS: i32 = 600_000;
/// Rounds by which we hash the passphrase of PKCS#12, for each of its parts.
const PKCS12_ROUNDS: i32 = 200_000;
/// Length of the salt in bytes.
const SALT_LEN: usize = 16;

/// A key of the library, freed when it is dropped. The library wipes it.
struct Key(NonNull<sys::EVP_PKEY>);

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is ours, and nobody uses it afterwards.
        unsafe { sys::EVP_PKEY_free(self.0.as_ptr()) }
    }
}

impl Key {
    /// Reads PKCS#8, not encrypted.
    fn from_der(der: &[u8]) -> Option<Self> {
        let mut input = cbs(der);
        // SAFETY: the bytes are read for their length; we own the result.
        let key = NonNull::new(unsafe { sys::EVP_parse_private_key(&raw mut input) }).map(Self);
        clear_errors();
        key.filter(|_| input.len == 0)
    }

    /// The key as PKCS#8, not encrypted. `None` when the library cannot write its kind.
    fn to_der(&self) -> Option<Secret> {
        // SAFETY: the writer is initialised and the key live.
        written(|cbb| unsafe { sys::EVP_marshal_private_key(cbb, self.0.as_ptr()) == 1 })
    }
}

/// Bytes that `fill` writes with the library. `None` when it says that it failed.
fn written(fill: impl FnOnce(*mut sys::CBB) -> bool) -> Option<Secret> {
    let mut cbb = MaybeUninit::uninit();
    // SAFETY: the function initialises `cbb`, or returns 0 and `cbb` is not used.
    if unsafe { sys::CBB_init(cbb.as_mut_ptr(), 256) } != 1 {
        return None;
    }
    // SAFETY: the call above returned 1.
    let mut cbb: sys::CBB = unsafe { cbb.assume_init() };
    let (mut bytes, mut len) = (std::ptr::null_mut(), 0);
    let filled = fill(&raw mut cbb);
    // SAFETY: `cbb` is initialised; on success the bytes are ours.
    let ok = filled && unsafe { sys::CBB_finish(&raw mut cbb, &raw mut bytes, &raw mut len) == 1 };
    if !ok || bytes.is_null() {
        // SAFETY: `cbb` is initialised, and has not given its memory away.
        unsafe { sys::CBB_cleanup(&raw mut cbb) };
        return None;
    }
    // SAFETY: the call above allocated `len` bytes at `bytes`, which nobody else uses.
    Some(unsafe { super::take_secret(bytes, len) })
}

/// Empties the queue of errors of this thread, which would come up elsewhere.
fn clear_errors() {
    // SAFETY: the function takes nothing.
    unsafe { sys::ERR_clear_error() }
}

/// The passphrase with a zero byte at its end, as the library wants it for PKCS#12. `None` when it
/// has a zero byte inside. Memory is taken first, so that no copy is left behind.
fn terminated(passphrase: &Secret) -> Option<Zeroizing<Vec<u8>>> {
    if passphrase.expose().contains(&0) {
        return None;
    }
    let mut pass = Zeroizing::new(Vec::with_capacity(passphrase.len() + 1));
    pass.extend_from_slice(passphrase.expose());
    pass.push(0);
    Some(pass)
}

/// A list of certificates of the library, freed with them when it is dropped.
struct Certificates(NonNull<sys::OPENSSL_STACK>);

impl Drop for Certificates {
    fn drop(&mut self) {
        for n in 0..self.len() {
            // SAFETY: the list is live and holds certificates that belong to it.
            unsafe { sys::X509_free(sys::OPENSSL_sk_value(self.0.as_ptr(), n).cast()) }
        }
        // SAFETY: the list is ours; this frees its own memory alone.
        unsafe { sys::OPENSSL_sk_free(self.0.as_ptr()) }
    }
}

impl Certificates {
    fn new() -> Option<Self> {
        // SAFETY: the function takes nothing, and we own the result.
        NonNull::new(unsafe { sys::OPENSSL_sk_new_null() }).map(Self)
    }

    /// Reads a certificate in DER, and adds it at the end.
    fn push(&mut self, der: &[u8]) -> Option<()> {
        let certificate = X509::from_der(der)?;
        // SAFETY: the list is live. It owns the certificate when it has taken it.
        let len = unsafe { sys::OPENSSL_sk_push(self.0.as_ptr(), certificate.0.as_ptr().cast()) };
        (len > 0).then(|| std::mem::forget(certificate))
    }

    fn len(&self) -> usize {
        // SAFETY: the list is live.
        unsafe { sys::OPENSSL_sk_num(self.0.as_ptr()) }
    }

    /// Each certificate in DER.
    fn to_der(&self) -> Vec<Vec<u8>> {
        let mut list = Vec::new();
        for n in 0..self.len() {
            let mut bytes = std::ptr::null_mut();
            // SAFETY: the list is live and holds certificates; the function allocates the bytes.
            let len =
                unsafe { sys::i2d_X509(sys::OPENSSL_sk_value(self.0.as_ptr(), n).cast(), &raw mut bytes) };
            if let (Ok(len), false) = (usize::try_from(len), bytes.is_null()) {
                // SAFETY: `bytes` points at `len` bytes of ours, and is not used after it is freed.
                unsafe {
                    list.push(std::slice::from_raw_parts(bytes, len).to_vec());
                    sys::OPENSSL_free(bytes.cast::<c_void>());
                }
            }
        }
        list
    }
}

/// A certificate of the library, freed when it is dropped.
struct X509(NonNull<sys::X509>);

impl Drop for X509 {
    fn drop(&mut self) {
        // SAFETY: the certificate is ours, and nobody uses it afterwards.
        unsafe { sys::X509_free(self.0.as_ptr()) }
    }
}

impl X509 {
    fn from_der(der: &[u8]) -> Option<Self> {
        let len = std::ffi::c_long::try_from(der.len()).ok()?;
        let mut at = der.as_ptr();
        // SAFETY: `at` points at `len` bytes; we own the result.
        let certificate = unsafe { sys::d2i_X509(std::ptr::null_mut(), &raw mut at, len) };
        clear_errors();
        NonNull::new(certificate).map(Self)
    }
}

/// A file of PKCS#12 of the library, freed when it is dropped.
struct Pkcs12(NonNull<sys::PKCS12>);

impl Drop for Pkcs12 {
    fn drop(&mut self) {
        // SAFETY: the file is ours, and nobody uses it afterwards.
        unsafe { sys::PKCS12_free(self.0.as_ptr()) }
    }
}

/// A reader of the library over these bytes.
fn cbs(bytes: &[u8]) -> sys::CBS {
    let mut cbs = MaybeUninit::uninit();
    // SAFETY: the function writes the whole structure. The caller keeps the bytes while it reads.
    unsafe {
        sys::CBS_init(cbs.as_mut_ptr(), bytes.as_ptr(), bytes.len());
        cbs.assume_init()
    }
}

/// Opens `EncryptedPrivateKeyInfo`. Returns PKCS#8, not encrypted. `None` when the passphrase is
/// wrong, or the bytes or the kind of the key are not known.
pub(crate) fn open_pkcs8(der: &[u8], passphrase: &Secret) -> Option<Secret> {
    let mut input = cbs(der);
    let pass = passphrase.expose();
    // SAFETY: both byte strings are read for their lengths; we own the result.
    let key = unsafe {
        sys::PKCS8_parse_encrypted_private_key(&raw mut input, pass.as_ptr().cast::<c_char>(), pass.len())
    };
    clear_errors();
    let key = Key(NonNull::new(key)?);
    if input.len != 0 { None } else { key.to_der() }
}

/// Opens PKCS#12: the private key as PKCS#8, if there is one, and the certificates. `None` when the
/// passphrase is wrong or has a zero byte, or the bytes are not known.
pub(crate) fn open_pkcs12(der: &[u8], passphrase: &Secret) -> Option<(Option<Secret>, Vec<Vec<u8>>)> {
    let pass = terminated(passphrase)?;
    let list = Certificates::new()?;
    let mut input = cbs(der);
    let mut key = std::ptr::null_mut();
    // SAFETY: `pass` ends in a zero byte; the bytes are read for their length; `list` is a list of
    // certificates, of which the library appends some that belong to it then; we own the key.
    let ok = unsafe {
        sys::PKCS12_get_key_and_certs(
            &raw mut key,
            list.0.as_ptr().cast(),
            &raw mut input,
            pass.as_ptr().cast::<c_char>(),
        )
    };
    clear_errors();
    let key = NonNull::new(key).map(Key);
    if ok != 1 || input.len != 0 {
        return None;
    }
    let key = match key {
        Some(key) => Some(key.to_der()?),
        None => None,
    };
    Some((key, list.to_der()))
}

/// Encrypts PKCS#8: PBES2 with AES-256-CBC. `None` when the bytes are no key that the library
/// knows.
pub(crate) fn seal_pkcs8(der: &[u8], passphrase: &Secret) -> Option<Vec<u8>> {
    let key = Key::from_der(der)?;
    let mut salt = [0; SALT_LEN];
    super::super::aws_lc::random(&mut salt);
    let pass = passphrase.expose();
    let sealed = written(|cbb| {
        // SAFETY: the writer is initialised and the key live; the byte strings are read for their
        // lengths. The number -1 chooses PBES2 with the cipher.
        unsafe {
            sys::PKCS8_marshal_encrypted_private_key(
                cbb,
                -1,
                sys::EVP_aes_256_cbc(),
                pass.as_ptr().cast::<c_char>(),
                pass.len(),
                salt.as_ptr(),
                salt.len(),
                PKCS8_ROUNDS,
                key.0.as_ptr(),
            ) == 1
        }
    });
    clear_errors();
    sealed.map(|sealed| sealed.expose().to_vec())
}

/// Makes PKCS#12 of a private key in PKCS#8, its certificate and others. Key and certificates are
/// encrypted by 3DES, the only cipher that the library has for this; the MAC is HMAC-SHA-256.
/// `None` when the key is not that of the certificate, or the passphrase has a zero byte.
pub(crate) fn seal_pkcs12(
    key: &Secret,
    certificate: &[u8],
    others: &[&[u8]],
    passphrase: &Secret,
) -> Option<Vec<u8>> {
    let pass = terminated(passphrase)?;
    let pass = pass.as_ptr().cast::<c_char>();
    let key = Key::from_der(key.expose())?;
    let certificate = X509::from_der(certificate)?;
    let mut list = Certificates::new()?;
    for other in others {
        list.push(other)?;
    }
    let cipher = sys::NID_pbe_WithSHA1And3_Key_TripleDES_CBC;
    // SAFETY: `pass` ends in a zero byte; key, certificate and list are live, and stay ours; we own
    // the result.
    let file = NonNull::new(unsafe {
        sys::PKCS12_create(
            pass,
            std::ptr::null(),
            key.0.as_ptr(),
            certificate.0.as_ptr(),
            list.0.as_ptr().cast(),
            cipher,
            cipher,
            PKCS12_ROUNDS,
            PKCS12_ROUNDS,
            0,
        )
    })
    .map(Pkcs12);
    clear_errors();
    let file = file?;
    let len = i32::try_from(passphrase.len()).ok()?;
    let mut bytes = std::ptr::null_mut();
    // SAFETY: the file is live and `pass` is the passphrase of before, of `len` bytes; a NULL for
    // the salt has the library choose one. The second function allocates the bytes.
    let written = unsafe {
        let salt = std::ptr::null_mut();
        let done = sys::PKCS12_set_mac(file.0.as_ptr(), pass, len, salt, 0, PKCS12_ROUNDS, sys::EVP_sha256());
        if done == 1 { sys::i2d_PKCS12(file.0.as_ptr(), &raw mut bytes) } else { -1 }
    };
    clear_errors();
    let len = usize::try_from(written).ok().filter(|_| !bytes.is_null())?;
    // SAFETY: `bytes` points at `len` bytes of ours, and is not used after it is freed.
    unsafe {
        let sealed = std::slice::from_raw_parts(bytes, len).to_vec();
        sys::OPENSSL_free(bytes.cast::<c_void>());
        Some(sealed)
    }
}
