//! Advice on entries of the area configuration.

use super::entry::advice;
use crate::diagnosis::ConfigurationEntry;

advice! {
    ConfigurationEntry;

    Unreadable [Configuration]
        "give the daemon's user the right to read it, or take it out of the configuration. A pipe, a device \
         or a file above 10 MB is never read";
    FileSystemSilent [Start, Configuration]
        "bring the network file system back, or take the file out of the configuration. What runs is \
         unchanged until then";
    FileSystemSlow [Start, Configuration]
        "put the configuration on a local disk, or into fewer files";
    ReadingEndless [Configuration]
        "let fewer sections inherit from each other; write fewer entries";
    ReadingFailed [Configuration, Machine]
        "look for the reason in the log: no thread could be started (limits of the service), or a defect, \
         which please report";
    IncludeRefused [Configuration]
        "remove an `include` that leads back to its own file; put fewer files inside each other";
    NothingToRead [Configuration]
        "name the folder with `--config`, or write `swanctl.conf` there";
    IpsecConf [Configuration]
        "write the connections of `ipsec.conf` into `swanctl.conf` ([moving from \
         strongSwan](from-strongswan.md))";
    SecretsExposed [Configuration]
        "the `chmod 600` that the message names";
    HalfWritten [Configuration]
        "nothing while an editor writes; to end everything on purpose, write a comment into the file";
    Syntax [Configuration]
        "correct the line that is named. A missing `}` is named by the indentation";
    WrittenTwice [Configuration]
        "remove one of the two lines";
    CommentInValue [Configuration]
        "put the value in quotes if the `#` belongs to it, else a blank line between value and comment";
    Inheritance [Configuration]
        "name a section that exists, and that does not inherit from this one itself";
    InheritedClash [Configuration]
        "rename the key or the section in one of the two places";
    InheritanceLimit [Configuration]
        "inherit from fewer sections; write shared keys once, in one section";
    UnknownKey [Configuration]
        "take the name that the message proposes, or look into [configuration](configuration.md)";
    UnknownAmongSecrets [Configuration]
        "put a secret that goes over several lines in quotes";
    SecretWithoutSection [Configuration]
        "`ike-1 { secret = ... }` inside of `secrets`";
    UnknownSection [Configuration]
        "take the name that the message proposes, or remove the section";
    KeyForSection [Configuration]
        "write `name { ... }`";
    SectionForKey [Configuration]
        "write `name = value`";
    KeyOutside [Configuration]
        "move the key into its section";
    BadName [Configuration]
        "name it without blanks, in at most 100 bytes";
    NotBuilt [Configuration]
        "the message names the value or the key to use instead. Nothing is silently ignored";
    KeyMoved [Configuration]
        "write the key in the section that the message names";
    NoEffect [Configuration]
        "remove the key, or leave it: nothing depends on it";
    MissingSection [Configuration]
        "write the section that the message names";
    MissingSecret [Configuration]
        "write `secret = ...` into the section";
    MissingPassphrase [Configuration]
        "write `file = NAME` and `secret = ...` into the section";
    BadValue [Configuration]
        "the message names the values that can be used";
    NamesNothing [Configuration]
        "write at least one item, or remove the key, which then has its default";
    BadSecret [Configuration]
        "an even number of digits behind `0x`, base64 with its `=` behind `0s`; or quote the text";
    BadProposal [Configuration]
        "the message names the algorithm and what to write instead; [algorithms](algorithms.md) lists all";
    BadKey [Configuration]
        "the message says what the file holds. Keys are RSA, ECDSA or Ed25519, in PEM or DER, and not \
         encrypted ([public keys](configuration.md#public-keys))";
    BadCredential [Configuration]
        "the message says what is wrong with the file. A passphrase stands in `secrets`, in a section named \
         like the folder ([certificates](configuration.md#certificates))";
    CertificateDates [Configuration]
        "`ironswan pki issue` makes a new certificate, and `ironswan pki signcrl` a new list; put it in the \
         place of the file, and reload ([certificates](certificates.md#later))";
    CertificateOfAnother [Configuration]
        "let `id` be the subject of the certificate or another name of it, or issue it with `--san` \
         ([certificates](certificates.md))";
    ShortKey [Configuration]
        "make a longer key, or write the length into `auth` for an old peer \
         ([signatures](configuration.md#signatures))";
    TooMany [Configuration]
        "write fewer: subnets or ranges instead of addresses, or a second connection";
    Conflicting [Configuration]
        "change one of the two; the message says which value each may have";
    Doubtful [Configuration]
        "usable as it is. Change the value if the sentence does not say what you want";
    ForeignPort [Configuration]
        "remove `local_port`, or set `port_ike` or `port_natt` to that port";
    Overlap [Configuration, SomeTraffic]
        "make the selectors disjoint, or say by `priority` which child wins";
    Inside [Configuration, SomeTraffic]
        "nothing, if the inner child is meant as an exception";
    SharedReqid [Configuration, NotAsMeant]
        "leave `reqid` out, or give each child its own";
    Twins [Configuration, NotAsMeant]
        "one connection with two children, or different identities";
    NoKey [Configuration, Untrusted]
        "name both identities in a secret as the gateways send them: `secrets { ike-1 { id = ... } }`";
    NoPpk [Configuration, Untrusted]
        "`secrets { ppk-1 { id = ... } }` with the value of `ppk_id`, and the secret that the peer has";
    PpkUnnamed [Configuration]
        "`ppk_id` beside `ppk_required`: the `id` of the key in `secrets`";
    ShortPpk [Configuration]
        "`ironswan pki --psk` makes one of 32 random bytes; both gateways need the same one";
    TwoKeys [Configuration, NotAsMeant]
        "name in each key by `id` to whom it belongs";
    NoPublicKey [Configuration, Untrusted]
        "`certs = FILE` or `pubkeys = FILE` beside `auth`, the CA's certificate in the folder `x509ca`, or \
         `auth = psk`";
    NoPrivateKey [Configuration, Untrusted]
        "put the private key into the folder `private`; `openssl pkey -in private/FILE -pubout` shows its \
         public key. Or let `id` be a name of the certificate";
    UnfitCertificate [Configuration]
        "issue another one: `ironswan pki issue`; `ironswan pki print FILE` shows its keyUsage and \
         extKeyUsage";
    IdNotPermitted [Configuration]
        "an `id` within the constraints of the CA (`ironswan pki print FILE`), or another CA";
    NoStatusSource [Configuration]
        "the list of the CA in the folder `x509crl`, or `crl_uris` and `ocsp_uris` in `authorities`; places \
         begin with `http://`";
    OwnIdentity [Configuration]
        "give each gateway its own `id`";
    BothSides [Configuration, SomeTraffic]
        "renumber one of the two networks";
    NoLiveness [Configuration, Ends]
        "`dpd_delay = 30s` in the connection";
    PeerInside [Configuration, SomeTraffic]
        "leave the peer's address out of `remote_ts`, unless traffic to the gateway itself is meant";
    BadRequest [Command]
        "correct the client; the answer names the key";
    ShortSecret [Configuration]
        "`ironswan pki --psk` makes a new one for both gateways";
    DocumentedSecret [Configuration]
        "`ironswan pki --psk` makes a new one for both gateways";
}
