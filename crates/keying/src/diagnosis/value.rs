//! Details of values: single values, secrets, proposals, and values that contradict or weaken each
//! other.

use ironswan_pki::Time;

use super::entry::{Words, say};

/// Reason why a value cannot be used. The value itself stands beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueFault {
    /// Not this kind of value: `an address`.
    Not(&'static str),
    /// No mode of a child.
    NotMode,
    /// Neither `yes` nor `no`.
    NotYesNo,
    /// No protocol has this name.
    NoProtocol {
        /// The nearest name that there is.
        near: Option<String>,
    },
    /// None of these words.
    NoneOf(String),
    /// Not a number up to this one.
    NotNumber(u64),
    /// Not a number between these two.
    NotBetween(String, String),
    /// A number or time outside of these two.
    Outside(&'static str, &'static str),
    /// More than this.
    Above(String),
    /// Less than this.
    Below(String),
    /// A sum that does not fit into a number.
    TooLarge,
    /// Zero where the value has to be more.
    Zero,
    /// Zero for the mark of the gateway's own packets.
    ZeroMark,
    /// Zero threads.
    ZeroThreads,
    /// A mark that is not one bit.
    NotOneBit,
    /// Characters that the name of the TUN device cannot have.
    BadDeviceName,
    /// A range of processors whose end is before its beginning.
    Backwards {
        /// Number that stands first.
        first: usize,
        /// Number that stands last.
        last: usize,
    },
    /// A time that needs its unit.
    NoUnit,
    /// A word behind `%` that is not known.
    NotKnown,
    /// A prefix length above this one.
    PrefixLength(u8),
    /// A range of addresses whose end is before its beginning, or in the other address family.
    RangeBackwards,
    /// A `[` without its `]`.
    NeverClosed,
    /// A selector without address.
    NoAddress,
    /// A range of ports whose end is before its beginning.
    PortsBackwards,
    /// A port of no protocol.
    PortWithoutProtocol(u16),
    /// An identity without a byte.
    EmptyIdentity,
    /// An identity with more bytes than this.
    LongIdentity(usize),
    /// A socket's path with more bytes than this.
    LongSocketPath(usize),
    /// A socket's path that does not begin with `/`.
    RelativeSocketPath,
    /// A hard limit that is lower than what one frame of the kernel may take.
    BelowFrame {
        /// The least value.
        least: u64,
        /// Name of the key of the soft limit.
        soft: &'static str,
    },
}

impl ValueFault {
    /// `write`: the remedy of the key, which goes before the one of the fault.
    pub(super) fn words(&self, written: &str, write: &str) -> Words {
        let (sentence, remedy) = match self {
            Self::Not(kind) => (format!("`{written}` is not {kind}"), String::new()),
            Self::NotMode => {
                (format!("`{written}` is no mode"), "set mode = tunnel, transport, pass or drop".to_owned())
            }
            Self::NotYesNo => (format!("`{written}` is neither yes nor no"), String::new()),
            Self::NoProtocol { near } => (
                format!("`{written}` is not a protocol"),
                near.as_ref().map_or("write its number".to_owned(), |n| format!("did you mean `{n}`?")),
            ),
            Self::NoneOf(words) => (format!("`{written}` is none of {words}"), String::new()),
            Self::NotNumber(max) => (format!("`{written}` is not a number up to {max}"), String::new()),
            Self::NotBetween(min, max) => {
                (format!("`{written}` is not a number between {min} and {max}"), String::new())
            }
            Self::Outside(min, max) => (format!("`{written}` is not between {min} and {max}"), String::new()),
            Self::Above(max) => (format!("`{written}` is more than {max}"), String::new()),
            Self::Below(min) => (format!("`{written}` is less than {min}"), String::new()),
            Self::TooLarge => (format!("`{written}` is too large"), String::new()),
            Self::Zero => ("must be more than 0".to_owned(), String::new()),
            Self::ZeroMark => (
                "0 would send the gateway's own packets into the tunnel".to_owned(),
                "write another number".to_owned(),
            ),
            Self::ZeroThreads => ("0 threads move nothing".to_owned(), "write auto, or 1 or more".to_owned()),
            Self::NotOneBit => (format!("`{written}` must be one bit, such as 0x10000000"), String::new()),
            Self::BadDeviceName => {
                (format!("`{written}` may have letters, digits and . _ - + @ only"), String::new())
            }
            Self::Backwards { first, last } => {
                (format!("`{written}` goes backwards"), format!("write {last}-{first}"))
            }
            Self::NoUnit => (format!("`{written}` has no unit"), String::new()),
            Self::NotKnown => (format!("`{written}` is not known"), String::new()),
            Self::PrefixLength(max) => {
                (format!("`{written}`: the prefix length is more than {max}"), String::new())
            }
            Self::RangeBackwards => (
                format!(
                    "`{written}`: the first address must not be behind the last, and both must be of one family"
                ),
                String::new(),
            ),
            Self::NeverClosed => (format!("`{written}`: the `[` is never closed"), String::new()),
            Self::NoAddress => (format!("`{written}`: an address is missing"), String::new()),
            Self::PortsBackwards => {
                (format!("`{written}`: the first port is behind the last"), String::new())
            }
            Self::PortWithoutProtocol(port) => {
                (format!("`{written}`: a port needs a protocol, such as tcp/{port}"), String::new())
            }
            Self::EmptyIdentity => (format!("`{written}` is an empty identity"), String::new()),
            Self::LongIdentity(max) => (format!("an identity longer than {max} bytes"), String::new()),
            Self::LongSocketPath(max) => {
                (format!("`{written}`: a socket's path has at most {max} bytes"), String::new())
            }
            Self::RelativeSocketPath => (format!("`{written}`: the path must begin with /"), String::new()),
            Self::BelowFrame { least, soft } => (
                format!(
                    "{written} is less than the kernel may hand over at once, which would end the CHILD_SA before it \
                     carries anything"
                ),
                format!("set at least {least}, or {soft} alone"),
            ),
        };
        say(sentence, if write.is_empty() { remedy } else { write.to_owned() })
    }
}

