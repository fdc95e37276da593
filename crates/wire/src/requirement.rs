//! Requirements of the RFCs on implementations: RFC 8221 for ESP and AH, RFC 8247 for IKEv2.
//!
//! | | ESP | AH | IKEv2 |
//! |---|---|---|---|
//! | encryption | 8221 section 5 | | 8247 section 2.1 |
//! | PRF | | | 8247 section 2.2 |
//! | integrity | 8221 section 6 | 8221 section 6 | 8247 section 2.3 |
//! | key exchange | 8247 section 2.4 | 8247 section 2.4 | 8247 section 2.4 |
//!
//! Pure data. They are levels of implementation, not a ranking; but MUST NOT and SHOULD NOT are
//! also advice not to configure. "IoT" rows count for small devices; elsewhere RFC 8247 says MAY of
//! them. What the documents do not name is MAY. Beside the levels stands which algorithms of the
//! IKE_SA are for old peers only ([`Requirement::old`]): whoever names one is warned.

use crate::iana::{EncrId, IntegId, KeId, PrfId, ProtocolId};
use crate::proposal::Transform;

/// A level, in order from discouraged to demanded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Broken.
    MustNot,
    /// Weak, or about to be.
    ShouldNot,
    /// Neither asked for nor advised against.
    May,
    /// Asked for.
    Should,
    /// Asked for, likely to become MUST.
    ShouldPlus,
    /// Demanded, likely to be lowered.
    MustMinus,
    /// Demanded.
    Must,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::MustNot => "MUST NOT",
            Self::ShouldNot => "SHOULD NOT",
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::ShouldPlus => "SHOULD+",
            Self::MustMinus => "MUST-",
            Self::Must => "MUST",
        })
    }
}

/// A level, and where it is said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Requirement {
    /// How strongly.
    pub level: Level,
    /// For interoperability with small devices ("Internet of Things") only.
    pub iot: bool,
    /// For old peers only: a peer that has nothing better. No default has it, and whoever names it
    /// is warned, whatever the level.
    pub old: bool,
    /// The document and section; `None` when the documents do not name the algorithm.
    pub source: Option<&'static str>,
}

impl Requirement {
    /// What has to be said beside the level: `(small devices, old peers)`, or nothing. A level that
    /// advises against the algorithm says enough.
    pub fn notes(&self) -> String {
        let old = self.old && self.level >= Level::May;
        match (self.iot, old) {
            (false, false) => String::new(),
            (true, false) => " (small devices)".to_owned(),
            (false, true) => " (old peers)".to_owned(),
            (true, true) => " (small devices, old peers)".to_owned(),
        }
    }
}

