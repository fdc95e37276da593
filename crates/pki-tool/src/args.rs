//! The command line: strongSwan's names where it has them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Keys, certificates, requests and revocation lists.
#[derive(Parser, Debug)]
#[command(name = "ironswan-pki", bin_name = "ironswan pki", version, max_term_width = 100, after_help = EXIT)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT: &str = "Exit status: 0 success, 1 the answer is no, 2 usage error, or a file that cannot be read or written.\n\
    Every command has --help with an example. The spelling of strongSwan works, too: `ironswan pki --gen --type rsa`.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Prints a random pre-shared key
    #[command(
        after_help = "Example:\n  ironswan pki psk\n\nPrints 32 random bytes as 0s and base64, for `secret =` in swanctl.conf \
        and in ipsec.secrets. Write the same one on both gateways."
    )]
    Psk(Psk),
    /// Makes a private key
    #[command(
        after_help = "Examples:\n  ironswan pki gen --out gw.key\n  ironswan pki gen --type rsa --size 3072 --out gw.key\n  \
        ironswan pki gen --type ed25519 --encrypt --out ca.key"
    )]
    Gen(Gen),
    /// Extracts the public key of a private key, certificate or request
    #[command(after_help = "Example:\n  ironswan pki pub --in gw.key --out gw.pub")]
    Pub(Pub),
    /// Prints the identifiers of a key
    #[command(after_help = "Example:\n  ironswan pki keyid --in gw.key")]
    Keyid(Keyid),
    /// Makes a certificate that its own key signs: a CA
    #[command(
        name = "self",
        after_help = "Example:\n  ironswan pki self --ca --in ca.key --dn \"C=CH, O=Example, CN=Example CA\" --out ca.crt"
    )]
    SelfSigned(SelfSigned),
    /// Makes a certificate request (PKCS#10)
    #[command(
        after_help = "Example:\n  ironswan pki req --in gw.key --dn \"O=Example, CN=gw.example\" --san gw.example --out gw.req"
    )]
    Req(Req),
    /// Issues a certificate, signed by a CA
    #[command(
        after_help = "Examples:\n  ironswan pki issue --cacert ca.crt --cakey ca.key --in gw.key --dn \"O=Example, CN=gw.example\" \
        --san gw.example --san 192.0.2.1 --flag serverAuth --flag ikeIntermediate --out gw.crt\n  ironswan pki issue --cacert ca.crt \
        --cakey ca.key --in gw.req --out gw.crt\n\n--in is a request, a public key, or a private key, of which only the public key is \
        used. Subject, names and flags of a request are taken where the command line has none."
    )]
    Issue(Issue),
    /// Issues a revocation list, signed by a CA
    #[command(
        after_help = "Examples:\n  ironswan pki signcrl --cacert ca.crt --cakey ca.key --out ca.crl\n  ironswan pki signcrl --cacert \
        ca.crt --cakey ca.key --lastcrl ca.crl --cert lost.crt --reason key-compromise --out ca.crl --force"
    )]
    Signcrl(Signcrl),
    /// Packs a private key and its certificates into a PKCS#12 file
    #[command(
        after_help = "Example:\n  ironswan pki pkcs12 --in gw.key --cert gw.crt --cacert ca.crt --out gw.p12"
    )]
    Pkcs12(Pkcs12),
    /// Shows certificates, requests, revocation lists, keys and PKCS#12 in words
    #[command(
        after_help = "Examples:\n  ironswan pki print gw.crt\n  ironswan pki print --in ca.crl --json\n\nThe kind of a file is \
        found by its bytes."
    )]
    Print(Print),
    /// Verifies a certificate as the gateway does, and says which rule fails at which certificate
    #[command(
        after_help = "Example:\n  ironswan pki verify --in gw.crt --cacert ca.crt --crl ca.crl --identity gw.example"
    )]
    Verify(Verify),
}

/// Writes strongSwan's spelling of a command as ours: `--gen` is `gen`.
pub(crate) fn as_subcommand(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if let Some(first) = words.get_mut(1)
        && let Some(name) = first.to_str().and_then(|word| word.strip_prefix("--"))
        && <Args as clap::CommandFactory>::command().find_subcommand(name).is_some()
    {
        *first = name.into();
    }
    words
}

/// Form of a file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    /// Text
    Pem,
    /// Bytes
    Der,
}

