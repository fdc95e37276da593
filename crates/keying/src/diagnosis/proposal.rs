//! Reasons why a proposal cannot be used.

use super::entry::{Words, say};
use super::shown::in_the_sentence;

/// Combined-mode algorithms, as messages list them.
const AEADS: &str = "AES-GCM, AES-CCM, AES-GMAC and ChaCha20-Poly1305";

/// Reason why the text of a proposal cannot be used. `name` is the word of an algorithm, cut and
/// escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposalFault {
    /// Two hyphens in a row.
    EmptyName,
    /// No algorithm has this name.
    Unknown {
        /// The word.
        name: String,
        /// The nearest word that can stand here.
        near: Option<String>,
    },
    /// strongSwan knows the word; there is no such algorithm here.
    NotBuilt {
        /// The word.
        name: String,
        /// The remedy.
        write: &'static str,
    },
    /// The method of an additional key exchange is known, and not built.
    MethodNotBuilt {
        /// The word.
        name: String,
        /// Number of the additional key exchange.
        number: u8,
    },
    /// Implicit IVs (RFC 8750).
    ImplicitIv {
        /// The word without implicit IV.
        explicit: String,
    },
    /// A PRF outside of a proposal for the IKE_SA.
    PrfOutsideIke,
    /// Extended sequence numbers in a proposal for the IKE_SA.
    EsnInIke,
    /// Encryption in a proposal for AH.
    EncryptionInAh {
        /// The word.
        name: String,
    },
    /// No encryption in a proposal for the IKE_SA.
    ReadableIke {
        /// The word.
        name: String,
    },
    /// An algorithm that ESP or AH has here, and IKE has not.
    NotForIke {
        /// The word.
        name: String,
        /// The remedy.
        write: &'static str,
    },
    /// Too many algorithms.
    TooMany {
        /// The limit.
        max: usize,
    },
    /// A proposal without integrity algorithm.
    NoIntegrity,
    /// A proposal that encrypts without integrity algorithm (RFC 8221 section 4).
    EncryptionAlone,
    /// A proposal with neither encryption nor integrity.
    NullAlone,
    /// A proposal without encryption algorithm.
    NoEncryption {
        /// There is an integrity algorithm: authentication alone may be meant.
        integrity: bool,
    },
    /// Combined-mode and other ciphers in one proposal (RFC 7296 section 3.3).
    MixedModes,
    /// A combined-mode algorithm with an integrity algorithm (RFC 5282 section 8).
    AeadWithIntegrity,
    /// A proposal for the IKE_SA without key exchange, or additional ones without a first one.
    NoKeyExchange,
    /// An additional key exchange whose methods are chosen before (RFC 9370 section 2.2.1).
    MethodTwice {
        /// Its first method.
        name: String,
        /// Its number, from 1 to 7.
        number: u8,
    },
    /// A proposal for the IKE_SA with a combined-mode algorithm and without PRF.
    NoPrf,
    /// The PRF that an integrity algorithm implies is not built.
    ImpliedPrfNotBuilt {
        /// The word of the integrity algorithm.
        name: String,
    },
}

impl ProposalFault {
    pub(super) fn words(&self, proposal: &str) -> Words {
        let (sentence, remedy) = match self {
            Self::EmptyName => {
                ("an empty algorithm name".to_owned(), "write names with one hyphen between them".to_owned())
            }
            Self::Unknown { name, near } => (
                format!("{name} is not a known algorithm"),
                near.as_ref().map(|near| format!("did you mean `{near}`?")).unwrap_or_default(),
            ),
            Self::NotBuilt { name, write } => (format!("{name} is not built"), (*write).to_owned()),
            Self::MethodNotBuilt { name, number } => (
                format!("{name} is not built"),
                format!("write ke{number}_mlkem768, ke{number}_x25519, ke{number}_ecp256 or ke{number}_ecp384"),
            ),
            Self::ImplicitIv { explicit } => (
                "implicit IVs (RFC 8750) cannot be negotiated yet".to_owned(),
                format!("write {explicit}"),
            ),
            Self::PrfOutsideIke => {
                ("a PRF is for proposals of the IKE_SA".to_owned(), "remove it".to_owned())
            }
            Self::EsnInIke => {
                ("esn and noesn are for esp_proposals and ah_proposals".to_owned(), String::new())
            }
            Self::EncryptionInAh { name } => (
                format!("{name} encrypts, which AH does not"),
                "name an integrity algorithm such as sha256, or write esp_proposals".to_owned(),
            ),
            Self::ReadableIke { name } => (
                format!("{name} leaves IKE messages readable"),
                "it is for esp_proposals, write aes128gcm16 here".to_owned(),
            ),
            Self::NotForIke { name, write } => {
                (format!("{name} is not built for the IKE_SA"), (*write).to_owned())
            }
            Self::TooMany { max } => (format!("more than {max} algorithms"), String::new()),
            Self::NoIntegrity => {
                ("an integrity algorithm is missing".to_owned(), "for example sha256".to_owned())
            }
            Self::EncryptionAlone => (
                "an integrity algorithm is missing, without which encryption does not protect (RFC 8221 section 4)"
                    .to_owned(),
                "add sha256".to_owned(),
            ),
            Self::NullAlone => (
                "null without an integrity algorithm protects nothing".to_owned(),
                "add sha256".to_owned(),
            ),
            Self::NoEncryption { integrity } => {
                let add = if *integrity { ". To authenticate only, add null" } else { "" };
                ("an encryption algorithm is missing".to_owned(), format!("for example aes128gcm16{add}"))
            }
            Self::MixedModes => (
                format!("{AEADS} cannot be in one proposal with other ciphers (RFC 7296 section 3.3)"),
                "write two proposals with a comma between them".to_owned(),
            ),
            Self::AeadWithIntegrity => (
                format!("{AEADS} take no integrity algorithm (RFC 5282 section 8)"),
                "remove it".to_owned(),
            ),
            Self::NoKeyExchange => {
                ("a key exchange is missing".to_owned(), "add x25519, ecp256 or modp2048".to_owned())
            }
            Self::MethodTwice { name, number } => (
                format!("{name} is chosen before ke{number}_{name}, and no method is used twice (RFC 9370 section 2.2.1)"),
                format!("write another method behind ke{number}_, or leave it out"),
            ),
            Self::NoPrf => {
                ("a PRF is missing, which an AEAD does not imply".to_owned(), "add prfsha256".to_owned())
            }
            Self::ImpliedPrfNotBuilt { name } => {
                (format!("the PRF that goes with {name} is not built"), "add prfsha256".to_owned())
            }
        };
        say(format!("`{proposal}`: {sentence}"), remedy)
    }
}

in_the_sentence!(ProposalFault);