impl std::fmt::Display for Requirement {
    /// `SHOULD NOT (RFC 8221 section 5)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.level)?;
        if self.iot {
            f.write_str(" for small devices")?;
        }
        match self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

const ESP_ENCR: &str = "RFC 8221 section 5";
const ESP_INTEG: &str = "RFC 8221 section 6";
const IKE_ENCR: &str = "RFC 8247 section 2.1";
const IKE_PRF: &str = "RFC 8247 section 2.2";
const IKE_INTEG: &str = "RFC 8247 section 2.3";
const IKE_KE: &str = "RFC 8247 section 2.4";

/// A row: id, level, IoT.
type Row = (u16, Level, bool);

/// RFC 8221 section 5. The numbers without a name in [`EncrId`] are those that the table forbids.
const ESP_ENCR_ROWS: &[Row] = &[
    (1, Level::MustNot, false), // DES_IV64
    (2, Level::MustNot, false), // DES
    (EncrId::DES3.0, Level::ShouldNot, false),
    (7, Level::MustNot, false), // BLOWFISH
    (8, Level::MustNot, false), // 3IDEA
    (9, Level::MustNot, false), // DES_IV32
    (EncrId::NULL.0, Level::Must, false),
    (EncrId::AES_CBC.0, Level::Must, false),
    (EncrId::AES_CCM_8.0, Level::Should, true),
    (EncrId::AES_GCM_16.0, Level::Must, false),
    (EncrId::CHACHA20_POLY1305.0, Level::Should, false),
];

/// RFC 8247 section 2.1.
const IKE_ENCR_ROWS: &[Row] = &[
    (2, Level::MustNot, false), // DES
    (EncrId::DES3.0, Level::May, false),
    (EncrId::AES_CBC.0, Level::Must, false),
    (EncrId::AES_CCM_8.0, Level::Should, true),
    (EncrId::AES_GCM_16.0, Level::Should, false),
    (EncrId::CHACHA20_POLY1305.0, Level::Should, false),
];

/// RFC 8247 section 2.2.
const IKE_PRF_ROWS: &[Row] = &[
    (PrfId::HMAC_MD5.0, Level::MustNot, false),
    (PrfId::HMAC_SHA1.0, Level::MustMinus, false),
    (PrfId::AES128_XCBC.0, Level::Should, true),
    (PrfId::HMAC_SHA2_256.0, Level::Must, false),
    (PrfId::HMAC_SHA2_512.0, Level::ShouldPlus, false),
];

/// RFC 8221 section 6. NONE depends on what is beside it, and is not here.
const ESP_INTEG_ROWS: &[Row] = &[
    (IntegId::HMAC_MD5_96.0, Level::MustNot, false),
    (IntegId::HMAC_SHA1_96.0, Level::MustMinus, false),
    (3, Level::MustNot, false), // DES_MAC
    (4, Level::MustNot, false), // KPDK_MD5
    (IntegId::AES_XCBC_96.0, Level::Should, true),
    (IntegId::AES_128_GMAC.0, Level::May, false),
    (IntegId::AES_256_GMAC.0, Level::May, false),
    (IntegId::HMAC_SHA2_256_128.0, Level::Must, false),
    (IntegId::HMAC_SHA2_512_256.0, Level::Should, false),
];

/// RFC 8247 section 2.3.
const IKE_INTEG_ROWS: &[Row] = &[
    (IntegId::HMAC_MD5_96.0, Level::MustNot, false),
    (IntegId::HMAC_SHA1_96.0, Level::MustMinus, false),
    (3, Level::MustNot, false), // DES_MAC
    (4, Level::MustNot, false), // KPDK_MD5
    (IntegId::AES_XCBC_96.0, Level::Should, true),
    (IntegId::HMAC_SHA2_256_128.0, Level::Must, false),
    (IntegId::HMAC_SHA2_512_256.0, Level::Should, false),
];

/// RFC 8247 section 2.4.
const KE_ROWS: &[Row] = &[
    (1, Level::MustNot, false), // 768-bit MODP
    (KeId::MODP_1024.0, Level::ShouldNot, false),
    (KeId::MODP_1536.0, Level::ShouldNot, false),
    (KeId::MODP_2048.0, Level::Must, false),
    (KeId::ECP_256.0, Level::Should, false),
    (22, Level::MustNot, false),   // 1024-bit MODP, 160-bit subgroup
    (23, Level::ShouldNot, false), // 2048-bit MODP, 224-bit subgroup
    (24, Level::ShouldNot, false), // 2048-bit MODP, 256-bit subgroup
];

/// Algorithms of the IKE_SA that only old peers need, whatever RFC 8247 says of them. Algorithms
/// with SHOULD NOT and MUST NOT are not listed here: the level says so.
fn is_old_in_ike(transform: &Transform) -> bool {
    match *transform {
        // AES-CTR was written for IKE in 2010 (RFC 5930), and hardly any peer has it without
        // having AES-CBC, too.
        Transform::Encr(id, _) => matches!(id, EncrId::DES3 | EncrId::AES_CTR),
        Transform::Prf(id) => matches!(id, PrfId::HMAC_SHA1 | PrfId::AES128_XCBC | PrfId::AES128_CMAC),
        Transform::Integ(id) => {
            matches!(id, IntegId::HMAC_SHA1_96 | IntegId::AES_XCBC_96 | IntegId::AES_CMAC_96)
        }
        _ => false,
    }
}

/// Requirement for this transform in a proposal for this protocol. `None` where the RFCs say
/// nothing: transform types that the protocol has not, sequence number sizes, unknown transforms,
/// and NONE.
pub fn requirement(protocol: ProtocolId, transform: &Transform) -> Option<Requirement> {
    let ike = match protocol {
        ProtocolId::IKE => true,
        ProtocolId::ESP | ProtocolId::AH => false,
        _ => return None,
    };
    let (rows, source, id) = match (transform, ike) {
        (Transform::Encr(id, _), true) => (IKE_ENCR_ROWS, IKE_ENCR, id.0),
        (Transform::Encr(id, _), false) if protocol == ProtocolId::ESP => (ESP_ENCR_ROWS, ESP_ENCR, id.0),
        (Transform::Prf(id), true) => (IKE_PRF_ROWS, IKE_PRF, id.0),
        (Transform::Integ(IntegId::NONE), _)
        | (Transform::Ke(KeId::NONE) | Transform::AddKe(_, KeId::NONE), _) => return None,
        (Transform::Integ(id), true) => (IKE_INTEG_ROWS, IKE_INTEG, id.0),
        (Transform::Integ(id), false) => (ESP_INTEG_ROWS, ESP_INTEG, id.0),
        (Transform::Ke(id) | Transform::AddKe(_, id), _) => (KE_ROWS, IKE_KE, id.0),
        _ => return None,
    };
    let row = rows.iter().find(|(row, ..)| *row == id);
    let mut found = match row {
        Some((_, level, iot)) => Requirement { level: *level, iot: *iot, old: false, source: Some(source) },
        None => Requirement { level: Level::May, iot: false, old: false, source: None },
    };
    // The notes below both tables: the levels of AES are for 128 and 256 bits, 192 bits "can safely
    // be ignored" and stay at MAY; what small devices want, they want with 128 bits.
    if let Transform::Encr(_, Some(bits)) = transform
        && (*bits == 192 || found.iot && *bits != 128)
        && found.level > Level::May
    {
        found = Requirement { level: Level::May, iot: false, ..found };
    }
    found.old = found.level < Level::May || ike && is_old_in_ike(transform);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(protocol: ProtocolId, transform: Transform) -> Option<Level> {
        requirement(protocol, &transform).map(|r| r.level)
    }

    #[test]
    fn the_same_algorithm_may_be_judged_differently() {
        let triple = Transform::Encr(EncrId::DES3, None);
        assert_eq!(level(ProtocolId::IKE, triple), Some(Level::May));
        assert_eq!(level(ProtocolId::ESP, triple), Some(Level::ShouldNot));
        assert_eq!(level(ProtocolId::AH, triple), None, "AH encrypts nothing");
        let gcm = Transform::Encr(EncrId::AES_GCM_16, Some(256));
        assert_eq!(level(ProtocolId::IKE, gcm), Some(Level::Should));
        assert_eq!(level(ProtocolId::ESP, gcm), Some(Level::Must));
        assert_eq!(level(ProtocolId::ESP, Transform::Prf(PrfId::HMAC_SHA2_256)), None, "ESP has no PRF");
    }

    #[test]
    fn aes_with_192_bits_is_asked_of_nobody() {
        for id in [EncrId::AES_CBC, EncrId::AES_GCM_16, EncrId::AES_CCM_8] {
            for protocol in [ProtocolId::IKE, ProtocolId::ESP] {
                let found = requirement(protocol, &Transform::Encr(id, Some(192))).unwrap();
                assert_eq!((found.level, found.iot), (Level::May, false), "{id}");
                assert!(level(protocol, Transform::Encr(id, Some(128))).unwrap() > Level::May, "{id}");
            }
        }
        let small = requirement(ProtocolId::ESP, &Transform::Encr(EncrId::AES_CCM_8, Some(256))).unwrap();
        assert_eq!((small.level, small.iot), (Level::May, false), "small devices want 128 bits");
    }

    #[test]
    fn md5_des_and_small_groups_are_advised_against_everywhere() {
        for protocol in [ProtocolId::IKE, ProtocolId::ESP] {
            for (transform, want) in [
                (Transform::Encr(EncrId(2), None), Level::MustNot),
                (Transform::Integ(IntegId::HMAC_MD5_96), Level::MustNot),
                (Transform::Integ(IntegId(3)), Level::MustNot),
                (Transform::Ke(KeId(1)), Level::MustNot),
                (Transform::Ke(KeId::MODP_1024), Level::ShouldNot),
                (Transform::Ke(KeId(24)), Level::ShouldNot),
            ] {
                assert_eq!(level(protocol, transform), Some(want), "{protocol} {transform}");
            }
        }
        assert_eq!(level(ProtocolId::AH, Transform::Integ(IntegId::HMAC_MD5_96)), Some(Level::MustNot));
    }

    #[test]
    fn algorithms_of_old_peers_are_known_whatever_their_level() {
        for (transform, level, notes) in [
            (Transform::Encr(EncrId::DES3, None), Level::May, " (old peers)"),
            (Transform::Encr(EncrId::AES_CTR, Some(256)), Level::May, " (old peers)"),
            (Transform::Prf(PrfId::HMAC_SHA1), Level::MustMinus, " (old peers)"),
            (Transform::Prf(PrfId::AES128_XCBC), Level::Should, " (small devices, old peers)"),
            (Transform::Prf(PrfId::AES128_CMAC), Level::May, " (old peers)"),
            (Transform::Integ(IntegId::HMAC_SHA1_96), Level::MustMinus, " (old peers)"),
            (Transform::Integ(IntegId::AES_XCBC_96), Level::Should, " (small devices, old peers)"),
            (Transform::Integ(IntegId::AES_CMAC_96), Level::May, " (old peers)"),
            (Transform::Ke(KeId::MODP_1536), Level::ShouldNot, ""),
            (Transform::Ke(KeId::MODP_1024_160), Level::MustNot, ""),
        ] {
            let found = requirement(ProtocolId::IKE, &transform).unwrap();
            assert_eq!((found.old, found.level), (true, level), "{transform}");
            assert_eq!(found.notes(), notes, "{transform}");
        }
        for transform in [
            Transform::Encr(EncrId::AES_CBC, Some(128)),
            Transform::Encr(EncrId::AES_CCM_8, Some(128)),
            Transform::Prf(PrfId::HMAC_SHA2_256),
            Transform::Integ(IntegId::HMAC_SHA2_256_128),
            Transform::Ke(KeId::MODP_2048),
        ] {
            assert!(!requirement(ProtocolId::IKE, &transform).unwrap().old, "{transform}");
        }
        // ESP and AH follow the levels of RFC 8221 alone.
        let esp = |transform| requirement(ProtocolId::ESP, &transform).unwrap().old;
        assert!(!esp(Transform::Integ(IntegId::HMAC_SHA1_96)) && esp(Transform::Encr(EncrId::DES3, None)));
    }

    #[test]
    fn what_is_not_named_is_may_and_what_is_not_judged_is_nothing() {
        let ctr = requirement(ProtocolId::ESP, &Transform::Encr(EncrId::AES_CTR, Some(128))).unwrap();
        assert_eq!((ctr.level, ctr.source), (Level::May, None));
        assert_eq!(level(ProtocolId::IKE, Transform::Unknown { kind: 1, id: 12 }), None);
        assert_eq!(level(ProtocolId::ESP, Transform::Integ(IntegId::NONE)), None);
        assert_eq!(level(ProtocolId::ESP, Transform::Esn(crate::iana::EsnId::ESN)), None);
        assert_eq!(level(ProtocolId::NONE, Transform::Encr(EncrId::AES_CBC, Some(128))), None);
    }

    #[test]
    fn levels_are_in_order_and_print_as_the_rfcs_write_them() {
        use Level::{May, Must, MustMinus, MustNot, Should, ShouldNot, ShouldPlus};
        let order = [MustNot, ShouldNot, May, Should, ShouldPlus, MustMinus, Must];
        assert!(order.is_sorted());
        let ccm = requirement(ProtocolId::ESP, &Transform::Encr(EncrId::AES_CCM_8, Some(128))).unwrap();
        assert_eq!(ccm.to_string(), "SHOULD for small devices (RFC 8221 section 5)");
        let sha1 = requirement(ProtocolId::IKE, &Transform::Prf(PrfId::HMAC_SHA1)).unwrap();
        assert_eq!(sha1.to_string(), "MUST- (RFC 8247 section 2.2)");
    }
}
