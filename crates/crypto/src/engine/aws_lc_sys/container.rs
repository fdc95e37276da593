//! Key files under a passphrase: encrypted PKCS#8 (RFC 5958 section 3) and PKCS#12 (RFC 7292).
//!
//! The library reads the file, derives keys, and gives the private key out as PKCS#8. Not here: how
//! much work a file may ask for (`ironswan_pki::key_file`), and what a key is good for.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use aws_lc_sys as sys;
use ironswan_wire::secret::Secret;
use zeroize::Zeroizing;

/// A key of the library, freed when it is dropped. The library wipes it.
struct Key(NonNull<sys::EVP_PKEY>);

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is ours, and nobody uses it afterwards.
        unsafe { sys::EVP_PKEY_free(self.0.as_ptr()) }
    }
}

impl Key {
    /// The key as PKCS#8, not encrypted. `None` when the library cannot write its kind.
    fn to_der(&self) -> Option<Secret> {
        let mut cbb = MaybeUninit::uninit();
        // SAFETY: the function initialises `cbb`, or returns 0 and `cbb` is not used.
        if unsafe { sys::CBB_init(cbb.as_mut_ptr(), 256) } != 1 {
            return None;
        }
        // SAFETY: the call above returned 1.
        let mut cbb: sys::CBB = unsafe { cbb.assume_init() };
        let (mut bytes, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: `cbb` is initialised and the key live; on success the bytes are ours.
        let ok = unsafe {
            sys::EVP_marshal_private_key(&raw mut cbb, self.0.as_ptr()) == 1
                && sys::CBB_finish(&raw mut cbb, &raw mut bytes, &raw mut len) == 1
        };
        if !ok || bytes.is_null() {
            // SAFETY: `cbb` is initialised, and has not given its memory away.
            unsafe { sys::CBB_cleanup(&raw mut cbb) };
            return None;
        }
        // SAFETY: the call above allocated `len` bytes at `bytes`, which nobody else uses.
        Some(unsafe { super::take_secret(bytes, len) })
    }
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
    // SAFETY: the function takes nothing. The errors of this thread's queue would come up
    // elsewhere.
    unsafe { sys::ERR_clear_error() };
    let key = Key(NonNull::new(key)?);
    if input.len != 0 { None } else { key.to_der() }
}

/// Opens PKCS#12: the private key as PKCS#8, if there is one, and the certificates. `None` when the
/// passphrase is wrong or has a zero byte, or the bytes are not known.
pub(crate) fn open_pkcs12(der: &[u8], passphrase: &Secret) -> Option<(Option<Secret>, Vec<Vec<u8>>)> {
    if passphrase.expose().contains(&0) {
        return None;
    }
    // The library wants a zero byte at the end. Memory for it is taken first, so that no copy of
    // the passphrase is left behind.
    let mut pass = Zeroizing::new(Vec::with_capacity(passphrase.len() + 1));
    pass.extend_from_slice(passphrase.expose());
    pass.push(0);
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
    // SAFETY: the function takes nothing. The errors of this thread's queue would come up
    // elsewhere.
    unsafe { sys::ERR_clear_error() };
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
