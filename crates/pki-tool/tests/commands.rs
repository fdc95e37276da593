//! The program `ironswan-pki`, as people call it: what it makes, what it refuses, and what it makes
//! of files that lie.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use ironswan_testkit::scratch::Scratch;

/// A folder in which commands are typed.
struct Shell(Scratch);

impl Shell {
    /// A folder with a CA (`ca.key`, `ca.crt`), and a gateway's certificate from it (`gw.key`,
    /// `gw.crt`).
    fn with_ca() -> Self {
        let shell = Self(Scratch::new());
        shell.good("gen --out ca.key");
        shell.good("self --ca --in ca.key --dn O=Example,CN=CA --out ca.crt");
        shell.good("gen --type ed25519 --out gw.key");
        shell.good(&format!(
            "{ISSUE} --in gw.key --dn O=Example,CN=gw --san gw.example --san 192.0.2.1 --out gw.crt"
        ));
        shell
    }

    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        Command::new(env!("CARGO_BIN_EXE_ironswan-pki"))
            .args(words)
            .current_dir(self.0.path())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("ironswan-pki")
    }

    /// Runs a command that has to work, and returns what it prints.
    fn good(&self, line: &str) -> String {
        let done = self.run(line);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(0), "{line}: {said}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// Runs a command that has to end with this status, and returns its only line of complaint.
    fn bad(&self, status: i32, line: &str) -> String {
        let done = self.run(line);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(status), "{line}: {said}");
        assert!(said.starts_with("ironswan pki ") && said.lines().count() == 1, "{line}: {said}");
        said
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).expect("a file that was made")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join(name), bytes).expect("a file of the test");
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.0.path().join(name)).expect("a file that was made").permissions().mode() & 0o7777
    }
}

const ISSUE: &str = "issue --cacert ca.crt --cakey ca.key";

#[test]
fn a_private_key_has_mode_0600_and_is_replaced_by_force_alone() {
    let shell = Shell(Scratch::new());
    shell.good("gen --out k");
    let first = shell.bytes("k");
    assert_eq!(shell.mode("k"), 0o600);
    let said = shell.bad(2, "gen --out k");
    assert!(said.contains("k exists already") && said.contains("--force"), "{said}");
    assert_eq!(shell.bytes("k"), first);
    shell.good("gen --out k --force");
    assert!(shell.bytes("k") != first && shell.mode("k") == 0o600);
    assert_eq!(fs::read_dir(shell.0.path()).expect("the folder").count(), 1, "nothing is left beside it");
    shell.good("self --in k --ca --dn CN=x --out c");
    assert_eq!(shell.mode("c"), 0o644);
    // A file that cannot be made leaves nothing.
    let said = shell.bad(2, "gen --out no/such/folder/k");
    assert!(said.contains("cannot write no/such/folder/k"), "{said}");
}

#[test]
fn every_kind_of_key_makes_a_ca_that_issues_and_verifies() {
    let shell = Shell(Scratch::new());
    for kind in ["rsa --size 2048", "ecdsa --size 256", "ecdsa --size 384", "ecdsa --size 521", "ed25519"] {
        shell.good(&format!("gen --type {kind} --out ca.key --force"));
        shell.good("self --ca --in ca.key --dn DC=example,DC=com,OU=a,OU=b,CN=CA --out ca.crt --force");
        shell.good("gen --out gw.key --force");
        shell.good(&format!("{ISSUE} --in gw.key --dn CN=gw --san gw.example --out gw.crt --force"));
        let said = shell.good("verify --in gw.crt --cacert ca.crt --identity gw.example");
        assert!(
            said.starts_with("gw.crt: valid\n") && said.contains("DC=example, DC=com, OU=a, OU=b"),
            "{said}"
        );
    }
    let said = shell.bad(2, "gen --type rsa --size 1024");
    assert!(said.contains("2048 to 8192"), "{said}");
    shell.bad(2, "gen --type ecdsa --size 255");
    shell.bad(2, "gen --type ed25519 --size 512");
}

