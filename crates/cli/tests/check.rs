//! `ironswan check` and the commands that need a daemon, as people call them: what is printed, and
//! the exit status.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use ironswan_wire::vici::{FrameReader, Packet, Section};

const GOOD: &str = "connections { net { local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n local { auth = psk\n id = a }\n\
    remote { auth = psk\n id = b }\n children { net { local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 } } } }\n\
    secrets { ike-1 { secret = 0123456789abcdef0123456789abcdef } }\n";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, swanctl: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ironswan-check-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("swanctl.conf");
        fs::write(&file, swanctl).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ironswan(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_ironswan")).args(args).output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_configuration_without_errors_is_0_a_wrong_one_and_a_doubtful_one_with_strict_1_and_none_2() {
    let good = Folder::new("good", GOOD);
    let (status, out, _) = ironswan(&["check", good.0.to_str().unwrap()]);
    assert_eq!((status, out.as_str()), (0, "1 connections, 1 secrets: 0 errors, 0 warnings\n"));
    let wrong = Folder::new("wrong", &GOOD.replace("remote_addrs", "remote_adrs"));
    let file = wrong.0.join("swanctl.conf");
    let (status, out, _) = ironswan(&["check", file.to_str().unwrap()]);
    assert_eq!(status, 1);
    let want = format!(
        "{}:2: connections.net.remote_adrs: unknown key; did you mean `remote_addrs`?",
        file.display()
    );
    assert_eq!(out.lines().next(), Some(want.as_str()));
    let doubtful = Folder::new("doubtful", &GOOD.replace("10.2.0.0/24", "0.0.0.0/0"));
    for (strict, want) in [(None, 0), (Some("--strict"), 1)] {
        let args: Vec<&str> = ["check", doubtful.0.to_str().unwrap()].into_iter().chain(strict).collect();
        let (status, out, _) = ironswan(&args);
        assert!(out.contains("contains the peer's own address 192.0.2.2"), "{out}");
        assert_eq!(status, want, "{out}");
    }
    let (status, out, _) = ironswan(&["check", "/nonexistent/x"]);
    assert!(status == 2 && out.contains("/nonexistent/x"), "{out}");
}

#[test]
fn a_warning_behind_a_thousand_notes_counts_and_is_shown() {
    let mut text = String::from("connections {\n");
    for i in 0..1_100 {
        let last = if i == 1_099 { "replay_window = 0" } else { "mode = tunnel" };
        text.push_str(&format!(
            "c{i} {{ dpd_timeout = 1\n remote_addrs = 10.9.{}.{}\n local {{ auth = psk\n id = a }}\n remote {{ auth = psk\n id = p{i} }}\n \
             children {{ n {{ {last}\n local_ts = 10.1.0.0/24\n remote_ts = 10.2.{}.{}/32 }} }} }}\n",
            i / 256, i % 256, i / 256, i % 256
        ));
    }
    text.push_str("}\nsecrets { ike-1 { secret = 0123456789abcdef0123456789abcdef } }\n");
    let many = Folder::new("many", &text);
    let (status, out, _) = ironswan(&["check", "--strict", many.0.to_str().unwrap()]);
    let end: Vec<&str> = out.lines().rev().take(3).collect();
    assert_eq!(status, 1, "{end:?}");
    assert!(end[2].contains("c1099.children.n.replay_window: 0 turns the replay check off"), "{end:?}");
    assert_eq!(end[1], "and 101 more");
    assert_eq!(end[0], "1100 connections, 1 secrets: 0 errors, 1 warnings");
}

#[test]
fn the_exit_status_is_the_command_s_own_though_nobody_reads_what_it_says() {
    let unread = |args: &[&str]| {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let (out, err) = (writer.try_clone().unwrap(), writer);
        Command::new(env!("CARGO_BIN_EXE_ironswan"))
            .args(args)
            .stdout(out)
            .stderr(err)
            .status()
            .unwrap()
            .code()
    };
    let wrong = Folder::new("unread", &GOOD.replace("remote_addrs", "remote_adrs"));
    assert_eq!(unread(&["check", wrong.0.to_str().unwrap()]), Some(1));
    assert_eq!(unread(&["check", "--json", wrong.0.to_str().unwrap()]), Some(1));
    assert_eq!(unread(&["check", "/nonexistent/x"]), Some(2));
    assert_eq!(unread(&["up", "net", "--vici", "unix:///nonexistent/x.vici"]), Some(2));
    assert_eq!(unread(&["check", "--algorithms"]), Some(0));
}