/// Reason why the name of a connection or a child cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameFault {
    /// Empty, or with blanks or control characters.
    NotAName,
    /// Longer than this, in bytes.
    Long(usize),
}

impl NameFault {
    pub(super) fn words(self, name: &str) -> Words {
        match self {
            Self::NotAName => {
                say(format!("`{name}` is not a name"), "write one without blanks and control characters")
            }
            Self::Long(max) => say(format!("the name `{name}` is longer than {max} bytes"), "shorten it"),
        }
    }
}

/// Reason why a secret cannot be used. The secret is never quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretFault {
    /// No byte.
    Empty,
    /// `0x` and something that is not hexadecimal.
    NotHexadecimal,
    /// `0s` and something that is not base64.
    NotBase64,
}

impl SecretFault {
    pub(super) fn words(self) -> Words {
        say(
            match self {
                Self::Empty => "the secret is empty",
                Self::NotHexadecimal => "0x is not followed by an even number of hexadecimal digits",
                Self::NotBase64 => {
                    "0s is not followed by base64, with = at its end to a multiple of four digits"
                }
            },
            "",
        )
    }
}

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

/// Values that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// Both UDP ports are one.
    EqualPorts,
    /// Both marks have this bit.
    EqualMarks {
        /// `steer_mark`.
        steer: u32,
        /// `mark`.
        mark: u32,
    },
    /// The selectors of both sides have no address family in common.
    Families,
    /// Two keys say which DSCP the outer header has.
    Dscp,
    /// A trap, and no policies.
    TrapWithoutPolicies,
    /// AH alone, and UDP encapsulation (RFC 3948 section 1).
    AhInUdp {
        /// Name of the child.
        child: String,
    },
    /// Traffic flow confidentiality in transport mode (RFC 4303 section 2.7).
    TfcInTransport,
    /// Traffic flow confidentiality of AH.
    TfcOfAh,
    /// A list names one thing twice.
    NamedTwice {
        /// The name.
        name: String,
    },
    /// A word that stands for a whole list, beside other names.
    StandsAlone {
        /// The word.
        word: &'static str,
    },
    /// The TUN device among interfaces of the network.
    TunDevice {
        /// Its name.
        name: String,
        /// The remedy.
        write: &'static str,
    },
}

