//! Values that contradict each other, or are probably not what is meant.

use ironswan_wire::iana::ProtocolId;
use ironswan_wire::requirement::{Level, Requirement};

use super::entry::{Words, say};
use super::shown::in_the_sentence;

/// Values that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// Both UDP ports are one.
    EqualPorts,
    /// One socket is to read and change.
    EqualSockets,
    /// A group is named for a socket that is not.
    GroupWithoutSocket,
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
            Self::EqualSockets => say("must differ from vici.listen", "write unix:///run/ironswan-ro.vici"),
            Self::GroupWithoutSocket => {
                say("has no effect without readonly", "write readonly = unix:///run/ironswan-ro.vici")
            }
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
    /// An algorithm that the RFCs advise against, or that only old peers need.
    WeakAlgorithm {
        /// The word.
        name: String,
        /// What the RFC says of it.
        requirement: Requirement,
        /// Protocol of the proposal.
        protocol: ProtocolId,
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
            Self::WeakAlgorithm { name, requirement, protocol, instead } => {
                let why = match requirement.level {
                    Level::MustNot => "is broken or breakable",
                    Level::ShouldNot => "is weak",
                    _ => "is for old peers that have nothing better",
                };
                say(format!("{name} {why}: {requirement} for {protocol}"), format!("write {instead} instead"))
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

in_the_sentence!(Conflict, Unwise);