/// `ironswan up net | head -1` ends when the tunnel is up or has failed, not with the first line.
#[test]
fn up_waits_for_its_end_though_only_the_first_line_is_read() {
    let dir = Folder::new("up", GOOD);
    let socket = dir.0.join("vici");
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = FrameReader::new();
        let mut initiated = false;
        loop {
            let mut buf = [0; 4096];
            let n = stream.read(&mut buf).unwrap_or(0);
            if n == 0 {
                return initiated;
            }
            frames.feed(&buf[..n]);
            while let Some(frame) = frames.next_frame().unwrap() {
                let mut send = |packet: Packet| stream.write_all(&packet.emit().unwrap()).unwrap();
                match Packet::parse(&frame).unwrap() {
                    Packet::CmdRequest { name, .. } if name == "list-conns" => {
                        let children = Section::new().with("net", Section::new().with("mode", "TUNNEL"));
                        let message = Section::new().with("net", Section::new().with("children", children));
                        send(Packet::Event { name: "list-conn".into(), message });
                        send(Packet::CmdResponse(Section::new()));
                    }
                    Packet::CmdRequest { name, .. } => {
                        assert_eq!(name, "initiate");
                        for i in 0..20 {
                            let message =
                                Section::new().with("group", "IKE").with("msg", format!("step {i}"));
                            send(Packet::Event { name: "control-log".into(), message });
                            std::thread::sleep(std::time::Duration::from_millis(20));
                        }
                        initiated = true;
                        send(Packet::CmdResponse(
                            Section::new().with("success", "no").with("errmsg", "not up"),
                        ));
                    }
                    Packet::EventRegister(_) | Packet::EventUnregister(_) => send(Packet::EventConfirm),
                    packet => panic!("{packet:?}"),
                }
            }
        }
    });
    let (reader, writer) = pipe().unwrap();
    let uri = format!("unix://{}", socket.display());
    let mut up = Command::new(env!("CARGO_BIN_EXE_ironswan"))
        .args(["up", "net", "--vici", &uri])
        .stdout(writer)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let status = up.wait().unwrap().code();
    println!("after {line:?}: exit status {status:?}");
    assert_eq!((line.as_str(), status), ("[IKE] step 0\n", Some(1)));
    assert!(daemon.join().unwrap(), "it has stayed until the end");
}

#[test]
fn weak_algorithms_are_warned_about_where_they_stand() {
    let weak = Folder::new(
        "weak",
        &GOOD.replace(
            "children { net { ",
            "children { net { esp_proposals = 3des-md5\n ah_proposals = sha256\n ",
        ),
    );
    let file = weak.0.join("swanctl.conf");
    let (status, out, _) = ironswan(&["check", weak.0.to_str().unwrap()]);
    let lines: Vec<&str> = out.lines().collect();
    let at = |line: u32, rest: &str| {
        format!("{}:{line}: warning: connections.net.children.net.{rest}", file.display())
    };
    assert_eq!(status, 0, "warnings alone");
    assert_eq!(
        lines,
        [
            at(
                7,
                "esp_proposals: 3des is weak: SHOULD NOT (RFC 8221 section 5) for ESP; write aes128gcm16 instead"
            ),
            at(
                7,
                "esp_proposals: md5 is broken or breakable: MUST NOT (RFC 8221 section 6) for ESP; write sha256 instead"
            ),
            at(
                8,
                "ah_proposals: encryption is offered beside none (AH, null, GMAC): the peer may choose what everybody can read; \
                 keep one kind"
            ),
            "1 connections, 1 secrets: 0 errors, 3 warnings".to_owned(),
        ]
    );
}

#[test]
fn algorithms_are_listed_without_a_configuration() {
    let (status, out, _) = ironswan(&["check", "--algorithms", "/nonexistent"]);
    assert_eq!(status, 0);
    let line = |word: &str| out.lines().find(|l| l.starts_with(word)).unwrap_or_default().to_owned();
    assert_eq!(
        line("md5 ").split_whitespace().collect::<Vec<_>>().join(" "),
        "md5 integrity MUST NOT MUST NOT MUST NOT"
    );
    assert!(line("prfaesxcbc ").contains("SHOULD (small devices, old peers)"), "{out}");
    assert!(line("aes128gcm16 ").ends_with("aes128gcm128 aes128gcm"), "{out}");
    let (_, out, _) = ironswan(&["check", "--algorithms", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(doc["schema"], "ironswan.algorithms/1");
    let triple = doc["algorithms"].as_array().unwrap().iter().find(|a| a["words"][0] == "3des").unwrap();
    assert_eq!((&triple["esp"]["level"], &triple["ike"]["level"]), (&"SHOULD NOT".into(), &"MAY".into()));
    assert_eq!((&triple["ike"]["old_peers"], &triple["ah"]), (&true.into(), &serde_json::Value::Null));
}

#[test]
fn json_has_a_schema_and_places() {
    let wrong = Folder::new("json", &GOOD.replace("auth = psk\n id = a", "auth = pubkey"));
    let (status, out, _) = ironswan(&["check", "--json", wrong.0.to_str().unwrap()]);
    assert_eq!(status, 1);
    let doc: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(doc["schema"], "ironswan.check/1");
    assert_eq!((&doc["errors"], &doc["findings"][0]["line"]), (&1.into(), &3.into()));
    assert_eq!(doc["findings"][0]["key"], "connections.net.local.pubkeys");
}

#[test]
fn without_a_daemon_the_message_says_so_and_the_status_is_2() {
    for args in
        [vec!["up", "net"], vec!["down", "net"], vec!["rekey", "net"], vec!["status"], vec!["list", "sas"]]
    {
        let mut args = args;
        args.extend(["--vici", "unix:///nonexistent/x.vici"]);
        let (status, _, err) = ironswan(&args);
        assert!(
            status == 2 && err.contains("no gateway answers at unix:///nonexistent/x.vici"),
            "{args:?}: {err}"
        );
    }
    assert_eq!(ironswan(&["status", "--vici", "x"]).0, 2);
    assert_eq!(ironswan(&["nonsense"]).0, 2);
    assert_eq!(ironswan(&["--version"]).0, 0);
}
