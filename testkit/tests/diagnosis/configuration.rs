//! Cases of the area configuration: files with a fault, read and checked as `ironswan check` does
//! it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironswan_config::diag::Diagnostics;
use ironswan_config::files::Task;
use ironswan_config::{check, credentials, load_dir};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Configuration, ConfigurationEntry as E};
use ironswan_testkit::certificates::{Make, ROOT, end, root};
use ironswan_testkit::clock;
use ironswan_testkit::scratch::Scratch;

/// How a finding is brought about.
enum Case {
    /// A whole `swanctl.conf`.
    File(String),
    /// A whole `ironswan.conf`.
    Settings(&'static str),
    /// Preparation of a folder that holds a good `swanctl.conf`.
    Folder(fn(&Scratch)),
    /// Reading that takes too long or fails.
    Task(fn() -> Configuration),
}

const GOOD: &str = "connections { c { remote_addrs = 192.0.2.2\n local { auth = psk\n id = a }\n remote { auth = psk\n id = b }\n\
                    children { n { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n\
                    secrets { ike-1 { secret = \"a text of more than sixteen bytes\" } }\n";

/// A time at which certificates are judged, at the end of 2029.
fn today() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(60 * 365 * 86_400)
}

/// RFC 8410 section 10.1.
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                      -----END PUBLIC KEY-----\n";

/// A file whose connection has these keys besides.
fn conn(keys: &str) -> Case {
    Case::File(GOOD.replace("remote_addrs", &format!("{keys}\n remote_addrs")))
}

/// A file whose child has these keys besides.
fn child(keys: &str) -> Case {
    Case::File(GOOD.replace("local_ts", &format!("{keys}\n local_ts")))
}

/// A file with this text besides.
fn with(text: &str) -> Case {
    Case::File(format!("{GOOD}{text}\n"))
}

/// A file with something else in one place.
fn replaced(this: &str, other: &str) -> Case {
    Case::File(GOOD.replace(this, other))
}

/// A file with two connections, of which the second differs in these places.
fn second(changes: &[(&str, &str)]) -> Case {
    let whole = "remote { auth = psk\n id = b }";
    let mut other = GOOD.split("\nsecrets").next().unwrap().replace("{ c {", "{ d {");
    for (this, that) in changes {
        other = other.replace(this, that);
    }
    assert!(other.contains("{ d {") && GOOD.contains(whole));
    Case::File(format!("{GOOD}{other}\n"))
}

const SLOW: Duration = Duration::from_millis(20);

fn waited(work: impl FnOnce(&ironswan_config::files::Files) + Send + 'static) -> Configuration {
    let task = Task::limited(clock::now, SLOW, work).expect("a thread");
    task.wait().expect_err("an end without result")
}