impl Conflict {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::EqualPorts => say("must differ from port_ike", ""),
            Self::EqualMarks { steer, mark } => {
                say(format!("{steer:#x} must not be a bit of mark ({mark:#x})"), "")
            }
            Self::Families => say(
                "has no IPv4 or IPv6 selector in common with local_ts",
                "both sides need one of the same family",
            ),
            Self::Dscp => say(
                "and copy_dscp both say what the outer header has",
                "set copy_dscp = no (or in), or remove dscp",
            ),
            Self::TrapWithoutPolicies => {
                say("a trap is a policy", "set policies = yes, or no action to trap")
            }
            Self::AhInUdp { child } => say(
                format!("AH cannot be carried in UDP, and children.{child} has ah_proposals only"),
                "write esp_proposals (null-sha256 authenticates without encrypting), or set encap = no",
            ),
            Self::TfcInTransport => {
                say("is for tunnel mode (RFC 4303 section 2.7)", "set mode = tunnel, or remove this key")
            }
            Self::NamedTwice { name } => say(format!("{name} is named twice"), "name each once"),
            Self::StandsAlone { word } => {
                say(format!("{word} stands alone"), format!("write {word}, or the names of interfaces"))
            }
            Self::TunDevice { name, write } => say(format!("{name} is the TUN device"), *write),
            Self::TfcOfAh => {
                say("is for ESP, and AH hides nothing", "write esp_proposals, or remove this key")
            }
        }
    }
}

/// A value that works and is probably not what is meant, or not wise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unwise {
    /// The random part is longer than the time that it is taken off.
    RandTime,
    /// A child starts, and the peer has no single address.
    NoAddress,
    /// The hard limit in time is not above the soft one.
    LifeBelowRekey,
    /// Another hard limit is not above the soft one.
    HardBelowSoft {
        /// Name of the key of the soft limit.
        soft: &'static str,
    },
    /// A child is never inactive for so long, because its time begins anew before.
    NeverInactive {
        /// Name of the key after whose time it does.
        key: &'static str,
    },
    /// A child that sends dummies is never inactive.
    InactivityOfDummies,
    /// A child that is closed for inactivity stays closed, though it is to be up.
    InactiveForGood,
    /// 3DES encrypts too much with one key (Sweet32).
    SmallBlocks,
    /// The replay check is off.
    NoReplayCheck,
    /// The replay window is smaller than RFC 4303 section 3.4.3 demands.
    SmallReplayWindow {
        /// The window in packets.
        packets: u32,
    },
    /// Nothing is sent through the child.
    NoPolicies,
    /// Dummy packets that their length gives away.
    DummiesUnpadded,
    /// A DSCP for an outer header that transport mode does not have.
    DscpInTransport,
    /// Transport mode with selectors that are more than two hosts (RFC 7296 section 2.23.1).
    TransportOfNetwork {
        /// The selector.
        selector: String,
    },
    /// AH proposals that UDP encapsulation rules out.
    AhNeverUsed {
        /// Name of the child.
        child: String,
    },
    /// An address with bits behind its prefix.
    HostBits {
        /// The selector as written.
        written: String,
        /// The subnet that it means.
        meant: String,
    },
    /// An algorithm that the RFCs advise against.
    WeakAlgorithm {
        /// The word.
        name: String,
        /// The RFC says MUST NOT.
        must_not: bool,
        /// The requirement with its source, and the protocol.
        requirement: String,
        /// The word of a better one.
        instead: &'static str,
    },
    /// Encryption is offered beside none.
    ReadableOffered,
    /// More public keys of a peer than its signature is compared with.
    ManyKeys {
        /// Number of keys that are tried.
        tried: usize,
    },
    /// SHA-1, or RSA below 2,048 bits, is named for signatures.
    WeakSignatures,
    /// None of our certificates speaks for our identity.
    NotInCertificate {
        /// Subject of the first one.
        subject: String,
    },
    /// More workers than processors that they are bound to.
    FewProcessors {
        /// Number of workers.
        workers: usize,
        /// Number of processors.
        processors: usize,
    },
}

