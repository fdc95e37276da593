//! `ironswan report` as people call it: secrets of every kind are planted in every place, and no
//! byte of the archive, nor of what is printed, has one of them in any form. Needs root.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{IRONSWAN, Scratch, stderr, stdout};
use ironswan_wire::vici::{FrameReader, Packet, Section};

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().chain([0, 0].iter()).take(3).fold(0u32, |n, b| n << 8 | u32::from(*b));
        for i in 0..4 {
            let digit = alphabet[(n >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Every form of a secret that must not be in a report. Of base64 in the middle of other bytes, the
/// characters that depend on the secret alone.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let digits = hex(secret);
    let colons = secret.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let mut out =
        vec![secret.to_vec(), digits.clone().into(), digits.to_uppercase().into(), colons.clone().into()];
    out.push(colons.to_uppercase().into());
    for alphabet in [STANDARD, URL_SAFE] {
        for shift in 0..3 {
            let padded = [&[0; 2][..shift], secret].concat();
            let text = base64(&padded, alphabet);
            out.push(text[(8 * shift).div_ceil(6)..8 * padded.len() / 6].into());
        }
    }
    if let Ok(text) = std::str::from_utf8(secret) {
        out.push(text.replace('\\', "\\\\").replace('"', "\\\"").into());
    }
    out
}

#[track_caller]
fn has_none(bytes: &[u8], secrets: &[Vec<u8>], where_: &str) {
    for secret in secrets {
        for form in forms(secret) {
            let at = bytes.windows(form.len()).position(|w| w == form);
            let around = at
                .map(|at| bytes[at.saturating_sub(60)..bytes.len().min(at + 80)].escape_ascii().to_string());
            assert_eq!(around, None, "{where_}: {}", form.escape_ascii());
        }
    }
}

/// All forms of all secrets, one a line, each behind a word.
fn planted(secrets: &[Vec<u8>]) -> String {
    let mut out = String::new();
    for secret in secrets {
        for form in forms(secret) {
            let text = String::from_utf8_lossy(&form).into_owned();
            if !text.contains(char::is_control) && !text.contains('\u{fffd}') {
                out += &format!("# note {text} end\n# key={text}\n# 0x{text} 0s{text}\n");
            }
        }
        for shift in 0..3 {
            let around = [&b"ab"[..shift], secret, b"cd"].concat();
            out += &format!("# {}\n", base64(&around, STANDARD));
        }
    }
    out
}

fn report(args: &[&str], folder: &Path) -> Output {
    Command::new(IRONSWAN).arg("report").args(args).current_dir(folder).output().expect("it runs")
}

/// The one archive in a folder, and all its bytes uncompressed.
fn archive(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    let all: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(fs::metadata(&all[0]).expect("a file").permissions().mode() & 0o777, 0o600);
    let plain = Command::new("gzip").args(["-dc"]).arg(&all[0]).output().expect("gzip").stdout;
    assert!(plain.len() > 10_000, "{}", plain.len());
    (fs::read(&all[0]).expect("a file"), plain)
}

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|w| w == what.as_bytes())
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon in a network namespace of its own.
fn daemon(config: &Path, socket: &Path) -> Daemon {
    let uri = format!("unix://{}", socket.display());
    let mut command = Command::new("unshare");
    command.args(["--net", IRONSWAN, "run", "--vici", &uri, "--config"]).arg(config);
    let log = fs::File::create(socket.with_extension("log")).expect("a file");
    let mut daemon = Daemon(command.stdout(Stdio::null()).stderr(log).spawn().expect("unshare"));
    for _ in 0..200 {
        if UnixStream::connect(socket).is_ok() {
            return daemon;
        }
        let ended = daemon.0.try_wait().expect("it can be asked");
        let log = || fs::read_to_string(socket.with_extension("log")).unwrap_or_default();
        assert!(ended.is_none(), "{ended:?}: {}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no socket");
}

/// One command of VICI.
fn ask(socket: &Path, name: &str, message: Section) -> Section {
    let mut stream = UnixStream::connect(socket).expect("the socket");
    stream
        .write_all(&Packet::CmdRequest { name: name.into(), message }.emit().expect("a frame"))
        .expect("it is sent");
    let mut frames = FrameReader::new();
    loop {
        let mut buf = [0; 4096];
        let n = stream.read(&mut buf).expect("an answer");
        assert!(n > 0);
        frames.feed(&buf[..n]);
        if let Some(frame) = frames.next_frame().expect("a frame") {
            match Packet::parse(&frame).expect("a packet") {
                Packet::CmdResponse(answer) => return answer,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn no_secret_is_in_a_report_in_any_form_from_any_place() {
    let scratch = Scratch::new();
    let bytes = |n: u32, seed: u32| {
        (0..n).map(|i| (i.wrapping_mul(167) ^ seed.wrapping_mul(89) >> 1) as u8).collect::<Vec<u8>>()
    };
    let (hexed, coded, ppk) = (bytes(20, 3), bytes(32, 11), bytes(32, 77));
    let (seed, logged) = (bytes(32, 5), bytes(16, 130));
    let text = |t: &str| t.as_bytes().to_vec();
    let quoted = text("Zx9 sword\"fish\\tail");
    let (old, phrase, by_vici) =
        (text("marlin-and-tuna-1987"), text("pass phrase of a key"), text("loaded-by-vici-42"));
    let qcd = bytes(32, 201);
    let secrets = vec![
        quoted.clone(),
        hexed.clone(),
        coded.clone(),
        ppk.clone(),
        seed.clone(),
        logged.clone(),
        old.clone(),
        phrase.clone(),
        by_vici.clone(),
        qcd.clone(),
    ];
    // A key of Ed25519 in PKCS#8 is this head and the seed.
    let der = [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &seed].concat();
    scratch.write(
        "config/private/gw.pem",
        &format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", base64(&der, STANDARD)),
    );
    scratch.write("config/ipsec.secrets", &format!("# {}\na b : PSK \"marlin-and-tuna-1987\"\n", "x"));
    scratch.write("keys/ikev2_decryption_table", &format!("1,2,{},{}\n", hex(&logged), hex(&logged)));
    fs::write(scratch.path().join("qcd"), &qcd).expect("a file");
    fs::set_permissions(scratch.path().join("qcd"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(scratch.path().join("keys"), fs::Permissions::from_mode(0o700)).expect("a mode");
    let id = |b: &[u8]| hex(b);
    let conf = format!(
        "{}connections {{ n{} {{ local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n local {{ auth = psk\n id = {} }}\n\
         remote {{ auth = psk\n id = \"{}\" }}\n children {{ c{} {{ local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 }} }} }} }}\n\
         secrets {{ # {}\n ike-1 {{ secret = \"Zx9 sword\\\"fish\\\\tail\"\n id = other }}\n ike-2 {{ secret = 0x{} }}\n\
         ike-3 {{ secret = 0s{}\n id = third }}\n ppk-1 {{ secret = 0x{} }}\n private-1 {{ file = none.pem\n secret = pass phrase of a key }} }}\n",
        planted(&secrets),
        hex(&by_vici),
        id(&coded),
        base64(&ppk, URL_SAFE).trim_end_matches('='),
        hex(&seed),
        String::from_utf8_lossy(&old),
        hex(&hexed),
        base64(&coded, STANDARD),
        hex(&ppk),
    );
    scratch.write("config/swanctl.conf", &conf);
    scratch.write(&format!("config/conf.d/{}.conf", hex(&coded)), "# nothing\n");
    let settings = format!(
        "qcd_secret = {}\nkeylog = {}\n{}",
        scratch.path().join("qcd").display(),
        scratch.path().join("keys").display(),
        planted(&secrets)
    );
    scratch.write("config/ironswan.conf", &settings);
    let [config, socket, out] = ["config", "vici", "out"].map(|name| scratch.path().join(name));
    fs::create_dir(&out).expect("a folder");
    let daemon = daemon(&config, &socket);
    let load = Section::new().with("type", "ike").with("data", by_vici.clone()).with("id", "by-vici");
    assert_eq!(ask(&socket, "load-shared", load).get_str("success"), Some("yes"));
    let uri = format!("unix://{}", socket.display());
    let done = report(&["--config", config.to_str().expect("a path"), "--vici", &uri], &out);
    assert_eq!(done.status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    drop(daemon);
    let (packed, plain) = archive(&out);
    has_none(&plain, &secrets, "the archive");
    has_none(&packed, &secrets, "its compressed bytes");
    has_none(&done.stdout, &secrets, "standard output");
    has_none(&done.stderr, &secrets, "standard error");
    // All else is there.
    for what in [
        "config/swanctl.conf",
        "config/ironswan.conf",
        "config/ipsec.secrets",
        "doctor.json",
        "daemon/conns.json",
        "daemon/pols.json",
        "daemon/counters.json",
        "machine/nft.txt",
        "machine/ip-link.json",
        "machine/sysctl.txt",
        "INDEX.txt",
        "ironswan.doctor/1",
        "local_ts = 10.1.0.0/24",
        "remote_addrs = 192.0.2.2",
        "private/gw.pem",
        "Linux version",
        "a b : PSK [#",
    ] {
        assert!(contains(&plain, what), "{what}");
    }
    // Equal secrets show as equal: that of ike-3 is also the identity, in another form.
    let text = String::from_utf8_lossy(&plain).into_owned();
    let hash = |before: &str| {
        let at = text.find(before).unwrap_or_else(|| panic!("{before}")) + before.len();
        text[at..at + 19].to_owned()
    };
    let third = hash("ike-3 { secret = ");
    assert!(
        third.starts_with("[#") && text.contains(&format!("local {{ auth = psk\n id = {third}")),
        "{third}"
    );
    assert!(!text.contains("PRIVATE KEY-----\n"), "no file of a private key");
}

#[test]
fn a_report_without_a_daemon_and_without_a_configuration_is_made_too() {
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    fs::create_dir(&out).expect("a folder");
    let args = ["--config", "/nonexistent", "--vici", "unix:///nonexistent/vici", "--json"];
    let done = report(&args, &out);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let doc: serde_json::Value = serde_json::from_str(&stdout(&done)).expect("a document");
    assert_eq!(doc["schema"], "ironswan.report/1");
    let names: Vec<&str> =
        doc["entries"].as_array().expect("a list").iter().filter_map(|e| e["name"].as_str()).collect();
    assert!(names.contains(&"machine/nft.txt") && names.contains(&"doctor.txt"), "{names:?}");
    archive(&out);
}

#[test]
fn a_report_that_cannot_be_written_says_what_to_do_and_leaves_nothing() {
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    fs::create_dir(&out).expect("a folder");
    let pipe = scratch.path().join("config/ironswan.conf");
    scratch.write("config/swanctl.conf", "connections { }\n");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let config = scratch.path().join("config");
    let common = ["--config", config.to_str().expect("a path"), "--vici", "unix:///nonexistent/vici"];
    for (file, words) in
        [("/dev/full", "no regular file"), ("no/such/file", "there is no folder no/such: make it")]
    {
        let done = report(&[&common[..], &["-o", file]].concat(), &out);
        assert_eq!(done.status.code(), Some(1));
        assert!(stderr(&done).contains(words) && stderr(&done).contains("-o"), "{}", stderr(&done));
    }
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 0);
    // The pipe among the files of the configuration holds nobody up, and is said.
    let done = report(&common, &out);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(
        stdout(&done).contains("left out") && stdout(&done).contains("ironswan.conf"),
        "{}",
        stdout(&done)
    );
    assert!(
        stdout(&done).lines().all(|l| l.chars().count() <= 80 || l.contains(out.to_str().expect("a path"))),
        "{}",
        stdout(&done)
    );
}

#[test]
fn secrets_of_wrong_keys_and_of_text_that_is_not_understood_are_in_no_form_in_a_report() {
    let scratch = Scratch::new();
    let [wrong, loose, nobody, braces] =
        ["tuna-under-a-wrong-key", "marlin that is not quoted", "a-password-of-nobody", "cod]in{braces"];
    let secrets = [wrong, loose, nobody, braces].map(|t| t.as_bytes().to_vec());
    let conf = format!(
        "{}connections {{ n {{ remote_addrs = 192.0.2.2\n presharedky = {wrong} # {wrong}\n\
         local {{ auth = psk\n passwrd = \"{nobody}\"\n }}\n }} }}\n\
         secrets {{ ike-1 {{ secrt = {loose}\n id = x }}\n ike-2 {{ secret = {braces} }}\n",
        planted(&secrets[..3])
    );
    scratch.write("config/swanctl.conf", &conf);
    scratch.write("config/ironswan.conf", &format!("some_token = {nobody}\n{}", planted(&secrets[..3])));
    scratch
        .write("config/conf.d/more.conf", &format!("connections {{ m {{ remote_addrs = {wrong}\n }} }}\n"));
    scratch.write(&format!("config/x509/{wrong}.pem"), "nothing\n");
    let [config, out] = ["config", "out"].map(|name| scratch.path().join(name));
    fs::create_dir(&out).expect("a folder");
    let args = ["--config", config.to_str().expect("a path"), "--vici", "unix:///nonexistent/vici"];
    let done = report(&args, &out);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let (packed, plain) = archive(&out);
    for (bytes, where_) in
        [(&plain, "the archive"), (&packed, "its compressed bytes"), (&done.stdout, "output")]
    {
        has_none(bytes, &secrets, where_);
    }
    for what in ["presharedky = [#", "remote_addrs = 192.0.2.2", "some_token = [#", "is not understood"] {
        assert!(contains(&plain, what), "{what}: {}", String::from_utf8_lossy(&plain));
    }
}