#[test]
fn a_key_is_encrypted_and_opens_by_its_passphrase_alone() {
    let shell = Shell(Scratch::new());
    shell.write("right", b"correct horse\nsecond line\n");
    shell.write("wrong", b"battery\n");
    shell.write("empty", b"\n");
    shell.good("gen --passphrase-file right --out k");
    assert!(String::from_utf8(shell.bytes("k")).expect("PEM").contains("ENCRYPTED PRIVATE KEY"));
    let shown = shell.good("print k --passphrase-file right");
    assert!(shown.contains("private key, encrypted") && shown.contains("ECDSA P-256"), "{shown}");
    let said = shell.bad(2, "print k --passphrase-file wrong");
    assert!(said.contains("the passphrase is wrong"), "{said}");
    shell.bad(2, "print k --passphrase-file empty");
    shell.bad(2, "gen --passphrase-file empty --out k2");
    assert!(!shell.0.path().join("k2").exists());
}

#[test]
fn a_request_is_certified_with_its_names_or_with_others() {
    let shell = Shell::with_ca();
    shell.good("gen --type rsa --size 2048 --out b.key");
    shell.good("req --in b.key --dn O=B,CN=b --san b.example --flag serverAuth --out b.req");
    let shown = shell.good("print b.req");
    assert!(shown.contains("by the key of the request") && shown.contains("dns b.example"), "{shown}");
    shell.good(&format!("{ISSUE} --in b.req --out b.crt"));
    let shown = shell.good("print b.crt");
    assert!(["O=B, CN=b", "dns b.example", "serverAuth"].iter().all(|part| shown.contains(part)), "{shown}");
    shell.good(&format!("{ISSUE} --in b.req --dn CN=c --san c.example --type pkcs10 --out c.crt"));
    let shown = shell.good("print c.crt");
    assert!(shown.contains("dns c.example") && !shown.contains("b.example"), "{shown}");
    shell.bad(2, &format!("{ISSUE} --in b.req --type pub --out d.crt"));

    // Somebody has put another key into the request.
    shell.good("req --in b.key --dn O=B,CN=b --outform der --out b.der");
    let mut der = shell.bytes("b.der");
    let last = der.len() - 1;
    der[last] ^= 1;
    shell.write("forged", &der);
    assert!(shell.good("print forged").contains("WRONG"));
    let said = shell.bad(2, &format!("{ISSUE} --in forged --out e.crt"));
    assert!(said.contains("not signed by its own key") && !shell.0.path().join("e.crt").exists(), "{said}");
}

#[test]
fn a_list_revokes_keeps_its_entries_and_counts_up() {
    let shell = Shell::with_ca();
    shell.good("signcrl --cacert ca.crt --cakey ca.key --out ca.crl");
    assert!(shell.good("print ca.crl").contains("none: nothing is revoked"));
    assert!(
        shell
            .good("verify --in gw.crt --cacert ca.crt --crl ca.crl")
            .contains("no certificate of the chain is revoked")
    );
    let next = "signcrl --cacert ca.crt --cakey ca.key --lastcrl ca.crl --out ca.crl --force";
    shell.good(&format!("{next} --cert gw.crt --reason key-compromise"));
    shell.good(&format!("{next} --serial 00:ff:01"));
    let shown = shell.good("print ca.crl");
    assert!(
        shown.contains("the key was compromised")
            && shown.contains("00:ff:01")
            && shown.contains("number                03"),
        "{shown}"
    );
    let said = shell.bad(1, "verify --in gw.crt --cacert ca.crt --crl ca.crl");
    assert!(said.contains("was revoked at") && said.contains("issue a new certificate"), "{said}");
    // A second revocation changes nothing; the list of another CA is not continued.
    let again = shell.run(&format!("{next} --cert gw.crt"));
    assert!(String::from_utf8_lossy(&again.stderr).contains("revoked already"));
    shell.good("gen --out other.key");
    shell.good("self --ca --in other.key --dn CN=Other --out other.crt");
    let said = shell.bad(2, "signcrl --cacert other.crt --cakey other.key --lastcrl ca.crl");
    assert!(said.contains("not a revocation list of the CA"), "{said}");
    let said = shell.bad(2, "signcrl --cacert other.crt --cakey other.key --cert gw.crt");
    assert!(said.contains("only its own CA can revoke it"), "{said}");
}