/// The case of an entry.
fn case(entry: E) -> Case {
    match entry {
        E::Unreadable => with("include missing.conf"),
        E::FileSystemSilent => Case::Task(|| {
            waited(|files| {
                let _ = files.ask(Path::new("/silent"), || {
                    sleep(20 * SLOW);
                    Ok(())
                });
            })
        }),
        E::FileSystemSlow => Case::Task(|| {
            waited(|files| {
                for _ in 0..100 {
                    let _ = files.ask(Path::new("/slow"), || {
                        sleep(SLOW / 2);
                        Ok(())
                    });
                }
            })
        }),
        E::ReadingEndless => Case::Task(|| waited(|_| sleep(30 * SLOW))),
        E::ReadingFailed => Case::Task(|| {
            let task = Task::start(clock::now, |_| panic!("as a defect would")).expect("a thread");
            task.wait().map(|()| "an end").expect_err("an end without result")
        }),
        E::IncludeRefused => with("include swanctl.conf"),
        E::NothingToRead => Case::Folder(|dir| fs::remove_file(dir.path().join("swanctl.conf")).unwrap()),
        E::IpsecConf => Case::Folder(|dir| {
            dir.write("ipsec.conf", "conn c\n");
        }),
        E::HalfWritten => unreachable!("a reload is the gateway's"),
        E::SecretsExposed => Case::Folder(|dir| {
            let open = fs::Permissions::from_mode(0o644);
            fs::set_permissions(dir.path().join("swanctl.conf"), open).unwrap();
        }),
        E::Syntax => with("connections {"),
        E::WrittenTwice => conn("encap = no\n encap = yes"),
        E::CommentInValue => conn("remote_port = 500 # the usual one\n local_port = 500#600"),
        E::Inheritance => with("a : missing { }"),
        E::InheritedClash => with("a : b { k = 1 }\nb { k { } }"),
        E::InheritanceLimit => with("e { f : g { } }\ng : e { }"),
        E::UnknownKey => conn("remote_adrs = 192.0.2.3"),
        E::UnknownAmongSecrets => replaced("secret = ", "something = 1\n secret = "),
        E::SecretWithoutSection => with("secrets { word = 1 }"),
        E::UnknownSection => conn("childern { }"),
        E::KeyForSection => replaced("children { n {", "children { m = 1\n n {"),
        E::SectionForKey => conn("proposals { }"),
        E::KeyOutside => with("encap = yes"),
        E::BadName => replaced("{ n {", &format!("{{ {} {{", "n".repeat(101))),
        E::NotBuilt => conn("aggressive = yes"),
        E::KeyMoved => Case::Settings("workers = 2"),
        E::NoEffect => conn("dpd_timeout = 60s"),
        E::MissingSection => replaced("remote { auth = psk\n id = b }", ""),
        E::MissingSecret => with("secrets { ike-2 { } }"),
        E::MissingPassphrase => with("secrets { private-2 { file = g1.pem } }"),
        E::BadValue => conn("encap = maybe"),
        E::NamesNothing => replaced("local_ts = 10.1.0.0/24", "local_ts = \",\""),
        E::BadSecret => with("secrets { ike-2 { secret = 0xf } }"),
        E::BadProposal => conn("proposals = aes128-sha256"),
        E::BadKey => Case::Folder(|dir| {
            dir.write("private/g1.pem", "-----BEGIN PRIVATE KEY-----\n");
        }),
        E::BadCredential => Case::Folder(|dir| {
            dir.write("x509ca/ca.pem", "-----BEGIN CERTIFICATE-----\n");
        }),
        E::CertificateDates => Case::Folder(|dir| {
            let old = Make::end("CN=old", 1, "CN=root", ROOT).years(2020, 2021).make();
            fs::create_dir(dir.path().join("x509")).unwrap();
            fs::write(dir.path().join("x509/old.der"), old.der()).unwrap();
        }),
        E::CertificateOfAnother => Case::Folder(|dir| {
            fs::create_dir_all(dir.path().join("x509")).unwrap();
            fs::write(dir.path().join("x509/b.der"), end(2).make().der()).unwrap();
            dir.write("swanctl.conf", &GOOD.replace("remote { auth = psk", "remote { certs = b.der"));
        }),
        E::ShortKey => Case::Folder(|dir| {
            dir.write("pubkey/b.pem", include_str!("short_rsa_public.pem"));
            let text = GOOD.replace("remote { auth = psk", "remote { auth = pubkey\n pubkeys = b.pem");
            dir.write("swanctl.conf", &text);
        }),
        E::TooMany => conn(&format!("local_addrs = {}", vec!["192.0.2.1"; 256].join(","))),
        E::Conflicting => Case::Settings("port_ike = 4500"),
        E::Doubtful => child("replay_window = 0"),
        E::ForeignPort => conn("local_port = 700"),
        E::Overlap => second(&[("id = b", "id = c")]),
        E::Inside => second(&[("id = b", "id = c"), ("10.2.0.0/24", "10.2.0.0/25")]),
        E::SharedReqid => {
            let Case::File(text) = second(&[("id = b", "id = c"), ("10.2.0.0/24", "10.3.0.0/24")]) else {
                unreachable!("`second` makes a file")
            };
            Case::File(text.replace("local_ts", "reqid = 7\n local_ts"))
        }
        E::Twins => second(&[("10.2.0.0/24", "10.3.0.0/24")]),
        E::NoKey => replaced("secret = ", "id = somebody.else\n secret = "),
        E::NoPpk => conn("ppk_id = office.ppk"),
        E::PpkUnnamed => conn("ppk_required = yes"),
        E::ShortPpk => with("secrets { ppk-1 { id = office.ppk\n secret = \"a short text\" } }"),
        E::TwoKeys => with("secrets { ike-2 { secret = \"another text of more than sixteen bytes\" } }"),
        E::BadRequest => Case::Task(|| {
            let message = ironswan_wire::vici::Section::new().with("force", "perhaps");
            ironswan_config::request::flag(&message, "force").unwrap_err()
        }),
        E::NoPublicKey => replaced("remote { auth = psk", "remote { auth = pubkey"),
        E::NoPrivateKey => Case::Folder(|dir| {
            dir.write("pubkey/g1.pem", PUBLIC);
            let ours = "local { auth = pubkey\n pubkeys = g1.pem";
            dir.write("swanctl.conf", &GOOD.replace("local { auth = psk", ours));
        }),
        E::UnfitCertificate => Case::Folder(|dir| {
            fs::create_dir_all(dir.path().join("x509")).unwrap();
            // keyCertSign alone.
            let unfit = Make::end("CN=b", 2, "CN=root", ROOT).names(&["b"]).with(15, &[3, 2, 2, 4]);
            fs::write(dir.path().join("x509/b.der"), unfit.make().der()).unwrap();
            dir.write("swanctl.conf", &GOOD.replace("remote { auth = psk", "remote { certs = b.der"));
        }),
        E::IdNotPermitted => Case::Folder(|dir| {
            fs::create_dir_all(dir.path().join("x509ca")).unwrap();
            // permittedSubtrees: dNSName c.
            let root = Make::ca("CN=root", ROOT, "CN=root", ROOT);
            let root = root.with(30, &[0x30, 7, 0xa0, 5, 0x30, 3, 0x82, 1, b'c']).make();
            fs::write(dir.path().join("x509ca/root.der"), root.der()).unwrap();
            dir.write("swanctl.conf", &GOOD.replace("remote { auth = psk", "remote { auth = pubkey"));
        }),
        E::NoStatusSource => Case::Folder(|dir| {
            fs::create_dir_all(dir.path().join("x509ca")).unwrap();
            fs::write(dir.path().join("x509ca/root.der"), root().der()).unwrap();
            let strict = "remote { auth = pubkey\n revocation = strict";
            dir.write("swanctl.conf", &GOOD.replace("remote { auth = psk", strict));
        }),
        E::OwnIdentity => replaced("id = b", "id = a"),
        E::BothSides => replaced("10.2.0.0/24", "10.1.0.0/24"),
        E::NoLiveness => child("dpd_action = restart"),
        E::PeerInside => replaced("10.2.0.0/24", "192.0.2.0/24"),
        E::ShortSecret => replaced("a text of more than sixteen bytes", "short"),
        E::DocumentedSecret => replaced("a text of more than sixteen bytes", "the-key-that-pki-printed"),
    }
}

/// Makes the entry happen, and returns everything that was found.
pub fn happens(entry: E) -> Vec<Diagnosis> {
    let dir = Scratch::new();
    dir.write("swanctl.conf", GOOD);
    match case(entry) {
        Case::File(text) => {
            dir.write("swanctl.conf", &text);
        }
        Case::Settings(text) => {
            dir.write("ironswan.conf", text);
        }
        Case::Folder(prepare) => prepare(&dir),
        Case::Task(wait) => return vec![wait().into()],
    }
    let mut found = Diagnostics::default();
    if let Some(config) = load_dir(clock::now, dir.path(), &mut found) {
        check::check(&config, &mut found);
        credentials::check(&config, today(), &mut found);
    }
    found.iter().map(|d| d.diagnosis.clone()).collect()
}

#[test]
fn the_file_that_all_cases_change_has_no_fault() {
    let dir = Scratch::new();
    dir.write("swanctl.conf", GOOD);
    let mut found = Diagnostics::default();
    let config = load_dir(clock::now, dir.path(), &mut found).expect("a configuration");
    check::check(&config, &mut found);
    credentials::check(&config, today(), &mut found);
    assert!(found.is_empty(), "{found:?}");
}
