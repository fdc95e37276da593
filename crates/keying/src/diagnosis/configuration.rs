//! Entries of the area configuration: files, names of keys and sections, values, and parts that do
//! not fit each other. The finding that holds an entry names file, line and key.

use ironswan_crypto::sign::{KeyFault, KeyKind};
use ironswan_pki::Rule;
use ironswan_pki::key_file::FileFault as CredentialFault;
use ironswan_wire::id::Identity;

use super::entry::entries;
use super::proof::{KeyLack, ProofLack, StatusLack};
use super::proposal::ProposalFault;
use super::reading::{FileFault, IncludeFault, InheritFault, InheritLimit, RequestFault, SyntaxFault};
use super::unwise::{Conflict, Unwise};
use super::value::{DateFault, NameFault, SecretFault, ValueFault};

entries! {
    /// Reading and understanding the configuration.
    Configuration, ConfigurationEntry;

    // ---- files ----

    /// A file or folder of the configuration cannot be read.
    Unreadable {
        /// Path, escaped. `None`: the place of the finding is the path.
        path: Option<String>,
        /// Reason.
        why: FileFault,
    } = "file-unreadable" by ThisMachine;
    /// The file system does not answer.
    FileSystemSilent {
        /// Path that was asked for.
        path: String,
        /// Seconds without an answer.
        seconds: u64,
    } = "file-system-silent" by ThisMachine;
    /// The file system answers too slowly to read the whole configuration.
    FileSystemSlow {
        /// Path that was asked for last.
        path: String,
        /// Seconds that all answers have taken.
        seconds: u64,
        /// Number of answers.
        answers: u64,
    } = "file-system-slow" by ThisMachine;
    /// Understanding the configuration takes too long.
    ReadingEndless {
        /// Seconds of work.
        seconds: u64,
    } = "reading-endless" by Configuration;
    /// The thread that reads files did not start or has panicked.
    ReadingFailed {
        /// The operating system's reason why there is no thread. `None`: the thread has panicked.
        why: Option<String>,
    } = "reading-failed" by ThisMachine;
    /// An `include` is refused.
    IncludeRefused {
        /// File or pattern, escaped.
        file: String,
        /// Reason.
        why: IncludeFault,
    } = "include-refused" by Configuration;
    /// The folder holds no configuration.
    NothingToRead {
        /// The folder exists.
        folder: bool,
    } = "nothing-to-read" by Configuration;
    /// There is an `ipsec.conf`, which is not read.
    IpsecConf = "ipsec-conf" by Configuration;
    /// A file holds secrets, and other users may read it.
    SecretsExposed {
        /// Path of the file.
        file: String,
        /// Its permission bits.
        mode: u32,
    } = "secrets-exposed" by Configuration;

    /// A reload found a file that is empty or missing, as files are for a moment while they are
    /// written.
    HalfWritten {
        /// Path of the file.
        file: String,
        /// The file is empty; else it is missing.
        empty: bool,
        /// A connection that would end. `None`: settings would return to their defaults.
        ends: Option<String>,
    } = "file-half-written" by Configuration;

    // ---- syntax ----

    /// The text cannot be parsed.
    Syntax {
        /// Reason.
        why: SyntaxFault,
    } = "syntax" by Configuration;
    /// A key is written twice in one section.
    WrittenTwice {
        /// Place of the first one.
        first: String,
    } = "written-twice" by Configuration;
    /// A comment begins in the middle of a value.
    CommentInValue = "comment-in-value" by Configuration;
    /// A section cannot inherit from another one.
    Inheritance {
        /// Name of the other section.
        from: String,
        /// Reason.
        why: InheritFault,
    } = "inheritance" by Configuration;
    /// A section would inherit a key and a section of one name.
    InheritedClash {
        /// The name.
        name: String,
        /// The name is a key already, and would become a section; else the other way round.
        is_key: bool,
        /// Place of the first one.
        place: String,
    } = "inherited-clash" by Configuration;
    /// Inheriting makes more than the limits allow.
    InheritanceLimit {
        /// The limit.
        limit: InheritLimit,
    } = "inheritance-limit" by Configuration;

    // ---- names of keys and sections ----

    /// No key has this name.
    UnknownKey {
        /// The nearest name that there is.
        near: Option<String>,
    } = "unknown-key" by Configuration;
    /// Among secrets, something that no key is named like. The name is not quoted.
    UnknownAmongSecrets = "unknown-among-secrets" by Configuration;
    /// A key in `secrets` that stands in no section of its own. The name is not quoted.
    SecretWithoutSection = "secret-without-section" by Configuration;
    /// No section has this name.
    UnknownSection {
        /// The nearest name that there is.
        near: Option<String>,
        /// The section stands at the top, where others may inherit from it.
        top: bool,
    } = "unknown-section" by Configuration;
    /// A key where a section is expected.
    KeyForSection {
        /// The name.
        name: String,
    } = "key-for-section" by Configuration;
    /// A section where a key is expected.
    SectionForKey {
        /// The name.
        name: String,
    } = "section-for-key" by Configuration;
    /// A key outside of every section.
    KeyOutside = "key-outside" by Configuration;
    /// The name of a connection or child cannot be used.
    BadName {
        /// The name, cut and escaped.
        name: String,
        /// Reason.
        why: NameFault,
    } = "bad-name" by Configuration;
    /// The configuration asks for something that is not built.
    NotBuilt {
        /// Sentence that names it.
        what: String,
        /// The remedy.
        write: &'static str,
    } = "not-built" by Configuration;
    /// The key is read in another section now.
    KeyMoved {
        /// Name of the key.
        name: &'static str,
        /// The other section.
        section: &'static str,
        /// The value, cut and escaped.
        value: String,
    } = "key-moved" by Configuration;
    /// The key is known and has no effect.
    NoEffect {
        /// Reason.
        why: &'static str,
    } = "no-effect" by Configuration;
    /// A section is missing that has no default.
    MissingSection {
        /// Text to write.
        write: String,
    } = "missing-section" by Configuration;
    /// A section of secrets holds none.
    MissingSecret = "missing-secret" by Configuration;

    // ---- values ----

    /// A passphrase has no file, or a file no passphrase.
    MissingPassphrase = "missing-passphrase" by Configuration;
    /// A value cannot be used.
    BadValue {
        /// The value, cut and escaped.
        written: String,
        /// Reason.
        why: ValueFault,
        /// The remedy of this key. Empty: that of the reason.
        write: &'static str,
    } = "bad-value" by Configuration;
    /// A list was written and names nothing.
    NamesNothing = "names-nothing" by Configuration;
    /// A secret cannot be used. The secret is not quoted.
    BadSecret {
        /// Reason.
        why: SecretFault,
    } = "bad-secret" by Configuration;
    /// A proposal cannot be used.
    BadProposal {
        /// The proposal as written, cut and escaped.
        proposal: String,
        /// Reason.
        why: ProposalFault,
    } = "bad-proposal" by Configuration;
    /// A file of keys holds no key that can be used.
    BadKey {
        /// Path of the file, escaped; a key that came by VICI has a number. `None`: the place of
        /// the finding is the path.
        file: Option<String>,
        /// Reason.
        why: KeyFault,
        /// A private key was expected, else a public one.
        private: bool,
    } = "bad-key" by Configuration;
    /// A file of certificates, of a revocation list or of encrypted keys cannot be used.
    BadCredential {
        /// Path of the file, escaped; a certificate that came by VICI has a number. `None`: the
        /// place of the finding is the path.
        file: Option<String>,
        /// Reason.
        why: CredentialFault,
    } = "bad-credential-file" by Configuration;
    /// A certificate is not valid now or ends soon, or a revocation list is old.
    CertificateDates {
        /// Certificate or list, with its name.
        of: String,
        /// Reason.
        fault: DateFault,
    } = "certificate-dates" by Configuration;
    /// No certificate that a connection names for its peer speaks for the peer's identity.
    CertificateOfAnother {
        /// Identity of the peer.
        id: String,
        /// Subject of the first certificate.
        subject: String,
        /// Its other names.
        names: Vec<String>,
    } = "certificate-of-another" by Configuration;
    /// A public key is shorter than `auth` allows.
    ShortKey {
        /// File of the key as written; a key that came by VICI has a number.
        file: String,
        /// The key.
        kind: KeyKind,
    } = "short-key" by Configuration;
    /// More of something than there may be.
    TooMany {
        /// The limit.
        max: usize,
        /// Name of the things.
        of: &'static str,
        /// The remedy.
        write: &'static str,
    } = "too-many" by Configuration;
    /// Two keys contradict each other.
    Conflicting {
        /// The contradiction.
        what: Conflict,
    } = "conflicting-keys" by Configuration;
    /// A value works, and is probably not what is meant, or not wise.
    Doubtful {
        /// The doubt.
        what: Unwise,
    } = "unwise-value" by Configuration;

    // ---- parts that do not fit each other ----

    /// The connection names a UDP port that the daemon does not have.
    ForeignPort {
        /// Port of the connection.
        port: u16,
        /// Our port for IKE.
        ike: u16,
        /// Our port for IKE and ESP behind a NAT.
        natt: u16,
    } = "foreign-port" by Configuration;
    /// Two children want the same packets.
    Overlap {
        /// Packets that both want, as local === remote.
        packets: String,
        /// The other child, with its place.
        other: String,
    } = "overlapping-children" by Configuration;
    /// The selectors of one child lie inside of another one's.
    Inside {
        /// Packets that both want, as local === remote.
        packets: String,
        /// The other child, with its place.
        other: String,
    } = "child-inside-another" by Configuration;
    /// Two children have one reqid and different selectors.
    SharedReqid {
        /// The reqid.
        reqid: u32,
        /// The other child, with its place.
        other: String,
    } = "shared-reqid" by Configuration;
    /// A responder cannot tell two connections apart.
    Twins {
        /// Name of the other connection.
        other: String,
    } = "twin-connections" by Configuration;
    /// No shared key fits the identities of a connection.
    NoKey {
        /// Our identity.
        local: String,
        /// The peer's identity.
        remote: String,
        /// Name of the connection.
        conn: String,
    } = "no-shared-key" by Configuration;
    /// No post-quantum preshared key has the identifier that a connection names.
    NoPpk {
        /// The identifier.
        id: Identity,
    } = "no-ppk" by Configuration;
    /// A connection requires a post-quantum preshared key, and names none.
    PpkUnnamed = "ppk-unnamed" by Configuration;
    /// A post-quantum preshared key has too few bytes to resist a quantum computer.
    ShortPpk {
        /// Its length in bytes.
        bytes: usize,
    } = "short-ppk" by Configuration;
    /// Two different shared keys fit equally well.
    TwoKeys {
        /// Name of the key that is used.
        first: String,
        /// Name of the other one.
        second: String,
    } = "two-shared-keys" by Configuration;
    /// A side authenticates by public key, and neither key nor certificate nor CA of it is known.
    NoPublicKey {
        /// The part that is missing.
        of: ProofLack,
    } = "no-public-key" by Configuration;
    /// No private key of ours fits a connection: its public keys, certificates or identity.
    NoPrivateKey {
        /// Our identity.
        local: String,
        /// Reason.
        why: KeyLack,
    } = "no-private-key" by Configuration;
    /// A certificate cannot be used for IKE, whoever has issued it.
    UnfitCertificate {
        /// Subject.
        subject: String,
        /// The rule that it breaks.
        why: Rule,
    } = "unfit-certificate" by Configuration;
    /// No CA of a connection may issue a certificate for the peer's identity (nameConstraints).
    IdNotPermitted {
        /// Identity of the peer.
        id: String,
        /// Subject of a CA.
        ca: String,
    } = "id-not-permitted" by Configuration;
    /// The status of certificates is required, and nothing says where it can be learned.
    NoStatusSource {
        /// The part that is missing.
        of: StatusLack,
    } = "no-status-source" by Configuration;
    /// Both sides have one identity.
    OwnIdentity {
        /// The identity.
        id: String,
    } = "own-identity" by Configuration;
    /// A network is on both sides.
    BothSides {
        /// The selector.
        selector: String,
    } = "network-on-both-sides" by Configuration;
    /// An action for a dead peer, and nothing notices that the peer is dead.
    NoLiveness = "no-liveness" by Configuration;
    /// The selectors contain the peer's own address.
    PeerInside {
        /// The selector.
        selector: String,
        /// The peer's address.
        address: std::net::IpAddr,
    } = "peer-inside-selectors" by Configuration;
    /// A request by VICI cannot be understood.
    BadRequest {
        /// Reason.
        why: RequestFault,
    } = "bad-request" by Bytes;
    /// A secret is so short that it can be guessed.
    ShortSecret {
        /// Under 8 bytes.
        very: bool,
    } = "short-secret" by Configuration;
    /// The secret is an example of the documents.
    DocumentedSecret = "documented-secret" by Configuration;
}