/// Place of what is made.
#[derive(clap::Args, Debug)]
pub(crate) struct Output {
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Form of the output
    #[arg(long, value_name = "FORM", default_value = "pem")]
    pub(crate) outform: Form,
    /// Replaces a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// A file to read, and its passphrase.
#[derive(clap::Args, Debug)]
pub(crate) struct Input {
    /// File to read [default: standard input]
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Taken and not used, because strongSwan's `pki` needs it: the kind of a file is found by its
    /// bytes
    #[arg(long = "type", value_name = "KIND", hide = true)]
    pub(crate) kind: Option<String>,
    /// File whose first line is the passphrase of an encrypted private key [default: ask on the
    /// terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Psk {
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Algorithm of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum KeyType {
    /// RSA
    Rsa,
    /// ECDSA
    Ecdsa,
    /// Ed25519
    Ed25519,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Gen {
    /// Algorithm of the key
    #[arg(long = "type", value_name = "TYPE", default_value = "ecdsa")]
    pub(crate) kind: KeyType,
    /// Bits: 2048 to 8192 for rsa [default: 3072], 256, 384 or 521 for ecdsa [default: 256]
    #[arg(long, value_name = "BITS")]
    pub(crate) size: Option<usize>,
    /// Encrypts the key by a passphrase (PKCS#8)
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// File whose first line is the passphrase; implies --encrypt [default: ask on the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Pub {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which identifier of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum KeyId {
    /// SHA-1 of the key: the identity of type ID_KEY_ID, and subjectKeyIdentifier
    Spk,
    /// SHA-1 of subjectPublicKeyInfo
    Spki,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Keyid {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Prints this identifier alone
    #[arg(long, value_name = "WHICH")]
    pub(crate) id: Option<KeyId>,
}

/// Hash of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Digest {
    /// SHA2-256
    Sha256,
    /// SHA2-384
    Sha384,
    /// SHA2-512
    Sha512,
}

/// Padding of a signature by RSA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Padding {
    /// RSASSA-PKCS1-v1_5
    Pkcs1,
    /// RSASSA-PSS
    Pss,
}

/// How something is signed.
#[derive(clap::Args, Debug)]
pub(crate) struct Signing {
    /// Hash of the signature [default: fits the strength of the key]
    #[arg(long, value_name = "HASH")]
    pub(crate) digest: Option<Digest>,
    /// Padding of the signature, when the key is of RSA
    #[arg(long, value_name = "PADDING", default_value = "pkcs1")]
    pub(crate) rsa_padding: Padding,
}

/// Who a certificate is for.
#[derive(clap::Args, Debug)]
pub(crate) struct Subject {
    /// Distinguished name, such as "C=CH, O=Example, CN=gw.example"
    #[arg(long, value_name = "NAME")]
    pub(crate) dn: Option<String>,
    /// Name of the subject: a DNS name, IP address or e-mail address; several are allowed. IKE
    /// peers compare them with the identity `local.id`
    #[arg(long, value_name = "NAME")]
    pub(crate) san: Vec<String>,
    /// Purpose: serverAuth (Windows, macOS and iOS ask gateways for it), clientAuth,
    /// ikeIntermediate (old macOS asks for it), ocspSigning, or an object identifier; several are
    /// allowed
    #[arg(long, value_name = "PURPOSE")]
    pub(crate) flag: Vec<String>,
}

/// What a certificate says beside its subject.
#[derive(clap::Args, Debug)]
pub(crate) struct Content {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// Days for which the certificate is valid [default: 1095, with --ca 3650, but not longer than
    /// its CA]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) lifetime: Option<u32>,
    /// First second of validity, such as 2027-01-31 or 2027-01-31T12:00:00, in UTC [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) not_before: Option<String>,
    /// Last second of validity [default: by --lifetime]
    #[arg(long, value_name = "TIME", conflicts_with = "lifetime")]
    pub(crate) not_after: Option<String>,
    /// Serial number in hexadecimal digits [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Option<String>,
    /// Makes a CA
    #[arg(long)]
    pub(crate) ca: bool,
    /// How many CAs may stand between this CA and a gateway's certificate
    #[arg(long, value_name = "NUMBER", requires = "ca")]
    pub(crate) pathlen: Option<u8>,
    /// Names that certificates below this CA may have: a DNS domain, a network (strongSwan 5.9 does
    /// not read such a CA), an e-mail domain as email:example.com, or a distinguished name;
    /// several are allowed
    #[arg(long, value_name = "NAME", requires = "ca")]
    pub(crate) nc_permitted: Vec<String>,
    /// Names that certificates below this CA may not have
    #[arg(long, value_name = "NAME", requires = "ca")]
    pub(crate) nc_excluded: Vec<String>,
    /// Address of the revocation list: http://...; several are allowed
    #[arg(long, value_name = "URI")]
    pub(crate) crl: Vec<String>,
    /// Address of the OCSP responder: http://...; several are allowed
    #[arg(long, value_name = "URI")]
    pub(crate) ocsp: Vec<String>,
    /// Object identifier of a certificate policy; several are allowed
    #[arg(long, value_name = "OID")]
    pub(crate) cert_policy: Vec<String>,
    #[command(flatten)]
    pub(crate) signing: Signing,
}

#[derive(clap::Args, Debug)]
pub(crate) struct SelfSigned {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) content: Content,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Req {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) signing: Signing,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The CA that signs.
#[derive(clap::Args, Debug)]
pub(crate) struct Authority {
    /// Certificate of the CA
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: PathBuf,
    /// Private key of the CA
    #[arg(long, value_name = "FILE")]
    pub(crate) cakey: PathBuf,
    /// File whose first line is the passphrase of the CA's key [default: ask on the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Issue {
    #[command(flatten)]
    pub(crate) authority: Authority,
    /// Request, public key or private key to certify [default: standard input]
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Kind of --in: pkcs10, pub or priv [default: found by its bytes]
    #[arg(long = "type", value_name = "KIND")]
    pub(crate) kind: Option<InputKind>,
    #[command(flatten)]
    pub(crate) content: Content,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Kinds of files that can be certified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum InputKind {
    /// A certificate request
    Pkcs10,
    /// A public key
    Pub,
    /// A private key
    #[value(aliases = ["rsa", "ecdsa", "ed25519"])]
    Priv,
}

/// Reasons for revoking, with strongSwan's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Reason {
    /// Somebody else has the key
    KeyCompromise,
    /// Somebody else has the key of a CA
    CaCompromise,
    /// The subject belongs to somebody else
    AffiliationChanged,
    /// Another certificate replaces it
    Superseded,
    /// The certificate is no longer used
    CessationOfOperation,
    /// For a time only
    CertificateHold,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Signcrl {
    #[command(flatten)]
    pub(crate) authority: Authority,
    /// Certificate to revoke; several are allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Vec<PathBuf>,
    /// Serial number to revoke, in hexadecimal digits; several are allowed
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Vec<String>,
    /// Reason of the revocations of this call
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<Reason>,
    /// Time of the revocations of this call [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) date: Option<String>,
    /// The list before, whose entries are kept
    #[arg(long, value_name = "FILE")]
    pub(crate) lastcrl: Option<PathBuf>,
    /// Days until the next list
    #[arg(long, value_name = "DAYS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) lifetime: u32,
    #[command(flatten)]
    pub(crate) signing: Signing,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Pkcs12 {
    /// Private key
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Certificate of the key
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: PathBuf,
    /// Certificate of a CA to add; several are allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Vec<PathBuf>,
    /// File whose first line is the passphrase of the private key [default: ask on the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// File whose first line is the passphrase of the new file [default: ask on the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) export_passphrase_file: Option<PathBuf>,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replaces a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Print {
    /// Files to show [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) input: Input,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Verify {
    /// Certificate to verify, and behind it in the same file those between it and the CA [default:
    /// standard input]
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Certificate of a CA that is trusted; several are allowed [default: the certificate itself,
    /// when it is that of a CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Vec<PathBuf>,
    /// Certificate between the one to verify and the CA; several are allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Vec<PathBuf>,
    /// Revocation list; several are allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) crl: Vec<PathBuf>,
    /// Identity that the certificate has to fit, as in `remote.id`
    #[arg(long, value_name = "ID")]
    pub(crate) identity: Option<String>,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        Args::command().debug_assert();
        for command in Args::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn the_spelling_of_strongswan_is_understood() {
        let read = |line: &str| {
            Args::try_parse_from(as_subcommand(line.split(' ').map(OsString::from))).map(|args| args.command)
        };
        let generated = read("pki --gen --type ecdsa --size 384");
        assert!(matches!(generated, Ok(Command::Gen(Gen { kind: KeyType::Ecdsa, size: Some(384), .. }))));
        assert!(matches!(read("pki --psk"), Ok(Command::Psk(_))));
        assert!(matches!(read("pki --self --ca --in k --dn CN=x"), Ok(Command::SelfSigned(_))));
        assert!(read("pki --nothing").is_err());
    }
}
