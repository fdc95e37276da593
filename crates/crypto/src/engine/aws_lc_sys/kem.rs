//! ML-KEM (FIPS 203) from seeds, so that the caller's randomness decides.
//!
//! The library checks encapsulation keys before it uses them (FIPS 203 section 7.2). A private key
//! is its seed d | z (FIPS 203 section 7.1), which is expanded for each use: that takes some 10 us,
//! and a seed of 64 bytes is easier to keep and to wipe than a key of up to 3,168.

use std::ptr::NonNull;

use aws_lc_sys as sys;
use ironswan_wire::secret::Secret;

/// Length of the seed that is a private key, in bytes.
pub(crate) const KEY_SEED_LEN: usize = 64;
/// Length of the randomness of an encapsulation, in bytes.
pub(crate) const MESSAGE_LEN: usize = 32;
/// Length of the shared secret in bytes.
pub(crate) const SECRET_LEN: usize = 32;

/// A parameter set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kem {
    MlKem512,
    MlKem768,
    MlKem1024,
}

impl Kem {
    fn nid(self) -> i32 {
        match self {
            Self::MlKem512 => sys::NID_MLKEM512,
            Self::MlKem768 => sys::NID_MLKEM768,
            Self::MlKem1024 => sys::NID_MLKEM1024,
        }
    }

    /// Length of an encapsulation key in bytes (FIPS 203 table 3).
    pub(crate) fn public_len(self) -> usize {
        match self {
            Self::MlKem512 => 800,
            Self::MlKem768 => 1184,
            Self::MlKem1024 => 1568,
        }
    }

    /// Length of a ciphertext in bytes (FIPS 203 table 3).
    pub(crate) fn ciphertext_len(self) -> usize {
        match self {
            Self::MlKem512 => 768,
            Self::MlKem768 => 1088,
            Self::MlKem1024 => 1568,
        }
    }

    /// The encapsulation key of a seed. `None` when `seed` has not [`KEY_SEED_LEN`] bytes.
    pub(crate) fn public(self, seed: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(seed)?;
        let mut out = vec![0; self.public_len()];
        let mut len = out.len();
        // SAFETY: the key is live; `out` has the length given.
        let ok = unsafe { sys::EVP_PKEY_get_raw_public_key(key.0.as_ptr(), out.as_mut_ptr(), &raw mut len) };
        (ok == 1 && len == out.len()).then_some(out)
    }

    /// Encapsulates to a key, with this randomness: the ciphertext and the shared secret. `None`
    /// when the key is not valid, or `message` has not [`MESSAGE_LEN`] bytes.
    pub(crate) fn encapsulate(self, public: &[u8], message: &[u8]) -> Option<(Vec<u8>, Secret)> {
        if public.len() != self.public_len() || message.len() != MESSAGE_LEN {
            return None;
        }
        // SAFETY: reads `public` for its length; we own the result.
        let key = unsafe { sys::EVP_PKEY_kem_new_raw_public_key(self.nid(), public.as_ptr(), public.len()) };
        let key = Key(NonNull::new(key)?);
        let ctx = Ctx::of(&key)?;
        let mut ciphertext = vec![0; self.ciphertext_len()];
        let (mut len, mut secret_len, mut message_len) = (ciphertext.len(), SECRET_LEN, message.len());
        let mut ok = 0;
        let secret = Secret::filled(SECRET_LEN, |secret| {
            // SAFETY: the context is live; both outputs have the lengths given, and the function
            // refuses shorter ones; `message` is read for its length.
            ok = unsafe {
                sys::EVP_PKEY_encapsulate_deterministic(
                    ctx.0.as_ptr(),
                    ciphertext.as_mut_ptr(),
                    &raw mut len,
                    secret.as_mut_ptr(),
                    &raw mut secret_len,
                    message.as_ptr(),
                    &raw mut message_len,
                )
            };
        });
        (ok == 1 && len == ciphertext.len() && secret_len == SECRET_LEN).then_some((ciphertext, secret))
    }

    /// Decapsulates with the key of a seed. A ciphertext that nobody has made for this key gives a
    /// secret that nobody knows (FIPS 203 section 6.3, implicit rejection). `None` for wrong
    /// lengths.
    pub(crate) fn decapsulate(self, seed: &[u8], ciphertext: &[u8]) -> Option<Secret> {
        if ciphertext.len() != self.ciphertext_len() {
            return None;
        }
        let key = self.key(seed)?;
        let ctx = Ctx::of(&key)?;
        let (mut ok, mut len) = (0, SECRET_LEN);
        let secret = Secret::filled(SECRET_LEN, |secret| {
            // SAFETY: the context is live; `secret` has the length given, and the function refuses
            // a shorter one; `ciphertext` is read for its length.
            ok = unsafe {
                sys::EVP_PKEY_decapsulate(
                    ctx.0.as_ptr(),
                    secret.as_mut_ptr(),
                    &raw mut len,
                    ciphertext.as_ptr(),
                    ciphertext.len(),
                )
            };
        });
        (ok == 1 && len == SECRET_LEN).then_some(secret)
    }

    /// The key pair of a seed.
    fn key(self, seed: &[u8]) -> Option<Key> {
        if seed.len() != KEY_SEED_LEN {
            return None;
        }
        // SAFETY: takes a number, and a null engine, which is none; we own the result.
        let ctx = unsafe { sys::EVP_PKEY_CTX_new_id(sys::EVP_PKEY_KEM, std::ptr::null_mut()) };
        let ctx = Ctx(NonNull::new(ctx)?);
        let (mut key, mut len) = (std::ptr::null_mut(), seed.len());
        // SAFETY: the context is live; `seed` is read for its length, which the function checks; a
        // null key makes it allocate one, which we own.
        let ok = unsafe {
            sys::EVP_PKEY_CTX_kem_set_params(ctx.0.as_ptr(), self.nid()) == 1
                && sys::EVP_PKEY_keygen_init(ctx.0.as_ptr()) == 1
                && sys::EVP_PKEY_keygen_deterministic(
                    ctx.0.as_ptr(),
                    &raw mut key,
                    seed.as_ptr(),
                    &raw mut len,
                ) == 1
        };
        NonNull::new(key).map(Key).filter(|_| ok)
    }
}

/// An owned key, which the library overwrites when it frees it.
struct Key(NonNull<sys::EVP_PKEY>);

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::EVP_PKEY_free(self.0.as_ptr()) };
    }
}

/// An owned context of an operation.
struct Ctx(NonNull<sys::EVP_PKEY_CTX>);

impl Ctx {
    fn of(key: &Key) -> Option<Self> {
        // SAFETY: the key is live, and the context keeps a reference of its own; a null engine is
        // none; we own the result.
        NonNull::new(unsafe { sys::EVP_PKEY_CTX_new(key.0.as_ptr(), std::ptr::null_mut()) }).map(Self)
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: we own it and nothing uses it afterwards.
        unsafe { sys::EVP_PKEY_CTX_free(self.0.as_ptr()) };
    }
}
