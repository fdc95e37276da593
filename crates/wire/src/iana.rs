//! Numbers assigned by IANA for IKEv2 (RFC 7296) and their names.
//!
//! Each registry is a newtype over its wire integer, so an unknown number is a value like any
//! other. `Display` prints the name that strongSwan prints (VICI clients and exporters match on
//! it), or the number in parentheses.

/// Declares a registry: a newtype, its constants, and `Display`/`name`/`from_name`.
macro_rules! registry {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($(#[$vmeta:meta])* $konst:ident = $num:literal => $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        #[allow(missing_docs, reason = "the constants are the registry's own names")]
        impl $name {
            $($(#[$vmeta])* pub const $konst: Self = Self($num);)*

            /// Every value that has a name here.
            pub const ALL: &'static [Self] = &[$(Self($num)),*];

            /// The assigned name, if this number has one here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($num => Some($text),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "({})", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

registry! {
    /// Exchange types (RFC 7296 section 3.1).
    ExchangeType(u8) {
        IKE_SA_INIT = 34 => "IKE_SA_INIT",
        IKE_AUTH = 35 => "IKE_AUTH",
        CREATE_CHILD_SA = 36 => "CREATE_CHILD_SA",
        INFORMATIONAL = 37 => "INFORMATIONAL",
        IKE_SESSION_RESUME = 38 => "IKE_SESSION_RESUME",
        IKE_INTERMEDIATE = 43 => "IKE_INTERMEDIATE",
        IKE_FOLLOWUP_KE = 44 => "IKE_FOLLOWUP_KE",
    }
}

registry! {
    /// Payload types (RFC 7296 section 3.2; SKF: RFC 7383).
    PayloadType(u8) {
        NONE = 0 => "NONE",
        SA = 33 => "SA",
        KE = 34 => "KE",
        IDI = 35 => "IDi",
        IDR = 36 => "IDr",
        CERT = 37 => "CERT",
        CERTREQ = 38 => "CERTREQ",
        AUTH = 39 => "AUTH",
        NONCE = 40 => "No",
        NOTIFY = 41 => "N",
        DELETE = 42 => "D",
        VENDOR_ID = 43 => "V",
        TSI = 44 => "TSi",
        TSR = 45 => "TSr",
        SK = 46 => "SK",
        CP = 47 => "CP",
        EAP = 48 => "EAP",
        SKF = 53 => "SKF",
    }
}

registry! {
    /// Protocol identifiers in proposals, notifies and deletes (RFC 7296 section 3.3.1).
    ProtocolId(u8) {
        NONE = 0 => "NONE",
        IKE = 1 => "IKE",
        AH = 2 => "AH",
        ESP = 3 => "ESP",
    }
}

registry! {
    /// Transform types (RFC 7296 section 3.3.2, RFC 9370 section 2.2.1).
    TransformType(u8) {
        ENCR = 1 => "ENCRYPTION_ALGORITHM",
        PRF = 2 => "PSEUDO_RANDOM_FUNCTION",
        INTEG = 3 => "INTEGRITY_ALGORITHM",
        KE = 4 => "KEY_EXCHANGE_METHOD",
        ESN = 5 => "EXTENDED_SEQUENCE_NUMBERS",
        ADDKE1 = 6 => "ADDITIONAL_KEY_EXCHANGE_1",
        ADDKE2 = 7 => "ADDITIONAL_KEY_EXCHANGE_2",
        ADDKE3 = 8 => "ADDITIONAL_KEY_EXCHANGE_3",
        ADDKE4 = 9 => "ADDITIONAL_KEY_EXCHANGE_4",
        ADDKE5 = 10 => "ADDITIONAL_KEY_EXCHANGE_5",
        ADDKE6 = 11 => "ADDITIONAL_KEY_EXCHANGE_6",
        ADDKE7 = 12 => "ADDITIONAL_KEY_EXCHANGE_7",
    }
}

registry! {
    /// Encryption algorithms (transform type 1).
    EncrId(u16) {
        DES3 = 3 => "3DES_CBC",
        NULL = 11 => "NULL",
        AES_CBC = 12 => "AES_CBC",
        AES_CTR = 13 => "AES_CTR",
        AES_CCM_8 = 14 => "AES_CCM_8",
        AES_CCM_12 = 15 => "AES_CCM_12",
        AES_CCM_16 = 16 => "AES_CCM_16",
        AES_GCM_8 = 18 => "AES_GCM_8",
        AES_GCM_12 = 19 => "AES_GCM_12",
        AES_GCM_16 = 20 => "AES_GCM_16",
        NULL_AES_GMAC = 21 => "NULL_AES_GMAC",
        CHACHA20_POLY1305 = 28 => "CHACHA20_POLY1305",
        AES_CCM_8_IIV = 29 => "AES_CCM_8_IIV",
        AES_GCM_16_IIV = 30 => "AES_GCM_16_IIV",
        CHACHA20_POLY1305_IIV = 31 => "CHACHA20_POLY1305_IIV",
    }
}

impl EncrId {
    /// True for combined-mode algorithms, which carry their own ICV and take no integrity transform
    /// (RFC 5282 section 8).
    pub fn is_aead(self) -> bool {
        matches!(self.0, 14..=16 | 18..=21 | 28..=31)
    }

    /// True when the transform needs a key-length attribute (AES; RFC 7296 section 3.3.5).
    pub fn has_key_length(self) -> bool {
        matches!(self.0, 12..=16 | 18..=21 | 29..=30)
    }
}

registry! {
    /// Pseudo-random functions (transform type 2).
    PrfId(u16) {
        HMAC_MD5 = 1 => "PRF_HMAC_MD5",
        HMAC_SHA1 = 2 => "PRF_HMAC_SHA1",
        AES128_XCBC = 4 => "PRF_AES128_XCBC",
        HMAC_SHA2_256 = 5 => "PRF_HMAC_SHA2_256",
        HMAC_SHA2_384 = 6 => "PRF_HMAC_SHA2_384",
        HMAC_SHA2_512 = 7 => "PRF_HMAC_SHA2_512",
        AES128_CMAC = 8 => "PRF_AES128_CMAC",
    }
}

registry! {
    /// Integrity algorithms (transform type 3).
    IntegId(u16) {
        NONE = 0 => "NONE",
        HMAC_MD5_96 = 1 => "HMAC_MD5_96",
        HMAC_SHA1_96 = 2 => "HMAC_SHA1_96",
        AES_XCBC_96 = 5 => "AES_XCBC_96",
        AES_CMAC_96 = 8 => "AES_CMAC_96",
        AES_128_GMAC = 9 => "AES_128_GMAC",
        AES_192_GMAC = 10 => "AES_192_GMAC",
        AES_256_GMAC = 11 => "AES_256_GMAC",
        HMAC_SHA2_256_128 = 12 => "HMAC_SHA2_256_128",
        HMAC_SHA2_384_192 = 13 => "HMAC_SHA2_384_192",
        HMAC_SHA2_512_256 = 14 => "HMAC_SHA2_512_256",
    }
}

registry! {
    /// Key exchange methods, formerly Diffie-Hellman groups (transform type 4).
    KeId(u16) {
        NONE = 0 => "NONE",
        MODP_1024 = 2 => "MODP_1024",
        MODP_1536 = 5 => "MODP_1536",
        MODP_2048 = 14 => "MODP_2048",
        MODP_3072 = 15 => "MODP_3072",
        MODP_4096 = 16 => "MODP_4096",
        MODP_6144 = 17 => "MODP_6144",
        MODP_8192 = 18 => "MODP_8192",
        ECP_256 = 19 => "ECP_256",
        ECP_384 = 20 => "ECP_384",
        ECP_521 = 21 => "ECP_521",
        MODP_1024_160 = 22 => "MODP_1024_160",
        MODP_2048_224 = 23 => "MODP_2048_224",
        MODP_2048_256 = 24 => "MODP_2048_256",
        CURVE_25519 = 31 => "CURVE_25519",
        CURVE_448 = 32 => "CURVE_448",
        ML_KEM_512 = 35 => "ML_KEM_512",
        ML_KEM_768 = 36 => "ML_KEM_768",
        ML_KEM_1024 = 37 => "ML_KEM_1024",
    }
}

registry! {
    /// Sequence number sizes (transform type 5).
    EsnId(u16) {
        NO_ESN = 0 => "NO_EXT_SEQ",
        ESN = 1 => "EXT_SEQ",
    }
}

registry! {
    /// Identification types (RFC 7296 section 3.5).
    IdType(u8) {
        IPV4_ADDR = 1 => "ID_IPV4_ADDR",
        FQDN = 2 => "ID_FQDN",
        RFC822_ADDR = 3 => "ID_RFC822_ADDR",
        IPV6_ADDR = 5 => "ID_IPV6_ADDR",
        DER_ASN1_DN = 9 => "ID_DER_ASN1_DN",
        DER_ASN1_GN = 10 => "ID_DER_ASN1_GN",
        KEY_ID = 11 => "ID_KEY_ID",
    }
}

registry! {
    /// Authentication methods (RFC 7296 section 3.8).
    AuthMethod(u8) {
        RSA = 1 => "RSA signature",
        PSK = 2 => "pre-shared key",
        ECDSA_256 = 9 => "ECDSA-256 signature",
        ECDSA_384 = 10 => "ECDSA-384 signature",
        ECDSA_521 = 11 => "ECDSA-521 signature",
        NULL = 13 => "NULL",
        SIGNATURE = 14 => "digital signature",
    }
}

registry! {
    /// Traffic selector types (RFC 7296 section 3.13.1).
    TsType(u8) {
        IPV4_ADDR_RANGE = 7 => "TS_IPV4_ADDR_RANGE",
        IPV6_ADDR_RANGE = 8 => "TS_IPV6_ADDR_RANGE",
    }
}

registry! {
    /// Notify message types (RFC 7296 section 3.10.1). Errors are below 16384, status types from
    /// there on.
    NotifyType(u16) {
        UNSUPPORTED_CRITICAL_PAYLOAD = 1 => "UNSUPPORTED_CRITICAL_PAYLOAD",
        INVALID_IKE_SPI = 4 => "INVALID_IKE_SPI",
        INVALID_MAJOR_VERSION = 5 => "INVALID_MAJOR_VERSION",
        INVALID_SYNTAX = 7 => "INVALID_SYNTAX",
        INVALID_MESSAGE_ID = 9 => "INVALID_MESSAGE_ID",
        INVALID_SPI = 11 => "INVALID_SPI",
        NO_PROPOSAL_CHOSEN = 14 => "NO_PROPOSAL_CHOSEN",
        INVALID_KE_PAYLOAD = 17 => "INVALID_KE_PAYLOAD",
        AUTHENTICATION_FAILED = 24 => "AUTHENTICATION_FAILED",
        SINGLE_PAIR_REQUIRED = 34 => "SINGLE_PAIR_REQUIRED",
        NO_ADDITIONAL_SAS = 35 => "NO_ADDITIONAL_SAS",
        INTERNAL_ADDRESS_FAILURE = 36 => "INTERNAL_ADDRESS_FAILURE",
        FAILED_CP_REQUIRED = 37 => "FAILED_CP_REQUIRED",
        TS_UNACCEPTABLE = 38 => "TS_UNACCEPTABLE",
        INVALID_SELECTORS = 39 => "INVALID_SELECTORS",
        TEMPORARY_FAILURE = 43 => "TEMPORARY_FAILURE",
        UNACCEPTABLE_ADDRESSES = 40 => "UNACCEPTABLE_ADDRESSES",
        UNEXPECTED_NAT_DETECTED = 41 => "UNEXPECTED_NAT_DETECTED",
        CHILD_SA_NOT_FOUND = 44 => "CHILD_SA_NOT_FOUND",
        STATE_NOT_FOUND = 47 => "STATE_NOT_FOUND",
        INITIAL_CONTACT = 16384 => "INITIAL_CONTACT",
        SET_WINDOW_SIZE = 16385 => "SET_WINDOW_SIZE",
        ADDITIONAL_TS_POSSIBLE = 16386 => "ADDITIONAL_TS_POSSIBLE",
        IPCOMP_SUPPORTED = 16387 => "IPCOMP_SUPPORTED",
        NAT_DETECTION_SOURCE_IP = 16388 => "NAT_DETECTION_SOURCE_IP",
        NAT_DETECTION_DESTINATION_IP = 16389 => "NAT_DETECTION_DESTINATION_IP",
        COOKIE = 16390 => "COOKIE",
        USE_TRANSPORT_MODE = 16391 => "USE_TRANSPORT_MODE",
        HTTP_CERT_LOOKUP_SUPPORTED = 16392 => "HTTP_CERT_LOOKUP_SUPPORTED",
        REKEY_SA = 16393 => "REKEY_SA",
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394 => "ESP_TFC_PADDING_NOT_SUPPORTED",
        NON_FIRST_FRAGMENTS_ALSO = 16395 => "NON_FIRST_FRAGMENTS_ALSO",
        MOBIKE_SUPPORTED = 16396 => "MOBIKE_SUPPORTED",
        ADDITIONAL_IP4_ADDRESS = 16397 => "ADDITIONAL_IP4_ADDRESS",
        ADDITIONAL_IP6_ADDRESS = 16398 => "ADDITIONAL_IP6_ADDRESS",
        NO_ADDITIONAL_ADDRESSES = 16399 => "NO_ADDITIONAL_ADDRESSES",
        UPDATE_SA_ADDRESSES = 16400 => "UPDATE_SA_ADDRESSES",
        COOKIE2 = 16401 => "COOKIE2",
        NO_NATS_ALLOWED = 16402 => "NO_NATS_ALLOWED",
        AUTH_LIFETIME = 16403 => "AUTH_LIFETIME",
        REDIRECT_SUPPORTED = 16406 => "REDIRECT_SUPPORTED",
        MULTIPLE_AUTH_SUPPORTED = 16404 => "MULTIPLE_AUTH_SUPPORTED",
        ANOTHER_AUTH_FOLLOWS = 16405 => "ANOTHER_AUTH_FOLLOWS",
        EAP_ONLY_AUTHENTICATION = 16417 => "EAP_ONLY_AUTHENTICATION",
        CHILDLESS_IKEV2_SUPPORTED = 16418 => "CHILDLESS_IKEV2_SUPPORTED",
        QUICK_CRASH_DETECTION = 16419 => "QUICK_CRASH_DETECTION",
        IKEV2_FRAGMENTATION_SUPPORTED = 16430 => "IKEV2_FRAGMENTATION_SUPPORTED",
        SIGNATURE_HASH_ALGORITHMS = 16431 => "SIGNATURE_HASH_ALGORITHMS",
        USE_PPK = 16435 => "USE_PPK",
        PPK_IDENTITY = 16436 => "PPK_IDENTITY",
        NO_PPK_AUTH = 16437 => "NO_PPK_AUTH",
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438 => "INTERMEDIATE_EXCHANGE_SUPPORTED",
        ADDITIONAL_KEY_EXCHANGE = 16441 => "ADDITIONAL_KEY_EXCHANGE",
        USE_PPK_INT = 16445 => "USE_PPK_INT",
        PPK_IDENTITY_KEY = 16446 => "PPK_IDENTITY_KEY",
        // Status types from 40960 on are for private use. 40960 to 40969 are strongSwan's and
        // Libreswan's.
        PATH_PROBE = 50123 => "PATH_PROBE",
    }
}

impl NotifyType {
    /// True for error types (RFC 7296 section 3.10.1: 0 to 16383).
    pub fn is_error(self) -> bool {
        self.0 < 16384
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_print_in_parentheses() {
        assert_eq!(NotifyType(40_000).to_string(), "(40000)");
        assert_eq!(EncrId::AES_GCM_16.to_string(), "AES_GCM_16");
    }

    #[test]
    fn errors_end_where_status_types_begin() {
        assert!(NotifyType(16_383).is_error());
        assert!(!NotifyType::INITIAL_CONTACT.is_error());
    }
}