#[test]
fn verification_names_the_rule_and_the_remedy() {
    let shell = Shell::with_ca();
    let said = shell.bad(1, "verify --in gw.crt --cacert ca.crt --identity other.example");
    assert!(said.contains("does not speak for the identity") && said.contains("--san"), "{said}");
    let said = shell.bad(2, "verify --in gw.crt");
    assert!(said.contains("--cacert"), "{said}");
    shell.good(
        "self --ca --in ca.key --dn CN=Old --not-before 2020-01-01 --not-after 2021-01-01 --out old.crt",
    );
    assert!(shell.good("print old.crt").contains("EXPIRED"));
    let said = shell.bad(1, "verify --in old.crt");
    assert!(
        said.contains("valid until 2021-01-01 00:00:00 UTC") && said.contains("issue a new one"),
        "{said}"
    );
    shell.bad(2, "issue --cacert old.crt --cakey ca.key --in gw.key --dn CN=x");
    shell.good("gen --out other.key");
    shell.good("self --ca --in other.key --dn O=Example,CN=CA --out other.crt");
    let said = shell.bad(1, "verify --in gw.crt --cacert other.crt");
    assert!(said.contains("not by its issuer's key") && said.contains("same name"), "{said}");
    let done = shell.run("verify --in gw.crt --cacert other.crt --json");
    let text = String::from_utf8(done.stdout).expect("text");
    assert!(done.status.code() == Some(1) && done.stderr.is_empty());
    assert!(text.contains("\"ironswan.pki.verify/1\"") && text.contains("\"valid\": false"), "{text}");
}

#[test]
fn what_nobody_would_accept_is_not_issued() {
    let shell = Shell::with_ca();
    let refused = |line: &str, part: &str| {
        let said = shell.bad(2, line);
        assert!(said.contains(part), "{line}: {said}");
        assert!(!shell.0.path().join("no").exists(), "{line}");
    };
    // The CA may only issue for one domain and one network, and no CA below itself.
    shell.good("gen --out sub.key");
    shell.good(&format!(
        "{ISSUE} --in sub.key --dn CN=Sub --ca --pathlen 0 --nc-permitted example.com --nc-permitted 10.1.0.0/16 --out sub.crt"
    ));
    let shown = shell.good("print sub.crt");
    assert!(shown.contains("only dns example.com") && shown.contains("only network 10.1.0.0/16"), "{shown}");
    let issue = "issue --cacert sub.crt --cakey sub.key --out no";
    refused(&format!("{issue} --in gw.key --dn CN=gw --san gw.example.org"), "does not permit");
    refused(&format!("{issue} --in gw.key --dn CN=gw --san 192.0.2.1"), "does not permit");
    shell.good(&format!(
        "{} --in gw.key --dn CN=gw --san gw.example.com --san 10.1.2.3 --out yes",
        issue.replace(" --out no", "")
    ));
    shell.good("verify --in yes --cert sub.crt --cacert ca.crt --identity 10.1.2.3");

    refused(
        "issue --cacert gw.crt --cakey gw.key --in gw.key --dn CN=x --out no",
        "not the certificate of a CA",
    );
    refused(
        "issue --cacert ca.crt --cakey gw.key --in gw.key --dn CN=x --out no",
        "is not the key of ca.crt",
    );
    refused(&format!("{ISSUE} --in gw.key --out no"), "nobody is named");
    refused(&format!("{ISSUE} --in gw.key --dn example --out no"), "no distinguished name");
    refused(&format!("{ISSUE} --in gw.key --dn CN=x --san a=b=c --out no"), "--san");
    refused(&format!("{ISSUE} --in gw.key --dn CN=x --flag serverauth2 --out no"), "--flag");
    refused(&format!("{ISSUE} --in gw.key --dn CN=x --crl file:///etc/passwd --out no"), "--crl");
    refused(&format!("{ISSUE} --in gw.key --dn CN=x --not-after 2000-01-01 --out no"), "before it begins");
    refused(&format!("{ISSUE} --in gw.key --dn CN=x --serial 0 --out no"), "--serial");
    refused("self --in gw.key --ca --out no", "a CA needs a name");
}

