//! Why a key or a signature is refused, and the limits that refuse keys of RSA.

/// The shortest modulus of RSA that is taken, in bits.
pub const MIN_RSA_BITS: usize = 2048;
/// The shortest modulus of RSA that is taken with [`short_rsa`](super::Legacy::short_rsa), in bits.
pub const MIN_SHORT_RSA_BITS: usize = 1024;
/// The longest modulus of RSA that is taken, in bits. With the longest exponent a verification
/// takes about 2.5 ms.
pub const MAX_RSA_BITS: usize = 16_384;

/// Why bytes are not a key that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFault {
    /// The key is for an algorithm that this crate does not have.
    Algorithm(&'static str),
    /// The curve is not P-256, P-384 or P-521, or is not given by its name.
    Curve,
    /// The key is encrypted by a passphrase.
    Encrypted,
    /// The bytes are no key of the kind that was asked for, or are not in DER.
    Malformed,
    /// The parts of a private key do not belong together, or not to the public key beside them.
    Mismatch,
    /// The point is not on its curve, or is not in the uncompressed form.
    Point,
    /// RSA: the exponent is even, 1, or longer than 33 bits.
    RsaExponent,
    /// RSA: the modulus is even.
    RsaModulus,
    /// RSA: the modulus has this number of bits, which is too small or too large.
    RsaSize(usize),
    /// Ed25519: the point has small order, so everybody can sign for it.
    Weak,
}

impl std::fmt::Display for KeyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Algorithm(name) => write!(f, "the key is for {name}, which is not supported"),
            Self::Curve => f.write_str("the key is on a curve other than P-256, P-384 and P-521"),
            Self::Encrypted => f.write_str("the key is encrypted"),
            Self::Malformed => f.write_str("the bytes are no such key"),
            Self::Mismatch => f.write_str("the parts of the key do not belong together"),
            Self::Point => f.write_str("the public key is not an uncompressed point of its curve"),
            Self::RsaExponent => f.write_str("the exponent of the RSA key is even, too small or too large"),
            Self::RsaModulus => f.write_str("the modulus of the RSA key is even"),
            Self::RsaSize(bits) => {
                write!(f, "the RSA key has {bits} bits, and {MIN_RSA_BITS} to {MAX_RSA_BITS} are taken")
            }
            Self::Weak => f.write_str("everybody can sign for this public key"),
        }
    }
}

impl std::error::Error for KeyFault {}

/// Why a signature is refused, or cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureFault {
    /// The key is for another algorithm, or is too short for this hash and salt.
    Scheme,
    /// The hash is SHA-1, which nobody has allowed.
    Sha1,
    /// The signature has a length or an encoding that no signature by this key has.
    Encoding,
    /// The signature is not one of this message by this key.
    Wrong,
    /// The library failed (our fault).
    Internal,
}

impl std::fmt::Display for SignatureFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scheme => "the key does not fit the signature algorithm",
            Self::Sha1 => "the signature uses SHA-1, which is not allowed",
            Self::Encoding => "the signature has no valid encoding for the key",
            Self::Wrong => "the signature does not verify",
            Self::Internal => "signing failed on our side",
        })
    }
}

impl std::error::Error for SignatureFault {}