impl Unwise {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::RandTime => say("is longer than rekey_time or reauth_time, which is used instead", ""),
            Self::NoAddress => say(
                "a child has a start_action, but there is no single address to initiate to",
                "name the peer's address",
            ),
            Self::LifeBelowRekey => {
                say("is not longer than rekey_time: the CHILD_SA is closed before it is rekeyed", "")
            }
            Self::HardBelowSoft { soft } => {
                say(format!("is not more than {soft}: the CHILD_SA is closed before it is rekeyed"), "")
            }
            Self::NeverInactive { key } => say(
                format!(
                    "is not shorter than {key}, with which the time begins anew: no child is closed for it"
                ),
                "write a shorter time",
            ),
            Self::InactivityOfDummies => say(
                "dummies are packets, and pass more often than this: no child is closed for it",
                "remove inactivity or tfc_dummies",
            ),
            Self::InactiveForGood => say(
                "closes the child for good: start_action starts it when the configuration is loaded, and no packet does",
                "set start_action = trap|start",
            ),
            Self::SmallBlocks => say(
                "is more than 3des should encrypt with one key, since equal blocks of 8 bytes show text (Sweet32)",
                "set rekey_bytes = 1g, which is also what leaving it out means",
            ),
            Self::NoReplayCheck => {
                say("0 turns the replay check off: packets can be played back by anyone who saw them", "")
            }
            Self::SmallReplayWindow { packets } => say(
                format!("{packets} loses packets that arrive out of order"),
                "leave the key out, or set at least 32",
            ),
            Self::NoPolicies => {
                say("without policies nothing is sent through this child, only what arrives is taken", "")
            }
            Self::DummiesUnpadded => say(
                "dummies are told from packets by their length unless both are padded",
                "set tfc_padding = mtu",
            ),
            Self::DscpInTransport => {
                say("has no effect in transport mode, which keeps the packet's own header", "remove it")
            }
            Self::TransportOfNetwork { selector } => say(
                format!(
                    "with {selector} this is more than one address, and transport mode is between two: tunnel mode is \
                     asked for"
                ),
                "write dynamic, or set mode = tunnel",
            ),
            Self::AhNeverUsed { child } => say(
                format!("AH cannot be carried in UDP: the ah_proposals of children.{child} are never used"),
                "remove them",
            ),
            Self::HostBits { written, meant } => {
                say(format!("`{written}` has bits set behind its prefix, and means {meant}"), "write that")
            }
            Self::WeakAlgorithm { name, must_not, requirement, instead } => {
                let why = if *must_not { "is broken or breakable" } else { "is weak" };
                say(format!("{name} {why}: {requirement}"), format!("write {instead} instead"))
            }
            Self::ManyKeys { tried } => say(
                format!(
                    "only the first {tried} are tried on a signature, unless the peer's identity is the fingerprint of one"
                ),
                "give each peer a connection with its own keys, or no identity at its end",
            ),
            Self::WeakSignatures => say(
                "signatures over SHA-1 and by RSA below 2,048 bits can be forged by somebody with much computing power",
                "remove sha1 and the length, as soon as the peer can do better",
            ),
            Self::NotInCertificate { subject } => say(
                format!(
                    "no certificate of local.certs has this name, so peers will refuse it (\"{subject}\")"
                ),
                "write the subject or another name of the certificate, or leave id out for the subject",
            ),
            Self::FewProcessors { workers, processors } => say(
                format!("{workers} workers share {processors} processors"),
                format!("name as many, or set workers = {processors}"),
            ),
            Self::ReadableOffered => say(
                "encryption is offered beside none (AH, null, GMAC): the peer may choose what everybody can read",
                "keep one kind",
            ),
        }
    }
}

/// Dates of a certificate or revocation list that do not fit the time of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateFault {
    /// The certificate has expired.
    Expired {
        /// Last second at which it was valid.
        since: Time,
    },
    /// The certificate expires soon.
    Soon {
        /// Last second at which it is valid.
        until: Time,
        /// Whole days until then.
        days: i64,
    },
    /// The certificate is not valid yet.
    NotYet {
        /// First second at which it will be valid.
        from: Time,
    },
    /// The next revocation list was due.
    Overdue {
        /// Time at which it was due.
        since: Time,
    },
}

impl DateFault {
    /// The sentence and the remedy. `of`: the certificate or list.
    pub(super) fn words(&self, of: &str) -> Words {
        const RENEW: &str = "issue a new one (`ironswan pki issue`) and put it in the place of this file";
        match self {
            Self::Expired { since } => say(format!("{of} has expired: it was valid until {since}"), RENEW),
            Self::Soon { until, days } => {
                let days = match days {
                    0 => "in less than a day".to_owned(),
                    1 => "in 1 day".to_owned(),
                    days => format!("in {days} days"),
                };
                say(format!("{of} expires {days}: it is valid until {until}"), RENEW)
            }
            Self::NotYet { from } => say(
                format!("{of} is not valid before {from}"),
                "wait, or compare the clocks of this machine and of the CA",
            ),
            Self::Overdue { since } => say(
                format!("{of} is old: the next one was due by {since}"),
                "sign a new one (`ironswan pki signcrl --lastcrl`) and put it in the place of this file",
            ),
        }
    }
}