#[test]
fn what_goes_to_windows_and_phones_is_one_file() {
    let shell = Shell::with_ca();
    shell.write("pass", b"s3cret\n");
    shell.write("wrong", b"other\n");
    shell.good("pkcs12 --in gw.key --cert gw.crt --cacert ca.crt --export-passphrase-file pass --out gw.p12");
    assert_eq!(shell.mode("gw.p12"), 0o600);
    let shown = shell.good("print gw.p12 --passphrase-file pass");
    assert!(
        shown.contains("private key in PKCS#12")
            && shown.contains("O=Example, CN=gw")
            && shown.contains("root CA"),
        "{shown}"
    );
    assert!(shell.bad(2, "print gw.p12 --passphrase-file wrong").contains("passphrase is wrong"));
    let said = shell.bad(2, "pkcs12 --in ca.key --cert gw.crt --export-passphrase-file pass --out no");
    assert!(said.contains("is not the key of gw.crt"), "{said}");
}

#[test]
fn no_cut_or_damaged_file_makes_more_than_one_line() {
    let shell = Shell::with_ca();
    shell.good("signcrl --cacert ca.crt --cakey ca.key --serial 1 --outform der --out list");
    shell.good("req --in gw.key --dn CN=gw --san gw.example --outform der --out request");
    shell.good("gen --outform der --out private");
    shell.good("pub --in private --outform der --out public");
    shell.good("self --in private --ca --dn CN=x --outform der --out certificate");
    shell.write("pass", b"s3cret\n");
    shell.good("pkcs12 --in gw.key --cert gw.crt --export-passphrase-file pass --out container");
    for name in ["list", "request", "private", "public", "certificate", "container"] {
        let whole = shell.bytes(name);
        // Cut off, lengths of four gigabytes, and something behind the end.
        let huge = |at: usize| [&whole[..at], &[0x84, 0xff, 0xff, 0xff, 0xff], &whole[at..]].concat();
        let files = [
            whole[..whole.len() / 2].to_vec(),
            whole[..whole.len() - 1].to_vec(),
            whole[..3].to_vec(),
            huge(1),
            [&whole[..], b"more"].concat(),
        ];
        for bytes in files {
            shell.write("bad", &bytes);
            let said = shell.bad(2, "print bad --passphrase-file pass");
            assert!(said.contains("bad "), "{name}: {said}");
            for command in [
                "verify --cacert ca.crt --in bad",
                "pub --in bad",
                "keyid --in bad",
                "self --ca --dn CN=x --in bad",
            ] {
                shell.bad(2, command);
            }
        }
    }
    for text in [
        "",
        "hello\n",
        "-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        shell.write("bad", text.as_bytes());
        shell.bad(2, "print bad");
        shell.bad(2, "verify --in bad --cacert ca.crt");
        shell.bad(2, &format!("{ISSUE} --in bad --dn CN=x"));
    }
    shell.bad(2, "print absent");
    shell.bad(2, "print .");
    // One bad file does not hide the good one beside it.
    let done = shell.run("print bad gw.crt");
    assert!(
        done.status.code() == Some(2) && String::from_utf8_lossy(&done.stdout).contains("O=Example, CN=gw")
    );
}

#[test]
fn a_file_of_another_kind_is_named() {
    let shell = Shell::with_ca();
    shell.good("signcrl --cacert ca.crt --cakey ca.key --out ca.crl");
    for (line, part) in [
        (
            "verify --in gw.key --cacert ca.crt",
            "gw.key holds a private key: name a file that holds a certificate",
        ),
        ("verify --in gw.crt --cacert ca.crl", "ca.crl holds a revocation list: name"),
        (
            "verify --in gw.crt --cacert ca.crt --crl ca.crt",
            "ca.crt holds a certificate: name a file that holds a revocation list",
        ),
        ("req --in gw.crt --dn CN=x", "gw.crt holds a certificate: name a file that holds a private key"),
        ("issue --cacert ca.key --cakey ca.key --in gw.key --dn CN=x", "ca.key holds a private key: name"),
        ("pub --in ca.crl", "ca.crl holds no key"),
    ] {
        let said = shell.bad(2, line);
        assert!(said.contains(part), "{line}: {said}");
    }
    // A CA by itself stands in its chain once.
    assert_eq!(shell.good("verify --in ca.crt").matches("O=Example, CN=CA").count(), 1);
}

#[test]
fn a_shared_key_is_printed_as_before() {
    let shell = Shell(Scratch::new());
    for line in ["psk", "--psk"] {
        let key = shell.good(line);
        assert!(key.starts_with("0s") && key.trim_end().len() == 46, "{key}");
    }
    assert!(shell.good("psk --json").contains("\"ironswan.pki/1\""));
}
