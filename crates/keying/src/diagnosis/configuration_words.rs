//! Sentences and remedies of the entries of configuration.

use ironswan_crypto::sign::KeyFault;
use ironswan_pki::key_file::FileFault as CredentialFault;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::payload::Notify;

use super::configuration::Configuration;
use super::entry::{Words, say};
use super::reading::FileFault;
use crate::PPK_BYTES;

/// Remedy for a secret that can be guessed.
const LONGER: &str = "whoever answers as the peer once can try keys offline; `ironswan pki --psk` makes one of 32 random bytes";

impl Configuration {
    /// A missing key answers a peer as an authentication that failed. The other entries answer
    /// nobody.
    pub(super) fn notify(&self) -> Option<Notify> {
        let answers =
            matches!(self, Self::NoKey { .. } | Self::NoPrivateKey { .. } | Self::NoPublicKey { .. });
        answers.then(|| Notify::new(NotifyType::AUTHENTICATION_FAILED, []))
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::Unreadable { path, why } => {
                let path =
                    path.as_ref().map_or("cannot be looked at".to_owned(), |p| format!("cannot read {p}"));
                let remedy = match why {
                    FileFault::Missing(_) => "put the file there, or correct its name",
                    _ => "make it readable for the daemon, or remove it",
                };
                say(format!("{path}: {why}"), remedy)
            }
            Self::FileSystemSilent { path, seconds } => say(
                format!("{path}: the file system has not answered for {seconds} s"),
                "bring it back, or take the file out of the configuration",
            ),
            Self::FileSystemSlow { path, seconds, answers } => say(
                format!(
                    "{path}: the file system is too slow, it has taken {seconds} s for {answers} answers"
                ),
                "put the configuration on a faster one, or into fewer files",
            ),
            Self::ReadingEndless { seconds } => say(
                format!("making sense of the configuration has taken {seconds} s without an end"),
                "write less, or let fewer sections inherit",
            ),
            Self::ReadingFailed { why: Some(why) } => {
                say(format!("cannot start a thread that reads files: {why}"), "")
            }
            Self::ReadingFailed { why: None } => say("reading the files ended badly", ""),
            Self::IncludeRefused { file, why } => why.words(file),
            Self::NothingToRead { folder: false } => {
                say("there is no such folder", "name the folder with --config")
            }
            Self::NothingToRead { folder: true } => {
                say("holds neither swanctl.conf nor conf.d/*.conf", "write one")
            }
            Self::IpsecConf => say("is not read yet", "write its connections into swanctl.conf"),
            Self::SecretsExposed { file, mode } => say(
                format!("the file holds secrets and others may read it (mode {mode:03o})"),
                format!("chmod 600 {file}"),
            ),
            Self::HalfWritten { file, empty, ends } => {
                let state = if *empty { "is empty" } else { "is not there any more" };
                let effect = match ends {
                    Some(conn) => format!("end connection {conn} and others"),
                    None => "return to the defaults".to_owned(),
                };
                say(
                    format!("{file} {state}: perhaps it is being written"),
                    format!("to {effect}, write a comment into it"),
                )
            }
            Self::Syntax { why } => why.words(),
            Self::WrittenTwice { first } => {
                say(format!("is written twice, first at {first}: the last one holds"), "remove one")
            }
            Self::CommentInValue => {
                say("`#` starts a comment in the middle of this value", "quote the value if it belongs to it")
            }
            Self::Inheritance { from, why } => why.words(from),
            Self::InheritedClash { name, is_key, place } => {
                let kind = if *is_key { "key" } else { "section" };
                say(format!("`{name}` is a {kind} already where this is inherited, {place}"), "")
            }
            Self::InheritanceLimit { limit } => limit.words(),
            Self::UnknownKey { near } => say("unknown key", nearest(near.as_deref())),
            Self::UnknownAmongSecrets => say(
                "unknown key, not named since it may be a part of a secret",
                "quote a secret that goes over lines, and write no keys but secret and id",
            ),
            Self::SecretWithoutSection => {
                say("holds a key that stands in no section of its own", "write ike-1 { secret = ... }")
            }
            Self::UnknownSection { near, top } => {
                let top = if *top { ", and nothing inherits from it" } else { "" };
                say(format!("unknown section{top}"), nearest(near.as_deref()))
            }
            Self::KeyForSection { name } => say("is a section, not a key", format!("write {name} {{ ... }}")),
            Self::SectionForKey { name } => say("is a key, not a section", format!("write {name} = ...")),
            Self::KeyOutside => say("a key outside of every section", "put it into a connection"),
            Self::BadName { name, why } => why.words(name),
            Self::NotBuilt { what, write } => say(what.clone(), *write),
            Self::KeyMoved { name, section, value } => {
                say("has moved", format!("write {section} {{ {name} = {value} }}"))
            }
            Self::NoEffect { why } => say(format!("has no effect: {why}"), ""),
            Self::MissingSection { write } => say("is missing", format!("write {write}")),
            Self::MissingSecret => say("has no secret", "write secret = \"...\""),
            Self::MissingPassphrase => {
                say("has no file or no secret", "write file = NAME and secret = \"...\"")
            }
            Self::BadValue { written, why, write } => why.words(written, write),
            Self::NamesNothing => {
                say("names nothing between its commas", "write what is meant, or remove the key")
            }
            Self::BadSecret { why } => why.words(),
            Self::BadProposal { proposal, why } => why.words(proposal),
            Self::BadKey { file, why, private } => {
                let file = file.as_deref().unwrap_or("the file");
                let kind = if *private { "private" } else { "public" };
                let write = match why {
                    KeyFault::Malformed if *private => "put one key into the file, in PEM or DER",
                    KeyFault::Malformed => {
                        "put one key into the file, in PEM or DER (`openssl x509 -in FILE -noout -pubkey` prints that of a \
                         certificate)"
                    }
                    KeyFault::Mismatch => "put the key there again, with its own public key or without any",
                    KeyFault::Weak | KeyFault::RsaExponent | KeyFault::RsaModulus | KeyFault::Point => {
                        "ask its owner for another one: somebody has tampered with this one"
                    }
                    KeyFault::RsaSize(_) => "make a key of 2,048 to 4,096 bits",
                    KeyFault::Encrypted => {
                        "`openssl pkey -in FILE -out NEW` writes it without encryption, or write its passphrase into secrets: \
                         secrets { private-1 { file = NAME ... } }"
                    }
                    KeyFault::Algorithm(_) | KeyFault::Curve => {
                        "use a key of RSA, ECDSA (P-256, P-384, P-521) or Ed25519; `openssl genpkey -algorithm ed25519` \
                         makes one"
                    }
                };
                match why {
                    KeyFault::Malformed => say(format!("{file} holds no {kind} key"), write),
                    why => say(format!("{file} cannot be used: {why}"), write),
                }
            }
            Self::CertificateDates { of, fault } => fault.words(of),
            Self::CertificateOfAnother { id, subject, names } => {
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                say(
                    format!(
                        "{id} is no name of the certificate, which is for \"{subject}\" (other names: {names})"
                    ),
                    "let id be one of these, or issue the certificate with this name (`ironswan pki issue --san`)",
                )
            }
            Self::BadCredential { file, why } => {
                let file = file.as_deref().unwrap_or("the file");
                say(
                    format!("{file} {why}"),
                    match why {
                        CredentialFault::Encrypted | CredentialFault::Passphrase => {
                            "write the passphrase into secrets, in a section named like the folder: \
                             secrets { private-1 { file = NAME ... } }"
                        }
                        CredentialFault::OldEncryption => "",
                        CredentialFault::Rounds { .. } => "let fewer rounds encrypt the file",
                        CredentialFault::TooLong { .. } | CredentialFault::TooMany { .. } => {
                            "put one certificate and those between it and its CA into the file"
                        }
                        _ => "put certificates into the file, in PEM or DER, and nothing else",
                    },
                )
            }
            Self::ShortKey { file, kind } => say(
                format!("{file} holds a key of {kind}, which is shorter than auth allows"),
                "make a longer key; for an old peer write the length into auth (auth = rsa-1024)",
            ),
            Self::TooMany { max, of, write } => say(format!("more than {max} {of}"), *write),
            Self::Conflicting { what } => what.words(),
            Self::Doubtful { what } => what.words(),
            Self::ForeignPort { port, ike, natt } => say(
                format!(
                    "UDP port {port} is none of this gateway's, {ike} and {natt} (port_ike and port_natt in ironswan.conf)"
                ),
                format!("remove local_port, or set it to {natt} to start UDP-encapsulated"),
            ),
            Self::Overlap { packets, other } => say(
                format!("wants {packets} as {other} does; only one of them gets those packets"),
                "make the selectors disjoint or set priority",
            ),
            Self::Inside { packets, other } => say(
                format!(
                    "{packets} lies inside of what {other} wants: the more specific one, this, gets those packets"
                ),
                "",
            ),
            Self::SharedReqid { reqid, other } => say(
                format!(
                    "{other} has the reqid {reqid} too, and other selectors: to the packet engine both peers are one, and \
                     either may send in the name of the other's networks"
                ),
                "leave reqid out, or give each its own",
            ),
            Self::Twins { other } => say(
                format!(
                    "has the same addresses and identities as connections.{other}: a peer that initiates is given the first \
                     that fits"
                ),
                "use one connection with two children, or different identities",
            ),
            Self::NoKey { local, remote, conn } => say(
                format!("no shared key found for '{local}' - '{remote}'"),
                format!("add secrets {{ ike-{conn} {{ id = {remote} ... }} }}, with the secret"),
            ),
            Self::NoPpk { id } => say(
                format!("no PPK found for '{id}'"),
                format!(
                    "add secrets {{ ppk-1 {{ id = {id} ... }} }}, with the secret that the peer has, too"
                ),
            ),
            Self::PpkUnnamed => say(
                "ppk_required = yes without ppk_id: this side cannot initiate, and takes any PPK that is loaded",
                "write ppk_id = ID, the id of the PPK in secrets",
            ),
            Self::ShortPpk { bytes } => say(
                format!(
                    "this PPK has {bytes} bytes, and fewer than {PPK_BYTES} do not resist a quantum computer"
                ),
                "`ironswan pki --psk` makes one of 32 random bytes",
            ),
            Self::TwoKeys { first, second } => say(
                format!(
                    "two different keys fit equally well, secrets.{first} and secrets.{second}, and the first of them is used"
                ),
                "give each its own id",
            ),
            Self::NoPublicKey { of } => of.words(),
            Self::NoPrivateKey { local, why } => why.words(local),
            Self::UnfitCertificate { subject, why } => say(
                format!("the certificate of \"{subject}\" {why}"),
                "`ironswan pki issue` makes one that IKE can use",
            ),
            Self::IdNotPermitted { id, ca } => say(
                format!(
                    "{id} is no name that \"{ca}\" may certify (nameConstraints): every certificate with it is refused"
                ),
                "let id be a name within the constraints of the CA, or trust another CA for this peer",
            ),
            Self::NoStatusSource { of } => of.words(),
            Self::OwnIdentity { id } => {
                say(format!("is our own identity, too, {id}: give each side its own"), "")
            }
            Self::BothSides { selector } => say(
                format!("{selector} is in local_ts, too: no packet knows on which side its destination is"),
                "renumber one of the networks",
            ),
            Self::NoLiveness => say(
                "without dpd_delay a dead peer is noticed only when the next request, such as a rekeying, stays without an \
                 answer",
                "set dpd_delay = 30s in the connection",
            ),
            Self::PeerInside { selector, address } => say(
                format!(
                    "{selector} contains the peer's own address {address}: traffic to the gateway itself goes through the \
                     tunnel too"
                ),
                "leave the address out unless that is meant",
            ),
            Self::BadRequest { why } => why.words(),
            Self::ShortSecret { very: true } => say("a very short key", LONGER),
            Self::ShortSecret { very: false } => say("a short key", LONGER),
            Self::DocumentedSecret => say(
                "this key is an example in IronSwan's documents, and everybody knows it",
                "`ironswan pki --psk` makes a new one for both gateways",
            ),
        }
    }
}

fn nearest(name: Option<&str>) -> String {
    name.map_or_else(|| "remove it".to_owned(), |name| format!("did you mean `{name}`?"))
}
