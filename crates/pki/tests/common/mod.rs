//! Signatures by AWS-LC, for the tests.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use ironswan_pki::key::{Hash, KeyKind, PublicKey, SignatureAlgorithm, Verify};

/// Verifies by AWS-LC, and counts.
#[derive(Default)]
pub struct AwsLc {
    /// Signatures that were verified.
    pub count: usize,
}

impl Verify for AwsLc {
    fn verify(
        &mut self,
        algorithm: SignatureAlgorithm,
        key: PublicKey<'_>,
        message: &[u8],
        sig: &[u8],
    ) -> bool {
        self.count += 1;
        let algorithm: &'static dyn VerificationAlgorithm = match (algorithm, key.kind()) {
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha1), _) => {
                &signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY
            }
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha256), _) => {
                &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY
            }
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha384), _) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (SignatureAlgorithm::RsaPkcs1(Hash::Sha512), _) => &signature::RSA_PKCS1_2048_8192_SHA512,
            (SignatureAlgorithm::RsaPss(Hash::Sha256, _), _) => &signature::RSA_PSS_2048_8192_SHA256,
            (SignatureAlgorithm::RsaPss(Hash::Sha384, _), _) => &signature::RSA_PSS_2048_8192_SHA384,
            (SignatureAlgorithm::RsaPss(Hash::Sha512, _), _) => &signature::RSA_PSS_2048_8192_SHA512,
            (SignatureAlgorithm::Ecdsa(Hash::Sha256), KeyKind::P256) => &signature::ECDSA_P256_SHA256_ASN1,
            (SignatureAlgorithm::Ecdsa(Hash::Sha384), KeyKind::P384) => &signature::ECDSA_P384_SHA384_ASN1,
            (SignatureAlgorithm::Ecdsa(Hash::Sha512), KeyKind::P521) => &signature::ECDSA_P521_SHA512_ASN1,
            (SignatureAlgorithm::Ed25519, _) => &signature::ED25519,
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, key.bits()).verify(message, sig).is_ok()
    }
}
